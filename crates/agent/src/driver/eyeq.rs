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
//! Promises  A key that stays is not given again: its sequence and its window go on. A limit of a pair that
//!           is nobody's here is removed within a heartbeat. With another mechanism all this is nothing.
//! Not here  What follows from a limit: `machine`. The programs: `weir_dataplane::eyeq`.

use super::Driver;
use crate::config::Setup;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_dataplane::Error;
use weir_dataplane::eyeq::intf::Settings;
use weir_units::{HostId, Time};
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

/// What EyeQ's programs need to know; `None` if another mechanism decides.
pub(super) fn of(setup: &Setup) -> Option<weir_dataplane::EyeQ> {
    let law = setup.eyeq.as_ref()?;
    let (eyeq, input) = (&law.eyeq, law.eyeq.law());
    let unit = eyeq.feedback_unit.as_bps().max(1);
    let at = |host: &HostId| setup.hosts.get(host).and_then(|(_, control)| ipv4(control));
    let place = |(vm, location): (_, &weir_core::host::Location)| Some((vm, at(&location.host)?));
    Some(weir_dataplane::EyeQ {
        address: ipv4(&setup.file.listen)?,
        settings: Settings {
            period_ns: eyeq.period.as_nanos(),
            feedback_octets: eyeq.feedback_octets.get(),
            unit_bps: unit,
            most_units: law.fastest_line.as_bps().div_ceil(unit).min(u16::MAX.into()),
            alpha: input.alpha,
            least_factor: input.least_factor,
            queue_octets: input.queue_octets,
            ..Settings::default()
        },
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

impl Driver {
    /// What the ring told of limits.
    pub(super) fn take_limits(&mut self, now: Time) {
        let limited = self.dataplane.take_limited();
        let Some(eyeq) = self.agent.eyeq() else { return };
        if limited.is_empty() {
            return;
        }
        match self.dataplane.limits_of(limited) {
            Ok(limits) => limits.iter().for_each(|(pair, limit)| eyeq.hear(now, *pair, limit)),
            // The next heartbeat reads them again.
            Err(e) => tracing::debug!("limits could not be read: {e}"),
        }
        eyeq.follow_limits();
    }

    /// Meters, and what receivers allow the pairs of this host.
    pub(super) fn read_feedback(&mut self, now: Time) -> Result<(), Error> {
        let Some(eyeq) = self.agent.eyeq() else { return Ok(()) };
        for (vm, meter) in self.dataplane.meters()? {
            eyeq.meter(now, vm, meter);
        }
        let limits = self.dataplane.limits_of(eyeq.take_asked())?;
        limits.iter().for_each(|(pair, limit)| eyeq.hear(now, *pair, limit));
        Ok(())
    }
        departs_within: eyeq.departs_within,

    /// What VMs here may receive, if it changed.
    pub(super) fn write_shares(&mut self) {
        let Some(eyeq) = self.agent.eyeq() else { return };
        for (vm, share) in eyeq.take_shares() {
            self.dataplane.set_share(vm, share);
        }
    }

    /// With every heartbeat: limits of nobody, keys, and peers that are not confirmed.
    pub(super) fn tend_feedback(&mut self, now: Time) {
        let Some(eyeq) = self.agent.eyeq() else { return };
        match self.dataplane.limits() {
            Ok(limits) => {
                for (pair, limit) in limits {
                    // Also one of which the ring had no room to tell.
                    if eyeq.knows(pair) {
                        eyeq.hear(now, pair, &limit);
                    } else if let Err(e) = self.dataplane.lift_limit(pair) {
                        tracing::error!("a limit of nobody stays: {e}");
                    }
                }
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
            self.greet(now, host);
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
        if self.agent.eyeq().is_none() {
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
        if self.agent.eyeq().is_none() {
            return;
        }
        let address = self.peers.get(&host).and_then(ipv4);
        let next = address.map(|address| Given {
            address,
            speaks: self.session.feedback_key(host),
            believes: self.session.feedback_keys_from(host),
        });
        let before = self.spoken.given.get(&host).cloned();
        if before == next {
            return;
        }
        match self.exchange(before.as_ref(), next.as_ref()) {
            Ok(()) => {
                self.spoken.given.remove(&host);
                self.spoken.given.extend(next.map(|next| (host, next)));
            }
            // What was written of it is written again at the next heartbeat.
            Err(e) => tracing::error!("keys for feedback of {host} were not given: {e}"),
        }
    }

    fn exchange(&mut self, before: Option<&Given>, next: Option<&Given>) -> Result<(), Error> {
        let is_moved = before.map(|given| given.address) != next.map(|given| given.address);
        let former = before.filter(|_| !is_moved);
        if let Some(gone) = before.filter(|_| is_moved) {
            self.dataplane.speak_to(gone.address, None)?;
            for key in &gone.believes {
                self.dataplane.believe(gone.address, key.id().0, None)?;
            }
        }
        let Some(next) = next else { return Ok(()) };
        let known: &[FeedbackKey] = former.map_or(&[][..], |former| &former.believes[..]);
        for key in known.iter().filter(|key| next.believes.iter().all(|k| k.id() != key.id())) {
            self.dataplane.believe(next.address, key.id().0, None)?;
        }
        for key in next.believes.iter().filter(|key| !known.contains(key)) {
            self.dataplane.believe(next.address, key.id().0, Some(key.halves()))?;
        }
        if former.and_then(|former| former.speaks) != next.speaks {
            let key = next.speaks.map(|key| (key.id().0, key.halves()));
            self.dataplane.speak_to(next.address, key)?;
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
