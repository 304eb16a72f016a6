//! What each BPF program costs per packet, by test run: `cargo run --release --example bpf_cost`.
//! As root. Prints the median and the extremes of several runs, in nanoseconds.

use weir_dataplane::eyeq::{self, intf as eq};
use weir_dataplane::intf;
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};
use weir_dataplane::vcc;

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

/// A host with VM 1 on the loopback, and tables as full as on a busy host. All pairs have one
/// `class`.
fn host(queues: u32, class: u32) -> Result<Programs, Box<dyn std::error::Error>> {
    let sizes = Sizes { pairs: 1024, endpoints: 1024, nodes: intf::NODES, queues, hosts: 1 };
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
        let endpoint =
            intf::Endpoint { vm: n.into(), tenant: 1, flags, ..intf::Endpoint::default() };
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

/// A host with pairs in a class of HTB in which no packet waits. A run sends a packet every 0.3 µs,
/// which fills every queue that has a limit in time. So it has no room: then a packet is let in and
/// does not count as waiting.
fn shaping() -> Result<Programs, Box<dyn std::error::Error>> {
    let programs = host(1, 0x1_4000)?;
    programs.levels()?.put(FIRST, intf::Level { limit: 0, ..level(0) });
    Ok(programs)
}

/// A host that gives departure times, at rates at which no packet waits.
fn departing() -> Result<Programs, Box<dyn std::error::Error>> {
    let programs = host(intf::NODES, 0x1_1000)?;
    let levels = programs.levels()?;
    for (node, parent) in [(1, 0), (1024, 1), (4096, 1024)] {
        levels.put(node, level(parent));
    }
    Ok(programs)
}

/// Bit/s. A class that is faster has no limit in time.
const GIGABIT: u64 = 1_000_000_000;

fn level(parent: u64) -> intf::Level {
    let rate = 10_000_000_000_000;
    let (limit_ns, limit) = (250_000_000, 128 * 1024);
    intf::Level { floor: rate, ceiling: rate, fallback: rate, limit_ns, limit, parent, ahead: 0 }
}

/// Runs a program on frames of one kind and prints what one of them costs.
fn measure(
    name: &str,
    programs: &Programs,
    program: Program,
    frame: &Frame<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    print(name, RUNS, || programs.run(program, frame))
}

/// Prints the median and the extremes of so many runs.
fn print(
    name: &str,
    runs: usize,
    mut run: impl FnMut() -> Result<Ran, weir_dataplane::Error>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut nanos = Vec::new();
    for _ in 0..runs {
        nanos.push(run()?.nanos);
    }
    nanos.sort_unstable();
    let (median, min, max) = (nanos[runs / 2], nanos[0], nanos[runs - 1]);
    println!("{name:<40} {median:>8} {min:>8} {max:>8}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let programs = shaping()?;
    println!("{:<40} {:>8} {:>8} {:>8}   ns per packet", "program", "median", "min", "max");
    let plain = Program::ALL.map(|program| (program, 0, ""));
    let with_ecn = [Program::Stamp, Program::Meter].map(|p| (p, intf::ECN, " with ECN"));
    for (program, flags, how) in plain.into_iter().chain(with_ecn) {
        programs.set(intf::Settings {
            reorder_ns: 1_000_000,
            flags,
            ..intf::Settings::default()
        })?;
        let octets = match program {
            Program::Classify | Program::Stamp => frame(1, 2),
            Program::Meter | Program::EyeQ(_) | Program::Vcc(_) => frame(2, 1),
        };
        let frame = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
        measure(&format!("{}{how}", program.name()), &programs, program, &frame)?;
    }
    let octets = frame(1, 2);
    // By its addresses: what a run changes, the next one finds, and so the class would be gone.
    let frame = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
    programs.levels()?.put(FIRST, intf::Level { limit_ns: 0, ..level(0) });
    measure("weir_classify, fast", &programs, Program::Classify, &frame)?;
    programs.levels()?.put(FIRST, intf::Level { ceiling: GIGABIT, floor: GIGABIT, ..level(0) });
    measure("weir_classify, full queue", &programs, Program::Classify, &frame)?;
    measure("weir_stamp, departing", &departing()?, Program::Stamp, &frame)?;
    tag_costs()?;
    eyeq_costs()
}

/// What tags cost. A run changes the octets that the next one finds, so what writes is measured one
/// run at a time, beside what does not: the difference counts.
fn tag_costs() -> Result<(), Box<dyn std::error::Error>> {
    const TAG: u8 = 10;
    let programs = shaping()?;
    let tagged = |mut octets: Vec<u8>| {
        octets[15] = TAG << 2;
        octets[24..26].fill(0);
        let sum: u32 =
            octets[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        octets[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        octets
    };
    for (code_points, how) in [(0, "no tags"), (1 << TAG, "tags")] {
        programs.set(intf::Settings {
            reorder_ns: 1_000_000,
            code_points,
            ..intf::Settings::default()
        })?;
        programs.tenant_tags.put(1, TAG.into())?;
        for (program, octets, what) in [
            (Program::Classify, frame(1, 2), "plain"),
            (Program::Classify, tagged(frame(1, 2)), "has the tag"),
            (Program::Meter, frame(2, 1), "plain"),
            (Program::Meter, tagged(frame(2, 1)), "has the tag"),
        ] {
            let frame = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
            let name = format!("{}, {how}, {what}", program.name());
            measure(&name, &programs, program, &frame)?;
            let frame = Frame { repeat: 1, ..frame };
            print(&format!("{name}, once"), 2_001, || programs.run(program, &frame))?;
        }
    }
    Ok(())
}

/// A host with EyeQ's meter for VM 1 on the loopback, and tables as full as above. All VMs are on
/// one other host.
fn metering() -> Result<eyeq::Programs, Box<dyn std::error::Error>> {
    let programs = eyeq::Programs::load(eyeq::Sizes { pairs: 1024, endpoints: 1024, hosts: 64 })?;
    let port = intf::Port { vm: 1, tenant: 1, ..intf::Port::default() };
    programs.ports.put(LOOPBACK, port)?;
    for n in 1..=VMS {
        let address = std::net::IpAddr::from([10, 0, 0, n]);
        let flags = if n == 1 { intf::LOCAL } else { 0 };
        let endpoint =
            intf::Endpoint { vm: n.into(), tenant: 1, flags, ..intf::Endpoint::default() };
        programs.endpoints.put(address.into(), endpoint)?;
        programs.vms.put(n.into(), eq::Vm { host: eq::address(THERE), slot: 0 })?;
    }
    programs.mouths.put(eq::address(THERE), eq::Mouth::new(0, [1, 2]))?;
    let voice = eq::Voice { address: eq::address(THERE), key_id: 0 };
    programs.ears.put(voice, eq::Ear::new([1, 2]))?;
    programs.shares.put(0, eq::Share { capacity_bps: 9_000_000_000, floor_bps: 900_000 });
    Ok(programs)
}

const THERE: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 2);
const HERE: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 2, 1);

/// EyeQ's programs, on full frames but for the messages.
fn eyeq_costs() -> Result<(), Box<dyn std::error::Error>> {
    let programs = metering()?;
    let set = eq::Settings {
        period_ns: 200_000,
        feedback_octets: 0,
        unit_bps: 1_000_000,
        most_units: 10_000,
        alpha: 32_768,
        least_factor: 6_554,
        address: eq::address(HERE),
        ..eq::Settings::default()
    };
    let octets = frame(2, 1);
    let data = Frame { octets: &octets, repeat: REPEAT, ..Frame::default() };
    programs.set(set)?;
    print("weir_eyeq_meter", RUNS, || programs.run(eyeq::Program::Meter, &data))?;
    // Shorter than what a run takes, and long enough for the law: every packet closes a period or
    // two.
    programs.set(eq::Settings { period_ns: 256, ..set })?;
    print("weir_eyeq_meter, a step", RUNS, || programs.run(eyeq::Program::Meter, &data))?;
    programs.set(set)?;
    print("weir_eyeq_tell, no clone", RUNS, || programs.run(eyeq::Program::Tell, &data))?;
    // A clone is one but once: so a run at a time, with what a call costs.
    let clone = Frame { mark: eq::CLONE_MARK, repeat: 1, ..data.clone() };
    print("weir_eyeq_tell, once", 2_001, || programs.run(eyeq::Program::Tell, &clone))?;
    let other = Frame { repeat: 1, ..data.clone() };
    print("  beside, no clone once", 2_001, || programs.run(eyeq::Program::Tell, &other))?;
    print("weir_eyeq_heed, other", RUNS, || programs.run(eyeq::Program::Heed, &data))?;
    // All but the first are heard before, or forged: the tag is computed for each.
    let mut message = frame(2, 1)[..60].to_vec();
    message[16..18].copy_from_slice(&46u16.to_be_bytes());
    message[23] = eq::PROTOCOL;
    message[26..30].copy_from_slice(&THERE.octets());
    message[30..34].copy_from_slice(&HERE.octets());
    message[34] = 1;
    let message = Frame { octets: &message, repeat: REPEAT, ..Frame::default() };
    print("weir_eyeq_heed, forged", RUNS, || programs.run(eyeq::Program::Heed, &message))?;
    vcc_costs()
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;

/// A SYN's options: the largest segment and a window scale.
const OF_SYN: [u8; 12] = [2, 4, 5, 180, 1, 3, 3, 8, 1, 1, 1, 1];
/// Those of all other segments: timestamps, as Linux writes them.
const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1];

/// A TCP segment from VM 1 to 10.0.0.2, or back; without a checksum, which nothing reads here.
fn segment(program: vcc::Program, flags: u8, (seq, ack): (u32, u32), payload: u16) -> Vec<u8> {
    let (src, dst, ports) = match program {
        vcc::Program::From => (1, 2, [40_000u16, 80]),
        vcc::Program::To => (2, 1, [80, 40_000]),
    };
    let mut octets = frame(src, dst);
    octets[16..18].copy_from_slice(&(52 + payload).to_be_bytes());
    octets[23] = 6;
    let ports = ports.into_iter().flat_map(u16::to_be_bytes);
    let numbers = [seq, ack].into_iter().flat_map(u32::to_be_bytes);
    let rest = [0x80, flags, 0xff, 0, 0, 0, 0, 0];
    let options = if flags & SYN != 0 { OF_SYN } else { STAMPS };
    let header: Vec<u8> = ports.chain(numbers).chain(rest).chain(options).collect();
    octets[34..66].copy_from_slice(&header);
    octets.truncate(66 + usize::from(payload));
    octets
}

/// vCC's programs: one connection of VM 1 that was told of a mark, among as many as a host has.
fn vcc_costs() -> Result<(), Box<dyn std::error::Error>> {
    use vcc::Program::{From, To};
    let udp = frame(1, 2);
    for flows in [1 << 10, 1 << 17] {
        let programs = vcc::Programs::load()?;
        programs.make_table(0, flows)?;
        let table = programs.flows(0)?.ok_or("no table")?;
        programs.ports.put(LOOPBACK, vcc::intf::Port::new(vcc::Law::VirtualEcn, 0))?;
        for n in 0..flows / 2 {
            let [a, b, c, d] = n.to_be_bytes();
            let name = intf::Flow { src_port: [a, b], dst_port: [c, d], ..intf::Flow::default() };
            table.put(name, vcc::intf::State::default())?;
        }
        let handshake = [
            (From, segment(From, SYN, (100, 0), 0)),
            (To, segment(To, SYN | ACK | ECE, (0, 101), 0)),
            (From, segment(From, ACK, (101, 1), 1_400)),
            (From, segment(From, ACK, (1_501, 1), 1_400)),
            (To, segment(To, ACK | ECE, (1, 1_501), 0)),
        ];
        for (program, octets) in &handshake {
            programs.run(*program, &Frame { octets, ..Frame::default() })?;
        }
        let last = [
            ("data", From, segment(From, ACK, (1_501, 1), 1_400)),
            ("acknowledgement", To, segment(To, ACK, (1, 1_501), 0)),
        ];
        for (what, program, octets) in &last {
            let frame = Frame { octets, repeat: REPEAT, ..Frame::default() };
            let name = format!("{}, {what}, {flows}", program.name());
            print(&name, RUNS, || programs.run(*program, &frame))?;
        }
        let unknown = segment(From, ACK, (1, 1), 1_400);
        let mut other = unknown.clone();
        other[34] = 1;
        let frame = Frame { octets: &other, repeat: REPEAT, ..Frame::default() };
        let name = format!("weir_vcc_from, unknown, {flows}");
        print(&name, RUNS, || programs.run(From, &frame))?;
        let frame = Frame { octets: &udp, repeat: REPEAT, ..Frame::default() };
        print(&format!("weir_vcc_from, UDP, {flows}"), RUNS, || programs.run(From, &frame))?;
    }
    Ok(())
}
