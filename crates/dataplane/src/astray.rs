//! Counters of tagged packets that go astray: for emulated switches, not for hosts.
//!
//! Problem   A switch's class counters say how much its shared queue sent, not by which code points,
//!           and nothing of which tenant's tree a port belongs to.
//! Approach  `bpf/astray.bpf.c`, twice among the filters of a port's root qdisc: before those of code
//!           points, and between them and the one that leads all else to the shared queue.
//! Promises  The filters decide as without it. Counters are exact: nothing is read and compared.
//! Not here  What is a tenant's tree: the scenario's.

use crate::error::{Context, Error, checked};
use crate::intf::Plain;
use crate::nl::codepoint;
use crate::object::{Aligned, object};
use crate::table::Table;
use libbpf_rs::{MapCore, ObjectBuilder};
use std::os::fd::{AsFd, AsRawFd};
use weir_units::{SortedMap, SortedSet};

static OBJECT: &Aligned<[u8]> = object!("astray");

/// The programs, and the preferences of their filters: around those of code points.
const PROGRAMS: [(&str, u16); 2] =
    [("lab_off_tree", codepoint::BEFORE), ("lab_unbound", codepoint::BETWEEN)];

/// `struct weir_astray_at`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct At {
    interface: u32,
    tenant: u32,
}
const _: () = assert!(size_of::<At>() == 8, "astray.h says otherwise");
// SAFETY: repr(C), integers only, no padding.
unsafe impl Plain for At {}

/// `struct weir_astray`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    unbound: u64,
    off_tree: u64,
    on_tree: u32,
    spare: u32,
}
const _: () = assert!(size_of::<Counts>() == 24, "astray.h says otherwise");
// SAFETY: repr(C), integers only, no padding (two words and two halves).
unsafe impl Plain for Counts {}

/// Octets of a tenant's tagged packets at a port, layer 2 without FCS, also of those that its queue
/// dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Astray {
    /// On its tree: no queue there belonged to their code point, so they met the shared one.
    pub unbound: u64,
    /// The port is not on its tree.
    pub off_tree: u64,
}

/// The counters of a switch.
#[derive(Debug)]
pub struct Counter {
    counts: Table<At, Counts>,
}

impl Counter {
    /// Loads the programs and puts them among the filters of `ports`: interfaces of the calling
    /// thread's network namespace, whose root qdisc has the handle `qdisc`. Each comes with the
    /// tenants that have it on their trees. `vms` are all VMs' hardware addresses with their tenants.
    ///
    /// # Errors
    /// The kernel refuses a program or a filter.
    pub fn open(
        vms: &[([u8; 6], u32)],
        ports: &SortedMap<u32, SortedSet<u32>>,
        qdisc: u32,
    ) -> Result<Self, Error> {
        crate::attach::quiet();
        let tenants: SortedSet<u32> = vms.iter().map(|(_, tenant)| *tenant).collect();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        let entries = [vms.len().max(1) as u32, (ports.len() * tenants.len()).max(1) as u32];
        for mut map in open.maps_mut() {
            let size = entries[usize::from(map.name() == "astray_counts")];
            map.set_max_entries(size).map_err(Error::Load)?;
        }
        let object = open.load().map_err(Error::Load)?;
        let map = |name: &'static str| {
            let map = object.maps().find(|m| m.name() == name).expect("the object has both maps");
            map.as_fd().try_clone_to_owned().during(|| format!("keeping BPF map {name}"))
        };
        let places: Table<u64, u32> = Table::new("astray_vms", map("astray_vms")?, entries[0]);
        for (mac, tenant) in vms {
            places.put(key(*mac), *tenant)?;
        }
        let counts = Table::new("astray_counts", map("astray_counts")?, entries[1]);
        for (interface, trees) in ports {
            for tenant in &tenants {
                let on_tree = u32::from(trees.contains(tenant));
                let at = At { interface: *interface, tenant: *tenant };
                counts.put(at, Counts { on_tree, ..Counts::default() })?;
            }
        }
        for (name, preference) in PROGRAMS {
            let program = object.progs().find(|p| p.name() == name).expect("the object has it");
            for interface in ports.keys() {
                let place = libbpf_sys::bpf_tc_hook {
                    sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
                    ifindex: *interface as i32,
                    attach_point: libbpf_sys::BPF_TC_CUSTOM,
                    parent: qdisc,
                    ..Default::default()
                };
                let mut filter = libbpf_sys::bpf_tc_opts {
                    sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
                    prog_fd: program.as_fd().as_raw_fd(),
                    handle: 1,
                    priority: preference.into(),
                    ..Default::default()
                };
                // SAFETY: both structs carry their sizes and outlive the call; the descriptor is
                // alive.
                checked(unsafe { libbpf_sys::bpf_tc_attach(&raw const place, &raw mut filter) })
                    .during(|| {
                        format!(
                            "attaching {name} to the root qdisc of interface {interface} (it needs \
                         CONFIG_NET_CLS_BPF, module cls_bpf)"
                        )
                    })?;
            }
        }
        Ok(Self { counts })
    }

    /// What of a tenant's packets went astray at a port.
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    pub fn astray(&self, interface: u32, tenant: u32) -> Result<Astray, Error> {
        let counts = self.counts.get(At { interface, tenant })?.unwrap_or_default();
        Ok(Astray { unbound: counts.unbound, off_tree: counts.off_tree })
    }
}

/// A hardware address as the programs read it.
pub(crate) fn key(mac: [u8; 6]) -> u64 {
    let mut octets = [0; 8];
    octets[..6].copy_from_slice(&mac);
    u64::from_ne_bytes(octets)
}
