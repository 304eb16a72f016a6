//! The mechanisms that scenarios name, their presets, and translations beside them.

use super::error::did_you_mean;
use weir_core::mechanism::registry::{self, Row};

/// A mechanism with the parameters it is played with.
#[derive(Clone, Debug, PartialEq)]
pub struct Mechanism {
    /// As in results and on the command line: `none`, `reservation`, `seawall`, `elasticswitch`,
    /// `eyeq`, or one of the last two with `:PRESET`; and any of them with `+TRANSLATION`.
    pub label: String,
    /// Without the preset.
    pub kind: MechanismKind,
    /// The preset's name: [`MechanismKind::usual_preset`] unless said otherwise.
    pub preset: String,
    /// What VMs' ports make of their guests' congestion control, if anything.
    pub translation: Option<Translation>,
}

/// The congestion controls that guests' own can be translated into (vCC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Translation {
    /// Reacts to marks as Reno does to losses.
    VirtualEcn,
    /// Reacts to the part that is marked.
    Dctcp,
    /// CUBIC, with marks for losses.
    CubicEcn,
    /// As `virtual-ecn`, and also for guests that agree on ECN by themselves and do not heed it.
    Auto,
}

impl Translation {
    const KNOWN: [(&'static str, Self); 4] = [
        ("virtual-ecn", Self::VirtualEcn),
        ("dctcp", Self::Dctcp),
        ("cubic-ecn", Self::CubicEcn),
        ("auto", Self::Auto),
    ];

    /// Its name, which ends a label.
    pub fn name(self) -> &'static str {
        let known = Self::KNOWN.iter().find(|(_, translation)| *translation == self);
        known.expect("all translations have a name").0
    }

    /// All names.
    pub fn names() -> Vec<&'static str> {
        Self::KNOWN.iter().map(|(name, _)| *name).collect()
    }

    fn parse(name: &str) -> Result<Self, (String, String)> {
        let known = Self::KNOWN.iter().find(|(known, _)| *known == name);
        known.map(|(_, translation)| *translation).ok_or_else(|| {
            let names = Self::KNOWN.iter().map(|(name, _)| *name);
            (format!("unknown translation `{name}`"), did_you_mean(name, names))
        })
    }
}

/// The mechanisms this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MechanismKind {
    /// Nothing between the VM and the wire.
    None,
    /// Static, optimal pair rates for the known traffic matrix; nothing is borrowed.
    Reservation,
    /// Guarantee partitioning and rate allocation.
    ElasticSwitch,
    /// The same law without floors, Hold-Increase and Rate-Caution: equal weights per sending VM.
    Seawall,
    /// Receivers meter what arrives and tell senders a rate.
    EyeQ,
}

impl MechanismKind {
    const KNOWN: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("reservation", Self::Reservation),
        ("seawall", Self::Seawall),
        ("elasticswitch", Self::ElasticSwitch),
        ("eyeq", Self::EyeQ),
    ];

    /// Its name, which begins a label.
    pub fn name(self) -> &'static str {
        let known = Self::KNOWN.iter().find(|(_, kind)| *kind == self);
        known.expect("all kinds have a name").0
    }

    /// What the registry says of it; `None` of no mechanism.
    pub fn row(self) -> Option<&'static Row> {
        registry::row(self.name())
    }

    /// What a label without a preset means.
    pub fn usual_preset(self) -> &'static str {
        self.row().map_or("paper", |row| row.usual)
    }

    fn presets(self) -> &'static [&'static str] {
        self.row().map_or(&[], |row| row.presets)
    }
}

impl Mechanism {
    /// Parses a label: `none` or a name of the registry, `:PRESET` where it has some; any of them may
    /// end with `+TRANSLATION`. The error is what is wrong and what would be right.
    pub fn parse(label: &str) -> Result<Self, (String, String)> {
        let (plain, translation) = match label.split_once('+') {
            Some((plain, translation)) => (plain, Some(Translation::parse(translation)?)),
            None => (label, None),
        };
        let (name, preset) = match plain.split_once(':') {
            Some((name, preset)) => (name, Some(preset)),
            None => (plain, None),
        };
        let known = MechanismKind::KNOWN.iter().find(|(known, _)| *known == name);
        let Some((_, kind)) = known else {
            let names = MechanismKind::KNOWN.iter().map(|(name, _)| *name);
            return Err((format!("unknown mechanism `{name}`"), did_you_mean(name, names)));
        };
        if preset.is_some() && kind.presets().is_empty() {
            return Err((format!("`{name}` has no presets"), format!("write `{name}`")));
        }
        if preset.is_some_and(str::is_empty) {
            return Err(("the preset has no name".into(), format!("write `{name}`")));
        }
        let preset = preset.unwrap_or(kind.usual_preset());
        Ok(Self { label: label.into(), kind: *kind, preset: preset.into(), translation })
    }

    /// Whether nothing at all is done: no mechanism, and no translation.
    pub fn is_none(&self) -> bool {
        self.kind == MechanismKind::None && self.translation.is_none()
    }

    /// Whether its preset is one that the registry lists. The error is what is wrong and what would be right.
    pub fn check_preset(&self) -> Result<(), (String, String)> {
        let known = self.kind.presets();
        if known.is_empty() || known.contains(&self.preset.as_str()) {
            return Ok(());
        }
        let message = format!("`{}`: there is no preset `{}`", self.label, self.preset);
        Err((message, did_you_mean(&self.preset, known.iter().copied())))
    }
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
        assert_eq!((both.kind, both.preset.as_str()), (MechanismKind::ElasticSwitch, "steady"));
        assert_eq!(both.translation.map(Translation::name), Some("cubic-ecn"));
        assert_eq!(both.label, "elasticswitch:steady+cubic-ecn");
        let (message, help) = of("none+dtcp").expect_err("no such law");
        assert_eq!(message, "unknown translation `dtcp`");
        assert!(help.contains("dctcp"), "{help}");
    }

    #[test]
    fn every_row_of_the_registry_is_a_mechanism_of_scenarios_and_every_mechanism_has_a_row() {
        for row in registry::ALL {
            let mechanism = Mechanism::parse(row.name).expect("a name of the registry");
            assert_eq!(mechanism.kind.row().map(|known| known.name), Some(row.name));
        }
        let named = MechanismKind::KNOWN.iter().filter(|(_, kind)| *kind != MechanismKind::None);
        assert!(named.clone().all(|(name, _)| registry::row(name).is_some()));
        assert_eq!(named.count(), registry::ALL.len());
    }

    #[test]
    fn each_mechanism_has_presets_of_its_own() {
        let of = |label: &str| Mechanism::parse(label).expect("known");
        assert_eq!((of("eyeq").kind, of("eyeq").preset.as_str()), (MechanismKind::EyeQ, "final"));
        assert_eq!(of("elasticswitch").preset, "paper");
        for label in ["eyeq", "eyeq:final", "elasticswitch:steady", "none"] {
            assert_eq!(of(label).check_preset(), Ok(()), "{label}");
            assert_eq!(of(label).kind.name(), label.split(':').next().expect("a name"));
        }
        let (message, help) = of("eyeq:steady").check_preset().expect_err("another's");
        assert_eq!(message, "`eyeq:steady`: there is no preset `steady`");
        assert!(help.contains("final"), "{help}");
        assert!(Mechanism::parse("seawall:paper").is_err());
    }
}
