//! What every pair is owed while floors are judged, and which pairs are owed nothing.
//!
//! Approach  The yardstick is the oracle's F: hose max-min of the demands. It is owed where all demands of
//!           the VMs that hoses bind together are constant. Where one of them varies, F depends on what
//!           the others want at each moment, and no law can know that before it has measured. Such pairs
//!           are owed the equal parts of both hoses as far as they want them: F is never less than that,
//!           whatever the others want.
//! Promises  Exempt is only what no mechanism can keep, or what GUARANTEES.md says is scaled; each with its
//!           reason, for [`super::floors`] counts them.
//! Not here  What became of it: see [`super::floors`].

use crate::terms::Terms;
use weir_core::mechanism::eyeq::Headroom;
use weir_core::oracle::{Hose, PairDemand, hose_max_min};
use weir_model::scenario::{Scenario, Traffic, TrafficKind};
use weir_units::{HostId, PairId, Rate, SortedMap, Time, VmId};

/// The part of its F that a pair is owed (GUARANTEES.md 1.1).
const OWED: f64 = 0.95;
/// The same for TCP beside TCP of the other direction between the same two VMs (GUARANTEES.md 1.3.3).
const TWO_WAY: f64 = 0.9;
/// A pair of which its hose has less finds no place in it (docs/algorithms/elasticswitch.md).
const LEAST: Rate = Rate::from_bps(64_000);

/// Why a pair is owed nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exempt {
    /// Its host's pairs, those within the host among them, are owed more than admission promises of the
    /// host's link. Admission does not count what stays within a host, and all of it passes the uplink's
    /// shaper. Agents say where floors are scaled (GUARANTEES.md 6.2).
    Overbooked,
    /// Switches put so many flows on one of several equal ways that these are owed more than admission
    /// promises of a link. Admission counts on packets that use equal ways alike.
    Crowded,
    /// Its source's hose has less than 64 kbit/s for each of its pairs.
    Narrow,
    /// TCP that paused: guests sent less than their floor and had it while something waited, or were taken for
    /// wanting less after a pause; see [`super::floors`].
    Pausing,
    /// Pairs with TCP that had their whole floor in force all the time, were let out at it while packets
    /// waited, and sent less (GUARANTEES.md 1.5.1).
    Unused,
}

/// A pair that sends while floors are judged.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Its traffic entries.
    pub(super) entries: Vec<usize>,
    /// What it wants at every moment.
    pub(super) wants: Rate,
    /// What it is owed if every floor holds.
    pub(super) owed: Rate,
    /// How much of that has to arrive.
    pub(super) part: f64,
    pub(super) exempt: Option<Exempt>,
    /// TCP, which waits for acknowledgements; UDP sends at every moment.
    pub(super) is_tcp: bool,
    /// TCP is a part of it.
    pub(super) has_tcp: bool,
    /// UDP, beside the acknowledgements of TCP that comes the other way.
    pub(super) answers: bool,
    /// F, with all that varies taken as wanting everything.
    most: Rate,
}

/// What a pair sends that has nothing to send but acknowledgements.
struct Acks {
    ends: (usize, usize),
    rate: Rate,
}

/// What was measured while floors were judged.
pub(super) struct Measured {
    /// What hoses held for each pair: the demand of pairs that send acknowledgements alone.
    pub(super) held: SortedMap<(usize, usize), Rate>,
    /// What left the queue of each pair: the least demand of pairs that also send acknowledgements.
    pub(super) sent: SortedMap<(usize, usize), Rate>,
}

/// All pairs under a hose that send while floors are judged. `ways` of each traffic entry: links by their
/// direction's index, one list per connection and way; none of traffic that comes and goes. Acknowledgements
/// are traffic under hoses, too: their demand is `measured`.
pub(super) fn pairs(terms: &Terms, ways: &[Vec<Vec<u32>>], measured: &Measured) -> Vec<Pair> {
    let scenario = &terms.scenario;
    let mut pairs = senders(terms);
    let varying: Vec<bool> = pairs.iter().map(|pair| varies(scenario, pair)).collect();
    let acks: Vec<Acks> = pairs
        .iter()
        .map(|pair| (pair.to, pair.from))
        .filter(|(from, to)| !pairs.iter().any(|pair| (pair.from, pair.to) == (*from, *to)))
        .map(|ends| Acks { ends, rate: measured.held.get(&ends).copied().unwrap_or_default() })
        .collect();
    for number in 0..pairs.len() {
        let Pair { from, to, has_tcp, .. } = pairs[number];
        pairs[number].answers = !has_tcp
            && pairs.iter().any(|other| (other.from, other.to) == (to, from) && other.has_tcp);
    }
    promise(scenario, &mut pairs, &varying, &acks, &measured.sent);
    let overbooked = overbooked(terms, &pairs, &varying);
    let crowded = crowded(scenario, &pairs, ways);
    let two_way: Vec<bool> = pairs.iter().map(|pair| is_two_way(scenario, &pairs, pair)).collect();
    let narrow: Vec<bool> = pairs.iter().map(|pair| is_narrow(scenario, &pairs, pair)).collect();
    for (number, pair) in pairs.iter_mut().enumerate() {
        pair.part = if two_way[number] { TWO_WAY } else { OWED };
        pair.exempt = match (overbooked[pair.from], crowded[number], narrow[number]) {
            (true, _, _) => Some(Exempt::Overbooked),
            (_, true, _) => Some(Exempt::Crowded),
            (_, _, true) => Some(Exempt::Narrow),
            _ => None,
        };
    }
    pairs
}

/// Pairs of VMs of one tenant with what they want.
fn senders(terms: &Terms) -> Vec<Pair> {
    let mut pairs: SortedMap<(usize, usize), Pair> = SortedMap::new();
    for (entry, traffic) in terms.scenario.traffic.iter().enumerate() {
        let tenant = |vm: usize| terms.scenario.vms[vm].tenant;
        let is_over = Time::ZERO + traffic.stop <= terms.judged_from();
        if is_over || tenant(traffic.from) != tenant(traffic.to) {
            continue;
        }
        let (from, to) = (traffic.from, traffic.to);
        let new = || Pair {
            from,
            to,
            entries: Vec::new(),
            wants: Rate::ZERO,
            owed: Rate::ZERO,
            part: OWED,
            exempt: None,
            is_tcp: true,
            has_tcp: false,
            answers: false,
            most: Rate::ZERO,
        };
        let pair = pairs.entry((from, to)).or_insert_with(new);
        pair.entries.push(entry);
        pair.wants += demand(traffic).unwrap_or_default();
        let is_udp = matches!(traffic.kind, TrafficKind::Udp { .. });
        pair.is_tcp &= !is_udp;
        pair.has_tcp |= !is_udp;
    }
    pairs.into_values().collect()
}

/// What an entry wants at every moment; `None` if that varies.
fn demand(traffic: &Traffic) -> Option<Rate> {
    match &traffic.kind {
        TrafficKind::Tcp { .. } => Some(Rate::MAX),
        TrafficKind::Udp { rate, off: None, .. } => Some(*rate),
        _ => None,
    }
}

fn varies(scenario: &Scenario, pair: &Pair) -> bool {
    pair.entries.iter().any(|entry| demand(&scenario.traffic[*entry]).is_none())
}

/// Writes down what each pair is owed: F, or the equal parts of both hoses where a demand among those that
/// hoses bind together varies.
fn promise(
    scenario: &Scenario,
    pairs: &mut [Pair],
    varying: &[bool],
    acks: &[Acks],
    sent: &SortedMap<(usize, usize), Rate>,
) {
    let hose =
        |vm: &weir_model::scenario::Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
    let hoses: Vec<Hose> = scenario.vms.iter().map(hose).collect();
    let demand = |(pair, varies): (&Pair, &bool)| {
        let sent = sent.get(&(pair.from, pair.to)).filter(|_| pair.answers);
        let wants = pair.wants.max(sent.copied().unwrap_or_default());
        let id = PairId::new(VmId(pair.from as u32), VmId(pair.to as u32));
        PairDemand::of_vms(id, (!varies && pair.wants < Rate::MAX).then_some(wants), true)
    };
    let of_acks = |acks: &Acks| {
        let id = PairId::new(VmId(acks.ends.0 as u32), VmId(acks.ends.1 as u32));
        PairDemand::of_vms(id, Some(acks.rate), true)
    };
    let demands: Vec<PairDemand> =
        pairs.iter().zip(varying).map(demand).chain(acks.iter().map(of_acks)).collect();
    let groups = groups(scenario.vms.len(), pairs);
    let unsteady: Vec<usize> =
        pairs.iter().zip(varying).filter(|(_, v)| **v).map(|(pair, _)| groups[pair.from]).collect();
    let part = |pair: &Pair| {
        let out = pairs.iter().filter(|other| other.from == pair.from).count();
        let into = pairs.iter().filter(|other| other.to == pair.to).count();
        let acks_out =
            acks.iter().filter(|acks| acks.ends.0 == pair.from).map(|acks| acks.rate).sum();
        let acks_in = acks.iter().filter(|acks| acks.ends.1 == pair.to).map(|acks| acks.rate).sum();
        let out = scenario.vms[pair.from].floor_out.saturating_sub(acks_out).split(out);
        let into = scenario.vms[pair.to].floor_in.saturating_sub(acks_in).split(into);
        pair.wants.min(out).min(into)
    };
    let parts: Vec<Rate> = pairs.iter().map(part).collect();
    for ((pair, f), part) in pairs.iter_mut().zip(hose_max_min(&hoses, &demands)).zip(parts) {
        pair.most = f;
        pair.owed = if unsteady.contains(&groups[pair.from]) { part } else { f };
    }
}

/// Of each VM the least VM that it is bound to by hoses.
fn groups(vms: usize, pairs: &[Pair]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..vms).collect();
    // Each round binds at least one more VM.
    for _ in 0..vms {
        for pair in pairs {
            let least = groups[pair.from].min(groups[pair.to]);
            (groups[pair.from], groups[pair.to]) = (least, least);
        }
    }
    groups
}

/// Of each VM: whether what its host's pairs are owed, those within the host among them, is more than
/// admission promises of the host's link. All of it passes the uplink's shaper. Where demands vary, answers among them, a VM
/// may be owed all of its hose at some moments.
fn overbooked(terms: &Terms, pairs: &[Pair], varying: &[bool]) -> Vec<bool> {
    let vms = &terms.scenario.vms;
    let mut of_vms = vec![Rate::ZERO; vms.len()];
    for pair in pairs {
        of_vms[pair.from] += pair.most;
    }
    for (pair, _) in pairs.iter().zip(varying).filter(|(_, varies)| **varies) {
        for vm in [pair.from, pair.to] {
            of_vms[vm] = vms[vm].floor_out;
        }
    }
    let mut of_hosts: SortedMap<usize, Rate> = SortedMap::new();
    for (vm, owed) in vms.iter().zip(of_vms) {
        *of_hosts.entry(vm.host).or_default() += owed;
    }
    let promised = |host: usize| Headroom::default().available(terms.line(HostId(host as u32)));
    // Rounded to a whole bit/s per pair.
    let most = |host: usize| promised(host) + Rate::from_bps(pairs.len() as u64);
    vms.iter().map(|vm| of_hosts[&vm.host] > most(vm.host)).collect()
}

/// Of each pair: whether one of its ways crosses a link whose flows are owed more than admission promises
/// of it.
fn crowded(scenario: &Scenario, pairs: &[Pair], ways: &[Vec<Vec<u32>>]) -> Vec<bool> {
    let links = &scenario.topology.links;
    let mut loads = vec![0.0; 2 * links.len()];
    let shares: Vec<SortedMap<usize, f64>> =
        pairs.iter().map(|pair| crossed(scenario, pair, ways)).collect();
    for (pair, shares) in pairs.iter().zip(&shares) {
        for (link, share) in shares {
            loads[*link] += pair.most.as_f64() * share;
        }
    }
    let is_full = |link: usize| {
        let promised = Headroom::default().available(links[link / 2].rate);
        // Rounded to a whole bit/s per pair.
        loads[link] > promised.as_f64() + pairs.len() as f64
    };
    shares.iter().map(|shares| shares.keys().any(|link| is_full(*link))).collect()
}

/// The links that a pair crosses, each with the part of the pair that crosses it.
fn crossed(scenario: &Scenario, pair: &Pair, ways: &[Vec<Vec<u32>>]) -> SortedMap<usize, f64> {
    let topology = &scenario.topology;
    let mut all: Vec<Vec<u32>> =
        pair.entries.iter().flat_map(|entry| ways[*entry].iter().cloned()).collect();
    let [from, to] = [pair.from, pair.to].map(|vm| scenario.vms[vm].host);
    if all.is_empty() && from != to {
        all = equal_ways(topology, from, to);
    }
    let mut crossed = SortedMap::new();
    for link in all.iter().flatten().map(|link| *link as usize) {
        // What stays within a host crosses none of them.
        if link < 2 * topology.links.len() {
            *crossed.entry(link).or_insert(0.0) += 1.0 / all.len() as f64;
        }
    }
    crossed
}

/// All ways between two hosts among which switches choose.
fn equal_ways(topology: &weir_model::scenario::Topology, from: usize, to: usize) -> Vec<Vec<u32>> {
    let routes = topology.forwarding_to(to);
    let (mut ways, mut open) = (Vec::new(), vec![(from, Vec::new())]);
    while let Some((node, way)) = open.pop() {
        if node == to {
            ways.push(way);
            continue;
        }
        for link in &routes[node] {
            open.push((link.to(topology), [&way[..], &[link.index() as u32]].concat()));
        }
    }
    ways
}

/// Whether a pair is TCP beside TCP of the other direction.
fn is_two_way(scenario: &Scenario, pairs: &[Pair], pair: &Pair) -> bool {
    let is_tcp = |pair: &Pair| {
        let mut kinds = pair.entries.iter().map(|entry| &scenario.traffic[*entry].kind);
        kinds.any(|kind| !matches!(kind, TrafficKind::Udp { .. }))
    };
    let is_back = |other: &&Pair| (other.from, other.to) == (pair.to, pair.from);
    is_tcp(pair) && pairs.iter().filter(is_back).any(is_tcp)
}

fn is_narrow(scenario: &Scenario, pairs: &[Pair], pair: &Pair) -> bool {
    let peers = pairs.iter().filter(|other| other.from == pair.from).count();
    scenario.vms[pair.from].floor_out.split(2 * peers + 1) < LEAST
}
