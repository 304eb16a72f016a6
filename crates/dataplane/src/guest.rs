//! TCP state of a guest's own connection, for traffic programs of the lab, which own the sockets.
//!
//! Not here  Connections of other programs: Weir does not look into a VM.
//! Source    Linux, `struct tcp_info` (include/uapi/linux/tcp.h), whose fields keep their places.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Places in `struct tcp_info`.
const SEGMENT: usize = 16;
const CWND: usize = 80;
const AGAIN: usize = 100;
const ACKED: usize = 120;
const SHOWN: usize = 228;
/// Length that is read: up to `tcpi_snd_wnd`, which Linux has since 5.4.
const LENGTH: usize = SHOWN + 4;

/// Windows and progress of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// Congestion window, octets: whole segments.
    pub cwnd: u64,
    /// Last window that it was shown, octets.
    pub shown: u64,
    /// Octets acknowledged so far.
    pub acked: u64,
    /// Segments sent again so far.
    pub again: u64,
}

/// Reads the state of a TCP socket.
///
/// # Errors
/// It is no TCP socket, or the kernel is older than 5.4.
pub fn windows(socket: BorrowedFd<'_>) -> io::Result<Windows> {
    let mut info = [0u8; LENGTH];
    let mut length = LENGTH as libc::socklen_t;
    let (fd, tcp, to) = (socket.as_raw_fd(), libc::IPPROTO_TCP, info.as_mut_ptr().cast());
    // SAFETY: a live descriptor; the kernel writes no more than `length` says.
    let got = unsafe { libc::getsockopt(fd, tcp, libc::TCP_INFO, to, &raw mut length) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < LENGTH {
        return Err(io::Error::other("TCP_INFO without tcpi_snd_wnd: it needs Linux 5.4"));
    }
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let long = |at: usize| {
        let [low, high] = [word(at), word(at + 4)].map(u64::from);
        if cfg!(target_endian = "little") { high << 32 | low } else { low << 32 | high }
    };
    Ok(Windows {
        cwnd: u64::from(word(CWND)) * u64::from(word(SEGMENT)),
        shown: word(SHOWN).into(),
        acked: long(ACKED),
        again: word(AGAIN).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    #[test]
    fn a_connection_tells_its_windows_and_what_was_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut from =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut to, _) = listener.accept().expect("it connected");
        let before = windows(from.as_fd()).expect("TCP");
        assert!(before.cwnd >= 10 * 536 && before.shown > 10_000, "{before:?}");
        from.write_all(&[0; 5000]).expect("room");
        to.read_exact(&mut [0; 5000]).expect("it comes");
        // An answer carries the acknowledgement.
        to.write_all(&[0]).expect("room");
        from.read_exact(&mut [0]).expect("it comes");
        let after = windows(from.as_fd()).expect("TCP");
        assert_eq!((after.acked - before.acked, after.again), (5000, 0));
    }

    #[test]
    fn what_is_no_tcp_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        assert!(windows(socket.as_fd()).is_err());
    }
}
