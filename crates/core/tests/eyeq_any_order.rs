//! EyeQ hosts, any inputs in any order: no panic, no advertisement above the link, no limit above
//! it, no memory without bound.
//!
//! Some feedback travels as it should, late or twice; some is made up, as is everything that the
//! data plane tells: counters that go backwards, pairs of no VM, times that jump.

use proptest::prelude::*;
use weir_core::eyeq::{EyeQ, VmBounds, check};
use weir_core::host::{
    Bounds, HostMachine, Input, Location, Observed, Outbox, Policy, ReceiveCount, SendCount,
};
use weir_core::mechanism::Law;
use weir_core::message::{Feedback, Message};
use weir_units::{HostId, PairId, Rate, Span, TenantId, Time, VmId};

const HOSTS: u32 = 3;
/// Two VMs on each host, of two tenants in turn; no VM has an id from here on.
const VMS: u32 = 2 * HOSTS;
const LINE: Rate = Rate::from_mbps(10_000);
const OUTBOX: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    Sample(Vec<(PairId, [u64; 2])>, Vec<(PairId, [u64; 4])>),
    Made(u32, Feedback),
    /// Feedback that was posted to this host, by its position; kept if it comes twice.
    Delivered(usize, bool),
    Population(Vec<Vm>),
    Tick,
}

/// Floors and maxima in and out, in Mb/s.
type Vm = [u64; 4];

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0u64..5_000,
        0u64..1_000_000_000,
        any::<u64>(),
        Just(u64::MAX - 1),
        Just(u64::MAX)
    ]
}

fn pair() -> impl Strategy<Value = PairId> {
    (0..=VMS, 0..=VMS).prop_map(|(src, dst)| PairId::new(VmId(src), VmId(dst)))
}

fn vm() -> impl Strategy<Value = Vm> {
    let floor = || prop_oneof![Just(0), 0u64..4_500, 0u64..12_000];
    let most = || prop_oneof![Just(u64::MAX), 0u64..12_000];
    (floor(), most(), floor(), most()).prop_map(|(a, b, c, d)| [a, b, c, d])
}

fn step() -> impl Strategy<Value = Step> {
    let sent = prop::collection::vec((pair(), prop::array::uniform2(number())), 0..6);
    let came = prop::collection::vec((pair(), prop::array::uniform4(number())), 0..6);
    let feedback =
        (pair(), number()).prop_map(|(pair, rate)| Feedback { pair, rate: Rate::from_bps(rate) });
    prop_oneof![
        8 => (sent, came).prop_map(|(sent, came)| Step::Sample(sent, came)),
        4 => (0..=HOSTS, feedback).prop_map(|(from, feedback)| Step::Made(from, feedback)),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(at, twice)| Step::Delivered(at, twice)),
        1 => prop::collection::vec(vm(), 0..=2).prop_map(Step::Population),
        10 => Just(Step::Tick),
    ]
}

fn clock() -> impl Strategy<Value = (bool, u64)> {
    prop_oneof![
        12 => (Just(true), 0u64..1_000_000),
        3 => (Just(true), 0u64..200_000_000),
        1 => (Just(true), 0u64..20_000_000_000),
        // Also to anywhere, and backwards.
        1 => (Just(false), prop_oneof![0u64..20_000_000_000, any::<u64>()]),
    ]
}

fn host_of(vm: u32) -> HostId {
    HostId(vm / 2)
}

fn config(host: u32, eyeq: &EyeQ, vms: &[Vm]) -> Policy {
    let rate = |m: u64| Rate::from_bps(m.saturating_mul(1_000_000));
    let here = (2 * host..).map(VmId).zip(vms).map(|(id, [fo, mo, fi, mi])| {
        let bounds = |floor, most| Bounds { floor: rate(floor), most: rate(most) };
        let (out, in_) = (bounds(*fo, *mo), bounds(*fi, *mi));
        (id, VmBounds { out, in_ })
    });
    let place = |vm: u32| Location { tenant: TenantId(vm % 2), host: host_of(vm) };
    let mut policy = Policy::new(HostId(host), LINE, Law::EyeQ(Box::new(eyeq.clone())))
        .with_directory((0..VMS).map(|vm| (VmId(vm), place(vm))));
    for (id, bounds) in here {
        policy.hoses.insert(id, bounds.hose());
    }
    policy
}

fn sample(sent: &[(PairId, [u64; 2])], came: &[(PairId, [u64; 4])]) -> Observed {
    let send = sent.iter().map(|(pair, [octets, waiting])| {
        let (octets, waiting) = (*octets, Some(*waiting));
        (*pair, SendCount { octets, numbered: octets, waiting, ..SendCount::default() })
    });
    let receive = came.iter().map(|(pair, [octets, segments, lost, marked])| {
        let (octets, segments, lost, marked) = (*octets, *segments, *lost, *marked);
        (*pair, ReceiveCount { octets, segments, lost, marked, ..ReceiveCount::default() })
    });
    Observed { send: send.collect(), receive: receive.collect(), ..Observed::default() }
}

struct World {
    eyeq: EyeQ,
    hosts: Vec<HostMachine>,
    policies: Vec<Policy>,
    outbox: Outbox,
    /// Posted and not yet delivered: from, to, what.
    posted: Vec<(HostId, HostId, Feedback)>,
    now: Time,
}

impl World {
    fn new(eyeq: EyeQ) -> Self {
        let start = [[1_000, u64::MAX, 4_000, u64::MAX]; 2];
        let policies: Vec<Policy> = (0..HOSTS).map(|h| config(h, &eyeq, &start)).collect();
        let host = |policy: &Policy| HostMachine::new(policy.clone(), Time::ZERO).expect("fits");
        let hosts = policies.iter().map(host).collect();
        let outbox = Outbox::new(OUTBOX);
        Self { eyeq, hosts, policies, outbox, posted: Vec::new(), now: Time::ZERO }
    }

    fn play(&mut self, at: u32, step: &Step) {
        let (now, i) = (self.now, at as usize);
        let host = &mut self.hosts[i];
        match step {
            Step::Sample(sent, came) => {
                host.handle(now, Input::Observed(&sample(sent, came)), &mut self.outbox);
            }
            Step::Made(from, feedback) => {
                host.handle(
                    now,
                    Input::Message(HostId(*from), Message::Feedback(*feedback)),
                    &mut self.outbox,
                );
            }
            Step::Delivered(which, twice) => {
                let here: Vec<usize> =
                    (0..self.posted.len()).filter(|k| self.posted[*k].1 == HostId(at)).collect();
                if let Some(k) = which.checked_rem(here.len()).map(|k| here[k]) {
                    let (from, _, feedback) = self.posted[k];
                    host.handle(
                        now,
                        Input::Message(from, Message::Feedback(feedback)),
                        &mut self.outbox,
                    );
                    if !twice {
                        self.posted.remove(k);
                    }
                }
            }
            Step::Population(vms) => {
                let policy = config(at, &self.eyeq, vms);
                if check(&policy, &self.eyeq).is_ok() {
                    self.policies[i].clone_from(&policy);
                }
                host.handle(now, Input::Policy(&policy), &mut self.outbox);
            }
            Step::Tick => host.handle(now, Input::Tick, &mut self.outbox),
        }
    }

    /// What must hold after each step.
    fn check(&mut self, at: u32, step: &Step) -> Result<(), TestCaseError> {
        let (now, policy) = (self.now, &self.policies[at as usize]);
        let host = &mut self.hosts[at as usize];
        let capacity = self.eyeq.capacity_of(LINE);
        let messages = self.outbox.take();
        prop_assert!(messages.len() <= OUTBOX, "{} messages", messages.len());
        for (to, message) in messages {
            let Message::Feedback(feedback) = message else { panic!("{message:?}") };
            prop_assert!(feedback.rate <= capacity, "advertised {}", feedback.rate);
            prop_assert!(feedback.rate >= self.eyeq.feedback_unit, "advertised {}", feedback.rate);
            prop_assert_eq!(to, host_of(feedback.pair.src.0));
            prop_assert!(policy.is_here(feedback.pair.dst));
            self.posted.push((HostId(at), to, feedback));
        }
        self.posted.truncate(500);

        if matches!(step, Step::Tick) && now < Time::from_nanos(u64::MAX / 2) {
            let next = host.next_deadline();
            prop_assert!(next.is_none_or(|(at, _)| at > now), "a deadline that is over: {next:?}");
        }
        let orders = host.orders(now).clone();
        let eyeq = host.eyeq().expect("it is");
        for (vm, hose) in policy.vms() {
            for meter in eyeq.meters(vm) {
                prop_assert!(meter.capacity <= capacity, "{vm}: {meter:?}");
                let was_stepped = meter.over > Span::ZERO;
                prop_assert!(!was_stepped || meter.advertised <= meter.capacity, "{vm}: {meter:?}");
            }
            prop_assert!(orders.classes.get(vm) == Some(hose.out.class()), "{vm}");
        }
        prop_assert_eq!(orders.classes.iter().count(), policy.vms().count());
        let limits: Vec<_> = eyeq.limits().iter().collect();
        prop_assert!(limits.len() <= (VMS * VMS) as usize);
        for (pair, limit) in &limits {
            prop_assert!(policy.is_here(pair.src), "{pair}: of a VM that left");
            prop_assert!(*limit <= LINE && !limit.is_zero(), "{pair}: {limit:?}");
        }
        for (pair, setting) in orders.pairs.iter() {
            let limit = limits.iter().find(|(p, _)| *p == pair).map_or(LINE, |(_, l)| *l);
            prop_assert_eq!(setting.ceiling, limit, "{}", pair);
            prop_assert!(policy.is_here(pair.src), "{pair}: of a VM that left");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn several_eyeq_hosts_stay_within_their_links_whatever_comes_in_any_order(
        preset in prop::sample::select(EyeQ::PRESETS),
        counts_losses in any::<bool>(),
        steps in prop::collection::vec((0..HOSTS, clock(), step()), 0..250),
    ) {
        let mut world = World::new(EyeQ { counts_losses, ..EyeQ::preset(preset).expect("listed") });
        for (host, (goes_on, ns), step) in &steps {
            world.now = match goes_on {
                true => world.now + Span::from_nanos(*ns),
                false => Time::from_nanos(*ns),
            };
            world.play(*host, step);
            world.check(*host, step)?;
        }
    }
}
