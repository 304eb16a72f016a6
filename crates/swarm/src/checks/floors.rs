//! When everything has healed and settled, every VM that is backlogged gets what it is owed.
//!
//! Approach  A VM is judged in each direction in which it wants its floor or more: all its pairs together
//!           get what they are owed (see [`super::owed`]). A TCP connection wants everything and may send
//!           nothing all the same: it waits for acknowledgements or for a timer. A VM that got less for
//!           that reason alone is exempt and counted: its TCP pairs had what they are owed in the part of
//!           the time in which something waited in their queues.
//! Not here  Presets that promise no goodput: GUARANTEES.md 1.1 names `steady`. Each pair of a VM: a TCP
//!           connection that pauses while its siblings fill the VM's share may take seconds to come back,
//!           see docs/swarm.md, "What is not owed".

use super::owed::{self, Exempt, Pair};
use crate::breach::Breaches;
use crate::terms::Terms;
use std::collections::BTreeMap;
use weir_core::oracle::{TCP_PAYLOAD, udp_payload};
use weir_model::scenario::{Traffic, TrafficKind};
use weir_sim::Look;
use weir_units::{PairId, Rate, Time, VmId};

const CHECK: &str = "floor";

/// VMs whose floors are judged.
#[derive(Debug)]
pub(crate) struct Floors {
    /// None of a preset that promises no floors.
    pairs: Vec<Pair>,
    /// Since when.
    pub(crate) since: Option<Time>,
    /// Looks since then, and those of them in which something of a pair waited.
    looks: u64,
    waited: BTreeMap<PairId, u64>,
    pub(crate) judged: Judged,
}

/// Directions of VMs that were backlogged while floors were judged.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Judged {
    /// Those that were judged.
    pub count: usize,
    /// What the worst of them got of what it is owed.
    pub worst: Option<f64>,
    /// Those that were not, by the reason.
    pub exempt: BTreeMap<Exempt, usize>,
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

impl Floors {
    pub(super) fn new(terms: &Terms, ways: &[Vec<Vec<u32>>]) -> Self {
        let pairs = if terms.is_steady { owed::pairs(terms, ways) } else { Vec::new() };
        Self { pairs, since: None, looks: 0, waited: BTreeMap::new(), judged: Judged::default() }
    }

    /// At any moment from which on floors are judged.
    pub(super) fn look(&mut self, look: &Look) {
        if self.since.is_none() {
            return;
        }
        self.looks += 1;
        for pair in look.pairs.iter().filter(|pair| pair.waiting > 0) {
            *self.waited.entry(pair.id).or_default() += 1;
        }
    }

    /// The part of the time in which a pair could have sent.
    fn backlogged(&self, pair: &Pair) -> f64 {
        let id = PairId::new(VmId(pair.from as u32), VmId(pair.to as u32));
        let waited = self.waited.get(&id).copied().unwrap_or(0);
        if pair.is_tcp { waited as f64 / self.looks.max(1) as f64 } else { 1.0 }
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
        let seconds = look.at.since(since).as_secs_f64();
        let arrived = |pair: &Pair| {
            let entry = |entry: &usize| {
                octets[*entry] as f64 * 8.0 / payload(&terms.scenario.traffic[*entry])
            };
            pair.entries.iter().map(entry).sum::<f64>() / seconds
        };
        for (vm, spec) in terms.scenario.vms.iter().enumerate() {
            for end in [End::Out, End::In] {
                let floor = end.of(spec.floor_out, spec.floor_in);
                let mine = || self.pairs.iter().filter(|p| end.of(p.from, p.to) == vm);
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
                let waited = |pair: &Pair| {
                    arrived(pair) >= pair.owed.as_f64() * pair.part * self.backlogged(pair)
                };
                if got < least && mine().filter(is_owed).all(waited) {
                    *self.judged.exempt.entry(Exempt::Pausing).or_default() += 1;
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
