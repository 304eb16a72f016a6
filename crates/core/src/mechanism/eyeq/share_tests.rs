//! Whatever the floors, the numbers of senders and what they want: the parts that two VMs come to.

use super::tests::{Played, config, mbps};
use super::*;
use proptest::prelude::*;

const C: f64 = 9_000.0;

/// What each VM should receive of C, in Mb/s: max-min by floors, then the rest for VMs without a
/// floor.
fn ideal(floors: [u64; 2], wants: [f64; 2]) -> [f64; 2] {
    let [a, b] = floors.map(|f| f as f64);
    let two = |left: f64, a: f64, b: f64| {
        let first = (left * a / (a + b)).max(left - wants[1]).min(wants[0]);
        [first, (left - first).min(wants[1])]
    };
    match floors {
        [0, 0] => two(C, 1.0, 1.0),
        [0, _] => [(C - wants[1].min(C)).min(wants[0]), wants[1].min(C)],
        [_, 0] => [wants[0].min(C), (C - wants[0].min(C)).min(wants[1])],
        _ => two(C, a, b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn two_vms_come_to_their_floors_and_share_the_rest_by_them(
        floors in prop::array::uniform2(prop_oneof![1 => Just(0u64), 4 => 50u64..4_500]),
        senders in prop::array::uniform2(1u32..20),
        each in prop::array::uniform2(prop_oneof![20u64..1_000, 1_000u64..10_000]),
    ) {
        let mut played = Played::new(config(EyeQ::default(), floors));
        played = played.send(10, senders[0], 0, mbps(each[0])).send(11, senders[1], 1, mbps(each[1]));
        played.play(1_500);
        let wants = [0, 1].map(|i| f64::from(senders[i]) * each[i] as f64);
        let want = ideal(floors, wants);
        for (vm, (want, n)) in want.into_iter().zip(senders).enumerate() {
            let got = played.sum_to(vm as u32) / 1e6;
            // Rates are told in whole Mb/s; a thousandth of C is for all VMs.
            let slack = 0.02 * want + 2.0 * f64::from(n) + C / 500.0;
            prop_assert!((got - want).abs() <= slack, "VM {vm}: {got:.0}, not {want:.0} Mb/s");
        }
        let told = played.sending.values().map(|(rate, _)| *rate);
        prop_assert!(told.clone().all(|rate| !rate.is_zero()), "nobody starves");
    }

    /// All that comes in is told the same rate, and it is what the capacity has room for.
    #[test]
    fn what_is_advertised_to_all_senders_comes_to_the_capacity(n in 1u32..25, floor in 1u64..9_000) {
        let mut played = Played::new(config(EyeQ::default(), [floor, 0]));
        played = played.send(10, n, 0, mbps(10_000));
        played.play(500);
        let meter = played.host.meters(VmId(0))[0];
        prop_assert!(meter.capacity.as_f64() >= 0.99 * C * 1e6, "{meter:?}");
        let sum = meter.advertised.as_f64() * f64::from(n) / meter.capacity.as_f64();
        prop_assert!((0.98..1.02).contains(&sum), "{n} times {}: {sum:.4}", meter.advertised);
    }
}
