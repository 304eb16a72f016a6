//! The seeds that continuous integration plays. More of them: `make swarm N=…`.

use std::sync::atomic::AtomicBool;
use weir_swarm::{Report, play, play_all};

/// `scripts/test-long` goes on from there.
const SEEDS: u64 = 80;

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[test]
fn the_first_seeds_keep_every_promise() {
    let mut broken = String::new();
    let mut each = |report: &Report| {
        println!(
            "{} {:?} hops {} {:?}",
            report.seed,
            report.floors,
            report.packet_hops,
            report.breaches.iter().map(|b| b.to_string()).collect::<Vec<_>>()
        );
        for breach in &report.breaches {
            broken += &format!("\nweir swarm --seed {}: {breach}", report.seed);
        }
    };
    let tally = play_all(1..=SEEDS, threads(), &AtomicBool::new(false), &mut each);
    println!("{tally:?}");
    assert!(broken.is_empty(), "{broken}");
    assert_eq!(tally.played, SEEDS);
    // Enough of them are judged for the swarm to mean something.
    assert!(tally.floors.count >= 300, "{:?}", tally.floors);
    assert!(!tally.exempts_too_many(), "{:?}", tally.floors);
}

#[test]
fn a_seed_is_the_same_run_again() {
    let digest = || play(7, &AtomicBool::new(false)).expect("nobody stops it").digest;
    assert_eq!(digest(), digest());
}

#[test]
fn whoever_is_stopped_reports_nothing() {
    assert!(play(1, &AtomicBool::new(true)).is_none());
    let tally = play_all(1..=5, 2, &AtomicBool::new(true), &mut |_| panic!("none was played"));
    assert_eq!(tally.played, 0);
}
