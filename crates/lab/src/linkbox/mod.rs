//! A link in user space, for queues that the kernel does not have.
//!
//! Problem   A bare kernel has no queue with exact octets, RED, delay, random loss or several
//!           paths. Experiments with ECN and windows need a round trip that is not 40 us.
//! Approach  The link's two ends are TAPs, and a thread of the lab carries frames from one to the
//!           other. `queue`, a machine without a clock, decides when a frame arrives at the far
//!           end. The thread only has to be there in time.
//! Promises  The mean rate is exact however late the thread wakes, because lateness is not carried
//!           on. Frames that arrive late are counted, and reported at the end.
//! Not here  Links that only have a rate and a buffer: see `ports`. One box carries some 200 Mb/s.

pub mod packet;
mod queue;
mod thread;

use crate::Error;
use crate::ports::Passed;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use weir_model::scenario::Link;

/// One link between two TAPs; dropping it ends its thread and removes the TAPs.
pub(crate) struct LinkBox {
    link: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// State that the carrying thread publishes.
#[derive(Default)]
struct Shared {
    /// a→b, then b→a.
    directions: [Direction; 2],
    stop: AtomicBool,
}

/// One direction's account.
#[derive(Default)]
struct Direction {
    octets: AtomicU64,
    drops: AtomicU64,
    marks: AtomicU64,
    packets: AtomicU64,
    overtaken: AtomicU64,
    /// Packets that arrived more than [`thread::LATE`] after their time.
    late: AtomicU64,
}

impl LinkBox {
    /// Starts to carry frames of `link` between its ends `a` and `b`, which are TAPs. `by_switch`
    /// says for each end whether a switch sends there.
    pub(crate) fn start(link: &Link, ends: [File; 2], by_switch: [bool; 2]) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let carrier = thread::Carrier::new(link, ends, by_switch, Arc::clone(&shared));
        let name = format!("link {}", link.name);
        let thread = std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn(move || carrier.run())
            .map_err(Error::io(format!("start the box of link {}", link.name)))?;
        Ok(Self { link: link.name.clone(), shared, thread: Some(thread) })
    }

    /// What passed so far: a→b, b→a. An error if the thread has ended.
    pub(crate) fn passed(&mut self) -> Result<[Passed; 2], Error> {
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            let ended = self.thread.take().map(JoinHandle::join);
            match ended {
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => panic!("the box of link {} ends only when told to", self.link),
            }
        }
        let read = |d: &Direction| Passed {
            octets: d.octets.load(Ordering::Relaxed),
            drops: d.drops.load(Ordering::Relaxed),
            marks: d.marks.load(Ordering::Relaxed),
            overtaken: d.overtaken.load(Ordering::Relaxed),
        };
        Ok([read(&self.shared.directions[0]), read(&self.shared.directions[1])])
    }

    /// Notes for a reader of the results.
    pub(crate) fn note(&self) -> Option<String> {
        let sum = |of: fn(&Direction) -> &AtomicU64| -> u64 {
            self.shared.directions.iter().map(|d| of(d).load(Ordering::Relaxed)).sum()
        };
        let (late, packets) = (sum(|d| &d.late), sum(|d| &d.packets));
        (late * 100 > packets).then(|| {
            let share = late as f64 / packets as f64 * 100.0;
            format!(
                "the box of link {} carried {share:.1} % of its packets more than {} too late: this \
                 machine was too busy",
                self.link,
                thread::LATE
            )
        })
    }
}

impl Drop for LinkBox {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The counters were read with `passed`; now everything is removed.
            let _ = thread.join();
        }
    }
}
