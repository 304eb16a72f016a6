//! Errors of the datapath.

use std::io;
use std::path::PathBuf;
use weir_units::{PairId, VmId};

/// Reason why the datapath did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is impossible.
    #[error("datapath configuration: {0}")]
    Config(String),
    /// Another agent of this name lives.
    #[error(
        "instance {instance:?} is in use by process {holder} (lock {lock}); stop it, or choose another instance name"
    )]
    Locked {
        /// The instance.
        instance: String,
        /// The owner of the lock, as it wrote itself.
        holder: String,
        /// The lock file.
        lock: PathBuf,
    },
    /// Another instance's programs are on the interface.
    #[error(
        "{interface} already carries a weir program ({program}) of another instance; stop that instance or clean it"
    )]
    Owned {
        /// The interface.
        interface: String,
        /// The program's name.
        program: String,
    },
    /// No such interface in this network namespace.
    #[error("no interface {0:?} in this network namespace")]
    NoInterface(String),
    /// No interface of this host has the address from which feedback is sent.
    #[error("no interface in this network namespace has the address {0}, from which feedback goes")]
    NoAddress(std::net::Ipv4Addr),
    /// The interface carries no Ethernet frames, so nothing could be enforced on it.
    #[error("{interface} is no Ethernet device (its type is {kind}): ports and uplinks must be")]
    NotEthernet {
        /// The interface.
        interface: String,
        /// Its ARPHRD type.
        kind: u16,
    },
    /// TCX was requested on a kernel without it.
    #[error("this kernel has no TCX (Linux 6.6 and newer have); attach by clsact instead")]
    NoTcx,
    /// The path is on no bpffs.
    #[error("{0} is not on a mounted bpffs; mount one: mount -t bpf bpf {0}")]
    NotBpffs(PathBuf),
    /// A step of a change failed, and the former state was restored.
    #[error("{why}{}", not_put_back(.also.as_deref()))]
    Undone {
        /// Reason of the failure.
        why: Box<Self>,
        /// Reason why some of the former state could not be restored, if so.
        also: Option<Box<Self>>,
    },
    /// The kernel refused something.
    #[error("{action}: {source}")]
    System {
        /// The request and its object.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The programs did not load.
    #[error("loading the BPF programs (CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed): {0}")]
    Load(#[source] libbpf_rs::Error),
    /// A rate was set for a pair that does not send from this host.
    #[error("{0} does not send from this host")]
    NotLocal(PairId),
    /// A VM that has no port here was named.
    #[error("{0} has no port on this host")]
    NoPort(VmId),
    /// The shaper refused.
    #[error(transparent)]
    Shaper(#[from] crate::shaper::Error),
    /// Netlink refused.
    #[error(transparent)]
    Netlink(#[from] crate::nl::Error),
}

fn not_put_back(also: Option<&Error>) -> String {
    also.map_or_else(String::new, |also| format!("; and not all that was in force is back: {also}"))
}

/// Names what was attempted when the kernel refuses.
pub(crate) trait Context<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::System { action: action(), source })
    }
}

/// The result of a libbpf call: its own convention is `-errno`.
pub(crate) fn checked(ret: i32) -> io::Result<i32> {
    if ret < 0 { Err(io::Error::from_raw_os_error(-ret)) } else { Ok(ret) }
}
