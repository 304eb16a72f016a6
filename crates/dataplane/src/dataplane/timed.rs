//! Departure times in packets between hosts: the agent's side of `bpf/timed.h`.
//!
//! Problem   Level looks at the least delayed packet of each host in each millisecond. A call into the kernel for
//!           each host and window would cost more than the law.
//! Approach  A row per host in memory that is shared with the programs. They write into one of two windows, and
//!           this reads the other.
//! Promises  A host keeps its row. What is told came since the last call, but for a packet that a program wrote
//!           while the windows changed: that one is told at the next call but one.
//! Not here  What delays mean: see `weir_core::mechanism::level`.

use crate::config::Config;
use crate::error::Error;
use crate::intf;
use crate::programs::Programs;
use crate::table::CounterArray;
use std::collections::BTreeMap;
use weir_core::host::Timed;
use weir_units::{HostId, Time};

/// Rows of hosts; the first is of none.
pub(crate) const ROWS: u32 = 4096;

/// Rows, and the hosts that have one.
#[derive(Debug)]
pub(super) struct Times {
    rows: BTreeMap<HostId, u32>,
    /// Where packets are timed.
    shared: Option<(CounterArray<intf::Timed>, CounterArray<u64>)>,
}

impl Times {
    /// Of programs that were loaded for this configuration.
    pub(super) fn of(programs: &Programs, config: &Config) -> Result<Self, Error> {
        let shared = config.timed_every.map(|_| programs.timed()).transpose()?;
        let mut times = Self { rows: BTreeMap::new(), shared };
        times.learn(config);
        Ok(times)
    }

    /// Gives rows to hosts that have none, while there are some. Packets to and from all others carry no times.
    pub(super) fn learn(&mut self, config: &Config) {
        if self.shared.is_none() {
            return;
        }
        let mut hosts: Vec<HostId> = config.endpoints.iter().map(|at| at.host).collect();
        hosts.sort_unstable();
        for host in hosts {
            let next = self.rows.len() as u32 + 1;
            if next < ROWS {
                self.rows.entry(host).or_insert(next);
            }
        }
    }

    /// The row of a host; 0: it has none.
    pub(super) fn row(&self, host: HostId) -> u32 {
        self.rows.get(&host).copied().unwrap_or(0)
    }

    /// The least delayed packet from each host since the last call.
    pub(super) fn take(&self, out: &mut Vec<(HostId, Timed)>) {
        let Some((rows, window)) = &self.shared else { return };
        let number = window.get(0);
        window.put(0, number + 1);
        let word = 1 + (number & 1) as usize;
        for (host, row) in &self.rows {
            let arrival = rows.swap(*row as usize, word);
            if arrival != 0 {
                let came = Time::from_nanos((arrival >> 16) * 1000);
                out.push((*host, Timed { sent: arrival as u16, came }));
            }
        }
    }
}
