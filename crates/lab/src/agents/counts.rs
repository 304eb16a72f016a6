//! Counters of attacks and of faulty control messages, from the agents' status.

use super::Agents;
use super::usage::ask;
use crate::attack::Sent;
use std::time::Duration;
use weir_model::record::ControlRecord;
use weir_model::record::{AgentCounts, AttackRecord};
use weir_units::Span;

impl Agents {
    /// What became of attacks: what was sent, and what the agents say of it.
    pub(crate) fn attacked(&self, sent: Sent) -> AttackRecord {
        // What is under way at this moment is counted somewhere.
        std::thread::sleep(Duration::from_millis(100));
        AttackRecord {
            forged: sent.forged,
            delivered: sent.delivered,
            control_of_vms: sent.control_of_vms,
            control_of_hosts: sent.control_of_hosts,
            frames: sent.frames,
            agents: self.counts(),
        }
    }

    /// What the agents say of their control messages, which the lab held back for `delay`; `None`
    /// if there are no agents, or one does not answer.
    pub(crate) fn control(&self, delay: Option<Span>) -> Option<ControlRecord> {
        let all = self.counters()?;
        let count = |wanted: &str| sum(&all, &|name| name == wanted);
        Some(ControlRecord {
            believed: count("wire.accepted"),
            lost: count("wire.lost"),
            repeated: count("wire.rejected_replayed"),
            overtaken: count("wire.late"),
            delay,
        })
    }

    /// Sums over all agents; `None` if there are none, or one does not answer.
    fn counts(&self) -> Option<AgentCounts> {
        let first = self.counters()?;
        // Asked again for what they sent: whatever was believed before was sent before.
        let second = self.counters()?;
        Some(AgentCounts {
            dropped: sum(&first, &is_dropped),
            astray: sum(&first, &is_astray),
            unread: sum(&first, &|name| name == "agent.control_queue_full"),
            refused: sum(&first, &is_refused),
            believed: sum(&first, &|name| name == "wire.accepted"),
            sent: sum(&second, &|name| name == "wire.sent"),
        })
    }

    /// All counters of each agent; `None` if there are no agents, or one does not answer.
    fn counters(&self) -> Option<Vec<Answer>> {
        let each = self.agents.iter().map(|agent| Some(ask(&agent.socket)?.counters));
        each.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
    }
}

/// Counters of one agent by their names.
type Answer = Vec<(String, u64)>;

fn sum(answers: &[Answer], wanted: &dyn Fn(&str) -> bool) -> u64 {
    answers.iter().flatten().filter(|(name, _)| wanted(name)).map(|(_, n)| n).sum()
}

fn is_dropped(name: &str) -> bool {
    is_of_port(name, &["spoofed", "spoofed_mac", "control_denied"])
}

fn is_astray(name: &str) -> bool {
    is_of_port(name, &["unpaired", "misdirected"])
}

/// Counters of ports are called `port.VM.NAME`.
fn is_of_port(name: &str, names: &[&str]) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    name.starts_with("port.") && names.contains(&last)
}

fn is_refused(name: &str) -> bool {
    name.starts_with("wire.rejected_") || ["wire.unconfirmed", "wire.outdated"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_port_drops_and_what_a_session_refuses_is_known_by_name() {
        assert!(is_dropped("port.evil.spoofed") && is_dropped("port.a.b.control_denied"));
        assert!(!is_dropped("port.evil.foreign") && !is_dropped("agent.spoofed"));
        assert!(is_astray("port.evil.misdirected") && is_astray("port.evil.unpaired"));
        assert!(!is_astray("agent.misdirected") && !is_astray("port.evil.spoofed"));
        assert!(is_refused("wire.rejected_tag") && is_refused("wire.outdated"));
        assert!(!is_refused("wire.accepted") && !is_refused("agent.misdirected"));
    }
}
