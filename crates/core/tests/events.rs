//! What a machine tells of itself, as lists of events.

use weir_core::elasticswitch::ElasticSwitch;
use weir_core::host::{
    Call, Direction, Event, Hose, HostLoop, Input, Location, Observed, Policy, SendCount,
};
use weir_core::mechanism::{Law, registry};
use weir_core::message::{Congestion, Feedback, Message, Offer};
use weir_core::rate::Phase;
use weir_units::{HostId, PairId, PathId, Rate, Span, TenantId, Time, VmId};

const PAIR: PairId = PairId::new(VmId(0), VmId(1));

fn host(law: Law) -> HostLoop {
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms([(VmId(0), Hose::both(Rate::from_mbps(450)))])
        .with_directory([(VmId(0), at(0)), (VmId(1), at(1))]);
    policy.can.paths = 2;
    HostLoop::new(policy, Time::ZERO).expect("sound")
}

/// A driver's turns, one per millisecond.
struct World {
    host: HostLoop,
    ms: u64,
    octets: u64,
    /// Events with their millisecond.
    told: Vec<(u64, Event)>,
}

impl World {
    fn new(law: Law) -> Self {
        Self { host: host(law), ms: 0, octets: 0, told: Vec::new() }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_millis(self.ms)
    }

    fn handle(&mut self, input: Input<'_>) {
        self.host.handle(self.now(), Call::Input(input));
    }

    /// Plays for so long; the pair sends at this rate.
    fn play(&mut self, ms: u64, rate: Rate) {
        for _ in 0..ms {
            self.ms += 1;
            self.octets += rate.bytes_in(Span::from_millis(1)).get();
            if self.host.due(self.now()).is_some() {
                let octets = self.octets;
                let count = SendCount {
                    octets,
                    numbered: octets,
                    segments: octets / 1514,
                    ..SendCount::default()
                };
                let observed = Observed { send: vec![(PAIR, count)], ..Observed::default() };
                self.handle(Input::Observed(&observed));
                self.handle(Input::Tick);
            }
            let work = self.host.work(self.now());
            self.told.extend(work.events.into_iter().map(|event| (self.ms, event)));
        }
    }

    fn lines(&self) -> Vec<String> {
        self.told.iter().map(|(ms, event)| format!("{ms} ms: {event}")).collect()
    }
}

#[test]
fn a_pair_that_loses_a_segment_tells_of_every_phase_from_its_beginning_to_its_end() {
    let law = ElasticSwitch::preset("paper").expect("a preset");
    let mut world = World::new(Law::ElasticSwitch(Box::new(law)));
    let floor = Rate::from_mbps(450);
    world.handle(Input::Seen(PAIR, Direction::Send));
    let offer = |serial| {
        let (unbounded, confirm, round_trip) = (false, false, None);
        Message::Offer(Offer { pair: PAIR, serial, floor, unbounded, confirm, round_trip })
    };
    for turn in 0..20 {
        world.handle(Input::Message(HostId(1), offer(turn)));
        if turn == 5 {
            let report = Congestion { pair: PAIR, lost: 3, marked: 0, received: 300 };
            world.handle(Input::Message(HostId(1), Message::Congestion(report)));
        }
        world.play(60, Rate::from_mbps(600));
    }
    // The receiver's host is silent from now on, and then the pair is.
    world.play(1000, Rate::from_mbps(600));
    world.play(10_000, Rate::ZERO);
    assert_eq!(
        world.lines(),
        [
            "1 ms: vm0→vm1 sends",
            "315 ms: vm0→vm1 goes from starting to holding",
            "375 ms: vm0→vm1 goes from holding to probing",
            "1755 ms: vm0→vm1 goes from probing to decaying",
            "3840 ms: vm0→vm1 sends no more",
        ]
    );
}

#[test]
fn a_loss_on_one_of_two_paths_is_an_event_of_that_path() {
    let law = ElasticSwitch::preset("steady-paths").expect("a preset");
    let mut world = World::new(Law::ElasticSwitch(Box::new(law)));
    world.handle(Input::Seen(PAIR, Direction::Send));
    let (floor, unbounded, confirm, round_trip) = (Rate::from_mbps(450), false, false, None);
    for serial in 0..10 {
        let offer = Offer { pair: PAIR, serial, floor, unbounded, confirm, round_trip };
        world.handle(Input::Message(HostId(1), Message::Offer(offer)));
        if serial == 5 {
            let report = Congestion { pair: PAIR, lost: 3, marked: 0, received: 300 };
            let message = Message::PathCongestion(PathId(1), report);
            world.handle(Input::Message(HostId(1), message));
        }
        world.play(60, Rate::from_mbps(600));
    }
    let paths: Vec<_> = world
        .told
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Phase { path, to: Phase::Holding, .. } => Some(*path),
            _ => None,
        })
        .collect();
    assert_eq!(paths, [Some(PathId(1))], "{:?}", world.lines());
}

#[test]
fn eyeq_tells_of_a_first_limit_and_of_limits_that_silence_halves() {
    let mut world = World::new(registry::row("eyeq").expect("a row").sample());
    world.handle(Input::Seen(PAIR, Direction::Send));
    world.play(10, Rate::from_mbps(100));
    for mbps in [80, 60] {
        let told = Feedback { pair: PAIR, rate: Rate::from_mbps(mbps) };
        world.handle(Input::Message(HostId(1), Message::Feedback(told)));
        world.play(10, Rate::from_mbps(100));
    }
    world.play(150, Rate::from_mbps(100));
    let events: Vec<String> = world.told.iter().map(|(_, event)| event.to_string()).collect();
    assert_eq!(
        events,
        [
            "vm0→vm1 sends",
            "vm0→vm1 is limited to 80 Mb/s",
            "vm0→vm1 is limited to 30 Mb/s, by half: its receiver is silent",
        ]
    );
}

#[test]
fn whatever_begins_ends_with_every_mechanism() {
    for row in registry::ALL {
        let mut world = World::new(row.sample());
        world.handle(Input::Seen(PAIR, Direction::Send));
        world.play(100, Rate::from_mbps(10));
        let began = Event::Began(PAIR, Direction::Send);
        assert_eq!(world.told.first().map(|(_, event)| *event), Some(began), "{}", row.name);
        world.play(120_000, Rate::ZERO);
        let ended = Event::Ended(PAIR, Direction::Send);
        assert_eq!(world.told.last().map(|(_, event)| *event), Some(ended), "{}", row.name);
    }
}
