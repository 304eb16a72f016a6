//! VMs that come and go: what their hosts make of it, and what all agents are told.
//!
//! Problem   A VM that went must leave nothing behind, one that comes must be guarded, and the
//!           others must not notice.
//! Approach  First the fact, then the word, as where machines really die. With the port goes what
//!           waits in the VM's queues, for where it came from is looked up when it leaves. At the
//!           same instant every living agent gets new lists, its shaper new shares, and pairs that
//!           have lost an end lose their queues and counters. A dead agent finds the lists when it
//!           is started.
//! Promises  Of a VM that went no queue, no counter and no number stays where an agent lives. A new
//!           port is unguarded until its agent lives: its packets pass the shaper by, and are not
//!           metered. A pair with an end that a host's list lacks uses its VM's default queue, and
//!           is no pair there.
//! Not here  What an agent makes of its lists: see `weir-core`. The time that a reload takes. VMs
//!           that move: scenarios have no word for it.
//! Source    `weir-lab`'s `faults.rs` for the order, `weir-dataplane`'s `change.rs`, `weir-agent`'s
//!           `driver/population.rs`.

use super::shim::{Shim, close};
use super::station::Life;
use crate::net::Net;
use crate::packet::Kind;
use weir_core::host::Input;
use weir_units::{PairId, SortedSet, VmId};

impl Shim {
    /// The port of a VM vanishes, or is there again, and it is put into all hosts' lists.
    pub(crate) fn plug(&mut self, net: &mut Net, vm: u32, plugged: bool) {
        let id = VmId(vm);
        if plugged {
            self.away.remove(&id)
        } else {
            self.away.insert(id)
        };
        for (number, host) in (0..).zip(&mut self.hosts) {
            if let Some(place) = host.place(id) {
                host.unguarded[place as usize] = true;
                host.htb.empty(place).into_iter().for_each(|packet| net.drop(packet));
                for pair in &host.receives {
                    let pair = &mut self.pairs[*pair as usize];
                    pair.met &= pair.id.dst != id;
                }
            }
            // An event at the host: one that stands still is told when it goes on.
            if !std::mem::replace(&mut host.is_stale, true) {
                net.wake(net.now, Kind::Told, number);
            }
        }
    }

    /// A host's agent is told to take up its lists.
    pub(super) fn told(&mut self, net: &mut Net, number: u32) {
        let host = &self.hosts[number as usize];
        if host.life == Life::Dead || !host.is_stale {
            return;
        }
        self.take_up(net, number);
        let host = &mut self.hosts[number as usize];
        let now = host.clock(net.now);
        host.agent.handle(now, Input::Policy(&host.policy));
        self.carry_out(net, number);
    }

    /// A host's lists, its shaper and its counters become what its files say.
    pub(super) fn take_up(&mut self, net: &mut Net, number: u32) {
        let host = &mut self.hosts[number as usize];
        host.populate(&self.away);
        let policy = host.policy.clone();
        let knows =
            |here: VmId, there: VmId| policy.is_here(here) && policy.directory.contains_key(&there);
        let mut closed = SortedSet::new();
        for pair in host.sends.clone() {
            let pair = &mut self.pairs[pair as usize];
            let was = std::mem::replace(&mut pair.known, knows(pair.id.src, pair.id.dst));
            // Also what it has sent meanwhile, as no pair, is nothing of its own.
            if !was || !pair.known {
                close(net, host, pair);
                pair.flows = 0;
                closed.insert(pair.id);
            }
        }
        if let Some(paths) = &mut self.paths {
            paths.forget(&closed);
        }
        for pair in &host.receives {
            let pair = &mut self.pairs[*pair as usize];
            pair.met = knows(pair.id.dst, pair.id.src);
            if !pair.met {
                pair.forget();
            }
        }
        let stays = |id: &PairId| knows(id.src, id.dst) || knows(id.dst, id.src);
        host.news.retain(|(id, _)| stays(id));
        host.share_out(net.now, &mut self.pairs);
    }
}
