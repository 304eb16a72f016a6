//! The keys that agents share, and the tags they make.
//!
//! Problem   A datagram must prove that its sender holds a key; keys must be replaceable while
//!           datagrams flow; a BPF program should be able to check the tag.
//! Approach  SipHash-2-4 with a 128-bit key, computable in BPF on 6.1. A datagram names its key by
//!           an id; a [`Keyring`] accepts several and signs with one. To rotate: accept the new key
//!           everywhere, then sign with it everywhere, then forget the old one.
//! Promises  A key is not printed. A wrong tag takes the same time wherever it differs.
//! Not here  Where keys come from, and wiping them from memory.
//! Source    Aumasson, Bernstein: SipHash (2012). A tag of 64 bits is guessed once in 2^64 tries.

use siphasher::sip::SipHasher24;
use std::fmt;
use std::str::FromStr;
use subtle::ConstantTimeEq;
use thiserror::Error;

/// Most keys that a [`Keyring`] accepts at once: the old, the new, and room for a mistake.
pub const MAX_KEYS: usize = 4;

/// A 128-bit key that two agents share, or the master key from which the shared keys are derived.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// 32 hexadecimal digits, the first two the first octet; white space around them is ignored,
    /// as a key file ends in a line break.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let text = text.trim_ascii();
        if let Some((at, _)) = text.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(KeyError::Digit { at });
        }
        let mut octets = [0; 16];
        if text.len() != 2 * octets.len() {
            return Err(KeyError::Length { digits: text.len() });
        }
        for (octet, digits) in octets.iter_mut().zip(text.as_bytes().as_chunks().0) {
            let [high, low] = digits.map(|d| char::from(d).to_digit(16).expect("checked above"));
            *octet = (high << 4 | low) as u8;
        }
        if octets == [0; 16] {
            return Err(KeyError::Zero);
        }
        Ok(Self(octets))
    }

    /// A key made of two words, as SipHash reads them.
    pub(crate) fn from_halves(first: u64, second: u64) -> Self {
        let mut octets = [0; 16];
        octets[..8].copy_from_slice(&first.to_le_bytes());
        octets[8..].copy_from_slice(&second.to_le_bytes());
        Self(octets)
    }

    /// Octets of the key, for writing or comparing a text of keys. Messages and `Debug` never show
    /// them.
    pub(crate) const fn octets(&self) -> [u8; 16] {
        self.0
    }

    /// What [`from_hex`](Self::from_hex) reads.
    pub(crate) fn to_hex(&self) -> String {
        self.0.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    /// The key of two hosts that follows from this master key. The same for `a`, `b` as for `b`,
    /// `a`.
    fn between(&self, a: &str, b: &str) -> Self {
        let (low, high) = (a.min(b), a.max(b));
        let half = |n: u8| {
            let mut octets = b"weir pair of hosts".to_vec();
            for name in [low, high] {
                octets.extend((name.len() as u64).to_be_bytes());
                octets.extend(name.as_bytes());
            }
            octets.push(n);
            self.tag(&octets)
        };
        Self::from_halves(half(0), half(1))
    }

    /// The tag of `octets`.
    pub(crate) fn tag(&self, octets: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(octets)
    }

    /// Whether `tag` is the tag of `octets`; takes the same time for every wrong one.
    pub(crate) fn verifies(&self, octets: &[u8], tag: u64) -> bool {
        self.tag(octets).ct_eq(&tag).into()
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_hex(text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(not shown)")
    }
}

/// Reason why a text is not a key. The message says nothing that helps to guess the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    /// Too short or too long.
    #[error("a key has 32 hexadecimal digits, not {digits}")]
    Length {
        /// Digits given.
        digits: usize,
    },
    /// Not a hexadecimal digit.
    #[error("a key has 32 hexadecimal digits; octet {at} of the text is none")]
    Digit {
        /// Where, in octets from the first that is not white space.
        at: usize,
    },
    /// A key of zeros: a placeholder that was not replaced.
    #[error("a key of zeros protects nothing: draw a random one")]
    Zero,
}

/// Number by which all hosts name a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct KeyId(pub u8);

/// Keys that are accepted, and the one that signs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyring {
    // The first signs.
    keys: Vec<(KeyId, Key)>,
}

impl Keyring {
    /// Accepts `key` and signs with it.
    pub fn new(id: KeyId, key: Key) -> Self {
        Self { keys: vec![(id, key)] }
    }

    /// Accepts `key` too.
    pub fn accept(&mut self, id: KeyId, key: Key) -> Result<(), KeyringError> {
        match self.position(id) {
            Ok(_) => Err(KeyringError::Known { id: id.0 }),
            Err(_) if self.keys.len() == MAX_KEYS => Err(KeyringError::Full),
            Err(_) => {
                self.keys.push((id, key));
                Ok(())
            }
        }
    }

    /// Signs with `id` from now on; it must be accepted already.
    pub fn sign_with(&mut self, id: KeyId) -> Result<(), KeyringError> {
        let position = self.position(id)?;
        self.keys.swap(0, position);
        Ok(())
    }

    /// Accepts `id` no longer; not the one that signs.
    pub fn forget(&mut self, id: KeyId) -> Result<(), KeyringError> {
        match self.position(id)? {
            0 => Err(KeyringError::Signing { id: id.0 }),
            position => {
                self.keys.remove(position);
                Ok(())
            }
        }
    }

    /// The key that signs.
    pub fn signing(&self) -> (KeyId, &Key) {
        let (id, key) = &self.keys[0];
        (*id, key)
    }

    /// The key `id`, if it is accepted.
    pub fn get(&self, id: KeyId) -> Option<&Key> {
        self.position(id).ok().map(|position| &self.keys[position].1)
    }

    /// The ids of all keys, the one that signs first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.iter().map(|(id, _)| *id)
    }

    /// All keys, the one that signs first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (KeyId, &Key)> + '_ {
        self.keys.iter().map(|(id, key)| (*id, key))
    }

    /// The keys of two hosts, by name, that follow from these master keys: in the same order, under
    /// the same ids. Neither these nor the keys of other hosts follow from them.
    #[must_use]
    pub fn between(&self, a: &str, b: &str) -> Self {
        Self { keys: self.keys.iter().map(|(id, key)| (*id, key.between(a, b))).collect() }
    }

    /// Whether `key` is accepted, under whatever id.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.keys.iter().any(|(_, known)| known == key)
    }

    fn position(&self, id: KeyId) -> Result<usize, KeyringError> {
        let unknown = KeyringError::Unknown { id: id.0 };
        self.keys.iter().position(|(known, _)| *known == id).ok_or(unknown)
    }
}

/// Reason why a [`Keyring`] refused a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyringError {
    /// The id is in use already.
    #[error("key {id} is accepted already; give the new key another id")]
    Known {
        /// The name.
        id: u8,
    },
    /// No accepted key has this id.
    #[error("key {id} is not among those accepted")]
    Unknown {
        /// The name.
        id: u8,
    },
    /// The key that signs cannot be forgotten.
    #[error("key {id} signs; sign with another before it is forgotten")]
    Signing {
        /// The name.
        id: u8,
    },
    /// [`MAX_KEYS`] are accepted already.
    #[error("{MAX_KEYS} keys are accepted already; forget one first")]
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::from_hex(text).unwrap()
    }

    #[test]
    fn tags_are_those_of_the_paper_on_siphash() {
        let key = key("000102030405060708090a0b0c0d0e0f");
        let octets: Vec<u8> = (0..15).collect();
        assert_eq!(key.tag(&octets), 0xa129_ca61_49be_45e5);
        assert_eq!(key.tag(&[]), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn a_tag_with_any_wrong_bit_is_refused() {
        let key = key("000102030405060708090a0b0c0d0e0f");
        let tag = key.tag(b"weir");
        assert!(key.verifies(b"weir", tag));
        assert!((0..64).all(|bit| !key.verifies(b"weir", tag ^ 1 << bit)));
    }

    #[test]
    fn a_key_file_may_end_in_a_line_break_and_use_capitals() {
        let written = key("00112233445566778899AABBCCDDEEFF\n");
        assert_eq!(written, "00112233445566778899aabbccddeeff".parse().unwrap());
        assert_eq!(written.0[15], 0xff);
    }

    #[test]
    fn a_text_that_is_no_key_says_why() {
        let refused = |text: &str| Key::from_hex(text).unwrap_err();
        assert_eq!(refused("0011"), KeyError::Length { digits: 4 });
        assert_eq!(refused(&"0".repeat(34)), KeyError::Length { digits: 34 });
        assert_eq!(refused("00x1"), KeyError::Digit { at: 2 });
        assert_eq!(refused("0é"), KeyError::Digit { at: 1 });
        assert_eq!(refused(&"0".repeat(32)), KeyError::Zero);
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = key("deadbeefdeadbeefdeadbeefdeadbeef");
        assert_eq!(format!("{key:?}"), "Key(not shown)");
        let ring = format!("{:?}", Keyring::new(KeyId(1), key));
        assert_eq!(ring, "Keyring { keys: [(KeyId(1), Key(not shown))] }");
    }

    #[test]
    fn a_key_is_replaced_in_three_steps() {
        let mut ring = Keyring::new(KeyId(1), key("11111111111111111111111111111111"));
        ring.accept(KeyId(2), key("22222222222222222222222222222222")).unwrap();
        assert_eq!(ring.signing().0, KeyId(1));
        ring.sign_with(KeyId(2)).unwrap();
        assert_eq!(ring.signing().0, KeyId(2));
        assert!(ring.get(KeyId(1)).is_some());
        ring.forget(KeyId(1)).unwrap();
        assert!(ring.get(KeyId(1)).is_none());
    }

    #[test]
    fn a_ring_refuses_what_would_leave_it_useless() {
        let some = || key("11111111111111111111111111111111");
        let mut ring = Keyring::new(KeyId(0), some());
        assert_eq!(ring.accept(KeyId(0), some()), Err(KeyringError::Known { id: 0 }));
        assert_eq!(ring.forget(KeyId(0)), Err(KeyringError::Signing { id: 0 }));
        assert_eq!(ring.sign_with(KeyId(9)), Err(KeyringError::Unknown { id: 9 }));
        for id in 1..4 {
            ring.accept(KeyId(id), some()).unwrap();
        }
        assert_eq!(ring.accept(KeyId(4), some()), Err(KeyringError::Full));
    }
}
