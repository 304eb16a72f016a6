//! Two hosts with one VM each behind a switch, made of network namespaces, and real agents on them:
//!
//! ```text
//! vm1 eth0 -- port [host1 br] up -- sw1 [switch br] sw2 -- up [host2 br] port -- eth0 vm2
//! ```
//!
//! Everything carries this process's id, and is removed when dropped, also after a failure.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod controller;
pub(crate) mod eyeq;
pub(crate) mod guest;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod watch;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_agent::client;
use weir_model::status::{Pair, Reply, Request, Top};

/// What each VM is promised, in and out, and what the uplinks carry; Mbit/s.
pub(crate) const FLOOR: u64 = 20;
pub(crate) const UPLINK: u64 = 100;

static WORLDS: AtomicU32 = AtomicU32::new(0);
/// One world at a time: two would share two CPUs, and rates are measured.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a command line (words without spaces); fails with its words if it does.
#[track_caller]
pub(crate) fn sh(line: &str) -> String {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    assert!(output.status.success(), "{line}: {} (these tests need root)", text(&output.stderr));
    text(&output.stdout)
}

/// Ends a thread of a scope, which else is waited for also when what it is for has failed.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Looks again and again, for at most `seconds`.
#[track_caller]
pub(crate) fn until(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        pause(20);
    }
}

/// Says that traffic shall end when a test does, also by a failure: a scope waits for its threads.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The namespaces, a bpffs of their own, and the agents' files.
pub(crate) struct World {
    prefix: String,
    pub(crate) dir: PathBuf,
    /// Namespaces of further VMs.
    further: Mutex<Vec<String>>,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let n = WORLDS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("ws{}-{n}-", std::process::id());
        let dir = std::env::temp_dir().join(format!("{prefix}weir"));
        let world = Self { prefix, dir, further: Mutex::default(), _turn: turn };
        fs::create_dir_all(world.bpffs()).unwrap();
        sh(&format!("mount -t bpf bpf {}", world.bpffs().display()));
        for name in ["vm1", "vm2", "host1", "host2", "switch"] {
            sh(&format!("ip netns add {}", world.ns(name)));
            world.ip(name, "link set lo up");
        }
        for n in [1, 2] {
            let (vm, host) = (format!("vm{n}"), format!("host{n}"));
            world.veth(&vm, "eth0", &host, "port");
            world.veth(&host, "up", "switch", &format!("sw{n}"));
            world.ip(&vm, &format!("addr add 10.0.0.{n}/24 dev eth0"));
            world.ip(&vm, "link set eth0 gso_max_segs 1");
            world.bridge(&host, &["port", "up"]);
            // Else the bridge takes the lowest of its ports' addresses, another one when ports come
            // and go, and what peers' agents send is lost until their neighbour entry is old.
            world.ip(&host, &format!("link set dev br address 02:57:00:00:00:0{n}"));
            world.ip(&host, &format!("addr add 10.255.0.{n}/24 dev br"));
        }
        world.bridge("switch", &["sw1", "sw2"]);
        let ready = |host: &str| world.ip(host, "link show dev br").contains("state UP");
        until("the bridges carry", 5, || ["host1", "host2", "switch"].into_iter().all(ready));
        world.write_configurations();
        world
    }

    fn write_configurations(&self) {
        let at = |name: &str| self.dir.join(name);
        let directory = "hosts:\n  - {name: host1, control: '10.255.0.1:7001'}\n  \
                         - {name: host2, control: '10.255.0.2:7001'}\nvms:\n  \
                         - {name: a, tenant: t, host: host1, addresses: [10.0.0.1]}\n  \
                         - {name: b, tenant: t, host: host2, addresses: [10.0.0.2]}\n";
        fs::write(at("directory.yaml"), directory).unwrap();
        for (own, peer) in [("host1", "host2"), ("host2", "host1")] {
            let keys = format!("host {own}\n{peer} 0 000102030405060708090a0b0c0d0e0f\n");
            fs::write(at(&format!("{own}.keys")), keys).unwrap();
        }
        for (n, vm) in [(1, "a"), (2, "b")] {
            self.write_configuration(n, vm, &format!("host{n}"), &format!("host{n}.toml"));
        }
    }

    /// Host `n`'s configuration under another instance's name, as a second agent would have it.
    pub(crate) fn write_configuration(&self, n: u32, vm: &str, instance: &str, file: &str) {
        let at = |name: &str| self.dir.join(name);
        let text = format!(
            "instance = {instance:?}\nhost = \"host{n}\"\nlisten = \"10.255.0.{n}:7001\"\n\
             key_file = {:?}\ndirectory = {:?}\nrun_dir = {:?}\nbpffs = {:?}\n\
             uplink = {{ interface = \"up\", rate = \"{UPLINK}Mbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\", set = {{ scale = 0.1 }} }}\n\
             [[vm]]\nname = {vm:?}\nport = \"port\"\n\
             floor_out = \"{FLOOR}Mbit\"\nfloor_in = \"{FLOOR}Mbit\"\n",
            at(&format!("host{n}.keys")),
            at("directory.yaml"),
            at("run"),
            self.bpffs(),
        );
        fs::write(at(file), text).unwrap();
    }

    pub(crate) fn bpffs(&self) -> PathBuf {
        self.dir.join("bpf")
    }

    pub(crate) fn ns(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn ip(&self, ns: &str, line: &str) -> String {
        sh(&format!("ip -n {} {line}", self.ns(ns)))
    }

    pub(crate) fn tc(&self, ns: &str, line: &str) -> String {
        sh(&format!("tc -n {} {line}", self.ns(ns)))
    }

    fn veth(&self, ns1: &str, name1: &str, ns2: &str, name2: &str) {
        let (n1, n2) = (self.ns(ns1), self.ns(ns2));
        sh(&format!("ip -n {n1} link add name {name1} type veth peer name {name2} netns {n2}"));
        self.ip(ns1, &format!("link set dev {name1} up"));
        self.ip(ns2, &format!("link set dev {name2} up"));
    }

    /// A further VM in a namespace of this name, with a port on host `n`.
    pub(crate) fn add_vm(&self, name: &str, n: u32, port: &str, address: u32) {
        sh(&format!("ip netns add {}", self.ns(name)));
        self.further.lock().unwrap().push(name.to_owned());
        let host = format!("host{n}");
        self.veth(name, "eth0", &host, port);
        self.ip(name, &format!("addr add 10.0.0.{address}/24 dev eth0"));
        self.ip(name, "link set eth0 gso_max_segs 1");
        self.ip(&host, &format!("link set dev {port} master br"));
    }

    fn bridge(&self, ns: &str, ports: &[&str]) {
        self.ip(ns, "link add name br type bridge mcast_snooping 0");
        for port in ports {
            self.ip(ns, &format!("link set dev {port} master br"));
        }
        self.ip(ns, "link set dev br up");
    }

    /// Runs `f` in a namespace, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, ns: &str, f: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.ns(ns));
        std::thread::scope(|scope| {
            let run = scope.spawn(|| {
                let file = File::open(path).unwrap();
                rustix::thread::move_into_link_name_space(file.as_fd(), None)
                    .expect("entering a network namespace needs root");
                f()
            });
            run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A UDP socket of VM `n`.
    pub(crate) fn udp(&self, n: u8) -> UdpSocket {
        self.inside(&format!("vm{n}"), || UdpSocket::bind("0.0.0.0:9000").unwrap())
    }

    /// A command in host `n`'s namespace: the daemon, if `program` is none other.
    pub(crate) fn command(&self, n: u32, program: &Path, prefix: &[String]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.ns(&format!("host{n}"))));
        command.arg("--").args(prefix).arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Starts host `n`'s agent and waits until it answers.
    pub(crate) fn start(&self, n: u32) -> Agent<'_> {
        self.start_as(n, &daemon(), &[], &[])
    }

    /// The same from another binary, behind another command, with more in its environment.
    pub(crate) fn start_as(
        &self,
        n: u32,
        program: &Path,
        prefix: &[String],
        environment: &[(&str, String)],
    ) -> Agent<'_> {
        let log = self.dir.join(format!("host{n}.log"));
        let out = File::options().create(true).append(true).open(&log).unwrap();
        let child = self
            .command(n, program, prefix)
            .args(["agent", "--config"])
            .arg(self.dir.join(format!("host{n}.toml")))
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .unwrap();
        let mut agent = Agent { world: self, n, child, log };
        agent.wait_until_it_answers();
        agent
    }

    /// Runs the daemon with this command for host `n`; what it printed.
    pub(crate) fn run(&self, n: u32, command: &str, file: &str) -> std::process::Output {
        self.command(n, &daemon(), &[])
            .args([command, "--config"])
            .arg(self.dir.join(file))
            .output()
            .unwrap()
    }

    /// All that a host shows of its links, queues, classes and filters, and of what is pinned, word
    /// by word, but for running timers and counters.
    pub(crate) fn snapshot(&self, host: &str) -> Vec<String> {
        let mut text = self.ip(host, "-d link show");
        text += &self.tc(host, "qdisc show");
        for device in ["port", "up", "br"] {
            text += &self.tc(host, &format!("class show dev {device}"));
            for hook in ["ingress", "egress"] {
                // Without clsact this says so on stderr, and nothing on stdout.
                let output = Command::new("tc")
                    .args(["-n", &self.ns(host), "filter", "show", "dev", device, hook])
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

    /// Processes in host `n`'s namespace whose command line has `word`.
    pub(crate) fn processes(&self, n: u32, word: &str) -> Vec<i32> {
        let pids = sh(&format!("ip netns pids {}", self.ns(&format!("host{n}"))));
        let has = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).split('\0').any(|argument| argument == word)
        };
        pids.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(has).collect()
    }

    /// Rate and ceiling (words of tc) of each class of host `n`'s shaper that a pair has.
    pub(crate) fn ceilings(&self, n: u32) -> String {
        let links = self.ip(&format!("host{n}"), "-o link show type ifb");
        let device = links.split(": ").nth(1).expect("the shaper's device").to_owned();
        let all = self.tc(&format!("host{n}"), &format!("class show dev {device}"));
        // Those within a pair's queue have no limit.
        all.lines().filter(|line| line.starts_with("class htb 1:")).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Everything is tried, whatever failed: a panic here would hide the first one.
        for n in [1, 2] {
            for word in ["agent", "guardian"] {
                self.processes(n, word).into_iter().for_each(|pid| send(pid, Signal::KILL));
            }
        }
        let further = self.further.lock().map_or_else(|_| Vec::new(), |names| names.clone());
        let all = ["vm1", "vm2", "host1", "host2", "switch"].map(str::to_owned);
        for name in all.iter().chain(&further) {
            let _ = Command::new("ip").args(["netns", "del", &self.ns(name)]).status();
        }
        let _ = Command::new("umount").arg(self.bpffs()).status();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn send(pid: i32, signal: Signal) {
    // It may be gone: that is what was wanted.
    let _ = kill_process(Pid::from_raw(pid).expect("a process has an id"), signal);
}

/// The example `daemon`, which cargo builds beside the tests.
pub(crate) fn daemon() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/TEST");
    target.join("examples/daemon")
}

/// A copy of [`daemon`] in `dir`, for users that cannot read the folder in which cargo built it.
pub(crate) fn copy_of_daemon(dir: &Path) -> PathBuf {
    let copy = dir.join("daemon");
    fs::copy(daemon(), &copy).expect("the tests' folder has room");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    copy
}

/// A running agent; killed when dropped, if it still runs.
pub(crate) struct Agent<'a> {
    world: &'a World,
    n: u32,
    child: Child,
    log: PathBuf,
}

impl Agent<'_> {
    pub(crate) fn socket(&self) -> PathBuf {
        client::socket_path(&self.world.dir.join("run"), &format!("host{}", self.n))
    }

    fn wait_until_it_answers(&mut self) {
        let socket = self.socket();
        until(&format!("agent {} answers", self.n), 20, || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("agent {} ended ({status}): {}", self.n, self.log());
            }
            client::ask(&socket, &Request::Top).is_ok()
        });
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn top(&self) -> Top {
        self.try_top().unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// The same where it may be too busy to answer at once.
    pub(crate) fn try_top(&self) -> anyhow::Result<Top> {
        match client::ask(&self.socket(), &Request::Top)? {
            Reply::Top(top) => Ok(*top),
            other => panic!("{other:?}"),
        }
    }

    /// The pair from a to b as this host sees it.
    pub(crate) fn pair(&self) -> Option<Pair> {
        self.top().pairs.into_iter().find(|pair| pair.from == "a" && pair.to == "b")
    }

    pub(crate) fn explain(&self) -> Vec<String> {
        self.try_explain().expect("it answers")
    }

    /// The same for a pair that must send meanwhile: an agent has forgotten one that was silent on
    /// a busy machine.
    pub(crate) fn explain_while(&self, mut send: impl FnMut()) -> Vec<String> {
        let mut reasons = None;
        until("a → b is active", 10, || {
            send();
            reasons = self.try_explain().ok();
            reasons.is_some()
        });
        reasons.expect("asked until it was")
    }

    pub(crate) fn try_explain(&self) -> anyhow::Result<Vec<String>> {
        let question = Request::Explain { from: "a".into(), to: "b".into() };
        match client::ask(&self.socket(), &question)? {
            Reply::Explain(explain) => Ok(explain.reasons),
            Reply::Error { message } => anyhow::bail!(message),
            other => panic!("{other:?}"),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        send(self.pid(), Signal::KILL);
        self.child.wait().unwrap();
    }

    /// `kill -9` for the agent and its guardian, in one moment.
    pub(crate) fn kill_with_guardian(mut self) {
        let guardians = self.world.processes(self.n, "guardian");
        assert_eq!(guardians.len(), 1, "one guardian");
        // Frozen first: neither sees the other die.
        for pid in [self.pid(), guardians[0]] {
            send(pid, Signal::STOP);
        }
        for pid in [self.pid(), guardians[0]] {
            send(pid, Signal::KILL);
        }
        self.child.wait().unwrap();
    }

    /// A clean stop.
    pub(crate) fn stop(mut self) {
        send(self.pid(), Signal::TERM);
        until("a clean stop", 20, || matches!(self.child.try_wait(), Ok(Some(_))));
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
