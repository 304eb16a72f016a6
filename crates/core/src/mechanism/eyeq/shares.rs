//! What each VM of a host may receive, where the data plane meters it and tells senders by itself.
//!
//! Problem   Meters and rates that packets clock live where packets are; how the link is divided among them
//!           changes more slowly, and needs all of them at once.
//! Approach  Now and then the meters' counters are read: octets, and how often each rate was computed. From
//!           these the [`Scheduler`] that the receiver module has, too, makes the capacities C_i.
//! Promises  The scheduler's. A VM that was never read has what the scheduler gives to who is idle.
//! Not here  Rates, who is told, and splits of a VM's share: meters of the data plane have none.
//! Source    EyeQ §3.2.

use super::config::EyeQ;
use super::io::{Bounds, VmBounds};
use super::scheduler::{Member, Pool, Scheduler};
use crate::host::Metered;
use crate::meter::Meter;
use std::collections::BTreeMap;
use weir_units::{Bytes, Rate, Span, Time, VmId};

/// The capacities of a host's VMs.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Shares {
    scheduler: Scheduler,
    vms: BTreeMap<VmId, Endpoint>,
    stepped_at: Time,
}

/// One VM as it receives.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Endpoint {
    bounds: Bounds,
    octets: Meter,
    steps: Meter,
    /// Octets since the last step of ours.
    arrived: u64,
    /// Steps of its rate since the outer loop's last one.
    made: u64,
    active_at: Option<Time>,
    capacity: Rate,
    received: Rate,
}

impl Endpoint {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            octets: Meter::default(),
            steps: Meter::default(),
            arrived: 0,
            made: 0,
            active_at: None,
            capacity: Rate::ZERO,
            received: Rate::ZERO,
        }
    }

    fn read(&mut self, now: Time, metered: Metered) {
        let octets = self.octets.read(metered.octets);
        if octets > 0 {
            self.active_at = Some(now);
        }
        self.arrived = self.arrived.saturating_add(octets);
        self.made = self.made.saturating_add(self.steps.read(metered.steps));
    }

    fn member(&self, vm: VmId, eyeq: &EyeQ, now: Time) -> Member {
        Member {
            key: vm.0,
            bounds: self.bounds,
            octets: self.arrived,
            is_active: self.active_at.is_some_and(|at| now.since(at) < eyeq.idle_after),
            steps: self.made,
        }
    }
}

impl Shares {
    /// Of a host without VMs, at `now`.
    pub fn new(now: Time) -> Self {
        Self { scheduler: Scheduler::new(now), vms: BTreeMap::new(), stepped_at: now }
    }

    /// The VMs are these, with these bounds; who stays keeps his share until the next step.
    pub fn set_vms(&mut self, vms: &BTreeMap<VmId, VmBounds>) {
        self.vms.retain(|vm, _| vms.contains_key(vm));
        for (vm, bounds) in vms {
            let new = || Endpoint::new(bounds.in_);
            self.vms.entry(*vm).or_insert_with(new).bounds = bounds.in_;
        }
    }

    /// A meter was read. One of a VM that is not here is nobody's.
    pub fn read(&mut self, now: Time, vm: VmId, metered: Metered) {
        if let Some(endpoint) = self.vms.get_mut(&vm) {
            endpoint.read(now, metered);
        }
    }

    /// The end of a period on a link of `line`: what each VM may receive from now on. Before the first
    /// reading of all it is what they may have while all are idle.
    pub fn step(&mut self, eyeq: &EyeQ, now: Time, line: Rate) {
        let elapsed = now.since(self.stepped_at);
        self.stepped_at = now;
        let members: Vec<Member> =
            self.vms.iter().map(|(vm, e)| e.member(*vm, eyeq, now)).collect();
        let pool = Pool { capacity: eyeq.capacity_of(line), line: Some(line), elapsed };
        let capacities = self.scheduler.step(eyeq, now, pool, &members);
        for (endpoint, capacity) in self.vms.values_mut().zip(capacities) {
            if self.scheduler.has_stepped {
                endpoint.made = 0;
            }
            endpoint.capacity = capacity;
            if elapsed > Span::ZERO {
                endpoint.received = Rate::of(Bytes::new(endpoint.arrived), elapsed);
            }
            endpoint.arrived = 0;
        }
    }

    /// C_i of all VMs.
    pub fn capacities(&self) -> impl Iterator<Item = (VmId, Rate)> + '_ {
        self.vms.iter().map(|(vm, endpoint)| (*vm, endpoint.capacity))
    }

    /// What a VM received in the last period, from other hosts.
    pub fn received(&self, vm: VmId) -> Rate {
        self.vms.get(&vm).map_or(Rate::ZERO, |endpoint| endpoint.received)
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

    fn vms(floors: &[u64]) -> BTreeMap<VmId, VmBounds> {
        (0..).map(VmId).zip(floors.iter().map(|floor| VmBounds::both(mbps(*floor)))).collect()
    }

    fn law() -> EyeQ {
        use super::super::Backend;
        EyeQ::default().for_link(LINE, Span::from_millis(1), Backend::Agent)
    }

    /// Meters whose VMs receive all they may, up to `wants`; C_i in the end.
    fn settle(floors: &[u64], wants: &[u64], periods: u64) -> Vec<Rate> {
        let (eyeq, mut shares) = (law(), Shares::new(Time::ZERO));
        shares.set_vms(&vms(floors));
        shares.step(&eyeq, Time::ZERO, LINE);
        let mut counted = vec![Metered::default(); floors.len()];
        for n in 0..=periods {
            let now = Time::ZERO + PERIOD * n;
            let capacities: Vec<Rate> = shares.capacities().map(|(_, c)| c).collect();
            for (i, metered) in counted.iter_mut().enumerate() {
                shares.read(now, VmId(i as u32), *metered);
                let got = capacities[i].min(mbps(wants[i]));
                metered.octets += got.bytes_in(PERIOD).get();
                metered.steps += 1;
            }
            if n > 0 {
                shares.step(&eyeq, now, LINE);
            }
        }
        shares.capacities().map(|(_, c)| c).collect()
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
        let got: Vec<Rate> = shares.capacities().map(|(_, c)| c).collect();
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
            Metered { octets: 1 << 30, steps: 9, ..Metered::default() },
        );
        assert_eq!(shares.capacities().count(), 1);
        assert_eq!(shares.received(VmId(1)), Rate::ZERO);
    }
}
