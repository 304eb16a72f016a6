//! What VMs ask for and cannot have, told in the log once, and again when it is over.

use std::collections::BTreeMap;
use weir_units::VmId;

/// Wishes of one kind that are refused, each with its reason.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<VmId, String>);

impl Refused {
    /// Takes up what is refused now. `what` is the wish for people, and `named` a VM.
    pub(super) fn tell(
        &mut self,
        what: &str,
        now: BTreeMap<VmId, String>,
        named: &dyn Fn(VmId) -> Option<String>,
    ) {
        let shown = |vm: VmId| named(vm).unwrap_or_else(|| vm.to_string());
        for (vm, why) in now.iter().filter(|(vm, why)| self.0.get(vm) != Some(why)) {
            tracing::error!("the {what} of vm {} is refused: {why}", shown(*vm));
        }
        for vm in self.0.keys().filter(|vm| !now.contains_key(vm)) {
            tracing::info!("no {what} of vm {} is refused any more", shown(*vm));
        }
        self.0 = now;
    }

    /// How many there are, for the service manager's line; nothing if there are none.
    pub(super) fn status(&self, what: &str) -> String {
        match self.0.len() {
            0 => String::new(),
            n => format!("; {n} {what} are refused"),
        }
    }
}
