//! Numbers of classes, and the note on a port's redirection.
//!
//! The number of a class gives its purpose, so that a successor of a dead agent (and a reader of
//! `tc class show`) needs nothing else: 1:1 the uplink, 1:2 unclassified, then for the VM in slot s
//! 1:1000+s its share, 1:2000+s its default queue, 1:3000+s its control queue, 1:e000+s its
//! external queue. From 1:4000 on are pairs; their VM follows from their parent. The number of a
//! class is the major number of its queue; pair 1:4000+p has the fifos 5000+p: for data and
//! 6000+p: for acknowledgements in its queue. The note on the port gives the VM's slot.

use super::ClassId;
use crate::nl::redirect::COOKIE;
use crate::nl::tc::ROOT;

/// The root qdisc.
pub(super) const QDISC: u32 = 0x1_0000;
pub(super) const UPLINK: u16 = 0x1;
pub(super) const UNCLASSIFIED: u16 = 0x2;
/// VMs per host.
pub(super) const SLOTS: u16 = 0x1000;
const SHARE: u16 = 0x1000;
const DEFAULT: u16 = 0x2000;
const CONTROL: u16 = 0x3000;
const FIRST_PAIR: u16 = 0x4000;
const LAST_PAIR: u16 = 0x4fff;
const DATA_FIFO: u16 = 0x5000;
const ACKS_FIFO: u16 = 0x6000;
const EXTERNAL: u16 = 0xe000;
const LAST_EXTERNAL: u16 = EXTERNAL + SLOTS - 1;

/// Purpose of a class, by its minor number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Uplink,
    Unclassified,
    Share(u16),
    Default(u16),
    Control(u16),
    Pair,
    External(u16),
    Unknown,
}

pub(super) const fn usage(minor: u16) -> Use {
    match minor {
        UPLINK => Use::Uplink,
        UNCLASSIFIED => Use::Unclassified,
        SHARE..DEFAULT => Use::Share(minor - SHARE),
        DEFAULT..CONTROL => Use::Default(minor - DEFAULT),
        CONTROL..FIRST_PAIR => Use::Control(minor - CONTROL),
        FIRST_PAIR..=LAST_PAIR => Use::Pair,
        EXTERNAL..=LAST_EXTERNAL => Use::External(minor - EXTERNAL),
        _ => Use::Unknown,
    }
}

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
    EXTERNAL + slot
}

pub(super) const fn pairs() -> std::ops::RangeInclusive<u16> {
    FIRST_PAIR..=LAST_PAIR
}

/// Whether a class of this number has a queue.
pub(super) const fn is_leaf(minor: u16) -> bool {
    !matches!(usage(minor), Use::Uplink | Use::Share(_))
}

/// The handle of a class; zero stands for the root as the kernel has it.
pub(super) const fn handle(minor: u16) -> u32 {
    if minor == 0 { ROOT } else { QDISC | minor as u32 }
}

/// The minor number of a handle; zero for the root (or the qdisc itself).
pub(super) const fn minor(handle: u32) -> u16 {
    if handle == ROOT { 0 } else { (handle & 0xffff) as u16 }
}

pub(super) const fn class_id(minor: u16) -> ClassId {
    ClassId(handle(minor))
}

/// The handle of a class's queue: its minor number as a major.
pub(super) const fn queue_handle(minor: u16) -> u32 {
    (minor as u32) << 16
}

/// The handles of the two fifos in a pair's queue.
pub(super) fn fifo_handles(pair: u16) -> [u32; 2] {
    [DATA_FIFO, ACKS_FIFO].map(|first| queue_handle(pair - FIRST_PAIR + first))
}

/// The class of the queue with this major number.
pub(super) const fn class_of_queue(handle: u32) -> u16 {
    (handle >> 16) as u16
}

const MAGIC: [u8; 5] = *b"WEIR\x01";

/// Note on the redirection of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    /// The instance it belongs to, hashed.
    pub(super) instance: u64,
    /// The slot of the port's VM.
    pub(super) slot: u16,
    /// Whether the clsact qdisc was made for this redirection.
    pub(super) made_clsact: bool,
}

impl Note {
    pub(super) fn octets(self) -> [u8; COOKIE] {
        let mut octets = [0; COOKIE];
        octets[..5].copy_from_slice(&MAGIC);
        octets[5] = self.made_clsact.into();
        octets[6..8].copy_from_slice(&self.slot.to_be_bytes());
        octets[8..].copy_from_slice(&self.instance.to_be_bytes());
        octets
    }

    /// `None` if the note is not Weir's.
    pub(super) fn parse(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; COOKIE] = octets.try_into().ok()?;
        (octets[..5] == MAGIC).then_some(())?;
        Some(Self {
            instance: u64::from_be_bytes(octets[8..].try_into().ok()?),
            slot: u16::from_be_bytes(octets[6..8].try_into().ok()?),
            made_clsact: octets[5] & 1 != 0,
        })
    }
}

/// FNV-1a: short, stable across versions, and no secret.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, octet| {
        (h ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The device of an instance: `weir-` and 40 bits of the instance's hash, 15 octets in all.
pub fn device_name(instance: &str) -> String {
    format!("weir-{:010x}", hash(instance) & 0xff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_use() {
        assert_eq!(usage(share(SLOTS - 1)), Use::Share(SLOTS - 1));
        assert_eq!(usage(default(0)), Use::Default(0));
        assert_eq!(usage(control(SLOTS - 1)), Use::Control(SLOTS - 1));
        assert_eq!([*pairs().start(), *pairs().end()].map(usage), [Use::Pair; 2]);
        assert_eq!(usage(external(SLOTS - 1)), Use::External(SLOTS - 1));
        for minor in [0, 3, 0xfff, 0x5000, 0xdfff, 0xf000, 0xffff] {
            assert_eq!(usage(minor), Use::Unknown);
        }
    }

    #[test]
    fn a_note_survives_the_kernel_and_a_strangers_is_not_ours() {
        let note = Note { instance: hash("a"), slot: 7, made_clsact: true };
        assert_eq!(Note::parse(&note.octets()), Some(note));
        assert_eq!(Note::parse(b"WEIR"), None);
        assert_eq!(Note::parse(&[0; 16]), None);
    }

    #[test]
    fn a_device_name_fits_the_kernel_and_differs_between_instances() {
        assert_eq!(device_name("host-1").len(), 15);
        assert_ne!(device_name("host-1"), device_name("host-2"));
    }
}
