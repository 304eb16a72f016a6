//! Why a pair has its rate under Level: for people.

use super::{Level, Machine, Toward};
use crate::host::Setting;
use crate::mechanism::explain::{Facts, Named, Side, Summary};
use weir_units::{PairId, Rate, Time};

/// Both ends of a pair, as far as they are on this host.
#[derive(Clone, Debug)]
pub struct PairView {
    /// Which pair.
    pub pair: PairId,
    /// What guarantee partitioning knows of it.
    pub floors: crate::elasticswitch::PairView,
    /// The source's side, if it is here.
    pub send: Option<SendView>,
    /// What the destination's host tells the source's, if the destination is here.
    pub allowed: Option<Level>,
}

/// What the source's host knows.
#[derive(Clone, Copy, Debug)]
pub struct SendView {
    /// What the data plane should have.
    pub setting: Setting,
    /// The level that the destination's host allows; `None` within a host.
    pub level: Option<Level>,
    /// The uplink's line rate.
    pub line: Rate,
}

impl Machine {
    /// All pairs of this host, in the order of their ids.
    pub(crate) fn pairs(&mut self, now: Time) -> Vec<PairView> {
        let floors = self.floors.pairs(now);
        floors.into_iter().map(|floors| self.view(floors)).collect()
    }

    /// One pair, if it is active here.
    pub(crate) fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        self.floors.pair(now, pair).map(|floors| self.view(floors))
    }

    fn view(&self, floors: crate::elasticswitch::PairView) -> PairView {
        let pair = floors.pair;
        let far = |vm| self.homes.get(&vm).filter(|home| **home != self.host);
        let level = far(pair.dst).map(|to| self.toward.get(to).map_or(Level::ONE, Toward::level));
        let send = floors.send.as_ref().map(|_| {
            let setting = self.orders.pairs.get(pair).unwrap_or_default();
            SendView { setting, level, line: self.line }
        });
        let path = far(pair.src).and_then(|from| self.paths.get(from));
        let allowed = floors.receive.as_ref().and(path).map(super::Path::level);
        PairView { pair, floors, send, allowed }
    }
}

impl PairView {
    /// One line about it.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = crate::mechanism::elasticswitch::explain::summary(&self.floors);
        if let Some(send) = &self.send {
            summary.side = Side::of(true, self.floors.receive.is_some());
            (summary.floor, summary.rate) = (send.setting.floor, send.setting.ceiling);
        }
        let level = self.send.and_then(|send| send.level).or(self.allowed);
        summary.phase = level.map_or("local".into(), |level| format!("level {level}"));
        summary
    }

    /// Why it has its rate, one sentence each.
    pub(crate) fn reasons(&self, named: Named<'_>, facts: &Facts) -> Vec<String> {
        let Named { src, dst, .. } = named;
        let mut reasons = Vec::new();
        if let Some(send) = self.send {
            let Setting { floor, ceiling } = send.setting;
            reasons.push(format!("Guarantee partitioning gives the pair a floor of {floor}."));
            reasons.push(match send.level {
                None => format!("{dst} is on this host, too: nothing but the line is a limit."),
                Some(Level::ONE) => format!(
                    "{dst}'s host allows nothing above it: it is full, or has not spoken lately."
                ),
                Some(level) => format!(
                    "{dst}'s host allows {level} times the floor. {src} may send {ceiling}: as much, \
                     or what the pair has grown to."
                ),
            });
            facts.in_force(send.setting, &mut reasons);
        }
        if let Some(allowed) = self.allowed {
            reasons.push(format!(
                "This host tells {src}'s host to send at most {allowed} times each floor."
            ));
        }
        reasons
    }
}
