//! Checks whether attached programs are still where they were.
//!
//! Problem   A new device may get the name and the index of one that was deleted, and the programs
//!           went with the old one.
//! Approach  The interface is asked for the programs that TCX runs on it; under clsact the filter
//!           is asked for its program.
//! Promises  A program counts as gone only if the kernel says so. A question that fails for another
//!           reason (no descriptor left) takes no floor away.

use super::{Hook, Mode, path_text};
use crate::error::checked;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Whether `program` is attached there.
pub(crate) fn is_held(hook: &Hook, mode: Mode, program: BorrowedFd<'_>) -> bool {
    let held = match mode {
        Mode::Tcx => is_on_tcx(hook, program),
        Mode::Clsact => is_filter(hook, program),
    };
    held.unwrap_or_else(|e| {
        !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV))
    })
}

fn is_on_tcx(hook: &Hook, program: BorrowedFd<'_>) -> io::Result<bool> {
    let there = super::tcx_programs(hook.interface.index, hook.tcx())?;
    Ok(there.contains(&program_id(program)?))
}

/// Whether a link of this name is pinned under `links` and is on that very interface, with any
/// program.
pub(crate) fn is_pinned_on(hook: &Hook, links: &Path) -> bool {
    interface_of(hook, links).is_ok_and(|index| index == hook.interface.index)
}

/// The name of the program that has a number in the kernel.
pub(crate) fn program_name(id: u32) -> Option<String> {
    // SAFETY: no pointers.
    let program = checked(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) }).ok()?;
    // SAFETY: a fresh descriptor with no other owner.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let info = program_info(program.as_fd()).ok()?;
    // SAFETY: an array of the struct, filled up with zeros and ended by one.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

/// The kernel's number of a loaded program.
pub(crate) fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.id)
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    // SAFETY: zero is a valid value of a struct of integers.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: a live descriptor, and a struct of `size` octets that outlives the call.
    checked(unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size)
    })?;
    Ok(info)
}

/// The index of the interface that a link is on; 0 if that is gone.
fn interface_of(hook: &Hook, links: &Path) -> io::Result<u32> {
    let pin = path_text(&hook.pin(links)).map_err(io::Error::other)?;
    // SAFETY: a terminated string that outlives the call.
    let link = checked(unsafe { libbpf_sys::bpf_obj_get(pin.as_ptr()) })?;
    // SAFETY: a fresh descriptor with no other owner.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: zero is a valid value of a struct of integers and a union of such.
    let mut info: libbpf_sys::bpf_link_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: a live descriptor, and a struct of `size` octets that outlives the call.
    checked(unsafe {
        libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size)
    })?;
    // SAFETY: a TCX link's info, and integers whatever it is.
    Ok(unsafe { info.__bindgen_anon_1.tcx.ifindex })
}

fn is_filter(hook: &Hook, program: BorrowedFd<'_>) -> io::Result<bool> {
    let (place, mut filter) = (hook.clsact(), hook.filter());
    // SAFETY: both structs carry their sizes and outlive the call.
    checked(unsafe { libbpf_sys::bpf_tc_query(&raw const place, &raw mut filter) })?;
    Ok(program_id(program)? == filter.prog_id)
}
