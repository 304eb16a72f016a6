//! The uplink's fq qdisc: holds each packet until its departure time.
//!
//! Problem   The operator must find the uplink as it was configured. And a drop after a packet got
//!           its sequence number would count as a loss of the network.
//! Approach  fq takes the root of the uplink only from a qdisc that the kernel put there by itself
//!           (its handle is zero). When ours goes, the kernel restores it. fq's bounds are far
//!           above those of `depart.bpf.c`, which drops before the sequence number.
//! Not here  Departure times: the program computes them.

use crate::nl::fq::{self, Entry, Fq};
use crate::nl::tc::{self, ROOT};
use crate::nl::{Batch, Device, Handle, Socket, Verb};
use crate::shaper::{Error, Fault};
use weir_units::Span;

/// Marks the qdisc as ours, for a successor and for people.
const HANDLE: u32 = 0x3e1_0000;

/// More packets than any of our hosts holds: 2 ms of the smallest at 16 Gbit/s, or 512 pairs with
/// 128 kB of full frames each. The horizon is fq's own, forty times ours. One timer covers all
/// departures within 50 µs (EyeQ §4.2), so that a fast queue does not need one per packet; fq's own
/// slack is 10 µs.
const BOUNDS: Fq = Fq {
    limit: 65_536,
    flow_limit: 65_536,
    slack: Span::from_micros(50),
    horizon: Span::from_secs(10),
};

/// Makes fq the root of the uplink, or corrects the fq of an earlier agent. Returns whether there
/// was one.
pub(super) fn hold(socket: &mut Socket, uplink: &Device) -> Result<bool, Error> {
    let (found, verb) = match ours(socket, uplink)? {
        Some(entry) if entry.fq == BOUNDS => return Ok(true),
        Some(_) => (true, Verb::Change),
        None => {
            refuse_foreign(socket, uplink)?;
            (false, Verb::Create)
        }
    };
    let mut batch = Batch::new();
    batch.set_fq(uplink, verb, HANDLE, &BOUNDS);
    match socket.send(&batch) {
        Ok(()) => {}
        Err(error) if error.errno() == Some(libc::ENOENT) => return Err(Error::NoFq),
        Err(error) => return Err(error.into()),
    }
    match ours(socket, uplink)? {
        Some(entry) if entry.fq == BOUNDS => Ok(found),
        there => Err(Error::ReadBack {
            object: format!("root qdisc of {uplink}"),
            wanted: format!("{BOUNDS:?}"),
            found: format!("{there:?}"),
        }),
    }
}

/// The fault of the uplink's root qdisc, if any.
pub(super) fn fault(socket: &mut Socket, uplink: &Device) -> Result<Option<Fault>, Error> {
    let root = tc::root(socket, uplink)?;
    let is_there = root.as_ref().is_some_and(|root| root.kind == "fq" && root.handle == HANDLE);
    let what = match root {
        _ if is_there => return Ok(None),
        Some(root) if root.handle != 0 => {
            let handle = Handle(root.handle);
            format!("qdisc {} {handle} has replaced fq on {uplink}", root.kind)
        }
        _ => format!("the fq qdisc of {uplink} is gone: packets leave without waiting"),
    };
    // A foreign root qdisc is refused and never replaced.
    let mendable = refuse_foreign(socket, uplink).is_ok();
    Ok(Some(Fault { what, vms: Vec::new(), mendable }))
}

/// Removes our fq; the kernel restores its default. Packets that still wait in it are lost. Returns
/// whether it was there.
pub(super) fn release(socket: &mut Socket, uplink: &Device) -> Result<bool, Error> {
    if ours(socket, uplink)?.is_none() {
        return Ok(false);
    }
    let mut batch = Batch::new();
    batch.delete_qdisc(uplink, ROOT);
    match socket.send(&batch) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(true),
    }
}

/// Our fq on the uplink.
pub(super) fn ours(socket: &mut Socket, uplink: &Device) -> Result<Option<Entry>, Error> {
    Ok(fq::root(socket, uplink)?.filter(|entry| entry.handle == HANDLE))
}

/// Refuses an uplink whose root qdisc is not the kernel's default.
fn refuse_foreign(socket: &mut Socket, uplink: &Device) -> Result<(), Error> {
    let qdiscs = tc::qdiscs(socket, Some(uplink))?;
    let Some(root) = qdiscs.iter().find(|q| q.parent == ROOT && q.handle != 0) else {
        return Ok(());
    };
    Err(Error::Foreign {
        what: format!("root qdisc {} {} of {uplink}", root.kind, Handle(root.handle)),
        advice: "remove it, or set the shaper to htb",
    })
}
