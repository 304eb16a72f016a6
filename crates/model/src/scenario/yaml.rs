//! A YAML tree in which every key and value has its position in the file.
//!
//! Problem   An error must name the line of a value that is found wrong long after parsing.
//! Approach  serde-saphyr parses. Its `Spanned` positions are kept in a tree of our own, which
//!           [`Table`] reads key by key. Scalars stay text, because their meaning depends on the
//!           field.
//! Promises  An unknown key is an error, and so is one that is written twice.

use super::error::{Error, Place, did_you_mean};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};
use std::fmt;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    /// How far behind `place` the text of a scalar starts, if it stands there letter by letter.
    pub(crate) inset: Option<u32>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key and its place.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) text: String,
}

/// Parses one document.
pub(crate) fn parse(text: &str) -> Result<Node, Error> {
    // YAML 1.1 reads `y` as true, and the paper calls its VMs X and Y.
    let budget = Some(crate::yaml::budget(text));
    let options =
        serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
    serde_saphyr::from_str_with_options::<Spanned<Raw>>(text, options)
        .map(|raw| node(raw, &text.lines().collect::<Vec<_>>()))
        .map_err(|error| syntax(&error))
}

fn syntax(error: &serde_saphyr::Error) -> Error {
    let place = error.location().map_or(Place::Whole, place);
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        let message = format!("the key `{key}` is written twice");
        return Error::new(&place, key.clone(), message, "keep one of the two");
    }
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let message = text.split(" at line ").next().unwrap_or_default();
    Error::new(&place, "", format!("not valid YAML: {message}"), "")
}

fn place(at: Location) -> Place {
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Place::File { line: narrow(at.line()), column: narrow(at.column()) }
}

enum Raw {
    Null,
    Scalar(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn node(raw: Spanned<Raw>, lines: &[&str]) -> Node {
    let kind = match raw.value {
        Raw::Null => Kind::Null,
        Raw::Scalar(text) => Kind::Scalar(text),
        Raw::List(items) => Kind::List(items.into_iter().map(|item| node(item, lines)).collect()),
        Raw::Map(entries) => {
            let key = |k: Spanned<String>| Key { place: place(k.referenced), text: k.value };
            Kind::Map(entries.into_iter().map(|(k, v)| (key(k), node(v, lines))).collect())
        }
    };
    let inset = match &kind {
        Kind::Scalar(text) => inset(text, raw.referenced, lines),
        _ => None,
    };
    Node { place: place(raw.referenced), inset, kind }
}

/// 0 for plain text, 1 behind a quote; nothing for folded, escaped and aliased text.
fn inset(text: &str, at: Location, lines: &[&str]) -> Option<u32> {
    let index = |n: u64| usize::try_from(n).ok()?.checked_sub(1);
    let line = lines.get(index(at.line())?)?;
    let (start, _) = line.char_indices().nth(index(at.column())?)?;
    let rest = &line[start..];
    if rest.starts_with(text) {
        return Some(0);
    }
    rest.strip_prefix(['"', '\''])?.starts_with(text).then_some(1)
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a map")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

impl Node {
    /// The value under `key`, if this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// What people would call it.
    fn noun(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Scalar(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// The name of a list entry in paths: its name or group if it has one of its own in
    /// the list, else its number.
    pub(crate) fn label(list: &[Node], index: usize) -> String {
        let own = |node: &Node| {
            let named = node.get("name").or_else(|| node.get("group"))?;
            match &named.kind {
                Kind::Scalar(text) => Some(text.clone()),
                _ => None,
            }
        };
        let name = own(&list[index]);
        let once = list.iter().filter(|other| own(other) == name).count() == 1;
        name.filter(|_| once).unwrap_or_else(|| index.to_string())
    }
}

/// A value and the path that leads to it.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) path: String,
    pub(crate) node: &'a Node,
}

impl<'a> Field<'a> {
    pub(crate) fn error(&self, message: impl Into<String>, help: impl Into<String>) -> Error {
        Error::new(&self.node.place, self.path.clone(), message, help)
    }

    /// The text of a single value.
    pub(crate) fn text(&self) -> Result<&'a str, Error> {
        match &self.node.kind {
            Kind::Scalar(text) => Ok(text),
            _ => Err(self.error(format!("is {}", self.node.noun()), "write a single value")),
        }
    }

    /// The items of a list, each with its path; a single value counts as a list of one.
    pub(crate) fn items(&self) -> Result<Vec<Field<'a>>, Error> {
        let items = match &self.node.kind {
            Kind::List(items) => items,
            Kind::Scalar(_) => return Ok(vec![self.clone()]),
            _ => {
                let noun = self.node.noun();
                return Err(self.error(format!("is {noun}, not a list"), "write a list: [a, b]"));
            }
        };
        let path = |i| format!("{}.{}", self.path, Node::label(items, i));
        Ok(items.iter().enumerate().map(|(i, node)| Field { path: path(i), node }).collect())
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> Result<&'a [(Key, Node)], Error> {
        match &self.node.kind {
            Kind::Map(entries) => Ok(entries),
            _ => {
                let noun = self.node.noun();
                Err(self.error(format!("is {noun}, not a map"), "write a map: {key: value}"))
            }
        }
    }

    /// The map as a table; any key but `known` is an error.
    pub(crate) fn table(&self, known: &[&str]) -> Result<Table<'a>, Error> {
        let entries = self.entries()?;
        let table = Table { whole: self.clone(), entries };
        for (key, _) in entries {
            if !known.contains(&key.text.as_str()) {
                let message = format!("unknown key `{}`", key.text);
                let help = did_you_mean(&key.text, known.iter().copied());
                return Err(Error::new(&key.place, table.path_of(&key.text), message, help));
            }
        }
        Ok(table)
    }
}

/// A map whose keys are known.
pub(crate) struct Table<'a> {
    /// The map itself.
    pub(crate) whole: Field<'a>,
    entries: &'a [(Key, Node)],
}

impl<'a> Table<'a> {
    fn path_of(&self, key: &str) -> String {
        let path = &self.whole.path;
        if path.is_empty() { key.into() } else { format!("{path}.{key}") }
    }

    /// The value under `key`, if it is there.
    pub(crate) fn get(&self, key: &str) -> Option<Field<'a>> {
        let (_, node) = self.entries.iter().find(|(k, _)| k.text == key)?;
        Some(Field { path: self.path_of(key), node })
    }

    /// The value under `key`; without it, an error that shows how it is written.
    pub(crate) fn need(&self, key: &str, example: &str) -> Result<Field<'a>, Error> {
        self.get(key).ok_or_else(|| {
            let message = format!("`{key}` is missing");
            let place = &self.whole.node.place;
            Error::new(place, self.path_of(key), message, format!("write `{key}: {example}`"))
        })
    }

    /// The only key of this map that is one of `kinds`, with its value.
    pub(crate) fn one_of(
        &self,
        kinds: &[&'static str],
    ) -> Result<(&'static str, Field<'a>), Error> {
        let found: Vec<_> =
            kinds.iter().filter_map(|kind| self.get(kind).map(|field| (*kind, field))).collect();
        match <[_; 1]>::try_from(found) {
            Ok([one]) => Ok(one),
            Err(found) => {
                let choice = kinds.join("`, `");
                let message = match found.len() {
                    0 => format!("has none of `{choice}`"),
                    _ => format!("has more than one of `{choice}`"),
                };
                Err(self.whole.error(message, format!("write one of `{choice}`")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (u32, u32, String) {
        let e = parse(text).unwrap_err();
        (e.line(), e.column(), e.message)
    }

    #[test]
    fn a_syntax_error_has_a_line_and_a_column() {
        let (line, column, message) = error("a: 1\n b: [2\nc: 3\n");
        assert_eq!((line, column), (2, 3));
        assert!(message.starts_with("not valid YAML: mapping values are not allowed"), "{message}");
    }

    #[test]
    fn a_key_written_twice_is_an_error() {
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), (3, 1, "the key `a` is written twice".into()));
    }

    #[test]
    fn y_is_a_name_and_not_a_truth() {
        let node = parse("name: y").unwrap();
        assert!(matches!(&node.get("name").unwrap().kind, Kind::Scalar(text) if text == "y"));
    }

    #[test]
    fn a_list_entry_is_called_by_its_name_unless_another_has_it_too() {
        let node = parse("[{name: a}, {group: b}, {group: b}, 7]").unwrap();
        let Kind::List(list) = node.kind else { panic!("a list") };
        let labels: Vec<_> = (0..4).map(|i| Node::label(&list, i)).collect();
        assert_eq!(labels, ["a", "1", "2", "3"]);
    }
}
