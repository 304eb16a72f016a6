//! What a link does to packets, as it is written: for all links of a topology, and for one by its
//! name.

use super::{Word, name, whole, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::{Field, Table};

/// Keys that every link of a topology may have at once.
pub(crate) const OF_ALL: [&str; 4] = ["buffer", "delay", "ecn", "priorities"];
/// Keys that a single link may have.
pub(crate) const OF_ONE: [&str; 7] =
    ["buffer", "delay", "ecn", "priorities", "red", "loss", "paths"];

/// What is written; what is left out is as for all links, or as usual.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortSpec {
    pub(crate) buffer: Option<Formula>,
    pub(crate) delay: Option<Formula>,
    pub(crate) ecn: Option<Formula>,
    pub(crate) priorities: Option<Formula>,
    pub(crate) red: Option<RedSpec>,
    pub(crate) loss: Option<Formula>,
    pub(crate) paths: Option<PathsSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct RedSpec {
    pub(crate) whole: Word,
    pub(crate) min: Formula,
    pub(crate) max: Formula,
    pub(crate) probability: Option<Formula>,
    pub(crate) weight: Option<Formula>,
}

#[derive(Clone, Debug)]
pub(crate) struct PathsSpec {
    pub(crate) count: Option<Formula>,
    pub(crate) skew: Formula,
    pub(crate) by: Option<Word>,
}

/// Reads the keys of [`OF_ONE`] that `table` has; it may know others, too.
pub(crate) fn ports(table: &Table<'_>) -> Result<PortSpec, Error> {
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    Ok(PortSpec {
        buffer: formula("buffer")?,
        delay: formula("delay")?,
        ecn: formula("ecn")?,
        priorities: formula("priorities")?,
        red: table.get("red").map(|f| red(&f)).transpose()?,
        loss: formula("loss")?,
        paths: table.get("paths").map(|f| paths(&f)).transpose()?,
    })
}

/// `{NAME: {…}}`: single links of a topology that names its links itself.
pub(crate) fn by_name(field: &Field<'_>) -> Result<Vec<(Word, PortSpec)>, Error> {
    let one = |(key, node): &(crate::scenario::yaml::Key, crate::scenario::yaml::Node)| {
        let path = format!("{}.{}", field.path, key.text);
        let link = Word { text: key.text.clone(), place: key.place.clone(), path: path.clone() };
        Ok((link, ports(&Field { path, node }.table(&OF_ONE)?)?))
    };
    field.entries()?.iter().map(one).collect()
}

fn red(field: &Field<'_>) -> Result<RedSpec, Error> {
    let table = field.table(&["min", "max", "probability", "weight"])?;
    Ok(RedSpec {
        whole: whole(field),
        min: Formula::read(table.need("min", "30kB")?)?,
        max: Formula::read(table.need("max", "90kB")?)?,
        probability: table.get("probability").map(Formula::read).transpose()?,
        weight: table.get("weight").map(Formula::read).transpose()?,
    })
}

fn paths(field: &Field<'_>) -> Result<PathsSpec, Error> {
    let table = field.table(&["count", "skew", "by"])?;
    Ok(PathsSpec {
        count: table.get("count").map(Formula::read).transpose()?,
        skew: Formula::read(table.need("skew", "200us")?)?,
        by: table.get("by").map(word).transpose()?,
    })
}

/// A link of a topology that is written link by link.
#[derive(Clone, Debug)]
pub(crate) struct LinkSpec {
    pub(crate) name: Option<Word>,
    pub(crate) a: Word,
    pub(crate) b: Word,
    pub(crate) rate: Formula,
    pub(crate) ports: PortSpec,
}

/// Reads one entry of such a topology's `links`.
pub(crate) fn link(field: &Field<'_>) -> Result<LinkSpec, Error> {
    let known = [&["name", "a", "b", "rate"][..], &OF_ONE].concat();
    let table = field.table(&known)?;
    Ok(LinkSpec {
        name: table.get("name").map(name).transpose()?,
        a: word(table.need("a", "h1")?)?,
        b: word(table.need("b", "s")?)?,
        rate: Formula::read(table.need("rate", "1Gbit")?)?,
        ports: ports(&table)?,
    })
}
