//! Other users of a device: foreign programs, filters and queues, Open vSwitch.
//!
//! Problem   Our redirection to a queue can void a foreign program's policy, and a foreign program
//!           can void our redirection.
//! Approach  Programs on both TCX hooks and filters on both clsact hooks are listed by name,
//!           without Weir's own.

use super::device::master;
use super::{Finding, Roots, State};
use crate::attach::{Interface, tcx_programs};
use crate::nl::{self, Device, Socket, redirect, tc};
use libbpf_rs::query::ProgInfoIter;

/// Queues that the kernel itself sets up.
const BY_DEFAULT: [&str; 6] = ["noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo"];

/// Prefix of the names of our programs.
const OURS: &str = "weir_";

/// Findings about foreign users of this device; none if there are none.
pub(super) fn others(roots: &Roots, what: &str, name: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if master(roots, name).is_some_and(|m| m == "ovs-system") {
        findings.push(Finding::new(
            format!("{what}, Open vSwitch"),
            State::Costs,
            "the device is one of its ports",
            "Open vSwitch removes queues that it finds on its ports, and forwards past our redirect",
            "leave its QoS unset, and see `weir doctor` again while it runs",
        ));
    }
    let Ok(interface) = Interface::find(name) else { return findings };
    match look(&interface) {
        Ok(seen) => findings.extend(judge(what, &seen)),
        Err(e) => findings.push(Finding::new(
            format!("{what}, other datapaths"),
            State::Unknown,
            e,
            "another program's policy may be bypassed by our redirect",
            "run it as root",
        )),
    }
    findings
}

/// Foreign objects on a device.
#[derive(Debug, Default)]
struct Seen {
    /// Programs by TCX, by name.
    programs: Vec<String>,
    /// Filters by clsact that are not ours: preference and kind.
    filters: Vec<String>,
    /// The root queue, if it is not the kernel's default.
    queue: Option<String>,
}

fn look(interface: &Interface) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut ids = Vec::new();
    for hook in [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS] {
        // A kernel without TCX has no such programs.
        ids.extend(tcx_programs(interface.index, hook).unwrap_or_default());
    }
    if !ids.is_empty() {
        let found = ProgInfoIter::default().filter(|p| ids.contains(&p.id));
        seen.programs = found.map(|p| p.name.to_string_lossy().into_owned()).collect();
        seen.programs.retain(|name| !name.starts_with(OURS));
    }
    let device = Device { name: interface.name.as_str().into(), index: interface.index };
    let words = |e: nl::Error| e.to_string();
    let mut socket = Socket::open().map_err(words)?;
    for hook in [redirect::INGRESS, redirect::EGRESS] {
        for filter in redirect::filters(&mut socket, &device, hook).map_err(words)? {
            // Ours have a fixed place: the programs first, the redirect at its preference.
            let ours = filter.preference == redirect::PREFERENCE
                || (filter.preference == 1 && filter.kind == "bpf");
            let text = format!("{} at {}", filter.kind, filter.preference);
            if !ours && !seen.filters.contains(&text) {
                seen.filters.push(text);
            }
        }
    }
    let roots = tc::qdiscs(&mut socket, Some(&device)).map_err(words)?;
    let chosen = |q: &&tc::Qdisc| q.parent == tc::ROOT && !BY_DEFAULT.contains(&q.kind.as_str());
    seen.queue = roots.iter().find(chosen).map(|q| q.kind.clone());
    Ok(seen)
}

fn judge(what: &str, seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others: Vec<&str> = seen.programs.iter().chain(&seen.filters).map(String::as_str).collect();
    if !others.is_empty() {
        findings.push(Finding::new(
            format!("{what}, other datapaths"),
            State::Costs,
            others.join(", "),
            "packets go to our queue and come back: policy of these programs may not be applied to \
             them, and they may take packets before ours see them",
            "try both with each other's policy before relying on either",
        ));
    }
    if let Some(queue) = &seen.queue {
        findings.push(Finding::new(
            format!("{what}, queue"),
            State::Costs,
            format!("{queue}, not the kernel's default"),
            "it delays and drops behind our shaper: floors hold only as far as it lets them",
            "remove it: tc qdisc del dev … root",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sandbox::in_namespace;
    use super::*;
    use crate::nl::{Batch, link};

    #[test]
    fn a_queue_and_a_filter_of_somebody_else_are_named() {
        let found = in_namespace(|| {
            let mut socket = Socket::open().expect("a socket");
            let device = link::create_ifb(&mut socket, "weir-other", "", 32).expect("an IFB");
            let name = device.name.to_string();
            let before = others(&Roots::default(), "port", &name);
            let mut batch = Batch::new();
            batch.add_htb(&device, 0x1_0000, 0);
            socket.send(&batch).expect("an HTB");
            (before, others(&Roots::default(), "port", &name))
        });
        let (before, after) = found.expect("needs root");
        assert_eq!(before, [], "no foreign object is there");
        assert_eq!(after.len(), 1, "{after:?}");
        assert!(after[0].found.contains("htb, not the kernel's default"), "{after:?}");
    }

    #[test]
    fn programs_of_another_datapath_are_told_with_what_they_may_lose() {
        let seen = Seen { programs: vec!["cil_from_container".into()], ..Seen::default() };
        let found = judge("port tap0 of a", &seen);
        assert_eq!((found.len(), found[0].state), (1, State::Costs));
        assert!(found[0].found.contains("cil_from_container"), "{found:?}");
        assert!(found[0].costs.contains("policy"), "{found:?}");
    }
}
