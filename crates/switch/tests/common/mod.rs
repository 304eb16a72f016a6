//! A port of a Linux box with a receiver behind it, in two namespaces that die with the test.
//!
//! ```text
//! [this thread's namespace] swp1 --- eth0 [a namespace of its own]
//! ```

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::binding::switch::{PortName, PortQueues, SwitchConfig};
use weir_switch::linux::{LinuxTc, PortSettings, Settings};
use weir_switch::{Backend, Driver, Managed, Outcome, Owner, Saves};
use weir_units::{Rate, SortedMap};

pub(crate) const PORT: &str = "swp1";
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Runs a command line (words without spaces) in this thread's namespace.
#[track_caller]
pub(crate) fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{line}: {} (these tests need root)", text(&output.stderr));
    text(&output.stdout)
}

/// Gives this thread a network namespace of its own.
pub(crate) fn isolate() {
    unshare(CloneFlags::CLONE_NEWNET).expect("these tests need root");
}

/// A folder that is removed with its content.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-switch-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The receiver: its namespace lasts as long as its thread.
pub(crate) struct Sink {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) socket: UdpSocket,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.end.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Makes the two namespaces. Packets to 10.0.0.2 and fd00::2 leave by `swp1`, without a question.
pub(crate) fn world() -> Sink {
    isolate();
    let (say_task, task) = channel();
    let (say, hear) = channel();
    let (go, wait) = channel();
    let (end, ended) = channel::<()>();
    let thread = std::thread::spawn(move || {
        isolate();
        say_task.send(nix::unistd::gettid()).unwrap();
        wait.recv().unwrap();
        for line in [
            "link set lo up",
            "addr add 10.0.0.2/24 dev eth0",
            "addr add fd00::2/64 dev eth0 nodad",
            "link set eth0 up",
        ] {
            sh(&format!("ip {line}"));
        }
        let socket = UdpSocket::bind("[::]:5000").unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        say.send(socket).unwrap();
        let _ = ended.recv();
    });
    let task = task.recv().unwrap();
    sh("ip link set lo up");
    sh(&format!("ip link add {PORT} type veth peer name eth0 address 02:00:00:00:00:02"));
    sh(&format!("ip link set eth0 netns {task}"));
    go.send(()).unwrap();
    let socket = hear.recv().unwrap();
    for line in [
        format!("addr add 10.0.0.1/24 dev {PORT}"),
        format!("addr add fd00::1/64 dev {PORT} nodad"),
        format!("link set {PORT} up"),
        format!("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev {PORT}"),
        format!("neigh add fd00::2 lladdr 02:00:00:00:00:02 dev {PORT}"),
    ] {
        sh(&format!("ip {line}"));
    }
    Sink { end: Some(end), thread: Some(thread), socket }
}

pub(crate) fn name() -> PortName {
    PORT.into()
}

pub(crate) fn settings(mbps: u64) -> Settings {
    let port = PortSettings { rate: Rate::from_mbps(mbps), queues: 8 };
    Settings::new([(name(), port)].into())
}

pub(crate) fn managed<B: Backend>(backend: B, owner: &str, folder: &Folder) -> Managed<B> {
    let saves = Saves::new(&folder.0, "one");
    Managed::new(backend, Owner::new(owner).unwrap(), saves, LIMIT)
}

/// The Linux box with one port, in this thread's namespace.
pub(crate) fn linux(mbps: u64, folder: &Folder) -> Managed<LinuxTc> {
    managed(LinuxTc::open(settings(mbps)).unwrap(), "test", folder)
}

/// A port with these queues and weights, and code points by queue. Queue 0 is shared.
pub(crate) fn port(mbps: u64, weights: &[(u8, u16)], bound: &[(u8, u8)]) -> PortQueues {
    PortQueues {
        rate: Rate::from_mbps(mbps),
        shared: 0,
        weights: weights.iter().copied().collect(),
        queue_of: bound.iter().copied().collect(),
    }
}

pub(crate) fn switch(port: PortQueues) -> SwitchConfig {
    SwitchConfig { ports: SortedMap::from([(name(), port)]) }
}

#[track_caller]
pub(crate) fn apply(driver: &mut impl Driver, wanted: &SwitchConfig) -> usize {
    match driver.apply(wanted) {
        Outcome::Applied(changes) | Outcome::Written(changes) => changes.len(),
        Outcome::Failed(failed) => panic!("{failed}"),
    }
}

#[track_caller]
pub(crate) fn failure(outcome: Outcome) -> weir_switch::Failed {
    match outcome {
        Outcome::Failed(failed) => failed,
        other => panic!("{other:?}"),
    }
}

/// A socket whose packets carry this code point, to port 5000 of the receiver.
pub(crate) fn sender(codepoint: u8, is_ip6: bool) -> UdpSocket {
    let tos = i32::from(codepoint) << 2;
    if is_ip6 {
        let socket = UdpSocket::bind("[fd00::1]:0").unwrap();
        setsockopt(&socket, sockopt::Ipv6TClass, &tos).unwrap();
        socket.connect("[fd00::2]:5000").unwrap();
        return socket;
    }
    let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
    setsockopt(&socket, sockopt::Ipv4Tos, &tos).unwrap();
    socket.connect("10.0.0.2:5000").unwrap();
    socket
}
