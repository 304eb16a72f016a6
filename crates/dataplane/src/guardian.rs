//! Takes back what pairs borrow when the agent no longer renews its lease.
//!
//! Problem   A floor is a class's rate and stands without anybody alive. But what a pair may use
//!           beyond it was granted by an agent that watched for congestion; if that agent is dead
//!           or stuck, nobody does.
//! Approach  A small process of its own watches the heartbeat. When it has not changed for
//!           [`LEASE`], every pair's ceiling becomes its floor. It goes on watching: an agent that
//!           comes back finds the count of reclaims changed and writes its ceilings again.
//!           Agent and guardian watch each other: a guardian that ends is replaced. If both end in
//!           one moment, whoever started them must call [`reclaim`]: the systemd unit does.
//! Promises  At most [`LEASE`] + two [`PERIOD`]s from the last beat. Ends when the agent closes, or when
//!           a later guardian has begun: however often an agent dies, one guardian watches.
//! Not here  Floors, programs, redirects: they stay. Removing them: see `clean`.
//! Source    Departs from nothing: ElasticSwitch does not say what happens when a host agent dies.

use crate::error::Error;
use crate::instance::{Instance, lock_file};
use crate::lease::Lease;
use crate::shaper;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long what is borrowed may be used without a beat.
pub const LEASE: Duration = Duration::from_secs(1);
/// How often the guardian looks.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Why a guardian ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The agent closed cleanly.
    Closed,
    /// It was told to stop.
    Stopped,
    /// A later guardian watches, that of an agent that came back.
    Relieved,
}

/// Takes back at once what pairs of this instance borrow, whoever lives: for what is called when the
/// agent has ended and its guardian may have ended with it (`ExecStopPost` of the service). Says how
/// many had borrowed; nothing is there to take back after a clean end. An agent that lives after all
/// finds the count of reclaims changed and writes its ceilings again.
///
/// # Errors
///
/// A name that is none; whatever the kernel refuses.
pub fn reclaim(instance: &str, bpffs: &Path, run_dir: &Path) -> Result<usize, Error> {
    let instance = Instance::new(instance, bpffs, run_dir)?;
    let borrowed = shaper::reclaim(&shaper::device_name(&instance.name))?;
    // Without a heartbeat there is no agent to tell.
    if let Ok(lease) = Lease::open(&instance.lease(), false)
        && borrowed > 0
    {
        lease.count_reclaim();
    }
    Ok(borrowed)
}

/// Watches an instance until its agent closes cleanly, a later guardian watches, or `stop` is set. The agent must be open: its
/// heartbeat must be there. Runs in the agent's network namespace.
///
/// # Errors
///
/// No heartbeat, no lock file.
#[expect(clippy::disallowed_methods, reason = "a driver: it measures how long nothing happened")]
pub fn run(
    instance: &str,
    bpffs: &Path,
    run_dir: &Path,
    stop: &AtomicBool,
) -> Result<Ended, Error> {
    let instance = Instance::new(instance, bpffs, run_dir)?;
    let lease = Lease::open(&instance.lease(), false)?;
    let turn = lease.next_guardian();
    // Only who holds it takes back. The guardian of an agent that was killed may still have it.
    let mut lock = None;
    let mut last = (lease.last_beat(), Instant::now());
    let mut reclaimed = false;
    loop {
        if lease.is_closed() {
            return Ok(Ended::Closed);
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Ended::Stopped);
        }
        if lease.guardian() != turn {
            return Ok(Ended::Relieved);
        }
        if lock.is_none() {
            lock = lock_file(&instance.guardian_lock())?.ok();
        }
        let (beat, now) = (lease.last_beat(), Instant::now());
        if beat != last.0 {
            last = (beat, now);
            reclaimed = false;
        } else if lock.is_some() && !reclaimed && now.duration_since(last.1) >= LEASE {
            // Nobody else could do it: a refusal now is no reason not to try again.
            if shaper::reclaim(&shaper::device_name(&instance.name)).is_ok() {
                lease.count_reclaim();
                reclaimed = true;
            }
        }
        std::thread::sleep(PERIOD);
    }
}
