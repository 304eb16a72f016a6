//! Builds packets octet by octet, so that a test says what is on the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet from the Ethernet header on.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// 802.1Q tags in the octets, outermost first.
    pub(crate) tags: Vec<u16>,
    /// Source address.
    pub(crate) src: IpAddr,
    /// Destination address.
    pub(crate) dst: IpAddr,
    /// TCP (6), UDP (17) or anything.
    pub(crate) protocol: u8,
    /// IPv4 identification.
    pub(crate) id: u16,
    /// IPv4 flags and fragment offset.
    pub(crate) fragment: u16,
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// Hop limit.
    pub(crate) ttl: u8,
    /// Transport header and payload.
    pub(crate) body: Vec<u8>,
}

/// A TCP header with a timestamp option (32 octets) and `payload` octets.
pub(crate) fn tcp(payload: usize) -> Vec<u8> {
    let mut body = vec![0; 32 + payload];
    body[12] = 8 << 4;
    body
}

/// A UDP header to `port` and `payload` octets.
pub(crate) fn udp(port: u16, payload: usize) -> Vec<u8> {
    let mut body = vec![0; 8 + payload];
    body[2..4].copy_from_slice(&port.to_be_bytes());
    body
}

/// A packet of `protocol` between two addresses of one family.
pub(crate) fn packet(src: &str, dst: &str, protocol: u8, body: Vec<u8>) -> Packet {
    Packet {
        tags: Vec::new(),
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        id: 0,
        fragment: 0x4000,
        tos: 0,
        ttl: 64,
        body,
    }
}

fn ethernet(tags: &[u16], kind: u16) -> Vec<u8> {
    let mut octets = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tag in tags {
        octets.extend(0x8100u16.to_be_bytes());
        octets.extend(tag.to_be_bytes());
    }
    octets.extend(kind.to_be_bytes());
    octets
}

impl Packet {
    /// The octets.
    pub(crate) fn octets(&self) -> Vec<u8> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.v4(src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.v6(src, dst),
            _ => panic!("two families in one packet"),
        }
    }

    fn v4(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
        let mut octets = ethernet(&self.tags, 0x0800);
        let mut header = vec![0x45, self.tos];
        header.extend((20 + self.body.len() as u16).to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend(self.fragment.to_be_bytes());
        header.extend([self.ttl, self.protocol, 0, 0]);
        header.extend(src.octets());
        header.extend(dst.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        octets.extend(header);
        octets.extend(&self.body);
        octets
    }

    fn v6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
        let mut octets = ethernet(&self.tags, 0x86dd);
        octets.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
        octets.extend((self.body.len() as u16).to_be_bytes());
        octets.extend([self.protocol, self.ttl]);
        octets.extend(src.octets());
        octets.extend(dst.octets());
        octets.extend(&self.body);
        octets
    }
}

/// The Internet checksum; 0 over a header whose checksum is right.
pub(crate) fn checksum(octets: &[u8]) -> u16 {
    let mut sum: u32 = octets.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An ARP request that says it comes from `sender`.
pub(crate) fn arp(sender: Ipv4Addr) -> Vec<u8> {
    let mut octets = ethernet(&[], 0x0806);
    octets.extend([0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
    octets.extend(sender.octets());
    octets.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    octets
}

/// A frame of an unknown EtherType.
pub(crate) fn alien() -> Vec<u8> {
    let mut octets = ethernet(&[], 0x88b5);
    octets.extend([0; 46]);
    octets
}

/// The body of an ICMPv6 neighbour solicitation (135) or advertisement (136) about `target`.
pub(crate) fn discovery(kind: u8, target: &str) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target.parse::<Ipv6Addr>().unwrap().octets());
    body
}

/// A TCP segment with these flags; its payload is empty if it is not given.
fn segment([src, dst]: [&str; 2], flags: u8, payload: usize) -> Packet {
    let mut segment = packet(src, dst, 6, tcp(payload));
    segment.body[13] = flags;
    segment
}

/// Packets between two addresses of each version, with what each does, and whether it waits with
/// the acknowledgements of its pair.
pub(crate) fn acknowledgements(v4: [&str; 2], v6: [&str; 2]) -> Vec<(&'static str, bool, Packet)> {
    const ACK: u8 = 0x10;
    const MARKED: u8 = 0xc0;
    // Octets of the longest that count: 127 of the IP packet, and of what follows IPv6's header.
    const MOST: [usize; 2] = [127 - 20 - 32, 127 - 32];
    let fragment = Packet { fragment: 0x2000, ..segment(v4, ACK, 0) };
    let later = Packet { fragment: 0x0004, ..segment(v4, ACK, 0) };
    let tagged = Packet { tags: vec![7], ..segment(v4, ACK, 0) };
    vec![
        ("acknowledges", true, segment(v4, ACK, 0)),
        ("acknowledges in IPv6", true, segment(v6, ACK, 0)),
        ("echoes marks", true, segment(v4, ACK | MARKED, 0)),
        ("is as small", true, segment(v4, ACK | 8, MOST[0])),
        ("is as small in IPv6", true, segment(v6, ACK | 8, MOST[1])),
        ("begins", true, segment(v4, 2, 0)),
        ("begins, the answer", true, segment(v4, ACK | 2, 0)),
        ("ends", false, segment(v4, ACK | 1, 0)),
        ("resets", false, segment(v6, ACK | 4, 0)),
        ("is data", false, segment(v4, ACK, MOST[0] + 1)),
        ("is data in IPv6", false, segment(v6, ACK, MOST[1] + 1)),
        ("is a fragment", false, fragment),
        ("is a later fragment", false, later),
        ("is in a VLAN", false, tagged),
        ("is UDP", false, packet(v4[0], v4[1], 17, udp(9, 30))),
    ]
}
