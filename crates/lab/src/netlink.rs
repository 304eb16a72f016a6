//! Requests to the kernel's routing socket: links, addresses, neighbours, queues, filters.
//!
//! Problem   A world has thousands of settings; a process per setting takes a minute.
//! Approach  Messages are composed in a batch and sent a few dozen at a time; each is acknowledged,
//!           and each carries a sentence that becomes the error if the kernel refuses it.
//! Promises  A request that the kernel refused is an error that says which; nothing is ignored.
//! Not here  What to ask for: see `world` and `ports`.
//! Source    linux/rtnetlink.h, linux/if_link.h, linux/pkt_sched.h.

use crate::Error;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::os::fd::{AsRawFd, OwnedFd};

/// `NLM_F_CREATE | NLM_F_EXCL`: make it, and fail if it is there already.
pub(crate) const NEW: u16 = 0x600;
/// `NLM_F_CREATE | NLM_F_REPLACE`: make it, or make what is there like this.
pub(crate) const PUT: u16 = 0x500;
/// `NLM_F_ECHO`: older kernels answer a question about one queue only if asked to echo.
const ECHO: u16 = 0x8;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;

const NLMSG_ERROR: u16 = 2;
/// Acknowledgements queue up while the kernel works: more than this could overflow the socket.
const AT_ONCE: usize = 48;
/// The same for questions: a device describes itself at length.
const QUESTIONS_AT_ONCE: usize = 16;

/// Requests in order, not sent yet.
#[derive(Default)]
pub(crate) struct Batch {
    messages: Vec<Request>,
}

/// One request.
pub(crate) struct Request {
    what: String,
    needs: Option<&'static str>,
    octets: Vec<u8>,
}

impl Request {
    /// A message of `kind` (`RTM_…`) with its fixed header. `what` completes "cannot …".
    pub(crate) fn new(what: impl Into<String>, kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut octets = vec![0; 16];
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        octets[6..8].copy_from_slice(&(flags | REQUEST | ACK).to_ne_bytes());
        octets.extend_from_slice(header);
        Self { what: what.into(), needs: None, octets }
    }

    /// Names the kernel feature without which the kernel refuses this.
    pub(crate) fn needs(mut self, feature: &'static str) -> Self {
        self.needs = Some(feature);
        self
    }

    /// Appends an attribute.
    pub(crate) fn attr(mut self, kind: u16, value: &[u8]) -> Self {
        self.octets.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.octets.extend_from_slice(&kind.to_ne_bytes());
        self.octets.extend_from_slice(value);
        self.pad();
        self
    }

    /// Appends an attribute of 32 bits.
    pub(crate) fn attr_u32(self, kind: u16, value: u32) -> Self {
        self.attr(kind, &value.to_ne_bytes())
    }

    /// Appends a zero-terminated text.
    pub(crate) fn attr_text(self, kind: u16, value: &str) -> Self {
        let mut octets = value.as_bytes().to_vec();
        octets.push(0);
        self.attr(kind, &octets)
    }

    /// Appends an attribute that holds what `inside` appends.
    pub(crate) fn nest(mut self, kind: u16, inside: impl FnOnce(Self) -> Self) -> Self {
        let at = self.octets.len();
        self.octets.extend_from_slice(&[0; 4]);
        self = inside(self);
        let length = (self.octets.len() - at) as u16;
        self.octets[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.octets[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        self
    }

    /// Appends raw octets (a fixed header inside an attribute).
    pub(crate) fn raw(mut self, octets: &[u8]) -> Self {
        self.octets.extend_from_slice(octets);
        self.pad();
        self
    }

    /// The error if the kernel refuses this request.
    fn refused(&self, errno: Errno) -> Error {
        match self.needs {
            Some(feature) if matches!(errno, Errno::EOPNOTSUPP | Errno::ENOENT) => Error::Missing {
                what: format!("a kernel feature, {feature} (cannot {}: {errno})", self.what),
                remedy: "load the module, or use a kernel built with the option".into(),
            },
            _ => Error::Kernel { doing: self.what.clone(), errno },
        }
    }

    fn pad(&mut self) {
        self.octets.resize(self.octets.len().next_multiple_of(4), 0);
    }
}

impl Batch {
    /// Adds a request behind the others.
    pub(crate) fn push(&mut self, mut request: Request) {
        let length = request.octets.len() as u32;
        request.octets[0..4].copy_from_slice(&length.to_ne_bytes());
        self.messages.push(request);
    }
}

/// A routing socket; it belongs for ever to the namespace in which it was opened.
pub(crate) struct Netlink {
    fd: OwnedFd,
    answer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )
        .map_err(Error::kernel("open a routing socket"))?;
        // The kernel answers within the call; a lost answer must not hang the lab.
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::seconds(5))
            .map_err(Error::kernel("limit the wait for the kernel"))?;
        Ok(Self { fd, answer: vec![0; 64 * 1024] })
    }

    /// Sends a batch; stops at the first request that is refused.
    pub(crate) fn send(&mut self, batch: Batch) -> Result<(), Error> {
        for some in batch.messages.chunks(AT_ONCE) {
            let octets = number(some.iter().map(|request| request.octets.as_slice()));
            send(self.fd.as_raw_fd(), &octets, MsgFlags::empty())
                .map_err(Error::kernel(&some[0].what))?;
            let mut answered = 0;
            let mut refused = None;
            while answered < some.len() {
                let length = self.receive(&some[answered].what)?;
                for (kind, sequence, body) in messages(&self.answer[..length]) {
                    if kind != NLMSG_ERROR {
                        continue;
                    }
                    answered += 1;
                    let code = body.get(..4).map_or(0, |b| int(b) as i32);
                    if code != 0 && refused.is_none() {
                        let request = some.get(sequence as usize).unwrap_or(&some[0]);
                        refused = Some(request.refused(Errno::from_raw(-code)));
                    }
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks for the root queue of each interface: octets sent and packets dropped since it was
    /// made, in the order of `interfaces`. An interface without a queue of its own counts nothing.
    pub(crate) fn queues(&mut self, interfaces: &[u32]) -> Result<Vec<(u64, u64)>, Error> {
        let question = |interface| {
            let header = tc_header(interface, 0, TC_ROOT, 0);
            Request::new("read a queue", RTM_GETQDISC, ECHO, &header)
        };
        self.ask(interfaces, question, (RTM_NEWQDISC, 20), queue_counters)
    }

    /// Asks whether each interface carries packets: it is up, and if it is a bridge's port, the
    /// bridge forwards to it.
    pub(crate) fn up(&mut self, interfaces: &[u32]) -> Result<Vec<bool>, Error> {
        let question = |interface| {
            Request::new("ask for a device", RTM_GETLINK, 0, &link_header(interface, false))
        };
        self.ask(interfaces, question, (RTM_NEWLINK, 16), is_up)
    }

    /// Octets that came in at each interface since it was made, layer 2 without FCS.
    pub(crate) fn received(&mut self, interfaces: &[u32]) -> Result<Vec<u64>, Error> {
        let question = |interface| {
            Request::new("read a device", RTM_GETLINK, 0, &link_header(interface, false))
        };
        self.ask(interfaces, question, (RTM_NEWLINK, 16), |octets| counter(octets, 2))
    }

    /// Packets that an interface dropped instead of sending since it was made.
    pub(crate) fn unsent(&mut self, interface: u32) -> Result<u64, Error> {
        let question = |interface| {
            Request::new("read a device", RTM_GETLINK, 0, &link_header(interface, false))
        };
        let found = self.ask(&[interface], question, (RTM_NEWLINK, 16), |o| counter(o, 7))?;
        Ok(found[0])
    }

    /// Puts one question per interface; answers are of a kind, with a header of so many octets, of
    /// which the second four are the interface. No answer is `T`'s default.
    fn ask<T: Clone + Default>(
        &mut self,
        interfaces: &[u32],
        question: impl Fn(u32) -> Request,
        (kind, header): (u16, usize),
        read: impl Fn(&[u8]) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut found = vec![T::default(); interfaces.len()];
        let chunks = interfaces.chunks(QUESTIONS_AT_ONCE);
        for (some, found) in chunks.zip(found.chunks_mut(QUESTIONS_AT_ONCE)) {
            let mut batch = Batch::default();
            some.iter().for_each(|&interface| batch.push(question(interface)));
            let octets = number(batch.messages.iter().map(|m| m.octets.as_slice()));
            let doing = &batch.messages[0].what;
            send(self.fd.as_raw_fd(), &octets, MsgFlags::empty()).map_err(Error::kernel(doing))?;
            let mut answered = 0;
            while answered < some.len() {
                let length = self.receive(doing)?;
                for (k, _, body) in messages(&self.answer[..length]) {
                    if k == NLMSG_ERROR {
                        answered += 1;
                    } else if k == kind && body.len() >= header {
                        let interface = int(&body[4..8]);
                        if let Some(i) = some.iter().position(|&n| n == interface) {
                            found[i] = read(&body[header..]);
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    fn receive(&mut self, doing: &str) -> Result<usize, Error> {
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.answer, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                other => return other.map_err(Error::kernel(doing)),
            }
        }
    }
}

/// Joins messages; the sequence number of each is its position.
fn number<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for (i, message) in messages.enumerate() {
        let at = joined.len();
        joined.extend_from_slice(message);
        joined[at + 8..at + 12].copy_from_slice(&(i as u32).to_ne_bytes());
    }
    joined
}

/// Splits an answer in (kind, sequence number, body); stops at what is not well-formed.
fn messages(octets: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let length = int(rest.get(..4)?) as usize;
        let message = rest.get(..length).filter(|m| m.len() >= 16)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        Some((kind, int(&message[8..12]), &message[16..]))
    })
}

/// Splits a row of attributes in (kind, value).
fn attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// (octets sent, packets dropped) from the attributes of a queue.
fn queue_counters(octets: &[u8]) -> (u64, u64) {
    const TCA_STATS2: u16 = 7;
    const BASIC: u16 = 1;
    const QUEUE: u16 = 3;
    let mut counters = (0, 0);
    let stats = attributes(octets).find(|(kind, _)| *kind == TCA_STATS2);
    for (kind, value) in stats.into_iter().flat_map(|(_, stats)| attributes(stats)) {
        match (kind, value.len()) {
            (BASIC, 12..) => {
                counters.0 = u64::from_ne_bytes(value[..8].try_into().expect("8 of 12 octets"));
            }
            // struct gnet_stats_queue: qlen, backlog, drops, requeues, overlimits
            (QUEUE, 20..) => counters.1 = u64::from(int(&value[8..12])),
            _ => {}
        }
    }
    counters
}

/// A counter from the attributes of a device: packets received, packets sent, octets received,
/// octets sent, errors of both, dropped when received, dropped when sent (struct
/// rtnl_link_stats64).
fn counter(octets: &[u8], index: usize) -> u64 {
    const IFLA_STATS64: u16 = 23;
    let stats = attributes(octets).find(|(kind, _)| *kind == IFLA_STATS64);
    let field = stats.and_then(|(_, stats)| stats.get(8 * index..8 * index + 8));
    field.map_or(0, |field| u64::from_ne_bytes(field.try_into().expect("eight octets")))
}

/// Whether a device with these attributes carries packets.
fn is_up(octets: &[u8]) -> bool {
    const IFLA_OPERSTATE: u16 = 16;
    const IF_OPER_UP: u8 = 6;
    const BR_STATE_FORWARDING: u8 = 3;
    let find = |octets, wanted| attributes(octets).find(|(k, _)| *k == wanted).map(|(_, v)| v);
    // Link info → data of a bridge's port → its state.
    let state = find(octets, 18).and_then(|info| find(info, 5)).and_then(|port| find(port, 1));
    find(octets, IFLA_OPERSTATE) == Some(&[IF_OPER_UP])
        && state.is_none_or(|state| state == [BR_STATE_FORWARDING])
}

fn int(octets: &[u8]) -> u32 {
    u32::from_ne_bytes(octets[..4].try_into().expect("callers give four octets"))
}

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_NEWQDISC: u16 = 36;
const RTM_GETQDISC: u16 = 38;
pub(crate) const RTM_NEWTCLASS: u16 = 40;
pub(crate) const RTM_NEWTFILTER: u16 = 44;
/// `TC_H_ROOT`.
pub(crate) const TC_ROOT: u32 = 0xffff_ffff;

/// `struct ifinfomsg`: `index` 0 lets the kernel choose, `up` sets the interface up.
pub(crate) fn link_header(index: u32, up: bool) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    let flags = u32::from(up); // IFF_UP
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// `struct tcmsg`.
pub(crate) fn tc_header(interface: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut header = [0; 20];
    header[4..8].copy_from_slice(&interface.to_ne_bytes());
    header[8..12].copy_from_slice(&handle.to_ne_bytes());
    header[12..16].copy_from_slice(&parent.to_ne_bytes());
    header[16..20].copy_from_slice(&info.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_its_length_and_pads_its_attributes() {
        let mut batch = Batch::default();
        batch.push(
            Request::new("x", RTM_NEWLINK, NEW, &link_header(3, true))
                .nest(18, |r| r.attr_text(1, "veth")),
        );
        let octets = &batch.messages[0].octets;
        assert_eq!(octets.len(), 16 + 16 + 4 + 12);
        assert_eq!(int(octets) as usize, octets.len());
        let (kind, _, body) = messages(octets).next().expect("one message");
        assert_eq!(kind, RTM_NEWLINK);
        let (kind, inside) = attributes(&body[16..]).next().expect("one attribute");
        assert_eq!(kind, 18);
        assert_eq!(attributes(inside).next(), Some((1, &b"veth\0"[..])));
    }

    #[test]
    fn octets_that_are_not_messages_are_not_read() {
        assert_eq!(messages(&[1, 2, 3]).count(), 0);
        assert_eq!(messages(&[255; 40]).count(), 0);
        assert_eq!(messages(&[0; 40]).count(), 0);
        assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
    }
}
