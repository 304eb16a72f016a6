//! What each BPF program costs per packet, by test run: `cargo run --release --example bpf_cost`.
//! As root. Prints the median and the extremes of several runs, in nanoseconds.

use weir_dataplane::intf;
use weir_dataplane::programs::{Frame, Program, Programs, Sizes};

const RUNS: usize = 11;
const REPEAT: u32 = 200_000;
const LOOPBACK: u32 = 1;
const VMS: u8 = 200;

/// A UDP packet of 1514 octets from 10.0.0.`src` to 10.0.0.`dst`.
fn frame(src: u8, dst: u8) -> Vec<u8> {
    let mut octets = vec![0; 1514];
    octets[12..14].copy_from_slice(&[8, 0]);
    octets[14] = 0x45;
    octets[16..18].copy_from_slice(&1500u16.to_be_bytes());
    octets[20..24].copy_from_slice(&[0x40, 0, 64, 17]);
    octets[26..34].copy_from_slice(&[10, 0, 0, src, 10, 0, 0, dst]);
    octets
}

/// A host with VM 1 on the loopback, and tables as full as on a busy host. All pairs have one `class`.
fn host(queues: u32, class: u32) -> Result<Programs, Box<dyn std::error::Error>> {
    let sizes = Sizes { pairs: 1024, endpoints: 1024, nodes: intf::NODES, queues };
    let programs = Programs::load(sizes, None)?;
    let port = intf::Port {
        vm: 1,
        tenant: 1,
        default_class: 0x1_0001,
        max_pairs: 512,
        ..intf::Port::default()
    };
    programs.ports.put(LOOPBACK, port)?;
    for n in 1..=VMS {
        let address = std::net::IpAddr::from([10, 0, 0, n]);
        let flags = if n == 1 { intf::LOCAL } else { 0 };
        let endpoint = intf::Endpoint { vm: n.into(), tenant: 1, flags };
        programs.endpoints.put(address.into(), endpoint)?;
        let pair = intf::Pair { src: 1, dst: n.into() };
        programs.tx.put(pair, intf::Tx::default())?;
        programs.classes.put(pair, class)?;
        programs.rx.put(intf::Pair { src: n.into(), dst: 1 }, intf::Rx::default())?;
    }
    Ok(programs)
}

/// The node of the pairs' class.
const FIRST: usize = intf::FIRST_PAIR as usize;

/// A host whose pairs have a class of HTB's, at a rate that keeps nobody waiting.
fn shaping() -> Result<Programs, Box<dyn std::error::Error>> {
    let programs = host(1, 0x1_4000)?;
    programs.levels()?.put(FIRST, level(0));
    Ok(programs)
}

/// A host that gives departure times, at rates that keep nobody waiting.
fn departing() -> Result<Programs, Box<dyn std::error::Error>> {
    let programs = host(intf::NODES, 0x1_1000)?;
    let levels = programs.levels()?;
    for (node, parent) in [(1, 0), (1024, 1), (4096, 1024)] {
        levels.put(node, level(parent));
    }
    Ok(programs)
}

fn level(parent: u64) -> intf::Level {
    let rate = 10_000_000_000_000;
    let (limit_ns, limit) = (250_000_000, 128 * 1024);
    intf::Level { floor: rate, ceiling: rate, fallback: rate, limit_ns, limit, parent }
}

/// Runs a program on frames of one kind and prints what one of them costs.
fn measure(
    name: &str,
    programs: &Programs,
    program: Program,
    frame: &Frame<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut nanos = Vec::new();
    for _ in 0..RUNS {
        nanos.push(programs.run(program, frame)?.nanos);
    }
    nanos.sort_unstable();
    let (median, min, max) = (nanos[RUNS / 2], nanos[0], nanos[RUNS - 1]);
    println!("{name:<22} {median:>8} {min:>8} {max:>8}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let programs = shaping()?;
    println!("{:<22} {:>8} {:>8} {:>8}   ns per packet", "program", "median", "min", "max");
    let plain = Program::ALL.map(|program| (program, 0, ""));
    let with_ecn = [Program::Stamp, Program::Meter].map(|p| (p, intf::ECN, " with ECN"));
    for (program, flags, how) in plain.into_iter().chain(with_ecn) {
        programs.set(intf::Settings { reorder_ns: 1_000_000, flags, spare: 0 })?;
        let octets = match program {
            Program::Classify | Program::Stamp => frame(1, 2),
            Program::Meter => frame(2, 1),
        };
        let frame = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
        measure(&format!("{}{how}", program.name()), &programs, program, &frame)?;
    }
    let octets = frame(1, 2);
    // By its addresses: what a run changes, the next one finds, and so the class would be gone.
    let frame = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
    programs.levels()?.put(FIRST, intf::Level { limit_ns: 0, ..level(0) });
    measure("weir_classify, fast", &programs, Program::Classify, &frame)?;
    measure("weir_stamp, departing", &departing()?, Program::Stamp, &frame)
}
