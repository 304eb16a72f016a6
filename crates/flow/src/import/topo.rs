//! htsim's fat trees (`.topo`): two or three tiers of switches, and what they are connected with.
//!
//! Problem   The file names radices, speeds and oversubscription, from which the number of switches
//!           follows; much of what can be written is no tree.
//! Approach  What follows is computed, and must agree with what is said.
//! Promises  Each host has one port; hosts come first, then ToR, aggregation and core switches, each
//!           tier in htsim's own order.
//! Source    `Broadcom/csg-htsim` sim/datacenter/fat_tree_topology.cpp (`load`, `set_custom_params`,
//!           `init_network`). Departs: wrong keys are errors here; speeds may have a fraction.

use super::text::{Line, Lines, What, positive, real, whole};
use super::{ImportError, Link, MOST_LINKS, MOST_NODES, Node, Topology};
use weir_units::{Bytes, Rate, Span};

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Layered {
    /// Hosts.
    pub hosts: u32,
    /// Hosts of a pod; all of them where there are two tiers.
    pub pod: u32,
    /// From ToR switches up: two or three.
    pub tiers: Vec<TierSpec>,
}

/// One tier of switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierSpec {
    /// Of each link down.
    pub rate: Rate,
    /// Links down of each switch.
    pub radix_down: u32,
    /// Links up of each switch; 0 on top.
    pub radix_up: u32,
    /// Of a link down.
    pub delay: Span,
    /// Inside a switch.
    pub switch_delay: Span,
    /// Down over up.
    pub oversubscribed: u32,
    /// Parallel links to each switch below.
    pub bundle: u32,
    /// Queue of a link down, if the file says.
    pub queue_down: Option<Bytes>,
    /// Queue of a link up, if the file says.
    pub queue_up: Option<Bytes>,
}

/// How often something is there.
#[derive(Clone, Copy)]
struct Counts {
    pods: u32,
    /// Per pod.
    tors: u32,
    /// Per pod.
    aggs: u32,
    cores: u32,
}

/// Reads a fat tree; `file` is its name in errors. The second value is what it builds.
///
/// # Errors
/// The first line that is wrong, or what does not fit together.
pub fn htsim_topology(file: &str, text: &str) -> Result<(Layered, Topology), ImportError> {
    let mut lines = Lines::new(file, text);
    let mut header: [Option<u32>; 3] = [None; 3];
    let mut tiers: [Option<Draft>; 3] = [None; 3];
    let mut current = None;
    while let Some(line) = lines.next() {
        let read = one_line(&line, &mut header, &mut tiers, &mut current);
        lines.at(line.number, read)?;
    }
    let built = layered(header, tiers).and_then(|layered| {
        let topology = layered.build()?;
        Ok((layered, topology))
    });
    lines.at(0, built)
}

/// A tier as far as it was said, by [`KEYS`].
type Draft = [Option<f64>; 9];

const HEADER: [&str; 3] = ["nodes", "tiers", "podsize"];
const KEYS: [&str; 9] = [
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "downlink_latency_ns",
    "switch_latency_ns",
    "oversubscribed",
    "bundle",
    "queue_down",
    "queue_up",
];

fn one_line(
    line: &Line<'_>,
    header: &mut [Option<u32>; 3],
    tiers: &mut [Option<Draft>; 3],
    current: &mut Option<usize>,
) -> What<()> {
    let key = line.words[0].to_ascii_lowercase();
    let [_, value] = line.words[..] else { return Err(format!("write `{key} VALUE`")) };
    if key == "tier" {
        let tier = whole(value, "tier", 2)? as usize;
        if tiers[tier].replace([None; 9]).is_some() {
            return Err(format!("tier {tier} is said twice"));
        }
        *current = Some(tier);
        return Ok(());
    }
    let twice = |before: bool| if before { Err(format!("`{key}` is said twice")) } else { Ok(()) };
    if let Some(at) = HEADER.iter().position(|name| *name == key) {
        return twice(header[at].replace(positive(value, &key, MOST_NODES)?).is_some());
    }
    let Some(at) = KEYS.iter().position(|name| *name == key) else {
        return Err(format!("`{key}` is none of {}, tier, {}", HEADER.join(", "), KEYS.join(", ")));
    };
    let Some(tier) = current.and_then(|tier| tiers[tier].as_mut()) else {
        return Err(format!("`{key}` comes before the first `Tier`"));
    };
    let number = match at {
        0 => real(value, &key, 1e6)?,
        3 | 4 | 7 | 8 => f64::from(whole(value, &key, u32::MAX)?),
        _ => f64::from(positive(value, &key, 1 << 16)?),
    };
    twice(tier[at].replace(number).is_some())
}

fn layered(header: [Option<u32>; 3], tiers: [Option<Draft>; 3]) -> What<Layered> {
    let said = |at: usize| header[at].ok_or_else(|| format!("has no line `{} N`", HEADER[at]));
    let (hosts, count, pod) = (said(0)?, said(1)? as usize, said(2)?);
    if !(2..=3).contains(&count) {
        return Err(format!("has {count} tiers; 2 or 3 can be built"));
    }
    let spec = |(tier, draft): (usize, &Option<Draft>)| {
        let draft = draft.ok_or_else(|| format!("says nothing of tier {tier}"))?;
        let need =
            |at: usize| draft[at].ok_or_else(|| format!("tier {tier} has no `{}`", KEYS[at]));
        let top = tier + 1 == count;
        if top && draft[2].is_some() {
            return Err(format!("tier {tier} is the top, and has a radix_up"));
        }
        let rate = Rate::from_bps_f64(need(0)? * 1e9);
        if rate.is_zero() {
            return Err(format!("tier {tier} has a downlink_speed_gbps of 0"));
        }
        Ok(TierSpec {
            rate,
            radix_down: need(1)? as u32,
            radix_up: if top { 0 } else { need(2)? as u32 },
            delay: Span::from_nanos(need(3)? as u64),
            switch_delay: Span::from_nanos(draft[4].unwrap_or(0.0) as u64),
            oversubscribed: draft[5].unwrap_or(1.0) as u32,
            bundle: draft[6].unwrap_or(1.0) as u32,
            queue_down: draft[7].map(|octets| Bytes::new(octets as u64)),
            queue_up: draft[8].map(|octets| Bytes::new(octets as u64)),
        })
    };
    if tiers[count..].iter().any(Option::is_some) {
        return Err(format!("has more tiers than the {count} it says"));
    }
    let tiers = tiers[..count].iter().enumerate().map(spec).collect::<What<Vec<_>>>()?;
    Ok(Layered { hosts, pod, tiers })
}

/// `a / b` if that is whole.
fn share(a: u128, b: u128, what: &str) -> What<u32> {
    match (a.checked_div(b), a.checked_rem(b)) {
        (Some(n), Some(0)) if n > 0 => {
            u32::try_from(n).map_err(|_| format!("{what}: {n} are too many"))
        }
        _ => Err(format!("{what}: {a} over {b} is not a whole number above 0")),
    }
}

impl Layered {
    /// How many switches follow from radices, speeds and oversubscription.
    fn counts(&self) -> What<Counts> {
        let [tor, agg] = [self.tiers[0], self.tiers[1]];
        let bps = |tier: &TierSpec| u128::from(tier.rate.as_bps());
        let (hosts, pod) = (u128::from(self.hosts), u128::from(self.pod));
        let pods = share(hosts, pod, "pods (nodes over podsize)")?;
        let tors = share(pod, tor.radix_down.into(), "ToR switches of a pod")?;
        if tor.bundle != 1 {
            return Err("tier 0 has a bundle, but hosts have one port".into());
        }
        let up = share(
            hosts * bps(&tor),
            bps(&agg) * u128::from(tor.oversubscribed),
            "links up from ToR switches (nodes × speed of tier 0 over speed of tier 1 × \
             oversubscribed)",
        )?;
        let down = u128::from(pods) * u128::from(agg.radix_down);
        let aggs = share(up.into(), down, "aggregation switches of a pod")?;
        agree("radix_up of tier 0", tor.radix_up, "switches above × bundle", aggs, agg.bundle)?;
        agree("radix_down of tier 1", agg.radix_down, "switches below × bundle", tors, agg.bundle)?;
        let Some(core) = self.tiers.get(2) else {
            if pods != 1 {
                return Err(format!("two tiers are one pod: podsize is not {}", self.hosts));
            }
            return Ok(Counts { pods, tors, aggs, cores: 0 });
        };
        let up = share(
            u128::from(up) * bps(&agg),
            bps(core) * u128::from(agg.oversubscribed),
            "links up from aggregation switches (links below × speed of tier 1 over speed of \
             tier 2 × oversubscribed)",
        )?;
        let cores = share(up.into(), core.radix_down.into(), "core switches")?;
        let each = share(cores.into(), aggs.into(), "core switches above each aggregation switch")?;
        agree("radix_up of tier 1", agg.radix_up, "switches above × bundle", each, core.bundle)?;
        agree("radix_down of tier 2", core.radix_down, "pods × bundle", pods, core.bundle)?;
        Ok(Counts { pods, tors, aggs, cores })
    }

    fn build(&self) -> What<Topology> {
        let Counts { pods, tors, aggs, cores } = self.counts()?;
        let switches = u64::from(pods) * (u64::from(tors) + u64::from(aggs)) + u64::from(cores);
        let nodes = u64::from(self.hosts) + switches;
        let below = u64::from(pods) * u64::from(tors) * u64::from(self.tiers[0].radix_up);
        let above = u64::from(pods) * u64::from(aggs) * u64::from(self.tiers[1].radix_up);
        let links = 2 * (u64::from(self.hosts) + below + above);
        if nodes > u64::from(MOST_NODES) || links > u64::from(MOST_LINKS) {
            return Err(format!("{nodes} nodes and {links} links are too many"));
        }
        let mut built = Topology::default();
        built.nodes.resize(self.hosts as usize, Node::Host);
        built.nodes.resize(nodes as usize, Node::Switch);
        let (tor0, agg0) = (self.hosts, self.hosts + pods * tors);
        let core0 = agg0 + pods * aggs;
        let mut join = |from: u32, to: u32, tier: &TierSpec| {
            for _ in 0..tier.bundle {
                let (rate, delay) = (tier.rate, tier.delay);
                built.connect(Link { from, to, rate, delay, loss: 0.0 });
            }
        };
        for host in 0..self.hosts {
            join(host, tor0 + host / self.tiers[0].radix_down, &self.tiers[0]);
        }
        for tor in 0..pods * tors {
            for agg in 0..aggs {
                join(tor0 + tor, agg0 + tor / tors * aggs + agg, &self.tiers[1]);
            }
        }
        for agg in 0..if cores > 0 { pods * aggs } else { 0 } {
            for nth in 0..cores / aggs {
                join(agg0 + agg, core0 + agg % aggs + aggs * nth, &self.tiers[2]);
            }
        }
        Ok(built)
    }
}

fn agree(what: &str, said: u32, rule: &str, count: u32, bundle: u32) -> What<()> {
    if u64::from(said) == u64::from(count) * u64::from(bundle) {
        return Ok(());
    }
    Err(format!("{what} is {said}, but {rule} make {count} × {bundle}"))
}
