//! What waits in a class: data, and acknowledgements beside it.
//!
//! Problem   A pair's acknowledgements wait behind its own data. Where the other direction has the
//!           larger floor, its connections then wait for the smaller one, and miss the floor.
//! Approach  Two queues that take turns. An acknowledgement waits for one packet of data, and data
//!           for as many octets of acknowledgements.
//! Promises  Order is kept in each. Each has half of what the class sends, if it wants it, whatever
//!           a guest calls an acknowledgement.
//! Not here  How much may wait in all: see `backlog`.
//! Source    `weir-dataplane`'s `nl/pair_queue.rs`.

use super::classes::FRAME;
use crate::packet::{Kind, Packet};
use std::collections::VecDeque;

/// A packet's number in the slab, its octets, and what it carries of what was let in before
/// ([`weir_core::backlog`]).
type Waiting = (u32, u16, u16);

/// Octets of the smallest packet that the kernel's filters do not take for an acknowledgement.
const LARGE: u16 = 14 + 128;

/// Whether a packet waits with the acknowledgements: TCP, and small. Nothing here ends a connection.
pub(super) fn is_ack(packet: &Packet) -> bool {
    matches!(packet.kind, Kind::Ack | Kind::Data) && packet.size < LARGE
}

#[derive(Debug, Default)]
struct Fifo {
    packets: VecDeque<Waiting>,
    octets: u64,
    deficit: i64,
    left: u16,
}

/// The queue of a class.
#[derive(Debug, Default)]
pub(super) struct Queue {
    data: Fifo,
    acks: Fifo,
    /// Whether it is the acknowledgements' turn.
    is_acks: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.data.packets.is_empty() && self.acks.packets.is_empty()
    }

    pub(super) fn octets(&self) -> u64 {
        self.data.octets + self.acks.octets
    }

    pub(super) fn octets_of_acks(&self) -> u64 {
        self.acks.octets
    }

    /// Adds a packet; whether there was room in a fifo of `room` octets.
    pub(super) fn push(&mut self, packet: Waiting, is_ack: bool, room: u64) -> bool {
        let fifo = if is_ack { &mut self.acks } else { &mut self.data };
        let octets = fifo.octets + u64::from(packet.1);
        let has_room = octets <= room;
        if has_room {
            fifo.octets = octets;
            fifo.packets.push_back(packet);
        }
        has_room
    }

    /// Marks of the packets that were taken out last.
    pub(super) fn left(&self) -> u32 {
        u32::from(self.acks.left) << 16 | u32::from(self.data.left)
    }

    /// Takes out the next packet.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let next = if self.is_acks { &self.acks } else { &self.data };
        if next.packets.is_empty() {
            self.is_acks = !self.is_acks;
        }
        let next = if self.is_acks { &mut self.acks } else { &mut self.data };
        let packet = next.packets.pop_front()?;
        next.octets -= u64::from(packet.1);
        next.left = packet.2;
        next.deficit -= i64::from(packet.1);
        if next.deficit < 0 {
            next.deficit += FRAME as i64;
            self.is_acks = !self.is_acks;
        }
        Some(packet)
    }

    /// Takes out all that waits.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> + use<> {
        let Self { data, acks, .. } = std::mem::take(self);
        data.packets.into_iter().chain(acks.packets).map(|(id, ..)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::classes::QUEUE;

    const ACK: u16 = 66;
    const DATA: u16 = FRAME as u16;

    /// Takes out all; of each packet, whether it is an acknowledgement (from number 1000 on).
    fn order(queue: &mut Queue) -> Vec<bool> {
        std::iter::from_fn(|| queue.pop()).map(|(id, ..)| id >= 1000).collect()
    }

    #[test]
    fn an_acknowledgement_waits_for_one_packet_and_data_for_as_many_octets() {
        let mut queue = Queue::default();
        assert!((0..20).all(|id| queue.push((id, DATA, 0), false, QUEUE)));
        assert!((0..400).all(|id| queue.push((1000 + id, ACK, 0), true, QUEUE)));
        let order = order(&mut queue);
        let turns: Vec<usize> = order.split(|is_ack| !is_ack).map(<[bool]>::len).collect();
        // All 400 while 18 of the 20 go, after one or two.
        assert_eq!((order.len(), turns[0], queue.octets()), (420, 0, 0));
        let full = usize::from(DATA / ACK);
        let whole = turns.iter().filter(|turn| (full..=full + 1).contains(turn)).count();
        assert!(whole >= 16, "{turns:?}");
        assert!(queue.is_empty());
    }

    #[test]
    fn each_keeps_its_order_and_its_room() {
        let mut queue = Queue::default();
        let room = |size: u16| (QUEUE / u64::from(size)) as u32;
        assert!((0..room(ACK)).all(|id| queue.push((1000 + id, ACK, 0), true, QUEUE)));
        assert!(
            (0..room(DATA)).all(|id| queue.push((id, DATA, 0), false, QUEUE)),
            "it is not theirs"
        );
        assert!(!queue.push((0, ACK, 0), true, QUEUE) && !queue.push((0, DATA, 0), false, QUEUE));
        let all: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|(id, ..)| id).collect();
        let (acks, data): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|id| *id >= 1000);
        assert!(acks.is_sorted() && data.is_sorted());
        assert_eq!((acks.len(), data.len()), (room(ACK) as usize, room(DATA) as usize));
    }
}
