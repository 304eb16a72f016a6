//! The uplink's fq qdisc: holds each packet until its departure time.
//!
//! Problem   A drop after a packet got its sequence number would count as a loss of the network.
//! Approach  fq's bounds are far above those of `depart.bpf.c`, which drops before the sequence
//!           number.
//! Not here  From which qdisc fq takes the root, and who gets it back: `root`. Departure times: the
//!           program computes them.

use crate::nl::fq::{self, Entry, Fq};
use crate::nl::{Batch, Device, Handle, Socket, Verb, tc};
use crate::shaper::root::{self, HANDLE};
use crate::shaper::{Error, Fault};
use weir_units::Span;

/// What to do about a root qdisc that an operator has chosen.
const ADVICE: &str = "remove it, or set the shaper to htb";

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
            root::refuse_foreign(socket, uplink, ADVICE)?;
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
    let mendable = root::refuse_foreign(socket, uplink, ADVICE).is_ok();
    Ok(Some(Fault { what, vms: Vec::new(), mendable }))
}

/// Our fq on the uplink.
pub(super) fn ours(socket: &mut Socket, uplink: &Device) -> Result<Option<Entry>, Error> {
    Ok(fq::root(socket, uplink)?.filter(|entry| entry.handle == HANDLE))
}
