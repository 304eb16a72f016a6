//! The part of a hose that a receiver must count as spent on one pair.
//!
//! Problem   An offer is a promise in the sender's hands. A smaller one may be lost or late, and
//!           until it arrives the sender holds the larger one.
//! Approach  Spent = the largest offer that the sender may still hold. It falls when the sender
//!           echoes a serial from which on all offers were smaller, or when the sender must have
//!           dropped the larger one (silence).
//! Promises  Spent ≥ every offer whose serial is not older than the last echoed one.
//! Not here  The sum over pairs: see `receive`.
//! Source    None: ElasticSwitch §4 assumes that messages arrive in time.

use super::older;
use weir_units::{Rate, Span, Time};

/// One pair's account.
#[derive(Clone, Copy, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Account {
    offer: Rate,
    spent: Rate,
    /// All offers from here on are at most `offer`.
    low: Mark,
    /// If `spent` is above `offer`: the value to which it falls, and the time.
    pending: Option<(Rate, Mark)>,
}

/// A moment in the sequence of offers.
#[derive(Clone, Copy, Default, Debug, serde::Serialize, serde::Deserialize)]
struct Mark {
    serial: u32,
    at: Time,
}

impl Account {
    /// The current offer.
    pub(super) const fn offer(&self) -> Rate {
        self.offer
    }

    /// The most that the sender may hold.
    pub(super) const fn spent(&self) -> Rate {
        self.spent
    }

    /// Whether an echo is awaited.
    pub(super) const fn awaits_echo(&self) -> bool {
        self.pending.is_some()
    }

    /// Offers `offer` from `serial` on. Spends more only if `offer` is above what is spent.
    pub(super) fn set(&mut self, now: Time, serial: u32, offer: Rate) {
        if offer < self.offer {
            self.low = Mark { serial, at: now };
        }
        self.offer = offer;
        if offer >= self.spent {
            self.spent = offer;
            self.pending = None;
        } else {
            // Two steps are remembered; what was offered between them is counted with the larger.
            let (rate, mark) = self.pending.unwrap_or((offer, self.low));
            self.pending = Some((rate.max(offer), mark));
        }
    }

    /// The sender holds the offer of `serial`, or a later one.
    pub(super) fn echoed(&mut self, serial: u32) {
        if let Some((_, mark)) = self.pending
            && !older(serial, mark.serial)
        {
            self.fall(!older(serial, self.low.serial));
        }
    }

    /// Without an echo, the sender has dropped the offers that it got `held_for` ago or earlier.
    pub(super) fn expire(&mut self, now: Time, held_for: Span) {
        if let Some((_, mark)) = self.pending
            && now.since(mark.at) > held_for
        {
            self.fall(now.since(self.low.at) > held_for);
        }
    }

    fn fall(&mut self, to_the_offer: bool) {
        let Some((rate, _)) = self.pending else { return };
        if to_the_offer || rate <= self.offer {
            self.spent = self.offer;
            self.pending = None;
        } else {
            self.spent = rate;
            self.pending = Some((self.offer, self.low));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_smaller_offer_frees_nothing_until_it_is_echoed() {
        let mut account = Account::default();
        account.set(Time::ZERO, 1, Rate::from_mbps(30));
        account.set(Time::ZERO, 2, Rate::from_mbps(10));
        assert_eq!(account.spent(), Rate::from_mbps(30));
        account.echoed(1);
        assert_eq!(account.spent(), Rate::from_mbps(30), "an echo of the older offer");
        account.echoed(2);
        assert_eq!(account.spent(), Rate::from_mbps(10));
        assert!(!account.awaits_echo());
    }

    #[test]
    fn echoes_that_lag_behind_ever_smaller_offers_still_free() {
        let mut account = Account::default();
        for serial in 0..100u32 {
            account.set(Time::ZERO, serial, Rate::from_bps(u64::from(1000 - serial)));
            if serial >= 3 {
                account.echoed(serial - 3);
                assert!(account.spent().as_bps() <= account.offer().as_bps() + 7);
            }
        }
    }

    proptest! {
        /// The model remembers every offer; the account remembers two.
        #[test]
        fn the_account_covers_every_offer_that_may_be_held(
            steps in prop::collection::vec((0u64..20, prop::option::of(0u32..6)), 1..60),
            first in any::<u32>(),
        ) {
            let mut account = Account::default();
            let mut offers: Vec<Rate> = Vec::new();
            let mut echoed = 0;
            for (offer, echo) in steps {
                let offer = Rate::from_bps(offer);
                account.set(Time::ZERO, first.wrapping_add(offers.len() as u32), offer);
                offers.push(offer);
                if let Some(back) = echo {
                    let newest = offers.len() - 1;
                    let at = newest.saturating_sub(back as usize);
                    account.echoed(first.wrapping_add(at as u32));
                    echoed = echoed.max(at);
                }
                let held = offers[echoed..].iter().max().copied().unwrap_or_default();
                prop_assert!(account.spent() >= held);
                prop_assert!(account.spent() >= account.offer());
                prop_assert_eq!(account.awaits_echo(), account.spent() > account.offer());
            }
        }
    }
}
