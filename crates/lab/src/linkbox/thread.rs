//! Carries frames: reads them from one TAP, holds them until their time, writes them to the other.
//!
//! Problem   A timer here is 30 us late and costs 30 us of a CPU, and a frame is due every 60 us.
//! Approach  While few frames come, the thread sleeps until a frame comes or shortly before one is
//!           due, then spins briefly, so that times are exact to about 10 us. While many frames
//!           come, it sleeps for a fixed time and then handles all frames at once: 50 us do not
//!           matter in a queue of milliseconds.
//! Promises  Bounded CPU: ten thousand wakes per second and box. The thread never spins for longer
//!           than [`LEAD`]. It has no real-time scheduling class, because a thread that may not be
//!           preempted starves the kernel.

use super::queue::{Arrival, Queue};
use super::{Shared, packet};
use crate::Error;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use nix::unistd::{read, write};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::Link;
use weir_units::{Bytes, Span, Time};

/// A frame that arrives this much after its time is late.
pub(super) const LATE: Span = Span::from_micros(500);
/// How much before a frame is due the thread wants to wake: about as late as timers are.
const LEAD: Span = Span::from_micros(50);
/// How long a frame has waited for the thread that it woke. Counted as time on the way.
const WOKE: Span = Span::from_micros(25);
/// How much too early a frame may arrive while little happens.
const EARLY: Span = Span::from_micros(5);
/// How long to sleep while a lot happens; frames are then up to half of it too early.
const WHILE: Span = Span::from_micros(100);
/// How often in a row the thread may wake before its sleeps get longer.
const WAKES: u32 = 8;
/// How long it takes to earn another such wake.
const EARN: Span = Span::from_micros(400);
/// How long to sleep while nothing happens: how fast the end is noticed.
const IDLE: Span = Span::from_millis(20);
/// The largest frame: an MTU of 1500, its header, a tag, and room.
const FRAME: usize = 2048;
/// Frames read from one end before the other has its turn.
const AT_ONCE: usize = 64;
/// Empty buffers that are kept.
const SPARE: usize = 1024;

/// The thread's belongings.
pub(super) struct Carrier {
    link: String,
    ends: [File; 2],
    /// a→b, b→a.
    queues: [Queue<Vec<u8>>; 2],
    shared: Arc<Shared>,
    origin: Instant,
    spare: Vec<Vec<u8>>,
    /// How many wakes are free, and since when they are counted.
    wakes: (u32, Time),
    /// How long the frames that are there now have waited, if one of them woke the thread.
    waited: Span,
}

impl Carrier {
    pub(super) fn new(
        link: &Link,
        ends: [File; 2],
        by_switch: [bool; 2],
        shared: Arc<Shared>,
    ) -> Self {
        // The same chances in every run, and not the same in both directions.
        let queues = [Queue::new(link, by_switch[0], 1), Queue::new(link, by_switch[1], 2)];
        Self {
            link: link.name.clone(),
            ends,
            queues,
            shared,
            origin: Instant::now(),
            spare: Vec::new(),
            wakes: (WAKES, Time::ZERO),
            waited: Span::ZERO,
        }
    }

    /// Carries until told to stop, or until an end is gone.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let doing = format!("carry packets of link {}", self.link);
        // By default the kernel may add 50 us to each sleep.
        let _ = nix::sys::prctl::set_timerslack(1);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let calm = self.is_calm();
            let more = self.receive().map_err(Error::kernel(&doing))?;
            let tolerance = if calm { EARLY } else { Span::from_nanos(WHILE.as_nanos() / 2) };
            self.deliver(tolerance).map_err(Error::kernel(&doing))?;
            if more {
                continue;
            }
            let due = self.queues.iter().filter_map(Queue::next).min();
            let sleep = match due {
                _ if !calm => self.sleep(WHILE, false).map(drop),
                None => self.sleep(IDLE, true).map(drop),
                Some(due) => self.sleep_until(due),
            };
            sleep.map_err(Error::kernel(&doing))?;
        }
        Ok(())
    }

    fn now(&self) -> Time {
        Time::from_nanos(Span::from(self.origin.elapsed()).as_nanos())
    }

    /// Whether the thread woke seldom lately. Counts this wake.
    fn is_calm(&mut self) -> bool {
        let now = self.now();
        let (left, since) = self.wakes;
        let earned = now.since(since).div_span(EARN);
        let left = (u64::from(left) + earned).min(u64::from(WAKES)) as u32;
        let since = if earned > 0 { now } else { since };
        self.wakes = (left.saturating_sub(1), since);
        left > 0
    }

    /// Takes frames from both ends; whether there may be more.
    fn receive(&mut self) -> Result<bool, Errno> {
        let mut more = false;
        for end in 0..2 {
            let mut room = AT_ONCE;
            while room > 0 && self.receive_one(end)? {
                room -= 1;
            }
            more |= room == 0;
            let (counts, shared) = (self.queues[end].counts(), &self.shared.directions[end]);
            shared.drops.store(counts.drops, Ordering::Relaxed);
            shared.marks.store(counts.marks, Ordering::Relaxed);
        }
        Ok(more)
    }

    /// Takes a frame from an end, if there is one.
    fn receive_one(&mut self, end: usize) -> Result<bool, Errno> {
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.resize(FRAME, 0);
        let length = match read(&self.ends[end], &mut frame) {
            Ok(length) => length,
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.spare.push(frame);
                return Ok(false);
            }
            Err(errno) => return Err(errno),
        };
        frame.truncate(length);
        let arrival = Arrival {
            size: Bytes::new(length as u64),
            ecn_capable: packet::is_ecn_capable(&frame),
            flow: packet::flow(&frame),
            pair: packet::pair(&frame),
        };
        // Later ones may have come in this very moment: a few microseconds, in the order they came.
        let came = Time::from_nanos(self.now().as_nanos().saturating_sub(self.waited.as_nanos()));
        let dropped = self.queues[end].offer(came, arrival, frame, |frame| packet::mark(frame));
        dropped.into_iter().for_each(|frame| self.reuse(frame));
        Ok(true)
    }

    /// Writes what is due to the far ends.
    fn deliver(&mut self, tolerance: Span) -> Result<(), Errno> {
        for direction in 0..2 {
            let now = self.now();
            let mut late = 0;
            while let Some((at, frame)) = self.queues[direction].pop(now + tolerance) {
                late += u64::from(now.since(at) > LATE);
                match write(&self.ends[1 - direction], &frame) {
                    // An end that is down, or short of memory, is a network that loses.
                    Ok(_) | Err(Errno::EIO | Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => {}
                    Err(errno) => return Err(errno),
                }
                self.reuse(frame);
            }
            let (counts, shared) =
                (self.queues[direction].counts(), &self.shared.directions[direction]);
            shared.octets.store(counts.octets, Ordering::Relaxed);
            shared.packets.store(counts.packets, Ordering::Relaxed);
            shared.overtaken.store(counts.overtaken, Ordering::Relaxed);
            shared.late.fetch_add(late, Ordering::Relaxed);
        }
        Ok(())
    }

    fn reuse(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }

    /// Sleeps until shortly before `due`, or until a frame comes; then spins the rest.
    fn sleep_until(&mut self, due: Time) -> Result<(), Errno> {
        let left = due.since(self.now());
        if left > LEAD && self.sleep((left - LEAD).min(IDLE), true)? {
            return Ok(());
        }
        // Whatever woke it late has used up the rest, and nothing is left to spin.
        let until = self.now() + LEAD;
        while self.now() < due && self.now() < until {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Sleeps for at most `span`, or until a frame comes if that is of interest; whether one came.
    fn sleep(&mut self, span: Span, frames: bool) -> Result<bool, Errno> {
        let mut fds = self.ends.each_ref().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
        let fds = if frames { &mut fds[..] } else { &mut [] };
        let from = self.now();
        let polled = ppoll(fds, Some(TimeSpec::from_duration(Duration::from(span))), None);
        self.waited = Span::ZERO;
        match polled {
            Ok(n) => {
                if n > 0 {
                    self.waited = WOKE.min(self.now().since(from));
                }
                Ok(n > 0)
            }
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
