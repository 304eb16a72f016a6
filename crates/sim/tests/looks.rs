//! The global view of all hosts at once.

use weir_model::scenario::{File, Scenario};
use weir_sim::scenario::{Run, Setup};
use weir_units::Span;

/// Agents that die, letters that are lost, pairs that come and go.
fn scenario() -> Scenario {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 4s, \
        warmup: 1s, scale: 0.1, topology: {single-switch: {hosts: 3, link: 1Gbit}}, tenants: [\
        {name: a, vms: [{name: a, hosts: [host-0, host-1], count: 2, floor: 300Mbit}, \
        {name: z, host: host-2, floor: 400Mbit}]}], mechanisms: \"elasticswitch:steady\", traffic: [\
        {group: g, from: a, to: z, tcp: {connections: 2}}, \
        {group: h, from: z, to: a, udp: {rate: 300Mbit}, start: 1s, stop: 2s}, \
        {group: r, from: a-0, to: a-1, request: {size: 200B, response: 20kB, rate: 20}}], faults: [\
        {at: 1s, control: {loss: 0.3, reorder: 0.2, for: 1s}}, \
        {at: 1s, kill-agent: host-2}, {at: 1500ms, start-agent: host-2}]}}";
    let file = File::parse("t.yaml", text, &[]).expect("sound");
    file.points().expect("sound").swap_remove(0)
}

fn run() -> Run {
    let scenario = scenario();
    let setup = Setup { seed: 3, ..Setup::default() };
    Run::new(&scenario, &scenario.mechanisms[0], &setup).expect("playable")
}

#[test]
fn looking_changes_nothing() {
    let mut looked_at = run();
    for number in 1..=2000 {
        looked_at.play_until(Span::from_millis(2) * number);
        assert_eq!(looked_at.look().pairs.len(), 6);
    }
    let mut alone = run();
    alone.play_until(Span::from_secs(4));
    assert_eq!(looked_at.digest(), alone.digest());
}

#[test]
fn a_look_shows_what_is_in_force_and_what_both_ends_hold() {
    let mut run = run();
    run.play_until(Span::from_millis(900));
    let look = run.look();
    let pair = look.pairs.iter().find(|p| (p.id.src.0, p.id.dst.0) == (0, 2)).expect("it sends");
    let setting = pair.in_force.expect("it has a queue");
    let word = pair.source.send.expect("it is known").expect("its destination spoke");
    let receive = pair.destination.receive.as_ref().expect("it is known");
    assert!(setting.floor <= word.offer.floor && !setting.floor.is_zero(), "{setting:?} {word:?}");
    assert!(receive.held.expect("it is known").most >= word.offer.floor);
    assert!(pair.left > 0 && pair.is_met);
    assert!(
        pair.destination.send.is_none() && pair.source.receive.is_none(),
        "each on its own host"
    );
    run.play_until(Span::from_millis(1200));
    let look = run.look();
    assert!(!look.hosts[2].is_alive && look.hosts[0].is_alive);
    assert!(look.pairs[0].in_force.is_some() || look.pairs[1].in_force.is_some());
    run.play_until(Span::from_secs(4));
    let look = run.look();
    assert_eq!((look.hosts[2].lives, look.hosts[2].is_alive), (1, true));
    let stopped = look.pairs.iter().find(|p| (p.id.src.0, p.id.dst.0) == (2, 1)).expect("it sent");
    assert!(run.octets()[2] > 0, "z to a-0 had something to send: {stopped:?}");
}
