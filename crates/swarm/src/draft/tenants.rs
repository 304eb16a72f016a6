//! Tenants with floors that admission accepts, now and then exactly at its limit.
//!
//! Approach  Floors are weights times one factor. The largest factor that the scenario's own admission
//!           accepts is found by halving; then it, or a part of it, is taken.

use super::draw::Draw;
use weir_units::SortedMap;

/// A VM, its floors in weights.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) name: String,
    pub(crate) host: String,
    /// Out and in; no floor at all if none.
    pub(crate) weights: Option<(u64, u64)>,
    /// In percent of the floor out.
    pub(crate) cap: Option<u64>,
}

/// VMs that share a hose.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) vms: Vec<Vm>,
}

/// Largest factor, in kbit/s per weight: with it a floor is about a host's link.
const MOST: u64 = 60_000;

/// Of a host's link, kbit/s before `scale`, less the headroom of admission.
const PROMISED: u64 = 900_000;

/// One to three tenants on these hosts.
pub(crate) fn draw(draw: &mut Draw, hosts: &[String]) -> Vec<Tenant> {
    let tenants = draw.within(1, 3);
    (0..tenants).map(|number| tenant(draw, hosts, number)).collect()
}

fn tenant(draw: &mut Draw, hosts: &[String], number: u64) -> Tenant {
    let name = format!("t{number}");
    let one_weight = draw.one_in(2).then(|| draw.within(4, 16));
    let vms = (0..draw.within(2, 5)).map(|vm| {
        let out = one_weight.unwrap_or_else(|| draw.within(4, 16));
        let into = if draw.one_in(2) { out } else { draw.within(4, 16) };
        Vm {
            name: format!("{name}-{vm}"),
            host: hosts[draw.index(hosts.len())].clone(),
            weights: (!draw.one_in(12)).then_some((out, into)),
            cap: draw.one_in(5).then(|| draw.within(105, 300)),
        }
    });
    Tenant { vms: vms.collect(), name }
}

/// The largest factor in kbit/s per weight that `accepts` admits.
pub(crate) fn most(accepts: impl Fn(u64) -> bool) -> u64 {
    let (mut most, mut refused) = (1, MOST + 1);
    while refused - most > 1 {
        let middle = most + (refused - most) / 2;
        *(if accepts(middle) { &mut most } else { &mut refused }) = middle;
    }
    most
}

/// Whether what the VMs of each host may be owed together, those within the host among them, is what admission
/// promises of the host's link.
pub(crate) fn fit_their_hosts(tenants: &[Tenant], factor: u64) -> bool {
    let mut hosts: SortedMap<&str, u64> = SortedMap::new();
    for tenant in tenants {
        let into: u64 = tenant.vms.iter().filter_map(|vm| vm.weights).map(|(_, into)| into).sum();
        let mut out: SortedMap<&str, u64> = SortedMap::new();
        for vm in &tenant.vms {
            *out.entry(&vm.host).or_default() += vm.weights.map_or(0, |(out, _)| out);
        }
        for (host, out) in out {
            *hosts.entry(host).or_default() += out.min(into);
        }
    }
    hosts.values().all(|weights| weights * factor <= PROMISED)
}

/// The factor in kbit/s per weight, when `accepts` is what admission says.
pub(crate) fn factor(draw: &mut Draw, accepts: impl Fn(u64) -> bool) -> u64 {
    let most = most(accepts);
    if draw.one_in(3) { most } else { (most * draw.within(20, 95) / 100).max(1) }
}

impl Tenant {
    /// As its file has it.
    pub(crate) fn text(&self, factor: u64) -> String {
        let vms: Vec<String> = self.vms.iter().map(|vm| vm.text(factor)).collect();
        format!("    - {{name: {}, vms: [{}]}}\n", self.name, vms.join(", "))
    }
}

impl Vm {
    fn text(&self, factor: u64) -> String {
        let mut text = format!("{{name: {}, host: {}", self.name, self.host);
        if let Some((out, into)) = self.weights {
            let (out, into) = (out * factor, into * factor);
            if out == into {
                text += &format!(", floor: {out}kbit");
            } else {
                text += &format!(", floor_out: {out}kbit, floor_in: {into}kbit");
            }
            if let Some(percent) = self.cap {
                text += &format!(", cap: {}kbit", (out * percent).div_ceil(100));
            }
        }
        text + "}"
    }
}
