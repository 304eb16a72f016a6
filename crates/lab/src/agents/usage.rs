//! Resources of the agents (CPU, memory, state), and their counts of losses.

use super::{Agent, Agents};
use crate::machine;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_model::observed::Report;
use weir_model::status::{FloorBroken, Reply, Request, Top};
use weir_units::Span;

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

impl Agents {
    /// User and system CPU time of each agent so far, in the order of the hosts.
    pub(crate) fn cpu_each(&self) -> Vec<Span> {
        let used = |agent: &Agent| {
            let (user, system) = agent.cpu();
            user + system
        };
        self.agents.iter().map(used).collect()
    }

    /// Resident memory of each agent in octets, in the order of the hosts.
    pub(crate) fn memory(&self) -> Vec<u64> {
        self.agents.iter().map(|agent| machine::memory_of(agent.child.id())).collect()
    }

    /// How many pairs each agent that answers knows.
    pub(crate) fn pairs(&self) -> Vec<u64> {
        self.agents
            .iter()
            .filter_map(|agent| Some(ask(&agent.socket)?.pairs.len() as u64))
            .collect()
    }

    /// Segments that the network lost, as the receiving hosts' agents say, over the pairs that are
    /// active now; `None` if there are no agents, or one does not answer: its losses are unknown.
    pub(crate) fn losses(&self) -> Option<u64> {
        let lost = |agent: &super::Agent| -> Option<u64> {
            let pairs = ask(&agent.socket)?.pairs;
            Some(pairs.iter().filter(|pair| pair.side == "receive").map(|pair| pair.lost).sum())
        };
        if self.agents.is_empty() { None } else { self.agents.iter().map(lost).sum() }
    }

    /// The stretches in which floors were broken, as those agents say that answer, since traffic began at `origin`; `None`
    /// if no agent answers.
    pub(crate) fn reports(&self, origin: Instant) -> Option<Vec<Report>> {
        let told = |agent: &Agent| {
            let stretches = ask(&agent.socket)?.broken;
            let now = origin.elapsed().as_secs_f64();
            let of = |broken: FloorBroken| {
                let until = now - broken.ended_s;
                // What ended before traffic began is of the agents' start.
                (until > 0.0).then(|| Report {
                    from: broken.from,
                    to: broken.to,
                    from_at: Span::from_secs_f64((until - broken.lasted_s).max(0.0)),
                    until: Span::from_secs_f64(until),
                })
            };
            Some(stretches.into_iter().filter_map(of).collect::<Vec<Report>>())
        };
        let all: Vec<Vec<Report>> = self.agents.iter().filter_map(told).collect();
        (!all.is_empty()).then(|| all.into_iter().flatten().collect())
    }
}

/// Asks one agent for its state.
pub(super) fn ask(socket: &Path) -> Option<Top> {
    match put(socket, &Request::Top)? {
        Reply::Top(top) => Some(*top),
        _ => None,
    }
}

/// Puts a question to one agent.
pub(super) fn put(socket: &Path, question: &Request) -> Option<Reply> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut question = serde_json::to_string(question).ok()?;
    question.push('\n');
    (&stream).write_all(question.as_bytes()).ok()?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).ok()?;
    serde_json::from_str(&answer).ok()
}
