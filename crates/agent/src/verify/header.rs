//! IP and UDP headers of probes: built from what is to be sent, read as they came.
//!
//! Problem   A socket's options set and show a part of an IP header. Probes need all of it: code point,
//!           ECN, identification, and the three bits of the fragment field.
//! Approach  Whole packets, for raw sockets that take the header from their caller. What Linux
//!           overwrites all the same (length and checksum of IPv4) is right here, too.
//! Promises  No octets make a reader panic. What [`build`] makes of IPv4, [`read4`] reads.
//! Not here  What probes say: see `note`. Sockets: see `sockets`.
//! Source    RFC 791, 768, 8200.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) const UDP: u8 = 17;
/// Octets of a UDP header.
pub(crate) const UDP_HEADER: usize = 8;
/// As Linux sends: a probe must not die sooner than what it stands for.
const HOPS: u8 = 64;
const RESERVED: u16 = 0x8000;
const DONT_FRAGMENT: u16 = 0x4000;
/// More fragments, and the offset.
const FRAGMENT: u16 = 0x3fff;

/// The fields of an IP header that a network should leave alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Marks {
    /// Code point (DSCP) and ECN: the former TOS octet, or IPv6's traffic class.
    pub(crate) tos: u8,
    /// IPv4 only, as all that follows.
    pub(crate) dont_fragment: bool,
    /// The reserved bit of the fragment field.
    pub(crate) reserved: bool,
    /// Identification. 0 cannot be sent: Linux writes another one.
    pub(crate) id: u16,
}

/// A UDP packet's headers as they came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) marks: Marks,
}

/// Octets of an IP header without options.
pub(crate) const fn ip_header(is_v6: bool) -> usize {
    if is_v6 { 40 } else { 20 }
}

/// A whole packet. `from` and `to` are of one family.
pub(crate) fn build(from: SocketAddr, to: SocketAddr, marks: Marks, payload: &[u8]) -> Vec<u8> {
    let length = UDP_HEADER + payload.len();
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => head4(from, to, marks, length),
        (IpAddr::V6(from), IpAddr::V6(to)) => head6(from, to, marks, length),
        _ => unreachable!("a probe's ends are of one family"),
    };
    let udp = packet.len();
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((length as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    let pseudo = addresses(from.ip()) + addresses(to.ip()) + u64::from(UDP) + length as u64;
    // 0 says that there is no checksum.
    let sum = match folded(pseudo + words(&packet[udp..])) {
        0 => 0xffff,
        sum => sum,
    };
    packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn head4(from: Ipv4Addr, to: Ipv4Addr, marks: Marks, length: usize) -> Vec<u8> {
    let mut head = vec![0x45, marks.tos];
    head.extend((20 + length as u16).to_be_bytes());
    head.extend(marks.id.to_be_bytes());
    let reserved = if marks.reserved { RESERVED } else { 0 };
    let whole = if marks.dont_fragment { DONT_FRAGMENT } else { 0 };
    head.extend((reserved | whole).to_be_bytes());
    head.extend([HOPS, UDP, 0, 0]);
    head.extend(from.octets());
    head.extend(to.octets());
    let sum = folded(words(&head));
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    head
}

fn head6(from: Ipv6Addr, to: Ipv6Addr, marks: Marks, length: usize) -> Vec<u8> {
    let mut head = (6 << 28 | u32::from(marks.tos) << 20).to_be_bytes().to_vec();
    head.extend((length as u16).to_be_bytes());
    head.extend([UDP, HOPS]);
    head.extend(from.octets());
    head.extend(to.octets());
    head
}

/// Reads a packet of a raw IPv4 socket: its headers, and what they carry.
pub(crate) fn read4(packet: &[u8]) -> Option<(Came, &[u8])> {
    let head = packet.get(..20)?;
    let length = usize::from(head[0] & 15) * 4;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let address = |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let is_whole_udp = head[9] == UDP && word(6) & FRAGMENT == 0;
    if head[0] >> 4 != 4 || length < 20 || !is_whole_udp {
        return None;
    }
    let ((from, to), payload) = read_udp(packet.get(length..)?)?;
    let fields = word(6);
    let marks = Marks {
        tos: head[1],
        dont_fragment: fields & DONT_FRAGMENT != 0,
        reserved: fields & RESERVED != 0,
        id: word(4),
    };
    let (from, to) = ((address(12), from).into(), (address(16), to).into());
    Some((Came { from, to, marks }, payload))
}

/// Reads a datagram of a raw IPv6 socket, which has no IP header: the socket told its addresses and
/// its traffic class.
pub(crate) fn read6(
    udp: &[u8],
    (from, to): (Ipv6Addr, Ipv6Addr),
    tos: u8,
) -> Option<(Came, &[u8])> {
    let (ports, payload) = read_udp(udp)?;
    let marks = Marks { tos, ..Marks::default() };
    Some((Came { from: (from, ports.0).into(), to: (to, ports.1).into(), marks }, payload))
}

/// Ports, and the octets that the header counts.
fn read_udp(udp: &[u8]) -> Option<((u16, u16), &[u8])> {
    let head = udp.get(..UDP_HEADER)?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let payload = udp.get(UDP_HEADER..usize::from(word(4)))?;
    Some(((word(0), word(2)), payload))
}

/// Sum of an address's words, for the pseudo-header.
fn addresses(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => words(&address.octets()),
        IpAddr::V6(address) => words(&address.octets()),
    }
}

/// Sum of 16-bit words; an odd octet at the end is the high half of one.
fn words(octets: &[u8]) -> u64 {
    let word = |two: &[u8]| u64::from(two[0]) << 8 | u64::from(two.get(1).copied().unwrap_or(0));
    octets.chunks(2).map(word).sum()
}

/// The Internet checksum of a sum.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    const MARKS: Marks = Marks { tos: 0xb9, dont_fragment: true, reserved: true, id: 0x1234 };

    #[test]
    fn a_packet_is_read_as_it_was_built_with_right_checksums() {
        for payload in [&b"12345"[..], b"", b"123456"] {
            let packet = build(at("10.0.0.1:7001"), at("10.0.0.2:4789"), MARKS, payload);
            assert_eq!(packet[6] >> 5, 0b110, "reserved and DF, whole");
            assert_eq!(folded(words(&packet[..20])), 0, "the header's sum");
            let pseudo = words(&packet[12..20]) + u64::from(UDP) + (packet.len() - 20) as u64;
            assert_eq!(folded(pseudo + words(&packet[20..])), 0, "the datagram's sum");
            let (came, got) = read4(&packet).expect("whole");
            assert_eq!((came.from, came.to), (at("10.0.0.1:7001"), at("10.0.0.2:4789")));
            assert_eq!((came.marks, got), (MARKS, payload));
        }
    }

    #[test]
    fn ipv6_has_the_traffic_class_between_version_and_flow() {
        let (from, to) = (at("[fd00::1]:7001"), at("[fd00::2]:9"));
        let packet = build(from, to, MARKS, b"x");
        assert_eq!(packet[..4], [0x6b, 0x90, 0, 0]);
        let pseudo = words(&packet[8..40]) + u64::from(UDP) + 9;
        assert_eq!(folded(pseudo + words(&packet[40..])), 0, "the datagram's sum");
        let (IpAddr::V6(a), IpAddr::V6(b)) = (from.ip(), to.ip()) else { unreachable!() };
        let (came, payload) = read6(&packet[40..], (a, b), 0xb9).expect("whole");
        assert_eq!((came.from, came.to, payload), (from, to, &b"x"[..]));
        assert_eq!(came.marks, Marks { tos: 0xb9, ..Marks::default() });
    }

    #[test]
    fn hostile_octets_are_nothing() {
        let whole = build(at("10.0.0.1:1"), at("10.0.0.2:2"), MARKS, b"1234");
        for end in 0..whole.len() {
            assert_eq!(read4(&whole[..end]), None, "cut off at {end}");
        }
        let changed = |at: usize, octet: u8| {
            let mut packet = whole.clone();
            packet[at] = octet;
            packet
        };
        for (at, octet, why) in [
            (0, 0x65, "version 6"),
            (0, 0x44, "a header of 16 octets"),
            (0, 0x4f, "options that are not there"),
            (6, 0x20, "a first fragment"),
            (7, 0x01, "a later fragment"),
            (9, 6, "TCP"),
            (24, 0xff, "a length beyond the packet"),
            (25, 7, "a length of less than a header"),
        ] {
            assert_eq!(read4(&changed(at, octet)), None, "{why}");
        }
        let mut chance = weir_units::SplitMix64::new(7);
        for _ in 0..10_000 {
            let noise: Vec<u8> = (0..chance.below(64)).map(|_| chance.next() as u8).collect();
            let _ = read4(&noise);
            let _ = read6(&noise, (Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST), 0);
        }
    }
}
