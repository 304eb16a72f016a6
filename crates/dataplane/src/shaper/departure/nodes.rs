//! Numbers of nodes, and their levels. Pure.
//!
//! The numbers are those of `bpf/intf.h`: 1 the uplink, 2 what has no class, 3 the host itself,
//! then for the VM in slot s 1024 + s its share, 2048 + s its default queue, 3072 + s its control
//! queue, 8192 + s its external queue; from 4096 on, pairs.

use crate::intf::{FIRST_EXTERNAL, FIRST_PAIR, Level, NODES};
use crate::nl::htb::{self, Class};
use crate::shaper::ClassId;
use crate::shaper::levels::LONGEST_WAIT;
use std::ops::Range;
use weir_units::{Bytes, Rate, Span};

pub(super) const UPLINK: u16 = 1;
pub(super) const UNSORTED: u16 = 2;
/// What the host itself sends.
pub(super) const HOST: u16 = 3;
/// VMs per host.
pub(super) const SLOTS: u16 = 1024;
const SHARE: u16 = SLOTS;
const DEFAULT: u16 = 2 * SLOTS;
const CONTROL: u16 = 3 * SLOTS;
/// Numbers of pairs.
pub(super) const PAIRS: Range<u16> = FIRST_PAIR as u16..FIRST_EXTERNAL as u16;
const _: () = assert!(FIRST_EXTERNAL + SLOTS as u32 == NODES);

/// How far ahead an inner node lends at least: twice what a late timer makes of a burst.
const LOAN: Span = Span::from_millis(10);

pub(super) const fn share(slot: u16) -> u16 {
    SHARE + slot
}

pub(super) const fn default(slot: u16) -> u16 {
    DEFAULT + slot
}

pub(super) const fn control(slot: u16) -> u16 {
    CONTROL + slot
}

pub(super) const fn external(slot: u16) -> u16 {
    PAIRS.end + slot
}

/// The slot of the VM that has a leaf of this parent.
pub(super) fn slot_of(parent: u64) -> Option<u16> {
    let share = u16::try_from(parent).ok()?;
    (SHARE..DEFAULT).contains(&share).then(|| share - SHARE)
}

/// Whether a node has a queue.
pub(super) const fn is_leaf(node: u16) -> bool {
    node == UNSORTED || node == HOST || (node >= DEFAULT && node < NODES as u16)
}

/// High half of every class, which distinguishes it from foreign priorities.
const MAJOR: u32 = 1 << 16;

pub(super) const fn class_id(node: u16) -> ClassId {
    ClassId(MAJOR | node as u32)
}

/// The node of a class; `None` if it is none of ours.
pub(super) const fn node(class: ClassId) -> Option<u16> {
    let node = (class.0 & 0xffff) as u16;
    if class.0 & !0xffff == MAJOR && node < NODES as u16 { Some(node) } else { None }
}

/// Behaviour of a level when the agent is silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Term {
    /// The ceiling is a lease: without the agent it is the floor.
    Lease,
    /// The ceiling is configured, and stays.
    ForGood,
}

/// The level of a leaf whose queue holds `queue` octets, for no longer than [`LONGEST_WAIT`].
pub(super) fn leaf(class: Class, parent: u16, queue: Bytes, term: Term) -> Level {
    let (floor, ceiling) = rates(class);
    Level {
        floor: floor.as_bps(),
        ceiling: ceiling.as_bps(),
        fallback: if term == Term::Lease { floor } else { ceiling }.as_bps(),
        limit_ns: LONGEST_WAIT.as_nanos(),
        limit: queue.get(),
        parent: parent.into(),
        ahead: 0,
    }
}

/// The level of the uplink or of a VM, above queues of `queue` octets: it lends as far ahead as two
/// of them last at its ceiling.
pub(super) fn inner(class: Class, parent: u16, queue: Bytes) -> Level {
    let (floor, ceiling) = rates(class);
    let limit = ceiling.time_for(Bytes::new(queue.get() * 2)).clamp(LOAN, LONGEST_WAIT);
    Level {
        floor: floor.as_bps(),
        ceiling: ceiling.as_bps(),
        fallback: ceiling.as_bps(),
        limit_ns: limit.as_nanos(),
        limit: 0,
        parent: parent.into(),
        ahead: 0,
    }
}

fn rates(class: Class) -> (Rate, Rate) {
    (htb::rate(class.rate), htb::rate(class.ceil))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_use() {
        assert_eq!(slot_of(share(SLOTS - 1).into()), Some(SLOTS - 1));
        for other in [0, UPLINK, UNSORTED, default(0), control(0), PAIRS.start] {
            assert_eq!(slot_of(other.into()), None, "{other}");
        }
        let leaves =
            [UNSORTED, default(0), control(SLOTS - 1), PAIRS.start, PAIRS.end - 1, external(0)];
        assert!(leaves.into_iter().all(is_leaf));
        assert!(![UPLINK, share(0), share(SLOTS - 1)].into_iter().any(is_leaf));
        assert!(share(SLOTS - 1) < default(0) && control(SLOTS - 1) < PAIRS.start);
    }

    #[test]
    fn a_class_of_somebody_else_names_no_node() {
        assert_eq!(node(class_id(external(SLOTS - 1))), Some(NODES as u16 - 1));
        for class in [0, 7, 0x1000, 0x2_1000, 0x1_2400, 0x1_ffff] {
            assert_eq!(node(ClassId(class)), None, "{class:x}");
        }
    }

    #[test]
    fn only_what_is_lent_falls_back_to_the_floor() {
        let class = Class { rate: 1_250_000, ceil: 12_500_000, ..Class::default() };
        let queue = Bytes::new(128 * 1024);
        let pair = leaf(class, share(3), queue, Term::Lease);
        assert_eq!(
            (pair.floor, pair.ceiling, pair.fallback),
            (10_000_000, 100_000_000, 10_000_000)
        );
        assert_eq!((pair.limit, pair.parent), (131_072, 1027));
        assert_eq!(leaf(class, share(3), queue, Term::ForGood).fallback, 100_000_000);
        let vm = inner(class, UPLINK, queue);
        assert_eq!((vm.fallback, vm.limit_ns), (100_000_000, 20_971_520));
        let fast = Class { ceil: 1_250_000_000, ..class };
        assert_eq!(inner(fast, UPLINK, queue).limit_ns, 10_000_000);
    }
}
