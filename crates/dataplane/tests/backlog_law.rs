//! The law of a pair's queue in C (`bpf/backlog_law.h`), as the kernel runs it, against the one in
//! Rust (`weir_core::backlog`). Needs root, and fails without.

use crate::law::{Aligned, Law, STEPS};
use crate::random::Random;
use std::collections::VecDeque;
use weir_core::backlog::{Arrival, Backlog, Bound, PARTS, UNSEEN};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/backlog_law.bpf.o")));

const CALLS: u64 = 8;

/// A packet, and what the queue is like when it comes.
struct Input {
    backlog: Backlog,
    bound: Bound,
    arrival: Arrival,
    is_new: bool,
}

fn to_octets(input: &Input) -> Vec<u8> {
    let Input { backlog, bound, arrival, is_new } = input;
    let mut octets = backlog.to_octets().to_vec();
    let bounds = [bound.bps, bound.limit_ns, bound.room, bound.floor, bound.ahead];
    octets.extend(bounds.into_iter().chain([arrival.now]).flat_map(u64::to_ne_bytes));
    octets.extend([arrival.octets, arrival.hash].into_iter().flat_map(u32::to_ne_bytes));
    let last = [arrival.is_ack.into(), arrival.left.into(), u64::from(*is_new)];
    octets.extend(last.into_iter().flat_map(u64::to_ne_bytes));
    octets
}

/// What comes to the queues of pairs of all rates that are bounded, as a row of packets per queue.
struct Traffic {
    random: Random,
    bound: Bound,
    now: u64,
    flows: u64,
    /// Marks that wait, of data and of acknowledgements; `None`: nothing looks at what leaves.
    waits: Option<[VecDeque<u16>; 2]>,
    /// Those that left last.
    left: [u16; 2],
    /// How many leave per packet that comes, in tenths.
    tenths: u64,
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            bound: Bound::default(),
            now: 1_000_000,
            flows: 1,
            waits: None,
            left: [0; 2],
            tenths: 0,
        }
    }

    /// Another rate, with what follows from it.
    fn change(&mut self) {
        let random = &mut self.random;
        let bps =
            [64_000, 350_000, 10_000_000, 100_000_000, 1_048_000_000][random.below(5) as usize];
        let bps = bps / (1 + random.below(3)) + random.below(1000);
        let octets = 15_140 + random.below(100_000);
        let limit_ns = octets * 8_000_000_000 / bps;
        let floor = (bps / (1 + random.below(9))).saturating_sub(random.below(2) * bps);
        let room = 131_072 * (1 + random.below(3)) / (1 + random.below(2));
        self.bound = Bound { bps, limit_ns, room, floor, ahead: random.below(12_500) };
        self.flows = 1 + random.below(20);
        self.waits = (random.below(4) > 0).then(Default::default);
        self.tenths = random.below(11);
    }

    /// The next packet, on average as many as the rate carries and half as many more.
    fn next(&mut self) -> Arrival {
        if self.random.below(200) == 0 {
            self.change();
        }
        let random = &mut self.random;
        let octets = match random.below(4) {
            0 => 60 + random.below(40),
            1 => 1514 + random.below(64_000),
            _ => 1514,
        };
        let span = octets * 8_000_000_000 / self.bound.bps;
        // The clocks of two CPUs differ.
        match random.below(100) {
            0 => self.now -= random.below(1000),
            1 => self.now += span * random.below(1000),
            _ => self.now += random.below(span * 4 / 3 + 1),
        }
        let hash = (random.below(self.flows) as u32).wrapping_mul(0x9e37_79b9);
        let is_ack = octets < 100 || self.random.below(self.flows) == 0;
        let left = self.leave();
        Arrival { now: self.now, octets: octets as u32, hash, is_ack, left }
    }

    /// What has left: mostly one or none, sometimes many, and now and then some are lost, or two
    /// CPUs tell it in another order.
    fn leave(&mut self) -> u32 {
        let Some(waits) = &mut self.waits else { return UNSEEN };
        for (waits, left) in waits.iter_mut().zip(&mut self.left) {
            let random = &mut self.random;
            let gone = match random.below(100) {
                0 => random.below(100),
                1 => {
                    waits.truncate(waits.len() / 2);
                    0
                }
                _ => u64::from(random.below(10) < self.tenths),
            };
            for _ in 0..gone {
                *left = waits.pop_front().unwrap_or(*left);
            }
            if random.below(200) == 0 {
                *left = random.below(0x8000) as u16;
            }
        }
        u32::from(self.left[1]) << 16 | u32::from(self.left[0])
    }

    /// A packet was let in.
    fn wait(&mut self, is_ack: bool, mark: u16) {
        if let Some(waits) = &mut self.waits {
            waits[usize::from(is_ack)].push_back(mark);
        }
    }
}

#[test]
fn half_a_million_packets_find_the_same_queue_in_c_and_in_rust() {
    let kernel = Law::load(&OBJECT.0);
    let (mut let_in, mut dropped, mut nanos) = (0, 0, Vec::new());
    for seed in 0..CALLS {
        let mut traffic = Traffic::new(seed);
        traffic.change();
        let mut backlog = Backlog::default();
        let (mut octets, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let arrival = traffic.next();
            let is_new = traffic.random.below(50) == 0;
            let input = Input { backlog, bound: traffic.bound, arrival, is_new };
            octets.extend(to_octets(&input));
            let is_let_in = backlog.admits(&traffic.bound, &arrival, is_new);
            let mut output = backlog.to_octets().to_vec();
            output.extend(u64::from(is_let_in).to_ne_bytes());
            wanted.push(output);
            if is_let_in {
                traffic.wait(arrival.is_ack, backlog.mark(arrival.is_ack));
                let_in += 1;
            } else {
                dropped += 1;
            }
        }
        let (got, each) = kernel.run(STEPS, &octets);
        for (n, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert_eq!(got, wanted, "seed {seed}, packet {n}");
        }
        nanos.push(each);
    }
    assert!(let_in > dropped / 4 && dropped > let_in / 4, "{let_in} let in, {dropped} dropped");
    nanos.sort_unstable();
    println!("one packet, with what surrounds it: {} ns", nanos[nanos.len() / 2]);
}

#[test]
fn the_kernel_has_as_many_parts() {
    assert_eq!(PARTS, weir_dataplane::intf::PARTS);
}
