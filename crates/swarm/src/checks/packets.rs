//! Every packet is delivered, dropped or in flight, and what was dropped was dropped somewhere.

use crate::breach::Breaches;
use crate::terms::Terms;
use weir_model::scenario::FaultKind;
use weir_sim::Look;

const CHECK: &str = "packets";

/// What the look before saw.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// Launched, delivered, dropped.
    before: [u64; 3],
}

impl Packets {
    pub(super) fn look(&mut self, terms: &Terms, look: &Look, breaches: &mut Breaches) {
        let weir_sim::Packets { launched, delivered, dropped, in_flight } = look.packets;
        let mut unless = |holds: bool, what: &dyn Fn() -> String| {
            breaches.unless(holds, (look.at, CHECK), "the network", what);
        };
        unless(launched == delivered + dropped + in_flight, &|| {
            format!(
                "{launched} launched, {delivered} delivered, {dropped} dropped, {in_flight} in flight"
            )
        });
        let now = [launched, delivered, dropped];
        let grew = now.iter().zip(&self.before).all(|(now, before)| now >= before);
        unless(grew, &|| format!("{:?} became {now:?}", self.before));
        let ports: u64 = look.links.iter().map(|link| link.drops + link.lost).sum();
        let shapers: u64 = look.hosts.iter().map(|host| host.shaper_drops).sum();
        // A network card of a host that stands still drops what it has no room for.
        let pauses = |kind: &FaultKind| matches!(kind, FaultKind::PauseHost { .. });
        let cards = terms.scenario.faults.iter().any(|fault| pauses(&fault.kind));
        unless(dropped == ports + shapers || cards && dropped > ports + shapers, &|| {
            format!("{dropped} dropped, {ports} by ports and {shapers} by shapers")
        });
        self.before = now;
    }
}
