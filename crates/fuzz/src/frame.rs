//! Frames that a link box carries, marks and sorts into flows.

use crate::Target;
use weir_lab::frames::{flow, is_ecn_capable, mark};

/// A mark changes the ECN field and the checksum that covers it, once, and nothing of whose it is.
pub(crate) const TARGET: Target = Target {
    name: "frame",
    run,
    reaches: crate::not_empty,
    words: &["\u{8}\0E", "E\u{1}", "`\0", "\u{11}", "\u{6}"],
    seeds,
};

const L3: usize = 14;

fn run(octets: &[u8]) {
    let (capable, whose) = (is_ecn_capable(octets), flow(octets));
    let mut marked = octets.to_vec();
    mark(&mut marked);
    let differs = |at: &usize| marked[*at] != octets[*at];
    let changed: Vec<usize> = (0..octets.len()).filter(differs).collect();
    if !capable {
        assert!(changed.is_empty(), "marked what is not capable, at {changed:?}");
        return;
    }
    assert!(is_ecn_capable(&marked), "still capable");
    assert_eq!(flow(&marked), whose, "still of the same flow");
    let is_ip4 = octets[12..L3] == [0x08, 0x00];
    if is_ip4 {
        assert_eq!(marked[L3 + 1] & 3, 3);
        assert!(changed.iter().all(|at| [L3 + 1, L3 + 10, L3 + 11].contains(at)), "{changed:?}");
        let header = usize::from(octets[L3] & 15) * 4;
        if let (20.., Some(before)) = (header, octets.get(L3..L3 + header))
            && sum(before) == 0xffff
        {
            assert_eq!(sum(&marked[L3..L3 + header]), 0xffff, "a wrong checksum");
        }
    } else {
        assert_eq!(marked[L3 + 1] >> 4 & 3, 3);
        assert!(changed.iter().all(|at| *at == L3 + 1), "{changed:?}");
    }
    let once = marked.clone();
    mark(&mut marked);
    // Of a header that was wrong, the second form of zero may become the first.
    if !is_ip4 {
        assert_eq!(marked, once, "marked twice");
    }
}

/// The ones' complement sum; 0xffff over a right header.
fn sum(header: &[u8]) -> u16 {
    let words =
        header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// Ethernet, IPv4 with a right checksum, and the ports.
fn ip4(tos: u8, protocol: u8, fragment: u16, options: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00]);
    let length = 20 + options.len();
    let mut header = vec![0x40 | (length / 4) as u8, tos, 0, 60, 0, 7];
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    header.extend(options);
    let checksum = (!sum(&header)).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    frame.extend(header);
    frame.extend([0x30, 0x39, 0x1f, 0x90, 0, 8, 0, 0]);
    frame
}

/// Ports would begin where the header does.
fn udp4_without_length() -> Vec<u8> {
    let mut frame = ip4(2, 17, 0, &[]);
    frame[L3] = 0x40;
    frame
}

/// The same with IPv6.
fn ip6(class: u8, next: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 0, 0, 8, next, 64]);
    frame.extend([0xfd; 32]);
    frame.extend([0x30, 0x39, 0x1f, 0x90, 0, 8, 0, 0]);
    frame
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut arp = vec![0xff; 12];
    arp.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    vec![
        ("udp4-ect0", ip4(2, 17, 0, &[])),
        ("udp4-ect1", ip4(1, 17, 0, &[])),
        ("tcp4-marked", ip4(3, 6, 0, &[])),
        ("tcp4-not-capable", ip4(0xb8, 6, 0, &[])),
        ("udp4-later-fragment", ip4(2, 17, 185, &[])),
        ("udp4-options", ip4(2, 17, 0, &[1, 1, 1, 0])),
        ("udp4-no-header-length", udp4_without_length()),
        ("ip4-cut-short", ip4(2, 17, 0, &[])[..L3 + 19].to_vec()),
        ("tcp6-ect0", ip6(2, 6)),
        ("udp6-not-capable", ip6(0, 17)),
        ("icmp6", ip6(1, 58)),
        ("ip6-cut-short", ip6(2, 6)[..L3 + 39].to_vec()),
        ("arp", arp),
    ]
}
