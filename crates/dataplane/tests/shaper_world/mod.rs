//! Network namespaces without names: each lives as long as the thread that made it, so that nothing
//! remains, whatever happens to a test.
#![allow(unsafe_code, reason = "namespaces and socket options have no safe call")]
#![allow(unreachable_pub, dead_code, reason = "shared by several tests")]
#![allow(clippy::disallowed_methods, reason = "tests on real links drive real time")]

use std::io::Read;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_dataplane::shaper::{External, Htb, PairRate, ShaperConfig, VmShare};
use weir_units::{PairId, Rate, VmId};

/// Puts the calling thread into a network namespace of its own.
pub fn unshare() {
    // SAFETY: no pointers; affects this thread only.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    let error = std::io::Error::last_os_error();
    assert_eq!(result, 0, "these tests need root to make network namespaces: {error}");
    sh("ip link set lo up");
}

/// Runs a command in this thread's namespace; its output.
pub fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}`: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A thread in a namespace of its own that does what it is told.
pub struct Namespace {
    jobs: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
    pub id: i32,
}

impl Namespace {
    pub fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            unshare();
            // SAFETY: returns a number.
            tell.send(unsafe { libc::gettid() }).unwrap();
            queue.iter().for_each(|job| job());
        });
        Self { jobs: Some(jobs), thread: Some(thread), id: told.recv().unwrap() }
    }

    /// Does `job` there and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(job).recv().expect("the job did not panic")
    }

    /// Starts `job` there; its result arrives in the channel.
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || drop(tell.send(job())));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        told
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        let _ = self.thread.take().unwrap().join();
    }
}

pub const RECEIVER: &str = "10.2.0.2";
pub const VM_A: VmId = VmId(1);
pub const VM_B: VmId = VmId(2);

pub fn pair(src: VmId, dst: u32) -> PairId {
    PairId::new(src, VmId(dst))
}

pub fn mbit(floor: u64, ceiling: u64) -> PairRate {
    PairRate { floor: Rate::from_mbps(floor), ceiling: Rate::from_mbps(ceiling) }
}

pub fn vm(vm: VmId, port: &str, floor: u64) -> VmShare {
    VmShare {
        vm,
        port: port.into(),
        floor: Rate::from_mbps(floor),
        cap: None,
        external: External::default(),
    }
}

/// In a fresh namespace: ports `pa` and `pb`, and nothing behind them.
pub fn two_ports() {
    unshare();
    // IPv6 would look for routers, and packets that no test sent would be counted.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for port in ["pa", "pb"] {
        sh(&format!("ip link add {port} type veth peer name {port}-vm"));
        sh(&format!("ip link set {port} up"));
        sh(&format!("ip link set {port}-vm up"));
    }
    // The kernel says a moment later that they are up.
    let mut waits = 0..500;
    while sh("ip -o link show").contains("NO-CARRIER") {
        waits.next().expect("a port has no carrier after five seconds");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn open(instance: &str, uplink: u64) -> Htb {
    Htb::open(ShaperConfig::new(instance, Rate::from_mbps(uplink))).unwrap()
}

/// This thread is the host: VMs A and B behind `pa` and `pb`, a receiver behind `uplink`; routed.
pub struct World {
    pub a: Namespace,
    pub b: Namespace,
    pub receiver: Namespace,
}

impl World {
    pub fn new() -> Self {
        unshare();
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let world = Self { a: Namespace::new(), b: Namespace::new(), receiver: Namespace::new() };
        let ends = [
            ("pa", "10.1.1", &world.a),
            ("pb", "10.1.2", &world.b),
            ("uplink", "10.2.0", &world.receiver),
        ];
        for (port, net, there) in ends {
            sh(&format!("ip link add {port} type veth peer name eth0 netns {}", there.id));
            sh(&format!("ip addr add {net}.1/24 dev {port}"));
            sh(&format!("ip link set {port} up"));
            let net = net.to_owned();
            there.run(move || {
                sh(&format!("ip addr add {net}.2/24 dev eth0"));
                // Packets of MTU size, as on a wire: a super-packet would be one unit to the
                // shaper.
                sh("ip link set eth0 gso_max_segs 1");
                sh("ip link set eth0 up");
                sh(&format!("ip route add default via {net}.1"));
            });
        }
        world
    }

    /// Steers what goes to `port` of the receiver to a class, as the BPF programs would.
    pub fn steer(&self, device: &str, port: u16, class: u32) {
        let class = format!("{:x}:{:x}", class >> 16, class & 0xffff);
        sh(&format!(
            "tc filter add dev {device} parent 1: protocol ip u32 match ip dport {port} 0xffff flowid {class}"
        ));
    }
}

/// What arrived in a measured interval.
pub struct Measured {
    /// Application octets per second × 8, per flow.
    pub goodput: Vec<f64>,
    /// Least idle share of any CPU meanwhile.
    pub idle: f64,
    /// What kept this machine from measuring, if anything did.
    pub disturbance: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tcp,
    /// Offered rate in Mbit/s of payload.
    Udp(u64),
}

/// Ticks of a CPU.
struct Ticks {
    idle: u64,
    stolen: u64,
    all: u64,
}

fn cpus() -> Vec<Ticks> {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let cpu = |line: &str| {
        let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|t| t.parse().unwrap()).collect();
        Ticks { idle: ticks[3] + ticks[4], stolen: ticks[7], all: ticks.iter().take(8).sum() }
    };
    stat.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).map(cpu).collect()
}

/// The least idle and the largest stolen share of any CPU since `before`.
fn shares_since(before: &[Ticks]) -> (f64, f64) {
    let (mut idle, mut stolen) = (1.0f64, 0.0f64);
    for (then, now) in before.iter().zip(cpus()) {
        // Nothing counted: nothing woke it.
        let all = (now.all - then.all).max(1) as f64;
        let spare = if now.all == then.all { 1 } else { now.idle - then.idle };
        idle = idle.min(spare as f64 / all);
        stolen = stolen.max((now.stolen - then.stolen) as f64 / all);
    }
    (idle, stolen)
}

/// Bounds of a lab's samples: a CPU with less idle time is saturated, and one from which more was
/// taken stood still.
const IDLE_LEAST: f64 = 0.05;
const STOLEN_MOST: f64 = 0.10;

/// Sleeps for `span` and looks every tenth of a second whether this machine has its CPUs to itself.
fn watch(span: Duration) -> Option<String> {
    let (until, mut steps, mut saturated, mut stolen) = (Instant::now() + span, 0, 0, 0);
    while Instant::now() < until {
        let before = cpus();
        std::thread::sleep(Duration::from_millis(100).min(until - Instant::now()));
        let (idle, taken) = shares_since(&before);
        steps += 1;
        saturated += u32::from(idle < IDLE_LEAST);
        stolen += u32::from(taken >= STOLEN_MOST);
    }
    (saturated * 10 > steps || stolen > 0).then(|| {
        format!(
            "of {steps} tenths of a second a CPU was under 5 % idle in {saturated}, \
             and the machine below took 10 % of one or more in {stolen}"
        )
    })
}

/// Returns when all CPUs have time to spare, or at `limit`.
pub fn wait_for_idle(limit: Instant) {
    while Instant::now() < limit {
        let before = cpus();
        std::thread::sleep(Duration::from_millis(200));
        if shares_since(&before).0 > 0.5 {
            return;
        }
    }
}

/// Plays flows from namespaces to ports of the receiver, all together, and measures at the
/// receiver from `warmup` to `warmup + span`.
pub fn play(
    world: &World,
    flows: &[(&Namespace, u16, Kind)],
    warmup: Duration,
    span: Duration,
) -> Measured {
    let stop = Arc::new(AtomicBool::new(false));
    let counters: Vec<Arc<AtomicU64>> = flows.iter().map(|_| Arc::default()).collect();
    let mut running = Vec::new();
    for ((from, port, kind), counter) in flows.iter().zip(&counters) {
        let (port, kind, counter, stop) = (*port, *kind, counter.clone(), stop.clone());
        let halt = stop.clone();
        running.push(world.receiver.run(move || receive(port, kind, counter, stop)));
        running.push(from.run(move || send(port, kind, halt)));
    }
    std::thread::sleep(warmup);
    let read = || counters.iter().map(|c| c.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (start, first, cpu) = (Instant::now(), read(), cpus());
    let disturbance = watch(span);
    let (took, last, idle) = (start.elapsed().as_secs_f64(), read(), shares_since(&cpu).0);
    stop.store(true, Ordering::Relaxed);
    running.into_iter().for_each(|thread| thread.join().unwrap());
    let goodput = first.iter().zip(&last).map(|(a, b)| (b - a) as f64 * 8.0 / took).collect();
    Measured { goodput, idle, disturbance }
}

/// Lets a socket hold what comes while its thread waits for a CPU.
pub fn hold_much(socket: &UdpSocket) {
    let octets: libc::c_int = 16 << 20;
    let value = (&raw const octets).cast();
    // SAFETY: a live socket, and an integer that outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value, 4)
    };
    assert_eq!(result, 0, "as root");
}

const WAIT: Duration = Duration::from_millis(200);

/// Threads inherit the namespace of the one that starts them.
fn receive(
    port: u16,
    kind: Kind,
    counter: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let address = format!("{RECEIVER}:{port}");
    let count = move |read: &mut dyn FnMut(&mut [u8]) -> std::io::Result<usize>| {
        let mut buffer = vec![0; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            if let Ok(n) = read(&mut buffer) {
                counter.fetch_add(n as u64, Ordering::Relaxed);
            }
        }
    };
    if kind == Kind::Tcp {
        let listener = TcpListener::bind(address).unwrap();
        return std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(WAIT)).unwrap();
            count(&mut |buffer| stream.read(buffer));
        });
    }
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    std::thread::spawn(move || count(&mut |buffer| socket.recv(buffer)))
}

fn send(port: u16, kind: Kind, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    let address = format!("{RECEIVER}:{port}");
    let Kind::Udp(mbps) = kind else {
        let stream = TcpStream::connect(address).unwrap();
        let name = b"cubic";
        // SAFETY: the name is live and its length given.
        let result = unsafe {
            let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
            libc::setsockopt(stream.as_raw_fd(), level, option, name.as_ptr().cast(), 5)
        };
        assert_eq!(result, 0, "cubic is built in");
        stream.set_write_timeout(Some(WAIT)).unwrap();
        return std::thread::spawn(move || {
            let octets = vec![0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                let _ = std::io::Write::write(&mut &stream, &octets);
            }
        });
    };
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(address).unwrap();
    std::thread::spawn(move || {
        let (payload, start, mut sent) = ([0; 1472], Instant::now(), 0u64);
        while !stop.load(Ordering::Relaxed) {
            let due = start.elapsed().as_nanos() as u64 * mbps / 8000 / 1472;
            while sent < due {
                let _ = socket.send(&payload);
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}
