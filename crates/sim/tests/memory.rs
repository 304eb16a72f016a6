//! The estimate of memory against what the kernel says. Alone in its process.

mod common;

use common::{BULK, Dumbbell, options};
use std::num::NonZero;
use weir_sim::{Sim, TcpConfig, Traffic};
use weir_units::{Span, Time};

/// Octets of memory in use.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn a_run_takes_what_was_said_before() {
    let before = resident();
    let dumbbell = Dumbbell {
        pairs: 20_000,
        mbps: 100_000,
        rtt: Span::from_micros(50),
        buffer: 40_000,
        mark_above: None,
        loss: 0.0,
        until: Span::from_millis(20),
    };
    let traffic = Traffic::Tcp { octets: NonZero::new(100 * 1460), algorithm: None };
    let network = dumbbell.network(traffic);
    let memory = network.memory(&TcpConfig::default());
    let few = |traffic| Dumbbell { pairs: 2, ..dumbbell.clone() }.network(traffic);
    let most = |traffic| few(traffic).memory(&TcpConfig::default()).most;
    assert!(most(BULK) > most(traffic), "an endless flow has more in flight than a short one");
    let mut sim = Sim::new(&network, &options(TcpConfig::default()));
    let outcomes = [1, 10, 20].map(|ms| {
        sim.run_until(Time::ZERO + Span::from_millis(ms));
        sim.outcome()
    });
    let taken = resident() - before;
    assert!(outcomes[2].packets.launched > 100_000);
    assert!(taken as f64 > 0.9 * memory.least.get() as f64, "{taken} {memory:?}");
    assert!(taken < memory.most.get(), "{taken} {memory:?}");
}
