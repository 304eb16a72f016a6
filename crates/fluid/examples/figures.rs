//! The readings of the paper's silences, fitted to its Table 2 and Fig. 2 (and looked at on Fig. 5).
//!
//! `cargo run --release -p weir-fluid --example figures` prints the tables of
//! docs/algorithms/elasticswitch.md.

use weir_core::elasticswitch::ElasticSwitch;
use weir_core::rate::{DeltaTFrom, DeltaTUnit, HoldForm, RateConfig};
use weir_fluid::{Loss, Outcome, PairSpec, World};
use weir_units::{Rate, Span};

const LINK: Rate = Rate::from_mbps(1000);
const RUN: Span = Span::from_secs(60);
const WARMUP: Span = Span::from_secs(10);

fn main() {
    let only = std::env::args().nth(1);
    println!("Table 2: rates in Mb/s of two pairs with floors 1:2 on 1 Gb/s (paper: 203/536,");
    println!("219/531, 275/589); error = RMS of the log ratio to the paper's six numbers.");
    println!(
        "Fig. 2: use of the link / ideal at UDP 100, 200, 300, 400, 450 Mb/s (paper: 0.75-0.99)."
    );
    println!("Fig. 5: X in Mb/s beside 1, 10, 100, 300 senders to Y (floor 450).\n");
    println!(
        "{:<12} {:<8} {:<11} {:<7} {:<25} {:>6}  {:<31} {:<20}",
        "hold", "dt unit", "dt from", "loss", "Table 2", "error", "Fig. 2", "Fig. 5"
    );
    for (hold, unit, from) in readings() {
        for loss in [Loss::Proportional, Loss::Equal] {
            let label = format!("{hold:?} {unit:?} {from:?}");
            if only.as_ref().is_some_and(|o| !label.contains(o.as_str())) {
                continue;
            }
            let rate = RateConfig {
                hold,
                delta_t_unit: unit,
                delta_t_from: from,
                ..RateConfig::default()
            };
            let es = ElasticSwitch { rate, ..ElasticSwitch::default() };
            row(&es, loss, [&format!("{hold:?}"), &format!("{unit:?}"), &format!("{from:?}")]);
        }
    }
    for name in ElasticSwitch::PRESETS {
        let es = ElasticSwitch::preset(name).expect("a listed preset exists");
        row(&es, Loss::Proportional, [name, "(preset)", ""]);
        row(&es, Loss::Equal, [name, "(preset)", ""]);
    }
    println!("\nSeawall: use of the link by X and 1, 2, 10, 100 senders to Y: {}", seawall());
}

/// What the law leaves of a link without floors, Hold-Increase and Rate-Caution.
fn seawall() -> String {
    let points = [1usize, 2, 10, 100].map(|n| {
        let got = play(&ElasticSwitch::seawall(), Loss::Proportional, to_x_and_y(n));
        format!("{:.2}", got.rates.iter().sum::<f64>() / LINK.as_f64())
    });
    points.join(" ")
}

fn readings() -> Vec<(HoldForm, DeltaTUnit, DeltaTFrom)> {
    let mut all = Vec::new();
    for hold in [HoldForm::History, HoldForm::Linear, HoldForm::None] {
        for unit in [DeltaTUnit::Period, DeltaTUnit::Second] {
            for from in [DeltaTFrom::Congestion, DeltaTFrom::HoldEnd] {
                all.push((hold, unit, from));
            }
        }
    }
    all
}

fn row(es: &ElasticSwitch, loss: Loss, label: [&str; 3]) {
    let (table, error) = table2(es, loss);
    println!(
        "{:<12} {:<8} {:<11} {:<7} {:<25} {:>6.3}  {:<31} {:<20}",
        label[0],
        label[1],
        label[2],
        if loss == Loss::Equal { "equal" } else { "prop." },
        table,
        error,
        fig2(es, loss),
        fig5(es, loss)
    );
}

fn play(es: &ElasticSwitch, loss: Loss, pairs: Vec<PairSpec>) -> Outcome {
    World { loss, ..World::new(LINK, es.clone(), pairs) }.play(RUN, WARMUP)
}

fn table2(es: &ElasticSwitch, loss: Loss) -> (String, f64) {
    let paper = [(45, 203.0, 536.0), (90, 219.0, 531.0), (225, 275.0, 589.0)];
    let mut cells = Vec::new();
    let mut error = 0.0;
    for (floor, small, large) in paper {
        let floor = Rate::from_mbps(floor);
        let pairs = vec![PairSpec::alone(floor), PairSpec::alone(floor * 2)];
        let got = play(es, loss, pairs).rates;
        cells.push(format!("{:.0}/{:.0}", got[0] / 1e6, got[1] / 1e6));
        error += (got[0] / 1e6 / small).ln().powi(2) + (got[1] / 1e6 / large).ln().powi(2);
    }
    (cells.join(" "), (error / 6.0f64).sqrt())
}

fn fig2(es: &ElasticSwitch, loss: Loss) -> String {
    let floor = Rate::from_mbps(450);
    let points = [100, 200, 300, 400, 450].map(|udp| {
        let udp = PairSpec { demand: Some(Rate::from_mbps(udp)), ..PairSpec::alone(floor) };
        let got = play(es, loss, vec![PairSpec::alone(floor), udp]);
        format!("{:.2}", got.rates.iter().sum::<f64>() / LINK.as_f64())
    });
    points.join("  ")
}

fn fig5(es: &ElasticSwitch, loss: Loss) -> String {
    let points = [1usize, 10, 100, 300].map(|n| {
        let got = play(es, loss, to_x_and_y(n));
        format!("{:.0}", got.rates[0] / 1e6)
    });
    points.join(" ")
}

/// One sender to X and so many to Y, each with a floor of 450 Mb/s.
fn to_x_and_y(senders: usize) -> Vec<PairSpec> {
    let floor = Rate::from_mbps(450);
    let mut pairs = vec![PairSpec::alone(floor)];
    for i in 0..senders {
        let destination = (i > 0).then_some(1);
        pairs.push(PairSpec { destination, ..PairSpec::alone(floor) });
    }
    pairs
}
