//! The BPF programs on hostile packets: the corpus, and some ten thousand damaged copies. Needs root,
//! and fails without.
#![expect(clippy::disallowed_methods, reason = "a driver: it watches how long an input takes")]

use std::sync::LazyLock;
use std::time::{Duration, Instant};
use weir_fuzz::{Limits, replay, target};

fn clock() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[test]
fn no_packet_passes_that_is_not_the_vms_and_each_is_counted_once() {
    let limits = Limits { mutations: 20_000, seed: 1, each: Duration::from_secs(5), clock };
    assert!(replay(target("packet"), &limits) > limits.mutations as usize);
}
