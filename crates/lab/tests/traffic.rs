//! What is offered, carried, dropped and received agrees. As root.

use crate::common::{alone, dumbbell, flow, none, tcp, traces, tree, udp};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use weir_lab::{Options, Phase, play};
use weir_model::observed::Observed;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// The core link from left to right.
const CORE: usize = 0;

/// Plays `scenario` and judges what was measured. A machine that is busy with something else, or
/// that stands still for a moment because its host is, measures that: what fails is repeated twice,
/// and a defect fails three times.
fn expect(scenario: &Scenario, judge: impl Fn(&Observed) -> Result<(), String>) {
    for attempt in 1.. {
        let record =
            play(scenario, &none(), &Options::new("weir"), &mut |_| {}, &AtomicBool::new(false))
                .expect("plays; these tests need root");
        let busy = record.idle.iter().filter(|&&idle| idle < 0.05).count();
        match judge(&record) {
            Ok(()) => return,
            Err(what) if attempt < 3 => println!("{what}; busy in {busy} samples: again"),
            Err(what) => panic!("{what}; busy in {busy} samples; {:?}", record.notes),
        }
    }
}

/// A failed judgement says `what`.
fn ensure(good: bool, what: impl Into<String>) -> Result<(), String> {
    if good { Ok(()) } else { Err(what.into()) }
}

/// Mean goodput after the warm-up, in Mb/s.
fn goodput(scenario: &Scenario, record: &Observed, flow: usize) -> f64 {
    mbps(scenario, record, &record.flows[flow].octets)
}

fn mbps(scenario: &Scenario, record: &Observed, series: &[u64]) -> f64 {
    let skip = scenario.warmup.div_span(record.sample) as usize;
    let octets: u64 = series[skip..].iter().sum();
    let seconds = record.sample.as_secs_f64() * (series.len() - skip) as f64;
    octets as f64 * 8.0 / seconds / 1e6
}

#[test]
fn one_tcp_flow_fills_the_core_link() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, tcp(1));
    expect(&scenario, |record| {
        let got = goodput(&scenario, record, 0);
        ensure((0.93 * 100.0 * 1448.0 / 1514.0..96.5).contains(&got), format!("{got} Mb/s"))?;
        let carried = mbps(&scenario, record, &record.links[CORE].octets);
        let share = got / carried;
        // Packets of one segment: super-packets would be counted with fewer headers.
        ensure((0.94..0.965).contains(&share), format!("{got} of {carried} Mb/s"))
    });
}

#[test]
fn a_trace_shows_each_connection_from_its_start_to_its_end() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, tcp(2));
    flow(&mut scenario, 0, 1, tcp(1));
    scenario.traffic[0].trace = Some(Span::from_millis(10));
    scenario.traffic[0].stop = Span::from_secs(2);
    expect(&scenario, |record| {
        assert!(record.flows[1].windows.is_empty(), "no trace was asked for");
        let traced = &record.flows[0];
        ensure(traced.windows.len() == 2, "two connections")?;
        for looks in &traced.windows {
            let last = looks.last().expect("some");
            ensure(looks.len() > 150 && looks.len() <= 200, format!("{} looks", looks.len()))?;
            let ends = (last.at.as_secs_f64(), looks[0].at.as_secs_f64());
            ensure(ends.0 > 1.9 && ends.0 < 2.05 && ends.1 < 0.1, format!("{ends:?}"))?;
            let is_growing = looks.windows(2).all(|pair| {
                pair[0].at < pair[1].at
                    && pair[0].acked <= pair[1].acked
                    && pair[0].again <= pair[1].again
            });
            assert!(is_growing, "totals and times grow");
            let has_windows = looks.iter().all(|look| look.cwnd > 0 && look.shown > 0);
            ensure(has_windows, "each look has both windows")?;
        }
        // The last octets arrive after the last look, and some that arrived are not acknowledged
        // then.
        let acked = traced.windows.iter().filter_map(|looks| looks.last()).map(|look| look.acked);
        let (acked, received) =
            (acked.sum::<u64>() as f64, traced.octets.iter().sum::<u64>() as f64);
        ensure((0.9..=1.0).contains(&(acked / received)), format!("{acked} of {received} octets"))
    });
}

#[test]
fn udp_below_the_link_rate_arrives_whole() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, udp(20.0));
    expect(&scenario, |record| {
        let got = goodput(&scenario, record, 0) / (20.0 * 1472.0 / 1514.0);
        ensure((got - 1.0).abs() < 0.02, format!("{got} of what was offered"))?;
        let drops: u64 = record.links.iter().flat_map(|link| &link.drops).sum();
        ensure(drops == 0, format!("{drops} packets dropped"))
    });
}

#[test]
fn twice_the_link_rate_is_half_dropped_and_every_packet_is_accounted_for() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 1, 50);
    flow(&mut scenario, 0, 2, udp(49.0));
    flow(&mut scenario, 1, 2, udp(49.0));
    expect(&scenario, |record| {
        let carried = mbps(&scenario, record, &record.links[CORE].octets);
        ensure((49.0..51.0).contains(&carried), format!("{carried} Mb/s on a link of 50"))?;
        // Both sources offer what they were told. Which of two constant streams meets the full queue
        // is a matter of phase, and not promised.
        let links = scenario.topology.links.iter().enumerate();
        let sources: Vec<_> = links.filter(|(_, l)| l.a < 2).collect();
        assert_eq!(sources.len(), 2, "each source has a link of its own");
        let mut packets = 0.0;
        for (i, link) in sources {
            let offered = mbps(&scenario, record, &record.links[2 * i].octets);
            ensure((offered / 49.0 - 1.0).abs() < 0.03, format!("{}: {offered} Mb/s", link.name))?;
            packets += record.links[2 * i].octets.iter().sum::<u64>() as f64 / 1514.0;
        }
        let carried = record.links[CORE].octets.iter().sum::<u64>() as f64 / 1514.0;
        let dropped = record.links[CORE].drops.iter().sum::<u64>() as f64;
        // What the buffer holds at the end is neither carried nor dropped.
        let waiting = 128_000.0 / 1514.0;
        let missing = packets - carried - dropped;
        ensure(
            (missing - waiting).abs() < 0.01 * packets,
            format!("of {packets} packets {carried} were carried, {dropped} dropped"),
        )
    });
}

#[test]
fn one_tcp_flow_starves_among_a_hundred() {
    let _alone = alone();
    let mut scenario = dumbbell(11, 2, 100);
    scenario.duration = Span::from_secs(5);
    scenario.warmup = Span::from_secs(1);
    flow(&mut scenario, 0, 11, tcp(1));
    for sender in 1..11 {
        flow(&mut scenario, sender, 12, tcp(10));
    }
    expect(&scenario, |record| {
        let got = goodput(&scenario, record, 0);
        // Its share is 1. Chance alone doubles that now and then, but not three times in a row.
        ensure(got <= 2.0 / 101.0 * 100.0, format!("{got} Mb/s"))?;
        let carried = mbps(&scenario, record, &record.links[CORE].octets);
        ensure(carried > 97.0, format!("{carried} Mb/s carried"))?;
        let drops: u64 = record.links[CORE].drops.iter().sum();
        ensure(drops > 100, format!("{drops} packets dropped"))
    });
}

#[test]
fn one_tcp_flow_starves_among_udp_blasters() {
    let _alone = alone();
    let mut scenario = dumbbell(3, 2, 100);
    flow(&mut scenario, 0, 3, tcp(1));
    flow(&mut scenario, 1, 4, udp(100.0));
    flow(&mut scenario, 2, 4, udp(100.0));
    expect(&scenario, |record| {
        let got = goodput(&scenario, record, 0);
        ensure(got <= 2.0, format!("{got} Mb/s"))
    });
}

#[test]
fn traffic_keeps_to_its_times() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 2, 100);
    scenario.duration = Span::from_millis(3300);
    // In opposite directions: a full drop-tail queue can lock a constant stream out for seconds.
    flow(&mut scenario, 2, 0, tcp(3));
    flow(&mut scenario, 1, 3, udp(10.0));
    for traffic in &mut scenario.traffic {
        traffic.start = Span::from_millis(500);
        traffic.stop = Span::from_millis(2700);
    }
    // A lost SYN is sent again after a second, and is no fault of the clock.
    expect(&scenario, |record| {
        record.flows.iter().try_for_each(|flow| {
            let sum = |range: std::ops::Range<usize>| flow.octets[range].iter().sum::<u64>();
            // A sample may be read a little late, and hold the first octets of the next.
            ensure(sum(0..4) == 0, "silent before its start")?;
            ensure(sum(6..26) > 500_000, format!("then it flows: {:?}", flow.octets))?;
            ensure(sum(29..32) == 0, "silent after its stop")
        })
    });
}

#[test]
fn the_uplinks_of_a_tree_are_its_bottlenecks_and_what_stays_in_a_rack_does_not_cross_them() {
    let _alone = alone();
    let mut scenario = tree(2, 3, 40);
    scenario.duration = Span::from_secs(3);
    scenario.warmup = Span::from_secs(1);
    // Two from rack 0 to rack 1, and one that stays in rack 0, from the host of one that leaves it.
    flow(&mut scenario, 0, 3, tcp(2));
    flow(&mut scenario, 1, 4, tcp(2));
    flow(&mut scenario, 1, 2, udp(20.0));
    expect(&scenario, |record| {
        let across = goodput(&scenario, record, 0) + goodput(&scenario, record, 1);
        ensure((0.9 * 40.0 * 0.956..40.0 * 0.965).contains(&across), format!("{across} across"))?;
        let inside = goodput(&scenario, record, 2) / (20.0 * 1472.0 / 1514.0);
        ensure((inside - 1.0).abs() < 0.03, format!("{inside} of what stays"))?;
        // Up in rack 0, down in rack 1, and nowhere else.
        let carried = |link: usize| mbps(&scenario, record, &record.links[link].octets);
        let [up, down] = [carried(0), carried(3)];
        ensure(up > 38.0 && (up - down).abs() < 1.0, format!("{up} up, {down} down"))?;
        let back = [carried(1), carried(2)];
        ensure(back.iter().all(|b| *b < 4.0), format!("acknowledgements only: {back:?}"))
    });
}

#[test]
fn udp_that_comes_in_bursts_has_its_rate_in_them_and_is_silent_between() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    scenario.duration = Span::from_millis(3300);
    let (on, off) = (Some(Span::from_millis(200)), Some(Span::from_millis(600)));
    let mut kind = udp(40.0);
    if let TrafficKind::Udp { on: burst, off: pause, .. } = &mut kind {
        (*burst, *pause) = (on, off);
    }
    flow(&mut scenario, 0, 1, kind);
    // Samples from 0.1 to 3.3 s: four periods of 0.8 s, whatever the first one's phase.
    scenario.warmup = Span::from_millis(100);
    expect(&scenario, |record| {
        let all = 40.0 * 1472.0 / 1514.0;
        let got = goodput(&scenario, record, 0);
        ensure((got / (all / 4.0) - 1.0).abs() < 0.05, format!("{got} Mb/s, a quarter of {all}"))?;
        let in_sample = |octets: &u64| *octets as f64 * 8.0 / record.sample.as_secs_f64() / 1e6;
        let rates: Vec<f64> = record.flows[0].octets[1..].iter().map(in_sample).collect();
        let full = rates.iter().filter(|r| **r > 0.9 * all).count();
        let silent = rates.iter().filter(|r| **r < 0.01 * all).count();
        // A burst of two samples may begin within one; of a pause of six, five are whole.
        ensure(full >= 4 && silent >= 18, format!("{full} full, {silent} silent: {rates:?}"))?;
        ensure(rates.iter().all(|r| *r < 1.1 * all), format!("{rates:?}"))
    });
}

#[test]
fn tcp_has_the_congestion_control_that_is_named() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 2, 100);
    scenario.traffic.clear();
    for (from, to, congestion) in [(0, 2, "reno"), (1, 3, "cubic")] {
        flow(
            &mut scenario,
            from,
            to,
            TrafficKind::Tcp { connections: 1, congestion: congestion.into() },
        );
    }
    // What the kernel says of each namespace's connections, seen once while they run.
    let mut seen: Option<Vec<String>> = None;
    let mut look = |frame: &weir_lab::Frame<'_>| {
        if frame.phase == Phase::Running && frame.at >= Span::from_secs(1) && seen.is_none() {
            let of = |namespace: &String| {
                let ss = ["netns", "exec", namespace, "ss", "-tinH", "state", "established"];
                let output = Command::new("ip").args(ss).output().expect("iproute2 is there");
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            seen = Some(traces().iter().filter(|t| !t.contains(' ')).map(of).collect());
        }
    };
    let record =
        play(&scenario, &none(), &Options::new("weir"), &mut look, &AtomicBool::new(false))
            .expect("plays; these tests need root");
    let said = seen.expect("it ran for a second").join("\n");
    for name in ["reno", "cubic"] {
        let words = said.split_whitespace().filter(|word| *word == name).count();
        assert!(words >= 1, "{name} is not used: {said}");
    }
    assert!(goodput(&scenario, &record, 0) > 5.0, "reno carries: {:?}", record.flows[0].octets);
}
