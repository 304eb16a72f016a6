//! Whether floors were kept, as the agent of the sender counts it: a floor is broken on purpose. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::stream::stream;
use crate::common::{Agent, FLOOR, World, pause, until};
use weir_agent::client;
use weir_model::status::{EventTold, Reply, Request};

/// A full datagram.
const PAYLOAD: usize = 1472;

/// Seconds in which VM 1 wanted more, and of these those with its floor.
fn counted(sender: &Agent<'_>) -> (u64, u64) {
    let floors = sender.top().floors;
    let out = floors.iter().find(|floor| floor.out && floor.vm == "a");
    let kept = out.map_or((0, 0), |floor| (floor.windows, floor.held));
    let into = floors.iter().find(|floor| !floor.out && floor.vm == "b");
    assert_eq!(
        kept,
        into.map_or((0, 0), |floor| (floor.windows, floor.held)),
        "one pair, two floors"
    );
    kept
}

/// What happened after an event, up to 256 of them.
fn events(sender: &Agent<'_>, after: u64) -> Vec<EventTold> {
    match client::ask(&sender.socket(), &Request::Events { after: Some(after) }).unwrap() {
        Reply::Events(events) => events.events,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_floor_that_is_broken_on_purpose_is_reported_and_one_that_is_not_asked_for_is_not() {
    let world = World::new();
    let (sender, _receiver) = (world.start(1), world.start(2));
    // Less than the floor: whatever it gets, it wants no more.
    stream(&world, FLOOR / 4, PAYLOAD, || pause(4000));
    assert_eq!(counted(&sender), (0, 0));
    assert!(sender.top().broken.is_empty());
    // More than the uplink: its queue is never empty.
    stream(&world, 8 * FLOOR, PAYLOAD, || {
        until("it is seen that it wants more, and holds its floor", 30, || counted(&sender).1 >= 3);
        // The switch has half of the floor.
        let (windows, held) = counted(&sender);
        world.tc(
            "switch",
            &format!("qdisc add dev sw2 root tbf rate {}mbit burst 20k limit 60000", FLOOR / 2),
        );
        until("it is seen that its floor is broken", 30, || {
            let (now, kept) = counted(&sender);
            now >= windows + 5 && now - kept >= windows - held + 3
        });
        let broken = sender.top().broken.pop().expect("a stretch");
        assert_eq!((broken.from.as_str(), broken.to.as_str()), ("a", "b"));
        assert!(broken.lost > 0 && broken.cause == "the network lost packets", "{broken:?}");
        assert!((0.2..0.8).contains(&broken.part), "{broken:?}");
        assert!(broken.lasted_s >= 2.0 && broken.ended_s < 3.0, "{broken:?}");
        let events = events(&sender, 0);
        let has = |what: &str| events.iter().any(|event| event.what == what && event.from == "a");
        assert!(has("began") && has("floor-broken"), "{events:?}");
        let last = events.last().expect("there are some").number;
        assert!(self::events(&sender, last).iter().all(|event| event.number > last));
        world.tc("switch", "qdisc del dev sw2 root");
        until("the stretch is over", 30, || {
            let last = sender.top().broken.pop().expect("a stretch");
            last.ended_s > 2.0 && counted(&sender).1 > held
        });
    });
}
