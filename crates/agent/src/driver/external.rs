//! What VMs exchange with places that no directory lists, for `weir top`.

use super::Driver;
use std::collections::BTreeMap;
use weir_dataplane::PortCounters;
use weir_model::status::External;
use weir_units::VmId;

impl Driver {
    /// A row for each VM of this host, with the counters of its port.
    pub(super) fn told_externals(&mut self) -> Vec<External> {
        let hoses = self.dataplane.externals().unwrap_or_else(|e| {
            tracing::error!("the queues of external traffic could not be read: {e}");
            Vec::new()
        });
        let ports: BTreeMap<VmId, PortCounters> = self.counters.ports.iter().copied().collect();
        let row = |hose: weir_dataplane::ExternalHose| {
            let port = ports.get(&hose.vm).copied().unwrap_or_default();
            External {
                vm: self.setup.names.name(hose.vm),
                floor_bps: hose.floor.as_bps(),
                ceiling_bps: hose.ceiling.as_bps(),
                sent: port.external_tx.get(),
                received: port.external_rx.get(),
                dropped: hose.dropped,
                unpaired: port.unpaired,
                rogue: port.rogue,
                misdirected: port.misdirected,
            }
        };
        hoses.into_iter().map(row).collect()
    }
}
