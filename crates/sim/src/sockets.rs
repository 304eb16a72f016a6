//! Guests whose sockets own the packets in their host's shaper. Such a guest waits instead of
//! losing packets.
//!
//! Problem   A guest that shares its host's kernel notices the queue before the uplink: a
//!           container, or any guest with departure times, which leave a packet its socket until it
//!           goes. A guest behind a TAP does not: its packets belong to the host at once, and those
//!           that find the queue full are lost.
//! Approach  TCP small queues, as in Linux: each flow's waiting packets are counted. A flow with as
//!           many waiting as it sends in a millisecond, and at least two, sends no more until one
//!           has gone.
//! Promises  Costs nothing without such guests. Every packet that leaves the shaper, dropped or
//!           sent, is counted off.
//! Not here  UDP; ports of links, which drop when they are full.
//! Source    Linux `tcp_small_queue_check`, `tcp_update_pacing_rate`.

/// Waiting packets of each TCP flow, by flow and by packet.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    flows: Vec<Socket>,
    /// By the packet's place in the slab: its flow and one more; 0 if it does not wait.
    waits: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Socket {
    /// Whether its guest's sockets own its packets.
    owns: bool,
    /// Waiting packets.
    waiting: u32,
    /// Whether the flow stopped although it had more to send.
    blocked: bool,
}

impl Sockets {
    /// The next TCP flow.
    pub(crate) fn add(&mut self, owns: bool) {
        self.flows.push(Socket { owns, ..Socket::default() });
    }

    /// Whether a flow may send one more packet, with at most `most` waiting. A flow that may not is
    /// woken when it may.
    pub(crate) fn has_room(&mut self, flow: u32, most: u32) -> bool {
        let socket = &mut self.flows[flow as usize];
        socket.blocked = socket.owns && socket.waiting >= most;
        !socket.blocked
    }

    /// A packet of a flow waits from now on.
    pub(crate) fn wait(&mut self, id: u32, flow: u32) {
        let socket = &mut self.flows[flow as usize];
        if !socket.owns {
            return;
        }
        socket.waiting += 1;
        let id = id as usize;
        if self.waits.len() <= id {
            self.waits.resize(id + 1, 0);
        }
        self.waits[id] = flow + 1;
    }

    /// A packet is gone; returns the flow that may send again because of that.
    pub(crate) fn leave(&mut self, id: u32) -> Option<u32> {
        let flow = std::mem::take(self.waits.get_mut(id as usize)?).checked_sub(1)?;
        let socket = &mut self.flows[flow as usize];
        socket.waiting -= 1;
        std::mem::take(&mut socket.blocked).then_some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_blocked_is_told_once_something_has_gone() {
        let mut sockets = Sockets::default();
        sockets.add(true);
        sockets.add(false);
        for id in [5, 9] {
            assert!(sockets.has_room(0, 2));
            sockets.wait(id, 0);
        }
        assert!(!sockets.has_room(0, 2));
        assert_eq!(sockets.leave(7), None, "it waited nowhere");
        assert_eq!(sockets.leave(9), Some(0));
        assert_eq!(sockets.leave(9), None, "its place is another's now");
        assert_eq!(sockets.leave(5), None, "no flow waits for room");
        sockets.wait(3, 1);
        assert!(sockets.has_room(1, 0), "its packets are its host's");
        assert_eq!(sockets.leave(3), None);
    }
}
