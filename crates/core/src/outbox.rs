//! The messages that a machine wants to send to other hosts.

use crate::message::Message;
use weir_units::HostId;

/// Messages to send: bounded, because a peer's silence must not become our memory.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Outbox<M = Message> {
    messages: Vec<(HostId, M)>,
    bound: usize,
    /// Messages that found no room. Not zero means the bound is wrong: alarm on it.
    pub dropped: u64,
}

impl<M> Outbox<M> {
    /// Room for `bound` messages between two calls of [`Outbox::take`].
    pub const fn new(bound: usize) -> Self {
        Self { messages: Vec::new(), bound, dropped: 0 }
    }

    pub(crate) fn push(&mut self, to: HostId, message: M) {
        if self.messages.len() < self.bound {
            self.messages.push((to, message));
        } else {
            self.dropped += 1;
        }
    }

    /// Takes all messages, sorted by peer so that they can be batched; the order per peer is kept.
    pub fn take(&mut self) -> Vec<(HostId, M)> {
        let mut messages = std::mem::take(&mut self.messages);
        messages.sort_by_key(|(to, _)| *to);
        messages
    }

    /// Whether there is anything to send.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self::new(1 << 16)
    }
}
