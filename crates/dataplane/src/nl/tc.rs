//! Qdiscs: what every traffic-control message begins with, clsact, bfifo, and the list of all.

use super::attr::{Attrs, Value};
use super::message::Verb;
use super::{Batch, Device, Error, Object, Socket};
use weir_units::Bytes;

/// The root of a device as a parent.
pub const ROOT: u32 = 0xffff_ffff;
/// The parent of the clsact qdisc; its handle is [`CLSACT_HANDLE`], always.
pub const CLSACT: u32 = 0xffff_fff1;
/// The handle the kernel gives to clsact whatever one asks for.
pub const CLSACT_HANDLE: u32 = 0xffff_0000;

/// The kind of an object, as text.
pub const TCA_KIND: u16 = 1;
/// What its kind knows of it.
pub const TCA_OPTIONS: u16 = 2;
/// Of HTB; see `htb`.
const TCA_HTB_INIT: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_PKT64: u16 = 8;

/// Octets of the fixed part of all traffic-control messages.
pub const FIXED: usize = 20;

/// `tcmsg`: family, pad, interface, handle, parent, info.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fixed {
    /// The device's index.
    pub index: u32,
    /// The object's handle.
    pub handle: u32,
    /// Where it hangs.
    pub parent: u32,
    /// Of a filter: its priority in the high half, its protocol in network order in the low one.
    pub info: u32,
}

impl Fixed {
    /// As the kernel has it.
    pub fn octets(self) -> [u8; FIXED] {
        let mut octets = [0; FIXED];
        let words = [self.index, self.handle, self.parent, self.info];
        for (i, word) in words.into_iter().enumerate() {
            octets[4 + 4 * i..8 + 4 * i].copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }

    pub(super) fn parse(payload: &[u8]) -> Option<(Self, Attrs<'_>)> {
        let value = Value(payload);
        let fixed = Self {
            index: value.u32_at(4)?,
            handle: value.u32_at(8)?,
            parent: value.u32_at(12)?,
            info: value.u32_at(16)?,
        };
        Some((fixed, Attrs(payload.get(FIXED..)?)))
    }
}

/// Counters of a qdisc or class since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Octets sent.
    pub octets: u64,
    /// Packets sent; a super-packet counts as its segments.
    pub packets: u64,
    /// Packets dropped; a super-packet counts once.
    pub drops: u64,
    /// Packets waiting.
    pub queued: u32,
    /// Octets waiting.
    pub backlog: u32,
}

impl Stats {
    pub(super) fn parse(attrs: Attrs<'_>) -> Self {
        let Some(stats) = attrs.find(TCA_STATS2).map(Value::nested) else {
            return Self::default();
        };
        let basic = stats.find(TCA_STATS_BASIC);
        let queue = stats.find(TCA_STATS_QUEUE);
        let word = |at| queue.and_then(|v| v.u32_at(at)).unwrap_or(0);
        let packets32 = basic.and_then(|v| v.u32_at(8)).map(u64::from);
        let packets64 = stats.find(TCA_STATS_PKT64).and_then(|v| v.u64_at(0));
        Self {
            octets: basic.and_then(|v| v.u64_at(0)).unwrap_or(0),
            packets: packets64.or(packets32).unwrap_or(0),
            queued: word(0),
            backlog: word(4),
            drops: word(8).into(),
        }
    }
}

/// A qdisc as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qdisc {
    /// The device's index.
    pub index: u32,
    /// Its own handle.
    pub handle: u32,
    /// Where it hangs: a class, [`ROOT`], [`CLSACT`].
    pub parent: u32,
    /// `htb`, `bfifo`, `clsact`, …
    pub kind: String,
    /// Counters.
    pub stats: Stats,
    /// For fifos: the bound, in octets or packets according to the kind.
    pub limit: Option<u32>,
    /// For HTB: the minor number of the class of what names none.
    pub default: Option<u32>,
    /// For HTB: packets that met no class and passed without a limit, since it was made.
    pub direct: u32,
}

pub(super) fn parse_qdisc(payload: &[u8]) -> Option<Qdisc> {
    let (fixed, attrs) = Fixed::parse(payload)?;
    let kind = attrs.find(TCA_KIND)?.text();
    let fifo = matches!(kind.as_str(), "bfifo" | "pfifo");
    let limit = attrs.find(TCA_OPTIONS).filter(|_| fifo).and_then(|v| v.u32_at(0));
    let global = attrs
        .find(TCA_OPTIONS)
        .filter(|_| kind == "htb")
        .and_then(|v| v.nested().find(TCA_HTB_INIT));
    let default = global.and_then(|v| v.u32_at(8));
    let direct = global.and_then(|v| v.u32_at(16)).unwrap_or(0);
    let Fixed { index, handle, parent, .. } = fixed;
    let stats = Stats::parse(attrs);
    Some(Qdisc { index, handle, parent, kind, stats, limit, default, direct })
}

/// The root qdisc of a device, also the one that the kernel put there by itself.
pub fn root(socket: &mut Socket, device: &Device) -> Result<Option<Qdisc>, Error> {
    let fixed = Fixed { index: device.index, parent: ROOT, ..Fixed::default() };
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETQDISC, Verb::Read, place(device, ROOT), &fixed.octets(), |_| {});
    match socket.ask(&batch, parse_qdisc) {
        Ok(found) => Ok(found.into_iter().next()),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// All qdiscs of the namespace, or of one device (older kernels list all in either case).
pub fn qdiscs(socket: &mut Socket, device: Option<&Device>) -> Result<Vec<Qdisc>, Error> {
    let index = device.map_or(0, |d| d.index);
    let fixed = Fixed { index, ..Fixed::default() };
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETQDISC, Verb::List, Object::Qdiscs, &fixed.octets(), |_| {});
    let mut found = socket.ask(&batch, parse_qdisc)?;
    found.retain(|q| index == 0 || q.index == index);
    Ok(found)
}

fn place(device: &Device, parent: u32) -> Object {
    Object::Qdisc { device: device.clone(), parent }
}

impl Batch {
    /// Appends: the hook that lets filters see what enters and leaves `device`.
    pub fn add_clsact(&mut self, device: &Device) {
        let (index, parent) = (device.index, CLSACT);
        let fixed = Fixed { index, parent, handle: CLSACT_HANDLE, info: 0 };
        let object = place(device, parent);
        self.push(libc::RTM_NEWQDISC, Verb::Create, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "clsact");
        });
    }

    /// Appends: a queue under `parent`, bounded in octets. (A pfifo, and a queue without a bound
    /// of its own, count packets: super-packets of 64 kB would make it 40 times as long.)
    pub fn set_bfifo(&mut self, device: &Device, parent: u32, handle: u32, limit: Bytes) {
        let fixed = Fixed { index: device.index, handle, parent, info: 0 };
        let limit = u32::try_from(limit.get()).unwrap_or(u32::MAX);
        let object = place(device, parent);
        self.push(libc::RTM_NEWQDISC, Verb::Replace, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "bfifo");
            body.put(TCA_OPTIONS, &limit.to_ne_bytes());
        });
    }

    /// Appends: a root qdisc of this kind, with the kernel's own settings.
    pub fn add_plain_root(&mut self, device: &Device, kind: &str) {
        let fixed = Fixed { index: device.index, handle: 0, parent: ROOT, info: 0 };
        let object = place(device, ROOT);
        self.push(libc::RTM_NEWQDISC, Verb::Create, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, kind);
        });
    }

    /// Appends: removes the qdisc at `parent`. What waited in it is lost.
    pub fn delete_qdisc(&mut self, device: &Device, parent: u32) {
        let fixed = Fixed { index: device.index, handle: 0, parent, info: 0 };
        let object = place(device, parent);
        self.push(libc::RTM_DELQDISC, Verb::Delete, object, &fixed.octets(), |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_with_64_bit_packets_where_the_kernel_has_them() {
        let mut batch = Batch::new();
        batch.push(libc::RTM_NEWQDISC, Verb::Change, Object::Qdiscs, &[0; FIXED], |body| {
            body.text(TCA_KIND, "bfifo");
            body.put(TCA_OPTIONS, &131_072u32.to_ne_bytes());
            body.nest(TCA_STATS2, |body| {
                let basic = [&3028u64.to_ne_bytes()[..], &2u32.to_ne_bytes(), &[0; 4]].concat();
                body.put(TCA_STATS_BASIC, &basic);
                body.put(TCA_STATS_PKT64, &(1u64 << 33).to_ne_bytes());
                let queue = [1u32, 1514, 9, 0, 0].map(u32::to_ne_bytes).concat();
                body.put(TCA_STATS_QUEUE, &queue);
            });
        });
        let qdisc = parse_qdisc(&batch.octets()[16..]).unwrap();
        assert_eq!(qdisc.limit, Some(131_072));
        let expected = Stats { octets: 3028, packets: 1 << 33, drops: 9, queued: 1, backlog: 1514 };
        assert_eq!(qdisc.stats, expected);
    }
}
