//! Endpoints for the outside of the cloud, and agents' addresses, for the programs.
//!
//! Problem   A packet to or from the Internet has one end that no directory lists, and traffic with
//!           the outside shares links with traffic inside.
//! Approach  Each tenant has one endpoint for all addresses outside, with prefixes instead of
//!           addresses and otherwise like a VM. Its port leads outside, and other endpoints may
//!           share it.
//! Promises  Only a tenant's own VMs see its prefixes.
//! Not here  The lookup: `bpf/endpoints.h`.
//! Source    ElasticSwitch §3 (external traffic).

use crate::config::{Config, Outside};
use crate::dataplane::endpoint_flags;
use crate::error::Error;
use crate::intf;
use crate::programs::Programs;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_units::VmId;

/// Bits of an IPv4 address that the IPv6 form has before it.
const MAPPED: u32 = 96;

/// The trie's key of a prefix. Bits behind the prefix are cleared.
pub(crate) fn key(outside: &Outside) -> intf::Prefix {
    let (family, head) = match outside.address {
        IpAddr::V4(_) => (4, MAPPED),
        IpAddr::V6(_) => (6, 0),
    };
    let length = head + u32::from(outside.length);
    let whole = u128::from_be_bytes(intf::Address::from(outside.address).octets);
    let kept = u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0);
    intf::Prefix {
        bits: intf::PREFIX_HEAD + length,
        tenant: outside.tenant.0,
        family,
        address: intf::Address { octets: (whole & kept).to_be_bytes() },
    }
}

/// Writes the endpoints for the outside. `here` gives slot and default class of this host's VMs.
pub(crate) fn fill(
    programs: &Programs,
    config: &Config,
    here: &BTreeMap<VmId, (u32, u32)>,
) -> Result<(), Error> {
    for outside in &config.outside {
        let (slot, default_class) = here.get(&outside.vm).copied().unwrap_or_default();
        let port = config.ports.iter().find(|port| port.vm == outside.vm);
        let endpoint = intf::Endpoint {
            vm: outside.vm.0,
            tenant: outside.tenant.0,
            flags: port.map_or(0, endpoint_flags),
            ..intf::Endpoint::default()
        };
        let value = intf::Outside { endpoint, slot, default_class };
        programs.outside.put(key(outside), value)?;
    }
    Ok(())
}

/// Writes the addresses of agents.
pub(crate) fn close_to_vms(programs: &Programs, config: &Config) -> Result<(), Error> {
    controls(config).into_iter().try_for_each(|control| programs.controls.put(control, 1))
}

/// Addresses of agents: each with its port, and once without.
fn controls(config: &Config) -> Vec<intf::Control> {
    let both = config.controls.iter().flat_map(|control| {
        let address = control.ip().into();
        [0, control.port().to_be()].map(|port| intf::Control { address, port: port.into() })
    });
    both.collect()
}

/// Removes the keys of `before` that `now` lacks. The maps are not read for it, because a trie's
/// cursor differs from a hash's.
pub(crate) fn remove_left(programs: &Programs, before: &Config, now: &Config) -> Result<(), Error> {
    let end = |control: &intf::Control| (control.address.octets, control.port);
    let kept: BTreeSet<_> = controls(now).iter().map(end).collect();
    for control in controls(before).into_iter().filter(|control| !kept.contains(&end(control))) {
        programs.controls.delete(control)?;
    }
    let kept: BTreeSet<_> = now.outside.iter().map(prefix).collect();
    for outside in before.outside.iter().filter(|outside| !kept.contains(&prefix(outside))) {
        programs.outside.delete(key(outside))?;
    }
    Ok(())
}

/// Identity of a key.
fn prefix(outside: &Outside) -> (u32, u32, u32, [u8; 16]) {
    let key = key(outside);
    (key.bits, key.tenant, key.family, key.address.octets)
}

/// How many entries the fullest of the directory's maps has.
pub(crate) fn entries(config: &Config) -> u32 {
    let distinct: BTreeSet<_> = config.controls.iter().collect();
    config.endpoints.len().max(config.outside.len()).max(distinct.len() * 2) as u32
}

/// How large the directory's maps must be.
pub(crate) fn directory_size(config: &Config) -> u32 {
    (entries(config) * 2).next_power_of_two().max(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::TenantId;

    fn key_of(address: &str, length: u8) -> intf::Prefix {
        let address = address.parse().unwrap();
        key(&Outside { address, length, vm: VmId(9), tenant: TenantId(3) })
    }

    #[test]
    fn a_prefix_counts_in_the_bits_of_its_family_and_forgets_the_rest() {
        let all = key_of("0.0.0.0", 0);
        assert_eq!((all.bits, all.tenant, all.family), (64 + 96, 3, 4));
        assert_eq!(key_of("1.2.3.4", 0), all);
        assert_eq!(key_of("192.0.2.77", 24), key_of("192.0.2.0", 24));
        assert_ne!(key_of("192.0.2.77", 32), key_of("192.0.2.0", 32));
        let all6 = key_of("::", 0);
        assert_eq!((all6.bits, all6.family, all6.address.octets), (64, 6, [0; 16]));
        assert_eq!(key_of("2001:db8::1", 32), key_of("2001:db8:ffff::", 32));
        assert_eq!(key_of("2001:db8::1", 128).bits, 64 + 128);
    }
}
