//! Writes messages one behind the other into one buffer.

use super::Object;
use std::fmt;
use std::ops::Range;

/// What a message asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Make it; it must not exist.
    Create,
    /// Change what exists.
    Change,
    /// Make it, or make the existing one like this.
    Replace,
    /// Remove it.
    Delete,
    /// Read one.
    Read,
    /// Read all.
    List,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Change => "change",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Read => "read",
            Self::List => "list",
        })
    }
}

impl Verb {
    const fn flags(self) -> u16 {
        (match self {
            Self::Create => libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ACK,
            Self::Replace => libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK,
            Self::Change | Self::Delete => libc::NLM_F_ACK,
            // Traffic control answers such a question only if the sender asks for an echo.
            Self::Read => libc::NLM_F_ACK | libc::NLM_F_ECHO,
            Self::List => libc::NLM_F_DUMP,
        }) as u16
            | libc::NLM_F_REQUEST as u16
    }
}

/// Octets of a message header (`nlmsghdr`): length, type, flags, sequence, port.
pub(super) const HEADER: usize = 16;

/// Messages to be sent together. They are carried out in order; each that is refused is answered.
#[derive(Default)]
pub struct Batch {
    octets: Vec<u8>,
    messages: Vec<(Range<usize>, Verb, Object)>,
}

/// The body of a message, or of an attribute, that is being written.
pub struct Body<'a>(&'a mut Vec<u8>);

impl Batch {
    /// No messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The octets of all messages, as sent but for the sequence numbers (zero here).
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    pub(super) fn messages(&self) -> &[(Range<usize>, Verb, Object)] {
        &self.messages
    }

    /// Appends a message of type `kind` with a fixed part and whatever `fill` writes.
    pub fn push(
        &mut self,
        kind: u16,
        verb: Verb,
        object: Object,
        fixed: &[u8],
        fill: impl FnOnce(&mut Body<'_>),
    ) {
        let start = self.octets.len();
        self.octets.extend_from_slice(&[0; HEADER]);
        self.octets.extend_from_slice(fixed);
        let mut body = Body(&mut self.octets);
        body.pad();
        fill(&mut body);
        let length = u32::try_from(self.octets.len() - start).expect("a message is small");
        self.octets[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.octets[start + 4..start + 6].copy_from_slice(&kind.to_ne_bytes());
        self.octets[start + 6..start + 8].copy_from_slice(&verb.flags().to_ne_bytes());
        self.messages.push((start..self.octets.len(), verb, object));
    }
}

impl Body<'_> {
    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Octets as they are: what comes before the attributes of an attribute.
    pub fn raw(&mut self, octets: &[u8]) {
        self.0.extend_from_slice(octets);
        self.pad();
    }

    /// An attribute with these octets.
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |body| body.0.extend_from_slice(value));
    }

    /// An attribute of 32 bits.
    pub fn word(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    /// An attribute with text, ended by zero.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |body| {
            body.0.extend_from_slice(value.as_bytes());
            body.0.push(0);
        });
    }

    /// An attribute that holds whatever `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Body<'_>)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        fill(&mut Body(self.0));
        let length = u16::try_from(self.0.len() - start).expect("an attribute is small");
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.0[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.pad();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_cover_nested_attributes_and_exclude_their_padding() {
        let mut batch = Batch::new();
        batch.push(16, Verb::Change, Object::Links, &[1, 2, 3, 4], |body| {
            body.nest(18, |body| body.text(1, "ifb"));
            body.put(3, &[9]);
        });
        let expected: Vec<u8> = [
            &40u32.to_ne_bytes()[..],
            &16u16.to_ne_bytes(),
            &5u16.to_ne_bytes(),
            &[0; 8],
            &[1, 2, 3, 4],
            &[12, 0, 18, 0],
            &[8, 0, 1, 0, b'i', b'f', b'b', 0],
            &[5, 0, 3, 0, 9, 0, 0, 0],
        ]
        .concat();
        assert_eq!(batch.octets(), expected);
    }
}
