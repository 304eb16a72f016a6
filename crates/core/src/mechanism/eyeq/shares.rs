//! Decides what each VM of a host may receive, and each of its two parts.
//!
//! Problem   Packets drive the meters and rates, so these are in the data plane. The division of the
//!           link changes more slowly, and needs the readings of all meters. A VM's senders differ:
//!           those of its own tenant are promised its floor, all others are promised nothing.
//! Approach  Once a period the meters' counters are read: octets, and how often each rate was
//!           computed. From these the [`Scheduler`] makes the capacities C_i of VMs. A VM has two
//!           meters: its own tenant's senders may have all of C_i, strangers what these leave of
//!           it.
//! Promises  The scheduler's. Strangers never have more than C_i less what the VM's own tenant
//!           sends to it, or a trickle ([`STRANGERS_LEAST`]). A VM that was never read has what the
//!           scheduler gives to an idle one.
//! Not here  Rates, and which sources are told: see `rate_meter`.
//! Source    EyeQ §3.2. Departs: the paper tells all senders of a VM one rate, whatever their
//!           tenant.

use super::config::EyeQ;
use super::io::{Bounds, VmBounds};
use super::rate_meter::MeterShare;
use super::scheduler::{Member, Pool, Scheduler};
use crate::host::{Metered, Part};
use crate::meter::Meter;
use weir_units::{Bytes, Rate, SortedMap, Span, Time, VmId};

/// Strangers of a VM may have one part in so many of C, whatever its own tenant sends: no sender
/// starves.
const STRANGERS_LEAST: u64 = 1_000;
/// What a part usually receives is the mean over so many periods.
const USUAL_PERIODS: f64 = 8.0;

/// The capacities of a host's VMs.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Shares {
    scheduler: Scheduler,
    vms: SortedMap<VmId, Endpoint>,
    stepped_at: Time,
}

/// One VM as it receives.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Endpoint {
    bounds: Bounds,
    parts: [Metering; 2],
    active_at: Option<Time>,
}

/// One part of what a VM receives.
#[derive(Default, Debug, serde::Serialize, serde::Deserialize)]
struct Metering {
    octets: Meter,
    steps: Meter,
    /// Octets since the last step of ours.
    arrived: u64,
    /// Steps of its rate since the outer loop's last one.
    made: u64,
    capacity: Rate,
    received: Rate,
    /// What it receives in the mean.
    usual: Rate,
}

impl Metering {
    /// Whether anything arrived.
    fn read(&mut self, metered: Metered) -> bool {
        let octets = self.octets.read(metered.octets);
        self.arrived = self.arrived.saturating_add(octets);
        self.made = self.made.saturating_add(self.steps.read(metered.steps));
        octets > 0
    }

    fn end(&mut self, elapsed: Span) {
        if elapsed > Span::ZERO {
            self.received = Rate::of(Bytes::new(self.arrived), elapsed);
            let part = 1.0 / USUAL_PERIODS;
            self.usual = self.usual.scale(1.0 - part) + self.received.scale(part);
        }
        self.arrived = 0;
    }
}

impl Endpoint {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, parts: Default::default(), active_at: None }
    }

    /// As a whole, in the eyes of the host. What most of it follows, it follows.
    fn member(&self, vm: VmId, eyeq: &EyeQ, now: Time) -> Member {
        let [own, strangers] = &self.parts;
        Member {
            key: vm.0,
            bounds: self.bounds,
            octets: own.arrived.saturating_add(strangers.arrived),
            is_active: self.active_at.is_some_and(|at| now.since(at) < eyeq.idle_after),
            steps: if own.arrived >= strangers.arrived { own.made } else { strangers.made },
        }
    }

    /// Divides C_i. Strangers have what the VM's own tenant leaves, now and in the mean: what
    /// pauses for a period has its room when it goes on.
    fn divide(&mut self, capacity: Rate, least: Rate) {
        let [own, strangers] = &mut self.parts;
        own.capacity = capacity;
        let left = capacity.saturating_sub(own.received.max(own.usual));
        strangers.capacity = left.max(least).min(capacity);
    }
}

impl Shares {
    /// Of a host without VMs, at `now`.
    pub fn new(now: Time) -> Self {
        Self { scheduler: Scheduler::new(now), vms: SortedMap::new(), stepped_at: now }
    }

    /// The VMs are these, with these bounds; one that stays keeps its share until the next step.
    pub fn set_vms(&mut self, vms: &SortedMap<VmId, VmBounds>) {
        self.vms.retain(|vm, _| vms.contains_key(vm));
        for (vm, bounds) in vms {
            let new = || Endpoint::new(bounds.in_);
            self.vms.entry(*vm).or_insert_with(new).bounds = bounds.in_;
        }
    }

    /// Takes a reading of a meter. The meter of a VM that is not here is ignored.
    pub fn read(&mut self, now: Time, vm: VmId, part: Part, metered: Metered) {
        if let Some(endpoint) = self.vms.get_mut(&vm)
            && endpoint.parts[part as usize].read(metered)
        {
            endpoint.active_at = Some(now);
        }
    }

    /// The end of a period on a link of `line`: what each VM may receive from now on. Before the
    /// first reading of all it is what they may have while all are idle.
    pub fn step(&mut self, eyeq: &EyeQ, now: Time, line: Rate) {
        let elapsed = now.since(self.stepped_at);
        self.stepped_at = now;
        let members: Vec<Member> =
            self.vms.iter().map(|(vm, e)| e.member(*vm, eyeq, now)).collect();
        let pool = Pool { capacity: eyeq.capacity_of(line), line: Some(line), elapsed };
        let least = pool.capacity.mul_ratio(1, STRANGERS_LEAST);
        let capacities = self.scheduler.step(eyeq, now, pool, &members);
        for (endpoint, capacity) in self.vms.values_mut().zip(capacities) {
            for part in &mut endpoint.parts {
                if self.scheduler.has_stepped {
                    part.made = 0;
                }
                part.end(elapsed);
            }
            endpoint.divide(capacity, least);
        }
    }

    /// What each part of each VM may receive, as its meter takes it.
    pub fn shares(&self, eyeq: &EyeQ) -> impl Iterator<Item = (VmId, Part, MeterShare)> + '_ {
        let divisor = u64::from(eyeq.least_divisor);
        let share = move |capacity: Rate| MeterShare {
            capacity_bps: capacity.as_bps(),
            floor_bps: capacity.mul_ratio(1, divisor).as_bps(),
        };
        self.vms.iter().flat_map(move |(vm, endpoint)| {
            Part::ALL.map(|part| (*vm, part, share(endpoint.parts[part as usize].capacity)))
        })
    }

    /// C_i of a VM: what its own tenant may send to it.
    pub fn capacity(&self, vm: VmId, part: Part) -> Rate {
        self.vms.get(&vm).map_or(Rate::ZERO, |endpoint| endpoint.parts[part as usize].capacity)
    }

    /// What a part of a VM received in the last period, from other hosts.
    pub fn received(&self, vm: VmId, part: Part) -> Rate {
        self.vms.get(&vm).map_or(Rate::ZERO, |endpoint| endpoint.parts[part as usize].received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_mbps(200);
    const PERIOD: Span = Span::from_millis(10);

    fn mbps(m: u64) -> Rate {
        Rate::from_mbps(m)
    }

    fn vms(floors: &[u64]) -> SortedMap<VmId, VmBounds> {
        (0..).map(VmId).zip(floors.iter().map(|floor| VmBounds::both(mbps(*floor)))).collect()
    }

    fn law() -> EyeQ {
        use super::super::Backend;
        EyeQ::default().for_link(LINE, Span::from_millis(1), Backend::Agent)
    }

    fn capacities(shares: &Shares) -> Vec<Rate> {
        shares.vms.keys().map(|vm| shares.capacity(*vm, Part::Own)).collect()
    }

    /// Meters whose VMs receive all they may, up to `wants`; C_i in the end.
    fn settle(floors: &[u64], wants: &[u64], periods: u64) -> Vec<Rate> {
        let (eyeq, mut shares) = (law(), Shares::new(Time::ZERO));
        shares.set_vms(&vms(floors));
        shares.step(&eyeq, Time::ZERO, LINE);
        let mut counted = vec![Metered::default(); floors.len()];
        for n in 0..=periods {
            let now = Time::ZERO + PERIOD * n;
            let capacities: Vec<Rate> = capacities(&shares);
            for (i, metered) in counted.iter_mut().enumerate() {
                shares.read(now, VmId(i as u32), Part::Own, *metered);
                let got = capacities[i].min(mbps(wants[i]));
                metered.octets += got.bytes_in(PERIOD).get();
                metered.steps += 1;
            }
            if n > 0 {
                shares.step(&eyeq, now, LINE);
            }
        }
        capacities(&shares)
    }

    #[track_caller]
    fn near(got: Rate, want: u64) {
        let part = got.as_f64() / mbps(want).as_f64();
        assert!((0.97..1.03).contains(&part), "{got}, not {want} Mb/s");
    }

    #[test]
    fn an_idle_host_gives_everybody_the_link_less_its_headroom() {
        let mut shares = Shares::new(Time::ZERO);
        shares.set_vms(&vms(&[60, 120]));
        shares.step(&law(), Time::ZERO, LINE);
        let got: Vec<Rate> = capacities(&shares);
        assert_eq!(got, [180, 180].map(mbps));
    }

    #[test]
    fn who_wants_all_shares_by_floors_and_what_one_leaves_is_the_others() {
        let got = settle(&[60, 120], &[200, 200], 300);
        near(got[0], 60);
        near(got[1], 120);
        let got = settle(&[60, 120], &[200, 30], 600);
        near(got[0], 150);
        assert!(got[1] >= mbps(120), "{}", got[1]);
    }

    #[test]
    fn a_vm_that_went_takes_no_part() {
        let (eyeq, mut shares) = (law(), Shares::new(Time::ZERO));
        shares.set_vms(&vms(&[60, 120]));
        shares.set_vms(&vms(&[60]));
        shares.step(&eyeq, Time::ZERO, LINE);
        shares.read(
            Time::ZERO,
            VmId(1),
            Part::Own,
            Metered { octets: 1 << 30, steps: 9, ..Metered::default() },
        );
        assert_eq!(capacities(&shares).len(), 1);
        assert_eq!(shares.received(VmId(1), Part::Own), Rate::ZERO);
    }

    /// A VM of 60 Mb/s alone on its host, to which its own tenant wants to send `own`, and
    /// strangers all they may; what both get in the end.
    fn beside_strangers(own: u64, periods: u64) -> [Rate; 2] {
        let (eyeq, mut shares) = (law(), Shares::new(Time::ZERO));
        shares.set_vms(&vms(&[60, 60]));
        shares.step(&eyeq, Time::ZERO, LINE);
        let mut counted = [Metered::default(); 2];
        let mut got = [Rate::ZERO; 2];
        for n in 0..=periods {
            let now = Time::ZERO + PERIOD * n;
            for part in Part::ALL {
                shares.read(now, VmId(0), part, counted[part as usize]);
            }
            if n > 0 {
                shares.step(&eyeq, now, LINE);
            }
            let may = Part::ALL.map(|part| shares.capacity(VmId(0), part));
            got = [may[0].min(mbps(own)), may[1]];
            for (counted, rate) in counted.iter_mut().zip(got) {
                counted.octets += rate.bytes_in(PERIOD).get();
                counted.steps += 1;
            }
        }
        got
    }

    #[test]
    fn strangers_have_what_a_vms_own_tenant_leaves_and_never_a_part_of_its_floor() {
        let [own, strangers] = beside_strangers(0, 400);
        assert_eq!(own, Rate::ZERO);
        near(strangers, 180);
        let [own, strangers] = beside_strangers(50, 400);
        assert_eq!(own, mbps(50));
        near(strangers, 130);
        let [own, strangers] = beside_strangers(200, 400);
        near(own, 180);
        assert!(strangers <= mbps(1), "{strangers}");
        // Not only in the end: from the second period on in which the tenant asks.
        let [own, strangers] = beside_strangers(200, 3);
        assert!(own >= mbps(60) && strangers <= mbps(1), "{own} and {strangers}");
    }
}
