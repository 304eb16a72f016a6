//! What devices do for their kernels, as ethtool sets it.

use crate::net::World;
use std::os::fd::AsRawFd;

pub(crate) const TX_CHECKSUMS: u32 = 0x17;
pub(crate) const TSO: u32 = 0x1f;
pub(crate) const GRO: u32 = 0x2c;

/// Sets what a device of a namespace does for its kernel.
pub(crate) fn offload(world: &World, ns: &str, device: &str, command: u32, on: bool) {
    #[repr(C)]
    struct Value(u32, u32);
    let set = || {
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let mut value = Value(command, on.into());
        // SAFETY: zero is a valid value of a struct of integers and a union of such.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: a live socket; request and value have the kernel's layout and outlive the call.
        let ret = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
        assert_eq!(ret, 0, "{device} of {ns}: {}", std::io::Error::last_os_error());
    };
    world.inside(ns, set);
}
