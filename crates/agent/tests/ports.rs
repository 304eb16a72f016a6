//! Ports that die, return as other devices, or belong to another program while an agent runs. Needs
//! root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{Guest, add_c, add_d, counter, reload, unseen};
use crate::common::{StopAtEnd, World, pause, until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_model::status::Gone;

fn gone(name: &str, port: &str) -> Gone {
    Gone { vm: name.into(), port: port.into(), why: None }
}

/// A guest whose port has a foreign filter in the place of the shaper's redirection.
fn bad(world: &World, n: u8) -> Guest<'_> {
    Guest::with(world, 1, n, "", |device| {
        world.tc("host1", &format!("qdisc add dev {device} clsact"));
        let filter = format!("filter add dev {device} ingress pref 4000 protocol all u32");
        world.tc("host1", &format!("{filter} match u32 0 0 flowid 1:1"));
    })
}

#[test]
fn a_port_that_cannot_be_guarded_keeps_no_other_from_being() {
    let world = World::new();
    let guests = [Guest::new(&world, 1), Guest::with(&world, 1, 4, "", |_| {})];
    add_c(&world);
    add_d(&world);
    let one = world.start(1);
    drop(guests);
    until("both are gone", 5, || one.top().gone == [gone("c", "port3"), gone("d", "port4")]);
    assert_eq!(counter(&one, "agent.ports_lost"), 2);
    let _c = bad(&world, 3);
    let _d = Guest::with(&world, 1, 4, "", |_| {});
    until("d is back, and why c is not is told", 5, || {
        let gone = one.top().gone;
        gone.len() == 1 && gone[0].vm == "c" && gone[0].why.is_some()
    });
    let why = one.top().gone[0].why.clone().unwrap();
    assert!(why.contains("vm `c` with port `port3`"), "{why}");
    // Two more tries fail meanwhile.
    pause(2000);
    let log = one.log();
    assert_eq!(log.matches("vm c is not guarded: its port port3 is refused").count(), 1, "{log}");
    assert!(world.tc("host1", "filter show dev port4 ingress").contains("pref 4000"));
    // A reload does not mind, nor does it make it wait once it was seen to.
    reload(&one);
    assert_eq!(counter(&one, "agent.reload_failures"), 0, "{}", one.log());
    world.tc("host1", "filter del dev port3 ingress pref 4000");
    reload(&one);
    until("c is back", 3, || one.top().gone.is_empty());
    assert_eq!(counter(&one, "agent.ports_lost"), 2, "none was lost since");
    one.stop();
}

#[test]
fn a_port_that_dies_while_a_reload_fails_is_told() {
    let world = World::new();
    let guest = Guest::new(&world, 1);
    add_c(&world);
    let one = world.start(1);
    assert_eq!(one.top().gone, []);
    let _d = unseen(&one, Some(Signal::HUP), || {
        guest.dies();
        add_d(&world);
        bad(&world, 4)
    });
    until("the reload is refused", 5, || counter(&one, "agent.reload_failures") == 1);
    let log = one.log();
    let said = log.lines().rfind(|line| line.contains("the configuration in use stays"));
    let wanted = ["host1.toml: ", "vm `d` with port `port4`"];
    assert!(said.is_some_and(|said| wanted.iter().all(|w| said.contains(w))), "{log}");
    until("c is told as gone", 3, || one.top().gone == [gone("c", "port3")]);
    assert_eq!(counter(&one, "agent.ports_lost"), 1);
    assert!(one.log().contains("vm c is gone: its port port3"), "{}", one.log());
    one.stop();
}

#[test]
fn a_port_that_a_reload_finds_missing_is_told_and_counted() {
    let world = World::new();
    let guest = Guest::new(&world, 1);
    add_c(&world);
    let one = world.start(1);
    unseen(&one, Some(Signal::HUP), || guest.dies());
    until("the reload", 5, || counter(&one, "agent.reloads") == 1);
    assert_eq!(one.top().gone, [gone("c", "port3")]);
    assert_eq!(counter(&one, "agent.ports_lost"), 1);
    assert_eq!(one.log().matches("vm c is gone: its port port3").count(), 1, "{}", one.log());
    one.stop();
}

#[test]
fn a_vm_that_is_not_there_at_the_first_start_is_guarded_when_it_comes() {
    let world = World::new();
    add_c(&world);
    let one = world.start(1);
    assert_eq!(one.top().gone, [gone("c", "port3")]);
    assert_eq!(one.log().matches("vm c is gone: its port port3").count(), 1, "{}", one.log());
    let _guest = Guest::new(&world, 1);
    until("it is guarded", 5, || one.top().gone.is_empty());
    let filters = world.tc("host1", "filter show dev port3 ingress");
    assert!(filters.contains("pref 4000"), "its redirection: {filters}");
    assert_eq!(counter(&one, "agent.ports_lost"), 0, "none was lost");
    one.stop();
}

#[test]
fn a_port_made_anew_under_its_index_is_noticed_and_guarded_again() {
    let world = World::new();
    let guest = Guest::new(&world, 1);
    add_c(&world);
    let one = world.start(1);
    let shown = world.ip("host1", "-o link show dev port3");
    let index = shown.split(':').next().unwrap().to_owned();
    let _guest = unseen(&one, None, || {
        guest.dies();
        Guest::with(&world, 1, 3, &format!("index {index}"), |_| {})
    });
    until("it is noticed", 3, || counter(&one, "agent.ports_lost") == 1);
    assert_eq!(one.top().gone, []);
    let filters = world.tc("host1", "filter show dev port3 ingress");
    assert!(filters.contains("pref 4000"), "its redirection: {filters}");
    one.stop();
}

/// The rates of all leaves of host 1's shaper, in kbit/s.
fn leaves(world: &World) -> Vec<f64> {
    let text = world.ceilings(1);
    let rate = |line: &str| {
        let (_, rest) = line.split_once(" rate ")?;
        let word = rest.split_whitespace().next()?;
        let at = word.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = match &word[at..] {
            "bit" => 1e-3,
            "Kbit" => 1.0,
            "Mbit" => 1e3,
            other => panic!("{other} in {line}"),
        };
        Some(word[..at].parse::<f64>().ok()? * unit)
    };
    text.lines().filter(|line| line.contains(" leaf ")).map(|line| rate(line).unwrap()).collect()
}

#[test]
fn what_a_successor_has_no_room_for_is_given_back() {
    let world = World::new();
    let _guests = [Guest::new(&world, 1), Guest::with(&world, 1, 4, "", |_| {})];
    add_c(&world);
    add_d(&world);
    let one = world.start(1);
    let (from, stop) = (world.udp(1), AtomicBool::new(false));
    // Else the kernel answers, which makes pairs the other way.
    let sinks = [world.udp(3), world.udp(4)];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for to in ["10.0.0.3:9000", "10.0.0.4:9000"] {
                    let _ = from.send_to(&[0; 1472], to);
                }
                std::thread::sleep(Duration::from_micros(400));
            }
        });
        let _stop = StopAtEnd(&stop);
        until("two pairs with floors", 10, || {
            leaves(&world).iter().filter(|rate| **rate > 2000.0).count() == 2
        });
    });
    drop((from, sinks));
    one.kill();
    // Room for one pair of the least rate, not for two.
    let file = world.dir.join("host1.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replacen("floor_out = \"20Mbit\"", "floor_out = \"100kbit\"", 1);
    std::fs::write(&file, text).unwrap();
    let one = world.start(1);
    // A pair's class had 2000 kbit/s and more; a VM's class for unlisted addresses has a twentieth
    // of its floor. What has no pair stays for longer than this.
    until("it is given back", 3, || leaves(&world).iter().all(|rate| *rate < 1500.0));
    one.stop();
}
