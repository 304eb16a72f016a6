//! Ports that mark: for emulated switches, not for hosts.
//!
//! Problem   Experiments with ECN need switches that mark, and a stock kernel may have no queue
//!           that does.
//! Approach  `bpf/mark.bpf.c` on a port's egress, before its queue: a virtual queue that drains at
//!           99.5 % of the port's rate. A packet that finds more than a threshold in it is marked.
//! Promises  It drops nothing. It goes with its owner where the kernel has TCX, else with the
//!           interface.
//! Not here  The choice of the threshold: the scenario's.

use crate::attach::{Interface, add_clsact, has_clsact, has_tcx};
use crate::error::{Context, Error, checked};
use crate::intf::Plain;
use crate::object::{Aligned, object};
use crate::table::Table;
use libbpf_rs::{MapCore, ObjectBuilder};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use weir_units::{Bytes, Rate};

static OBJECT: &Aligned<[u8]> = object!("mark");

const EGRESS: libbpf_sys::bpf_attach_type = libbpf_sys::BPF_TCX_EGRESS;
/// Rate at which the virtual queue drains, as a part of the port's rate. It is below one, so that
/// the real queue is empty while the virtual one grows, and by no more than the port's own error.
/// ECN-capable senders lose the difference; a real switch marks by its real queue and loses
/// nothing.
const DRAIN: (u64, u64) = (995, 1000);
/// Largest backlog, in thresholds. A larger one takes longer to drain.
const MOST: (u64, u64) = (3, 2);
/// The fraction of a nanosecond in which the kernel side counts an octet's time.
const FINE: u128 = 1 << 16;

/// A marking port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkingPort {
    /// The interface's index in this thread's network namespace.
    pub interface: u32,
    /// Rate of its real queue, on layer 2 without FCS.
    pub rate: Rate,
    /// The virtual queue above which packets are marked.
    pub threshold: Bytes,
}

/// Counters of a marking port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// Segments that were marked here.
    pub marked: u64,
    /// Segments that found more than the threshold and passed unmarked, because they are not
    /// ECN-capable.
    pub spared: u64,
    /// All segments.
    pub segments: u64,
}

/// `struct weir_mark_port`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Port {
    octet_ns: u64,
    threshold_ns: u64,
    most_ns: u64,
    slot: u32,
    spare: u32,
}
const _: () = assert!(size_of::<Port>() == 32, "mark.h says otherwise");
// SAFETY: repr(C), integers only, no padding (three words and two halves).
unsafe impl Plain for Port {}

/// `struct weir_mark_queue`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Queue {
    empty_ns: u64,
    marked: u64,
    spared: u64,
    segments: u64,
    lock: u32,
    spare: u32,
}
const _: () = assert!(size_of::<Queue>() == 40, "mark.h says otherwise");
// SAFETY: repr(C), integers only, no padding (four words and two halves).
unsafe impl Plain for Queue {}

impl Port {
    fn new(slot: usize, port: &MarkingPort) -> Self {
        let drain = port.rate.mul_ratio(DRAIN.0, DRAIN.1).max(Rate::from_bps(1));
        let most = Bytes::new(port.threshold.get().saturating_mul(MOST.0) / MOST.1);
        let octet = 8 * 1_000_000_000 * FINE / u128::from(drain.as_bps());
        Self {
            octet_ns: u64::try_from(octet).unwrap_or(u64::MAX),
            threshold_ns: drain.time_for(port.threshold).as_nanos(),
            most_ns: drain.time_for(most).as_nanos(),
            slot: slot as u32,
            spare: 0,
        }
    }
}

/// The marking ports of one network namespace.
#[derive(Debug)]
pub struct Marker {
    program: OwnedFd,
    queues: Table<u32, Queue>,
    /// Links, where the kernel has TCX: closing one detaches.
    _links: Vec<OwnedFd>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("marked", &self.marked).finish_non_exhaustive()
    }
}

impl Marker {
    /// Loads the program and attaches it to `ports`, which are interfaces of the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// The kernel refuses the program or an interface.
    pub fn open(ports: &[MarkingPort]) -> Result<Self, Error> {
        crate::attach::quiet();
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(Error::Load)?;
        let entries = ports.len().max(1) as u32;
        for mut map in open.maps_mut() {
            map.set_max_entries(entries).map_err(Error::Load)?;
        }
        let object = open.load().map_err(Error::Load)?;
        let map = |name: &'static str| {
            let map = object.maps().find(|m| m.name() == name).expect("the object has both maps");
            map.as_fd().try_clone_to_owned().during(|| format!("keeping BPF map {name}"))
        };
        let settings: Table<u32, Port> = Table::new("mark_ports", map("mark_ports")?, entries);
        for (slot, port) in ports.iter().enumerate() {
            settings.put(port.interface, Port::new(slot, port))?;
        }
        let program = object.progs().next().expect("the object has one program");
        let program = program.as_fd().try_clone_to_owned().during(|| "keeping lab_mark".into())?;
        let mut links = Vec::new();
        for port in ports {
            links.extend(attach(program.as_fd(), "lab_mark", port.interface, EGRESS)?);
        }
        let queues = Table::new("mark_queues", map("mark_queues")?, entries);
        Ok(Self { program, queues, _links: links })
    }

    /// Counters of port `index` of those given to [`Marker::open`].
    ///
    /// # Errors
    /// The kernel refuses to read the map.
    ///
    /// # Panics
    /// There is no such port.
    pub fn marks(&self, index: usize) -> Result<Marks, Error> {
        let queue = self.queues.get(index as u32)?.expect("no such port");
        Ok(Marks { marked: queue.marked, spared: queue.spared, segments: queue.segments })
    }

    /// Runs the program on a frame (from the Ethernet header on) as if it left by the loopback
    /// interface, and gives the frame back; for tests.
    ///
    /// # Errors
    /// The kernel refuses the frame.
    pub fn run(&self, frame: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = vec![0u8; frame.len() + 64];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: out.len() as u32,
            repeat: 1,
            ..Default::default()
        };
        // SAFETY: the struct carries its size; both buffers outlive the call and are as long as
        // said.
        checked(unsafe {
            libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options)
        })
        .during(|| "running lab_mark on a frame".into())?;
        out.truncate(options.data_size_out as usize);
        Ok(out)
    }
}

/// By TCX, whose link the caller keeps; by clsact on a kernel that has none. `hook` is TCX's name
/// of the side.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    name: &str,
    index: u32,
    hook: libbpf_sys::bpf_attach_type,
) -> Result<Option<OwnedFd>, Error> {
    let interface = Interface { name: format!("interface {index}"), index };
    let doing = || format!("attaching {name} to {}", interface.name);
    if has_tcx(&interface) {
        // SAFETY: the descriptor is alive; no options.
        let link = checked(unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), index as i32, hook, ptr::null())
        })
        .during(doing)?;
        // SAFETY: a fresh descriptor with no other owner.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(link) }));
    }
    if !has_clsact(&interface)? {
        add_clsact(&interface)?;
    }
    let side = if hook == libbpf_sys::BPF_TCX_INGRESS {
        libbpf_sys::BPF_TC_INGRESS
    } else {
        libbpf_sys::BPF_TC_EGRESS
    };
    let place = libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
        ifindex: index as i32,
        attach_point: side,
        ..Default::default()
    };
    let mut filter = libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
        prog_fd: program.as_raw_fd(),
        ..Default::default()
    };
    // SAFETY: both structs carry their sizes and outlive the call; the descriptor is alive.
    let attached: io::Result<i32> =
        checked(unsafe { libbpf_sys::bpf_tc_attach(&raw const place, &raw mut filter) });
    attached.during(doing)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_virtual_queue_drains_a_little_slower_than_the_port_and_has_an_end() {
        let threshold = Bytes::new(20_000);
        let port =
            Port::new(3, &MarkingPort { interface: 7, rate: Rate::from_mbps(200), threshold });
        // 199 Mb/s: an octet takes 40.201 ns, 20 kB take 804.02 us.
        assert_eq!(port.octet_ns / 65_536, 40);
        assert_eq!((port.threshold_ns / 1000, port.most_ns / 1000), (804, 1206));
        assert_eq!(port.slot, 3);
    }
}
