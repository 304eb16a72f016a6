//! One host: its agent, its clock, its shaper, and the counters that its agent reads.
//!
//! Promises  A clock of its own, drawn from the seed. An agent was there before the traffic, as any
//!           is that was not just installed: the first packet of a pair finds it awake. Queues
//!           stand without an agent; what is borrowed is taken back as the guardian does.
//! Source    `weir-dataplane`'s `guardian.rs` and `weir-agent`'s `driver.rs`: how often each looks.
//! Not here  When what is called: see `shim`.

use super::agent::{Agent, Counted, without};
use super::classes::{Levels, Share, floor_of};
use super::htb::Htb;
use super::pairs::{GuardedHost, Pair};
use super::peers::Peers;
use super::stray::{Stray, is_stray};
use super::times::Times;
use super::weather::{Heard, Weather};
use crate::rng::Rng;
use crate::tcp::NEVER;
use weir_core::classes::QUEUE;
use weir_core::host::{Brake, Direction, Policy, Setting};
use weir_units::{HostId, PairId, Rate, SortedMap, SortedSet, Time, VmId};

/// Agents were started within this time, ns.
const PHASES: u64 = 15_000_000;
/// How often a living agent renews the lease on what is borrowed, how long a lease is, and how
/// often the guardian looks. ns.
const HEARTBEAT: u64 = 250_000_000;
const LEASE: u64 = 1_000_000_000;
const LOOKS: u64 = 100_000_000;
/// Streams of chance from this one on are the agents'.
const STREAM: u64 = 1 << 40;

/// Whether a host's agent does anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Runs,
    Dead,
}

/// The queues of a host without pairs, and those of its VMs for what has none.
fn queues(levels: &Levels, shares: &[Share], now: u64) -> (Htb, Vec<u32>) {
    let classes: Vec<_> = shares.iter().map(|share| levels.vm(share)).collect();
    let mut htb = Htb::new(levels.uplink(), &classes, now);
    if levels.keeps_turns() {
        htb = htb.keeping_turns();
    }
    let vms = (0..).zip(shares);
    let defaults = vms.map(|(vm, share)| htb.add(now, vm, levels.vm_default(share))).collect();
    (htb, defaults)
}

/// What the parameters of a host's queues depend on, when these VMs are here.
fn levels(policy: &Policy, shares: &[Share]) -> Levels {
    let law = &policy.law;
    Levels::new(policy.line, law.default_rate(), shares, law.is_paced())
}

/// A host with its agent.
#[derive(Debug)]
pub(super) struct Host {
    /// What it would be told if all VMs were there, and what it was told last.
    full: Policy,
    pub(super) policy: Policy,
    /// Its files have changed since.
    pub(super) is_stale: bool,
    pub(super) agent: Agent,
    pub(super) life: Life,
    /// How many lives its agent has had before.
    pub(super) lives: u32,
    pub(super) peers: Peers,
    rng: Rng,
    /// Its clock less the network's, ns.
    pub(super) origin: u64,
    /// Pairs seen and not told yet.
    pub(super) news: Vec<(PairId, Direction)>,
    pub(super) wakes_at: u64,
    pub(super) htb: Htb,
    pub(super) times: Times,
    pub(super) levels: Levels,
    pub(super) shares: Vec<Share>,
    /// The class of each VM's packets in the network.
    pub(super) classes: Vec<u8>,
    /// VMs whose tenant has a queue of its own: nothing but the uplink limits them.
    pub(super) free: Vec<bool>,
    /// VMs whose port is new, or gone: no program looks at it.
    pub(super) unguarded: Vec<bool>,
    /// Queue of each VM for traffic without a class.
    pub(super) defaults: Vec<u32>,
    /// What each VM's pairs without a queue have sent.
    pub(super) strays: Vec<Stray>,
    /// Parts of their rates that strays may have, per VM.
    pub(super) brakes: Vec<Brake>,
    pub(super) floors: Rate,
    pub(super) serves_at: u64,
    /// When the guardian takes back what is borrowed.
    pub(super) reclaims_at: u64,
    pub(super) sends: Vec<u32>,
    pub(super) receives: Vec<u32>,
    /// Letters sent to each other host.
    pub(super) posted: SortedMap<HostId, u64>,
    pub(super) heard: Heard,
    pub(super) weather: Weather,
}

impl Host {
    /// With its clock and phase from the seed.
    pub(super) fn new(number: u32, guarded: &mut GuardedHost, seed: u64) -> Self {
        let log = guarded.log.take();
        let policy = &guarded.policy;
        let levels = levels(policy, &guarded.shares);
        let (htb, defaults) = queues(&levels, &guarded.shares, 0);
        let mut rng = Rng::new(seed, STREAM + u64::from(number));
        let origin = rng.next() % PHASES;
        Self {
            agent: Agent::new(policy, Time::from_nanos(origin), log),
            full: policy.clone(),
            policy: policy.clone(),
            is_stale: false,
            life: Life::Runs,
            lives: 0,
            peers: Peers::new(0),
            times: Times::new(seed, number, guarded.drift, origin),
            origin,
            rng,
            news: Vec::new(),
            wakes_at: NEVER,
            htb,
            levels,
            shares: guarded.shares.clone(),
            classes: vec![0; guarded.shares.len()],
            free: vec![false; guarded.shares.len()],
            unguarded: vec![false; guarded.shares.len()],
            strays: vec![Stray::default(); defaults.len()],
            brakes: vec![Brake::NONE; defaults.len()],
            defaults,
            floors: Rate::ZERO,
            serves_at: NEVER,
            reclaims_at: NEVER,
            sends: Vec::new(),
            receives: Vec::new(),
            posted: SortedMap::new(),
            heard: Heard::default(),
            weather: Weather::new(&guarded.troubles, seed, number),
        }
    }

    /// The number of its next letter to another host.
    pub(super) fn post(&mut self, to: HostId) -> u64 {
        let number = self.posted.entry(to).or_default();
        *number += 1;
        *number
    }

    /// The place of a VM among this host's, there or not.
    pub(super) fn place(&self, vm: VmId) -> Option<u32> {
        self.full.vms().position(|(here, _)| here == vm).map(|place| place as u32)
    }

    /// Its files say that these VMs are away; the others' ports are guarded from now on.
    pub(super) fn populate(&mut self, away: &SortedSet<VmId>) {
        self.policy = without(&self.full, away);
        self.unguarded = self.full.vms().map(|(vm, _)| away.contains(&vm)).collect();
        // A VM that goes takes its brake with it.
        let brakes = self.brakes.iter_mut().zip(&self.unguarded);
        brakes.filter(|(_, is_away)| **is_away).for_each(|(brake, _)| *brake = Brake::NONE);
        let here = self.shares.iter().zip(&self.unguarded).filter(|(_, is_away)| !**is_away);
        let here: Vec<Share> = here.map(|(share, _)| *share).collect();
        self.levels = levels(&self.full, &here);
        self.is_stale = false;
    }

    /// Gives all queues the parameters that follow from the pairs that exist.
    pub(super) fn share_out(&mut self, now: u64, pairs: &mut [Pair]) {
        for ((vm, share), default) in (0..).zip(&self.shares).zip(&self.defaults) {
            self.htb.set_vm(vm, self.levels.vm(share));
            self.htb.set(*default, self.levels.vm_default(share));
        }
        for pair in self.sends.clone() {
            let pair = &mut pairs[pair as usize];
            if pair.sending.leaf.is_some() {
                self.shape(now, pair);
            }
        }
    }

    /// Gives a VM's packets another class.
    pub(super) fn tag(&mut self, vm: VmId, class: u8) {
        if let Some(place) = self.place(vm) {
            self.classes[place as usize] = class;
        }
    }

    /// What a VM's pairs without a queue may send.
    pub(super) fn brake(&mut self, vm: VmId, brake: Brake) {
        if let Some(place) = self.place(vm) {
            self.brakes[place as usize] = brake;
        }
    }

    /// What its clock shows.
    pub(super) fn clock(&self, now: u64) -> Time {
        Time::from_nanos(now + self.origin)
    }

    /// The agent is killed; its queues stay as they are. Returns when its guardian takes back what
    /// is borrowed: a lease after it saw the last beat.
    pub(super) fn die(&mut self, now: u64) -> u64 {
        self.life = Life::Dead;
        self.wakes_at = NEVER;
        self.news.clear();
        drop(self.agent.say());
        let beat = self.rng.next() % HEARTBEAT;
        let seen = self.rng.next() % LOOKS;
        now + LEASE + seen - beat
    }

    /// An agent with nothing but its configuration.
    pub(super) fn live_again(&mut self, now: u64) {
        self.life = Life::Runs;
        self.lives += 1;
        self.peers = Peers::new(self.lives);
        self.brakes.fill(Brake::NONE);
        self.reclaims_at = NEVER;
        self.news.clear();
        let now = self.clock(now);
        self.agent.live_again(&self.policy, now);
    }

    /// The host as it was before any agent: empty queues, no pairs. Returns the packets that were
    /// lost.
    pub(super) fn restore(&mut self, now: u64) -> Vec<u32> {
        let gone = self.htb.clear();
        let drops = self.htb.drops;
        (self.htb, self.defaults) = queues(&self.levels, &self.shares, now);
        self.htb.drops = drops;
        self.floors = Rate::ZERO;
        self.wakes_at = NEVER;
        gone
    }

    /// What the queues of a pair give it at this moment.
    pub(super) fn level(&self, leaf: u32) -> Setting {
        let class = self.htb.class(leaf);
        let floor = floor_of(Rate::from_bps(class.rate)).unwrap_or_default();
        Setting { floor, ceiling: Rate::from_bps(class.ceil) }
    }

    /// Reads all counters and tells them to the agent.
    pub(super) fn count(&mut self, pairs: &mut [Pair], now: u64, window: u64) {
        let at = self.clock(now);
        let timed = self.times.take();
        let Self { agent, sends, receives, htb, .. } = self;
        let timed = &timed;
        agent.count(at, Counted { pairs, sends, receives, htb, timed, now, window });
    }

    /// The queue for a packet of `size` octets that a pair sends; `None` if it is to be dropped.
    pub(super) fn queue_of(&mut self, now: u64, pair: &mut Pair, size: u16) -> Option<u32> {
        if pair.sending.leaf.is_some() {
            return pair.sending.leaf;
        }
        let vm = pair.vm as usize;
        let share = &self.shares[vm];
        let whole = self.levels.stray_rate(share);
        let rate = self.brakes[vm].of(whole).as_bps();
        let (size, strays) = (size.into(), &mut self.strays[vm]);
        let is_beyond = if is_stray(&mut pair.sending.stray_since, now) {
            strays.is_beyond(now, size, rate)
        } else {
            strays.is_beyond_moment(now, size, rate, self.levels.moment(share).get())
        };
        self.htb.drops += u64::from(is_beyond);
        (!is_beyond).then_some(self.defaults[vm])
    }

    /// Gives a pair its queue, or other parameters.
    pub(super) fn shape(&mut self, now: u64, pair: &mut Pair) {
        let share = &self.shares[pair.vm as usize];
        let is_free = self.free[pair.vm as usize];
        let ceiling = if is_free { self.policy.line } else { pair.sending.ceiling };
        let rates = (pair.sending.floor, ceiling);
        let room = pair.sending.room.unwrap_or(QUEUE);
        let class = self.levels.pair(share, rates, room, self.floors);
        match pair.sending.leaf {
            Some(leaf) => self.htb.set(leaf, class),
            None => {
                pair.sending.leaf = Some(self.htb.add(now, pair.vm, class));
                pair.sending.stray_since = None;
            }
        }
    }
}
