//! Puts programs on interfaces, and takes them off.
//!
//! Problem   TCX is the better hook: foreign programs run too, and links survive in bpffs. But
//!           Linux before 6.6 has only clsact, where every trace must be undone by hand.
//! Approach  [`Mode::Tcx`]: a link, pinned by program and ifindex. [`Mode::Clsact`]: a filter of
//!           fixed priority and handle. Both are replaced in place when an agent takes over.
//! Promises  Another instance's programs are never replaced: an error names them.
//! Not here  The redirect to the shaper, which is a filter behind ours: see `shaper`.

mod held;

pub(crate) use held::{is_held, is_pinned_on, program_id, program_name};

use crate::error::{Context, Error, checked};
use crate::nl;
use crate::programs::Program;
use libbpf_rs::query::ProgInfoIter;
use std::ffi::{CStr, CString};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;

/// Priority of our filters under clsact: before the redirect to the shaper.
const PRIORITY: u32 = 1;
/// Priority of a filter that may share its side of an interface with another of ours.
const SECOND: u32 = 2;
/// Handle of our filters under clsact.
const HANDLE: u32 = 0x3e1;

/// How programs are attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Pinned TCX links: Linux 6.6 and newer.
    Tcx,
    /// Filters of a clsact qdisc: every Linux that loads the programs.
    Clsact,
}

/// An interface of this thread's network namespace. Its index identifies it; its name may change
/// while it lives. Two values of one index are equal.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name when it was found.
    pub name: String,
    /// Its index.
    pub index: u32,
}

impl PartialEq for Interface {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Interface {}

impl Interface {
    /// Finds an interface by name.
    pub fn find(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface(name.to_owned());
        let text = CString::new(name).map_err(|_| missing())?;
        // SAFETY: a terminated string that outlives the call.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 { Err(missing()) } else { Ok(Self { name: name.to_owned(), index }) }
    }

    /// Finds the interface that has an address.
    pub fn with_address(address: Ipv4Addr) -> Result<Self, Error> {
        let mut list: *mut libc::ifaddrs = ptr::null_mut();
        // SAFETY: the call writes one pointer, to a list that is freed below.
        if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
            return Err(io::Error::last_os_error()).during(|| "listing addresses".to_owned());
        }
        let (mut at, mut found) = (list, None);
        while !at.is_null() {
            // SAFETY: an entry of the list.
            let entry = unsafe { at.read() };
            if address_of(&entry) == Some(address) {
                // SAFETY: a terminated string that is part of the list.
                let name = unsafe { CStr::from_ptr(entry.ifa_name) };
                found = Some(name.to_string_lossy().into_owned());
                break;
            }
            at = entry.ifa_next;
        }
        // SAFETY: what `getifaddrs` gave, once.
        unsafe { libc::freeifaddrs(list) };
        let name = found.ok_or(Error::NoAddress(address))?;
        // An address may have a label, which begins with the interface's name.
        Self::find(name.split(':').next().unwrap_or_default())
    }

    /// Refuses a device without Ethernet headers, on which our programs would enforce nothing.
    pub fn check_ethernet(&self) -> Result<(), Error> {
        let action = || format!("asking for the type of {}", self.name);
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).during(action)?;
        // SAFETY: zero is a valid value of a struct of integers and a union of such.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        // SAFETY: a live socket, and a request of the kernel's size that outlives the call.
        let ret = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
        if ret < 0 {
            return Err(io::Error::last_os_error()).during(action);
        }
        // SAFETY: the request has filled this variant.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        if kind == libc::ARPHRD_ETHER {
            return Ok(());
        }
        Err(Error::NotEthernet { interface: self.name.clone(), kind })
    }

    /// As netlink needs it.
    pub(crate) fn device(&self) -> nl::Device {
        nl::Device { name: self.name.as_str().into(), index: self.index }
    }

    /// Whether an interface of this index lives, under any name.
    pub fn is_there(&self) -> bool {
        self.now().is_some()
    }

    /// The same interface under its present name; `None` if it is gone.
    pub fn now(&self) -> Option<Self> {
        Names::open().of(self)
    }
}

/// Asks for the present names of interfaces: one socket for many of them.
pub(crate) struct Names(Option<OwnedFd>);

impl Names {
    /// In the network namespace of this thread. Without a free descriptor no name is known.
    pub(crate) fn open() -> Self {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: a fresh descriptor with no other owner.
        Self((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// An interface under its present name; `None` if it is gone.
    pub(crate) fn of(&self, interface: &Interface) -> Option<Interface> {
        // SAFETY: zero is a valid value of a struct of integers and a union of such.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = interface.index as i32;
        let socket = self.0.as_ref()?.as_raw_fd();
        // SAFETY: a live socket, and a request of the kernel's size that outlives the call.
        let ret = unsafe { libc::ioctl(socket, libc::SIOCGIFNAME, &raw mut request) };
        if ret < 0 {
            return None;
        }
        // SAFETY: the call has written a terminated string into the request, which lives.
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
        Some(Interface { name: name.to_string_lossy().into_owned(), index: interface.index })
    }
}

/// The IPv4 address of an entry of `getifaddrs`, if it is of one.
fn address_of(entry: &libc::ifaddrs) -> Option<Ipv4Addr> {
    if entry.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    let family = unsafe { (*entry.ifa_addr).sa_family };
    if i32::from(family) != libc::AF_INET {
        return None;
    }
    // SAFETY: of this family it is such a struct; wherever it lies.
    let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
    Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()))
}

/// A program's place on an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// Where the program is attached.
    pub interface: Interface,
    /// The program.
    pub program: Program,
}

impl Hook {
    /// Where a TCX link is pinned. By index: bpffs takes no dots, and interfaces are renamed.
    pub fn pin(&self, links: &Path) -> PathBuf {
        links.join(format!("{}-{}", self.program.name(), self.interface.index))
    }

    pub(crate) fn tcx(&self) -> libbpf_sys::bpf_attach_type {
        if self.program.is_on_ingress() {
            libbpf_sys::BPF_TCX_INGRESS
        } else {
            libbpf_sys::BPF_TCX_EGRESS
        }
    }

    fn clsact(&self) -> libbpf_sys::bpf_tc_hook {
        libbpf_sys::bpf_tc_hook {
            sz: size_of::<libbpf_sys::bpf_tc_hook>() as _,
            ifindex: self.interface.index as i32,
            attach_point: if self.program.is_on_ingress() {
                libbpf_sys::BPF_TC_INGRESS
            } else {
                libbpf_sys::BPF_TC_EGRESS
            },
            ..Default::default()
        }
    }

    fn filter(&self) -> libbpf_sys::bpf_tc_opts {
        libbpf_sys::bpf_tc_opts {
            sz: size_of::<libbpf_sys::bpf_tc_opts>() as _,
            handle: HANDLE,
            priority: if self.program.is_second() { SECOND } else { PRIORITY },
            ..Default::default()
        }
    }

    fn action(&self, verb: &str) -> String {
        format!("{verb} {} on {}", self.program.name(), self.interface.name)
    }
}

/// Whether this kernel has TCX: asks for the programs on the interface's ingress.
pub fn has_tcx(interface: &Interface) -> bool {
    tcx_programs(interface.index, libbpf_sys::BPF_TCX_INGRESS).is_ok()
}

/// Refuses a hook with a Weir program of another instance, by TCX or by clsact. Programs in `ours`
/// may share the hook. For hooks that are not ours by pin or journal.
pub(crate) fn refuse_owned(hook: &Hook, ours: &[&str]) -> Result<(), Error> {
    // On a kernel without TCX the query fails, and there are no such programs.
    let mut ids = tcx_programs(hook.interface.index, hook.tcx()).unwrap_or_default();
    let (place, mut filter) = (hook.clsact(), hook.filter());
    // SAFETY: both structs carry their sizes and outlive the call.
    if unsafe { libbpf_sys::bpf_tc_query(&raw const place, &raw mut filter) } == 0 {
        ids.push(filter.prog_id);
    }
    let is_foreign = |name: &str| name.starts_with("weir_") && !ours.contains(&name);
    let owner = ProgInfoIter::default()
        .filter(|p| ids.contains(&p.id))
        .find(|p| is_foreign(&p.name.to_string_lossy()));
    owner.map_or(Ok(()), |p| {
        Err(Error::Owned {
            interface: hook.interface.name.clone(),
            program: p.name.to_string_lossy().into_owned(),
        })
    })
}

/// Whether a filter is one that [`attach_clsact`] makes.
pub(crate) fn is_own(filter: &nl::redirect::FilterEntry) -> bool {
    let places = [PRIORITY, SECOND];
    let at = u32::from(filter.preference);
    // A classifier is listed beside its filter, without a handle.
    filter.kind == "bpf" && places.contains(&at) && [0, HANDLE].contains(&filter.handle)
}

/// Ids of the programs on a TCX hook.
pub(crate) fn tcx_programs(
    ifindex: u32,
    kind: libbpf_sys::bpf_attach_type,
) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; 64];
    let mut opts = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    opts.__bindgen_anon_1.count = ids.len() as u32;
    // SAFETY: the struct carries its size; the array has `count` elements; both outlive the call.
    checked(unsafe { libbpf_sys::bpf_prog_query_opts(ifindex as i32, kind, &raw mut opts) })?;
    // SAFETY: both variants of the union are the same u32.
    let count = unsafe { opts.__bindgen_anon_1.count } as usize;
    Ok(ids[..count.min(ids.len())].to_vec())
}

/// Attaches by TCX, or replaces the program of the link pinned by an earlier agent.
pub fn attach_tcx(hook: &Hook, program: BorrowedFd<'_>, links: &Path) -> Result<(), Error> {
    let pin = hook.pin(links);
    let text = path_text(&pin)?;
    if pin.exists() {
        if replace_tcx(&text, program).is_ok() {
            return Ok(());
        }
        // The pinned link's interface is gone, and another one has got its index.
        detach_tcx(&pin)?;
    }
    // The first program's verdict ends a packet's way. Ours comes before all others, so that no
    // other program decides whether ours runs.
    let flags = if hook.program.is_second() { 0 } else { libbpf_sys::BPF_F_BEFORE };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: descriptors are alive; the options carry their size and outlive the call.
    let link = checked(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            hook.interface.index as i32,
            hook.tcx(),
            &raw const options,
        )
    })
    .during(|| hook.action("attaching"))?;
    // SAFETY: a fresh descriptor with no other owner. If pinning fails, its drop detaches.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: a live descriptor and a terminated string.
    checked(unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), text.as_ptr()) })
        .map(drop)
        .during(|| format!("pinning {}", pin.display()))
}

fn replace_tcx(pin: &CString, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a terminated string that outlives the call.
    let link = checked(unsafe { libbpf_sys::bpf_obj_get(pin.as_ptr()) })?;
    // SAFETY: a fresh descriptor with no other owner.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: both descriptors are alive; no options.
    checked(unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null())
    })
    .map(drop)
}

/// Detaches the link that is pinned there and removes the pin. Removing the pin alone would detach,
/// too, but later.
pub fn detach_tcx(pin: &Path) -> Result<(), Error> {
    let text = path_text(pin)?;
    // SAFETY: a terminated string that outlives the call.
    if let Ok(link) = checked(unsafe { libbpf_sys::bpf_obj_get(text.as_ptr()) }) {
        // SAFETY: a fresh descriptor with no other owner.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        // A link whose interface is gone cannot be detached, and need not.
        // SAFETY: a live descriptor.
        unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    }
    std::fs::remove_file(pin).during(|| format!("removing {}", pin.display()))
}

/// Whether the interface has a clsact (or ingress) qdisc.
pub fn has_clsact(interface: &Interface) -> Result<bool, Error> {
    let device = interface.device();
    let found = nl::tc::qdiscs(&mut nl::Socket::open()?, Some(&device))?;
    Ok(found.iter().any(|q| q.parent == nl::tc::CLSACT))
}

/// Makes a clsact qdisc.
pub fn add_clsact(interface: &Interface) -> Result<(), Error> {
    let mut batch = nl::Batch::new();
    batch.add_clsact(&interface.device());
    Ok(nl::Socket::open()?.send(&batch)?)
}

/// Removes the clsact qdisc unless foreign filters are on it. Succeeds if there is none.
pub fn remove_clsact(interface: &Interface) -> Result<(), Error> {
    let (device, mut socket) = (interface.device(), nl::Socket::open()?);
    for hook in [nl::redirect::INGRESS, nl::redirect::EGRESS] {
        if !nl::redirect::filters(&mut socket, &device, hook)?.is_empty() {
            return Ok(());
        }
    }
    let mut batch = nl::Batch::new();
    batch.delete_qdisc(&device, nl::tc::CLSACT);
    match socket.send(&batch) {
        Err(error) if !error.is_absent() && error.errno() != Some(libc::EINVAL) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Attaches under clsact, which must be there. `replace` takes over an earlier agent's filter.
pub fn attach_clsact(hook: &Hook, program: BorrowedFd<'_>, replace: bool) -> Result<(), Error> {
    let (place, mut filter) = (hook.clsact(), hook.filter());
    filter.prog_fd = program.as_raw_fd();
    filter.flags = if replace { libbpf_sys::BPF_TC_F_REPLACE } else { 0 };
    // SAFETY: both structs carry their sizes and outlive the call; the descriptor is alive.
    checked(unsafe { libbpf_sys::bpf_tc_attach(&raw const place, &raw mut filter) })
        .map(drop)
        .during(|| hook.action("attaching"))
}

/// Removes our filter. Succeeds if there is none.
pub fn detach_clsact(hook: &Hook) -> Result<(), Error> {
    let (place, filter) = (hook.clsact(), hook.filter());
    // SAFETY: both structs carry their sizes and outlive the call.
    gone(checked(unsafe { libbpf_sys::bpf_tc_detach(&raw const place, &raw const filter) }))
        .during(|| hook.action("detaching"))
}

/// Accepts errors of an object that is gone already: the qdisc (EINVAL), the filter (ENOENT).
fn gone(result: io::Result<i32>) -> io::Result<()> {
    match result {
        Err(e) if !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) => {
            Err(e)
        }
        _ => Ok(()),
    }
}

fn path_text(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::Config(format!("{} is no path", path.display())))
}

/// Silences libbpf, which prints to stderr by default. Its errors are returned to the caller.
pub(crate) fn quiet() {
    libbpf_rs::set_print(None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_address_and_a_strangers_address_is_refused() {
        let found = Interface::with_address(Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(found, Interface::find("lo").unwrap());
        let stranger = Ipv4Addr::new(203, 0, 113, 9);
        let error = Interface::with_address(stranger).unwrap_err();
        assert!(matches!(error, Error::NoAddress(address) if address == stranger), "{error}");
    }
}
