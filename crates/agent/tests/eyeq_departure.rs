//! EyeQ between two real agents that shape by departure times: what the receivers' host says is
//! in force while the agents sleep. Needs root and a kernel with fq, so `cargo test` leaves it out
//! unless it is named: `scripts/test-stock-kernel eyeq_departure` plays it.
#![allow(clippy::disallowed_methods)]

mod common;

use common::eyeq::{Play, expect_received, forge, is_near, pair, rates};
use common::guest::{Guest, counter, unseen};
use common::{World, pause, until};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// As fast as an emulated machine can play it. What a sender has given departures to keeps them: a
/// full queue of 128 kB lasts two periods at the smaller share. So the gain is one that rests
/// there.
const PLAY: Play = Play {
    senders: 60,
    receivers: 20,
    floors: [4, 8],
    shaper: "departure-time",
    set: "alpha = 0.2, ",
};

/// What `a` gets at least of what the receivers' link lets pass, once it is alone; bit/s.
const ALONE: f64 = 15e6;

/// What VMs `b` and `d` receive, bit/s, over three seconds: counted by their own interfaces, which
/// no agent reads.
fn received(world: &World) -> [f64; 2] {
    rates(|| ["vm2", "vm4"].map(|vm| octets_of(world, vm)))
}

/// The octets that came in by a VM's interface.
fn octets_of(world: &World, vm: &str) -> u64 {
    let text = world.inside(vm, || fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("it has one");
    line.split_whitespace().next().expect("octets come first").parse().expect("a number")
}

/// Host 1's map in which its agent says that it lives.
fn lease(world: &World) -> MapHandle {
    let pins = fs::read_dir(world.bpffs().join("weir/host1")).unwrap();
    let mut paths = pins.map(|entry| entry.unwrap().path().join("lease"));
    let path: PathBuf = paths.find(|path| path.exists()).expect("an agent that departs by times");
    MapHandle::from_pinned_path(path).unwrap()
}

/// Also when what is played meanwhile fails: else the scope would wait for ever.
struct OverAtEnd<'a>(&'a AtomicBool);

impl Drop for OverAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Plays `during` while the test renews the lease in the place of host 1's agent, and does nothing
/// else of the agent's work: otherwise all pairs would be at their floors a second after it was
/// stopped.
fn leased<T>(world: &World, during: impl FnOnce() -> T) -> T {
    let (lease, is_over) = (lease(world), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let now = clock_gettime(ClockId::Monotonic);
                let ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
                lease.update(&[0; 4], &ns.to_ne_bytes(), MapFlags::ANY).unwrap();
                pause(100);
            }
        });
        let _over = OverAtEnd(&is_over);
        during()
    })
}

/// Whether host 2 may tell others anything, seen from the switch.
fn let_feedback_pass(world: &World, passes: bool) {
    if passes {
        world.tc("switch", "qdisc del dev sw2 clsact");
        return;
    }
    world.tc("switch", "qdisc add dev sw2 clsact");
    world.tc(
        "switch",
        "filter add dev sw2 ingress protocol ip u32 match ip protocol 253 0xff action drop",
    );
}

#[test]
fn limits_are_in_force_while_all_agents_sleep_and_silence_halves_them() {
    let world = World::new();
    let _guests = [Guest::with(&world, 1, 3, "", |_| {}), Guest::with(&world, 2, 4, "", |_| {})];
    PLAY.configure(&world);
    let (agent1, agent2) = (world.start(1), world.start(2));
    let root = world.tc("host1", "qdisc show dev up");
    assert!(root.contains("qdisc fq 3e1: root"), "{root}");
    let shares = PLAY.shares();
    let settles = |what: &str| {
        pause(5000);
        expect_received(what, &shares, || received(&world));
    };
    PLAY.busy(&world, |quiet| {
        let limited = |from, to| {
            pair(&agent1, from, to).is_some_and(|pair| pair.phase == "limited" && pair.rate_bps > 0)
        };
        until("limits arrive", 30, || limited("a", "b") && limited("c", "d"));
        settles("a to b, and c to d");

        // From here on no agent on the senders' host sets anything.
        unseen(&agent1, None, || {
            leased(&world, || {
                quiet.store(true, Ordering::Relaxed);
                let alone = || received(&world)[0];
                until("what c leaves is a's, without a's agent", 40, || alone() >= ALONE);
                quiet.store(false, Ordering::Relaxed);
                settles("both again, without their agent");
                // Nor on the receivers' host: what each may receive stands, and rates follow it.
                unseen(&agent2, None, || {
                    settles("both, without any agent");
                    forge(&world);
                    settles("after a forgery, without any agent");
                });
            });
        });

        until("the agents answer", 20, || agent1.try_top().is_ok() && agent2.try_top().is_ok());
        until("the forgery is seen", 5, || counter(&agent1, "feedback.forged") >= 20);
        settles("with the agents again");
        let_feedback_pass(&world, false);
        // A second of silence halves a limit, and so does the next one.
        let halved = |part: f64| {
            pair(&agent1, "a", "b").expect("it sends").rate_bps as f64 <= shares[0] * part
        };
        until("silence halves the limit", 10, || halved(0.6));
        until("and again", 10, || halved(0.3));
        until("which is in force", 10, || received(&world)[0] <= shares[0] * 0.3);
        let_feedback_pass(&world, true);
        until("the receiver's word replaces it", 10, || {
            is_near(pair(&agent1, "a", "b").expect("it sends").rate_bps as f64, shares[0], 0.2)
        });
        settles("after the silence");
        assert_eq!(counter(&agent1, "shaper.late_drops"), 0);
    });
    agent1.stop();
    agent2.stop();
}
