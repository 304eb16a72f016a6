//! Attributes: length, kind, value, padded to four octets, possibly nested.

/// Walks over attributes; stops at the first one that does not fit.
#[derive(Clone, Copy)]
pub(super) struct Attrs<'a>(pub(super) &'a [u8]);

/// One attribute's value.
#[derive(Clone, Copy)]
pub(super) struct Value<'a>(pub(super) &'a [u8]);

/// Flags in the kind that say how the value is to be read; the kind itself is the rest.
const KIND_MASK: u16 = 0x3fff;

impl<'a> Iterator for Attrs<'a> {
    type Item = (u16, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(self.0.get(0..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(self.0.get(2..4)?.try_into().ok()?);
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind & KIND_MASK, Value(value)))
    }
}

impl<'a> Attrs<'a> {
    /// The last attribute of this kind, as the kernel would take it.
    pub(super) fn find(self, kind: u16) -> Option<Value<'a>> {
        self.filter(|(k, _)| *k == kind).last().map(|(_, value)| value)
    }
}

impl<'a> Value<'a> {
    pub(super) const fn nested(self) -> Attrs<'a> {
        Attrs(self.0)
    }

    /// The 16-bit number at octet `at`.
    pub(super) fn u16_at(self, at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    /// The 32-bit number at octet `at`.
    pub(super) fn u32_at(self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    /// The 64-bit number at octet `at`; attributes are aligned to four octets only.
    pub(super) fn u64_at(self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    /// Text up to the first zero octet.
    pub(super) fn text(self) -> String {
        let end = self.0.iter().position(|&c| c == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_walked_with_their_padding() {
        let octets = [5, 0, 1, 0, 7, 0, 0, 0, 8, 0, 2, 0x80, 1, 0, 0, 0];
        let found: Vec<_> = Attrs(&octets).map(|(k, v)| (k, v.0.to_vec())).collect();
        assert_eq!(found, [(1, vec![7]), (2, vec![1, 0, 0, 0])]);
    }

    #[test]
    fn a_truncated_or_impossible_attribute_ends_the_walk() {
        for octets in [&[][..], &[5], &[9, 0, 1, 0, 7], &[3, 0, 1, 0], &[0, 0, 1, 0]] {
            assert_eq!(Attrs(octets).count(), 0, "{octets:?}");
        }
    }
}
