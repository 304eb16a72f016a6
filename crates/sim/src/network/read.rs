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
//! and then, each if it is needed, in this order:
//!
//! ```text
//! pools P
//! id octets alpha                                                  P times
//! ports N
//! link fifo [pool p]                                               N times one of these
//! link red min max probability weight hard|gentle [pool p]
//! link priority n octets mark_above… [pool p]                      n queues
//! link drr|wfq n weight octets mark_above… [pool p]
//! classes C
//! flow class                                                       C times
//! ways W
//! flow forward|reverse n link…                                     W times
//! ```
//!
//! Promises  Any text is read or refused with the line and what is wrong there; nothing panics, and
//!           no number in the file makes it use more memory than the file is long.
//! Not here  Comments, other orders, units: the files are written by programs.

use super::{
    Discipline, Flaw, FlowSpec, LinkSpec, Network, PoolSpec, Port, QueueSpec, RedSpec, Traffic, Way,
};
use std::num::NonZero;
use weir_units::{Bytes, Rate, Span, Time};

/// A mistake in a network file, with its line.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// Kinds of mistakes in a line.
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
    /// The text is no number, or out of range.
    #[error("{field} is {got:?}: a number like 0.5 was expected")]
    Decimal {
        /// Which one.
        field: &'static str,
        /// What is written there.
        got: String,
    },
    /// The word is not one of the known ones.
    #[error("{got:?}, where {wanted} was expected")]
    Word {
        /// What is written there.
        got: String,
        /// What is known.
        wanted: &'static str,
    },
    /// The line is too long.
    #[error("{0:?} is more than was expected on this line")]
    Surplus(String),
    /// The number is out of turn: links and flows are numbered from 0, in order.
    #[error("{what} {got}, where {what} {wanted} was expected: they are numbered from 0, in order")]
    Order {
        /// Link or flow.
        what: &'static str,
        /// The number in the file.
        got: u64,
        /// The one that is its turn.
        wanted: u64,
    },
    /// The line was read, but the piece does not fit into the network.
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
        for id in 0..lines.section("pools")? {
            let mut fields = lines.next("a pool")?;
            let pool = fields.pool(id)?;
            fields.end()?;
            network.add_pool(pool).map_err(|flaw| here(lines.line, flaw))?;
        }
        for _ in 0..lines.section("ports")? {
            let mut fields = lines.next("a port")?;
            let (link, port) = fields.port()?;
            network.set_port(link, port).map_err(|flaw| here(lines.line, flaw))?;
        }
        for _ in 0..lines.section("classes")? {
            let mut fields = lines.next("a flow's class")?;
            let (flow, class) = (fields.number32("flow")?, fields.number("class", 255)? as u8);
            fields.end()?;
            network.set_class(flow, class).map_err(|flaw| here(lines.line, flaw))?;
        }
        for _ in 0..lines.section("ways")? {
            let mut fields = lines.next("a way")?;
            let (flow, way) = (fields.number32("flow")?, fields.way()?);
            let links = fields.route("the number of links")?;
            fields.end()?;
            network.add_way(flow, way, links).map_err(|flaw| here(lines.line, flaw))?;
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

impl Lines<'_> {
    /// How many lines an optional part has: none unless the next line is its head.
    fn section(&mut self, name: &'static str) -> Result<u64, ParseError> {
        let mut ahead = self.lines.clone();
        let word = ahead.next().and_then(|text| text.split_ascii_whitespace().next());
        if word == Some(name) { self.head(name, u32::MAX.into()) } else { Ok(0) }
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
            mark_above: self.threshold("the marking threshold")?,
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

    fn word(&mut self, wanted: &'static str) -> Result<&str, ParseError> {
        self.fields.next().ok_or_else(|| self.error(Problem::Missing(wanted)))
    }

    fn way(&mut self) -> Result<Way, ParseError> {
        const WAYS: &str = "forward or reverse";
        match self.word(WAYS)? {
            "forward" => Ok(Way::Forward),
            "reverse" => Ok(Way::Reverse),
            other => {
                let got = excerpt(other);
                Err(self.error(Problem::Word { got, wanted: WAYS }))
            }
        }
    }

    fn decimal(&mut self, field: &'static str) -> Result<f64, ParseError> {
        let text = self.word(field)?;
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => {
                let got = excerpt(text);
                Err(self.error(Problem::Decimal { field, got }))
            }
        }
    }

    fn pool(&mut self, id: u64) -> Result<PoolSpec, ParseError> {
        self.id("pool", id)?;
        let octets = Bytes::new(self.number("the pool's octets", u64::MAX)?);
        Ok(PoolSpec { octets, alpha: self.decimal("alpha")? })
    }

    /// A whole line.
    fn port(&mut self) -> Result<(u32, Port), ParseError> {
        const KINDS: &str = "fifo, red, priority, drr or wfq";
        let link = self.number32("the port's link")?;
        let discipline = match self.word(KINDS)? {
            "fifo" => Discipline::Fifo,
            "red" => Discipline::Red(self.red()?),
            "priority" => Discipline::Priority(self.queues(false)?),
            "drr" => Discipline::Drr(self.queues(true)?),
            "wfq" => Discipline::Wfq(self.queues(true)?),
            other => {
                let got = excerpt(other);
                return Err(self.error(Problem::Word { got, wanted: KINDS }));
            }
        };
        let pool = match self.fields.next() {
            None => None,
            Some("pool") => Some(self.number32("the port's pool")?),
            Some(other) => return Err(self.error(Problem::Surplus(excerpt(other)))),
        };
        self.end()?;
        Ok((link, Port { discipline, pool }))
    }

    fn red(&mut self) -> Result<RedSpec, ParseError> {
        const KINDS: &str = "hard or gentle";
        Ok(RedSpec {
            min: Bytes::new(self.number("RED's min", u64::MAX)?),
            max: Bytes::new(self.number("RED's max", u64::MAX)?),
            probability: self.decimal("RED's probability")?,
            weight: self.decimal("RED's weight")?,
            gentle: match self.word(KINDS)? {
                "hard" => false,
                "gentle" => true,
                other => {
                    let got = excerpt(other);
                    return Err(self.error(Problem::Word { got, wanted: KINDS }));
                }
            },
        })
    }

    fn queues(&mut self, weighted: bool) -> Result<Vec<QueueSpec>, ParseError> {
        let count = self.number("the number of queues", super::CLASSES.into())?;
        let queue = |_| {
            let weight = if weighted { self.number32("a queue's weight")? } else { 1 };
            let buffer = Bytes::new(self.number("a queue's octets", u64::MAX)?);
            let mark_above = self.threshold("a queue's marking threshold")?;
            Ok(QueueSpec { weight, buffer, mark_above })
        };
        (0..count).map(queue).collect()
    }

    /// 0: none.
    fn threshold(&mut self, field: &'static str) -> Result<Option<Bytes>, ParseError> {
        Ok(NonZero::new(self.number(field, u64::MAX)?).map(|k| Bytes::new(k.get())))
    }

    fn route(&mut self, count: &'static str) -> Result<Vec<u32>, ParseError> {
        let count = self.number32(count)?;
        (0..count).map(|_| self.number32("a link of the route")).collect()
    }
}

/// Excerpt of the file for an error.
fn excerpt(text: &str) -> String {
    text.trim().chars().take(40).collect()
}
