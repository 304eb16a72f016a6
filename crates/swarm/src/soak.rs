//! A random world in which traffic and VMs come and go for hours, judged second by second.
//!
//! Approach  Demands are constant within each second of such a world, so the oracle gives one F for each.
//!           A direction of a VM whose demand is its floor or more is owed 0.95 of the F of its pairs. No
//!           law knows a demand before it has measured it: in the first two seconds after a demand of the
//!           tenant changed, each pair is owed 0.95 of the least F that it had since before the change.
//! Promises  Each window that falls short is told with its time. Those that only lack what a change of
//!           demands has brought are counted.
//! Source    GUARANTEES.md 1.1; docs/swarm.md, "Soak".

use crate::draft::World;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use weir_core::oracle::{Hose, PairDemand, TCP_PAYLOAD, hose_max_min, udp_payload};
use weir_model::scenario::{Mechanism, Scenario, Traffic, TrafficKind};
use weir_sim::scenario::{Run, Setup};
use weir_units::{PairId, Rate, Span, VmId};

/// Floors are judged in windows of so long.
const WINDOW: Span = Span::from_secs(1);
/// What of F a VM is owed in each.
const OWED: f64 = 0.95;
/// Windows from a change of demands on in which what it brought need not be there yet.
const LEARNING: usize = 2;

/// A window in which a VM had less than it was owed.
#[derive(Clone, Debug)]
pub struct Short {
    /// The window's number: seconds since the start.
    pub second: u64,
    /// Of whom: VM and direction.
    pub of: String,
    /// What it got of F.
    pub part: f64,
    /// Whether the machine that played the world was too busy in this second.
    pub disturbed: bool,
}

/// What a soak came to.
#[derive(Clone, Debug, Default)]
pub struct SoakReport {
    /// What drew it.
    pub seed: u64,
    /// Windows of VMs' directions in which they were backlogged.
    pub windows: u64,
    /// Those with less than 0.95 of F, and no less than 0.95 of the least F since before a change in the last
    /// two seconds.
    pub learning: u64,
    /// Those with less than that.
    pub short: Vec<Short>,
    /// Windows in seconds in which the machine that played the world was too busy. They count.
    pub disturbed: u64,
    /// Seconds that were played.
    pub seconds: u64,
}

impl SoakReport {
    /// Share of the windows that had what they are owed.
    pub fn held(&self) -> f64 {
        self.part(self.short.len() as u64)
    }

    /// Share of the windows that had 0.95 of the F of their second.
    pub fn held_at_once(&self) -> f64 {
        self.part(self.learning + self.short.len() as u64)
    }

    fn part(&self, below: u64) -> f64 {
        if self.windows == 0 { 1.0 } else { 1.0 - below as f64 / self.windows as f64 }
    }
}

/// Plays a world for `length`, which is whole seconds; `each` is called after each second. An early
/// stop gives what was seen until then.
///
/// # Errors
/// What was drawn cannot be played: a mistake in this crate.
pub fn soak(
    seed: u64,
    length: Span,
    mechanism: &Mechanism,
    stop: &AtomicBool,
    each: &mut dyn FnMut(u64),
) -> Result<SoakReport, String> {
    let scenario = World::churning(seed, length).scenario().map_err(|error| error.to_string())?;
    let setup = Setup { seed, ..Setup::default() };
    let mut run = Run::new(&scenario, mechanism, &setup).map_err(|error| error.to_string())?;
    let mut judge = Judge::new(&scenario);
    let mut report = SoakReport { seed, ..SoakReport::default() };
    for second in 0..length.div_span(WINDOW) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        run.play_until(WINDOW * (second + 1));
        judge.window(second, &run.octets(), false, &mut report);
        each(second);
    }
    Ok(report)
}

/// What another world than the simulator measured while it played a churning world.
#[derive(Clone, Debug)]
pub struct Arrived<'a> {
    /// When each sample was read, since traffic began.
    pub ends: Vec<Span>,
    /// Application octets per sample, of each traffic entry.
    pub octets: Vec<&'a [u64]>,
}

/// Judges what arrived in whole seconds as [`soak`] does. `is_disturbed` says in which of them the
/// machine was too busy: these windows are counted, and marked.
///
/// Samples end when they are read. What a sample holds of two seconds is divided by time.
///
/// # Panics
/// `arrived` has not one series per traffic entry.
pub fn judge(
    seed: u64,
    scenario: &Scenario,
    arrived: &Arrived<'_>,
    is_disturbed: &dyn Fn(u64) -> bool,
) -> SoakReport {
    assert_eq!(arrived.octets.len(), scenario.traffic.len(), "one series per traffic entry");
    let mut judge = Judge::new(scenario);
    let mut report = SoakReport { seed, ..SoakReport::default() };
    let played = arrived.ends.last().copied().unwrap_or_default().min(scenario.duration);
    let (mut whole, mut total) = (0, vec![0; scenario.traffic.len()]);
    for second in 0..played.div_span(WINDOW) {
        let until = WINDOW * (second + 1);
        while arrived.ends[whole] <= until && whole + 1 < arrived.ends.len() {
            total.iter_mut().zip(&arrived.octets).for_each(|(total, of)| *total += of[whole]);
            whole += 1;
        }
        let from = whole.checked_sub(1).map_or(Span::ZERO, |last| arrived.ends[last]);
        let width = (arrived.ends[whole] - from).as_secs_f64();
        let part = if width > 0.0 { ((until - from).as_secs_f64() / width).min(1.0) } else { 1.0 };
        let so_far = |(total, of): (&u64, &&[u64])| total + (of[whole] as f64 * part) as u64;
        let octets: Vec<u64> = total.iter().zip(&arrived.octets).map(so_far).collect();
        judge.window(second, &octets, is_disturbed(second), &mut report);
    }
    report
}

/// What is owed in each second.
struct Judge<'a> {
    scenario: &'a Scenario,
    hoses: Vec<Hose>,
    /// Octets that had arrived before the window, per traffic entry.
    before: Vec<u64>,
    /// Traffic entries that send in the window, and those that did in the one before.
    sending: Vec<usize>,
    /// F of the pairs that send: in this window, and in those before it that count.
    promised: VecDeque<BTreeMap<(usize, usize), Rate>>,
}

impl<'a> Judge<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let hose =
            |vm: &weir_model::scenario::Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
        Self {
            scenario,
            hoses: scenario.vms.iter().map(hose).collect(),
            before: vec![0; scenario.traffic.len()],
            sending: Vec::new(),
            promised: VecDeque::new(),
        }
    }

    fn window(&mut self, second: u64, octets: &[u64], disturbed: bool, report: &mut SoakReport) {
        report.seconds = second + 1;
        self.take_demands(second);
        let (mut got, mut wants) = (BTreeMap::new(), BTreeMap::new());
        for &entry in &self.sending {
            let traffic = &self.scenario.traffic[entry];
            let arrived = (octets[entry] - self.before[entry]) as f64 * 8.0 / payload(traffic);
            for end in ends(traffic) {
                *got.entry(end).or_insert(0.0) += arrived / WINDOW.as_secs_f64();
                *wants.entry(end).or_insert(Rate::ZERO) += demand(traffic);
            }
        }
        self.before.copy_from_slice(octets);
        for ((vm, is_in), got) in got {
            let spec = &self.scenario.vms[vm];
            let floor = if is_in { spec.floor_in } else { spec.floor_out };
            if wants[&(vm, is_in)] < floor {
                continue;
            }
            let is_mine = |(from, to): &(usize, usize)| if is_in { *to == vm } else { *from == vm };
            let mine = || self.promised[0].iter().filter(|(pair, _)| is_mine(pair));
            let owed: Rate = mine().map(|(_, promised)| *promised).sum();
            let least: Rate = mine().map(|(pair, _)| self.least(*pair)).sum();
            report.windows += 1;
            report.disturbed += u64::from(disturbed);
            if got >= owed.as_f64() * OWED {
                continue;
            }
            if got >= least.as_f64() * OWED {
                report.learning += 1;
                continue;
            }
            let of = format!("{}, {}", spec.name, if is_in { "in" } else { "out" });
            report.short.push(Short { second, of, part: got / least.as_f64(), disturbed });
        }
    }

    /// The least F of a pair in the windows that count.
    fn least(&self, pair: (usize, usize)) -> Rate {
        let all = self.promised.iter().map(|f| f.get(&pair).copied().unwrap_or_default());
        all.min().unwrap_or_default()
    }

    /// What is wanted in this second, and the F of it if that has changed.
    fn take_demands(&mut self, second: u64) {
        let at = WINDOW * second;
        let sends = |entry: &usize| {
            let traffic = &self.scenario.traffic[*entry];
            traffic.start <= at && at < traffic.stop
        };
        let sending: Vec<usize> = (0..self.scenario.traffic.len()).filter(sends).collect();
        if sending == self.sending && !self.promised.is_empty() {
            let same = self.promised[0].clone();
            self.remember(same);
            return;
        }
        self.sending = sending;
        let traffic: Vec<&Traffic> =
            self.sending.iter().map(|entry| &self.scenario.traffic[*entry]).collect();
        let wanted = |traffic: &&Traffic| PairDemand {
            pair: PairId::new(VmId(traffic.from as u32), VmId(traffic.to as u32)),
            demand: Some(demand(traffic)).filter(|demand| *demand < Rate::MAX),
            shares_hose: true,
        };
        let demands: Vec<PairDemand> = traffic.iter().map(wanted).collect();
        let pairs = traffic.iter().map(|traffic| (traffic.from, traffic.to));
        self.remember(pairs.zip(hose_max_min(&self.hoses, &demands)).collect());
    }

    fn remember(&mut self, promised: BTreeMap<(usize, usize), Rate>) {
        self.promised.push_front(promised);
        self.promised.truncate(LEARNING + 1);
    }
}

/// The VMs of an entry, each with whether it receives.
fn ends(traffic: &Traffic) -> [(usize, bool); 2] {
    [(traffic.from, false), (traffic.to, true)]
}

fn demand(traffic: &Traffic) -> Rate {
    traffic.kind.offers().unwrap_or(Rate::MAX)
}

/// Application octets per octet on the wire.
fn payload(traffic: &Traffic) -> f64 {
    match &traffic.kind {
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
        _ => TCP_PAYLOAD,
    }
}
