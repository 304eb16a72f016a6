//! memcached's text protocol, as far as a load needs it.
//!
//! Problem   An answer comes in pieces, and a server in trouble sends other lines than the answer.
//!           Neither may look like a complete answer.
//! Approach  One reader per request, which knows every line that may come. Values are counted, not
//!           kept.
//! Promises  The same answer is read alike, however it is cut. At most [`LINE_MOST`] octets are
//!           kept, whatever comes. Anything but the answer to this request is a final error.
//! Not here  Sockets, and when a request is due.
//! Source    memcached's doc/protocol.txt.

use weir_model::scenario::{Ask, Memcached, Operation};

/// Longest line of an answer, with a key of 250 octets. Longer error texts are cut.
const LINE_MOST: usize = 512;

/// Reason why a text is not the answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Strange {
    /// The server reported that it did not do it.
    #[error("memcached says `{0}`")]
    Refused(String),
    /// A key that was stored before is missing.
    #[error("memcached has lost a key: its memory is too small")]
    Lost,
    /// A line came that is not expected at this place.
    #[error("memcached answers `{0}`")]
    Unexpected(String),
    /// A line has no end.
    #[error("memcached answers with a line of more than {LINE_MOST} octets")]
    TooLong,
    /// Something came after the answer.
    #[error("memcached answers more than it was asked")]
    Unasked,
}

/// The text of a key: its number, with zeros before it.
fn key(of: &Memcached, number: u32) -> String {
    format!("{number:0width$}", width = of.key.get() as usize)
}

/// Appends a request to `out`.
pub(super) fn write(of: &Memcached, ask: Ask, out: &mut Vec<u8>) {
    let key = key(of, ask.key);
    match ask.operation {
        Operation::Get => out.extend(format!("get {key}\r\n").bytes()),
        Operation::Set => store(of, &key, "", out),
    }
}

/// Appends a request without an answer, which stores a value.
pub(super) fn write_silently(of: &Memcached, number: u32, out: &mut Vec<u8>) {
    store(of, &key(of, number), " noreply", out);
}

fn store(of: &Memcached, key: &str, more: &str, out: &mut Vec<u8>) {
    let octets = of.value.get() as usize;
    out.extend(format!("set {key} 0 0 {octets}{more}\r\n").bytes());
    out.resize(out.len() + octets, b'w');
    out.extend(b"\r\n");
}

/// Part of an answer that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// `STORED`
    Stored,
    /// `VALUE KEY 0 LENGTH`
    Header,
    /// The remaining octets of a value.
    Value(u64),
    /// The end of the line after a value.
    Empty,
    /// `END`
    End,
    Nothing,
}

/// Reads the answer to one request.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    due: Due,
    /// The line before a value.
    header: String,
    octets: u64,
    /// Octets of a line that has not ended yet.
    line: Vec<u8>,
}

impl Answer {
    pub(super) fn to(of: &Memcached, ask: Ask) -> Self {
        let octets = of.value.get();
        let due = match ask.operation {
            Operation::Get => Due::Header,
            Operation::Set => Due::Stored,
        };
        let header = format!("VALUE {} 0 {octets}", key(of, ask.key));
        Self { due, header, octets, line: Vec::new() }
    }

    /// Reads what has come; says whether the answer is whole.
    ///
    /// # Errors
    /// The text is not the answer. The caller must not read on.
    pub(super) fn read(&mut self, mut come: &[u8]) -> Result<bool, Strange> {
        while !come.is_empty() {
            match self.due {
                Due::Nothing => return Err(Strange::Unasked),
                Due::Value(left) => {
                    let some = left.min(come.len() as u64);
                    come = &come[some as usize..];
                    self.due = if some == left { Due::Empty } else { Due::Value(left - some) };
                }
                _ => {
                    let end = come.iter().position(|&octet| octet == b'\n');
                    let (part, rest) = come.split_at(end.map_or(come.len(), |end| end + 1));
                    if self.line.len() + part.len() > LINE_MOST {
                        return Err(Strange::TooLong);
                    }
                    self.line.extend(part);
                    come = rest;
                    if end.is_some() {
                        self.due = self.next()?;
                        self.line.clear();
                    }
                }
            }
        }
        Ok(self.due == Due::Nothing)
    }

    /// What is due after the line that is there.
    fn next(&self) -> Result<Due, Strange> {
        let said = || String::from_utf8_lossy(&self.line).trim_end().to_string();
        let Some(line) = self.line.strip_suffix(b"\r\n") else {
            return Err(Strange::Unexpected(said()));
        };
        let errors: [&[u8]; 3] = [b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR"];
        match (self.due, line) {
            (Due::Stored, b"STORED") | (Due::End, b"END") => Ok(Due::Nothing),
            (Due::Header, line) if line == self.header.as_bytes() => Ok(Due::Value(self.octets)),
            (Due::Header, b"END") => Err(Strange::Lost),
            (Due::Empty, b"") => Ok(Due::End),
            _ if errors.iter().any(|error| line.starts_with(error)) => {
                Err(Strange::Refused(said()))
            }
            _ => Err(Strange::Unexpected(said())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_model::scenario::{Arrivals, Spacing};
    use weir_units::Bytes;

    fn memcached(value: u64) -> Memcached {
        Memcached {
            arrivals: Arrivals { per_second: 1.0, spacing: Spacing::Fixed, seed: 0 },
            sets: 0.5,
            keys: 10,
            key: Bytes::new(8),
            value: Bytes::new(value),
            connections: 1,
            congestion: "cubic".into(),
        }
    }

    const GET: Ask = Ask { operation: Operation::Get, key: 7 };
    const SET: Ask = Ask { operation: Operation::Set, key: 7 };

    fn read(ask: Ask, answer: &[u8]) -> Result<bool, Strange> {
        Answer::to(&memcached(3), ask).read(answer)
    }

    #[test]
    fn requests_have_the_sizes_that_the_model_says() {
        for value in [1, 9, 10, 6000] {
            let of = memcached(value);
            for ask in [GET, SET] {
                let mut out = Vec::new();
                write(&of, ask, &mut out);
                assert_eq!(out.len() as u64, of.request(ask.operation).get(), "{ask:?} {value}");
            }
        }
        let mut out = Vec::new();
        write(&memcached(3), SET, &mut out);
        write(&memcached(3), GET, &mut out);
        write_silently(&memcached(1), 9, &mut out);
        let wanted =
            "set 00000007 0 0 3\r\nwww\r\nget 00000007\r\nset 00000009 0 0 1 noreply\r\nw\r\n";
        assert_eq!(String::from_utf8_lossy(&out), wanted);
    }

    #[test]
    fn an_answer_is_whole_with_its_last_octet_and_not_before() {
        let answers: [(Ask, &[u8]); 3] = [
            (SET, b"STORED\r\n"),
            (GET, b"VALUE 00000007 0 3\r\nwww\r\nEND\r\n"),
            // A value may look like an answer.
            (GET, b"VALUE 00000007 0 3\r\nEND\r\nEND\r\n"),
        ];
        for (ask, answer) in answers {
            let size = memcached(3).answer(ask.operation).get();
            assert_eq!(answer.len() as u64, size, "as the model says");
            for cut in 0..answer.len() {
                assert_eq!(read(ask, &answer[..cut]), Ok(false), "{cut}");
            }
            assert_eq!(read(ask, answer), Ok(true));
            let more = [answer, b"x"].concat();
            assert_eq!(read(ask, &more), Err(Strange::Unasked));
        }
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        let refused = |text: &str| Err(Strange::Refused(text.into()));
        let unexpected = |text: &str| Err(Strange::Unexpected(text.into()));
        assert_eq!(read(SET, b"ERROR\r\n"), refused("ERROR"));
        let full = "SERVER_ERROR out of memory storing object";
        assert_eq!(read(SET, format!("{full}\r\n").as_bytes()), refused(full));
        assert_eq!(read(GET, b"CLIENT_ERROR bad\r\n"), refused("CLIENT_ERROR bad"));
        assert_eq!(read(GET, b"END\r\n"), Err(Strange::Lost));
        assert_eq!(read(SET, b"END\r\n"), unexpected("END"));
        assert_eq!(read(SET, b"NOT_STORED\r\n"), unexpected("NOT_STORED"));
        assert_eq!(read(SET, b"STORED\n"), unexpected("STORED"));
        assert_eq!(read(GET, b"VALUE 00000008 0 3\r\n"), unexpected("VALUE 00000008 0 3"));
        assert_eq!(read(GET, b"VALUE 00000007 0 4\r\n"), unexpected("VALUE 00000007 0 4"));
        assert_eq!(read(GET, b"VALUE 00000007 0 3\r\nwwww\r\n"), unexpected("w"));
        assert_eq!(read(GET, b"VALUE 00000007 0 3\r\nwww\r\nSTORED\r\n"), unexpected("STORED"));
        assert_eq!(read(GET, &[b'V'; LINE_MOST + 1]), Err(Strange::TooLong));
        assert_eq!(read(GET, &[b'V'; LINE_MOST]), Ok(false));
    }

    fn octets() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            Just(b"VALUE 00000007 0 3\r\n".to_vec()),
            Just(b"STORED\r\n".to_vec()),
            Just(b"END\r\n".to_vec()),
            Just(b"\r\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..600),
        ];
        prop::collection::vec(word, 0..6).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_alike_however_it_is_cut(
            come in octets(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            get in any::<bool>(),
        ) {
            let ask = if get { GET } else { SET };
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(come.len() + 1)).collect();
            at.extend([0, come.len()]);
            at.sort_unstable();
            let mut answer = Answer::to(&memcached(3), ask);
            let mut cut = Ok(false);
            for pair in at.windows(2) {
                cut = answer.read(&come[pair[0]..pair[1]]);
                prop_assert!(answer.line.len() <= LINE_MOST);
                if cut.is_err() {
                    break;
                }
            }
            prop_assert_eq!(cut, read(ask, &come));
        }
    }
}
