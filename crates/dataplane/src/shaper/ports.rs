//! The redirection of VM ports to the shaper's device.

use super::Error;
use super::layout::Note;
use crate::attach;
use crate::nl::redirect::{self, EGRESS, FilterEntry, INGRESS, PREFERENCE};
use crate::nl::tc::{self, CLSACT};
use crate::nl::{Batch, Device, Socket, link};
use std::collections::BTreeMap;

/// The filter at our preference on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hook {
    /// A redirection of some instance's, to the device of this index (0: that device is gone).
    Weir(u32, Note),
    /// A foreign filter.
    Foreign,
}

impl Hook {
    pub(super) const fn note(self) -> Option<Note> {
        match self {
            Self::Weir(_, note) => Some(note),
            Self::Foreign => None,
        }
    }
}

/// Every port of the namespace that carries a filter at our preference, by index.
pub(super) fn scan(socket: &mut Socket) -> Result<BTreeMap<u32, (Device, Hook)>, Error> {
    let mut found = BTreeMap::new();
    for port in with_clsact(socket)? {
        if let Some(hook) = read(socket, &port)? {
            found.insert(port.index, (port, hook));
        }
    }
    Ok(found)
}

/// All devices of the namespace that have a clsact qdisc.
fn with_clsact(socket: &mut Socket) -> Result<Vec<Device>, Error> {
    let devices: BTreeMap<u32, Device> =
        link::list(socket)?.into_iter().map(|l| (l.device.index, l.device)).collect();
    let qdiscs = tc::qdiscs(socket, None)?;
    let clsact = qdiscs.iter().filter(|q| q.kind == "clsact");
    Ok(clsact.filter_map(|q| devices.get(&q.index).cloned()).collect())
}

/// The filter at our preference on a port; `None` if there is none.
fn read(socket: &mut Socket, port: &Device) -> Result<Option<Hook>, Error> {
    let filters = redirect::filters(socket, port, INGRESS)?;
    let mut here = filters.iter().filter(|f| f.preference == PREFERENCE).peekable();
    if here.peek().is_none() {
        return Ok(None);
    }
    let ours = here.find_map(|f| {
        let (target, cookie) = f.redirect.as_ref()?;
        Some(Hook::Weir(*target, Note::parse(cookie)?))
    });
    Ok(Some(ours.unwrap_or(Hook::Foreign)))
}

/// Fault that keeps a port's packets from the redirection to `target` of this instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Detour {
    /// There is none, or it leads elsewhere. Making it anew repairs that.
    Mendable(&'static str),
    /// A foreign filter stands before it.
    Foreign(String),
}

/// Looks at a port's filters. `own` says which filters are programs of ours.
pub(super) fn detour(
    socket: &mut Socket,
    port: &Device,
    target: &Device,
    instance: u64,
) -> Result<Option<Detour>, Error> {
    let filters = redirect::filters(socket, port, INGRESS)?;
    let before = |f: &&FilterEntry| f.preference < PREFERENCE && f.may_pass && !attach::is_own(f);
    if let Some(FilterEntry { preference, kind, .. }) = filters.iter().find(before) {
        let what = format!(
            "the foreign {kind} filter with preference {preference} on port {port} stands before \
             the redirection to the shaper: remove it, or give it a preference above {PREFERENCE}"
        );
        return Ok(Some(Detour::Foreign(what)));
    }
    let ours = filters.iter().filter(|f| f.preference == PREFERENCE).find_map(|f| {
        let (to, cookie) = f.redirect.as_ref()?;
        Some((*to, Note::parse(cookie)?))
    });
    Ok(match ours {
        Some((to, note)) if note.instance == instance && to == target.index => None,
        Some((_, note)) if note.instance == instance => {
            Some(Detour::Mendable("the redirection to the shaper leads elsewhere"))
        }
        _ => Some(Detour::Mendable("the redirection to the shaper is gone")),
    })
}

/// Appends what makes the port's redirection be the `wanted` one, given what was `found` there.
/// Whether we made the clsact qdisc is known from what was found, not from `wanted`.
pub(super) fn plan(
    port: &Device,
    target: &Device,
    wanted: Note,
    found: Option<Hook>,
    has_clsact: bool,
    batch: &mut Batch,
) -> Result<(), Error> {
    let made_clsact = match found {
        Some(Hook::Weir(_, note)) if note.instance != wanted.instance => {
            return Err(foreign(port, "close the other instance first"));
        }
        Some(Hook::Foreign) => {
            return Err(foreign(port, "remove the filter with preference 4000, or its owner"));
        }
        Some(Hook::Weir(to, note)) => {
            let wanted = Note { made_clsact: note.made_clsact, ..wanted };
            if to == target.index && note == wanted {
                return Ok(());
            }
            batch.delete_redirect(port);
            note.made_clsact
        }
        None => {
            if !has_clsact {
                batch.add_clsact(port);
            }
            !has_clsact
        }
    };
    batch.add_redirect(port, target.index, Note { made_clsact, ..wanted }.octets());
    Ok(())
}

fn foreign(port: &Device, advice: &'static str) -> Error {
    Error::Foreign { what: format!("a redirection of port {port}"), advice }
}

/// Removes a port's redirection, and the clsact qdisc if it was made for it and has no other user.
/// A port that has vanished took both along.
pub(super) fn undo(socket: &mut Socket, port: &Device, note: Note) -> Result<(), Error> {
    let mut batch = Batch::new();
    batch.delete_redirect(port);
    tolerate_absence(socket.send(&batch))?;
    if !note.made_clsact {
        return Ok(());
    }
    for hook in [INGRESS, EGRESS] {
        if !redirect::filters(socket, port, hook)?.is_empty() {
            return Ok(());
        }
    }
    let mut batch = Batch::new();
    batch.delete_qdisc(port, CLSACT);
    tolerate_absence(socket.send(&batch))
}

fn tolerate_absence(result: Result<(), crate::nl::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !error.is_absent() => Err(error.into()),
        _ => Ok(()),
    }
}
