//! VMs that come and go, and a directory that changes, while the datapath is open.
//!
//! Problem   A port must be guarded from its first packet and leave nothing behind. Other ports
//!           must not notice a change: no gap, no new counters, no moment without their floors.
//! Approach  The new configuration is compared with the one in force. What it does not name is
//!           taken down, what stays is left alone, what is new is set up. The order is: programs
//!           off the ports that leave, pairs of VMs that left, the shaper, the directory, ports,
//!           programs onto new ports, and at last translations.
//! Promises  An impossible configuration, or one that needs a restart, is refused before anything
//!           is changed. If the kernel refuses a step, the former state is restored, and the error
//!           says so. A VM that left leaves no class, filter, pin, map entry or line in the
//!           journal, also if its interface was gone before.
//! Not here  The agent's own state of pairs: the agent forgets it.

use super::{
    Dataplane, Hook, adoption, attach_one, drop_ports, eyeq, fill_endpoints, fill_places,
    fill_ports, hooks, shaper_config, shares, sweep, vcc,
};
use crate::attach::{self, Interface, Mode, Names};
use crate::config::Config;
use crate::error::Error;
use crate::instance::Deed;
use crate::programs::Program;
use crate::{outside, shaper};
use std::collections::BTreeSet;
use weir_units::{PairId, VmId};

impl Dataplane {
    /// Changes the host to what `config` says. `strangers` are ids that are other VMs from now on,
    /// here or elsewhere: all their counters and classes go.
    ///
    /// Pairs of VMs that left are forgotten; forgetting them again does no harm.
    ///
    /// # Errors
    ///
    /// Those of [`Dataplane::open`], and settings that cannot change while it is open: nothing was
    /// changed then. [`Error::Undone`]: the former state is restored, except for pairs of VMs that
    /// were to leave, and for ports that were not guarded or vanished meanwhile. The caller sets
    /// levels again.
    pub fn apply(&mut self, config: Config, strangers: &BTreeSet<VmId>) -> Result<(), Error> {
        config.check()?;
        self.follow_names(&Names::open())?;
        let asked = config;
        let config = self.devices.resolve(asked.clone());
        config.check()?;
        self.refuse_fixed(&config)?;
        shaper::check_vms(&shaper_config(&config), &shares(&config))?;
        let wanted = hooks(&config)?;
        for hook in wanted.iter().filter(|hook| !self.is_on(hook)) {
            attach::refuse_owned(hook, &vcc::left_on(hook, &self.instance, &self.journal))?;
        }
        let (before, guarded) = (self.config.clone(), self.guarded());
        self.change(config, wanted, strangers).map_err(|why| {
            let also = self.put_back(before, &guarded).err();
            Error::Undone { why: Box::new(why), also: also.map(Box::new) }
        })?;
        self.devices.learn(&asked, &self.config);
        Ok(())
    }

    /// VMs of this host whose packets pass both of our programs.
    pub fn guarded(&self) -> BTreeSet<VmId> {
        let both = [Program::Classify, eyeq::meter(&self.config)];
        let ours = self.attached.iter().filter(|hook| both.contains(&hook.program));
        let on: BTreeSet<(&str, Program)> = ours
            .filter(|hook| self.is_held(hook))
            .map(|hook| (hook.interface.name.as_str(), hook.program))
            .collect();
        let is_guarded = |name: &str| both.into_iter().all(|program| on.contains(&(name, program)));
        let here = self.config.ports.iter().filter(|port| is_guarded(&port.interface));
        here.map(|port| port.vm).collect()
    }

    /// VMs of the configuration in force whose interface is gone or was replaced, even by one of
    /// the same name and index. They are not guarded. [`Dataplane::apply`] without them, or again
    /// with them, handles that.
    pub fn lost_ports(&self) -> Vec<VmId> {
        let guarded = self.guarded();
        let all = self.config.ports.iter().map(|port| port.vm);
        all.filter(|vm| !guarded.contains(vm)).collect()
    }

    /// Programs that serve all ports (`stamp`, and EyeQ's `tell` and `heed`) and are not attached
    /// any more: another process detached them, or their interface was replaced. Other state of a
    /// replaced uplink is not checked. [`Dataplane::mend`] attaches them again.
    pub fn lost_programs(&self) -> Vec<&'static str> {
        let lost = self.attached.iter().filter(|hook| eyeq::is_for_all(hook.program));
        lost.filter(|hook| !self.is_on(hook)).map(|hook| hook.program.name()).collect()
    }

    /// Attaches them again, each at its present place. No feedback is sent until EyeQ's `tell` is
    /// attached, because clones would leave unchanged.
    ///
    /// # Errors
    ///
    /// There is no such interface; another instance's program is there; any refusal of the kernel.
    /// That program stays lost and all others are tried. No feedback is sent while `tell` is lost.
    pub fn mend(&mut self) -> Result<(), Error> {
        let is_lost = |hook: &&Hook| eyeq::is_for_all(hook.program) && !self.is_on(hook);
        let lost: Vec<Hook> = self.attached.iter().filter(is_lost).cloned().collect();
        let tells = |hook: &&Hook| hook.program == Program::EyeQ(crate::eyeq::Program::Tell);
        let is_mute = lost.iter().any(|hook| tells(&hook));
        if is_mute {
            eyeq::hush(&self.programs, &self.config)?;
        }
        let result = self.put_on(lost);
        // Also if another is still missing.
        if is_mute && self.attached.iter().find(tells).is_some_and(|hook| self.is_on(hook)) {
            eyeq::set(&self.programs, &self.config, &self.attached)?;
        }
        result
    }

    /// Puts one program back where it was, or where it is to be by now.
    pub(super) fn put_back_on(&mut self, hook: &Hook) -> Result<(), Error> {
        if eyeq::is_for_all(hook.program) {
            return self.mend();
        }
        let mut own = self.own_on(hook);
        own.extend(vcc::left_on(hook, &self.instance, &self.journal));
        attach::refuse_owned(hook, &own)?;
        self.put_on_one(hook.clone(), hook.clone())
    }

    /// Puts programs on where they are to be, in the place of where they were.
    fn put_on(&mut self, lost: Vec<Hook>) -> Result<(), Error> {
        let wanted = hooks(&self.config)?;
        let mut result = Ok(());
        for former in lost {
            let same = |hook: &&Hook| hook.program == former.program;
            // `stamp` is on the uplink and on each tunnel.
            let there = |hook: &&Hook| same(hook) && hook.interface.name == former.interface.name;
            let hook = wanted.iter().find(there).or_else(|| wanted.iter().find(same));
            let Some(hook) = hook.cloned() else { continue };
            // A program that cannot be attached does not prevent the others.
            let owned = attach::refuse_owned(&hook, &self.own_on(&hook));
            result = result.and(owned.and_then(|()| self.put_on_one(former, hook)));
        }
        result
    }

    fn put_on_one(&mut self, former: Hook, hook: Hook) -> Result<(), Error> {
        self.detach(&former)?;
        // Until it hangs there it is looked for again.
        self.attached.push(former.clone());
        attach_one(&hook, self.mode, &self.programs, &self.instance, &mut self.journal)?;
        self.attached.retain(|attached| *attached != former);
        self.attached.push(hook);
        Ok(())
    }

    /// Our own programs that hang on the same side of an interface.
    fn own_on(&self, hook: &Hook) -> Vec<&'static str> {
        let beside = self.attached.iter().filter(|own| {
            own.interface == hook.interface
                && own.program.is_on_ingress() == hook.program.is_on_ingress()
                && self.is_on(own)
        });
        beside.map(|own| own.program.name()).collect()
    }

    /// Whether we attached there, and the kernel says that it still hangs there: an interface that
    /// was made anew under the same name and index has lost it.
    pub(super) fn is_on(&self, hook: &Hook) -> bool {
        self.attached.contains(hook) && self.is_held(hook)
    }

    fn is_held(&self, hook: &Hook) -> bool {
        attach::is_held(hook, self.mode, self.programs.fd(hook.program))
    }

    /// How many entries each table of pairs has, and how many all VMs' places would need: more than
    /// there are only if VMs came since the start.
    pub fn pair_room(&self) -> (u32, u32) {
        (self.pair_room, self.config.pairs_per_vm.saturating_mul(self.config.ports.len() as u32))
    }

    /// Ports that were not `guarded` before are left out: they may be what the change failed on.
    fn put_back(&mut self, mut before: Config, guarded: &BTreeSet<VmId>) -> Result<(), Error> {
        before
            .ports
            .retain(|port| guarded.contains(&port.vm) && Interface::find(&port.interface).is_ok());
        let wanted = hooks(&before)?;
        self.change(before, wanted, &BTreeSet::new())
    }

    fn refuse_fixed(&self, config: &Config) -> Result<(), Error> {
        let now = &self.config;
        let fixed = [
            ("instance", now.instance == config.instance),
            ("bpffs", now.bpffs == config.bpffs),
            ("run_dir", now.run_dir == config.run_dir),
            ("uplink", now.uplink == config.uplink && now.uplink_rate == config.uplink_rate),
            ("host_floor", now.host_floor == config.host_floor),
            ("tunnels", now.tunnels == config.tunnels),
            ("default_rate", now.default_rate == config.default_rate),
            ("max_pairs", now.max_pairs == config.max_pairs),
            ("pairs_per_vm", now.pairs_per_vm == config.pairs_per_vm),
            ("attach", now.attach == config.attach),
            ("ecn", now.ecn == config.ecn),
            ("reorder_window", now.reorder_window == config.reorder_window),
            ("timed_every", now.timed_every == config.timed_every),
            ("shaper", now.shaper == config.shaper),
            ("code_points", now.code_points == config.code_points),
            ("flows_per_vm", now.flows_per_vm == config.flows_per_vm),
            ("eyeq", eyeq::is_same(now, config)),
        ];
        if let Some((field, _)) = fixed.iter().find(|(_, same)| !same) {
            return Err(Error::Config(format!("{field} cannot change while an agent runs")));
        }
        let (entries, room) = (outside::entries(config), self.directory_room);
        if entries > room {
            let why = format!(
                "the directory has outgrown its maps, {entries} entries of {room}: restart the agent"
            );
            return Err(Error::Config(why));
        }
        Ok(())
    }

    fn change(
        &mut self,
        config: Config,
        wanted: Vec<Hook>,
        strangers: &BTreeSet<VmId>,
    ) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.config, config);
        let slots = self.slots.clone();
        self.local = self.config.ports.iter().map(|p| p.vm).collect();
        let is_over = |hook: &&Hook| !wanted.contains(hook) || !self.is_on(hook);
        let over: Vec<Hook> = self.attached.iter().filter(is_over).cloned().collect();
        let tells = Program::EyeQ(crate::eyeq::Program::Tell);
        let moves = over.iter().any(|hook| hook.program == tells);
        if moves {
            // Not one clone may leave unchanged.
            eyeq::hush(&self.programs, &self.config)?;
        }
        self.leave_translated(&wanted);
        for hook in &over {
            self.programs.ports.delete(hook.interface.index)?;
            self.detach(hook)?;
        }
        self.unbind(strangers)?;
        let switches = before.observe != self.config.observe;
        if switches {
            self.switch()?;
        }
        self.shaper.apply_vms(&shares(&self.config))?;
        self.clear_up(&wanted)?;
        self.change_directory(&before)?;
        // Only now: until here a packet could have made an entry again.
        for pair in sweep(&mut self.programs, &self.config, strangers)? {
            self.pairs.drop_pair(pair);
            eyeq::lift(&self.programs, pair)?;
        }
        self.renew_ports(&wanted, strangers)?;
        if switches && !self.config.observe {
            self.engage()?;
        }
        let before = eyeq::Before { config: &before, slots: &slots, strangers };
        eyeq::fill(&self.programs, Some(&before), &self.config, &self.slots)?;
        let mut fresh = Vec::new();
        for hook in wanted {
            if !self.attached.contains(&hook) {
                fresh.extend((self.mode == Mode::Tcx).then_some(hook.interface.index));
                attach_one(&hook, self.mode, &self.programs, &self.instance, &mut self.journal)?;
                self.attached.push(hook);
            }
        }
        if moves {
            eyeq::set(&self.programs, &self.config, &self.attached)?;
        }
        self.translate(strangers, &fresh);
        Ok(())
    }

    fn detach(&mut self, hook: &Hook) -> Result<(), Error> {
        let pin = hook.pin(&self.instance.links());
        match self.mode {
            Mode::Tcx if pin.exists() => attach::detach_tcx(&pin)?,
            Mode::Clsact if hook.interface.is_there() => attach::detach_clsact(hook)?,
            // The kernel removed it with its interface.
            Mode::Tcx | Mode::Clsact => {}
        }
        self.attached.retain(|attached| attached != hook);
        Ok(())
    }

    /// Gives back the queues of pairs that have lost an end.
    pub(super) fn unbind(&mut self, strangers: &BTreeSet<VmId>) -> Result<(), Error> {
        let stays = adoption::stays(&self.config, strangers);
        let is_over = |pair: &PairId| !stays(pair.src, pair.dst);
        let over: Vec<PairId> = self.bound.keys().copied().filter(is_over).collect();
        for pair in &over {
            self.programs.classes.delete((*pair).into())?;
            self.bound.remove(pair);
        }
        Ok(self.shaper.remove(&over)?)
    }

    /// The rest of what was done to interfaces that left, when neither programs nor redirections
    /// are there any more. By the journal: a change that failed half way may have detached already.
    fn clear_up(&mut self, wanted: &[Hook]) -> Result<(), Error> {
        let is_left = |i: &Interface| !wanted.iter().any(|hook| hook.interface == *i);
        for deed in &self.journal.deeds {
            if let Deed::Clsact(interface) = deed
                && is_left(interface)
                && interface.is_there()
            {
                attach::remove_clsact(interface)?;
            }
        }
        let (attached, translators) = (&self.attached, &self.translators);
        self.journal.strike(|deed| match deed {
            Deed::Clsact(interface) => is_left(interface),
            Deed::Filter(hook) => !attached.contains(hook) && !translators.has(hook),
            Deed::Fq(_) | Deed::Htb(_) => false,
        })
    }

    /// First what is gone, so that there is room for what is new. What stays is replaced in place.
    fn change_directory(&mut self, before: &Config) -> Result<(), Error> {
        let kept: BTreeSet<_> = self.config.endpoints.iter().map(|e| e.address).collect();
        for endpoint in before.endpoints.iter().filter(|e| !kept.contains(&e.address)) {
            self.programs.endpoints.delete(endpoint.address.into())?;
        }
        outside::remove_left(&self.programs, before, &self.config)?;
        self.times.learn(&self.config);
        fill_endpoints(&self.programs, &self.config, &self.times)?;
        outside::close_to_vms(&self.programs, &self.config)
    }

    fn renew_ports(&mut self, wanted: &[Hook], strangers: &BTreeSet<VmId>) -> Result<(), Error> {
        drop_ports(&mut self.programs, strangers)?;
        let is_here = |vm: &VmId| self.config.ports.iter().any(|port| port.vm == *vm);
        self.brakes.retain(|vm, _| is_here(vm) && !strangers.contains(vm));
        let slots = fill_ports(
            &mut self.programs,
            &self.config,
            wanted,
            &*self.shaper,
            &self.bare,
            &self.brakes,
        )?;
        self.places = fill_places(&mut self.programs, &self.config, &*self.shaper, &slots)?;
        self.slots = slots;
        Ok(())
    }
}
