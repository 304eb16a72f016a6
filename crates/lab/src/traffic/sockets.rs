//! Sockets in the namespaces of VMs.

use crate::Error;
use crate::plan;
use crate::world::World;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, connect, listen, setsockopt,
    socket, sockopt,
};
use std::ffi::OsString;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use weir_model::scenario::{Scenario, Traffic, TrafficKind};

/// Port of traffic entry 0; entry `i` has the `i`-th after it.
const FIRST_PORT: u16 = 5001;
/// A TCP sender's buffer: several times what a path here holds, and bounded.
const TCP_SEND_BUFFER: usize = 256 * 1024;
/// A UDP sender's buffer only has to hold what is on its way out of the VM.
const UDP_SEND_BUFFER: usize = 4 * 1024 * 1024;
/// Holds what arrives while the playing thread does something else.
const UDP_RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

/// The sockets of one traffic entry.
pub(crate) struct Entry {
    pub(crate) receiver: Receiver,
    /// One per connection; not connected yet if TCP.
    pub(crate) senders: Vec<OwnedFd>,
    /// Where they send to.
    pub(crate) to: SocketAddrV4,
}

/// Where an entry's octets arrive.
pub(crate) enum Receiver {
    Tcp(TcpListener),
    Udp(OwnedFd),
}

/// All sockets of a scenario.
pub(crate) struct Sockets {
    pub(crate) entries: Vec<Entry>,
}

impl Sockets {
    /// Opens everything, so that starting a flow later costs one `connect`. **The calling thread
    /// ends up in some VM's namespace.**
    pub(crate) fn open(scenario: &Scenario, world: &World) -> Result<Self, Error> {
        if scenario.traffic.len() > usize::from(u16::MAX - FIRST_PORT) {
            return Err(Error::Unsupported {
                what: format!("{} traffic entries", scenario.traffic.len()),
                instead: "each needs a port: use connections instead of entries".into(),
            });
        }
        let entry = |(i, traffic): (usize, &Traffic)| {
            let address = plan::vm_address(scenario, traffic.to);
            let to = SocketAddrV4::new(address, FIRST_PORT + i as u16);
            world.vm(traffic.to).enter()?;
            let receiver = receiver(&traffic.kind, to).map_err(Error::kernel(format!(
                "open the receiver of {} in {}",
                traffic.group, scenario.vms[traffic.to].name
            )))?;
            world.vm(traffic.from).enter()?;
            let senders = senders(&traffic.kind, to).map_err(Error::kernel(format!(
                "open a sender of {} in {}",
                traffic.group, scenario.vms[traffic.from].name
            )))?;
            Ok(Entry { receiver, senders, to })
        };
        let entries = scenario.traffic.iter().enumerate().map(entry).collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }
}

fn new(kind: SockType) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, kind, flags, None)
}

/// Closing resets: a connection that says goodbye politely would keep its namespace for a minute.
fn reset_on_close(fd: &OwnedFd) -> Result<(), Errno> {
    setsockopt(fd, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })
}

fn receiver(kind: &TrafficKind, at: SocketAddrV4) -> Result<Receiver, Errno> {
    match kind {
        TrafficKind::Tcp { .. } => {
            let fd = new(SockType::Stream)?;
            reset_on_close(&fd)?; // what it accepts inherits this
            bind(fd.as_raw_fd(), &SockaddrIn::from(at))?;
            listen(&fd, Backlog::MAXCONN)?;
            Ok(Receiver::Tcp(TcpListener::from(fd)))
        }
        TrafficKind::Udp { .. } => {
            let fd = new(SockType::Datagram)?;
            setsockopt(&fd, sockopt::RcvBufForce, &UDP_RECEIVE_BUFFER)?;
            bind(fd.as_raw_fd(), &SockaddrIn::from(at))?;
            Ok(Receiver::Udp(fd))
        }
    }
}

fn senders(kind: &TrafficKind, to: SocketAddrV4) -> Result<Vec<OwnedFd>, Errno> {
    match kind {
        TrafficKind::Tcp { connections, congestion } => {
            let one = |_| {
                let fd = new(SockType::Stream)?;
                reset_on_close(&fd)?;
                setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
                setsockopt(&fd, sockopt::SndBufForce, &TCP_SEND_BUFFER)?;
                Ok(fd)
            };
            (0..*connections).map(one).collect()
        }
        TrafficKind::Udp { .. } => {
            let fd = new(SockType::Datagram)?;
            setsockopt(&fd, sockopt::SndBufForce, &UDP_SEND_BUFFER)?;
            connect(fd.as_raw_fd(), &SockaddrIn::from(to))?;
            Ok(vec![fd])
        }
    }
}
