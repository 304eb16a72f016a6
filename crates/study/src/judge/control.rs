//! The numbers of control messages: lost, repeated, late, as their receivers count them, and their
//! rate.
//!
//! Problem   "Floors hold though messages are late" shows nothing if none was late.
//! Approach  Parts of what agents believed, so that one bound fits short runs and long ones; how
//!           late they were, only the world can say, because messages carry no time. What they cost
//!           is a rate on the wire, and offers of floors are counted per second and pair.

use std::collections::BTreeMap;
use weir_model::observed::Observed;
use weir_model::record::{ControlRecord, WrittenRecord};

/// Into `summary`: `control_lost`, `control_repeated`, `control_overtaken`, `control_delay`,
/// `control_rate`, `control_report_rate`, `control_offers`, as far as they have a meaning.
pub(super) fn judge(observed: &Observed, summary: &mut BTreeMap<String, f64>) {
    if let Some(written) = observed.written {
        cost(written, summary);
    }
    let Some(control) = observed.control else { return };
    let ControlRecord { believed, lost, repeated, overtaken, delay } = control;
    let mut put = |name: &str, part: u64, whole: u64| {
        if whole > 0 {
            summary.insert(name.into(), part as f64 / whole as f64);
        }
    };
    put("control_lost", lost, believed + lost);
    put("control_repeated", repeated, believed);
    put("control_overtaken", overtaken, believed);
    if let Some(delay) = delay {
        summary.insert("control_delay".into(), delay.as_secs_f64());
    }
}

fn cost(written: WrittenRecord, summary: &mut BTreeMap<String, f64>) {
    let WrittenRecord { octets, reports, offers, pairs, over } = written;
    let seconds = over.as_secs_f64();
    // Of no time and of no pairs there are no rates; what is not finite is left out.
    summary.insert("control_rate".into(), octets as f64 * 8.0 / seconds);
    summary.insert("control_report_rate".into(), reports as f64 * 8.0 / seconds);
    if pairs > 0 {
        summary.insert("control_offers".into(), offers as f64 / seconds / pairs as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Span;

    fn summary(control: Option<ControlRecord>) -> BTreeMap<String, f64> {
        let mut summary = BTreeMap::new();
        judge(&Observed { control, ..Observed::default() }, &mut summary);
        summary
    }

    #[test]
    fn what_became_of_messages_is_a_part_of_what_was_believed() {
        let delay = Some(Span::from_millis(30));
        let got = summary(Some(ControlRecord {
            believed: 900,
            lost: 100,
            repeated: 180,
            overtaken: 90,
            delay,
        }));
        let wanted = [
            ("control_delay", 0.03),
            ("control_lost", 0.1),
            ("control_overtaken", 0.1),
            ("control_repeated", 0.2),
        ];
        assert_eq!(got, wanted.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn what_agents_write_is_a_rate_and_offers_are_counted_per_pair() {
        let over = Span::from_secs(2);
        let written = |pairs| {
            let record = WrittenRecord { octets: 1000, reports: 250, offers: 60, pairs, over };
            let mut summary = BTreeMap::new();
            let observed = Observed { written: Some(record), ..Observed::default() };
            judge(&observed, &mut summary);
            summary
        };
        let rates = [("control_rate", 4000.0), ("control_report_rate", 1000.0)];
        let all = [("control_offers", 10.0), rates[0], rates[1]];
        assert_eq!(written(3), all.map(|(name, value)| (name.to_owned(), value)).into());
        assert_eq!(written(0), rates.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn nothing_is_said_where_nothing_was_heard() {
        assert!(summary(None).is_empty());
        assert!(summary(Some(ControlRecord::default())).is_empty());
    }
}
