//! The rates of pairs: their classes, levels and lease, and which shaper enforces them.
//!
//! Problem   A pair's class and its entry in the programs' map belong together, and the guardian may
//!           lower ceilings meanwhile.
//! Approach  Levels are compared with what the shaper knows; after the guardian acted, with the kernel.
//! Not here  Classes and queues: see `shaper`. How one shaper follows another: see `switch`.

use super::fill::{brake_at, first_ports, stray_bps};
use super::{Dataplane, eyeq};
use crate::attach::Interface;
use crate::config::{Config, Direction, PairRate};
use crate::error::Error;
use crate::instance::{Deed, Journal};
use crate::intf;
use crate::probe;
use crate::programs::Programs;
use crate::shaper::{
    self, ClassId, DepartureTimes, HTB_CARRIES, Htb, Kind, LONGEST_WAIT, PairRate as Levels,
    QUEUE_WAIT, Shaper, ShaperConfig, VmShare,
};
use std::collections::BTreeSet;
use weir_core::host::Brake;
use weir_units::{Bytes, PairId, Rate, VmId};

impl Dataplane {
    /// Sets levels of pairs that send from here. A pair without a class gets one, with its levels
    /// set before its packets go there. Writes only differences, in one batch.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`]; a ceiling below its floor; floors above the VM's. Nothing has changed
    /// then.
    ///
    /// Pairs that find no class are omitted and returned: each VM has a quota of classes.
    pub fn set(&mut self, rates: &[PairRate]) -> Result<Vec<PairId>, Error> {
        if let Some(rate) = rates.iter().find(|r| !self.local.contains(&r.pair.src)) {
            return Err(Error::NotLocal(rate.pair));
        }
        if self.lease.reclaims() != self.reclaims {
            // `renew_lease` tells the caller; here only the cached state must be correct.
            self.shaper.refresh()?;
        }
        let unbound: BTreeSet<PairId> =
            rates.iter().map(|r| r.pair).filter(|p| !self.bound.contains_key(p)).collect();
        let unbound: Vec<PairId> = unbound.into_iter().collect();
        let admitted = self.shaper.admitted(&unbound);
        let (unbound, left_out): (Vec<PairId>, Vec<PairId>) =
            unbound.into_iter().partition(|pair| admitted.contains(pair));
        let classes = self.shaper.add_pairs(&unbound)?;
        let rates = rates.iter().filter(|r| !left_out.contains(&r.pair));
        let levels: Vec<_> =
            rates.map(|r| (r.pair, Levels { floor: r.floor, ceiling: r.ceiling })).collect();
        if let Err(error) = self.shaper.set(&levels) {
            self.shaper.remove(&unbound)?;
            return Err(error.into());
        }
        for (pair, class) in unbound.into_iter().zip(classes) {
            self.programs.classes.put(pair.into(), class.0)?;
            self.bound.insert(pair, class);
            self.pairs.revive(pair);
        }
        Ok(left_out)
    }

    /// Whether a pair has a class of its own, and with it levels.
    pub fn has_class(&self, pair: PairId) -> bool {
        self.bound.contains_key(&pair)
    }

    /// Forgets ends of pairs. A sender's class returns to the pool, and the pair appears anew,
    /// counting from zero, when it sends again. Unknown pairs are ignored. An end that cannot be
    /// forgotten does not keep the others.
    pub fn forget(&mut self, ends: &[(PairId, Direction)]) -> Result<(), Error> {
        let mut unbound = Vec::new();
        let mut failed = Ok(());
        for (pair, direction) in ends {
            let forgotten = match direction {
                Direction::Rx => self.forget_receiving(*pair),
                Direction::Tx => self.forget_sending(*pair, &mut unbound),
            };
            failed = failed.and(forgotten);
        }
        self.shaper.remove(&unbound)?;
        failed
    }

    /// What the queue of a pair that sends from here may hold; `None`: what all may.
    pub fn set_room(&mut self, pair: PairId, room: Option<Bytes>) -> Result<(), Error> {
        Ok(self.shaper.set_room(pair, room)?)
    }

    /// What a pair that receives here is offered, if it shows marks that a guest or a translation answers: they do not
    /// see those of a pair that gets no more. `None`: they see all.
    pub fn spare_marks(&mut self, pair: PairId, offer: Option<Rate>) -> Result<(), Error> {
        match offer {
            Some(offer) => self.programs.offers.put(pair.into(), offer.as_bps()),
            None => self.programs.offers.delete(pair.into()).map(drop),
        }
    }

    /// Lowers what a VM's pairs without a class may send together, or gives it back.
    pub fn brake_strays(&mut self, vm: VmId, brake: Brake) -> Result<(), Error> {
        if brake == Brake::NONE {
            self.brakes.remove(&vm);
        } else {
            self.brakes.insert(vm, brake);
        }
        let Some(own) = self.config.ports.iter().find(|port| port.vm == vm) else { return Ok(()) };
        let interface = &own.interface;
        let first = first_ports(&self.config).find(|port| port.interface == *interface);
        let first = first.expect("it is one of them").vm;
        let Some(classes) = self.shaper.vm_classes(first) else { return Ok(()) };
        let stray_bps = stray_bps(&classes, brake_at(&self.config, &self.brakes, interface));
        let found = self.programs.ports.read()?.find(|(_, port)| port.vm == first.0);
        let Some((index, port)) = found else { return Ok(()) };
        self.programs.ports.put(index, intf::Port { stray_bps, ..port })
    }

    fn forget_receiving(&mut self, pair: PairId) -> Result<(), Error> {
        self.programs.offers.delete(pair.into())?;
        self.programs.rx.delete(pair.into())?;
        self.pairs.forget_lost(pair);
        Ok(())
    }

    /// First the steering, then the queue: no packet goes to a class that is not its own. `unbound`
    /// gets the pair if its queue is to be removed.
    fn forget_sending(&mut self, pair: PairId, unbound: &mut Vec<PairId>) -> Result<(), Error> {
        if self.bound.contains_key(&pair) {
            self.programs.classes.delete(pair.into())?;
            self.bound.remove(&pair);
            unbound.push(pair);
        }
        eyeq::lift(&self.programs, pair)?;
        if let Some(tx) = self.programs.tx.get(pair.into())? {
            self.pairs.forget(pair, tx.into());
        }
        Ok(())
    }

    /// Renews the lease at `now_ns`, on the kernel's monotonic clock, so that pairs keep what they
    /// borrow.
    ///
    /// Returns whether the guardian has taken back what was borrowed since the last call. The
    /// caller then sets all levels again, also those that did not change.
    pub fn renew_lease(&mut self, now_ns: u64) -> Result<bool, Error> {
        self.lease.beat(now_ns);
        self.shaper.renew(now_ns);
        self.mend_after_reclaim()
    }

    /// The queues' own counters and lengths.
    pub fn queues(&mut self) -> Result<Vec<shaper::ClassStats>, Error> {
        let mut queues = self.shaper.stats()?;
        for queue in &mut queues {
            let tx = queue.pair.map(|pair| self.programs.tx.get(pair.into())).transpose()?;
            queue.drops += tx.flatten().map_or(0, |tx| tx.dropped);
        }
        Ok(queues)
    }

    /// The levels as the kernel has them.
    pub fn levels(&mut self) -> Result<Vec<PairRate>, Error> {
        let levels = self.shaper.read_back()?.into_iter();
        Ok(levels.map(|(pair, l)| PairRate { pair, floor: l.floor, ceiling: l.ceiling }).collect())
    }

    /// The guardian lowered ceilings while the agent was silent: reads the kernel's state.
    fn mend_after_reclaim(&mut self) -> Result<bool, Error> {
        let reclaims = self.lease.reclaims();
        let reclaimed = reclaims != self.reclaims;
        if reclaimed {
            self.shaper.refresh()?;
            self.reclaims = reclaims;
        }
        Ok(reclaimed)
    }
}

/// The shaper to try first, and the one to try if the host cannot have it. An earlier agent's HTB
/// stays, because trying another shaper would end it.
pub(super) fn choice(config: &Config) -> Result<(Kind, Option<Kind>), Error> {
    Ok(match config.shaper {
        Some(kind) => (kind, None),
        None if config.uplink_rate <= HTB_CARRIES => (Kind::Htb, None),
        None if shaper::exists(&config.instance)? => (Kind::Htb, None),
        None => (Kind::DepartureTime, Some(Kind::Htb)),
    })
}

/// Whether the error means that a host cannot have this shaper.
pub(super) const fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Shaper(shaper::Error::NoFq | shaper::Error::Foreign { .. }))
}

pub(super) fn open_shaper(
    kind: Kind,
    config: &Config,
    uplink: &Interface,
    programs: &mut Programs,
    journal: &mut Journal,
) -> Result<Box<dyn Shaper + Send>, Error> {
    let deed = match kind {
        Kind::DepartureTime => Some(Deed::Fq(uplink.clone())),
        Kind::Htb if !config.host_floor.is_zero() => Some(Deed::Htb(uplink.clone())),
        Kind::Htb | Kind::Observer => None,
    };
    give_back_roots(journal, deed.as_ref())?;
    if let Some(deed) = deed
        && !journal.has(&deed)
    {
        journal.record(deed)?;
    }
    if kind == Kind::Htb {
        return Ok(Box::new(
            Htb::open(shaper_config(config))?
                .beside_host(uplink.device())?
                .bounded_in_time(programs.levels()?)?
                .leased(programs.lease()?),
        ));
    }
    let mut before: Vec<_> =
        programs.classes.read()?.map(|(pair, class)| (VmId(pair.src), ClassId(class))).collect();
    let ports = programs.ports.read()?;
    before.extend(ports.map(|(_, port)| (VmId(port.vm), ClassId(port.default_class))));
    let (maps, uplink) = (programs.departures()?, uplink.device());
    // Stamp counts every outer header by itself.
    let config = ShaperConfig { overhead: 0, ..shaper_config(config) };
    Ok(Box::new(DepartureTimes::open(config, uplink, maps, &before)?))
}

/// Gives back the roots of uplinks that an earlier agent took and this one does not need, all but
/// `kept`.
fn give_back_roots(journal: &mut Journal, kept: Option<&Deed>) -> Result<(), Error> {
    let over: Vec<Deed> = journal
        .deeds
        .iter()
        .filter(|d| d.rooted().is_some() && Some(*d) != kept)
        .cloned()
        .collect();
    for uplink in over.iter().filter_map(Deed::rooted).filter(|uplink| uplink.is_there()) {
        shaper::release(&uplink.device())?;
    }
    journal.strike(|deed| over.contains(deed))
}

pub(super) fn shaper_config(config: &Config) -> ShaperConfig {
    let departs_within = config.eyeq.as_ref().and_then(|eyeq| eyeq.departs_within);
    ShaperConfig {
        departs_within: departs_within.map_or(QUEUE_WAIT, |within| within.min(LONGEST_WAIT)),
        default_rate: config.default_rate,
        max_pairs: config.max_pairs as usize,
        overhead: config.tunnels.overhead,
        host_floor: config.host_floor,
        sends_by_bursts: probe::htb_sends_by_bursts(&probe::Roots::default()),
        is_paced: config.timed_every.is_some(),
        ..ShaperConfig::new(&config.instance, config.uplink_rate)
    }
}

pub(super) fn shares(config: &Config) -> Vec<VmShare> {
    let share = |p: &crate::config::Port| VmShare {
        vm: p.vm,
        port: p.interface.clone(),
        floor: p.floor_out,
        cap: p.cap_out,
        external: p.external,
    };
    config.ports.iter().map(share).collect()
}
