//! Control messages between real agents suffer as the scenario says, and the agents notice. As
//! root.

use crate::common::{alone, dumbbell, flow, mechanism, tcp, traces, weir};
use std::sync::atomic::AtomicBool;
use weir_lab::{Options, play};
use weir_model::observed::Observed;
use weir_model::record::ControlRecord;
use weir_model::scenario::{ControlFault, Fault, FaultKind, Scenario};
use weir_units::{Rate, Span};

/// Two VMs are promised 45 of 100 Mb/s each to a third one; `faults` break the messages.
fn scenario(faults: Vec<Fault>) -> Scenario {
    let mut scenario = dumbbell(2, 1, 100);
    scenario.duration = Span::from_secs(3);
    scenario.warmup = Span::from_secs(1);
    for vm in &mut scenario.vms {
        (vm.floor_in, vm.floor_out) = (Rate::from_mbps(45), Rate::from_mbps(45));
    }
    scenario.vms[2].floor_in = Rate::from_mbps(90);
    flow(&mut scenario, 0, 2, tcp(1));
    flow(&mut scenario, 1, 2, tcp(1));
    scenario.faults = faults;
    scenario
}

fn fault(at: Span, control: ControlFault) -> Fault {
    Fault { at, kind: FaultKind::Control(control) }
}

/// No message suffers a fault, from the start to the end.
fn calm() -> ControlFault {
    ControlFault {
        hosts: vec![0, 1, 2],
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        delay: Span::ZERO,
        jitter: Span::ZERO,
        until: Span::from_secs(3),
    }
}

/// Plays it with real agents; what became of their messages. Whatever that is, TCP gets on.
fn played(scenario: &Scenario) -> (ControlRecord, Observed) {
    let _alone = alone();
    let steady = mechanism("elasticswitch", "steady");
    let options = Options::new(weir());
    let record = play(scenario, &steady, &options, &mut |_| {}, &AtomicBool::new(false))
        .expect("plays; these tests need root");
    assert_eq!(traces(), Vec::<String>::new());
    let control = record.control.expect("agents answer, and the scenario breaks messages");
    assert!(control.believed > 50, "{control:?}");
    for (number, flow) in record.flows.iter().enumerate() {
        // A third of what is promised, for machines that are busy with something else.
        let got = flow.octets[10..].iter().sum::<u64>() as f64 * 8.0 / 2.0 / 1e6;
        assert!(got > 15.0, "flow {number}: {got} Mb/s; {control:?} {:?}", record.notes);
    }
    (control, record)
}

fn suffered(control: ControlFault) -> ControlRecord {
    played(&scenario(vec![fault(Span::ZERO, control)])).0
}

fn part(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[test]
fn in_calm_weather_every_message_comes_once_in_order_and_at_once() {
    let got = suffered(calm());
    assert_eq!((got.lost, got.repeated, got.overtaken), (0, 0, 0), "{got:?}");
    assert!(got.delay < Some(Span::from_millis(5)), "{got:?}");
}

#[test]
fn delayed_messages_come_late_and_in_their_order() {
    let got = suffered(ControlFault { delay: Span::from_millis(30), ..calm() });
    assert_eq!((got.lost, got.repeated, got.overtaken), (0, 0, 0), "{got:?}");
    let range = Some(Span::from_millis(29))..Some(Span::from_millis(45));
    assert!(range.contains(&got.delay), "{got:?}");
}

#[test]
fn second_copies_are_refused_and_counted() {
    let got = suffered(ControlFault { duplicate: 0.5, ..calm() });
    assert_eq!((got.lost, got.overtaken), (0, 0), "{got:?}");
    let repeated = part(got.repeated, got.believed);
    assert!((0.35..0.65).contains(&repeated), "{repeated}: {got:?}");
}

#[test]
fn messages_that_jitter_overtake_each_other_and_are_believed_all_the_same() {
    // Two agents talk every 50 to 70 ms.
    let delay = Span::from_millis(100);
    let got = suffered(ControlFault { delay, jitter: delay, ..calm() });
    assert_eq!(got.repeated, 0, "{got:?}");
    assert!(part(got.overtaken, got.believed) > 0.05, "{got:?}");
    // Some are on their way while later ones came already.
    assert!(got.lost <= 20, "{got:?}");
}

#[test]
fn messages_suffer_everything_at_once_where_and_as_long_as_it_is_said() {
    let storm = ControlFault {
        hosts: vec![2],
        loss: 0.2,
        duplicate: 0.2,
        reorder: 0.4,
        delay: Span::from_millis(20),
        jitter: Span::from_millis(20),
        ..calm()
    };
    let (all, _) = played(&scenario(vec![fault(Span::ZERO, storm.clone())]));
    for (what, count) in
        [("lost", all.lost), ("repeated", all.repeated), ("overtaken", all.overtaken)]
    {
        assert!(part(count, all.believed) > 0.03, "{what}: {all:?}");
    }
    let short = ControlFault { loss: 1.0, until: Span::from_millis(1500), ..calm() };
    let (got, record) = played(&scenario(vec![fault(Span::from_secs(1), short)]));
    assert!(got.lost > 0 && part(got.lost, got.believed) < 0.5, "{got:?}");
    assert!(record.notes.iter().any(|note| note.contains("were lost")), "{:?}", record.notes);
}
