//! The reading side: the same calls into the same code, and what comes out held against what came out then.

use crate::frame::{Error, Reader};
use crate::{Ending, Row, SUFFIX};
use std::fmt::{Debug, Write};
use std::fs;
use std::path::{Path, PathBuf};
use weir_core::host::{Call, Given, Happening, HostLoop, Observed, Policy, Why, Work};
use weir_units::Time;

/// What a segment held, all of which agreed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Replayed {
    /// All records.
    pub records: u64,
    /// Calls among them.
    pub calls: u64,
    /// Times that work was compared.
    pub works: u64,
    /// Records that were dropped after the last one, for the disk was slow.
    pub lost: u64,
    /// The loop at the end, if the next segment goes on from there.
    goes_on: Option<Vec<u8>>,
}

/// Replays a segment, or all segments in a folder and below. `said` is told of each that agreed.
///
/// # Errors
/// The first segment that could not be read or did not agree, and why.
pub fn replay(path: &Path, said: &mut dyn FnMut(&Path, &Replayed)) -> Result<(), (PathBuf, Error)> {
    let mut before: Option<(PathBuf, Vec<u8>)> = None;
    for segment in segments(path).map_err(|e| (path.to_owned(), e))? {
        let here = |e| (segment.clone(), e);
        let octets = fs::read(&segment).map_err(|e| here(e.into()))?;
        let from = before.take().filter(|(former, _)| follows(former, &segment));
        let replayed =
            read_segment(&octets, from.as_ref().map(|(_, state)| &state[..])).map_err(here)?;
        said(&segment, &replayed);
        before = replayed.goes_on.map(|state| (segment, state));
    }
    Ok(())
}

/// Whether `next` is the segment after `former`.
fn follows(former: &Path, next: &Path) -> bool {
    let number = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
    former.parent() == next.parent()
        && number(former).is_some_and(|former| number(next) == Some(former + 1))
}

/// The file itself, or all segments in the folder and below, in order.
///
/// # Errors
/// The folder cannot be read, or there are none.
pub fn segments(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        if !fs::metadata(&path)?.is_dir() {
            found.push(path);
            continue;
        }
        for entry in fs::read_dir(&path)? {
            let entry = entry?.path();
            let is_segment = entry.extension().is_some_and(|suffix| suffix == SUFFIX);
            if is_segment || entry.is_dir() {
                open.push(entry);
            }
        }
    }
    found.sort();
    if found.is_empty() { Err(Error::Empty) } else { Ok(found) }
}

/// Replays the octets of one segment; `before` is the state that the segment before it ended with.
///
/// # Errors
/// See [`Error`]: which record, and what is wrong with it.
pub fn read_segment(octets: &[u8], before: Option<&[u8]>) -> Result<Replayed, Error> {
    let mut reader = Reader::new(octets)?;
    let Row::Snapshot(host, goes_on) = reader.next()? else {
        return Err(unreadable(&reader, "a segment begins with a snapshot"));
    };
    if goes_on && before.is_some_and(|before| before != state(&host)) {
        let what = "the state is not the one that the segment before ended with".into();
        return Err(Error::Differs { record: 1, what });
    }
    let mut player = Player { host: *host, done: Replayed::default(), last: None, tick: None };
    loop {
        let row = reader.next()?;
        player.done.records = reader.record();
        match row {
            Row::Snapshot(..) => return Err(unreadable(&reader, "a second snapshot")),
            Row::Call(now, call) => player.call(now, call),
            Row::Work(now, work, next) => player.work(now, &work, next)?,
            Row::End(_) if reader.has_more() => {
                return Err(unreadable(&reader, "records follow the closing one"));
            }
            Row::End(ending) => return Ok(player.end(ending)),
        }
    }
}

fn unreadable(reader: &Reader<'_>, what: &str) -> Error {
    Error::Unreadable { record: reader.record(), what: what.into() }
}

/// A loop as it is written.
fn state(host: &HostLoop) -> Vec<u8> {
    postcard::to_stdvec(host).expect("memory takes every loop")
}

/// A loop that is fed a segment.
struct Player {
    host: HostLoop,
    done: Replayed,
    /// The last call, for people.
    last: Option<(Time, String)>,
    /// When the machine was last woken, and why.
    tick: Option<(Time, Why)>,
}

impl Player {
    fn call(&mut self, now: Time, call: Happening<Box<Observed>, Box<Policy>>) {
        let call = call.borrowed();
        if matches!(call, Call::Input(Given::Tick)) {
            self.tick = self.host.machine().next_deadline().map(|(_, why)| (now, why));
        }
        self.last = Some((now, name(&call)));
        self.host.handle(now, call);
        self.done.calls += 1;
    }

    fn work(&mut self, now: Time, then: &Work, next: Option<(Time, Why)>) -> Result<(), Error> {
        let again = self.host.work(now);
        self.done.works += 1;
        let record = self.done.records;
        if again == *then && self.host.next_deadline() == next {
            return Ok(());
        }
        let mut what = format!("at {} ns ", now.as_nanos());
        let told = difference(then, &again).unwrap_or_else(|| {
            format!("the next deadline was {next:?}, and is {:?}", self.host.next_deadline())
        });
        // A `String` takes everything.
        let _ = write!(what, "{told}");
        if let Some((at, why)) = self.tick {
            let _ = write!(what, ". The machine was last woken at {} ns: {why}", at.as_nanos());
        }
        if let Some((at, call)) = &self.last {
            let _ = write!(what, ". The last call was {call} at {} ns", at.as_nanos());
        }
        Err(Error::Differs { record, what })
    }

    fn end(mut self, ending: Ending) -> Replayed {
        match ending {
            Ending::Full => self.done.goes_on = Some(state(&self.host)),
            Ending::Lost(records) => self.done.lost = records,
            Ending::Closed => {}
        }
        self.done
    }
}

/// A call in a few words.
fn name(call: &Call<'_>) -> String {
    match call {
        Call::Input(Given::Observed(_)) => "counters".into(),
        Call::Input(Given::Policy(_)) | Call::Change { .. } => "a policy".into(),
        other => format!("{other:?}"),
    }
}

/// The first item in which the two differ.
fn difference(then: &Work, again: &Work) -> Option<String> {
    first("removed pair", &then.forgotten, &again.forgotten)
        .or_else(|| first("rate of a pair", &then.pairs, &again.pairs))
        .or_else(|| first("rate of a pair's paths", &then.paths, &again.paths))
        .or_else(|| first("meter of a VM", &then.meters, &again.meters))
        .or_else(|| first("class of a VM", &then.classes, &again.classes))
        .or_else(|| first("tag of a tenant", &then.tags, &again.tags))
        .or_else(|| first("message", &then.messages, &again.messages))
        .or_else(|| first("event", &then.events, &again.events))
}

fn first<T: PartialEq + Debug>(kind: &str, then: &[T], again: &[T]) -> Option<String> {
    let at = (0..then.len().max(again.len())).find(|i| then.get(*i) != again.get(*i))?;
    let show = |item: Option<&T>| item.map_or("nothing".to_owned(), |item| format!("{item:?}"));
    Some(format!("{kind}: it was {}, and is {}", show(then.get(at)), show(again.get(at))))
}
