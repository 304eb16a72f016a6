//! Random worlds in which traffic and VMs come and go, for hours.
//!
//! Approach  Each pair sends for a while, with a demand that is drawn anew each time, and pauses for a
//!           while. Now and then a VM vanishes and returns. All of it happens at whole seconds, so that
//!           demands are constant within each second: the oracle has one F per second.
//! Promises  A VM that is away neither sends nor is sent to. It is away for longer than a sender
//!           remembers what it held, and returns a second before its traffic does.

use super::draw::Draw;
use super::tenants::Tenant;
use super::traffic;
use super::world::{self, Pair};

/// How long a pair sends, seconds.
const SENDS: (u64, u64) = (2, 40);
/// How long it pauses, seconds.
const PAUSES: (u64, u64) = (1, 30);
/// How long a VM stays, seconds.
const STAYS: (u64, u64) = (120, 900);
/// How long it is away, seconds.
const AWAY: (u64, u64) = (8, 30);

/// Traffic entries and faults as their file has them.
pub(super) struct Churn {
    pub(super) entries: Vec<String>,
    /// In the order of time.
    pub(super) faults: Vec<String>,
}

/// `seconds` of coming and going.
pub(super) fn draw(draw: &mut Draw, tenants: &[Tenant], factor: u64, seconds: u64) -> Churn {
    let (mut entries, mut faults) = (Vec::new(), Vec::new());
    for tenant in tenants {
        let names: Vec<&str> = tenant.vms.iter().map(|vm| vm.name.as_str()).collect();
        let mut pairs = traffic::matrix(draw, &names);
        pairs.sort();
        pairs.dedup();
        let away: Vec<(&str, Vec<(u64, u64)>)> =
            names.iter().map(|name| (*name, absences(draw, seconds))).collect();
        for (name, times) in &away {
            faults.extend(times.iter().flat_map(|(from, until)| {
                [(*from, "stop-vm", *name), (*until - 1, "start-vm", *name)]
            }));
        }
        for pair in &pairs {
            let is_of = |name: &str| name == pair.0 || name == pair.1;
            let gone: Vec<(u64, u64)> = away
                .iter()
                .filter(|(name, _)| is_of(name))
                .flat_map(|(_, times)| times.iter().copied())
                .collect();
            let part = world::part(tenant, &pairs, pair) * factor;
            entries.extend(episodes(draw, pair, part, &gone, seconds));
        }
    }
    faults.sort();
    let step =
        |(at, what, name): &(u64, &str, &str)| format!("    - {{at: {at}s, {what}: {name}}}\n");
    Churn { entries, faults: faults.iter().map(step).collect() }
}

/// When a VM goes, and when traffic may come again.
fn absences(draw: &mut Draw, seconds: u64) -> Vec<(u64, u64)> {
    let mut times = Vec::new();
    let mut at = draw.within(STAYS.0, STAYS.1);
    while at + AWAY.1 + 1 < seconds {
        let until = at + draw.within(AWAY.0, AWAY.1) + 1;
        times.push((at, until));
        at = until + draw.within(STAYS.0, STAYS.1);
    }
    times
}

/// The times in which a pair sends, while neither of its VMs is `gone`.
fn episodes(
    draw: &mut Draw,
    (from, to): &Pair,
    part: u64,
    gone: &[(u64, u64)],
    seconds: u64,
) -> Vec<String> {
    let mut entries = Vec::new();
    let mut at = draw.within(0, 10);
    while at + SENDS.0 < seconds {
        if let Some((_, until)) = gone.iter().find(|(from, until)| (*from..*until).contains(&at)) {
            at = *until;
            continue;
        }
        // It ends with the first absence.
        let next = gone.iter().map(|(from, _)| *from).filter(|from| *from > at).min();
        let end = (at + draw.within(SENDS.0, SENDS.1)).min(next.unwrap_or(seconds)).min(seconds);
        let kind = world::kind(draw, part);
        entries.push(format!(
            "    - {{group: {from}-{to}, from: {from}, to: {to}, {kind}, start: {at}s, stop: {end}s}}\n"
        ));
        at = end + draw.within(PAUSES.0, PAUSES.1);
    }
    entries
}
