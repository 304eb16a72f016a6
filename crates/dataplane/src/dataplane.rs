//! The agent's one handle on its host: opens, reads, sets, forgets, closes.
//!
//! Problem   Programs, maps, queues, redirects, pins and files must exist together or not at all,
//!           and an agent that returns must take over without a gap.
//! Approach  Levels: the desired state is compared with the kernel's, at opening as at every
//!           [`Dataplane::set`]. State of an earlier agent of this name is adopted if its layout
//!           fits, else removed first.
//! Promises  A failed [`Dataplane::open`] leaves the host as [`clean`] would. [`Dataplane::close`]
//!           restores it. Dropping without closing leaves everything in force, as a crash would.
//! Not here  When to act: the agent decides. A silent agent: see `guardian`. VMs that come and go
//!           while it is open: see `change`. Reading: see `count`. Rates: see `pace`. What the programs
//!           are told: see `fill`.

mod adoption;
mod change;
mod count;
mod devices;
mod eyeq;
mod fill;
mod pace;
mod plumbing;
mod switch;
mod timed;
mod vcc;

pub use devices::{Renamed, left_behind};
pub(crate) use fill::endpoint_flags;
pub use plumbing::{Fault, Tended};

use crate::attach::{self, Hook, Mode};
use crate::config::Config;
use crate::error::Error;
use crate::instance::{Deed, Instance, Journal, Lock};
use crate::intf;
use crate::lease::Lease;
use crate::outside;
use crate::pairs::Pairs;
use crate::places::Places;
use crate::programs::{Programs, Sizes};
use crate::shaper::{self, ClassId, Kind, Observer, Shaper};
use crate::surroundings::Trouble;
use adoption::{claim, drop_ports, same_ids, strangers, sweep};
use count::{Heard, ring};
use devices::Devices;
use fill::{attach_one, detach_others, fill_endpoints, fill_places, fill_ports, hooks, settings};
use libbpf_rs::RingBuffer;
use pace::{choice, is_unavailable, open_shaper, shaper_config, shares};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use timed::Times;
use weir_core::classes::Overbooked;
use weir_core::host::Brake;
use weir_units::{PairId, VmId};

/// One agent's datapath.
///
/// Order of calls: [`open`](Self::open); then any of [`read`](Self::read),
/// [`take_events`](Self::take_events), [`set`](Self::set), [`forget`](Self::forget) and, at least
/// every half second, [`renew_lease`](Self::renew_lease); at the end [`close`](Self::close).
/// All calls are made in the network namespace in which it was opened.
pub struct Dataplane {
    pub(crate) programs: Programs,
    shaper: Box<dyn Shaper + Send>,
    pairs: Pairs,
    places: Places,
    times: Times,
    /// Classes bound in the kernel's map.
    bound: BTreeMap<PairId, ClassId>,
    /// Ports of this host, in the configuration's order, and the slots of their counters.
    slots: Vec<(VmId, u32)>,
    local: BTreeSet<VmId>,
    ring: RingBuffer<'static>,
    heard: Arc<Mutex<Heard>>,
    lease: Lease,
    reclaims: u64,
    mode: Mode,
    replaced: Option<String>,
    /// The configuration in force, or being put in force, with the present names of interfaces.
    pub(crate) config: Config,
    /// Devices of the configured names.
    devices: Devices,
    /// The shaper that enforced before the agent was told to observe.
    draining: Option<switch::Draining>,
    /// VMs whose packets may miss the shaper.
    bare: BTreeSet<VmId>,
    /// VMs with pairs without a class that may send less than their rate.
    brakes: BTreeMap<VmId, Brake>,
    /// Number of looks at the plumbing.
    looks: u64,
    /// What stood around the ports when that was last looked at.
    around: Vec<Trouble>,
    /// Where programs are attached.
    attached: Vec<Hook>,
    /// Number of entries for which each map of the directory has room.
    directory_room: u32,
    /// The same of each table of pairs.
    pair_room: u32,
    translators: vcc::Translators,
    instance: Instance,
    journal: Journal,
    /// Held until the end.
    _lock: Arc<Lock>,
}

impl Dataplane {
    /// Makes the host do what `config` says: loads or adopts the programs and their state, builds
    /// or adopts the shaper, and attaches. Needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    ///
    /// An impossible configuration; an instance or interface in use by another agent; a missing
    /// interface; any refusal of the kernel. The host is then as [`clean`] leaves it.
    pub fn open(config: Config) -> Result<Self, Error> {
        attach::quiet();
        config.check()?;
        let instance = Instance::new(&config.instance, &config.bpffs, &config.run_dir)?;
        let asked = config;
        let devices = Devices::left(&instance, &asked);
        let config = devices.resolve(asked.clone());
        let hooks = hooks(&config)?;
        let lock = Arc::new(instance.lock()?);
        let stale = instance.has_traces();
        if stale && !Journal::open(&instance)?.is_here() {
            // The earlier agent's interfaces are in another namespace, or gone with it. Only files
            // are left.
            undo(&instance)?;
        }
        let (kind, alternative) = choice(&config)?;
        let build = |kind| match Self::build(&config, kind, &instance, &hooks, &lock) {
            // The earlier agent's state does not fit. A gap is better than no start.
            Err(why) if stale => {
                undo(&instance)?;
                Self::build(&config, kind, &instance, &hooks, &lock)
                    .map(|built| Self { replaced: Some(why.to_string()), ..built })
            }
            Ok(built) if stale && !built.adopted() => {
                let why = "its counters have another layout".to_owned();
                Ok(Self { replaced: Some(why), ..built })
            }
            other => other,
        };
        match (build(kind), alternative) {
            (Err(error), Some(kind)) if is_unavailable(&error) => {
                undo(&instance)?;
                build(kind)
            }
            (built, _) => built,
        }
        .map(|mut built| {
            built.devices = devices;
            built.devices.learn(&asked, &config);
            built
        })
        .inspect_err(|_| {
            // The first error matters more than one of the clean-up.
            let _ = undo(&instance);
        })
    }

    fn build(
        config: &Config,
        kind: Kind,
        instance: &Instance,
        hooks: &[Hook],
        lock: &Arc<Lock>,
    ) -> Result<Self, Error> {
        instance.make_pin_dirs()?;
        let mut journal = Journal::open(instance)?;
        let tcx = attach::has_tcx(&hooks[0].interface);
        let mode = config.attach.unwrap_or(if tcx { Mode::Tcx } else { Mode::Clsact });
        if mode == Mode::Tcx && !tcx {
            return Err(Error::NoTcx);
        }
        for hook in hooks {
            if !hook.pin(&instance.links()).exists() && !journal.has(&Deed::Filter(hook.clone())) {
                attach::refuse_owned(hook, &vcc::left_on(hook, instance, &journal))?;
            }
        }

        let endpoints = outside::directory_size(config);
        let queues = if kind == Kind::DepartureTime { intf::NODES } else { 1 };
        let hosts = if config.timed_every.is_some() { timed::ROWS } else { 1 };
        let pairs = config.table_size();
        let sizes = Sizes { pairs, endpoints, nodes: intf::NODES, queues, hosts };
        let mut programs = Programs::load(sizes, Some(&instance.maps()))?;
        eyeq::load(&mut programs, config, sizes)?;
        same_ids(&programs, config)?;
        let strangers = strangers(&programs, config);
        sweep(&mut programs, config, &strangers)?;
        let uplink = &hooks[0].interface;
        let mut shaper: Box<dyn Shaper + Send> = if config.observe {
            Box::new(Observer::new(shaper_config(config))?)
        } else {
            open_shaper(kind, config, uplink, &mut programs, &mut journal)?
        };
        shaper.apply_vms(&shares(config))?;
        let bound = claim(&mut programs, &mut *shaper)?;
        programs.set(settings(config, shaper.kind(), uplink))?;
        let times = Times::of(&programs, config)?;
        fill_endpoints(&programs, config, &times)?;
        drop_ports(&mut programs, &strangers)?;
        let slots =
            fill_ports(&mut programs, config, hooks, &*shaper, &BTreeSet::new(), &BTreeMap::new())?;
        let places = fill_places(&mut programs, config, &*shaper, &slots)?;
        outside::close_to_vms(&programs, config)?;
        eyeq::set(&programs, config, hooks)?;
        eyeq::fill(&programs, None, config, &slots)?;
        detach_others(instance, &journal, hooks, mode)?;
        let mut fresh = Vec::new();
        for hook in hooks {
            // TCX runs them in the order in which they were attached.
            let is_fresh = mode == Mode::Tcx && !hook.pin(&instance.links()).exists();
            fresh.extend(is_fresh.then_some(hook.interface.index));
            attach_one(hook, mode, &programs, instance, &mut journal)?;
        }
        programs.pin_directory(&instance.maps())?;
        if config.observe {
            // An earlier agent may have enforced.
            programs.levels()?.clear(intf::UPLINK as usize);
            shaper::remove(&instance.name)?;
            shaper::release(&uplink.device())?;
        }

        let heard = Arc::new(Mutex::new(Heard::default()));
        let ring = ring(&programs, &heard)?;
        let lease = Lease::open(&instance.lease(), true)?;
        lease.set_closed(false);
        let mut built = Self {
            reclaims: lease.reclaims(),
            local: config.ports.iter().map(|p| p.vm).collect(),
            _lock: Arc::clone(lock),
            config: config.clone(),
            devices: Devices::default(),
            draining: None,
            bare: BTreeSet::new(),
            brakes: BTreeMap::new(),
            looks: 0,
            around: Vec::new(),
            attached: hooks.to_vec(),
            directory_room: endpoints,
            pair_room: sizes.pairs,
            instance: instance.clone(),
            pairs: Pairs::default(),
            places,
            times,
            shaper,
            programs,
            bound,
            slots,
            ring,
            heard,
            lease,
            mode,
            replaced: None,
            translators: vcc::Translators::default(),
            journal,
        };
        // Pairs of VMs that left while no agent ran were adopted, too. Their classes would keep
        // floors for good.
        built.unbind(&strangers)?;
        built.translate(&strangers, &fresh);
        Ok(built)
    }

    /// How the programs are attached.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// How pairs are limited.
    pub fn shaper(&self) -> Kind {
        self.shaper.kind()
    }

    /// The pairs' floors, if they exceed what the uplink leaves for floors. `None` on a host whose
    /// admission works.
    pub fn overbooked(&self) -> Option<Overbooked> {
        self.shaper.overbooked()
    }

    /// Packets dropped after they got a sequence number, which receivers count as losses of the
    /// network. A value above 0 means that a bound is wrong.
    pub fn late_drops(&mut self) -> Result<u64, Error> {
        Ok(self.shaper.late_drops()?)
    }

    /// Whether state of an earlier agent of this name was adopted: its counters go on, and its
    /// pairs keep their classes and levels.
    pub const fn adopted(&self) -> bool {
        self.programs.adopted
    }

    /// Reason why the state of an earlier agent of this name was not adopted: a newer version's
    /// layout, another size, a renumbered directory. Pairs are then learned anew.
    pub fn replaced(&self) -> Option<&str> {
        self.replaced.as_deref()
    }

    /// Closes the datapath and restores the host. Every step is tried; the first error is returned.
    pub fn close(self) -> Result<(), Error> {
        self.lease.set_closed(true);
        // The first error matters more than this one.
        let _ = eyeq::hush(&self.programs, &self.config);
        let Self { shaper, draining, instance, journal, _lock, .. } = self;
        let programs = journal.undo();
        let drained = draining.map_or(Ok(()), |draining| draining.shaper.close());
        let queues = shaper.close().map_err(Error::from);
        let files = instance.remove_files();
        programs.and(drained.map_err(Error::from)).and(queues).and(files)
    }
}

/// Fails with [`Error::Locked`] while an agent of this name lives. An agent calls it before it
/// takes addresses and files; [`Dataplane::open`] checks again.
pub fn refuse_running(instance: &str, bpffs: &Path, run_dir: &Path) -> Result<(), Error> {
    Instance::new(instance, bpffs, run_dir)?.lock().map(drop)
}

/// Whether an earlier agent of this name left state that [`Dataplane::open`] would adopt.
pub fn has_traces(instance: &str, bpffs: &Path, run_dir: &Path) -> Result<bool, Error> {
    Ok(Instance::new(instance, bpffs, run_dir)?.has_traces())
}

/// Removes everything that a dead agent of this name left. Returns whether there was anything.
///
/// # Errors
///
/// [`Error::Locked`] while the agent lives; any refusal of the kernel.
pub fn clean(instance: &str, bpffs: &Path, run_dir: &Path) -> Result<bool, Error> {
    attach::quiet();
    let instance = Instance::new(instance, bpffs, run_dir)?;
    let _lock = instance.lock()?;
    let files = instance.has_traces();
    let queues = undo(&instance)?;
    Ok(files || queues)
}

/// Undoes all of an instance, in an order in which traffic flows throughout: programs, redirects,
/// queues, files. Returns whether there were queues.
fn undo(instance: &Instance) -> Result<bool, Error> {
    if let Ok(lease) = Lease::open(&instance.lease(), false) {
        lease.set_closed(true);
    }
    let programs = Journal::open(instance).and_then(Journal::undo);
    let queues = shaper::remove(&instance.name).map_err(Error::from);
    let files = instance.remove_files();
    programs.and(queues).and_then(|found| files.map(|()| found))
}
