//! Files with keys: an operator's master file, and a host's.

use crate::{Target, by_hand};
use weir_units::HostId;
use weir_wire::{KeyFileError, Keyring, Keys, MAX_KEYS};

/// Keys, or the line that is wrong; never a word about a key.
pub(crate) const TARGET: Target = Target {
    name: "key_file",
    run,
    reaches: crate::not_empty,
    words: &["#", " ", "\n", "0 ", "255 ", "256 ", "host h0\n", "h1 ", "h2 "],
    seeds: by_hand,
};

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match text.parse::<Keyring>() {
        Ok(ring) => {
            check(&ring);
            let (pair, other) = (ring.between("h0", "h1"), ring.between("h0", "h2"));
            assert_eq!(pair, ring.between("h1", "h0"), "both ends have the same keys");
            assert!(
                ring.ids().all(|id| pair.get(id) != other.get(id)),
                "a third host has a key of two"
            );
            let file = weir_wire::host_file(&ring, "h0", HOSTS);
            let read = read(&file).expect("what is made is read");
            assert_eq!((read.of(HostId(1)), read.of(HostId(2))), (Some(&pair), Some(&other)));
        }
        Err(error) => refused(text, &error),
    }
    match read(text) {
        Ok(keys) => [1, 2, 3].iter().filter_map(|host| keys.of(HostId(*host))).for_each(check),
        Err(error) => refused(text, &error),
    }
}

const HOSTS: [&str; 3] = ["h0", "h1", "h2"];

fn read(text: &str) -> Result<Keys, KeyFileError> {
    let hosts = HOSTS.iter().enumerate().map(|(i, name)| (*name, HostId(i as u32))).collect();
    Keys::read(text, "h0", &hosts)
}

fn check(ring: &Keyring) {
    let ids: Vec<_> = ring.ids().collect();
    assert!((1..=MAX_KEYS).contains(&ids.len()));
    assert_eq!(ring.signing().0, ids[0], "the first signs");
    assert!(ids.iter().all(|id| ring.get(*id).is_some()));
    assert!((1..ids.len()).all(|n| !ids[..n].contains(&ids[n])), "an id twice");
}

fn refused(text: &str, error: &KeyFileError) {
    let shown = error.to_string();
    assert!(shown.len() < 300, "an error of one line: {shown}");
    let shows = |word: &str| word.len() >= 16 && shown.contains(word);
    assert!(!text.split_whitespace().any(shows), "an error that shows a key: {shown}");
    let last = text.lines().count();
    if let KeyFileError::Line { line, .. } = error {
        assert!((1..=last).contains(line), "line {line} of {last}");
    }
}
