//! The list of mechanisms for all code that names one: configuration, scenarios, `--mechanism`, its
//! help.
//!
//! Promises  A name, a preset or a default is written once, here.
//! Not here  Constants and machines: each mechanism's folder.

use super::Law;
use super::elasticswitch::ElasticSwitch;
use super::eyeq::EyeQ;
use super::reservation::Reservation;

/// One mechanism, as people name it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name in `agent.toml`, in scenarios and on the command line.
    pub name: &'static str,
    /// What it does, in half a sentence.
    pub about: &'static str,
    /// The named sets of constants. Empty: it has none.
    pub presets: &'static [&'static str],
    /// The preset of a scenario or a command line that names none.
    pub usual: &'static str,
    /// The preset of an `agent.toml` that names none: the one for which GUARANTEES.md promises
    /// floors.
    pub agents: &'static str,
    /// The law of a preset.
    pub law: fn(&str) -> Option<Law>,
}

impl Row {
    /// The mechanism with its usual constants, and no rates reserved.
    ///
    /// # Panics
    /// The row names a preset that is none.
    pub fn sample(&self) -> Law {
        (self.law)(self.usual).expect("the usual preset is one")
    }
}

/// All mechanisms.
pub const ALL: &[Row] = &[
    Row {
        name: "reservation",
        about: "static rates for a known traffic matrix; nothing is borrowed",
        presets: &[],
        usual: "paper",
        agents: "paper",
        law: |_| Some(Law::Reservation(Reservation::default())),
    },
    Row {
        name: "seawall",
        about: "equal weights per sending VM, no floors",
        presets: &[],
        usual: "paper",
        agents: "paper",
        law: |_| Some(Law::ElasticSwitch(Box::new(ElasticSwitch::seawall()))),
    },
    Row {
        name: "elasticswitch",
        about: "guarantee partitioning and rate allocation",
        presets: ElasticSwitch::ALL_PRESETS,
        usual: "paper",
        agents: "steady",
        law: |preset| Some(Law::ElasticSwitch(Box::new(ElasticSwitch::preset(preset)?))),
    },
    Row {
        name: "eyeq",
        about: "receivers meter what arrives and tell senders a rate",
        presets: &EyeQ::SHORT_PRESETS,
        usual: "final",
        agents: "final",
        law: |short| Some(Law::EyeQ(Box::new(EyeQ::preset(&format!("eyeq-{short}"))?))),
    },
];

/// The mechanism of this name.
pub fn row(name: &str) -> Option<&'static Row> {
    ALL.iter().find(|row| row.name == name)
}

/// All names, for advice.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|row| row.name).collect()
}

/// What `--mechanism` takes.
pub fn help() -> String {
    let one = |row: &Row| {
        let presets = if row.presets.is_empty() {
            String::new()
        } else {
            let (name, usual, presets) = (row.name, row.usual, row.presets.join(", "));
            let agents = if row.agents == usual {
                String::new()
            } else {
                format!(", but {} in agent.toml", row.agents)
            };
            format!("; {name}:PRESET is one of {presets}; without it {usual}{agents}")
        };
        format!("{} ({}{presets})", row.name, row.about)
    };
    let all: Vec<String> = ALL.iter().map(one).collect();
    format!("none (no protection), {}", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_that_a_row_names_is_one() {
        for row in ALL {
            let is_known = |preset: &str| row.presets.is_empty() || row.presets.contains(&preset);
            assert!(is_known(row.usual) && is_known(row.agents), "{row:?}");
            let all = row.presets.iter().chain([&row.usual, &row.agents]);
            assert!(all.clone().all(|preset| (row.law)(preset).is_some()), "{row:?}");
        }
        assert!(row("magic").is_none());
    }

    #[test]
    fn help_names_every_mechanism_and_every_preset() {
        let help = help();
        for row in ALL {
            assert!(help.contains(row.name) && help.contains(row.about), "{help}");
            assert!(row.presets.iter().all(|preset| help.contains(preset)), "{help}");
        }
        assert!(help.contains("without it paper, but steady in agent.toml"), "{help}");
    }
}
