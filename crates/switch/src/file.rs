//! Files of operators: which switches there are, and which queues are wanted.
//!
//! The form is in `docs/switches.md`. Every error names the field.

use crate::linux::{self, LinuxTc, PortSettings};
use crate::sonic::{self, Forms, Redis, Sonic};
use crate::{Driver, Failed, Managed, Owner, Saves};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use weir_core::binding::MostWeight;
use weir_core::binding::switch::{PortName, PortQueues, SwitchConfig};
use weir_model::text;
use weir_units::{SortedMap, SortedSet};

/// All switches of a file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switches {
    owner: String,
    state: PathBuf,
    #[serde(default = "usual_limit")]
    limit: String,
    switch: SortedMap<String, Described>,
}

fn usual_limit() -> String {
    "2s".to_owned()
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Described {
    LinuxTc {
        ports: SortedMap<String, String>,
        #[serde(default = "usual_queues")]
        queues: u8,
        most_weight: Option<u16>,
        #[serde(default)]
        reserved_codepoints: SortedSet<u8>,
        turn: Option<String>,
        buffer: Option<String>,
    },
    Sonic {
        redis: String,
        ports: SortedSet<String>,
        #[serde(default = "usual_queues")]
        queues: u8,
        free: SortedSet<u8>,
        classes: SortedSet<u8>,
        codepoints: SortedSet<u8>,
        most_weight: Option<u16>,
    },
}

const fn usual_queues() -> u8 {
    8
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    port: SortedMap<String, WantedPort>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedPort {
    rate: String,
    #[serde(default)]
    shared: u8,
    weights: SortedMap<String, u16>,
    #[serde(default)]
    codepoints: SortedMap<String, u8>,
}

/// A switch of a file, of whatever kind.
pub enum AnySwitch {
    /// This machine.
    Linux(Managed<LinuxTc>),
    /// A SONiC switch.
    Sonic(Managed<Sonic<Redis>>),
}

impl AnySwitch {
    /// Its calls.
    pub fn driver(&mut self) -> &mut dyn Driver {
        match self {
            Self::Linux(switch) => switch,
            Self::Sonic(switch) => switch,
        }
    }

    /// A config in the switch's own forms; `None` for a kind that has none.
    ///
    /// # Errors
    /// As [`Managed::forms`].
    pub fn forms(&mut self, wanted: &SwitchConfig) -> Result<Option<Forms>, Failed> {
        match self {
            Self::Linux(_) => Ok(None),
            Self::Sonic(switch) => switch.forms(wanted).map(Some),
        }
    }
}

impl Switches {
    /// From TOML.
    ///
    /// # Errors
    /// It is no TOML, or has fields that are missing, unknown or of another type.
    pub fn parse(toml: &str) -> Result<Self, String> {
        toml::from_str(toml).map_err(|error| error.to_string())
    }

    /// Opens a switch. Only the namespace or the address is looked at; it is not read.
    ///
    /// # Errors
    /// There is no such switch, a field has a wrong value, or the kernel refuses a socket.
    pub fn open(&self, name: &str) -> Result<AnySwitch, String> {
        let Some(described) = self.switch.get(name) else {
            let known: Vec<&str> = self.switch.keys().map(String::as_str).collect();
            return Err(format!("there is no switch `{name}`, only {}", known.join(", ")));
        };
        let field = |field: &str| format!("switch.{name}.{field}");
        let owner = Owner::new(&self.owner)?;
        let saves = Saves::new(&self.state, name);
        let limit = text::span(&self.limit).map_err(|error| format!("limit: {error}"))?;
        let limit = Duration::from_nanos(limit.as_nanos());
        match described {
            Described::LinuxTc { .. } => {
                let settings = linux_settings(described, &field)?;
                let linux = LinuxTc::open(settings).map_err(|error| error.to_string())?;
                Ok(AnySwitch::Linux(Managed::new(linux, owner, saves, limit)))
            }
            Described::Sonic { redis, .. } => {
                let settings = sonic_settings(described, &field)?;
                let redis = Redis::new(redis)?;
                let sonic = Sonic::new(redis, settings);
                Ok(AnySwitch::Sonic(Managed::new(sonic, owner, saves, limit)))
            }
        }
    }
}

fn weight(most: Option<u16>, usual: MostWeight, field: &str) -> Result<MostWeight, String> {
    match most {
        None => Ok(usual),
        Some(most @ 1..=100) => Ok(MostWeight::new(most)),
        Some(most) => Err(format!("{field}: {most} is not between 1 and 100")),
    }
}

fn linux_settings(
    described: &Described,
    field: &impl Fn(&str) -> String,
) -> Result<linux::Settings, String> {
    let Described::LinuxTc { ports, queues, most_weight, reserved_codepoints, turn, buffer } =
        described
    else {
        unreachable!("asked by its kind")
    };
    if !(1..=16).contains(queues) {
        return Err(format!("{}: {queues} is not between 1 and 16", field("queues")));
    }
    let mut all = SortedMap::new();
    for (port, rate) in ports {
        let rate = text::rate(rate);
        let rate = rate.map_err(|error| format!("{}: {error}", field(&format!("ports.{port}"))))?;
        all.insert(PortName::from(port.as_str()), PortSettings { rate, queues: *queues });
    }
    let mut settings = linux::Settings::new(all);
    settings.most_weight = weight(*most_weight, settings.most_weight, &field("most_weight"))?;
    settings.reserved_codepoints = reserved_codepoints.clone();
    for (given, name, slot) in
        [(turn, "turn", &mut settings.turn), (buffer, "buffer", &mut settings.buffer)]
    {
        let Some(given) = given else { continue };
        *slot = text::size(given).map_err(|error| format!("{}: {error}", field(name)))?;
        if !(64..=1 << 24).contains(&slot.get()) {
            return Err(format!("{}: {given} is not between 64 B and 16 MB", field(name)));
        }
    }
    Ok(settings)
}

fn sonic_settings(
    described: &Described,
    field: &impl Fn(&str) -> String,
) -> Result<sonic::Settings, String> {
    let Described::Sonic { ports, queues, free, classes, codepoints, most_weight, .. } = described
    else {
        unreachable!("asked by its kind")
    };
    if !(1..=10).contains(queues) {
        return Err(format!("{}: {queues} is not between 1 and 10", field("queues")));
    }
    let below = |all: &SortedSet<u8>, end: u8, name: &str| match all.last() {
        None => Err(format!("{}: none are named", field(name))),
        Some(last) if *last >= end => {
            Err(format!("{}: {last} is not between 0 and {}", field(name), end - 1))
        }
        Some(_) => Ok(all.clone()),
    };
    Ok(sonic::Settings {
        ports: ports.iter().map(|port| PortName::from(port.as_str())).collect(),
        queues: *queues,
        free: below(free, *queues, "free")?,
        classes: below(classes, 16, "classes")?,
        codepoints: below(codepoints, 64, "codepoints")?,
        most_weight: weight(*most_weight, sonic::MOST_WEIGHT, &field("most_weight"))?,
    })
}

/// Queues that are wanted, from TOML.
///
/// # Errors
/// It is no TOML, or a field is missing, unknown, or has a wrong value.
pub fn wanted(toml: &str) -> Result<SwitchConfig, String> {
    let file: Wanted = toml::from_str(toml).map_err(|error| error.to_string())?;
    let mut ports = SortedMap::new();
    for (name, port) in file.port {
        let key = |key: &str, field: &str| {
            key.parse().map_err(|_| format!("port.{name}.{field}: `{key}` is no number up to 255"))
        };
        let mut made = PortQueues {
            rate: text::rate(&port.rate).map_err(|error| format!("port.{name}.rate: {error}"))?,
            shared: port.shared,
            weights: SortedMap::new(),
            queue_of: SortedMap::new(),
        };
        for (queue, weight) in &port.weights {
            made.weights.insert(key(queue, "weights")?, *weight);
        }
        for (codepoint, queue) in &port.codepoints {
            made.queue_of.insert(key(codepoint, "codepoints")?, *queue);
        }
        ports.insert(PortName::from(name.as_str()), made);
    }
    Ok(SwitchConfig { ports })
}

/// Queues as [`wanted`] reads them, for people and for other runs.
pub fn show(config: &SwitchConfig) -> String {
    use std::fmt::Write as _;
    let mut said = String::new();
    let pairs = |all: Vec<String>| all.join(", ");
    for (name, port) in &config.ports {
        let weights = port.weights.iter().map(|(queue, weight)| format!("{queue} = {weight}"));
        let bound = port.queue_of.iter().map(|(at, queue)| format!("{at} = {queue}"));
        let (weights, bound) = (pairs(weights.collect()), pairs(bound.collect()));
        let _ = writeln!(said, "[port.\"{name}\"]");
        let _ = writeln!(said, "rate = \"{}\"", text::show_rate(port.rate));
        let _ = writeln!(said, "shared = {}", port.shared);
        let _ = writeln!(said, "weights = {{ {weights} }}");
        let _ = writeln!(said, "codepoints = {{ {bound} }}");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCHES: &str = r#"
        owner = "weir-1"
        state = "/var/lib/weir/switches"

        [switch.leaf1]
        kind = "linux-tc"
        ports = { swp1 = "10Gbit", swp2 = "1Gbit" }
        reserved_codepoints = [46, 48]
        turn = "9000B"

        [switch.spine1]
        kind = "sonic"
        redis = "redis://192.0.2.7:6379"
        ports = ["Ethernet0"]
        free = [0, 1, 2]
        classes = [0, 1, 2]
        codepoints = [32, 33]
    "#;

    #[test]
    fn what_is_shown_is_read_as_the_same() {
        let text = "[port.swp1]\nrate = \"10Gbit\"\nweights = { 0 = 1, 3 = 4 }\n\
                    codepoints = { 11 = 3 }\n";
        let config = wanted(text).unwrap();
        let port = &config.ports[&PortName::from("swp1")];
        assert_eq!((port.queue(11), port.queue(12), port.weights[&3]), (3, 0, 4));
        assert_eq!(wanted(&show(&config)).unwrap(), config);
        let error = wanted(&text.replace("11 =", "300 =")).unwrap_err();
        assert!(error.contains("port.swp1.codepoints: `300`"), "{error}");
        let error = wanted(&text.replace("Gbit", "Gig")).unwrap_err();
        assert!(error.contains("port.swp1.rate"), "{error}");
    }

    #[test]
    fn a_wrong_field_is_named() {
        let switches = Switches::parse(SWITCHES).unwrap();
        assert!(matches!(switches.open("spine1"), Ok(AnySwitch::Sonic(_))));
        let told = |from: &str, to: &str, name: &str| {
            let switches = Switches::parse(&SWITCHES.replace(from, to));
            match switches.and_then(|switches| switches.open(name)) {
                Ok(_) => panic!("{to} is accepted"),
                Err(error) => error,
            }
        };
        for (from, to, name, expected) in [
            ("leaf1", "leaf2", "leaf1", "there is no switch `leaf1`, only leaf2, spine1"),
            ("weir-1", "Weir 1", "spine1", "`Weir 1` is no owner"),
            ("\"1Gbit\"", "\"1\"", "leaf1", "switch.leaf1.ports.swp2"),
            ("9000B", "9B", "leaf1", "switch.leaf1.turn"),
            ("free = [0, 1, 2]", "free = [0, 8]", "spine1", "switch.spine1.free: 8"),
            ("classes = [0, 1, 2]", "classes = []", "spine1", "switch.spine1.classes: none"),
            ("[32, 33]", "[64]", "spine1", "switch.spine1.codepoints: 64"),
            ("free = [0", "most_weight = 101\nfree = [0", "spine1", "switch.spine1.most_weight"),
            ("free = [0", "fee = [0", "spine1", "fee"),
        ] {
            let error = told(from, to, name);
            assert!(error.contains(expected), "{error}");
        }
    }
}
