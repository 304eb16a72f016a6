//! The kernel: version, privileges, limits, clocks, and features that are tried.

use super::{Finding, Roots, State, sandbox, text};
use crate::instance::is_bpffs;
use std::path::Path;

/// Oldest kernel on which everything was tested.
const TRIED_SINCE: (u32, u32) = (6, 1);
/// First kernel whose BPF memory counts for the control group, not against `memlock`.
const MEMLOCK_UNTIL: (u32, u32) = (5, 11);
/// Most memory of one agent's maps, roughly.
const LOCKED_OCTETS: u64 = 64 << 20;

/// Whether classes of HTB may run into debt by their burst before they wait; a setting of the whole
/// machine.
const HYSTERESIS: &str = "module/sch_htb/parameters/htb_hysteresis";

/// Everything about this kernel and this process. `bpffs` is where an agent would pin its programs.
pub fn kernel(roots: &Roots, bpffs: &Path) -> Vec<Finding> {
    let release = text(&roots.proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut findings = vec![version(&release)];
    findings.push(privileges(roots));
    findings.push(memlock(&release, &text(&roots.proc.join("self/limits")).unwrap_or_default()));
    findings.push(pins(bpffs));
    findings.extend(sandbox::findings());
    findings.push(jit(text(&roots.proc.join("sys/net/core/bpf_jit_enable")).as_deref()));
    let btf = roots.sys.join("kernel/btf/vmlinux");
    findings.push(if btf.exists() {
        Finding::fine("BTF", "there")
    } else {
        let remedy = "a kernel with CONFIG_DEBUG_INFO_BTF";
        let costs = "bpftool and tracers cannot read our maps by name; nothing else";
        Finding::new("BTF", State::Costs, "absent", costs, remedy)
    });
    let source = "devices/system/clocksource/clocksource0/current_clocksource";
    findings.push(clock(text(&roots.sys.join(source)).as_deref()));
    findings.push(hysteresis(text(&roots.sys.join(HYSTERESIS)).as_deref()));
    let available = "sys/net/ipv4/tcp_available_congestion_control";
    let current = "sys/net/ipv4/tcp_congestion_control";
    findings.push(congestion(
        text(&roots.proc.join(available)).as_deref(),
        text(&roots.proc.join(current)).as_deref(),
    ));
    findings
}

/// Whether this process has an agent's privileges.
pub fn privileges(roots: &Roots) -> Finding {
    capabilities(&text(&roots.proc.join("self/status")).unwrap_or_default())
}

/// `6.18.5-arch1` → (6, 18).
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn version(release: &str) -> Finding {
    let what = "kernel";
    match parse_version(release) {
        Some(version) if version >= TRIED_SINCE => Finding::fine(what, release),
        Some(_) => Finding::new(
            what,
            State::Costs,
            release,
            "older than any on which this was tried",
            "Linux 6.1 or newer; 6.6 or newer has TCX",
        ),
        None => Finding::new(what, State::Unknown, "no version", "", "is procfs mounted?"),
    }
}

/// Name, number and purpose.
const CAPABILITIES: [(&str, u32, &str); 4] = [
    ("CAP_NET_ADMIN", 12, "queues and programs on devices"),
    ("CAP_SYS_ADMIN", 21, "pins in a bpffs of this machine, namespaces to try things in"),
    ("CAP_PERFMON", 38, "programs that read packets by pointer"),
    ("CAP_BPF", 39, "programs and maps"),
];

fn capabilities(status: &str) -> Finding {
    let what = "capabilities";
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(held) = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()) else {
        return Finding::new(what, State::Unknown, "not told", "", "is procfs mounted?");
    };
    let lacking: Vec<_> = CAPABILITIES.iter().filter(|(_, n, _)| held & 1 << n == 0).collect();
    if lacking.is_empty() {
        return Finding::fine(what, "all that an agent needs");
    }
    let names: Vec<&str> = lacking.iter().map(|(name, ..)| *name).collect();
    let uses: Vec<String> =
        lacking.iter().map(|(name, _, use_)| format!("{name}: {use_}")).collect();
    Finding::new(
        what,
        State::Cannot,
        format!("without {}", names.join(", ")),
        uses.join("; "),
        "run it as root, or with these as AmbientCapabilities of its unit",
    )
}

/// `limits` is `/proc/self/limits`.
fn memlock(release: &str, limits: &str) -> Finding {
    let what = "locked memory";
    if parse_version(release).is_some_and(|version| version >= MEMLOCK_UNTIL) {
        return Finding::fine(what, "counted by the control group");
    }
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => Finding::fine(what, "unlimited"),
        Some(n) if n.parse().is_ok_and(|n: u64| n >= LOCKED_OCTETS) => Finding::fine(what, n),
        Some(n) => Finding::new(
            what,
            State::Cannot,
            format!("{n} octets"),
            "the maps of an agent find no room",
            "LimitMEMLOCK=infinity in its unit, or ulimit -l unlimited",
        ),
        None => Finding::new(what, State::Unknown, "not told", "", "is procfs mounted?"),
    }
}

fn pins(bpffs: &Path) -> Finding {
    let what = format!("bpffs at {}", bpffs.display());
    if is_bpffs(bpffs) {
        return Finding::fine(what, "mounted");
    }
    Finding::new(
        what,
        State::Cannot,
        "not mounted",
        "programs and counters could not outlive an agent",
        format!("mount -t bpf bpf {}", bpffs.display()),
    )
}

fn jit(enabled: Option<&str>) -> Finding {
    match enabled {
        Some("0") => Finding::new(
            "BPF compiler",
            State::Costs,
            "off: programs are interpreted",
            "several times the CPU per packet",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        Some(_) => Finding::fine("BPF compiler", "on"),
        // The file can be missing where the compiler cannot be switched off.
        None => Finding::fine("BPF compiler", "not to be switched"),
    }
}

fn clock(source: Option<&str>) -> Finding {
    let what = "time source";
    match source {
        None => Finding::new(what, State::Unknown, "not told", "", ""),
        Some(name) if ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&name) => {
            Finding::new(
                what,
                State::Costs,
                name,
                "reading the time takes a microsecond or more, and every queue reads it per packet",
                "tsc, kvm-clock or arch_sys_counter: see why the kernel marked its own unstable",
            )
        }
        Some(name) => Finding::fine(what, name),
    }
}

/// Whether HTB sends by bursts, so that a class that is held back needs no timer for each packet.
/// `false` where the kernel does not say.
pub fn htb_sends_by_bursts(roots: &Roots) -> bool {
    text(&roots.sys.join(HYSTERESIS)).is_some_and(|value| value != "0")
}

fn hysteresis(value: Option<&str>) -> Finding {
    let what = "HTB's timers";
    match value {
        Some("0") => Finding::new(
            what,
            State::Costs,
            "one for each packet that waits",
            "two thirds and more of what a shaped packet costs a virtual machine's CPU; nothing where departure times shape",
            "echo 1 > /sys/module/sch_htb/parameters/htb_hysteresis before the agent starts, as \
             packaging/weir-agent.service does: one for half a millisecond, for all HTB of this machine",
        ),
        Some(_) => Finding::fine(what, "one for a burst"),
        None => Finding::new(what, State::Unknown, "not told", "", "load sch_htb, and ask as root"),
    }
}

fn congestion(available: Option<&str>, current: Option<&str>) -> Finding {
    let what = "TCP congestion control";
    match (available, current) {
        (Some(available), Some(current)) if current.starts_with("bbr") => Finding::new(
            what,
            State::Costs,
            format!("{current} (there are {available})"),
            "containers of this host heed neither losses nor marks: their pairs borrow less. VMs \
             have a kernel of their own",
            "sysctl net.ipv4.tcp_congestion_control=cubic",
        ),
        (Some(available), Some(current)) => {
            Finding::fine(what, format!("{current} (there are {available})"))
        }
        _ => Finding::new(what, State::Unknown, "not told", "", "is procfs mounted?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_told_with_what_is_needed() {
        assert_eq!(version("6.18.5-arch1").state, State::Fine);
        assert_eq!(version("6.1.0-18-amd64").state, State::Fine);
        let old = version("5.15.0-91-generic");
        assert_eq!(old.state, State::Costs);
        assert!(old.remedy.contains("6.1"), "{old:?}");
        assert_eq!(version("").state, State::Unknown);
    }

    #[test]
    fn a_missing_capability_is_named_with_its_use() {
        let all = "Name:\tweir\nCapEff:\t000001ffffffffff\n";
        assert_eq!(capabilities(all).state, State::Fine);
        let none = capabilities("CapEff:\t0000000000000000");
        assert_eq!(none.state, State::Cannot);
        assert!(none.found.contains("CAP_BPF") && none.costs.contains("queues"), "{none:?}");
        let one = capabilities("CapEff:\t000001bfffffffff");
        assert_eq!(one.found, "without CAP_PERFMON");
        assert_eq!(capabilities("CapEff: nonsense").state, State::Unknown);
    }

    #[test]
    fn locked_memory_matters_to_old_kernels_only() {
        let limits = |n: &str| format!("Max locked memory         {n}     {n}    bytes");
        assert_eq!(memlock("6.1.0", &limits("65536")).state, State::Fine);
        assert_eq!(memlock("5.10.0", &limits("65536")).state, State::Cannot);
        assert_eq!(memlock("5.10.0", &limits("unlimited")).state, State::Fine);
        assert_eq!(memlock("5.10.0", &limits("67108864")).state, State::Fine);
        assert_eq!(memlock("5.10.0", "").state, State::Unknown);
    }

    #[test]
    fn a_folder_that_is_no_bpffs_is_told_with_the_command_that_mounts_one() {
        let finding = pins(Path::new("/proc"));
        assert_eq!(finding.state, State::Cannot);
        assert_eq!(finding.remedy, "mount -t bpf bpf /proc");
    }

    #[test]
    fn slow_clocks_interpreted_programs_and_deaf_senders_cost() {
        assert_eq!(clock(Some("tsc")).state, State::Fine);
        assert_eq!(clock(Some("hpet")).state, State::Costs);
        assert_eq!(jit(Some("0")).state, State::Costs);
        assert_eq!(jit(Some("2")).state, State::Fine);
        assert_eq!(congestion(Some("reno cubic bbr"), Some("bbr")).state, State::Costs);
        assert_eq!(congestion(Some("reno cubic"), Some("cubic")).state, State::Fine);
    }

    #[test]
    fn a_timer_for_each_packet_costs_and_one_for_a_burst_does_not() {
        assert_eq!(hysteresis(Some("0")).state, State::Costs);
        assert!(hysteresis(Some("0")).remedy.contains("htb_hysteresis"));
        assert_eq!(hysteresis(Some("1")).state, State::Fine);
        assert_eq!(hysteresis(None).state, State::Unknown);
    }
}
