//! Attack packets octet by octet, without our own library, as an attacker would make them.

use std::net::{Ipv4Addr, SocketAddrV4};
use weir_model::scenario::FrameKind;

const ETHERNET_HEADER: usize = 14;
const IP6_HEADER: usize = 40;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// A UDP packet from its IPv4 header on. The checksums stay zero: the kernel fills in that of IP,
/// and UDP needs none.
pub(super) fn udp(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = (IP_HEADER + UDP_HEADER + payload.len()) as u16;
    let mut octets = vec![0x45, 0];
    octets.extend(length.to_be_bytes());
    octets.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    octets.extend(from.ip().octets());
    octets.extend(to.ip().octets());
    octets.extend(from.port().to_be_bytes());
    octets.extend(to.port().to_be_bytes());
    octets.extend(((UDP_HEADER + payload.len()) as u16).to_be_bytes());
    octets.extend([0, 0]);
    octets.extend(payload);
    octets
}

/// The mark of congestion, in IPv4's second octet.
const CE: u8 = 3;

/// A frame of `size` octets that belongs to no pair of VMs, or goes astray, or has a mark. `own` is
/// the attacker's address, `other` the address that the frame is addressed to.
pub(super) fn frame(
    kind: FrameKind,
    (source, destination): ([u8; 6], [u8; 6]),
    (own, other): (Ipv4Addr, Ipv4Addr),
    size: usize,
) -> Vec<u8> {
    let payload = vec![0; size.saturating_sub(ETHERNET_HEADER + IP_HEADER + UDP_HEADER)];
    let with_tos = |tos: u8, from: Ipv4Addr, to: Ipv4Addr| {
        let to = SocketAddrV4::new(to, 9);
        let mut packet = udp(SocketAddrV4::new(from, 9), to, &payload);
        packet[1] = tos;
        let sum = checksum(&packet[..IP_HEADER]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    let four = |from, to| with_tos(0, from, to);
    let (to, ethertype, packet) = match kind {
        // For local experiments (IEEE 802).
        FrameKind::UnknownType => (destination, 0x88b5u16, vec![0; size - ETHERNET_HEADER]),
        FrameKind::OwnAddress => (destination, 0x0800, four(own, own)),
        FrameKind::Misdirected => (destination, 0x0800, four(own, other)),
        FrameKind::Broadcast => ([0xff; 6], 0x0800, four(own, Ipv4Addr::BROADCAST)),
        FrameKind::Marked => (destination, 0x0800, with_tos(CE, own, other)),
        FrameKind::LinkLocal => {
            let mut packet = vec![0; size - ETHERNET_HEADER];
            packet[0] = 0x60;
            let length = (packet.len() - IP6_HEADER) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            // No next header, one hop; fe80::1 to fe80::2.
            (packet[6], packet[7]) = (59, 1);
            for (at, last) in [(8, 1), (24, 2)] {
                packet[at..at + 2].copy_from_slice(&[0xfe, 0x80]);
                packet[at + 15] = last;
            }
            (destination, 0x86dd, packet)
        }
    };
    let mut octets = [to, source].concat();
    octets.extend(ethertype.to_be_bytes());
    octets.extend(packet);
    octets
}

/// The checksum of an IPv4 header whose own field is zero (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// A control message with a guessed tag: an offer of 10 Tbit/s to VM `n`, in the name of each host
/// in turn. Its layout is that of `weir-wire`, version 1.
pub(super) fn forged_offer(n: u64, victim: u32) -> Vec<u8> {
    let noise = noise(n + 1);
    let sender = if n as u32 % 4 == victim { victim + 1 } else { n as u32 % 4 };
    let mut octets = vec![1, 0, 0, 1, 0, 0, 0, 0]; // version, key 0, no flags, one record; epoch
    octets.extend(sender.to_be_bytes());
    octets.extend(victim.to_be_bytes());
    octets.extend(noise.to_be_bytes()); // the sender's incarnation
    octets.extend((n + 1).to_be_bytes()); // sequence
    octets.extend(noise.rotate_left(13).max(1).to_be_bytes()); // the victim's incarnation: a guess
    octets.extend((n + 1).to_be_bytes());
    octets.extend([1, 3, 0, 0]); // an offer, unbounded, to be confirmed
    octets.extend((n as u32).to_be_bytes());
    octets.extend((n as u32 % 64).to_be_bytes());
    octets.extend((n as u32 % 64 + 1).to_be_bytes());
    octets.extend(10_000_000_000_000u64.to_be_bytes());
    octets.extend(noise.rotate_left(29).to_be_bytes()); // the tag: a guess
    octets
}

/// Octets that are no control message: their first is no version, their length that of none or of
/// one.
pub(super) fn garbage(n: u64) -> Vec<u8> {
    let word = noise(n + 1);
    let length = 1 + (word % 200) as usize;
    let mut octets: Vec<u8> = word.to_be_bytes().into_iter().cycle().take(length).collect();
    octets[0] |= 0x80;
    octets
}

/// An incarnation that no agent draws by chance for this sequence.
fn noise(sequence: u64) -> u64 {
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The packet without UDP's checksum. A virtual device leaves the checksum to the next one, so a
/// packet recorded between the two has only half of it.
pub(super) fn without_checksum(packet: &[u8]) -> Vec<u8> {
    let mut octets = packet.to_vec();
    if let Some(sum) = octets.get_mut(IP_HEADER + 6..IP_HEADER + UDP_HEADER) {
        sum.fill(0);
    }
    octets
}

/// Whether a packet (from its IPv4 header on) is one of [`forged_offer`]. Only a message that an
/// agent sent is worth replaying.
pub(super) fn is_forged(packet: &[u8]) -> bool {
    let payload = packet.get(IP_HEADER + UDP_HEADER..).unwrap_or(&[]);
    let word = |at: usize| Some(u64::from_be_bytes(payload.get(at..at + 8)?.try_into().ok()?));
    matches!((word(16), word(24)), (Some(incarnation), Some(n)) if incarnation == noise(n))
}

/// The packet from its IPv4 header on, if a frame is a UDP packet to `to`.
pub(super) fn packet_to(frame: &[u8], to: SocketAddrV4) -> Option<&[u8]> {
    let packet = frame.strip_prefix(frame.get(..12)?)?.strip_prefix(&[0x08, 0x00])?;
    let plain = packet.first() == Some(&0x45) && packet.get(9) == Some(&UDP);
    let is_to = packet.get(16..20) == Some(&to.ip().octets()[..])
        && packet.get(22..24) == Some(&to.port().to_be_bytes()[..]);
    let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    packet.get(..length).filter(|_| plain && is_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, 1), 7001);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 255, 0, 2), 7001);

    #[test]
    fn a_packet_that_was_sent_is_recognised_in_its_frame() {
        let packet = udp(FROM, TO, &forged_offer(3, 0));
        assert_eq!(packet.len(), 20 + 8 + 48 + 24 + 8);
        let frame = [&[2; 12][..], &[8, 0], &packet, &[0; 4]].concat();
        assert_eq!(packet_to(&frame, TO), Some(&packet[..]));
        assert_eq!(packet_to(&frame, FROM), None);
        for length in 0..frame.len() - 4 {
            assert_eq!(packet_to(&frame[..length], TO), None, "cut at {length}");
        }
        assert_eq!(packet_to(&[&[2; 12][..], &[0x86, 0xdd], &packet].concat(), TO), None);
    }

    #[test]
    fn frames_have_the_size_that_was_asked_and_say_what_they_are() {
        let own = Ipv4Addr::new(10, 1, 0, 1);
        let other = Ipv4Addr::new(10, 1, 0, 9);
        let of = |kind, size| frame(kind, ([2; 6], [4; 6]), (own, other), size);
        let kinds = [
            (FrameKind::UnknownType, [0x88, 0xb5], [4; 6]),
            (FrameKind::OwnAddress, [0x08, 0x00], [4; 6]),
            (FrameKind::LinkLocal, [0x86, 0xdd], [4; 6]),
            (FrameKind::Broadcast, [0x08, 0x00], [0xff; 6]),
            (FrameKind::Marked, [0x08, 0x00], [4; 6]),
            (FrameKind::Misdirected, [0x08, 0x00], [4; 6]),
        ];
        for (kind, ethertype, to) in kinds {
            for size in [60, 1514] {
                let octets = of(kind, size);
                assert_eq!(octets.len(), size, "{kind:?}");
                assert_eq!((&octets[..6], &octets[6..12]), (&to[..], &[2; 6][..]), "{kind:?}");
                assert_eq!(octets[12..14], ethertype, "{kind:?}");
            }
        }
        let packet = of(FrameKind::OwnAddress, 60);
        assert_eq!(packet[26..30], packet[30..34], "from itself to itself");
        assert_eq!(checksum(&packet[14..34]), 0, "a header with its checksum sums to zero");
        let marked = of(FrameKind::Marked, 100);
        assert_eq!((marked[15], &marked[26..34]), (CE, &[10, 1, 0, 1, 10, 1, 0, 9][..]));
        assert_eq!(checksum(&marked[14..34]), 0);
        let packet = of(FrameKind::Misdirected, 1514);
        assert_eq!(packet[26..34], [10, 1, 0, 1, 10, 1, 0, 9], "to the accomplice's address");
    }

    #[test]
    fn what_was_forged_is_known_and_what_an_agent_sent_is_not() {
        let mut packet = udp(FROM, TO, &forged_offer(3, 0));
        assert!(is_forged(&packet));
        packet[20 + 8 + 20] ^= 1;
        assert!(!is_forged(&packet) && !is_forged(&packet[..40]));
    }

    #[test]
    fn garbage_is_no_message_of_any_version() {
        for n in 0..1000 {
            let octets = garbage(n);
            assert!((1..=200).contains(&octets.len()) && octets[0] >= 0x80, "{n}: {octets:?}");
        }
    }

    #[test]
    fn a_forged_offer_is_never_in_the_name_of_its_victim() {
        for n in 0..100 {
            let octets = forged_offer(n, 2);
            assert_ne!(octets[8..12], octets[12..16]);
            assert_ne!(octets[16..24], [0; 8]);
        }
    }
}
