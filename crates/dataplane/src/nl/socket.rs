//! The socket: sends batches, pairs answers with messages, reads dumps.

use super::attr::Attrs;
use super::message::HEADER;
use super::{Batch, Error, Object, Verb};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Longest wait for an answer before the socket is given up, in seconds.
pub const ANSWER_LIMIT_S: i64 = 5;

/// Messages per send: their answers must fit into the receive buffer together.
const CHUNK_MESSAGES: usize = 256;
/// Octets per send, well under the send buffer.
const CHUNK_OCTETS: usize = 64 * 1024;
/// Room for one datagram; the kernel fills dumps up to 32 kB.
const RECEIVE_OCTETS: usize = 64 * 1024;
/// A dump during which the kernel's table changed is read again, this often.
const DUMP_TRIES: usize = 8;

const NLM_F_DUMP_INTR: u16 = libc::NLM_F_DUMP_INTR as u16;
const NLM_F_ACK_TLVS: u16 = libc::NLM_F_ACK_TLVS as u16;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// An rtnetlink socket in the network namespace of the thread that opened it.
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    sent: u64,
}

/// One received message.
pub(super) struct Received<'a> {
    pub(super) kind: u16,
    flags: u16,
    sequence: u32,
    pub(super) payload: &'a [u8],
}

fn failed(action: &'static str) -> Error {
    Error::Socket { action, source: io::Error::last_os_error() }
}

impl Socket {
    /// Opens a socket in this thread's network namespace, where it stays.
    pub fn open() -> Result<Self, Error> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
        };
        if fd < 0 {
            return Err(failed("open it"));
        }
        // SAFETY: `fd` was just opened and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Self { fd, sequence: 0, buffer: vec![0; RECEIVE_OCTETS], sent: 0 };
        socket.option(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &1i32, "shorten answers")?;
        socket.option(
            libc::SOL_NETLINK,
            libc::NETLINK_EXT_ACK,
            &1i32,
            "ask for readable errors",
        )?;
        let limit = libc::timeval { tv_sec: ANSWER_LIMIT_S, tv_usec: 0 };
        socket.option(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &limit, "bound its waits")?;
        // The answers to one chunk must all fit: 256 of them at about 1 kB of kernel memory each.
        // Without the privilege the default must do, and an overrun is reported as ENOBUFS.
        let room: libc::c_int = 1 << 20;
        let _ = socket.option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room, "enlarge it");
        Ok(socket)
    }

    fn option<T>(
        &self,
        level: libc::c_int,
        name: libc::c_int,
        value: &T,
        action: &'static str,
    ) -> Result<(), Error> {
        // SAFETY: `value` is a live T and its own size is given.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(failed(action)) } else { Ok(()) }
    }

    /// Messages that asked for a change since the socket was opened.
    pub const fn written(&self) -> u64 {
        self.sent
    }

    /// Carries out all messages in order, many per system call. All are tried up to the end of the
    /// chunk in which one fails; the first failure is returned, and what came before it is done.
    pub fn send(&mut self, batch: &Batch) -> Result<(), Error> {
        let messages = batch.messages();
        let mut first = 0;
        while first < messages.len() {
            let start = messages[first].0.start;
            let fits = |(range, _, _): &&(std::ops::Range<usize>, Verb, Object)| {
                range.end - start <= CHUNK_OCTETS
            };
            let count = messages[first..].iter().take(CHUNK_MESSAGES).take_while(fits).count();
            let chunk = &messages[first..first + count.max(1)];
            let end = chunk[chunk.len() - 1].0.end;
            let mut octets = batch.octets()[start..end].to_vec();
            let base = self.number(&mut octets);
            silence_success(&mut octets);
            self.transmit(&octets)?;
            self.sent += chunk.len() as u64;
            self.collect(base, chunk)?;
            first += chunk.len();
        }
        Ok(())
    }

    /// Gives each message in `octets` its sequence number; returns the first.
    fn number(&mut self, octets: &mut [u8]) -> u32 {
        let base = self.sequence.wrapping_add(1);
        let mut at = 0;
        while at < octets.len() {
            self.sequence = self.sequence.wrapping_add(1);
            octets[at + 8..at + 12].copy_from_slice(&self.sequence.to_ne_bytes());
            let length = u32::from_ne_bytes(octets[at..at + 4].try_into().expect("four octets"));
            at += length as usize;
        }
        base
    }

    fn transmit(&self, octets: &[u8]) -> Result<(), Error> {
        // SAFETY: the buffer is live and its length is given; a netlink socket without an address
        // sends to the kernel.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), octets.as_ptr().cast(), octets.len(), 0) };
        if sent < 0 { Err(failed("send")) } else { Ok(()) }
    }

    /// Waits for the answer to the chunk's last message. The kernel works in order, so no earlier
    /// message is open then. The first refusal is the result.
    fn collect(
        &mut self,
        base: u32,
        chunk: &[(std::ops::Range<usize>, Verb, Object)],
    ) -> Result<(), Error> {
        let mut is_open = true;
        let mut refusal: Option<Error> = None;
        while is_open {
            let length = self.receive()?;
            for message in messages(&self.buffer[..length]) {
                let index = message.sequence.wrapping_sub(base) as usize;
                // Answers to an earlier, abandoned send are not ours to judge.
                let Some((_, verb, object)) = chunk.get(index) else { continue };
                if message.kind != libc::NLMSG_ERROR as u16 {
                    continue;
                }
                is_open &= index + 1 < chunk.len();
                if let (None, Err(error)) = (&refusal, verdict(&message, *verb, object)) {
                    refusal = Some(error);
                }
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Sends the only message of `request` and gives each answer's payload (behind the header) to
    /// `each`. For [`Verb::Read`] that is one object, for [`Verb::List`] all of them, read again
    /// when the kernel says that they changed meanwhile; `restart` then forgets what was collected.
    pub(super) fn ask<T>(
        &mut self,
        request: &Batch,
        mut each: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let [(_, verb, object)] = request.messages() else {
            panic!("one question at a time");
        };
        for _ in 0..DUMP_TRIES {
            let mut octets = request.octets().to_vec();
            let base = self.number(&mut octets);
            self.transmit(&octets)?;
            let mut found = Vec::new();
            if self.listen(base, *verb, object, |payload| found.extend(each(payload)))? {
                return Ok(found);
            }
        }
        let what = "changed whenever it was read";
        Err(Error::Answer { verb: *verb, object: object.clone(), what })
    }

    /// Reads answers until the end; whether they were consistent.
    fn listen(
        &mut self,
        sequence: u32,
        verb: Verb,
        object: &Object,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, Error> {
        let mut consistent = true;
        loop {
            let length = self.receive()?;
            for message in messages(&self.buffer[..length]) {
                if message.sequence != sequence {
                    continue;
                }
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match i32::from(message.kind) {
                    libc::NLMSG_ERROR => {
                        verdict(&message, verb, object)?;
                        return Ok(consistent);
                    }
                    libc::NLMSG_DONE => {
                        // A dump that failed on the way says so in its last message.
                        let code = message
                            .payload
                            .get(..4)
                            .map_or(0, |c| i32::from_ne_bytes(c.try_into().expect("four octets")));
                        if code < 0 {
                            verdict(&message, verb, object)?;
                        }
                        return Ok(consistent);
                    }
                    _ => each(message.payload),
                }
            }
        }
    }

    /// Receives one datagram from the kernel into the buffer; its length.
    fn receive(&mut self) -> Result<usize, Error> {
        loop {
            // SAFETY: an all-zero address is a valid value of this plain struct.
            let mut from: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
            let mut from_length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
            // SAFETY: buffer and address are live and writable, their sizes are given.
            let length = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    libc::MSG_TRUNC,
                    std::ptr::from_mut(&mut from).cast(),
                    &raw mut from_length,
                )
            };
            let Ok(length) = usize::try_from(length) else {
                let source = io::Error::last_os_error();
                if source.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(Error::Socket { action: "receive", source });
            };
            if from.nl_pid != 0 {
                continue; // Only the kernel's word counts; any process may send to us.
            }
            if length > self.buffer.len() {
                let source = io::Error::from_raw_os_error(libc::EMSGSIZE);
                return Err(Error::Socket { action: "receive", source });
            }
            return Ok(length);
        }
    }
}

/// Asks for an answer on success only for the last message. The kernel always answers a refusal,
/// and each answer is a datagram that costs about as much as the change of a class.
fn silence_success(octets: &mut [u8]) {
    let mut at = 0;
    loop {
        let length = u32::from_ne_bytes(octets[at..at + 4].try_into().expect("four octets"));
        let next = at + length as usize;
        if next >= octets.len() {
            return;
        }
        let flags = u16::from_ne_bytes(octets[at + 6..at + 8].try_into().expect("two octets"));
        let quiet = flags & !(libc::NLM_F_ACK as u16);
        octets[at + 6..at + 8].copy_from_slice(&quiet.to_ne_bytes());
        at = next;
    }
}

/// The messages in a datagram.
pub(super) fn messages(mut octets: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let word = |at: usize| Some(octets.get(at..at + 4)?.try_into().expect("four octets"));
        let half = |at: usize| Some(octets.get(at..at + 2)?.try_into().expect("two octets"));
        let length = u32::from_ne_bytes(word(0)?) as usize;
        let message = Received {
            kind: u16::from_ne_bytes(half(4)?),
            flags: u16::from_ne_bytes(half(6)?),
            sequence: u32::from_ne_bytes(word(8)?),
            payload: octets.get(HEADER..length)?,
        };
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// The error number of an `nlmsgerr` or of a dump's end: 0 or negative, if the kernel sent it.
pub(super) fn code(message: &Received<'_>) -> Option<i32> {
    let code = message.payload.get(..4)?;
    Some(i32::from_ne_bytes(code.try_into().expect("four octets")))
}

/// What an `nlmsgerr` (or the end of a dump) says: nothing, or a refusal with the kernel's words.
fn verdict(message: &Received<'_>, verb: Verb, object: &Object) -> Result<(), Error> {
    let Some(code) = code(message) else {
        return Err(Error::Answer { verb, object: object.clone(), what: "was cut short" });
    };
    if code == 0 {
        return Ok(());
    }
    // With CAP_ACK an error repeats the request's header only; a dump's end repeats nothing.
    let repeated = if message.kind == libc::NLMSG_ERROR as u16 { HEADER } else { 0 };
    let words = (message.flags & NLM_F_ACK_TLVS != 0)
        .then(|| message.payload.get(4 + repeated..))
        .flatten()
        .and_then(|octets| Attrs(octets).find(NLMSGERR_ATTR_MSG))
        .map(super::attr::Value::text);
    Err(Error::Refused {
        verb,
        object: object.clone(),
        errno: code.saturating_neg(),
        message: words.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_object_number_and_the_kernels_words() {
        let mut octets = Vec::new();
        let words = b"Specified class does not exist\0\0";
        octets.extend_from_slice(&(56u32 + 16).to_ne_bytes());
        octets.extend_from_slice(&2u16.to_ne_bytes());
        octets.extend_from_slice(&0x300u16.to_ne_bytes());
        octets.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        octets.extend_from_slice(&(-22i32).to_ne_bytes());
        octets.extend_from_slice(&[0; 16]);
        octets.extend_from_slice(&[36, 0, 1, 0]);
        octets.extend_from_slice(words);
        let length = octets.len() as u32;
        octets[0..4].copy_from_slice(&length.to_ne_bytes());
        let message = messages(&octets).next().unwrap();
        let device = super::super::Device { name: "weir-x".into(), index: 3 };
        let object = Object::Class { device, id: 0x1_4000 };
        let error = verdict(&message, Verb::Change, &object).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot change class 1:4000 of weir-x: Invalid argument (os error 22) \
             (kernel: Specified class does not exist)"
        );
    }

    #[test]
    fn only_the_last_message_of_a_chunk_asks_for_a_word_on_success() {
        let mut batch = Batch::new();
        for verb in [Verb::Change, Verb::Create, Verb::Delete] {
            batch.push(16, verb, Object::Links, &[], |_| {});
        }
        let mut octets = batch.octets().to_vec();
        silence_success(&mut octets);
        let flags: Vec<i32> = messages(&octets).map(|m| i32::from(m.flags)).collect();
        let (request, ack) = (libc::NLM_F_REQUEST, libc::NLM_F_ACK);
        let create = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        assert_eq!(flags, [request, request | create, request | ack]);
    }

    #[test]
    fn a_cut_datagram_gives_no_message() {
        assert_eq!(messages(&[40, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).count(), 0);
        assert_eq!(messages(&[0; 3]).count(), 0);
        assert_eq!(messages(&[0; 16]).count(), 0);
    }
}
