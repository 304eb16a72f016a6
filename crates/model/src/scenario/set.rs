//! `--set KEY=VALUE`: changes a scenario file's tree before it is read.
//!
//! Problem   The same file is played short in CI, long for a result, and at one point of its sweep.
//! Approach  KEY is a parameter, a key of `spec`, or a dotted path to any value; entries of lists
//!           are called by name. The new value takes part in all checks, and its errors name the
//!           `--set`.
//! Promises  A key that leads nowhere is an error that lists what exists. Setting a parameter that
//!           is swept pins the sweep to it; setting it to a list sweeps over the list.

use super::error::{Error, Place, did_you_mean};
use super::yaml::{self, Key, Kind, Node};

/// Keys of `spec` that may be set although the file does not have them.
const SINGLE: [&str; 11] = [
    "duration",
    "warmup",
    "sample",
    "scale",
    "headroom",
    "clock_drift",
    "repeat",
    "mechanisms",
    "congested",
    "sweep",
    "faults",
];

/// Applies one override to the tree of a whole file.
pub(crate) fn apply(file: &mut Node, key: &str, value: &str) -> Result<(), Error> {
    let place = Place::Set(format!("{key}={value}"));
    let Some(spec) = child(file, "spec") else {
        let help = "a scenario has a `spec`";
        return Err(Error::new(&place, "spec", "is missing in the file", help));
    };
    let new = parse_value(value, &place)?;
    let known = known(spec);
    let key = key.trim();
    let key = key.strip_prefix("spec.").unwrap_or(key);
    let param = key.strip_prefix("params.").unwrap_or(key);
    if let Some(old) = child(spec, "params").and_then(|params| child(params, param)) {
        if matches!(new.kind, Kind::List(_)) {
            return sweep_over(spec, param, new);
        }
        *old = new.clone();
        if let Some(sweep) = child(spec, "sweep") {
            pin(sweep, param, &new);
        }
        return Ok(());
    }
    let unknown = || {
        let help = did_you_mean(key, known.iter().map(String::as_str));
        Err(Error::new(&place, key, format!("there is no `{key}` to set"), help))
    };
    let path: Vec<&str> = key.split('.').collect();
    let (last, parents) = path.split_last().expect("split gives at least one part");
    if parents.first() == Some(&"params") || (parents.is_empty() && !SINGLE.contains(last)) {
        return unknown();
    }
    if parents.is_empty() {
        insert(spec, last, new);
        return Ok(());
    }
    let mut node = spec;
    for part in parents {
        match child(node, part) {
            Some(next) => node = next,
            None => return unknown(),
        }
    }
    let node = if node.get(last).is_none() { inside(node) } else { node };
    if matches!(node.kind, Kind::Map(_)) {
        // A key that may exist but was left out: reading the map will tell, and name this `--set`.
        insert(node, last, new);
    } else if let Some(old) = child(node, last) {
        *old = new;
    } else {
        return unknown();
    }
    Ok(())
}

/// A list or a map is read as YAML; everything else is one value, whatever characters it has.
fn parse_value(value: &str, place: &Place) -> Result<Node, Error> {
    let text = value.trim();
    let mut node = Node { place: place.clone(), inset: None, kind: Kind::Scalar(text.into()) };
    if text.starts_with(['[', '{']) {
        node = yaml::parse(text).map_err(|error| Error { place: place.clone(), ..error })?;
        relocate(&mut node, place);
    }
    Ok(node)
}

fn relocate(node: &mut Node, place: &Place) {
    node.place = place.clone();
    match &mut node.kind {
        Kind::List(items) => items.iter_mut().for_each(|item| relocate(item, place)),
        Kind::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
            key.place = place.clone();
            relocate(value, place);
        }),
        Kind::Null | Kind::Scalar(_) => {}
    }
}

/// The entry of a map or of a list that `part` of a path calls.
fn child<'a>(node: &'a mut Node, part: &str) -> Option<&'a mut Node> {
    let node = if node.get(part).is_none() { inside(node) } else { node };
    match &mut node.kind {
        Kind::Map(entries) => {
            entries.iter_mut().find(|(key, _)| key.text == part).map(|(_, value)| value)
        }
        Kind::List(items) => {
            let index = (0..items.len()).find(|&i| Node::label(items, i) == part)?;
            items.get_mut(index)
        }
        Kind::Null | Kind::Scalar(_) => None,
    }
}

/// `topology.core` means `topology.dumbbell.core`: the kind need not be named.
fn inside(node: &mut Node) -> &mut Node {
    let only_a_kind = matches!(&node.kind, Kind::Map(entries)
        if entries.len() == 1 && matches!(entries[0].1.kind, Kind::Map(_)));
    if !only_a_kind {
        return node;
    }
    match &mut node.kind {
        Kind::Map(entries) => &mut entries[0].1,
        _ => unreachable!("it is a map with one entry"),
    }
}

fn insert(node: &mut Node, name: &str, new: Node) {
    let Kind::Map(entries) = &mut node.kind else { return };
    match entries.iter_mut().find(|(key, _)| key.text == name) {
        Some((_, old)) => *old = new,
        None => entries.push((Key { place: new.place.clone(), text: name.into() }, new)),
    }
}

/// Sweeps a parameter over a list of values.
fn sweep_over(spec: &mut Node, param: &str, values: Node) -> Result<(), Error> {
    if spec.get("sweep").is_none() {
        let empty = Node { kind: Kind::Map(Vec::new()), ..values.clone() };
        insert(spec, "sweep", empty);
    }
    let sweep = child(spec, "sweep").expect("it is there now");
    if !matches!(sweep.kind, Kind::Map(_)) {
        let message = "the file's sweep is a list of points, which has no list per parameter";
        let help = format!("set one value, or all points: --set 'sweep=[{{{param}: 1}}]'");
        return Err(Error::new(&values.place, "spec.sweep", message, help));
    }
    insert(sweep, param, values);
    Ok(())
}

/// Takes the parameter out of a sweep: what is set is set at every point.
fn pin(sweep: &mut Node, param: &str, new: &Node) {
    match &mut sweep.kind {
        Kind::Map(entries) => {
            for (_, values) in entries.iter_mut().filter(|(key, _)| key.text == param) {
                *values = new.clone();
            }
        }
        Kind::List(points) => points.iter_mut().for_each(|point| {
            if child(point, param).is_some() {
                insert(point, param, new.clone());
            }
        }),
        Kind::Null | Kind::Scalar(_) => {}
    }
}

/// Everything that exists and holds one value, as it is written after `--set`.
fn known(spec: &Node) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(Node { kind: Kind::Map(params), .. }) = spec.get("params") {
        names.extend(params.iter().map(|(key, _)| key.text.clone()));
    }
    names.extend(SINGLE.map(String::from));
    for section in ["topology", "tenants", "traffic", "attacks", "faults"] {
        if let Some(node) = spec.get(section) {
            leaves(node, section, &mut names);
        }
    }
    names
}

fn leaves(node: &Node, path: &str, names: &mut Vec<String>) {
    match &node.kind {
        Kind::Scalar(_) => names.push(path.into()),
        Kind::Map(entries) => {
            for (key, value) in entries.iter().filter(|(key, _)| key.text != "name") {
                leaves(value, &format!("{path}.{}", key.text), names);
            }
        }
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                leaves(item, &format!("{path}.{}", Node::label(items, index)), names);
            }
        }
        Kind::Null => {}
    }
}
