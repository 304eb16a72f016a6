//! EyeQ's two hosts: VMs `a` and `c` on host 1, `b` and `d` on host 2, with floors of 1 : 2; `a`
//! sends to `b`, `c` to `d`, more than they may. And a forger between them.

use super::watch::{LATE, watched};
use super::{Agent, StopAtEnd, World, pause};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::status::Pair;
use weir_units::{HostId, PairId, VmId};
use weir_wire::{FeedbackKey, Incarnation, Key, KeyId, Lives, Told, encode_feedback};

const HOST1: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);
/// What a sender that was held up makes up for: more would be a burst that no queue has room for.
const OWED: Duration = Duration::from_millis(10);

/// What is promised, and how it is kept.
pub(crate) struct Play {
    /// Mbit/s. The receivers' link leaves a tenth as headroom; the senders' host has room for all.
    pub(crate) senders: u64,
    pub(crate) receivers: u64,
    pub(crate) floors: [u64; 2],
    pub(crate) shaper: &'static str,
    /// Constants, beside those that hosts with different links need.
    pub(crate) set: &'static str,
}

impl Play {
    /// What the receivers' host promises, in parts of the floors; bit/s.
    pub(crate) fn shares(&self) -> [f64; 2] {
        let each = 0.9e6 * self.receivers as f64 / self.floors.iter().sum::<u64>() as f64;
        self.floors.map(|floor| each * floor as f64)
    }

    pub(crate) fn configure(&self, world: &World) {
        let at = |name: &str| world.dir.join(name);
        let mut directory = "hosts:\n  - {name: host1, control: '10.255.0.1:7001'}\n  \
                             - {name: host2, control: '10.255.0.2:7001'}\nvms:\n"
            .to_owned();
        let vms = [(1, "a", "t", 1), (2, "b", "t", 2), (3, "c", "u", 1), (4, "d", "u", 2)];
        for (n, name, tenant, host) in vms {
            directory += &format!(
                "  - {{name: {name}, tenant: {tenant}, host: host{host}, addresses: [10.0.0.{n}]}}\n"
            );
        }
        fs::write(at("directory.yaml"), directory).unwrap();
        let Self { senders, receivers, shaper, set, .. } = self;
        for (n, line, vms) in [(1, senders, ["a", "c"]), (2, receivers, ["b", "d"])] {
            let mut text = format!(
                "instance = \"host{n}\"\nhost = \"host{n}\"\nlisten = \"10.255.0.{n}:7001\"\n\
                 key_file = {:?}\ndirectory = {:?}\nrun_dir = {:?}\nbpffs = {:?}\n\
                 uplink = {{ interface = \"up\", rate = \"{line}Mbit\" }}\nshaper = {shaper:?}\n\
                 mechanism = {{ name = \"eyeq\", preset = \"final\", set = {{ {set}feedback_unit = \
                 \"10kbit\", fastest_line = \"{senders}Mbit\" }} }}\n",
                at(&format!("host{n}.keys")),
                at("directory.yaml"),
                at("run"),
                world.bpffs(),
            );
            let ports = ["port".to_owned(), format!("port{}", n + 2)];
            for ((vm, port), floor) in vms.iter().zip(ports).zip(self.floors) {
                text += &format!(
                    "[[vm]]\nname = {vm:?}\nport = {port:?}\nfloor_out = \"{floor}Mbit\"\n\
                     floor_in = \"{floor}Mbit\"\n"
                );
            }
            fs::write(at(&format!("host{n}.toml")), text).unwrap();
        }
    }

    /// Plays `during` while VM 1 sends to VM 2 and VM 3 to VM 4, as much each as the receivers'
    /// link carries; VM 3 not while it is told to be quiet.
    pub(crate) fn busy<T>(&self, world: &World, during: impl FnOnce(&AtomicBool) -> T) -> T {
        // Between two times ten full datagrams.
        let gap = Duration::from_micros(15_140 * 8 / self.receivers);
        let (stop, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
        let _sinks = [world.udp(2), world.udp(4)];
        let senders: [(UdpSocket, &str); 2] =
            [(world.udp(1), "10.0.0.2:9000"), (world.udp(3), "10.0.0.4:9000")];
        std::thread::scope(|scope| {
            for (n, (socket, to)) in senders.iter().enumerate() {
                let (stop, quiet) = (&stop, &quiet);
                scope.spawn(move || {
                    let mut due = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        let is_quiet = n == 1 && quiet.load(Ordering::Relaxed);
                        for _ in 0..if is_quiet { 0 } else { 10 } {
                            let _ = socket.send_to(&[0; 1472], to);
                        }
                        let now = Instant::now();
                        due = (due + gap).max(now - OWED);
                        std::thread::sleep(due.saturating_duration_since(now));
                    }
                });
            }
            let _stop = StopAtEnd(&stop);
            during(&quiet)
        })
    }
}

pub(crate) fn pair(agent: &Agent<'_>, from: &str, to: &str) -> Option<Pair> {
    agent.top().pairs.into_iter().find(|pair| pair.from == from && pair.to == to)
}

/// What two counters of octets gain in three seconds, bit/s.
pub(crate) fn rates(octets: impl Fn() -> [u64; 2]) -> [f64; 2] {
    let (began, before) = (Instant::now(), octets());
    pause(3000);
    let (after, seconds) = (octets(), began.elapsed().as_secs_f64());
    [0, 1].map(|i| (after[i] - before[i]) as f64 * 8.0 / seconds)
}

pub(crate) fn is_near(got: f64, want: f64, slack: f64) -> bool {
    (1.0 - slack..=1.0 + slack).contains(&(got / want))
}

/// These are received, or the first of them if no more are wanted, within a tenth. Three seconds in
/// which a CPU was late say nothing about rates: then three others count, at most twice.
#[track_caller]
pub(crate) fn expect_received(what: &str, wants: &[f64], received: impl Fn() -> [f64; 2]) {
    for attempt in 1.. {
        let (got, late) = watched(&received);
        let said = format!("{what}: {got:.0?}, {wants:.0?} wanted; a CPU was {late:?} late");
        if got.iter().zip(wants).all(|(got, want)| is_near(*got, *want, 0.10)) {
            println!("{said}");
            return;
        }
        assert!(attempt < 3 && late > LATE, "{said}");
        println!("{said}: again");
    }
}

/// From the switch, in the name of host 2: `a` may send one unit to `b`.
pub(crate) fn forge(world: &World) {
    world.ip("switch", "addr add 10.255.0.9/24 dev br");
    let life = |host, n| (HostId(host), Incarnation::new(n).expect("not zero"));
    let lives = Lives { from: life(1, 7), to: life(0, 8) };
    let key = Key::from_hex("ffeeddccbbaa99887766554433221100").expect("a key");
    let key = FeedbackKey::derive(KeyId(0), &key, lives);
    let told = Told { from: HOST2, to: HOST1, pair: PairId::new(VmId(0), VmId(1)), units: 1 };
    world.inside("switch", || {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
            .expect("a raw socket needs root");
        for sequence in 1..=20 {
            let packet = encode_feedback(&told, &key, sequence);
            sendto(&socket, &packet, SendFlags::empty(), &SocketAddrV4::new(HOST1, 0))
                .expect("sent");
        }
    });
}
