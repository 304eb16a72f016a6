//! The constants of a law, as people name and write them.
//!
//! Problem   A constant is a field of a law, a name, and a kind of value. A reader of text that matches names by
//!           itself is another list, which a new constant or mechanism can be missing from.
//! Approach  Each mechanism has one table. An entry says which kind of value it takes, and sets the field.
//!           Whoever reads text looks for the name, reads a value of that kind, and hands it over.
//! Not here  How values are written: the reader's. Whether they can work together: the law's `check`.

use weir_units::{Bytes, Rate, Span};

/// One constant of a law `L`.
pub struct Entry<L: 'static> {
    /// The name in `agent.toml` and after `--constant`.
    pub name: &'static str,
    /// What it takes.
    pub take: Take<L>,
}

/// A kind of value, and what sets it.
pub enum Take<L: 'static> {
    /// A number from 0 up.
    Real(fn(&mut L, f64)),
    /// A number from 0 up, or a word that means none.
    RealOr(&'static str, fn(&mut L, Option<f64>)),
    /// A rate with its unit.
    Rate(fn(&mut L, Rate)),
    /// A rate with its unit, which not every law of this kind has: else the reason why not.
    RateIf(fn(&mut L, Rate) -> Result<(), &'static str>),
    /// A span of more than zero, with its unit.
    Span(fn(&mut L, Span)),
    /// An amount with its unit.
    Octets(fn(&mut L, Bytes)),
    /// One of these words.
    Word(&'static [Word<L>]),
}

/// A word, and what it sets.
pub type Word<L> = (&'static str, fn(&mut L));

impl<L> Entry<L> {
    /// The entry of this name.
    pub fn find<'a>(name: &str, all: &'a [Self]) -> Option<&'a Self> {
        all.iter().find(|entry| entry.name == name)
    }
}

/// All names of a table, in its order.
pub(super) fn names<L>(all: &[Entry<L>]) -> Vec<&'static str> {
    all.iter().map(|entry| entry.name).collect()
}
