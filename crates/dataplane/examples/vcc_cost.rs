//! What vCC costs connections and hosts: `cargo run --release --example vcc_cost`. As root.
//!
//! Approach  The tests' world of two guests behind bridges, whose ports translate and do not, in
//!           turn: throughput of one connection with super-packets and without, and the time of a
//!           request of one octet. What counts is the median of the ratios, or differences, of
//!           plays that follow each other: a shared machine is slower at one minute than at
//!           another. Beside that, what a table of 100,000 connections takes.
//! Not here  Time per packet of each program: see `bpf_cost`.
#![allow(unsafe_code, clippy::disallowed_methods, dead_code)]

#[path = "../tests/common/net.rs"]
mod net;
#[path = "../tests/common/offload.rs"]
mod offload;
#[path = "../tests/common/translated.rs"]
mod translated;

use net::World;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use translated::Translated;
use weir_dataplane::intf::Flow;
use weir_dataplane::vcc::intf::State;
use weir_dataplane::vcc::{Law, Programs};

/// Pairs of plays.
const PAIRS: usize = 15;
/// How long one play of throughput lasts, once its window has grown.
const LASTS: Duration = Duration::from_millis(500);
const GROWS: Duration = Duration::from_millis(200);
/// Requests in one play.
const REQUESTS: usize = 10_000;
const FLOWS: u32 = 100_000;

/// Bits per second from VM 1 to VM 2.
fn throughput((mut from, mut to): (TcpStream, TcpStream)) -> f64 {
    let reading = std::thread::spawn(move || {
        let (mut chunk, mut octets, began) = (vec![0; 1 << 18], 0, Instant::now());
        let mut since = None;
        while let Ok(n @ 1..) = to.read(&mut chunk) {
            match since {
                Some(_) => octets += n,
                None if began.elapsed() > GROWS => since = Some(Instant::now()),
                None => {}
            }
        }
        octets as f64 * 8.0 / since.map_or(f64::MAX, |since| since.elapsed().as_secs_f64())
    });
    let (chunk, began) = (vec![0; 1 << 18], Instant::now());
    while began.elapsed() < GROWS + LASTS {
        from.write_all(&chunk).expect("the connection stands");
    }
    drop(from);
    reading.join().expect("it reads to the end")
}

/// The median time of a request and its answer, of one octet each, in microseconds.
fn round_trip((mut from, mut to): (TcpStream, TcpStream)) -> f64 {
    for end in [&from, &to] {
        end.set_nodelay(true).expect("it is TCP");
    }
    let answering = std::thread::spawn(move || {
        let mut octet = [0];
        while let Ok(1) = to.read(&mut octet) {
            to.write_all(&octet).expect("the connection stands");
        }
    });
    let mut octet = [0];
    let mut one = |_| {
        let began = Instant::now();
        from.write_all(&octet).expect("the connection stands");
        from.read_exact(&mut octet).expect("an answer");
        began.elapsed().as_secs_f64() * 1e6
    };
    let took: Vec<f64> = (0..REQUESTS).map(&mut one).collect();
    drop(from);
    answering.join().expect("it ends with the connection");
    spread(took)[1]
}

/// The lower quartile, the median and the upper one.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Plays of `one` without translation and with it, in turn.
fn pairs(
    world: &World,
    ports: &[Translated],
    one: fn((TcpStream, TcpStream)) -> f64,
) -> Vec<[f64; 2]> {
    let pair = |pair: usize| {
        let mut got = [0.0; 2];
        // The first is second in the next pair.
        for turn in [pair % 2, 1 - pair % 2] {
            let set = |port: &Translated| {
                if turn == 1 { port.set(Law::VirtualEcn) } else { port.unset() }
            };
            ports.iter().for_each(set);
            got[turn] = one(world.tcp_at(9_000 + (2 * pair + turn) as u16));
        }
        got
    };
    (0..PAIRS).map(pair).collect()
}

/// What the kernel says that this process's only table of so many connections takes, octets.
fn memory() -> Result<u64, Box<dyn std::error::Error>> {
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        // The descriptor of the directory itself is gone by now.
        let Ok(text) = std::fs::read_to_string(entry?.path()) else { continue };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        if field("max_entries:") == Some(FLOWS.into())
            && let Some(octets) = field("memlock:")
        {
            return Ok(octets);
        }
    }
    Err("no table of this process is in /proc/self/fdinfo".into())
}

fn table() -> Result<(), Box<dyn std::error::Error>> {
    let programs = Programs::load()?;
    programs.make_table(0, FLOWS)?;
    let mut table = programs.flows(0)?.ok_or("no table")?;
    for n in 0..FLOWS {
        let [a, b, c, d] = n.to_be_bytes();
        let name = Flow { src_port: [a, b], dst_port: [c, d], ..Flow::default() };
        table.put(name, State::default())?;
    }
    let octets = memory()?;
    let kept = table.read()?.count();
    let each = octets / u64::from(FLOWS);
    println!("a table of {FLOWS} connections, {kept} in it: {octets} octets, {each} each");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    table()?;
    let world = World::new();
    let ports = ["host1", "host2"].map(|host| Translated::load(&world, host));
    let print = |what: &str, of: fn([f64; 2]) -> f64, got: Vec<[f64; 2]>| {
        let [low, middle, high] = spread(got.iter().map(|pair| of(*pair)).collect());
        let [without, with] = [0, 1].map(|n| spread(got.iter().map(|pair| pair[n]).collect())[1]);
        println!("{what:<48} {middle:>8.3} {low:>8.3} {high:>8.3} {without:>9.2} {with:>9.2}");
    };
    println!(
        "{:<48} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "", "median", "25 %", "75 %", "without", "with"
    );
    let ratio = |[without, with]: [f64; 2]| with / without;
    let gigabits = |ports: &[Translated]| {
        let got = pairs(&world, ports, throughput);
        got.into_iter().map(|pair| pair.map(|bps| bps / 1e9)).collect()
    };
    // In this world one machine is both hosts.
    print("with / without, Gb/s, the sender's host alone", ratio, gigabits(&ports[..1]));
    print("with / without, Gb/s, both hosts", ratio, gigabits(&ports));
    print("added to a round trip, us, both", |[a, b]| b - a, pairs(&world, &ports, round_trip));
    // The guest's stack cuts before its port.
    offload::offload(&world, "vm1", "eth0", offload::TSO, false);
    print("packets of an MTU, the sender's host alone", ratio, gigabits(&ports[..1]));
    print("packets of an MTU, both hosts", ratio, gigabits(&ports));
    let edited = ports.iter().map(|port| port.counters().edited).sum::<u64>();
    if edited == 0 {
        return Err("nothing was translated: the numbers above mean nothing".into());
    }
    Ok(())
}
