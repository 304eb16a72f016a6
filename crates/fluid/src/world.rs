//! The world itself: hosts, one shared link per path, a control channel.

use crate::hosts::Hosts;
use weir_core::elasticswitch::ElasticSwitch;
use weir_core::host::{
    Call, Direction, Given, Hose, Location, Observed, Policy, ReceiveCount, SendCount, Setting,
    Work,
};
use weir_core::mechanism::{Law, PairView};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, TenantId, Time, VmId};

const STEP: Span = Span::from_millis(1);
/// Octets of a segment on layer 2 without FCS.
const SEGMENT: f64 = 1514.0;

/// Which senders lose when a buffer overflows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// In proportion to what each pair sends.
    Proportional,
    /// Equal parts for all that send, as the paper saw (ElasticSwitch §7.1, below Table 2).
    Equal,
}

/// One pair and what its source would send.
#[derive(Clone, Debug)]
pub struct PairSpec {
    /// Hose of the source, out. The source talks to this one destination only, unless `source` says
    /// which earlier pair it shares its VM with.
    pub floor_out: Rate,
    /// Hose of the destination, in.
    pub floor_in: Rate,
    /// `None` = a source VM of its own; `Some(i)` = the source of pair `i`.
    pub source: Option<usize>,
    /// `None` = a destination VM of its own; `Some(i)` = the destination of pair `i`.
    pub destination: Option<usize>,
    /// What the source would send; `None` = without bound.
    pub demand: Option<Rate>,
    /// When it starts.
    pub start: Span,
}

impl PairSpec {
    /// A pair of its own with the same floor at both ends and unbounded demand.
    pub fn alone(floor: Rate) -> Self {
        Self {
            floor_out: floor,
            floor_in: floor,
            source: None,
            destination: None,
            demand: None,
            start: Span::ZERO,
        }
    }
}

/// A shared link without packets, with one agent per VM's host.
#[derive(Clone, Debug)]
pub struct World {
    /// The link that all pairs cross.
    pub capacity: Rate,
    /// Its buffer in octets.
    pub buffer: u64,
    /// Which senders lose.
    pub loss: Loss,
    /// What passes while the buffer holds more octets than this is marked: all of it (ElasticSwitch
    /// §6). `None` = a link that does not mark.
    pub mark_above: Option<u64>,
    /// The law and its constants.
    pub mechanism: ElasticSwitch,
    /// All pairs.
    pub pairs: Vec<PairSpec>,
    /// How long a control message takes.
    pub control_delay: Span,
    /// Share of control messages that never arrive.
    pub control_loss: f64,
    /// Phases of the agents and losses of messages.
    pub seed: u64,
}

/// What a world came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Mean delivered rate of each pair after the warm-up, bit/s.
    pub rates: Vec<f64>,
    /// Of each pair, the smallest delivered rate over 500 ms windows after the warm-up, bit/s.
    pub window_min: Vec<f64>,
    /// Carried by the link after the warm-up, bit/s.
    pub carried: f64,
    /// Delivered rate of each pair in each 100 ms, bit/s.
    pub series: Vec<Vec<f64>>,
    /// The largest sum of pair floors of one destination VM over its hose, looked at every 100 ms.
    pub worst_floor_sum: f64,
    /// Control messages sent.
    pub messages: u64,
    /// Rate cuts of each pair.
    pub cuts: Vec<u64>,
    /// Octets of each pair that were marked, and that were lost, in all.
    pub signals: Vec<(f64, f64)>,
}

impl World {
    /// One link, the paper's buffer (128 kB), losses in proportion, messages after 100 µs.
    pub fn new(capacity: Rate, mechanism: ElasticSwitch, pairs: Vec<PairSpec>) -> Self {
        Self {
            capacity,
            buffer: 128_000,
            loss: Loss::Proportional,
            mark_above: None,
            mechanism,
            pairs,
            control_delay: Span::from_micros(100),
            control_loss: 0.0,
            seed: 1,
        }
    }

    /// Plays the world; rates are means from `warmup` to `duration`.
    pub fn play(&self, duration: Span, warmup: Span) -> Outcome {
        Running::new(self).play(duration, warmup)
    }
}

/// A pair while the world runs.
struct Flow {
    id: PairId,
    hosts: (usize, usize),
    demand: f64,
    /// What is in force.
    setting: Setting,
    start: Time,
    started: bool,
    sent: f64,
    delivered: f64,
    lost: f64,
    marked: f64,
}

struct Running<'a> {
    world: &'a World,
    flows: Vec<Flow>,
    hosts: Hosts,
    hoses: SortedMap<VmId, Rate>,
    /// Octets in the link's buffer.
    queue: f64,
    carried: f64,
    worst_floor_sum: f64,
}

impl<'a> Running<'a> {
    fn new(world: &'a World) -> Self {
        let mut directory = SortedMap::new();
        let mut hoses: SortedMap<VmId, Hose> = SortedMap::new();
        let mut flows: Vec<Flow> = Vec::new();
        for spec in &world.pairs {
            let mut vm = |shared: Option<VmId>, hose: Hose| {
                shared.unwrap_or_else(|| {
                    let vm = VmId(u32::try_from(hoses.len()).expect("few VMs"));
                    hoses.insert(vm, hose);
                    directory.insert(vm, Location { tenant: TenantId(0), host: HostId(vm.0) });
                    vm
                })
            };
            let out = Hose::of(spec.floor_out, spec.floor_out);
            let in_ = Hose::of(spec.floor_in, spec.floor_in);
            let src = vm(spec.source.map(|i| flows[i].id.src), out);
            let dst = vm(spec.destination.map(|i| flows[i].id.dst), in_);
            flows.push(Flow {
                id: PairId::new(src, dst),
                hosts: (src.0 as usize, dst.0 as usize),
                demand: spec.demand.map_or(f64::INFINITY, Rate::as_f64),
                setting: Setting::default(),
                start: Time::ZERO + spec.start,
                started: false,
                sent: 0.0,
                delivered: 0.0,
                lost: 0.0,
                marked: 0.0,
            });
        }
        let policies = hoses.iter().map(|(vm, hose)| {
            let law = Law::ElasticSwitch(Box::new(world.mechanism.clone()));
            Policy::new(HostId(vm.0), world.capacity, law)
                .with_vms([(*vm, *hose)])
                .with_directory(directory.clone())
        });
        let letters = (world.control_delay, world.control_loss);
        let hosts = Hosts::new(policies, (world.seed, Span::from_millis(15)), letters);
        let hoses = hoses.iter().map(|(vm, h)| (*vm, h.in_.floor)).collect();
        Self { world, flows, hosts, hoses, queue: 0.0, carried: 0.0, worst_floor_sum: 0.0 }
    }

    fn play(mut self, duration: Span, warmup: Span) -> Outcome {
        let steps = duration.div_span(STEP);
        let mut series: Vec<Vec<f64>> = vec![Vec::new(); self.flows.len()];
        let mut before: Vec<f64> = vec![0.0; self.flows.len()];
        let mut at_warmup = (Time::ZERO, before.clone(), 0.0);
        for i in 1..=steps {
            let now = Time::ZERO + STEP * i;
            self.start_flows(now);
            self.carry();
            self.deliver(now);
            self.run_agents(now);
            if i % 100 == 0 {
                self.check_floors();
                for (k, flow) in self.flows.iter().enumerate() {
                    series[k].push((flow.delivered - before[k]) * 8.0 / 0.1);
                    before[k] = flow.delivered;
                }
            }
            if now.since(Time::ZERO) <= warmup {
                let delivered = self.flows.iter().map(|f| f.delivered).collect();
                at_warmup = (now, delivered, self.carried);
            }
        }
        let end = Time::ZERO + STEP * steps;
        let span = end.since(at_warmup.0).as_secs_f64();
        let rates = self.flows.iter().zip(&at_warmup.1);
        let rates = rates.map(|(f, was)| (f.delivered - was) * 8.0 / span).collect();
        let cut = warmup.div_span(Span::from_millis(100)) as usize;
        let window_min = series.iter().map(|s| {
            let windows = s[cut.min(s.len())..].chunks_exact(5);
            windows.map(|w| w.iter().sum::<f64>() / 5.0).fold(f64::INFINITY, f64::min)
        });
        Outcome {
            rates,
            window_min: window_min.collect(),
            carried: (self.carried - at_warmup.2) * 8.0 / span,
            worst_floor_sum: self.worst_floor_sum,
            messages: self.hosts.messages,
            cuts: self.cuts(end),
            signals: self.flows.iter().map(|f| (f.marked, f.lost)).collect(),
            series,
        }
    }

    fn cuts(&mut self, now: Time) -> Vec<u64> {
        let hosts = &mut self.hosts;
        let mut cuts = |flow: &Flow| {
            let (host, local) = hosts.at(now, flow.hosts.0);
            match host.pair(local, flow.id) {
                Some(PairView::ElasticSwitch(view)) => view.send.map_or(0, |s| s.law.cuts),
                _ => 0,
            }
        };
        self.flows.iter().map(&mut cuts).collect()
    }

    fn start_flows(&mut self, now: Time) {
        for i in 0..self.flows.len() {
            if !self.flows[i].started && self.flows[i].start < now {
                self.flows[i].started = true;
                let (id, (src, dst)) = (self.flows[i].id, self.flows[i].hosts);
                for (host, end) in [(src, Direction::Send), (dst, Direction::Receive)] {
                    let work = self.hosts.call(now, host, Call::Input(Given::Seen(id, end)));
                    self.carry_out(work);
                }
            }
        }
    }

    /// One step of the link: what all pairs send, less what its rate and its buffer cannot take.
    fn carry(&mut self) {
        let dt = STEP.as_secs_f64();
        let capacity = self.world.capacity.as_f64() * dt / 8.0;
        let buffer = self.world.buffer as f64;
        let mut arrivals = vec![0.0; self.flows.len()];
        for (arrival, flow) in arrivals.iter_mut().zip(&mut self.flows) {
            if !flow.started {
                continue;
            }
            let ceiling = flow.setting.ceiling.as_f64();
            let offered = flow.demand.min(self.world.capacity.as_f64());
            *arrival = ceiling.min(offered) * dt / 8.0;
            // What the VM offered is what its host counts, bounded by the limiter's back-pressure.
            flow.sent += *arrival;
        }
        let total: f64 = arrivals.iter().sum();
        let served = (self.queue + total).min(capacity);
        let excess = (self.queue + total - served - buffer).max(0.0);
        let before = self.queue;
        self.queue = (self.queue + total - served - excess).max(0.0);
        self.carried += served;
        let marked =
            self.world.mark_above.map_or(0.0, |k| share_above(k as f64, before, self.queue));
        let senders = arrivals.iter().filter(|a| **a > 0.0).count().max(1) as f64;
        for (arrival, flow) in arrivals.iter().zip(&mut self.flows) {
            let part = match self.world.loss {
                Loss::Proportional if total > 0.0 => excess * arrival / total,
                Loss::Equal if *arrival > 0.0 => excess / senders,
                _ => 0.0,
            };
            let lost = part.min(*arrival);
            flow.lost += lost;
            flow.delivered += arrival - lost;
            flow.marked += (arrival - lost) * marked;
        }
    }

    fn deliver(&mut self, now: Time) {
        while let Some((_, work)) = self.hosts.hear(now) {
            self.carry_out(work);
        }
    }

    fn run_agents(&mut self, now: Time) {
        for i in 0..self.hosts.count() {
            let flows = &self.flows;
            if let Some(work) = self.hosts.turn(now, i, || counters(flows, i)) {
                self.carry_out(work);
            }
        }
    }

    /// Levels are in force at once.
    fn carry_out(&mut self, work: Work) {
        for (pair, direction) in work.forgotten {
            if direction == Direction::Send {
                self.flow(pair).setting = Setting::default();
            }
        }
        for (pair, setting) in work.pairs {
            self.flow(pair).setting = setting;
        }
    }

    fn flow(&mut self, pair: PairId) -> &mut Flow {
        self.flows.iter_mut().find(|flow| flow.id == pair).expect("only these are seen")
    }

    /// The promise that no control message is needed for: pair floors never exceed a hose.
    fn check_floors(&mut self) {
        let mut sums: SortedMap<VmId, Rate> = SortedMap::new();
        for flow in &self.flows {
            *sums.entry(flow.id.dst).or_default() += flow.setting.floor;
        }
        for (vm, sum) in sums {
            let hose = self.hoses[&vm].as_f64().max(1.0);
            self.worst_floor_sum = self.worst_floor_sum.max(sum.as_f64() / hose);
        }
    }
}

/// What the data plane of host `i` would have counted.
fn counters(flows: &[Flow], i: usize) -> Observed {
    let mut sample = Observed::default();
    for flow in flows.iter().filter(|f| f.started) {
        if flow.hosts.0 == i {
            let octets = flow.sent as u64;
            let count = SendCount { octets, numbered: octets, ..SendCount::default() };
            sample.send.push((flow.id, count));
        }
        if flow.hosts.1 == i {
            let count = ReceiveCount {
                octets: flow.delivered as u64,
                segments: (flow.delivered / SEGMENT) as u64,
                numbered: None,
                lost: (flow.lost / SEGMENT) as u64,
                marked: (flow.marked / SEGMENT) as u64,
            };
            sample.receive.push((flow.id, count));
        }
    }
    sample
}

/// The part of a step in which a queue that goes evenly from one length to another is above `k`.
fn share_above(k: f64, from: f64, to: f64) -> f64 {
    let (low, high) = (from.min(to), from.max(to));
    match (low > k, high > k) {
        (true, _) => 1.0,
        (false, false) => 0.0,
        (false, true) => (high - k) / (high - low),
    }
}
