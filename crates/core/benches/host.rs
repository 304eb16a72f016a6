//! What one turn of a host's agent costs: counters in, guarantee partitioning, rate allocation.
//!
//! Time per iteration covers all pairs; criterion's throughput line gives pairs per second.

#![allow(missing_docs)]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weir_core::host::{
    Direction, Hose, HostMachine, Input, Location, Observed, Outbox, Policy, ReceiveCount,
    SendCount,
};
use weir_core::mechanism::Law;
use weir_core::message::{Message, Offer};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

/// Pairs of one VM.
const PEERS: u32 = 100;

/// A host with `pairs` sending and as many receiving pairs, all confirmed and busy.
fn busy(pairs: u32) -> (HostMachine, Vec<PairId>) {
    let vms = pairs / PEERS;
    let mut directory = SortedMap::new();
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    for vm in 0..vms {
        directory.insert(VmId(vm), at(0));
    }
    for peer in 0..PEERS {
        directory.insert(VmId(vms + peer), at(1 + peer));
    }
    let hose = Hose::of(Rate::from_mbps(100), Rate::from_mbps(100));
    let config =
        Policy::new(HostId(0), Rate::from_mbps(100_000), Law::ElasticSwitch(Box::default()))
            .with_vms((0..vms).map(|vm| (VmId(vm), hose)))
            .with_directory(directory);
    let mut agent = HostMachine::new(config, Time::ZERO).expect("nothing speaks against it");
    let mut out = Outbox::new(1 << 20);
    let ids: Vec<PairId> =
        (0..pairs).map(|i| PairId::new(VmId(i / PEERS), VmId(vms + i % PEERS))).collect();
    for id in &ids {
        agent.handle(Time::ZERO, Input::Seen(*id, Direction::Send), &mut out);
        agent.handle(Time::ZERO, Input::Seen(id.reversed(), Direction::Receive), &mut out);
    }
    (agent, ids)
}

struct World {
    agent: HostMachine,
    ids: Vec<PairId>,
    out: Outbox,
    now: Time,
    octets: u64,
    sample: Observed,
}

impl World {
    fn new(pairs: u32) -> Self {
        let (agent, ids) = busy(pairs);
        let sample = Observed::default();
        let out = Outbox::new(1 << 20);
        let mut world = Self { agent, ids, out, now: Time::ZERO, octets: 0, sample };
        for _ in 0..20 {
            world.offers();
            world.turn(Span::from_millis(60));
        }
        world
    }

    fn offers(&mut self) {
        for id in &self.ids {
            let offer = Offer {
                pair: *id,
                serial: (self.octets & 0xffff_ffff) as u32,
                floor: Rate::from_mbps(1),
                unbounded: true,
                confirm: false,
                round_trip: None,
            };
            let from = HostId(1 + id.dst.0 - self.ids.len() as u32 / PEERS);
            let message = Message::Offer(offer);
            self.agent.handle(self.now, Input::Message(from, message), &mut self.out);
        }
    }

    /// One turn of the driver's loop.
    fn turn(&mut self, step: Span) {
        self.now += step;
        self.octets += 10_000;
        self.sample.send.clear();
        self.sample.receive.clear();
        for id in &self.ids {
            self.sample.send.push((
                *id,
                SendCount { octets: self.octets, numbered: self.octets, ..SendCount::default() },
            ));
            let count = ReceiveCount { octets: self.octets, ..ReceiveCount::default() };
            self.sample.receive.push((id.reversed(), count));
        }
        self.agent.handle(self.now, Input::Observed(&self.sample), &mut self.out);
        self.agent.handle(self.now, Input::Tick, &mut self.out);
        self.agent.orders(self.now).pairs.take_changed();
        self.out.take();
    }
}

fn host(c: &mut Criterion) {
    for (name, step) in [("rate allocation", 15), ("partitioning and allocation", 60)] {
        let mut group = c.benchmark_group(name);
        group.sample_size(10);
        for pairs in [100, 1_000, 10_000, 100_000] {
            group.throughput(Throughput::Elements(u64::from(pairs)));
            let mut world = World::new(pairs);
            group.bench_function(BenchmarkId::from_parameter(pairs), |b| {
                b.iter_batched(
                    || (),
                    |()| world.turn(Span::from_millis(step)),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

criterion_group!(benches, host);
criterion_main!(benches);
