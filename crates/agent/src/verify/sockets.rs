//! The sockets of `weir verify`.
//!
//! Problem   A probe's header must leave as it was built, and be read as it came, behind the host's own
//!           firewall: a packet that it drops would not reach an agent either.
//! Approach  Raw sockets. A filter in the kernel lets through what begins as one of our probes does, so a
//!           host's other datagrams (tunnels are UDP, too) cost nothing here. The kernel keeps
//!           IPv6's header to itself, but tells the traffic class.
//! Promises  Nothing here waits, but [`wait`].
//! Not here  What headers mean: see `header`.

use super::header::{self, Came};
use super::note::{KIND_AT, MAGIC};
use anyhow::{Context, Result, anyhow};
use nix::sys::socket::sockopt::{Ipv6RecvTClass, UdpGroSegment};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use rustix::event::{PollFd, Timespec, poll};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use weir_units::Span;

/// Octets that one call receives at most: what the kernel merges of a stream.
pub(crate) const BUFFER: usize = 1 << 16;
/// Octets of kernel memory for what waits to be read: a hundred milliseconds at 600 Mb/s.
const QUEUE: usize = 8 << 20;

/// A pair of raw sockets of one address of this host.
pub(crate) struct Raw {
    local: IpAddr,
    /// Takes whole packets.
    sender: OwnedFd,
    /// Gives UDP packets to `local` that are probes of one kind.
    receiver: Socket,
}

impl Raw {
    /// Opens them for probes of this kind.
    ///
    /// # Errors
    ///
    /// The caller may not.
    pub(crate) fn open(local: IpAddr, kind: u8) -> Result<Self> {
        let (family, domain) = match local {
            IpAddr::V4(_) => (AddressFamily::INET, Domain::IPV4),
            IpAddr::V6(_) => (AddressFamily::INET6, Domain::IPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let why = "a raw socket needs CAP_NET_RAW: run it as root";
        let sender =
            socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW)).context(why)?;
        let kinds = Type::RAW.nonblocking().cloexec();
        let receiver = Socket::new(domain, kinds, Some(Protocol::UDP)).context(why)?;
        // Before it is bound: nothing else may come in.
        receiver.attach_filter(&filter(local.is_ipv6(), kind))?;
        enlarge(&receiver);
        if local.is_ipv6() {
            setsockopt(&receiver, Ipv6RecvTClass, &true)?;
        }
        receiver.bind(&SocketAddr::new(local, 0).into()).context(local)?;
        Ok(Self { local, sender, receiver })
    }

    /// Sends a whole packet. A packet beyond the device's MTU is refused with `EMSGSIZE`.
    pub(crate) fn send(&self, packet: &[u8], to: SocketAddr) -> rustix::io::Result<()> {
        let mut to = to;
        // A raw socket's port is a protocol.
        to.set_port(0);
        sendto(&self.sender, packet, SendFlags::empty(), &to).map(drop)
    }

    /// The next probe that waits, with its payload.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Option<(Came, &'a [u8])> {
        loop {
            match receive(self.receiver.as_fd(), buffer) {
                Ok(got) if self.read(&got, buffer).is_some() => return self.read(&got, buffer),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return None,
            }
        }
    }

    fn read<'a>(&self, got: &Got, buffer: &'a [u8]) -> Option<(Came, &'a [u8])> {
        let octets = &buffer[..got.octets];
        let (IpAddr::V6(local), SocketAddr::V6(from)) = (self.local, got.from) else {
            return header::read4(octets);
        };
        let (mut came, payload) = header::read6(octets, (*from.ip(), local), got.tos)?;
        // The interface of a link's own address.
        if let SocketAddr::V6(at) = &mut came.from {
            at.set_scope_id(from.scope_id());
        }
        Some((came, payload))
    }
}

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Lets datagrams through that begin as ours do and are of this kind. An IPv4 socket's packets begin
/// with the IP header, those of IPv6 with the UDP header.
fn filter(is_v6: bool, kind: u8) -> Vec<SockFilter> {
    const INDEX: u16 = 0x01;
    const INDEX_BY_HEADER: u16 = 0xb1;
    const WORD: u16 = 0x40;
    const OCTET: u16 = 0x50;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALL: u32 = 0x4_0000;
    let word = |at: usize| {
        let four = [MAGIC[at], MAGIC[at + 1], MAGIC[at + 2], MAGIC[at + 3]];
        u32::from_be_bytes(four)
    };
    let at = |offset: usize| (header::UDP_HEADER + offset) as u32;
    // Where the UDP header begins.
    let begin = if is_v6 { INDEX } else { INDEX_BY_HEADER };
    vec![
        SockFilter::new(begin, 0, 0, 0),
        SockFilter::new(WORD, 0, 0, at(0)),
        SockFilter::new(EQUAL, 0, 5, word(0)),
        SockFilter::new(WORD, 0, 0, at(4)),
        SockFilter::new(EQUAL, 0, 3, word(4)),
        SockFilter::new(OCTET, 0, 0, at(KIND_AT)),
        SockFilter::new(EQUAL, 0, 1, kind.into()),
        SockFilter::new(RETURN, 0, 0, ALL),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// A UDP socket for streams, which takes what the kernel has merged.
///
/// # Errors
///
/// The address cannot be bound.
pub(crate) fn bind(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    socket.set_nonblocking(true)?;
    enlarge(&socket);
    // An old kernel merges nothing, which costs CPU alone.
    let _ = setsockopt(&socket, UdpGroSegment, &true);
    Ok(socket)
}

fn enlarge(socket: impl AsFd) {
    // As large as the host allows without the privilege.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, QUEUE);
}

/// What one call received.
pub(crate) struct Got {
    pub(crate) octets: usize,
    pub(crate) from: SocketAddr,
    /// IPv6's traffic class.
    tos: u8,
    /// Octets of each datagram; the last may be shorter.
    pub(crate) segment: usize,
}

/// Receives without waiting.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Got> {
    let mut control = nix::cmsg_space!(i32, i32);
    let mut vector = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let got =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut vector, Some(&mut control), flags)?;
    let from = got.address.as_ref().and_then(address).ok_or(nix::errno::Errno::EAFNOSUPPORT)?;
    let (mut tos, mut segment) = (0, got.bytes);
    for message in got.cmsgs()? {
        match message {
            ControlMessageOwned::Ipv6TClass(class) => tos = class as u8,
            ControlMessageOwned::UdpGroSegments(size) => segment = size.max(1) as usize,
            _ => {}
        }
    }
    Ok(Got { octets: got.bytes, from, tos, segment: segment.max(1) })
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|at| SocketAddr::V4((*at).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|at| SocketAddr::V6((*at).into())))
}

/// Sends datagrams of `segment` octets that stand behind each other, in one call.
pub(crate) fn send_segments(
    socket: &UdpSocket,
    to: SocketAddr,
    octets: &[u8],
    segment: u16,
) -> nix::Result<()> {
    let cut = [ControlMessage::UdpGsoSegments(&segment)];
    let cut = if octets.len() > usize::from(segment) { &cut[..] } else { &[] };
    let (vector, to) = ([IoSlice::new(octets)], SockaddrStorage::from(to));
    sendmsg(socket.as_raw_fd(), &vector, cut, MsgFlags::empty(), Some(&to)).map(drop)
}

/// Waits until one of `sockets` can be read, `most` at most.
pub(crate) fn wait(sockets: &mut [PollFd<'_>], most: Span) {
    let ns = most.as_nanos();
    let timeout =
        Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // A signal is looked at by the caller; other errors show when the sockets are read.
    let _ = poll(sockets, Some(&timeout));
}

/// Address of this host from which packets to `to` leave.
///
/// # Errors
///
/// There is no route.
pub(crate) fn local_address(to: SocketAddr) -> Result<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to).with_context(|| format!("{}: no way leads there", to.ip()))?;
    Ok(socket.local_addr()?.ip())
}

/// MTU of the device that has this address.
///
/// # Errors
///
/// No device has it, or the kernel does not tell.
pub(crate) fn device_mtu(local: IpAddr) -> Result<u16> {
    let has = |entry: &nix::ifaddrs::InterfaceAddress| {
        entry.address.as_ref().and_then(address).is_some_and(|at| at.ip() == local)
    };
    let entry = nix::ifaddrs::getifaddrs()?.find(has);
    let label = entry.ok_or_else(|| anyhow!("{local}: no device has this address"))?.interface_name;
    // An address may have a label, `eth0:1`. No device has a colon in its name.
    let name = label.split(':').next().unwrap_or(&label);
    let mut netlink = weir_dataplane::nl::Socket::open()?;
    let link = weir_dataplane::nl::link::get(&mut netlink, name)?;
    let mtu = link.with_context(|| format!("{name}: the device is gone"))?.mtu;
    // The loopback's exceeds what a packet can have.
    Ok(mtu.min(u16::MAX.into()) as u16)
}
