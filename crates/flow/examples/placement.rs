//! QShare's datacenter (§7.3.1): fills a fat tree with tenants, and prints what docs/results has.
//!
//! `cargo run --release -p weir-flow --example placement -- [k=16] [ratio=1|4|16|all]
//! [policy=balanced|load|oktopus|first-fit] [effort=N] [seed=N] [spread=yes] [refusals=N] [slots=N]
//! [plays=3] [survival=N] [additive=yes|place|root|centre|centre-place] [stale=N] [headroom=N] [weights=15]`
//!
//! Tenants have max(2, Exp(49)) VMs with one floor of {10, 50, 100, 200, 300} Mb/s. They arrive until
//! all slots are taken or `refusals` in a row did not fit. `survival` is in 1/1000, per server. The same seed gives the same arrivals.
//! `additive` refuses also what does not keep to the room that the ledger publishes for schedulers of others: see
//! `placement/rooms.rs`. They read it again after every `stale` arrivals.
//! `headroom` is in 1/1000 of each link. Then eight queues per port, with weights from 1 to `weights`, are given
//! to tenants whose U-factors are drawn anew in each of ten intervals: Algorithm 2.
//! A request's time is the least of all `plays`: what another process takes of the processor is no
//! property of the ledger.

#[path = "placement/rooms.rs"]
mod rooms;

use rooms::{Kind, Scheduler, vms};
use std::time::{Duration, Instant};
use weir_core::binding::{
    Binder, Contender, Fabric, LastQueue, LinkPorts, MostWeight, Place, Why, Wish, score,
};
use weir_core::ledger::{
    Config, Direction, FatTreeShape, Ledger, LinkId, Placement, TenantRequest, Topology,
};
use weir_core::placement::{Policy, QUEUES, Weight};
use weir_units::{HostId, Rate, SplitMix64, TenantId};

/// The next tenant: the same ones in every run.
fn tenant(random: &mut SplitMix64, id: u32) -> TenantRequest {
    let vms = (-49.0 * random.unit().ln()).round().max(2.0) as u32;
    let floor = [10, 50, 100, 200, 300][(random.next() % 5) as usize];
    TenantRequest::uniform(TenantId(id), vms, Rate::from_mbps(floor))
}

struct Options {
    k: u32,
    ratio: String,
    policy: String,
    effort: u64,
    seed: u64,
    is_spread: bool,
    refusals: u32,
    slots: u32,
    plays: u32,
    survival: u16,
    additive: Option<Kind>,
    stale: u32,
    headroom: f64,
    weights: u16,
}

fn options() -> Options {
    let get = |name: &str| {
        let prefix = format!("{name}=");
        std::env::args().find_map(|a| a.strip_prefix(&prefix).map(str::to_owned))
    };
    let number =
        |name: &str, default: u64| get(name).map_or(default, |n| n.parse().expect("a number"));
    Options {
        k: number("k", 16) as u32,
        ratio: get("ratio").unwrap_or("1".to_owned()),
        policy: get("policy").unwrap_or("balanced".to_owned()),
        effort: number("effort", 0),
        seed: number("seed", 1),
        is_spread: get("spread").is_some(),
        refusals: number("refusals", 100) as u32,
        slots: number("slots", 100) as u32,
        plays: number("plays", 3).max(1) as u32,
        survival: number("survival", 0) as u16,
        additive: get("additive").as_deref().map(Kind::named),
        stale: number("stale", 1).max(1) as u32,
        headroom: number("headroom", 0) as f64 / 1000.0,
        weights: number("weights", 15) as u16,
    }
}

/// Uplinks of edge and aggregation switches. Hosts have 10 Gb/s, ports 40 Gb/s: with a quarter of the
/// edge switches' uplinks there is as much above them as below.
fn uplinks(k: u32, ratio: &str) -> (u32, u32) {
    let half = k / 2;
    let quarter = (half / 4).max(1);
    match ratio {
        "1" => (quarter, half),
        "4" => ((quarter / 2).max(1), half / 2),
        "16" => ((quarter / 2).max(1), (half / 8).max(1)),
        "all" => (half, half),
        other => panic!("no ratio {other}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "what an example measures is time")]
fn now() -> Instant {
    Instant::now()
}

/// Largest memory of the process so far, in MB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("VmHWM: 0 kB");
    let kilobytes = line.split_whitespace().nth(1).and_then(|n| n.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

#[derive(Default)]
struct Tally {
    tenants: u32,
    vms: u64,
    mbps: u64,
}

impl Tally {
    fn show(&self) -> String {
        format!("{} tenants, {} VMs, {:.1} Gb/s", self.tenants, self.vms, self.mbps as f64 / 1e3)
    }
}

/// Accepted and refused requests' times.
struct Times(Vec<Duration>);

impl Times {
    fn show(&mut self) -> String {
        self.0.sort_unstable();
        let Some(most) = self.0.last() else { return "none".to_owned() };
        let mean = self.0.iter().sum::<Duration>().as_secs_f64() / self.0.len() as f64;
        let p99 = self.0[self.0.len() * 99 / 100];
        let us = |d: f64| d * 1e6;
        let (p99, most) = (us(p99.as_secs_f64()), us(most.as_secs_f64()));
        format!("mean {:.1} us, p99 {p99:.1} us, worst {most:.1} us", us(mean))
    }
}

fn main() {
    let options = options();
    let (edge_uplinks, aggregation_uplinks) = uplinks(options.k, &options.ratio);
    let topology = Topology::fat_tree(FatTreeShape {
        k: options.k,
        slots: options.slots,
        host_rate: Rate::from_mbps(10_000),
        port_rate: Rate::from_mbps(40_000),
        edge_uplinks,
        aggregation_uplinks,
        spread: options.is_spread,
    });
    let policy = match options.policy.as_str() {
        "balanced" => Policy::Balanced(Weight::Fixed(0.1)),
        "load" => Policy::Balanced(Weight::Load),
        "oktopus" => Policy::Oktopus,
        "first-fit" => Policy::FirstFit,
        other => panic!("no policy {other}"),
    };
    let config = Config { headroom: options.headroom, policy, effort: options.effort };
    let begin = now();
    let empty = Ledger::new(topology, config).expect("a topology");
    println!("built in {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let mut times: Vec<(Duration, bool)> = Vec::new();
    for play in 1..=options.plays {
        let mut ledger = empty.clone();
        let is_last = play == options.plays;
        let took = fill(&mut ledger, &options, is_last);
        if times.is_empty() {
            times = took;
        } else {
            times.iter_mut().zip(took).for_each(|(least, took)| least.0 = least.0.min(took.0));
        }
        if is_last {
            for (name, wanted) in [("accepted", true), ("refused ", false)] {
                let of = times.iter().filter(|(_, is)| *is == wanted).map(|(took, _)| *took);
                println!("{name}: {}", Times(of.collect()).show());
            }
            println!("peak memory {:.1} MB", peak());
            ledger.audit().expect("sums");
            ports(&ledger);
            queues(&ledger, &options);
        }
    }
}

/// Each request's time, and whether it was accepted.
fn fill(ledger: &mut Ledger, options: &Options, is_told: bool) -> Vec<(Duration, bool)> {
    let mut random = SplitMix64::new(options.seed);
    let (mut accepted, mut before_first) = (Tally::default(), None);
    let mut times = Vec::new();
    let (mut in_a_row, mut arrived) = (0, 0);
    let hosts = ledger.topology().hosts.len() as u64;
    let all = hosts * u64::from(options.slots);
    let mut scheduler: Option<Scheduler> = None;
    while in_a_row < options.refusals && accepted.vms < all {
        let mut request = tenant(&mut random, arrived);
        request.survival.host_permille = options.survival;
        arrived += 1;
        if let Some(kind) = options.additive.filter(|_| (arrived - 1) % options.stale == 0) {
            scheduler = Some(Scheduler::read(ledger, kind));
        }
        let chooses = options.additive.is_some_and(Kind::chooses);
        let mut has_place = true;
        if let Some(scheduler) = scheduler.as_ref().filter(|_| chooses) {
            let most = request.vms.len() * usize::from(1000 - options.survival) / 1000;
            match scheduler.choose(&request, most as u64) {
                Some(chosen) => {
                    request.vms.iter_mut().zip(chosen).for_each(|(vm, host)| vm.host = Some(host));
                }
                None => has_place = false,
            }
        }
        let begin = now();
        let answer = has_place.then(|| ledger.place(&request));
        let took = begin.elapsed();
        let mut keeps = |placement: &Placement| {
            scheduler.as_mut().is_none_or(|scheduler| scheduler.take(&request, vms(placement)))
        };
        let is_accepted = match answer {
            Some(Ok(placement)) => {
                let keeps = keeps(&placement);
                assert!(keeps || !chooses, "it was chosen by the room");
                keeps
            }
            Some(Err(refusal)) if chooses => panic!("the room promised it: {refusal}"),
            _ => false,
        };
        times.push((took, is_accepted));
        if !is_accepted {
            // Nothing happens if it was refused.
            ledger.remove(request.tenant);
        }
        if is_accepted {
            in_a_row = 0;
            accepted.tenants += 1;
            accepted.vms += request.vms.len() as u64;
            let floor = request.classes[0].hoses[0].floors.out.as_bps() / 1_000_000;
            accepted.mbps += floor * request.vms.len() as u64;
        } else {
            in_a_row += 1;
            before_first.get_or_insert_with(|| accepted.show());
        }
    }
    if is_told {
        println!("first refusal after {}", before_first.unwrap_or("none".to_owned()));
        let part = 100.0 * accepted.vms as f64 / all as f64;
        println!("full: {} of {arrived} arrivals, {part:.2} % of slots", accepted.show());
    }
    times
}

/// Tenants per port, and tenants that share no port with 8 or more others.
fn ports(ledger: &Ledger) {
    let topology = ledger.topology();
    let hosts = topology.hosts.len();
    let count = |link: usize| ledger.tenants_on(LinkId(link as u32)).len();
    let is_host = |link: &usize| {
        let link = &topology.links[*link];
        matches!(link.a, weir_core::ledger::Node::Host(_))
    };
    for (name, wanted) in [("hosts'", Some(true)), ("switches'", Some(false)), ("all", None)] {
        let links = 0..topology.links.len();
        let counts: Vec<usize> =
            links.filter(|l| wanted.is_none_or(|w| w == is_host(l))).map(count).collect();
        let part = |of: fn(usize) -> bool| {
            100.0 * counts.iter().filter(|n| of(**n)).count() as f64 / counts.len() as f64
        };
        println!(
            "{name} ports: {:.2} % < 9, {:.2} % 9-12, {:.2} % > 12 tenants; most {}",
            part(|n| n < 9),
            part(|n| (9..=12).contains(&n)),
            part(|n| n > 12),
            counts.iter().max().unwrap_or(&0)
        );
    }
    let all: Vec<TenantId> = ledger.tenants().collect();
    let is_alone = |tenant: &&TenantId| {
        let links = ledger.placement(**tenant).map(|placement| placement.links);
        links.iter().flatten().all(|need| count(need.link.0 as usize) <= QUEUES as usize)
    };
    let permanent = all.iter().filter(is_alone).count() as f64;
    println!("permanently dedicated: {:.1} % of tenants", 100.0 * permanent / all.len() as f64);
    let loaded = |link: usize| {
        let (capacity, reserved) = ledger.link(LinkId(link as u32), Direction::Forward);
        reserved.as_f64() / capacity.as_f64()
    };
    let mean = |wanted: bool| {
        let links: Vec<usize> =
            (0..topology.links.len()).filter(|l| is_host(l) == wanted).collect();
        100.0 * links.iter().map(|l| loaded(*l)).sum::<f64>() / links.len() as f64
    };
    let free = (0..hosts as u32).map(|h| ledger.slots(HostId(h))).filter(|(all, used)| used < all);
    println!(
        "reserved upwards: {:.1} % of hosts' links, {:.1} % of others; {} hosts with free slots",
        mean(true),
        mean(false),
        free.count()
    );
}

/// Tenants with queues of their own in ten control intervals, why the others have none, and how many
/// code points that takes.
fn queues(ledger: &Ledger, options: &Options) {
    let topology = ledger.topology();
    let ports = |link: &weir_core::ledger::Link| {
        let rate = Rate::from_bps(link.rate.as_bps() * u64::from(link.members));
        LinkPorts { rate, queues: QUEUES as u8 }
    };
    let mut binder = Binder::new(Fabric {
        links: topology.links.iter().map(ports).collect(),
        codepoints: Fabric::all_codepoints(),
        most_weight: MostWeight::new(options.weights),
        last_queue: LastQueue::SharedIfCrowded,
    });
    let all: Vec<TenantId> = ledger.tenants().collect();
    let mut random = SplitMix64::new(options.seed);
    let mut times = Vec::new();
    let (mut part, mut codepoints) = (0.0, 0);
    for interval in 0..10 {
        let contenders: Vec<Contender> = all
            .iter()
            .map(|tenant| {
                let request = ledger.request(*tenant).expect("it is there");
                let floor = request.classes[0].hoses[0].floors.out.as_bps();
                let payment = Rate::from_bps(floor * request.vms.len() as u64);
                Contender {
                    tenant: *tenant,
                    needs: ledger.placement(*tenant).expect("it is there").links,
                    score: score(payment, random.unit()),
                    wish: Wish::ByScore,
                    is_new: false,
                }
            })
            .collect();
        let begin = now();
        binder.bind(&contenders, interval);
        times.push(begin.elapsed());
        let own = |place| matches!(place, Place::Dedicated(_) | Place::Shared(Why::NeedsNone));
        part += binder.places().filter(|(_, place)| own(*place)).count() as f64 / all.len() as f64;
        let codepoint = |place| match place {
            Place::Dedicated(codepoint) => codepoint,
            Place::Shared(_) => 0,
        };
        codepoints =
            codepoints.max(binder.places().map(|(_, place)| codepoint(place)).max().unwrap_or(0));
    }
    let mut why = std::collections::BTreeMap::new();
    for (_, place) in binder.places() {
        let Place::Shared(reason) = place else { continue };
        let name = match reason {
            Why::NeedsNone => "need none",
            Why::Outscored(_) => "outscored",
            Why::Preempted(..) => "pre-empted",
            Why::Weights(_) => "weights",
            Why::Codepoints => "code points",
            _ => "other",
        };
        *why.entry(name).or_insert(0) += 1;
    }
    println!("a queue in an interval, or none needed: {:.1} % of tenants", 10.0 * part);
    println!(
        "without one in the last interval, by reason: {why:?}; code points used: {codepoints}"
    );
    println!("binding: {}", Times(times).show());
}
