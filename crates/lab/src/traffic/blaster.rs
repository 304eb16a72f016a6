//! Threads that send UDP.
//!
//! Problem   A packet passes the whole network, queue after queue, on the CPU of its sender. One
//!           thread that sends for hundreds of sources keeps one CPU busy while others idle.
//! Approach  Sources are dealt to a few threads. Each thread wakes on a tick and sends what is due
//!           of its own sources, a few packets at a time in turn.
//! Promises  Packets of different senders mix, also after a thread came late. No source waits for a
//!           socket.
//! Not here  Which packets are due: see `udp`.

use super::Tally;
use super::sockets::Entry;
use super::udp::Pacer;
use crate::Error;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// Packets of one source handed to the kernel in one call before the next source.
const IN_TURN: usize = 8;
/// The largest payload.
const OFFERED: usize = 64 * 1024;
/// Packets that a tick sends, about. A larger burst would leave the queue half empty until the next
/// tick, and another sender would find room in between that a steady stream does not leave.
const PER_TICK: f64 = 6.0;
const FASTEST_TICK: Duration = Duration::from_micros(200);
const SLOWEST_TICK: Duration = Duration::from_millis(1);

/// A source, driven by the tick alone.
pub(crate) struct Source {
    fd: OwnedFd,
    pacer: Pacer,
    payload: usize,
    start: Span,
    stop: Span,
}

/// Takes the senders out of all entries that are UDP.
pub(crate) fn sources(scenario: &Scenario, entries: &mut [(usize, Entry)]) -> Vec<Source> {
    let mut sources = Vec::new();
    for (i, entry) in entries {
        let traffic = &scenario.traffic[*i];
        let TrafficKind::Udp { rate, on, off, payload } = &traffic.kind else { continue };
        for fd in std::mem::take(&mut entry.senders) {
            let pacer = Pacer::new(*rate, (traffic.ip, *payload), *on, *off, sources.len());
            let payload = payload.get() as usize;
            sources.push(Source { fd, pacer, payload, start: traffic.start, stop: traffic.stop });
        }
    }
    sources
}

/// One thread's sources, and its clock.
pub(crate) struct Blaster {
    origin: Instant,
    tally: Arc<Tally>,
    timer: TimerFd,
    tick: Duration,
    sources: Vec<Source>,
    /// Source that sends first in a tick. It rotates, because in a full queue the first one finds
    /// room.
    turn: usize,
}

impl Blaster {
    pub(crate) fn new(
        sources: Vec<Source>,
        tally: Arc<Tally>,
        origin: Instant,
    ) -> Result<Self, Error> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
            .map_err(Error::kernel("make a timer"))?;
        let mut blaster = Self { origin, tally, timer, tick: Duration::ZERO, sources, turn: 0 };
        blaster.set_tick(SLOWEST_TICK).map_err(Error::kernel("set a timer"))?;
        Ok(blaster)
    }

    /// Sends until told to stop.
    pub(crate) fn run(&mut self) {
        let zeros = vec![0; OFFERED];
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(IN_TURN, None);
        while !self.tally.stop.load(Ordering::Relaxed) {
            // How many ticks passed does not matter.
            let _ = self.timer.wait();
            let now = Span::from(self.origin.elapsed());
            self.adapt(now);
            self.send(now, &zeros, &mut headers);
        }
    }

    /// Removes finished sources, and adapts the tick to the rest.
    fn adapt(&mut self, now: Span) {
        self.sources.retain(|source| now < source.stop);
        let active = self.sources.iter().filter(|source| source.start <= now);
        let packets: f64 = active.map(|source| source.pacer.packets_per_second()).sum();
        let tick = Duration::from_secs_f64((PER_TICK / packets.max(1.0)).min(1.0))
            .clamp(FASTEST_TICK, SLOWEST_TICK);
        if tick != self.tick && self.set_tick(tick).is_err() {
            self.tally.complain(|| "a sender's timer could not be set".into());
        }
    }

    fn set_tick(&mut self, tick: Duration) -> Result<(), Errno> {
        self.tick = tick;
        let interval = Expiration::Interval(TimeSpec::from_duration(tick));
        self.timer.set(interval, TimerSetTimeFlags::empty())
    }

    /// Sends what is due of every source, a few packets at a time in turn, and begins each tick
    /// with another source. So packets of several senders mix, also after the thread came late.
    fn send(&mut self, now: Span, zeros: &[u8], headers: &mut MultiHeaders<SockaddrStorage>) {
        if self.sources.is_empty() {
            return;
        }
        let count = self.sources.len();
        self.turn = (self.turn + 1) % count;
        let mut waiting = Vec::new();
        for i in (0..count).map(|i| (self.turn + i) % count) {
            let source = &mut self.sources[i];
            if now < source.start {
                continue;
            }
            let due = source.pacer.due(now - source.start);
            if due.now + due.late > 0 {
                self.tally.due.fetch_add(due.now + due.late, Ordering::Relaxed);
                self.tally.late.fetch_add(due.late, Ordering::Relaxed);
                waiting.push((i, due.now as usize));
            }
        }
        while !waiting.is_empty() {
            for (i, left) in &mut waiting {
                let some = (*left).min(IN_TURN);
                let sent = send_packets(&self.sources[*i], some, zeros, headers);
                self.tally.refused.fetch_add((some - sent) as u64, Ordering::Relaxed);
                *left -= some;
            }
            waiting.retain(|&(_, left)| left > 0);
        }
    }
}

/// Sends up to `IN_TURN` packets; gives how many the socket took.
fn send_packets(
    source: &Source,
    count: usize,
    zeros: &[u8],
    headers: &mut MultiHeaders<SockaddrStorage>,
) -> usize {
    let packet = [IoSlice::new(&zeros[..source.payload])];
    let addresses = [None; IN_TURN];
    let fd = source.fd.as_raw_fd();
    let packets = std::iter::repeat_n(&packet, count);
    sendmmsg(fd, headers, packets, &addresses[..count], [], MsgFlags::MSG_DONTWAIT)
        .map_or(0, Iterator::count)
}
