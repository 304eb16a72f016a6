//! The further hoses of VMs: names to numbers, and what is promised in each.

use crate::scenario::error::Error;
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::hoses::{SharedHose, VmHose};
use crate::scenario::spec::hoses::HoseSpec;
use crate::scenario::spec::{Spec, Word};
use std::collections::BTreeMap;
use weir_units::Rate;

/// Further hoses of one VM at most.
const MOST: usize = 16;

/// All shared hoses: those of a tenant in the order of their names, as agents have them.
pub(super) fn shared(spec: &Spec) -> Result<Vec<SharedHose>, Error> {
    let mut all = Vec::new();
    for (tenant, t) in spec.tenants.iter().enumerate() {
        let mut ends: BTreeMap<&str, (&Word, bool, bool)> = BTreeMap::new();
        for hose in t.vms.iter().flat_map(|vm| &vm.hoses) {
            let end = ends.entry(&hose.name.text).or_insert((&hose.name, false, false));
            end.1 |= hose.floor_out.is_some();
            end.2 |= hose.floor_in.is_some();
        }
        for (name, (word, sends, receives)) in ends {
            if !sends || !receives {
                let lacks = if sends { "receives" } else { "sends" };
                let field = if sends { "floor_in" } else { "floor_out" };
                let message = format!("no VM {lacks} in the hose `{name}`");
                let help = format!("give another VM of the tenant `{name}: {{{field}: 50Mbit}}`");
                return Err(word.error(message, help));
            }
            all.push(SharedHose { tenant, name: name.to_owned() });
        }
    }
    Ok(all)
}

/// One VM's ends of them.
pub(super) fn ends(
    written: &[HoseSpec],
    tenant: usize,
    shared: &[SharedHose],
    scope: &Scope,
) -> Result<Vec<VmHose>, Error> {
    if let Some(more) = written.get(MOST) {
        let message = format!("{} hoses of one VM", written.len());
        return Err(more.name.error(message, format!("at most {MOST}")));
    }
    let rate = |f: &Option<Formula>| f.as_ref().map_or(Ok(Rate::ZERO), |f| f.rate(scope));
    let end = |hose: &HoseSpec| {
        let is_it = |one: &SharedHose| one.tenant == tenant && one.name == hose.name.text;
        let number = shared.iter().position(is_it).expect("all were listed");
        let (floor_out, floor_in) = (rate(&hose.floor_out)?, rate(&hose.floor_in)?);
        Ok(VmHose { hose: number, floor_out, floor_in })
    };
    let mut ends: Vec<VmHose> = written.iter().map(end).collect::<Result<_, Error>>()?;
    ends.sort_by_key(|end| end.hose);
    Ok(ends)
}
