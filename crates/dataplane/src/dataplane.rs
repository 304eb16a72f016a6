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
//!           while it is open: see `change`.

mod adoption;
mod change;
mod devices;
mod eyeq;
mod plumbing;
mod switch;
mod vcc;

pub use devices::{Renamed, left_behind};
pub use plumbing::{Fault, Tended};

use crate::attach::{self, Hook, Interface, Mode};
use crate::config::{
    Config, Counters, Direction, Event, ExternalHose, HostTraffic, PairRate, Port, PortCounters,
    RxCounters, TxCounters,
};
use crate::error::Error;
use crate::instance::{Deed, Instance, Journal, Lock, list};
use crate::intf;
use crate::lease::Lease;
use crate::outside;
use crate::pairs::Pairs;
use crate::places::Places;
use crate::probe;
use crate::programs::{MAX_PORTS, Program, Programs, Sizes};
use crate::shaper::{
    self, ClassId, DepartureTimes, HTB_CARRIES, Htb, Kind, LONGEST_WAIT, Observer,
    PairRate as Levels, QUEUE_WAIT, Shaper, ShaperConfig, VmShare,
};
use crate::surroundings::Trouble;
use crate::table::Reading;
use crate::tags::GuestDscp;
use adoption::{claim, drop_ports, same_ids, strangers, sweep};
use devices::Devices;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::classes::Overbooked;
use weir_units::{Bytes, PairId, Rate, VmId};

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
        let sizes = Sizes { pairs: config.table_size(), endpoints, nodes: intf::NODES, queues };
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
        fill_endpoints(&programs, config)?;
        drop_ports(&mut programs, &strangers)?;
        let slots = fill_ports(&mut programs, config, hooks, &*shaper, &BTreeSet::new())?;
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
            looks: 0,
            around: Vec::new(),
            attached: hooks.to_vec(),
            directory_room: endpoints,
            pair_room: sizes.pairs,
            instance: instance.clone(),
            pairs: Pairs::default(),
            places,
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

    /// Reads all counters with two calls into the kernel, for any number of pairs. `out` is
    /// overwritten, its memory reused. Forgotten pairs are omitted until they send again.
    ///
    /// `now_ns` is the monotonic clock's time. A gap that is open for too long by then counts as a
    /// loss, also if no packet came since.
    pub fn read(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        self.read_tx(Reading::Whole, out)?;
        self.read_rx(Reading::Whole, now_ns, out)?;
        self.read_ports(out);
        Ok(())
    }

    /// Like [`Dataplane::read`], for pairs that send from here only, and cheaper while they are
    /// few. Then a pair whose event was not taken ([`take_events`](Self::take_events)) appears
    /// up to 60 ms late.
    pub fn read_sending(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        let reading = self.programs.tx.due(now_ns);
        self.read_tx(reading, out)
    }

    /// Like [`Dataplane::read_sending`], for pairs that receive here.
    pub fn read_receiving(&mut self, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        let reading = self.programs.rx.due(now_ns);
        self.read_rx(reading, now_ns, out)
    }

    /// Only a complete reading shows how many places are taken.
    fn read_tx(&mut self, reading: Reading, out: &mut Counters) -> Result<(), Error> {
        out.tx.clear();
        let whole = reading == Reading::Whole;
        if whole {
            self.places.begin_sending();
        }
        for (pair, tx) in self.programs.tx.read_as(reading)? {
            if whole {
                self.places.sends(VmId(pair.src));
            }
            if let Some(shown) = self.pairs.show(pair.into(), tx.into()) {
                out.tx.push((pair.into(), shown));
            }
        }
        if !whole {
            return Ok(());
        }
        self.places.end_sending();
        for pair in self.pairs.evict(self.places.sending(), self.config.pairs_per_vm as usize) {
            self.programs.tx.delete(pair.into())?;
        }
        Ok(())
    }

    fn read_rx(&mut self, reading: Reading, now_ns: u64, out: &mut Counters) -> Result<(), Error> {
        out.rx.clear();
        let whole = reading == Reading::Whole;
        if whole {
            self.places.begin_receiving();
        }
        for (pair, rx) in self.programs.rx.read_as(reading)? {
            if whole {
                self.places.receives(VmId(pair.dst));
            }
            let overdue = rx.overdue(now_ns, self.config.reorder_window.as_nanos());
            let lost = self.pairs.show_lost(pair.into(), rx.lost, overdue);
            out.rx.push((pair.into(), RxCounters { lost, ..rx.into() }));
        }
        if whole {
            self.places.end_receiving();
        }
        Ok(())
    }

    /// Like [`Dataplane::read`], for ports only, without a call into the kernel.
    pub fn read_ports(&self, out: &mut Counters) {
        out.ports.clear();
        let counters = &self.programs.port_counters;
        out.ports.extend(
            self.slots
                .iter()
                .map(|(vm, slot)| (*vm, PortCounters::from(counters.get(*slot as usize)))),
        );
    }

    /// Becomes readable when there are events. For poll, not for reading.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's epoll descriptor lives as long as `self.ring`, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Takes all events so far. An event is a wake-up: a lost event costs 60 ms, no more.
    pub fn take_events(&mut self) -> Vec<Event> {
        // It fails only if a callback fails, and ours does not.
        let _ = self.ring.consume();
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let events = std::mem::take(&mut heard.events);
        for event in &events {
            match event.direction {
                Direction::Tx => self.programs.tx.expect(event.pair.into()),
                Direction::Rx => self.programs.rx.expect(event.pair.into()),
            }
        }
        events
    }

    /// Sets levels of pairs that send from here. A pair without a class gets one, with its levels
    /// set before its packets go there. Writes only differences, in one batch.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`]; a ceiling below its floor; floors above the VM's. Nothing has changed
    /// then.
    ///
    /// Pairs that find no class are omitted and returned: each VM has a quota of classes.
    pub fn set(&mut self, rates: &[PairRate]) -> Result<Vec<PairId>, Error> {
        if let Some(rate) = rates.iter().find(|r| !self.local.contains(&r.pair.src)) {
            return Err(Error::NotLocal(rate.pair));
        }
        if self.lease.reclaims() != self.reclaims {
            // `renew_lease` tells the caller; here only the cached state must be correct.
            self.shaper.refresh()?;
        }
        let unbound: BTreeSet<PairId> =
            rates.iter().map(|r| r.pair).filter(|p| !self.bound.contains_key(p)).collect();
        let unbound: Vec<PairId> = unbound.into_iter().collect();
        let admitted = self.shaper.admitted(&unbound);
        let (unbound, left_out): (Vec<PairId>, Vec<PairId>) =
            unbound.into_iter().partition(|pair| admitted.contains(pair));
        let classes = self.shaper.add_pairs(&unbound)?;
        let rates = rates.iter().filter(|r| !left_out.contains(&r.pair));
        let levels: Vec<_> =
            rates.map(|r| (r.pair, Levels { floor: r.floor, ceiling: r.ceiling })).collect();
        if let Err(error) = self.shaper.set(&levels) {
            self.shaper.remove(&unbound)?;
            return Err(error.into());
        }
        for (pair, class) in unbound.into_iter().zip(classes) {
            self.programs.classes.put(pair.into(), class.0)?;
            self.bound.insert(pair, class);
            self.pairs.revive(pair);
        }
        Ok(left_out)
    }

    /// Whether a pair has a class of its own, and with it levels.
    pub fn has_class(&self, pair: PairId) -> bool {
        self.bound.contains_key(&pair)
    }

    /// Forgets ends of pairs. A sender's class returns to the pool, and the pair appears anew,
    /// counting from zero, when it sends again. Unknown pairs are ignored. An end that cannot be
    /// forgotten does not keep the others.
    pub fn forget(&mut self, ends: &[(PairId, Direction)]) -> Result<(), Error> {
        let mut unbound = Vec::new();
        let mut failed = Ok(());
        for (pair, direction) in ends {
            let forgotten = match direction {
                Direction::Rx => self.forget_receiving(*pair),
                Direction::Tx => self.forget_sending(*pair, &mut unbound),
            };
            failed = failed.and(forgotten);
        }
        self.shaper.remove(&unbound)?;
        failed
    }

    /// What a pair that receives here is offered, if it shows marks that its guest answers: the guest does not see those
    /// of a pair that gets no more. `None`: it sees all.
    ///
    /// A VM whose congestion control is translated sees no marks of its connections, and the translation needs them.
    pub fn spare_marks(&mut self, pair: PairId, offer: Option<Rate>) -> Result<(), Error> {
        match offer.filter(|_| !self.config.translations.contains_key(&pair.dst)) {
            Some(offer) => self.programs.offers.put(pair.into(), offer.as_bps()),
            None => self.programs.offers.delete(pair.into()).map(drop),
        }
    }

    fn forget_receiving(&mut self, pair: PairId) -> Result<(), Error> {
        self.programs.offers.delete(pair.into())?;
        self.programs.rx.delete(pair.into())?;
        self.pairs.forget_lost(pair);
        Ok(())
    }

    /// First the steering, then the queue: no packet goes to a class that is not its own. `unbound`
    /// gets the pair if its queue is to be removed.
    fn forget_sending(&mut self, pair: PairId, unbound: &mut Vec<PairId>) -> Result<(), Error> {
        if self.bound.contains_key(&pair) {
            self.programs.classes.delete(pair.into())?;
            self.bound.remove(&pair);
            unbound.push(pair);
        }
        eyeq::lift(&self.programs, pair)?;
        if let Some(tx) = self.programs.tx.get(pair.into())? {
            self.pairs.forget(pair, tx.into());
        }
        Ok(())
    }

    /// Renews the lease at `now_ns`, on the kernel's monotonic clock, so that pairs keep what they
    /// borrow.
    ///
    /// Returns whether the guardian has taken back what was borrowed since the last call. The
    /// caller then sets all levels again, also those that did not change.
    pub fn renew_lease(&mut self, now_ns: u64) -> Result<bool, Error> {
        self.lease.beat(now_ns);
        self.shaper.renew(now_ns);
        self.mend_after_reclaim()
    }

    /// The queues' own counters and lengths.
    pub fn queues(&mut self) -> Result<Vec<shaper::ClassStats>, Error> {
        let mut queues = self.shaper.stats()?;
        for queue in &mut queues {
            let tx = queue.pair.map(|pair| self.programs.tx.get(pair.into())).transpose()?;
            queue.drops += tx.flatten().map_or(0, |tx| tx.dropped);
        }
        Ok(queues)
    }

    /// The host's own traffic, if it has a floor.
    pub fn host_traffic(&mut self) -> Result<Option<HostTraffic>, Error> {
        let floor = self.config.host_floor;
        if floor.is_zero() {
            return Ok(None);
        }
        let queues = self.shaper.stats()?;
        let own = queues.iter().find(|queue| queue.class == shaper::HOST_CLASS);
        Ok(own.map(|q| HostTraffic { floor, octets: Bytes::new(q.octets), dropped: q.drops }))
    }

    /// The external hoses of this host's VMs.
    pub fn externals(&mut self) -> Result<Vec<ExternalHose>, Error> {
        let queues = self.shaper.stats()?;
        let hose = |port: &Port| {
            let classes = self.shaper.vm_classes(port.vm)?;
            let queue = queues.iter().find(|queue| queue.class == classes.external);
            let Levels { floor, ceiling } = classes.external_rate;
            let dropped = queue.map_or(0, |queue| queue.drops);
            Some(ExternalHose { vm: port.vm, floor, ceiling, dropped })
        };
        Ok(self.config.ports.iter().filter_map(hose).collect())
    }

    /// The levels as the kernel has them.
    pub fn levels(&mut self) -> Result<Vec<PairRate>, Error> {
        let levels = self.shaper.read_back()?.into_iter();
        Ok(levels.map(|(pair, l)| PairRate { pair, floor: l.floor, ceiling: l.ceiling }).collect())
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

    /// The guardian lowered ceilings while the agent was silent: reads the kernel's state.
    fn mend_after_reclaim(&mut self) -> Result<bool, Error> {
        let reclaims = self.lease.reclaims();
        let reclaimed = reclaims != self.reclaims;
        if reclaimed {
            self.shaper.refresh()?;
            self.reclaims = reclaims;
        }
        Ok(reclaimed)
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

fn hooks(config: &Config) -> Result<Vec<Hook>, Error> {
    let uplink = Interface::find(&config.uplink)?;
    let mut hooks = vec![Hook { interface: uplink, program: Program::Stamp }];
    for name in &config.tunnels.interfaces {
        hooks.push(Hook { interface: Interface::find(name)?, program: Program::Stamp });
    }
    eyeq::add_hooks(&mut hooks, config)?;
    for port in first_ports(config) {
        let interface = Interface::find(&port.interface)?;
        hooks.push(Hook { interface: interface.clone(), program: Program::Classify });
        hooks.push(Hook { interface, program: eyeq::meter(config) });
    }
    hooks.iter().try_for_each(|h| h.interface.check_ethernet())?;
    Ok(hooks)
}

/// The shaper to try first, and the one to try if the host cannot have it. An earlier agent's HTB
/// stays, because trying another shaper would end it.
fn choice(config: &Config) -> Result<(Kind, Option<Kind>), Error> {
    Ok(match config.shaper {
        Some(kind) => (kind, None),
        None if config.uplink_rate <= HTB_CARRIES => (Kind::Htb, None),
        None if shaper::exists(&config.instance)? => (Kind::Htb, None),
        None => (Kind::DepartureTime, Some(Kind::Htb)),
    })
}

/// Whether the error means that a host cannot have this shaper.
const fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Shaper(shaper::Error::NoFq | shaper::Error::Foreign { .. }))
}

fn open_shaper(
    kind: Kind,
    config: &Config,
    uplink: &Interface,
    programs: &mut Programs,
    journal: &mut Journal,
) -> Result<Box<dyn Shaper + Send>, Error> {
    let deed = match kind {
        Kind::DepartureTime => Some(Deed::Fq(uplink.clone())),
        Kind::Htb if !config.host_floor.is_zero() => Some(Deed::Htb(uplink.clone())),
        Kind::Htb | Kind::Observer => None,
    };
    give_back_roots(journal, deed.as_ref())?;
    if let Some(deed) = deed
        && !journal.has(&deed)
    {
        journal.record(deed)?;
    }
    if kind == Kind::Htb {
        return Ok(Box::new(
            Htb::open(shaper_config(config))?
                .beside_host(uplink.device())?
                .bounded_in_time(programs.levels()?)?
                .leased(programs.lease()?),
        ));
    }
    let mut before: Vec<_> =
        programs.classes.read()?.map(|(pair, class)| (VmId(pair.src), ClassId(class))).collect();
    let ports = programs.ports.read()?;
    before.extend(ports.map(|(_, port)| (VmId(port.vm), ClassId(port.default_class))));
    let (maps, uplink) = (programs.departures()?, uplink.device());
    // Stamp counts every outer header by itself.
    let config = ShaperConfig { overhead: 0, ..shaper_config(config) };
    Ok(Box::new(DepartureTimes::open(config, uplink, maps, &before)?))
}

/// Gives back the roots of uplinks that an earlier agent took and this one does not need, all but
/// `kept`.
fn give_back_roots(journal: &mut Journal, kept: Option<&Deed>) -> Result<(), Error> {
    let over: Vec<Deed> = journal
        .deeds
        .iter()
        .filter(|d| d.rooted().is_some() && Some(*d) != kept)
        .cloned()
        .collect();
    for uplink in over.iter().filter_map(Deed::rooted).filter(|uplink| uplink.is_there()) {
        shaper::release(&uplink.device())?;
    }
    journal.strike(|deed| over.contains(deed))
}

fn shaper_config(config: &Config) -> ShaperConfig {
    let departs_within = config.eyeq.as_ref().and_then(|eyeq| eyeq.departs_within);
    ShaperConfig {
        departs_within: departs_within.map_or(QUEUE_WAIT, |within| within.min(LONGEST_WAIT)),
        default_rate: config.default_rate,
        max_pairs: config.max_pairs as usize,
        overhead: config.tunnels.overhead,
        host_floor: config.host_floor,
        sends_by_bursts: probe::htb_sends_by_bursts(&probe::Roots::default()),
        ..ShaperConfig::new(&config.instance, config.uplink_rate)
    }
}

fn shares(config: &Config) -> Vec<VmShare> {
    let share = |p: &crate::config::Port| VmShare {
        vm: p.vm,
        port: p.interface.clone(),
        floor: p.floor_out,
        cap: p.cap_out,
        external: p.external,
    };
    config.ports.iter().map(share).collect()
}

fn settings(config: &Config, kind: Kind, uplink: &Interface) -> intf::Settings {
    let is_divided = kind == Kind::Htb && !config.host_floor.is_zero() && !config.observe;
    intf::Settings {
        reorder_ns: config.reorder_window.as_nanos(),
        flags: if config.ecn { intf::ECN } else { 0 }
            | if config.eyeq.is_some() { intf::UNMARK } else { 0 }
            | if config.observe { intf::OBSERVE } else { 0 },
        overhead: config.tunnels.overhead,
        code_points: config.code_points.bits(),
        divided: if is_divided { uplink.index } else { 0 },
        unused: 0,
    }
}

fn fill_endpoints(programs: &Programs, config: &Config) -> Result<(), Error> {
    for endpoint in &config.endpoints {
        let port = config.ports.iter().find(|p| p.vm == endpoint.vm);
        let value = intf::Endpoint {
            vm: endpoint.vm.0,
            tenant: endpoint.tenant.0,
            flags: port.map_or(0, endpoint_flags) | endpoint.mac.map_or(0, |_| intf::AT_MAC),
            mac: mac_octets(endpoint.mac),
        };
        programs.endpoints.put(endpoint.address.into(), value)?;
    }
    Ok(())
}

/// As the programs compare it.
fn mac_octets(mac: Option<[u8; 6]>) -> [u8; 8] {
    mac.map_or([0; 8], |m| [m[0], m[1], m[2], m[3], m[4], m[5], 0, 0])
}

/// Of a VM of this host.
pub(crate) fn endpoint_flags(port: &Port) -> u32 {
    intf::LOCAL | if port.best_effort { intf::BEST_EFFORT } else { 0 }
}

/// Makes the map of ports exactly the configuration's. A port that stays keeps its counters.
fn fill_ports(
    programs: &mut Programs,
    config: &Config,
    hooks: &[Hook],
    shaper: &dyn Shaper,
    bare: &BTreeSet<VmId>,
) -> Result<Vec<(VmId, u32)>, Error> {
    let mut old: BTreeMap<u32, intf::Port> = programs.ports.read()?.collect();
    let mut kept = BTreeMap::new();
    for port in first_ports(config) {
        let index = index_of(hooks, &port.interface);
        if let Some(value) = old.get(&index).filter(|v| v.vm == port.vm.0) {
            kept.insert(index, value.slot);
        }
    }
    let mut used: BTreeSet<u32> = kept.values().copied().collect();
    let mut slots = Vec::new();
    for port in first_ports(config) {
        let index = index_of(hooks, &port.interface);
        let slot = kept.get(&index).copied().unwrap_or_else(|| {
            let free = (0..MAX_PORTS).find(|s| !used.contains(s));
            let free = free.expect("not more ports than slots: the configuration was checked");
            programs.port_counters.clear(free as usize);
            free
        });
        used.insert(slot);
        let classes = shaper.vm_classes(port.vm).ok_or(Error::NoPort(port.vm))?;
        let value = intf::Port {
            vm: port.vm.0,
            tenant: port.tenant.0,
            slot,
            default_class: classes.default.0,
            control_class: classes.control.0,
            external_class: classes.external.0,
            flags: flags(config, port, bare),
            max_pairs: config.pairs_per_vm,
            stray_bps: u32::try_from(classes.stray_rate.as_bps()).unwrap_or(u32::MAX),
            mac: mac_octets(port.mac),
        };
        programs.ports.put(index, value)?;
        old.remove(&index);
        slots.push((port.vm, slot));
    }
    for index in old.into_keys() {
        programs.ports.delete(index)?;
    }
    Ok(slots)
}

/// The ports, those that are shared by their first VM.
fn first_ports(config: &Config) -> impl Iterator<Item = &Port> {
    let mut seen = BTreeSet::new();
    config.ports.iter().filter(move |port| seen.insert(&port.interface))
}

fn flags(config: &Config, port: &Port, bare: &BTreeSet<VmId>) -> u32 {
    let outward = if config.is_outward(port.vm) { intf::OUTWARD } else { 0 };
    let outward = outward | if bare.contains(&port.vm) { intf::BARE } else { 0 };
    let dscp = match port.dscp {
        GuestDscp::Clear => 0,
        GuestDscp::Keep => intf::KEEP_DSCP,
        GuestDscp::Restore => intf::RESTORE_DSCP,
    };
    outward | dscp | if port.mac.is_some() { intf::FIXED_MAC } else { 0 }
}

/// Gives every VM its places, also VMs that share a port, and writes the endpoints for the outside.
/// Adopted pairs occupy their places from the start.
fn fill_places(
    programs: &mut Programs,
    config: &Config,
    shaper: &dyn Shaper,
    ports: &[(VmId, u32)],
) -> Result<Places, Error> {
    let mut slots: BTreeMap<VmId, u32> = ports.iter().copied().collect();
    let mut here = BTreeMap::new();
    for port in &config.ports {
        let free = || (0..MAX_PORTS).find(|free| !slots.values().any(|slot| slot == free));
        let slot = slots.get(&port.vm).copied().or_else(free);
        let slot = slot.expect("not more ports than slots: the configuration was checked");
        slots.insert(port.vm, slot);
        let classes = shaper.vm_classes(port.vm).ok_or(Error::NoPort(port.vm))?;
        here.insert(port.vm, (slot, classes.default.0));
    }
    outside::fill(programs, config, &here)?;
    let mut places = Places::new(programs.places()?, slots);
    places.begin_sending();
    programs.tx.read()?.for_each(|(pair, _)| places.sends(VmId(pair.src)));
    places.end_sending();
    places.begin_receiving();
    programs.rx.read()?.for_each(|(pair, _)| places.receives(VmId(pair.dst)));
    places.end_receiving();
    Ok(places)
}

fn index_of(hooks: &[Hook], interface: &str) -> u32 {
    let hook = hooks.iter().find(|h| h.interface.name == interface);
    hook.expect("every port has hooks").interface.index
}

/// Detaches programs that an earlier agent attached where this one attaches none, or another.
fn detach_others(
    instance: &Instance,
    journal: &Journal,
    hooks: &[Hook],
    mode: Mode,
) -> Result<(), Error> {
    // The program attached first is detached last: no meter may outlive the program that edits its
    // clones.
    for deed in journal.deeds.iter().rev() {
        match deed {
            Deed::Filter(h)
                if h.interface.is_there()
                    && (mode == Mode::Tcx
                        || !hooks.contains(h) && !matches!(h.program, Program::Vcc(_))) =>
            {
                attach::detach_clsact(h)?;
            }
            _ => {}
        }
    }
    let links = instance.links();
    let wanted: Vec<_> = match mode {
        Mode::Tcx => hooks.iter().map(|h| h.pin(&links)).collect(),
        Mode::Clsact => Vec::new(),
    };
    // Programs that translate are handled later, because connections may need them.
    let is_kept = |pin: &PathBuf| {
        wanted.contains(pin) || (mode == Mode::Tcx && vcc::translator_on(pin).is_some())
    };
    let mut pins = list(&links)?;
    // As [`Instance::remove_files`] has it: a port's programs before those that serve all ports.
    pins.sort_unstable();
    for pin in pins.into_iter().filter(|pin| !is_kept(pin)) {
        attach::detach_tcx(&pin)?;
    }
    Ok(())
}

fn attach_one(
    hook: &Hook,
    mode: Mode,
    programs: &Programs,
    instance: &Instance,
    journal: &mut Journal,
) -> Result<(), Error> {
    let program = programs.fd(hook.program);
    if mode == Mode::Tcx {
        return attach::attach_tcx(hook, program, &instance.links());
    }
    let (clsact, filter) = (Deed::Clsact(hook.interface.clone()), Deed::Filter(hook.clone()));
    if !attach::has_clsact(&hook.interface)? {
        journal.record(clsact)?;
        attach::add_clsact(&hook.interface)?;
    }
    let ours = journal.has(&filter);
    if !ours {
        journal.record(filter)?;
    }
    attach::attach_clsact(hook, program, ours)
}

/// Events of the ring.
#[derive(Debug, Default)]
struct Heard {
    events: Vec<Event>,
    /// Pairs whose receiver allows another rate.
    limited: BTreeSet<PairId>,
}

impl Heard {
    fn take(&mut self, event: intf::Event) {
        if event.direction == intf::LIMIT {
            self.limited.insert(event.pair.into());
        } else {
            self.events.push(event.into());
        }
    }
}

fn ring(programs: &Programs, heard: &Arc<Mutex<Heard>>) -> Result<RingBuffer<'static>, Error> {
    let map = programs.events()?;
    let heard = Arc::clone(heard);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |octets| {
            if let Some(event) = intf::Event::parse(octets) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).take(event);
            }
            0
        })
        .map_err(Error::Load)?;
    builder.build().map_err(Error::Load)
}

impl From<intf::Event> for Event {
    fn from(e: intf::Event) -> Self {
        let direction = if e.direction == intf::TX { Direction::Tx } else { Direction::Rx };
        Self { pair: e.pair.into(), direction, same_tenant: e.same_tenant != 0 }
    }
}

impl From<intf::Tx> for TxCounters {
    fn from(tx: intf::Tx) -> Self {
        Self {
            octets: Bytes::new(tx.octets),
            segments: tx.segments,
            numbered: Bytes::new(tx.numbered),
            unnumbered: Bytes::new(tx.unnumbered),
            left: tx.sequence.into(),
        }
    }
}

impl From<intf::Rx> for RxCounters {
    fn from(rx: intf::Rx) -> Self {
        Self {
            octets: Bytes::new(rx.octets),
            segments: rx.segments,
            numbered: rx.numbered.into(),
            lost: rx.lost,
            ce: rx.ce,
            reordered: rx.reordered,
            resyncs: rx.resyncs,
            strange: rx.strange,
        }
    }
}

impl From<intf::PortCounters> for PortCounters {
    fn from(c: intf::PortCounters) -> Self {
        Self {
            tx_octets: Bytes::new(c.tx_octets),
            tx_segments: c.tx_segments,
            rx_octets: Bytes::new(c.rx_octets),
            rx_segments: c.rx_segments,
            spoofed: c.spoofed,
            malformed: c.malformed,
            unclassified: c.unclassified,
            control: c.control,
            foreign: c.foreign,
            tx_full: c.tx_full,
            rx_full: c.rx_full,
            events_lost: c.events_lost,
            spoofed_mac: c.spoofed_mac,
            control_denied: c.control_denied,
            stray: c.stray,
            unpaired: c.unpaired,
            rogue: c.rogue,
            misdirected: c.misdirected,
            external_tx: Bytes::new(c.external_tx),
            external_rx: Bytes::new(c.external_rx),
            unleased: c.unleased,
        }
    }
}
