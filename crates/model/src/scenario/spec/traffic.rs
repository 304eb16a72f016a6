//! Traffic that comes and goes, as it is written: requests, short flows, shuffles, memcached,
//! programs.

use super::{Word, name, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::workload::{Cdf, Exec};
use crate::scenario::yaml::Field;
use std::path::Path;
use std::sync::Arc;

/// Keys of a traffic entry, one of which it has.
pub(crate) const KINDS: [&str; 7] =
    ["tcp", "udp", "request", "flows", "shuffle", "memcached", "exec"];

#[derive(Clone, Debug)]
pub(crate) enum WorkSpec {
    Request(Box<RequestSpec>),
    Flows(Box<FlowsSpec>),
    Shuffle { octets: Formula, congestion: Option<Word> },
    Memcached(Box<MemcachedSpec>),
    Exec { server: Word, client: Word },
}

#[derive(Clone, Debug)]
pub(crate) struct RequestSpec {
    pub(crate) size: Formula,
    pub(crate) response: Formula,
    pub(crate) load: LoadSpec,
    pub(crate) kept: bool,
    pub(crate) congestion: Option<Word>,
}

#[derive(Clone, Debug)]
pub(crate) struct MemcachedSpec {
    pub(crate) rate: Formula,
    pub(crate) fixed: bool,
    pub(crate) value: Formula,
    pub(crate) key: Option<Formula>,
    pub(crate) keys: Option<Formula>,
    pub(crate) sets: Option<Formula>,
    pub(crate) connections: Option<Formula>,
    pub(crate) congestion: Option<Word>,
}

#[derive(Clone, Debug)]
pub(crate) enum LoadSpec {
    Open { rate: Formula, fixed: bool },
    Closed { outstanding: Formula },
}

#[derive(Clone, Debug)]
pub(crate) struct FlowsSpec {
    pub(crate) rate: Option<Formula>,
    pub(crate) pause: Option<Formula>,
    pub(crate) chance: Option<Formula>,
    pub(crate) fixed: bool,
    pub(crate) sizes: SizesSpec,
    pub(crate) in_turn: bool,
    pub(crate) congestion: Option<Word>,
}

#[derive(Clone, Debug)]
pub(crate) enum SizesSpec {
    Fixed(Formula),
    /// A file beside the scenario's, and its table once it was read.
    Table(Word, Option<Arc<Cdf>>),
}

/// Reads the value of key `kind`, one of [`KINDS`] except `tcp` and `udp`.
pub(super) fn read(kind: &str, field: &Field<'_>) -> Result<WorkSpec, Error> {
    match kind {
        "request" => request(field),
        "flows" => flows(field),
        "shuffle" => {
            let table = field.table(&["octets", "congestion"])?;
            Ok(WorkSpec::Shuffle {
                octets: Formula::read(table.need("octets", "10MB")?)?,
                congestion: table.get("congestion").map(name).transpose()?,
            })
        }
        "memcached" => memcached(field),
        _ => {
            let table = field.table(&["server", "client"])?;
            let server = command(table.need("server", "\"iperf3 -s -1 -p {port}\"")?)?;
            let client =
                command(table.need("client", "\"iperf3 -c {to} -p {port} -t {seconds}\"")?)?;
            Ok(WorkSpec::Exec { server, client })
        }
    }
}

fn request(field: &Field<'_>) -> Result<WorkSpec, Error> {
    let table = field.table(&[
        "size",
        "response",
        "rate",
        "outstanding",
        "spacing",
        "connections",
        "congestion",
    ])?;
    let load = match table.one_of(&["rate", "outstanding"])? {
        ("rate", rate) => {
            let fixed = choice(table.get("spacing"), ["poisson", "fixed"])? == "fixed";
            LoadSpec::Open { rate: Formula::read(rate)?, fixed }
        }
        (_, outstanding) => {
            if let Some(spacing) = table.get("spacing") {
                let message = "`spacing` beside `outstanding`: the answers space the requests";
                return Err(spacing.error(message, "leave it out, or write `rate: 50`"));
            }
            LoadSpec::Closed { outstanding: Formula::read(outstanding)? }
        }
    };
    Ok(WorkSpec::Request(Box::new(RequestSpec {
        size: Formula::read(table.need("size", "100B")?)?,
        response: Formula::read(table.need("response", "20kB")?)?,
        load,
        kept: choice(table.get("connections"), ["kept", "new"])? == "kept",
        congestion: table.get("congestion").map(name).transpose()?,
    })))
}

fn flows(field: &Field<'_>) -> Result<WorkSpec, Error> {
    let table = field.table(&[
        "rate",
        "pause",
        "chance",
        "spacing",
        "size",
        "sizes",
        "pick",
        "congestion",
    ])?;
    let (load, _) = table.one_of(&["rate", "pause"])?;
    let (of_rate, of_pause) = (["spacing", "pick"], ["chance"]);
    let useless = if load == "pause" { &of_rate[..] } else { &of_pause[..] };
    if let Some(field) = useless.iter().find_map(|key| table.get(key)) {
        let message = format!("it means nothing beside `{load}`");
        return Err(field.error(message, "leave it out"));
    }
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    let sizes = match table.one_of(&["size", "sizes"])? {
        ("size", size) => SizesSpec::Fixed(Formula::read(size)?),
        (_, file) => SizesSpec::Table(word(file)?, None),
    };
    Ok(WorkSpec::Flows(Box::new(FlowsSpec {
        rate: formula("rate")?,
        pause: formula("pause")?,
        chance: formula("chance")?,
        fixed: choice(table.get("spacing"), ["poisson", "fixed"])? == "fixed",
        sizes,
        in_turn: choice(table.get("pick"), ["random", "in-turn"])? == "in-turn",
        congestion: table.get("congestion").map(name).transpose()?,
    })))
}

fn memcached(field: &Field<'_>) -> Result<WorkSpec, Error> {
    let table = field.table(&[
        "rate",
        "spacing",
        "value",
        "key",
        "keys",
        "sets",
        "connections",
        "congestion",
    ])?;
    let number = |key: &str| table.get(key).map(Formula::read).transpose();
    Ok(WorkSpec::Memcached(Box::new(MemcachedSpec {
        rate: Formula::read(table.need("rate", "1000")?)?,
        fixed: choice(table.get("spacing"), ["poisson", "fixed"])? == "fixed",
        value: Formula::read(table.need("value", "6kB")?)?,
        key: number("key")?,
        keys: number("keys")?,
        sets: number("sets")?,
        connections: number("connections")?,
        congestion: table.get("congestion").map(name).transpose()?,
    })))
}

/// One of `known`; the first if there is none.
fn choice(field: Option<Field<'_>>, known: [&'static str; 2]) -> Result<&'static str, Error> {
    let Some(field) = field else { return Ok(known[0]) };
    let text = field.text()?;
    known.into_iter().find(|word| *word == text).ok_or_else(|| {
        let help = format!("write `{}` or `{}`", known[0], known[1]);
        field.error(format!("`{text}` is neither"), help)
    })
}

/// A command line: words without quotes, in which `{name}` stands for what the lab knows.
fn command(field: Field<'_>) -> Result<Word, Error> {
    let word = word(field)?;
    let names = Exec::NAMES.map(|name| format!("{{{name}}}"));
    let mut rest = word.text.clone();
    names.iter().for_each(|name| rest = rest.replace(name.as_str(), ""));
    if word.text.trim().is_empty() || rest.contains(['{', '}', '"', '\'']) {
        let message = format!("`{}` is not a plain command line", word.text);
        let help = format!("write words without quotes; {} are filled in", names.join(", "));
        return Err(word.error(message, help));
    }
    Ok(word)
}

impl WorkSpec {
    /// Reads the file that this entry names, if it names one; relative to `directory`.
    pub(crate) fn load(&mut self, directory: &Path) -> Result<(), Error> {
        let Self::Flows(flows) = self else { return Ok(()) };
        let SizesSpec::Table(word, table) = &mut flows.sizes else { return Ok(()) };
        let path = directory.join(&word.text);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let message = format!("{} cannot be read: {error}", path.display());
            word.error(message, "name a file by its path from the scenario's directory")
        })?;
        *table = Some(Arc::new(Cdf::parse(&text).map_err(|(line, what, help)| {
            word.error(format!("{}:{line}: {what}", path.display()), help)
        })?));
        Ok(())
    }
}
