//! Who needs a queue most.
//!
//! Source    QShare §5.1 (U-factor), §5.2 (payment factor), equations 1 and 2.

use weir_units::Rate;

/// What a tenant used on one network card in one direction, and what it is promised there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardUse {
    /// What crossed the card: mean over the control interval. What VMs of one host send to each
    /// other does not count.
    pub used: Rate,
    /// What the tenant has reserved there: the smaller of what its VMs on the host and those
    /// elsewhere may have. Zero if all its VMs are on this host.
    pub reserved: Rate,
}

/// The U-factor: the largest part of its reservation that a tenant uses on any card, at most 1.
/// A tenant without a reservation needs no queue: 0.
pub fn usage_factor(cards: impl IntoIterator<Item = CardUse>) -> f64 {
    let reserved = cards.into_iter().filter(|card| !card.reserved.is_zero());
    let parts = reserved.map(|card| card.used.as_f64() / card.reserved.as_f64());
    parts.fold(0.0, f64::max).min(1.0)
}

/// The score k·N·B·U with k = 1, in bit/s. `payment` is N·B: the sum of the floors that the tenant
/// pays for. With less than it wants, a tenant has a lower score; with more, it pays more.
pub fn score(payment: Rate, usage_factor: f64) -> f64 {
    payment.as_f64() * usage_factor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(used: u64, reserved: u64) -> CardUse {
        CardUse { used: Rate::from_mbps(used), reserved: Rate::from_mbps(reserved) }
    }

    #[test]
    fn the_busiest_card_counts_and_no_more_than_all_of_it() {
        assert_eq!(usage_factor([card(10, 100), card(60, 100), card(5, 0)]), 0.6);
        assert_eq!(usage_factor([card(500, 100)]), 1.0);
        assert_eq!(usage_factor([card(500, 0)]), 0.0);
        assert_eq!(usage_factor([]), 0.0);
    }

    #[test]
    fn a_tenant_gains_nothing_by_asking_for_less() {
        // It uses 80 of 100 on a card, of N·B = 1000; or says that it needs half.
        let honest = score(Rate::from_mbps(1000), usage_factor([card(80, 100)]));
        let liar = score(Rate::from_mbps(500), usage_factor([card(80, 50)]));
        assert!(liar < honest);
        // Below its floor the score follows its use alone, whatever it asked for.
        let small = score(Rate::from_mbps(1000), usage_factor([card(30, 100)]));
        let large = score(Rate::from_mbps(2000), usage_factor([card(30, 200)]));
        assert_eq!(small, large);
    }
}
