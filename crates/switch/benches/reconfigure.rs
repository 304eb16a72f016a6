//! How long it takes until 48 ports with 8 queues each have other weights and other bindings, with
//! reading before and after. QShare's prototype: 50 ms. Needs root: it makes a network namespace.
#![allow(missing_docs, reason = "criterion's macros")]

use criterion::{Criterion, criterion_group, criterion_main};
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::time::Duration;
use weir_core::binding::switch::{PortName, PortQueues, SwitchConfig};
use weir_switch::linux::{LinuxTc, PortSettings, Settings};
use weir_switch::{Driver as _, Managed, Outcome, Owner, Saves};
use weir_units::Rate;

const PORTS: usize = 48;
const RATE: Rate = Rate::from_mbps(10_000);

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split_whitespace()).status().expect("iproute2");
    assert!(status.success(), "ip {line}: this bench needs root");
}

/// Queue 1 to 7 with their code points, turned by `turn`, and other weights for each `turn`.
fn config(ports: &[PortName], turn: u8) -> SwitchConfig {
    let queues = |at: u8| 1 + (at + turn) % 7;
    let port = PortQueues {
        rate: RATE,
        shared: 0,
        weights: (0..8).map(|queue| (queue, 1 + u16::from((queue + turn) % 8))).collect(),
        queue_of: (0..7).map(|at| (10 + at, queues(at))).collect(),
    };
    SwitchConfig { ports: ports.iter().map(|name| (name.clone(), port.clone())).collect() }
}

fn reconfigure(c: &mut Criterion) {
    unshare(CloneFlags::CLONE_NEWNET).expect("this bench needs root");
    for pair in 0..PORTS / 2 {
        ip(&format!("link add p{} type veth peer name p{}", 2 * pair, 2 * pair + 1));
    }
    let ports: Vec<PortName> = (0..PORTS).map(|n| format!("p{n}").as_str().into()).collect();
    for port in &ports {
        ip(&format!("link set {port} up"));
    }
    let settings = PortSettings { rate: RATE, queues: 8 };
    let settings = ports.iter().map(|name| (name.clone(), settings)).collect();
    let linux = LinuxTc::open(Settings::new(settings)).expect("as root");
    let folder = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    let saves = Saves::new(&folder, "bench");
    let owner = Owner::new("bench").expect("a name");
    let mut driver = Managed::new(linux, owner, saves, Duration::from_secs(10));
    let both = [config(&ports, 0), config(&ports, 1)];
    let mut turn = 0;
    c.bench_function("48 ports of 8 queues: all weights, all bindings", |b| {
        b.iter(|| {
            turn = 1 - turn;
            let outcome = driver.apply(&both[turn]);
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        });
    });
    c.bench_function("48 ports of 8 queues: read, nothing to do", |b| {
        b.iter(|| assert_eq!(driver.apply(&both[turn]), Outcome::Applied(Vec::new())));
    });
    driver.rollback();
    let _ = std::fs::remove_dir_all(&folder);
}

criterion_group!(benches, reconfigure);
criterion_main!(benches);
