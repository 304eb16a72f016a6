//! Loads the BPF object and gives its programs and maps names.
//!
//! Problem   Three programs share maps whose contents must outlive the agent. Under EyeQ three more
//!           share some of them. Where ports translate, two more have maps of their own.
//! Approach  One object, carried in this crate. Maps with state are pinned, and the next agent
//!           finds them again. Maps with configuration are made anew with each load and filled
//!           before the new programs replace the old ones.
//! Promises  Maps are bounded and allocated at load. Pins of another layout are not adopted.
//! Not here  Where the programs run: see `attach`. The meaning of the values: see `intf`.

use crate::error::{Context, Error};
use crate::gather::{Gather, LookUp};
use crate::object::{Aligned, object};
use crate::table::{CounterArray, Table};
use crate::{eyeq, intf, vcc};
use libbpf_rs::{MapCore, MapHandle, MapMut, ObjectBuilder, OpenObject, ProgramInput, ProgramMut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

static OBJECT: &Aligned<[u8]> = object!("weir");

/// Ports that one host can have.
pub const MAX_PORTS: u32 = 1024;

/// Most connections whose ECN is remembered; equal to the bound in maps.h.
const MAX_FLOWS: u32 = 8192;

/// `struct __sk_buff` of the UAPI: its length, and where the fields are that a run sets or reads.
const CONTEXT: usize = 192;
const MARK: usize = 8;
const PRIORITY: usize = 32;
const IFINDEX: usize = 40;
const TSTAMP: usize = 152;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;

/// The directory is pinned, too, but only for comparison.
const DIRECTORY: &str = "endpoints";

/// Maps that hold state: pinned, and adopted by the next agent.
const STATE: [&str; 9] =
    ["ports", "port_counters", "tx", "rx", "classes", "levels", "queues", "lease", "tenant_tags"];

/// One of the three programs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Program {
    /// On a port's ingress: packets from a VM.
    Classify,
    /// On the uplink's egress, after the shaper.
    Stamp,
    /// On a port's egress: packets to a VM.
    Meter,
    /// One of EyeQ's, of an object of their own.
    EyeQ(eyeq::Program),
    /// One of vCC's, of an object of their own.
    Vcc(vcc::Program),
}

impl Program {
    /// Those that every mechanism has.
    pub const ALL: [Self; 3] = [Self::Classify, Self::Stamp, Self::Meter];

    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classify => "weir_classify",
            Self::Stamp => "weir_stamp",
            Self::Meter => "weir_meter",
            Self::EyeQ(program) => program.name(),
            Self::Vcc(program) => program.name(),
        }
    }

    /// The program of this name in the kernel.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = Self::ALL.into_iter().chain(eyeq::Program::ALL.map(Self::EyeQ));
        let mut all = all.chain(vcc::Program::ALL.map(Self::Vcc));
        all.find(|program| program.name() == name)
    }

    /// Whether it runs on an interface's ingress; otherwise on its egress.
    pub(crate) const fn is_on_ingress(self) -> bool {
        matches!(
            self,
            Self::Classify | Self::EyeQ(eyeq::Program::Heed) | Self::Vcc(vcc::Program::From)
        )
    }

    /// Whether another of our programs may come first on the same side of an interface.
    pub(crate) const fn is_second(self) -> bool {
        // The host's own interface may be the uplink, where `stamp` is.
        matches!(self, Self::EyeQ(eyeq::Program::Tell) | Self::Vcc(_))
    }
}

/// Sizes of the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Pairs that send from here, and as many that receive here.
    pub pairs: u32,
    /// Addresses in the directory; also prefixes, and twice the hosts.
    pub endpoints: u32,
    /// Nodes with levels: [`intf::NODES`], or 1 where no pair is limited.
    pub nodes: u32,
    /// Nodes with queues and clocks: as many with departure times, else 1.
    pub queues: u32,
    /// Rows of other hosts, where packets between hosts are timed; else 1.
    pub hosts: u32,
}

/// Result of a packet in [`Programs::run`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ran {
    /// The verdict: −1 passes, 2 drops.
    pub verdict: i32,
    /// `skb->priority` afterwards.
    pub priority: u32,
    /// `skb->tstamp` afterwards: the departure time on the kernel's monotonic clock; 0: at once.
    pub departs_ns: u64,
    /// The octets afterwards.
    pub octets: Vec<u8>,
    /// Mean time per run, in nanoseconds.
    pub nanos: u32,
}

/// A packet for [`Programs::run`].
#[derive(Clone, Debug, Default)]
pub struct Frame<'a> {
    /// From the Ethernet header on.
    pub octets: &'a [u8],
    /// The interface it is on; 1 (loopback) if 0.
    pub ifindex: u32,
    /// Its priority before.
    pub priority: u32,
    /// Its mark before.
    pub mark: u32,
    /// Segments of a super-packet; 0 if the driver did not say.
    pub gso_segs: u32,
    /// Payload of each segment; 0 if it is not a super-packet.
    pub gso_size: u32,
    /// Number of runs; 0 is one. Every run counts packets.
    pub repeat: u32,
}

/// The maps of departure times.
#[derive(Debug)]
pub struct Departures {
    /// Node → level. Written by the agent.
    pub levels: CounterArray<intf::Level>,
    /// Node → its queue, for leaves.
    pub queues: Table<u32, intf::Queue>,
    /// Entry 0: time of the agent's last heartbeat, in nanoseconds on the kernel's monotonic clock.
    /// Written by the agent.
    pub lease: CounterArray<u64>,
}

/// The loaded programs and their maps.
#[derive(Debug)]
pub struct Programs {
    object: libbpf_rs::Object,
    /// Whether state was found under the pins and adopted.
    pub adopted: bool,
    /// The directory of the adopted state, which gives its ids their meaning.
    pub before: Vec<(intf::Address, intf::Endpoint)>,
    /// ifindex → port.
    pub ports: Table<u32, intf::Port>,
    /// Slot → counters.
    pub port_counters: CounterArray<intf::PortCounters>,
    /// The directory.
    pub endpoints: Table<intf::Address, intf::Endpoint>,
    /// Endpoints for the outside.
    pub outside: Table<intf::Prefix, intf::Outside>,
    /// Addresses of agents.
    pub controls: Table<intf::Control, u32>,
    /// Pairs that send from here.
    pub tx: Table<intf::Pair, intf::Tx>,
    /// Pairs that receive here.
    pub rx: Table<intf::Pair, intf::Rx>,
    /// Pair → `skb->priority`.
    pub classes: Table<intf::Pair, u32>,
    /// Pair that shows marks → its offer in bit/s.
    pub offers: Table<intf::Pair, u64>,
    /// Tenant → its tag, a DSCP.
    pub tenant_tags: Table<u32, u32>,
    /// TCP connections that agreed on ECN.
    pub flows: Table<intf::Flow, u32>,
    /// EyeQ's, if they were loaded.
    pub(crate) eyeq: Option<eyeq::Programs>,
    /// vCC's, while a port of this host needs them.
    pub(crate) vcc: Option<vcc::Programs>,
    settings: Table<u32, intf::Settings>,
}

impl Programs {
    /// Loads the object. With `pins`, state found there is adopted, and state not found there is
    /// pinned there. The kernel refuses pins of other sizes: clean them and load again.
    pub fn load(sizes: Sizes, pins: Option<&Path>) -> Result<Self, Error> {
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "ports" | "port_counters" | "places" | "tenant_tags" => MAX_PORTS,
                "tx" | "rx" | "classes" | "offers" => sizes.pairs,
                "endpoints" | "outside" | "controls" => sizes.endpoints,
                "levels" | "unleased" => sizes.nodes,
                "queues" | "clocks" => sizes.queues,
                "timed" => sizes.hosts,
                _ => continue,
            };
            map.set_max_entries(entries).map_err(Error::Load)?;
        }
        let adopted = pins.map(|p| adopt(&mut open, p, &STATE)).transpose()?.unwrap_or(false);
        let before = pins.filter(|_| adopted).map_or(Ok(Vec::new()), directory)?;
        let mut object = open.load().map_err(Error::Load)?;
        if let Some(pins) = pins {
            pin(&mut object, pins, &STATE)?;
        }
        let slots = fd(&object, "port_counters")?;
        Ok(Self {
            adopted,
            before,
            ports: Table::new("ports", fd(&object, "ports")?, MAX_PORTS),
            port_counters: CounterArray::map(&slots, MAX_PORTS)
                .during(|| "mapping BPF map port_counters".to_owned())?,
            endpoints: Table::new("endpoints", fd(&object, "endpoints")?, sizes.endpoints),
            outside: Table::new("outside", fd(&object, "outside")?, sizes.endpoints),
            controls: Table::new("controls", fd(&object, "controls")?, sizes.endpoints),
            tx: Table::new("tx", fd(&object, "tx")?, sizes.pairs).gathered_by(gather(
                &object,
                "weir_gather_tx",
                ["asked", "told_tx"],
            )?),
            rx: Table::new("rx", fd(&object, "rx")?, sizes.pairs).gathered_by(gather(
                &object,
                "weir_gather_rx",
                ["asked", "told_rx"],
            )?),
            classes: Table::new("classes", fd(&object, "classes")?, sizes.pairs),
            offers: Table::new("offers", fd(&object, "offers")?, sizes.pairs),
            tenant_tags: Table::new("tenant_tags", fd(&object, "tenant_tags")?, MAX_PORTS),
            flows: Table::new("flows", fd(&object, "flows")?, MAX_FLOWS),
            settings: Table::new("settings", fd(&object, "settings")?, 1),
            eyeq: None,
            vcc: None,
            object,
        })
    }

    /// Loads EyeQ's programs beside these, with new maps of their own.
    pub(crate) fn load_eyeq(&mut self, sizes: eyeq::Sizes) -> Result<(), Error> {
        self.eyeq = Some(eyeq::Programs::load_beside(sizes, &self.object)?);
        Ok(())
    }

    /// The places that VMs have taken, by slot: a mapping of its own.
    pub fn places(&self) -> Result<CounterArray<intf::Places>, Error> {
        CounterArray::map(&fd(&self.object, "places")?, MAX_PORTS)
            .during(|| "mapping BPF map places".to_owned())
    }

    /// Writes the programs' settings, before they are attached. Otherwise they would use zeros for
    /// a moment.
    pub fn set(&self, settings: intf::Settings) -> Result<(), Error> {
        self.settings.put(0, settings)
    }

    /// Puts the directory under the pins, in the place of an earlier one. Call it when it is filled
    /// and in force.
    pub(crate) fn pin_directory(&mut self, pins: &Path) -> Result<(), Error> {
        let path = pins.join(DIRECTORY);
        if path.exists() {
            std::fs::remove_file(&path).during(|| format!("removing {}", path.display()))?;
        }
        let map = self.object.maps_mut().find(|m| m.name() == DIRECTORY);
        pin_to(&mut map.expect("the object has the directory"), &path)
    }

    /// Gives a map of vCC's object that one of ours stands for our own, and that of pairs' credits
    /// the size of their levels.
    pub(crate) fn lend(&self, map: &mut libbpf_rs::OpenMapMut<'_>) -> Result<(), Error> {
        let name = map.name().to_string_lossy().into_owned();
        let ours = |name: &str| self.object.maps().find(|m| m.name() == name);
        if name == "vcc_credits" {
            let levels = ours("levels").expect("the object has all maps");
            return map.set_max_entries(levels.max_entries()).map_err(Error::Load);
        }
        let is_lent = ["endpoints", "classes", "levels"].contains(&name.as_str());
        match ours(&name).filter(|_| is_lent) {
            Some(own) => map.reuse_fd(own.as_fd()).map_err(Error::Load),
            None => Ok(()),
        }
    }

    /// Levels of pairs, for either shaper: a mapping of its own.
    pub fn levels(&self) -> Result<CounterArray<intf::Level>, Error> {
        CounterArray::map(&fd(&self.object, "levels")?, self.entries("levels"))
            .during(|| "mapping BPF map levels".to_owned())
    }

    /// The maps of departure times.
    pub fn departures(&self) -> Result<Departures, Error> {
        let queues = fd(&self.object, "queues")?;
        Ok(Departures {
            levels: self.levels()?,
            queues: Table::new("queues", queues, self.entries("queues")),
            lease: self.lease()?,
        })
    }

    /// The heartbeat that the programs see: a mapping of its own.
    pub fn lease(&self) -> Result<CounterArray<u64>, Error> {
        CounterArray::map(&fd(&self.object, "lease")?, 1)
            .during(|| "mapping BPF map lease".to_owned())
    }

    /// Times of packets to and from other hosts, and the number of the window: mappings of their own.
    pub fn timed(&self) -> Result<(CounterArray<intf::Timed>, CounterArray<u64>), Error> {
        let rows = CounterArray::map(&fd(&self.object, "timed")?, self.entries("timed"));
        let window = CounterArray::map(&fd(&self.object, "window")?, 1);
        Ok((
            rows.during(|| "mapping BPF map timed".to_owned())?,
            window.during(|| "mapping BPF map window".to_owned())?,
        ))
    }

    fn entries(&self, name: &str) -> u32 {
        let map = self.object.maps().find(|m| m.name() == name);
        map.expect("the object has all maps").max_entries()
    }

    /// A program's descriptor, to attach it by.
    ///
    /// # Panics
    /// It is one of EyeQ's or vCC's, which were not loaded.
    pub fn fd(&self, program: Program) -> BorrowedFd<'_> {
        let there = "hooks come with their programs";
        match program {
            Program::EyeQ(program) => return self.eyeq.as_ref().expect(there).fd(program),
            Program::Vcc(program) => return self.vcc.as_ref().expect(there).fd(program),
            Program::Classify | Program::Stamp | Program::Meter => {}
        }
        let found = self.object.progs().find(|p| p.name() == program.name());
        let found = found.expect("the object has all programs");
        // SAFETY: the descriptor belongs to `self.object`, which the result borrows.
        unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&found.as_fd())) }
    }

    /// The programs that are loaded here.
    pub(crate) fn loaded(&self) -> Vec<Program> {
        let eyeq = self.eyeq.iter().flat_map(|_| eyeq::Program::ALL.map(Program::EyeQ));
        let vcc = self.vcc.iter().flat_map(|_| vcc::Program::ALL.map(Program::Vcc));
        Program::ALL.into_iter().chain(eyeq).chain(vcc).collect()
    }

    /// The ring of events, for a reader.
    pub(crate) fn events(&self) -> Result<MapHandle, Error> {
        let map = self.object.maps().find(|m| m.name() == "events");
        let map = map.expect("the object has the ring");
        MapHandle::try_from(&map).map_err(Error::Load)
    }

    /// Runs a program of this object on a frame without any interface, for tests and measurements.
    pub fn run(&self, program: Program, frame: &Frame<'_>) -> Result<Ran, Error> {
        let found = self.object.progs_mut().find(|p| p.name() == program.name());
        run_on(&found.expect("the object has all programs"), program.name(), frame)
    }
}

/// Runs a program on a frame without any interface.
pub(crate) fn run_on(
    program: &ProgramMut<'_>,
    name: &str,
    frame: &Frame<'_>,
) -> Result<Ran, Error> {
    let mut before = [0u8; CONTEXT];
    let fields = [
        (MARK, frame.mark),
        (PRIORITY, frame.priority),
        (IFINDEX, frame.ifindex),
        (GSO_SEGS, frame.gso_segs),
        (GSO_SIZE, frame.gso_size),
    ];
    for (at, value) in fields {
        before[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let mut after = [0u8; CONTEXT];
    let mut out = vec![0; frame.octets.len() + 64];
    let input = ProgramInput {
        context_in: Some(&mut before),
        context_out: Some(&mut after),
        data_in: Some(frame.octets),
        data_out: Some(&mut out),
        repeat: frame.repeat,
        ..Default::default()
    };
    let output = program.test_run(input).map_err(|e| Error::System {
        action: format!("running {name} on a frame"),
        source: io::Error::other(e),
    })?;
    let (verdict, nanos) = (output.return_value as i32, output.duration.as_nanos() as u32);
    let length = output.data.map_or(0, |d| d.len());
    out.truncate(length);
    let priority = after[PRIORITY..PRIORITY + 4].try_into().expect("four octets");
    let priority = u32::from_ne_bytes(priority);
    let departs = after[TSTAMP..TSTAMP + 8].try_into().expect("eight octets");
    let departs_ns = u64::from_ne_bytes(departs);
    Ok(Ran { verdict, priority, departs_ns, octets: out, nanos })
}

/// Lets the object use the pinned maps of these names, if all of them are there.
pub(crate) fn adopt(open: &mut OpenObject, pins: &Path, state: &[&str]) -> Result<bool, Error> {
    if !state.iter().all(|name| pins.join(name).exists()) {
        return Ok(false);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if state.contains(&name.as_str()) {
            let pinned = MapHandle::from_pinned_path(pins.join(&name)).map_err(Error::Load)?;
            if pinned.max_entries() != map.max_entries()
                || pinned.key_size() != map.key_size()
                || pinned.value_size() != map.value_size()
            {
                let why = format!("pinned BPF map {name} has another layout");
                return Err(Error::Config(why));
            }
            map.reuse_fd(pinned.as_fd()).map_err(Error::Load)?;
        }
    }
    Ok(true)
}

/// Pins the maps of these names that are not pinned yet.
pub(crate) fn pin(
    object: &mut libbpf_rs::Object,
    pins: &Path,
    state: &[&str],
) -> Result<(), Error> {
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let path = pins.join(&name);
        if state.contains(&name.as_str()) && !path.exists() {
            pin_to(&mut map, &path)?;
        }
    }
    Ok(())
}

fn pin_to(map: &mut MapMut<'_>, path: &Path) -> Result<(), Error> {
    map.pin(path).map_err(|e| Error::System {
        action: format!("pinning {}", path.display()),
        source: io::Error::other(e),
    })
}

/// The directory under the pins; empty if an agent died before it had pinned one.
fn directory(pins: &Path) -> Result<Vec<(intf::Address, intf::Endpoint)>, Error> {
    let path = pins.join(DIRECTORY);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let map = MapHandle::from_pinned_path(&path).map_err(Error::Load)?;
    let fd = map.as_fd().try_clone_to_owned().during(|| format!("opening {}", path.display()))?;
    let mut table: Table<intf::Address, intf::Endpoint> =
        Table::new(DIRECTORY, fd, map.max_entries());
    Ok(table.read()?.collect())
}

/// The program that reads many pairs in one call, and the maps by which it is asked and answers.
pub(crate) fn gather<V: intf::Plain + std::fmt::Debug + Send + 'static>(
    object: &libbpf_rs::Object,
    program: &'static str,
    [asked, told]: [&'static str; 2],
) -> Result<Box<dyn LookUp<intf::Pair, V>>, Error> {
    let found = object.progs().find(|p| p.name() == program).expect("the object has all programs");
    let program = found
        .as_fd()
        .try_clone_to_owned()
        .during(|| format!("duplicating the fd of BPF program {program}"))?;
    let mapping = |name: &str| format!("mapping BPF map {name}");
    let asked_by = CounterArray::map(&fd(object, asked)?, intf::ASKED);
    let told_to = CounterArray::map(&fd(object, told)?, intf::ASKED);
    let asked_by: CounterArray<intf::Pair> = asked_by.during(|| mapping(asked))?;
    Ok(Box::new(Gather::new(program, asked_by, told_to.during(|| mapping(told))?)))
}

/// An own descriptor of a map.
fn fd(object: &libbpf_rs::Object, name: &'static str) -> Result<OwnedFd, Error> {
    let map = object.maps().find(|m| m.name() == name).expect("the object has all maps");
    map.as_fd().try_clone_to_owned().during(|| format!("duplicating the fd of BPF map {name}"))
}
