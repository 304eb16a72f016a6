//! Functions without an agent's state: find the owner of a device, take back what was borrowed,
//! remove all.

use super::layout::{self, Use};
use super::levels::reclaimed;
use super::{Error, device_name, ports};
use crate::nl::link::{self, Link};
use crate::nl::{Batch, Socket, Verb, htb};

/// How the note on an instance's device begins.
pub(crate) const NOTE: &str = "weir instance ";

/// Note on an instance's device.
pub(super) fn alias(instance: &str) -> String {
    format!("{NOTE}{instance}")
}

/// The instance's device, if it is there. It is an error if a foreign device has its name.
pub(super) fn find(socket: &mut Socket, instance: &str) -> Result<Option<Link>, Error> {
    let name = device_name(instance);
    let Some(link) = link::get(socket, &name)? else { return Ok(None) };
    if link.kind != "ifb" || link.alias != alias(instance) {
        let advice = "rename it, or give this agent another instance name";
        return Err(Error::Foreign { what: format!("device {name}"), advice });
    }
    Ok(Some(link))
}

/// Whether the instance has an HTB device.
pub(crate) fn exists(instance: &str) -> Result<bool, Error> {
    Ok(find(&mut Socket::open()?, instance)?.is_some())
}

/// Takes back what pairs have borrowed on a device made by [`Htb`](super::Htb): every pair's
/// ceiling becomes its floor. Needs no state of the agent that set it, so a guardian can call it
/// when that agent is gone. Returns how many pairs had borrowed; none if there is no such device.
/// Traffic without a floor keeps its ceiling, which is configured, not lent.
pub fn reclaim(device: &str) -> Result<usize, Error> {
    let mut socket = Socket::open()?;
    let Some(link) = link::get(&mut socket, device)? else { return Ok(0) };
    let mut batch = Batch::new();
    for entry in htb::classes(&mut socket, &link.device, layout::QDISC)? {
        let pair = layout::usage(layout::minor(entry.id)) == Use::Pair;
        if pair && entry.class.ceil > entry.class.rate {
            let class = reclaimed(entry.class);
            batch.set_class(&link.device, Verb::Change, entry.parent, entry.id, &class);
        }
    }
    socket.send(&batch)?;
    Ok(batch.len())
}

/// Removes all that an instance has set in the kernel: redirections (with each clsact qdisc that
/// was made for one and has no other user), then the device with its classes. Needs no state of the
/// agent. Returns whether there was anything.
pub fn remove(instance: &str) -> Result<bool, Error> {
    let mut socket = Socket::open()?;
    remove_with(&mut socket, instance)
}

pub(super) fn remove_with(socket: &mut Socket, instance: &str) -> Result<bool, Error> {
    let hash = layout::hash(instance);
    let mut found = false;
    // First the redirections: with the device gone they would drop what they redirect.
    for (port, hook) in ports::scan(socket)?.into_values() {
        if let Some(note) = hook.note().filter(|note| note.instance == hash) {
            ports::undo(socket, &port, note)?;
            found = true;
        }
    }
    if let Some(link) = find(socket, instance)? {
        link::delete(socket, &link.device.name)?;
        found = true;
    }
    Ok(found)
}
