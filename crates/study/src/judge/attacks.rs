//! The numbers of attacks: what was sent, what arrived, what was counted.
//!
//! Problem   "Nothing was believed" must be able to be false, and "all was counted" must not be
//!           true because nothing was sent.
//! Approach  Counts of what was sent stand beside what arrived; ratios are of what was sent, and
//!           absent where nothing was. Messages that were believed beyond those that agents sent
//!           must be an attacker's.

use std::collections::BTreeMap;
use weir_model::observed::Observed;
use weir_model::record::AttackRecord;

/// Into `summary`: `spoofed_delivered`, `spoofed_counted`, `control_sent`, `frames_sent`,
/// `frames_counted`, `control_believed`, `control_refused`, `control_unread`, as far as they have a
/// meaning.
pub(super) fn judge(observed: &Observed, summary: &mut BTreeMap<String, f64>) {
    let Some(attacks) = observed.attacks else { return };
    let AttackRecord { forged, delivered, control_of_vms, control_of_hosts, frames, agents } =
        attacks;
    let mut put = |name: &str, value: f64| _ = summary.insert(name.into(), value);
    put("spoofed_delivered", delivered as f64);
    put("control_sent", (control_of_vms + control_of_hosts) as f64);
    put("frames_sent", frames as f64);
    let Some(agents) = agents else { return };
    // Never more messages than agents sent, if none came from elsewhere.
    put("control_believed", agents.believed.saturating_sub(agents.sent) as f64);
    if let Some(ratio) = ratio(agents.dropped, forged + control_of_vms) {
        put("spoofed_counted", ratio);
    }
    if let Some(ratio) = ratio(agents.astray, frames) {
        put("frames_counted", ratio);
    }
    if let Some(ratio) = ratio(agents.refused, control_of_hosts) {
        put("control_refused", ratio);
    }
    if let Some(ratio) = ratio(agents.unread, control_of_hosts) {
        put("control_unread", ratio);
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::record::AgentCounts;

    fn summary(attacks: Option<AttackRecord>) -> BTreeMap<String, f64> {
        let mut summary = BTreeMap::new();
        judge(&Observed { attacks, ..Observed::default() }, &mut summary);
        summary
    }

    #[test]
    fn what_was_believed_beyond_what_was_sent_is_an_attackers() {
        let agents = AgentCounts {
            dropped: 150,
            astray: 60,
            unread: 5,
            refused: 90,
            believed: 1010,
            sent: 1000,
        };
        let attacks = AttackRecord {
            forged: 100,
            delivered: 3,
            control_of_vms: 50,
            control_of_hosts: 100,
            frames: 80,
            agents: Some(agents),
        };
        let got = summary(Some(attacks));
        assert_eq!(got["control_believed"], 10.0);
        assert_eq!(got["spoofed_counted"], 1.0);
        assert_eq!(got["control_refused"], 0.9);
        assert_eq!((got["frames_counted"], got["control_unread"]), (0.75, 0.05));
        assert_eq!((got["spoofed_delivered"], got["control_sent"]), (3.0, 150.0));
    }

    #[test]
    fn nothing_is_said_of_attacks_that_were_not_made() {
        assert!(summary(None).is_empty());
        let got = summary(Some(AttackRecord::default()));
        assert!(!got.contains_key("spoofed_counted") && !got.contains_key("control_believed"));
    }
}
