//! Connections of guests, and what host 1's file says of their VM.

use super::{World, sh};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Says in host 1's file what anything of its first VM shall be; nothing by silence.
pub(crate) fn say(world: &World, what: &str, value: Option<String>) {
    let file = world.dir.join("host1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with(&format!("{what} =")));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    let at = lines.iter().position(|line| line == "port = \"port\"").expect("a VM") + 1;
    lines.splice(at..at, value.map(|value| format!("{what} = {value}")));
    fs::write(&file, lines.join("\n") + "\n").unwrap();
}

/// Both ends of a connection from a VM to VM 2.
pub(crate) fn connect_from(world: &World, vm: &str, port: u16) -> (TcpStream, TcpStream) {
    let listener = world.inside("vm2", || TcpListener::bind(("10.0.0.2", port)).unwrap());
    let from = world.inside(vm, || TcpStream::connect(("10.0.0.2", port)).unwrap());
    (from, listener.accept().unwrap().0)
}

/// Sends so much that every window shown before is used up.
pub(crate) fn speak((from, to): &(TcpStream, TcpStream)) {
    let mut from = from.try_clone().unwrap();
    let mut to = to.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || from.write_all(&[7; 400_000]).unwrap());
        let mut octets = vec![0; 400_000];
        to.read_exact(&mut octets).unwrap();
        assert_eq!(octets, [7; 400_000]);
    });
}

/// The window that a guest has been shown on its connection to this port.
pub(crate) fn window_of(world: &World, vm: &str, port: u16) -> u32 {
    let vm = world.ns(vm);
    let text = sh(&format!("ip netns exec {vm} ss -tinH dport = :{port}"));
    let words = text.split_whitespace().find_map(|word| word.strip_prefix("snd_wnd:"));
    words.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("a window in {text}"))
}
