//! vCC in the kernel: what a guest's port rewrites in TCP headers, so that the guest follows another
//! congestion control than its own.
//!
//! Problem   A guest that ignores ECN loses what its neighbours only lower, and cannot be changed.
//! Approach  `bpf/vcc.bpf.c`: two programs on the VM's port, an object of their own, which ask the law
//!           (`weir_core::vcc`, in C `bpf/vcc_law.h`) what each segment shall become.
//! Promises  Bounded: 64 octets and the kernel's overhead per connection, the one that was silent longest goes
//!           first. What cannot be translated passes as it is. Gone with its owner where the kernel has TCX, with
//!           the interfaces elsewhere.
//! Not here  Which connections have which terms. Beside [`crate::Dataplane`] on one port it works where the kernel
//!           has TCX, and until that is opened anew there: it would find these programs, and refuse.

pub mod intf;

use crate::error::{Context, Error};
use crate::intf::Flow;
use crate::mark::attach;
use crate::programs::{Frame, MAX_PORTS, Ran, run_on};
use crate::table::{CounterArray, Table};
use intf::{Counters, Port, State};
use libbpf_rs::{MapCore, ObjectBuilder};
use std::os::fd::{AsFd, OwnedFd};

/// The object, aligned as the ELF reader wants it.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/vcc.bpf.o")));

/// The congestion controls, with the numbers that `weir_core::vcc::Translation` has.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// Halves for marks, as Reno would.
    VirtualEcn = 1,
    /// Falls by half of the marked part.
    Dctcp = 2,
    /// Falls to 0.7 and grows as CUBIC does.
    CubicEcn = 3,
}

/// One of the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// On a port's ingress: what a guest sends.
    From,
    /// On a port's egress: what a guest is sent.
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
    /// Connection, from the peer to the guest → what is known of it.
    pub flows: Table<Flow, State>,
    counters: CounterArray<Counters>,
}

impl Programs {
    /// Loads the object, for so many connections of all ports together.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn load(flows: u32) -> Result<Self, Error> {
        crate::attach::quiet();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        for mut map in open.maps_mut() {
            let entries = match map.name().to_string_lossy().as_ref() {
                "vcc_ports" | "vcc_counters" => MAX_PORTS,
                "vcc_flows" => flows,
                _ => continue,
            };
            map.set_max_entries(entries).map_err(Error::Load)?;
        }
        let object = open.load().map_err(Error::Load)?;
        let map = |name: &'static str| {
            let map = object.maps().find(|m| m.name() == name).expect("the object has all maps");
            map.as_fd().try_clone_to_owned().during(|| format!("keeping BPF map {name}"))
        };
        let counters = CounterArray::map(&map("vcc_counters")?, MAX_PORTS);
        Ok(Self {
            ports: Table::new("vcc_ports", map("vcc_ports")?, MAX_PORTS),
            flows: Table::new("vcc_flows", map("vcc_flows")?, flows),
            counters: counters.during(|| "mapping BPF map vcc_counters".to_owned())?,
            object,
        })
    }

    /// What the port in `slot` did so far.
    pub fn counters(&self, slot: u32) -> Counters {
        self.counters.get(slot as usize)
    }

    /// Puts a program on an interface of the calling thread's network namespace, a port that `ports` has or
    /// will have. On a kernel with TCX it is there as long as what this gives.
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

    fn program(&self, program: Program) -> libbpf_rs::ProgramMut<'_> {
        let found = self.object.progs_mut().find(|p| p.name() == program.name());
        found.expect("the object has all programs")
    }
}
