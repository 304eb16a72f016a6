//! The mechanisms that scenarios name, their presets, and what stands beside them.

use super::Bound;
use super::error::did_you_mean;
use weir_core::mechanism::Draft;
use weir_core::mechanism::registry::{self, Row};
pub use weir_core::vcc::Translation;

/// What a scenario calls no mechanism.
const NONE: &str = "none";

/// A mechanism with the parameters it is played with.
#[derive(Clone, Debug, PartialEq)]
pub struct Mechanism {
    /// As in results and on the command line: `none`, `reservation`, `seawall`, `elasticswitch`,
    /// `eyeq`, or one of the last two with `:PRESET`; any of them with `+TRANSLATION`, and all of it
    /// with `@loop` or `@static`.
    pub label: String,
    /// What the registry says of it; `None`: nothing is between the VM and the wire.
    pub row: Option<&'static Row>,
    /// The preset's name: the row's usual one unless said otherwise.
    pub preset: String,
    /// What VMs' ports make of their guests' congestion control, if anything.
    pub translation: Option<Translation>,
    /// Who binds tenants to queues, if anybody. The mechanism is that of the shared queue then.
    pub bound: Option<Bound>,
}

impl Mechanism {
    /// Parses a label: `none` or a name of the registry, `:PRESET` where it has some; any of them may
    /// end with `+TRANSLATION`, and then with `@loop` or `@static`. The error is what is wrong and what would be right.
    pub fn parse(label: &str) -> Result<Self, (String, String)> {
        let (unbound, bound) = match label.split_once('@') {
            Some((unbound, name)) => (unbound, Some(bound(name)?)),
            None => (label, None),
        };
        let (plain, translation) = match unbound.split_once('+') {
            Some((plain, name)) => (plain, Some(translation(name)?)),
            None => (unbound, None),
        };
        let (name, preset) = match plain.split_once(':') {
            Some((name, preset)) => (name, Some(preset)),
            None => (plain, None),
        };
        let row = registry::row(name);
        if row.is_none() && name != NONE {
            let names = [NONE].into_iter().chain(registry::names());
            return Err((format!("unknown mechanism `{name}`"), did_you_mean(name, names)));
        }
        if preset.is_some() && row.is_none_or(|row| row.presets.is_empty()) {
            return Err((format!("`{name}` has no presets"), format!("write `{name}`")));
        }
        if preset.is_some_and(str::is_empty) {
            return Err(("the preset has no name".into(), format!("write `{name}`")));
        }
        if bound.is_some() && row.is_none() {
            let message = format!("`{label}`: hosts without an agent cannot tag packets");
            return Err((message, format!("write `elasticswitch:floors@{}`", label_end(label))));
        }
        let preset = preset.unwrap_or(row.map_or("paper", |row| row.usual));
        Ok(Self { label: label.into(), row, preset: preset.into(), translation, bound })
    }

    /// The mechanism's name, without preset and translation.
    pub fn name(&self) -> &'static str {
        self.row.map_or(NONE, |row| row.name)
    }

    /// Its constants; `None` without a mechanism, or if no preset has this name.
    pub fn draft(&self) -> Option<Draft> {
        (self.row?.draft)(&self.preset)
    }

    /// Whether it is told the rates of all pairs.
    pub fn reserves(&self) -> bool {
        self.row.is_some_and(|row| row.reserves)
    }

    /// Whether nothing at all is done: no mechanism, and no translation. A bound one has an agent.
    pub fn is_none(&self) -> bool {
        self.row.is_none() && self.translation.is_none()
    }

    /// Whether its preset is one that the registry lists. The error is what is wrong and what would be right.
    pub fn check_preset(&self) -> Result<(), (String, String)> {
        let known = self.row.map_or(&[][..], |row| row.presets);
        if known.is_empty() || known.contains(&self.preset.as_str()) {
            return Ok(());
        }
        let message = format!("`{}`: there is no preset `{}`", self.label, self.preset);
        Err((message, did_you_mean(&self.preset, known.iter().copied())))
    }
}

fn label_end(label: &str) -> &str {
    label.split_once('@').map_or("", |(_, end)| end)
}

fn bound(name: &str) -> Result<Bound, (String, String)> {
    Bound::ALL.into_iter().find(|bound| bound.name() == name).ok_or_else(|| {
        let names = Bound::ALL.map(Bound::name);
        (format!("unknown binding `{name}`"), did_you_mean(name, names))
    })
}

fn translation(name: &str) -> Result<Translation, (String, String)> {
    Translation::named(name).ok_or_else(|| {
        (format!("unknown translation `{name}`"), did_you_mean(name, Translation::names()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_translation_stands_beside_any_mechanism() {
        let of = |label: &str| Mechanism::parse(label);
        let plain = of("none").expect("known");
        assert_eq!(plain.translation, None);
        let both = of("elasticswitch:steady+cubic-ecn").expect("known");
        assert_eq!((both.name(), both.preset.as_str()), ("elasticswitch", "steady"));
        assert_eq!(both.translation.map(Translation::name), Some("cubic-ecn"));
        assert_eq!(both.label, "elasticswitch:steady+cubic-ecn");
        let (message, help) = of("none+dtcp").expect_err("no such law");
        assert_eq!(message, "unknown translation `dtcp`");
        assert!(help.contains("dctcp"), "{help}");
    }

    #[test]
    fn a_binding_stands_behind_all_else() {
        let of = |label: &str| Mechanism::parse(label);
        let both = of("elasticswitch:floors+dctcp@static").expect("known");
        assert_eq!((both.preset.as_str(), both.bound), ("floors", Some(Bound::Static)));
        assert_eq!(both.translation.map(Translation::name), Some("dctcp"));
        assert_eq!(of("elasticswitch@loop").expect("known").bound, Some(Bound::Loop));
        assert_eq!(of("elasticswitch").expect("known").bound, None);
        assert!(of("elasticswitch@lop").expect_err("none").1.contains("loop"));
        let (message, help) = of("none@loop").expect_err("no agent");
        assert!(
            message.contains("cannot tag") && help.contains("floors@loop"),
            "{message}: {help}"
        );
    }

    #[test]
    fn every_row_of_the_registry_is_a_mechanism_of_scenarios() {
        for row in registry::ALL {
            let mechanism = Mechanism::parse(row.name).expect("a name of the registry");
            assert_eq!((mechanism.row, mechanism.name()), (Some(row), row.name));
        }
        let (message, help) = Mechanism::parse("magic").expect_err("no such mechanism");
        assert_eq!(message, "unknown mechanism `magic`");
        assert!(registry::names().iter().all(|name| help.contains(name)), "{help}");
    }

    #[test]
    fn each_mechanism_has_presets_of_its_own() {
        let of = |label: &str| Mechanism::parse(label).expect("known");
        assert_eq!((of("eyeq").name(), of("eyeq").preset.as_str()), ("eyeq", "final"));
        assert_eq!(of("elasticswitch").preset, "paper");
        for label in ["eyeq", "eyeq:final", "elasticswitch:steady", "none"] {
            assert_eq!(of(label).check_preset(), Ok(()), "{label}");
            assert_eq!(of(label).name(), label.split(':').next().expect("a name"));
        }
        let (message, help) = of("eyeq:steady").check_preset().expect_err("another's");
        assert_eq!(message, "`eyeq:steady`: there is no preset `steady`");
        assert!(help.contains("final"), "{help}");
        assert!(Mechanism::parse("seawall:paper").is_err());
    }
}
