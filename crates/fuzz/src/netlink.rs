//! What the kernel answers over rtnetlink.

use crate::Target;
use weir_dataplane::nl::{Answer, Batch, Device, Verb, dissect, htb, redirect, tc};
use weir_units::Bytes;

/// No more values than message headers fit into the octets, and no more text than there are octets.
pub(crate) const TARGET: Target = Target {
    name: "netlink",
    run,
    reaches: crate::not_empty,
    words: &["htb\0", "bfifo\0", "mirred\0", "u32\0"],
    seeds,
};

const HEADER: usize = 16;

fn run(octets: &[u8]) {
    let mut texts = 0;
    let mut count = 0;
    for answer in dissect(octets) {
        count += 1;
        texts += match answer {
            Answer::Link(l) => l.device.name.len() + l.kind.len() + l.alias.len(),
            Answer::Qdisc(q) => q.kind.len(),
            Answer::Filter(f, _) => f.kind.len() + f.redirect.map_or(0, |(_, note)| note.len()),
            Answer::Fq(..) | Answer::Class(_) | Answer::Verdict(_) | Answer::Other(_) => 0,
        };
        assert!(count * HEADER <= octets.len(), "more messages than headers");
    }
    // Octets that are no UTF-8 become a character of three octets each.
    assert!(texts <= octets.len() * 3, "more text than octets");
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let device = Device { name: "weir-x".into(), index: 7 };
    let class = htb::Class { rate: 6_250_000, ceil: 50_000_000_000, ..htb::Class::default() };
    let mut one = Batch::new();
    one.set_class(&device, Verb::Create, 0x1_0001, 0x1_4000, &class);
    let mut all = Batch::new();
    all.add_htb(&device, 0x1_0000, 1);
    all.set_class(&device, Verb::Create, 0x1_0001, 0x1_4000, &class);
    all.set_bfifo(&device, 0x1_4000, 0, Bytes::new(64_000));
    all.add_clsact(&device);
    all.add_redirect(&device, 9, [7; redirect::COOKIE]);
    let mut link = Vec::new();
    link.extend(52u32.to_ne_bytes());
    link.extend([16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]); // RTM_NEWLINK
    link.extend([0, 0, 1, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    link.extend([7, 0, 3, 0, b'u', b'p', 0, 0, 12, 0, 18, 0, 8, 0, 1, 0, b'i', b'f', b'b', 0]);
    let verdict = |code: i32| {
        let mut octets = vec![36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        octets.extend(code.to_ne_bytes());
        octets.extend([0; 16]);
        octets
    };
    vec![
        ("a-class", one.octets().to_vec()),
        ("all-kinds", all.octets().to_vec()),
        ("a-link", link),
        ("refused", verdict(-22)),
        ("refused-with-the-smallest-number", verdict(i32::MIN)),
        ("root", { tc::ROOT.to_ne_bytes().repeat(8) }),
        ("zeros", vec![0; 64]),
        ("a-length-beyond-the-end", [&u32::MAX.to_ne_bytes()[..], &[1; 28]].concat()),
    ]
}
