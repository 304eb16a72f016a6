//! Why a direction of a VM had less than F in a second of a simulated soak.
//!
//! Approach  A look every [`LOOK`] sums up what was seen of each pair within the second: floors in force,
//!           what waited in its queue, what left it, what was lost. The pair that lacks most of the short
//!           direction decides: first what left its queue, then whether it waited at all, then which
//!           other pair of the fuller hose held more than its own F.
//! Promises  Looking changes nothing of the run. Each window has one cause; what fits none is
//!           [`Cause::Unknown`].
//! Not here  What is owed: see [`super::judge`].

use super::judge::{Judge, Window};
use std::fmt;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_sim::Look;
use weir_units::{Rate, SortedMap, Span};

/// How often hosts are looked at. A period of partitioning is 60 ms.
pub(super) const LOOK: Span = Span::from_millis(20);
/// A pair in whose queue something waits in a smaller part of the looks did not ask for its floor.
const WAITS: f64 = 0.9;
/// A floor in force, or what left a queue, is enough from this part of what is owed on.
const ENOUGH: f64 = 0.95;
/// Octets of a full frame.
const FRAME: f64 = 1514.0;

/// Pairs of VMs: sender and receiver.
pub(super) type Pair = (usize, usize);

/// What kept a VM from what it is owed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Enough left the pair's queue, and too much of it was lost behind it.
    Lost,
    /// Enough left the pair's queue, and a part of it acknowledged the traffic of the other direction.
    Acknowledges,
    /// Enough left the pair's queue, and a part of it was sent again or was still on its way.
    SentAgain,
    /// The pair's TCP had nothing in its queue for a part of the time, and its acknowledgements waited behind
    /// data of the other direction.
    AcknowledgementsWait,
    /// It had nothing in its queue for a part of the time, with its floor in force.
    Paused,
    /// The same, and the pair's floor followed what it used.
    Followed,
    /// The pair waited with its floor in force, and the shaper let out less.
    Unserved,
    /// The pair waited. Its hose was held by pairs that send acknowledgements only.
    HeldForAcknowledgements,
    /// The pair waited. Its hose was held by pairs that had ended.
    HeldForEnded,
    /// The pair waited. Its hose was held by pairs that send, beyond their own part.
    HeldForOthers,
    /// The pair waited, and what it lacks of its hose was held by no pair.
    NotGiven,
    /// It sends at a constant rate, and its floor came within the second.
    Late,
    /// None of these.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost in the network",
            Self::Acknowledges => "its queue also carries acknowledgements of the other direction",
            Self::SentAgain => "TCP sent again what its own queue dropped, or it was on its way",
            Self::AcknowledgementsWait => {
                "TCP paused while its acknowledgements waited behind data of the other direction"
            }
            Self::Paused => "TCP paused with its floor in force",
            Self::Followed => "TCP paused, and its floor followed",
            Self::Unserved => "it waited with its floor in force",
            Self::HeldForAcknowledgements => "pairs that only acknowledge held the hose",
            Self::HeldForEnded => "pairs that had ended held the hose",
            Self::HeldForOthers => "other pairs held more of the hose than their part",
            Self::NotGiven => "the rest of the hose was held by no pair",
            Self::Late => "its floor came within the second",
            Self::Unknown => "unknown",
        })
    }
}

/// What was seen of a pair within a second.
#[derive(Clone, Debug, Default)]
struct Seen {
    looks: u64,
    /// Looks at which something waited in its queue of the shaper.
    waited: u64,
    /// Sum of its floors in force, bit/s.
    held: f64,
    /// Octets that left its queue.
    left: u64,
    /// Segments that were lost behind it.
    lost: u64,
    /// Octets and segments so far, at the last look.
    before: (u64, u64),
}

impl Seen {
    fn held(&self) -> f64 {
        self.held / self.looks.max(1) as f64
    }
}

/// Sums of the present second.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pairs: SortedMap<Pair, Seen>,
}

impl Watch {
    /// A second begins.
    pub(super) fn begin(&mut self) {
        for seen in self.pairs.values_mut() {
            *seen = Seen { before: seen.before, ..Seen::default() };
        }
    }

    pub(super) fn look(&mut self, look: &Look) {
        // A pair that was forgotten counts from zero.
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        for pair in &look.pairs {
            let seen = self.pairs.entry((pair.id.src.0 as usize, pair.id.dst.0 as usize));
            let seen = seen.or_default();
            let lost = pair.destination.receive.as_ref().map_or(0, |receive| receive.lost);
            seen.looks += 1;
            seen.waited += u64::from(pair.waiting > 0);
            seen.held += pair.in_force.map_or(0.0, |setting| setting.floor.as_f64());
            seen.left += more(pair.left, seen.before.0);
            seen.lost += more(lost, seen.before.1);
            seen.before = (pair.left, lost);
        }
    }

    /// Why `window` is short of what `owed` says of each pair.
    pub(super) fn cause(
        &self,
        judge: &Judge<'_>,
        window: &Window,
        owed: &dyn Fn(Pair) -> Rate,
    ) -> Cause {
        let lacks = |pair: &Pair| owed(*pair).as_f64() - judge.got(*pair);
        let pairs = judge.pairs_of(window);
        let Some(pair) = pairs.into_iter().max_by(|a, b| lacks(a).total_cmp(&lacks(b))) else {
            return Cause::Unknown;
        };
        let Some(seen) = self.pairs.get(&pair).filter(|seen| seen.looks > 0) else {
            return Cause::Unknown;
        };
        let enough = owed(pair).as_f64() * ENOUGH;
        let left = seen.left as f64 * 8.0;
        let is_tcp = judge.is_tcp(pair);
        if left >= enough {
            let lost = seen.lost as f64 * FRAME * 8.0;
            return match () {
                () if lost >= (left - judge.got(pair)) / 2.0 => Cause::Lost,
                () if judge.is_tcp((pair.1, pair.0)) => Cause::Acknowledges,
                () if is_tcp => Cause::SentAgain,
                () => Cause::Unknown,
            };
        }
        let waits = seen.waited as f64 >= seen.looks as f64 * WAITS;
        let back = (pair.1, pair.0);
        let is_behind = self.pairs.get(&back).is_some_and(|seen| 2 * seen.waited >= seen.looks);
        match (waits, seen.held() >= enough) {
            (false, _) if is_tcp && judge.sends(back) && is_behind => Cause::AcknowledgementsWait,
            (false, true) if is_tcp => Cause::Paused,
            (false, false) if is_tcp => Cause::Followed,
            (false, true) => Cause::Unknown,
            (false, false) => Cause::Late,
            (true, true) => Cause::Unserved,
            (true, false) => self.holder(judge, pair, enough),
        }
    }

    /// Which kind of pair held what `pair` lacks of the fuller one of its two hoses.
    fn holder(&self, judge: &Judge<'_>, pair: Pair, enough: f64) -> Cause {
        let out = |other: &Pair| other.0 == pair.0 && other.1 != pair.1;
        let into = |other: &Pair| other.1 == pair.1 && other.0 != pair.0;
        let others = |is_its: &dyn Fn(&Pair) -> bool| -> Vec<Pair> {
            self.pairs.keys().filter(|other| is_its(other)).copied().collect()
        };
        let sides =
            [(judge.hose_out(pair.0), others(&out)), (judge.hose_in(pair.1), others(&into))];
        let held = |pair: &Pair| self.pairs[pair].held();
        let rest = |(hose, others): &(Rate, Vec<Pair>)| {
            hose.as_f64() - others.iter().map(held).sum::<f64>()
        };
        let [a, b] = sides;
        let fuller = if rest(&a) <= rest(&b) { a } else { b };
        if rest(&fuller) >= enough {
            return Cause::NotGiven;
        }
        let mut beyond: SortedMap<Cause, f64> = SortedMap::new();
        for other in &fuller.1 {
            let cause = match (judge.sends(*other), judge.is_tcp((other.1, other.0))) {
                (true, _) => Cause::HeldForOthers,
                (false, true) => Cause::HeldForAcknowledgements,
                (false, false) => Cause::HeldForEnded,
            };
            let part = judge.promised(*other).as_f64();
            *beyond.entry(cause).or_default() += (held(other) - part).max(0.0);
        }
        let most = beyond.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.filter(|(_, beyond)| *beyond > 0.0).map_or(Cause::Unknown, |(cause, _)| cause)
    }
}

/// Whether an entry is TCP.
pub(super) fn is_tcp(scenario: &Scenario, entry: usize) -> bool {
    !matches!(scenario.traffic[entry].kind, TrafficKind::Udp { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    /// a-0 sends TCP to z-0 and a-1 sends UDP to it; z-0 answers a-0 by TCP if `back`.
    fn scenario(back: bool) -> Scenario {
        let answer = if back { ", {group: h, from: z-0, to: a-0, tcp: {}}" } else { "" };
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             warmup: 1s, scale: 0.1, topology: {{single-switch: {{hosts: 3, link: 1Gbit}}}}, tenants: \
             [{{name: a, vms: [{{name: a, hosts: [host-0, host-1], count: 2, floor: 400Mbit}}, {{name: z, \
             hosts: [host-2], count: 1, floor: 400Mbit}}]}}], mechanisms: \"elasticswitch:steady\", \
             traffic: [{{group: f, from: a-0, to: z-0, tcp: {{}}}}, {{group: g, from: a-1, to: z-0, udp: \
             {{rate: 900Mbit}}}}{answer}]}}}}"
        );
        File::parse("t.yaml", &text, &[]).expect("sound").points().expect("sound").remove(0)
    }

    /// Looks of a second: how many saw something wait, the floor in Mbit/s, Mbit that left, segments lost.
    fn seen(waited: u64, floor: f64, left: f64, lost: u64) -> Seen {
        let left = (left * 1e6 / 8.0) as u64;
        Seen { looks: 50, waited, held: floor * 1e6 * 50.0, left, lost, before: (0, 0) }
    }

    /// The cause where the pair a-0 to z-0 got 10 Mbit/s of the 20 that are F, and a-1 its own 20.
    fn cause(back: bool, pair: Seen, others: &[(Pair, Seen)]) -> Cause {
        let scenario = scenario(back);
        let mut judge = Judge::new(&scenario);
        let octets: Vec<u64> = [1_250_000, 2_500_000, 0][..scenario.traffic.len()].to_vec();
        let windows = judge.windows(4, &octets);
        let window = windows.iter().find(|window| window.vm == 2 && window.is_in);
        let window = window.expect("z-0 is backlogged");
        assert!(!window.holds(), "{window:?}");
        let mut watch = Watch::default();
        watch.pairs.insert((0, 2), pair);
        watch.pairs.extend(others.iter().cloned());
        watch.cause(&judge, window, &|pair| judge.promised(pair))
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
        let other = (1, 2);
        let alone = |pair| cause(false, pair, &[]);
        assert_eq!(alone(seen(50, 20.0, 20.0, 500)), Cause::Lost);
        assert_eq!(cause(true, seen(50, 20.0, 20.0, 0), &[]), Cause::Acknowledges);
        assert_eq!(alone(seen(50, 20.0, 20.0, 0)), Cause::SentAgain);
        assert_eq!(alone(seen(20, 20.0, 10.0, 0)), Cause::Paused);
        assert_eq!(alone(seen(20, 12.0, 10.0, 0)), Cause::Followed);
        let back = |waited| [((2, 0), seen(waited, 30.0, 30.0, 0))];
        let behind = Cause::AcknowledgementsWait;
        assert_eq!(cause(true, seen(20, 12.0, 10.0, 0), &back(30)), behind);
        assert_eq!(cause(true, seen(20, 12.0, 10.0, 0), &back(20)), Cause::Followed);
        assert_eq!(cause(false, seen(20, 12.0, 10.0, 0), &back(30)), Cause::Followed);
        assert_eq!(alone(seen(50, 20.0, 10.0, 0)), Cause::Unserved);
        let waits = || seen(50, 10.0, 10.0, 0);
        assert_eq!(
            cause(false, waits(), &[(other, seen(50, 30.0, 20.0, 0))]),
            Cause::HeldForOthers
        );
        assert_eq!(cause(false, waits(), &[(other, seen(50, 20.0, 20.0, 0))]), Cause::NotGiven);
        // a-0 has a hose of 40 and a second pair, which had traffic before.
        let ended = ((0, 1), seen(50, 30.0, 1.0, 0));
        assert_eq!(cause(false, waits(), &[ended]), Cause::HeldForEnded);
        assert_eq!(alone(waits()), Cause::NotGiven);
        assert_eq!(cause(false, Seen::default(), &[]), Cause::Unknown);
    }

    #[test]
    fn a_pair_that_only_acknowledges_is_told_from_one_that_ended() {
        let scenario = scenario(true);
        let mut judge = Judge::new(&scenario);
        judge.windows(4, &[0, 2_500_000, 0]);
        // What z-0 sends to a-1 acknowledges nothing, since a-1 sends UDP.
        let mut watch = Watch::default();
        watch.pairs.insert((2, 0), seen(50, 10.0, 10.0, 0));
        watch.pairs.insert((2, 1), seen(0, 30.0, 1.0, 0));
        assert_eq!(watch.holder(&judge, (2, 0), 38e6), Cause::HeldForEnded);
    }

    #[test]
    fn looks_sum_up_a_second_and_a_pair_that_was_forgotten_counts_from_zero() {
        let scenario = scenario(false);
        let setup = weir_sim::scenario::Setup { seed: 1, ..Default::default() };
        let mechanism = &scenario.mechanisms[0];
        let mut run = weir_sim::scenario::Run::new(&scenario, mechanism, &setup).expect("playable");
        let mut watch = Watch::default();
        run.play_until(Span::from_secs(2));
        watch.look(&run.look());
        watch.begin();
        run.play_until(Span::from_secs(3));
        let mut look = run.look();
        watch.look(&look);
        let udp = &watch.pairs[&(1, 2)];
        assert_eq!((udp.looks, udp.waited), (1, 1), "it always waits");
        let mbps = udp.left as f64 * 8.0 / 1e6;
        assert!((15.0..95.0).contains(&mbps), "{mbps} left in a second");
        let pair = look.pairs.iter_mut().find(|pair| pair.id.src.0 == 1 && pair.id.dst.0 == 2);
        pair.expect("it sends").left = 1514;
        let before = udp.left;
        watch.look(&look);
        assert_eq!(watch.pairs[&(1, 2)].left, before + 1514);
    }
}
