//! What became of control messages, as the agents that they were for say.
//!
//! Problem   "Floors hold though messages are late" shows nothing if none was late.
//! Approach  Parts of what agents believed, so that one bound fits short runs and long ones; how late
//!           they were, nobody but the world can say, because messages carry no time.

use super::Observed;
use std::collections::BTreeMap;
use weir_model::record::ControlRecord;

/// Into `summary`: `control_lost`, `control_repeated`, `control_overtaken`, `control_delay`, as far as
/// they have a meaning.
pub(super) fn judge(observed: &Observed, summary: &mut BTreeMap<String, f64>) {
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
    fn nothing_is_said_where_nothing_was_heard() {
        assert!(summary(None).is_empty());
        assert!(summary(Some(ControlRecord::default())).is_empty());
    }
}
