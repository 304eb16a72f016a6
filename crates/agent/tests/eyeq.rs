//! EyeQ between two real agents: limits come from the receiver's host, HTB follows, and a sender
//! without a key changes nothing. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::eyeq::{Play, expect_received, forge, is_near, pair, rates};
use crate::common::guest::{Guest, counter};
use crate::common::{Agent, World, pause, until};
use std::fs;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use weir_model::status::Meter;

const PLAY: Play = Play { senders: 400, receivers: 100, floors: [20, 40], shaper: "auto", set: "" };

/// Mbit/s: above what either is promised, and up to all that the receivers' link lets pass.
const HIGH: RangeInclusive<f64> = 75.0..=90.0;

/// Whether some class of host 1 has a ceiling that only `a` can have, and only while it is alone.
fn has_high_ceiling(world: &World) -> bool {
    let classes = world.ceilings(1);
    classes.split(" ceil ").skip(1).any(|rest| {
        let mbits = rest.split_whitespace().next().and_then(|word| {
            let kbits = word.strip_suffix("Kbit").map(|n| n.parse::<f64>().map(|n| n / 1e3));
            kbits.or_else(|| word.strip_suffix("Mbit").map(str::parse))?.ok()
        });
        mbits.is_some_and(|mbits| HIGH.contains(&mbits))
    })
}

/// What `b` and `d` receive, bit/s, over three seconds.
fn received(agent: &Agent<'_>) -> [f64; 2] {
    rates(|| ["b", "d"].map(|vm| counter(agent, &format!("port.{vm}.rx_octets"))))
}

#[test]
fn two_senders_share_a_receivers_link_by_floors_and_a_forger_changes_nothing() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    PLAY.configure(&world);
    let shares = PLAY.shares();
    let (agent1, agent2) = (world.start(1), world.start(2));
    assert!(agent1.top().mechanism.starts_with("eyeq"), "{}", agent1.top().mechanism);
    PLAY.busy(&world, |quiet| {
        let limited = |from, to| {
            pair(&agent1, from, to).is_some_and(|pair| pair.phase == "limited" && pair.rate_bps > 0)
        };
        until("limits arrive", 10, || limited("a", "b") && limited("c", "d"));
        pause(2000);
        expect_received("a to b, and c to d", &shares, || received(&agent2));
        // What is told is what is in force, but for a moment in which a sender was held up: then
        // the other may have what it leaves.
        until("what is told, and classes, are near the shares", 3, || {
            let told = agent2.top().meters;
            assert_eq!(told.iter().map(|meter| meter.vm.as_str()).collect::<Vec<_>>(), ["b", "d"]);
            let is_told =
                |(meter, want): (&Meter, f64)| is_near(meter.capacity_bps as f64, want, 0.20);
            let holds = told.iter().zip(shares).all(is_told) && !has_high_ceiling(&world);
            if !holds {
                println!("{told:?}, {}", world.ceilings(1));
            }
            holds
        });
        let reasons = agent1.explain();
        assert!(reasons.iter().any(|reason| reason.contains("b's host spoke")), "{reasons:?}");
        // What another leaves is its, and no longer than that; classes follow in the same turn.
        for is_alone in [true, false] {
            quiet.store(is_alone, Ordering::Relaxed);
            let edge = if is_alone { HIGH.start() } else { &(shares[0] * 1.5 / 1e6) };
            until("the other's word", 3, || {
                let rate = pair(&agent1, "a", "b").expect("it sends").rate_bps as f64 / 1e6;
                (rate >= *edge) == is_alone
            });
            assert_eq!(has_high_ceiling(&world), is_alone, "{}", world.ceilings(1));
        }
        pause(2000);
        let told = counter(&agent2, "feedback.told");
        assert!(told > 100 && counter(&agent1, "feedback.heard") > 100, "{told}");

        forge(&world);
        until("the forgery is seen", 5, || counter(&agent1, "feedback.forged") >= 20);
        let rate = pair(&agent1, "a", "b").expect("it sends").rate_bps;
        assert!(rate > 10_000_000, "1 unit was forged, and {rate} bit/s is the limit");
        expect_received("a to b, after the forgery", &shares[..1], || received(&agent2));
    });
    agent1.stop();
    agent2.stop();
}

/// Detaches a program of host 2 as any root process there could: by its pinned link, or its filter.
fn take_off(world: &World, program: &str, place: &str) {
    let links = world.bpffs().join("weir/host2/links");
    let mut pins = fs::read_dir(links).unwrap().map(|entry| entry.unwrap().path());
    match pins.find(|pin| pin.to_string_lossy().contains(program)) {
        Some(pin) => fs::remove_file(pin).unwrap(),
        None => drop(world.tc("host2", &format!("filter del dev {place}"))),
    }
}

#[test]
fn programs_that_somebody_takes_off_are_put_back_and_feedback_goes_on() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    PLAY.configure(&world);
    let (agent1, agent2) = (world.start(1), world.start(2));
    PLAY.busy(&world, |_| {
        let told = || counter(&agent2, "feedback.told");
        until("messages", 10, || told() > 20);
        for (n, (program, place)) in
            [("weir_eyeq_tell", "br egress pref 2"), ("weir_stamp", "up egress pref 1")]
                .into_iter()
                .enumerate()
        {
            take_off(&world, program, place);
            until("it is missed", 5, || counter(&agent2, "agent.plumbing_mended") == n as u64 + 1);
            until("it is back", 5, || agent2.log().matches("it is as it was").count() > n);
            let (before, heard) = (told(), counter(&agent1, "feedback.heard"));
            until("messages again", 5, || {
                told() > before + 20 && counter(&agent1, "feedback.heard") > heard + 20
            });
        }
        pause(600);
        assert_eq!(counter(&agent2, "agent.plumbing_mended"), 2, "{}", agent2.log());
    });
    agent1.stop();
    agent2.stop();
}

#[test]
fn an_agent_that_cannot_keep_eyeqs_promises_says_why() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    PLAY.configure(&world);
    let file = world.dir.join("host2.toml");
    let text = fs::read_to_string(&file).unwrap();
    for (was, is, why) in [
        ("feedback_unit", "alpha = 1.5, feedback_unit", "alpha = 1.5 oscillates"),
        ("feedback_unit", "period = \"1ms\", feedback_unit", "measures nothing"),
        ("floor_in = \"40Mbit\"", "floor_in = \"90Mbit\"", "only 90 Mb/s may be promised"),
        ("feedback_unit", "backend = \"kernel\", feedback_unit", "the agent sets HTB's classes"),
    ] {
        assert!(text.contains(was), "{was}");
        fs::write(&file, text.replacen(was, is, 1)).unwrap();
        let output = world.run(2, "agent", "host2.toml");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(why), "{why}: {said}");
    }
}
