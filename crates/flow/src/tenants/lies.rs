//! What a tenant would win by asking for another floor than it needs.
//!
//! Approach  Of an interval's tenants some are taken one at a time. Its floors, and so what it pays for, what
//!           it has reserved and what its U-factor is a part of, become a multiple. All else stays as it is: the
//!           others, the queues that all have, what it uses. The interval is then decided twice.
//! Source    QShare §5.2: asking for less lowers the bound of the score; asking for more costs more.

use super::intervals::contender;
use super::site::{Site, Tenant};
use super::{Numbers, part};
use weir_core::binding::{Binder, Contender, Place, Why};
use weir_core::ledger::{Direction, Need};
use weir_model::scenario::Datacenter;
use weir_units::{Rate, SplitMix64};

/// How trials ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    tried: usize,
    /// The links would not promise it.
    refused: usize,
    /// A queue that it would not have had.
    won: usize,
    /// Of these: where weights would not have held the floors that it needs.
    won_by_weights: usize,
    /// No queue where it would have had one.
    lost: usize,
}

impl Tally {
    pub(super) fn numbers(self) -> Numbers {
        if self.tried == 0 {
            return Numbers::new();
        }
        let of = |count: usize| part(count, self.tried);
        let numbers = [
            ("lies_tried", self.tried as f64),
            ("lies_refused", of(self.refused)),
            ("lies_won", of(self.won)),
            ("lies_won_by_weights", of(self.won_by_weights)),
            ("lies_lost", of(self.lost)),
        ];
        numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The moment at which an interval is decided.
pub(super) struct Trial<'a> {
    pub(super) of: &'a Datacenter,
    pub(super) site: &'a Site,
    pub(super) binder: &'a Binder,
    pub(super) contenders: &'a [Contender],
    pub(super) wants: &'a [f64],
    pub(super) seed: u64,
}

impl Trial<'_> {
    /// Tries some tenants.
    pub(super) fn run(&self, random: &mut SplitMix64, tally: &mut Tally) {
        let count = self.site.tenants.len() as u64;
        for _ in 0..self.of.deviations.min(count as u32) {
            let tenant = random.below(count) as usize;
            let of = &self.site.tenants[tenant];
            if !of.needs.is_empty() && self.wants[tenant] > 0.0 {
                self.one(tenant, of, tally);
            }
        }
    }

    fn one(&self, tenant: usize, of: &Tenant, tally: &mut Tally) {
        tally.tried += 1;
        let claims = of.claiming(self.of.asks);
        if !self.admits(of, &claims) {
            tally.refused += 1;
            return;
        }
        // What it uses does not depend on what it asks for, also in the shared queue: that favours
        // those who ask for less.
        let wants = self.wants[tenant];
        let honest = contender(of, wants.min(1.0));
        let usage = (wants / self.of.asks).min(1.0);
        let liar = contender(&claims, usage);
        let place = |one: Contender| {
            let mut all = self.contenders.to_vec();
            all[tenant] = one;
            let mut binder = self.binder.clone();
            binder.bind(&all, self.seed);
            binder.place(of.id)
        };
        match (place(honest), place(liar)) {
            (Some(Place::Shared(why)), Some(Place::Dedicated(_))) => {
                tally.won += 1;
                tally.won_by_weights += usize::from(matches!(why, Why::Weights(_)));
            }
            (Some(Place::Dedicated(_)), Some(Place::Shared(_))) => tally.lost += 1,
            _ => {}
        }
    }

    /// Whether all links would promise these claims instead.
    fn admits(&self, of: &Tenant, claims: &Tenant) -> bool {
        let fits = |old: &Need, new: &Need| {
            let ways = [
                (Direction::Forward, old.forward, new.forward),
                (Direction::Backward, old.backward, new.backward),
            ];
            let link = old.link;
            ways.iter().all(|(direction, old, new)| {
                let (most, reserved) = self.site.ledger.link(link, *direction);
                reserved.saturating_sub(*old) + *new <= most
            })
        };
        of.needs.iter().zip(&claims.needs).all(|(old, new)| fits(old, new))
    }
}

impl Tenant {
    /// The same tenant with a multiple of its floors.
    fn claiming(&self, asks: f64) -> Self {
        let times = |rate: Rate| Rate::from_bps((rate.as_f64() * asks).round() as u64);
        let need = |need: &Need| Need {
            link: need.link,
            forward: times(need.forward),
            backward: times(need.backward),
        };
        Self {
            payment: times(self.payment),
            asks,
            needs: self.needs.iter().map(need).collect(),
            ..self.clone()
        }
    }
}
