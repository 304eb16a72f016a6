//! Equal paths of emulated switches: which of several ports a packet takes.
//!
//! Problem   A bridge has one port per destination; switches of a fabric have several (ECMP).
//! Approach  `bpf/spread.bpf.c` where packets enter a switch, before its bridge: it takes those with
//!           several ports to one of them, by a hash of the flow or packet by packet.
//! Promises  A flow stays on one path, by a hash of its own: the kernel's changes with a connection's
//!           timeouts. It goes with its owner where the kernel has TCX, else with the interface.
//! Not here  Which ports are equal: the scenario's.

use crate::astray::key;
use crate::error::{Context, Error};
use crate::intf::Plain;
use crate::mark::attach;
use crate::object::{Aligned, object};
use crate::table::Table;
use libbpf_rs::{MapCore, ObjectBuilder};
use std::os::fd::{AsFd, OwnedFd};

static OBJECT: &Aligned<[u8]> = object!("spread");

/// Most ports of a switch that lead to one destination.
pub const MOST: usize = 16;

/// The ports of a switch that lead to a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ways {
    /// Hardware address of the destination.
    pub to: [u8; 6],
    /// Interfaces of the switch, 1 to [`MOST`]: those beyond are left out.
    pub ports: Vec<u32>,
    /// Whether each packet takes the next one; else a flow keeps one.
    pub by_packet: bool,
}

/// `struct weir_spread`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    count: u32,
    by_packet: u32,
    salt: u32,
    ports: [u32; MOST],
}
const _: () = assert!(size_of::<Entry>() == 76, "spread.h says otherwise");
// SAFETY: repr(C), integers of one size only, no padding.
unsafe impl Plain for Entry {}

/// The equal paths of a switch.
#[derive(Debug)]
pub struct Spread {
    /// Links, where the kernel has TCX: closing one detaches.
    _links: Vec<OwnedFd>,
}

impl Spread {
    /// Loads the program and attaches it to `ports`, all interfaces of a switch where packets enter,
    /// in the calling thread's network namespace. Two switches with the same `salt` choose alike.
    ///
    /// # Errors
    /// The kernel refuses the program or an interface.
    pub fn open(ports: &[u32], ways: &[Ways], salt: u32) -> Result<Self, Error> {
        crate::attach::quiet();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        let entries = ways.len().max(1) as u32;
        for mut map in open.maps_mut().filter(|map| map.name() == "spread_ports") {
            map.set_max_entries(entries).map_err(Error::Load)?;
        }
        let object = open.load().map_err(Error::Load)?;
        let map = object.maps().find(|m| m.name() == "spread_ports").expect("the object has it");
        let fd = map.as_fd().try_clone_to_owned();
        let fd = fd.during(|| "keeping BPF map spread_ports".into())?;
        let table: Table<u64, Entry> = Table::new("spread_ports", fd, entries);
        for Ways { to, ports, by_packet } in ways {
            let mut entry = Entry { by_packet: u32::from(*by_packet), salt, ..Entry::default() };
            for (at, port) in entry.ports.iter_mut().zip(ports) {
                *at = *port;
                entry.count += 1;
            }
            table.put(key(*to), entry)?;
        }
        let program = object.progs().next().expect("the object has one program");
        let mut links = Vec::new();
        for port in ports {
            let hook = libbpf_sys::BPF_TCX_INGRESS;
            links.extend(attach(program.as_fd(), "lab_spread", *port, hook)?);
        }
        Ok(Self { _links: links })
    }
}
