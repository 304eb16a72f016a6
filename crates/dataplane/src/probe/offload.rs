//! A card's offloads, as ethtool asks for them.

use std::io;
use std::os::fd::AsRawFd;

/// Offloads of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Offloads {
    /// Packets of one flow are merged as they arrive, and could be cut again.
    pub(super) gro: bool,
    /// The card cuts large segments.
    pub(super) tso: bool,
    /// Packets are merged beyond recognition.
    pub(super) lro: bool,
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Asks a device of this thread's network namespace.
pub(super) fn offloads(interface: &str) -> io::Result<Offloads> {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0))?;
    let ask = |command: u32| {
        let mut value = Value { command, data: 0 };
        // SAFETY: zero is a valid value of a struct of integers and a union of such.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: a live socket; the request and the value it points to have the kernel's layout
        // and outlive the call.
        let ret = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
    };
    Ok(Offloads {
        gro: ask(ETHTOOL_GGRO)? != 0,
        tso: ask(ETHTOOL_GTSO)? != 0,
        lro: ask(ETHTOOL_GFLAGS)? & ETH_FLAG_LRO != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_segments_and_a_device_that_is_not_there_is_an_error() {
        assert!(offloads("lo").expect("there is a loopback").tso);
        assert!(offloads("weir-none").is_err());
    }
}
