//! The fields of a frame that a link box reads: its ECN field, and its flow.
//!
//! Problem   Frames come from guests, so their octets cannot be trusted.
//! Approach  Fixed offsets behind the Ethernet header. A frame that is too short or neither IPv4
//!           nor IPv6 belongs to no flow and cannot be marked.
//! Promises  No frame makes this panic. A marked IPv4 header has a right checksum if it had one.
//! Source    RFC 3168 (ECN), RFC 1624 (checksums).

/// The network header's offset: VLANs do not occur between switches of a scenario.
const L3: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Which network protocol a frame carries, as far as it is long enough.
enum Network {
    Ip4,
    Ip6,
}

fn network(frame: &[u8]) -> Option<Network> {
    match frame.get(12..L3)? {
        [0x08, 0x00] if frame.len() >= L3 + 20 => Some(Network::Ip4),
        [0x86, 0xdd] if frame.len() >= L3 + 40 => Some(Network::Ip6),
        _ => None,
    }
}

/// Whether the packet is ECN-capable, so that it may be marked.
pub fn is_ecn_capable(frame: &[u8]) -> bool {
    match network(frame) {
        Some(Network::Ip4) => frame[L3 + 1] & 3 != 0,
        Some(Network::Ip6) => frame[L3 + 1] >> 4 & 3 != 0,
        None => false,
    }
}

/// Gives an ECN-capable packet the congestion mark; leaves others alone.
pub fn mark(frame: &mut [u8]) {
    if !is_ecn_capable(frame) {
        return;
    }
    if let Some(Network::Ip6) = network(frame) {
        frame[L3 + 1] |= 3 << 4;
        return;
    }
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let before = word(frame, L3);
    frame[L3 + 1] |= 3;
    let after = word(frame, L3);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let sum = u32::from(!word(frame, L3 + 10)) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(((folded & 0xffff) + (folded >> 16)) as u16);
    frame[L3 + 10..L3 + 12].copy_from_slice(&checksum.to_be_bytes());
}

/// A number that is equal for all packets of a flow (addresses, protocol, ports); zero without a
/// flow.
pub fn flow(frame: &[u8]) -> u64 {
    let (addresses, protocol, transport) = match network(frame) {
        Some(Network::Ip4) => {
            let header = usize::from(frame[L3] & 15) * 4;
            // A fragment but the first has no ports, so the first must not use them either.
            let fragment = u16::from_be_bytes([frame[L3 + 6], frame[L3 + 7]]) & 0x3fff != 0;
            // What says to have less than a header would have a mark for its ports.
            let is_whole = !fragment && header >= 20;
            (L3 + 12..L3 + 20, frame[L3 + 9], is_whole.then_some(L3 + header))
        }
        Some(Network::Ip6) => (L3 + 8..L3 + 40, frame[L3 + 6], Some(L3 + 40)),
        None => return 0,
    };
    let mut hash = spread(0, u64::from(protocol));
    for octet in &frame[addresses] {
        hash = spread(hash, u64::from(*octet));
    }
    let ports = transport.filter(|_| matches!(protocol, TCP | UDP));
    for octet in ports.and_then(|at| frame.get(at..at + 4)).unwrap_or_default() {
        hash = spread(hash, u64::from(*octet));
    }
    hash
}

/// A number that is equal for all packets between two addresses, in one direction; zero without.
pub(crate) fn pair(frame: &[u8]) -> u64 {
    let addresses = match network(frame) {
        Some(Network::Ip4) => L3 + 12..L3 + 20,
        Some(Network::Ip6) => L3 + 8..L3 + 40,
        None => return 0,
    };
    frame[addresses].iter().fold(0, |hash, octet| spread(hash, u64::from(*octet)))
}

/// A step of FNV-1a, with its bits mixed so that the lowest ones are good, too.
fn spread(hash: u64, octet: u64) -> u64 {
    let mixed = (hash ^ octet ^ 0xcbf2_9ce4_8422_2325).wrapping_mul(0x0000_0100_0000_01b3);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A UDP packet over IPv4 with a right checksum.
    fn ip4(tos: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0u8; L3 + 28];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[L3..L3 + 2].copy_from_slice(&[0x45, tos]);
        frame[L3 + 9] = UDP;
        frame[L3 + 12..L3 + 20].copy_from_slice(&[10, 1, 0, 1, 10, 1, 0, 2]);
        frame[L3 + 20..L3 + 22].copy_from_slice(&port.to_be_bytes());
        let sum = !sum(&frame[L3..L3 + 20]);
        frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    /// The ones' complement sum; 0xffff over a right header.
    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        ((folded & 0xffff) + (folded >> 16)) as u16
    }

    #[test]
    fn a_mark_keeps_the_rest_of_the_octet_and_the_checksum_right() {
        for tos in 0..=255u8 {
            let (before, mut frame) = (ip4(tos, 7), ip4(tos, 7));
            mark(&mut frame);
            if tos & 3 == 0 {
                assert_eq!(frame, before, "not ECN-capable");
            } else {
                assert_eq!(frame[L3 + 1], tos | 3);
                assert_eq!(sum(&frame[L3..L3 + 20]), 0xffff, "tos {tos}");
            }
        }
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        let mut frame = vec![0u8; L3 + 48];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[L3..L3 + 2].copy_from_slice(&[0x60, 0x20]);
        assert!(is_ecn_capable(&frame));
        mark(&mut frame);
        assert_eq!(frame[L3..L3 + 2], [0x60, 0x30]);
    }

    #[test]
    fn a_pair_is_two_addresses_in_one_direction_whatever_the_ports() {
        assert_eq!(pair(&ip4(0, 7)), pair(&ip4(2, 9)));
        let mut back = ip4(0, 7);
        back[L3 + 12..L3 + 20].copy_from_slice(&[10, 1, 0, 2, 10, 1, 0, 1]);
        assert_ne!(pair(&ip4(0, 7)), pair(&back));
        let mut ip6 = vec![0u8; L3 + 40];
        ip6[12..14].copy_from_slice(&[0x86, 0xdd]);
        let other = ip6.clone();
        ip6[L3 + 39] = 1;
        assert_ne!(pair(&ip6), pair(&other));
        assert_eq!(pair(&[0; 60]), 0);
    }

    #[test]
    fn flows_differ_by_port_and_packets_of_one_do_not_differ() {
        assert_eq!(flow(&ip4(0, 5001)), flow(&ip4(2, 5001)));
        let two: std::collections::BTreeSet<u64> =
            (5001..5101).map(|port| flow(&ip4(0, port)) % 2).collect();
        assert_eq!(two.len(), 2, "a hundred flows take both of two paths");
        let one = (5001..5101).filter(|port| flow(&ip4(0, *port)).is_multiple_of(2)).count();
        assert!((30..=70).contains(&one), "{one} of 100 on one of two paths");
    }

    #[test]
    fn a_mark_changes_no_flow_even_if_the_header_says_to_be_too_short() {
        for length in 0..=15u8 {
            let mut frame = ip4(2, 5001);
            frame[L3] = 0x40 | length;
            let before = flow(&frame);
            mark(&mut frame);
            assert_eq!(flow(&frame), before, "a header of {length} words");
        }
    }

    proptest! {
        #[test]
        fn no_frame_is_too_strange(mut frame in proptest::collection::vec(any::<u8>(), 0..80)) {
            flow(&frame);
            mark(&mut frame);
        }
    }
}
