//! What is promised in a scenario, and the times that promises are given.

use weir_core::elasticswitch::ElasticSwitch;
use weir_core::mechanism::registry::Floors;
use weir_model::scenario::{Mechanism, Scenario};
use weir_units::{HostId, PairId, Rate, SortedMap, Span, Time, VmId};

/// Frames on an otherwise idle link may be spread by the time of a full one.
const FRAME: weir_units::Bytes = weir_units::Bytes::new(1514);

/// What is promised in a scenario.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) scenario: Scenario,
    /// The constants of its agents, at its scale.
    pub(crate) law: ElasticSwitch,
    /// The preset promises floors of goodput too (GUARANTEES.md 1.1).
    pub(crate) is_steady: bool,
    /// Within so long a letter from one host to another arrives or is lost.
    letters: SortedMap<(HostId, HostId), Span>,
}

/// One VM's hose: its tenant's, or the small one for everybody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HoseId {
    pub(crate) vm: VmId,
    pub(crate) is_default: bool,
}

impl Terms {
    /// Of the agents of `mechanism`; `None` if it promises no hoses.
    pub(crate) fn new(scenario: &Scenario, mechanism: &Mechanism) -> Option<Self> {
        let row = mechanism.row?;
        Some(Self {
            law: mechanism.draft()?.scaled(scenario.scale).of_hoses()?.clone(),
            is_steady: (row.floors)(&mechanism.preset) == Floors::Everywhere,
            letters: letters(scenario),
            scenario: scenario.clone(),
        })
    }

    /// The moment from which nothing is excused any more.
    pub(crate) fn judged_from(&self) -> Time {
        Time::ZERO + self.scenario.warmup
    }

    pub(crate) fn name(&self, vm: VmId) -> &str {
        &self.scenario.vms[vm.0 as usize].name
    }

    /// The hoses of a pair: its source's out, its destination's in.
    pub(crate) fn hoses_of(&self, pair: PairId) -> (HoseId, HoseId) {
        let tenant = |vm: VmId| self.scenario.vms[vm.0 as usize].tenant;
        let is_default = tenant(pair.src) != tenant(pair.dst);
        (HoseId { vm: pair.src, is_default }, HoseId { vm: pair.dst, is_default })
    }

    pub(crate) fn hose_out(&self, hose: HoseId) -> Rate {
        let vm = &self.scenario.vms[hose.vm.0 as usize];
        if hose.is_default { self.law.default_floor } else { vm.floor_out }
    }

    pub(crate) fn hose_in(&self, hose: HoseId) -> Rate {
        let vm = &self.scenario.vms[hose.vm.0 as usize];
        if hose.is_default { self.law.default_floor } else { vm.floor_in }
    }

    /// What a pair may hold of whom nobody can count (docs/STATUS.md: small starts).
    pub(crate) fn small(&self, pair: PairId) -> Rate {
        let (out, into) = self.hoses_of(pair);
        let partition = &self.law.partition;
        partition
            .small_start_of(self.hose_out(out))
            .max(partition.small_start_of(self.hose_in(into)))
    }

    /// A sender holds its receiver's last word for so long without another (GUARANTEES.md 5.2).
    pub(crate) fn held_for(&self) -> Span {
        self.law.partition.silent_after + self.law.partition.silent_hold
    }

    /// The next offer of a receiver has reached this sender by then, unless it was lost.
    pub(crate) fn next_word(&self, from: HostId, to: HostId) -> Span {
        self.law.partition_period + self.letter(from, to)
    }

    /// The three greetings by which a new life of `host` is believed by `peer`.
    pub(crate) fn greetings(&self, host: HostId, peer: HostId) -> Span {
        self.letter(host, peer) * 2 + self.letter(peer, host)
    }

    pub(crate) fn letter(&self, from: HostId, to: HostId) -> Span {
        self.letters.get(&(from, to)).copied().unwrap_or_default()
    }

    /// The rate of a host's link.
    pub(crate) fn line(&self, host: HostId) -> Rate {
        let host = host.0 as usize;
        let mut links = self.scenario.topology.links.iter();
        links.find(|link| link.a == host || link.b == host).map_or(Rate::ZERO, |link| link.rate)
    }
}

/// All ports of the way full, and all links crossed.
fn letters(scenario: &Scenario) -> SortedMap<(HostId, HostId), Span> {
    let topology = &scenario.topology;
    let mut all = SortedMap::new();
    for to in 0..topology.hosts.len() {
        let routes = topology.forwarding_to(to);
        for from in (0..topology.hosts.len()).filter(|from| *from != to) {
            let (mut node, mut span) = (from, Span::ZERO);
            while let Some(step) = routes[node].first() {
                let link = &topology.links[step.link];
                span = span + link.delay + link.rate.time_for(link.buffer + FRAME);
                node = step.to(topology);
            }
            all.insert((HostId(from as u32), HostId(to as u32)), span);
        }
    }
    all
}
