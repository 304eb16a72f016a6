//! What the programs cost per packet by test run, with tables of so many pairs: by the same pair
//! again and again, and by another pair with each packet, which finds nothing in the CPU's caches
//! that the number of pairs pushes out.

use crate::{Result, median};
use std::net::{IpAddr, Ipv4Addr};
use weir_dataplane::eyeq::{self, intf as eq};
use weir_dataplane::intf;
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};

const PAIRS: [u32; 5] = [1, 10, 100, 1_000, 10_000];
const LOOPBACK: u32 = 1;
const AGAIN: u32 = 100_000;
const RUNS: usize = 7;
/// Packets of other pairs, one after the other.
const IN_TURN: u32 = 20_000;
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// VM `n` is at this address; VM 0 is the host's.
fn address(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)) + n)
}

fn frame(from: u32, to: u32) -> Vec<u8> {
    let mut octets = vec![0; 1514];
    octets[12..14].copy_from_slice(&[8, 0]);
    octets[14] = 0x45;
    octets[16..18].copy_from_slice(&1500u16.to_be_bytes());
    octets[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
    octets[26..30].copy_from_slice(&address(from).octets());
    octets[30..34].copy_from_slice(&address(to).octets());
    octets
}

fn endpoint(n: u32) -> intf::Endpoint {
    intf::Endpoint {
        vm: n,
        tenant: 1,
        flags: if n == 0 { intf::LOCAL } else { 0 },
        ..intf::Endpoint::default()
    }
}

/// As large as for the most pairs, whatever their number: what grows is what is in it.
fn sizes() -> (u32, u32) {
    let most = PAIRS.into_iter().max().unwrap_or(1);
    (most, 2 * most)
}

fn sending(pairs: u32) -> Result<Programs> {
    let (most, endpoints) = sizes();
    let sizes = Sizes { pairs: most, endpoints, nodes: intf::NODES, queues: 1, hosts: 1 };
    let programs = Programs::load(sizes, None)?;
    let port = intf::Port { tenant: 1, max_pairs: most, ..intf::Port::default() };
    programs.ports.put(LOOPBACK, port)?;
    programs.set(intf::Settings { reorder_ns: 1_000_000, ..intf::Settings::default() })?;
    let levels = programs.levels()?;
    // A host has this many classes; beyond, pairs share them.
    let classes = 4096;
    let rate = 10_000_000_000_000;
    for node in 0..classes.min(pairs) {
        let level = intf::Level {
            floor: rate,
            ceiling: rate,
            fallback: rate,
            limit_ns: 250_000_000,
            limit: 128 * 1024,
            parent: 0,
            ahead: 0,
        };
        levels.put((intf::FIRST_PAIR + node) as usize, level);
    }
    for n in 0..=pairs {
        programs.endpoints.put(IpAddr::from(address(n)).into(), endpoint(n))?;
        if n > 0 {
            let pair = intf::Pair { src: 0, dst: n };
            programs.tx.put(pair, intf::Tx::default())?;
            programs.classes.put(pair, 0x1_4000 + (n - 1) % classes)?;
        }
    }
    Ok(programs)
}

fn receiving(pairs: u32) -> Result<eyeq::Programs> {
    let (most, endpoints) = sizes();
    let programs = eyeq::Programs::load(eyeq::Sizes { pairs: most, endpoints, hosts: 64 })?;
    programs.ports.put(LOOPBACK, intf::Port { tenant: 1, ..intf::Port::default() })?;
    for n in 0..=pairs {
        programs.endpoints.put(IpAddr::from(address(n)).into(), endpoint(n))?;
        programs.vms.put(n, eq::Vm { host: eq::address(THERE), slot: 0 })?;
    }
    programs.shares.put(0, eq::Share { capacity_bps: 9_000_000_000, floor_bps: 900_000 });
    programs.set(eq::Settings {
        period_ns: 200_000,
        feedback_octets: 0,
        unit_bps: 1_000_000,
        most_units: 10_000,
        alpha: 32_768,
        least_factor: 6_554,
        address: eq::address(HERE),
        ..eq::Settings::default()
    })?;
    Ok(programs)
}

/// Of one pair again and again, and of all in turn.
fn measure(
    name: &str,
    pairs: u32,
    frame: impl Fn(u32) -> Vec<u8>,
    run: impl Fn(&Frame<'_>) -> std::result::Result<Ran, weir_dataplane::Error>,
) -> Result<String> {
    let mut again = Vec::new();
    let one = frame(1);
    for _ in 0..RUNS {
        let ran = run(&Frame { octets: &one, repeat: AGAIN, ..Frame::default() })?;
        again.push(f64::from(ran.nanos));
    }
    let mut in_turn = Vec::new();
    for i in 0..IN_TURN {
        let octets = frame(1 + i % pairs);
        let ran = run(&Frame { octets: &octets, repeat: 1, ..Frame::default() })?;
        in_turn.push(f64::from(ran.nanos));
    }
    let (again, in_turn) = (median(again), median(in_turn));
    println!("{name:<20} {pairs:>7} {again:>8.0} {in_turn:>8.0}");
    Ok(format!(
        "{{\"program\": \"{name}\", \"pairs\": {pairs}, \"again_ns\": {again:.0}, \"in_turn_ns\": \
         {in_turn:.0}}}"
    ))
}

pub(crate) fn costs() -> Result<Vec<String>> {
    println!("\n{:<20} {:>7} {:>8} {:>8}   ns per packet", "program", "pairs", "again", "in turn");
    let mut rows = Vec::new();
    for pairs in PAIRS {
        let programs = sending(pairs)?;
        for program in [Program::Classify, Program::Stamp] {
            let run = |frame: &Frame<'_>| programs.run(program, frame);
            rows.push(measure(program.name(), pairs, |n| frame(0, n), run)?);
        }
        let programs = receiving(pairs)?;
        let run = |program| {
            let programs = &programs;
            move |frame: &Frame<'_>| programs.run(program, frame)
        };
        rows.push(measure("weir_eyeq_meter", pairs, |n| frame(n, 0), run(eyeq::Program::Meter))?);
        rows.push(measure("weir_eyeq_heed", pairs, |n| frame(n, 0), run(eyeq::Program::Heed))?);
    }
    Ok(rows)
}
