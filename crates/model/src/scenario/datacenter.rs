//! `kind: Datacenter`: a datacenter of tenants, whose rates are computed without packets.
//!
//! Problem   QShare's rows about a hundred thousand VMs have no hosts and flows that one could list.
//! Approach  A file has a few numbers with defaults, those of QShare §7.3. A number that is a list is
//!           swept; several lists make every combination, the last one fastest.
//! Promises  An error names file, line and field. Without any field the file is the paper's datacenter.
//! Not here  What is played: `weir_flow::tenants`.

use super::error::{Error, Place, did_you_mean};
use super::spec::VERSION;
use super::yaml::{self, Field};
use crate::text;
use std::collections::BTreeMap;
use std::path::Path;
use weir_units::Rate;

/// What `kind` says.
const KIND: &str = "Datacenter";

/// How a number is written, and what it may be.
#[derive(Clone, Copy)]
enum Form {
    /// A whole number from the first to the second.
    Count(u32, u32),
    /// From the first to the second.
    Number(f64, f64),
    /// `10Gbit`.
    Rate,
    /// `true` or `false`.
    Flag,
}

/// Every field with its form and its default.
const FIELDS: [(&str, Form, f64); 22] = [
    ("k", Form::Count(4, 64), 16.0),
    ("slots", Form::Count(1, 10_000), 100.0),
    ("host_rate", Form::Rate, 10e9),
    ("port_rate", Form::Rate, 40e9),
    ("ratio", Form::Count(0, 16), 16.0),
    ("headroom", Form::Number(0.0, 0.9), 0.1),
    ("cost_weight", Form::Number(0.0, 1.0), 0.1),
    ("vms", Form::Number(1.0, 10_000.0), 49.0),
    ("survival", Form::Number(0.0, 1.0), 0.0),
    ("refusals", Form::Count(1, 10_000), 100.0),
    ("load", Form::Number(0.0, 4.0), 0.0),
    ("lifetimes", Form::Number(1.0, 100.0), 2.0),
    ("queues", Form::Count(0, 64), 8.0),
    ("last_dedicated", Form::Flag, 0.0),
    ("weights", Form::Count(1, 4096), 15.0),
    ("intervals", Form::Count(1, 10_000), 10.0),
    ("inactive", Form::Number(0.0, 1.0), 0.5),
    ("change", Form::Number(0.0, 1.0), 0.0),
    ("greedy", Form::Flag, 1.0),
    ("liars", Form::Number(0.0, 1.0), 0.0),
    ("asks", Form::Number(0.1, 10.0), 1.0),
    ("deviations", Form::Count(0, 100_000), 0.0),
];

/// A datacenter and what its tenants do, at one point of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Datacenter {
    /// The swept numbers.
    pub point: Vec<(String, f64)>,
    /// Ports per switch of the fat tree, which has k³/4 hosts.
    pub k: u32,
    /// VMs per host.
    pub slots: u32,
    /// Rate of hosts' links.
    pub host_rate: Rate,
    /// Rate of links between switches.
    pub port_rate: Rate,
    /// Oversubscription: 1, 4 or 16; 0 leaves all uplinks in use.
    pub ratio: u32,
    /// Part of each link that is not promised.
    pub headroom: f64,
    /// Weight of bandwidth in the cost of a place; queues have the rest.
    pub cost_weight: f64,
    /// Mean of the exponential distribution of a tenant's VMs.
    pub vms: f64,
    /// Part of a tenant that survives the loss of a host; 0 does not ask for any.
    pub survival: f64,
    /// The datacenter is full when so many tenants in a row found no place.
    pub refusals: u32,
    /// Tenants come and go: the slots that they would have on average, of all slots. 0 fills the
    /// datacenter instead.
    pub load: f64,
    /// Over how many lifetimes arrivals are measured, after one that is not.
    pub lifetimes: f64,
    /// Queues per port that tenants may have, the shared one among them. 0 is a static reservation.
    pub queues: u8,
    /// Whether a port with no more tenants than queues has no shared queue: the paper's.
    pub last_dedicated: bool,
    /// Largest weight that a switch takes.
    pub weights: u16,
    /// Control intervals that are played, after one in which all share.
    pub intervals: u32,
    /// Part of the tenants that send nothing.
    pub inactive: f64,
    /// Probability that a tenant draws anew in an interval whether it sends.
    pub change: f64,
    /// Whether those that send take what they get; else they want a part of what they have reserved,
    /// even over (0, 1], drawn with whether they send.
    pub greedy: bool,
    /// Part of the tenants that ask for another floor than they need.
    pub liars: f64,
    /// What they ask for, of what they need.
    pub asks: f64,
    /// In how many of an interval's tenants, one at a time, it is tried what another claim would win.
    pub deviations: u32,
}

/// A file of this kind that was read.
#[derive(Clone, Debug)]
pub struct DatacenterFile {
    title: String,
    points: Vec<Datacenter>,
}

/// Whether a file says that it is of this kind; what is wrong with it is said when it is read.
pub fn is_datacenter(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().any(|line| line.strip_prefix("kind:").is_some_and(|kind| kind.trim() == KIND))
}

impl DatacenterFile {
    /// Reads `path`. `overrides` (`--set FIELD=VALUE`) take the place of the file's values.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(path: &Path, overrides: &[(String, String)]) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot be read: {error}");
            Error::new(&Place::Whole, "", message, "is the path right?").in_file(&name)
        })?;
        Self::parse(&text, overrides).map_err(|error| error.in_file(&name))
    }

    /// The same from `text`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, overrides: &[(String, String)]) -> Result<Self, Error> {
        let tree = yaml::parse(text)?;
        let whole = Field { path: String::new(), node: &tree };
        let table = whole.table(&["apiVersion", "kind", "metadata", "spec"])?;
        for (key, wanted) in [("apiVersion", VERSION), ("kind", KIND)] {
            let field = table.need(key, wanted)?;
            let found = field.text()?;
            if found != wanted {
                return Err(field.error(format!("is `{found}`"), format!("write {wanted}")));
            }
        }
        let metadata = table.need("metadata", "{title: …}")?.table(&["title", "paper"])?;
        let title = metadata.need("title", "what it shows")?.text()?.to_owned();
        let names = FIELDS.map(|(name, ..)| name);
        let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        if let Some(spec) = table.get("spec") {
            let spec = spec.table(&names)?;
            for (name, form, _) in FIELDS {
                let Some(field) = spec.get(name) else { continue };
                let items = field.items()?;
                let read = |item: &Field<'_>| {
                    let text = item.text()?;
                    number(text, form).map_err(|(message, help)| item.error(message, help))
                };
                values.insert(name, items.iter().map(read).collect::<Result<_, _>>()?);
            }
        }
        for (key, value) in overrides {
            let place = Place::Set(format!("{key}={value}"));
            let Some((name, form, _)) = FIELDS.iter().find(|(name, ..)| name == key) else {
                let help = did_you_mean(key, names);
                return Err(Error::new(&place, key, format!("there is no `{key}` to set"), help));
            };
            let list = value.trim().trim_start_matches('[').trim_end_matches(']');
            let read = |text: &str| {
                let read = number(text.trim(), *form);
                read.map_err(|(message, help)| Error::new(&place, key, message, help))
            };
            values.insert(name, list.split(',').map(read).collect::<Result<_, _>>()?);
        }
        if let Some((name, _)) = values.iter().find(|(_, values)| values.is_empty()) {
            let help = "write a number, or a list of numbers";
            return Err(Error::new(&Place::Whole, *name, "is an empty list", help));
        }
        let points = points(&values)?;
        Ok(Self { title, points })
    }

    /// `metadata.title`.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// One datacenter per point of the sweep.
    pub fn points(&self) -> &[Datacenter] {
        &self.points
    }
}

/// What is written, or what is wrong with it and what would be right.
fn number(text: &str, form: Form) -> Result<f64, (String, String)> {
    let within = |least: f64, most: f64| {
        let found = text.parse::<f64>().ok().filter(|found| (least..=most).contains(found));
        found.ok_or_else(|| {
            (
                format!("`{text}` is no number here"),
                format!("write a number from {least} to {most}"),
            )
        })
    };
    match form {
        Form::Number(least, most) => within(least, most),
        Form::Count(least, most) => {
            let found = within(least.into(), most.into())?;
            let help = || format!("write a whole number from {least} to {most}");
            if found.fract() == 0.0 { Ok(found) } else { Err((format!("is {found}"), help())) }
        }
        Form::Rate => {
            let rate = text::rate(text).map_err(|error| (error, "write 10Gbit".to_owned()))?;
            if rate.is_zero() {
                return Err(("is no rate".into(), "write 10Gbit".into()));
            }
            Ok(rate.as_f64())
        }
        Form::Flag => match text {
            "true" => Ok(1.0),
            "false" => Ok(0.0),
            _ => Err((format!("`{text}` is neither"), "write true or false".into())),
        },
    }
}

/// Every combination of the values.
fn points(values: &BTreeMap<&str, Vec<f64>>) -> Result<Vec<Datacenter>, Error> {
    let mut all: Vec<Vec<(&str, f64)>> = vec![Vec::new()];
    for (name, _, default) in FIELDS {
        let of = values.get(name).map_or(std::slice::from_ref(&default), Vec::as_slice);
        let with = |point: &Vec<(&'static str, f64)>| {
            let longer = |value: &f64| point.iter().copied().chain([(name, *value)]).collect();
            of.iter().map(longer).collect::<Vec<Vec<_>>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let is_swept = |name: &str| values.get(name).is_some_and(|of| of.len() > 1);
    all.iter().map(|point| datacenter(point, is_swept)).collect()
}

fn datacenter(
    values: &[(&str, f64)],
    is_swept: impl Fn(&str) -> bool,
) -> Result<Datacenter, Error> {
    let get = |name: &str| {
        let found = values.iter().find(|(other, _)| *other == name);
        found.map_or(0.0, |(_, value)| *value)
    };
    let count = |name: &str| get(name) as u32;
    let swept = values.iter().filter(|(name, _)| is_swept(name));
    let wrong = |name: &str, message: &str, help: &str| {
        Err(Error::new(&Place::Whole, format!("spec.{name}"), message, help))
    };
    if !count("k").is_multiple_of(2) {
        return wrong("k", "is odd", "write an even number of ports");
    }
    if ![0, 1, 4, 16].contains(&count("ratio")) {
        return wrong("ratio", "is no ratio", "write 1, 4, 16, or 0 for all uplinks");
    }
    Ok(Datacenter {
        point: swept.map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        k: count("k"),
        slots: count("slots"),
        host_rate: Rate::from_bps(get("host_rate") as u64),
        port_rate: Rate::from_bps(get("port_rate") as u64),
        ratio: count("ratio"),
        headroom: get("headroom"),
        cost_weight: get("cost_weight"),
        vms: get("vms"),
        survival: get("survival"),
        refusals: count("refusals"),
        load: get("load"),
        lifetimes: get("lifetimes"),
        queues: count("queues") as u8,
        last_dedicated: get("last_dedicated") > 0.0,
        weights: count("weights") as u16,
        intervals: count("intervals"),
        inactive: get("inactive"),
        change: get("change"),
        greedy: get("greedy") > 0.0,
        liars: get("liars"),
        asks: get("asks"),
        deviations: count("deviations"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: weir/v1alpha1\nkind: Datacenter\nmetadata: {title: t}\n";

    fn file(spec: &str, sets: &[(&str, &str)]) -> Result<DatacenterFile, Error> {
        let sets: Vec<(String, String)> =
            sets.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        DatacenterFile::parse(&format!("{HEAD}{spec}"), &sets)
    }

    #[test]
    fn without_a_field_it_is_the_papers_datacenter() {
        let file = file("", &[]).unwrap();
        let [one] = file.points() else { panic!("{file:?}") };
        assert_eq!((one.k, one.slots, one.ratio), (16, 100, 16));
        assert_eq!(
            (one.host_rate, one.port_rate),
            (Rate::from_mbps(10_000), Rate::from_mbps(40_000))
        );
        assert!(one.point.is_empty() && one.greedy && one.queues == 8);
    }

    #[test]
    fn lists_are_swept_and_the_last_one_fastest() {
        let file =
            file("spec: {inactive: [0, 0.5], ratio: [1, 16], host_rate: 1Gbit}\n", &[]).unwrap();
        let points: Vec<(u32, f64)> = file.points().iter().map(|p| (p.ratio, p.inactive)).collect();
        assert_eq!(points, [(1, 0.0), (1, 0.5), (16, 0.0), (16, 0.5)]);
        assert_eq!(file.points()[3].point, [("ratio".into(), 16.0), ("inactive".into(), 0.5)]);
        assert_eq!(file.points()[0].host_rate, Rate::from_mbps(1000));
    }

    #[test]
    fn a_set_takes_the_place_of_what_the_file_says() {
        let file = file("spec: {ratio: [1, 16]}\n", &[("ratio", "4"), ("k", "[4, 8]")]).unwrap();
        let points: Vec<(u32, u32)> = file.points().iter().map(|p| (p.ratio, p.k)).collect();
        assert_eq!(points, [(4, 4), (4, 8)]);
        assert_eq!(file.points()[1].point, [("k".into(), 8.0)]);
    }

    #[test]
    fn a_mistake_has_its_line_its_field_and_what_would_be_right() {
        for (spec, sets, line, field, help) in [
            ("spec: {queus: 3}\n", [("k", "8")], 4, "spec.queus", "did you mean `queues`"),
            ("spec: {queues: 3.5}\n", [("k", "8")], 4, "spec.queues", "whole number from 0 to 64"),
            ("spec: {greedy: 1}\n", [("k", "8")], 4, "spec.greedy", "true or false"),
            ("spec: {host_rate: 10}\n", [("k", "8")], 4, "spec.host_rate", "10Gbit"),
            ("spec: {headroom: 1}\n", [("k", "8")], 4, "spec.headroom", "from 0 to 0.9"),
            ("spec: {ratio: 3}\n", [("k", "8")], 0, "spec.ratio", "1, 4, 16"),
            ("", [("k", "7")], 0, "spec.k", "even"),
            ("", [("kk", "7")], 0, "kk", "known here: k"),
            ("spec: {k: []}\n", [("slots", "7")], 0, "k", "a list of numbers"),
        ] {
            let error = file(spec, &sets).expect_err(spec);
            assert_eq!((error.line(), error.field.as_str()), (line, field), "{error}");
            assert!(error.help.contains(help), "{error}");
        }
    }
}
