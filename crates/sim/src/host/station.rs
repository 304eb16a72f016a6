//! One host: its agent, its clock, its shaper, and the counters that its agent reads.
//!
//! Promises  A clock and a phase of its own, drawn from the seed.
//! Not here  When what is called: see `shim`.

use super::classes::{Levels, Share};
use super::htb::Htb;
use super::meter::Meter;
use super::pairs::{GuardedHost, Pair, Sending};
use super::weather::{Heard, Weather};
use crate::rng::Rng;
use crate::tcp::NEVER;
use std::collections::BTreeMap;
use weir_core::host::{Direction, HostAgent, Mechanism, Outbox, ReceiveCount, Sample, SendCount};
use weir_units::{HostId, PairId, Rate, Time};

/// Traffic starts everywhere at one instant; agents first look within this time after it. ns.
const PHASES: u64 = 15_000_000;
/// Streams of chance from this one on are the agents'.
const STREAM: u64 = 1 << 40;

/// A host with its agent.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) agent: HostAgent,
    /// Its clock less the network's, ns.
    pub(super) origin: u64,
    /// It does nothing before this instant.
    pub(super) begins: u64,
    pub(super) outbox: Outbox,
    pub(super) sample: Sample,
    /// Pairs seen and not told yet.
    pub(super) news: Vec<(PairId, Direction)>,
    pub(super) wakes_at: u64,
    pub(super) htb: Htb,
    pub(super) levels: Levels,
    pub(super) shares: Vec<Share>,
    /// Queue of each VM for traffic without a class.
    pub(super) defaults: Vec<u32>,
    pub(super) floors: Rate,
    pub(super) serves_at: u64,
    pub(super) sends: Vec<u32>,
    pub(super) receives: Vec<u32>,
    /// Letters sent to each other host.
    pub(super) posted: BTreeMap<HostId, u64>,
    pub(super) heard: Heard,
    pub(super) weather: Weather,
}

impl Host {
    /// With its clock and phase from the seed.
    pub(super) fn new(number: u32, guarded: &GuardedHost, seed: u64) -> Self {
        let config = &guarded.config;
        let default_rate = match &config.mechanism {
            Mechanism::ElasticSwitch(es) => es.default_floor,
            Mechanism::Reservation { other, .. } => *other,
        };
        let levels = Levels::new(config.line, default_rate, &guarded.shares);
        let classes: Vec<_> = guarded.shares.iter().map(|share| levels.vm(share)).collect();
        let mut htb = Htb::new(levels.uplink(), &classes, 0);
        let defaults = (0..).zip(&guarded.shares);
        let defaults =
            defaults.map(|(vm, share)| htb.add(0, vm, levels.vm_default(share))).collect();
        let mut rng = Rng::new(seed, STREAM + u64::from(number));
        let origin = rng.next() % PHASES;
        Self {
            agent: HostAgent::new(config.clone(), Time::from_nanos(origin)),
            origin,
            begins: rng.next() % PHASES,
            outbox: Outbox::default(),
            sample: Sample::default(),
            news: Vec::new(),
            wakes_at: NEVER,
            htb,
            levels,
            shares: guarded.shares.clone(),
            defaults,
            floors: Rate::ZERO,
            serves_at: NEVER,
            sends: Vec::new(),
            receives: Vec::new(),
            posted: BTreeMap::new(),
            heard: Heard::default(),
            weather: Weather::new(&guarded.troubles, seed, number),
        }
    }

    /// What its clock shows.
    pub(super) fn clock(&self, now: u64) -> Time {
        Time::from_nanos(now + self.origin)
    }

    /// Reads all counters.
    pub(super) fn count(&mut self, pairs: &[Pair], now: u64, window: u64) {
        let Self { sample, sends, receives, .. } = self;
        sample.send.clear();
        sample.receive.clear();
        let sending = sends.iter().map(|pair| &pairs[*pair as usize]).filter(|p| p.sending.seen);
        sample.send.extend(sending.map(|pair| {
            let Sending { octets, numbered, .. } = pair.sending;
            (pair.id, SendCount { octets, numbered, unnumbered: 0 })
        }));
        let receiving = receives.iter().map(|pair| &pairs[*pair as usize]).filter(|p| p.receives);
        sample.receive.extend(receiving.map(|pair| {
            let Meter { octets, segments, marked, .. } = pair.meter;
            let lost = pair.meter.lost(now, window);
            (pair.id, ReceiveCount { octets, segments, lost, marked })
        }));
    }

    /// Gives a pair its queue, or other parameters.
    pub(super) fn shape(&mut self, now: u64, pair: &mut Pair) {
        let share = &self.shares[pair.vm as usize];
        let rates = (pair.sending.floor, pair.sending.ceiling);
        let class = self.levels.pair(share, rates, self.floors);
        match pair.sending.leaf {
            Some(leaf) => self.htb.set(leaf, class),
            None => pair.sending.leaf = Some(self.htb.add(now, pair.vm, class)),
        }
    }
}
