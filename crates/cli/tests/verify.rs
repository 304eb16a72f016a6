//! `weir verify` between two network namespaces, with a network between them that breaks packets on
//! purpose. Needs root.
//!
//! Each namespace has a TAP as its uplink. A thread of the test carries frames between both, and does to
//! them what a faulty switch, router or firewall would.

#![allow(clippy::disallowed_methods, reason = "tests read clocks and wait")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod place;
use place::Place;

/// Where the network header and that of UDP begin in frames of IPv4.
const L3: usize = 14;
const L4: usize = L3 + 20;
const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// What a network does to a frame; `true` lets it pass.
type Fault = Box<dyn FnMut(&mut Vec<u8>) -> bool + Send>;
/// There and back.
type Faults = Arc<Mutex<[Fault; 2]>>;

fn sh(line: &str) {
    let mut words = line.split_whitespace();
    let output =
        Command::new(words.next().expect("a program")).args(words).output().expect("it runs");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {why} (this test needs root)");
}

fn keeps() -> Fault {
    Box::new(|_| true)
}

/// A fault of IPv4 packets, whose header gets a right checksum afterwards.
fn v4(change: impl Fn(&mut [u8]) + Send + 'static) -> Fault {
    Box::new(move |frame| {
        if is_v4_udp(frame) {
            change(&mut frame[L3..]);
            frame[L3 + 10..L3 + 12].fill(0);
            let words = frame[L3..L4].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        true
    })
}

fn is_v4_udp(frame: &[u8]) -> bool {
    frame.len() > L4 + 8 && frame[12..14] == [8, 0] && frame[L3 + 9] == 17
}

fn port(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[L4 + at], frame[L4 + at + 1]])
}

/// Two hosts, `a` and `b`, and the network between them; removed when dropped, also after a failure.
struct World {
    prefix: String,
    place: Place,
    faults: Faults,
    stop: Arc<AtomicBool>,
    relay: Option<std::thread::JoinHandle<()>>,
}

impl World {
    fn new(name: &str) -> Self {
        let prefix = format!("wv{}{name}-", std::process::id());
        let (faults, stop) = (Arc::new(Mutex::new([keeps(), keeps()])), Arc::default());
        let place = Place::new(&format!("verify-{name}"));
        let mut world = Self { prefix, place, faults, stop, relay: None };
        let taps = [1, 2].map(|n| world.host(n));
        let (faults, stop) = (Arc::clone(&world.faults), Arc::clone(&world.stop));
        world.relay = Some(std::thread::spawn(move || relay(taps, &faults, &stop)));
        world.configure("b", KEY);
        world.configure("a", KEY);
        world
    }

    fn ns(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    /// A namespace with a TAP, whose other end is given.
    fn host(&self, n: u32) -> File {
        let ns = self.ns(if n == 1 { "a" } else { "b" });
        sh(&format!("ip netns add {ns}"));
        let path = format!("/run/netns/{ns}");
        let tap = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let file = File::open(path).expect("the namespace");
                rustix::thread::move_into_link_name_space(file.as_fd(), None).expect("needs root");
                weir_dataplane::tap::open("up0", 0x100 + n).expect("a TAP")
            });
            inside.join().expect("made")
        });
        for line in [
            "link set lo up".to_owned(),
            format!("link set up0 address 02:57:00:00:01:0{n} up"),
            // As of hosts that have several addresses by labels.
            format!("addr add 10.99.0.{n}/24 dev up0 label up0:{n}"),
            format!("addr add fd99::{n}/64 dev up0 nodad"),
            format!("neigh add 10.99.0.{0} lladdr 02:57:00:00:01:0{0} dev up0", 3 - n),
            format!("neigh add fd99::{0} lladdr 02:57:00:00:01:0{0} dev up0", 3 - n),
        ] {
            sh(&format!("ip -n {ns} {line}"));
        }
        tap
    }

    /// Files of a host's agent.
    fn configure(&self, host: &str, key: &str) {
        let at = |name: &str| self.place.0.join(name);
        let directory = "hosts: [{name: a, control: '10.99.0.1:7001'}, {name: b, control: '10.99.0.2:7001'}]\n\
                         vms: []\n";
        fs::write(at("directory.yaml"), directory).expect("written");
        let (n, peer) = if host == "a" { (1, "b") } else { (2, "a") };
        fs::write(at(&format!("{host}.keys")), format!("host {host}\n{peer} 0 {key}\n"))
            .expect("written");
        let text = format!(
            "instance = \"{host}\"\nhost = \"{host}\"\nlisten = \"10.99.0.{n}:7001\"\nkey_file = {:?}\n\
             directory = {:?}\nrun_dir = {:?}\ncode_points = [10, 12]\n\
             uplink = {{ interface = \"up0\", rate = \"1Gbit\" }}\n\
             mechanism = {{ name = \"elasticswitch\" }}\n",
            at(&format!("{host}.keys")),
            at("directory.yaml"),
            at("run"),
        );
        fs::write(at(&format!("{host}.toml")), text).expect("written");
    }

    fn config(&self, host: &str) -> String {
        self.place.0.join(format!("{host}.toml")).display().to_string()
    }

    fn weir(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.ns(host), env!("CARGO_BIN_EXE_weir"), "verify"]);
        command.args(arguments);
        command
    }

    /// A server on host `b`, when it answers.
    fn serve(&self, arguments: &[&str]) -> Server {
        let mut command = self.weir("b", &["serve"]);
        let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it speaks");
        let server = Server(child);
        assert!(line.starts_with("answers at"), "{line}");
        std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
        server
    }

    /// What host `a` finds, while the network does this there and back.
    fn verify(&self, faults: [Fault; 2], arguments: &[&str]) -> Found {
        *self.faults.lock().expect("no panic") = faults;
        let output = self.weir("a", arguments).arg("--json").output().expect("it runs");
        *self.faults.lock().expect("no panic") = [keeps(), keeps()];
        Found::of(&output)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.relay.take().map(std::thread::JoinHandle::join);
        for host in ["a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.ns(host)]).output();
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Carries frames until the end.
fn relay(mut taps: [File; 2], faults: &Faults, stop: &AtomicBool) {
    let mut frame = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let mut ready = [&taps[0], &taps[1]].map(|tap| PollFd::new(tap, PollFlags::IN));
        let _ = poll(&mut ready, Some(&timeout));
        for from in 0..2 {
            while let Ok(length) = taps[from].read(&mut frame) {
                let mut frame = frame[..length].to_vec();
                if (faults.lock().expect("no panic")[from])(&mut frame) {
                    let _ = taps[1 - from].write(&frame);
                }
            }
        }
    }
}

/// One host's findings.
struct Found {
    status: i32,
    host: Value,
}

impl Found {
    fn of(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {errors}"));
        let status = output.status.code().expect("it ends by itself");
        assert_eq!(answer["holds"], status == 0, "{answer} {errors}");
        Self { status, host: answer["hosts"][0].clone() }
    }

    #[track_caller]
    fn row(&self, what: &str) -> [&str; 3] {
        let rows = self.host["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["what"].as_str().is_some_and(|w| w.starts_with(what)));
        let row = row.unwrap_or_else(|| panic!("no row {what}: {rows:?}"));
        ["state", "there", "back"].map(|key| row[key].as_str().expect("text"))
    }

    /// Rows that are not fine, without the round trip: that of a busy machine is of any length.
    fn others(&self) -> Vec<&str> {
        let rows = self.host["rows"].as_array().expect("rows");
        let others =
            rows.iter().filter(|r| r["state"] != "fine").filter_map(|r| r["what"].as_str());
        others.filter(|what| !what.starts_with("round trip")).collect()
    }

    #[track_caller]
    fn only(&self, status: i32, what: &str, row: [&str; 3]) {
        assert_eq!((self.others(), self.row(what)), (vec![what], row));
        assert_eq!(self.status, status);
    }
}

#[test]
fn each_thing_that_a_network_breaks_is_found_in_its_direction() {
    let world = World::new("v4");
    let _server = world.serve(&["--config", &world.config("b"), "--for", "5min"]);
    let config = world.config("a");
    let configured = ["--config", config.as_str()];
    let look = |there: Fault, back: Fault| world.verify([there, back], &configured);

    let whole = look(keeps(), keeps());
    assert_eq!((whole.others(), whole.status), (vec![], 0), "{}", whole.host["rows"]);
    assert_eq!(whole.host["host"], "b");
    assert_eq!(whole.row("DSCP"), ["fine", "all 64 as sent", "all 64 as sent"]);
    assert_eq!(whole.row("keys"), ["fine", "accepted", "accepted"]);
    assert_eq!(whole.row("MTU"), ["fine", "1500", "1500"]);

    let dscp = |from: u8, to: u8| {
        v4(move |ip| ip[1] = if ip[1] >> 2 == from { to << 2 | ip[1] & 3 } else { ip[1] })
    };
    look(dscp(10, 0), keeps()).only(1, "DSCP", ["FAILS", "10 → 0", "all 64 as sent"]);
    look(keeps(), dscp(12, 46)).only(1, "DSCP", ["FAILS", "all 64 as sent", "12 → 46"]);
    let unneeded = look(dscp(20, 0), keeps());
    assert_eq!((unneeded.row("DSCP"), unneeded.status), (["fine", "20 → 0", "all 64 as sent"], 0));

    let ecn = look(keeps(), v4(|ip| ip[1] &= !3));
    let cleared = "ECT(1) → Not-ECT, ECT(0) → Not-ECT, CE → Not-ECT";
    ecn.only(0, "ECN", ["costs", "as sent", cleared]);

    let id = |ip: &mut [u8]| ip[4] ^= 0x55;
    look(v4(id), keeps()).only(1, "IPv4 identification", ["FAILS", "rewritten", "as sent"]);
    let with_df = v4(|ip| {
        if ip[6] & 0x40 != 0 {
            ip[4..6].fill(0)
        }
    });
    look(keeps(), with_df).only(
        1,
        "IPv4 identification",
        ["FAILS", "as sent", "rewritten with DF"],
    );

    let bit = "set without DF → cleared without DF, set with DF → cleared with DF";
    let reserved = look(keeps(), v4(|ip| ip[6] &= 0x7f));
    reserved.only(0, "reserved bit", ["costs", "as sent", bit]);
    let evil: Fault = Box::new(|frame| !is_v4_udp(frame) || frame[L3 + 6] & 0x80 == 0);
    let lost = "set without DF → lost, set with DF → lost";
    look(evil, keeps()).only(0, "reserved bit", ["costs", lost, "–"]);

    let short = |most: usize| -> Fault { Box::new(move |frame| frame.len() - L3 <= most) };
    look(short(1437), keeps()).only(1, "MTU", ["FAILS", "1437 of 1500", "1437 or more"]);
    look(keeps(), short(1400)).only(1, "MTU", ["FAILS", "1500", "1400 of 1500"]);

    let firewall: Fault = Box::new(|frame| !is_v4_udp(frame) || port(frame, 2) != 7001);
    look(firewall, keeps()).only(1, "control port", ["FAILS", "no answer", "–"]);
    // Half of what equal paths carry, by the source port.
    let odd: Fault = Box::new(|frame| {
        if is_v4_udp(frame) && port(frame, 0) != 7001 {
            let _ = v4(|ip| ip[1] &= 3)(frame);
        }
        true
    });
    let paths = look(odd, keeps());
    assert!(paths.row("DSCP")[1].starts_with("1 → 0 on 3 of 4 ways"), "{:?}", paths.row("DSCP"));
}

#[test]
fn keys_ports_and_families_are_told_apart() {
    let world = World::new("keys");
    let (config, there) = (world.config("a"), world.config("b"));
    // Nothing listens.
    let silent = world.verify([keeps(), keeps()], &["10.99.0.2"]);
    silent.only(1, "control port", ["FAILS", "arrives, and nothing listens", "–"]);
    {
        world.configure("b", "ffffffffffffffffffffffffffffffff");
        let _server = world.serve(&["--config", &there]);
        let keys = world.verify([keeps(), keeps()], &["--config", &config]);
        let refused = "refused: the tag is wrong";
        keys.only(1, "keys and versions", ["FAILS", refused, refused]);
    }
    let _v4 = world.serve(&["10.99.0.2"]);
    let unkeyed = world.verify([keeps(), keeps()], &["--config", &config]);
    unkeyed.only(1, "keys and versions", ["unknown", "not compared", "not compared"]);

    // A tunnel's packets have their own treatment.
    let tunnel: Fault = Box::new(|frame| {
        if is_v4_udp(frame) && port(frame, 2) == 4789 {
            let _ = v4(|ip| ip[1] &= 3)(frame);
        }
        true
    });
    let outer = world.verify([keeps(), tunnel], &["10.99.0.2", "--outer", "4789"]);
    assert_eq!(outer.row("DSCP, to port 4789")[1], "all 64 as sent");
    assert!(outer.row("DSCP, to port 4789")[2].ends_with("and 59 more"));
    assert_eq!(outer.row("DSCP"), ["fine", "all 64 as sent", "all 64 as sent"]);
    assert_eq!(outer.others(), ["keys and versions", "DSCP, to port 4789"]);

    let _v6 = world.serve(&["[fd99::2]:7001"]);
    let class: Fault = Box::new(|frame| {
        if frame[12..14] == [0x86, 0xdd] && frame[L3 + 6] == 17 {
            frame[L3] &= 0xf0;
            frame[L3 + 1] &= 0x3f;
        }
        true
    });
    let v6 = world.verify([class, keeps()], &["fd99::2"]);
    assert!(v6.row("DSCP")[1].starts_with("1 → 0, 2 → 0"), "{:?}", v6.row("DSCP"));
    assert_eq!((v6.row("DSCP")[2], v6.row("MTU")), ("all 64 as sent", ["fine", "1500", "1500"]));
    assert_eq!((v6.others(), v6.status), (vec!["keys and versions", "DSCP"], 0));
}

/// Lets so many frames of streams per second pass.
fn policer(per_second: f64) -> Fault {
    let (mut credit, mut at) = (5.0, Instant::now());
    Box::new(move |frame| {
        if frame.len() < 1000 || !is_v4_udp(frame) {
            return true;
        }
        let now = Instant::now();
        credit = (credit + (now - at).as_secs_f64() * per_second).min(5.0);
        at = now;
        let passes = credit >= 1.0;
        credit -= if passes { 1.0 } else { 0.0 };
        passes
    })
}

/// Whether it is a question about a stream that runs, or the answer.
fn is_about_a_stream(frame: &[u8]) -> bool {
    const STREAM: u8 = 10;
    let note = frame.get(L4 + 8..).filter(|_| is_v4_udp(frame)).unwrap_or_default();
    note.starts_with(b"weir-vfy") && note.get(9) == Some(&STREAM)
}

#[test]
fn a_rate_is_carried_or_not_in_each_direction() {
    let world = World::new("rate");
    let server = world.serve(&["10.99.0.2"]);
    let arguments = ["10.99.0.2", "--rate", "10Mbit", "--time", "1s"];
    // What a busy machine sends too slowly proves nothing.
    let is_carried = |text: &str| text.ends_with(" 0 % lost") || text.contains("were sent");
    let whole = world.verify([keeps(), keeps()], &arguments);
    let [_, there, back] = whole.row("floors of 10 Mb/s");
    assert!(is_carried(there) && is_carried(back), "{there}; {back}");
    // 400 of 826 frames per second.
    let half = world.verify([policer(400.0), keeps()], &arguments);
    let [state, there, back] = half.row("floors of 10 Mb/s");
    assert_eq!((state, half.status), ("FAILS", 1));
    assert!(there.contains(" % lost") && !is_carried(there) && is_carried(back), "{there}; {back}");
    let half = world.verify([keeps(), policer(400.0)], &arguments);
    let [state, there, back] = half.row("floors of 10 Mb/s");
    assert_eq!(state, "FAILS");
    assert!(is_carried(there) && !is_carried(back), "{there}; {back}");

    // Questions while a stream runs are few, and an answer that comes late is taken for no other's.
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let counts: Fault = Box::new(move |frame| {
        counter.fetch_add(u32::from(is_about_a_stream(frame)), Ordering::Relaxed);
        true
    });
    let mut held = Vec::new();
    let late: Fault = Box::new(move |frame| {
        if is_about_a_stream(frame) {
            std::mem::swap(frame, &mut held);
        }
        !frame.is_empty()
    });
    let late = world.verify([counts, late], &arguments);
    let [_, there, back] = late.row("floors of 10 Mb/s");
    assert!(is_carried(there) && is_carried(back), "{there}; {back}");
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked < 100, "{asked} questions in two streams of a second");

    // Ctrl-C ends both sides, the server also in a stream.
    let mut prober = world.weir("a", &["10.99.0.2", "--rate", "10Mbit", "--time", "30s"]);
    let mut prober =
        prober.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    let said = BufReader::new(prober.stderr.take().expect("piped"));
    let streams = said.lines().map_while(Result::ok).any(|line| line.ends_with("10 Mb/s there"));
    assert!(streams, "it says what it does");
    interrupt(&prober);
    interrupt(&server.0);
    assert_eq!(ended(&mut prober), Some(130));
    let mut server = server;
    assert_eq!(ended(&mut server.0), Some(0));
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

/// Its exit status, if it ends within five seconds.
fn ended(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    None
}
