//! Two hosts with one VM each behind a switch, made of network namespaces:
//!
//! ```text
//! vm1 eth0 -- port [host1 br] uplink -- sw1 [switch br] sw2 -- uplink [host2 br] port -- eth0 vm2
//! ```
//!
//! Everything carries this process's id and is removed when dropped, also after a failure.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_dataplane::shaper::Kind;
use weir_dataplane::{CodePoints, Config, Endpoint, Mode, Port};
use weir_units::{HostId, PairId, Rate, Span, TenantId, VmId};

/// The uplink's rate in all tests: above everything that is limited.
pub(crate) const UPLINK: Rate = Rate::from_mbps(200);
/// From the VM of host 1 to that of host 2.
pub(crate) const PAIR: PairId = PairId::new(VmId(1), VmId(2));
pub(crate) const VM1: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const VM2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

static WORLDS: AtomicU32 = AtomicU32::new(0);
static TURN: Mutex<()> = Mutex::new(());

/// The namespaces, and a bpffs of their own.
pub(crate) struct World {
    prefix: String,
    pub(crate) dir: PathBuf,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// The ways to attach on this kernel, the preferred one first. TCX came with Linux 6.6.
#[allow(dead_code, reason = "some tests need it, others share the file")]
pub(crate) fn modes() -> Vec<Mode> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version < (6, 6) { vec![Mode::Clsact] } else { vec![Mode::Tcx, Mode::Clsact] }
}

/// The kernel's monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let ret = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    assert_eq!(ret, 0, "every Linux has this clock");
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Runs a command line (words without spaces); fails with its words if it does.
#[track_caller]
pub(crate) fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{line}: {} (these tests need root)", text(&output.stderr));
    text(&output.stdout)
}

impl World {
    /// Builds it. One at a time: two would share two CPUs and a clock.
    pub(crate) fn new() -> Self {
        Self::build(Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Builds one that may stand beside others, where no time is measured but to be compared.
    #[allow(dead_code, reason = "one test needs it, others share the file")]
    pub(crate) fn beside_others() -> Self {
        Self::build(None)
    }

    fn build(_turn: Option<MutexGuard<'static, ()>>) -> Self {
        let n = WORLDS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("wd{}-{n}-", std::process::id());
        let dir = std::env::temp_dir().join(format!("{prefix}weir"));
        let world = Self { prefix, dir, _turn };
        std::fs::create_dir_all(world.bpffs()).unwrap();
        sh(&format!("mount -t bpf bpf {}", world.bpffs().display()));
        for name in ["vm1", "vm2", "host1", "host2", "switch"] {
            sh(&format!("ip netns add {}", world.ns(name)));
            world.ip(name, "link set lo up");
        }
        for n in [1, 2] {
            let (vm, host) = (format!("vm{n}"), format!("host{n}"));
            world.veth(&vm, "eth0", &host, "port");
            world.veth(&host, "uplink", "switch", if n == 1 { "sw1" } else { "sw2" });
            world.ip(&vm, &format!("addr add 10.0.0.{n}/24 dev eth0"));
            world.bridge(&host, &["port", "uplink"]);
        }
        world.bridge("switch", &["sw1", "sw2"]);
        // Until each port of a bridge forwards, packets are lost.
        let ready = |host: &str| {
            let ports = world.ip(host, "-d link show master br");
            ports.matches("state forwarding").count() == 2
                && world.ip(host, "link show dev br").contains("state UP")
        };
        let begun = now_ns();
        while !["host1", "host2", "switch"].into_iter().all(ready) {
            assert!(now_ns() - begun < 10_000_000_000, "the bridges do not carry");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        world
    }

    pub(crate) fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.dir.join("bpf")
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(crate) fn ip(&self, ns: &str, line: &str) -> String {
        sh(&format!("ip -n {} {line}", self.ns(ns)))
    }

    pub(crate) fn tc(&self, ns: &str, line: &str) -> String {
        sh(&format!("tc -n {} {line}", self.ns(ns)))
    }

    /// Whether `tc` does what it is told.
    pub(crate) fn tc_succeeds(&self, ns: &str, line: &str) -> bool {
        let ns = self.ns(ns);
        let output = Command::new("tc").args(["-n", &ns]).args(line.split(' ')).output().unwrap();
        output.status.success()
    }

    fn veth(&self, ns1: &str, name1: &str, ns2: &str, name2: &str) {
        let (n1, n2) = (self.ns(ns1), self.ns(ns2));
        sh(&format!("ip -n {n1} link add name {name1} type veth peer name {name2} netns {n2}"));
        for (ns, name) in [(ns1, name1), (ns2, name2)] {
            self.ip(ns, &format!("link set dev {name} up"));
        }
    }

    fn bridge(&self, ns: &str, ports: &[&str]) {
        self.ip(ns, "link add name br type bridge mcast_snooping 0");
        for port in ports {
            self.ip(ns, &format!("link set dev {port} master br"));
        }
        self.ip(ns, "link set dev br up");
    }

    /// Makes the VMs send packets of one MTU each.
    pub(crate) fn without_super_packets(&self) {
        for vm in ["vm1", "vm2"] {
            self.ip(vm, "link set eth0 gso_max_segs 1");
        }
    }

    /// Bounds the switch's port toward host 2 to `rate`, with a queue of `limit` octets.
    pub(crate) fn bottleneck(&self, rate: &str, limit: &str) {
        self.tc(
            "switch",
            &format!("qdisc add dev sw2 root tbf rate {rate} burst 20k limit {limit}"),
        );
    }

    /// Runs `f` in a namespace, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, ns: &str, f: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.ns(ns));
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let file = std::fs::File::open(path).unwrap();
                // SAFETY: a live descriptor of a namespace; concerns this thread alone.
                let ret = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(ret, 0, "entering a network namespace needs root");
                f()
            });
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Host `n`'s configuration.
    pub(crate) fn config(&self, n: u32, mode: Mode) -> Config {
        let endpoint = |vm: u32, address: Ipv4Addr| Endpoint {
            address: address.into(),
            vm: VmId(vm),
            tenant: TenantId(1),
            host: HostId(vm),
            mac: None,
        };
        Config {
            instance: format!("host{n}"),
            bpffs: self.bpffs(),
            run_dir: self.run_dir(),
            uplink: "uplink".into(),
            uplink_rate: UPLINK,
            host_floor: Rate::ZERO,
            tunnels: Default::default(),
            ports: vec![Port {
                vm: VmId(n),
                tenant: TenantId(1),
                interface: "port".into(),
                mac: None,
                floor_out: Rate::from_mbps(100),
                cap_out: None,
                external: Default::default(),
                best_effort: false,
                dscp: Default::default(),
            }],
            endpoints: vec![endpoint(1, VM1), endpoint(2, VM2)],
            outside: vec![],
            controls: vec![],
            default_rate: Rate::from_mbps(1),
            max_pairs: 64,
            pairs_per_vm: 64,
            attach: Some(mode),
            ecn: false,
            reorder_window: Span::from_millis(1),
            timed_every: None,
            shaper: Some(Kind::Htb),
            observe: false,
            eyeq: None,
            translations: BTreeMap::new(),
            policing: BTreeMap::new(),
            budgets: BTreeMap::new(),
            flows_per_vm: 1024,
            code_points: CodePoints::of([10, 12, 20]),
        }
    }

    /// All that a host shows of its links, queues and filters, but for the bridge's running timers.
    pub(crate) fn snapshot(&self, host: &str) -> Vec<String> {
        let mut text = self.ip(host, "-d link show");
        text += &self.tc(host, "qdisc show");
        for device in ["port", "uplink"] {
            for hook in ["ingress", "egress"] {
                // Without clsact this says so on stderr, and nothing on stdout.
                let ns = self.ns(host);
                let output = Command::new("tc")
                    .args(["-n", &ns, "filter", "show", "dev", device, hook])
                    .output()
                    .unwrap();
                text += &format!("{device} {hook}: {}", String::from_utf8_lossy(&output.stdout));
            }
        }
        let (mut words, mut timer) = (Vec::new(), false);
        for word in text.split_whitespace() {
            if !std::mem::replace(&mut timer, word.ends_with("_timer")) {
                words.push(word.to_owned());
            }
        }
        words
    }

    /// Fails if a host is not as `before`, and says in what.
    #[track_caller]
    pub(crate) fn assert_restored(&self, host: &str, before: &[String]) {
        let now = self.snapshot(host);
        let differs = now.iter().zip(before).position(|(a, b)| a != b);
        let at = differs.unwrap_or(now.len().min(before.len()));
        let near = |words: &[String]| {
            words.iter().skip(at.saturating_sub(6)).take(14).cloned().collect::<Vec<_>>().join(" ")
        };
        assert!(now == before, "was: … {} …\nis: … {} …", near(before), near(&now));
    }

    /// A UDP socket of VM `n`.
    pub(crate) fn udp(&self, n: u8) -> UdpSocket {
        self.inside(&format!("vm{n}"), || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 9000)).unwrap())
    }

    /// A TCP connection from VM 1 to VM 2: the sending and the receiving end. CUBIC, whatever the
    /// machine prefers: it fills a queue and heeds losses.
    pub(crate) fn tcp(&self) -> (TcpStream, TcpStream) {
        self.tcp_at(9001)
    }

    /// The same to another port.
    pub(crate) fn tcp_at(&self, port: u16) -> (TcpStream, TcpStream) {
        let address = SocketAddrV4::new(VM2, port);
        let listener = self.inside("vm2", || TcpListener::bind(address).unwrap());
        let sender = self.inside("vm1", || TcpStream::connect(address).unwrap());
        let name = b"cubic";
        // SAFETY: a live socket; the name is as long as it is said to be.
        let ret = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_ptr().cast(),
                name.len() as u32,
            )
        };
        assert_eq!(ret, 0, "choosing CUBIC");
        (sender, listener.accept().unwrap().0)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Everything is tried, whatever failed: a panic here would hide the first one.
        for name in ["vm1", "vm2", "host1", "host2", "switch"] {
            let _ = Command::new("ip").args(["netns", "del", &self.ns(name)]).status();
        }
        let _ = Command::new("umount").arg(self.bpffs()).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
