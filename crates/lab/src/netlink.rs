//! What the lab asks of the kernel's routing socket, and what its refusals mean.
//!
//! Problem   A world has thousands of settings; a process per setting takes a minute.
//! Approach  The data plane's batches and its socket, with messages of the lab's own, each with the
//!           words that become the error if the kernel refuses it.
//! Promises  A request that the kernel refused is an error that says which; nothing is ignored.
//! Not here  What to ask for: see `world` and `ports`. Encoding and answers: `weir_dataplane::nl`.
//! Source    linux/rtnetlink.h, linux/if_link.h.

use crate::Error;
use nix::libc;
use weir_dataplane::nl::{Body, Device, Object, link, tc};
use weir_units::SortedMap;

pub(crate) use weir_dataplane::nl::{Batch, Socket, Verb};

/// Appends a message of `kind` (`RTM_…`) with its fixed header. `what` completes "cannot create …";
/// without `needs` the kernel refuses it.
pub(crate) fn push(
    batch: &mut Batch,
    (kind, verb): (u16, Verb),
    (what, needs): (&str, Option<&'static str>),
    header: &[u8],
    fill: impl FnOnce(&mut Body<'_>),
) {
    batch.push(kind, verb, Object::Named { what: what.into(), needs }, header, fill);
}

/// Carries out a batch.
pub(crate) fn send(socket: &mut Socket, batch: &Batch) -> Result<(), Error> {
    socket.send(batch).map_err(refused)
}

fn refused(error: weir_dataplane::nl::Error) -> Error {
    match feature(&error) {
        Some(feature) if matches!(error.errno(), Some(libc::EOPNOTSUPP | libc::ENOENT)) => {
            Error::Missing {
                what: format!("a kernel feature, {feature} ({error})"),
                remedy: "load the module, or use a kernel built with the option".into(),
            }
        }
        _ => Error::Dataplane(error.into()),
    }
}

/// The kernel feature that a refused message is about.
fn feature(error: &weir_dataplane::nl::Error) -> Option<&'static str> {
    let weir_dataplane::nl::Error::Refused { object, .. } = error else { return None };
    match object {
        Object::Named { needs, .. } => *needs,
        Object::Qdisc { parent: tc::ROOT, .. } | Object::Class { .. } => {
            Some("HTB (CONFIG_NET_SCH_HTB, module sch_htb)")
        }
        Object::Qdisc { parent: tc::CLSACT, .. } => {
            Some("clsact (CONFIG_NET_SCH_INGRESS, module sch_ingress)")
        }
        Object::Qdisc { .. } => Some("bfifo (CONFIG_NET_SCH_FIFO)"),
        _ => None,
    }
}

/// The root queue of each interface: octets sent and packets dropped since it was made, in the
/// order of `interfaces`. An interface without a queue of its own counts nothing.
pub(crate) fn queues(socket: &mut Socket, interfaces: &[u32]) -> Result<Vec<(u64, u64)>, Error> {
    // One by one: a list would have the queues of all pairs on hosts.
    let read = |index: &u32| {
        let device = Device { name: format!("interface {index}").into(), index: *index };
        match tc::root(socket, &device) {
            Ok(root) => Ok(root.map_or((0, 0), |queue| (queue.stats.octets, queue.stats.drops))),
            // What the kernel says of an interface that has no queue.
            Err(error) if error.errno() == Some(libc::EINVAL) => Ok((0, 0)),
            Err(error) => Err(refused(error)),
        }
    };
    interfaces.iter().map(read).collect()
}

/// What `read` makes of each interface, in their order; its default where there is none.
pub(crate) fn devices<T: Clone + Default>(
    socket: &mut Socket,
    interfaces: &[u32],
    read: impl Fn(&link::Link) -> T,
) -> Result<Vec<T>, Error> {
    let all = link::list(socket).map_err(refused)?;
    let found: SortedMap<u32, T> = all.iter().map(|one| (one.device.index, read(one))).collect();
    Ok(interfaces.iter().map(|index| found.get(index).cloned().unwrap_or_default()).collect())
}

/// A device's header: `index` 0 lets the kernel choose, `up` sets it up.
pub(crate) fn link_header(index: u32, up: bool) -> [u8; 16] {
    let flags = u32::from(up) * libc::IFF_UP as u32;
    link::info(index, flags, flags)
}
