//! The BPF programs on hostile packets: the corpus, and some ten thousand damaged copies. Needs root,
//! and fails without.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use weir_fuzz::{Limits, replay, target};

/// The CPU time of this thread: a busy machine makes an input slow, and costs it no CPU time.
fn clock() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("time since the thread began")
}

fn run(name: &str, mutations: u32) {
    let limits = Limits { mutations, seed: 1, each: Duration::from_secs(5), clock };
    let tried = replay(target(name), &limits);
    println!("{name}: {} inputs, {} beyond the first check", tried.inputs, tried.reached);
    assert!(tried.inputs > limits.mutations as usize);
    assert!(tried.reached * 5 >= tried.inputs, "{name}: {tried:?}");
}

#[test]
fn no_packet_passes_that_is_not_the_vms_and_each_is_counted_once() {
    run("packet", 20_000);
}

#[test]
fn the_kernel_believes_what_the_crate_believes_and_drops_all_feedback_for_this_host() {
    run("heed", 20_000);
}

#[test]
fn a_translating_port_keeps_numbers_payload_and_checksums_of_any_segment() {
    run("segment", 5_000);
}
