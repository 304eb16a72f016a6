//! The laws, with the paper's constants and with ours, against the paper's own figures, before any kernel.

use weir_core::elasticswitch::ElasticSwitch;
use weir_fluid::{Loss, PairSpec, World};
use weir_units::{Rate, Span};

const LINK: Rate = Rate::from_mbps(1000);
const FLOOR: Rate = Rate::from_mbps(450);

fn world(pairs: Vec<PairSpec>) -> World {
    World::new(LINK, ElasticSwitch::default(), pairs)
}

/// The presets for links that do not mark, and a world for each.
fn worlds(pairs: &[PairSpec]) -> [(&'static str, World); 2] {
    ["paper", "steady"].map(|name| {
        let es = ElasticSwitch::preset(name).expect("a listed preset exists");
        (name, World::new(LINK, es, pairs.to_vec()))
    })
}

/// One pair to X, `n` pairs to Y, both with a hose of 450 Mb/s (Fig. 5).
fn many_to_one(n: usize) -> Vec<PairSpec> {
    let mut pairs = vec![PairSpec::alone(FLOOR)];
    for i in 0..n {
        pairs.push(PairSpec { destination: (i > 0).then_some(1), ..PairSpec::alone(FLOOR) });
    }
    pairs
}

#[test]
fn two_pairs_share_spare_bandwidth_as_in_table_2() {
    let paper = [(45, 203.0, 536.0), (90, 219.0, 531.0), (225, 275.0, 589.0)];
    let mut last = [f64::INFINITY; 2];
    for (floor, small, large) in paper {
        let floor = Rate::from_mbps(floor);
        let pairs = [PairSpec::alone(floor), PairSpec::alone(floor * 2)];
        for ((name, world), last) in worlds(&pairs).into_iter().zip(&mut last) {
            let got = world.play(Span::from_secs(60), Span::from_secs(10)).rates;
            let (a, b) = (got[0] / 1e6, got[1] / 1e6);
            let at = format!("{name}, {floor}");
            assert!((a / small - 1.0).abs() < 0.2, "{at}: {a:.0} where the paper has {small}");
            assert!((b / large - 1.0).abs() < 0.2, "{at}: {b:.0} where the paper has {large}");
            assert!(a + b >= 700.0, "{at}: {a:.0} + {b:.0} use too little; a reservation would");
            assert!((1.9..=3.0).contains(&(b / a)), "{at}: ratio {:.2}", b / a);
            assert!(b / a <= *last + 0.05, "{at}: the ratio rises down the rows");
            *last = b / a;
        }
    }
}

#[test]
fn a_pair_beside_a_bounded_one_uses_what_is_left_as_in_fig_2() {
    for udp in (0..=1000).step_by(100) {
        let mut pairs = vec![PairSpec::alone(FLOOR)];
        if udp > 0 {
            let demand = Some(Rate::from_mbps(udp));
            pairs.push(PairSpec { demand, ..PairSpec::alone(FLOOR) });
        }
        for ((name, world), least) in worlds(&pairs).into_iter().zip([0.75, 0.9]) {
            let got = world.play(Span::from_secs(30), Span::from_secs(5));
            let at = format!("{name}, UDP {udp}");
            assert!(got.rates[0] >= 0.95 * FLOOR.as_f64(), "{at}: {:.0}", got.rates[0]);
            let used: f64 = got.rates.iter().sum();
            assert!(used >= least * LINK.as_f64(), "{at}: the link carries {used:.0}");
        }
    }
}

#[test]
fn one_pair_keeps_its_floor_beside_any_number_as_in_fig_5() {
    for n in [1, 2, 10, 100, 300] {
        for loss in [Loss::Proportional, Loss::Equal] {
            for (name, world) in worlds(&many_to_one(n)) {
                let got = World { loss, ..world }.play(Span::from_secs(20), Span::from_secs(5));
                let at = format!("{name}, {n}, {loss:?}");
                assert!(got.rates[0] >= 0.95 * FLOOR.as_f64(), "{at}: {:.0}", got.rates[0]);
                assert!(got.window_min[0] >= 0.85 * FLOOR.as_f64(), "{at}: a window");
                let sum: f64 = got.rates.iter().sum();
                assert!(sum >= 0.85 * LINK.as_f64(), "{at}: both together {sum:.0}");
            }
        }
    }
}

#[test]
fn a_pair_alone_takes_the_whole_link() {
    let got = world(many_to_one(0)).play(Span::from_secs(20), Span::from_secs(5));
    assert!(got.rates[0] >= 0.99 * LINK.as_f64(), "{:.0}", got.rates[0]);
}

#[test]
fn without_hold_increase_and_rate_caution_it_is_seawall_and_more_of_the_link_is_lost_to_probing() {
    let paper = world(many_to_one(100));
    let mut seawall = paper.clone();
    seawall.mechanism.rate = seawall.mechanism.rate.without_hold_and_caution();
    let cuts =
        |w: &World| -> u64 { w.play(Span::from_secs(20), Span::from_secs(5)).cuts.iter().sum() };
    let (with, without) = (cuts(&paper), cuts(&seawall));
    assert!(without >= 3 * with, "{with} cuts with Hold-Increase, {without} without");
}

#[test]
fn lost_control_messages_cost_efficiency_not_floors() {
    for (control_loss, at_least) in [(0.1, 0.95), (0.5, 0.9)] {
        let world = World { control_loss, ..world(many_to_one(10)) };
        let got = world.play(Span::from_secs(20), Span::from_secs(5));
        let share = got.rates[0] / FLOOR.as_f64();
        assert!(share >= at_least, "{control_loss} lost: {share:.3} of the floor");
    }
}

#[test]
fn the_floors_of_one_receiver_never_exceed_its_hose_however_messages_are_lost() {
    for seed in 1..=5 {
        for control_loss in [0.0, 0.3] {
            let delay = Span::from_millis(seed * 7);
            let mut world = World { control_loss, control_delay: delay, seed, ..world(vec![]) };
            world.pairs = many_to_one(20);
            for (i, pair) in world.pairs.iter_mut().enumerate() {
                pair.start = Span::from_millis(i as u64 * 200);
                if i % 3 == 0 {
                    pair.demand = Some(Rate::from_mbps(3));
                }
            }
            let got = world.play(Span::from_secs(8), Span::from_secs(1));
            // A pair that its receiver does not know yet holds the small start (1/64 of a hose).
            assert!(got.worst_floor_sum <= 1.0 + 1.5 / 64.0, "{}", got.worst_floor_sum);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let world = World { control_loss: 0.2, ..world(many_to_one(5)) };
    let play = || world.play(Span::from_secs(5), Span::from_secs(1)).series;
    assert_eq!(play(), play());
}
