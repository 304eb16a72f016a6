//! A socket that sends Ethernet frames as they are given.
//!
//! Problem   An attack on the data plane needs frames that no kernel would make.
//! Approach  A packet socket that is bound to one interface of the calling thread's network
//!           namespace.
//! Not here  What the frames carry: see the lab's attacks.
//! Source    packet(7).

use crate::error::{Context, Error};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a socket for frames that leave by the interface `index`. It receives nothing, and does not
/// block.
///
/// # Errors
/// No such interface is in this namespace, or the caller lacks CAP_NET_RAW.
pub fn open(index: u32) -> Result<OwnedFd, Error> {
    let action = || format!("opening a socket for frames on interface {index}");
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).during(action);
    }
    // SAFETY: a descriptor that was just made and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zero is a valid value of a struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: an address of the size that is said, which outlives the call.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) } < 0 {
        return Err(io::Error::last_os_error()).during(action);
    }
    Ok(socket)
}
