//! htsim's connection matrices (`.cm`): which host sends how much to which, and when.
//!
//! Source    `Broadcom/csg-htsim` sim/datacenter/connection_matrix.cpp. Starts are picoseconds,
//!           sizes octets, 0 = without end. Departs: a wrong header line, a second `start` and a
//!           node beyond `Nodes` are errors here.

use super::text::{Line, Lines, What, positive, real, whole};
use super::{ImportError, MOST_NODES};
use weir_units::{Bytes, Time};

/// A file as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionMatrix {
    /// Hosts are 0 … nodes - 1.
    pub nodes: u32,
    /// In the order of the file.
    pub connections: Vec<Connection>,
    /// In the order of the file.
    pub triggers: Vec<Trigger>,
    /// In the order of the file.
    pub failures: Vec<Failure>,
}

/// When a connection starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Then; rounded up to whole nanoseconds.
    At(Time),
    /// When the trigger with this id fires.
    Trigger(u32),
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// When.
    pub start: Start,
    /// What is sent, without headers; `None` = it never ends.
    pub size: Option<Bytes>,
    /// Its id, from 1, if it has one.
    pub id: Option<u32>,
    /// Smaller is sooner, if it has one.
    pub priority: Option<u32>,
    /// Trigger that fires when all was sent.
    pub send_done: Option<u32>,
    /// Trigger that fires when all was received.
    pub recv_done: Option<u32>,
}

/// What a trigger waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// Fires all its connections, once.
    Oneshot,
    /// Fires one connection each time.
    Multishot,
    /// Fires all its connections when it was hit so many times.
    Barrier(u32),
}

/// Starts connections when others are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// From 1.
    pub id: u32,
    /// What it waits for.
    pub kind: TriggerKind,
}

/// A tier of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Top of rack.
    Tor,
    /// Aggregation.
    Agg,
    /// Core.
    Core,
}

/// A link that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Tier of the switch below the link.
    pub tier: Tier,
    /// Number of the switch in its tier.
    pub switch: u32,
    /// Number of the link among the switch's uplinks.
    pub link: u32,
}

/// Latest start: 10⁶ s.
const LATEST_PS: f64 = 1e18;
/// Largest size; htsim's own is 2³¹ - 1.
const LARGEST: f64 = 1e15;

/// Reads a connection matrix; `file` is its name in errors.
///
/// # Errors
/// The first line that is wrong.
pub fn connection_matrix(file: &str, text: &str) -> Result<ConnectionMatrix, ImportError> {
    let mut lines = Lines::new(file, text);
    let mut matrix = ConnectionMatrix::default();
    let mut counts: [Option<u32>; 4] = [None; 4];
    let mut used: Vec<(u32, u32)> = Vec::new();
    while let Some(line) = lines.next() {
        let header = HEADERS.iter().position(|name| *name == line.words[0]);
        let read = match (header, line.words[0]) {
            (Some(at), _) => count(&line, &mut counts[at]),
            (None, "trigger") => trigger(&line).map(|read| matrix.triggers.push(read)),
            (None, "failure") => failure(&line).map(|read| matrix.failures.push(read)),
            (None, word) if word.contains("->") => {
                connection(&line, counts[0]).map(|read| matrix.connections.push(read))
            }
            (None, word) => Err(format!(
                "`{word}` is none of Nodes, Connections, Triggers, Failures, SRC->DST, trigger, failure"
            )),
        };
        lines.at(line.number, read)?;
        if let Some(last) = matrix.connections.last().filter(|_| line.words[0].contains("->")) {
            let start = if let Start::Trigger(id) = last.start { Some(id) } else { None };
            let ids = [start, last.send_done, last.recv_done].into_iter().flatten();
            used.extend(ids.map(|id| (id, line.number)));
        }
    }
    let Some(nodes) = counts[0] else { return lines.wrong("has no line `Nodes N`") };
    matrix.nodes = nodes;
    let found = [matrix.connections.len(), matrix.triggers.len(), matrix.failures.len()];
    for ((name, said), found) in HEADERS[1..].iter().zip(&counts[1..]).zip(found) {
        let said = said.unwrap_or(0);
        if said as usize != found {
            return lines.wrong(format!("says `{name} {said}`, and has {found}"));
        }
    }
    let mut ids: Vec<u32> = matrix.triggers.iter().map(|trigger| trigger.id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return lines.wrong(format!("has two triggers with id {}", pair[0]));
    }
    match used.iter().find(|(id, _)| ids.binary_search(id).is_err()) {
        Some((id, line)) => lines.wrong_at(*line, format!("there is no trigger with id {id}")),
        None => Ok(matrix),
    }
}

const HEADERS: [&str; 4] = ["Nodes", "Connections", "Triggers", "Failures"];

fn count(line: &Line<'_>, into: &mut Option<u32>) -> What<()> {
    let name = line.words[0];
    let most = if name == HEADERS[0] { MOST_NODES } else { u32::MAX };
    let [_, number] = line.words[..] else { return Err(format!("write `{name} NUMBER`")) };
    match into.replace(whole(number, name, most)?) {
        Some(_) => Err(format!("`{name}` is said twice")),
        None => Ok(()),
    }
}

/// Keys with values, of which each may be there once.
struct Keys<'a> {
    words: std::slice::Iter<'a, &'a str>,
    seen: Vec<&'a str>,
}

impl<'a> Keys<'a> {
    fn new(line: &'a Line<'_>) -> Self {
        Self { words: line.words[1..].iter(), seen: Vec::new() }
    }

    fn next(&mut self) -> What<Option<&'a str>> {
        let Some(&key) = self.words.next() else { return Ok(None) };
        if self.seen.contains(&key) {
            return Err(format!("`{key}` is said twice"));
        }
        self.seen.push(key);
        Ok(Some(key))
    }

    fn value(&mut self, key: &str) -> What<&'a str> {
        self.words.next().copied().ok_or_else(|| format!("`{key}` has no value"))
    }

    fn number(&mut self, key: &str) -> What<u32> {
        whole(self.value(key)?, key, u32::MAX)
    }

    fn id(&mut self, key: &str) -> What<u32> {
        positive(self.value(key)?, key, u32::MAX)
    }
}

fn connection(line: &Line<'_>, nodes: Option<u32>) -> What<Connection> {
    let nodes = nodes.ok_or("comes before `Nodes N`")?;
    let (from, to) = line.words[0].split_once("->").unwrap_or_default();
    let node = |word: &str, name| {
        let most = nodes.checked_sub(1).ok_or("there are no nodes")?;
        whole(word, name, most)
    };
    let (from, to) = (node(from, "sender")?, node(to, "receiver")?);
    if from == to {
        return Err(format!("node {from} sends to itself"));
    }
    let (mut at, mut trigger, mut size) = (None, None, None);
    let [mut id, mut priority, mut send_done, mut recv_done] = [None; 4];
    let mut keys = Keys::new(line);
    while let Some(key) = keys.next()? {
        match key {
            "start" => {
                let ps = real(keys.value(key)?, "start", LATEST_PS)?;
                at = Some(Time::from_nanos((ps / 1e3).ceil() as u64));
            }
            "trigger" => trigger = Some(keys.id(key)?),
            "size" => size = Some(real(keys.value(key)?, "size", LARGEST)?),
            "id" => id = Some(keys.id(key)?),
            "prio" => priority = Some(keys.number(key)?),
            "send_done_trigger" => send_done = Some(keys.id(key)?),
            "recv_done_trigger" => recv_done = Some(keys.id(key)?),
            _ => {
                return Err(format!(
                    "`{key}` is none of start, size, id, prio, trigger, send_done_trigger, \
                     recv_done_trigger"
                ));
            }
        }
    }
    let start = match (at, trigger) {
        (Some(at), None) => Start::At(at),
        (None, Some(trigger)) => Start::Trigger(trigger),
        (None, None) => return Err("has neither `start` nor `trigger`".into()),
        (Some(_), Some(_)) => return Err("has both `start` and `trigger`".into()),
    };
    let octets = size.ok_or("has no `size` (0 = without end)")? as u64;
    let size = (octets > 0).then_some(Bytes::new(octets));
    Ok(Connection { from, to, start, size, id, priority, send_done, recv_done })
}

fn trigger(line: &Line<'_>) -> What<Trigger> {
    let (mut id, mut kind, mut count) = (None, None, None);
    let mut keys = Keys::new(line);
    while let Some(key) = keys.next()? {
        match key {
            "id" => id = Some(keys.id(key)?),
            "count" => count = Some(keys.id(key)?),
            "oneshot" | "multishot" | "barrier" => {
                if kind.replace(key).is_some() {
                    return Err("is of two kinds".into());
                }
            }
            _ => {
                return Err(format!("`{key}` is none of id, count, oneshot, multishot, barrier"));
            }
        }
    }
    let id = id.ok_or("a trigger needs an `id`")?;
    let kind = match kind.ok_or("a trigger is one of oneshot, multishot, barrier")? {
        "oneshot" => TriggerKind::Oneshot,
        "multishot" => TriggerKind::Multishot,
        _ => TriggerKind::Barrier(count.ok_or("a barrier needs a `count`")?),
    };
    Ok(Trigger { id, kind })
}

fn failure(line: &Line<'_>) -> What<Failure> {
    let (mut tier, mut switch, mut link) = (None, None, None);
    let mut keys = Keys::new(line);
    while let Some(key) = keys.next()? {
        match key {
            "switch_type" => {
                tier = Some(match keys.value(key)? {
                    "TOR" => Tier::Tor,
                    "AGG" => Tier::Agg,
                    "CORE" => Tier::Core,
                    other => {
                        return Err(format!("switch_type `{other}` is none of TOR, AGG, CORE"));
                    }
                });
            }
            "switch_id" => switch = Some(keys.number(key)?),
            "link_id" => link = Some(keys.number(key)?),
            _ => return Err(format!("`{key}` is none of switch_type, switch_id, link_id")),
        }
    }
    match (tier, switch, link) {
        (Some(tier), Some(switch), Some(link)) => Ok(Failure { tier, switch, link }),
        _ => Err("a failure needs switch_type, switch_id and link_id".into()),
    }
}
