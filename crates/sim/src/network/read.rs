//! Reads the text that a generator of networks writes for several simulators.
//!
//! ```text
//! until_ns T
//! mtu B
//! nodes N
//! links L
//! id src dst rate_bps delay_ns buffer_octets mark_above_octets     L times; 0: no marks
//! flows F
//! id src dst start_ns octets nf link… nr link…                    F times; 0 octets: for ever
//! ```
//!
//! Promises  Any text is read or refused with the line and what is wrong there; nothing panics, and
//!           no number in the file makes it use more memory than the file is long.
//! Not here  Comments, other orders, units: the files are written by programs.

use super::{Flaw, FlowSpec, LinkSpec, Network, Traffic};
use std::num::NonZero;
use weir_units::{Bytes, Rate, Span, Time};

/// What is wrong with a network file, and where.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a line.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends too early.
    #[error("the file ends where {0} was expected")]
    End(&'static str),
    /// A line of the head has another name.
    #[error("{got:?}, where \"{wanted} NUMBER\" was expected")]
    Keyword {
        /// What the line begins with.
        got: String,
        /// What it should begin with.
        wanted: &'static str,
    },
    /// The line is too short.
    #[error("the line ends where {0} was expected")]
    Missing(&'static str),
    /// Not a number, negative, or too great.
    #[error("{field} is {got:?}: a whole number up to {most} was expected")]
    Number {
        /// Which one.
        field: &'static str,
        /// What is written there.
        got: String,
        /// The greatest number possible.
        most: u64,
    },
    /// The line is too long.
    #[error("{0:?} is more than was expected on this line")]
    Surplus(String),
    /// Links and flows are numbered from 0, in order.
    #[error("{what} {got}, where {what} {wanted} was expected: they are numbered from 0, in order")]
    Order {
        /// Link or flow.
        what: &'static str,
        /// The number in the file.
        got: u64,
        /// The one that is its turn.
        wanted: u64,
    },
    /// It can be read, but does not fit.
    #[error(transparent)]
    Flaw(#[from] Flaw),
}

impl Network {
    /// Reads a network file; `docs/simulator.md` has the format.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut lines = Lines { lines: text.lines(), line: 0 };
        let until = lines.head("until_ns", u64::MAX)?;
        let mtu = lines.head("mtu", u16::MAX.into())? as u16;
        let nodes = lines.head("nodes", u32::MAX.into())? as u32;
        let here = |line, flaw: Flaw| ParseError { line, problem: flaw.into() };
        let mut network = Self::new(nodes, mtu, Time::from_nanos(until)).map_err(|flaw| {
            let line = if matches!(flaw, Flaw::Late(_)) { 1 } else { 2 };
            here(line, flaw)
        })?;
        for id in 0..lines.head("links", u32::MAX.into())? {
            let mut fields = lines.next("a link")?;
            let link = fields.link(id)?;
            fields.end()?;
            network.add_link(link).map_err(|flaw| here(lines.line, flaw))?;
        }
        for id in 0..lines.head("flows", u32::MAX.into())? {
            let mut fields = lines.next("a flow")?;
            let flow = fields.flow(id)?;
            fields.end()?;
            network.add_flow(flow).map_err(|flaw| here(lines.line, flaw))?;
        }
        for (line, text) in (lines.line + 1..).zip(lines.lines) {
            if !text.trim().is_empty() {
                return Err(ParseError { line, problem: Problem::Surplus(excerpt(text)) });
            }
        }
        Ok(network)
    }
}

struct Lines<'a> {
    lines: std::str::Lines<'a>,
    /// Number of the line read last.
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self, wanted: &'static str) -> Result<Fields<'a>, ParseError> {
        self.line += 1;
        let text = self.lines.next();
        let text = text.ok_or(ParseError { line: self.line, problem: Problem::End(wanted) })?;
        Ok(Fields { fields: text.split_ascii_whitespace(), line: self.line })
    }

    /// A line of a word and a number.
    fn head(&mut self, wanted: &'static str, most: u64) -> Result<u64, ParseError> {
        let mut fields = self.next(wanted)?;
        let got = fields.fields.next().unwrap_or_default();
        if got != wanted {
            return Err(fields.error(Problem::Keyword { got: excerpt(got), wanted }));
        }
        let number = fields.number(wanted, most)?;
        fields.end()?;
        Ok(number)
    }
}

struct Fields<'a> {
    fields: std::str::SplitAsciiWhitespace<'a>,
    line: usize,
}

impl Fields<'_> {
    fn error(&self, problem: Problem) -> ParseError {
        ParseError { line: self.line, problem }
    }

    fn number(&mut self, field: &'static str, most: u64) -> Result<u64, ParseError> {
        let text = self.fields.next().ok_or_else(|| self.error(Problem::Missing(field)))?;
        match text.parse() {
            Ok(number) if number <= most => Ok(number),
            _ => Err(self.error(Problem::Number { field, got: excerpt(text), most })),
        }
    }

    fn number32(&mut self, field: &'static str) -> Result<u32, ParseError> {
        self.number(field, u32::MAX.into()).map(|number| number as u32)
    }

    fn id(&mut self, what: &'static str, wanted: u64) -> Result<(), ParseError> {
        let got = self.number(what, u64::MAX)?;
        if got == wanted { Ok(()) } else { Err(self.error(Problem::Order { what, got, wanted })) }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        match self.fields.next() {
            None => Ok(()),
            Some(text) => Err(self.error(Problem::Surplus(excerpt(text)))),
        }
    }

    fn link(&mut self, id: u64) -> Result<LinkSpec, ParseError> {
        self.id("link", id)?;
        Ok(LinkSpec {
            from: self.number32("the link's first node")?,
            to: self.number32("the link's second node")?,
            rate: Rate::from_bps(self.number("rate_bps", u64::MAX)?),
            delay: Span::from_nanos(self.number("delay_ns", u64::MAX)?),
            buffer: Bytes::new(self.number("the buffer", u64::MAX)?),
            mark_above: match self.number("the marking threshold", u64::MAX)? {
                0 => None,
                k => Some(Bytes::new(k)),
            },
            loss: 0.0,
        })
    }

    fn flow(&mut self, id: u64) -> Result<FlowSpec, ParseError> {
        self.id("flow", id)?;
        Ok(FlowSpec {
            src: self.number32("the flow's source")?,
            dst: self.number32("the flow's destination")?,
            start: Time::from_nanos(self.number("start_ns", u64::MAX)?),
            traffic: Traffic::Tcp {
                octets: NonZero::new(self.number("the flow's octets", u64::MAX)?),
                algorithm: None,
            },
            forward: self.route("the number of links forward")?,
            reverse: self.route("the number of links back")?,
        })
    }

    fn route(&mut self, count: &'static str) -> Result<Vec<u32>, ParseError> {
        let count = self.number32(count)?;
        (0..count).map(|_| self.number32("a link of the route")).collect()
    }
}

/// What of the file is repeated in an error.
fn excerpt(text: &str) -> String {
    text.trim().chars().take(40).collect()
}
