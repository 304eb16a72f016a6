//! UDP that does not react to losses: the packets that are due at a time.
//!
//! Problem   A thread that wakes every fraction of a millisecond must offer an exact rate, and
//!           three hundred sources that start together must not fire together.
//! Approach  The packets that are due follow from the elapsed time, not from counted ticks. Each
//!           source starts with a different fraction of a packet in hand.
//! Promises  Over any time the packets due are rate × time on, within one packet, unless the thread
//!           slept: packets that are late by more than [`PATIENCE`] are given up and counted.
//! Not here  Sockets.

use weir_model::scenario::IpVersion;
use weir_units::{Bytes, Rate, Span};

/// Ethernet and UDP headers of one packet.
const HEADERS: u64 = 14 + 8;
/// Packets that are late by more than this are given up, because a burst of them would be a
/// different workload.
const PATIENCE: Span = Span::from_millis(20);

/// Decides when packets of one source are due.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    on: Option<Span>,
    off: Span,
    wire: u64,
    /// Octets in hand at the start, less than a packet.
    head_start: u64,
    /// Packets that were due so far, sent or not.
    spent: u64,
    /// Nothing is due before; only kept by sources without pauses.
    next: Span,
}

/// Packets of one source for one tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Packets to send now.
    pub(crate) now: u64,
    /// Packets given up because they are too late.
    pub(crate) late: u64,
}

impl Pacer {
    /// A source of `rate` on the wire with `payload` octets per packet. `number` distinguishes
    /// sources.
    pub(crate) fn new(
        rate: Rate,
        (ip, payload): (IpVersion, Bytes),
        on: Option<Span>,
        off: Option<Span>,
        number: usize,
    ) -> Self {
        let wire = payload.get() + ip.header() + HEADERS;
        // Multiples of the golden ratio spread evenly over a packet's length, however many.
        let phase = (number as f64 * 0.618_033_988_75).fract();
        Self {
            rate,
            on: on.filter(|_| off.is_some_and(|off| off > Span::ZERO)),
            off: off.unwrap_or(Span::ZERO),
            wire,
            head_start: (phase * wire as f64) as u64,
            spent: 0,
            next: Span::ZERO,
        }
    }

    /// Packets per second while on.
    pub(crate) fn packets_per_second(&self) -> f64 {
        self.rate.as_f64() / 8.0 / self.wire as f64
    }

    /// Packets that became due by `since_start`. A second call with the same time gives none.
    pub(crate) fn due(&mut self, since_start: Span) -> Due {
        if since_start < self.next {
            return Due { now: 0, late: 0 };
        }
        let octets = self.rate.bytes_in(self.time_on(since_start)).get() + self.head_start;
        let due = (octets / self.wire).saturating_sub(self.spent);
        self.spent += due;
        if self.on.is_none() {
            let needed = (self.spent + 1) * self.wire - self.head_start;
            self.next = self.rate.time_for(Bytes::new(needed));
        }
        let most = (self.rate.bytes_in(PATIENCE).get() / self.wire).max(2);
        let now = due.min(most);
        Due { now, late: due - now }
    }

    /// How much of the time since the start the source was on.
    fn time_on(&self, since_start: Span) -> Span {
        let Some(on) = self.on else { return since_start };
        let period = on + self.off;
        let whole = since_start.div_span(period);
        on * whole + (since_start - period * whole).min(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(on: Option<u64>, off: Option<u64>, number: usize) -> Pacer {
        // 1514 octets on the wire at 12.112 Mb/s: one packet per millisecond.
        let ms = |n: Option<u64>| n.map(Span::from_millis);
        let packet = (IpVersion::V4, Bytes::new(1472));
        Pacer::new(Rate::from_bps(12_112_000), packet, ms(on), ms(off), number)
    }

    fn total(pacer: &mut Pacer, until_ms: u64, step_us: u64) -> u64 {
        (1..=until_ms * 1000 / step_us).map(|i| pacer.due(Span::from_micros(i * step_us)).now).sum()
    }

    #[test]
    fn a_rate_is_exact_whatever_the_tick() {
        for step in [130, 250, 1000, 7000] {
            let sent = total(&mut pacer(None, None, 0), 910, step);
            assert!((909..=910).contains(&sent), "{sent} at {step} us");
        }
    }

    #[test]
    fn a_source_pauses_between_bursts() {
        let mut source = pacer(Some(10), Some(30), 0);
        assert_eq!(total(&mut source, 400, 1000), 100);
        let mut source = pacer(Some(10), Some(30), 0);
        assert_eq!(total(&mut source, 10, 500), 10);
        assert_eq!(source.due(Span::from_millis(39)), Due { now: 0, late: 0 });
        assert_eq!(source.due(Span::from_millis(42)), Due { now: 2, late: 0 });
    }

    #[test]
    fn sources_that_start_together_do_not_fire_together() {
        let mut first = vec![0; 1000];
        for number in 0..300 {
            let mut source = pacer(None, None, number);
            let at = (0..1000).find(|&us| source.due(Span::from_micros(us)).now > 0);
            first[at.unwrap_or(999) as usize] += 1;
        }
        assert!(first.iter().all(|&n| n <= 2), "{:?}", first.iter().max());
    }

    #[test]
    fn what_was_missed_for_long_is_given_up() {
        let mut source = pacer(None, None, 0);
        assert_eq!(source.due(Span::from_millis(100)), Due { now: 20, late: 80 });
        assert_eq!(source.due(Span::from_millis(101)), Due { now: 1, late: 0 });
    }
}
