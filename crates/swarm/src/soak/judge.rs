//! What is owed in each second of a churning world, and what was got.

use super::cause::{Pair, is_tcp};
use super::{LEARNING, WINDOW};
use std::collections::VecDeque;
use weir_core::oracle::{Hose, PairDemand, TCP_PAYLOAD, hose_max_min, udp_payload};
use weir_model::scenario::{Scenario, Traffic, TrafficKind};
use weir_units::{PairId, Rate, SortedMap, VmId};

/// The part of its F that a pair is owed (GUARANTEES.md 1.1).
const OWED: f64 = 0.95;
/// The same for TCP beside TCP of the other direction between the same two VMs (GUARANTEES.md 1.3.3).
const TWO_WAY: f64 = 0.9;

/// A second of a backlogged direction of a VM.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) vm: usize,
    pub(super) is_in: bool,
    /// What arrived, bit/s on the wire.
    pub(super) got: f64,
    /// What its pairs are owed of their present F.
    pub(super) owed: f64,
    /// What they are owed of the least F that counts.
    pub(super) least: f64,
}

impl Window {
    /// Whether it had what it is owed of the present F.
    pub(super) fn holds(&self) -> bool {
        self.got >= self.owed
    }

    /// Whether it had what it is owed while changes of demands are learned.
    pub(super) fn learns(&self) -> bool {
        self.got >= self.least
    }
}

/// What is owed in each second.
pub(super) struct Judge<'a> {
    scenario: &'a Scenario,
    hoses: Vec<Hose>,
    /// Octets that had arrived before the window, per traffic entry.
    before: Vec<u64>,
    /// Traffic entries that send in the window, and those that did in the one before.
    sending: Vec<usize>,
    /// F of the pairs that send: in this window, and in those before it that count.
    promised: VecDeque<SortedMap<Pair, Rate>>,
    /// What arrived of each pair that sends, bit/s on the wire, and its traffic entry.
    got: SortedMap<Pair, (f64, usize)>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let hose =
            |vm: &weir_model::scenario::Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
        Self {
            scenario,
            hoses: scenario.vms.iter().map(hose).collect(),
            before: vec![0; scenario.traffic.len()],
            sending: Vec::new(),
            promised: VecDeque::new(),
            got: SortedMap::new(),
        }
    }

    /// The windows of this second, when so many octets have arrived of each traffic entry.
    pub(super) fn windows(&mut self, second: u64, octets: &[u64]) -> Vec<Window> {
        self.take_demands(second);
        self.got.clear();
        let (mut got, mut wants) = (SortedMap::new(), SortedMap::new());
        for &entry in &self.sending {
            let traffic = &self.scenario.traffic[entry];
            let arrived = (octets[entry] - self.before[entry]) as f64 * 8.0 / payload(traffic);
            let arrived = arrived / WINDOW.as_secs_f64();
            self.got.insert((traffic.from, traffic.to), (arrived, entry));
            for end in [(traffic.from, false), (traffic.to, true)] {
                *got.entry(end).or_insert(0.0) += arrived;
                *wants.entry(end).or_insert(Rate::ZERO) += demand(traffic);
            }
        }
        self.before.copy_from_slice(octets);
        let is_backlogged = |(vm, is_in): &(usize, bool)| {
            let spec = &self.scenario.vms[*vm];
            let floor = if *is_in { spec.floor_in } else { spec.floor_out };
            wants[&(*vm, *is_in)] >= floor
        };
        let window = |((vm, is_in), got): ((usize, bool), f64)| {
            let mut window = Window { vm, is_in, got, owed: 0.0, least: 0.0 };
            for pair in self.pairs_of(&window) {
                let part = self.part(pair);
                window.owed += self.promised(pair).as_f64() * part;
                window.least += self.least(pair).as_f64() * part;
            }
            window
        };
        got.into_iter().filter(|(end, _)| is_backlogged(end)).map(window).collect()
    }

    /// The pairs of a direction that send in this second.
    pub(super) fn pairs_of(&self, window: &Window) -> Vec<Pair> {
        let vm = |pair: &Pair| if window.is_in { pair.1 } else { pair.0 };
        self.got.keys().filter(|pair| vm(pair) == window.vm).copied().collect()
    }

    /// F of a pair in this second; zero if it does not send.
    pub(super) fn promised(&self, pair: Pair) -> Rate {
        self.promised[0].get(&pair).copied().unwrap_or_default()
    }

    /// The least F of a pair in the windows that count.
    pub(super) fn least(&self, pair: Pair) -> Rate {
        let all = self.promised.iter().map(|f| f.get(&pair).copied().unwrap_or_default());
        all.min().unwrap_or_default()
    }

    /// Seconds since the F of one of the window's pairs changed last, as far as they count.
    pub(super) fn age(&self, window: &Window) -> usize {
        let of = |second: &SortedMap<Pair, Rate>, pair| second.get(pair).copied();
        let pairs = self.pairs_of(window);
        let differ = |(now, before)| pairs.iter().any(|pair| of(now, pair) != of(before, pair));
        let mut seconds = self.promised.iter().zip(self.promised.iter().skip(1));
        seconds.position(differ).unwrap_or(LEARNING)
    }

    /// What a pair got, bit/s on the wire.
    pub(super) fn got(&self, pair: Pair) -> f64 {
        self.got.get(&pair).map_or(0.0, |(got, _)| *got)
    }

    /// Whether a pair sends in this second.
    pub(super) fn sends(&self, pair: Pair) -> bool {
        self.got.contains_key(&pair)
    }

    /// Whether it sends TCP.
    pub(super) fn is_tcp(&self, pair: Pair) -> bool {
        self.got.get(&pair).is_some_and(|(_, entry)| is_tcp(self.scenario, *entry))
    }

    pub(super) fn hose_out(&self, vm: usize) -> Rate {
        self.hoses[vm].floor_out
    }

    pub(super) fn hose_in(&self, vm: usize) -> Rate {
        self.hoses[vm].floor_in
    }

    fn part(&self, pair: Pair) -> f64 {
        let is_two_way = self.is_tcp(pair) && self.is_tcp((pair.1, pair.0));
        if is_two_way { TWO_WAY } else { OWED }
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
        let wanted = |traffic: &&Traffic| {
            let pair = PairId::new(VmId(traffic.from as u32), VmId(traffic.to as u32));
            let demand = Some(demand(traffic)).filter(|demand| *demand < Rate::MAX);
            PairDemand::of_vms(pair, demand, true)
        };
        let demands: Vec<PairDemand> = traffic.iter().map(wanted).collect();
        let pairs = traffic.iter().map(|traffic| (traffic.from, traffic.to));
        self.remember(pairs.zip(hose_max_min(&self.hoses, &demands)).collect());
    }

    fn remember(&mut self, promised: SortedMap<Pair, Rate>) {
        self.promised.push_front(promised);
        self.promised.truncate(LEARNING + 1);
    }
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
