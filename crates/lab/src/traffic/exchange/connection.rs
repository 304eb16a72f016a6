//! Both ends of one connection, and the octets that still have to pass between them.

use super::super::sockets::{TCP_SEND_BUFFER, tcp_socket};
use super::RESET;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    MsgFlags, SockaddrStorage, connect, getsockname, getsockopt, recv, send, setsockopt, sockopt,
};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use weir_units::Span;

/// Calls on one socket before the next one's turn.
const IN_TURN: usize = 16;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// There is more to do, or nothing to do yet.
    Busy,
    /// All has arrived; with the intended start.
    Done(Span),
}

/// Octets that still have to pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    /// Octets that the client still gives to its socket.
    asking: u64,
    /// Octets that the server still receives.
    asked: u64,
    /// Octets that the server gives to its socket once it has received everything.
    answering: u64,
    /// Octets that the client still receives.
    answered: u64,
}

/// A connection; dropping it resets both ends.
pub(super) struct Connection {
    /// Traffic entry of the connection.
    pub(super) entry: usize,
    /// The client's own address.
    pub(super) address: SocketAddr,
    pub(super) client: OwnedFd,
    server: Option<OwnedFd>,
    connected: bool,
    intended: Option<Span>,
    left: Left,
    /// Events that epoll watches at the client and at the server.
    watched: [EpollFlags; 2],
}

impl Connection {
    /// Begins to connect, from the namespace the thread is in.
    pub(super) fn open(entry: usize, to: SocketAddr, congestion: &str) -> Result<Self, Errno> {
        let client = tcp_socket(to)?;
        setsockopt(&client, sockopt::Linger, &RESET)?;
        setsockopt(&client, sockopt::TcpCongestion, &OsString::from(congestion))?;
        setsockopt(&client, sockopt::TcpNoDelay, &true)?;
        setsockopt(&client, sockopt::SndBufForce, &TCP_SEND_BUFFER)?;
        match connect(client.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        let own: SockaddrStorage = getsockname(client.as_raw_fd())?;
        let address = address(&own).ok_or(Errno::EAFNOSUPPORT)?;
        let both = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT;
        Ok(Self {
            entry,
            address,
            client,
            server: None,
            connected: false,
            intended: None,
            left: Left::default(),
            watched: [both, EpollFlags::EPOLLIN],
        })
    }

    /// The other end is there.
    pub(super) fn accepted(&mut self, server: OwnedFd) {
        self.server = Some(server);
    }

    /// `size` octets are to be sent, then `answer` octets back.
    pub(super) fn begin(&mut self, intended: Span, size: u64, answer: u64) {
        self.intended = Some(intended);
        self.left = Left { asking: size, asked: size, answering: answer, answered: answer };
    }

    /// Sends and receives what it can at one end. `arrived` is told where how many octets came out.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn serve(
        &mut self,
        side: Side,
        buffer: &mut [u8],
        zeros: &[u8],
        mut arrived: impl FnMut(Side, usize),
    ) -> Result<Event, Errno> {
        if side == Side::Client && !self.connected {
            match getsockopt(&self.client, sockopt::SocketError)? {
                0 => self.connected = true,
                error => return Err(Errno::from_raw(error)),
            }
        }
        let fd = match (side, &self.server) {
            (Side::Client, _) => &self.client,
            (Side::Server, Some(server)) => server,
            (Side::Server, None) => return Ok(Event::Busy),
        };
        let received = receive(fd, buffer)?;
        if received > 0 {
            arrived(side, received as usize);
        }
        let arriving = match side {
            Side::Client => &mut self.left.answered,
            Side::Server => &mut self.left.asked,
        };
        *arriving = arriving.saturating_sub(received);
        match side {
            Side::Client => give(fd, zeros, &mut self.left.asking)?,
            Side::Server if self.left.asked == 0 => give(fd, zeros, &mut self.left.answering)?,
            Side::Server => {}
        }
        if self.left == Left::default()
            && let Some(intended) = self.intended.take()
        {
            return Ok(Event::Done(intended));
        }
        Ok(Event::Busy)
    }

    /// What one end waits for, if epoll does not know yet.
    pub(super) fn changed(&mut self, side: Side) -> Option<(BorrowedFd<'_>, EpollFlags)> {
        let left = &self.left;
        let (fd, sends, watched) = match side {
            Side::Client => {
                (&self.client, left.asking > 0 || !self.connected, &mut self.watched[0])
            }
            Side::Server => {
                let sends = left.asked == 0 && left.answering > 0;
                (self.server.as_ref()?, sends, &mut self.watched[1])
            }
        };
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, sends);
        if *watched == flags {
            return None;
        }
        *watched = flags;
        Some((fd.as_fd(), flags))
    }
}

/// Takes what has come without copying it; an end of the stream is an error.
fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Result<u64, Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    let mut received = 0;
    for _ in 0..IN_TURN {
        match recv(fd.as_raw_fd(), buffer, flags) {
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(octets) => received += octets as u64,
            Err(Errno::EAGAIN | Errno::EINTR) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(received)
}

/// Gives the socket what it takes of what is left.
fn give(fd: &OwnedFd, zeros: &[u8], left: &mut u64) -> Result<(), Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    for _ in 0..IN_TURN {
        if *left == 0 {
            break;
        }
        let some = (*left).min(zeros.len() as u64) as usize;
        match send(fd.as_raw_fd(), &zeros[..some], flags) {
            Ok(sent) => *left -= sent as u64,
            Err(Errno::EAGAIN | Errno::EINTR) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = storage.as_sockaddr_in() {
        return Some(SocketAddr::V4((*v4).into()));
    }
    storage.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into()))
}
