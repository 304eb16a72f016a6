//! Random worlds: tenants with hoses and constant demands, nothing that breaks.
//!
//! Problem   Floors that hold in scenarios that their authors made up may fail where hoses, demands and
//!           places are arbitrary.
//! Approach  3 to 6 hosts under one switch or with a core; 2 to 4 tenants whose VMs have different
//!           floors in and out; each pair wants everything (TCP) or a rate below or above its part of
//!           the hoses (UDP). Demands do not change, so the oracle gives one F and one ideal rate per pair.
//! Promises  The floors in of a host's VMs sum to at most 88 % of its link, and so do those out: every
//!           mechanism can play the world, EyeQ and static reservations too. Links between switches are
//!           promised up to 88 % by the hose cut. The lab can play the file.
//! Not here  Faults and traffic that varies: see [`super::Draft::new`].

use super::churn;
use super::draw::Draw;
use super::fabric::Fabric;
use super::tenants::{self, Tenant, Vm};
use super::traffic;
use weir_core::mechanism::registry::Floors;
use weir_model::scenario::{Error, File, Mechanism, Scenario};
use weir_units::{SortedMap, Span};

/// Links of hosts, kbit/s, before `scale`.
const LINK: u64 = 1_000_000;
/// What may be promised of a link, kbit/s.
const PROMISED: u64 = LINK * 88 / 100;
/// The part of the largest admissible floors that a world takes, percent.
const PARTS: (u64, u64) = (60, 100);
/// What a UDP pair wants, in percent of its part of both hoses.
const WANTED: [u64; 6] = [25, 50, 90, 150, 300, 800];

/// Random worlds are drawn from other streams than scenarios with faults.
const STREAM: u64 = 1 << 50;
/// What is played unless other mechanisms are asked for.
const MECHANISMS: [&str; 4] =
    ["elasticswitch:steady", "elasticswitch:paper", "reservation", "eyeq"];

/// A random world.
#[derive(Clone, Debug)]
pub struct World {
    seed: u64,
    text: String,
    /// Whether links between switches can be full.
    has_thin_core: bool,
}

impl World {
    /// What `seed` draws: 2 to 4 tenants.
    pub fn new(seed: u64) -> Self {
        Self::of(seed, None)
    }

    /// The same with so many tenants.
    pub fn with_tenants(seed: u64, tenants: u64) -> Self {
        Self::of(seed, Some(tenants))
    }

    fn of(seed: u64, tenants: Option<u64>) -> Self {
        let mut draw = Draw::new(seed ^ STREAM);
        let Ground { header, tenants, factor, has_thin_core } =
            Ground::draw(&mut draw, seed, "8s", tenants);
        let mut world = Self { seed, text: header, has_thin_core };
        world.text += "  traffic:\n";
        world.text.extend(entries(&mut draw, &tenants, factor));
        let all = MECHANISMS.map(|label| Mechanism::parse(label).expect("a known mechanism"));
        let promise = all.iter().filter(|mechanism| world.promises(mechanism));
        let expected: String = promise.map(|mechanism| expectation(&mechanism.label)).collect();
        world.text += &format!("  expect:\n{expected}");
        world
    }

    /// The same hosts, tenants and floors, with traffic and VMs that come and go for `length`, which
    /// is whole seconds.
    pub fn churning(seed: u64, length: Span) -> Self {
        let mut draw = Draw::new(seed ^ STREAM);
        let seconds = length.div_span(Span::from_secs(1));
        let Ground { header, tenants, factor, has_thin_core } =
            Ground::draw(&mut draw, seed, &format!("{seconds}s"), None);
        let churn = churn::draw(&mut draw, &tenants, factor, seconds);
        // Traffic is judged by `--soak`, second by second, and not by the file's own judge.
        let drawn = format!("weir worlds --seed {seed} --soak {seconds}s");
        let header = header.replace(&format!("weir worlds --seed {seed}`"), &format!("{drawn}`"));
        let mut text = format!("{header}  traffic:\n{}", churn.entries.concat());
        if !churn.faults.is_empty() {
            text += &format!("  faults:\n{}", churn.faults.concat());
        }
        Self { seed, text, has_thin_core }
    }

    /// The scenario file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scenario.
    ///
    /// # Errors
    ///
    /// What was drawn is no sound scenario: a mistake in this crate.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        self.scenario_with(&[])
    }

    /// The scenario with other values of the file's fields: `scale` makes its links slower.
    ///
    /// # Errors
    ///
    /// There is no such field, or the scenario is not sound with this value.
    pub fn scenario_with(&self, set: &[(String, String)]) -> Result<Scenario, Error> {
        super::parsed(self.seed, &self.text, set)
    }

    /// Whether `mechanism` promises every floor here (GUARANTEES.md 1): `paper` promises hoses only,
    /// EyeQ nothing where links between switches can be full.
    pub fn promises(&self, mechanism: &Mechanism) -> bool {
        match mechanism.row.map_or(Floors::Nowhere, |row| (row.floors)(&mechanism.preset)) {
            Floors::Everywhere => true,
            Floors::AtHosts => !self.has_thin_core,
            Floors::Nowhere => false,
        }
    }
}

/// All of a world but its traffic.
struct Ground {
    header: String,
    tenants: Vec<Tenant>,
    /// In kbit/s per weight.
    factor: u64,
    has_thin_core: bool,
}

impl Ground {
    fn draw(draw: &mut Draw, seed: u64, duration: &str, tenants: Option<u64>) -> Self {
        let (fabric, has_thin_core) = fabric(draw);
        let drawn = draw.within(2, 4);
        let count = tenants.unwrap_or(drawn);
        let tenants: Vec<Tenant> =
            (0..count).map(|number| tenant(draw, &fabric.hosts, number)).collect();
        let header = |factor: u64| {
            let tenants: String = tenants.iter().map(|tenant| tenant.text(factor)).collect();
            header(seed, duration, &fabric.text, &tenants)
        };
        let is_admitted =
            |factor| File::parse("", &header(factor), &[]).is_ok_and(|file| file.points().is_ok());
        let most = tenants::most(|factor| fits(&tenants, factor) && is_admitted(factor));
        let factor = (most * draw.within(PARTS.0, PARTS.1) / 100).max(1);
        Self { header: header(factor), tenants, factor, has_thin_core }
    }
}

/// All but traffic and expectations.
fn header(seed: u64, duration: &str, topology: &str, tenants: &str) -> String {
    let mechanisms = MECHANISMS.map(|label| format!("\"{label}\"")).join(", ");
    format!(
        "# Drawn by `weir worlds --seed {seed}`; `weir sim FILE --seed {seed}` plays the same runs,\n\
         # `weir lab FILE` plays it on real Linux.\n\
         apiVersion: weir/v1alpha1\n\
         kind: Scenario\n\
         metadata: {{name: world-{seed}, title: Random world {seed}}}\n\
         spec:\n  \
           duration: {duration}\n  \
           warmup: 2s\n  \
           scale: 0.2\n  \
           headroom: 0.12\n  \
           mechanisms: [{mechanisms}]\n  \
           topology:\n    {topology}\n  \
           tenants:\n{tenants}"
    )
}

fn expectation(label: &str) -> String {
    format!(
        "    - {{mechanism: \"{label}\", metric: worst_pair_ratio, at_least: 0.95, says: every pair \
         has its floor}}\n"
    )
}

/// Traffic entries as their file has them, each a group of its own.
fn entries(draw: &mut Draw, tenants: &[Tenant], factor: u64) -> Vec<String> {
    let mut entries = Vec::new();
    for tenant in tenants {
        let names: Vec<&str> = tenant.vms.iter().map(|vm| vm.name.as_str()).collect();
        let mut pairs = traffic::matrix(draw, &names);
        // A pair is drawn once.
        pairs.sort();
        pairs.dedup();
        for pair in &pairs {
            let kind = kind(draw, part(tenant, &pairs, pair) * factor);
            let start = draw.within(0, 5) * 100;
            let (number, (from, to)) = (entries.len(), pair);
            entries.push(format!(
                "    - {{group: g{number}, from: {from}, to: {to}, {kind}, start: {start}ms}}\n"
            ));
        }
    }
    entries
}

/// A pair's equal part of both hoses, in weights.
pub(super) fn part(tenant: &Tenant, pairs: &[Pair], (from, to): &Pair) -> u64 {
    let vm = |name: &str| tenant.vms.iter().find(|vm| vm.name == *name);
    let weights = |name: &str| vm(name).and_then(|vm| vm.weights).unwrap_or_default();
    let sending = pairs.iter().filter(|pair| pair.0 == *from).count() as u64;
    let receiving = pairs.iter().filter(|pair| pair.1 == *to).count() as u64;
    (weights(from).0 / sending).min(weights(to).1 / receiving).max(1)
}

/// Names of two VMs.
pub(super) type Pair = (String, String);

fn fabric(draw: &mut Draw) -> (Fabric, bool) {
    let named = |hosts: Vec<String>, text: String| Fabric { text, hosts, links: Vec::new() };
    match draw.index(4) {
        0 | 1 => {
            let n = draw.within(3, 6);
            let hosts = (0..n).map(|n| format!("host-{n}")).collect();
            (named(hosts, format!("single-switch: {{hosts: {n}, link: 1Gbit}}")), false)
        }
        2 => {
            let (left, right) = (draw.within(2, 3), draw.within(1, 3));
            let core = draw.within(1, left.min(right));
            let hosts = (0..left).map(|n| format!("left-{n}"));
            let hosts = hosts.chain((0..right).map(|n| format!("right-{n}"))).collect();
            let text = format!(
                "dumbbell: {{left: {left}, right: {right}, edge: 1Gbit, core: {core}Gbit}}"
            );
            (named(hosts, text), core < left.min(right))
        }
        _ => {
            let (racks, thin) = (draw.within(2, 3), draw.within(1, 2));
            let hosts = (0..racks).flat_map(|r| (0..2).map(move |s| format!("host-{r}-{s}")));
            let text = format!(
                "two-tier: {{racks: {racks}, hosts_per_rack: 2, link: 1Gbit, oversubscription: {thin}}}"
            );
            (named(hosts.collect(), text), thin > 1)
        }
    }
}

/// VMs on different hosts as far as there are enough of these.
fn tenant(draw: &mut Draw, hosts: &[String], number: u64) -> Tenant {
    let name = format!("t{number}");
    let mut free = hosts.to_vec();
    let vms = (0..draw.within(3, 5)).map(|vm| {
        let host = draw.take(&mut free).unwrap_or_else(|| hosts[draw.index(hosts.len())].clone());
        let weights = Some((draw.within(4, 16), draw.within(4, 16)));
        Vm { name: format!("{name}-{vm}"), host, weights, cap: None }
    });
    Tenant { vms: vms.collect(), name }
}

/// Whether the floors of each host's VMs, in and out, fit its link.
fn fits(tenants: &[Tenant], factor: u64) -> bool {
    let mut hosts: SortedMap<&str, (u64, u64)> = SortedMap::new();
    for vm in tenants.iter().flat_map(|tenant| &tenant.vms) {
        let (sum, weights) = (hosts.entry(&vm.host).or_default(), vm.weights.unwrap_or_default());
        *sum = (sum.0 + weights.0, sum.1 + weights.1);
    }
    hosts.values().all(|(out, into)| out.max(into) * factor <= PROMISED)
}

/// What a pair sends whose part of both hoses is `part` kbit/s.
pub(super) fn kind(draw: &mut Draw, part: u64) -> String {
    if draw.one_in(2) {
        let connections = draw.of(&[1, 1, 2, 4]);
        let congestion = draw.of(&["cubic", "cubic", "reno"]);
        return format!("tcp: {{connections: {connections}, congestion: {congestion}}}");
    }
    let wanted = (part * draw.of(&WANTED) / 100).min(LINK);
    format!("udp: {{rate: {wanted}kbit}}")
}
