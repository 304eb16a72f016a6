//! HTB: the root qdisc and its classes, with their parameters as values.

use super::attr::Value;
use super::message::Verb;
use super::tc::{Fixed, ROOT, Stats, TCA_KIND, TCA_OPTIONS};
use super::{Batch, Device, Error, Object, Socket};
use weir_units::{Bytes, Rate, Span};

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
/// The kernel computes times from sizes itself if it knows the link layer; else it wants tables.
const LINKLAYER_ETHERNET: u8 = 1;
/// What `INIT` carries: interface version, r2q (unused: every class has its quantum).
const VERSION: u32 = 3;
const RATE_TO_QUANTUM: u32 = 10;
/// One tick of the packet scheduler.
const TICK_NS: u64 = 64;
const TC_H_ROOT: u32 = ROOT;

/// The parameters of one class, in the kernel's own units so that what is read back compares equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// Rate, octets per second; not zero.
    pub rate: u64,
    /// Ceiling, octets per second; not zero.
    pub ceil: u64,
    /// Burst at `rate`, in ticks of 64 ns.
    pub burst: u32,
    /// Burst at `ceil`, in ticks of 64 ns.
    pub cburst: u32,
    /// Octets it may send per round when it borrows with others. Of no effect in an inner class,
    /// where the kernel keeps the value from the time when it had no children.
    pub quantum: u32,
    /// Priority for borrowing: lower is earlier.
    pub prio: u32,
    /// Octets that count beside those of each packet.
    pub overhead: u16,
}

/// A class as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassEntry {
    /// Its handle.
    pub id: u32,
    /// Its parent's handle; [`ROOT`] directly under the qdisc.
    pub parent: u32,
    /// The handle of its queue; zero for inner classes.
    pub leaf: u32,
    /// Its parameters.
    pub class: Class,
    /// Zero for a leaf.
    pub level: u32,
    /// Counters.
    pub stats: Stats,
}

/// A rate in octets per second, rounded down.
pub const fn octets_per_second(rate: Rate) -> u64 {
    rate.as_bps() / 8
}

/// The rate of so many octets per second.
pub const fn rate(octets_per_second: u64) -> Rate {
    Rate::from_bps(octets_per_second.saturating_mul(8))
}

/// A time in ticks, rounded up, at most what fits the message (274 s).
pub const fn ticks(span: Span) -> u32 {
    let ticks = span.as_nanos().div_ceil(TICK_NS);
    if ticks > u32::MAX as u64 { u32::MAX } else { ticks as u32 }
}

/// The octets that a burst of so many ticks allows at a rate in octets per second.
pub const fn burst_octets(ticks: u32, octets_per_second: u64) -> Bytes {
    rate(octets_per_second).bytes_in(Span::from_nanos(ticks as u64 * TICK_NS))
}

impl Class {
    /// `tc_htb_opt`: two `tc_ratespec`, then buffer, cbuffer, quantum, level, prio.
    fn parameters(&self) -> [u8; 44] {
        let mut octets = [0; 44];
        for (at, rate) in [(0, self.rate), (12, self.ceil)] {
            octets[at + 1] = LINKLAYER_ETHERNET;
            octets[at + 2..at + 4].copy_from_slice(&self.overhead.to_ne_bytes());
            let low = u32::try_from(rate).unwrap_or(u32::MAX);
            octets[at + 8..at + 12].copy_from_slice(&low.to_ne_bytes());
        }
        for (at, word) in [(24, self.burst), (28, self.cburst), (32, self.quantum), (40, self.prio)]
        {
            octets[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }
}

pub(super) fn parse(payload: &[u8]) -> Option<ClassEntry> {
    let (fixed, attrs) = Fixed::parse(payload)?;
    let options = attrs.find(TCA_OPTIONS)?.nested();
    let p = options.find(TCA_HTB_PARMS)?;
    let wide = |kind| options.find(kind).and_then(|v: Value<'_>| v.u64_at(0));
    Some(ClassEntry {
        id: fixed.handle,
        parent: fixed.parent,
        leaf: fixed.info,
        class: Class {
            rate: wide(TCA_HTB_RATE64).unwrap_or(p.u32_at(8)?.into()),
            ceil: wide(TCA_HTB_CEIL64).unwrap_or(p.u32_at(20)?.into()),
            burst: p.u32_at(24)?,
            cburst: p.u32_at(28)?,
            quantum: p.u32_at(32)?,
            prio: p.u32_at(40)?,
            overhead: p.u16_at(2)?,
        },
        level: p.u32_at(36)?,
        stats: Stats::parse(attrs),
    })
}

/// The HTB classes of a device's root qdisc, which has the handle `root`, in the kernel's order.
/// Those of a qdisc below one of them are not among them.
pub fn classes(socket: &mut Socket, device: &Device, root: u32) -> Result<Vec<ClassEntry>, Error> {
    let fixed = Fixed { index: device.index, parent: root, ..Fixed::default() };
    let object = Object::Classes(device.clone());
    let mut batch = Batch::new();
    batch.push(libc::RTM_GETTCLASS, Verb::List, object, &fixed.octets(), |_| {});
    socket.ask(&batch, parse)
}

impl Batch {
    /// Appends: HTB as the root qdisc of `device`; what no class is named for goes to the class
    /// with minor number `default`.
    pub fn add_htb(&mut self, device: &Device, handle: u32, default: u16) {
        self.add_htb_at(device, TC_H_ROOT, handle, default);
    }

    /// Appends: the same in place of the queue of class `parent`.
    pub fn add_htb_at(&mut self, device: &Device, parent: u32, handle: u32, default: u16) {
        let fixed = Fixed { index: device.index, handle, parent, info: 0 };
        let object = Object::Qdisc { device: device.clone(), parent };
        let global = [VERSION, RATE_TO_QUANTUM, default.into(), 0, 0];
        self.push(libc::RTM_NEWQDISC, Verb::Create, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "htb");
            body.nest(TCA_OPTIONS, |body| {
                body.put(TCA_HTB_INIT, &global.map(u32::to_ne_bytes).concat());
            });
        });
    }

    /// Appends: creates or changes a class. `verb` must be [`Verb::Create`], [`Verb::Change`] or
    /// [`Verb::Replace`].
    pub fn set_class(&mut self, device: &Device, verb: Verb, parent: u32, id: u32, class: &Class) {
        let fixed = Fixed { index: device.index, handle: id, parent, info: 0 };
        let object = Object::Class { device: device.clone(), id };
        self.push(libc::RTM_NEWTCLASS, verb, object, &fixed.octets(), |body| {
            body.text(TCA_KIND, "htb");
            body.nest(TCA_OPTIONS, |body| {
                // Rates that do not fit 32 bits (34.4 Gbit/s) go beside, as `tc` sends them.
                for (kind, rate) in [(TCA_HTB_RATE64, class.rate), (TCA_HTB_CEIL64, class.ceil)] {
                    if u32::try_from(rate).is_err() {
                        body.put(kind, &rate.to_ne_bytes());
                    }
                }
                body.put(TCA_HTB_PARMS, &class.parameters());
            });
        });
    }

    /// Appends: removes a class, which must have no children, and its queue.
    pub fn delete_class(&mut self, device: &Device, id: u32) {
        let fixed = Fixed { index: device.index, handle: id, parent: 0, info: 0 };
        let object = Object::Class { device: device.clone(), id };
        self.push(libc::RTM_DELTCLASS, Verb::Delete, object, &fixed.octets(), |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_written_as_tc_writes_it_and_read_back() {
        // tc class add dev pb parent 1:1 classid 1:4000 htb rate 50mbit ceil 400gbit burst 6250
        //   cburst 256k quantum 20000 prio 1 (iproute2 6.1), without its rate tables, and with zero
        //   where it says how to read them (cell_log 3, cell_align -1).
        let expected: Vec<u8> = [
            &[8, 0, 1, 0, b'h', b't', b'b', 0, 64, 0, 2, 0][..],
            &[0x0c, 0, 7, 0, 0, 0x74, 0x3b, 0xa4, 0x0b, 0, 0, 0],
            &[0x30, 0, 1, 0, 0, 1, 50, 0, 0, 0, 0, 0, 0x10, 0x5e, 0x5f, 0],
            &[0, 1, 50, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[9, 0x3d, 0, 0, 0x4e, 0, 0, 0, 0x20, 0x4e, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        ]
        .concat();
        let class = Class {
            rate: 6_250_000,
            ceil: 50_000_000_000,
            burst: 15_625,
            cburst: 78,
            quantum: 20_000,
            prio: 1,
            overhead: 50,
        };
        let mut batch = Batch::new();
        let device = Device { name: "pb".into(), index: 2 };
        batch.set_class(&device, Verb::Create, 0x1_0001, 0x1_4000, &class);
        let octets = batch.octets();
        assert_eq!(octets[16 + 20..], expected);
        let entry = parse(&octets[16..]).unwrap();
        assert_eq!((entry.class, entry.parent, entry.id), (class, 0x1_0001, 0x1_4000));
    }

    #[test]
    fn ticks_and_octets_agree_with_each_other() {
        // 6250 octets at 50 Mbit/s last 1 ms: 15625 ticks of 64 ns.
        assert_eq!(ticks(Span::from_millis(1)), 15_625);
        assert_eq!(burst_octets(15_625, 6_250_000), Bytes::new(6250));
        assert_eq!(ticks(Span::MAX), u32::MAX);
    }
}
