//! The socket of the control channel.
//!
//! Problem   Any sender that reaches the port can fill the socket's queue. Honest messages are then
//!           lost.
//! Approach  A queue for a thousand datagrams, and the kernel's own count of those that found no
//!           room. A lost message costs efficiency, not floors.
//! Promises  What was lost for lack of room is counted.

use anyhow::{Context, Result};
use rustix::net::sockopt;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// DSCP CS6 in the former TOS octet, and in the traffic class of IPv6: control messages before
/// data, where the network looks at it.
const TOS: u8 = 48 << 2;
/// Octets of kernel memory for datagrams that wait: a small one takes about 800.
const QUEUE: usize = 1 << 20;

/// Opens the socket.
///
/// # Errors
///
/// The address cannot be bound.
pub(crate) fn open(listen: SocketAddr) -> Result<UdpSocket> {
    let socket =
        UdpSocket::bind(listen).with_context(|| format!("listen: {listen} cannot be bound"))?;
    socket.set_nonblocking(true)?;
    // Neither is fatal: without the mark, control messages are as good as data. A socket of IPv6
    // has both: one for its own packets, one for those to mapped addresses of IPv4.
    let marked = match listen {
        SocketAddr::V4(_) => sockopt::set_ip_tos(&socket, TOS),
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(&socket, TOS.into())
            .and_then(|()| sockopt::set_ip_tos(&socket, TOS)),
    };
    if let Err(e) = marked {
        tracing::warn!("control messages go unmarked: {e}");
    }
    if let Err(e) = sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE) {
        tracing::warn!("the control socket's queue is short: {e}");
    }
    Ok(socket)
}

/// Datagrams that found no room in the socket's queue; `None` if the kernel does not tell.
pub(crate) fn dropped(socket: &UdpSocket) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
    ["udp", "udp6"].iter().find_map(|table| {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).ok()?;
        drops(&text, &inode)
    })
}

/// The last column of the socket's line.
fn drops(table: &str, inode: &str) -> Option<u64> {
    let line = table.lines().find(|line| line.split_whitespace().nth(9) == Some(inode))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_marked_over_ipv4_and_over_ipv6() {
        let open = |listen: &str| open(listen.parse().expect("an address")).expect("a socket");
        let four = open("127.0.0.1:0");
        assert_eq!(sockopt::ip_tos(&four).expect("told"), 0xc0);
        let six = open("[::1]:0");
        assert_eq!(sockopt::ipv6_tclass(&six).expect("told"), 0xc0);
        assert_eq!(sockopt::ip_tos(&six).expect("told"), 0xc0, "to mapped addresses");
    }

    #[test]
    fn a_flood_beyond_the_queue_is_counted() {
        let socket = open("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        assert_eq!(dropped(&socket), Some(0));
        let flood = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("bound");
        let sent = 4 * QUEUE / 768;
        for _ in 0..sent {
            flood.send_to(&[0; 56], to).expect("the loopback takes it");
        }
        let lost = dropped(&socket).expect("the kernel tells");
        let mut octets = [0; 64];
        let mut got = 0;
        while socket.recv_from(&mut octets).is_ok() {
            got += 1;
        }
        assert!(lost > 0 && got >= 500, "{got} waited, {lost} were lost");
        assert_eq!(got + lost, sent as u64, "each waits or is counted");
    }
}
