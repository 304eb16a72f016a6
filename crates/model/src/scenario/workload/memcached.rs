//! Requests to a real memcached: when, which, and how many octets they are.
//!
//! Problem   The load must be the same under every mechanism, with requests of two kinds.
//! Approach  Moments, kinds and keys follow from the entry's seed, like sizes of flows.
//! Promises  Sizes are those of the text protocol to the octet, so that the demand is known.
//! Not here  The text of the protocol (the lab's client), and the server.
//! Source    memcached's doc/protocol.txt. Ten connections, keys of 32 octets: EyeQ §5.2.2.

use super::Arrivals;
use weir_units::{Bytes, Span, SplitMix64};

/// What a client asks a memcached.
#[derive(Clone, Debug, PartialEq)]
pub struct Memcached {
    /// When requests are due, however slow the answers are.
    pub arrivals: Arrivals,
    /// The part of them that stores a value, 0 to 1; the others fetch one.
    pub sets: f64,
    /// How many keys there are, each as likely as any other. Above zero.
    pub keys: u32,
    /// Octets of a key.
    pub key: Bytes,
    /// Octets of a value.
    pub value: Bytes,
    /// Connections that stay open, each with one request at a time.
    pub connections: u32,
    /// Kernel name of the congestion control at both ends.
    pub congestion: String,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fetches the value.
    Get,
    /// Stores it.
    Set,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What it does.
    pub operation: Operation,
    /// With which key, from 0.
    pub key: u32,
}

impl Memcached {
    /// The requests with their moments since the start of the traffic, ascending, without end.
    pub fn starts(&self) -> impl Iterator<Item = (Span, Ask)> + use<> {
        // Independent of the gaps.
        let mut draw = SplitMix64::new(!self.arrivals.seed);
        let (sets, keys) = (self.sets, self.keys.max(1));
        self.arrivals.starts().map(move |at| {
            let operation = if draw.unit() <= sets { Operation::Set } else { Operation::Get };
            (at, Ask { operation, key: draw.below(u64::from(keys)) as u32 })
        })
    }

    /// Octets of a request: `set KEY 0 0 LENGTH`, the value; `get KEY`. Each line ends with two.
    pub fn request(&self, operation: Operation) -> Bytes {
        let key = self.key.get();
        Bytes::new(match operation {
            Operation::Get => 4 + key + 2,
            Operation::Set => 4 + key + 5 + self.digits() + 2 + self.value.get() + 2,
        })
    }

    /// Octets of its answer: `STORED`; `VALUE KEY 0 LENGTH`, the value, `END`.
    pub fn answer(&self, operation: Operation) -> Bytes {
        Bytes::new(match operation {
            Operation::Get => 6 + self.key.get() + 3 + self.digits() + 2 + self.value.get() + 2 + 5,
            Operation::Set => 8,
        })
    }

    /// Octets of a request on average.
    pub fn mean_request(&self) -> Bytes {
        self.mean(|operation| self.request(operation))
    }

    /// Octets of an answer on average.
    pub fn mean_answer(&self) -> Bytes {
        self.mean(|operation| self.answer(operation))
    }

    fn mean(&self, of: impl Fn(Operation) -> Bytes) -> Bytes {
        let octets = |operation| of(operation).get() as f64;
        let (set, get) = (octets(Operation::Set), octets(Operation::Get));
        Bytes::new((set * self.sets + get * (1.0 - self.sets)).round() as u64)
    }

    /// Of the value's length, as it is written.
    fn digits(&self) -> u64 {
        u64::from(self.value.get().checked_ilog10().unwrap_or(0)) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spacing;
    use super::*;

    fn memcached(sets: f64) -> Memcached {
        Memcached {
            arrivals: Arrivals { per_second: 1000.0, spacing: Spacing::Poisson, seed: 9 },
            sets,
            keys: 50,
            key: Bytes::new(32),
            value: Bytes::new(6000),
            connections: 10,
            congestion: "cubic".into(),
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_requests_in_their_mix() {
        let all: Vec<(Span, Ask)> = memcached(0.3).starts().take(10_000).collect();
        assert!(all.iter().copied().eq(memcached(0.3).starts().take(10_000)));
        let sets = all.iter().filter(|(_, ask)| ask.operation == Operation::Set).count();
        assert!((2_800..3_200).contains(&sets), "{sets}");
        assert!((0..50).all(|key| all.iter().any(|(_, ask)| ask.key == key)));
        let only = |sets: f64, operation| {
            memcached(sets).starts().take(1000).all(|(_, ask)| ask.operation == operation)
        };
        assert!(only(0.0, Operation::Get) && only(1.0, Operation::Set));
    }

    #[test]
    fn sizes_are_those_of_the_protocol_and_their_means() {
        let all = memcached(0.25);
        let set = format!("set {} 0 0 6000\r\n{}\r\n", "k".repeat(32), "v".repeat(6000));
        let get = format!("get {}\r\n", "k".repeat(32));
        assert_eq!(all.request(Operation::Set).get(), set.len() as u64);
        assert_eq!(all.request(Operation::Get).get(), get.len() as u64);
        assert_eq!(all.answer(Operation::Set).get(), "STORED\r\n".len() as u64);
        let found = format!("VALUE {} 0 6000\r\n{}\r\nEND\r\n", "k".repeat(32), "v".repeat(6000));
        assert_eq!(all.answer(Operation::Get).get(), found.len() as u64);
        let mean = (set.len() as f64 + 3.0 * get.len() as f64) / 4.0;
        assert_eq!(all.mean_request().get(), mean.round() as u64);
    }
}
