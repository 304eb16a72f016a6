//! A TAP device: an interface whose far end is a file.
//!
//! Problem   A program can treat packets as no queue of the kernel can (exact queues, delay,
//!           several paths), if packets pass through it.
//! Approach  A TAP without any offload: a read is one frame of at most one MTU, complete with its
//!           checksum, and so is a write.
//! Promises  The interface is gone when the file is closed.
//! Not here  What happens between reading and writing.
//! Source    Linux, Documentation/networking/tuntap.rst.

use crate::error::{Context, Error};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The device behind which all TAPs are.
pub const DEVICE: &str = "/dev/net/tun";

/// Makes a TAP called `name` with the interface index `index` in the calling thread's network
/// namespace. It is down, and its file does not block.
///
/// # Errors
/// There is no such device in this system, the name or the index is taken, or the caller may not.
pub fn open(name: &str, index: u32) -> Result<File, Error> {
    let action = || format!("making TAP {name}");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(DEVICE)
        .during(|| format!("opening {DEVICE} (CONFIG_TUN, module tun)"))?;
    let index = libc::c_uint::from(index);
    // SAFETY: a live descriptor, and an integer that outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFINDEX as _, &raw const index) } < 0 {
        return Err(io::Error::last_os_error()).during(action);
    }
    // SAFETY: zero is a valid value of a struct of integers and a union of such.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: a live descriptor, and a request of the kernel's size that outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error()).during(action);
    }
    Ok(file)
}
