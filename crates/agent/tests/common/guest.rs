//! VMs beside the first of a host, that come and go.

use super::{Agent, FLOOR, World, pause, send, sh, until};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use weir_model::status::Top;

/// VM `c` or another one: its namespace `vm3`, and its port `port3` on a host; removed when
/// dropped.
pub(crate) struct Guest<'a> {
    world: &'a World,
    host: String,
    n: u8,
}

impl<'a> Guest<'a> {
    pub(crate) fn new(world: &'a World, host: u32) -> Self {
        Self::with(world, host, 3, "", |_| {})
    }

    /// Its port gets what `ip link add` is told beside the name, and `first` is done to the device
    /// before it has the port's name.
    pub(crate) fn with(
        world: &'a World,
        host: u32,
        n: u8,
        more: &str,
        first: impl FnOnce(&str),
    ) -> Self {
        let (vm, host) = (format!("vm{n}"), format!("host{host}"));
        let guest = Self { world, host, n };
        sh(&format!("ip netns add {}", world.ns(&vm)));
        let (there, peer) = (world.ns(&guest.host), world.ns(&vm));
        sh(&format!(
            "ip -n {there} link add name new{n} {more} type veth peer name eth0 netns {peer}"
        ));
        world.ip(&vm, &format!("addr add 10.0.0.{n}/24 dev eth0"));
        world.ip(&vm, "link set dev eth0 up");
        first(&format!("new{n}"));
        world.ip(&guest.host, &format!("link set dev new{n} name port{n}"));
        world.ip(&guest.host, &format!("link set dev port{n} master br"));
        world.ip(&guest.host, &format!("link set dev port{n} up"));
        guest
    }

    /// Without telling any agent.
    pub(crate) fn dies(self) {}
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let (vm, port) = (self.world.ns(&format!("vm{}", self.n)), format!("port{}", self.n));
        let _ = Command::new("ip").args(["netns", "del", &vm]).status();
        // Namespaces are taken down some time after they are deleted.
        for _ in 0..500 {
            if !self.world.ip(&self.host, "-o link show").contains(&port) {
                return;
            }
            pause(10);
        }
    }
}

pub(crate) const C_HERE: &str =
    "  - {name: c, id: 2, tenant: t, host: host1, addresses: [10.0.0.3]}\n";

/// Adds `c` to the directory and to host 1's VMs.
pub(crate) fn add_c(world: &World) {
    add(world, "c", 3, C_HERE);
}

/// The same for `d`, whose port is `port4`.
pub(crate) fn add_d(world: &World) {
    let here = "  - {name: d, id: 3, tenant: t, host: host1, addresses: [10.0.0.4]}\n";
    add(world, "d", 4, here);
}

fn add(world: &World, name: &str, n: u8, here: &str) {
    let (directory, config) = (world.dir.join("directory.yaml"), world.dir.join("host1.toml"));
    let text = fs::read_to_string(&directory).unwrap() + here;
    fs::write(&directory, text).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let vm = format!(
        "[[vm]]\nname = \"{name}\"\nport = \"port{n}\"\nfloor_out = \"{FLOOR}Mbit\"\nfloor_in = \
         \"{FLOOR}Mbit\"\n"
    );
    fs::write(&config, text + &vm).unwrap();
}

/// What [`add_c`] added is taken away.
pub(crate) fn remove_c(world: &World) {
    let (directory, config) = (world.dir.join("directory.yaml"), world.dir.join("host1.toml"));
    let text = fs::read_to_string(&directory).unwrap().replace(C_HERE, "");
    fs::write(&directory, text).unwrap();
    let text = fs::read_to_string(&config).unwrap();
    let (before, _) = text.split_once("[[vm]]\nname = \"c\"").expect("it was added");
    fs::write(&config, before).unwrap();
}

pub(crate) fn counter(agent: &Agent<'_>, name: &str) -> u64 {
    counter_of(&agent.top(), name)
}

fn counter_of(top: &Top, name: &str) -> u64 {
    top.counters.iter().find(|(n, _)| n == name).expect("a counter").1
}

fn reloads(top: &Top) -> u64 {
    counter_of(top, "agent.reloads") + counter_of(top, "agent.reload_failures")
}

/// SIGHUP, and waits until it was seen to.
pub(crate) fn reload(agent: &Agent<'_>) {
    let before = reloads(&agent.top());
    send(agent.pid(), Signal::HUP);
    // One that has much to read may not answer meanwhile.
    until("the reload", 5, || agent.try_top().is_ok_and(|top| reloads(&top) > before));
}

/// What happens while the agent does not look, `signal` with it.
pub(crate) fn unseen<T>(agent: &Agent<'_>, signal: Option<Signal>, f: impl FnOnce() -> T) -> T {
    send(agent.pid(), Signal::STOP);
    let result = f();
    signal.into_iter().for_each(|signal| send(agent.pid(), signal));
    send(agent.pid(), Signal::CONT);
    result
}
