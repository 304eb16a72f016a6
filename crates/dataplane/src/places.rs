//! Places of VMs in the tables of pairs.
//!
//! Problem   The tables belong to the host. One VM that talks to all others must not fill them.
//! Approach  The kernel side counts the entries that it makes for a VM, and makes none beyond the
//!           VM's bound. Deleted entries are not counted but observed: each reading of the tables
//!           shows how many entries there are.
//! Promises  A wrong count (an entry deleted by an agent that then died, or made by two CPUs at
//!           once) is correct after the next reading. It is never below the VM's number of entries
//!           when the reading began.
//! Not here  Which entries are deleted: see `pairs`.

use crate::intf;
use crate::table::CounterArray;
use std::collections::BTreeMap;
use std::mem::offset_of;
use weir_units::VmId;

const TX_GONE: usize = offset_of!(intf::Places, tx_gone) / 8;
const RX_GONE: usize = offset_of!(intf::Places, rx_gone) / 8;

/// The counts of the last reading of each table, and what the kernel had made when it began.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    slot: u32,
    tx_made: u64,
    tx: u64,
    rx_made: u64,
    rx: u64,
}

/// This host's VMs and their places.
#[derive(Debug)]
pub(crate) struct Places {
    array: CounterArray<intf::Places>,
    counts: BTreeMap<VmId, Count>,
}

impl Places {
    /// For VMs with these rows of the array.
    pub(crate) fn new(
        array: CounterArray<intf::Places>,
        slots: impl IntoIterator<Item = (VmId, u32)>,
    ) -> Self {
        let count = |(vm, slot)| (vm, Count { slot, ..Count::default() });
        Self { array, counts: slots.into_iter().map(count).collect() }
    }

    /// A reading of the table of sending pairs begins.
    pub(crate) fn begin_sending(&mut self) {
        for count in self.counts.values_mut() {
            count.tx_made = self.array.get(count.slot as usize).tx_made;
            count.tx = 0;
        }
    }

    /// A reading of the table of receiving pairs begins.
    pub(crate) fn begin_receiving(&mut self) {
        for count in self.counts.values_mut() {
            count.rx_made = self.array.get(count.slot as usize).rx_made;
            count.rx = 0;
        }
    }

    /// An entry of a pair that sends from here.
    pub(crate) fn sends(&mut self, src: VmId) {
        if let Some(count) = self.counts.get_mut(&src) {
            count.tx += 1;
        }
    }

    /// An entry of a pair that receives here.
    pub(crate) fn receives(&mut self, dst: VmId) {
        if let Some(count) = self.counts.get_mut(&dst) {
            count.rx += 1;
        }
    }

    /// All sending entries were read: what is not there any more is given back.
    pub(crate) fn end_sending(&self) {
        for count in self.counts.values() {
            let gone = count.tx_made.wrapping_sub(count.tx);
            self.array.set(count.slot as usize, TX_GONE, gone);
        }
    }

    /// The same of receiving entries.
    pub(crate) fn end_receiving(&self) {
        for count in self.counts.values() {
            let gone = count.rx_made.wrapping_sub(count.rx);
            self.array.set(count.slot as usize, RX_GONE, gone);
        }
    }

    /// How many sending pairs each VM had in the last reading.
    pub(crate) fn sending(&self) -> impl Iterator<Item = (VmId, usize)> + '_ {
        self.counts.iter().map(|(vm, count)| (*vm, count.tx as usize))
    }
}
