//! EyeQ in the kernel: meters, feedback and limits, without an agent being awake.
//!
//! Problem   Rates that follow 200 µs cannot wait for a process: a wake-up costs 25 µs, each.
//! Approach  `bpf/eyeq.bpf.c`: three programs, and one that only reads limits for the agent, in an
//!           object of their own. The receiving VM's port meters, the host's own device makes
//!           messages of clones, and the sender's uplink reads them.
//! Promises  All maps are bounded. A sender without a key changes nothing but a counter. Programs
//!           attached for a test ([`Programs::attach`]) go with their owner where the kernel has
//!           TCX, else with the interfaces.
//! Not here  Receiving rates (C_i), the assignment of keys, HTB's classes: the agent's. The same as
//!           a part of a whole datapath: see `dataplane::eyeq`.

pub mod intf;

use crate::error::{Context, Error};
use crate::intf::{Address, Endpoint, Level, NODES, Pair, Port, Tx};
use crate::mark::attach;
use crate::object::{Aligned, object};
use crate::programs::{Frame, MAX_PORTS, Ran, gather, run_on};
use crate::table::{CounterArray, Table};
use intf::{Counters, Ear, Limit, Meter, Mouth, Settings, Share, Vm, Voice};
use libbpf_rs::{MapCore, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

static OBJECT: &Aligned<[u8]> = object!("eyeq");

/// Most keys per host for feedback: as many as a keyring accepts.
const KEYS: u32 = 4;

/// Shares and meters: a VM has one for its own tenant and one for strangers.
const PARTS: u32 = MAX_PORTS + intf::STRANGERS;

/// Least size of an LRU table: kernels before 6.16 reserve up to 128 places per CPU.
const TOLD_LEAST: u32 = 4096;

/// The maps that this object and that of [`crate::programs`] both have (`bpf/maps.h`).
const SHARED: [&str; 15] = [
    "ports",
    "port_counters",
    "endpoints",
    "outside",
    "controls",
    "places",
    "tx",
    "rx",
    "classes",
    "levels",
    "settings",
    "flows",
    "tenant_tags",
    "dscps",
    "events",
];

/// One of the programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    /// On a port's egress: packets to a VM.
    Meter,
    /// On the egress of the interface by which the host itself talks: makes messages of clones.
    Tell,
    /// On the uplink's ingress: reads messages.
    Heed,
}

impl Program {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Meter, Self::Tell, Self::Heed];

    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meter => "weir_eyeq_meter",
            Self::Tell => "weir_eyeq_tell",
            Self::Heed => "weir_eyeq_heed",
        }
    }

    const fn hook(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::Meter | Self::Tell => libbpf_sys::BPF_TCX_EGRESS,
            Self::Heed => libbpf_sys::BPF_TCX_INGRESS,
        }
    }
}

/// Sizes of the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Pairs that send from here, and limits.
    pub pairs: u32,
    /// Addresses in the directory, and VMs.
    pub endpoints: u32,
    /// Hosts; each may have four keys.
    pub hosts: u32,
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct Programs {
    object: libbpf_rs::Object,
    /// ifindex → port; as in [`crate::programs::Programs`], like the next two.
    pub ports: Table<u32, Port>,
    /// The directory.
    pub endpoints: Table<Address, Endpoint>,
    /// Pairs that send from here.
    pub tx: Table<Pair, Tx>,
    /// Pair → class, which names its node.
    pub classes: Table<Pair, u32>,
    /// Node → level; `heed` writes ceilings of pairs if the uplink has a level.
    pub levels: Option<CounterArray<Level>>,
    /// Slot → receiving rate of the VM.
    pub shares: CounterArray<Share>,
    /// Slot → meter.
    pub meters: Table<u32, Meter>,
    /// VM → its host.
    pub vms: Table<u32, Vm>,
    /// Host's address → key and sequence for feedback to it.
    pub mouths: Table<u32, Mouth>,
    /// Senders that are believed, with the sequences heard.
    pub ears: Table<Voice, Ear>,
    /// Pair → limit by its receiver.
    pub limits: Table<Pair, Limit>,
    counters: CounterArray<Counters>,
    settings: Table<u32, Settings>,
}

impl Programs {
    /// Loads the object by itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(sizes: Sizes) -> Result<Self, Error> {
        Self::load_with(sizes, None)
    }

    /// Loads the object beside another, and uses the maps that both have.
    pub(crate) fn load_beside(sizes: Sizes, other: &libbpf_rs::Object) -> Result<Self, Error> {
        Self::load_with(sizes, Some(other))
    }

    fn load_with(sizes: Sizes, other: Option<&libbpf_rs::Object>) -> Result<Self, Error> {
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        let ears = sizes.hosts.saturating_mul(KEYS);
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let known = SHARED.into_iter().find(|shared| *shared == name);
            if let (Some(other), Some(known)) = (other, known) {
                map.reuse_fd(fd(other, known)?.as_fd()).map_err(Error::Load)?;
                continue;
            }
            let entries = match name.as_str() {
                "ports" | "port_counters" => MAX_PORTS,
                "eyeq_shares" | "eyeq_meters" => PARTS,
                "tx" | "classes" | "eyeq_limits" => sizes.pairs,
                "eyeq_told" => sizes.pairs.max(TOLD_LEAST),
                "endpoints" | "outside" | "eyeq_vms" => sizes.endpoints,
                "eyeq_mouths" => sizes.hosts,
                "eyeq_ears" => ears,
                "levels" => NODES,
                _ => continue,
            };
            map.set_max_entries(entries).map_err(Error::Load)?;
        }
        let object = open.load().map_err(Error::Load)?;
        let fd = |name| fd(&object, name);
        let (shares, counters) = (fd("eyeq_shares")?, fd("eyeq_counters")?);
        // Beside another object the maps are that object's, with sizes that are not known here.
        let levels = match other {
            Some(_) => None,
            None => Some(
                CounterArray::map(&fd("levels")?, NODES)
                    .during(|| "mapping BPF map levels".to_owned())?,
            ),
        };
        Ok(Self {
            classes: Table::new("classes", fd("classes")?, sizes.pairs),
            levels,
            ports: Table::new("ports", fd("ports")?, MAX_PORTS),
            endpoints: Table::new("endpoints", fd("endpoints")?, sizes.endpoints),
            tx: Table::new("tx", fd("tx")?, sizes.pairs),
            shares: CounterArray::map(&shares, PARTS)
                .during(|| "mapping BPF map eyeq_shares".to_owned())?,
            meters: Table::new("eyeq_meters", fd("eyeq_meters")?, PARTS),
            vms: Table::new("eyeq_vms", fd("eyeq_vms")?, sizes.endpoints),
            mouths: Table::new("eyeq_mouths", fd("eyeq_mouths")?, sizes.hosts),
            ears: Table::new("eyeq_ears", fd("eyeq_ears")?, ears),
            limits: Table::new("eyeq_limits", fd("eyeq_limits")?, sizes.pairs).gathered_by(gather(
                &object,
                "weir_eyeq_gather",
                ["eyeq_asked", "eyeq_told_limits"],
            )?),
            counters: CounterArray::map(&counters, 1)
                .during(|| "mapping BPF map eyeq_counters".to_owned())?,
            settings: Table::new("eyeq_settings", fd("eyeq_settings")?, 1),
            object,
        })
    }

    /// Writes the programs' settings.
    ///
    /// # Errors
    /// The kernel refuses the write.
    pub fn set(&self, settings: Settings) -> Result<(), Error> {
        self.settings.put(0, settings)
    }

    /// Counters of all messages so far.
    pub fn counters(&self) -> Counters {
        self.counters.get(0)
    }

    /// Attaches a program to an interface of the calling thread's network namespace. On a kernel
    /// with TCX it stays as long as the returned value. `Tell` comes first, on the interface in
    /// `Settings::via`, because clones without it are VMs' packets that leave a second time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, program: Program, interface: u32) -> Result<Option<OwnedFd>, Error> {
        attach(self.program(program).as_fd(), program.name(), interface, program.hook())
    }

    /// Runs a program on a frame without any interface, for tests and measurements.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn run(&self, program: Program, frame: &Frame<'_>) -> Result<Ran, Error> {
        run_on(&self.program(program), program.name(), frame)
    }

    /// A program's descriptor, to attach it by.
    pub(crate) fn fd(&self, program: Program) -> BorrowedFd<'_> {
        let found = self.program(program);
        // SAFETY: the descriptor belongs to `self.object`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(found.as_fd().as_raw_fd()) }
    }

    fn program(&self, program: Program) -> libbpf_rs::ProgramMut<'_> {
        let found = self.object.progs_mut().find(|p| p.name() == program.name());
        found.expect("the object has all programs")
    }
}

fn fd(object: &libbpf_rs::Object, name: &'static str) -> Result<OwnedFd, Error> {
    let map = object.maps().find(|m| m.name() == name).expect("the object has all maps");
    map.as_fd().try_clone_to_owned().during(|| format!("duplicating the fd of BPF map {name}"))
}
