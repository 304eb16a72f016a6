//! What an agent knows of what waits in its pairs' queues. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::{Stop, World, until};
use std::sync::atomic::{AtomicBool, Ordering};

/// Datagrams of a kilobyte from VM 1 to VM 2 until told to stop, forty a millisecond or one in twenty.
fn send(world: &World, burst: &AtomicBool, stop: &AtomicBool) {
    let (from, _sink) = (world.udp(1), world.udp(2));
    while !stop.load(Ordering::Relaxed) {
        let datagrams = if burst.load(Ordering::Relaxed) { 40 } else { 1 };
        for _ in 0..datagrams {
            // A full queue of the VM's own is what this is about.
            let _ = from.send_to(&[0; 1000], "10.0.0.2:9000");
        }
        std::thread::sleep(std::time::Duration::from_millis(if datagrams == 1 { 20 } else { 1 }));
    }
}

#[test]
fn a_pair_that_sends_more_than_it_may_is_known_to_wait_and_one_that_sends_less_is_not() {
    let world = World::new();
    let (sender, _receiver) = (world.start(1), world.start(2));
    let (burst, stop) = (AtomicBool::new(true), AtomicBool::new(false));
    let says = |what: &str| sender.explain_while(|| {}).iter().any(|reason| reason.contains(what));
    std::thread::scope(|scope| {
        scope.spawn(|| send(&world, &burst, &stop));
        // Ends the thread also if a wait below fails.
        let _guard = Stop(&stop);
        // 320 Mbit/s on an uplink of 100.
        until("it waits all the time", 20, || says("waited in its queue all the time"));
        burst.store(false, Ordering::Relaxed);
        // 0.4 Mbit/s of a floor of 20.
        until("nothing waits", 20, || !says("waited in its queue"));
    });
}
