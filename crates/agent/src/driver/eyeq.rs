//! EyeQ's side of the kernel: limits in, shares and keys out.
//!
//! Problem   Limits change in the kernel whenever a peer's receiver says so; who may say it follows from the
//!           control channel's session.
//! Approach  The ring that tells of new pairs tells of limits that changed by more than 1/64, too: only those are
//!           read then, in one call, and written to the shaper in the same turn of the loop. Before each tick all
//!           meters, and the limits of active pairs in one call, are read; lesser changes show there. Keys are
//!           compared with those given whenever a peer is confirmed or the key file changes, and with each
//!           heartbeat; peers that are not confirmed are greeted, a few per heartbeat, and who
//!           was believed without knowing this host is answered: no messages do it.
//! Promises  A key that stays is not given again, also if another could not be: its sequence and its window go
//!           on. A limit of a pair that is nobody's here is removed within a heartbeat. Unused unless the mechanism is EyeQ.
//! Not here  What follows from a limit: `weir_core::eyeq`. The programs: `weir_dataplane::eyeq`.

use super::Driver;
use crate::config::Setup;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::host::{Call, Input, Metered, Observed, Part, Receive, Told};
use weir_dataplane::Error;
use weir_dataplane::eyeq::intf::{self, Meter, Settings};
use weir_model::status;
use weir_units::{HostId, PairId, Rate, Time, VmId};
use weir_wire::FeedbackKey;

/// Peers greeted with each heartbeat until they are confirmed.
const GREETINGS: usize = 64;

/// What was given to the programs.
#[derive(Debug, Default)]
pub(super) struct Keys {
    given: BTreeMap<HostId, Given>,
    /// The last peer greeted for want of anything to say.
    greeted: Option<HostId>,
}

/// The keys of one peer.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Given {
    address: Ipv4Addr,
    speaks: Option<FeedbackKey>,
    believes: Vec<FeedbackKey>,
}

/// One write into the tables of keys.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Write {
    Doubt(FeedbackKey),
    Believe(FeedbackKey),
    Speak(Option<FeedbackKey>),
}

impl Given {
    /// A peer that nothing was given of yet.
    const fn nothing(address: Ipv4Addr) -> Self {
        Self { address, speaks: None, believes: Vec::new() }
    }

    /// What is to be written so that these become `next`, a peer's at the same address. First what makes room.
    fn towards(&self, next: &Self) -> Vec<Write> {
        let is_in = |keys: &[FeedbackKey], id| keys.iter().any(|key| key.id() == id);
        let gone = self.believes.iter().filter(|key| !is_in(&next.believes, key.id()));
        let new = next.believes.iter().filter(|key| !self.believes.contains(key));
        let mut writes: Vec<Write> = gone.map(|key| Write::Doubt(*key)).collect();
        writes.extend(new.map(|key| Write::Believe(*key)));
        writes.extend((self.speaks != next.speaks).then_some(Write::Speak(next.speaks)));
        writes
    }

    /// It was written.
    fn take(&mut self, write: Write) {
        match write {
            Write::Doubt(key) => self.believes.retain(|known| known.id() != key.id()),
            Write::Believe(key) => {
                self.believes.retain(|known| known.id() != key.id());
                self.believes.push(key);
            }
            Write::Speak(key) => self.speaks = key,
        }
    }
}

/// What EyeQ's programs need to know; `None` if another mechanism decides.
pub(super) fn of(setup: &Setup) -> Option<weir_dataplane::EyeQ> {
    let eyeq = setup.eyeq()?;
    let rules = eyeq.meter_rules();
    let unit = eyeq.feedback_unit.as_bps().max(1);
    let at = |host: &HostId| setup.hosts.get(host).and_then(|(_, control)| ipv4(control));
    let place = |(vm, location): (_, &weir_core::host::Location)| Some((vm, at(&location.host)?));
    Some(weir_dataplane::EyeQ {
        address: ipv4(&setup.file.listen)?,
        settings: Settings {
            period_ns: rules.period_ns,
            feedback_octets: rules.feedback_octets,
            unit_bps: unit,
            most_units: setup.host.fastest_line.as_bps().div_ceil(unit).min(u16::MAX.into()),
            alpha: rules.alpha,
            least_factor: rules.least_factor,
            queue_octets: rules.queue_octets,
            told_part: rules.told_part,
            ..Settings::default()
        },
        departs_within: eyeq.departs_within,
        hosts: setup.host.directory.iter().map(|(vm, at)| (*vm, at)).filter_map(place).collect(),
    })
}

/// Where feedback of a host comes from: the address at which its agent listens.
const fn ipv4(control: &SocketAddr) -> Option<Ipv4Addr> {
    match control.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// What the kernel heard of a pair.
fn told((pair, limit): (PairId, intf::Limit)) -> (PairId, Told) {
    (pair, Told { rate: Rate::from_bps(limit.rate_bps), times: limit.told })
}

impl Driver {
    /// What the ring told of limits.
    pub(super) fn take_limits(&mut self, now: Time) {
        let limited = self.dataplane.take_limited();
        if self.host.machine().eyeq().is_none() || limited.is_empty() {
            return;
        }
        match self.dataplane.limits_of(limited) {
            Ok(limits) => self.hear(now, limits.into_iter().map(told)),
            // The next heartbeat reads them again.
            Err(e) => tracing::debug!("limits could not be read: {e}"),
        }
    }

    /// Receivers have spoken.
    fn hear(&mut self, now: Time, limits: impl Iterator<Item = (PairId, Told)>) {
        let heard = Observed { limits: limits.collect(), ..Observed::default() };
        self.host.handle(now, Call::Input(Input::Observed(&heard)));
    }

    /// Meters, and what receivers allow the pairs of this host.
    pub(super) fn read_feedback(&mut self) -> Result<(), Error> {
        if self.host.machine().eyeq().is_none() {
            return Ok(());
        }
        let metered = |meter: Meter| {
            let Meter { octets, steps, rate_bps, .. } = meter;
            Metered { octets, steps, advertised: Rate::from_bps(rate_bps) }
        };
        for (vm, meters) in self.dataplane.meters()? {
            let parts = Part::ALL.into_iter().zip(meters.map(metered));
            self.sample.meters.extend(parts.map(|(part, metered)| (vm, part, metered)));
        }
        let asked = self.host.machine().limits_wanted();
        let limits = self.dataplane.limits_of(asked.iter().copied())?;
        let limits: BTreeMap<PairId, Told> = limits.into_iter().map(told).collect();
        // One of which nothing is there was read, too.
        let read = |pair: PairId| (pair, limits.get(&pair).copied().unwrap_or_default());
        self.sample.limits.extend(asked.into_iter().map(read));
        Ok(())
    }

    /// What VMs here may receive, if it changed.
    pub(super) fn write_shares(&mut self, changed: Vec<((VmId, Part), Option<Receive>)>) {
        for ((vm, part), level) in changed {
            let Some(Receive { capacity, least }) = level else { continue };
            let (capacity_bps, floor_bps) = (capacity.as_bps(), least.as_bps());
            let share = intf::Share { capacity_bps, floor_bps };
            self.dataplane.set_share(vm, part == Part::Strangers, share);
        }
    }

    /// What the VMs of this host may receive, for people.
    pub(super) fn meters(&self) -> Vec<status::Meter> {
        let Some(eyeq) = self.host.machine().eyeq() else { return Vec::new() };
        let row = |vm| {
            let view = eyeq.receiver(vm)?;
            Some(status::Meter {
                vm: self.setup.names.name(vm),
                floor_bps: view.floor.as_bps(),
                capacity_bps: view.capacity.as_bps(),
                advertised_bps: view.advertised.as_bps(),
                received_bps: view.received.as_bps(),
            })
        };
        eyeq.vms().filter_map(row).collect()
    }

    /// What the machine counted about itself.
    pub(super) fn machine_counters(&self) -> Vec<(&'static str, u64)> {
        let c = self.host.machine().counters();
        let mut rows = vec![
            ("agent.messages", c.messages),
            ("agent.misdirected", c.misdirected),
            ("agent.strayed", c.strayed),
            ("agent.refused_pairs", c.refused_pairs),
            ("agent.unknown_pairs", c.unknown_pairs),
            ("agent.refused_policies", c.refused_policies),
        ];
        if let Some(eyeq) = self.host.machine().eyeq() {
            rows.push(("eyeq.halved", eyeq.counters().halved));
            rows.push(("eyeq.impossible_limits", eyeq.counters().impossible));
        }
        rows
    }

    /// With every heartbeat: limits of nobody, keys, and peers that are not confirmed.
    pub(super) fn tend_feedback(&mut self, now: Time) {
        let Some(eyeq) = self.host.machine().eyeq() else { return };
        match self.dataplane.limits() {
            Ok(limits) => {
                // Also one of which the ring had no room to tell.
                let (known, unknown): (Vec<_>, Vec<_>) =
                    limits.into_iter().partition(|(pair, _)| eyeq.knows(*pair));
                for (pair, _) in unknown {
                    if let Err(e) = self.dataplane.lift_limit(pair) {
                        tracing::error!("a limit of nobody stays: {e}");
                    }
                }
                self.hear(now, known.into_iter().map(told));
            }
            Err(e) => tracing::error!("limits could not be read: {e}"),
        }
        self.give_all_keys();
        let own = self.setup.host.host;
        let mut waiting: Vec<HostId> = self.peers.keys().copied().collect();
        waiting.retain(|host| *host != own && !self.session.is_confirmed(*host));
        // Each in its turn.
        let after = self.spoken.greeted;
        let first = waiting.iter().position(|host| Some(*host) > after).unwrap_or(0);
        waiting.rotate_left(first);
        for host in waiting.into_iter().take(GREETINGS) {
            self.spoken.greeted = Some(host);
            self.host.handle(now, Call::Doubted(host));
        }
    }

    /// Answers a peer that was believed and does not know this host yet: where laws have messages these let
    /// it, but EyeQ has none. Who is believed is no recording: so at once, and as often as it asks.
    pub(super) fn remind(&mut self, peer: HostId) {
        if self.session.is_known_to(peer) {
            return;
        }
        let mut datagrams = Vec::new();
        if self.session.remind(peer, &mut datagrams).is_ok() {
            self.send(peer, &mut datagrams);
        }
    }

    /// The keys of all peers; those of hosts that are none any more are taken away.
    pub(super) fn give_all_keys(&mut self) {
        if self.host.machine().eyeq().is_none() {
            return;
        }
        let known = self.spoken.given.keys().chain(self.peers.keys());
        let mut all: Vec<HostId> = known.copied().collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().for_each(|host| self.give_keys(host));
    }

    /// The keys of one peer, if they are others than those that it has.
    pub(super) fn give_keys(&mut self, host: HostId) {
        if self.host.machine().eyeq().is_none() {
            return;
        }
        let address = self.peers.get(&host).and_then(ipv4);
        let next = address.map(|address| Given {
            address,
            speaks: self.session.feedback_key(host),
            believes: self.session.feedback_keys_from(host),
        });
        if self.spoken.given.get(&host) == next.as_ref() {
            return;
        }
        let mut given = self.spoken.given.remove(&host);
        let result = self.exchange(&mut given, next);
        // What was written stands, also where something was refused: the next heartbeat goes on with the rest.
        self.spoken.given.extend(given.map(|given| (host, given)));
        if let Err(e) = result {
            tracing::error!("keys for feedback of {host} were not given: {e}");
        }
    }

    /// Makes `given` what shall be.
    fn exchange(&mut self, given: &mut Option<Given>, next: Option<Given>) -> Result<(), Error> {
        let address = next.as_ref().map(|next| next.address);
        if let Some(gone) = given.as_mut().filter(|given| Some(given.address) != address) {
            let nothing = Given::nothing(gone.address);
            self.write_keys(gone, &nothing)?;
            *given = None;
        }
        let Some(next) = next else { return Ok(()) };
        let given = given.get_or_insert_with(|| Given::nothing(next.address));
        self.write_keys(given, &next)?;
        // In its order: the next look is to find nothing to do.
        *given = next;
        Ok(())
    }

    /// The same at one address. Stops at the first write that is refused.
    fn write_keys(&mut self, given: &mut Given, next: &Given) -> Result<(), Error> {
        let address = given.address;
        for write in given.towards(next) {
            match write {
                Write::Doubt(key) => self.dataplane.believe(address, key.id().0, None)?,
                Write::Believe(key) => {
                    self.dataplane.believe(address, key.id().0, Some(key.halves()))?;
                }
                Write::Speak(key) => {
                    let key = key.map(|key| (key.id().0, key.halves()));
                    self.dataplane.speak_to(address, key)?;
                }
            }
            given.take(write);
        }
        Ok(())
    }

    /// What became of all messages.
    pub(super) fn feedback_counters(&self) -> Vec<(&'static str, u64)> {
        let Some(c) = self.dataplane.feedback() else { return Vec::new() };
        vec![
            ("feedback.sampled", c.sampled),
            ("feedback.uncloned", c.uncloned),
            ("feedback.told", c.told),
            ("feedback.unknown", c.unknown),
            ("feedback.unfit", c.unfit),
            ("feedback.heard", c.heard),
            ("feedback.malformed", c.malformed),
            ("feedback.strangers", c.strangers),
            ("feedback.forged", c.forged),
            ("feedback.replayed", c.replayed),
            ("feedback.impossible", c.impossible),
            ("feedback.strayed", c.strayed),
            ("feedback.late", c.late),
            ("feedback.full", c.full),
            ("feedback.unrung", c.unrung),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::{Incarnation, Key, KeyId, Lives};

    fn key(id: u8, life: u64) -> FeedbackKey {
        let fleet = Key::from_hex("000102030405060708090a0b0c0d0e0f").expect("a key");
        let lives = |host| (HostId(host), Incarnation::new(life).expect("not zero"));
        FeedbackKey::derive(KeyId(id), &fleet, Lives { from: lives(1), to: lives(2) })
    }

    fn given(speaks: Option<FeedbackKey>, believes: &[FeedbackKey]) -> Given {
        Given { address: Ipv4Addr::LOCALHOST, speaks, believes: believes.to_vec() }
    }

    #[test]
    fn an_exchange_that_was_refused_half_way_goes_on_and_gives_no_key_twice() {
        let (old, both) = (given(Some(key(0, 1)), &[key(0, 1)]), [key(1, 1), key(0, 1)]);
        let other_life = given(Some(key(1, 2)), &[key(1, 2), key(0, 2)]);
        let nothing = Given::nothing(Ipv4Addr::LOCALHOST);
        let cases = [
            (nothing.clone(), old.clone()),
            (old.clone(), given(Some(key(1, 1)), &both)),
            (given(Some(key(1, 1)), &both), given(Some(key(1, 1)), &both[..1])),
            (old.clone(), other_life.clone()),
            (other_life, nothing),
        ];
        for (before, next) in cases {
            let all = before.towards(&next);
            for refused in 0..=all.len() {
                let mut given = before.clone();
                let done = &all[..refused];
                done.iter().for_each(|write| given.take(*write));
                let rest = given.towards(&next);
                assert_eq!([done, &rest[..]].concat(), all, "{before:?} to {next:?}");
                rest.into_iter().for_each(|write| given.take(write));
                assert_eq!(given.towards(&next), [], "{given:?} is {next:?}");
            }
        }
        let (first, rest) = (key(0, 1), given(Some(key(1, 1)), &both));
        assert!(!old.towards(&rest).contains(&Write::Believe(first)), "its window stays");
    }
}
