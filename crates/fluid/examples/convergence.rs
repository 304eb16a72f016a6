//! How fast EyeQ's rates come to rest, beside meters by other laws, and what late feedback does.
//!
//! `cargo run --release -p weir-fluid --example convergence` prints the tables of docs/algorithms/eyeq.md.

use weir_core::eyeq::{Capacity, EyeQ, Loop, Outer, VmBounds, bound};
use weir_fluid::eyeq::{Flow, Outcome, Vm, World, settled_after};
use weir_fluid::meters::{Endpoint, Law};
use weir_units::{Rate, Span};

const PERIOD: Span = Span::from_micros(200);
const C: Rate = Rate::from_mbps(9_000);
const NEVER: Span = Span::from_secs(100);

fn main() {
    laws();
    figure();
    late();
    departing();
    hosts();
    gains();
}

fn ms(n: u64) -> Span {
    Span::from_millis(n)
}

fn show(after: Option<Span>) -> String {
    after.map_or("never".into(), |a| format!("{:.1}", a.as_secs_f64() * 1e3))
}

fn all_laws() -> [(&'static str, Law); 3] {
    [("RCP", Law::rcp()), ("DCTCP-like", Law::dctcp(PERIOD)), ("QCN-like", Law::qcn(PERIOD))]
}

fn endpoint(law: Law, senders: u64, start: Rate) -> Endpoint {
    Endpoint { law, capacity: C, senders, start, period: PERIOD }
}

/// One endpoint of 9 Gb/s: ms until y is within 10 %, and within 0.01 %, of C for good.
fn laws() {
    println!("law          senders  from 10 Gb/s: 10 %  0.01 %   from 10 Mb/s: 10 %  0.01 %");
    for (name, law) in all_laws() {
        for senders in [1, 14, 100] {
            let times = [10_000, 10].map(|start| {
                let endpoint = endpoint(law, senders, Rate::from_mbps(start));
                [0.1, 1e-4].map(|slack| show(endpoint.settles_after(slack, 20_000)))
            });
            println!(
                "{name:<12} {senders:>7}  {:>10} {:>8} {:>12} {:>8}",
                times[0][0], times[0][1], times[1][0], times[1][1]
            );
        }
    }
}

/// The load of an endpoint with 14 senders that start at 10 Gb/s each, as a drawing.
fn figure() {
    println!(
        "\ny / C of 14 senders from 10 Gb/s; a column is 0.2 ms up to 12 ms, a row 0.1 of C, above 2 cut"
    );
    for (name, law) in all_laws() {
        let loads = endpoint(law, 14, Rate::from_mbps(10_000)).play(60);
        println!("{name}");
        for row in (0..=20).rev() {
            let mark =
                |load: &f64| if (load.min(2.0) * 10.0).round() as i32 == row { '*' } else { ' ' };
            let line: String = loads.iter().map(mark).collect();
            println!("{:>4.1} |{}", f64::from(row) / 10.0, line.trim_end());
        }
    }
}

fn vm(host: u32, tenant: u32, floor: u64) -> Vm {
    Vm { host, tenant, bounds: VmBounds::both(Rate::from_mbps(floor)) }
}

fn flow(src: u32, dst: u32, from: Span) -> Flow {
    Flow { src, dst, demand: None, during: from..NEVER }
}

/// How far the load of an endpoint swings when limiters are late.
fn late() {
    println!(
        "\nlimiters late by, d, bound: swing of y / C in the last 100 of 500 ms at alpha 0.5, 0.2, 0.15"
    );
    for late_us in [0, 100, 200, 400, 600, 1_000] {
        let late = Span::from_micros(late_us);
        let around = Loop { round_trip: Span::from_micros(100), actuation: late };
        let d = around.delay(PERIOD);
        let swings = [0.5, 0.2, 0.15].map(|alpha| format!("{:.3}", swing(alpha, late)));
        println!("{late:>8} {d} {:.3}: {}", bound(d), swings.join(" "));
    }
}

fn swing(alpha: f64, late: Span) -> f64 {
    swing_of(&World { actuation: late, ..incast(alpha, 10) })
}

/// How far it swings when what waits in full queues of 128 kB keeps its departures.
fn departing() {
    println!(
        "\ndepartures within, alpha: swing of y / C in the last 100 of 500 ms with 2, 3, 4, 6, 10, 20 senders"
    );
    let us = Span::from_micros;
    let kinds =
        [(ms(250), 0.5), (ms(250), 0.2), (us(1_000), 0.5), (us(200), 0.5), (us(1_200), 0.2)];
    for (within, alpha) in kinds {
        let swings = [2, 3, 4, 6, 10, 20].map(|n| {
            let world = World { departs_within: Some(within), ..incast(alpha, n) };
            format!("{:.3}", swing_of(&world))
        });
        println!("{within:>8} {alpha}: {}", swings.join(" "));
    }
}

/// An endpoint of 9 Gb/s and senders that send all they may.
fn incast(alpha: f64, n: u32) -> World {
    let loop_delay = Loop { round_trip: Span::ZERO, actuation: Span::ZERO };
    let paper = EyeQ::preset("eyeq-paper").expect("listed");
    let eyeq = EyeQ { alpha, loop_delay, ..paper };
    let mut vms = vec![vm(0, 0, 9_000)];
    vms.extend((0..n).map(|i| vm(1 + i, 0, 9_000)));
    let flows = (0..n).map(|i| flow(1 + i, 0, Span::ZERO)).collect();
    World::new(eyeq, vms, flows)
}

fn swing_of(world: &World) -> f64 {
    let got = world.play(ms(500));
    let rates = &got.sum(0..world.flows.len())[400..];
    let (low, high) = rates.iter().fold((f64::MAX, 0.0f64), |(l, h), r| (l.min(*r), h.max(*r)));
    (high - low) / C.as_f64()
}

/// Fig. 6 with hosts: one sender alone, then `n` more at line rate to another VM of its receiver's host.
fn fig6(eyeq: EyeQ, n: u32) -> Outcome {
    let mut vms = vec![vm(0, 0, 4_500), vm(0, 1, 4_500), vm(1, 0, 4_500)];
    let mut flows = vec![flow(2, 0, Span::ZERO)];
    for i in 0..n {
        vms.push(vm(2 + i, 1, 4_500));
        flows.push(flow(3 + i, 1, ms(50)));
    }
    World::new(eyeq, vms, flows).play(ms(350))
}

fn variants() -> [(&'static str, EyeQ); 6] {
    let authors = Outer { fall_at: None, ..Outer::default() };
    let authors = EyeQ { capacity: Capacity::Outer(authors), told_part: 0.0, ..EyeQ::default() };
    [
        ("printed formula", EyeQ::preset("eyeq-paper").expect("listed")),
        ("outer loop as the authors'", authors.clone()),
        ("the same, losses count", EyeQ { counts_losses: true, ..authors }),
        ("outer loop that falls at once", EyeQ { told_part: 0.0, ..EyeQ::default() }),
        ("and rates that wait", EyeQ::default()),
        ("the same, losses count", EyeQ { counts_losses: true, ..EyeQ::default() }),
    ]
}

fn hosts() {
    println!(
        "\nFig. 6: ms until the one, and the n, are within 10 % of 4.5 Gb/s for good; lost MB; queue at the end"
    );
    for (name, eyeq) in variants() {
        for n in [1, 14, 100] {
            let got = fig6(eyeq.clone(), n);
            let after = |flows: std::ops::RangeInclusive<usize>| {
                show(settled_after(&got.sum(flows), ms(50), 4.5e9, 0.1))
            };
            let lost: f64 = got.lost.iter().sum();
            let queue = got.queues[0][250..].iter().fold(0.0f64, |a, b| a.max(*b));
            println!(
                "{name:<30} {n:>3}: {:>6} {:>6}  {:>5.1} MB  {:>6.0} B",
                after(0..=0),
                after(1..=n as usize),
                lost / 1e6,
                queue
            );
        }
    }
    println!("one VM alone, n senders at once: ms until within 10 % of 9 Gb/s; lost MB");
    for (name, eyeq) in variants() {
        let row = [1u32, 14, 100].map(|n| {
            let mut vms = vec![vm(0, 0, 9_000)];
            vms.extend((0..n).map(|i| vm(1 + i, 0, 9_000)));
            let flows = (0..n).map(|i| flow(1 + i, 0, ms(50))).collect();
            let got = World::new(eyeq.clone(), vms, flows).play(ms(350));
            let after = settled_after(&got.sum(0..n as usize), ms(50), 9e9, 0.1);
            format!("{:>6} {:>5.1}", show(after), got.lost.iter().sum::<f64>() / 1e6)
        });
        println!("{name:<30} {}", row.join(" | "));
    }
}

/// Which gain is fast and still rests with feedback that goes to each of 100 senders every few periods.
fn gains() {
    println!(
        "\nalpha, told_part: Fig. 6 with 14, 100: ms until within 10 %; deviation of y in the last 100 ms"
    );
    let both = [0.2, 0.3, 0.5, 0.7].map(|alpha| [(alpha, 0.0), (alpha, 0.875)]);
    for (alpha, told_part) in both.into_iter().flatten() {
        let row = [14u32, 100].map(|n| {
            let got = fig6(EyeQ { alpha, told_part, ..EyeQ::default() }, n);
            let all = got.sum(1..=n as usize);
            let after = settled_after(&all, ms(50), 4.5e9, 0.1);
            let late = &all[250..];
            let mean = late.iter().sum::<f64>() / late.len() as f64;
            let square = late.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / late.len() as f64;
            format!("{:>6} {:.4}", show(after), square.sqrt() / mean)
        });
        println!("{alpha:>4} {told_part:>5}: {}", row.join(" | "));
    }
}
