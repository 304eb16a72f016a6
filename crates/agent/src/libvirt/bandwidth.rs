//! Turns `<bandwidth>` of a domain into our element.
//!
//! Problem   libvirt's limits and Weir's floors overlap only in part, and a limit that silently became something
//!           else would cost more than one that is named as lost.
//! Approach  `floor` of `<inbound>` becomes `floor_in`, and `average` of `<outbound>` becomes `cap_out`. All else
//!           has no counterpart and is named. libvirt gives its numbers to tc as `kbps`, which are 1000 octets
//!           per second, although burst is in units of 1024 octets.
//! Promises  Each attribute of each interface is in the element or in a note.

use super::domain::{Domain, Interface};
use weir_model::text::show_rate;
use weir_units::Rate;

/// Bit/s of one unit of `average`, `peak` and `floor`.
const UNIT_BPS: u64 = 8_000;

/// What became of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    /// Name of the domain.
    pub domain: String,
    /// The element, for `virsh metadata --set`. None if no interface has `<bandwidth>`.
    pub element: Option<String>,
    /// What a person has to know or decide.
    pub notes: Vec<String>,
}

/// Reads the domain in `text`.
///
/// # Errors
///
/// It is no domain, or a number is none.
pub fn import(text: &str) -> Result<Imported, String> {
    let domain = Domain::parse(text)?;
    let (mut vms, mut notes) = (String::new(), Vec::new());
    let is_only = domain.interfaces.len() == 1;
    for (i, interface) in domain.interfaces.iter().enumerate() {
        let Some(limits) = &interface.bandwidth else { continue };
        let place = format!("{}: interface[{i}]", domain.name);
        let [floor_in, cap_out] = rates(limits, &place, &mut notes)?;
        let mut vm = String::from("<vm");
        let mut put = |name: &str, value: &str| {
            vm.push_str(&format!(" {name}=\"{}\"", escaped(value)));
        };
        if !is_only {
            put("name", &format!("{}-{i}", domain.name));
            match interface.mac {
                Some(mac) => put("mac", &mac.to_string()),
                None => notes.push(format!("{place}: it has no MAC address: write `mac`")),
            }
        }
        put("floor_out", "0bit");
        put("floor_in", &show_rate(floor_in.unwrap_or_default()));
        if let Some(cap) = cap_out {
            put("cap_out", &show_rate(cap));
        }
        vms.push_str(&vm);
        vms.push_str("/>");
        tell_of_interface(interface, &place, &mut notes);
    }
    if !is_only && !vms.is_empty() {
        notes.push(format!("{}: names of its VMs are made up: write the directory's", domain.name));
    }
    if domain.has_element {
        notes.push(format!("{}: it has an element already, which this would replace", domain.name));
    }
    let element = (!vms.is_empty()).then(|| format!("<vms>{vms}</vms>"));
    Ok(Imported { domain: domain.name, element, notes })
}

/// `floor_in` and `cap_out`, as far as they are there.
fn rates(
    limits: &[Vec<(String, String)>; 2],
    place: &str,
    notes: &mut Vec<String>,
) -> Result<[Option<Rate>; 2], String> {
    let (mut floor_in, mut cap_out) = (None, None);
    for (direction, limits) in ["inbound", "outbound"].into_iter().zip(limits) {
        for (name, value) in limits {
            let at = format!("{place}: {direction} {name}=\"{value}\"");
            match (direction, name.as_str()) {
                ("inbound", "floor") => floor_in = Some(rate(value, &at)?),
                ("outbound", "average") => cap_out = Some(rate(value, &at)?),
                ("inbound", "average") => {
                    notes
                        .push(format!("{at}: left out, Weir has no maximum of what a VM receives"));
                }
                _ => notes.push(format!("{at}: left out, Weir has nothing like it")),
            }
        }
    }
    Ok([floor_in, cap_out])
}

fn rate(value: &str, at: &str) -> Result<Rate, String> {
    let units: Option<u64> = value.parse().ok();
    let bps = units.and_then(|units| units.checked_mul(UNIT_BPS));
    bps.map(Rate::from_bps)
        .ok_or_else(|| format!("{at}: this is no number of kilobytes per second"))
}

fn tell_of_interface(interface: &Interface, place: &str, notes: &mut Vec<String>) {
    notes.push(format!("{place}: libvirt has no floor of what a VM sends: choose floor_out"));
    notes.push(format!("{place}: remove its <bandwidth>, or libvirt shapes the port, too"));
    if !matches!(interface.kind.as_str(), "bridge" | "network" | "ethernet") {
        notes.push(format!("{place}: of type `{}`: it has no tap to guard", interface.kind));
    }
}

/// As the value of an attribute.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
