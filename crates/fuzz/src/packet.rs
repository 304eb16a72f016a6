//! Packets as a VM can send them, through the BPF programs themselves. Needs root.
//!
//! Approach  The kernel's test run: the first octet of an input chooses the program and what the
//!           kernel says of a super-packet, the rest is the frame.
//! Source    `bpf/classify.bpf.c` says which VM may send what; [`may_pass`] says it again, on its
//!           own.

use crate::Target;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_dataplane::intf::{self, PortCounters};
use weir_dataplane::programs::{Frame, Program, Programs, Sizes};

/// No frame passes that is not the VM's; each is counted once; none but the header's marks change.
pub(crate) const TARGET: Target = Target { name: "packet", run, reaches, words: &[], seeds };

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const DEFAULT: u32 = 0x1_0011;
const CONTROL: u32 = 0x1_0012;
const EXTERNAL: u32 = 0x1_0013;
const UNTOUCHED: u32 = 7;
const PLACES: u32 = 32;
const MINE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const MINE6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const ETHERNET: usize = 14;

thread_local! {
    static PROGRAMS: RefCell<Programs> = RefCell::new(load());
}

/// A host with VM 1 behind the loopback, and VM 2 of the same tenant elsewhere.
fn load() -> Programs {
    let programs =
        Programs::load(Sizes { pairs: 64, endpoints: 64, nodes: 1, queues: 1, hosts: 1 }, None)
            .expect("these programs are loaded by root");
    let port = intf::Port {
        vm: 1,
        tenant: 1,
        slot: 0,
        default_class: DEFAULT,
        control_class: CONTROL,
        flags: 0,
        max_pairs: PLACES,
        external_class: EXTERNAL,
        stray_bps: 0,
        moment: 0,
        mac: [0; 8],
    };
    programs.ports.put(LOOPBACK, port).expect("room for one");
    let directory: [(IpAddr, u32, u32); 4] = [
        (MINE.into(), 1, intf::LOCAL),
        (MINE6.into(), 1, intf::LOCAL),
        (PEER.into(), 2, 0),
        (PEER6.into(), 2, 0),
    ];
    for (address, vm, flags) in directory {
        let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
        programs.endpoints.put(address.into(), endpoint).expect("room for four");
    }
    programs
}

/// Whether a frame is long enough for its Ethernet header.
fn reaches(octets: &[u8]) -> bool {
    octets.len() > ETHERNET
}

fn run(octets: &[u8]) {
    let Some((choice, frame)) = octets.split_first() else { return };
    if frame.len() < ETHERNET {
        return;
    }
    PROGRAMS.with_borrow_mut(|programs| match choice % 4 {
        0 | 1 => classify(programs, *choice, frame),
        2 => pass(programs, Program::Stamp, *choice, frame),
        _ => pass(programs, Program::Meter, *choice, frame),
    });
}

fn given(choice: u8, octets: &[u8]) -> Frame<'_> {
    let is_super = choice & 0x10 != 0;
    let gso_size = if is_super { 1 + u32::from(choice >> 5) * 200 } else { 0 };
    let gso_segs = if choice & 0x08 != 0 { 3 } else { 0 };
    Frame { octets, priority: UNTOUCHED, gso_size, gso_segs, ..Frame::default() }
}

fn classify(programs: &mut Programs, choice: u8, octets: &[u8]) {
    let before = programs.port_counters.get(0);
    // The kernel refuses to make some frames at all.
    let Ok(ran) = programs.run(Program::Classify, &given(choice, octets)) else { return };
    let after = programs.port_counters.get(0);
    assert_eq!(unmarked(&ran.octets), unmarked(octets), "classify changes marks alone");
    let dropped =
        |c: &PortCounters| c.spoofed + c.spoofed_mac + c.control_denied + c.malformed + c.rogue;
    match ran.verdict {
        PASS => {
            assert!(may_pass(octets), "a frame that is not the VM's passes");
            assert!(
                [DEFAULT, CONTROL, EXTERNAL].contains(&ran.priority),
                "class {:x}",
                ran.priority
            );
            assert!(after.tx_octets >= before.tx_octets + octets.len() as u64);
            assert_eq!(dropped(&after), dropped(&before));
        }
        DROP => {
            assert_eq!((ran.priority, after.tx_octets), (UNTOUCHED, before.tx_octets));
            assert_eq!(dropped(&after), dropped(&before) + 1, "each is counted once");
        }
        other => panic!("verdict {other}"),
    }
    let pairs: Vec<intf::Pair> =
        programs.tx.read().expect("a table").map(|(pair, _)| pair).collect();
    assert!(pairs.len() <= PLACES as usize && pairs.iter().all(|p| p.src == 1 && p.dst == 2));
}

/// A frame without what switches choose queues by, which is overwritten at a VM's port: the priorities
/// of VLAN tags, a first tag of VLAN 0, and the code point. The checksum of an IPv4 header is replaced
/// by what its first twenty octets add up to, which a right change of both leaves as it is.
fn unmarked(octets: &[u8]) -> Vec<u8> {
    let mut frame = octets.to_vec();
    let kind =
        |frame: &[u8], at: usize| frame.get(at..at + 2).map(|k| u16::from_be_bytes([k[0], k[1]]));
    let mut at = 12;
    for n in 0..2 {
        if !matches!(kind(&frame, at), Some(0x8100 | 0x88a8)) || frame.len() < at + 6 {
            break;
        }
        frame[at + 2] &= 0x1f;
        if n == 0 && frame[at + 2] & 0x0f == 0 && frame[at + 3] == 0 {
            frame.drain(at..at + 4);
        } else {
            at += 4;
        }
    }
    match (kind(&frame, at), frame.get_mut(at + 2..).unwrap_or(&mut [])) {
        (Some(0x0800), net) if net.len() >= 20 => {
            let words = net[..20].chunks(2).map(|k| u32::from(u16::from_be_bytes([k[0], k[1]])));
            let sum = (words.sum::<u32>() % 0xffff) as u16;
            net[1] &= 3;
            // The bit by which Weir's own packets say that they carry a time.
            net[6] &= 0x7f;
            net[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (Some(0x86dd), [first, second, ..]) => {
            *first &= 0xf0;
            *second &= 0x3f;
        }
        _ => {}
    }
    frame
}

/// Stamp and meter drop nothing for what is in it, and change marks and checksums of the header
/// alone.
fn pass(programs: &mut Programs, program: Program, choice: u8, octets: &[u8]) {
    let Ok(ran) = programs.run(program, &given(choice, octets)) else { return };
    assert_eq!((ran.verdict, ran.priority), (PASS, UNTOUCHED), "{}", program.name());
    assert_eq!(ran.octets.len(), octets.len());
    let changed = ran.octets.iter().zip(octets).filter(|(a, b)| a != b).count();
    // Type of service, identification, checksum of the header and of TCP.
    assert!(changed <= 8, "{changed} octets were changed by {}", program.name());
    assert_eq!(ran.octets[..12], octets[..12], "addresses of the frame");
    let pairs = programs.rx.read().expect("a table").count();
    assert!(pairs <= PLACES as usize, "{pairs} pairs");
}

/// Whether the rules let VM 1 send this: read from the octets without the programs' help.
fn may_pass(frame: &[u8]) -> bool {
    let mut at = 12;
    let kind = |at: usize| frame.get(at..at + 2).map(|k| u16::from_be_bytes([k[0], k[1]]));
    // Two tags are looked through; a third is not, and its frame has a class without floor.
    for _ in 0..2 {
        if matches!(kind(at), Some(0x8100 | 0x88a8)) {
            at += 4;
        }
    }
    let net = frame.get(at + 2..).unwrap_or(&[]);
    match kind(at) {
        Some(0x0800) => {
            let Some(source) = net.get(12..16) else { return false };
            let header = usize::from(net[0] & 15) * 4;
            let is_udp = net.get(9) == Some(&17);
            let to_server = net.get(header + 2..header + 4) == Some(&[0, 67][..]);
            source == MINE.octets() || (source == [0; 4] && is_udp && to_server)
        }
        Some(0x86dd) => {
            let Some(source) = net.get(8..24) else { return false };
            let is_link_local = source[0] == 0xfe && source[1] & 0xc0 == 0x80;
            source == MINE6.octets() || is_link_local || source == [0; 16]
        }
        Some(0x0806) => {
            let Some(source) = net.get(14..18) else { return false };
            source == MINE.octets() || source == [0; 4]
        }
        Some(_) => true,
        None => false,
    }
}

fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut octets = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    octets.extend(kind.to_be_bytes());
    octets.extend(rest);
    octets
}

fn ip4(source: Ipv4Addr, to: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x45, 0];
    octets.extend((20 + body.len() as u16).to_be_bytes());
    octets.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
    octets.extend(source.octets());
    octets.extend(to.octets());
    octets.extend(body);
    ethernet(0x0800, &octets)
}

fn ip6(source: Ipv6Addr, to: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x60, 0, 0, 0];
    octets.extend((body.len() as u16).to_be_bytes());
    octets.extend([next, 255]);
    octets.extend(source.octets());
    octets.extend(to.octets());
    octets.extend(body);
    ethernet(0x86dd, &octets)
}

fn udp(port: u16, payload: usize) -> Vec<u8> {
    let mut octets = vec![0x1f, 0x90];
    octets.extend(port.to_be_bytes());
    octets.extend(((8 + payload) as u16).to_be_bytes());
    octets.extend(vec![0; 2 + payload]);
    octets
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |choice: u8, frame: Vec<u8>| [&[choice][..], &frame].concat();
    let mut tcp = vec![0; 60];
    tcp[12] = 8 << 4;
    let mut advertisement = vec![136, 0, 0, 0, 0, 0, 0, 0];
    advertisement.extend(MINE6.octets());
    let hop = [&[17, 0, 0, 0, 0, 0, 0, 0][..], &udp(9, 40)].concat();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(9, 40)].concat();
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
    arp.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    let tagged = {
        let mut octets = ip4(MINE, PEER, 17, &udp(9, 40));
        drop(octets.splice(12..12, [0x81, 0, 0, 100, 0x88, 0xa8, 0, 200]));
        octets
    };
    let stranger = Ipv4Addr::new(10, 0, 0, 9);
    vec![
        ("udp", frame(0, ip4(MINE, PEER, 17, &udp(9, 40)))),
        ("tcp-super-packet", frame(0x50, ip4(MINE, PEER, 6, &tcp))),
        ("forged", frame(0, ip4(stranger, PEER, 17, &udp(9, 40)))),
        ("to-an-agent", frame(0, ip4(MINE, Ipv4Addr::new(10, 255, 0, 1), 17, &udp(7001, 56)))),
        ("dhcp", frame(0, ip4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, 17, &udp(67, 40)))),
        ("udp6", frame(1, ip6(MINE6, PEER6, 17, &udp(9, 40)))),
        ("udp6-behind-a-header", frame(1, ip6(MINE6, PEER6, 0, &hop))),
        ("udp6-fragment", frame(1, ip6(MINE6, PEER6, 44, &fragment))),
        ("advertisement", frame(1, ip6(MINE6, PEER6, 58, &advertisement))),
        ("arp", frame(0, ethernet(0x0806, &arp))),
        ("two-tags", frame(0, tagged)),
        ("alien", frame(0, ethernet(0x88b5, &[0; 46]))),
        ("stamped", frame(2, ip4(MINE, PEER, 6, &tcp))),
        ("metered", frame(3, ip4(PEER, MINE, 6, &tcp))),
        ("metered6", frame(3, ip6(PEER6, MINE6, 17, &udp(9, 40)))),
    ]
}
