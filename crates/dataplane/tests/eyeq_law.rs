//! EyeQ's rate control law in C (`bpf/eyeq_law.h`), as the kernel runs it, against the one in Rust
//! (`weir_core::eyeq::rcp_step`). Needs root, and fails without.

use crate::law::{Aligned, Law, STEPS};
use crate::random::Random;
use weir_core::eyeq::{RcpInput, RcpOutput, rcp_step};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/eyeq_law.bpf.o")));

const CALLS: u64 = 16;

const INPUT: usize = size_of::<RcpInput>();
const OUTPUT: usize = size_of::<RcpOutput>();

/// The law as the kernel has it.
struct Kernel(Law);

impl Kernel {
    fn load() -> Self {
        Self(Law::load(&OBJECT.0))
    }

    /// The outputs of so many inputs, and what one took, in nanoseconds.
    fn run(&self, inputs: &[RcpInput]) -> (Vec<RcpOutput>, u128) {
        let octets: Vec<u8> = inputs.iter().flat_map(to_octets).collect();
        let (outputs, nanos) = self.0.run(inputs.len(), &octets);
        (outputs.iter().map(|value| from_octets(value)).collect(), nanos)
    }
}

fn to_octets(i: &RcpInput) -> [u8; INPUT] {
    let words = [
        i.rate_bps,
        i.capacity_bps,
        i.floor_bps,
        i.elapsed_ns,
        i.received_octets,
        i.segments,
        i.marked,
    ];
    let halves = [i.alpha, i.least_factor, i.queue_octets, i.spare];
    let mut octets = [0; INPUT];
    for (to, from) in octets.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    for (to, from) in octets[8 * words.len()..].chunks_exact_mut(4).zip(halves) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    octets
}

fn from_octets(octets: &[u8]) -> RcpOutput {
    assert_eq!(octets.len(), OUTPUT);
    let word = |at: usize| u64::from_ne_bytes(octets[at..at + 8].try_into().unwrap());
    RcpOutput { rate_bps: word(0), load: word(8) }
}

impl Random {
    /// A number of any size: small ones are as frequent as large ones, and corners are frequent.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => {
                let near = [0, 1 << 6, 1_000, 1 << 16, 1 << 24, 1 << 30, 1 << 39, 1 << 40, 1 << 63];
                let at: u64 = near[self.below(near.len() as u64) as usize];
                at.wrapping_add(self.below(3)).wrapping_sub(1)
            }
            1 => self.below(20_000_000_000),
            _ => {
                let size = self.below(64);
                self.next() >> size
            }
        }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    fn any_input(&mut self) -> RcpInput {
        RcpInput {
            rate_bps: self.number(),
            capacity_bps: self.number(),
            floor_bps: self.number(),
            elapsed_ns: self.number(),
            received_octets: self.number(),
            segments: self.number(),
            marked: self.number(),
            alpha: self.small(),
            least_factor: self.small(),
            queue_octets: if self.below(2) == 0 { 0 } else { self.small() },
            spare: 0,
        }
    }

    /// What a meter could really ask: a link of 1 Mb/s to 400 Gb/s, one period, a load of up to
    /// four.
    fn plausible(&mut self) -> RcpInput {
        let capacity = 1_000_000 + self.below(400_000_000_000);
        let elapsed_ns = 200_000 + self.below(20_000_000);
        let fits = u128::from(capacity) * u128::from(elapsed_ns) / 8_000_000_000;
        let segments = self.below(2_000);
        RcpInput {
            rate_bps: self.below(capacity + 1),
            capacity_bps: capacity,
            floor_bps: capacity / 10_000,
            elapsed_ns,
            received_octets: self.below(4 * fits as u64 + 1),
            segments,
            marked: self.below(segments + 1),
            alpha: self.below(1 << 17) as u32,
            least_factor: 6_554,
            queue_octets: if self.below(2) == 0 { 0 } else { 45_000 },
            spare: 0,
        }
    }

    fn input(&mut self) -> RcpInput {
        if self.below(2) == 0 { self.any_input() } else { self.plausible() }
    }
}

#[test]
fn a_million_steps_of_the_law_are_equal_in_c_and_in_rust() {
    let kernel = Kernel::load();
    let (mut steps, mut moved, mut nanos) = (0, 0, Vec::new());
    for seed in 0..CALLS {
        let mut random = Random(seed);
        let inputs: Vec<RcpInput> = (0..STEPS).map(|_| random.input()).collect();
        let (outputs, each) = kernel.run(&inputs);
        assert_eq!(outputs.len(), inputs.len());
        for (n, (input, got)) in inputs.iter().zip(outputs).enumerate() {
            assert_eq!(got, rcp_step(*input), "seed {seed}, input {n}: {input:?}");
            steps += 1;
            moved += usize::from(got.load > 0 && got.rate_bps != input.rate_bps);
        }
        nanos.push(each);
    }
    assert!(steps >= 1_000_000);
    assert!(moved > steps / 3, "only {moved} of {steps} inputs say anything about the law");
    nanos.sort_unstable();
    println!("one step, with what surrounds it: {} ns", nanos[nanos.len() / 2]);
}

#[test]
fn the_golden_steps_come_out_in_the_kernel_too() {
    let text = include_str!("../../core/tests/golden/rcp.txt");
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    let (mut inputs, mut wanted) = (Vec::new(), Vec::new());
    for line in lines {
        let (before, after) = line.split_once("->").expect("inputs -> outputs");
        let numbers = |text: &str| -> Vec<u64> {
            text.split_whitespace().map(|n| n.parse().expect("a number")).collect()
        };
        let (i, o) = (numbers(before), numbers(after));
        let small = |n: u64| u32::try_from(n).expect("32 bits");
        inputs.push(RcpInput {
            rate_bps: i[0],
            capacity_bps: i[1],
            floor_bps: i[2],
            elapsed_ns: i[3],
            received_octets: i[4],
            segments: i[5],
            marked: i[6],
            alpha: small(i[7]),
            least_factor: small(i[8]),
            queue_octets: small(i[9]),
            spare: 0,
        });
        wanted.push(RcpOutput { rate_bps: o[0], load: o[1] });
    }
    assert_eq!(inputs.len(), 16);
    assert_eq!(Kernel::load().run(&inputs).0, wanted);
}
