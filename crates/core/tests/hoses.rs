//! Several hoses of a VM: each is divided over its own pairs, at both ends, and whatever happens in one
//! changes nothing in another.

use proptest::prelude::*;
use weir_core::elasticswitch::ElasticSwitch;
use weir_core::host::{
    Hose, HoseKey, HostMachine, Input, Location, Observed, Outbox, Policy, ReceiveCount, SendCount,
    Ties,
};
use weir_core::mechanism::Law;
use weir_core::message::Message;
use weir_units::{HoseId, HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

const LINE: Rate = Rate::from_mbps(10_000);
/// Hosts look at their counters this often.
const STEP: Span = Span::from_millis(5);
const WEB: VmId = VmId(0);
const DB: HoseId = HoseId(1);
const LOG: HoseId = HoseId(2);
/// One VM on each host: the web server, and four that it talks to.
const VMS: u32 = 5;
/// Offered rate of a flood, Mb/s: whatever is promised, it is more.
const FLOOD: u64 = 9_000;

/// The hoses of a fleet, in Mb/s.
#[derive(Clone, Debug)]
struct Fleet {
    tenant: u64,
    db: (u64, u64),
    log: (u64, u64),
}

impl Fleet {
    /// VM 1 is a database and VM 2 takes logs. VMs 3 and 4 are both in the way `ties` says.
    fn ties(vm: u32) -> Ties {
        let (out, in_) = match vm {
            0 => (vec![DB, LOG], vec![]),
            1 | 3 => (vec![], vec![DB]),
            2 => (vec![], vec![LOG]),
            _ => (vec![], vec![]),
        };
        Ties { out, in_, tenant_out: true, tenant_in: true }
    }

    fn policy(&self, host: u32, ties: &dyn Fn(u32) -> Ties) -> Policy {
        let mbps = Rate::from_mbps;
        let law = ElasticSwitch::preset("steady").expect("a preset");
        let at = |vm| Location { tenant: TenantId(0), host: HostId(vm) };
        let mut policy = Policy::new(HostId(host), LINE, Law::ElasticSwitch(Box::new(law)))
            .with_vms([(VmId(host), Hose::both(mbps(self.tenant)))])
            .with_directory((0..VMS).map(|vm| (VmId(vm), at(vm))));
        policy.ties = (0..VMS).map(|vm| (VmId(vm), ties(vm))).collect();
        let own = ties(host);
        let floors = |id: HoseId| if id == DB { self.db } else { self.log };
        let one = |id: &HoseId| {
            let (out, into) = floors(*id);
            let of = |list: &[HoseId], floor| if list.contains(id) { floor } else { 0 };
            (*id, Hose::of(mbps(of(&own.out, out)), mbps(of(&own.in_, into))))
        };
        policy.further.insert(VmId(host), own.out.iter().chain(&own.in_).map(one).collect());
        policy
    }
}

struct World {
    machines: Vec<HostMachine>,
    mail: Vec<(HostId, HostId, Message)>,
    sent: SortedMap<PairId, u64>,
    now: Time,
}

impl World {
    fn new(fleet: &Fleet) -> Self {
        let machine = |host| {
            let policy = fleet.policy(host, &Fleet::ties);
            HostMachine::new(policy, Time::ZERO).expect("nothing speaks against it")
        };
        let (mail, sent) = (Vec::new(), SortedMap::new());
        Self { machines: (0..VMS).map(machine).collect(), mail, sent, now: Time::ZERO }
    }

    /// One step in which the web server offers these rates, in Mb/s. Letters take a step.
    fn step(&mut self, offered: &[(u32, u64)]) {
        self.now += STEP;
        for (to, mbps) in offered {
            let octets = Rate::from_mbps(*mbps).bytes_in(STEP).get();
            *self.sent.entry(PairId::new(WEB, VmId(*to))).or_default() += octets;
        }
        let mail = std::mem::take(&mut self.mail);
        for (number, machine) in (0..).zip(&mut self.machines) {
            let mut out = Outbox::default();
            for (from, _, message) in mail.iter().filter(|(_, to, _)| to.0 == number) {
                machine.handle(self.now, Input::Message(*from, *message), &mut out);
            }
            let here = self.sent.iter().filter(|(pair, _)| pair.src.0 == number);
            let send = |(pair, octets): (&PairId, &u64)| {
                (*pair, SendCount { octets: *octets, numbered: *octets, ..SendCount::default() })
            };
            let there = self.sent.iter().filter(|(pair, _)| pair.dst.0 == number);
            let receive = |(pair, octets): (&PairId, &u64)| {
                (*pair, ReceiveCount { octets: *octets, ..ReceiveCount::default() })
            };
            let observed = Observed {
                send: here.map(send).collect(),
                receive: there.map(receive).collect(),
                ..Observed::default()
            };
            machine.handle(self.now, Input::Observed(&observed), &mut out);
            machine.handle(self.now, Input::Tick, &mut out);
            let posted = out.take().into_iter();
            self.mail.extend(posted.map(|(to, message)| (HostId(number), to, message)));
        }
    }

    fn run(&mut self, steps: usize, offered: &[(u32, u64)]) {
        (0..steps).for_each(|_| self.step(offered));
    }

    fn take(&mut self, fleet: &Fleet, ties: &dyn Fn(u32) -> Ties) {
        for (number, machine) in (0..).zip(&mut self.machines) {
            let policy = fleet.policy(number, ties);
            machine.handle(self.now, Input::Policy(&policy), &mut Outbox::default());
        }
    }

    /// The web server's floor toward a VM.
    fn floor(&mut self, to: u32) -> Rate {
        let pairs = &self.machines[0].orders(self.now).pairs;
        pairs.get(PairId::new(WEB, VmId(to))).map_or(Rate::ZERO, |setting| setting.floor)
    }

    fn floors(&mut self) -> SortedMap<u32, Rate> {
        (1..VMS).map(|to| (to, self.floor(to))).collect()
    }
}

/// The VMs that the web server reaches in each hose.
fn reached(key: usize) -> &'static [u32] {
    [&[4][..], &[1, 3], &[2]][key]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_flood_in_one_hose_changes_no_floor_in_another(
        tenant in 1u64..1_000,
        db in (1u64..2_000, 1u64..2_000),
        log in (1u64..2_000, 1u64..2_000),
        demands in prop::array::uniform4(prop_oneof![Just(0u64), 1u64..3_000]),
        flooded in 0usize..3,
        begins in 0usize..60,
    ) {
        let fleet = Fleet { tenant, db, log };
        let calm: Vec<(u32, u64)> = (1..VMS).zip(demands).filter(|(_, d)| *d > 0).collect();
        let flood = reached(flooded).iter().map(|to| (*to, FLOOD));
        let wild: Vec<(u32, u64)> = calm.iter().copied().chain(flood).collect();
        let (mut one, mut other) = (World::new(&fleet), World::new(&fleet));
        for step in 0..120 {
            one.step(&calm);
            other.step(if step < begins { &calm } else { &wild });
            let (calm, wild) = (one.floors(), other.floors());
            for (key, hose) in [tenant, db.0, log.0].into_iter().enumerate() {
                let sum = |floors: &SortedMap<u32, Rate>| {
                    reached(key).iter().map(|to| floors[to]).sum::<Rate>()
                };
                prop_assert!(sum(&wild) <= Rate::from_mbps(hose), "hose {key}: {wild:?}");
                if key != flooded {
                    for to in reached(key) {
                        prop_assert_eq!(calm[to], wild[to], "toward VM {} in step {}", to, step);
                    }
                }
            }
        }
    }
}

#[test]
fn each_hose_is_divided_over_its_own_pairs() {
    let fleet = Fleet { tenant: 100, db: (400, 300), log: (50, 500) };
    let mut world = World::new(&fleet);
    world.run(400, &[(1, 2_000), (2, 2_000), (3, 2_000), (4, 2_000)]);
    let mbps = |to| world.floors()[&to].as_bps() / 1_000_000;
    let mut mbps = mbps;
    assert_eq!((mbps(1), mbps(3)), (200, 200), "400 out, halved; 300 in, each");
    assert_eq!((mbps(2), mbps(4)), (50, 100));
}

#[test]
fn a_pair_that_moves_to_another_hose_keeps_its_floor_and_frees_the_former_one() {
    let fleet = Fleet { tenant: 100, db: (400, 400), log: (50, 500) };
    let mut world = World::new(&fleet);
    let offered = [(1, 2_000), (3, 2_000)];
    world.run(400, &offered);
    assert_eq!(world.floor(1), Rate::from_mbps(200));
    // VM 3 is no database any more, but takes logs.
    let ties = |vm| match vm {
        3 => Fleet::ties(2),
        vm => Fleet::ties(vm),
    };
    world.take(&fleet, &ties);
    assert_eq!(world.floor(3), Rate::from_mbps(50), "as far as the new hose has room");
    world.run(400, &offered);
    assert_eq!(world.floor(3), Rate::from_mbps(50));
    assert_eq!(world.floor(1), Rate::from_mbps(400), "the database has the hose alone");
    // And back: the receiver's offers of the hose that it left long ago are newer than the sender's.
    world.take(&fleet, &Fleet::ties);
    let mut least = Rate::MAX;
    for _ in 0..400 {
        world.step(&offered);
        least = least.min(world.floor(3));
    }
    assert_eq!(world.floor(3), Rate::from_mbps(200));
    assert!(least >= Rate::from_mbps(5), "{least}");
    assert_eq!(world.machines[0].counters().refused_pairs, 0);
}

#[test]
fn a_hose_that_both_ends_lose_leaves_the_pair_to_the_tenants() {
    let fleet = Fleet { tenant: 100, db: (400, 400), log: (50, 500) };
    let mut world = World::new(&fleet);
    world.run(200, &[(1, 2_000)]);
    let none = |_| Ties { tenant_out: true, tenant_in: true, ..Ties::default() };
    world.take(&fleet, &none);
    world.run(200, &[(1, 2_000)]);
    assert_eq!(world.floor(1), Rate::from_mbps(100));
    let policy = fleet.policy(0, &none);
    assert_eq!(policy.hose_of(PairId::new(WEB, VmId(1))), Some(HoseKey::Tenant));
}
