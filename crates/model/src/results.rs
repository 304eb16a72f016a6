//! Measurements of a run, as `--json` prints them: rates in bit/s, times in seconds.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Content of `--json` and `--out`: one object with one entry per run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// One per point of the sweep, mechanism and repeat.
    pub runs: Vec<Run>,
    /// The scenario's expectations, and whether they held.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// The scenario's title and the command that plays it again, for the report.
    #[serde(default)]
    pub about: About,
}

/// Introduction to a result: what a reader needs before the numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The scenario in one line.
    pub title: String,
    /// The command that plays it again.
    pub command: String,
}

/// One expectation of a scenario at one point, and its verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The sweep's parameters.
    pub point: BTreeMap<String, f64>,
    /// The mechanism's label.
    pub mechanism: String,
    /// Name of the number in `summary`.
    pub metric: String,
    /// The expectation in words.
    pub says: String,
    /// If given, all numbers are ratios to this one: the same of another mechanism, or another of
    /// the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// If given, all numbers are differences to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// If given, all numbers are then parts of the same at this point.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub at: BTreeMap<String, f64>,
    /// At least this.
    pub at_least: Option<f64>,
    /// At most this.
    pub at_most: Option<f64>,
    /// The middle of the valid repeats: their mean in the simulator, their median in the lab.
    pub got: Option<f64>,
    /// The worst over the valid repeats (with two bounds, the one farthest from their middle); for
    /// promises about floors this must lie within, too.
    pub worst: Option<f64>,
    /// Valid repeats without this number. Each counts as not having shown the expectation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub absent: u32,
    /// Repeats that are not valid, of this run and of the one that it is compared with. The
    /// expectation holds only if there is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub invalid: u32,
    /// `None` if not judged: a repeat is not valid, none was played, or the number to compare with
    /// is missing.
    pub held: Option<bool>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The scenario's name.
    pub scenario: String,
    /// `lab`, `sim`.
    pub world: String,
    /// The mechanism's label.
    pub mechanism: String,
    /// The translation's name, or `none`.
    pub translation: String,
    /// Zero where the world has no randomness of its own.
    pub seed: u64,
    /// Counted from 0.
    pub repeat: u32,
    /// The sweep's parameters.
    pub point: BTreeMap<String, f64>,
    /// Whether the run is valid as a result (docs/results/README.md).
    pub valid: bool,
    /// Reasons why it is not valid.
    pub reasons: Vec<String>,
    /// Remarks of the world. They do not make the run invalid.
    #[serde(default)]
    pub notes: Vec<String>,
    /// One per traffic entry of the scenario, in its order.
    pub flows: Vec<Flow>,
    /// One per flow group, in the order of first appearance in the scenario.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Changes during the run, in the order of time.
    #[serde(default)]
    pub events: Vec<Event>,
    /// One per pair of VMs whose demand is constant while it sends.
    #[serde(default)]
    pub pairs: Vec<PairResult>,
    /// One per VM and direction that has a backlogged interval.
    pub vms: Vec<VmResult>,
    /// One per link and direction.
    pub links: Vec<LinkResult>,
    /// Named numbers; names are documented in docs/results/README.md.
    pub summary: BTreeMap<String, f64>,
    /// What the run cost.
    pub perf: Perf,
    /// Width of one sample of every series below.
    pub sample_s: f64,
    /// Where the measured interval starts.
    pub warmup_s: f64,
}

/// One flow group entry: all connections from one VM to another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Flow {
    /// The group's name.
    pub group: String,
    /// VM name.
    pub from: String,
    /// VM name.
    pub to: String,
    /// `tcp`, `udp`, `request`, `reply`, `flows`, `shuffle`, `exec`.
    pub kind: String,
    /// Mean application goodput over the measured interval, bit/s.
    pub goodput_bps: f64,
    /// Goodput per sample, bit/s.
    pub series_bps: Vec<f64>,
    /// Goodput of each connection over the measured interval, bit/s.
    pub connections_bps: Vec<f64>,
    /// Durations of its requests, flows or shuffle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Where it has a trace, one per connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Windows>,
}

/// A TCP connection over time, from the sender's kernel or model: one number per sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    /// Seconds since traffic started.
    pub at_s: Vec<f64>,
    /// Congestion window, octets.
    pub cwnd: Vec<u64>,
    /// Octets that may be in flight by the last window that the sender was shown.
    pub shown: Vec<u64>,
    /// Octets acknowledged so far.
    pub acked: Vec<u64>,
    /// Segments sent again so far.
    pub again: Vec<u64>,
}

/// Durations of requests, flows or shuffles, from the moment at which each should have begun to its
/// last octet. Only those that should have begun after the warmup count. A statistic of nothing is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number that should have begun.
    pub due: u64,
    /// Number that finished in time. The others are in none of the statistics below.
    pub done: u64,
    /// Mean, seconds.
    pub mean_s: Option<f64>,
    /// Median, seconds.
    pub p50_s: Option<f64>,
    /// 99th percentile, seconds.
    pub p99_s: Option<f64>,
    /// 99.9th percentile, seconds.
    pub p999_s: Option<f64>,
    /// The longest, seconds.
    pub max_s: Option<f64>,
}

/// A change that the scenario makes during the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Seconds since traffic started.
    pub at_s: f64,
    /// Description in a few words.
    pub says: String,
}

/// All flows of one group together, over the part of the measured interval in which it is active.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub group: String,
    /// The kinds of its flows: `tcp`, `udp`, `tcp+udp`, …
    pub kind: String,
    /// Number of connections.
    pub connections: u32,
    /// Goodput that the floors promise its pairs (the oracle's F), bit/s; 0 = no floor.
    pub promised_bps: f64,
    /// What the ideal allocation gives it, as goodput, bit/s.
    pub ideal_bps: f64,
    /// Application goodput, bit/s.
    pub goodput_bps: f64,
    /// Goodput per sample, bit/s, from the start of the run.
    pub series_bps: Vec<f64>,
    /// Promised goodput per sample, bit/s; 0 while it is not active.
    pub promised_series_bps: Vec<f64>,
    /// Durations of its requests, or of its flows if it has no requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// Rates of one pair while it sends, all its traffic entries together, on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairResult {
    /// VM name.
    pub from: String,
    /// VM name.
    pub to: String,
    /// Rate that the floors promise (the oracle's F), bit/s; 0 = no floor.
    pub promised_bps: f64,
    /// Rate of the ideal allocation, bit/s.
    pub ideal_bps: f64,
    /// Rate that arrived, bit/s.
    pub got_bps: f64,
}

/// Result of one VM's floor in one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VmResult {
    /// VM name.
    pub vm: String,
    /// `in`, `out`.
    pub direction: String,
    /// Rate that the floor promises here (the oracle's F), on the wire, bit/s.
    pub promised_bps: f64,
    /// Application goodput over the backlogged part of the measured interval, bit/s.
    pub goodput_bps: f64,
    /// goodput / (promised × payload share).
    pub ratio: f64,
    /// The smallest of the same over 500 ms windows; absent if it is never backlogged that long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_min: Option<f64>,
    /// The 1st percentile of the same over 500 ms windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_p1: Option<f64>,
    /// The smallest over 100 ms windows; absent if the floor is worth too few frames in each of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_100ms_min: Option<f64>,
    /// The 1st percentile of the same over 100 ms windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_100ms_p1: Option<f64>,
}

/// One direction of one link.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LinkResult {
    /// `NAME:a>b`.
    pub link: String,
    /// Its rate, bit/s.
    pub rate_bps: f64,
    /// Rate that the oracle carries, averaged over the measured interval, bit/s.
    pub ideal_bps: f64,
    /// Carried on the wire per sample, bit/s.
    pub series_bps: Vec<f64>,
    /// Packets dropped at its port per sample.
    pub drops: Vec<f64>,
    /// Packets that got the congestion mark at its port per sample.
    #[serde(default)]
    pub marks: Vec<f64>,
}

/// Cost of the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Perf {
    /// Links crossed by packets.
    pub packet_hops: u64,
    /// Events of a simulator.
    pub events: u64,
    /// User CPU of the whole world, seconds.
    pub user_cpu_s: f64,
    /// Wall time, seconds.
    pub wall_s: f64,
    /// Smallest share of idle time of any CPU in any 100 ms sample.
    pub worst_idle: f64,
    /// Smallest share of idle time of any CPU in each sample. It distinguishes a bad half second of
    /// the network from one of the machine. All 1 in a simulator.
    #[serde(default)]
    pub idle: Vec<f64>,
    /// Largest share of any CPU in each sample that the hypervisor took away (steal). Everything
    /// that plays here stands still meanwhile. All 0 in a simulator.
    #[serde(default)]
    pub stolen: Vec<f64>,
    /// The share of samples in which some CPU had less than 5 % of idle time.
    #[serde(default)]
    pub saturated: f64,
    /// User and system CPU of all agents together, seconds.
    pub agents_cpu_s: f64,
}
