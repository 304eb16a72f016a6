//! What a control interval costs the controller, over QShare's fat tree of 1024 hosts.
//!
//! `binding`: Algorithm 2 for 2,000 tenants with trees, whose use is drawn anew each time; asked: 20 ms,
//! aimed at: 5 ms. `interval`: all of an interval for 100,000 VMs: usage of every tenant's cards in, U-factors,
//! scores, binding, weights, every switch's queues, and what has changed of them; asked: 200 ms.

#![allow(missing_docs)]

use criterion::{BatchSize, Criterion};
use std::collections::BTreeMap;
use weir_core::binding::switch::{Change, PortAbilities, PortName, PortQueues, SwitchConfig, diff};
use weir_core::binding::{
    Binder, CardUse, Contender, Fabric, LastQueue, LinkPorts, MostWeight, Wish, score, usage_factor,
};
use weir_core::ledger::{Direction, LinkId, Node, SwitchId};
use weir_flow::tenants::{Site, Tenant, Watch};
use weir_model::scenario::{Datacenter, DatacenterFile};
use weir_units::{Rate, SplitMix64, TenantId, Time};

struct Still;

impl Watch for Still {
    fn now(&mut self) -> Time {
        Time::ZERO
    }

    fn goes_on(&mut self, _: f64) -> bool {
        true
    }
}

fn datacenter(spec: &str) -> Datacenter {
    let text = format!(
        "apiVersion: weir/v1alpha1\nkind: Datacenter\nmetadata: {{title: bench}}\nspec: {{{spec}}}\n"
    );
    DatacenterFile::parse(&text, &[]).expect("it is written here").points()[0].clone()
}

/// A controller's state, and what it is told.
struct World {
    site: Site,
    binder: Binder,
    /// Of every switch, by port: the link, and the direction that leaves the switch.
    switches: BTreeMap<SwitchId, Vec<(LinkId, Direction, PortName, PortAbilities)>>,
    /// What switches have.
    configs: BTreeMap<SwitchId, SwitchConfig>,
    random: SplitMix64,
    interval: u64,
}

/// Octets of a tenant on a card in one direction, as agents tell them.
type Usage = (TenantId, LinkId, Direction, u64);

/// QShare's, in milliseconds.
const INTERVAL: u64 = 4000;

impl World {
    fn new(of: &Datacenter) -> Self {
        let site = Site::filled(of, 1, &mut Still).expect("nothing ends it");
        let topology = site.ledger.topology();
        let rate = |link: &weir_core::ledger::Link| {
            Rate::from_bps(link.rate.as_bps() * u64::from(link.members))
        };
        let links = topology.links.iter().map(|link| LinkPorts { rate: rate(link), queues: 8 });
        let fabric = Fabric {
            links: links.collect(),
            codepoints: Fabric::all_codepoints(),
            most_weight: MostWeight::PAPER,
            last_queue: LastQueue::AlwaysShared,
        };
        let mut switches: BTreeMap<SwitchId, Vec<_>> = BTreeMap::new();
        for (at, link) in (0..).zip(&topology.links) {
            for (direction, from) in [(Direction::Forward, link.a), (Direction::Backward, link.b)] {
                if let Node::Switch(switch) = from {
                    let ports = switches.entry(switch).or_default();
                    let name = PortName::from(format!("Ethernet{}", ports.len()).as_str());
                    let able = PortAbilities { rate: rate(link), queues: 8, reserved: [].into() };
                    ports.push((LinkId(at), direction, name, able));
                }
            }
        }
        let binder = Binder::new(fabric);
        let random = SplitMix64::new(7);
        let configs = BTreeMap::new();
        let mut world = Self { site, binder, switches, configs, random, interval: 0 };
        world.configs = world.wanted();
        world
    }

    fn describe(&self) -> String {
        let vms: u32 = self.site.tenants.iter().map(|tenant| tenant.vms).sum();
        let ports: usize = self.switches.values().map(Vec::len).sum();
        format!("{} tenants, {vms} VMs, {ports} switch ports", self.site.tenants.len())
    }

    /// What hosts tell: a tenant's cards are used alike, and half of the tenants use nothing.
    fn usage(&mut self) -> Vec<Usage> {
        let mut usage = Vec::new();
        for tenant in &self.site.tenants {
            let part = (self.random.unit() * 2.0 - 1.0).max(0.0);
            for need in self.site.cards(tenant) {
                for (direction, rate) in
                    [(Direction::Forward, need.forward), (Direction::Backward, need.backward)]
                {
                    let octets = rate.as_f64() / 8000.0 * INTERVAL as f64 * part;
                    usage.push((tenant.id, need.link, direction, octets as u64));
                }
            }
        }
        usage
    }

    /// Tenants with their scores, from what they used.
    fn contenders(&self, usage: &[Usage]) -> Vec<Contender> {
        let mut rest = usage;
        let one = |tenant: &Tenant| {
            let count = rest.iter().take_while(|of| of.0 == tenant.id).count();
            let (own, others) = rest.split_at(count);
            rest = others;
            let card = |(_, link, direction, octets): &Usage| {
                let need = tenant.needs.iter().find(|need| need.link == *link)?;
                let reserved = match direction {
                    Direction::Forward => need.forward,
                    Direction::Backward => need.backward,
                };
                Some(CardUse { used: Rate::from_bps(octets * 8000 / INTERVAL), reserved })
            };
            Contender {
                tenant: tenant.id,
                needs: tenant.needs.clone(),
                score: score(tenant.payment, usage_factor(own.iter().filter_map(card))),
                wish: Wish::ByScore,
                is_new: false,
            }
        };
        self.site.tenants.iter().map(one).collect()
    }

    fn wanted(&self) -> BTreeMap<SwitchId, SwitchConfig> {
        let config = |ports: &Vec<(LinkId, Direction, PortName, PortAbilities)>| {
            let port = |(link, direction, name, able): &(LinkId, Direction, PortName, _)| {
                let plan = self.binder.port(*link, *direction);
                let queues = PortQueues::of(name, able, &plan).expect("eight are there");
                (name.clone(), queues)
            };
            SwitchConfig { ports: ports.iter().map(port).collect() }
        };
        self.switches.iter().map(|(switch, ports)| (*switch, config(ports))).collect()
    }

    /// A whole interval; the changes of all switches.
    fn interval(&mut self, usage: &[Usage]) -> Vec<(SwitchId, Vec<Change>)> {
        let contenders = self.contenders(usage);
        self.interval += 1;
        self.binder.bind(&contenders, self.interval);
        let wanted = self.wanted();
        let changes = wanted
            .iter()
            .map(|(switch, wanted)| (*switch, diff(&self.configs[switch], wanted)))
            .filter(|(_, changes)| !changes.is_empty())
            .collect();
        self.configs = wanted;
        changes
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("binding");
    group.sample_size(20);
    // Tenants with fewer VMs, so that there are more of them.
    let mut world = World::new(&datacenter("ratio: 16, survival: 0.5, vms: 34"));
    eprintln!("binding: {}", world.describe());
    group.bench_function("2000 tenants", |bench| {
        bench.iter_batched(
            || {
                let usage = world.usage();
                (world.binder.clone(), world.contenders(&usage), world.random.next())
            },
            |(mut binder, contenders, seed)| {
                binder.bind(&contenders, seed);
                binder
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
    // Twice the paper's rates, so that slots bind and not links.
    let spec = "ratio: 16, survival: 0.5, host_rate: 20Gbit, port_rate: 80Gbit";
    let mut world = World::new(&datacenter(spec));
    eprintln!("interval: {}", world.describe());
    let mut group = criterion.benchmark_group("interval");
    group.sample_size(20);
    group.bench_function("100000 VMs", |bench| {
        bench.iter_custom(|times| {
            let mut took = std::time::Duration::ZERO;
            for _ in 0..times {
                let usage = world.usage();
                let begin = now();
                std::hint::black_box(world.interval(&usage));
                took += begin.elapsed();
            }
            took
        });
    });
    group.finish();
    criterion.final_summary();
}

#[expect(clippy::disallowed_methods, reason = "what a bench measures is time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
