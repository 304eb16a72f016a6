//! A scenario file as it is written: every key read, no expression evaluated yet.
//!
//! Problem   A file is read once and played at every point of its sweep.
//! Approach  One struct per map of the format; this module alone knows the keys.
//! Not here  What the values mean together: see `resolve`.

pub(crate) mod attacks;
pub(crate) mod binding;
pub(crate) mod budget;
pub(crate) mod faults;
pub(crate) mod hoses;
pub(crate) mod links;
pub(crate) mod traffic;

use super::error::{Error, Place};
use super::expr::is_name;
use super::formula::Formula;
use super::yaml::{Field, Kind, Node};
use links::{LinkSpec, PortSpec};

/// A word with its place.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) place: Place,
    pub(crate) path: String,
}

impl Word {
    pub(crate) fn error(&self, message: impl Into<String>, help: impl Into<String>) -> Error {
        Error::new(&self.place, self.path.clone(), message, help)
    }
}

/// A whole file.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) paper: Option<String>,
    /// The `spec` itself, for errors about what it lacks.
    pub(crate) whole: Word,
    pub(crate) params: Vec<(Word, Formula)>,
    pub(crate) duration: Formula,
    pub(crate) warmup: Option<Formula>,
    pub(crate) sample: Option<Formula>,
    pub(crate) scale: Option<Formula>,
    pub(crate) headroom: Option<Formula>,
    pub(crate) clock_drift: Option<Formula>,
    pub(crate) repeat: Option<Formula>,
    pub(crate) congested: Vec<CongestedSpec>,
    pub(crate) topology: TopologySpec,
    pub(crate) tenants: Vec<TenantSpec>,
    pub(crate) traffic: Vec<TrafficSpec>,
    pub(crate) attacks: Vec<attacks::AttackSpec>,
    pub(crate) faults: Vec<faults::FaultSpec>,
    pub(crate) sweep: Vec<Vec<(Word, Formula)>>,
    pub(crate) lab: super::Lab,
    pub(crate) mechanisms: Vec<Word>,
    pub(crate) binding: Option<binding::BindingSpec>,
    pub(crate) expect: Vec<ExpectSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct TopologySpec {
    pub(crate) whole: Word,
    pub(crate) shape: Shape,
    /// Which of several equal ways is taken.
    pub(crate) ecmp: Option<Word>,
    /// Of all links.
    pub(crate) ports: PortSpec,
    /// Of single links, where the kind names them.
    pub(crate) of_links: Vec<(Word, PortSpec)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Dumbbell { left: Formula, right: Formula, edge: Formula, core: Formula },
    SingleSwitch { hosts: Formula, link: Formula },
    TwoTier { racks: Formula, per_rack: Formula, link: Formula, up: Uplink },
    LeafSpine { leaves: Formula, spines: Formula, per_leaf: Formula, link: Formula, up: Uplink },
    FatTree { k: Formula, per_edge: Option<Formula>, link: Formula, up: Option<Uplink> },
    Links { hosts: Vec<Word>, switches: Vec<Word>, links: Vec<LinkSpec> },
}

#[derive(Clone, Debug)]
pub(crate) enum Uplink {
    Rate(Formula),
    Oversubscription(Formula),
}

#[derive(Clone, Debug)]
pub(crate) struct TenantSpec {
    pub(crate) name: Word,
    pub(crate) vms: Vec<VmSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct VmSpec {
    pub(crate) name: Word,
    pub(crate) whole: Word,
    pub(crate) hosts: Vec<Word>,
    pub(crate) count: Option<Formula>,
    pub(crate) floor_in: Option<Formula>,
    pub(crate) floor_out: Option<Formula>,
    pub(crate) hoses: Vec<hoses::HoseSpec>,
    pub(crate) cap: Option<Formula>,
    pub(crate) external: Option<Formula>,
    pub(crate) external_ceiling: Option<Formula>,
    pub(crate) outside: Vec<Word>,
    pub(crate) ecn: Option<Formula>,
    pub(crate) deaf: Option<Formula>,
    pub(crate) translated: Option<Formula>,
    pub(crate) policing: Option<Formula>,
    pub(crate) backpressure: Option<Formula>,
    pub(crate) rack: Option<Formula>,
    pub(crate) budget: Option<budget::BudgetSpec>,
}

#[derive(Clone, Debug)]
pub(crate) struct TrafficSpec {
    pub(crate) group: Word,
    pub(crate) from: Word,
    pub(crate) to: Word,
    pub(crate) kind: KindSpec,
    pub(crate) ip: Option<Word>,
    pub(crate) start: Option<Formula>,
    pub(crate) within: Option<Formula>,
    pub(crate) stop: Option<Formula>,
    pub(crate) trace: Option<Formula>,
}

#[derive(Clone, Debug)]
pub(crate) enum KindSpec {
    Tcp { connections: Option<Formula>, congestion: Option<Word> },
    Udp { rate: Formula, bursts: Option<Box<(Formula, Formula)>>, payload: Option<Formula> },
    Work(traffic::WorkSpec),
}

#[derive(Clone, Debug)]
pub(crate) struct CongestedSpec {
    pub(crate) link: Word,
    pub(crate) when: Option<Formula>,
}

#[derive(Clone, Debug)]
pub(crate) struct ExpectSpec {
    pub(crate) mechanisms: Vec<Word>,
    pub(crate) metric: Word,
    /// The number with which an expectation compares, and whether by difference.
    pub(crate) against: Option<(Word, bool)>,
    /// The other point of the sweep with which the result is compared as a ratio.
    pub(crate) at: Option<PointSpec>,
    pub(crate) at_least: Option<Formula>,
    pub(crate) at_most: Option<Formula>,
    pub(crate) when: Option<Formula>,
    pub(crate) says: Option<String>,
}

/// Another point of the sweep: the values in which it differs.
#[derive(Clone, Debug)]
pub(crate) struct PointSpec {
    /// The field itself, for errors about the point as a whole.
    pub(crate) whole: Word,
    pub(crate) values: Vec<(Word, Formula)>,
}

pub(super) const VERSION: &str = "weir/v1alpha1";

/// Reads a whole file.
pub(crate) fn read(node: &Node) -> Result<Spec, Error> {
    let file = Field { path: String::new(), node };
    let object = file.table(&["apiVersion", "kind", "metadata", "spec"])?;
    for (key, wanted) in [("apiVersion", VERSION), ("kind", "Scenario")] {
        let field = object.need(key, wanted)?;
        let text = field.text()?;
        if text != wanted {
            return Err(field
                .error(format!("`{text}` is not `{wanted}`"), format!("write `{key}: {wanted}`")));
        }
    }
    let metadata = object.need("metadata", "{name: …, title: …}")?;
    let metadata = metadata.table(&["name", "title", "paper"])?;
    let name = metadata.need("name", "fig05").and_then(name)?.text;
    let title = metadata.get("title").map(|f| prose(&f)).transpose()?;
    let paper = metadata.get("paper").map(|f| prose(&f)).transpose()?;
    let field = object.need("spec", "{duration: 30s, …}")?;
    let spec = field.table(&[
        "params",
        "duration",
        "warmup",
        "sample",
        "scale",
        "headroom",
        "clock_drift",
        "repeat",
        "congested",
        "topology",
        "tenants",
        "traffic",
        "attacks",
        "faults",
        "sweep",
        "lab",
        "mechanisms",
        "binding",
        "expect",
    ])?;
    let formula = |key: &str| spec.get(key).map(Formula::read).transpose();
    let list = |key: &str| spec.get(key).map_or(Ok(Vec::new()), |f| f.items());
    let words = |key: &str| list(key)?.into_iter().map(word).collect::<Result<Vec<_>, _>>();
    Ok(Spec {
        title: title.unwrap_or_else(|| name.clone()),
        name,
        paper,
        params: spec.get("params").map_or(Ok(Vec::new()), params)?,
        duration: Formula::read(spec.need("duration", "30s")?)?,
        warmup: formula("warmup")?,
        sample: formula("sample")?,
        scale: formula("scale")?,
        headroom: formula("headroom")?,
        clock_drift: formula("clock_drift")?,
        repeat: formula("repeat")?,
        congested: list("congested")?.into_iter().map(congested).collect::<Result<_, _>>()?,
        topology: topology(&spec.need("topology", "{dumbbell: {left: 2, right: 2, …}}")?)?,
        tenants: list("tenants")?.iter().map(tenant).collect::<Result<_, _>>()?,
        traffic: list("traffic")?.iter().map(traffic_entry).collect::<Result<_, _>>()?,
        attacks: list("attacks")?.iter().map(attacks::attack).collect::<Result<_, _>>()?,
        faults: list("faults")?.iter().map(faults::fault).collect::<Result<_, _>>()?,
        sweep: spec.get("sweep").map_or(Ok(Vec::new()), |f| sweep(&f))?,
        lab: spec.get("lab").map_or(Ok(super::Lab::default()), |f| lab(&f))?,
        mechanisms: words("mechanisms")?,
        binding: spec.get("binding").map(|f| binding::binding(&f)).transpose()?,
        expect: list("expect")?.iter().map(expect).collect::<Result<_, _>>()?,
        whole: Word { text: String::new(), place: field.node.place.clone(), path: field.path },
    })
}

/// `{controller: true}`.
fn lab(field: &Field<'_>) -> Result<super::Lab, Error> {
    let table = field.table(&["controller"])?;
    let Some(switch) = table.get("controller") else { return Ok(super::Lab::default()) };
    let controller = match switch.text()? {
        "true" => true,
        "false" => false,
        other => {
            let message = format!("`{other}` is neither true nor false");
            return Err(switch.error(message, "write `controller: true`, or leave it out"));
        }
    };
    Ok(super::Lab { controller })
}

/// Any single value.
fn word(field: Field<'_>) -> Result<Word, Error> {
    let text = field.text()?.to_owned();
    Ok(Word { text, place: field.node.place.clone(), path: field.path })
}

/// A text of one paragraph.
fn prose(field: &Field<'_>) -> Result<String, Error> {
    Ok(field.text()?.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The name of a thing: it becomes part of interface names, paths and `--set` keys.
fn name(field: Field<'_>) -> Result<Word, Error> {
    let word = word(field)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if word.text.is_empty() || word.text.len() > 63 || !word.text.chars().all(plain) {
        let message = format!("`{}` is not a name", word.text);
        return Err(word.error(message, "use letters, digits, `-` and `_`, at most 63 of them"));
    }
    Ok(word)
}

/// The place of a whole map or list.
fn whole(field: &Field<'_>) -> Word {
    Word { text: String::new(), place: field.node.place.clone(), path: field.path.clone() }
}

fn params(field: Field<'_>) -> Result<Vec<(Word, Formula)>, Error> {
    let named = |(key, node): &(super::yaml::Key, Node)| {
        let path = format!("{}.{}", field.path, key.text);
        let word = Word { text: key.text.clone(), place: key.place.clone(), path: path.clone() };
        if !is_name(&word.text) || ["duration", "warmup"].contains(&word.text.as_str()) {
            let message = format!("`{}` cannot be the name of a parameter", word.text);
            let help = "use letters, digits and `_`; duration, warmup, and, or are taken";
            return Err(word.error(message, help));
        }
        Ok((word, Formula::read(Field { path, node })?))
    };
    field.entries()?.iter().map(named).collect()
}

fn topology(field: &Field<'_>) -> Result<TopologySpec, Error> {
    const KINDS: [&str; 6] =
        ["dumbbell", "single-switch", "two-tier", "leaf-spine", "fat-tree", "links"];
    const UP: [&str; 2] = ["uplink", "oversubscription"];
    let (kind, body) = field.table(&KINDS)?.one_of(&KINDS)?;
    let keys: &[&str] = match kind {
        "dumbbell" => &["left", "right", "edge", "core", "links"],
        "single-switch" => &["hosts", "link", "links"],
        "two-tier" => &["racks", "hosts_per_rack", "link", UP[0], UP[1], "links"],
        "leaf-spine" => {
            &["leaves", "spines", "hosts_per_leaf", "link", UP[0], UP[1], "links", "ecmp"]
        }
        "fat-tree" => &["k", "hosts_per_edge", "link", UP[0], UP[1], "links", "ecmp"],
        _ => &["hosts", "switches", "links", "ecmp"],
    };
    let table = body.table(&[keys, &links::OF_ALL].concat())?;
    let need = |key: &str, example: &str| Formula::read(table.need(key, example)?);
    let words = |key: &str| match table.get(key) {
        Some(f) => f.items()?.into_iter().map(name).collect::<Result<Vec<_>, _>>(),
        None => Ok(Vec::new()),
    };
    let up = || match table.one_of(&UP)? {
        ("uplink", rate) => Ok(Uplink::Rate(Formula::read(rate)?)),
        (_, ratio) => Ok(Uplink::Oversubscription(Formula::read(ratio)?)),
    };
    let shape = match kind {
        "dumbbell" => Shape::Dumbbell {
            left: need("left", "2")?,
            right: need("right", "2")?,
            edge: need("edge", "1Gbit")?,
            core: need("core", "1Gbit")?,
        },
        "single-switch" => {
            Shape::SingleSwitch { hosts: need("hosts", "4")?, link: need("link", "1Gbit")? }
        }
        "two-tier" => Shape::TwoTier {
            racks: need("racks", "4")?,
            per_rack: need("hosts_per_rack", "10")?,
            link: need("link", "1Gbit")?,
            up: up()?,
        },
        "leaf-spine" => Shape::LeafSpine {
            leaves: need("leaves", "4")?,
            spines: need("spines", "2")?,
            per_leaf: need("hosts_per_leaf", "16")?,
            link: need("link", "1Gbit")?,
            up: up()?,
        },
        "fat-tree" => Shape::FatTree {
            k: need("k", "4")?,
            per_edge: table.get("hosts_per_edge").map(Formula::read).transpose()?,
            link: need("link", "1Gbit")?,
            up: UP.iter().any(|key| table.get(key).is_some()).then(up).transpose()?,
        },
        _ => Shape::Links {
            hosts: words("hosts")?,
            switches: words("switches")?,
            links: table
                .need("links", "[{a: h1, b: s, rate: 1Gbit}]")?
                .items()?
                .iter()
                .map(links::link)
                .collect::<Result<_, _>>()?,
        },
    };
    let of_links = match (&shape, table.get("links")) {
        (Shape::Links { .. }, _) | (_, None) => Vec::new(),
        (_, Some(field)) => links::by_name(&field)?,
    };
    let ecmp = table.get("ecmp").map(word).transpose()?;
    Ok(TopologySpec { whole: whole(&body), shape, ecmp, ports: links::ports(&table)?, of_links })
}

fn tenant(field: &Field<'_>) -> Result<TenantSpec, Error> {
    let table = field.table(&["name", "vms"])?;
    let vms = table.need("vms", "[{name: a, host: left-0}]")?;
    Ok(TenantSpec {
        name: name(table.need("name", "gold")?)?,
        vms: vms.items()?.iter().map(vm).collect::<Result<_, _>>()?,
    })
}

fn vm(field: &Field<'_>) -> Result<VmSpec, Error> {
    let table = field.table(&[
        "name",
        "host",
        "hosts",
        "count",
        "floor",
        "floor_in",
        "floor_out",
        "hoses",
        "cap",
        "external",
        "external_ceiling",
        "outside",
        "ecn",
        "deaf",
        "translated",
        "policing",
        "backpressure",
        "rack",
        "budget",
    ])?;
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    let clash = |a: &str, b: &str| match (table.get(a), table.get(b)) {
        (Some(_), Some(second)) => {
            Err(second.error(format!("`{b}` beside `{a}`"), format!("keep `{a}` or `{b}`")))
        }
        _ => Ok(()),
    };
    clash("host", "hosts")?;
    clash("floor", "floor_in")?;
    clash("floor", "floor_out")?;
    clash("count", "outside")?;
    clash("budget", "outside")?;
    clash("hoses", "outside")?;
    let hosts = match (table.get("host"), table.get("hosts")) {
        (Some(one), _) => vec![word(one)?],
        (_, Some(some)) => some.items()?.into_iter().map(word).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    let either = |key: &str| Ok::<_, Error>(formula(key)?.or(formula("floor")?));
    Ok(VmSpec {
        name: name(table.need("name", "a")?)?,
        whole: whole(field),
        hosts,
        count: formula("count")?,
        floor_in: either("floor_in")?,
        floor_out: either("floor_out")?,
        hoses: table.get("hoses").map_or(Ok(Vec::new()), |f| hoses::hoses(&f))?,
        cap: formula("cap")?,
        external: formula("external")?,
        external_ceiling: formula("external_ceiling")?,
        outside: match table.get("outside") {
            Some(some) => some.items()?.into_iter().map(word).collect::<Result<_, _>>()?,
            None => Vec::new(),
        },
        ecn: formula("ecn")?,
        deaf: formula("deaf")?,
        translated: formula("translated")?,
        policing: formula("policing")?,
        backpressure: formula("backpressure")?,
        rack: formula("rack")?,
        budget: table.get("budget").map(|f| budget::budget(&f)).transpose()?,
    })
}

fn traffic_entry(field: &Field<'_>) -> Result<TrafficSpec, Error> {
    let keys =
        [&["group", "from", "to", "ip", "start", "within", "stop", "trace"], &traffic::KINDS[..]]
            .concat();
    let table = field.table(&keys)?;
    let kind = match table.one_of(&traffic::KINDS)? {
        ("tcp", Field { node: Node { kind: Kind::Null, .. }, .. }) => {
            KindSpec::Tcp { connections: None, congestion: None }
        }
        ("tcp", tcp) => {
            let tcp = tcp.table(&["connections", "congestion"])?;
            KindSpec::Tcp {
                connections: tcp.get("connections").map(Formula::read).transpose()?,
                congestion: tcp.get("congestion").map(name).transpose()?,
            }
        }
        ("udp", udp) => {
            let udp = udp.table(&["rate", "on", "off", "payload"])?;
            let bursts = match (udp.get("on"), udp.get("off")) {
                (None, None) => None,
                (on, off) => {
                    let on = on.map_or_else(|| udp.need("on", "10ms"), Ok)?;
                    let off = off.map_or_else(|| udp.need("off", "10ms"), Ok)?;
                    Some(Box::new((Formula::read(on)?, Formula::read(off)?)))
                }
            };
            KindSpec::Udp {
                rate: Formula::read(udp.need("rate", "100Mbit")?)?,
                bursts,
                payload: udp.get("payload").map(Formula::read).transpose()?,
            }
        }
        (kind, field) => KindSpec::Work(traffic::read(kind, &field)?),
    };
    Ok(TrafficSpec {
        group: name(table.need("group", "x")?)?,
        from: word(table.need("from", "x-src")?)?,
        to: word(table.need("to", "x-dst")?)?,
        kind,
        ip: table.get("ip").map(word).transpose()?,
        start: table.get("start").map(Formula::read).transpose()?,
        within: table.get("within").map(Formula::read).transpose()?,
        stop: table.get("stop").map(Formula::read).transpose()?,
        trace: table.get("trace").map(Formula::read).transpose()?,
    })
}

/// The points of a sweep: a list is taken as written, a map of lists is multiplied out, the first
/// key outermost.
fn sweep(field: &Field<'_>) -> Result<Vec<Vec<(Word, Formula)>>, Error> {
    if matches!(field.node.kind, Kind::List(_)) {
        return field.items()?.iter().map(|point| point_of(point)).collect();
    }
    let mut points = vec![Vec::new()];
    for (key, node) in field.entries()? {
        let path = format!("{}.{}", field.path, key.text);
        let word = Word { text: key.text.clone(), place: key.place.clone(), path: path.clone() };
        let values = Field { path, node }.items()?;
        if values.is_empty() {
            return Err(word.error("is an empty list", "write at least one value"));
        }
        // Before they are made: a few lists of a thousand values would take all memory there is.
        let count = points.len().saturating_mul(values.len());
        if count > super::formula::MOST as usize {
            return Err(word.error(format!("{count} points"), "sweep over less"));
        }
        let values: Vec<Formula> =
            values.into_iter().map(Formula::read).collect::<Result<_, _>>()?;
        points = points
            .into_iter()
            .flat_map(|point: Vec<(Word, Formula)>| {
                let word = &word;
                values.iter().map(move |v| [&point[..], &[(word.clone(), v.clone())]].concat())
            })
            .collect();
    }
    Ok(points)
}

fn point_of(field: &Field<'_>) -> Result<Vec<(Word, Formula)>, Error> {
    let one = |(key, node): &(super::yaml::Key, Node)| {
        let path = format!("{}.{}", field.path, key.text);
        let word = Word { text: key.text.clone(), place: key.place.clone(), path: path.clone() };
        Ok((word, Formula::read(Field { path, node })?))
    };
    field.entries()?.iter().map(one).collect()
}

/// A link's name, or `{link, when}`.
fn congested(field: Field<'_>) -> Result<CongestedSpec, Error> {
    if !matches!(field.node.kind, Kind::Map(_)) {
        return Ok(CongestedSpec { link: word(field)?, when: None });
    }
    let table = field.table(&["link", "when"])?;
    Ok(CongestedSpec {
        link: word(table.need("link", "core")?)?,
        when: table.get("when").map(Formula::read).transpose()?,
    })
}

fn expect(field: &Field<'_>) -> Result<ExpectSpec, Error> {
    let table = field.table(&[
        "mechanism",
        "metric",
        "of",
        "over",
        "at",
        "at_least",
        "at_most",
        "when",
        "says",
    ])?;
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    let (at_least, at_most) = (formula("at_least")?, formula("at_most")?);
    if at_least.is_none() && at_most.is_none() {
        return Err(field.error("has no bound", "write `at_least: 0.95` or `at_most: 1`"));
    }
    let against = match (table.get("of"), table.get("over")) {
        (Some(_), Some(second)) => return Err(second.error("`over` beside `of`", "keep one")),
        (Some(of), None) => Some((word(of)?, false)),
        (None, over) => over.map(word).transpose()?.map(|over| (over, true)),
    };
    let at = table.get("at").map(|at| {
        let whole =
            Word { text: String::new(), place: at.node.place.clone(), path: at.path.clone() };
        Ok(PointSpec { whole, values: point_of(&at)? })
    });
    let at = at.transpose()?;
    if let (Some(at), Some((_, true))) = (&at, &against) {
        return Err(at.whole.error("`at` beside `over`", "keep one, or write `of` for `over`"));
    }
    let mechanisms = match table.get("mechanism") {
        Some(some) => some.items()?.into_iter().map(word).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    Ok(ExpectSpec {
        mechanisms,
        metric: word(table.need("metric", "worst_floor_ratio")?)?,
        against,
        at,
        at_least,
        at_most,
        when: formula("when")?,
        says: table.get("says").map(|f| prose(&f)).transpose()?,
    })
}

impl Spec {
    /// Reads the files that the traffic names, relative to `directory`.
    pub(crate) fn load(&mut self, directory: &std::path::Path) -> Result<(), Error> {
        self.traffic.iter_mut().try_for_each(|entry| match &mut entry.kind {
            KindSpec::Work(work) => work.load(directory),
            KindSpec::Tcp { .. } | KindSpec::Udp { .. } => Ok(()),
        })
    }
}
