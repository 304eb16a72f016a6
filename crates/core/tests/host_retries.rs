//! A data plane that refuses some of what it is told, and ends up with what it should have.

use weir_core::elasticswitch::ElasticSwitch;
use weir_core::host::{
    Call, Direction, Hose, HostLoop, Input, Location, Observed, Outcome, Policy, SendCount,
    Setting, Work,
};
use weir_core::mechanism::{Law, PairView};
use weir_core::message::{Congestion, Message};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

const PAIRS: [PairId; 3] =
    [PairId::new(VmId(0), VmId(1)), PairId::new(VmId(0), VmId(2)), PairId::new(VmId(0), VmId(3))];

/// What a data plane refuses in a turn.
#[derive(Clone, Copy, Default, Debug)]
struct Refuses {
    removals: bool,
    rates: bool,
}

/// A host's loop and the classes that its data plane has.
struct World {
    host: HostLoop,
    now: Time,
    classes: SortedMap<PairId, Setting>,
    /// Octets so far, and what each pair sends now.
    pairs: [(u64, Rate); 3],
}

impl World {
    fn new() -> Self {
        let law = ElasticSwitch::preset("steady").expect("a preset");
        let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
        let policy =
            Policy::new(HostId(0), Rate::from_mbps(10_000), Law::ElasticSwitch(Box::new(law)))
                .with_vms([(VmId(0), Hose::both(Rate::from_mbps(450)))])
                .with_directory((0..4).map(|vm| (VmId(vm), at(vm))));
        let host = HostLoop::new(policy, Time::ZERO).expect("sound");
        Self { host, now: Time::ZERO, classes: SortedMap::new(), pairs: [(0, Rate::ZERO); 3] }
    }

    fn begins(&mut self, pair: usize) {
        self.pairs[pair].1 = Rate::from_mbps(100);
        self.host.handle(self.now, Call::Input(Input::Seen(PAIRS[pair], Direction::Send)));
    }

    /// One turn of a driver, a millisecond after the last.
    fn turn(&mut self, refuses: Refuses) -> Work {
        self.now += Span::from_millis(1);
        let mut observed = Observed::default();
        for (pair, (octets, rate)) in PAIRS.iter().zip(&mut self.pairs) {
            *octets += rate.bytes_in(Span::from_millis(1)).get();
            let (octets, segments) = (*octets, *octets / 1514);
            let count = SendCount { octets, numbered: octets, segments, ..SendCount::default() };
            if octets > 0 {
                observed.send.push((*pair, count));
            }
        }
        if self.host.due(self.now).is_some() {
            self.host.handle(self.now, Call::Input(Input::Observed(&observed)));
            self.host.handle(self.now, Call::Input(Input::Tick));
        }
        let work = self.host.work(self.now);
        let mut outcome = Outcome::default();
        if refuses.removals {
            outcome.kept.clone_from(&work.forgotten);
        } else {
            self.classes.retain(|pair, _| work.forgotten.iter().all(|(over, _)| over != pair));
        }
        if refuses.rates {
            outcome.unwritten = work.pairs.iter().map(|(pair, _)| *pair).collect();
        } else {
            self.classes.extend(work.pairs.iter().copied());
        }
        if work.writes() {
            self.host.handle(self.now, Call::Written(outcome));
        }
        work
    }

    /// What the machine wants its data plane to have.
    fn wanted(&mut self) -> SortedMap<PairId, Setting> {
        let of = |view: PairView| match view {
            PairView::ElasticSwitch(view) => view.send.map(|send| (view.pair, send.setting)),
            _ => None,
        };
        self.host.pairs(self.now).into_iter().filter_map(of).collect()
    }

    /// Turns until the data plane is told that a pair is over; it refuses.
    fn ends(&mut self, pair: usize) {
        self.pairs[pair].1 = Rate::ZERO;
        let refuses = Refuses { removals: true, rates: false };
        let is_its = |work: &Work| work.forgotten.contains(&(PAIRS[pair], Direction::Send));
        assert!((0..20_000).any(|_| is_its(&self.turn(refuses))), "it never ends");
    }
}

#[test]
fn a_pair_that_came_back_keeps_its_class_when_its_removal_is_tried_again() {
    for turns in 0..4 {
        let mut world = World::new();
        world.begins(0);
        (0..500).for_each(|_| drop(world.turn(Refuses::default())));
        world.ends(0);
        assert!(world.classes.contains_key(&PAIRS[0]), "the removal was refused");
        // It comes back at once, or while its removal is still refused.
        world.begins(0);
        let refuses = Refuses { removals: true, rates: false };
        (0..turns).for_each(|_| drop(world.turn(refuses)));
        (0..3).for_each(|_| drop(world.turn(Refuses::default())));
        let wanted = world.wanted();
        assert_eq!(world.classes, wanted, "refused in {turns} turns after it came back");
        assert_eq!(world.classes.len(), 1);
    }
}

#[test]
fn a_pair_that_stays_away_is_removed_as_soon_as_it_can_be() {
    let mut world = World::new();
    world.begins(0);
    (0..500).for_each(|_| drop(world.turn(Refuses::default())));
    world.ends(0);
    assert!(world.turn(Refuses::default()).forgotten.contains(&(PAIRS[0], Direction::Send)));
    assert!(world.classes.is_empty(), "{:?}", world.classes);
}

#[test]
fn whatever_is_refused_in_between_classes_become_what_the_machine_wants() {
    for seed in 0..40_u64 {
        let mut world = World::new();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1;
        let mut one_in = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.is_multiple_of(n)
        };
        let mut refused = 0;
        for turn in 0..30_000 {
            for pair in 0..PAIRS.len() {
                match world.pairs[pair].1.is_zero() {
                    true if one_in(2500) => world.begins(pair),
                    false if one_in(1500) => world.pairs[pair].1 = Rate::ZERO,
                    _ => {}
                }
            }
            // Trouble for a while, then none.
            let is_bad = turn / 40 % 2 == 0;
            let refuses = Refuses { removals: is_bad && !one_in(4), rates: is_bad && one_in(3) };
            let work = world.turn(refuses);
            refused += usize::from(refuses.removals && !work.forgotten.is_empty());
            if turn % 80 == 79 {
                let wanted = world.wanted();
                assert_eq!(world.classes, wanted, "seed {seed}, turn {turn}");
            }
        }
        assert!(refused > 0, "seed {seed} refuses no removal");
    }
}

#[test]
fn losses_of_pairs_without_a_class_brake_their_vm_and_nothing_else_does() {
    let mut world = World::new();
    let hear = |world: &mut World, from: u32, pair: usize, lost: u32| {
        world.now += Span::from_millis(200);
        let report = Congestion { pair: PAIRS[pair], lost, marked: 0, received: 9 };
        let message = Message::Congestion(report);
        world.host.handle(world.now, Call::Input(Input::Message(HostId(from), message)));
        world.turn(Refuses::default()).brakes
    };
    world.begins(0);
    (0..500).for_each(|_| drop(world.turn(Refuses::default())));
    assert_eq!(hear(&mut world, 1, 0, 3), [], "it has a class, and its law goes by losses");
    assert_eq!(hear(&mut world, 2, 1, 0), [], "nothing was lost");
    assert_eq!(hear(&mut world, 3, 1, 3), [], "that host does not have the pair's destination");
    let braked = hear(&mut world, 2, 1, 3);
    let ten = Rate::from_mbps(10);
    assert_eq!(
        braked.iter().map(|(vm, b)| (*vm, b.of(ten))).collect::<Vec<_>>(),
        [(VmId(0), ten.mul_ratio(1, 2))]
    );
    // A class that the data plane could not give is none.
    let outcome = Outcome { classless: vec![PAIRS[0]], ..Outcome::default() };
    world.host.handle(world.now, Call::Written(outcome));
    assert_eq!(hear(&mut world, 1, 0, 3)[0].1.of(ten), ten.mul_ratio(1, 4));
    let outcome = Outcome { unbraked: vec![VmId(0)], ..Outcome::default() };
    world.host.handle(world.now, Call::Written(outcome));
    assert_eq!(
        world.turn(Refuses::default()).brakes[0].1.of(ten),
        ten.mul_ratio(1, 4),
        "it is tried again"
    );
}
