//! The law of marks that guests need not see, in C (`bpf/marks.h`), as the kernel runs it, against
//! the one in Rust (`weir_core::marks`). Needs root, and fails without.

use crate::law::{Aligned, Law, STEPS};
use crate::random::Random;
use weir_core::marks::Spared;
use weir_units::Rate;

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/marks_law.bpf.o")));

const CALLS: u64 = 4;

fn words(spared: Spared, more: &[u64]) -> Vec<u8> {
    let all = [spared.due, spared.octets].into_iter().chain(more.iter().copied());
    all.flat_map(u64::to_ne_bytes).collect()
}

#[test]
fn a_quarter_of_a_million_marks_are_taken_off_by_c_and_by_rust_alike() {
    let kernel = Law::load(&OBJECT.0);
    let (mut off, mut kept) = (0, 0);
    for seed in 0..CALLS {
        let mut random = Random(seed);
        let (mut spared, mut now, mut octets) = (Spared::default(), random.below(1 << 40), 0u64);
        let mut offer = 10_000_000;
        let (mut inputs, mut wanted) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            match random.below(500) {
                0 => offer = [0, 64_000, 10_000_000, 1_000_000_007][random.below(4) as usize],
                // A pair that was forgotten counts from zero; and one that was not marked for long.
                1 => octets = random.below(1 << 33),
                2 => now += random.below(10_000_000_000),
                _ => {}
            }
            let came = 60 + random.below(3000) * random.below(3);
            octets = octets.wrapping_add(came);
            // About as fast as it is offered; the clocks of two CPUs differ.
            let took = came * 8_000_000_000 / offer.max(64_000);
            now = now + random.below(2 * took + 2) - random.below(1000).min(now);
            inputs.extend(words(spared, &[now, octets, offer]));
            let is_off = spared.takes_off(now, octets, Rate::from_bps(offer));
            wanted.push(words(spared, &[is_off.into()]));
            if is_off { off += 1 } else { kept += 1 }
        }
        let (got, _) = kernel.run(STEPS, &inputs);
        for (n, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert_eq!(got, wanted, "seed {seed}, mark {n}");
        }
    }
    assert!(off > kept / 8 && kept > off / 8, "{off} taken off, {kept} kept");
}
