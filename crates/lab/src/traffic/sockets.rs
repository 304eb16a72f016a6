//! Sockets in the namespaces of VMs.

use super::exchange::{self, Opened};
use super::memcached;
use crate::Error;
use crate::plan;
use crate::world::World;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, setsockopt,
    socket, sockopt,
};
use std::collections::btree_map;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use weir_model::scenario::{Scenario, Traffic, TrafficKind};

/// Port of traffic entry 0; entry `i` has the `i`-th after it.
const FIRST_PORT: u16 = 5001;
/// A TCP sender's buffer: several times what a path here holds, and bounded.
pub(super) const TCP_SEND_BUFFER: usize = 256 * 1024;
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
    pub(crate) to: SocketAddr,
}

/// Where an entry's octets arrive.
pub(crate) enum Receiver {
    Tcp(TcpListener),
    Udp(OwnedFd),
}

/// All sockets of a scenario.
pub(crate) struct Sockets {
    /// Long-lived traffic, each with its position in the scenario.
    pub(crate) entries: Vec<(usize, Entry)>,
    /// Traffic that comes and goes.
    pub(crate) exchanges: Opened,
    /// Connections to memcached.
    pub(crate) memcached: Vec<memcached::Opened>,
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
        let mut sockets =
            Self { entries: Vec::new(), exchanges: Opened::default(), memcached: Vec::new() };
        for (i, traffic) in scenario.traffic.iter().enumerate() {
            let to = SocketAddr::new(plan::vm_ip(scenario, traffic.to, traffic.ip), port(i));
            match &traffic.kind {
                TrafficKind::Tcp { .. } | TrafficKind::Udp { .. } => {
                    sockets.entries.push((i, long_lived(scenario, world, traffic, to)?));
                }
                kind if exchange::plays(kind) => {
                    sockets.exchanges.add(scenario, world, i, to)?;
                }
                TrafficKind::Memcached(kind) => {
                    world.vm(traffic.from).enter()?;
                    let (group, vm) = (&traffic.group, &scenario.vms[traffic.to].name);
                    let opened = memcached::Opened::connect(i, kind, to).map_err(Error::io(
                        format!("connect to the memcached of {group} in {vm}, at {to}"),
                    ))?;
                    sockets.memcached.push(opened);
                }
                // Answers come on the requests' connections; programs have their own sockets.
                _ => {}
            }
        }
        Ok(sockets)
    }
}

/// The port at which traffic entry `i` arrives.
pub(crate) fn port(i: usize) -> u16 {
    FIRST_PORT + i as u16
}

fn long_lived(
    scenario: &Scenario,
    world: &World,
    traffic: &Traffic,
    to: SocketAddr,
) -> Result<Entry, Error> {
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
}

impl Opened {
    /// Opens what the traffic entry `i` needs before it begins. **The calling thread ends up in the
    /// receiver's namespace.**
    fn add(
        &mut self,
        scenario: &Scenario,
        world: &World,
        i: usize,
        to: SocketAddr,
    ) -> Result<(), Error> {
        let traffic = &scenario.traffic[i];
        if let btree_map::Entry::Vacant(place) = self.namespaces.entry(traffic.from) {
            let file = world.vm(traffic.from).file().try_clone();
            place.insert(file.map_err(Error::io("keep a namespace"))?);
        }
        world.vm(traffic.to).enter()?;
        let congestion = traffic.kind.congestion().unwrap_or("cubic");
        let listener = exchange_listener(to, congestion).map_err(Error::kernel(format!(
            "open the receiver of {} in {}",
            traffic.group, scenario.vms[traffic.to].name
        )))?;
        self.listeners.push((i, listener, to));
        Ok(())
    }
}

/// A listener whose connections answer with this congestion control, at once.
fn exchange_listener(at: SocketAddr, congestion: &str) -> Result<TcpListener, Errno> {
    let fd = tcp_socket(at)?;
    // What it accepts inherits all of these.
    reset_on_close(&fd)?;
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
    setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
    setsockopt(&fd, sockopt::SndBufForce, &TCP_SEND_BUFFER)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
    listen(&fd, Backlog::MAXCONN)?;
    Ok(TcpListener::from(fd))
}

/// A TCP socket of the family of `address`, in the namespace the thread is in.
pub(super) fn tcp_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    new(SockType::Stream, address)
}

fn new(kind: SockType, address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(family, kind, flags, None)
}

/// Closing resets: a connection that says goodbye politely would keep its namespace for a minute.
fn reset_on_close(fd: &OwnedFd) -> Result<(), Errno> {
    setsockopt(fd, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })
}

fn receiver(kind: &TrafficKind, at: SocketAddr) -> Result<Receiver, Errno> {
    match kind {
        TrafficKind::Udp { .. } => {
            let fd = new(SockType::Datagram, at)?;
            setsockopt(&fd, sockopt::RcvBufForce, &UDP_RECEIVE_BUFFER)?;
            bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
            Ok(Receiver::Udp(fd))
        }
        _ => {
            let fd = new(SockType::Stream, at)?;
            reset_on_close(&fd)?; // what it accepts inherits this
            bind(fd.as_raw_fd(), &SockaddrStorage::from(at))?;
            listen(&fd, Backlog::MAXCONN)?;
            Ok(Receiver::Tcp(TcpListener::from(fd)))
        }
    }
}

fn senders(kind: &TrafficKind, to: SocketAddr) -> Result<Vec<OwnedFd>, Errno> {
    match kind {
        TrafficKind::Tcp { connections, congestion } => {
            let one = |_| {
                let fd = new(SockType::Stream, to)?;
                reset_on_close(&fd)?;
                setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion))?;
                setsockopt(&fd, sockopt::SndBufForce, &TCP_SEND_BUFFER)?;
                Ok(fd)
            };
            (0..*connections).map(one).collect()
        }
        _ => {
            let fd = new(SockType::Datagram, to)?;
            setsockopt(&fd, sockopt::SndBufForce, &UDP_SEND_BUFFER)?;
            connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
            Ok(vec![fd])
        }
    }
}
