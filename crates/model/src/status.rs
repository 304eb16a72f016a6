//! Questions to an agent and its answers on its socket: one JSON object per line in, one per line
//! out.

use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// All pairs and the agent's counters.
    Top,
    /// What happened after the event with this number.
    Events {
        /// The number; absent: nothing yet, only the number of the latest one.
        after: Option<u64>,
    },
    /// Read all files again, as SIGHUP does, and answer with the outcome.
    Reload,
    /// One pair, and why it has its rate.
    Explain {
        /// Name of the source VM.
        from: String,
        /// Name of the destination VM.
        to: String,
    },
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reply {
    /// Answer to [`Request::Top`].
    Top(Box<Top>),
    /// Answer to [`Request::Explain`].
    Explain(Explain),
    /// Answer to [`Request::Events`].
    Events(Events),
    /// Answer to [`Request::Reload`].
    Done {
        /// Text for people.
        message: String,
    },
    /// An error: what is wrong and what to do.
    Error {
        /// Text for people.
        message: String,
    },
}

/// What happened at an agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    /// Number of the last event of the answer, or of the latest one.
    pub last: u64,
    /// Events that are not known any more.
    pub lost: u64,
    /// The first ones after the number that was asked for.
    pub events: Vec<EventTold>,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EventTold {
    /// Counts up from 1 in the agent's life.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// `began`, `ended`, `phase`, `limit` or `floor-broken`.
    pub what: String,
    /// The tenant of the VM that sends.
    pub tenant: String,
    /// The VM that sends.
    pub from: String,
    /// The VM that receives.
    pub to: String,
    /// A sentence without its subject.
    pub says: String,
    /// The pair's floor at the time of the answer, bit/s; 0: the pair is over.
    pub floor_bps: u64,
    /// The most that it may send, likewise.
    pub rate_bps: u64,
}

/// State of the agent. Rates in bit/s.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Top {
    /// This host's name.
    pub host: String,
    /// The mechanism and its preset.
    pub mechanism: String,
    /// The agent enforces nothing: the rates are those that it would set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observing: bool,
    /// Seconds since the agent started.
    pub up_s: f64,
    /// All active pairs.
    pub pairs: Vec<Pair>,
    /// Named counters of the agent, the control channel and the data plane.
    pub counters: Vec<(String, u64)>,
    /// The keys that are accepted, the one that signs first. Never the keys themselves.
    #[serde(default)]
    pub keys: Vec<Key>,
    /// Hosts of the directory that share no key with this one: floors are not agreed with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keyless: Vec<String>,
    /// User and system CPU of the agent so far, seconds.
    pub cpu_s: f64,
    /// Present while the floors promised exceed what the uplink can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overbooked: Option<Overbooked>,
    /// VMs of this host whose port is gone. They are not guarded until it is back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// Traffic of this host's VMs with addresses that no directory lists, and their strays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub externals: Vec<External>,
    /// VMs of this host whose packets are not limited as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unenforced: Vec<Unenforced>,
    /// The guardian does not run. If the agent hangs, only the programs take back what was
    /// borrowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guardian_down: bool,
    /// Interfaces whose name differs from `agent.toml`. They stay enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    /// Receiving limits of this host's VMs, under EyeQ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Meter>,
    /// VMs of this host whose connections are translated, or were to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub translations: Vec<Translation>,
    /// VMs of this host whose connections share a window budget, or were to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// Tenants with VMs here: their queue on switches, and what they use of the network card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantUse>,
    /// How floors were kept, counted by this host's senders since the agent started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<FloorKept>,
    /// The latest stretches of time in which a floor was broken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<FloorBroken>,
}

/// How a VM's floor was kept in one direction, as far as this host's senders see it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FloorKept {
    /// Its name; it may be on another host.
    pub vm: String,
    /// Out of the VM, or into it.
    pub out: bool,
    /// Seconds of pairs that wanted more than they had.
    pub windows: u64,
    /// Of these, those in which the pair had its floor.
    pub held: u64,
}

/// A stretch of time in which a pair had less than its floor.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FloorBroken {
    /// The VM that sends.
    pub from: String,
    /// The VM that receives.
    pub to: String,
    /// Its length, seconds.
    pub lasted_s: f64,
    /// How long ago it ended, seconds.
    pub ended_s: f64,
    /// What arrived, of what was owed.
    pub part: f64,
    /// Segments that the network lost.
    pub lost: u64,
    /// Why, in words.
    pub cause: String,
}

/// A tenant's queue on switches, and its use of this host's network card. Counts are octets since
/// the agent started, on layer 2 without FCS. They have what its VMs here and elsewhere send each
/// other.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TenantUse {
    /// Its name.
    pub tenant: String,
    /// The code point of its packets; 0: the shared queue.
    pub code_point: u8,
    /// Why it has this queue, if somebody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What left.
    pub sent: u64,
    /// What arrived.
    pub received: u64,
}

/// A VM's traffic with addresses that no directory lists, and its strays. Counts are cumulative.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct External {
    /// Its name.
    pub vm: String,
    /// Floor of its external traffic, bit/s.
    pub floor_bps: u64,
    /// Ceiling of its external traffic, bit/s.
    pub ceiling_bps: u64,
    /// Octets sent to such addresses.
    pub sent: u64,
    /// Octets received from such addresses.
    pub received: u64,
    /// Packets that its queue dropped.
    pub dropped: u64,
    /// Strays that were dropped: packets that are not IP, or that go to the VM itself, the link, a
    /// group or all hosts.
    pub unpaired: u64,
    /// Packets dropped that only a router or a DHCP server may send.
    pub rogue: u64,
    /// Packets dropped that went to a VM's address at another VM's hardware address.
    pub misdirected: u64,
}

/// A VM whose packets are not limited as they should be. Another process changed what carries them,
/// and the agent cannot restore it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unenforced {
    /// Its name.
    pub vm: String,
    /// The reason, and what to do.
    pub why: String,
}

/// An interface whose name differs from `agent.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Renamed {
    /// Name in `agent.toml`.
    pub configured: String,
    /// Present name.
    pub now: String,
    /// Another interface has the name of `agent.toml` now, and is not guarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

/// What became of a VM's window budget.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Budget {
    /// Its name.
    pub vm: String,
    /// Why nothing bounds its connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// All windows together, octets.
    pub total: u64,
    /// Connections that may share it.
    pub flows_most: u32,
    /// In the order of the file.
    pub classes: Vec<BudgetClass>,
    /// Connections that took a place in the VM's table: of these classes, or of any where it has a
    /// translation.
    #[serde(default)]
    pub connections: u64,
    /// Segments whose window was lowered.
    #[serde(default)]
    pub lowered: u64,
    /// Connections that found no place in the table: nothing bounds them.
    #[serde(default)]
    pub no_place: u64,
    /// Segments that were to be changed, and could not be. Not zero is a fault: alarm on it.
    #[serde(default)]
    pub unedited: u64,
}

/// A class of a window budget.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BudgetClass {
    /// Its name.
    pub name: String,
    /// A connection's part, beside those of other weights.
    pub weight: u32,
    /// Live connections.
    pub live: u32,
    /// What each of them may have at present, octets; if there are none, what one would have.
    pub share: u32,
}

/// State of a VM's `translation`. Counts are cumulative since its port began to translate. Segments
/// are super-packets where those pass the port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Translation {
    /// Its name.
    pub vm: String,
    /// Translation of new connections; `none` where only older connections are still translated.
    pub to: String,
    /// Reason why new connections are not translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Segments of known connections.
    pub segments: u64,
    /// Of these, segments that were changed.
    pub edited: u64,
    /// Of these, segments whose window was changed.
    pub lowered: u64,
    /// Of these, segments that came with a mark that the guest was not shown.
    pub marks_hidden: u64,
    /// Connections seen from their beginning.
    pub connections: u64,
    /// Of these, connections for which the port agreed on ECN in the guest's place.
    pub agreed: u64,
    /// Connections that are not or only partly translated, by reason.
    pub left_alone: LeftAlone,
    /// Segments that could not be changed as they should. A value above 0 is a fault: alarm on it.
    pub unedited: u64,
    /// Segments dropped by policing: they exceeded the window shown to the guest and its tolerance.
    #[serde(default)]
    pub policed: u64,
    /// Fragments of TCP that were dropped, because policing cannot count their octets.
    #[serde(default)]
    pub fragments: u64,
    /// SYNs that changed nothing, because they would have made policing forget an agreed window.
    #[serde(default)]
    pub repeated_syns: u64,
    /// Connections that peers began. If they exceed `connections` by far, a flood of SYNs goes on.
    #[serde(default)]
    pub asked_by_peers: u64,
    /// Connections of guests that agreed on ECN by themselves, did not answer marks, and are
    /// translated since (`auto`).
    #[serde(default)]
    pub found_deaf: u64,
    /// Reports of marked octets from the other end's port (`dctcp`).
    #[serde(default)]
    pub reports: u64,
}

/// Connections that are not translated as they might be, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LeftAlone {
    /// The other end has no ECN, so no mark will come.
    pub peer_without_ecn: u64,
    /// The guest speaks ECN itself.
    pub guest_with_ecn: u64,
    /// The port did not see both SYNs, or they contradict each other.
    pub unclear: u64,
    /// The VM's table had no place.
    pub no_place: u64,
    /// Segments of connections that began before the translation, or that lost their place to
    /// younger ones.
    pub unknown_segments: u64,
    /// Segments that no host can parse.
    pub malformed_segments: u64,
}

/// Receiving limit of a VM under EyeQ. Rates in bit/s.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Meter {
    /// Its name.
    pub vm: String,
    /// The VM's floor in.
    pub floor_bps: u64,
    /// The VM's share of the link, all senders together: C.
    pub capacity_bps: u64,
    /// Rate that each sender is told: R. Zero before the first packet.
    pub advertised_bps: u64,
    /// Rate that arrived in the last period: y.
    pub received_bps: u64,
}

/// A VM whose port is missing on its host, or cannot be guarded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Gone {
    /// Its name.
    pub vm: String,
    /// The interface; empty if it was not handed over.
    pub port: String,
    /// Reason why it cannot be guarded; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Gone {
    /// What is the matter with its port, in words.
    pub fn what(&self) -> String {
        match (&self.why, self.port.as_str()) {
            (Some(why), "") => why.clone(),
            (None, "") => "its port was not handed over".into(),
            (Some(why), port) => format!("its port {port} is refused: {why}"),
            (None, port) => format!("its port {port} is not on this host"),
        }
    }
}

/// Floors beyond the uplink: all are scaled down by the same factor, `budget_bps / floors_bps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Overbooked {
    /// What the floors of all pairs that send here sum to, bit/s.
    pub floors_bps: u64,
    /// What the uplink leaves for floors, bit/s.
    pub budget_bps: u64,
}

impl Overbooked {
    /// How much of each floor is kept, from 0 to 1.
    pub fn factor(&self) -> f64 {
        self.budget_bps as f64 / self.floors_bps.max(1) as f64
    }
}

/// A key of the control channel, by its id.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Key {
    /// Id, as in the key file.
    pub id: u8,
    /// Whether all hosts have this very key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Number of peers for which it signs this agent's messages.
    pub signs: usize,
    /// Number of peers that may sign with it.
    pub accepted: usize,
    /// Authentic datagrams that peers signed with it. The key may be removed when this counter
    /// stands still on every host.
    pub seen: u64,
}

/// One pair as its source's or destination's host sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pair {
    /// Name of the source VM.
    pub from: String,
    /// Name of the destination VM.
    pub to: String,
    /// `send`, `receive`, or `local` when both ends are here.
    pub side: String,
    /// Name of the hose that it belongs to, if that is not the one of all VMs of its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hose: Option<String>,
    /// The pair's floor, bit/s; the last offer on the receiving side.
    pub floor_bps: u64,
    /// Ceiling of the pair now, bit/s; zero on the receiving side.
    pub rate_bps: u64,
    /// Measured over the last partitioning period, bit/s.
    pub measured_bps: u64,
    /// State of the law, or the reason of the floor.
    pub phase: String,
    /// Segments lost so far.
    pub lost: u64,
    /// Segments marked CE so far.
    #[serde(default)]
    pub marked: u64,
    /// Present while the round trip is longer than floors are promised for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_path: Option<LongPath>,
}

/// The condition `LongPath` of a pair: its round trip is longer than floors are promised for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LongPath {
    /// Least recent round trip of control messages, microseconds.
    pub round_trip_us: u64,
    /// Rate that the pair sent over the last partitioning period, in percent of its floor.
    pub percent_of_floor: u64,
}

impl std::fmt::Display for LongPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.round_trip_us as f64 / 1e3;
        write!(f, "LongPath ({ms:.1} ms, {:.2} of its floor)", self.percent_of_floor as f64 / 1e2)
    }
}

/// One pair, and why it has its rate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Explain {
    /// The pair.
    pub pair: Pair,
    /// The chain of reasons, one sentence each, from the hose to the rate.
    pub reasons: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_is_gone_without_a_port_has_none_in_its_reason() {
        let what = |port: &str, why: Option<&str>| {
            Gone { vm: "a".into(), port: port.into(), why: why.map(Into::into) }.what()
        };
        assert_eq!(what("", None), "its port was not handed over");
        assert_eq!(what("", Some("c.toml: no rate")), "c.toml: no rate");
        assert_eq!(what("p", None), "its port p is not on this host");
        assert_eq!(what("p", Some("it is taken")), "its port p is refused: it is taken");
    }
}
