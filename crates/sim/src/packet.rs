//! A packet, or a wake-up that travels through time alone, and the slab that holds both.
//!
//! Problem   Millions of packets are in flight and each is looked at once per hop; a pointer, an
//!           allocation or a second cache line per hop is most of the cost.
//! Approach  32 octets, aligned, so that none straddles a cache line. A packet names its neighbours
//!           by 32-bit index: the next of its slot in the wheel while it waits, the next free cell
//!           when it is gone. The cell freed last is used first: it is still in the cache.
//! Promises  No allocation once the slab has grown to the number of packets in flight.
//! Not here  Arrivals: see `world`.

/// No cell.
pub(crate) const NIL: u32 = u32::MAX;

/// ECN-capable (RFC 3168 §5).
pub(crate) const ECT: u8 = 1;
/// Congestion experienced.
pub(crate) const CE: u8 = 2;
/// An ACK's ECN-Echo.
pub(crate) const ECE: u8 = 4;
/// A sender's answer to ECN-Echo.
pub(crate) const CWR: u8 = 8;
/// The last segment of its flow: answered at once, as a FIN is.
pub(crate) const LAST: u8 = 16;
/// Of a segment: it was sent before. Segments carry no ECN-Echo: the bit is free there.
pub(crate) const AGAIN: u8 = ECE;
/// Of an ACK: it echoes the timestamp of a segment that was sent before. ACKs carry no CWR.
pub(crate) const OF_AGAIN: u8 = CWR;
/// The bits from this one on are the packet's class.
pub(crate) const CLASS: u32 = 5;

/// Kind of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A TCP segment with payload.
    Data,
    /// A TCP segment without.
    Ack,
    /// A UDP datagram.
    Datagram,
    /// A datagram from one host's agent to another's.
    Letter,
    /// Wake-up: the next flow begins.
    Start,
    /// Wake-up: a sender's retransmission timer may have expired.
    Timeout,
    /// Wake-up: some packets of a sender have left its host's shaper.
    Resume,
    /// Wake-up: a receiver's delayed ACK may be due.
    AckDue,
    /// Wake-up: a UDP source sends.
    Emit,
    /// Wake-up: a flow has nothing more to send.
    Halt,
    /// Wake-up: a delayed datagram of an agent is read.
    Mail,
    /// Wake-up: a host's agent has something to do.
    Agent,
    /// Wake-up: a host's shaper may send again.
    Shaper,
    /// Wake-up: a host's guardian takes back what is borrowed.
    Guardian,
    /// Wake-up: a fault begins or ends.
    Fault,
    /// Wake-up: a host's agent reloads its lists.
    Told,
    /// Wake-up: a flow begins that should have begun while its host stood still.
    Late,
    /// Wake-up: an entry of requests, flows or shuffles begins something, or ends.
    Agenda,
    /// Wake-up: the wire of a port with several queues is free.
    Port,
    /// Wake-up: something of the binding of tenants to queues is due.
    Bind,
    /// Wake-up: the run pauses here.
    Stop,
}

/// A packet or a wake-up.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Packet {
    /// When it arrives, in ns. Written by the link it crosses.
    pub(crate) at: u64,
    /// The next cell of the same list. Written by the wheel, or by the slab when free.
    pub(crate) next: u32,
    /// Where in the table of routes its next link stands.
    pub(crate) hop: u32,
    /// Index of its flow among those of its kind.
    pub(crate) flow: u32,
    /// The segment's number; of an ACK the number of the segment expected next.
    pub(crate) seq: u32,
    /// An ACK's blocks in [`crate::tcp::Blocks`]' table, or [`NIL`].
    pub(crate) sack: u32,
    /// Octets on the wire.
    pub(crate) size: u16,
    pub(crate) kind: Kind,
    /// [`ECT`] and the others, and the class.
    pub(crate) bits: u8,
}

const _: () = assert!(size_of::<Packet>() == 32, "two packets to a cache line");

impl Packet {
    /// A wake-up of `flow`: it stands at the end of the empty route 0.
    pub(crate) fn wake(kind: Kind, flow: u32) -> Self {
        Self { at: 0, next: NIL, hop: 0, flow, seq: 0, sack: NIL, size: 0, kind, bits: 0 }
    }
}

/// All packets and wake-ups.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    /// By index; which of them are free only the free list knows.
    pub(crate) cells: Vec<Packet>,
    free: Option<u32>,
    live: u32,
}

impl Slab {
    #[inline]
    pub(crate) fn put(&mut self, packet: Packet) -> u32 {
        self.live += 1;
        match self.free {
            Some(id) => {
                let cell = &mut self.cells[id as usize];
                self.free = (cell.next != NIL).then_some(cell.next);
                *cell = packet;
                id
            }
            None => {
                let id = self.cells.len() as u32;
                assert!(id < NIL, "four thousand million packets in flight");
                self.cells.push(packet);
                id
            }
        }
    }

    #[inline]
    pub(crate) fn free(&mut self, id: u32) {
        self.live -= 1;
        self.cells[id as usize].next = self.free.unwrap_or(NIL);
        self.free = Some(id);
    }

    /// Cells in use: packets in flight, and wake-ups.
    pub(crate) fn live(&self) -> u32 {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cell_freed_last_is_used_first() {
        let mut slab = Slab::default();
        let ids = [0, 1, 2].map(|flow| slab.put(Packet::wake(Kind::Emit, flow)));
        assert_eq!(ids, [0, 1, 2]);
        slab.free(0);
        slab.free(2);
        assert_eq!(slab.live(), 1);
        let again = [7, 8, 9].map(|flow| slab.put(Packet::wake(Kind::Emit, flow)));
        assert_eq!(again, [2, 0, 3]);
        assert_eq!(slab.cells[0].flow, 8);
    }
}
