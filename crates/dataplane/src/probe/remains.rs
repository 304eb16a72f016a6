//! What agents have put into this host's kernel, found without their files.
//!
//! Problem   "Everything is removed" has to be seen, not believed: what removes goes by its own notes.
//! Approach  Every device is looked at: its kind and note, the programs on both sides by their names, the
//!           filters at our places, the root queue by its handle.

use super::datapath::OURS;
use crate::attach::{is_own, program_name, tcx_programs};
use crate::nl::{self, Socket, link, redirect, tc};
use crate::shaper;

/// A sentence for each thing of any agent in this network namespace; none if there is nothing.
///
/// # Errors
///
/// The kernel does not say.
pub fn remains() -> Result<Vec<String>, nl::Error> {
    let mut socket = Socket::open()?;
    let mut found = Vec::new();
    for link in link::list(&mut socket)? {
        let (device, name) = (&link.device, &link.device.name);
        if link.kind == "ifb" && link.alias.starts_with(shaper::NOTE) {
            found.push(format!("the queues of an agent: device {name}"));
        }
        for hook in [libbpf_sys::BPF_TCX_INGRESS, libbpf_sys::BPF_TCX_EGRESS] {
            // A kernel without TCX has no such programs.
            let ids = tcx_programs(device.index, hook).unwrap_or_default();
            let names = ids.into_iter().filter_map(program_name);
            let ours = names.filter(|program| program.starts_with(OURS));
            found.extend(ours.map(|program| format!("a program on {name}: {program}")));
        }
        for hook in [redirect::INGRESS, redirect::EGRESS] {
            for filter in redirect::filters(&mut socket, device, hook)? {
                if filter.preference == redirect::PREFERENCE || is_own(&filter) {
                    let at = filter.preference;
                    found.push(format!("a filter on {name}: {} at preference {at}", filter.kind));
                }
            }
        }
        if tc::root(&mut socket, device)?.is_some_and(|root| root.handle == shaper::ROOT_HANDLE) {
            found.push(format!("a root queue on {name}"));
        }
    }
    // A classifier is listed beside its filter.
    found.dedup();
    Ok(found)
}
