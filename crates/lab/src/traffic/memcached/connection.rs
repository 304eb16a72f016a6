//! A client's connection to memcached, and the request that is on it.

use super::protocol::{self, Answer, Strange};
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use weir_model::scenario::{Ask, Memcached};

/// Calls on one socket before the next one's turn.
const IN_TURN: usize = 16;

/// Reason why a connection has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The kernel reports an error, or the server closed it.
    #[error("{}", .0.desc())]
    Socket(#[from] Errno),
    /// The server sent something that is not the answer.
    #[error("{0}")]
    Strange(#[from] Strange),
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Octets that came.
    pub(super) come: usize,
    /// The answer is whole: octets of the request that it was to.
    pub(super) answered: Option<usize>,
}

/// A connection; dropping it resets it.
pub(super) struct Connection {
    pub(super) socket: TcpStream,
    request: Vec<u8>,
    /// How much of it the socket has taken.
    given: usize,
    answer: Option<Answer>,
    /// Events that epoll watches.
    watched: EpollFlags,
}

impl Connection {
    /// Watched for what comes.
    pub(super) fn new(socket: TcpStream) -> Self {
        let watched = EpollFlags::EPOLLIN;
        Self { socket, request: Vec::new(), given: 0, answer: None, watched }
    }

    /// A request is to be sent; the one before it was answered.
    pub(super) fn begin(&mut self, of: &Memcached, ask: Ask) {
        assert!(self.answer.is_none(), "one request at a time");
        self.request.clear();
        self.given = 0;
        protocol::write(of, ask, &mut self.request);
        self.answer = Some(Answer::to(of, ask));
    }

    /// Sends and receives what it can.
    pub(super) fn serve(&mut self, buffer: &mut [u8]) -> Result<Turn, Broken> {
        self.give()?;
        let mut turn = Turn::default();
        for _ in 0..IN_TURN {
            match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(Errno::ECONNRESET.into()),
                Ok(octets) => {
                    turn.come += octets;
                    let Some(answer) = &mut self.answer else {
                        return Err(Strange::Unasked.into());
                    };
                    if answer.read(&buffer[..octets])? {
                        self.answer = None;
                        turn.answered = Some(self.request.len());
                    }
                }
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(turn)
    }

    fn give(&mut self) -> Result<(), Errno> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        while self.given < self.request.len() {
            match send(self.socket.as_raw_fd(), &self.request[self.given..], flags) {
                Ok(sent) => self.given += sent,
                Err(Errno::EAGAIN | Errno::EINTR) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// What it waits for, if epoll does not know yet.
    pub(super) fn changed(&mut self) -> Option<EpollFlags> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLOUT, self.given < self.request.len());
        let changed = flags != self.watched;
        self.watched = flags;
        changed.then_some(flags)
    }
}
