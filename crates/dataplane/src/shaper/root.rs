//! The uplink's root qdisc, where a shaper needs it.
//!
//! Problem   The operator must find the uplink as it was configured.
//! Approach  The root is taken only from a qdisc that the kernel put there by itself (its handle is
//!           zero). When ours goes, the kernel restores its own, on a device with several queues
//!           one for each.
//! Not here  What is put there: `departure::hold` has fq, `host` has HTB.

use super::Error;
use crate::nl::tc::{self, ROOT};
use crate::nl::{Batch, Device, Handle, Socket};

/// Marks the qdisc as ours, for a successor and for people.
pub(crate) const HANDLE: u32 = 0x3e1_0000;

/// Whether one of our shapers made this qdisc.
fn is_ours(qdisc: &tc::Qdisc) -> bool {
    qdisc.handle == HANDLE && ["fq", "htb"].contains(&qdisc.kind.as_str())
}

/// Refuses an uplink whose root qdisc is not the kernel's default.
pub(super) fn refuse_foreign(
    socket: &mut Socket,
    uplink: &Device,
    advice: &'static str,
) -> Result<(), Error> {
    let qdiscs = tc::qdiscs(socket, Some(uplink))?;
    let Some(root) = qdiscs.iter().find(|q| q.parent == ROOT && q.handle != 0) else {
        return Ok(());
    };
    Err(Error::Foreign {
        what: format!("root qdisc {} {} of {uplink}", root.kind, Handle(root.handle)),
        advice,
    })
}

/// Gives the uplink its default qdisc back if it has one of ours. Packets that still wait in that
/// are lost. Needs no state of the agent that took it. Returns whether it was there.
pub(super) fn release_with(socket: &mut Socket, uplink: &Device) -> Result<bool, Error> {
    if !tc::root(socket, uplink)?.as_ref().is_some_and(is_ours) {
        return Ok(false);
    }
    let mut batch = Batch::new();
    batch.delete_qdisc(uplink, ROOT);
    match socket.send(&batch) {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(true),
    }
}

/// The same with a socket of its own.
pub(crate) fn release(uplink: &Device) -> Result<bool, Error> {
    release_with(&mut Socket::open()?, uplink)
}
