//! A promise that was found broken.

use std::fmt;
use weir_units::{SortedMap, Time};

/// A promise that was found broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Breach {
    /// When it was seen first.
    pub at: Time,
    /// How many looks saw it.
    pub times: u64,
    /// Which check says so.
    pub check: &'static str,
    /// Of whom.
    pub of: String,
    /// What was seen first.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, times, check, of, what } = self;
        let seconds = at.as_nanos() as f64 / 1e9;
        write!(f, "{check}: at {seconds:.3} s, {of}: {what}")?;
        if *times > 1 { write!(f, " (seen {times} times)") } else { Ok(()) }
    }
}

/// Breaches so far: one per check and subject, however long it lasts.
#[derive(Debug, Default)]
pub(crate) struct Breaches(SortedMap<(&'static str, String), Breach>);

impl Breaches {
    /// `check` finds at `at` that something is wrong with `of`.
    pub(crate) fn add(&mut self, at: Time, check: &'static str, of: &str, what: String) {
        let new = || Breach { at, times: 0, check, of: of.into(), what };
        self.0.entry((check, of.into())).or_insert_with(new).times += 1;
    }

    /// The same unless `holds`; `what` is asked only then.
    pub(crate) fn unless(
        &mut self,
        holds: bool,
        (at, check): (Time, &'static str),
        of: &str,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(at, check, of, what());
        }
    }

    /// All, the earliest first.
    pub(crate) fn into_list(self) -> Vec<Breach> {
        let mut list: Vec<Breach> = self.0.into_values().collect();
        list.sort_by_key(|breach| breach.at);
        list
    }
}
