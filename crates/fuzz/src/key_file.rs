//! The file with the fleet's keys.

use crate::{Target, by_hand};
use weir_wire::{Keyring, MAX_KEYS};

/// A keyring, or the line that is wrong; never a word about a key.
pub(crate) const TARGET: Target = Target {
    name: "key_file",
    run,
    reaches: crate::not_empty,
    words: &["#", " ", "\n", "0 ", "255 ", "256 "],
    seeds: by_hand,
};

fn run(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match text.parse::<Keyring>() {
        Ok(ring) => {
            let ids: Vec<_> = ring.ids().collect();
            assert!((1..=MAX_KEYS).contains(&ids.len()));
            assert_eq!(ring.signing().0, ids[0], "the first signs");
            assert!(ids.iter().all(|id| ring.get(*id).is_some()));
            assert!((1..ids.len()).all(|n| !ids[..n].contains(&ids[n])), "an id twice");
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.len() < 300, "an error of one line: {shown}");
            let shows = |word: &str| word.len() >= 8 && shown.contains(word);
            assert!(!text.split_whitespace().any(shows), "an error that shows a key: {shown}");
            let last = text.lines().count();
            if let weir_wire::KeyFileError::Line { line, .. } = error {
                assert!((1..=last).contains(&line), "line {line} of {last}");
            }
        }
    }
}
