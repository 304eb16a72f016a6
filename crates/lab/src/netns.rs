//! Named network namespaces, as `ip netns` knows them.
//!
//! Problem   A namespace must survive the thread that made it, be visible to people, and vanish
//!           with the lab.
//! Approach  Bound to a file in `/run/netns` while it lives; unbound and removed on drop.
//! Promises  Dropping removes the name; the kernel removes the rest when the last socket closes.
//! Not here  Names of dead runs: see `sweep`.
//! Source    ip-netns(8).

use crate::Error;
use crate::netlink::Socket;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where names of namespaces live.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// A namespace and a routing socket in it.
pub(crate) struct Namespace {
    path: PathBuf,
    file: File,
    pub(crate) netlink: Socket,
}

impl Namespace {
    /// Makes a namespace. **The calling thread is in it afterwards.**
    pub(crate) fn create(name: &str) -> Result<Self, Error> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(Error::kernel("make a network namespace"))?;
        let path = Path::new(DIRECTORY).join(name);
        let doing = || format!("name the namespace {}", path.display());
        let file = File::open("/proc/thread-self/ns/net").map_err(Error::io(doing()))?;
        File::create_new(&path).map_err(Error::io(doing()))?;
        let none: Option<&str> = None;
        let bound = mount(Some("/proc/thread-self/ns/net"), &path, none, MsFlags::MS_BIND, none);
        if let Err(errno) = bound {
            let _ = fs::remove_file(&path);
            return Err(Error::Kernel { doing: doing(), errno });
        }
        let netlink = match Socket::open() {
            Ok(netlink) => netlink,
            Err(error) => {
                remove(&path);
                return Err(Error::Dataplane(error.into()));
            }
        };
        // Router solicitations and duplicate address detection would only be noise. A kernel
        // without IPv6 or without bridge filters has no such file, which is as good.
        set("net/ipv6/conf/default/disable_ipv6", "1");
        set("net/bridge/bridge-nf-call-iptables", "0");
        set("net/bridge/bridge-nf-call-ip6tables", "0");
        set("net/bridge/bridge-nf-call-arptables", "0");
        // Octets that a sender keeps ready beyond its window: enough for a few milliseconds of a
        // busy CPU, and few enough that three hundred senders can fill it when they start.
        set("net/ipv4/tcp_notsent_lowat", "131072");
        Ok(Self { path, file, netlink })
    }

    /// Moves the calling thread into this namespace: sockets it opens stay there.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(Error::kernel(format!("enter {}", self.path.display())))
    }

    /// The namespace's file, for `IFLA_NET_NS_FD`.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The namespace's name as a path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Moves the calling thread into the namespace of this path.
pub(crate) fn enter(path: &Path) -> Result<(), Error> {
    let doing = || format!("enter {}", path.display());
    let file = File::open(path).map_err(Error::io(doing()))?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(Error::kernel(doing()))
}

/// Lets a device of the calling thread's namespace have IPv6 addresses, those that it is given:
/// none is made up, tested or asked for.
pub(crate) fn allow_ipv6(device: &str) {
    let switches = [
        ("accept_dad", "0"),
        ("dad_transmits", "0"),
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
        ("addr_gen_mode", "1"),
        ("disable_ipv6", "0"),
    ];
    for (name, value) in switches {
        set(&format!("net/ipv6/conf/{device}/{name}"), value);
    }
}

/// Says whether TCP of the calling thread's namespace asks for ECN and agrees to it, or neither.
pub(crate) fn speak_ecn(ecn: bool) -> Result<(), Error> {
    const SWITCH: &str = "/proc/sys/net/ipv4/tcp_ecn";
    let value = if ecn { "1" } else { "0" };
    fs::write(SWITCH, value).map_err(Error::io(format!("write {value} to {SWITCH}")))
}

/// TCP of the calling thread's namespace finds no losses by time and sends no tail loss probes.
/// Since Linux 6.17 the first cannot be turned off: there it is probes alone.
pub(crate) fn forget_rack() {
    set("net/ipv4/tcp_recovery", "0");
    set("net/ipv4/tcp_early_retrans", "0");
}

/// Sets a switch of the calling thread's namespace, if there is one.
fn set(name: &str, value: &str) {
    let _ = fs::write(Path::new("/proc/sys").join(name), value);
}

/// Unbinds and removes the name of a namespace. Says whether the name is gone.
pub(crate) fn remove(path: &Path) -> bool {
    let _ = umount2(path, MntFlags::MNT_DETACH);
    fs::remove_file(path).is_ok() || !path.exists()
}

/// Makes the directory of names, shared between mount namespaces as `ip netns` does it, so that a
/// name removed here is removed everywhere.
pub(crate) fn prepare() -> Result<(), Error> {
    fs::create_dir_all(DIRECTORY).map_err(Error::io(format!("make {DIRECTORY}")))?;
    let none: Option<&str> = None;
    let shared = MsFlags::MS_SHARED | MsFlags::MS_REC;
    let doing = || format!("share {DIRECTORY}");
    match mount(none, DIRECTORY, none, shared, none) {
        Err(Errno::EINVAL) => {
            let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(DIRECTORY), DIRECTORY, none, bind, none).map_err(Error::kernel(doing()))?;
            mount(none, DIRECTORY, none, shared, none).map_err(Error::kernel(doing()))
        }
        other => other.map_err(Error::kernel(doing())),
    }
}
