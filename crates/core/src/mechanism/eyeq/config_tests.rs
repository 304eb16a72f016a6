//! Configurations that are refused, and why.

use super::headroom::Headroom;
use super::tests::{PERIOD, config, host, mbps, set};
use super::*;
use weir_units::{Bytes, Span, TenantId};

fn refused(eyeq: EyeQ, line: u64) -> Refusal {
    eyeq.check(mbps(line)).unwrap_err()
}

#[test]
fn the_presets_are_accepted_on_links_of_all_speeds_with_either_backend() {
    for name in EyeQ::PRESETS {
        let preset = EyeQ::preset(name).unwrap();
        assert_eq!(preset.check(mbps(10_000)), Ok(()), "{name}");
        for line in [100, 200, 1_000, 10_000, 40_000, 100_000] {
            for backend in [Backend::Agent, Backend::Kernel] {
                for round_trip in [50, 100, 1_000] {
                    let round_trip = Span::from_micros(round_trip);
                    let fitted = preset.for_link(mbps(line), round_trip, backend);
                    let what = format!("{name} at {line} Mb/s, {backend:?}, {round_trip}");
                    assert_eq!(fitted.check(mbps(line)), Ok(()), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_period_follows_the_link_and_what_sets_the_limiters() {
    let fitted = |line, backend| {
        let fitted = EyeQ::default().for_link(mbps(line), Span::from_micros(100), backend);
        (fitted.period, fitted.silent_least)
    };
    let ms = Span::from_millis;
    assert_eq!(fitted(10_000, Backend::Kernel), (PERIOD, mbps(1)));
    assert_eq!(fitted(10_000, Backend::Agent), (ms(1), mbps(1)));
    assert_eq!(fitted(200, Backend::Kernel), (ms(10), Rate::from_bps(20_000)));
}

#[test]
fn an_agent_that_sets_limiters_once_a_millisecond_cannot_do_it_every_200_us() {
    let loop_delay = Loop { round_trip: Span::from_micros(100), actuation: Span::from_millis(1) };
    let refusal = refused(EyeQ { loop_delay, ..EyeQ::default() }, 10_000);
    assert!(matches!(refusal, Refusal::Unstable { delay: 6, .. }), "{refusal:?}");
    assert_eq!(
        refusal.to_string(),
        "alpha = 0.5 oscillates: feedback is 6 periods of 200 µs late, and only gains below 0.241 \
         come to rest then; lower it, or take a period of 550 µs or more"
    );
}

#[test]
fn a_gain_of_two_is_never_stable() {
    let at_once = Loop { round_trip: Span::ZERO, actuation: Span::ZERO };
    let refusal = refused(EyeQ { alpha: 2.0, loop_delay: at_once, ..EyeQ::default() }, 10_000);
    assert!(matches!(refusal, Refusal::Unstable { least_period: None, .. }), "{refusal:?}");
}

#[test]
fn an_outer_loop_faster_than_the_inner_one_can_follow_is_refused() {
    let outer = Outer { period: PERIOD, alpha: 0.7, ..Outer::default() };
    let refusal = refused(EyeQ { capacity: Capacity::Outer(outer), ..EyeQ::default() }, 10_000);
    assert!(matches!(refusal, Refusal::Unstable { name: "outer alpha", .. }), "{refusal:?}");
}

#[test]
fn a_period_of_three_packets_is_refused() {
    let refusal = refused(EyeQ::default(), 200);
    assert!(matches!(refusal, Refusal::ShortPeriod { packets: 3, .. }), "{refusal:?}");
    assert!(refusal.to_string().contains("3 packets"), "{refusal}");
}

#[test]
fn a_constant_out_of_range_is_named() {
    let bad = [
        EyeQ { alpha: f64::NAN, ..EyeQ::default() },
        EyeQ { alpha: 0.0, ..EyeQ::default() },
        EyeQ { headroom: Headroom::from_fraction(1.0).unwrap(), ..EyeQ::default() },
        EyeQ { feedback_unit: Rate::ZERO, ..EyeQ::default() },
        EyeQ { feedback_unit: Rate::from_bps(1_000), ..EyeQ::default() },
        EyeQ { queue: Bytes::new(1_000), ..EyeQ::default() },
        EyeQ { idle_after: Span::ZERO, ..EyeQ::default() },
        EyeQ { period: Span::ZERO, ..EyeQ::default() },
    ];
    for eyeq in bad {
        assert!(matches!(refused(eyeq, 10_000), Refusal::Range { .. }));
    }
    assert!(
        matches!(refused(EyeQ::default(), 600_000), Refusal::Range { .. }),
        "a line above 2^39"
    );
}

#[test]
fn floors_above_nine_tenths_of_the_link_are_refused() {
    let refusal = host(&config(EyeQ::default(), [4_500, 4_501])).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the VMs' floors out are 9.001 Gb/s together; of the link's 10 Gb/s only 9 Gb/s may be promised"
    );
}

#[test]
fn a_minimum_above_its_maximum_and_a_split_above_its_vm_are_refused() {
    let mut crossed = config(EyeQ::default(), [4_500, 4_500]);
    let mut vm = VmBounds::both(mbps(4_500));
    vm.in_.most = mbps(4_000);
    set(&mut crossed, VmId(0), &vm);
    let refusal = host(&crossed).unwrap_err();
    assert!(matches!(refusal, Refusal::Crossed { vm: VmId(0), part: None, .. }), "{refusal:?}");
    let mut split = config(EyeQ::default(), [4_500, 4_500]);
    let part = Bounds::at_least(mbps(4_501));
    let splits = [(TenantId(0), part)].into();
    set(&mut split, VmId(1), &VmBounds { splits, ..VmBounds::both(mbps(4_500)) });
    let refusal = host(&split).unwrap_err();
    assert!(matches!(refusal, Refusal::SplitOverbooked { vm: VmId(1), .. }), "{refusal:?}");
}
