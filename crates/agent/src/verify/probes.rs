//! The probes of headers: which there are, and what became of them in each direction.
//!
//! Problem   A network may treat each code point in its own way, and each of several equal paths.
//!           A packet that does not come back says nothing about the direction that lost it.
//! Approach  Every probe has a number, of its headers and of its way (the prober's source port).
//!           The server remembers what it saw of each number, and says so in plain datagrams
//!           later. Answers have the headers of their probes.
//! Promises  Numbers of all probes differ, and are less than [`NUMBERS`].
//! Not here  Sending them: see `ask`. What it means: see `verdict`.

use super::header::Marks;
use std::collections::BTreeMap;

/// Source ports, for equal paths that routers choose by ports. More of them find more paths.
pub(crate) const WAYS: usize = 4;
/// Numbers that a server remembers for each prober.
pub(crate) const NUMBERS: usize = 1024;
/// First number of the probes that look like a tunnel's packets.
const OUTER: usize = 320;
/// First number of the probes of length.
pub(crate) const SIZES: usize = 640;
/// First number of those of time.
pub(crate) const PINGS: usize = 896;

const CODE_POINTS: usize = 64;

/// What a probe is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sort {
    /// This code point, without ECN.
    Dscp(u8),
    /// These ECN bits, in the shared queue.
    Ecn(u8),
    /// The identification without DF.
    Unfixed,
    /// The reserved bit, with DF or without.
    Reserved { dont_fragment: bool },
}

impl Sort {
    /// All of them. IPv6 has neither identification nor fragment field.
    pub(crate) fn all(is_v6: bool) -> Vec<Self> {
        let points = (0..CODE_POINTS as u8).map(Self::Dscp);
        let both = points.chain((1..4).map(Self::Ecn));
        let reserved = [true, false].map(|dont_fragment| Self::Reserved { dont_fragment });
        let v4 = std::iter::once(Self::Unfixed).chain(reserved);
        both.chain(v4.filter(|_| !is_v6)).collect()
    }

    const fn index(self) -> usize {
        match self {
            Self::Dscp(point) => point as usize,
            Self::Ecn(bits) => CODE_POINTS - 1 + bits as usize,
            Self::Unfixed => CODE_POINTS + 3,
            Self::Reserved { dont_fragment } => CODE_POINTS + 4 + dont_fragment as usize,
        }
    }

    /// The number of this probe on a way.
    pub(crate) const fn number(self, way: usize, is_outer: bool) -> usize {
        let first = if is_outer { OUTER } else { 0 };
        first + self.index() * WAYS + way
    }

    /// The header that it leaves with.
    pub(crate) const fn marks(self, number: usize, is_v6: bool) -> Marks {
        let tos = match self {
            Self::Dscp(point) => point << 2,
            Self::Ecn(bits) => bits,
            Self::Unfixed | Self::Reserved { .. } => 0,
        };
        if is_v6 {
            return Marks { tos, dont_fragment: false, reserved: false, id: 0 };
        }
        let dont_fragment = match self {
            Self::Unfixed => false,
            Self::Reserved { dont_fragment } => dont_fragment,
            _ => true,
        };
        let reserved = matches!(self, Self::Reserved { .. });
        Marks { tos, dont_fragment, reserved, id: identification(number) }
    }
}

/// Identification of a probe: never 0, and no sequence that a router's own counter could resemble.
pub(crate) const fn identification(number: usize) -> u16 {
    ((number as u32).wrapping_mul(40_503).wrapping_add(0x5745) & 0xffff) as u16 | 1
}

/// What became of one probe in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It came, with these headers.
    Came(Marks),
    /// It was sent several times and did not come.
    Lost,
    /// It cannot be known: an answer to a probe that did not arrive.
    Untried,
}

/// What became of one sort of probe on all ways, in one direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fates {
    /// By what was sent and what became of it.
    pub(crate) all: Vec<(Marks, Fate)>,
}

/// One sort of probe, there and back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Probed {
    pub(crate) sort: Sort,
    pub(crate) there: Fates,
    pub(crate) back: Fates,
}

/// Puts together what the server saw and what came back, by numbers.
pub(crate) fn put_together(
    is_v6: bool,
    is_outer: bool,
    seen: &BTreeMap<usize, Marks>,
    back: &BTreeMap<usize, Marks>,
) -> Vec<Probed> {
    let of = |sort: Sort| {
        let numbers = || (0..WAYS).map(|way| sort.number(way, is_outer));
        let sent = |number| sort.marks(number, is_v6);
        // What came back has been there, even if a report is missing.
        let came = |number: usize| seen.get(&number).or_else(|| back.get(&number)).is_some();
        let there = numbers().map(|number| {
            let fate = match seen.get(&number) {
                Some(came) => Fate::Came(*came),
                None if back.contains_key(&number) => Fate::Untried,
                None => Fate::Lost,
            };
            (sent(number), fate)
        });
        let back = numbers().map(|number| {
            let fate = match back.get(&number) {
                Some(came) => Fate::Came(*came),
                None if came(number) => Fate::Lost,
                None => Fate::Untried,
            };
            (sent(number), fate)
        });
        let (there, back) = (there.collect(), back.collect());
        Probed { sort, there: Fates { all: there }, back: Fates { all: back } }
    };
    Sort::all(is_v6).into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_headers_tell_all_probes_apart() {
        let mut numbers = BTreeSet::new();
        for sort in Sort::all(false) {
            for is_outer in [false, true] {
                for way in 0..WAYS {
                    let number = sort.number(way, is_outer);
                    assert!(numbers.insert(number), "{sort:?} has the number of another");
                    assert!(number < if is_outer { SIZES } else { OUTER }, "{sort:?}");
                    assert_ne!(sort.marks(number, false).id, 0, "Linux would write one");
                }
            }
        }
        const { assert!(SIZES < PINGS && PINGS < NUMBERS) };
        let ids: BTreeSet<u16> = (0..NUMBERS).map(identification).collect();
        assert!(ids.len() > NUMBERS * 9 / 10, "{} of {NUMBERS}", ids.len());
    }

    #[test]
    fn every_code_point_and_all_of_ecn_are_tried_and_more_with_ipv4() {
        let v6 = Sort::all(true);
        let tos: BTreeSet<u8> = v6.iter().map(|sort| sort.marks(7, true).tos).collect();
        assert_eq!(tos.len(), 67);
        assert!(tos.contains(&(63 << 2)) && tos.contains(&3));
        let v4 = Sort::all(false);
        let marks = |sort: Sort| sort.marks(7, false);
        let kinds: BTreeSet<(bool, bool)> =
            v4.iter().map(|sort| (marks(*sort).dont_fragment, marks(*sort).reserved)).collect();
        assert_eq!(kinds.len(), 4, "DF and the reserved bit in all combinations");
    }

    #[test]
    fn a_probe_that_did_not_arrive_says_nothing_about_the_way_back() {
        let sort = Sort::Reserved { dont_fragment: true };
        let number = |way| sort.number(way, false);
        let sent = |way| sort.marks(number(way), false);
        let cleared = Marks { reserved: false, ..sent(1) };
        let seen = BTreeMap::from([(number(0), sent(0)), (number(1), cleared)]);
        let back = BTreeMap::from([(number(0), sent(0)), (number(2), sent(2))]);
        let all = put_together(false, false, &seen, &back);
        let probed = all.iter().find(|probed| probed.sort == sort).expect("it is one of them");
        let fates = |fates: &Fates| fates.all.iter().map(|(_, fate)| *fate).collect::<Vec<_>>();
        use Fate::{Came, Lost, Untried};
        assert_eq!(fates(&probed.there), [Came(sent(0)), Came(cleared), Untried, Lost]);
        assert_eq!(fates(&probed.back), [Came(sent(0)), Lost, Came(sent(2)), Untried]);
    }
}
