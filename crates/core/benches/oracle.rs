//! What the ideal costs: tenants of 20 VMs, all at random in a tree of racks, each VM sending to
//! five of its tenant; half of the pairs with a demand.

use criterion::{BenchmarkId, Criterion, Throughput};
use weir_core::oracle::{Flow, Hose, PairDemand, World, allocate, hose_max_min};
use weir_units::{PairId, Rate, SplitMix64, VmId};

const TENANT: u64 = 20;
const PEERS: u64 = 5;
const VMS_PER_HOST: u64 = 4;
const HOSTS_PER_RACK: u64 = 20;

fn hoses_and_demands(pairs: u64, chance: &mut SplitMix64) -> (Vec<Hose>, Vec<PairDemand>) {
    let vms = (pairs / PEERS).next_multiple_of(TENANT);
    let hose = |chance: &mut SplitMix64| {
        let floor = Rate::from_bps(50_000_000 + chance.next() % 100_000_000);
        Hose { floor_out: floor, floor_in: floor }
    };
    let hoses = (0..vms).map(|_| hose(chance)).collect();
    let demand = |i: u64, chance: &mut SplitMix64| {
        let (src, first) = (i / PEERS, i / PEERS / TENANT * TENANT);
        let dst = first + (src - first + 1 + i % PEERS) % TENANT;
        let wants = chance.next() % 60_000_000;
        let pair = PairId::new(VmId(src as u32), VmId(dst as u32));
        PairDemand::of_vms(pair, wants.is_multiple_of(2).then_some(Rate::from_bps(wants)), true)
    };
    (hoses, (0..pairs).map(|i| demand(i, chance)).collect())
}

/// Links: up and down of each host, then of each rack. Capacities a little above what is owed.
fn network(pairs: u64) -> World {
    let mut chance = SplitMix64::new(1);
    let (hoses, demands) = hoses_and_demands(pairs, &mut chance);
    let hosts = (hoses.len() as u64).div_ceil(VMS_PER_HOST);
    let racks = hosts.div_ceil(HOSTS_PER_RACK);
    let at: Vec<u64> = hoses.iter().map(|_| chance.next() % hosts).collect();
    let path = |pair: PairId| {
        let (a, b) = (at[pair.src.0 as usize], at[pair.dst.0 as usize]);
        let (rack_a, rack_b) = (a / HOSTS_PER_RACK, b / HOSTS_PER_RACK);
        let mut path = vec![2 * a as usize, 2 * b as usize + 1];
        if rack_a != rack_b {
            path.extend([2 * (hosts + rack_a) as usize, 2 * (hosts + rack_b) as usize + 1]);
        }
        path
    };
    let floors = hose_max_min(&hoses, &demands);
    let flows: Vec<Flow> = demands
        .iter()
        .zip(floors)
        .map(|(d, floor)| Flow { path: path(d.pair), demand: d.demand, floor })
        .collect();
    let mut links = vec![Rate::ZERO; 2 * (hosts + racks) as usize];
    for flow in &flows {
        flow.path.iter().for_each(|&link| links[link] += flow.owed());
    }
    for link in &mut links {
        *link = link.mul_ratio(110 + chance.next() % 50, 100);
    }
    World { links, flows }
}

fn oracle(c: &mut Criterion) {
    let mut group = c.benchmark_group("oracle");
    group.sample_size(20);
    for pairs in [1_000, 10_000, 100_000] {
        group.throughput(Throughput::Elements(pairs));
        let world = network(pairs);
        let ideal = allocate(&world).expect("links above what is owed");
        group.bench_function(BenchmarkId::new("allocate", pairs), |b| {
            b.iter(|| allocate(&world).expect("admissible"));
        });
        group.bench_function(BenchmarkId::new("check", pairs), |b| {
            b.iter(|| ideal.check(&world));
        });
        let (hoses, demands) = hoses_and_demands(pairs, &mut SplitMix64::new(1));
        group.bench_function(BenchmarkId::new("hose_max_min", pairs), |b| {
            b.iter(|| hose_max_min(&hoses, &demands));
        });
    }
    group.finish();
}

// Not `criterion_group!`: it makes a public function without documentation.
fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    oracle(&mut criterion);
    criterion.final_summary();
}
