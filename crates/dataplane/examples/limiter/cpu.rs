//! Where CPUs' time went.
//!
//! All but idle time: whatever a packet costs is in it, also in interrupts, timers, agents and what
//! the kernel does on no process's account. The kernel counts idle time by its clock and not by
//! ticks (NO_HZ), to 10 ms here: the only account in /proc/stat that is exact.

use crate::Result;
use std::time::{Duration, Instant};

/// `USER_HZ`.
const TICK: f64 = 0.01;

/// A moment.
pub(crate) struct Busy {
    at: Instant,
    idle: Vec<f64>,
    stolen: Vec<f64>,
    interrupts: Interrupts,
}

/// Interrupts of all CPUs together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Interrupts {
    /// A timer was due.
    pub(crate) timers: f64,
    /// Another CPU wants something done, or a task run.
    pub(crate) calls: f64,
}

impl Interrupts {
    fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/interrupts")?;
        let of = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
            let words = line.unwrap_or("").split_whitespace();
            words.map_while(|word| word.parse::<f64>().ok()).sum()
        };
        Ok(Self { timers: of("LOC:"), calls: of("RES:") + of("CAL:") })
    }
}

/// Since then.
pub(crate) struct Used {
    pub(crate) seconds: f64,
    /// Seconds per CPU.
    pub(crate) busy: Vec<f64>,
    /// The least of any CPU, the most of any; 0 to 1.
    pub(crate) idle: f64,
    pub(crate) stolen: f64,
    pub(crate) interrupts: Interrupts,
}

impl Busy {
    pub(crate) fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let at = Instant::now();
        let (mut idle, mut stolen) = (Vec::new(), Vec::new());
        for line in text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "))
        {
            let words: Vec<f64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
            let word = |n: usize| words.get(n).copied().unwrap_or(0.0) * TICK;
            idle.push(word(3) + word(4));
            stolen.push(word(7));
        }
        if idle.len() < 2 {
            return Err("two hosts need two CPUs".into());
        }
        Ok(Self { at, idle, stolen, interrupts: Interrupts::now()? })
    }

    pub(crate) fn since(&self) -> Result<Used> {
        let now = Self::now()?;
        let seconds = (now.at - self.at).as_secs_f64();
        let spent = |now: &[f64], then: &[f64]| -> Vec<f64> {
            now.iter().zip(then).map(|(now, then)| now - then).collect()
        };
        let (idle, stolen) = (spent(&now.idle, &self.idle), spent(&now.stolen, &self.stolen));
        let part =
            |all: &[f64], f: fn(f64, f64) -> f64| all.iter().copied().reduce(f).unwrap_or(0.0);
        Ok(Used {
            seconds,
            busy: idle.iter().zip(&stolen).map(|(i, s)| (seconds - i - s).max(0.0)).collect(),
            idle: part(&idle, f64::min) / seconds,
            stolen: part(&stolen, f64::max) / seconds,
            interrupts: Interrupts {
                timers: now.interrupts.timers - self.interrupts.timers,
                calls: now.interrupts.calls - self.interrupts.calls,
            },
        })
    }
}

/// Length of a look, and the part of a CPU that may be busy then.
const LOOK: Duration = Duration::from_millis(200);
const QUIET: f64 = 0.15;

/// Whether no other process uses a CPU: `own` are the seconds of each CPU that the play had. Not
/// at once after a play: packets in flight may arrive.
pub(crate) fn is_quiet(own: impl Fn() -> [f64; 2]) -> Result<bool> {
    std::thread::sleep(LOOK / 4);
    let (then, before) = (Busy::now()?, own());
    std::thread::sleep(LOOK);
    let (used, own) = (then.since()?, gained(own(), before));
    Ok(used.busy.iter().zip(own).all(|(busy, own)| busy - own < QUIET * used.seconds))
}

/// CPU by CPU.
pub(crate) fn gained(after: [f64; 2], before: [f64; 2]) -> [f64; 2] {
    [after[0] - before[0], after[1] - before[1]]
}

/// This thread runs there from now on.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: a set of CPUs on the stack, of the size that is told; zero is a valid one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}
