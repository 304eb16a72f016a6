//! What an agent wrote of its deeds before a crash, and its successor undoes.

use crate::{Target, by_hand};
use weir_dataplane::instance::journal_lines;

/// Damage costs the lines that it hit; the others are read as they were written, and each names what
/// an interface can be called.
pub(crate) const TARGET: Target = Target {
    name: "journal",
    run,
    reaches: crate::not_empty,
    words: &[
        "netns ",
        "clsact ",
        "filter ",
        "fq ",
        "htb ",
        "weir_stamp",
        "eth0",
        "\n",
        " ",
        "4294967295",
        "/",
    ],
    seeds: by_hand,
};

const NAME: usize = 15;

fn run(octets: &[u8]) {
    let deeds = journal_lines(octets);
    let text = String::from_utf8_lossy(octets);
    assert!(deeds.len() <= text.lines().count().saturating_sub(1), "deeds that nobody wrote");
    for deed in &deeds {
        let words: Vec<&str> = deed.split(' ').collect();
        let (name, index) = (words[words.len() - 1], words[words.len() - 2]);
        assert!((1..=NAME).contains(&name.len()) && !name.contains('/'), "{deed}");
        assert!(index.parse().is_ok_and(|index: u32| index > 0), "{deed}");
    }
    let again = format!("netns 1\n{}", deeds.join("\n"));
    assert_eq!(journal_lines(again.as_bytes()), deeds, "read back");
}
