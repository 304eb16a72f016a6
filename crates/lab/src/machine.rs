//! State of the machine during a run: idle time, CPU time of processes, packets lost inside it.
//!
//! Problem   An emulation on a saturated CPU measures the CPU.
//! Approach  The kernel's own accounts in `/proc`, read every 100 ms.
//! Promises  It only reads.
//! Not here  Whether a run is valid: `weir` judges.
//! Source    proc_stat(5), proc_pid_stat(5).

use std::fs;
use std::path::Path;
use weir_units::Span;

/// The kernel counts CPU time in `USER_HZ`, which is 100 on every Linux architecture we build for.
const TICK: Span = Span::from_millis(10);

/// Use of the time of every CPU.
#[derive(Default)]
pub(crate) struct Cpus {
    /// Per CPU, so far.
    last: Vec<Ticks>,
}

/// Of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks {
    idle: u64,
    stolen: u64,
    all: u64,
}

/// Shares of the time between two calls, 0 to 1.
pub(crate) struct Shares {
    /// The smallest of any CPU; 1 at the first call.
    pub(crate) idle: f64,
    /// The largest share of any CPU that was stolen: the CPU was ready to run, and the hypervisor
    /// ran something else.
    pub(crate) stolen: f64,
}

impl Cpus {
    /// Since the last call.
    pub(crate) fn read(&mut self) -> Shares {
        let now = parse(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let shares = shares(&self.last, &now);
        self.last = now;
        shares
    }
}

/// One CPU's shares from its `cpuN` line: user nice system idle iowait irq softirq steal …; guest
/// time is within user time.
fn parse(text: &str) -> Vec<Ticks> {
    let cpu = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        name.strip_prefix("cpu")?.parse::<u32>().ok()?;
        let ticks: Vec<u64> = rest.split_whitespace().take(8).flat_map(str::parse).collect();
        let stolen = ticks.get(7).copied().unwrap_or(0);
        Some(Ticks { idle: ticks.get(3)? + ticks.get(4)?, stolen, all: ticks.iter().sum() })
    };
    text.lines().filter_map(cpu).collect()
}

fn shares(last: &[Ticks], now: &[Ticks]) -> Shares {
    let mut shares = Shares { idle: 1.0, stolen: 0.0 };
    for (then, now) in last.iter().zip(now) {
        let all = now.all.saturating_sub(then.all);
        // A CPU whose counters did not change within a sample was idle.
        if all > 0 {
            let share = |then: u64, now: u64| now.saturating_sub(then) as f64 / all as f64;
            shares.idle = shares.idle.min(share(then.idle, now.idle));
            shares.stolen = shares.stolen.max(share(then.stolen, now.stolen));
        }
    }
    shares
}

/// CPU time of a process so far: (user, system). Nothing if it is gone.
pub(crate) fn cpu_of(pid: u32) -> (Span, Span) {
    let path = Path::new("/proc").join(pid.to_string()).join("stat");
    cpu_in(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

/// Fields 14 and 15; the name in field 2 may hold anything, so count from its closing bracket.
fn cpu_in(stat: &str) -> Option<(Span, Span)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || Some(TICK * fields.next()?.parse().ok()?);
    Some((next()?, next()?))
}

/// Resident memory of a process in octets; zero if it is gone.
pub(crate) fn memory_of(pid: u32) -> u64 {
    let path = Path::new("/proc").join(pid.to_string()).join("status");
    resident_in(&fs::read_to_string(path).unwrap_or_default()).unwrap_or(0)
}

/// From `VmRSS:  1234 kB`, in which a kB has 1024 octets.
fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Packets that this machine itself lost between two devices, all CPUs together: the second column
/// of `/proc/net/softnet_stat`. They are in no port's counter.
pub(crate) fn lost_inside() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_cpu_counts_and_the_one_that_lost_most() {
        let then =
            parse("cpu  9 9 9 9\ncpu0 10 0 0 90 0 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0\nintr 1");
        let now = parse("cpu  9 9 9 9\ncpu0 19 0 0 91 0 0 0 0 0 0\ncpu1 0 0 5 102 1 0 0 2\nintr 1");
        let idle = |idle| Ticks { idle, stolen: 0, all: 100 };
        assert_eq!(then, [idle(90), idle(100)]);
        let meanwhile = shares(&then, &now);
        assert!((meanwhile.idle - 0.1).abs() < 1e-9 && (meanwhile.stolen - 0.2).abs() < 1e-9);
        let nothing = shares(&then, &then);
        assert!((nothing.idle - 1.0).abs() < 1e-9 && nothing.stolen == 0.0);
    }

    #[test]
    fn cpu_time_is_found_behind_a_strange_name() {
        let stat = "7 (a) (b) S 1 7 7 0 -1 0 0 0 0 0 12 34 0 0 20";
        assert_eq!(cpu_in(stat), Some((Span::from_millis(120), Span::from_millis(340))));
        assert_eq!(cpu_in(""), None);
    }

    #[test]
    fn memory_is_what_is_resident() {
        let status = "Name:\tweir\nVmSize:\t 9000 kB\nVmRSS:\t  1500 kB\nThreads:\t1\n";
        assert_eq!(resident_in(status), Some(1500 * 1024));
        assert_eq!(resident_in("Name:\tgone\n"), None);
    }
}
