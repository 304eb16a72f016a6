//! A wire between the two halves of the switch that delays, loses and reorders: frames pass through
//! two TAPs and a thread of the test. Kernels without netem have nothing that does.

use crate::net::World;
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest frame: an MTU, its header, and room.
const FRAME: usize = 2048;

/// What a wire does to frames, in both directions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ills {
    /// Of all frames, one way.
    pub(crate) delay: Duration,
    /// Of so many frames one is lost, by chance; none if zero.
    pub(crate) lost_of: u64,
    /// Of so many frames one is late, by chance; none if zero.
    pub(crate) late_of: u64,
    /// By so much.
    pub(crate) late: Duration,
}

/// What the thread and its owner share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Chances begin anew from this, if it is not zero.
    seed: AtomicU64,
    lost: AtomicU64,
    overtaken: AtomicU64,
}

pub(crate) struct Wire {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Cuts the world's switch in two, and puts a wire between.
    pub(crate) fn cut(world: &World, ills: Ills) -> Self {
        let taps = world.inside("switch", || {
            ["tap1", "tap2"].map(|name| weir_dataplane::tap::open(name, 0).expect("as root"))
        });
        world.ip("switch", "link add name br2 type bridge mcast_snooping 0");
        world.ip("switch", "link set dev br2 up");
        for (port, bridge) in [("tap1", "br"), ("tap2", "br2"), ("sw2", "br2")] {
            world.ip("switch", &format!("link set dev {port} master {bridge}"));
            world.ip("switch", &format!("link set dev {port} up"));
        }
        let begun = Instant::now();
        while world.ip("switch", "-d link show").matches("state forwarding").count() < 4 {
            assert!(begun.elapsed() < Duration::from_secs(10), "the halves do not carry");
            std::thread::sleep(Duration::from_millis(10));
        }
        let shared = Arc::new(Shared::default());
        let (theirs, random) = (Arc::clone(&shared), Random(1));
        let mut carrier = Carrier {
            ills,
            taps,
            flying: BinaryHeap::new(),
            carried: 0,
            latest: [0; 2],
            random,
            shared: theirs,
        };
        let thread = Some(std::thread::spawn(move || carrier.run()));
        Self { shared, thread }
    }

    /// From now on the same chances as after any other call with this seed.
    pub(crate) fn again(&self, seed: u64) {
        self.shared.seed.store(seed, Ordering::Relaxed);
    }

    /// Frames that were lost, and such as arrived after a later one of their direction.
    pub(crate) fn suffered(&self) -> [u64; 2] {
        [&self.shared.lost, &self.shared.overtaken].map(|n| n.load(Ordering::Relaxed))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        // A second panic would hide the first one.
        assert!(std::thread::panicking() || !matches!(ended, Some(Err(_))), "the wire broke");
    }
}

/// When a frame is due, its number, where it goes and the frame.
type Flight = Reverse<(Instant, u64, usize, Vec<u8>)>;

struct Carrier {
    ills: Ills,
    taps: [File; 2],
    flying: BinaryHeap<Flight>,
    carried: u64,
    latest: [u64; 2],
    random: Random,
    shared: Arc<Shared>,
}

impl Carrier {
    fn run(&mut self) {
        let mut frame = [0; FRAME];
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let due = self.flying.peek().map(|Reverse((at, ..))| at.saturating_duration_since(now));
            self.wait(due.unwrap_or(Duration::from_millis(20)).min(Duration::from_millis(20)));
            match self.shared.seed.swap(0, Ordering::Relaxed) {
                0 => {}
                seed => self.random = Random(seed),
            }
            for from in [0, 1] {
                // What cannot be read now is read in the next round.
                while let Ok(length) = self.taps[from].read(&mut frame) {
                    self.take(1 - from, &frame[..length]);
                }
            }
            while self.flying.peek().is_some_and(|Reverse((at, ..))| *at <= Instant::now()) {
                let Some(Reverse((_, number, to, frame))) = self.flying.pop() else { break };
                let is_overtaken = number < self.latest[to];
                self.shared.overtaken.fetch_add(u64::from(is_overtaken), Ordering::Relaxed);
                self.latest[to] = self.latest[to].max(number);
                // A half that is down is a network that loses.
                let _ = self.taps[to].write(&frame);
            }
        }
    }

    fn take(&mut self, to: usize, frame: &[u8]) {
        let ills = self.ills;
        let [is_lost, is_late] =
            [ills.lost_of, ills.late_of].map(|of| of > 0 && self.random.below(of) == 0);
        if is_lost {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.carried += 1;
        let late = if is_late { ills.late } else { Duration::ZERO };
        let at = Instant::now() + ills.delay + late;
        self.flying.push(Reverse((at, self.carried, to, frame.to_vec())));
    }

    /// Until a frame has come, or for so long.
    fn wait(&self, most: Duration) {
        let mut polled = self.taps.each_ref().map(|tap| libc::pollfd {
            fd: tap.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let (tv_sec, tv_nsec) = (most.as_secs() as _, most.subsec_nanos().into());
        let most = libc::timespec { tv_sec, tv_nsec };
        // SAFETY: two live descriptors and a time that outlive the call; no mask of signals.
        unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const most, std::ptr::null()) };
    }
}
