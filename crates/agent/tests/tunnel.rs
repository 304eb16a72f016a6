//! VMs whose packets leave their hosts in VXLAN, and real agents that know of it or do not. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::{Agent, FLOOR, StopAtEnd, World, pause, until};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::status::Pair;

/// Puts VXLAN between each host's bridge and its uplink, which gets the host's own address.
fn dig(world: &World) {
    for (n, peer) in [(1, 2), (2, 1)] {
        let host = format!("host{n}");
        for line in [
            "link set dev up nomaster".to_owned(),
            format!("addr del 10.255.0.{n}/24 dev br"),
            format!("addr add 10.255.0.{n}/24 dev up"),
            format!(
                "link add vx0 type vxlan id 7 local 10.255.0.{n} remote 10.255.0.{peer} \
                 dstport 4789 dev up"
            ),
            "link set dev vx0 master br".to_owned(),
            "link set dev vx0 up".to_owned(),
        ] {
            world.ip(&host, &line);
        }
        world.ip(&format!("vm{n}"), "link set dev eth0 mtu 1450");
    }
}

/// Adds the tunnel to both hosts' configurations.
fn name_it(world: &World) {
    for n in [1, 2] {
        let file = world.dir.join(format!("host{n}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        let with = text.replace("interface = \"up\",", "interface = \"up\", tunnels = [\"vx0\"],");
        assert_ne!(text, with);
        fs::write(&file, with).unwrap();
    }
}

/// Some 60 Mbit/s from a to b.
fn while_it_sends<T>(world: &World, during: impl FnOnce() -> T) -> T {
    let (from, _sink, stop) = (world.udp(1), world.udp(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..75 {
                    let _ = from.send_to(&[7; 1000], "10.0.0.2:9000");
                }
                pause(10);
            }
        });
        let _stop = StopAtEnd(&stop);
        during()
    })
}

fn pair(agent: &Agent<'_>) -> Pair {
    agent.pair().unwrap_or_default()
}

#[test]
fn a_pair_in_a_tunnel_borrows_if_the_tunnel_is_named_and_else_keeps_its_floor() {
    let world = World::new();
    dig(&world);
    let floor = FLOOR * 1_000_000;
    for is_named in [false, true] {
        if is_named {
            name_it(&world);
        }
        let (one, two) = (world.start(1), world.start(2));
        while_it_sends(&world, || {
            if is_named {
                until("it borrows", 60, || pair(&one).rate_bps > floor * 5 / 4);
                let told = pair(&one);
                assert!(told.floor_bps <= floor && told.phase != "unseen", "{told:?}");
            } else {
                until("it is told", 60, || pair(&one).phase == "unseen");
                until("it keeps to its floor", 60, || pair(&one).rate_bps <= floor * 21 / 20);
                let told = one.top().unenforced;
                assert!(told.iter().any(|t| t.vm == "a" && t.why.contains("vx0")), "{told:?}");
            }
        });
        one.stop();
        two.stop();
    }
}
