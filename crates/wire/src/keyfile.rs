//! The file that holds the fleet's keys, and what it becomes.
//!
//! Problem   A key must be replaceable on a thousand hosts, one after the other, while datagrams
//!           flow between those that have the new one and those that do not.
//! Approach  A line per key: `ID KEY`. The first line signs, all are accepted. A rotation is three
//!           edits of the file, each finished everywhere before the next begins: add the new key as
//!           second line; swap the two; remove the old one. No datagram is refused on the way.
//! Promises  A text that leaves any doubt is refused with its line: a doubtful key is no key.
//!           An error says nothing of a key that would help to guess it.
//! Not here  Reading the file, and noticing that it changed: see `weir-agent`.

use crate::{Key, KeyError, KeyId, Keyring, KeyringError, MAX_KEYS};
use std::str::FromStr;
use thiserror::Error;

/// Longest text that can be a key file: room for comments, none for accidents.
pub const MAX_KEY_FILE: usize = 16 * 1024;

/// Why a text is not a key file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyFileError {
    /// A line that is no key.
    #[error("line {line}: {why}")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// Nothing but comments and empty lines.
    #[error(
        "no key in it; write one per line: ID KEY, for instance `1 ` and 32 hexadecimal digits"
    )]
    Empty,
    /// Longer than [`MAX_KEY_FILE`].
    #[error("{octets} octets are no key file: at most {MAX_KEYS} lines of ID KEY")]
    TooLong {
        /// Octets given.
        octets: usize,
    },
}

/// What is wrong with a line of a key file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LineError {
    /// Neither `KEY` nor `ID KEY`.
    #[error("has {words} words; write ID KEY")]
    Words {
        /// Words on the line.
        words: usize,
    },
    /// What stands before the key is no id.
    #[error("what stands before the key is no id; write a number from 0 to 255")]
    Id,
    /// What should be the key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Two keys of one id, or too many keys.
    #[error(transparent)]
    Ring(#[from] KeyringError),
    /// The same key under two ids.
    #[error("the same key stands in an earlier line; draw another")]
    Twice,
}

impl FromStr for Keyring {
    type Err = KeyFileError;

    /// Reads a key file: one key per line, `ID KEY`, with an id from 0 to 255 and a key of 32
    /// hexadecimal digits. The first key signs; all are accepted. A line without an id has id 0.
    /// Empty lines and what follows a `#` are ignored.
    fn from_str(text: &str) -> Result<Self, KeyFileError> {
        if text.len() > MAX_KEY_FILE {
            return Err(KeyFileError::TooLong { octets: text.len() });
        }
        let mut ring: Option<Self> = None;
        for (index, line) in text.lines().enumerate() {
            let read = line_of(line).and_then(|key| match key {
                Some((id, key)) => add(&mut ring, id, key),
                None => Ok(()),
            });
            read.map_err(|why| KeyFileError::Line { line: index + 1, why })?;
        }
        ring.ok_or(KeyFileError::Empty)
    }
}

/// The key of a line; nothing if it is empty.
fn line_of(line: &str) -> Result<Option<(KeyId, Key)>, LineError> {
    let text = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [] => Ok(None),
        [key] => Ok(Some((KeyId(0), Key::from_hex(key)?))),
        [id, key] => {
            let digits = id.len() <= 3 && id.bytes().all(|c| c.is_ascii_digit());
            let id = id.parse().ok().filter(|_| digits).ok_or(LineError::Id)?;
            Ok(Some((KeyId(id), Key::from_hex(key)?)))
        }
        _ => Err(LineError::Words { words: words.len() }),
    }
}

fn add(ring: &mut Option<Keyring>, id: KeyId, key: Key) -> Result<(), LineError> {
    match ring {
        None => *ring = Some(Keyring::new(id, key)),
        Some(ring) if ring.holds(&key) => return Err(LineError::Twice),
        Some(ring) => ring.accept(id, key)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "00112233445566778899aabbccddeeff";
    const NEW: &str = "ffeeddccbbaa99887766554433221100";

    fn ids(text: &str) -> Vec<u8> {
        text.parse::<Keyring>().unwrap().ids().map(|id| id.0).collect()
    }

    #[track_caller]
    fn refused(text: &str) -> String {
        text.parse::<Keyring>().unwrap_err().to_string()
    }

    #[test]
    fn a_file_with_one_bare_key_is_key_0() {
        assert_eq!(ids(&format!("{OLD}\n")), [0]);
        assert_eq!(ids(&format!("  {OLD}  ")), [0]);
    }

    #[test]
    fn the_first_key_signs_and_all_are_accepted() {
        let text = format!("# rotation of May\n\n7 {NEW} # signs\r\n0 {OLD}\n");
        let ring: Keyring = text.parse().unwrap();
        assert_eq!(ring.signing().0, KeyId(7));
        assert_eq!(ring.get(KeyId(0)), Some(&OLD.parse().unwrap()));
        assert_eq!(ids(&text), [7, 0]);
    }

    #[test]
    fn a_line_that_is_no_key_is_named_with_what_would_be_right() {
        for (text, wanted) in [
            ("".into(), "no key in it; write one per line"),
            ("# nothing\n\n".into(), "no key in it"),
            (format!("{OLD}\n{NEW}\n"), "line 2: key 0 is accepted already; give the new key"),
            (format!("1 {OLD}\n2 {OLD}\n"), "line 2: the same key stands in an earlier line"),
            (format!("256 {OLD}"), "line 1: what stands before the key is no id"),
            (format!("+1 {OLD}"), "line 1: what stands before the key is no id"),
            (format!("1 {OLD} old"), "line 1: has 3 words; write ID KEY"),
            (
                format!("1 {OLD}\n2 {}", &NEW[1..]),
                "line 2: a key has 32 hexadecimal digits, not 31",
            ),
            (format!("1 {}", "0".repeat(32)), "line 1: a key of zeros protects nothing"),
            ("x".repeat(MAX_KEY_FILE + 1), "16385 octets are no key file"),
        ] {
            let got = refused(&text);
            assert!(got.starts_with(wanted), "`{wanted}` in: {got}");
            assert!(!got.contains("0011") && !got.contains("ffee"), "shows a key: {got}");
        }
        let five: String = (1..=5).map(|n| format!("{n} {n}{}\n", &OLD[1..])).collect();
        assert_eq!(refused(&five), "line 5: 4 keys are accepted already; forget one first");
    }
}
