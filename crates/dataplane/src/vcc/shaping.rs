//! `bpf/vcc_shaping.h` in Rust, and a port's windows by pair: who has which.
//!
//! Problem   A window follows from a pair's rate, which somebody else decides, and from how many
//!           connections live, which the port's table says.
//! Approach  Live connections are counted by the peer's address
//!           ([`Divided`](super::budget::Divided)); here they become pairs, and whoever knows rates
//!           says what each connection may have. What changed by little is not written.
//! Promises  Windows that nobody renews for a second count no more. A peer of whom nobody lives has
//!           no entry.
//! Not here  From rates to windows: `weir_core::vcc::shaping`.

use super::Programs;
use super::budget::Senders;
use crate::config::ShapedPeer;
use crate::error::Error;
use crate::intf::{Address, Plain, shared};
use std::collections::BTreeMap;
use weir_units::VmId;

/// What is not renewed for so long counts no more.
pub(crate) const LEASE_NS: u64 = 1_000_000_000;

shared!(
    /// The pair of a port's VM and a peer, by one of the peer's addresses.
    PeerKey, 20, {
        /// The peer's address.
        remote: Address,
        /// Index of the port's counters and of its table.
        slot: u32,
    }
);

/// What each of so many live connections of a VM to a peer may have, octets; `None`: nothing bounds
/// them.
pub type Windows<'a> = dyn FnMut(VmId, VmId, u32) -> Option<u32> + 'a;

/// The windows of one port.
#[derive(Debug)]
pub(crate) struct PortWindows {
    vm: VmId,
    slot: u32,
    peers: BTreeMap<VmId, Peer>,
}

/// One peer with live connections.
#[derive(Debug, Default, PartialEq, Eq)]
struct Peer {
    /// Its addresses that have connections, and which of them have the window.
    addresses: BTreeMap<Address, bool>,
    /// Connections on which the guest sends.
    live: u32,
    /// Of these, who has used up what this window allows.
    used_up: u32,
    window: Option<u32>,
}

impl PortWindows {
    pub(crate) const fn new(vm: VmId, slot: u32) -> Self {
        Self { vm, slot, peers: BTreeMap::new() }
    }

    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    /// What connections to an address may have.
    pub(crate) fn window(&self, address: &Address, vms: &BTreeMap<Address, VmId>) -> Option<u32> {
        self.peers.get(vms.get(address)?)?.window
    }

    /// Takes up who lives now, by address; what is over has no window any more. `vms` says whose
    /// addresses they are: whoever is not listed is no peer, and has none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn count(
        &mut self,
        programs: &Programs,
        live: &BTreeMap<Address, Senders>,
        vms: &BTreeMap<Address, VmId>,
    ) -> Result<(), Error> {
        let mut next: BTreeMap<VmId, Peer> = BTreeMap::new();
        for (address, senders) in live {
            let Some(vm) = vms.get(address) else { continue };
            let peer = next.entry(*vm).or_default();
            let known = self.peers.get(vm);
            let has_it = known.and_then(|known| known.addresses.get(address).copied());
            peer.addresses.insert(*address, has_it.unwrap_or(false));
            peer.live += senders.live;
            peer.used_up += senders.used_up;
            peer.window = known.and_then(|known| known.window);
        }
        let gone = self.peers.iter().flat_map(|(vm, was)| {
            let stays = |address: &Address| {
                next.get(vm).is_some_and(|peer| peer.addresses.contains_key(address))
            };
            was.addresses.iter().filter(move |(address, has_it)| **has_it && !stays(address))
        });
        let mut result = Ok(());
        for (address, _) in gone {
            let key = PeerKey { remote: *address, slot: self.slot };
            result = result.and(programs.windows.delete(key).map(drop));
        }
        self.peers = next;
        result
    }

    /// Puts in force what `windows` says of each pair.
    ///
    /// # Errors
    /// The first of what the kernel refuses; all pairs are tried.
    pub(crate) fn follow(
        &mut self,
        programs: &Programs,
        windows: &mut Windows<'_>,
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for (to, peer) in &mut self.peers {
            let next = windows(self.vm, *to, peer.live);
            result = result.and(peer.follow(programs, self.slot, next));
        }
        result
    }

    /// The same for one pair, whose rate has changed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn follow_one(
        &mut self,
        programs: &Programs,
        to: VmId,
        windows: &mut Windows<'_>,
    ) -> Result<(), Error> {
        let Some(peer) = self.peers.get_mut(&to) else { return Ok(()) };
        let next = windows(self.vm, to, peer.live);
        peer.follow(programs, self.slot, next)
    }

    /// Nobody's windows are shaped here any more.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn end(&mut self, programs: &Programs) -> Result<(), Error> {
        self.count(programs, &BTreeMap::new(), &BTreeMap::new())
    }

    /// Whom its connections go to, and how.
    pub(crate) fn told(&self) -> Vec<ShapedPeer> {
        let told = |(vm, peer): (&VmId, &Peer)| {
            let (vm, live, used_up, window) = (*vm, peer.live, peer.used_up, peer.window);
            ShapedPeer { vm, live, used_up, window }
        };
        self.peers.iter().map(told).collect()
    }
}

impl Peer {
    fn follow(&mut self, programs: &Programs, slot: u32, next: Option<u32>) -> Result<(), Error> {
        if !is_near(self.window, next) {
            self.window = next;
            self.addresses.values_mut().for_each(|has_it| *has_it = false);
        }
        for (address, has_it) in self.addresses.iter_mut().filter(|(_, has_it)| !**has_it) {
            let key = PeerKey { remote: *address, slot };
            match self.window {
                Some(window) => programs.windows.put(key, window)?,
                None => programs.windows.delete(key).map(drop)?,
            }
            *has_it = true;
        }
        Ok(())
    }
}

/// A window that is less than one part of so many too small is left as it is,
const GROWN: u32 = 64;
/// and one that is less than one of so many too large: that costs some waiting, the other a part of
/// the rate.
const FALLEN: u32 = 16;

/// Whether a window need not be written again: rates move all the time, by little.
fn is_near(now: Option<u32>, next: Option<u32>) -> bool {
    match (now, next) {
        (Some(now), Some(next)) if next > now => next - now <= now / GROWN,
        (Some(now), Some(next)) => now - next <= now / FALLEN,
        (now, next) => now == next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_move_by_little_are_not_written_again() {
        assert!(is_near(Some(6_400), Some(6_500)) && is_near(Some(6_400), Some(6_000)));
        assert!(!is_near(Some(6_400), Some(6_501)) && !is_near(Some(6_400), Some(5_999)));
        assert!(!is_near(Some(0), Some(1)) && !is_near(None, Some(0)) && !is_near(Some(0), None));
        assert!(is_near(None, None) && is_near(Some(0), Some(0)));
    }
}
