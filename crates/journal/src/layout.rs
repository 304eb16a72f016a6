//! A number that differs between builds whose records look different.
//!
//! Problem   A record has no names of fields: another build could read another meaning into it.
//! Approach  The checksum of what `Debug` shows of sample machines, one of each mechanism: it has the names of all
//!           fields, in order, and the values that a new machine has.
//! Not here  A change of a law that leaves its fields: then a replay says which work differs, as it should.

use std::fmt::Write;
use std::sync::OnceLock;
use weir_core::eyeq::EyeQ;
use weir_core::host::{
    Call, Capabilities, Direction, Given, Hose, HostLoop, Location, Observed, Outcome, Policy,
    Timed, Work,
};
use weir_core::level::Level;
use weir_core::mechanism::{Law, registry};
use weir_core::message::{Backlog, Congestion, Echo, Feedback, LevelWord, Message, Offer};
use weir_core::vcc::BudgetConfig;
use weir_units::{Bytes, HostId, PairId, Rate, TenantId, Time, VmId};

/// The number of this build.
pub(crate) fn layout() -> u32 {
    static LAYOUT: OnceLock<u32> = OnceLock::new();
    *LAYOUT.get_or_init(|| {
        let mut text = String::new();
        for row in registry::ALL {
            text.push_str(row.name);
            let law = row.sample();
            for meters in [false, true] {
                describe(&mut text, law.clone(), meters);
            }
        }
        crc32fast::hash(text.as_bytes())
    })
}

/// A machine with a pair each way, and what it is told and wants.
fn describe(text: &mut String, law: Law, meters: bool) {
    let (here, there) = (VmId(0), VmId(1));
    let place = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let mut policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms([(here, Hose::both(Rate::from_mbps(100)))])
        .with_directory([(here, place(0)), (there, place(1))]);
    let classes = [("all".into(), 1, 0..=u16::MAX)];
    let budget = BudgetConfig::by_remote_ports(Bytes::new(90_000), 9, classes.into_iter());
    policy.windows.insert(here, budget);
    policy.can = Capabilities { meters, ..Capabilities::default() };
    let Ok(mut host) = HostLoop::new(policy.clone(), Time::ZERO) else { return };
    let (to, from) = (PairId::new(here, there), PairId::new(there, here));
    let observed = Observed {
        send: vec![(to, Default::default())],
        receive: vec![(from, Default::default())],
        limits: vec![(to, Default::default())],
        connections: vec![(here, vec![1])],
        timed: vec![(HostId(1), Timed { sent: 0, came: Time::ZERO })],
        ..Observed::default()
    };
    let calls = [
        Call::Input(Given::Seen(to, Direction::Send)),
        Call::Input(Given::Seen(from, Direction::Receive)),
        Call::Input(Given::Observed(&observed)),
        Call::Change { policy: &policy, strangers: [there].into() },
        Call::Written(Outcome::default()),
    ];
    // A `String` takes everything.
    let _ = write!(text, "{calls:?}{:?}", messages(to));
    calls.into_iter().for_each(|call| host.handle(Time::ZERO, call));
    let _ = write!(text, "{host:?}{:?}", Work::default());
}

fn messages(pair: PairId) -> [Message; 5] {
    let (floor, serial) = (Rate::ZERO, 0);
    [
        Message::Offer(Offer {
            pair,
            serial,
            floor,
            unbounded: false,
            confirm: false,
            round_trip: None,
        }),
        Message::Echo(Echo { pair, serial, floor, most: None, backlog: Backlog::Unknown }),
        Message::Congestion(Congestion { pair, lost: 0, marked: 0, received: 0 }),
        Message::Feedback(Feedback { pair, rate: EyeQ::default().feedback_unit }),
        Message::Level(LevelWord::May(Level::ONE)),
    ]
}
