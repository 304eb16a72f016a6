//! What an operator has to look at now.

use super::{Books, SILENT};
use crate::view::View;
use serde::Serialize;
use utoipa::ToSchema;
use weir_model::moment::Moment;
use weir_model::objects::{Condition, Kind, Truth};

/// A floor counts as broken now for so long after the last window, ms.
const FRESH: u64 = 30_000;
/// A stretch of this length is an alert, ms. Floors are promised for 999 of 1000 windows, so single seconds are not.
const LONG: u64 = 3000;

/// One alert. The names are those of the alert rules and of the runbook.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Alert {
    /// Such as `WeirFloorBroken`.
    pub(crate) name: String,
    /// What it is about: kind and name of an object.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) object: String,
    /// A sentence for people.
    pub(crate) message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) since: Option<Moment>,
}

/// All alerts, for those who may see all.
pub(crate) fn alerts(books: &Books, view: &View, now: Moment) -> Vec<Alert> {
    let mut all = Vec::new();
    let alert = |name: &str, kind: Kind, object: &str, message: String, since| Alert {
        name: name.into(),
        kind: kind.name().into(),
        object: object.into(),
        message,
        since,
    };
    let inner = books.lock();
    for stretch in inner.broken.iter().rev() {
        if stretch.end.plus_millis(FRESH) < now || stretch.end < stretch.begin.plus_millis(LONG) {
            continue;
        }
        let percent = stretch.got as f64 * 100.0 / stretch.owed.max(1) as f64;
        let took = stretch.took.as_deref().unwrap_or("unknown");
        let message = format!(
            "{} → {} had {percent:.0} % of its floor; cause: {}; most is borrowed by: {took}",
            stretch.from, stretch.to, stretch.cause
        );
        all.push(alert("WeirFloorBroken", Kind::Vm, &stretch.from, message, Some(stretch.begin)));
    }
    for (name, host) in &inner.hosts {
        for trouble in &host.troubles {
            let (kind, object) = match trouble.vm.as_str() {
                "" => (Kind::Host, name.as_str()),
                vm => (Kind::Vm, vm),
            };
            let alert_name = match trouble.kind.as_str() {
                "Unenforced" => "WeirVmUnenforced",
                "Overbooked" => "WeirAgentOverbooked",
                "GuardianDown" => "WeirGuardianDown",
                _ => "WeirTrouble",
            };
            all.push(alert(alert_name, kind, object, trouble.message.clone(), None));
        }
        if host.heard.plus_millis(SILENT.max(3 * u64::from(Books::every_ms(inner.hosts.len()))))
            < now
        {
            let message = "its agent is silent; floors that were set stay in force".to_owned();
            all.push(alert("WeirHostSilent", Kind::Host, name, message, Some(host.heard)));
        }
    }
    drop(inner);
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Reservation) {
        for stored in &view.all(&[kind]).0 {
            let conditions = stored.object.status.conditions.iter();
            // Hosts observe because an operator wants it; the first page says which.
            let is_wrong =
                |one: &&Condition| one.status == Truth::False && one.reason != "Observing";
            for bad in conditions.filter(is_wrong) {
                let name = match (kind, bad.name.as_str()) {
                    (Kind::Switch, _) => "WeirSwitchDrift",
                    (_, "Admitted") => "WeirNotAdmitted",
                    _ => "WeirNotReady",
                };
                let message = match bad.message.as_str() {
                    "" => bad.reason.clone(),
                    message => format!("{}: {message}", bad.reason),
                };
                let object = stored.object.name();
                // A silent host is said once, with the time at which it was heard last.
                if kind == Kind::Host
                    && all.iter().any(|a| a.name == "WeirHostSilent" && a.object == object)
                {
                    continue;
                }
                all.push(alert(name, kind, object, message, Some(bad.last_transition_time)));
            }
        }
    }
    all
}
