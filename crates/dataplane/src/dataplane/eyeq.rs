//! EyeQ's programs as a part of the datapath.
//!
//! Problem   Its meters use classify's ports and directory, and must come and go with them. The
//!           agent's rates and the receivers' limits pass through maps of its own.
//! Approach  A second object that shares the first one's maps, and hooks like all others: a meter
//!           instead of `weir_meter` on each port, `heed` on the uplink, `tell` on the interface
//!           with this host's address.
//! Promises  `tell` is attached before any meter and detached after all of them, so no clone is
//!           ever a VM's packet. A VM that left has no share, limit or place. A key that stays
//!           keeps its sequence and window.
//! Not here  Rates, keys, and when to look: the agent's. An earlier agent's feedback is not
//!           adopted: its keys ended with it, so meters, limits and messages begin anew.

use super::{Dataplane, Hook};
use crate::attach::Interface;
use crate::config::Config;
use crate::error::Error;
use crate::eyeq::intf::{
    Counters, Ear, Limit, Meter, Mouth, STRANGERS, Settings, Share, Vm, Voice, address as word,
};
use crate::eyeq::{self, Program as Own};
use crate::intf::Pair;
use crate::programs::{Program, Programs, Sizes};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use weir_units::{PairId, VmId};

/// Least number of hosts for which there is room.
const HOSTS: u32 = 64;

/// The program on a port's egress.
pub(super) const fn meter(config: &Config) -> Program {
    if config.eyeq.is_some() { Program::EyeQ(Own::Meter) } else { Program::Meter }
}

/// Its hooks besides those of ports. They are attached before these, because the program attached
/// first is detached last.
pub(super) fn add_hooks(hooks: &mut Vec<Hook>, config: &Config) -> Result<(), Error> {
    let Some(eyeq) = &config.eyeq else { return Ok(()) };
    let interface = Interface::with_address(eyeq.address)?;
    hooks.push(Hook { interface, program: Program::EyeQ(Own::Tell) });
    let interface = Interface::find(&config.uplink)?;
    hooks.push(Hook { interface, program: Program::EyeQ(Own::Heed) });
    Ok(())
}

/// Whether a program serves all ports and is on no port itself.
pub(super) const fn is_for_all(program: Program) -> bool {
    matches!(program, Program::Stamp | Program::EyeQ(Own::Tell | Own::Heed))
}

/// Loads the programs, if they are wanted.
pub(super) fn load(programs: &mut Programs, config: &Config, sizes: Sizes) -> Result<(), Error> {
    if config.eyeq.is_none() {
        return Ok(());
    }
    // As many again may come while the agent runs.
    let hosts = (config.controls.len() as u32 * 2).next_power_of_two().max(HOSTS);
    programs.load_eyeq(eyeq::Sizes { pairs: sizes.pairs, endpoints: sizes.endpoints, hosts })
}

/// Writes the programs' settings, before they are attached.
pub(super) fn set(programs: &Programs, config: &Config, hooks: &[Hook]) -> Result<(), Error> {
    let (Some(own), Some(eyeq)) = (&programs.eyeq, &config.eyeq) else { return Ok(()) };
    let tell = hooks.iter().find(|hook| hook.program == Program::EyeQ(Own::Tell));
    let via = tell.expect("it has a hook").interface.index;
    own.set(Settings { via, address: word(eyeq.address), ..eyeq.settings })
}

/// Stops all feedback.
pub(super) fn hush(programs: &Programs, config: &Config) -> Result<(), Error> {
    let (Some(own), Some(eyeq)) = (&programs.eyeq, &config.eyeq) else { return Ok(()) };
    own.set(Settings { via: 0, address: word(eyeq.address), ..eyeq.settings })
}

/// Whether nothing of it differs that cannot change while an agent runs.
pub(super) fn is_same(now: &Config, next: &Config) -> bool {
    let fixed =
        |config: &Config| config.eyeq.as_ref().map(|e| (e.address, e.settings, e.departs_within));
    fixed(now) == fixed(next)
}

/// State before a change: the configuration, the slots of VMs, and the ids that are other VMs now.
pub(super) struct Before<'a> {
    pub(super) config: &'a Config,
    pub(super) slots: &'a [(VmId, u32)],
    pub(super) strangers: &'a BTreeSet<VmId>,
}

/// Writes the hosts of all VMs. A VM that gets another slot than it had begins with no share and a
/// new meter, whichever VM had the slot before.
pub(super) fn fill(
    programs: &Programs,
    before: Option<&Before<'_>>,
    config: &Config,
    slots: &[(VmId, u32)],
) -> Result<(), Error> {
    let (Some(own), Some(eyeq)) = (&programs.eyeq, &config.eyeq) else { return Ok(()) };
    let former = before.and_then(|before| before.config.eyeq.as_ref());
    for vm in former.iter().flat_map(|former| former.hosts.keys()) {
        if !eyeq.hosts.contains_key(vm) {
            own.vms.delete(vm.0)?;
        }
    }
    for (vm, host) in &eyeq.hosts {
        let slot = slots.iter().find(|(here, _)| here == vm).map_or(0, |(_, slot)| *slot);
        own.vms.put(vm.0, Vm { host: word(*host), slot })?;
    }
    let had = |place: &(VmId, u32)| {
        before.is_some_and(|b| b.slots.contains(place) && !b.strangers.contains(&place.0))
    };
    let kept: BTreeSet<u32> = slots.iter().filter(|p| had(p)).map(|(_, slot)| *slot).collect();
    for slot in 0..own.shares.len() {
        if !kept.contains(&(slot as u32 % STRANGERS)) {
            own.shares.clear(slot);
        }
    }
    // At the start all VMs are new. A meter without a share only counts.
    let is_new = |slot: &u32| before.is_some() && !kept.contains(slot);
    for (_, slot) in slots.iter().filter(|(_, slot)| is_new(slot)) {
        for part in parts(*slot) {
            own.meters.put(part, Meter::default())?;
        }
    }
    Ok(())
}

/// A VM's entries among shares and meters: for its own tenant, and for strangers.
const fn parts(slot: u32) -> [u32; 2] {
    [slot, slot + STRANGERS]
}

/// A pair is over, and so is its receiver's limit.
pub(super) fn lift(programs: &Programs, pair: PairId) -> Result<(), Error> {
    programs.eyeq.as_ref().map_or(Ok(()), |own| own.limits.delete(pair.into()).map(drop))
}

/// Without EyeQ's programs nothing is read here, and writes have no effect.
impl Dataplane {
    /// The meters of this host's VMs that have some: for the own tenant of each, and for strangers.
    ///
    /// # Errors
    ///
    /// The kernel refuses to read.
    pub fn meters(&self) -> Result<Vec<(VmId, [Meter; 2])>, Error> {
        let Some(own) = &self.programs.eyeq else { return Ok(Vec::new()) };
        let mut meters = Vec::with_capacity(self.slots.len());
        for (vm, slot) in self.slots.iter().filter(|(vm, _)| !self.config.is_outward(*vm)) {
            let [tenant, strangers] = parts(*slot).map(|part| own.meters.get(part));
            meters.push((*vm, [tenant?.unwrap_or_default(), strangers?.unwrap_or_default()]));
        }
        Ok(meters)
    }

    /// Sets what its own tenant, or strangers, may send to a VM of this host. A VM without a meter is
    /// omitted.
    pub fn set_share(&mut self, vm: VmId, is_strangers: bool, share: Share) {
        let slot = self.slots.iter().find(|(here, _)| *here == vm);
        if let (Some(own), Some((_, slot))) = (&self.programs.eyeq, slot)
            && !self.config.is_outward(vm)
        {
            own.shares.put(parts(*slot)[usize::from(is_strangers)] as usize, share);
        }
    }

    /// Pairs whose receivers were heard to allow another rate, since the last call; as
    /// [`take_events`](Self::take_events) found them.
    pub fn take_limited(&mut self) -> BTreeSet<PairId> {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner).limited)
    }

    /// Limits of these pairs by their receivers, for those that ever sent feedback: one call into
    /// the kernel, for any number of pairs.
    ///
    /// # Errors
    ///
    /// The kernel refuses to read.
    pub fn limits_of(
        &mut self,
        pairs: impl IntoIterator<Item = PairId>,
    ) -> Result<Vec<(PairId, Limit)>, Error> {
        let Some(own) = &mut self.programs.eyeq else { return Ok(Vec::new()) };
        let pairs: Vec<Pair> = pairs.into_iter().map(Pair::from).collect();
        let mut limits = Vec::with_capacity(pairs.len());
        own.limits.get_each(&pairs, |pair, limit| limits.push((pair.into(), limit)))?;
        Ok(limits)
    }

    /// The same of all pairs.
    ///
    /// # Errors
    ///
    /// The kernel refuses to read.
    pub fn limits(&mut self) -> Result<Vec<(PairId, Limit)>, Error> {
        let Some(own) = &mut self.programs.eyeq else { return Ok(Vec::new()) };
        Ok(own.limits.read()?.map(|(pair, limit)| (pair.into(), limit)).collect())
    }

    /// Forgets the limit of a pair.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn lift_limit(&mut self, pair: PairId) -> Result<(), Error> {
        lift(&self.programs, pair)
    }

    /// Sends feedback to a host with this key from now on, with a new sequence; without a key,
    /// sends none. Acts only on a changed key, because a sequence that begins again looks like a
    /// replay to the host.
    ///
    /// # Errors
    ///
    /// There is no room for another host; the kernel refuses.
    pub fn speak_to(&mut self, host: Ipv4Addr, key: Option<(u8, [u64; 2])>) -> Result<(), Error> {
        let Some(own) = &self.programs.eyeq else { return Ok(()) };
        match key {
            Some((id, halves)) => own.mouths.put(word(host), Mouth::new(id, halves)),
            None => own.mouths.delete(word(host)).map(drop),
        }
    }

    /// Believes a host's feedback with this key from now on, from its first message; without a key,
    /// believes none with this id. Acts only on a changed key, because otherwise old messages would
    /// be believed again.
    /// # Errors
    ///
    /// As [`speak_to`](Self::speak_to).
    pub fn believe(
        &mut self,
        host: Ipv4Addr,
        key_id: u8,
        key: Option<[u64; 2]>,
    ) -> Result<(), Error> {
        let Some(own) = &self.programs.eyeq else { return Ok(()) };
        let voice = Voice { address: word(host), key_id: key_id.into() };
        match key {
            Some(halves) => own.ears.put(voice, Ear::new(halves)),
            None => own.ears.delete(voice).map(drop),
        }
    }

    /// Counters of all messages; `None` without EyeQ's programs.
    pub fn feedback(&self) -> Option<Counters> {
        self.programs.eyeq.as_ref().map(eyeq::Programs::counters)
    }
}
