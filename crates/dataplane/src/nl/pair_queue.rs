//! The queue of a pair's class: data, and acknowledgements beside it.
//!
//! Problem   A pair's acknowledgements wait behind its own data. Where the other direction has the
//!           larger floor, its connections then wait for the smaller one, and miss the floor.
//! Approach  In place of the class's fifo an HTB with two classes that have no limit and take turns
//!           of a frame: an acknowledgement waits for one packet of data, and data for as many
//!           octets of acknowledgements. Two u32 filters (IPv4, IPv6) pick short segments of TCP
//!           that end no connection. The class above sees one queue: its rates and turns stay as
//!           they were.
//! Promises  Each has half of what the class sends, if it wants it, whatever a guest calls an
//!           acknowledgement.
//! Not here  Departure times have one queue for all of a pair.

use super::htb::Class;
use super::keys::{Key, Protocol, info};
use super::message::Verb;
use super::tc::Fixed;
use super::{Batch, Device, Handle, Object};
use weir_units::Bytes;

/// Minor numbers of the two classes.
pub(crate) const DATA: u32 = 1;
pub(crate) const ACKS: u32 = 2;

/// More than any link carries, octets per second.
const NO_LIMIT: u64 = 1_000_000_000_000;
/// A millisecond.
const BURST_TICKS: u32 = 15_625;
/// Octets of a turn: a full frame.
const TURN: u32 = 1514;

/// TCP without FIN and RST in less than 128 octets: an acknowledgement, the beginning of a
/// connection, or as small. Without IP options and fragments.
const IP4: [Key; 4] = [
    Key { at: 0, mask: 0xff00_ff80, is: 0x4500_0000 },
    Key { at: 4, mask: 0x0000_3fff, is: 0 },
    Key { at: 8, mask: 0x00ff_0000, is: 0x0006_0000 },
    Key { at: 32, mask: 0x0005_0000, is: 0 },
];
/// The same without extension headers.
const IP6: [Key; 2] =
    [Key { at: 4, mask: 0xff80_ff00, is: 0x0000_0600 }, Key { at: 52, mask: 0x0005_0000, is: 0 }];

impl Batch {
    /// Appends: the queue of class `parent`, which must have none but the kernel's own. `handle` is the
    /// queue's and `fifos` are those of its two fifos, which hold `limit` octets each.
    pub fn add_pair_queue(
        &mut self,
        device: &Device,
        parent: u32,
        handle: u32,
        fifos: [u32; 2],
        limit: Bytes,
    ) {
        self.add_htb_at(device, parent, handle, DATA as u16);
        let class = Class {
            rate: NO_LIMIT,
            ceil: NO_LIMIT,
            burst: BURST_TICKS,
            cburst: BURST_TICKS,
            quantum: TURN,
            ..Class::default()
        };
        for (minor, fifo) in [DATA, ACKS].into_iter().zip(fifos) {
            let id = handle | minor;
            self.set_class(device, Verb::Create, handle, id, &class);
            self.set_bfifo(device, id, fifo, limit);
        }
        self.add_filter(device, handle, info(1, Protocol::Ip4), &IP4);
        self.add_filter(device, handle, info(2, Protocol::Ip6), &IP6);
    }

    /// Appends: both fifos of the queue `handle` hold `limit` octets from now on. What waits stays.
    pub fn set_pair_queue(&mut self, device: &Device, handle: u32, fifos: [u32; 2], limit: Bytes) {
        for (minor, fifo) in [DATA, ACKS].into_iter().zip(fifos) {
            self.set_bfifo(device, handle | minor, fifo, limit);
        }
    }

    fn add_filter(&mut self, device: &Device, queue: u32, info: u32, keys: &[Key]) {
        let fixed = Fixed { index: device.index, handle: 0, parent: queue, info };
        let what = format!("filter of the queue {} of {device}", Handle(queue)).into();
        let object = Object::Named { what, needs: Some("u32 filters (CONFIG_NET_CLS_U32)") };
        self.set_filter(Verb::Create, object, &fixed, queue | ACKS, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_written_as_tc_writes_it() {
        // tc filter add dev va parent 10: protocol ipv6 prio 2 u32 match u8 6 0xff at 6
        //   match u16 0 0xff80 at 4 match u8 0 0x05 at 53 flowid 10:2 (iproute2 6.1)
        let expected: Vec<u8> = [
            &[8, 0, 1, 0, b'u', b'3', b'2', 0, 64, 0, 2, 0, 8, 0, 1, 0, 2, 0, 0x10, 0][..],
            &[52, 0, 5, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xff, 0x80, 0xff, 0, 0, 0, 6, 0, 4, 0, 0, 0, 0, 0, 0, 0],
            &[0, 0x05, 0, 0, 0, 0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let mut batch = Batch::new();
        let device = Device { name: "va".into(), index: 2 };
        batch.add_filter(&device, 0x10_0000, info(2, Protocol::Ip6), &IP6);
        assert_eq!(batch.octets()[16 + 20..], expected);
    }
}
