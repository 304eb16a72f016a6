//! Other users of a device: foreign programs, filters and queues.
//!
//! Problem   Our redirection to a queue can void a foreign program's policy, and a foreign program
//!           can void our redirection.
//! Approach  Programs on both TCX hooks and filters on both clsact hooks are listed by name,
//!           without Weir's own.

use super::{Finding, State};
use crate::attach::{Interface, tcx_programs};
use crate::nl::{self, Device, Socket, redirect, tc};
use crate::shaper;
use libbpf_rs::query::ProgInfoIter;

/// Queues that the kernel itself sets up.
const BY_DEFAULT: [&str; 6] = ["noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "pfifo"];

/// Prefix of the names of our programs.
pub(super) const OURS: &str = "weir_";

/// The direction in which a VM's packets pass a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// A port: they come in there.
    Port,
    /// The uplink: they go out there.
    Uplink,
}

/// Findings about foreign users of this device; none if there are none.
pub(super) fn others(what: &str, name: &str, side: Side) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Ok(interface) = Interface::find(name) else { return findings };
    match look(&interface, side) {
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
    /// Programs by TCX where nothing leaves, by name.
    programs: Vec<String>,
    /// The same where VMs' packets leave.
    on_the_way: Vec<String>,
    /// Filters by clsact that are not ours: preference and kind.
    filters: Vec<String>,
    /// The root queue, if it is not the kernel's default.
    queue: Option<String>,
}

/// The names of others' programs on one side of an interface. A kernel without TCX has no such programs.
fn strangers(interface: &Interface, hook: libbpf_sys::bpf_attach_type) -> Vec<String> {
    let ids = tcx_programs(interface.index, hook).unwrap_or_default();
    if ids.is_empty() {
        return Vec::new();
    }
    let found = ProgInfoIter::default().filter(|p| ids.contains(&p.id));
    let names = found.map(|p| p.name.to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with(OURS)).collect()
}

fn look(interface: &Interface, side: Side) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let (ingress, egress) = (libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS);
    let (way, other) = if side == Side::Port { (ingress, egress) } else { (egress, ingress) };
    seen.on_the_way = strangers(interface, way);
    seen.programs = strangers(interface, other);
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
    // Ours is there while an agent runs.
    let chosen = |q: &&tc::Qdisc| {
        let is_known = BY_DEFAULT.contains(&q.kind.as_str()) || q.handle == shaper::ROOT_HANDLE;
        q.parent == tc::ROOT && !is_known
    };
    seen.queue = roots.iter().find(chosen).map(|q| q.kind.clone());
    Ok(seen)
}

fn judge(what: &str, seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !seen.on_the_way.is_empty() {
        findings.push(Finding::new(
            format!("{what}, other programs"),
            State::Unenforced,
            seen.on_the_way.join(", "),
            "they may redirect or change packets between our programs, and with HTB the packets that \
             come back from our queue do not pass them: neither floors nor the policy of these \
             programs are sure",
            "remove them; on a VM's port departure times (`shaper = \"departure-time\"`) need no detour",
        ));
    }
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
            let before = others("port", &name, Side::Port);
            let mut batch = Batch::new();
            batch.add_htb(&device, 0x1_0000, 0);
            socket.send(&batch).expect("an HTB");
            (before, others("port", &name, Side::Port))
        });
        let (before, after) = found.expect("needs root");
        assert_eq!(before, [], "no foreign object is there");
        assert_eq!(after.len(), 1, "{after:?}");
        assert!(after[0].found.contains("htb, not the kernel's default"), "{after:?}");
    }

    #[test]
    fn programs_of_another_datapath_are_told_with_what_they_may_lose() {
        let seen = Seen { on_the_way: vec!["cil_from_container".into()], ..Seen::default() };
        let found = judge("port tap0 of a", &seen);
        assert_eq!((found.len(), found[0].state), (1, State::Unenforced));
        let beside = Seen { programs: vec!["cil_to_container".into()], ..Seen::default() };
        assert_eq!(judge("port tap0 of a", &beside)[0].state, State::Costs, "on the other side");
        assert!(found[0].found.contains("cil_from_container"), "{found:?}");
        assert!(found[0].costs.contains("policy"), "{found:?}");
    }
}
