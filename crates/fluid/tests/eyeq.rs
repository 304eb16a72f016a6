//! EyeQ in the fluid world: Fig. 1, Fig. 6, classes, priorities that change, and what makes it unstable.

use weir_core::eyeq::{Backend, Bounds, EyeQ, Loop, VmBounds};
use weir_fluid::eyeq::{Flow, Outcome, Vm, World, settled_after};
use weir_units::{Rate, Span};

fn mbps(m: u64) -> Rate {
    Rate::from_mbps(m)
}

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn vm(host: u32, tenant: u32, floor: u64) -> Vm {
    Vm { host, tenant, bounds: VmBounds::both(mbps(floor)) }
}

fn flow(src: u32, dst: u32, from: u64) -> Flow {
    Flow { src, dst, demand: None, during: ms(from)..ms(100_000) }
}

fn near(got: f64, mbps: f64, slack: f64, what: &str) {
    assert!((got / (mbps * 1e6) - 1.0).abs() <= slack, "{what}: {:.0} Mb/s, not {mbps}", got / 1e6);
}

/// Fig. 1: A1 and B1 on hosts of their own, A2 and B2 on one, B3 on another. Floors of 1.8 and 7.2 of the 9 Gb/s that the
/// headroom leaves. F1 A1→A2, from 200 ms on F2 B1→B2, from 400 ms on F3 B1→B3.
fn figure_1(eyeq: EyeQ) -> World {
    let (a, b) = (1_800, 7_200);
    let vms = vec![vm(0, 0, a), vm(1, 1, b), vm(2, 0, a), vm(2, 1, b), vm(3, 1, b)];
    World::new(eyeq, vms, vec![flow(0, 2, 0), flow(1, 3, 200), flow(1, 4, 400)])
}

#[test]
fn the_three_flows_of_figure_1_have_their_rates() {
    let got = figure_1(EyeQ::default()).play(ms(600));
    let rate = |flow: usize, from: u64, to: u64| got.mean(flow, ms(from), ms(to));
    near(rate(0, 100, 200), 9_000.0, 0.05, "F1 alone");
    near(rate(0, 300, 400), 1_800.0, 0.05, "F1 beside F2");
    near(rate(1, 300, 400), 7_200.0, 0.05, "F2 beside F1");
    near(rate(0, 500, 600), 4_000.0, 0.05, "F1, what F2 leaves");
    near(rate(1, 500, 600), 5_000.0, 0.05, "F2, half of its uplink");
    near(rate(2, 500, 600), 5_000.0, 0.05, "F3, the other half");
}

#[test]
fn by_the_printed_formula_what_f2_leaves_is_lost_to_f1() {
    let got = figure_1(EyeQ::preset("eyeq-paper").unwrap()).play(ms(600));
    near(got.mean(0, ms(500), ms(600)), 1_800.0, 0.05, "F1");
    near(got.mean(1, ms(500), ms(600)), 5_000.0, 0.05, "F2");
}

/// Fig. 6: one sender of tenant 0, `n` of tenant 1 that begin at 50 ms, both to one host.
fn figure_6(eyeq: EyeQ, n: u32) -> World {
    let mut vms = vec![vm(0, 0, 4_500), vm(0, 1, 4_500), vm(1, 0, 4_500)];
    let mut flows = vec![flow(2, 0, 0)];
    for i in 0..n {
        vms.push(vm(2 + i, 1, 4_500));
        flows.push(flow(3 + i, 1, 50));
    }
    World::new(eyeq, vms, flows)
}

fn settled(got: &Outcome, flows: std::ops::RangeInclusive<usize>, want: f64) -> Option<Span> {
    settled_after(&got.sum(flows), ms(50), want * 1e6, 0.1)
}

#[test]
fn fourteen_senders_at_line_rate_leave_one_flow_its_half_within_five_milliseconds() {
    for name in EyeQ::PRESETS {
        let got = figure_6(EyeQ::preset(name).unwrap(), 14).play(ms(250));
        assert!(got.mean(0, ms(30), ms(50)) >= 8.8e9, "{name}: alone");
        for (what, flows) in [("one", 0..=0), ("fourteen", 1..=14)] {
            let after = settled(&got, flows, 4_500.0);
            assert!(after.is_some_and(|a| a <= ms(5)), "{name}, {what}: after {after:?}");
        }
    }
}

#[test]
fn a_hundred_senders_share_an_endpoint_and_none_starves() {
    let got = figure_6(EyeQ::default(), 100).play(ms(400));
    let rates: Vec<f64> = (1..=100).map(|f| got.mean(f, ms(200), ms(400))).collect();
    let sum: f64 = rates.iter().sum();
    near(sum, 4_500.0, 0.05, "all");
    near(got.mean(0, ms(200), ms(400)), 4_500.0, 0.05, "the other VM");
    let least = rates.iter().fold(f64::INFINITY, |a, b| a.min(*b));
    assert!(least >= 0.9 * sum / 100.0, "{least:.0} of {sum:.0}");
    // And they come to rest.
    for flows in [0..=0, 1..=100] {
        let after = settled(&got, flows, 4_500.0);
        assert!(after.is_some_and(|a| a <= ms(50)), "after {after:?}");
    }
}

#[test]
fn rates_that_do_not_wait_until_a_hundred_were_told_swing_for_ever() {
    let hasty = EyeQ { told_part: 0.0, ..EyeQ::default() };
    let got = figure_6(hasty, 100).play(ms(400));
    let late = &got.sum(1..=100)[300..];
    let (low, high) = late.iter().fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(*r), h.max(*r)));
    assert!(high - low > 0.2 * 4.5e9, "{low:.0} to {high:.0}");
}

#[test]
fn messages_stay_below_64_megabits_at_line_rate() {
    let got = figure_6(EyeQ::default(), 100).play(ms(400));
    // 64 octets each; one host receives at 10 Gb/s at most.
    let wire = got.messages as f64 * 64.0 * 8.0 / 0.4;
    assert!(wire <= 64e6, "{wire:.0} bit/s");
}

#[test]
fn floors_stand_while_one_in_five_messages_is_lost() {
    let lossy = World { control_loss: 0.2, ..figure_6(EyeQ::default(), 14) };
    let got = lossy.play(ms(400));
    near(got.mean(0, ms(200), ms(400)), 4_500.0, 0.05, "one");
}

#[test]
fn best_effort_takes_nothing_from_floors_and_all_that_is_spare() {
    let best = |host, tenant| Vm { host, tenant, bounds: VmBounds::both(Rate::ZERO) };
    // VM 0 and best effort 1 on one host; 2 sends to 0, 3 to 1.
    let vms = vec![vm(0, 0, 4_000), best(0, 1), vm(1, 0, 4_000), best(2, 1)];
    let asking = |demand| Flow { demand, ..flow(2, 0, 0) };
    let play = |demand| {
        let flows = vec![asking(demand), flow(3, 1, 0)];
        World::new(EyeQ::default(), vms.clone(), flows).play(ms(400))
    };
    let part = play(Some(mbps(3_000)));
    near(part.mean(0, ms(200), ms(400)), 3_000.0, 0.01, "who asks for a part");
    near(part.mean(1, ms(200), ms(400)), 6_000.0, 0.05, "best effort beside it");
    let all = play(None);
    near(all.mean(0, ms(200), ms(400)), 9_000.0, 0.01, "who asks for all");
    let trickle = all.mean(1, ms(200), ms(400));
    assert!(trickle > 0.0 && trickle <= 0.01 * 9e9, "best effort has {trickle:.0}");
}

#[test]
fn one_uplink_is_shared_by_floors_and_best_effort_has_the_rest() {
    let best = Vm { host: 0, tenant: 2, bounds: VmBounds::both(Rate::ZERO) };
    let vms = vec![
        vm(0, 0, 2_000),
        vm(0, 1, 6_000),
        best.clone(),
        vm(1, 0, 2_000),
        vm(2, 1, 6_000),
        Vm { host: 3, ..best },
    ];
    let limited = |demand| Flow { demand: Some(mbps(demand)), ..flow(0, 3, 0) };
    let free = vec![flow(0, 3, 0), flow(1, 4, 0), flow(2, 5, 0)];
    let got = World::new(EyeQ::default(), vms.clone(), free).play(ms(200));
    near(got.mean(0, ms(100), ms(200)), 2_500.0, 0.02, "2 of 8");
    near(got.mean(1, ms(100), ms(200)), 7_500.0, 0.02, "6 of 8");
    let second = Flow { demand: Some(mbps(4_000)), ..flow(1, 4, 0) };
    let got = World::new(EyeQ::default(), vms, vec![limited(1_000), second, flow(2, 5, 0)]);
    let got = got.play(ms(200));
    near(got.mean(2, ms(100), ms(200)), 5_000.0, 0.02, "best effort");
}

#[test]
fn priorities_change_while_all_runs() {
    let vms: Vec<Vm> = (0..3)
        .flat_map(|t| [vm(0, t, [5_000, 2_500, 1_250][t as usize]), vm(1 + t, t, 4_000)])
        .collect();
    let turned = vms.iter().map(|vm| match vm {
        Vm { host: 0, tenant, .. } => VmBounds::both(mbps([1_250, 2_500, 5_000][*tenant as usize])),
        Vm { bounds, .. } => bounds.clone(),
    });
    let turned = turned.collect();
    let flows = (0..3).map(|t| flow(2 * t + 1, 2 * t, 0)).collect();
    let world =
        World { change: Some((ms(200), turned)), ..World::new(EyeQ::default(), vms, flows) };
    let got = world.play(ms(400));
    let unit = 9_000.0 / 7.0;
    for (f, (before, after)) in [(4.0, 1.0), (2.0, 2.0), (1.0, 4.0)].into_iter().enumerate() {
        near(got.mean(f, ms(100), ms(200)), before * unit, 0.05, "before");
        near(got.mean(f, ms(300), ms(400)), after * unit, 0.05, "after");
    }
}

#[test]
fn a_maximum_is_kept_in_and_out() {
    let capped = Bounds { floor: mbps(4_000), most: mbps(5_000) };
    let mut vms = vec![vm(0, 0, 4_000), vm(0, 1, 4_000), vm(1, 0, 4_000), vm(2, 1, 4_000)];
    vms[0].bounds.in_ = capped;
    vms[3].bounds.out = Bounds { floor: mbps(1_000), most: mbps(1_000) };
    let flows = vec![flow(2, 0, 0), flow(3, 1, 0)];
    let got = World::new(EyeQ::default(), vms, flows).play(ms(200));
    near(got.mean(0, ms(100), ms(200)), 5_000.0, 0.02, "in");
    near(got.mean(1, ms(100), ms(200)), 1_000.0, 0.02, "out");
}

#[test]
fn slower_links_and_agents_that_act_once_a_millisecond_have_the_same_shares_in_longer_periods() {
    for line in [200, 1_000] {
        let eyeq = EyeQ::default().for_link(mbps(line), Span::from_micros(100), Backend::Agent);
        let part = |percent: u64| line * percent / 100;
        let (a, b) = (part(18), part(72));
        let vms = vec![vm(0, 0, a), vm(1, 1, b), vm(2, 0, a), vm(2, 1, b), vm(3, 1, b)];
        let flows = vec![flow(0, 2, 0), flow(1, 3, 2_000), flow(1, 4, 4_000)];
        let world = World::new(eyeq, vms, flows);
        let world = World { line: mbps(line), actuation: ms(1), ..world };
        let got = world.play(ms(6_000));
        let rate = |f: usize, from: u64| got.mean(f, ms(from), ms(from + 1_000));
        let want = |percent: u64| part(percent) as f64;
        near(rate(0, 1_000), want(90), 0.05, "F1 alone");
        near(rate(0, 3_000), want(18), 0.05, "F1 beside F2");
        near(rate(1, 3_000), want(72), 0.05, "F2 beside F1");
        near(rate(0, 5_000), want(40), 0.05, "F1, what F2 leaves");
        near(rate(1, 5_000), want(50), 0.05, "F2, half of its uplink");
    }
}

/// An endpoint of 9 Gb/s with `n` senders that send all they may. Hosts believe that their limiters are set at
/// once, or they would refuse.
fn incast(alpha: f64, n: u32) -> World {
    let loop_delay = Loop { round_trip: Span::ZERO, actuation: Span::ZERO };
    let eyeq = EyeQ { alpha, loop_delay, ..EyeQ::preset("eyeq-paper").unwrap() };
    let mut vms = vec![vm(0, 0, 9_000)];
    let mut flows = Vec::new();
    for i in 0..n {
        vms.push(vm(1 + i, 0, 9_000));
        flows.push(flow(1 + i, 0, 0));
    }
    World::new(eyeq, vms, flows)
}

/// How far the load of an endpoint with ten senders swings in the last of 500 ms, as a part of 9 Gb/s.
/// Limiters are in force `late` after they are told.
fn swing(alpha: f64, late: Span) -> f64 {
    swing_of(&World { actuation: late, ..incast(alpha, 10) })
}

fn swing_of(world: &World) -> f64 {
    let loads = world.play(ms(500)).sum(0..world.flows.len());
    let late = &loads[400..];
    let (least, most) =
        late.iter().fold((f64::INFINITY, 0.0f64), |(l, m), r| (l.min(*r), m.max(*r)));
    (most - least) / 9e9
}

#[test]
fn limiters_that_are_late_swing_for_ever_with_a_gain_above_the_bound_and_rest_below_it() {
    // An agent that acts once a millisecond: feedback is six periods late, the bound is 0.24.
    let late = ms(1);
    assert!(swing(0.5, Span::ZERO) < 0.02, "at once: {}", swing(0.5, Span::ZERO));
    assert!(swing(0.5, late) > 0.1, "0.5: {}", swing(0.5, late));
    assert!(swing(0.15, late) < 0.02, "0.15: {}", swing(0.15, late));
}

/// The same of `n` senders whose queues hold 128 kB, all of it with departures that it keeps.
fn departing_swing(alpha: f64, n: u32, within: Span) -> f64 {
    swing_of(&World { departs_within: Some(within), ..incast(alpha, n) })
}

#[test]
fn many_senders_whose_full_queues_keep_their_departures_swing_and_fewer_or_shorter_ones_rest() {
    // 128 kB each are 0.57 periods of 9 Gb/s.
    let longest = ms(250);
    let swings = [2, 3, 4, 10].map(|n| departing_swing(0.5, n, longest));
    let (few, many) = swings.split_at(2);
    let rest = few.iter().all(|swing| *swing < 0.02);
    assert!(rest && many.iter().all(|swing| *swing > 0.2), "{swings:?}");
    assert!(departing_swing(0.2, 10, longest) < 0.02, "{}", departing_swing(0.2, 10, longest));
    // With bounds in time, it does not matter how many there are.
    for (alpha, n) in [(0.5, 10), (0.5, 20), (0.2, 10), (0.2, 20)] {
        let around = Loop { round_trip: Span::from_micros(100), actuation: Span::ZERO };
        let law = EyeQ { loop_delay: around, alpha, ..EyeQ::default() }.departing();
        let within = law.departs_within.unwrap();
        let swing = departing_swing(alpha, n, within);
        assert!(swing < 0.02, "{alpha}, {n} senders, {within}: {swing}");
    }
    let longer = departing_swing(0.5, 20, Span::from_micros(200) * 5);
    assert!(longer > 0.1, "a bound that the gain does not bear: {longer}");
}
