//! When everything has healed and settled, every VM that is backlogged gets what it is owed.
//!
//! Approach  A VM is judged in each direction in which it wants its floor or more: all its pairs together
//!           get what they are owed (see [`super::owed`]). A TCP connection wants everything and may send
//!           nothing all the same: it waits for acknowledgements or for a timer. A VM that got less for
//!           that reason alone is exempt and counted. Each of its pairs that is short has TCP, had the whole
//!           floor that it is owed in force at every look, and was let out at that rate or more while
//!           packets waited. Or it is TCP alone, and what it is owed arrived in the part of the time in
//!           which something waited in its queue; or its receiver took it for wanting less than half of
//!           that, once: a pair that pauses is estimated by what it used.
//!           UDP beside the acknowledgements of TCP of the other direction is traffic of two kinds under one
//!           floor: all that arrives of such a pair counts.
//! Not here  Presets that promise no goodput: GUARANTEES.md 1.1 names `steady`. Each pair of a VM: a TCP
//!           connection that pauses while its siblings fill the VM's share may take seconds to come back,
//!           see docs/swarm.md, "What is not owed".

use super::owed::{self, Exempt, Measured, Pair};
use crate::breach::Breaches;
use crate::terms::Terms;
use weir_core::oracle::{TCP_PAYLOAD, udp_payload};
use weir_model::scenario::{Traffic, TrafficKind};
use weir_sim::Look;
use weir_units::{Rate, SortedMap, Span, Time, VmId};

const CHECK: &str = "floor";

/// VMs whose floors are judged.
#[derive(Debug)]
pub(crate) struct Floors {
    /// The links that the run's connections take; see [`owed::pairs`].
    ways: Vec<Vec<Vec<u32>>>,
    /// Since when.
    pub(crate) since: Option<Time>,
    /// Looks since then at which there were agents.
    looks: u64,
    /// When the last look was.
    looked_at: Time,
    seen: SortedMap<(usize, usize), Seen>,
    pub(crate) judged: Judged,
}

/// What was seen of a pair while floors were judged.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    /// Looks at which something waited in its queue.
    waited: u64,
    /// Octets that have left its queue since the pair came to life, and since floors are judged.
    left: u64,
    sent: u64,
    /// The sum of its floors in force over looks, bit/s.
    held: f64,
    /// The least demand that its receiver took it for.
    least: Option<Rate>,
    /// The least floor in force.
    lowest: Option<Rate>,
    /// Times between two looks at both of which packets waited, and octets that left meanwhile.
    busy: Span,
    served: u64,
    /// Octets that waited at the last look.
    waiting: u64,
    /// Octets that have arrived since the pair came to life, and since floors are judged.
    arrived: u64,
    came: u64,
}

/// Directions of VMs that were backlogged while floors were judged.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Judged {
    /// Those that were judged.
    pub count: usize,
    /// What the worst of them got of what it is owed.
    pub worst: Option<f64>,
    /// Those that were not, by the reason.
    pub exempt: SortedMap<Exempt, usize>,
}

impl Judged {
    /// What was seen elsewhere counts here, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        let both = [self.worst, other.worst].into_iter().flatten();
        self.worst = both.min_by(f64::total_cmp);
        for (why, count) in &other.exempt {
            *self.exempt.entry(*why).or_default() += count;
        }
    }

    /// All that were backlogged and not judged.
    pub fn exempted(&self) -> usize {
        self.exempt.values().sum()
    }
}

/// A full frame without FCS, octets.
const FRAME: u64 = 1514;
/// With so many octets at two looks, packets waited all the time between them.
const WAITS: u64 = 2 * FRAME;

impl Floors {
    pub(super) fn new(ways: &[Vec<Vec<u32>>]) -> Self {
        Self {
            ways: ways.to_vec(),
            since: None,
            looks: 0,
            looked_at: Time::ZERO,
            seen: SortedMap::new(),
            judged: Judged::default(),
        }
    }

    /// At any moment.
    pub(super) fn look(&mut self, look: &Look) {
        let is_judged = self.since.is_some();
        self.looks += u64::from(is_judged && !look.pairs.is_empty());
        let span = look.at.since(std::mem::replace(&mut self.looked_at, look.at));
        for pair in &look.pairs {
            let seen =
                self.seen.entry((pair.id.src.0 as usize, pair.id.dst.0 as usize)).or_default();
            if is_judged {
                // A pair that was forgotten counts from zero.
                let left = pair.left.checked_sub(seen.left).unwrap_or(pair.left);
                seen.sent += left;
                seen.came += pair.arrived.checked_sub(seen.arrived).unwrap_or(pair.arrived);
                if seen.waiting.min(pair.waiting) >= WAITS {
                    seen.busy = seen.busy + span;
                    seen.served += left;
                }
                let floor = pair.in_force.map_or(Rate::ZERO, |setting| setting.floor);
                seen.lowest = Some(seen.lowest.map_or(floor, |lowest| lowest.min(floor)));
                seen.waited += u64::from(pair.waiting > 0);
                seen.held += pair.in_force.map_or(0.0, |setting| setting.floor.as_f64());
                let wants = pair.destination.receive.as_ref().and_then(|receive| receive.wants);
                let least = wants.map(|(_, rate)| rate).into_iter().chain(seen.least).min();
                seen.least = least;
            }
            (seen.left, seen.arrived, seen.waiting) = (pair.left, pair.arrived, pair.waiting);
        }
    }

    /// Whether a pair with TCP had all that it is owed for the taking, and did not take it.
    fn left_it_unused(&self, pair: &Pair) -> bool {
        let owed = pair.owed.as_f64() * pair.part;
        let Some(seen) = self.seen.get(&(pair.from, pair.to)) else { return false };
        let in_force = seen.lowest.is_some_and(|lowest| lowest.as_f64() >= owed);
        let served = (seen.served * 8) as f64 >= owed * seen.busy.as_secs_f64();
        pair.has_tcp && in_force && served
    }

    /// Whether a pair has what it is owed, or is TCP that asked for less.
    fn asked_for_less(&self, pair: &Pair, arrived: f64, seconds: f64) -> bool {
        let owed = pair.owed.as_f64() * pair.part;
        let Some(seen) = self.seen.get(&(pair.from, pair.to)) else { return false };
        let waited = seen.waited as f64 / self.looks.max(1) as f64;
        let served = seen.came as f64 * 8.0 / seconds;
        let is_served = served >= owed * waited;
        let was_taken_for_less = seen.least.is_some_and(|least| least.as_f64() < owed / 2.0);
        arrived >= owed || pair.is_tcp && (is_served || was_taken_for_less)
    }

    /// What left the queue of each pair.
    fn sent(&self, seconds: f64) -> SortedMap<(usize, usize), Rate> {
        let rate = |seen: &Seen| Rate::from_bps_f64(seen.sent as f64 * 8.0 / seconds);
        self.seen.iter().map(|(pair, seen)| (*pair, rate(seen))).collect()
    }

    /// What hoses hold for pairs, up to twice what left their queues: a pair of a few packets per period is
    /// estimated by the busiest of them, and a tenth more.
    fn held(&self, seconds: f64) -> SortedMap<(usize, usize), Rate> {
        let rate = |seen: &Seen| {
            let (held, sent) =
                (seen.held / self.looks.max(1) as f64, seen.sent as f64 * 8.0 / seconds);
            Rate::from_bps_f64(held.min(2.0 * sent))
        };
        self.seen.iter().map(|(pair, seen)| (*pair, rate(seen))).collect()
    }

    /// At the last moment; `octets` of payload have arrived per traffic entry since floors are judged.
    pub(super) fn end(
        &mut self,
        terms: &Terms,
        look: &Look,
        octets: &[u64],
        breaches: &mut Breaches,
    ) {
        let Some(since) = self.since.filter(|since| *since < look.at) else { return };
        if !terms.is_steady {
            return;
        }
        let seconds = look.at.since(since).as_secs_f64();
        let arrived = |pair: &Pair| {
            let entry = |entry: &usize| {
                octets[*entry] as f64 * 8.0 / payload(&terms.scenario.traffic[*entry])
            };
            let data = pair.entries.iter().map(entry).sum::<f64>();
            let seen = self.seen.get(&(pair.from, pair.to)).filter(|_| pair.answers);
            data.max(seen.map_or(0.0, |seen| seen.came as f64 * 8.0)) / seconds
        };
        let measured = Measured { held: self.held(seconds), sent: self.sent(seconds) };
        let pairs = owed::pairs(terms, &self.ways, &measured);
        for (vm, spec) in terms.scenario.vms.iter().enumerate() {
            for end in [End::Out, End::In] {
                let floor = end.of(spec.floor_out, spec.floor_in);
                let mine = || pairs.iter().filter(|p| end.of(p.from, p.to) == vm);
                let wants: Rate = mine().map(|pair| pair.wants).sum();
                if floor.is_zero() || wants < floor {
                    continue;
                }
                let is_owed = |pair: &&Pair| !pair.owed.is_zero();
                if let Some(why) = mine().filter(is_owed).filter_map(|pair| pair.exempt).min() {
                    *self.judged.exempt.entry(why).or_default() += 1;
                    continue;
                }
                let owed = mine().map(|pair| pair.owed.as_f64()).sum::<f64>();
                let least = mine().map(|pair| pair.owed.as_f64() * pair.part).sum::<f64>();
                let got = mine().filter(is_owed).map(arrived).sum::<f64>();
                let part = if owed > 0.0 { got / owed } else { 1.0 };
                let less = |pair: &Pair| self.asked_for_less(pair, arrived(pair), seconds);
                let unused = |pair: &Pair| {
                    arrived(pair) >= pair.owed.as_f64() * pair.part || self.left_it_unused(pair)
                };
                if got < least && mine().filter(is_owed).all(|pair| unused(pair) || less(pair)) {
                    let all_unused = mine().filter(is_owed).all(unused);
                    let why = if all_unused { Exempt::Unused } else { Exempt::Pausing };
                    *self.judged.exempt.entry(why).or_default() += 1;
                    continue;
                }
                self.judged.add(&Judged { count: 1, worst: Some(part), ..Judged::default() });
                let of = format!("{}, {}", terms.name(VmId(vm as u32)), end.name());
                breaches.unless(got >= least, (look.at, CHECK), &of, || {
                    let [got, owed] = [got, owed].map(Rate::from_bps_f64);
                    format!("{got} of {owed} on the wire, of a floor of {floor}: {part:.3}")
                });
            }
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Out,
    In,
}

impl End {
    fn of<T>(self, from: T, to: T) -> T {
        match self {
            Self::Out => from,
            Self::In => to,
        }
    }

    fn name(self) -> &'static str {
        self.of("out", "in")
    }
}

/// Application octets per octet on the wire.
fn payload(traffic: &Traffic) -> f64 {
    match &traffic.kind {
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
        _ => TCP_PAYLOAD,
    }
}
