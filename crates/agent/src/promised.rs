//! Checks what a VM of this host is promised against its maximum and the uplink.
//!
//! Problem   The shaper refuses a VM that is promised more than it may ever send, with numbers of
//!           its own and when it is too late to say where that is written.
//! Approach  The same sum, from the files: the hose (or all reservations) and the small rate for
//!           what has no floor.
//! Promises  What passes here the shaper takes.
//! Not here  VMs that are promised more than the uplink together: see `overbooked`.

use crate::config::Setup;
use crate::mistake::{Mistake, sound};
use weir_dataplane::shaper::External;
use weir_model::agent::VmConfig;
use weir_model::text::RateText;
use weir_units::Rate;

/// What a VM may send to places that no directory lists.
pub(crate) fn external(vm: &VmConfig) -> External {
    let rate = |text: Option<RateText>| text.map(|text| text.0);
    External { floor: rate(vm.external_floor), ceiling: rate(vm.external_ceiling) }
}

/// Refuses a VM that is promised more than it may ever send.
pub(crate) fn check(setup: &Setup) -> Result<(), Mistake> {
    let (line, other) = (setup.host.line, setup.default_rate());
    let own = setup.file.uplink.host_floor.map_or(Rate::ZERO, |floor| floor.0);
    // Less than a twentieth for VMs is a mistake, and the shaper needs what it keeps for other
    // traffic.
    sound(own <= line.mul_ratio(95, 100), || {
        let what = format!("{own} of the host itself leave its VMs nothing of {line}: lower it");
        Mistake::config("uplink.host_floor", what)
    })?;
    for (i, vm) in setup.file.vms.iter().enumerate() {
        let Some(id) = setup.names.id(&vm.name) else { continue };
        let External { floor, ceiling } = external(vm);
        let apart = floor.unwrap_or_default();
        let (name, all) = (&vm.name, setup.host.promised(id) + apart);
        let apart = if apart.is_zero() {
            String::new()
        } else {
            format!(" and {apart} for places that no directory lists")
        };
        let sum = format!("{all} in all, with {other} for traffic without a floor{apart}");
        sound(ceiling.is_none_or(|ceiling| floor.is_some_and(|floor| floor <= ceiling)), || {
            let what =
                "is below external_floor, or that is not there: write both, or leave this out";
            Mistake::config(format!("vm[{i}].external_ceiling"), what)
        })?;
        sound(all <= line, || {
            let what =
                format!("vm `{name}` is promised {sum}, and the uplink carries {line}: lower it");
            Mistake::config(format!("vm[{i}].floor_out"), what)
        })?;
        let cap = vm.cap_out.map_or(Rate::MAX, |cap| cap.0);
        sound(all <= cap, || {
            let what = format!(
                "vm `{name}` may send {cap}, and is promised {sum}: raise it, or lower floor_out"
            );
            Mistake::config(format!("vm[{i}].cap_out"), what)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_is_promised_more_than_it_may_send_is_refused_with_line_and_field() {
        let directory = "hosts: [{name: h0, control: '10.0.0.1:7001'}]\n\
                         vms: [{name: a, tenant: red, host: h0, addresses: [10.1.0.1]}]\n";
        let loaded = |uplink: &str, more: &str| {
            let text = format!(
                "instance = \"h0\"\nhost = \"h0\"\nlisten = \"10.0.0.1:7001\"\nkey_file = \"key\"\n\
                 directory = \"directory.yaml\"\nmechanism = {{ name = \"elasticswitch\" }}\n\
                 uplink = {{ interface = \"up\", rate = \"{uplink}\" }}\n[[vm]]\nname = \"a\"\n\
                 port = \"p\"\nfloor_in = \"1Mbit\"\nfloor_out = \"100Mbit\"\n{more}"
            );
            Setup::parse(&text, directory).map(drop).map_err(|e| format!("{e:#}"))
        };
        assert_eq!(loaded("1Gbit", "cap_out = \"101Mbit\"\n"), Ok(()), "just fits");
        assert_eq!(
            loaded("1Gbit", "cap_out = \"100Mbit\"\n"),
            Err("agent.toml:13: vm[0].cap_out: vm `a` may send 100 Mb/s, and is promised 101 Mb/s in all, \
                 with 1 Mb/s for traffic without a floor: raise it, or lower floor_out"
                .into())
        );
        let external = "cap_out = \"121Mbit\"\nexternal_floor = \"20Mbit\"\n";
        assert_eq!(loaded("1Gbit", external), Ok(()), "just fits");
        let error = loaded("1Gbit", &external.replace("121", "120")).expect_err("above its cap");
        assert!(error.contains("and 20 Mb/s for places that no directory lists: raise"), "{error}");
        let error = loaded("1Gbit", "external_ceiling = \"20Mbit\"\n").expect_err("no floor");
        assert!(error.contains("vm[0].external_ceiling: is below external_floor"), "{error}");
        let error = loaded("100Mbit\", host_floor = \"96Mbit", "").expect_err("nothing is left");
        let said =
            "agent.toml:7: uplink.host_floor: 96 Mb/s of the host itself leave its VMs nothing";
        assert!(error.starts_with(said), "{error}");
        let error = loaded("100Mbit", "").expect_err("more than the uplink");
        assert!(error.starts_with("agent.toml:12: vm[0].floor_out: vm `a` is promised"), "{error}");
    }
}
