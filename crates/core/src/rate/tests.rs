use super::*;
use weir_units::{Bytes, Span};

const LINE: Rate = Rate::from_mbps(1000);

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

/// Steps a pair by `n` periods with the same feedback; returns the time after the last.
fn run(p: &mut PairRate, c: &RateConfig, from: Time, n: u32, floor: Rate, lost: u32) -> Time {
    let mut now = from;
    for _ in 0..n {
        now += c.period;
        p.step(c, now, floor, LINE, Feedback { lost, ..Feedback::default() });
    }
    now
}

/// Periods from a loss of `lost` segments until the rate moves again.
fn hold_periods(config: &RateConfig, floor: Rate, lost: u32) -> u32 {
    let mut pair = PairRate::new(floor);
    let mut now = run(&mut pair, config, Time::ZERO, 100, floor, 0);
    now = run(&mut pair, config, now, 1, floor, lost);
    (1..1_000_000)
        .find(|_| {
            now = run(&mut pair, config, now, 1, floor, 0);
            pair.phase() != Phase::Holding
        })
        .expect("a hold ends")
}

#[test]
fn a_loss_takes_alpha_of_the_rate_but_nothing_of_the_floor() {
    let config = RateConfig::default();
    let mut pair = PairRate::new(mbps(100));
    pair.rate = 500e6;
    pair.step(
        &config,
        Time::from_nanos(1),
        mbps(100),
        LINE,
        Feedback { lost: 3, ..Feedback::default() },
    );
    assert_eq!(pair.rate(), mbps(300));
    for i in 2..20 {
        let loss = Feedback { lost: 3, ..Feedback::default() };
        pair.step(&config, Time::from_nanos(i), mbps(100), LINE, loss);
    }
    assert_eq!(pair.rate(), mbps(100));
}

#[test]
fn a_pair_alone_reaches_the_line_rate() {
    let config = RateConfig::default();
    let mut pair = PairRate::new(mbps(450));
    run(&mut pair, &config, Time::ZERO, 200, mbps(450), 0);
    assert_eq!(pair.rate(), LINE);
}

#[test]
fn ten_losses_at_weight_one_hold_for_eight_periods() {
    // ln(10) / ln(1/0.75) = 8.004: the ninth decay brings the history below one.
    assert_eq!(hold_periods(&RateConfig::default(), mbps(450), 10), 9);
}

#[test]
fn the_hold_time_is_in_inverse_proportion_to_the_floor() {
    for hold in [HoldForm::Linear, HoldForm::History] {
        let config = RateConfig { hold, ..RateConfig::default() };
        let large = hold_periods(&config, mbps(450), 100);
        let small = hold_periods(&config, mbps(45), 100);
        let ratio = f64::from(small) / f64::from(large);
        assert!((9.0..=10.5).contains(&ratio), "{hold:?}: {large} and {small} periods");
    }
}

#[test]
fn a_single_loss_keeps_the_proportion_only_in_the_forms_that_say_so() {
    let periods =
        |hold, floor| hold_periods(&RateConfig { hold, ..RateConfig::default() }, mbps(floor), 1);
    assert_eq!(periods(HoldForm::History, 450), periods(HoldForm::History, 45));
    assert_eq!(periods(HoldForm::Linear, 450) * 10, periods(HoldForm::Linear, 45));
}

#[test]
fn caution_makes_a_pair_that_has_more_grow_less() {
    let step_at = |rate: f64, caution: f64| {
        let config = RateConfig { caution, ..RateConfig::default() };
        let mut pair = PairRate::new(mbps(100));
        pair.rate = rate;
        pair.step(&config, Time::from_nanos(1), mbps(100), LINE, Feedback::default());
        pair.rate - rate
    };
    let plain = step_at(200e6, 0.0);
    assert!((step_at(200e6, 0.5) / plain - 0.5).abs() < 1e-6, "halved at twice the floor");
    assert!((step_at(900e6, 0.5) / plain - 0.3).abs() < 1e-6, "but not below the minimum");
}

#[test]
fn after_a_hold_the_rate_returns_towards_the_goal_and_not_beyond() {
    let config = RateConfig {
        hold: HoldForm::None,
        delta_t_unit: DeltaTUnit::Second,
        ..RateConfig::default()
    };
    let mut pair = PairRate::new(mbps(450));
    pair.rate = 800e6;
    pair.step(&config, Time::ZERO, mbps(450), LINE, Feedback { lost: 1, ..Feedback::default() });
    assert_eq!(pair.goal(), Some(mbps(800)));
    let mut now = Time::ZERO;
    while pair.rate < 0.99 * 800e6 {
        now = run(&mut pair, &config, now, 1, mbps(450), 0);
        assert!(pair.rate <= 800e6);
        assert_eq!(pair.phase(), Phase::Regaining);
    }
    run(&mut pair, &config, now, 1, mbps(450), 0);
    assert_eq!(pair.phase(), Phase::Probing);
}

#[test]
fn a_pair_with_a_large_floor_returns_towards_the_goal_no_faster_than_one_with_the_reference() {
    let regained = |floor: u64| {
        let config = RateConfig { hold: HoldForm::None, caution: 0.0, ..RateConfig::default() };
        let fast = Rate::from_mbps(100_000);
        let mut pair = PairRate::new(mbps(floor));
        // Of so much one loss takes 0.4.
        (pair.rate, pair.goal) = (floor as f64 * 1e6 * 1.2, floor as f64 * 1e6 * 2.0);
        let lost = pair.goal - pair.rate;
        pair.congested_at = Some(Time::ZERO);
        let before = pair.rate;
        pair.step(&config, Time::from_nanos(1), mbps(floor), fast, Feedback::default());
        (pair.rate - before) / lost
    };
    let most = regained(450);
    assert!((0.7..=0.76).contains(&most), "{most}");
    assert!((regained(225) / most - 0.5).abs() < 0.01, "in proportion below it");
    for floor in [600, 840, 5000, 20_000] {
        assert!((regained(floor) - most).abs() < 1e-6, "{floor}: {}", regained(floor));
    }
}

#[test]
fn what_is_borrowed_decays_and_the_floor_stays() {
    let mut pair = PairRate::new(mbps(100));
    pair.rate = 500e6;
    assert_eq!(pair.decay(mbps(100)), mbps(300));
    for _ in 0..64 {
        pair.decay(mbps(100));
    }
    assert_eq!(pair.rate(), mbps(100));
    assert_eq!(pair.phase(), Phase::Decaying);
}

#[test]
fn marks_take_their_own_part_of_the_rate_and_a_loss_among_them_the_whole() {
    let config = RateConfig { alpha_marked: 0.1, ..RateConfig::default() };
    for (only_marks, left) in [(true, 450), (false, 300)] {
        let mut pair = PairRate::new(mbps(100));
        pair.rate = 500e6;
        let feedback = Feedback { lost: 1, only_marks, ..Feedback::default() };
        pair.step(&config, Time::from_nanos(1), mbps(100), LINE, feedback);
        assert_eq!(pair.rate(), mbps(left), "only marks: {only_marks}");
        assert_eq!(pair.phase(), Phase::Holding);
    }
}

#[test]
fn a_report_of_marks_weighs_one_however_many_there_are() {
    for (signal, lost, marked, weight) in [
        (Signal::Loss, 7, 0, 7),
        (Signal::Loss, 0, 200, 0),
        (Signal::Ecn, 0, 200, 1),
        (Signal::Ecn, 7, 0, 1),
        (Signal::Ecn, 0, 0, 0),
    ] {
        assert_eq!(signal.weigh(lost, marked), weight, "{signal:?}: {lost} lost, {marked} marked");
    }
    assert!(!Signal::Loss.needs_marks() && Signal::Ecn.needs_marks());
}

#[test]
fn a_loss_soon_after_the_hold_takes_more_than_one_that_was_long_in_coming() {
    let config = RateConfig {
        hold: HoldForm::Linear,
        hold_base: Span::from_millis(150),
        alpha_again: Some(0.9),
        a: Rate::ZERO,
        delta: 0.0,
        ..RateConfig::default()
    };
    // Weight 1/10: one loss holds for 1.5 s, 100 periods. The rate stays, for it may not grow.
    // Within four periods it is the same congestion.
    for (periods, left) in [(2, 360), (4, 60), (150, 60), (250, 360)] {
        let mut pair = PairRate::new(mbps(45));
        pair.rate = 600e6;
        let now = run(&mut pair, &config, Time::ZERO, 1, mbps(45), 1);
        assert_eq!(pair.rate(), mbps(360), "the first loss is any loss");
        let now = run(&mut pair, &config, now, periods, mbps(45), 0);
        // A moment of silence makes neither of a loss.
        pair.decay(mbps(45));
        pair.rate = 600e6;
        run(&mut pair, &config, now, 1, mbps(45), 1);
        assert_eq!(pair.rate(), mbps(left), "after {periods} periods");
    }
}

#[test]
fn who_sees_no_congestion_for_long_grows_ever_faster_and_one_loss_ends_that() {
    let bounded = RateConfig {
        hold: HoldForm::Linear,
        hold_base: Span::from_millis(150),
        steps_max: 4,
        caution: 0.0,
        ..RateConfig::default()
    };
    let config = RateConfig { steps_patience: Some(Span::from_millis(1500)), ..bounded.clone() };
    let floor = mbps(45);
    // What one period adds after so many without congestion, in steps of w*A: n.
    let steps_after = |config: &RateConfig, periods| {
        let mut pair = PairRate::new(floor);
        let now = run(&mut pair, config, Time::ZERO, periods, floor, 0);
        pair.rate = 100e6;
        run(&mut pair, config, now, 1, floor, 0);
        ((pair.rate - 100e6) / (0.1 * config.a.as_f64())).round()
    };
    // Half a hold of 1.5 s and the patience: 150 periods as before; then doubled every 100.
    assert_eq!([2, 140, 251, 351].map(|n| steps_after(&config, n)), [3.0, 4.0, 8.0, 16.0]);
    assert_eq!([2, 140, 251, 351].map(|n| steps_after(&bounded, n)), [3.0, 4.0, 4.0, 4.0]);

    let mut pair = PairRate::new(floor);
    let mut now = run(&mut pair, &config, Time::ZERO, 400, floor, 0);
    now = run(&mut pair, &config, now, 1, floor, 1);
    now = run(&mut pair, &config, now, 110, floor, 0);
    let before = pair.rate;
    run(&mut pair, &config, now, 1, floor, 0);
    assert!(pair.rate - before <= 4.0 * 0.1 * config.a.as_f64() + 1.0);
}

#[test]
fn a_pair_slower_than_a_packet_per_period_grows_once_per_packet() {
    let config = RateConfig {
        growth_needs_sent: Bytes::new(1514),
        ..RateConfig::default().without_hold_and_caution()
    };
    // How often a pair that sends at this rate grows in a hundred periods of 15 ms.
    let grown = |used: Option<Rate>| {
        let mut pair = PairRate::new(mbps(45));
        let mut now = Time::ZERO;
        (0..100)
            .filter(|_| {
                now += config.period;
                let before = pair.rate;
                pair.step(&config, now, mbps(45), LINE, Feedback { used, ..Feedback::default() });
                pair.rate > before
            })
            .count()
    };
    assert_eq!(grown(Some(mbps(45))), 100);
    // 750 octets in a period: a full frame is sent after three.
    assert_eq!(grown(Some(Rate::from_bps(400_000))), 33);
    assert_eq!(grown(Some(Rate::from_bps(810_000))), 100);
    assert_eq!(grown(Some(Rate::ZERO)), 0);
    assert_eq!(grown(None), 100, "where nobody measures what is sent, nothing is asked of it");
}

#[test]
fn a_weight_without_a_floor_grows_alike_and_falls_to_the_trickle() {
    let config = RateConfig::default().without_hold_and_caution();
    let trickle = Rate::from_bps(64_000);
    let mut weighted = PairRate::new(mbps(45));
    let mut floored = PairRate::new(mbps(45));
    let mut now = Time::ZERO;
    for _ in 0..10 {
        now += config.period;
        let standing = (trickle, mbps(45));
        weighted.step_weighted(&config, now, standing, LINE, Feedback::default());
        floored.step(&config, now, mbps(45), LINE, Feedback::default());
    }
    assert_eq!(weighted.rate(), floored.rate());
    for _ in 0..50 {
        now += config.period;
        let loss = Feedback { lost: 1, ..Feedback::default() };
        weighted.step_weighted(&config, now, (trickle, mbps(45)), LINE, loss);
    }
    assert_eq!(weighted.rate(), trickle);
}

proptest::proptest! {
    #[test]
    fn the_rate_lies_between_floor_and_limit(
        steps in proptest::collection::vec(
            (0u64..2_000_000_000, 0u64..1_000_000_000, 0u32..5000, -50_000_000i64..10_000_000_000),
            1..200),
        hold in 0..3,
        again in proptest::option::of(0.0f64..=1.0),
        patience in proptest::option::of(15u64..5000),
    ) {
        let hold = [HoldForm::None, HoldForm::Linear, HoldForm::History]
            [hold as usize];
        let config = RateConfig {
            hold,
            alpha_again: again,
            steps_patience: patience.map(Span::from_millis),
            ..RateConfig::default()
        };
        let mut pair = PairRate::new(mbps(10));
        let mut now = Time::ZERO;
        for (floor, limit, lost, dt) in steps {
            // Clocks of some hosts step back.
            now = Time::from_nanos(now.as_nanos().saturating_add_signed(dt));
            if dt % 7 == 0 {
                pair.decay(Rate::from_bps(floor));
            }
            let floor = Rate::from_bps(floor);
            let limit = Rate::from_bps(limit);
            // Half of the periods are without loss: else nothing ever grows.
            let lost = if lost < 2500 { 0 } else { lost };
            let late = if dt % 3 == 0 { lost } else { 0 };
            let feedback = Feedback { lost, late, ..Feedback::default() };
            let rate = pair.step(&config, now, floor, limit, feedback);
            proptest::prop_assert!(rate >= floor);
            proptest::prop_assert!(rate <= limit.max(floor).max(config.least_floor));
        }
    }
}

/// Steps a pair that uses so much in each period.
fn use_of(p: &mut PairRate, c: &RateConfig, from: Time, n: u32, floor: Rate, used: Rate) -> Time {
    let mut now = from;
    for _ in 0..n {
        now += c.period;
        p.step(c, now, floor, LINE, Feedback { used: Some(used), ..Feedback::default() });
    }
    now
}

#[test]
fn with_keeps_used_a_rate_is_at_most_twice_what_is_used_and_falls_when_it_is_not() {
    let config = RateConfig { keeps_used: Some(2.0), ..RateConfig::default() };
    let mut pair = PairRate::new(mbps(10));
    let mut now = use_of(&mut pair, &config, Time::ZERO, 2000, mbps(10), mbps(30));
    assert_eq!(pair.rate(), mbps(60));
    // A packet a second is no use of it: half after half a second, and then the floor.
    now = use_of(&mut pair, &config, now, 34, mbps(10), mbps(0));
    assert!((29..=31).contains(&(pair.rate().as_bps() / 1_000_000)), "{:?}", pair.rate());
    use_of(&mut pair, &config, now, 80, mbps(10), mbps(0));
    assert_eq!(pair.rate(), mbps(10));
    // The paper's keeps growing.
    let paper = RateConfig::default();
    let mut pair = PairRate::new(mbps(10));
    use_of(&mut pair, &paper, Time::ZERO, 20_000, mbps(10), mbps(0));
    assert_eq!(pair.rate(), LINE);
}

#[test]
fn a_pair_that_uses_all_it_has_grows_as_without_the_bound() {
    let paper = RateConfig::default();
    let bounded = RateConfig { keeps_used: Some(2.0), ..paper.clone() };
    let (mut a, mut b) = (PairRate::new(mbps(50)), PairRate::new(mbps(50)));
    let mut now = Time::ZERO;
    for _ in 0..400 {
        now += paper.period;
        let used = Some(a.rate());
        a.step(&paper, now, mbps(50), LINE, Feedback { used, ..Feedback::default() });
        b.step(&bounded, now, mbps(50), LINE, Feedback { used, ..Feedback::default() });
        assert_eq!(a.rate(), b.rate());
    }
}

/// The law with holds of a fixed time, on paths longer than 5 ms.
fn long_paths() -> RateConfig {
    let long_path = Some(Span::from_millis(5));
    RateConfig { hold: HoldForm::Linear, long_path, ..RateConfig::default() }
}

/// What a period brings over a path of 10 ms.
fn over_10_ms(lost: u32, path_lost: bool) -> Feedback {
    let round_trip = Some(Span::from_millis(10));
    Feedback { lost, path_lost, round_trip, ..Feedback::default() }
}

#[test]
fn a_loss_holds_longer_by_the_square_of_a_long_round_trip_and_until_a_window_is_regained() {
    let config = long_paths();
    let held = |floor: Rate, ms: Option<u64>| {
        let mut pair = PairRate::new(floor);
        let round_trip = ms.map(Span::from_millis);
        let mut now = run(&mut pair, &config, Time::ZERO, 10, floor, 0);
        now += config.period;
        let loss = Feedback { lost: 1, round_trip, ..Feedback::default() };
        pair.step(&config, now, floor, LINE, loss);
        let view = pair.view(&config, now, (floor, floor));
        view.held_until.expect("held").since(now)
    };
    let base = |floor: Rate| config.hold_base * (450_000_000 / floor.as_bps());
    for floor in [mbps(450), mbps(1)] {
        assert_eq!(held(floor, None), base(floor));
        assert_eq!(held(floor, Some(5)), base(floor));
    }
    assert_eq!(held(mbps(1), Some(10)), base(mbps(1)) * 4);
    assert_eq!(held(mbps(1), Some(40)), base(mbps(1)) * 64);
    // 1 Gbit/s over 10 ms are 825.6 full frames: CUBIC needs the cube root of 619.2 seconds. Over
    // 6 ms it needs 7.19, of which a fifth counts.
    let least = |ms| held(mbps(450), Some(ms)).as_secs_f64();
    assert!((least(10) - 8.523).abs() < 0.001, "{}", least(10));
    assert!((least(6) - 7.189 / 5.0).abs() < 0.001, "{}", least(6));
}

#[test]
fn many_losses_over_a_long_path_hold_for_the_time_of_one_window_and_not_of_many() {
    let config = long_paths();
    let mut pair = PairRate::new(mbps(450));
    let mut now = Time::ZERO;
    for _ in 0..10 {
        now += config.period;
        pair.step(&config, now, mbps(450), LINE, over_10_ms(1, false));
    }
    let view = pair.view(&config, now, (mbps(450), mbps(450)));
    let held = view.held_until.expect("held").since(now);
    assert!(held < Span::from_secs(9), "{held:?}");
}

#[test]
fn a_pair_over_a_long_path_comes_to_its_floor_while_it_holds_also_if_the_floor_sinks() {
    let config = long_paths();
    let mut pair = PairRate::new(mbps(100));
    let mut now = run(&mut pair, &config, Time::ZERO, 400, mbps(100), 0);
    let mut play = |pair: &mut PairRate, seconds: f64, floor, lost| {
        for period in 0..(seconds / config.period.as_secs_f64()) as u32 {
            now += config.period;
            let lost = if period == 0 { lost } else { 0 };
            pair.step(&config, now, floor, LINE, over_10_ms(lost, false));
        }
        pair.rate().as_f64() / 1e6
    };
    let cut = play(&mut pair, 0.015, mbps(100), 1);
    assert!(cut > 200.0, "a part of it is cut: {cut}");
    // A floor that is away for a moment takes little.
    let after = play(&mut pair, 0.3, mbps(10), 0);
    assert!(after > 0.95 * cut, "{after} of {cut}");
    // Of what is beyond the floor 1/e is left when a window is regained.
    play(&mut pair, 0.015, mbps(100), 1);
    let (beyond, rest) =
        (pair.rate().as_f64() / 1e6 - 60.0, play(&mut pair, 8.5, mbps(60), 0) - 60.0);
    assert!((rest / beyond - 0.369).abs() < 0.01, "{rest} of {beyond}");
    assert_eq!(pair.phase(), Phase::Holding);
}

#[test]
fn what_a_pair_of_the_same_hosts_loses_cuts_all_their_pairs_once_where_the_path_is_long() {
    let config = long_paths();
    let grown = || {
        let mut pair = PairRate::new(mbps(100));
        let now = run(&mut pair, &config, Time::ZERO, 400, mbps(100), 0);
        (pair, now + config.period)
    };
    let (mut short, now) = grown();
    let lost = Feedback { round_trip: Some(Span::from_millis(1)), ..over_10_ms(0, true) };
    short.step(&config, now, mbps(100), LINE, lost);
    assert_eq!(short.cuts(), 0);

    let (mut long, mut now) = grown();
    for _ in 0..100 {
        long.step(&config, now, mbps(100), LINE, over_10_ms(0, true));
        now += config.period;
    }
    assert_eq!(long.cuts(), 1);
    // The hold of one loss, not of a hundred.
    let until = long.view(&config, now, (mbps(100), mbps(100))).held_until.expect("held");
    assert!(until.since(now) < Span::from_secs(9), "{:?}", until.since(now));

    let marks = RateConfig { hold: HoldForm::None, ..long_paths() };
    let (mut marked, now) = grown();
    marked.step(&marks, now, mbps(100), LINE, over_10_ms(0, true));
    assert_eq!(marked.cuts(), 0, "each has its own marks");
}
