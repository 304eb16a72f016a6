//! Window budgets behind real agents: the connections that share them, while classes change, agents
//! die and budgets are refused. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::reload;
use crate::common::tcp::{connect_from, say, speak, window_of};
use crate::common::{Agent, World, until};
use std::net::TcpStream;
use weir_model::status::Budget;

/// Bulk and urgent by the ports of the other end, as in the paper.
const PAPER: &str = "total = \"90kB\", flows_most = 5, class = [{ name = \"bulk\", weight = 1, \
                     remote_ports = \"9001-9003\" }, { name = \"urgent\", weight = 3, remote_ports = \"9004-9005\" }]";

/// Says in host 1's file what its first VM's budget shall be; none by silence.
fn ask(world: &World, budget: Option<&str>) {
    say(world, "budget", budget.map(|budget| format!("{{ {budget} }}")));
}

fn told(agent: &Agent<'_>) -> Budget {
    let all = agent.top().budgets;
    all.iter().find(|one| one.vm == "a").unwrap_or_else(|| panic!("a in {all:?}")).clone()
}

/// Live connections and shares, in the order of the file.
fn live(agent: &Agent<'_>) -> Vec<(u32, u32)> {
    told(agent).classes.iter().map(|class| (class.live, class.share)).collect()
}

/// A look is every 50 ms, and a machine that is busy may be late.
fn expect(agent: &Agent<'_>, wanted: &[(u32, u32)]) {
    until(&format!("{wanted:?}"), 5, || live(agent) == wanted);
}

/// Both ends of a connection from VM 1 to VM 2.
fn connect(world: &World, port: u16) -> (TcpStream, TcpStream) {
    connect_from(world, "vm1", port)
}

/// The window that the guest of VM 1 has been shown on its connection to this port.
fn window(world: &World, port: u16) -> u32 {
    window_of(world, "vm1", port)
}

/// Rounded up to what a scaled window can say, which is no more than a kilobyte here.
fn assert_shown(world: &World, port: u16, share: u32) {
    let shown = window(world, port);
    assert!((share..share + 1_024).contains(&shown), "port {port}: {shown}, {share} wanted");
}

#[test]
fn shares_follow_connections_reloads_and_agents_that_die() {
    let world = World::new();
    ask(&world, Some(PAPER));
    let before = world.snapshot("host1");
    let (mut one, _two) = (world.start(1), world.start(2));
    assert_eq!(told(&one).refused, None);
    let bulk = [9001, 9002, 9003].map(|port| connect(&world, port));
    expect(&one, &[(3, 30_000), (0, 45_000)]);
    speak(&bulk[0]);
    assert_shown(&world, 9001, 30_000);
    let urgent = [9004, 9005].map(|port| connect(&world, port));
    expect(&one, &[(3, 10_000), (2, 30_000)]);
    let other = connect(&world, 9009);
    for ends in bulk.iter().chain(&urgent).chain([&other]) {
        speak(ends);
    }
    assert_shown(&world, 9001, 10_000);
    assert_shown(&world, 9004, 30_000);
    assert!(window(&world, 9009) > 60_000, "of no class");
    let reasons = one.explain_while(|| speak(&other));
    let is_said =
        |reason: &String| reason.contains("3 of bulk with 10000 B each, 2 of urgent with");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
    assert_eq!(one.top().translations, [], "nothing is translated");

    // Other weights, while connections live.
    ask(&world, Some(&PAPER.replace("weight = 3", "weight = 6")));
    reload(&one);
    expect(&one, &[(3, 6_000), (2, 36_000)]);
    speak(&bulk[1]);
    assert_shown(&world, 9002, 6_000);
    // What was urgent is over.
    drop(urgent);
    expect(&one, &[(3, 30_000), (0, 60_000)]);

    // No agent counts, and shares stay, also for one more; the next agent counts it.
    one.kill_with_guardian();
    let late = connect(&world, 9004);
    speak(&bulk[2]);
    assert_shown(&world, 9003, 30_000);
    one = world.start(1);
    expect(&one, &[(3, 10_000), (1, 60_000)]);
    speak(&bulk[2]);
    assert_shown(&world, 9003, 10_000);

    // No budget is no bound.
    ask(&world, None);
    reload(&one);
    assert_eq!(one.top().budgets, []);
    speak(&bulk[2]);
    assert!(window(&world, 9003) > 60_000);
    one.stop();
    assert_eq!(world.snapshot("host1"), before, "nothing stays");
    drop(late);
}

#[test]
fn a_budget_that_cannot_be_kept_is_told_with_the_reason_and_stops_nothing() {
    let world = World::new();
    ask(&world, Some(&PAPER.replace("90kB", "30kB")));
    let (one, _two) = (world.start(1), world.start(2));
    let why = told(&one).refused.expect("refused");
    assert!(why.contains("take 37960 B or more, or fewer flows"), "{why}");
    assert!(one.log().contains("the window budget of vm a is refused: a window budget of 30000 B"));
    let ends = connect(&world, 9001);
    let reasons = one.explain_while(|| speak(&ends));
    let is_said =
        |reason: &String| reason.starts_with("a asks for a window budget, refused: a window");
    assert!(reasons.iter().any(is_said), "{reasons:?}");
    // Classes that one connection could be in.
    ask(&world, Some(&PAPER.replace("9004-9005", "9003-9005")));
    reload(&one);
    let why = told(&one).refused.expect("refused");
    assert!(why.contains("classes bulk and urgent overlap"), "{why}");
    // What is no range of ports is a mistake of the file: said with its line, and nothing changes.
    ask(&world, Some(&PAPER.replace("9004-9005", "9005-9004")));
    reload(&one);
    assert!(one.log().contains("`9005-9004` is no range of ports"), "{}", one.log());
    assert!(told(&one).refused.is_some());
    ask(&world, Some(PAPER));
    reload(&one);
    assert_eq!(told(&one).refused, None);
    assert!(one.log().contains("no window budget of vm a is refused any more"), "{}", one.log());
    // The one from before has no place, and is left alone; one from now on has.
    let new = connect(&world, 9002);
    speak(&ends);
    speak(&new);
    expect(&one, &[(1, 90_000), (0, 67_500)]);
}

#[test]
fn who_keeps_a_translation_of_before_beside_a_budget_is_told_until_it_ends() {
    let world = World::new();
    ask(&world, Some(PAPER));
    say(&world, "translation", Some("\"virtual-ecn\"".into()));
    let (one, _two) = (world.start(1), world.start(2));
    let of_before = connect(&world, 9001);
    speak(&of_before);
    expect(&one, &[(1, 90_000), (0, 67_500)]);
    let translated = || -> Vec<String> {
        one.top().translations.into_iter().filter(|one| one.vm == "a").map(|one| one.to).collect()
    };
    assert_eq!(translated(), ["virtual-ecn"]);
    assert!(told(&one).connections >= 1 && told(&one).lowered > 0, "{:?}", told(&one));
    say(&world, "translation", None);
    reload(&one);
    until("it keeps what it began with", 3, || translated() == ["none"]);
    let is_said =
        |reason: &String| reason.starts_with("a has no translation any more; connections");
    assert!(one.explain().iter().any(is_said), "{:?}", one.explain());
    let new = connect(&world, 9002);
    speak(&new);
    drop(of_before);
    // Five seconds after its end it is forgotten, and the agent looks every five seconds.
    until("nothing is translated any more", 20, || translated().is_empty());
    expect(&one, &[(1, 90_000), (0, 67_500)]);
}
