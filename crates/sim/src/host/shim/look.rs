//! Hosts and pairs as an observer of all of them sees them: see [`crate::look`].

use super::Shim;
use crate::host::pairs::{Pair, Sending};
use crate::host::paths::together;
use crate::host::station::{Host, Life};
use crate::look::{HostLook, PairLook};
use weir_core::host::Setting;
use weir_units::HostId;

impl Shim {
    pub(crate) fn look_at_hosts(&self, now: u64) -> Vec<HostLook> {
        let one = |host: &Host| HostLook {
            is_alive: host.life == Life::Runs,
            lives: host.lives,
            clock: host.clock(now),
            known: host.agent.known(),
            counters: host.agent.counters(),
            unsent: host.agent.unsent(),
            queues: host.htb.queues(),
            shaper_drops: host.htb.drops,
        };
        self.hosts.iter().map(one).collect()
    }

    pub(crate) fn look_at_pairs(&self) -> Vec<PairLook> {
        let one = |paths: &[Pair]| {
            let pair = &paths[0];
            let ends = |host: u32| self.hosts[host as usize].agent.ends(pair.id);
            let sending = || paths.iter().map(|path| &path.sending);
            let htb = &self.hosts[pair.from as usize].htb;
            let level = |s: &Sending| Setting { floor: s.floor, ceiling: s.ceiling };
            PairLook {
                id: pair.id,
                hosts: (HostId(pair.from), HostId(pair.to)),
                in_force: together(sending().filter(|s| s.leaf.is_some()).map(level)),
                waiting: sending().filter_map(|s| s.leaf).map(|leaf| htb.waiting(leaf)).sum(),
                left: sending().map(|s| s.numbered).sum(),
                arrived: paths.iter().map(|path| path.meter.octets).sum(),
                is_met: paths.iter().any(|path| path.receives),
                source: ends(pair.from),
                destination: ends(pair.to),
            }
        };
        self.pairs.chunk_by(|a, b| a.id == b.id).map(one).collect()
    }
}
