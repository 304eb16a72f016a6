//! The constants of a law, as people name and write them.
//!
//! Problem   A constant is a field of a law, a name, and a kind of value. A reader of text that matches names by
//!           itself is another list, which a new constant or mechanism can be missing from.
//! Approach  Each mechanism has one table. An entry says which kind of value it takes, and sets the field.
//!           The entry asks whoever reads text for a value of that kind ([`Written`]).
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

/// One value as a person wrote it. Each method reads it as one kind; the error says what is wrong.
pub trait Written {
    /// As a number from 0 up.
    fn real(&self) -> Result<f64, String>;
    /// As a rate with its unit.
    fn rate(&self) -> Result<Rate, String>;
    /// As a span of more than zero, with its unit.
    fn span(&self) -> Result<Span, String>;
    /// As an amount with its unit.
    fn octets(&self) -> Result<Bytes, String>;
    /// As a word.
    fn word(&self) -> Result<&str, String>;
}

/// One value, read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A number.
    Real(f64),
    /// A rate.
    Rate(Rate),
    /// A span.
    Span(Span),
    /// An amount.
    Octets(Bytes),
    /// A word of the entry's list, or its word for none.
    Word(&'static str),
}

impl<L> Entry<L> {
    /// The entry of this name.
    ///
    /// # Errors
    /// There is none; the error lists those that exist.
    pub fn find<'a>(name: &str, all: &'a [Self]) -> Result<&'a Self, String> {
        all.iter().find(|entry| entry.name == name).ok_or_else(|| {
            format!("there is no such constant; there are {}", names(all).join(", "))
        })
    }

    /// Reads a value of this entry's kind.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self, written: &dyn Written) -> Result<Value, String> {
        match self.take {
            Take::Real(_) => written.real().map(Value::Real),
            Take::RealOr(none, _) if written.word() == Ok(none) => Ok(Value::Word(none)),
            Take::RealOr(..) => written.real().map(Value::Real),
            Take::Rate(_) | Take::RateIf(_) => written.rate().map(Value::Rate),
            Take::Span(_) => written.span().map(Value::Span),
            Take::Octets(_) => written.octets().map(Value::Octets),
            Take::Word(words) => {
                let word = written.word()?;
                let known = words.iter().find(|(name, _)| *name == word);
                known.map(|(name, _)| Value::Word(name)).ok_or_else(|| {
                    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
                    format!("`{word}` is none of {}", names.join(", "))
                })
            }
        }
    }

    /// Sets the constant of `law`.
    ///
    /// # Errors
    /// This law has no such constant, with the reason.
    ///
    /// # Panics
    /// The value is of another kind: it was not read by this entry.
    pub fn put(&self, law: &mut L, value: Value) -> Result<(), String> {
        match (&self.take, value) {
            (Take::Real(put), Value::Real(real)) => put(law, real),
            (Take::RealOr(_, put), Value::Real(real)) => put(law, Some(real)),
            (Take::RealOr(_, put), Value::Word(_)) => put(law, None),
            (Take::Rate(put), Value::Rate(rate)) => put(law, rate),
            (Take::RateIf(put), Value::Rate(rate)) => return put(law, rate).map_err(Into::into),
            (Take::Span(put), Value::Span(span)) => put(law, span),
            (Take::Octets(put), Value::Octets(octets)) => put(law, octets),
            (Take::Word(words), Value::Word(word)) => {
                let known = words.iter().find(|(name, _)| *name == word);
                known.expect("a word of the list").1(law);
            }
            (_, value) => panic!("{} does not take {value:?}", self.name),
        }
        Ok(())
    }
}

/// All names of a table, in its order.
pub(super) fn names<L>(all: &[Entry<L>]) -> Vec<&'static str> {
    all.iter().map(|entry| entry.name).collect()
}
