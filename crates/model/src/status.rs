//! What an agent answers on its socket: one JSON object per line in, one per line out.

use serde::{Deserialize, Serialize};

/// What can be asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// All pairs and the agent's counters.
    Top,
    /// Reads all files again, as SIGHUP does, and says what became of it.
    Reload,
    /// One pair, and why it has its rate.
    Explain {
        /// Name of the source VM.
        from: String,
        /// Name of the destination VM.
        to: String,
    },
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Top`].
    Top(Top),
    /// To [`Request::Explain`].
    Explain(Explain),
    /// To [`Request::Reload`].
    Done {
        /// For people.
        message: String,
    },
    /// What is wrong and what to do.
    Error {
        /// For people.
        message: String,
    },
}

/// The agent at a glance. Rates in bit/s.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Top {
    /// This host's name.
    pub host: String,
    /// The mechanism and its preset.
    pub mechanism: String,
    /// Nothing is enforced: rates are those that would be set.
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
    /// There while the floors promised exceed what the uplink can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overbooked: Option<Overbooked>,
    /// VMs of this host whose port is gone: nobody guards them until it is back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// What the VMs of this host exchange with places that no directory lists, and what they send to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub externals: Vec<External>,
    /// VMs of this host whose packets are not limited as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unenforced: Vec<Unenforced>,
    /// The guardian does not run: a stuck agent's loans are then taken back by the programs alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guardian_down: bool,
    /// Interfaces that have another name by now than `agent.toml` gives them. They stay enforced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<Renamed>,
    /// What the VMs of this host may receive, where EyeQ decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub meters: Vec<Meter>,
    /// VMs of this host whose connections are translated, or were to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub translations: Vec<Translation>,
    /// VMs of this host whose connections share a window budget, or were to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
}

/// What a VM exchanges with addresses that no directory lists, and what it sends to no place at all. Counts
/// are cumulative.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct External {
    /// Its name.
    pub vm: String,
    /// What it may send there in any case, bit/s.
    pub floor_bps: u64,
    /// The most it may send there, bit/s.
    pub ceiling_bps: u64,
    /// Octets that it sent there.
    pub sent: u64,
    /// Octets that it got from there.
    pub received: u64,
    /// Packets that its queue had no room for.
    pub dropped: u64,
    /// Packets dropped that were of no pair and went to no place: not IP, or to itself, the link or
    /// everybody.
    pub unpaired: u64,
    /// Packets dropped that spoke for a router or a DHCP server.
    pub rogue: u64,
    /// Packets dropped that went to a VM's address at another hardware address than its own.
    pub misdirected: u64,
}

/// A VM whose packets are not limited as they should be: somebody changed what carries them, and it
/// cannot be put back.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Unenforced {
    /// Its name.
    pub vm: String,
    /// What is wrong, and what to do.
    pub why: String,
}

/// An interface that has another name than `agent.toml` gives it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Renamed {
    /// As `agent.toml` calls it.
    pub configured: String,
    /// Its name by now.
    pub now: String,
    /// Another interface has the name that `agent.toml` gives, and is not guarded.
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
    /// So many connections may share it.
    pub flows_most: u32,
    /// In the order of the file.
    pub classes: Vec<BudgetClass>,
    /// Connections that took a place in the VM's table: of these classes, or of any where it has a translation.
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

/// What became of a VM's `translation`. Counts are cumulative, from when its port began to translate; segments
/// are super-packets where those pass the port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Translation {
    /// Its name.
    pub vm: String,
    /// What new connections get; `none` where only connections of before go on.
    pub to: String,
    /// Why they do not get it: they are as the guest makes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Segments of connections that are known.
    pub segments: u64,
    /// Of these, changed in anything.
    pub edited: u64,
    /// Of these, in their window.
    pub lowered: u64,
    /// Of these, came with a mark that the guest was not shown.
    pub marks_hidden: u64,
    /// Connections seen from their beginning on.
    pub connections: u64,
    /// Of these, that agreed on ECN in the guest's place.
    pub agreed: u64,
    /// Connections that are left alone, or only in part translated, and why.
    pub left_alone: LeftAlone,
    /// Segments that were to be changed, and could not be. Not zero is a fault: alarm on it.
    pub unedited: u64,
    /// Segments that were dropped: beyond the window that the guest was shown, and what its policing allows.
    #[serde(default)]
    pub policed: u64,
    /// Fragments of TCP that were dropped, since policing could not count their octets.
    #[serde(default)]
    pub fragments: u64,
    /// SYNs that changed nothing, since policing would have forgotten a window that was agreed.
    #[serde(default)]
    pub repeated_syns: u64,
    /// Connections that peers began. Many more of them than `connections` agreed on: a flood of SYNs.
    #[serde(default)]
    pub asked_by_peers: u64,
    /// Connections of guests that agreed on ECN by themselves, were found not to heed it, and are translated from then
    /// on (`auto`).
    #[serde(default)]
    pub found_deaf: u64,
    /// Reports of marked octets that came from the other end's port (`dctcp`).
    #[serde(default)]
    pub reports: u64,
}

/// Connections that are not translated as they might be, by the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LeftAlone {
    /// Their other end knows no ECN: no mark will come.
    pub peer_without_ecn: u64,
    /// Their guest speaks ECN itself.
    pub guest_with_ecn: u64,
    /// Their SYNs are not both known, or contradict each other.
    pub unclear: u64,
    /// They found no place in the VM's table.
    pub no_place: u64,
    /// Segments of connections that began before, or have lost their place to younger ones.
    pub unknown_segments: u64,
    /// Segments that no host could read.
    pub malformed_segments: u64,
}

/// What a VM may receive from other hosts, where EyeQ decides. Rates in bit/s.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Meter {
    /// Its name.
    pub vm: String,
    /// Its minimum.
    pub floor_bps: u64,
    /// Its part of the link, all senders together: C.
    pub capacity_bps: u64,
    /// What each sender is told: R. Zero before the first packet.
    pub advertised_bps: u64,
    /// What came in the last period: y.
    pub received_bps: u64,
}

/// A VM whose port is not on its host (any more), or cannot be guarded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Gone {
    /// Its name.
    pub vm: String,
    /// The interface.
    pub port: String,
    /// Why it cannot be guarded; absent if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
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
    /// As in the key file.
    pub id: u8,
    /// Whether all hosts have this very key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Peers for whom it signs what this agent sends.
    pub signs: usize,
    /// Peers that may use it.
    pub accepted: usize,
    /// Authentic datagrams that others signed with it. One that stands still on every host may go.
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
    /// The pair's floor, bit/s; the last offer on the receiving side.
    pub floor_bps: u64,
    /// The most the pair may send now, bit/s; zero on the receiving side.
    pub rate_bps: u64,
    /// Measured over the last partitioning period, bit/s.
    pub measured_bps: u64,
    /// What the law does, or why the floor is what it is.
    pub phase: String,
    /// Segments lost so far.
    pub lost: u64,
    /// Segments marked CE so far.
    #[serde(default)]
    pub marked: u64,
    /// There while the path is longer than the floor's promise reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_path: Option<LongPath>,
}

/// The condition `LongPath` of a pair: its round trip is beyond that for which floors are promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LongPath {
    /// The least round trip of control messages lately, microseconds.
    pub round_trip_us: u64,
    /// What the pair sent over the last partitioning period, in percent of its floor.
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
