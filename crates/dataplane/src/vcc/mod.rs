//! vCC in the kernel: a guest's port rewrites TCP headers, so that the guest follows another
//! congestion control than its own.
//!
//! Problem   A guest that ignores ECN loses packets where its neighbours only lower their rates,
//!           and the guest cannot be changed.
//! Approach  `bpf/vcc.bpf.c`: two programs on the VM's port, an object of their own. They ask the
//!           law (`weir_core::vcc`, in C `bpf/vcc_law.h`) how to change each segment.
//! Promises  Bounded: 64 octets and the kernel's overhead per connection, in a table for each port,
//!           where the connection that was silent longest goes first. A segment that cannot be
//!           translated passes unchanged. Programs attached for a test ([`Programs::attach`]) go
//!           with their owner where the kernel has TCX, else with the interfaces.
//! Not here  The terms of connections. The same as a part of a whole datapath: see
//!           `dataplane::vcc`. Window budgets: see [`budget`].

pub mod budget;
pub mod intf;

pub use weir_core::vcc::Translation as Law;

use crate::error::{Context, Error};
use crate::intf::Flow;
use crate::mark::attach;
use crate::object::{Aligned, object};
use crate::programs::{self, Frame, MAX_PORTS, Ran, run_on};
use crate::table::{CounterArray, Table};
use intf::{Counters, Port, State};
use libbpf_rs::{MapCore, MapHandle, MapType, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

static OBJECT: &Aligned<[u8]> = object!("vcc");

/// A port's table in the kernel.
const TABLE: &str = "vcc_table";

/// Maps with state: pinned beside those of [`crate::programs`], and adopted by the next agent. The
/// locks are among them, because the programs of both agents run at once during a takeover.
pub(crate) const STATE: [&str; 6] =
    ["vcc_ports", "vcc_counters", "vcc_flows", "vcc_locks", "vcc_budgets", "vcc_bounded"];

/// The same, of a later version: state without it is adopted, too.
const HALVES: [&str; 1] = ["vcc_halves"];

/// A port has one place for a connection that a peer has begun per this many places in all, and at
/// least [`HALVES_LEAST`]. A SYN needs it for a round trip.
const HALVES_PART: u32 = 4;
/// Below some hundred entries the kernel's table pushes out early.
const HALVES_LEAST: u32 = 512;

/// Maps that have an entry for each port.
const OF_PORTS: [&str; 7] = [
    "vcc_ports",
    "vcc_counters",
    "vcc_flows",
    "vcc_halves",
    "vcc_budgets",
    "vcc_bounded",
    "vcc_turns",
];

/// Flag of a port whose windows are bounded: it has a budget.
pub(crate) const BUDGETED: u32 = 1;

/// One of the programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    /// On a port's ingress: segments from a guest.
    From,
    /// On a port's egress: segments to a guest.
    To,
}

impl Program {
    /// Both.
    pub const ALL: [Self; 2] = [Self::From, Self::To];

    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::From => "weir_vcc_from",
            Self::To => "weir_vcc_to",
        }
    }

    const fn hook(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::From => libbpf_sys::BPF_TCX_INGRESS,
            Self::To => libbpf_sys::BPF_TCX_EGRESS,
        }
    }
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct Programs {
    object: libbpf_rs::Object,
    /// ifindex → port.
    pub ports: Table<u32, Port>,
    /// Slot → table: written by its descriptor, read as its id.
    tables: Table<u32, u32>,
    /// Slot → table of connections that a peer has begun, and that are not established; the same.
    halves: Table<u32, u32>,
    counters: CounterArray<Counters>,
    /// Slot → budget, where a port has one.
    budgets: Table<u32, budget::Budget>,
    /// Slot → [`BUDGETED`] where it has one.
    bounded: Table<u32, u32>,
    turns: CounterArray<u64>,
}

impl Programs {
    /// Loads the object. A port also needs a table: see [`make_table`](Self::make_table).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load() -> Result<Self, Error> {
        Self::load_with(None, None)
    }

    /// Loads it beside the classifying programs, whose maps give pairs and their floors.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load_beside(datapath: &programs::Programs) -> Result<Self, Error> {
        Self::load_with(None, Some(datapath))
    }

    /// Loads it beside these programs. Adopts the state that is pinned there, and pins the rest.
    pub(crate) fn load_pinned(pins: &Path, datapath: &programs::Programs) -> Result<Self, Error> {
        Self::load_with(Some(pins), Some(datapath))
    }

    fn load_with(
        pins: Option<&Path>,
        datapath: Option<&programs::Programs>,
    ) -> Result<Self, Error> {
        crate::attach::quiet();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if OF_PORTS.contains(&name.as_str()) {
                map.set_max_entries(MAX_PORTS).map_err(Error::Load)?;
            }
            if let Some(datapath) = datapath {
                datapath.lend(&mut map)?;
            }
        }
        if let Some(pins) = pins {
            programs::adopt(&mut open, pins, &STATE)?;
            programs::adopt(&mut open, pins, &HALVES)?;
        }
        let mut object = open.load().map_err(Error::Load)?;
        if let Some(pins) = pins {
            programs::pin(&mut object, pins, &STATE)?;
            programs::pin(&mut object, pins, &HALVES)?;
        }
        let map = |name: &'static str| {
            let map = object.maps().find(|m| m.name() == name).expect("the object has all maps");
            map.as_fd().try_clone_to_owned().during(|| format!("keeping BPF map {name}"))
        };
        let counters = CounterArray::map(&map("vcc_counters")?, MAX_PORTS);
        let turns = CounterArray::map(&map("vcc_turns")?, MAX_PORTS);
        Ok(Self {
            ports: Table::new("vcc_ports", map("vcc_ports")?, MAX_PORTS),
            tables: Table::new("vcc_flows", map("vcc_flows")?, MAX_PORTS),
            halves: Table::new("vcc_halves", map("vcc_halves")?, MAX_PORTS),
            counters: counters.during(|| "mapping BPF map vcc_counters".to_owned())?,
            budgets: Table::new("vcc_budgets", map("vcc_budgets")?, MAX_PORTS),
            bounded: Table::new("vcc_bounded", map("vcc_bounded")?, MAX_PORTS),
            turns: turns.during(|| "mapping BPF map vcc_turns".to_owned())?,
            object,
        })
    }

    /// Gives the port in `slot` an empty table for this many connections, and replaces any former
    /// one.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make_table(&self, slot: u32, flows: u32) -> Result<(), Error> {
        self.tables.put(slot, new_table(flows)?.as_fd().as_raw_fd() as u32)?;
        self.make_halves(slot, flows)
    }

    /// The same for the connections that peers begin.
    fn make_halves(&self, slot: u32, flows: u32) -> Result<(), Error> {
        let places = (flows / HALVES_PART).max(HALVES_LEAST);
        self.halves.put(slot, new_table(places)?.as_fd().as_raw_fd() as u32)
    }

    /// Completes what an agent of an earlier version made for the port in `slot`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn complete_table(&self, slot: u32, flows: u32) -> Result<(), Error> {
        if self.halves.get(slot)?.is_some() { Ok(()) } else { self.make_halves(slot, flows) }
    }

    /// State of the connections of the port in `slot`, by their names, from the peer to the guest;
    /// `None` without a table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn flows(&self, slot: u32) -> Result<Option<Table<Flow, State>>, Error> {
        table_in(&self.tables, slot)
    }

    /// The same of connections that a peer has begun, and that are not established.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn halves(&self, slot: u32) -> Result<Option<Table<Flow, State>>, Error> {
        table_in(&self.halves, slot)
    }

    /// Puts a budget on the port in `slot`, or removes it. [`Divided`](budget::Divided) counts its
    /// connections.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_budget(&self, slot: u32, budget: Option<budget::Budget>) -> Result<(), Error> {
        match budget {
            Some(budget) => {
                self.budgets.put(slot, budget)?;
                self.bound(slot, true)
            }
            None => {
                self.bound(slot, false)?;
                self.budgets.delete(slot).map(drop)
            }
        }
    }

    /// Sets whether a budget bounds windows at the port in `slot`.
    pub(crate) fn bound(&self, slot: u32, is_there: bool) -> Result<(), Error> {
        let next = if is_there { BUDGETED } else { 0 };
        if self.bounded.get(slot)? == Some(next) { Ok(()) } else { self.bounded.put(slot, next) }
    }

    /// Number of times that a connection of the port in `slot` began or ended to use a budget.
    pub(crate) fn turns(&self, slot: u32) -> u64 {
        self.turns.get(slot as usize)
    }

    /// Takes a port off, with all that bounds it and its table.
    pub(crate) fn remove(&self, interface: u32, slot: u32) -> Result<(), Error> {
        self.ports.delete(interface)?;
        self.set_budget(slot, None)?;
        self.halves.delete(slot)?;
        self.tables.delete(slot).map(drop)
    }

    /// Sets the counters of `slot` to zero. Only before a port uses it.
    pub(crate) fn clear_counters(&self, slot: u32) {
        self.counters.clear(slot as usize);
    }

    /// Counters of the port in `slot` so far.
    pub fn counters(&self, slot: u32) -> Counters {
        self.counters.get(slot as usize)
    }

    /// Puts a program on an interface of the calling thread's network namespace, a port that
    /// `ports` has or will have. On a kernel with TCX it is there as long as what this gives.
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

/// An empty table for so many connections.
fn new_table(flows: u32) -> Result<MapHandle, Error> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let (name, key, state) = (Some(TABLE), size_of::<Flow>() as u32, size_of::<State>() as u32);
    let table = MapHandle::create(MapType::LruHash, name, key, state, flows, &options);
    table.map_err(|e| Error::System {
        action: format!("making a table of {flows} connections"),
        source: std::io::Error::other(e),
    })
}

/// The connections in the table of the port in `slot`.
fn table_in(tables: &Table<u32, u32>, slot: u32) -> Result<Option<Table<Flow, State>>, Error> {
    let Some(id) = tables.get(slot)? else { return Ok(None) };
    let table = MapHandle::from_map_id(id).map_err(Error::Load)?;
    let fd = table.as_fd().try_clone_to_owned().during(|| format!("keeping BPF map {TABLE}"))?;
    Ok(Some(Table::new(TABLE, fd, table.max_entries())))
}
