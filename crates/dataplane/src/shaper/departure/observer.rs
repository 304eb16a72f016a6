//! The shaper that limits nothing: it keeps levels that the kernel does not see.
//!
//! Problem   An operator wants to see what an agent would do before the agent does it.
//! Approach  The tree of departure times in private memory, where no program finds it. Levels are
//!           checked, scaled and read back as in a shaper that enforces.
//! Promises  It delays, marks and drops no packet.
//! Not here  The programs, which change nothing either: `WEIR_OBSERVE` in `bpf/`.

use super::Tree;
use crate::intf::NODES;
use crate::shaper::{
    Changes, ClassId, ClassStats, Error, Fault, Kind, PairRate, Shaper, ShaperConfig, VmClasses,
    VmShare,
};
use crate::table::CounterArray;
use std::collections::BTreeSet;
use weir_core::classes::Overbooked;
use weir_units::{Bytes, PairId, VmId};

/// Levels without a queue. See [`Shaper`] for the order of calls.
pub struct Observer(Tree);

impl Observer {
    /// With no levels yet.
    ///
    /// # Errors
    ///
    /// A configuration that contradicts itself.
    pub fn new(config: ShaperConfig) -> Result<Self, Error> {
        Tree::new(config, CounterArray::in_memory(NODES as usize), &[]).map(Self)
    }
}

impl Shaper for Observer {
    fn kind(&self) -> Kind {
        Kind::Observer
    }

    fn apply_vms(&mut self, vms: &[VmShare]) -> Result<Changes, Error> {
        self.0.apply_vms(vms)
    }

    fn faults(&mut self, _whole: bool) -> Result<Vec<Fault>, Error> {
        Ok(Vec::new())
    }

    fn vm_classes(&self, vm: VmId) -> Option<VmClasses> {
        self.0.vm_classes(vm)
    }

    fn claim(&mut self, pairs: &[(PairId, ClassId)]) -> Result<Vec<PairId>, Error> {
        Ok(self.0.claim(pairs))
    }

    fn admitted(&self, pairs: &[PairId]) -> BTreeSet<PairId> {
        self.0.admitted(pairs)
    }

    fn add_pairs(&mut self, pairs: &[PairId]) -> Result<Vec<ClassId>, Error> {
        self.0.add_pairs(pairs)
    }

    fn set(&mut self, rates: &[(PairId, PairRate)]) -> Result<usize, Error> {
        self.0.set(rates)
    }

    fn set_room(&mut self, pair: PairId, room: Option<Bytes>) -> Result<(), Error> {
        self.0.set_room(pair, room);
        Ok(())
    }

    fn remove(&mut self, pairs: &[PairId]) -> Result<(), Error> {
        self.0.remove(pairs);
        Ok(())
    }

    fn read_back(&mut self) -> Result<Vec<(PairId, PairRate)>, Error> {
        Ok(self.0.read_back())
    }

    fn refresh(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn renew(&mut self, _now_ns: u64) {}

    fn overbooked(&self) -> Option<Overbooked> {
        self.0.overbooked()
    }

    fn stats(&mut self) -> Result<Vec<ClassStats>, Error> {
        Ok(Vec::new())
    }

    fn close(self: Box<Self>) -> Result<(), Error> {
        Ok(())
    }
}
