//! Records control messages on the last step of their way.

use super::packet::{is_forged, packet_to, without_checksum};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd};

/// Most messages that are kept: the first ones, from the incarnation of their senders that is
/// believed.
const KEPT: usize = 512;
/// Messages after which the recorder closes, because it sees every frame of its host.
const LOOKS: u32 = 400;
/// Buffer for the frames between two polls.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A socket that sees the frames of a host, until it has recorded enough.
pub(super) struct Recorder {
    socket: Option<OwnedFd>,
    to: SocketAddrV4,
    looks: u32,
    recorded: Vec<Vec<u8>>,
}

impl Recorder {
    /// Records what is sent to `to`, in this thread's network namespace.
    pub(super) fn open(to: SocketAddrV4) -> Result<Self, Errno> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        Ok(Self { socket: Some(socket), to, looks: 0, recorded: Vec::new() })
    }

    /// Takes the frames that came; returns how many messages are new.
    pub(super) fn listen(&mut self, buffer: &mut [u8]) -> usize {
        let before = self.recorded.len();
        let Some(socket) = &self.socket else { return 0 };
        while let Ok(length) = recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            if let Some(packet) = packet_to(&buffer[..length.min(buffer.len())], self.to)
                && self.recorded.len() < KEPT
                && !is_forged(packet)
                // A bridge shows a frame once per device it passes.
                && self.recorded.last().is_none_or(|last| *last != without_checksum(packet))
            {
                self.recorded.push(without_checksum(packet));
            }
        }
        self.looks += 1;
        let enough = self.recorded.len() >= KEPT || self.looks >= LOOKS;
        if enough && !self.recorded.is_empty() {
            self.socket = None;
        }
        self.recorded.len() - before
    }

    /// The `n`-th message to replay, round and round.
    pub(super) fn replay(&self, n: u64) -> Option<&[u8]> {
        let index = (n as usize).checked_rem(self.recorded.len())?;
        self.recorded.get(index).map(Vec::as_slice)
    }
}
