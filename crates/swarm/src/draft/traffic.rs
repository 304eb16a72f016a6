//! Who sends what to whom.

use super::draw::Draw;
use super::tenants::Tenant;

/// Starts lie before this, ms.
const STARTED: u64 = 1500;
/// What stops early stops before this, ms.
pub(crate) const STOPPED: u64 = 4000;
/// Traffic entries of one tenant at most.
const MOST: usize = 10;

/// Traffic entries as their file has them.
pub(crate) fn draw(draw: &mut Draw, tenants: &[Tenant]) -> Vec<String> {
    let mut pairs = Vec::new();
    for tenant in tenants {
        let names: Vec<&str> = tenant.vms.iter().map(|vm| vm.name.as_str()).collect();
        // Where all demands are steady, what each VM is owed can be measured.
        let is_steady = draw.one_in(2);
        pairs.extend(matrix(draw, &names).into_iter().map(|(from, to)| (from, to, is_steady)));
    }
    // Between tenants there is no floor.
    if tenants.len() > 1 && draw.one_in(3) {
        let name = |draw: &mut Draw, tenant: &Tenant| {
            let vm = draw.index(tenant.vms.len());
            tenant.vms[vm].name.clone()
        };
        pairs.push((name(draw, &tenants[0]), name(draw, &tenants[1]), false));
    }
    let entry = |(number, (from, to, is_steady)): (usize, &(String, String, bool))| {
        let (kind, times) = (kind(draw, *is_steady), times(draw));
        format!("    - {{group: g{number}, from: {from}, to: {to}, {kind}{times}}}\n")
    };
    pairs.iter().enumerate().map(entry).collect()
}

/// Pairs of VMs of one tenant that talk.
pub(super) fn matrix(draw: &mut Draw, vms: &[&str]) -> Vec<(String, String)> {
    let others = |of: usize| (0..vms.len()).filter(move |vm| *vm != of);
    let mut pairs: Vec<(usize, usize)> = match draw.index(4) {
        0 => others(0).map(|vm| (vm, 0)).collect(),
        1 => others(0).map(|vm| (0, vm)).collect(),
        2 => (0..vms.len()).flat_map(|a| others(a).map(move |b| (a, b))).collect(),
        _ => {
            let any = |draw: &mut Draw| {
                let from = draw.index(vms.len());
                (from, (from + 1 + draw.index(vms.len() - 1)) % vms.len())
            };
            (0..draw.within(1, 4)).map(|_| any(draw)).collect()
        }
    };
    while pairs.len() > MOST {
        draw.take(&mut pairs);
    }
    pairs.into_iter().map(|(a, b)| (vms[a].to_owned(), vms[b].to_owned())).collect()
}

/// The first kinds want the same at every moment.
fn kind(draw: &mut Draw, is_steady: bool) -> String {
    let congestion = draw.of(&["cubic", "reno", "dctcp"]);
    match draw.index(if is_steady { 14 } else { 20 }) {
        0..10 => {
            let connections = draw.of(&[1, 1, 2, 4]);
            format!("tcp: {{connections: {connections}, congestion: {congestion}}}")
        }
        10..14 => format!("udp: {{rate: {}}}", udp_rate(draw)),
        14..16 => {
            let (on, off) = (draw.within(2, 200), draw.within(2, 400));
            format!("udp: {{rate: {}, on: {on}ms, off: {off}ms}}", udp_rate(draw))
        }
        16..18 => {
            let response = draw.of(&["2kB", "50kB", "500kB"]);
            let load = if draw.one_in(2) {
                format!("rate: {}", draw.within(2, 60))
            } else {
                format!("outstanding: {}", draw.within(1, 4))
            };
            let connections = draw.of(&["kept", "new"]);
            format!(
                "request: {{size: 200B, response: {response}, {load}, connections: {connections}, \
                 congestion: {congestion}}}"
            )
        }
        18 => {
            let (rate, size) = (draw.within(2, 60), draw.of(&["5kB", "100kB", "1MB"]));
            format!("flows: {{rate: {rate}, size: {size}, congestion: {congestion}}}")
        }
        _ => {
            let octets = draw.of(&["300kB", "5MB", "50MB"]);
            format!("shuffle: {{octets: {octets}, congestion: {congestion}}}")
        }
    }
}

fn udp_rate(draw: &mut Draw) -> &'static str {
    draw.of(&["20Mbit", "100Mbit", "300Mbit", "900Mbit", "1500Mbit"])
}

fn times(draw: &mut Draw) -> String {
    let mut text = String::new();
    if draw.one_in(2) {
        text += &format!(", start: {}ms", draw.within(1, STARTED - 1));
    }
    if draw.one_in(4) {
        text += &format!(", stop: {}ms", draw.within(STARTED, STOPPED - 1));
    }
    text
}
