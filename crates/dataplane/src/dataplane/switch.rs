//! Switches from enforcing to observing and back, while packets flow.
//!
//! Problem   An operator does not trust an unknown agent with rates. The agent must first show what
//!           it would do, and be switched on and off without losing a packet.
//! Approach  The pairs and their levels move to another [`Shaper`], one of which limits nothing.
//!           Toward enforcing, its queues are complete before the programs name classes, and the
//!           programs name classes before a packet is redirected. Toward observing the order is
//!           reversed, and the former queues stay until their packets have left.
//! Promises  Pairs keep their levels. A packet is never sent to a queue that does not exist.
//! Not here  What programs do differently: `WEIR_OBSERVE` in `bpf/`.

use super::{Dataplane, open_shaper, settings, shares};
use crate::attach::Interface;
use crate::error::Error;
use crate::intf;
use crate::shaper::{ClassId, Observer, PairRate, Shaper};
use std::collections::BTreeMap;
use weir_units::PairId;

/// A shaper whose queues drain.
pub(super) struct Draining {
    pub(super) shaper: Box<dyn Shaper + Send>,
    /// It was empty at the last look; its last packets may still be on their way.
    is_idle: bool,
}

impl Dataplane {
    /// Whether packets are only counted.
    pub const fn observes(&self) -> bool {
        self.config.observe
    }

    /// Makes the datapath do as `self.config.observe` says, from the contrary. The ports are to be
    /// written next, for their classes are others now.
    pub(super) fn switch(&mut self) -> Result<(), Error> {
        let levels = self.shaper.read_back()?;
        if self.config.observe {
            let mut next: Box<dyn Shaper + Send> =
                Box::new(Observer::new(super::shaper_config(&self.config))?);
            let classes = self.furnish(&mut *next, &levels)?;
            self.shaper.let_pass()?;
            self.programs.set(self.settings()?)?;
            let shaper = std::mem::replace(&mut self.shaper, next);
            self.draining = Some(Draining { shaper, is_idle: false });
            return self.bind_anew(classes);
        }
        let mut next = match self.draining.take() {
            Some(Draining { shaper, .. }) => shaper,
            None => self.enforcer()?,
        };
        let classes = match self.furnish(&mut *next, &levels) {
            Ok(classes) => classes,
            Err(why) => {
                // The first error says more than one of the clean-up would.
                let _ = next.close();
                return Err(why);
            }
        };
        self.shaper = next;
        self.bind_anew(classes)
    }

    /// After the ports: the programs name classes from now on, and then packets go to them.
    pub(super) fn engage(&mut self) -> Result<(), Error> {
        self.programs.set(self.settings()?)?;
        self.shaper.engage();
        self.shaper.apply_vms(&shares(&self.config))?;
        Ok(())
    }

    /// The programs' settings, for the shaper in force.
    fn settings(&self) -> Result<intf::Settings, Error> {
        let uplink = Interface::find(&self.config.uplink)?;
        Ok(settings(&self.config, self.shaper.kind(), &uplink))
    }

    /// A shaper that limits, to which nothing is redirected yet.
    fn enforcer(&mut self) -> Result<Box<dyn Shaper + Send>, Error> {
        let (kind, alternative) = super::choice(&self.config)?;
        let uplink = Interface::find(&self.config.uplink)?;
        let mut open =
            |kind| open_shaper(kind, &self.config, &uplink, &mut self.programs, &mut self.journal);
        let mut next = match (open(kind), alternative) {
            (Err(error), Some(kind)) if super::is_unavailable(&error) => open(kind)?,
            (opened, _) => opened?,
        };
        next.let_pass()?;
        Ok(next)
    }

    /// Gives a shaper the VMs and the pairs with these levels.
    fn furnish(
        &self,
        next: &mut dyn Shaper,
        levels: &[(PairId, PairRate)],
    ) -> Result<BTreeMap<PairId, ClassId>, Error> {
        next.apply_vms(&shares(&self.config))?;
        let pairs: Vec<PairId> = self.bound.keys().copied().collect();
        // Both have room for as many.
        let gone: Vec<PairId> = next.read_back()?.into_iter().map(|(pair, _)| pair).collect();
        let gone: Vec<PairId> = gone.into_iter().filter(|p| !self.bound.contains_key(p)).collect();
        next.remove(&gone)?;
        let classes = next.add_pairs(&pairs)?;
        let known = levels.iter().filter(|(pair, _)| self.bound.contains_key(pair));
        let known: Vec<_> = known.copied().collect();
        next.set(&known)?;
        Ok(pairs.into_iter().zip(classes).collect())
    }

    fn bind_anew(&mut self, classes: BTreeMap<PairId, ClassId>) -> Result<(), Error> {
        for (pair, class) in &classes {
            self.programs.classes.put((*pair).into(), class.0)?;
        }
        self.bound = classes;
        Ok(())
    }

    /// For every heartbeat: removes queues that nothing enters any more when they are empty.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        let Some(draining) = &mut self.draining else { return Ok(()) };
        let was_idle = std::mem::replace(&mut draining.is_idle, draining.shaper.is_idle()?);
        if was_idle && draining.is_idle {
            let Some(Draining { shaper, .. }) = self.draining.take() else { return Ok(()) };
            shaper.close()?;
            self.journal.strike(|deed| deed.rooted().is_some())?;
        }
        Ok(())
    }
}
