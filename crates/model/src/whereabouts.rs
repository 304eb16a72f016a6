//! Line of a file in which a field is written.
//!
//! Problem   A wrong value often shows long after parsing, when its line is no longer known.
//! Approach  The text is parsed again, for positions only, and walked along the field's path
//!           (`vm[2].name`). Only errors pay for it.
//! Promises  Returns the line of the deepest part of the path that exists, or nothing if the text
//!           is no document.

use crate::scenario::Place;
use crate::scenario::yaml::{self, Kind, Node};
use toml::de::{DeTable, DeValue};

/// One step into a document.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// `vm[2].name` → vm, 2, name.
fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split('.').filter(|part| !part.is_empty()).flat_map(|part| {
        let mut pieces = part.split(['[', ']']).filter(|piece| !piece.is_empty());
        let key = pieces.next().map(Step::Key);
        let indices = pieces.filter_map(|piece| piece.parse().ok().map(Step::Index));
        key.into_iter().chain(indices)
    })
}

/// The line, from 1, of the field at `path` in a TOML document.
pub fn line_in_toml(text: &str, path: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let line = |offset: usize| {
        text.as_bytes()[..offset.min(text.len())].iter().filter(|octet| **octet == b'\n').count()
            + 1
    };
    let (mut found, mut here): (Option<usize>, Option<&DeValue<'_>>) = (None, None);
    for step in steps(path) {
        let inside = match here {
            None => Some(table.get_ref()),
            Some(value) => value.as_table(),
        };
        let (at, next) = match step {
            Step::Key(name) => {
                let entry = inside.and_then(|t| t.iter().find(|(key, _)| key.get_ref() == name));
                let Some((key, value)) = entry else { break };
                (key.span().start, value)
            }
            Step::Index(index) => {
                let item = here.and_then(DeValue::as_array).and_then(|list| list.get(index));
                let Some(item) = item else { break };
                (item.span().start, item)
            }
        };
        (found, here) = (Some(line(at)), Some(next.get_ref()));
    }
    found
}

/// The same in a YAML document.
pub fn line_in_yaml(text: &str, path: &str) -> Option<usize> {
    let root = yaml::parse(text).ok()?;
    let (mut found, mut here): (Option<usize>, &Node) = (None, &root);
    for step in steps(path) {
        let (at, next) = match (step, &here.kind) {
            (Step::Key(name), Kind::Map(entries)) => {
                let Some((key, value)) = entries.iter().find(|(key, _)| key.text == name) else {
                    break;
                };
                (line_of(&key.place), value)
            }
            (Step::Index(index), Kind::List(items)) => {
                let Some(item) = items.get(index) else { break };
                (line_of(&item.place), item)
            }
            _ => break,
        };
        (found, here) = (at.or(found), next);
    }
    found
}

fn line_of(place: &Place) -> Option<usize> {
    match place {
        Place::File { line, .. } => usize::try_from(*line).ok(),
        Place::Set(_) | Place::Whole => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_a_toml_file_has_its_line_and_one_that_is_not_there_that_of_what_would_hold_it() {
        let text = "host = \"h0\"\n\n[uplink]\nrate = \"1Gbit\"\n[[vm]]\nname = \"a\"\n[[vm]]\nname = \
                    \"b\"\nfloor_out = \"1Mbit\"\n[mechanism.set]\nalpha = 2\n";
        for (path, line) in [
            ("host", 1),
            ("uplink", 3),
            ("uplink.rate", 4),
            ("vm[0].name", 6),
            ("vm[1]", 7),
            ("vm[1].name", 8),
            ("vm[1].floor_out", 9),
            ("vm[1].cap_out", 7),
            ("mechanism.set.alpha", 11),
        ] {
            assert_eq!(line_in_toml(text, path), Some(line), "{path}");
        }
        for nowhere in ["", "vms[0]", "[0]"] {
            assert_eq!(line_in_toml(text, nowhere), None, "{nowhere}");
        }
        assert_eq!(line_in_toml("host =", "host"), None, "no document");
        let one = "vm = [{ name = 'a' },\n{ name = 'b' }]";
        assert_eq!(line_in_toml(one, "vm[1].name"), Some(2));
    }

    #[test]
    fn a_field_of_a_yaml_file_has_its_line() {
        let text = "hosts:\n  - name: h0\n    control: 10.0.0.1:7001\nvms:\n  - {name: a, tenant: t}\n  \
                    - {name: b,\n     tenant: u}\n";
        for (path, line) in [
            ("hosts", 1),
            ("hosts[0].control", 3),
            ("vms[0].tenant", 5),
            ("vms[1].name", 6),
            ("vms[1].tenant", 7),
            ("vms[1].host", 6),
            ("vms[7].host", 4),
        ] {
            assert_eq!(line_in_yaml(text, path), Some(line), "{path}");
        }
        assert_eq!(line_in_yaml(text, "tenants"), None);
        assert_eq!(line_in_yaml("{", "a"), None, "no document");
    }
}
