//! Streams of datagrams at a rate, and what arrives of them.
//!
//! Problem   "The way carries 500 Mb/s" is a claim about frames that arrive, and neither a burst that a
//!           switch drops nor a sender that is too slow may decide it.
//! Approach  Datagrams in bursts of 100 µs, on a schedule. A late sender makes up for 10 ms of it and
//!           forgets the rest, so the sender's own rate is measured, too. The kernel cuts a burst
//!           into datagrams where it can.
//! Promises  Ends by itself, soon after `stop`, and within its budget of octets.
//! Not here  Whether a stream may begin: see `desk`.

use super::header::{UDP_HEADER, ip_header};
use super::note::{Note, Start, encode};
use super::sockets;
use crate::driver::now;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_units::{Bytes, Rate, Span, Time};

/// What one call sends at most, in time. Longer: bursts that no queue of a switch has room for.
const BURST: Span = Span::from_micros(100);
/// What a late sender makes up for.
const OWED: Span = Span::from_millis(10);
/// Octets of one call: a UDP datagram's limit, with room for its headers.
const MOST: usize = 65_000;
/// Segments of one call that every kernel cuts.
pub(crate) const SEGMENTS: usize = 64;
/// Ethernet's header: Weir counts frames with it.
const ETHERNET: usize = 14;
/// Where a datagram's number is.
const NUMBER_AT: usize = 28;
/// Longest wait before `stop` and the end are looked at again. A longer one keeps a slow stream's thread, and
/// a server that ends, for as long as one datagram takes at that rate: hours at 1 bit/s.
const TURN: Span = Span::from_millis(10);
/// Between two tries, when the device's queue is full.
const FULL: Span = Span::from_micros(200);

/// Octets of a frame with a datagram of `size` octets, as Weir counts them.
pub(crate) const fn frame(size: usize, is_v6: bool) -> u64 {
    (ETHERNET + ip_header(is_v6) + UDP_HEADER + size) as u64
}

/// What a sender has done, for another thread to see.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Set by the other thread.
    pub(crate) stop: AtomicBool,
    pub(crate) is_done: AtomicBool,
    pub(crate) datagrams: AtomicU64,
    /// From the first to the last datagram, nanoseconds.
    pub(crate) lasted: AtomicU64,
}

/// A stream to be sent.
pub(crate) struct Order {
    pub(crate) to: SocketAddr,
    pub(crate) start: Start,
    /// A datagram of it.
    pub(crate) note: Note,
    /// Octets of payload that it may take.
    pub(crate) budget: u64,
}

/// Sends a stream.
pub(crate) fn send(socket: &UdpSocket, order: &Order, progress: &Progress) {
    let size = usize::from(order.start.size);
    let frame = frame(size, order.to.is_ipv6());
    let rate = Rate::from_bps(order.start.rate);
    let (span, began) = (Span::from_millis(order.start.millis.into()), now());
    let burst = (rate.bytes_in(BURST).get() / frame).max(1) as usize;
    let burst = burst.min(SEGMENTS).min((MOST / size).max(1));
    let one = encode(&order.note, size);
    let mut octets = one.repeat(burst);
    let (mut sent, mut schedule, mut cuts) = (0_u64, Schedule { began, sent: 0 }, true);
    let most = order.budget / size as u64;
    loop {
        let at = now();
        if at.since(began) >= span || sent >= most || progress.stop.load(Ordering::Relaxed) {
            break;
        }
        let due = schedule.due(at, rate, frame);
        if due < burst as u64 {
            let next = rate.time_for(Bytes::new(frame * (burst as u64 - due)));
            sockets::wait(&mut [], next.min(TURN));
            continue;
        }
        let count = burst.min((most - sent) as usize);
        for (n, datagram) in octets.chunks_exact_mut(size).take(count).enumerate() {
            let number = (sent as u32).wrapping_add(n as u32);
            datagram[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.to_be_bytes());
        }
        let went = transmit(socket, order, &octets[..count * size], &mut cuts);
        if went == 0 {
            sockets::wait(&mut [], FULL);
        }
        schedule.sent += went;
        sent += went;
        progress.datagrams.store(sent, Ordering::Relaxed);
        progress.lasted.store(now().since(began).as_nanos(), Ordering::Relaxed);
    }
    progress.is_done.store(true, Ordering::Release);
}

/// Datagrams that went out. `cuts` becomes false where the kernel does not cut bursts for this device.
fn transmit(socket: &UdpSocket, order: &Order, octets: &[u8], cuts: &mut bool) -> u64 {
    use nix::errno::Errno;
    let (size, count) = (order.start.size, octets.len() / usize::from(order.start.size));
    if *cuts {
        match sockets::send_segments(socket, order.to, octets, size) {
            Ok(()) => return count as u64,
            Err(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE | Errno::ENOPROTOOPT) => *cuts = false,
            Err(_) => return 0,
        }
    }
    let mut datagrams = octets.chunks_exact(size.into());
    let refused =
        datagrams.position(|one| sockets::send_segments(socket, order.to, one, size).is_err());
    refused.unwrap_or(count) as u64
}

/// When datagrams are due.
struct Schedule {
    began: Time,
    sent: u64,
}

impl Schedule {
    /// Datagrams that are due now, without what is older than [`OWED`].
    fn due(&mut self, at: Time, rate: Rate, frame: u64) -> u64 {
        let all = rate.bytes_in(at.since(self.began)).get() / frame;
        let most = (rate.bytes_in(OWED).get() / frame).max(1);
        let due = all.saturating_sub(self.sent);
        self.sent += due.saturating_sub(most);
        due.min(most)
    }
}

/// Counts what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) datagrams: u64,
    first: Option<Time>,
    last: Option<Time>,
}

impl Arrivals {
    pub(crate) fn add(&mut self, at: Time) {
        self.datagrams += 1;
        self.first.get_or_insert(at);
        self.last = Some(at);
    }

    /// From the first to the last of them.
    pub(crate) fn lasted(&self) -> Span {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Span::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_sender_makes_up_for_ten_milliseconds_and_no_more() {
        let (rate, frame) = (Rate::from_mbps(8), 1000);
        let mut schedule = Schedule { began: Time::from_nanos(0), sent: 0 };
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        assert_eq!(schedule.due(at(5), rate, frame), 5);
        schedule.sent += 5;
        assert_eq!(schedule.due(at(5), rate, frame), 0);
        assert_eq!(schedule.due(at(105), rate, frame), 10, "90 are forgotten");
        schedule.sent += 10;
        assert_eq!(schedule.due(at(106), rate, frame), 1);
    }

    #[test]
    fn a_stream_whose_first_datagram_is_due_in_hours_ends_in_its_time() {
        use super::super::note::Body;
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("bound");
        let start = Start { is_back: true, rate: 1, millis: 100, size: 1000 };
        let note = Note { session: 1, token: 1, number: 0, body: Body::Flow };
        let order = Order { to, start, note, budget: 1000 };
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            send(&socket, &order, &Progress::default());
            tell.send(()).expect("the test waits");
        });
        let ended = told.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(ended, Ok(()), "its thread waits on");
    }

    #[test]
    fn a_frame_is_counted_as_weir_counts_it() {
        assert_eq!(frame(1472, false), 1514);
        assert_eq!(frame(1452, true), 1514);
    }
}
