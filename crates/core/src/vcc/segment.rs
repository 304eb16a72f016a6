//! What the law sees of a segment, and what it asks to be changed.
//!
//! Problem   The law shall run where segments are headers in a packet, in BPF, and where there are
//!           none, in the simulator; and both shall come to the same.
//! Approach  Plain numbers in the order of a C struct without holes, in the host's byte order. The
//!           driver of the law reads them from the headers and writes back what [`Edit::what`]
//!           names.
//! Not here  Headers, options, checksums: the driver's.

/// TCP's flags, as the two octets that hold them are read.
pub const FIN: u16 = 0x001;
/// See [`FIN`].
pub const SYN: u16 = 0x002;
/// See [`FIN`].
pub const RST: u16 = 0x004;
/// See [`FIN`].
pub const ACK: u16 = 0x010;
/// See [`FIN`]. RFC 3168.
pub const ECE: u16 = 0x040;
/// See [`FIN`]. RFC 3168.
pub const CWR: u16 = 0x080;
/// See [`FIN`]. RFC 9768.
pub const AE: u16 = 0x100;

/// The ECN field of IP: what no port may mark.
pub const NOT_ECT: u8 = 0;
/// The ECN field of IP: what ports may mark.
pub const ECT_0: u8 = 2;
/// The ECN field of IP: marked.
pub const CE: u8 = 3;

/// No super-packet has more octets; a segment that says so counts as this much.
pub(super) const OCTETS_MOST: u32 = 1 << 20;

/// Which way a segment passes the VM's port.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// From the guest.
    #[default]
    Out,
    /// To the guest.
    In,
}

/// A segment, or a super-packet of several.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// When, in ticks; see [`ticks`](super::ticks).
    pub at: u32,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number; counts if [`ACK`] is set.
    pub ack: u32,
    /// Payload, of all segments of a super-packet together.
    pub octets: u32,
    /// Octets that came so far, as the peer's host tells; counts if `told` is set.
    pub told_octets: u32,
    /// Of these, marked.
    pub told_marked: u32,
    /// The window as it is in the header: not scaled.
    pub window: u16,
    /// The option of a SYN; 0: none.
    pub mss: u16,
    /// See [`FIN`].
    pub flags: u16,
    /// The window scale option of a SYN, plus one; 0: none.
    pub scale: u8,
    /// The ECN field.
    pub ecn: u8,
    /// Which way.
    pub way: Way,
    /// 1: there is a report of the peer's host.
    pub told: u8,
    /// 1: a SYN with the timestamps option.
    pub stamps: u8,
    /// Nothing; keeps the size a multiple of four.
    pub spare: u8,
}

impl Segment {
    /// Whether one of these flags is set.
    pub(super) const fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Payload, bounded.
    pub(super) const fn payload(&self) -> u32 {
        if self.octets < OCTETS_MOST { self.octets } else { OCTETS_MOST }
    }

    /// The number after its last; a FIN has one, and a SYN is not counted.
    pub(super) const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.payload()).wrapping_add(self.has(FIN) as u32)
    }
}

/// What a segment shall become. Fields that [`Edit::what`] does not name are as they were.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Edit {
    /// To be told to the peer's host, in an option.
    pub told_octets: u32,
    /// See `told_octets`.
    pub told_marked: u32,
    /// The window.
    pub window: u16,
    /// The flags.
    pub flags: u16,
    /// The ECN field.
    pub ecn: u8,
    /// What differs: a sum of [`Edit::WINDOW`] and the others.
    pub what: u8,
    /// Nothing; keeps the size a multiple of four.
    pub spare: u16,
}

impl Edit {
    /// The window differs.
    pub const WINDOW: u8 = 1;
    /// The flags differ.
    pub const FLAGS: u8 = 2;
    /// The ECN field differs.
    pub const ECN: u8 = 4;
    /// A report is to be added.
    pub const TELL: u8 = 8;
    /// The report of the peer's host is to be taken out: the guest need not see it.
    pub const TAKE: u8 = 16;

    /// Nothing changes.
    pub(super) const fn none(segment: &Segment) -> Self {
        Self {
            told_octets: 0,
            told_marked: 0,
            window: segment.window,
            flags: segment.flags,
            ecn: segment.ecn,
            what: 0,
            spare: 0,
        }
    }

    /// With what differs named.
    pub(super) const fn named(mut self, segment: &Segment) -> Self {
        if self.window != segment.window {
            self.what |= Self::WINDOW;
        }
        if self.flags != segment.flags {
            self.what |= Self::FLAGS;
        }
        if self.ecn != segment.ecn {
            self.what |= Self::ECN;
        }
        self
    }
}

const _: () = assert!(size_of::<Segment>() == 36);
const _: () = assert!(size_of::<Edit>() == 16);
