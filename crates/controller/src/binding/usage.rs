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

/// A host's last rates count for so long without a new report, while the host is attached. Longer: a
/// tenant keeps its queue by what it used once. Shorter: with intervals of 100 ms a late report makes a
/// busy tenant an idle one.
const STALE: Span = Span::from_secs(1);

/// The last two reports, by host.
#[derive(Debug, Default)]
pub(super) struct Counted(BTreeMap<String, Told>);

#[derive(Debug)]
struct Told {
    before: Option<Report>,
    last: Report,
    /// How long there was no other than the last one.
    silent: Span,
}

impl Counted {
    /// What tenants used in an interval of this length, ascending by tenant. What a host used is not
    /// known until its second report, and if it has been silent: that counts as nothing.
    pub(super) fn since(
        &mut self,
        reports: BTreeMap<String, Report>,
        interval: Span,
        names: &Names,
    ) -> Vec<Usage> {
        self.0.retain(|host, _| reports.contains_key(host));
        let mut usage = Vec::new();
        for (host, report) in reports {
            let card = names.links.known(&nic_of(&host));
            let told = match self.0.remove(&host) {
                Some(told) => told.followed(report, interval),
                None => Told { before: None, last: report, silent: Span::ZERO },
            };
            if let Some(card) = card.filter(|_| told.silent <= STALE) {
                told.usage(LinkId(card), interval, names, &mut usage);
            }
            self.0.insert(host, told);
        }
        usage.sort_by_key(|usage| usage.tenant);
        usage
    }
}

impl Told {
    fn followed(self, report: Report, interval: Span) -> Self {
        let silent = self.silent + interval;
        if report.at_ms == self.last.at_ms {
            return Self { silent, ..self };
        }
        // A clock that is behind began anew.
        let before = Some(self.last).filter(|before| before.at_ms < report.at_ms);
        Self { before, last: report, silent: Span::ZERO }
    }

    fn usage(&self, card: LinkId, interval: Span, names: &Names, usage: &mut Vec<Usage>) {
        let Some(before) = &self.before else { return };
        let span = self.last.at_ms - before.at_ms;
        for (tenant, now) in &self.last.used {
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
                    card: (card, direction),
                    octets: Bytes::new(u64::try_from(scaled).unwrap_or(u64::MAX)),
                });
            }
        }
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

    #[test]
    fn a_report_that_is_late_by_some_short_intervals_makes_no_busy_tenant_idle() {
        let mut names = Names::default();
        names.links.of(&nic_of("h0"));
        names.tenants.of("red");
        let tenth = Span::from_millis(100);
        let mut counted = Counted::default();
        let mut sent =
            |report| counted.since(report, tenth, &names).first().map(|use_| use_.octets);
        assert_eq!(sent(report(1_000, 0, 0)), None);
        // 1000 octets per second.
        assert_eq!(sent(report(1_050, 50, 0)), Some(Bytes::new(100)));
        for _ in 0..10 {
            assert_eq!(sent(report(1_050, 50, 0)), Some(Bytes::new(100)), "within a second");
        }
        assert_eq!(sent(report(1_050, 50, 0)), None, "the host is silent");
        assert_eq!(sent(report(2_250, 50, 0)), Some(Bytes::ZERO), "it did nothing meanwhile");
        assert_eq!(sent(BTreeMap::new()), None, "it is gone");
        assert_eq!(sent(report(3_000, 900, 0)), None, "one report says nothing");
    }
}
