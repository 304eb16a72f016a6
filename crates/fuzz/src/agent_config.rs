//! `agent.toml` and the directory, each beside a sound one of the other.

use crate::{Target, by_hand};
use weir_agent::check_texts;
use weir_model::agent::{AgentConfig, parse_directory};

const SOUND_CONFIG: &str = include_str!("../../../fuzz/corpus/agent_config/sound.toml");
const SOUND_DIRECTORY: &str = include_str!("../../../fuzz/corpus/directory/sound.yaml");

/// An agent that could start, or what keeps it from starting; written again, it reads the same.
pub(crate) const CONFIG: Target = Target {
    name: "agent_config",
    run: config,
    reaches: crate::not_empty,
    words: &["elasticswitch", "reservation", "[[vm]]", "set = {", "\"1Gbit\"", "scale = ", "= "],
    seeds: by_hand,
};

/// The same for the directory of VMs and hosts.
pub(crate) const DIRECTORY: Target = Target {
    name: "directory",
    run: directory,
    reaches: crate::not_empty,
    words: &["hosts:", "vms:", "&a ", "*a", "<<: ", "!!binary ", "- {", "10.1.0.1", "::1", "|\n"],
    seeds: by_hand,
};

fn config(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    match check_texts(text, SOUND_DIRECTORY) {
        Ok(sound) => {
            let written = toml::to_string(&sound).expect("plain data");
            let again: AgentConfig = toml::from_str(&written).expect("what is written is read");
            assert_eq!(format!("{again:?}"), format!("{sound:?}"));
        }
        Err(error) => shown(&format!("{error:#}"), text),
    }
}

fn directory(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    if let Err(error) = check_texts(SOUND_CONFIG, text) {
        shown(&format!("{error:#}"), text);
    }
    match parse_directory(text) {
        Ok(read) => {
            // JSON is YAML.
            let written = serde_json::to_string(&read).expect("plain data");
            let again = parse_directory(&written).expect("what is written is read");
            assert_eq!(format!("{again:?}"), format!("{read:?}"));
        }
        Err(said) => assert!(said.contains("line "), "an error without its line: {said}"),
    }
}

/// A message that a person can read: it names a file, and is not much longer than what it is about.
fn shown(said: &str, text: &str) {
    // The configuration says what its directory is called, with a path or without.
    let mut called = text.split('"').filter(|word| !word.is_empty());
    let named = said.contains("agent.toml")
        || said.contains("directory")
        || called.any(|name| said.starts_with(&format!("{name}:")));
    assert!(named, "an error that names no file: {said}");
    assert!(said.len() <= 4 * text.len() + 2000, "an error of {} octets", said.len());
}
