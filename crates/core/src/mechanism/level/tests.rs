//! What the law promises, on generated inputs.

use super::*;
use crate::host::{Location, SendCount, Timed};
use crate::mechanism::Law;
use proptest::prelude::*;
use weir_units::TenantId;

const LINE: Rate = Rate::from_mbps(200);

fn law() -> LevelLaw {
    let draft = Draft { period: Some(Span::from_millis(1)), ..Draft::new() };
    draft.on(LINE, Span::from_micros(300)).expect("the loop is stable")
}

fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn at(us: u64) -> Time {
    Time::ZERO + Span::from_micros(us)
}

fn seen() -> impl Strategy<Value = Seen> {
    let load = prop::option::of(0u64..3 * UNIT);
    let used = (UNIT..100 * UNIT).prop_map(Level::from_raw);
    (0u64..20_000, load, any::<bool>(), 0..=UNIT, used).prop_map(
        |(queue, load, is_lossy, marked, used)| Seen {
            queue: us(queue),
            load,
            is_lossy,
            marked,
            used,
        },
    )
}

/// A receiver's step in any state that it can come to.
fn state() -> impl Strategy<Value = (Step, u64)> {
    prop::collection::vec((seen(), 500u64..5_000), 0..40).prop_map(|all| {
        let (mut step, mut now) = (Step::new(at(0)), 0);
        for (seen, gap) in all {
            now += gap;
            step.step(&law(), at(now), seen);
        }
        (step, now + 5_000)
    })
}

/// One Level host, and its law's step against one queue, by which the drift of clocks is seen.
fn closed_loop(offset: u64, ppm: u64, seconds: u64) -> Vec<Level> {
    let (law, floor) = (law(), 0.2);
    let (mut path, mut level) = (Path::new(at(0)), Level::ONE);
    let (mut queue, mut levels, mut pending) = (0.0f64, Vec::new(), Level::ONE);
    for ms in 1..seconds * 1000 {
        // A queue drained at 1 ms per ms, filled by the pair and by another one of 0.5.
        let load = 0.5 + floor * level.raw() as f64 / UNIT as f64;
        queue = (queue + load - 1.0).clamp(0.0, 5.0);
        let sent = 1000 * ms;
        let skewed = |us: u64| us + us * ppm / 1_000_000;
        let came = skewed(sent) + 500 + (queue * 1000.0) as u64 + offset;
        let timed = Timed { sent: sent as u16, came: at(came) };
        let now = at(1000 * ms + 800 + offset);
        path.count(now, 10, 0, 0);
        path.uses(level);
        let shown = path.look(&law, now, timed);
        path.step(&law, now, Some(shown), Span::ZERO, ms.is_multiple_of(1000));
        level = std::mem::replace(&mut pending, path.level());
        levels.push(level);
    }
    levels
}

/// The dips that a path asks for in so many seconds, and what its last sample seems to have waited, µs. Its
/// clock is fast by `ppm`, its first packets waited `first` µs, all others 600, and 20 in a dip.
fn dips(ppm: i64, first: i64, seconds: u64) -> (u64, u64) {
    let (law, mut path) = (law(), Path::new(at(0)));
    let (mut dips, mut queue) = (0, 0);
    for ms in 1..seconds * 1000 {
        let waited = match path.is_dipping() {
            true => 20,
            false if ms < 3 => first,
            false => 600,
        };
        let sent = 1000 * ms;
        let came = sent.wrapping_add_signed(500 + waited + sent as i64 * ppm / 1_000_000);
        path.count(at(sent + 800), 10, 0, 0);
        let shown = path.look(&law, at(sent + 800), Timed { sent: sent as u16, came: at(came) });
        let was_dipping = path.is_dipping();
        path.step(&law, at(sent + 800), Some(shown), Span::ZERO, ms.is_multiple_of(1000));
        dips += u64::from(path.is_dipping() && !was_dipping);
        queue = shown.queue.as_nanos() / 1000;
    }
    (dips, queue)
}

#[test]
fn a_base_with_which_dips_agree_lives_longer_and_longer_whatever_the_drift() {
    for ppm in [0, 40, -40, 90, -90] {
        let (dips, queue) = dips(ppm, 0, 61);
        assert!((6..=9).contains(&dips), "{dips} dips in a minute at {ppm} ppm");
        assert!((500..=660).contains(&queue), "{queue} µs for 580 at {ppm} ppm");
    }
}

#[test]
fn a_base_that_was_a_queue_is_found_out_by_the_first_dip_and_is_no_drift() {
    for ppm in [0, 40, -40] {
        for first in [100, 500, 3_000] {
            let (_, queue) = dips(ppm, first, 21);
            assert!((500..=660).contains(&queue), "{queue} µs for 580, {ppm} ppm, first {first}");
        }
    }
}

#[test]
fn a_dip_that_ends_early_with_its_sender_or_a_clock_leaves_nothing_behind() {
    for ends_by_jump in [false, true] {
        let (law, mut path) = (law(), Path::new(at(0)));
        let jump = if ends_by_jump { 30_000 } else { 0 };
        let look = |path: &mut Path, ms: u64, waited: u64, jump: u64| {
            let now = at(1000 * ms + 800 + jump);
            path.count(now, 10, 0, 0);
            let came = at(1000 * ms + 500 + waited + jump);
            let shown = path.look(&law, now, Timed { sent: (1000 * ms) as u16, came });
            path.step(&law, now, Some(shown), Span::ZERO, false);
            shown.queue.as_nanos() / 1000
        };
        let begun = (1..2_000).find(|ms| {
            look(&mut path, *ms, 600, 0);
            path.is_dipping()
        });
        let begun = begun.expect("a base grows old");
        for ms in 1..5 {
            look(&mut path, begun + ms, 600, 0);
        }
        if ends_by_jump {
            for ms in 5..40 {
                look(&mut path, begun + ms, 600, jump);
            }
            assert_eq!(
                look(&mut path, begun + 40, 600, jump),
                0,
                "no delay of the old clock counts"
            );
        } else {
            path.step(&law, at(1000 * (begun + 20)), None, Span::ZERO, false);
            look(&mut path, begun + 30, 100, 0);
            assert_eq!(look(&mut path, begun + 31, 600, 0), 500, "a less delayed packet counts");
        }
    }
}

#[test]
fn a_host_that_nothing_is_sent_to_any_more_makes_room_for_another() {
    let (here, there, tenant) = (HostId(1), HostId(2), TenantId(1));
    let at_host = |host| Location { tenant, host };
    let policy = Policy::new(here, LINE, Law::Level(Box::new(law())))
        .with_directory([(VmId(1), at_host(here)), (VmId(2), at_host(there))]);
    let mut machine = Machine::new(policy, law(), at(0));
    let pair = PairId::new(VmId(1), VmId(2));
    machine.send.insert(pair, Sending::new(at(0)));
    machine.step(at(1_000), &mut Outbox::default());
    assert_eq!(machine.toward.keys().collect::<Vec<_>>(), [&there]);
    machine.send.remove(&pair);
    machine.step(at(9_000_000), &mut Outbox::default());
    assert_eq!(machine.toward.len(), 1, "it may come back");
    machine.step(at(11_002_000), &mut Outbox::default());
    assert_eq!(machine.toward.len(), 0);
}

#[test]
fn a_level_lapses_when_what_arrives_carries_no_times_any_more() {
    let (law, mut path) = (law(), Path::new(at(0)));
    let arrive = |path: &mut Path, ms: u64, is_timed: bool| {
        let now = at(1000 * ms + 800);
        path.count(now, 10, 0, 0);
        path.uses(Level::from_raw(10 * UNIT));
        let timed = Timed { sent: (1000 * ms) as u16, came: at(1000 * ms + 500) };
        let shown = is_timed.then(|| path.look(&law, now, timed));
        path.step(&law, now, shown, Span::ZERO, false);
        path.level()
    };
    let grown = (1..200).map(|ms| arrive(&mut path, ms, true)).last().expect("it stepped");
    assert!(grown > Level::from_raw(8 * UNIT), "{grown}");
    // A lease, and then a half each period.
    let levels: Vec<Level> = (200..240).map(|ms| arrive(&mut path, ms, false)).collect();
    assert!(levels[..11].iter().all(|level| *level == grown), "{levels:?}");
    assert_eq!(levels.last(), Some(&Level::ONE), "{levels:?}");
    assert!(arrive(&mut path, 240, true) <= Level::from_raw(2 * UNIT), "it grows from there");
}

#[test]
fn paths_of_a_host_with_one_bottleneck_come_to_one_level() {
    let law = law();
    let levels = |shares: bool| {
        let mut paths = [1u64, 16].map(|level| {
            let mut path = Path::new(at(0));
            path.uses(Level::from_raw(level * UNIT));
            path
        });
        let mut queue = 0.0f64;
        for ms in 1..530u64 {
            // Both see the network without a queue; then the second has the link for itself.
            let level = |path: &Path| path.level().raw() as f64 / UNIT as f64;
            let floors = if ms < 10 { [0.0; 2] } else { [if ms < 500 { 0.0 } else { 0.1 }, 0.1] };
            let load = floors[0] * level(&paths[0]) + floors[1] * level(&paths[1]);
            queue = (queue + load - 1.0).clamp(0.0, 5.0);
            let now = at(1000 * ms + 800);
            let shown: Vec<_> = paths
                .iter_mut()
                .enumerate()
                .map(|(which, path)| {
                    if which == 0 && (10..500).contains(&ms) {
                        return None;
                    }
                    path.count(now, 10, 0, 0);
                    let used = path.level();
                    path.uses(used);
                    let came = at(1000 * ms + 500 + (queue * 1000.0) as u64);
                    let shown = path.look(&law, now, Timed { sent: (1000 * ms) as u16, came });
                    path.step(&law, now, Some(shown), Span::ZERO, false);
                    Some(shown)
                })
                .collect();
            if shares {
                share(&law, paths.iter_mut().zip(shown));
            }
        }
        paths.map(|path| path.level().raw() as f64)
    };
    // Thirty periods after the first one joined.
    let [a, b] = levels(true);
    assert!((a / b - 1.0).abs() < 0.005, "{a} and {b}");
    let [a, b] = levels(false);
    assert!((a / b - 1.0).abs() > 0.05, "{a} and {b}: that would be so without sharing");
}

fn mean(levels: &[Level]) -> f64 {
    levels.iter().map(|level| level.raw() as f64).sum::<f64>() / levels.len() as f64 / UNIT as f64
}

proptest! {
    #[test]
    fn more_queue_load_losses_or_marks_never_give_a_higher_level(
        (step, now) in state(),
        seen in seen(),
        queue in 0u64..10_000,
        load in 0..UNIT,
        lossy in any::<bool>(),
        marked in 0..=UNIT,
    ) {
        let worse = Seen {
            queue: seen.queue + us(queue),
            load: seen.load.map(|old| old + load),
            is_lossy: seen.is_lossy || lossy,
            marked: seen.marked.max(marked),
            ..seen
        };
        let (mut one, mut other) = (step, step);
        let (good, bad) = (one.step(&law(), at(now), seen), other.step(&law(), at(now), worse));
        prop_assert!(bad <= good, "{seen:?} gives {good}, {worse:?} gives {bad}");
    }

    #[test]
    fn a_level_never_exceeds_what_is_used_by_half_but_for_one_that_was_reached_before(
        all in prop::collection::vec((seen(), 0u64..5_000), 1..60),
    ) {
        let (mut step, mut now, mut highest) = (Step::new(at(0)), 0, Level::ONE);
        for (seen, gap) in all {
            now += gap;
            let before = step.level();
            let level = step.step(&law(), at(now), seen);
            prop_assert!(level >= Level::ONE);
            let most = Level::from_raw(seen.used.raw() * 3 / 2).max(highest);
            prop_assert!(level <= most.max(before), "{level} of {most}");
            highest = highest.max(level);
        }
    }

    #[test]
    fn rates_times_k_and_times_over_k_give_the_same_level(
        all in prop::collection::vec((seen(), 500u64..5_000), 1..40),
        k in 2u64..6,
    ) {
        let slow = law();
        let by = |span: Span| Span::from_nanos(span.as_nanos() / k);
        // All times are multiples of every k.
        let even = |span: Span| Span::from_nanos(span.as_nanos() / 60 * 60);
        let slow = LevelLaw {
            period: even(slow.period),
            loop_delay: even(slow.loop_delay),
            frame: even(slow.frame),
            noise: even(slow.noise),
            ..slow
        };
        let (period, loop_delay) = (by(slow.period), by(slow.loop_delay));
        let (noise, frame) = (by(slow.noise), by(slow.frame));
        let fast = LevelLaw { period, loop_delay, noise, frame, ..slow.clone() };
        let (mut a, mut b, mut now) = (Step::new(at(0)), Step::new(at(0)), 0);
        for (seen, gap) in all {
            now += gap * 60;
            let queue = even(seen.queue);
            let seen = Seen { queue, ..seen };
            let x = a.step(&slow, at(now), seen);
            let y = b.step(&fast, Time::from_nanos(now * 1000 / k), Seen { queue: by(queue), ..seen });
            prop_assert_eq!(x, y);
        }
    }

    #[test]
    fn one_pair_or_many_of_the_same_floors_may_send_the_same(
        raw in UNIT..50 * UNIT, kbit in 1_000u64..100_000, n in 1usize..200,
    ) {
        let level = Level::from_raw(raw);
        let whole = Rate::from_bps(kbit * 1000);
        let part = whole.split(n);
        let parts = level.ceiling(part, part).as_f64() * n as f64;
        let whole = level.ceiling(whole, whole).as_f64();
        prop_assert!((parts - whole).abs() <= 51.0 * n as f64 + 1.0, "{parts} of {whole}");
    }

    #[test]
    fn what_is_borrowed_after_the_receivers_last_word_is_bounded(
        raw in UNIT..50 * UNIT, mbit in 1u64..50,
    ) {
        let (law, level) = (law(), Level::from_raw(raw));
        let (mut toward, mut pair) = (Toward::new(at(0)), Sending::new(at(0)));
        pair.floor = Rate::from_mbps(mbit);
        let period = law.period;
        let (mut now, mut borrowed, mut octets) = (Time::ZERO, 0u64, 0);
        for n in 0..2000u64 {
            now += period;
            octets += 10_000;
            pair.count(now, SendCount { octets, waiting: Some(100_000), ..SendCount::default() });
            if n < 100 {
                toward.hear(now, level);
            }
            toward.step(&law, now);
            let uses = pair.step(&law, (now, period), toward.level(), Rate::from_mbps(1000));
            toward.used(now, &pair, uses);
            let setting = pair.setting(&law, toward.level(), Rate::from_mbps(1000));
            prop_assert!(setting.ceiling >= setting.floor);
            if n >= 100 {
                borrowed += (setting.ceiling - setting.floor).bytes_in(period).get();
            }
        }
        let above = level.ceiling(pair.floor, pair.floor) - pair.floor;
        let most = above.bytes_in(law.lease() + period * 3).get();
        prop_assert!(borrowed <= most + 100, "{borrowed} of {most} octets");
    }

    #[test]
    fn a_clocks_offset_changes_nothing(offset in 0u64..10_000_000) {
        prop_assert_eq!(closed_loop(offset, 0, 1), closed_loop(0, 0, 1));
    }
}

#[test]
fn a_pair_that_waits_says_that_it_uses_no_more_than_the_line() {
    let (law, mut pair) = (law(), Sending::new(at(0)));
    pair.floor = Rate::from_bps(64_000);
    let most = Level::of(LINE, pair.floor, law.weight(pair.floor, LINE));
    for n in 1..200 {
        let now = at(n * 1000);
        pair.count(now, SendCount { octets: n * 25_000, waiting: Some(1), ..SendCount::default() });
        let uses = pair.step(&law, (now, law.period), Level::MAX, LINE);
        assert!(uses <= most, "{uses} of {most}");
    }
}

#[test]
fn a_clock_that_is_fast_by_a_ten_thousandth_moves_the_level_by_a_fiftieth_at_most() {
    let settled = |ppm| mean(&closed_loop(0, ppm, 12)[4_000..]);
    let (right, fast) = (settled(0), settled(100));
    assert!((2.3..2.7).contains(&right), "0.5 of the link over a floor of 0.2: {right}");
    assert!((fast / right - 1.0).abs() < 0.02, "{fast} against {right}");
}

#[test]
fn a_clock_that_jumps_costs_three_periods_without_growth_and_no_more() {
    let law = law();
    // The receiver's clock forward, the sender's back. The sender's forward looks like a queue that
    // drains, and the base is right at once.
    for (receiver, sender) in [(30_000, 0), (0, -30_000i64)] {
        let (mut path, mut last) = (Path::new(at(0)), Level::ONE);
        let mut grew_at = None;
        for ms in 1..100u64 {
            let is_later = ms >= 20;
            let (receiver, sender) = if is_later { (receiver, sender) } else { (0, 0) };
            let sent = (1000 * ms).wrapping_add_signed(sender) as u16;
            let timed = Timed { sent, came: at(1000 * ms + 400 + receiver) };
            let now = at(1000 * ms + 800 + receiver);
            path.count(now, 10, 0, 0);
            path.uses(Level::from_raw(1000 * UNIT));
            let shown = path.look(&law, now, timed);
            path.step(&law, now, Some(shown), Span::ZERO, ms.is_multiple_of(1000));
            if is_later && path.level() > last {
                grew_at.get_or_insert(ms);
            }
            last = path.level();
        }
        assert_eq!(path.jumps(), 1, "{receiver} {sender}");
        assert!(grew_at.is_some_and(|ms| (22..=25).contains(&ms)), "{grew_at:?}");
    }
}

#[test]
fn a_loop_that_would_swing_is_refused_with_what_could_be() {
    let on = |period, delay| {
        let draft = Draft { period: Some(us(period)), loop_delay: Some(us(delay)), ..Draft::new() };
        draft.on(LINE, us(300)).map(drop)
    };
    assert_eq!(on(1000, 2000), Ok(()));
    let error = on(1000, 2500).expect_err("D is 3.5 T");
    assert!(error.contains("may be 2000 µs") && error.contains("at least 1250 µs"), "{error}");
    assert!(on(100, 100).is_err_and(|error| error.contains("between 200 µs")), "too short");
    // What is not set follows from the network: there is no round trip that cannot be played.
    for round_trip in [0, 500, 1_500, 10_000, 20_000] {
        let law = Draft::new().on(LINE, us(round_trip)).expect("stable");
        assert!(law.loop_delay + law.period <= law.period * 3);
    }
}

#[test]
fn a_floor_that_wakes_makes_a_borrower_yield_in_two_steps_and_the_borrower_returns_at_once() {
    let law = law();
    let (mut step, mut now) = (Step::new(at(0)), at(0));
    let mut play = |step: &mut Step, queue: u64, load: Option<u64>, times: u32| {
        for _ in 0..times {
            now += law.period;
            let used = step.level();
            step.step(&law, now, Seen { queue: us(queue), load, is_lossy: false, marked: 0, used });
        }
        step.level().raw() as f64 / UNIT as f64
    };
    let alone = play(&mut step, 0, None, 9);
    assert!(alone > 2.4, "{alone}");
    let yields = play(&mut step, 1500, Some(UNIT * 14 / 10), 1);
    assert!(yields < alone * 0.72, "{yields} of {alone}");
    // What is seen for the next 3.5 periods left its sender before.
    assert_eq!(play(&mut step, 1500, Some(UNIT * 14 / 10), 3), yields);
    let again = play(&mut step, 1500, Some(UNIT * 12 / 10), 1);
    assert!(again < alone * 0.6, "{again} of {alone}");
    let back = play(&mut step, 0, None, 6);
    assert!(back >= alone * 0.89, "{back} of {alone}");
}
