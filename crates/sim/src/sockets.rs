//! Guests whose sockets own what waits in their host's shaper: they wait instead of losing it.
//!
//! Problem   Who shares its host's kernel (a container; departure times, which leave a packet its socket's
//!           until it goes) feels the queue before the uplink. A guest behind a TAP does not: its packets are the
//!           host's at once, and what finds the queue full is lost.
//! Approach  TCP's small queues, as in Linux: of each flow what waits is counted, and with as much waiting as it
//!           sends in a millisecond, two packets at least, it sends nothing more until something has gone.
//! Promises  Costs nothing where no guest is so. Whatever leaves the shaper, dropped or sent, is counted off.
//! Not here  UDP; ports of links: what is full there drops.
//! Source    Linux `tcp_small_queue_check`, `tcp_update_pacing_rate`.

/// Of each TCP flow what waits, by flow and by packet.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    flows: Vec<Socket>,
    /// By the packet's place in the slab: its flow and one more; 0 if it does not wait.
    waits: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Socket {
    /// Its guest is so.
    owns: bool,
    /// Packets that wait.
    waiting: u32,
    /// It would have sent more.
    blocked: bool,
}

impl Sockets {
    /// The next TCP flow.
    pub(crate) fn add(&mut self, owns: bool) {
        self.flows.push(Socket { owns, ..Socket::default() });
    }

    /// Whether a flow may send one more, with `most` waiting at most. If not it is told when it may.
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

    /// A packet is gone, wherever it was: the flow that may send again for that.
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
        assert_eq!(sockets.leave(5), None, "nobody asked meanwhile");
        sockets.wait(3, 1);
        assert!(sockets.has_room(1, 0), "its packets are its host's");
        assert_eq!(sockets.leave(3), None);
    }
}
