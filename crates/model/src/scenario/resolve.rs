//! From a file to one playable [`Scenario`].
//!
//! Problem   Worlds want indices and whole numbers; files have names, sets and expressions.
//! Approach  In the order in which things depend on each other: parameters, times, topology, VMs
//!           and their floors, traffic, expectations. `scale` is applied last, so that errors speak
//!           in the numbers that people wrote.
//! Promises  What comes out needs no further checks.
//! Not here  Reading keys (`spec`), links (`topology`), whether floors fit (`admission`).

mod attacks;
mod binding;
mod budget;
mod faults;
mod hoses;
mod metrics;
mod points;
mod traffic;

use super::admission::{self, Origin};
use super::error::{Error, Place, did_you_mean};
use super::expr::{Dim, Scope, Value};
use super::formula::{Formula, MOST};
use super::hoses::SharedHose;
use super::spec::{ExpectSpec, KindSpec, Spec, TrafficSpec, VmSpec, Word};
use super::topology::distinct;
use super::{Against, Other, workload};
use super::{Expectation, External, IpVersion, Mechanism, Scenario, Traffic, TrafficKind, Vm};
use crate::agent::POLICING_MOST;
use crate::net::Prefix;
use crate::text::show_size;
use metrics::Unit;
pub use metrics::{is_metric, is_of_datacenter};
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{Bytes, Rate, Span};

/// Most pairs of VMs in a scenario: 144 hosts that all send to all others, and some more. The lab
/// needs a port number for each, below the range that the kernel assigns by itself.
const PAIRS_MOST: usize = 25_000;
/// Number of moments at which pairs begin that start within a time, and the step between
/// neighbours. Neighbours are far apart, and any number of pairs is spread evenly. A larger number
/// costs the judge more pieces of time.
const TURNS: u64 = 16;
const TURN: u64 = 11;
/// Default warmup.
const WARMUP: Span = Span::from_secs(5);
/// Default width of a sample, and the least.
const SAMPLE: Span = Span::from_millis(100);
const SAMPLE_LEAST: Span = Span::from_millis(1);
/// Default headroom: the part of a link that is not promised (ElasticSwitch §7).
const HEADROOM: f64 = 0.1;
/// Least interval of a trace: the lab wakes every 2 ms.
const TRACE: [Span; 2] = [Span::from_millis(2), Span::from_secs(1)];
/// Most samples of one traffic entry's trace.
const LOOKS_MOST: u64 = 1_000_000;
/// The shortest burst or pause. A world's timers are no finer, and a judge looks at each one.
const BURST_LEAST: Span = Span::from_millis(1);

/// The scenario at one point of the sweep.
pub(crate) fn resolve(spec: &Spec, point: &[(Word, Formula)]) -> Result<Scenario, Error> {
    let mut scope = params(spec, point)?;
    let named = points::named(spec, &scope);
    let (duration, warmup) = times(spec, &mut scope)?;
    let sample = sample(spec, &scope)?;
    let scale = scale(spec, &scope)?;
    let clock_drift = clock_drift(spec, &scope)?;
    scope.set("scale", Value { number: scale, dim: Dim::Number });
    let mut topology = spec.topology.build(&scope)?;
    let hosts = topology.hosts.clone();
    let mut place = Placement::new(&hosts, hoses::shared(spec)?);
    place.tenants(spec, &scope)?;
    admission::admit(
        &topology,
        &place.vms,
        &place.origins,
        &place.origin,
        headroom(spec, &scope)?,
    )?;
    let mut traffic = Vec::new();
    let mut entries = Vec::new();
    for (number, entry) in spec.traffic.iter().enumerate() {
        let mut flows = flows(entry, &place, &scope, duration)?;
        workload::complete(&mut flows, number);
        entries.extend(std::iter::repeat_n(number, flows.len()));
        traffic.extend(flows);
        if traffic.len() > PAIRS_MOST {
            let message = format!("{} pairs of VMs with the entries before", traffic.len());
            let help = format!("at most {PAIRS_MOST} in all: use fewer VMs");
            return Err(entry.group.error(message, help));
        }
    }
    traffic::check_programs(spec, &traffic, &entries)?;
    let attacks = attacks::attacks(spec, &place, &scope, duration)?;
    let faults = faults::faults(spec, (&place, &topology), &scope, duration)?;
    let congested = congested(spec, &scope, &topology)?;
    let mechanisms = mechanisms(spec)?;
    let binding = binding::binding(spec, &scope)?;
    let expect = expectations(spec, &scope, &traffic, scale)?;
    topology.links.iter_mut().for_each(|link| link.rate = link.rate.scale(scale));
    for vm in &mut place.vms {
        vm.floor_in = vm.floor_in.scale(scale);
        vm.floor_out = vm.floor_out.scale(scale);
        for hose in &mut vm.hoses {
            hose.floor_in = hose.floor_in.scale(scale);
            hose.floor_out = hose.floor_out.scale(scale);
        }
        vm.cap_out = vm.cap_out.map(|cap| cap.scale(scale));
        for rate in [&mut vm.external.floor, &mut vm.external.ceiling].into_iter().flatten() {
            *rate = rate.scale(scale);
        }
    }
    for flow in &mut traffic {
        flow.kind.scale(scale);
    }
    Ok(Scenario {
        name: spec.name.clone(),
        title: spec.title.clone(),
        point: named,
        duration,
        warmup,
        sample,
        scale,
        topology,
        vms: place.vms,
        tenants: spec.tenants.iter().map(|t| t.name.text.clone()).collect(),
        hoses: place.hoses,
        traffic,
        attacks,
        faults,
        clock_drift,
        lab: spec.lab,
        mechanisms,
        binding,
        congested,
        expect,
    })
}

/// Parameters in the order of the file; those of the point replace what is written.
fn params(spec: &Spec, point: &[(Word, Formula)]) -> Result<Scope, Error> {
    let known = || spec.params.iter().map(|(word, _)| word.text.as_str());
    for (word, _) in point {
        if !known().any(|name| name == word.text) {
            let message = format!("`{}` is not a parameter", word.text);
            return Err(word.error(message, did_you_mean(&word.text, known())));
        }
    }
    let mut scope = Scope::default();
    for (word, written) in &spec.params {
        let swept = point.iter().find(|(w, _)| w.text == word.text).map(|(_, formula)| formula);
        let value = swept.unwrap_or(written).value(&scope)?;
        scope.set(&word.text, value);
    }
    Ok(scope)
}

/// Width of a sample.
fn sample(spec: &Spec, scope: &Scope) -> Result<Span, Error> {
    let Some(formula) = &spec.sample else { return Ok(SAMPLE) };
    let span = formula.span(scope)?;
    if !(SAMPLE_LEAST..=SAMPLE).contains(&span) {
        let message = format!("samples of {span}");
        return Err(formula.error(message, format!("write {SAMPLE_LEAST} to {SAMPLE}")));
    }
    Ok(span)
}

/// Duration and warmup, which other fields may use by name.
fn times(spec: &Spec, scope: &mut Scope) -> Result<(Span, Span), Error> {
    let second = |span: Span| Value { number: span.as_secs_f64(), dim: Dim::Span };
    let duration = spec.duration.span(scope)?;
    if duration == Span::ZERO {
        return Err(spec.duration.error("a duration of zero", "write how long it is played: 30s"));
    }
    let warmup = spec.warmup.as_ref().map_or(Ok(WARMUP), |f| f.span(scope))?;
    if warmup >= duration {
        let blame = spec.warmup.as_ref().unwrap_or(&spec.duration);
        let message =
            format!("the warmup of {warmup} leaves nothing of the duration of {duration}");
        return Err(blame.error(message, "make the duration longer or the warmup shorter"));
    }
    scope.set("duration", second(duration));
    scope.set("warmup", second(warmup));
    Ok((duration, warmup))
}

fn scale(spec: &Spec, scope: &Scope) -> Result<f64, Error> {
    let Some(formula) = &spec.scale else { return Ok(1.0) };
    let scale = formula.number(scope)?;
    if scale <= 0.0 || scale > 1000.0 {
        let message = format!("a scale of {scale}");
        return Err(formula.error(message, "write a factor above 0: 0.2 plays 1Gbit at 200Mbit"));
    }
    Ok(scale)
}

fn headroom(spec: &Spec, scope: &Scope) -> Result<f64, Error> {
    let Some(formula) = &spec.headroom else { return Ok(HEADROOM) };
    let headroom = formula.number(scope)?;
    if !(0.0..1.0).contains(&headroom) {
        let message = format!("a headroom of {headroom}");
        return Err(formula.error(message, "write a part of one: 0.1 keeps 10% of each link free"));
    }
    Ok(headroom)
}

/// In millionths. No oscillator that is sold is worse than a thousandth.
fn clock_drift(spec: &Spec, scope: &Scope) -> Result<u32, Error> {
    let Some(formula) = &spec.clock_drift else { return Ok(0) };
    let drift = formula.number(scope)?;
    if !(0.0..=1000.0).contains(&drift) || drift.fract() != 0.0 {
        let message = format!("a drift of {drift}");
        return Err(formula.error(message, "write a whole number of millionths, at most 1000: 100"));
    }
    Ok(drift as u32)
}

/// VMs on their hosts, and the names by which traffic calls them.
struct Placement<'a> {
    hosts: &'a [String],
    hoses: Vec<SharedHose>,
    vms: Vec<Vm>,
    origins: Vec<Origin>,
    /// Per VM: index into `origins`.
    origin: Vec<usize>,
    /// Name of a VM or of a set → its members.
    members: BTreeMap<String, Vec<usize>>,
}

impl<'a> Placement<'a> {
    fn new(hosts: &'a [String], hoses: Vec<SharedHose>) -> Self {
        let (vms, origins, origin) = (Vec::new(), Vec::new(), Vec::new());
        Self { hosts, hoses, vms, origins, origin, members: BTreeMap::new() }
    }

    fn tenants(&mut self, spec: &Spec, scope: &Scope) -> Result<(), Error> {
        if spec.tenants.is_empty() {
            return Err(spec
                .whole
                .error("has no tenant", "write `tenants: [{name: a, vms: […]}]`"));
        }
        distinct(&spec.tenants.iter().map(|t| &t.name).collect::<Vec<_>>(), "tenant")?;
        let entries = spec.tenants.iter().flat_map(|t| &t.vms);
        distinct(&entries.map(|vm| &vm.name).collect::<Vec<_>>(), "VM")?;
        for (tenant, t) in spec.tenants.iter().enumerate() {
            for vm in &t.vms {
                self.entry(tenant, vm, spec, scope)?;
            }
        }
        Ok(())
    }

    /// Places the VMs of one entry round robin on its hosts.
    fn entry(
        &mut self,
        tenant: usize,
        spec: &VmSpec,
        all: &Spec,
        scope: &Scope,
    ) -> Result<(), Error> {
        let hosts = self.hosts_of(spec)?;
        let count = spec.count.as_ref().map(|f| f.count(scope, 0)).transpose()?;
        if self.vms.len() + count.unwrap_or(1) as usize > MOST as usize {
            return Err(spec.name.error(format!("more than {MOST} VMs"), "lower the count"));
        }
        let set = self.members.entry(spec.name.text.clone()).or_default();
        if count == Some(0) {
            // Floors are not even evaluated: they may well divide by the count.
            return Ok(());
        }
        if !set.is_empty() {
            return Err(twice(&spec.name, &spec.name.text));
        }
        let rate = |f: &Option<Formula>| f.as_ref().map_or(Ok(Rate::ZERO), |f| f.rate(scope));
        let (floor_in, floor_out) = (rate(&spec.floor_in)?, rate(&spec.floor_out)?);
        let hoses = hoses::ends(&spec.hoses, tenant, &self.hoses, scope)?;
        let cap_out = spec.cap.as_ref().map(|f| f.positive_rate(scope, "a cap")).transpose()?;
        if let (Some(cap), Some(formula)) = (cap_out, &spec.cap)
            && let floor = hoses.iter().fold(floor_out, |sum, hose| sum + hose.floor_out)
            && cap < floor
        {
            let message = format!("the cap of {cap} is below the floor of {floor}");
            return Err(formula.error(message, "raise the cap or lower the floor"));
        }
        let external = external(spec, scope)?;
        let prefix = |word: &Word| {
            let help = "write all addresses that the tenant sees outside: ['0.0.0.0/0']";
            word.text.parse::<Prefix>().map_err(|message| word.error(message, help))
        };
        let outside = spec.outside.iter().map(prefix).collect::<Result<Vec<_>, _>>()?;
        let switch = |f: &Option<Formula>| f.as_ref().map(|f| switch(f, scope)).transpose();
        let (ecn, translated) = (switch(&spec.ecn)?, switch(&spec.translated)?.unwrap_or(true));
        let deaf = switch(&spec.deaf)?.unwrap_or(false);
        let policing = spec.policing.as_ref().map(|f| slack(f, scope)).transpose()?;
        let backpressure = switch(&spec.backpressure)?.unwrap_or(false);
        let rack = switch(&spec.rack)?.unwrap_or(true);
        let budget = spec.budget.as_ref();
        let budget = budget.map(|b| budget::budget(b, &spec.name, all, scope)).transpose()?;
        let at = |f: &Option<Formula>| match f {
            Some(f) => (f.place.clone(), f.path.clone()),
            None => (spec.name.place.clone(), spec.name.path.clone()),
        };
        let (out, into) = (at(&spec.floor_out), at(&spec.floor_in));
        self.origins.push(Origin { name: spec.name.text.clone(), out, into });
        for i in 0..count.unwrap_or(1) as usize {
            let name = match count {
                Some(_) => format!("{}-{i}", spec.name.text),
                None => spec.name.text.clone(),
            };
            let host = hosts[i % hosts.len()];
            let index = self.vms.len();
            if count.is_some() {
                let own = self.members.entry(name.clone()).or_default();
                if !own.is_empty() {
                    return Err(twice(&spec.name, &name));
                }
                own.push(index);
            }
            self.members.entry(spec.name.text.clone()).or_default().push(index);
            let outside = outside.clone();
            self.vms.push(Vm {
                name,
                tenant,
                host,
                floor_out,
                floor_in,
                hoses: hoses.clone(),
                cap_out,
                external,
                outside,
                ecn,
                deaf,
                translated,
                policing,
                rack,
                backpressure,
                budget: budget.clone(),
            });
            self.origin.push(self.origins.len() - 1);
        }
        Ok(())
    }

    /// Host indices of an entry; `left-1..left-10` is a range.
    fn hosts_of(&self, spec: &VmSpec) -> Result<Vec<usize>, Error> {
        let mut hosts = Vec::new();
        for word in &spec.hosts {
            hosts.extend(self.hosts_named(word)?);
        }
        if hosts.is_empty() {
            let message = format!("VM `{}` is on no host", spec.name.text);
            let help = format!(
                "write `host: {}`, or `hosts: [{}]` for several",
                self.hosts[0],
                self.hosts.iter().take(2).cloned().collect::<Vec<_>>().join(", ")
            );
            return Err(spec.whole.error(message, help));
        }
        Ok(hosts)
    }

    /// One host, or a range of them.
    fn hosts_named(&self, word: &Word) -> Result<Vec<usize>, Error> {
        match word.text.split_once("..") {
            None => Ok(vec![self.host(&word.text, word)?]),
            Some((first, last)) => {
                range(first, last, word)?.iter().map(|name| self.host(name, word)).collect()
            }
        }
    }

    fn host(&self, name: &str, word: &Word) -> Result<usize, Error> {
        self.hosts.iter().position(|host| host == name).ok_or_else(|| {
            let help = did_you_mean(name, self.hosts.iter().map(String::as_str));
            word.error(format!("there is no host `{name}`"), help)
        })
    }

    fn set(&self, word: &Word) -> Result<&[usize], Error> {
        self.members.get(&word.text).map(Vec::as_slice).ok_or_else(|| {
            let help = did_you_mean(&word.text, self.members.keys().map(String::as_str));
            word.error(format!("there is no VM `{}`", word.text), help)
        })
    }
}

/// 0 or 1.
fn switch(formula: &Formula, scope: &Scope) -> Result<bool, Error> {
    match formula.number(scope)? {
        0.0 => Ok(false),
        1.0 => Ok(true),
        other => Err(formula.error(format!("{other} is neither yes nor no"), "write 1 or 0")),
    }
}

/// What policing allows beyond a window.
fn slack(formula: &Formula, scope: &Scope) -> Result<Bytes, Error> {
    let octets = formula.size(scope)?;
    if octets.get() > POLICING_MOST.into() {
        let message = format!("{} is more than any window", show_size(octets));
        return Err(
            formula.error(message, "write some segments, for instance 15kB, or leave it out")
        );
    }
    Ok(octets)
}

fn twice(word: &Word, name: &str) -> Error {
    word.error(format!("two VMs are called `{name}`"), "rename one of the entries")
}

/// `left-1`, `left-10` → all names between.
fn range(first: &str, last: &str, word: &Word) -> Result<Vec<String>, Error> {
    let split = |text: &str| {
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        text[stem.len()..].parse::<u32>().ok().map(|number| (stem, number))
    };
    match (split(first), split(last)) {
        (Some((stem, from)), Some((other, to)))
            if stem == other && from <= to && to - from < MOST =>
        {
            Ok((from..=to).map(|i| format!("{stem}{i}")).collect())
        }
        _ => {
            let message = format!("`{}` is not a range of hosts", word.text);
            Err(word.error(message, "write `left-1..left-10`: one name, two numbers, upwards"))
        }
    }
}

/// All traffic of one entry: every member of `from` to every member of `to`.
fn flows(
    spec: &TrafficSpec,
    place: &Placement<'_>,
    scope: &Scope,
    duration: Span,
) -> Result<Vec<Traffic>, Error> {
    let (from, to) = (place.set(&spec.from)?, place.set(&spec.to)?);
    let start = spec.start.as_ref().map_or(Ok(Span::ZERO), |f| f.span(scope))?;
    let stop = spec.stop.as_ref().map_or(Ok(duration), |f| f.span(scope))?;
    let within = spec.within.as_ref().map_or(Ok(Span::ZERO), |f| f.span(scope))?;
    let latest = start + within;
    if let Some(formula) = &spec.stop
        && stop <= latest
    {
        let message = format!("stops at {stop}, which is not after its start at {latest}");
        return Err(formula.error(message, "let `stop` be later than `start`"));
    }
    if let Some(formula) = spec.within.as_ref().or(spec.start.as_ref())
        && latest >= duration
    {
        let message = format!("starts at {latest}, when the scenario of {duration} is over");
        return Err(formula.error(message, "start earlier, or write it as a part of `duration`"));
    }
    let ip = spec.ip.as_ref().map_or(Ok(IpVersion::V4), ip)?;
    let kind = kind(&spec.kind, scope, ip)?;
    let trace = spec.trace.as_ref().map(|formula| trace(formula, scope, &kind)).transpose()?;
    for &vm in from.iter().chain(to) {
        has_address(&place.vms[vm], ip, spec.ip.as_ref().unwrap_or(&spec.group))?;
    }
    let mut flows = Vec::new();
    // Before they are made: ten thousand VMs to each other would take all memory there is.
    let pairs = from.len().saturating_mul(to.len())
        - from.iter().filter(|a| to.binary_search(a).is_ok()).count();
    if pairs > PAIRS_MOST {
        let message = format!("{pairs} pairs of VMs");
        return Err(spec.from.error(message, format!("at most {PAIRS_MOST}: use fewer VMs")));
    }
    for &a in from {
        for &b in to.iter().filter(|b| **b != a) {
            let (group, kind) = (spec.group.text.clone(), kind.clone());
            let stop = stop.min(duration);
            let turn = flows.len() as u64 * TURN % TURNS;
            let start = start + Span::from_nanos(within.as_nanos() / TURNS * turn);
            flows.push(Traffic { group, from: a, to: b, start, stop, ip, trace, kind });
        }
    }
    if let (Some(formula), Some(every)) = (&spec.trace, trace) {
        let each = |flow: &Traffic| (flow.stop - flow.start).div_span(every);
        let looks = flows.iter().map(each).sum::<u64>() * u64::from(connections(&kind));
        if looks > LOOKS_MOST {
            let message = format!("a trace of {looks} looks");
            let help = format!("at most {LOOKS_MOST}: look less often, or at fewer connections");
            return Err(formula.error(message, help));
        }
    }
    if flows.is_empty() && !from.is_empty() && !to.is_empty() {
        let message = format!("traffic from VM `{}` to itself", spec.from.text);
        return Err(spec.to.error(message, "let `to` be another VM"));
    }
    Ok(flows)
}

/// How often connections are looked at.
fn trace(formula: &Formula, scope: &Scope, kind: &TrafficKind) -> Result<Span, Error> {
    if !matches!(kind, TrafficKind::Tcp { .. }) {
        let message = format!("a trace of `{}`", kind.name());
        let help = "only `tcp` lasts long enough to show its windows: leave `trace` out";
        return Err(formula.error(message, help));
    }
    let every = formula.span(scope)?;
    if !(TRACE[0]..=TRACE[1]).contains(&every) {
        let help = format!("write {} to {}", TRACE[0], TRACE[1]);
        return Err(formula.error(format!("a look every {every}"), help));
    }
    Ok(every)
}

fn connections(kind: &TrafficKind) -> u32 {
    match kind {
        TrafficKind::Tcp { connections, .. } => *connections,
        _ => 1,
    }
}

fn ip(word: &Word) -> Result<IpVersion, Error> {
    match word.text.as_str() {
        "4" => Ok(IpVersion::V4),
        "6" => Ok(IpVersion::V6),
        other => Err(word.error(format!("there is no IP version `{other}`"), "write 4 or 6")),
    }
}

/// What is outside has addresses of its prefixes only; a VM has one of each version.
fn has_address(vm: &Vm, ip: IpVersion, blame: &Word) -> Result<(), Error> {
    let fits = |prefix: &Prefix| prefix.first().is_ipv4() == (ip == IpVersion::V4);
    if vm.outside.is_empty() || vm.outside.iter().any(fits) {
        return Ok(());
    }
    let (name, other) = match ip {
        IpVersion::V4 => ("IPv4", "0.0.0.0/0"),
        IpVersion::V6 => ("IPv6", "::/0"),
    };
    let message = format!("`{}` stands for no {name} address", vm.name);
    Err(blame.error(message, format!("add '{other}' to its `outside`, or use the other version")))
}

fn kind(spec: &KindSpec, scope: &Scope, ip: IpVersion) -> Result<TrafficKind, Error> {
    match spec {
        KindSpec::Work(work) => traffic::kind(work, scope),
        KindSpec::Tcp { connections, congestion } => Ok(TrafficKind::Tcp {
            connections: connections.as_ref().map_or(Ok(1), |f| f.count(scope, 1))?,
            congestion: congestion.as_ref().map_or_else(|| "cubic".into(), |w| w.text.clone()),
        }),
        KindSpec::Udp { rate, bursts, payload } => {
            let (on, off) = match bursts.as_deref() {
                Some((on, off)) => (Some(burst(on, scope)?), Some(burst(off, scope)?)),
                None => (None, None),
            };
            let most = ip.udp_payload();
            let octets = match payload {
                None => most,
                Some(f) => match f.size(scope)?.get() {
                    octets if (1..=most).contains(&octets) => octets,
                    octets => {
                        let help = format!("write 1B to {most}B: one packet of an Ethernet frame");
                        return Err(f.error(format!("a payload of {octets} octets"), help));
                    }
                },
            };
            let rate = rate.positive_rate(scope, "a UDP sender")?;
            Ok(TrafficKind::Udp { rate, on, off, payload: Bytes::new(octets) })
        }
    }
}

/// The length of a burst or of a pause.
fn burst(formula: &Formula, scope: &Scope) -> Result<Span, Error> {
    let span = formula.span(scope)?;
    if span < BURST_LEAST {
        let help = format!("write {BURST_LEAST} or more, or leave out both `on` and `off`");
        return Err(formula.error(format!("a time of {span}"), help));
    }
    Ok(span)
}

/// The links that are congested at this point.
fn congested(spec: &Spec, scope: &Scope, topology: &super::Topology) -> Result<Vec<String>, Error> {
    let known = || topology.links.iter().map(|link| link.name.as_str());
    let mut links = Vec::new();
    for entry in &spec.congested {
        let name = &entry.link.text;
        if !known().any(|link| link == name) {
            let message = format!("there is no link `{name}`");
            return Err(entry.link.error(message, did_you_mean(name, known())));
        }
        if entry.when.as_ref().map_or(Ok(true), |when| when.holds(scope))? {
            links.push(name.clone());
        }
    }
    Ok(links)
}

fn mechanisms(spec: &Spec) -> Result<Vec<Mechanism>, Error> {
    if spec.mechanisms.is_empty() {
        let help = "write `mechanisms: [none, reservation, elasticswitch]`";
        return Err(spec.whole.error("has no mechanism", help));
    }
    distinct(&spec.mechanisms.iter().collect::<Vec<_>>(), "mechanism")?;
    spec.mechanisms.iter().map(mechanism).collect()
}

fn mechanism(word: &Word) -> Result<Mechanism, Error> {
    Mechanism::parse(&word.text).map_err(|(message, help)| word.error(message, help))
}

/// Checks the presets that the file names against those there are.
pub(crate) fn presets(spec: &Spec) -> Result<(), Error> {
    spec.mechanisms.iter().try_for_each(|word| {
        mechanism(word)?.check_preset().map_err(|(message, help)| word.error(message, help))
    })
}

/// An expectation about a mechanism that is not played could never fail.
fn played(spec: &Spec, word: &Word) -> Result<(), Error> {
    mechanism(word)?;
    let known = || spec.mechanisms.iter().map(|m| m.text.as_str());
    // A caller that chose other mechanisms on the command line accepts that not every expectation
    // is judged.
    let overridden = spec.mechanisms.iter().any(|m| matches!(m.place, Place::Set(_)));
    if overridden || known().any(|label| label == word.text) {
        return Ok(());
    }
    let message = format!("`{}` is not one of the file's `mechanisms`", word.text);
    Err(word.error(message, did_you_mean(&word.text, known())))
}

/// The expectations that hold at this point. One about a group that sends nothing here is left out.
fn expectations(
    spec: &Spec,
    scope: &Scope,
    traffic: &[Traffic],
    scale: f64,
) -> Result<Vec<Expectation>, Error> {
    let groups: BTreeSet<&str> = spec.traffic.iter().map(|t| t.group.text.as_str()).collect();
    let traced = spec.traffic.iter().filter(|t| t.trace.is_some());
    let traced: BTreeSet<&str> = traced.map(|t| t.group.text.as_str()).collect();
    let sends: BTreeSet<&str> = traffic.iter().map(|t| t.group.as_str()).collect();
    let mut expect = Vec::new();
    for entry in &spec.expect {
        let group = metrics::group(&entry.metric, &groups)?;
        metrics::check_trace(&entry.metric, group, &traced)?;
        entry.mechanisms.iter().try_for_each(|word| played(spec, word))?;
        let against = against(spec, entry, &groups)?;
        let holds = entry.when.as_ref().map_or(Ok(true), |when| when.holds(scope))?;
        if !holds || group.is_some_and(|group| !sends.contains(group)) {
            continue;
        }
        let at = match &entry.at {
            None => None,
            Some(at) => match points::other(spec, at, scope)? {
                // The point is compared with itself, or with a point that was not played.
                None => continue,
                there => there,
            },
        };
        expect.extend(bounds(entry, against.as_ref(), at.as_deref(), scope, scale)?);
    }
    Ok(expect)
}

/// What an expectation holds its number against: a number of the same run, or a mechanism.
fn against(
    spec: &Spec,
    entry: &ExpectSpec,
    groups: &BTreeSet<&str>,
) -> Result<Option<Against>, Error> {
    let Some((word, difference)) = &entry.against else { return Ok(None) };
    let other = if metrics::is_one(&word.text) {
        metrics::group(word, groups)?;
        Other::Metric(word.text.clone())
    } else {
        played(spec, word)?;
        Other::Mechanism(word.text.clone())
    };
    Ok(Some(Against { difference: *difference, other }))
}

/// One expectation per mechanism it names.
fn bounds(
    entry: &ExpectSpec,
    against: Option<&Against>,
    at: Option<&[(String, f64)]>,
    scope: &Scope,
    scale: f64,
) -> Result<Vec<Expectation>, Error> {
    let is_ratio = at.is_some() || against.is_some_and(|against| !against.difference);
    let unit = metrics::unit(&entry.metric.text, is_ratio);
    let bound = |formula: &Option<Formula>| match (formula, unit) {
        (None, _) => Ok(None),
        (Some(f), Unit::Rate) => f.rate(scope).map(|rate| Some(rate.as_f64() * scale)),
        (Some(f), Unit::Time) => f.span(scope).map(|span| Some(span.as_secs_f64())),
        (Some(f), Unit::Octets) => f.size(scope).map(|size| Some(size.get() as f64)),
        (Some(f), Unit::None) => f.number(scope).map(Some),
    };
    let (at_least, at_most) = (bound(&entry.at_least)?, bound(&entry.at_most)?);
    if let (Some(least), Some(most), Some(formula)) = (at_least, at_most, &entry.at_most)
        && most < least
    {
        let message = format!("at most {most} and at least {least}");
        return Err(formula.error(message, "let `at_most` be the larger one"));
    }
    let says = entry.says.clone().unwrap_or_else(|| entry.metric.text.clone());
    let one = |mechanism: Option<String>| Expectation {
        mechanism,
        metric: entry.metric.text.clone(),
        against: against.cloned(),
        at: at.map(<[_]>::to_vec),
        at_least,
        at_most,
        says: says.clone(),
    };
    if entry.mechanisms.is_empty() {
        return Ok(vec![one(None)]);
    }
    Ok(entry.mechanisms.iter().map(|word| one(Some(word.text.clone()))).collect())
}

/// What VMs of an entry may send to addresses that no directory lists.
fn external(spec: &VmSpec, scope: &Scope) -> Result<External, Error> {
    let rate =
        |f: &Option<Formula>, what| f.as_ref().map(|f| f.positive_rate(scope, what)).transpose();
    let floor = rate(&spec.external, "a floor of external traffic")?;
    let ceiling = rate(&spec.external_ceiling, "a ceiling of external traffic")?;
    if let (Some(formula), Some(ceiling)) = (&spec.external_ceiling, ceiling)
        && floor.is_none_or(|floor| ceiling < floor)
    {
        let message = format!("the ceiling of {ceiling} is below `external`, or that is not there");
        return Err(formula.error(message, "write both, the ceiling no lower, or leave it out"));
    }
    Ok(External { floor, ceiling })
}
