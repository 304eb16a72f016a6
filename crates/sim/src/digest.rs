//! A digest over all results of a run. Two runs with the same digest are the same.
//!
//! Source    FNV-1a, 64 bits, over the little-endian octets of each word.

/// A digest in the making.
#[derive(Clone, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, word: u64) {
        for octet in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut digest = Digest::new();
        digest.add(u64::from_le_bytes(*b"foobarfo"));
        let mut expected = 0xcbf2_9ce4_8422_2325u64;
        for octet in b"foobarfo" {
            expected = (expected ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        }
        assert_eq!(digest.value(), expected);
        let mut other = Digest::new();
        other.add(u64::from_le_bytes(*b"foobarfp"));
        assert_ne!(digest.value(), other.value());
    }
}
