//! What is held against the promises, at every look and at the end.

mod agreement;
mod floors;
mod hoses;
mod limits;
mod owed;
mod packets;
mod state;
mod trouble;

use crate::breach::{Breach, Breaches};
use crate::terms::Terms;
use weir_sim::Look;

pub use floors::Judged;
pub use owed::Exempt;

/// All checks of one run.
#[derive(Debug)]
pub(crate) struct Checks {
    terms: Terms,
    breaches: Breaches,
    hoses: hoses::Hoses,
    limits: limits::Limits,
    packets: packets::Packets,
    agreement: agreement::Agreement,
    pub(crate) floors: floors::Floors,
}

impl Checks {
    /// `ways` of each traffic entry of the run, see [`weir_sim::scenario::Run::ways`].
    pub(crate) fn new(terms: Terms, ways: &[Vec<Vec<u32>>]) -> Self {
        Self {
            hoses: hoses::Hoses::new(&terms),
            limits: limits::Limits::new(&terms),
            packets: packets::Packets::default(),
            agreement: agreement::Agreement::default(),
            floors: floors::Floors::new(ways),
            breaches: Breaches::default(),
            terms,
        }
    }

    /// At any moment; looks come in the order of time.
    pub(crate) fn look(&mut self, look: &Look) {
        let Self { terms, breaches, .. } = self;
        self.hoses.look(terms, look, breaches);
        self.limits.look(terms, look, breaches);
        self.packets.look(terms, look, breaches);
        state::look(terms, look, breaches);
        self.agreement.look(terms, look);
        self.floors.look(look);
    }

    /// At the last moment; `octets` of payload have arrived per traffic entry since floors are judged.
    pub(crate) fn end(mut self, look: &Look, octets: &[u64]) -> (Vec<Breach>, Judged) {
        self.agreement.end(&self.terms, look, &mut self.breaches);
        self.floors.end(&self.terms, look, octets, &mut self.breaches);
        (self.breaches.into_list(), self.floors.judged)
    }
}

#[cfg(test)]
mod mutants;
