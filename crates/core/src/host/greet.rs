//! When a host greets a peer.
//!
//! Problem   A message is believed if its writer knows this life of the host. After a restart no peer does, and one
//!           that has nothing to say would never learn of it. If each doubtful message were answered, a flood of old
//!           recordings would be answered in kind.
//! Approach  A greeting is a message without content that names both lives. A peer is greeted when it is doubted, at
//!           most once in [`GAP`]; when it has a new life; and after a restart, if the data plane has pairs from it.
//! Not here  Whom to believe: see `weir-wire` and the simulator's `peers`. What a greeting looks like: theirs, too.

use serde::{Deserialize, Serialize};
use weir_units::{HostId, SortedMap, SortedSet, Span, Time};

/// A peer that is doubted is greeted at most once in this time. Shorter: whoever replays old messages makes this host
/// send more. Longer: after a loss a peer is believed later.
const GAP: Span = Span::from_millis(10);

/// Greetings that are due, and the last of each peer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Greetings {
    due: SortedSet<HostId>,
    last: SortedMap<HostId, Time>,
}

impl Greetings {
    /// A message in the name of `peer` was not believed.
    pub(super) fn doubted(&mut self, now: Time, peer: HostId) {
        if self.last.get(&peer).is_none_or(|at| now.since(*at) >= GAP) {
            self.owed(now, peer);
        }
    }

    /// `peer` is greeted whenever the last greeting was. For what happens once in a life of one of both.
    pub(super) fn owed(&mut self, now: Time, peer: HostId) {
        self.last.insert(peer, now);
        self.due.insert(peer);
    }

    /// Forgets peers that are none any more.
    pub(super) fn retain(&mut self, is_peer: impl Fn(&HostId) -> bool) {
        self.due.retain(&is_peer);
        self.last.retain(|peer, _| is_peer(peer));
    }

    /// Takes those to be greeted now.
    pub(super) fn take(&mut self) -> Vec<HostId> {
        std::mem::take(&mut self.due).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEM: HostId = HostId(7);

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_doubted_peer_is_greeted_once_in_ten_milliseconds() {
        let mut greetings = Greetings::default();
        for (ms, greeted) in [(5, true), (5, false), (14, false), (15, true), (24, false)] {
            greetings.doubted(at(ms), THEM);
            assert_eq!(!greetings.take().is_empty(), greeted, "at {ms} ms");
        }
    }

    #[test]
    fn a_peer_with_a_new_life_is_greeted_whatever_came_before() {
        let mut greetings = Greetings::default();
        greetings.doubted(at(0), THEM);
        assert_eq!(greetings.take(), [THEM]);
        greetings.owed(at(1), THEM);
        assert_eq!(greetings.take(), [THEM]);
        greetings.doubted(at(10), THEM);
        assert_eq!(greetings.take(), [], "10 ms count from the last one");
    }
}
