//! Faults: agents that die, are started again or stopped, clocks that step, hosts that stand still.
//!
//! Promises  What no agent has taken back stays as it was; one that starts is told what it finds.
//! Source    `weir-agent`'s `driver/adoption.rs`; `weir-dataplane`'s `guardian.rs`.

use super::super::pairs::{Pair, Sending};
use super::super::paths::together;
use super::Shim;
use crate::net::Net;
use crate::packet::{Kind, Packet};
use crate::tcp::NEVER;
use weir_core::host::Input;
use weir_units::HostId;

impl Shim {
    /// A host's agent is killed, and maybe its guardian in the same moment.
    pub(crate) fn kill(&mut self, net: &mut Net, number: u32, guardian: bool) {
        let host = &mut self.hosts[number as usize];
        let at = host.die(net.now);
        if !guardian {
            host.reclaims_at = at;
            net.wake(at, Kind::Guardian, number);
        }
    }

    /// A dead agent is started again, and takes over what it finds.
    pub(crate) fn start(&mut self, net: &mut Net, number: u32) {
        self.take_up(net, number);
        let host = &mut self.hosts[number as usize];
        host.live_again(net.now);
        let now = host.clock(net.now);
        let sends: Vec<&Pair> = host.sends.iter().map(|pair| &self.pairs[*pair as usize]).collect();
        for paths in sends.chunk_by(|a, b| a.id == b.id) {
            let leaves = paths.iter().filter_map(|path| path.sending.leaf);
            if let Some(level) = together(leaves.map(|leaf| host.level(leaf))) {
                host.agent.handle(now, Input::Adopt(paths[0].id, level));
            }
        }
        for pair in &host.receives {
            let pair = &self.pairs[*pair as usize];
            if pair.receives {
                host.agent.handle(now, Input::Found(pair.id, HostId(pair.from)));
            }
        }
        host.count(&mut self.pairs, net.now, self.window);
        self.carry_out(net, number);
    }

    /// An agent is asked to stop, which restores its host, and is started again at once.
    pub(crate) fn restart(&mut self, net: &mut Net, number: u32) {
        let host = &mut self.hosts[number as usize];
        for id in host.restore(net.now) {
            net.drop(id);
        }
        for pair in host.sends.iter().chain(&host.receives) {
            let pair = &mut self.pairs[*pair as usize];
            if pair.from == number {
                pair.sending = Sending::default();
            }
            if pair.to == number {
                pair.forget();
            }
        }
        self.start(net, number);
    }

    /// The clock of a host's agent jumps forward.
    pub(crate) fn step_clock(&mut self, net: &mut Net, number: u32, by: u64) {
        let host = &mut self.hosts[number as usize];
        host.origin += by;
        host.wakes_at = NEVER;
        self.wake_agent(net, number, net.now + 1);
    }

    /// Every pair's ceiling becomes its floor.
    pub(super) fn reclaim(&mut self, net: &mut Net, number: u32) {
        let host = &mut self.hosts[number as usize];
        for pair in host.sends.clone() {
            let pair = &mut self.pairs[pair as usize];
            if pair.sending.leaf.is_some() {
                pair.sending.ceiling = pair.sending.floor;
                host.shape(net.now, pair);
            }
        }
        self.serve(net, number);
    }

    /// A wake-up of a host that stands still is looked at later.
    pub(crate) fn hold_back(&mut self, wake: &Packet, until: u64) {
        let Some(host) = self.hosts.get_mut(wake.flow as usize) else { return };
        let looks_at = match wake.kind {
            Kind::Agent => &mut host.wakes_at,
            Kind::Shaper => &mut host.serves_at,
            Kind::Guardian => &mut host.reclaims_at,
            _ => return,
        };
        if *looks_at == wake.at {
            *looks_at = until;
        }
    }
}
