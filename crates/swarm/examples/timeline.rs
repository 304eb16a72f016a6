//! Prints what happens to the pairs of one seed of the swarm, from a time on.
//!
//! `cargo run -p weir-swarm --example timeline -- SEED [FROM_MS [STEP_MS [VM]]]`: one line per pair
//! and step. Rates are in kbit/s: what left the shaper, what arrived in the last partitioning
//! period, floor and ceiling in force, the sender's share and estimate, the receiver's offer and
//! estimate. Then octets that wait, and segments lost in the step.

use std::collections::BTreeMap;
use std::process::ExitCode;
use weir_sim::scenario::{Run, Setup};
use weir_swarm::Draft;
use weir_units::{Rate, Span};

fn kbit(rate: Rate) -> u64 {
    rate.as_bps() / 1000
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut number = |other: u64| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(other);
    print(number(1), number(10_400), number(120), number(u64::MAX))
}

/// Of the pairs of VM number `vm`, or of all if there is no such VM.
pub fn print(seed: u64, from: u64, step: u64, vm: u64) -> ExitCode {
    let scenario = match Draft::new(seed).scenario() {
        Ok(scenario) => scenario,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mechanism = &scenario.mechanisms[0];
    let Ok(mut run) = Run::new(&scenario, mechanism, &Setup { seed, ..Setup::default() }) else {
        return ExitCode::FAILURE;
    };
    println!("{} {}", mechanism.preset, scenario.duration);
    for vm in &scenario.vms {
        println!("{} on host {}: out {}, in {}", vm.name, vm.host, vm.floor_out, vm.floor_in);
    }
    for (number, traffic) in scenario.traffic.iter().enumerate() {
        let [a, b] = [traffic.from, traffic.to].map(|vm| &scenario.vms[vm].name);
        println!(
            "traffic {number}: {a} > {b} {}..{} {:?}",
            traffic.start, traffic.stop, traffic.kind
        );
    }
    let mut before: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    let mut at = Span::from_millis(from);
    while at <= scenario.duration {
        run.play_until(at);
        let look = run.look();
        for pair in &look.pairs {
            let receive = pair.destination.receive.as_ref();
            let lost = receive.map_or(0, |receive| receive.lost);
            let (left, missed) = before.insert(pair.id, (pair.left, lost)).unwrap_or_default();
            let ends = [pair.id.src, pair.id.dst];
            if pair.left == 0 || vm != u64::MAX && ends.iter().all(|end| u64::from(end.0) != vm) {
                continue;
            }
            let rate = pair.left.saturating_sub(left) * 8 / step;
            let [a, b] = ends.map(|end| &scenario.vms[end.0 as usize].name);
            let setting = pair.in_force.map(|s| (kbit(s.floor), kbit(s.ceiling)));
            let share =
                pair.source.share.map(|((want, wants), share)| (kbit(share), want, kbit(wants)));
            let offer = receive.and_then(|r| r.offered).map(|o| (kbit(o.floor), o.unbounded));
            let wants = receive.and_then(|r| r.wants).map(|(want, rate)| (want, kbit(rate)));
            let arrived = receive.map_or(0, |r| kbit(r.measured));
            println!(
                "{:>7} {a}>{b} left {rate} came {arrived} in force {setting:?} send {share:?} \
                 offer {offer:?} {wants:?} waits {} lost {}",
                look.at.as_nanos() / 1_000_000,
                pair.waiting,
                lost.saturating_sub(missed),
            );
        }
        println!();
        at = at + Span::from_millis(step);
    }
    ExitCode::SUCCESS
}
