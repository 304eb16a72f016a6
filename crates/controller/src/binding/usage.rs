//! What tenants used of hosts' network cards, as the loop is told.
//!
//! Approach  Agents say what they counted since they began, and when, by their own clock. The rate
//!           between two reports is what counts, so it does not matter when a report arrives.

use super::network::Names;
use crate::agents::Report;
use crate::state::nic_of;
use std::collections::BTreeMap;
use weir_core::binding::control::Usage;
use weir_core::ledger::{Direction, LinkId};
use weir_units::{Bytes, Span, TenantId};

/// Reports of the last interval, by host.
#[derive(Debug, Default)]
pub(super) struct Counted(BTreeMap<String, Report>);

impl Counted {
    /// What tenants used in an interval of this length, ascending by tenant. Of a host without a new
    /// report it is not known, which counts as nothing.
    pub(super) fn since(
        &mut self,
        reports: BTreeMap<String, Report>,
        interval: Span,
        names: &Names,
    ) -> Vec<Usage> {
        let mut usage = Vec::new();
        for (host, report) in &reports {
            let Some(card) = names.links.known(&nic_of(host)) else { continue };
            let Some(before) = self.0.get(host).filter(|before| before.at_ms < report.at_ms) else {
                continue;
            };
            let span = report.at_ms - before.at_ms;
            for (tenant, now) in &report.used {
                let Some(number) = names.tenants.known(tenant) else { continue };
                let was = before.used.get(tenant).copied().unwrap_or_default();
                let directions = [Direction::Forward, Direction::Backward];
                for (way, direction) in directions.into_iter().enumerate() {
                    // One that is smaller began anew.
                    let grown = now[way].checked_sub(was[way]).unwrap_or(now[way]);
                    let scaled = u128::from(grown) * u128::from(interval.as_nanos())
                        / (u128::from(span) * 1_000_000);
                    usage.push(Usage {
                        tenant: TenantId(number),
                        card: (LinkId(card), direction),
                        octets: Bytes::new(u64::try_from(scaled).unwrap_or(u64::MAX)),
                    });
                }
            }
        }
        self.0 = reports;
        usage.sort_by_key(|usage| usage.tenant);
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(at_ms: u64, sent: u64, received: u64) -> BTreeMap<String, Report> {
        let used = [("red".to_owned(), [sent, received])].into();
        [("h0".to_owned(), Report { at_ms, used })].into()
    }

    #[test]
    fn a_rate_does_not_depend_on_when_a_report_comes() {
        let mut names = Names::default();
        let (card, red) = (LinkId(names.links.of(&nic_of("h0"))), names.tenants.of("red"));
        let four = Span::from_secs(4);
        let mut counted = Counted::default();
        let mut octets = |report| {
            let usage = counted.since(report, four, &names);
            assert!(usage.iter().all(|usage| usage.tenant.0 == red && usage.card.0 == card));
            usage.iter().map(|usage| usage.octets.get()).collect::<Vec<_>>()
        };
        assert!(octets(report(1_000, 500, 70)).is_empty(), "one report says nothing");
        // 3 s at 100 octets per second, and in: 10 per second.
        assert_eq!(octets(report(4_000, 800, 100)), [400, 40]);
        assert!(octets(report(4_000, 800, 100)).is_empty(), "the same one again");
        assert_eq!(octets(report(8_000, 300, 100)), [300, 0], "it began anew");
        assert!(octets(report(20, 9, 9)).is_empty(), "the agent's clock did, too");
        assert_eq!(octets(report(2_020, 9, 19)), [0, 20]);
    }
}
