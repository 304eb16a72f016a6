//! Datagrams of `weir verify` and its server.

use crate::Target;
use weir_agent::verify::rewritten;

/// What is read is written as it was meant: a second reading finds the same.
pub(crate) const TARGET: Target = Target {
    name: "verify",
    run,
    reaches: |octets| octets.starts_with(b"weir-vfy\x01"),
    words: &["weir-vfy\u{1}", "\0\u{2}ab", "\0\0\0\0"],
    seeds,
};

fn run(octets: &[u8]) {
    let Some(once) = rewritten(octets) else { return };
    let twice = rewritten(&once).expect("it is ours");
    assert_eq!(once, twice, "{octets:?}");
}

/// A head of this kind with a body of numbers.
fn datagram(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = b"weir-vfy\x01".to_vec();
    octets.extend([kind, 0, 0]);
    octets.extend([7; 20]);
    octets.extend(body);
    octets
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let numbers: Vec<u8> = (0..24).collect();
    vec![
        ("hello", datagram(1, &[])),
        ("welcome", datagram(2, &[&[0; 16][..], &[27, 89, 5, 220, 1, 0, 3], b"0.1"].concat())),
        ("probe", datagram(3, &[&[40, 0x81, 1, 2, 0][..], &numbers[..8]].concat())),
        ("back", datagram(4, &numbers)),
        ("ask", datagram(5, &[])),
        ("report", datagram(6, &[0x80; 512])),
        ("greet", datagram(7, &[0, 4, 1, 2, 3, 4])),
        ("greeted", datagram(8, &[2, 0, 2, b'n', b'o', 0, 1, 9])),
        ("start", datagram(9, &[&[1][..], &numbers[..14]].concat())),
        ("stream", datagram(10, &[&[3][..], &numbers].concat())),
        ("flow", datagram(11, &[0; 64])),
        ("bye", datagram(12, &[])),
        ("other", datagram(13, &[2])),
    ]
}
