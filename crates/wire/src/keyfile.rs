//! The files that hold keys, and the keys that they describe.
//!
//! Problem   An intruder on one hypervisor has its keys, which must not be enough to speak for
//!           another host. And a key must be replaceable on a thousand hosts, one after the other,
//!           while hosts with and without the new key exchange datagrams.
//! Approach  Two hosts share a key that no third one has. All of them follow from one *master*
//!           file, `ID KEY` per line, which stays off the hosts ([`Keyring::between`],
//!           [`host_file`]). A host's file has a line `PEER ID KEY` per peer and key
//!           ([`Keys::read`]). Of the lines for a peer the first signs, all are accepted. A
//!           rotation is three edits of the master file, each carried to all hosts before the next
//!           begins: add the new key as second line; swap the two; remove the old one. No datagram
//!           is refused on the way.
//! Promises  A text with any doubtful line is refused with the line's number.
//!           An error says nothing of a key that would help to guess it.
//! Not here  Reading the file, and noticing that it changed: see `weir-agent`.

use crate::{Key, KeyError, KeyId, Keyring, KeyringError, MAX_KEYS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;
use thiserror::Error;
use weir_units::HostId;

/// Longest text that can be a key file: four keys for each of as many peers as a session may have.
pub const MAX_KEY_FILE: usize = 32 << 20;

/// Reason why a text is not a key file.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum KeyFileError {
    /// A line does not hold a key.
    #[error("line {line}: {why}")]
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// The text has only comments and empty lines.
    #[error("no key in it; make it with `weir keys make`")]
    Empty,
    /// The file is another host's.
    #[error(
        "these are the keys of another host; this one is `{own}`: take the file of this name that \
         `weir keys make` made"
    )]
    OtherHost {
        /// The host that reads it.
        own: String,
    },
    /// The text is longer than [`MAX_KEY_FILE`].
    #[error("{octets} octets are no key file: at most {MAX_KEYS} lines for each peer")]
    TooLong {
        /// Octets given.
        octets: usize,
    },
}

/// What is wrong with a line of a key file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum LineError {
    /// The line is neither `ID KEY` nor `PEER ID KEY`.
    #[error("has {words} words; write ID KEY, or PEER ID KEY")]
    Words {
        /// Words on the line.
        words: usize,
    },
    /// The word before the key is no id.
    #[error("what stands before the key is no id; write a number from 0 to 255")]
    Id,
    /// The last word is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An id is used twice, or there are too many keys.
    #[error(transparent)]
    Ring(#[from] KeyringError),
    /// The same key has two ids.
    #[error("the same key stands in an earlier line; draw another")]
    Twice,
}

impl FromStr for Keyring {
    type Err = KeyFileError;

    /// Reads a master file: one key per line, `ID KEY`, with an id from 0 to 255 and a key of 32
    /// hexadecimal digits. The first key signs; all are accepted. A line without an id has id 0.
    /// Empty lines and what follows a `#` are ignored.
    fn from_str(text: &str) -> Result<Self, KeyFileError> {
        let mut ring: Option<Self> = None;
        each_line(text, |words| {
            let (id, key) = match *words {
                [key] => (KeyId(0), Key::from_hex(key)?),
                [id, key] => numbered(id, key)?,
                _ => return Err(LineError::Words { words: words.len() }),
            };
            if ring.as_ref().is_some_and(|ring| ring.holds(&key)) {
                return Err(LineError::Twice);
            }
            Ok(add(&mut ring, id, key)?)
        })?;
        ring.ok_or(KeyFileError::Empty)
    }
}

/// The keys of one host, by the peer with which it shares them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    by_peer: BTreeMap<HostId, Keyring>,
    /// Keys of a file without peers, which this host shares with all other peers.
    everyone: Option<Keyring>,
    /// Keys that stand in the file without a peer, so that every host has them.
    shared: BTreeSet<KeyId>,
}

impl From<Keyring> for Keys {
    /// The same keys with every peer.
    fn from(ring: Keyring) -> Self {
        Self { by_peer: BTreeMap::new(), shared: ring.ids().collect(), everyone: Some(ring) }
    }
}

impl Keys {
    /// Reads the key file of the host `own`; `hosts` has all hosts of the directory by name.
    ///
    /// A line `host NAME` gives the host to which the file belongs. A line `PEER ID KEY` has a key
    /// that is shared with that peer alone. A line `ID KEY`, as in a master file, has a key that
    /// all hosts share, so each of them can speak for every host. The first line of a peer signs.
    /// Lines of peers that the directory does not list are ignored.
    ///
    /// # Errors
    ///
    /// An error of the text, with its line.
    pub fn read(
        text: &str,
        own: &str,
        hosts: &BTreeMap<&str, HostId>,
    ) -> Result<Self, KeyFileError> {
        let mut keys = Self::default();
        let mut seen = BTreeSet::new();
        let (mut owner, mut any) = (None, false);
        each_line(text, |words| {
            let (peer, id, key) = match *words {
                ["host", name] => {
                    owner = Some(name == own);
                    return Ok(());
                }
                [key] => (None, KeyId(0), Key::from_hex(key)?),
                [id, key] => {
                    let (id, key) = numbered(id, key)?;
                    (None, id, key)
                }
                [peer, id, key] => {
                    let (id, key) = numbered(id, key)?;
                    (Some(peer), id, key)
                }
                _ => return Err(LineError::Words { words: words.len() }),
            };
            if !seen.insert(key.octets()) {
                return Err(LineError::Twice);
            }
            any = true;
            match peer.map(|name| hosts.get(name)) {
                Some(None) => Ok(()),
                Some(Some(host)) => keys.add_for(*host, id, key),
                None => keys.add_for_all(id, &key),
            }
        })?;
        match owner {
            Some(false) => Err(KeyFileError::OtherHost { own: own.to_owned() }),
            None if !any => Err(KeyFileError::Empty),
            _ => Ok(keys),
        }
    }

    fn add_for(&mut self, host: HostId, id: KeyId, key: Key) -> Result<(), LineError> {
        // Keys for every peer come before the peer's own in the file.
        let mut ring = self.by_peer.remove(&host).or_else(|| self.everyone.clone());
        add(&mut ring, id, key)?;
        self.by_peer.extend(ring.map(|ring| (host, ring)));
        Ok(())
    }

    fn add_for_all(&mut self, id: KeyId, key: &Key) -> Result<(), LineError> {
        for ring in self.by_peer.values_mut() {
            ring.accept(id, key.clone())?;
        }
        self.shared.insert(id);
        Ok(add(&mut self.everyone, id, key.clone())?)
    }

    /// The keys shared with `host`; `None` if there is none.
    pub fn of(&self, host: HostId) -> Option<&Keyring> {
        self.by_peer.get(&host).or(self.everyone.as_ref())
    }

    /// Whether all hosts have the key `id`.
    pub fn is_shared(&self, id: KeyId) -> bool {
        self.shared.contains(&id)
    }
}

/// Text of the key file of the host `own` among `hosts`, as [`Keys::read`] reads it.
pub fn host_file<'a>(
    master: &Keyring,
    own: &str,
    hosts: impl IntoIterator<Item = &'a str>,
) -> String {
    let mut text = format!(
        "# Made by `weir keys make`. PEER ID KEY: of a peer's keys the first signs.\nhost {own}\n"
    );
    for peer in hosts.into_iter().filter(|peer| *peer != own) {
        for (id, key) in master.between(own, peer).all() {
            let _ = writeln!(text, "{peer} {} {}", id.0, key.to_hex());
        }
    }
    text
}

/// Calls `read` with the words of each line that has any.
fn each_line(
    text: &str,
    mut read: impl FnMut(&[&str]) -> Result<(), LineError>,
) -> Result<(), KeyFileError> {
    if text.len() > MAX_KEY_FILE {
        return Err(KeyFileError::TooLong { octets: text.len() });
    }
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if !words.is_empty() {
            read(&words).map_err(|why| KeyFileError::Line { line: index + 1, why })?;
        }
    }
    Ok(())
}

fn numbered(id: &str, key: &str) -> Result<(KeyId, Key), LineError> {
    let digits = id.len() <= 3 && id.bytes().all(|c| c.is_ascii_digit());
    let id = id.parse().ok().filter(|_| digits).ok_or(LineError::Id)?;
    Ok((KeyId(id), Key::from_hex(key)?))
}

fn add(ring: &mut Option<Keyring>, id: KeyId, key: Key) -> Result<(), KeyringError> {
    match ring {
        None => *ring = Some(Keyring::new(id, key)),
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
            ("".into(), "no key in it; make it with"),
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
            ("x".repeat(MAX_KEY_FILE + 1), "33554433 octets are no key file"),
        ] {
            let got = refused(&text);
            assert!(got.starts_with(wanted), "`{wanted}` in: {got}");
            assert!(!got.contains("0011") && !got.contains("ffee"), "shows a key: {got}");
        }
        let five: String = (1..=5).map(|n| format!("{n} {n}{}\n", &OLD[1..])).collect();
        assert_eq!(refused(&five), "line 5: 4 keys are accepted already; forget one first");
    }

    const HOSTS: [&str; 3] = ["h0", "h1", "h2"];

    fn master(text: &str) -> Keyring {
        text.parse().expect("a master file")
    }

    fn read_as(own: &str, text: &str) -> Result<Keys, KeyFileError> {
        let hosts = HOSTS.iter().enumerate().map(|(i, name)| (*name, HostId(i as u32))).collect();
        Keys::read(text, own, &hosts)
    }

    #[test]
    fn two_hosts_read_the_same_keys_of_each_other_and_a_third_has_none_of_them() {
        let master = master(&format!("2 {NEW}\n1 {OLD}\n"));
        let file = |own| read_as(own, &host_file(&master, own, HOSTS)).expect("its own file");
        let [h0, h1, h2] = HOSTS.map(file);
        let of = |keys: &Keys, host| keys.of(HostId(host)).cloned().expect("a peer");
        assert_eq!(of(&h0, 1), of(&h1, 0));
        assert_eq!(of(&h0, 1).ids().map(|id| id.0).collect::<Vec<_>>(), [2, 1], "the first signs");
        for (id, key) in of(&h0, 1).all() {
            assert!(
                (0..2).all(|peer| !of(&h2, peer).holds(key)),
                "key {} of h0 and h1 at h2",
                id.0
            );
            assert!(!master.holds(key), "the master key is on no host");
            assert!(!h0.is_shared(id));
        }
        assert!(h0.of(HostId(0)).is_none() && h0.of(HostId(7)).is_none());
    }

    #[test]
    fn the_file_of_another_host_is_refused() {
        let text = host_file(&master(OLD), "h1", HOSTS);
        let error = read_as("h0", &text).expect_err("h1's").to_string();
        assert!(error.contains("keys of another host; this one is `h0`"), "{error}");
    }

    /// A host of the previous release, which has the same file as all hosts, is replaced like any
    /// key.
    #[test]
    fn a_shared_key_stands_beside_those_of_a_peer_in_the_order_of_the_file() {
        let text = format!("1 {OLD}\nh1 2 {NEW}\n");
        let keys = read_as("h0", &text).expect("sound");
        let ids =
            |host| keys.of(HostId(host)).expect("keys").ids().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!((ids(1), ids(2)), (vec![1, 2], vec![1]));
        assert!(keys.is_shared(KeyId(1)) && !keys.is_shared(KeyId(2)));
        let swapped = read_as("h0", &format!("h1 2 {NEW}\n1 {OLD}\n")).expect("sound");
        assert_eq!(swapped.of(HostId(1)).expect("keys").signing().0, KeyId(2));
    }

    #[test]
    fn a_peer_that_the_directory_does_not_know_is_no_error_but_a_key_of_two_peers_is() {
        assert!(read_as("h0", &format!("h9 1 {OLD}\n")).expect("sound").of(HostId(1)).is_none());
        let twice = read_as("h0", &format!("h1 1 {OLD}\nh2 1 {OLD}\n"));
        assert_eq!(twice, Err(KeyFileError::Line { line: 2, why: LineError::Twice }));
        assert!(read_as("h0", "host h0\n").is_ok(), "a fleet of one host has no keys");
    }
}
