//! Window budgets in the kernel: the class of each connection beside the core's, what it is shown,
//! and which connections count, whatever becomes of them. Needs root, and fails without.
#![allow(unsafe_code)]

use crate::frame;

use crate::random::Random;
use std::cell::Cell;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use weir_core::vcc::{ACK, Budget, BudgetConfig, FIN, Match, RST, SYN, Way};
use weir_dataplane::intf::{Address, Flow};
use weir_dataplane::programs::Frame;
use weir_dataplane::vcc::budget::{self, Divided};
use weir_dataplane::vcc::intf::Port;
use weir_dataplane::vcc::{Law, Program, Programs};
use weir_units::Bytes;

/// Where test runs are: the loopback interface.
const INTERFACE: u32 = 1;
const PASS: i32 = -1;
const FLOWS: u32 = 256;
const ALL: RangeInclusive<u16> = 0..=u16::MAX;

/// A connection, seen from the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ends {
    guest: IpAddr,
    peer: IpAddr,
    guest_port: u16,
    peer_port: u16,
}

impl Ends {
    fn to(peer_port: u16, guest_port: u16) -> Self {
        let [guest, peer] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        Self { guest, peer, guest_port, peer_port }
    }

    fn name(&self) -> Flow {
        Flow {
            src: Address::from(self.peer),
            dst: Address::from(self.guest),
            src_port: self.peer_port.to_be_bytes(),
            dst_port: self.guest_port.to_be_bytes(),
        }
    }
}

struct Bench {
    programs: Programs,
}

impl Bench {
    /// A port that translates nothing, with these classes.
    fn new(classes: &[budget::Class]) -> Self {
        let programs = Programs::load().expect("this test loads BPF programs: run it as root");
        programs.make_table(0, FLOWS).unwrap();
        programs.ports.put(INTERFACE, Port::idle(0)).unwrap();
        programs.set_budget(0, Some(budget::Budget::new(classes))).unwrap();
        Self { programs }
    }

    /// A segment passes the port: the window that comes out.
    fn pass(&self, ends: &Ends, way: Way, seq: u32, ack: u32, flags: u16, octets: usize) -> u16 {
        let window = if flags & SYN == 0 { u16::MAX } else { 1 };
        let (src, dst, program) = match way {
            Way::Out => ((ends.guest, ends.guest_port), (ends.peer, ends.peer_port), Program::From),
            Way::In => ((ends.peer, ends.peer_port), (ends.guest, ends.guest_port), Program::To),
        };
        let mut body = [src.1.to_be_bytes(), dst.1.to_be_bytes()].concat();
        body.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        body.extend((5u16 << 12 | flags).to_be_bytes());
        body.extend(window.to_be_bytes());
        body.resize(20 + octets, 0);
        let packet = frame::packet(&src.0.to_string(), &dst.0.to_string(), 6, body).octets();
        let frame = Frame { octets: &packet, ..Frame::default() };
        let ran = self.programs.run(program, &frame).unwrap();
        assert_eq!(ran.verdict, PASS);
        let at = 14 + if src.0.is_ipv4() { 20 } else { 40 } + 14;
        u16::from_be_bytes([ran.octets[at], ran.octets[at + 1]])
    }

    /// The guest opens a connection, and sends an octet.
    fn open(&self, ends: &Ends) {
        self.pass(ends, Way::Out, 99, 0, SYN, 0);
        self.pass(ends, Way::In, 0, 100, SYN | ACK, 0);
        self.pass(ends, Way::Out, 100, 1, ACK, 1);
    }

    /// What it is shown when that octet is acknowledged: of no window but its share's.
    fn shown(&self, ends: &Ends) -> u16 {
        self.pass(ends, Way::In, 1, 101, ACK, 0)
    }

    /// How many of them have a place.
    fn known(&self, some: &[Ends]) -> u32 {
        let flows = self.programs.flows(0).unwrap().expect("a table");
        some.iter().filter(|ends| flows.get(ends.name()).unwrap().is_some()).count() as u32
    }
}

fn class(local: RangeInclusive<u16>, ports: RangeInclusive<u16>, share: u32) -> budget::Class {
    budget::Class { share, ..budget::Class::new(local, ports) }
}

/// A few ports and their neighbours, so that edges are met.
fn any_port(random: &mut Random) -> u16 {
    let near = [0, 1, 80, 5_000, 5_001, 32_767, 65_535u16][random.below(7) as usize];
    near.wrapping_add(random.below(3) as u16).wrapping_sub(1)
}

fn any_ports(random: &mut Random) -> Option<RangeInclusive<u16>> {
    let (a, b) = (any_port(random), any_port(random));
    (random.below(3) > 0).then(|| a.min(b)..=a.max(b))
}

/// Addresses of both versions that share all beginnings, one of IPv6 that looks like one of IPv4
/// but for a bit.
fn any_address(random: &mut Random) -> IpAddr {
    let bit = |random: &mut Random, width: u64| 1u128 << random.below(width);
    if random.below(2) == 0 {
        let flip = bit(random, 32) as u32;
        return IpAddr::from((0x0a00_0002u32 ^ flip).to_be_bytes());
    }
    let base = if random.below(2) == 0 { 0xfd00 << 112 | 2 } else { 0xffff_0a00_0002u128 };
    // The form in which an address of IPv4 would be written is no address that a packet of IPv6
    // should have.
    let flip = match bit(random, 128) {
        low if base >> 112 == 0 && low < 1 << 32 => 1 << 32,
        other => other,
    };
    IpAddr::from((base ^ flip).to_be_bytes())
}

#[test]
fn the_kernel_finds_the_class_that_the_core_finds() {
    let mut random = Random(12);
    let (mut of_each, mut of_none) = ([0; budget::CLASSES_MOST], 0);
    for round in 0..60 {
        let mut ours: Vec<Match> = Vec::new();
        let mut theirs: Vec<budget::Class> = Vec::new();
        for n in 0..1 + random.below(budget::CLASSES_MOST as u64) as u32 {
            let (local, remote) = (any_ports(&mut random), any_ports(&mut random));
            let (l, r) = (local.clone().unwrap_or(ALL), remote.clone().unwrap_or(ALL));
            theirs.push(class(l, r, 3_000 + n));
            ours.push(Match { local_ports: local, remote_ports: remote });
        }
        let bench = Bench::new(&theirs);
        for n in 0..40u32 {
            let peer = any_address(&mut random);
            let guest = if peer.is_ipv4() { "10.9.9.9" } else { "fd09::9" };
            let (guest_port, peer_port) = (any_port(&mut random), any_port(&mut random));
            let ends = Ends { guest: guest.parse().unwrap(), peer, guest_port, peer_port };
            // Classes may overlap here: both take the first.
            let wanted = ours.iter().position(|flows| flows.has(guest_port, peer_port));
            let counted = theirs.iter().position(|class| class.has(&ends.name()));
            assert_eq!(counted, wanted, "round {round}, {n}: who counts, of {ends:?}");
            bench.open(&ends);
            let place = u32::from(wanted.is_some());
            assert_eq!(bench.known(&[ends]), place, "round {round}, {n}: {ends:?}");
            let share = wanted.map_or(u16::MAX, |class| 3_000 + class as u16);
            assert_eq!(bench.shown(&ends), share, "round {round}, {n}: {ends:?}");
            match wanted {
                Some(class) => of_each[class] += 1,
                None => of_none += 1,
            }
        }
    }
    assert!(of_none > 100 && of_each[..8].iter().all(|&n| n > 10), "{of_none}, {of_each:?}");
}

/// Fig. 12's classes.
fn paper(total: u64, flows_most: u32) -> Budget {
    let classes = [("bulk", 1, 5001..=5003), ("urgent", 3, 5004..=5005)];
    let classes = classes.map(|(name, weight, ports)| (name.to_owned(), weight, ports));
    let config = BudgetConfig::by_remote_ports(Bytes::new(total), flows_most, classes.into_iter());
    Budget::new(config).expect("enough")
}

fn classes() -> [budget::Class; 2] {
    [class(ALL, 5001..=5003, 0), class(ALL, 5004..=5005, 0)]
}

/// A driver, with a clock of its own that goes on from the kernel's.
struct Driver {
    budget: Budget,
    divided: Divided,
    later_ns: u64,
    /// CPU time of one look, and the number of counts of the table.
    cost_ns: u64,
    counts: usize,
}

impl Driver {
    fn begin(bench: &Bench, budget: Budget, classes: &[budget::Class]) -> Self {
        let divided = Divided::begin(&bench.programs, 0, classes).unwrap();
        Self { budget, divided, later_ns: 0, cost_ns: 0, counts: 0 }
    }

    /// Half a second passes. Gives live connections and shares.
    fn tend(&mut self, bench: &Bench) -> [(u32, u32); 2] {
        self.later_ns += 500_000_000;
        self.look(bench);
        let found = self.divided.live().iter().zip(self.divided.classes());
        let found: Vec<_> = found.map(|(live, class)| (*live, class.share)).collect();
        let sum: u64 = found.iter().map(|(live, share)| u64::from(live * share)).sum();
        assert!(sum <= self.budget.config().total.get(), "{found:?}");
        found.try_into().expect("two")
    }

    fn look(&mut self, bench: &Bench) -> bool {
        let budget = &mut self.budget;
        let now = clock_ns(libc::CLOCK_MONOTONIC) + self.later_ns;
        let counts = &mut self.counts;
        let mut divide = |live: &[u32]| {
            *counts += 1;
            budget.recount(live);
            (0..live.len()).map(|class| budget.share(class).get() as u32).collect()
        };
        let (cpu, cost_ns) = (Cell::new(0), self.cost_ns);
        let cpu_ns = || cpu.replace(cpu.get() + cost_ns);
        self.divided.tend(&bench.programs, now, &cpu_ns, &mut divide).unwrap()
    }
}

/// A clock of the kernel's.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut now) }, 0);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[test]
fn shares_follow_who_comes_and_who_goes_however() {
    let bench = Bench::new(&[]);
    let mut driver = Driver::begin(&bench, paper(90_000, 5), &classes());
    let bulk: Vec<Ends> = (5001..=5003).map(|port| Ends::to(port, 40_000)).collect();
    let urgent: Vec<Ends> = (5004..=5005).map(|port| Ends::to(port, 40_000)).collect();
    // A connection with only a SYN has no share yet; one of no class never has.
    bench.pass(&bulk[0], Way::Out, 99, 0, SYN, 0);
    bench.open(&Ends::to(80, 40_000));
    assert_eq!(driver.tend(&bench), [(0, 90_000), (0, 90_000)]);
    bulk.iter().for_each(|ends| bench.open(ends));
    assert_eq!(driver.tend(&bench), [(3, 30_000), (0, 45_000)]);
    assert_eq!(bench.shown(&bulk[2]), 30_000);
    urgent.iter().for_each(|ends| bench.open(ends));
    assert_eq!(driver.tend(&bench), [(3, 10_000), (2, 30_000)]);
    assert_eq!(bench.shown(&urgent[0]), 30_000);
    // What was shown is not taken back: the edge stays until it is used up.
    assert_eq!(bench.shown(&bulk[2]), 30_000);
    bench.pass(&bulk[2], Way::Out, 101, 1, ACK, 1_400);
    assert_eq!(bench.pass(&bulk[2], Way::In, 1, 1_501, ACK, 0), 30_000 - 1_400);
    assert_eq!(bench.shown(&Ends::to(80, 40_000)), u16::MAX);
    // One ends with a RST, one by both FINs, half of them is not enough.
    bench.pass(&urgent[0], Way::Out, 101, 1, RST, 0);
    bench.pass(&bulk[0], Way::Out, 101, 1, ACK | FIN, 0);
    assert_eq!(driver.tend(&bench), [(3, 15_000), (1, 45_000)]);
    bench.pass(&bulk[0], Way::In, 1, 102, ACK | FIN, 0);
    assert_eq!(driver.tend(&bench), [(2, 18_000), (1, 54_000)]);
    // A RST that its guest does not believe takes it out for as long as it sends nothing new.
    bench.pass(&urgent[1], Way::In, 1, 101, RST, 0);
    assert_eq!(driver.tend(&bench), [(2, 45_000), (0, 54_000)]);
    bench.pass(&urgent[1], Way::Out, 101, 1, ACK, 1_400);
    assert_eq!(driver.tend(&bench), [(2, 18_000), (1, 54_000)]);
    assert_eq!(driver.tend(&bench), [(2, 18_000), (1, 54_000)], "and stays");
    // More than may share it make shares small, not the sum large.
    for port in 1..=40 {
        bench.open(&Ends::to(5001, port));
    }
    assert_eq!(driver.tend(&bench), [(42, 2_000), (1, 6_000)]);
    assert_eq!(bench.shown(&Ends::to(5001, 40)), 2_000);
    // All are silent for more than a minute.
    driver.later_ns += 66_000_000_000;
    assert_eq!(driver.tend(&bench), [(0, 90_000), (0, 90_000)]);
}

#[test]
fn who_is_pushed_out_of_the_table_is_not_counted() {
    // New ones wait on the list of the CPU that brought them: one CPU has to bring them all.
    let run = || {
        // SAFETY: a set of CPUs is plain octets, and the kernel reads it only.
        unsafe {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
        }
        let bench = Bench::new(&[]);
        let mut driver = Driver::begin(&bench, paper(1 << 30, 8 * FLOWS), &classes());
        let all: Vec<Ends> = (0..4 * FLOWS as u16).map(|n| Ends::to(5001, 1 + n)).collect();
        for ends in &all {
            bench.open(ends);
        }
        let known = bench.known(&all);
        assert!(known < 4 * FLOWS && known > FLOWS / 4, "{known}");
        assert_eq!(driver.tend(&bench)[0].0, known);
        // Others, which need a place as well, and live on nothing.
        bench.programs.ports.put(INTERFACE, Port::new(Law::VirtualEcn, 0)).unwrap();
        for n in 0..4 * FLOWS as u16 {
            bench.open(&Ends::to(80, 1 + n));
        }
        let left = bench.known(&all);
        assert!(left < known, "{left} of {known}");
        assert_eq!(driver.tend(&bench)[0].0, left);
    };
    std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn the_table_is_counted_at_once_when_somebody_comes_or_goes_and_else_twice_a_second() {
    let bench = Bench::new(&[]);
    let mut driver = Driver::begin(&bench, paper(90_000, 5), &classes());
    let one = Ends::to(5001, 40_000);
    assert!(driver.look(&bench), "the first time");
    bench.pass(&one, Way::Out, 99, 0, SYN, 0);
    bench.pass(&one, Way::In, 0, 100, SYN | ACK, 0);
    driver.look(&bench);
    assert_eq!(driver.divided.live(), [1, 0], "it opened");
    bench.open(&Ends::to(5002, 40_000));
    driver.look(&bench);
    assert_eq!(driver.divided.live(), [2, 0]);
    bench.pass(&one, Way::Out, 100, 1, RST, 0);
    driver.look(&bench);
    assert_eq!(driver.divided.live(), [1, 0], "it ended");
    // Nothing reports that a place was taken away.
    let flows = bench.programs.flows(0).unwrap().expect("a table");
    assert!(flows.delete(Ends::to(5002, 40_000).name()).unwrap());
    let is_late = driver.look(&bench);
    assert!(is_late || driver.divided.live() == [1, 0]);
    assert_eq!(driver.tend(&bench)[0].0, 0, "half a second later");
}

#[test]
fn a_guest_that_opens_connections_all_the_time_costs_a_hundredth_of_a_cpu() {
    let bench = Bench::new(&[]);
    let mut driver = Driver::begin(&bench, paper(1 << 30, 100), &classes());
    driver.cost_ns = 2_000_000;
    driver.look(&bench);
    // Twenty looks a second, each with something new: the ports of a minute come round.
    let churn = |driver: &mut Driver, looks: u16, from: u16| {
        let before = driver.counts;
        for n in 0..looks {
            bench.open(&Ends::to(5001, from + n));
            driver.later_ns += budget::LOOK_NS;
            driver.look(&bench);
        }
        driver.counts - before
    };
    // What is saved up counts all that come, for some looks,
    assert_eq!(churn(&mut driver, 5, 1), 5);
    // and then five in a second that are paid for, and now and then one of those that are due.
    let begun = clock_ns(libc::CLOCK_MONOTONIC);
    let counts = churn(&mut driver, 1_200, 100);
    // A machine that is slow adds its own time to the minute.
    let seconds = (clock_ns(libc::CLOCK_MONOTONIC) - begun) / 1_000_000_000;
    let most = 320 + 6 * seconds as usize;
    assert!((250..=most).contains(&counts), "{counts} in a minute");
    // After a quiet second the first is counted at the next look.
    driver.later_ns += 1_000_000_000;
    driver.look(&bench);
    assert_eq!(churn(&mut driver, 1, 2_000), 1);
}

/// What a count takes, with a table of the usual size that is full.
#[test]
fn a_full_table_is_counted_in_less_than_fifty_milliseconds() {
    const FULL: u16 = 8_000;
    let bench = Bench::new(&[]);
    bench.programs.make_table(0, 8_192).unwrap();
    let mut driver = Driver::begin(&bench, paper(1 << 30, 8_192), &classes());
    (0..FULL).for_each(|n| bench.open(&Ends::to(5001 + n % 5, 1 + n)));
    let mut took: Vec<u64> = Vec::new();
    for _ in 0..9 {
        let before = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        driver.tend(&bench);
        took.push(clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) - before);
    }
    took.sort_unstable();
    let live: u32 = driver.divided.live().iter().sum();
    println!("a count of {live}: {} µs", took[4] / 1_000);
    assert!(live > u32::from(FULL) * 3 / 4, "{live}");
    assert!(took[4] < budget::LOOK_NS);
}

#[test]
fn shares_stay_while_nobody_counts_and_with_whoever_takes_over() {
    let bench = Bench::new(&[]);
    let mut driver = Driver::begin(&bench, paper(90_000, 5), &classes());
    let one = Ends::to(5001, 40_000);
    bench.open(&one);
    bench.open(&Ends::to(5004, 40_000));
    assert_eq!(driver.tend(&bench), [(1, 22_500), (1, 67_500)]);
    drop(driver);
    assert_eq!(bench.shown(&one), 22_500, "nobody is there");
    let first = classes().map(|class| budget::Class { share: 7_000, ..class });
    let mut driver = Driver::begin(&bench, paper(90_000, 5), &first);
    assert_eq!(driver.divided.classes()[0].share, 22_500, "as they were");
    assert_eq!(driver.tend(&bench), [(1, 22_500), (1, 67_500)]);
    // Other classes, while connections live: what they begin with, and then what is due.
    let other = [class(ALL, 5004..=5004, 7_000), class(ALL, 5001..=5001, 9_000)];
    let mut driver = Driver::begin(&bench, paper(90_000, 5), &other);
    assert_eq!(driver.divided.classes()[0].share, 7_000);
    assert_eq!(driver.tend(&bench), [(1, 22_500), (1, 67_500)], "the weights have changed sides");
    bench.pass(&one, Way::Out, 101, 1, ACK, 1);
    assert_eq!(bench.pass(&one, Way::In, 1, 102, ACK, 0), 65_535, "all that there is");
    bench.programs.set_budget(0, None).unwrap();
    assert_eq!(bench.shown(&Ends::to(5004, 40_000)), u16::MAX, "and no budget is no bound");
}
