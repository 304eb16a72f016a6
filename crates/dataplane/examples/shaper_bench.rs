//! What the shaper costs: creating classes, changing rates, reading counters. Needs root; works in
//! a network namespace of its own, which vanishes with the process.
//!
//! `cargo run --release -p weir-dataplane --example shaper_bench`
#![allow(unsafe_code, reason = "a namespace has no safe call")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]

use std::process::Command;
use std::time::Instant;
use weir_dataplane::intf::NODES;
use weir_dataplane::programs::{Programs, Sizes};
use weir_dataplane::shaper::{External, Htb, PairRate, Shaper, ShaperConfig, VmShare};
use weir_units::{PairId, Rate, VmId};

const REPEATS: u64 = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // SAFETY: no pointers; the process has one thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(format!("needs root: {}", std::io::Error::last_os_error()).into());
    }
    Command::new("ip").args(["link", "add", "port", "type", "ifb"]).status()?;

    println!("classes  create us each  free us each  add again us each");
    for n in [100, 300, 1000, 2000] {
        let mut shaper = open(n)?;
        let pairs: Vec<PairId> = pairs(n);
        let start = Instant::now();
        shaper.add_pairs(&pairs)?;
        let create = micros(start, n);
        let start = Instant::now();
        shaper.remove(&pairs)?;
        let free = micros(start, n);
        let start = Instant::now();
        shaper.add_pairs(&pairs)?;
        println!("{n:7}  {create:14.2}  {free:12.2}  {:17.2}", micros(start, n));
        Box::new(shaper).close()?;
    }

    println!("\n  batch  change us each  worst us each  no difference us each  counters us each");
    for n in [100, 300, 1000] {
        let mut shaper = open(n)?;
        let pairs = pairs(n);
        shaper.add_pairs(&pairs)?;
        let mut costs = Vec::new();
        for i in 0..REPEATS {
            let rates = rates(&pairs, i);
            let start = Instant::now();
            let written = shaper.set(&rates)?;
            costs.push(micros(start, n));
            assert_eq!(written, n as usize, "all differ");
        }
        costs.sort_by(f64::total_cmp);
        let same = rates(&pairs, REPEATS - 1);
        let start = Instant::now();
        shaper.set(&same)?;
        let idle = micros(start, n);
        let start = Instant::now();
        shaper.stats()?;
        let stats = micros(start, n);
        let (median, worst) = (costs[costs.len() / 2], costs[costs.len() - 1]);
        println!("{n:7}  {median:14.2}  {worst:13.2}  {idle:21.2}  {stats:16.2}");
        Box::new(shaper).close()?;
    }
    Ok(())
}

fn open(n: u32) -> Result<Htb, Box<dyn std::error::Error>> {
    let sizes = Sizes { pairs: 16, endpoints: 16, nodes: NODES, queues: 1, hosts: 1 };
    let levels = Programs::load(sizes, None)?.levels()?;
    let shaper = Htb::open(ShaperConfig::new(&format!("bench-{n}"), Rate::from_mbps(10_000)))?;
    let mut shaper = shaper.bounded_in_time(levels)?;
    let floor = Rate::from_mbps(9_000);
    shaper.apply_vms(&[VmShare {
        vm: VmId(0),
        port: "port".into(),
        floor,
        cap: None,
        external: External::default(),
    }])?;
    Ok(shaper)
}

fn pairs(n: u32) -> Vec<PairId> {
    (0..n).map(|i| PairId::new(VmId(0), VmId(i))).collect()
}

fn rates(pairs: &[PairId], round: u64) -> Vec<(PairId, PairRate)> {
    let floor = Rate::from_mbps(1);
    let level =
        |i: u64| PairRate { floor, ceiling: Rate::from_bps(2_000_000 + 1000 * (i + round)) };
    pairs.iter().zip(0..).map(|(pair, i)| (*pair, level(i))).collect()
}

fn micros(since: Instant, n: u32) -> f64 {
    since.elapsed().as_secs_f64() * 1e6 / f64::from(n)
}
