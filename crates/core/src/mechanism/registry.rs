//! The list of mechanisms for all code that names one: configuration, scenarios, `--mechanism`, its
//! help.
//!
//! Promises  A name, a preset or a default is written once, here.
//! Not here  Constants and machines: each mechanism's folder.

use super::Law;
use super::constants::names as names_of;
use super::draft::Draft;
use super::elasticswitch::ElasticSwitch;
use super::eyeq::{EyeQ, Tuned};
use super::trinity::Trinity;
use super::{level, reservation};

/// One mechanism, as people name it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name in `agent.toml`, in scenarios and on the command line.
    pub name: &'static str,
    /// The name in prose.
    pub title: &'static str,
    /// What it does, in half a sentence.
    pub about: &'static str,
    /// The named sets of constants. Empty: it has none.
    pub presets: &'static [&'static str],
    /// The preset of a scenario or a command line that names none.
    pub usual: &'static str,
    /// The preset of an `agent.toml` that names none: the one for which GUARANTEES.md promises
    /// floors.
    pub agents: &'static str,
    /// The constants of a preset.
    pub draft: fn(&str) -> Option<Draft>,
    /// The names of its constants, without those that agents or worlds alone have (`scale`).
    pub constants: fn() -> Vec<&'static str>,
    /// Constants that agents alone have: what their host cannot know of the network.
    pub agents_own: &'static [&'static str],
    /// Where the floors of a preset hold (GUARANTEES.md 1).
    pub floors: fn(&str) -> Floors,
    /// Whether it is told the rates of all pairs, from a traffic matrix that is known.
    pub reserves: bool,
    /// Whether a simulated agent can die and return with it.
    pub returns: bool,
    /// Whether it writes code points by itself, so that no tenant can have a switch's queue by its own.
    pub own_code_points: bool,
}

/// Where floors hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Floors {
    /// Nowhere: none is promised, or hoses only.
    Nowhere,
    /// Where only links of hosts can be full.
    AtHosts,
    /// On all links.
    Everywhere,
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Row {
    /// The mechanism with its usual constants, and no rates reserved.
    ///
    /// # Panics
    /// The row names a preset that is none.
    pub fn sample(&self) -> Law {
        (self.draft)(self.usual).expect("the usual preset is one").as_published()
    }

    /// What to say of a preset that is none.
    pub fn no_preset(&self, preset: &str) -> String {
        match self.presets {
            [] => format!("`{}` has none; leave it out", self.name),
            known => format!("there is no `{preset}`; there are {}", known.join(", ")),
        }
    }
}

/// All mechanisms.
pub const ALL: &[Row] = &[
    Row {
        name: "reservation",
        title: "Static reservation (Oktopus-like)",
        about: "static rates for a known traffic matrix; nothing is borrowed",
        presets: &[],
        usual: "paper",
        agents: "paper",
        draft: |_| Some(Draft::Reservation(reservation::Draft::new())),
        constants: || names_of(reservation::Draft::CONSTANTS),
        agents_own: &[],
        floors: |_| Floors::Everywhere,
        reserves: true,
        returns: true,
        own_code_points: false,
    },
    Row {
        name: "seawall",
        title: "Seawall",
        about: "equal weights per sending VM, no floors",
        presets: &[],
        usual: "paper",
        agents: "paper",
        draft: |_| Some(Draft::elasticswitch(ElasticSwitch::seawall())),
        constants: || names_of(ElasticSwitch::CONSTANTS),
        agents_own: &[],
        floors: |_| Floors::Nowhere,
        reserves: false,
        returns: true,
        own_code_points: false,
    },
    Row {
        name: "elasticswitch",
        title: "ElasticSwitch",
        about: "guarantee partitioning and rate allocation",
        presets: ElasticSwitch::ALL_PRESETS,
        usual: "paper",
        agents: "steady",
        draft: |preset| Some(Draft::elasticswitch(ElasticSwitch::preset(preset)?)),
        constants: || names_of(ElasticSwitch::CONSTANTS),
        agents_own: &[],
        // `fast` is promised nothing: it was made for Level, and is judged with it.
        floors: |preset| match preset.starts_with("steady") || preset == "floors" {
            true => Floors::Everywhere,
            false => Floors::Nowhere,
        },
        reserves: false,
        returns: true,
        own_code_points: false,
    },
    Row {
        name: "eyeq",
        title: "EyeQ",
        about: "receivers meter what arrives and tell senders a rate",
        presets: &EyeQ::SHORT_PRESETS,
        usual: "final",
        agents: "final",
        draft: |short| Some(Draft::eyeq(EyeQ::preset(&format!("eyeq-{short}"))?)),
        constants: || names_of(Tuned::CONSTANTS),
        agents_own: &["round_trip", "fastest_line"],
        floors: |_| Floors::AtHosts,
        reserves: false,
        returns: false,
        own_code_points: true,
    },
    Row {
        name: "level",
        title: "Level",
        about: "receivers tell hosts by which multiple of their floors to send; an experiment",
        presets: &[],
        usual: "paper",
        agents: "paper",
        draft: |_| Some(Draft::Level(Box::default())),
        constants: || names_of(level::Draft::CONSTANTS),
        agents_own: &[],
        // It is an experiment, and breaks some: docs/algorithms/level.md.
        floors: |_| Floors::Nowhere,
        reserves: false,
        returns: true,
        own_code_points: false,
    },
    Row {
        name: "trinity",
        title: "Trinity",
        about: "floors before all else in switches, borrowed traffic last; simulator only",
        presets: &[],
        usual: "paper",
        agents: "paper",
        draft: |_| Some(Draft::Trinity(Box::default())),
        constants: || names_of(Trinity::CONSTANTS),
        agents_own: &[],
        // For comparison: Weir configures no switch for it.
        floors: |_| Floors::Nowhere,
        reserves: false,
        returns: true,
        own_code_points: false,
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
            assert!(all.clone().all(|preset| (row.draft)(preset).is_some()), "{row:?}");
        }
        assert!(row("magic").is_none());
    }

    #[test]
    fn a_constant_has_one_name_and_the_documentation_names_it() {
        let pages = [
            include_str!("../../../../docs/algorithms/elasticswitch.md"),
            include_str!("../../../../docs/algorithms/eyeq.md"),
            include_str!("../../../../docs/algorithms/level.md"),
            include_str!("../../../../docs/algorithms/trinity.md"),
        ];
        for row in ALL {
            let mut names = (row.constants)();
            for name in &names {
                let quoted = format!("`{name}`");
                assert!(pages.iter().any(|page| page.contains(&quoted)), "{}: {name}", row.name);
            }
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", row.name);
        }
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
