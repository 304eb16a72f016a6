//! Takes back what pairs borrow when the agent no longer renews its lease.
//!
//! Problem   A floor is a class's rate and stands without an agent. But the agent granted what a
//!           pair may use beyond it, while it watched for congestion. If the agent is dead or
//!           stuck, nothing watches.
//! Approach  A small process of its own watches the heartbeat. When the heartbeat has not changed
//!           for [`LEASE`], every pair's ceiling becomes its floor. The guardian goes on watching:
//!           an agent that returns finds the count of reclaims changed and writes its ceilings
//!           again. Agent and guardian watch each other, and a guardian that ends is replaced. If
//!           both end in one moment, the process that started them must call [`reclaim`], as the
//!           systemd unit does.
//! Promises  At most [`LEASE`] + two [`PERIOD`]s from the last heartbeat. It ends when the agent
//!           closes, or when a later guardian has begun, so one guardian watches however often an
//!           agent dies.
//! Not here  Floors, programs, redirects: they stay. Removing them: see `clean`.
//! Source    None: ElasticSwitch does not say what happens when a host's agent dies.

use crate::error::Error;
use crate::instance::{Instance, lock_file};
use crate::lease::Lease;
use crate::shaper;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a borrowed rate stays in force without a heartbeat. A longer lease risks the floors of
/// other VMs for longer; a shorter one ends while a busy agent still lives.
pub const LEASE: Duration = Duration::from_secs(1);
/// Interval at which the guardian reads the heartbeat.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Reason why a guardian ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The agent closed cleanly.
    Closed,
    /// The guardian was told to stop.
    Stopped,
    /// A later guardian watches, of an agent that returned.
    Relieved,
}

/// Takes back at once what pairs of this instance borrow. For use when the agent has ended and its
/// guardian may have ended with it (`ExecStopPost` of the service). Returns how many pairs had
/// borrowed; after a clean end none had. If an agent lives after all, it finds the count of
/// reclaims changed and writes its ceilings again.
///
/// # Errors
///
/// An invalid instance name; any refusal of the kernel.
pub fn reclaim(instance: &str, bpffs: &Path, run_dir: &Path) -> Result<usize, Error> {
    let instance = Instance::new(instance, bpffs, run_dir)?;
    let borrowed = shaper::reclaim(&shaper::device_name(&instance.name))?;
    // Without a heartbeat no agent needs to know.
    if let Ok(lease) = Lease::open(&instance.lease(), false)
        && borrowed > 0
    {
        lease.count_reclaim();
    }
    Ok(borrowed)
}

/// Watches an instance until its agent closes cleanly, a later guardian watches, or `stop` is set.
/// The agent must have opened, since its heartbeat must exist. Runs in the agent's network
/// namespace.
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
    // Only the owner of the lock takes back. The guardian of an agent that was killed may still own
    // it.
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
            // No other process could do it, so a refusal now is no reason to give up.
            if shaper::reclaim(&shaper::device_name(&instance.name)).is_ok() {
                lease.count_reclaim();
                reclaimed = true;
            }
        }
        std::thread::sleep(PERIOD);
    }
}
