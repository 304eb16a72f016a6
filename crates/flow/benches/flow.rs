//! What ideal rates cost: a fat tree of 16-port switches (1024 hosts), 100 000 flows between random
//! hosts over random paths of up to six links, and a cap in and one out for every host.
//!
//! From scratch by criterion, checks included; events one by one, since their costs differ: median,
//! mean and 90th percentile of arrivals and departures in turn, per tolerance of full links.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput};
use std::time::{Duration, Instant};
use weir_flow::{
    Arrival, FatTree, Floor, Flow, FlowId, Flows, Solver, Tolerance, World, allocate, play,
};
use weir_units::{Bytes, Rate, SplitMix64, Time};

const FLOWS: usize = 100_000;
const EVENTS: usize = 400;

/// The same network in every run.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, below: u32) -> u32 {
        (self.0.next() % u64::from(below)) as u32
    }
}

/// The flows.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// All take what they get.
    Greedy,
    /// Half have floors, half of all have demands.
    Mixed,
    /// As `Greedy`, between hosts of one rack or pod nine times of ten.
    Local,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Greedy, "greedy"), (Kind::Mixed, "floors and demands"), (Kind::Local, "local")];

fn tree() -> (FatTree, World) {
    let tree = FatTree::new(16).expect("even");
    (tree, tree.world(Rate::from_mbps(10_000), Rate::from_mbps(9_000)))
}

fn flow(tree: FatTree, kind: Kind, random: &mut Random) -> Flow {
    let (hosts, src) = (tree.hosts(), random.below(tree.hosts()));
    let dst = match random.below(10) {
        0..8 if kind == Kind::Local => src / 8 * 8 + (src + 1 + random.below(7)) % 8,
        8 if kind == Kind::Local => src / 64 * 64 + (src + 1 + random.below(63)) % 64,
        _ => (src + 1 + random.below(hosts - 1)) % hosts,
    };
    let mut flow = Flow::greedy(tree.path(src, dst, random.below(64)));
    if kind == Kind::Mixed {
        if random.below(2) == 0 {
            flow.floor =
                Floor::Fixed(Rate::from_bps(1_000_000 + u64::from(random.below(40_000_000))));
        }
        if random.below(2) == 0 {
            flow.demand = Some(Rate::from_bps(u64::from(random.below(200_000_000))));
        }
    }
    flow
}

fn from_scratch(c: &mut Criterion) {
    let (tree, world) = tree();
    let mut group = c.benchmark_group("from scratch");
    group.sample_size(30).measurement_time(Duration::from_secs(6));
    for (kind, name) in KINDS {
        let mut random = Random(SplitMix64::new(1));
        let flows: Vec<Flow> = (0..FLOWS).map(|_| flow(tree, kind, &mut random)).collect();
        let flows: Flows = flows.iter().collect();
        group.throughput(Throughput::Elements(FLOWS as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| allocate(&world, &flows).expect("admissible"));
        });
    }
    group.finish();
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads clocks")]
fn now() -> Instant {
    Instant::now()
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn events(kind: Kind, name: &str) {
    let (tree, world) = tree();
    let mut random = Random(SplitMix64::new(1));
    let flows: Vec<Flow> = (0..FLOWS).map(|_| flow(tree, kind, &mut random)).collect();
    let columns: Flows = flows.iter().collect();
    let scratch = |_| {
        let start = now();
        allocate(&world, &columns).expect("admissible");
        start.elapsed()
    };
    let scratch = median(&mut (0..15).map(scratch).collect::<Vec<_>>());
    println!("\n{name}: {:.1} ms from scratch (median of 15)", scratch * 1e3);
    println!(
        "tolerance  median µs  mean µs   p90 µs  links/event  refills  times cheaper  rates off by: worst  mean"
    );
    for tolerance in [1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2] {
        let part = Tolerance::from_fraction(tolerance).expect("in range");
        let mut solver = Solver::new(world.clone(), part);
        let mut ids: Vec<FlowId> =
            flows.iter().map(|flow| solver.insert(flow).expect("right")).collect();
        solver.settle();
        let before = solver.work();
        let mut times = Vec::with_capacity(EVENTS);
        for event in 0..EVENTS {
            let new = flow(tree, kind, &mut random);
            let victim = random.below(ids.len() as u32) as usize;
            let start = now();
            if event % 2 == 0 {
                solver.remove(ids.swap_remove(victim));
            } else {
                ids.push(solver.insert(&new).expect("right"));
            }
            solver.settle();
            times.push(start.elapsed());
        }
        solver.check().expect("what is promised");
        let (_, now_there, ours) = solver.snapshot();
        let ideal = allocate(&world, &now_there).expect("admissible");
        let off = ours.rates.iter().zip(&ideal.rates).map(|(a, b)| (a - b).abs() / b.max(1e6));
        let (worst, sum) = off.fold((0f64, 0.0), |(worst, sum), off| (worst.max(off), sum + off));
        let work = solver.work();
        let mean = times.iter().sum::<Duration>().as_secs_f64() / times.len() as f64;
        let middle = median(&mut times);
        println!(
            "{tolerance:>9.0e} {:>10.1} {:>8.1} {:>8.1} {:>12.1} {:>8} {:>14.1} {worst:>20.1e} {:>8.1e}",
            middle * 1e6,
            mean * 1e6,
            times[times.len() * 9 / 10].as_secs_f64() * 1e6,
            (work.links - before.links) as f64 / EVENTS as f64,
            work.fillings - before.fillings,
            scratch / middle,
            sum / ours.rates.len() as f64,
        );
    }
}

/// Flows of a megabyte that keep each host's link about half busy, for 20 ms.
fn over_time() {
    let (tree, world) = tree();
    let mut random = Random(SplitMix64::new(3));
    let arrivals: Vec<Arrival> = (0..12_800u64)
        .map(|number| Arrival {
            at: Time::from_nanos(number * 1_562),
            flow: flow(tree, Kind::Greedy, &mut random),
            size: Some(Bytes::new(u64::from(1 + random.below(2_000_000)))),
        })
        .collect();
    let start = now();
    let until = Time::from_nanos(40_000_000);
    let played = play(&world, arrivals, until, Tolerance::default()).expect("in order");
    let took = start.elapsed().as_secs_f64();
    let tally = played.tally;
    println!("\nover time: {tally:?}");
    println!("{:.1} µs per arrival or end", took * 1e6 / (tally.arrivals + tally.ended) as f64);
}

// Not `criterion_group!`: it makes a public function without documentation.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    from_scratch(&mut criterion);
    criterion.final_summary();
    // `cargo test --benches` only wants to see that it runs.
    if std::env::args().any(|arg| arg == "--bench") {
        KINDS.iter().for_each(|&(kind, name)| events(kind, name));
        over_time();
    }
}
