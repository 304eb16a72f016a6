//! Marks as the signal: what the laws do on a link that marks all that passes above a threshold.
//!
//! `cargo run --release -p weir-fluid --example ecn` prints the table of
//! docs/algorithms/elasticswitch.md, "Marks as the signal".

use weir_core::elasticswitch::ElasticSwitch;
use weir_fluid::{Outcome, PairSpec, World};
use weir_units::{Rate, Span};

const LINK: Rate = Rate::from_mbps(1000);
const FLOOR: Rate = Rate::from_mbps(450);
const RUN: Span = Span::from_secs(30);
const WARMUP: Span = Span::from_secs(10);
/// Octets: about 20 segments, 0.24 ms at 1 Gb/s.
const THRESHOLD: u64 = 30_000;

fn main() {
    println!(
        "{:<12} Fig. 2: use of the link at UDP 100, 200, 300, 400, 450 Mb/s; Fig. 5: X in Mb/s, its \
         deviation over 100 ms in per cent of the mean, use of the link",
        "preset"
    );
    for name in ElasticSwitch::PRESETS {
        let es = ElasticSwitch::preset(name).expect("a listed preset exists");
        row(name, &es);
    }
}

fn row(name: &str, es: &ElasticSwitch) {
    let fig2 = [100, 200, 300, 400, 450].map(|udp| {
        let udp = PairSpec { demand: Some(Rate::from_mbps(udp)), ..PairSpec::alone(FLOOR) };
        let got = play(es, vec![PairSpec::alone(FLOOR), udp]);
        format!("{:.2}", got.carried / LINK.as_f64())
    });
    let fig5 = [1usize, 10, 100].map(|n| {
        let mut pairs = vec![PairSpec::alone(FLOOR)];
        for i in 0..n {
            let destination = (i > 0).then_some(1);
            pairs.push(PairSpec { destination, ..PairSpec::alone(FLOOR) });
        }
        let got = play(es, pairs);
        let used = got.carried / LINK.as_f64();
        format!("{:.0} {:.1}% {used:.3}", got.rates[0] / 1e6, 100.0 * deviation(&got))
    });
    println!("{name:<12} {}   {}", fig2.join(" "), fig5.join(" | "));
}

fn play(es: &ElasticSwitch, pairs: Vec<PairSpec>) -> Outcome {
    let mark_above = es.rate.signal.needs_marks().then_some(THRESHOLD);
    World { mark_above, ..World::new(LINK, es.clone(), pairs) }.play(RUN, WARMUP)
}

/// Standard deviation of the first pair's rate over 100 ms, as a part of its mean.
fn deviation(outcome: &Outcome) -> f64 {
    let from = WARMUP.div_span(Span::from_millis(100)) as usize;
    let rates = &outcome.series[0][from..];
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let square = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    square.sqrt() / mean
}
