//! State of a memcached client: due requests, their connections, and their durations.
//!
//! Problem   Some load generators wait for each answer before the next request. They ask little while
//!           the server is slow, so they measure too short times (coordinated omission).
//! Approach  Requests are due at their moments, independent of answers. A request without a
//!           connection waits for one, and its time counts from the moment at which it was due.
//! Promises  No clock and no socket: time is an argument. Waiting requests are bounded; a request
//!           beyond the bound is due and never done.
//! Not here  Octets: see `protocol` and `connection`.
//! Source    Schroeder, Wierman, Harchol-Balter (NSDI'06).

use std::collections::VecDeque;
use std::iter::Peekable;
use weir_model::scenario::{Ask, Memcached};
use weir_units::Span;

/// Most requests that wait for a connection.
const WAITING: usize = 100_000;

type Starts = Peekable<Box<dyn Iterator<Item = (Span, Ask)> + Send>>;

/// The requests of one traffic entry.
pub(super) struct Client {
    starts: Starts,
    /// Start of judging: requests that were due earlier do not count.
    warmup: Span,
    stop: Span,
    /// Due requests without a connection, each with its moment.
    waiting: VecDeque<(Span, Ask)>,
    /// Connections without a request.
    idle: Vec<usize>,
    /// Per connection: the moment at which its request was due.
    asked: Vec<Option<Span>>,
}

impl Client {
    /// A client for traffic from `start` to `stop`.
    pub(super) fn new(of: &Memcached, (start, stop): (Span, Span), warmup: Span) -> Self {
        let starts: Box<dyn Iterator<Item = (Span, Ask)> + Send> =
            Box::new(of.starts().map(move |(at, ask)| (start + at, ask)));
        let connections = of.connections as usize;
        Self {
            starts: starts.peekable(),
            warmup,
            stop,
            waiting: VecDeque::new(),
            idle: (0..connections).rev().collect(),
            asked: vec![None; connections],
        }
    }

    /// Time of the next action that does not depend on an answer.
    pub(super) fn when(&mut self) -> Span {
        self.starts.peek().map_or(self.stop, |(at, _)| (*at).min(self.stop))
    }

    /// Whether the traffic has ended.
    pub(super) fn is_over(&self, now: Span) -> bool {
        now >= self.stop
    }

    /// Takes the requests that are due by `now`; returns how many of them are judged.
    pub(super) fn take_up(&mut self, now: Span) -> u64 {
        let mut judged = 0;
        let stop = self.stop;
        while let Some((at, ask)) = self.starts.next_if(|(at, _)| *at <= now && *at < stop) {
            judged += u64::from(at >= self.warmup);
            if self.waiting.len() < WAITING {
                self.waiting.push_back((at, ask));
            }
        }
        judged
    }

    /// Assigns the next due request to a connection, and returns both.
    pub(super) fn next(&mut self) -> Option<(usize, Ask)> {
        if self.waiting.is_empty() {
            return None;
        }
        let connection = self.idle.pop()?;
        let (due, ask) = self.waiting.pop_front()?;
        self.asked[connection] = Some(due);
        Some((connection, ask))
    }

    /// Ends the request on this connection. Returns its duration, if it is judged.
    pub(super) fn answered(&mut self, connection: usize, now: Span) -> Option<Span> {
        let due = self.asked[connection].take()?;
        self.idle.push(connection);
        (due >= self.warmup).then_some(now - due)
    }

    /// Removes a failed connection: its request is not done, and it gets no other.
    pub(super) fn broke(&mut self, connection: usize) {
        self.asked[connection] = None;
        self.idle.retain(|&idle| idle != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::{Arrivals, Spacing};
    use weir_units::Bytes;

    fn client(per_second: f64, connections: u32) -> Client {
        let of = Memcached {
            arrivals: Arrivals { per_second, spacing: Spacing::Fixed, seed: 1 },
            sets: 0.5,
            keys: 10,
            key: Bytes::new(8),
            value: Bytes::new(100),
            connections,
            congestion: "cubic".into(),
        };
        Client::new(&of, (Span::ZERO, Span::from_secs(1)), Span::from_millis(100))
    }

    /// Plays a second with a server that answers one request after the other, each in 100 us, and
    /// nothing in `stall` (ms). Gives how many were due, and the times in us.
    fn play(client: &mut Client, stall: std::ops::Range<u64>) -> (u64, Vec<u64>) {
        let (mut due, mut times) = (0, Vec::new());
        let mut asked = VecDeque::new();
        for us in (0..=1_000_000).step_by(100) {
            let now = Span::from_micros(us);
            if !stall.contains(&(us / 1000))
                && let Some(connection) = asked.pop_front()
            {
                times.extend(client.answered(connection, now).map(|t| t.as_nanos() / 1000));
            }
            due += client.take_up(now);
            while let Some((connection, _)) = client.next() {
                assert!(!asked.contains(&connection), "two requests on a connection");
                asked.push_back(connection);
            }
        }
        (due, times)
    }

    #[test]
    fn a_server_that_stalls_is_seen_by_all_who_would_have_asked_meanwhile() {
        for connections in [1, 10] {
            let (due, times) = play(&mut client(1000.0, connections), 400..700);
            assert!((899..=901).contains(&due), "{due}: a stall does not slow the asking");
            assert!(due - times.len() as u64 <= 1, "{} of {due}", times.len());
            // 300 were due while it stalled, evenly: two thirds of them waited for 100 ms or more.
            let slow = times.iter().filter(|&&us| us >= 100_000).count();
            assert!((190..=240).contains(&slow), "{connections}: {slow}");
            let most = times.iter().max().expect("some");
            assert!((295_000..=305_000).contains(most), "{connections}: {most} us");
        }
    }

    #[test]
    fn a_server_that_keeps_up_is_as_fast_as_it_is() {
        let (due, times) = play(&mut client(1000.0, 4), 0..0);
        assert_eq!((due as usize).abs_diff(times.len()) / 2, 0, "{due} {}", times.len());
        assert!(times.iter().all(|&us| us <= 200), "{:?}", times.iter().max());
    }

    #[test]
    fn what_was_due_in_the_warmup_or_after_the_end_does_not_count() {
        let mut client = client(100.0, 1);
        assert_eq!(client.take_up(Span::from_millis(99)), 0);
        let (connection, _) = client.next().expect("some were due");
        assert_eq!(client.answered(connection, Span::from_millis(500)), None);
        assert_eq!(client.take_up(Span::from_secs(5)), 90);
        assert_eq!(client.when(), Span::from_secs(1));
        assert!(client.is_over(Span::from_secs(1)) && !client.is_over(Span::from_millis(999)));
    }

    #[test]
    fn a_connection_that_broke_gets_no_more_requests() {
        let mut client = client(100.0, 2);
        client.take_up(Span::from_millis(500));
        let (first, _) = client.next().expect("one");
        let (second, _) = client.next().expect("another");
        assert!(first != second && client.next().is_none());
        client.broke(first);
        assert_eq!(client.answered(first, Span::from_millis(600)), None);
        assert!(client.next().is_none(), "it is not idle either");
        client.answered(second, Span::from_millis(600));
        assert_eq!(client.next().expect("the other one works").0, second);
    }
}
