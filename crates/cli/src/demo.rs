//! `weir demo`: the embedded scenario in three acts, for a person who has read nothing.

use crate::commands;
use crate::constants::Constants;
use crate::input;
use crate::lab::Lab;
use crate::live::Live;
use crate::output::outln;
use anyhow::Result;
use std::path::Path;
use weir_core::mechanism::registry::{Floors, Row};
use weir_model::results::{About, Run, Verdict};
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_study::experiment::{Played, Screen};
use weir_study::judge::stopped;
use weir_study::verdict::{self, Outcome};
use weir_study::world::Moment;

const SCENARIO: &str = include_str!("../../../scenarios/demo.yaml");

const PROLOGUE: &str = "\
This plays a small datacenter on this machine, out of network namespaces: two racks, joined by one
link of 100 Mb/s. Two tenants share that link, and each was promised 45 % of it. “gold” has one
TCP connection. “bulk” has fifty VMs: first with TCP, then with UDP that never slows down.";

/// Played where the machine is too slow or too busy for the file's own rates: half of them, for
/// half the packets, and half the neighbours, so that each of them has as many packets a second as
/// before. A neighbour that sends few hears of few losses, and ElasticSwitch lives on these.
const SMALLER: [(&str, &str); 2] = [("scale", "0.05"), ("senders", "25")];
const SMALLER_TITLE: &str = "A TCP connection against 25 neighbours, then against UDP blasters";

const ONCE_MORE: &str = "
This machine was too busy while it played that, or the one below it stopped it: what was measured is
the machine, not the network.
Once more from the beginning, with half of everything: a link of 50 Mb/s, and 25 VMs of bulk's.";

const IN_SPITE: &str = "\
Something else had a CPU of this machine meanwhile. Both floors held in spite of it; a machine without
idle time makes rates smaller, never larger. The other numbers may be too small.";

/// Plays the demo; 0 if and only if the floors held under ElasticSwitch. What else the scenario
/// expects is shown in the table.
///
/// The demo claims two lower bounds, so it takes them from a machine that is also used for
/// something else ([`verdict::judge_beside_load`]). Only where they did not hold, and the machine
/// may be to blame, it plays again with smaller rates.
///
/// # Errors
/// The machine cannot play it.
pub(crate) fn demo(out: &Path) -> Result<u8> {
    input::make_folder(out)?;
    outln!("{PROLOGUE}")?;
    let whole = file(&[])?;
    let (mut points, mut played) = play(&whole, whole.title())?;
    let mut outcome = judge(&points, &mut played);
    if played.cut.is_none() && outcome == Outcome::Invalid {
        outln!("{ONCE_MORE}")?;
        (points, played) = play(&file(&SMALLER)?, SMALLER_TITLE)?;
        outcome = judge(&points, &mut played);
    }
    outln!("")?;
    if outcome == Outcome::Held && played.results.runs.iter().any(|run| !run.valid) {
        outln!("{IN_SPITE}\n")?;
    }
    commands::conclude(played, outcome, Some(out), false)
}

/// Puts into `played` what a machine that others use, too, shows of the expectations; says how it
/// ended.
fn judge(points: &[Scenario], played: &mut Played) -> Outcome {
    let outcome = judge_once(points, played);
    if outcome != Outcome::Failed {
        return outcome;
    }
    for run in played.results.runs.iter_mut().filter(|run| run.valid) {
        if let Some(why) = stopped(run) {
            run.valid = false;
            run.reasons.push(why);
        }
    }
    judge_once(points, played)
}

fn judge_once(points: &[Scenario], played: &mut Played) -> Outcome {
    let runs = &played.results.runs;
    let verdicts = points.iter().flat_map(|point| verdict::judge_beside_load(point, runs));
    played.results.verdicts = verdicts.collect();
    outcome(runs, &deciding(points, &played.results.verdicts))
}

/// Held if all that decides held; else as for any scenario.
fn outcome(runs: &[Run], deciding: &[Verdict]) -> Outcome {
    if !deciding.is_empty() && deciding.iter().all(|verdict| verdict.held == Some(true)) {
        return Outcome::Held;
    }
    Outcome::of(runs, deciding)
}

fn file(set: &[(&str, &str)]) -> Result<File> {
    let set: Vec<_> = set.iter().map(|&(key, value)| (key.into(), value.into())).collect();
    Ok(File::parse("scenarios/demo.yaml", SCENARIO, &set)?)
}

fn play(file: &File, title: &str) -> Result<(Vec<Scenario>, Played)> {
    let points = file.points()?;
    let about = About { title: title.into(), command: "make demo".into() };
    let mut stage = Stage { live: Live::new() };
    let (lab, say) = (Lab::new(Constants::default())?, stage.live.voice());
    let played = commands::play(&points, 1, about, lab, &mut stage, say)?;
    Ok((points, played))
}

/// The verdicts on floors under ElasticSwitch.
fn deciding(points: &[Scenario], verdicts: &[Verdict]) -> Vec<Verdict> {
    let protects = |label: &str| {
        let mut mechanisms = points.iter().flat_map(|point| &point.mechanisms);
        mechanisms.any(|m| m.label == label && keeps_floors(m))
    };
    let counts = |v: &&Verdict| protects(&v.mechanism) && verdict::is_about_floors(&v.metric);
    verdicts.iter().filter(counts).cloned().collect()
}

/// The live view, with a few words before each act.
struct Stage {
    live: Live,
}

impl Screen for Stage {
    fn begin(&mut self, title: &str, scenario: &Scenario, mechanism: &Mechanism) {
        // A screen that cannot be written to is no reason to stop measuring.
        drop(outln!("\n{}", act(mechanism)));
        self.live.begin(title, scenario, mechanism);
    }

    fn show(&mut self, moment: &Moment) {
        self.live.show(moment);
    }

    fn end(&mut self) {
        self.live.end();
    }

    fn judged(&mut self, title: &str, run: &Run) {
        self.live.judged(title, run);
    }
}

fn act(mechanism: &Mechanism) -> String {
    let Some(row) = mechanism.row else {
        return "\
Act 1: no protection. TCP shares a link by connections, of which gold has one and bulk one per
VM; when bulk turns to UDP, gold gets nothing. The bar's mark is what gold was promised."
            .into();
    };
    match (row.floors)(&mechanism.preset) {
        _ if row.reserves => "\
Act 2: fixed reservations. Each pair of VMs is limited to what its floor promises. Gold
gets its floor, but the tenth of the link that nobody was promised stays empty."
            .into(),
        Floors::Everywhere => format!(
            "\
Act 3: Weir with {}. Agents on the hosts split each floor over the pairs that
are active and let them borrow what is left (its preset “{}”). Gold keeps its floor, and the link
is put to use.",
            row.title, mechanism.preset
        ),
        _ => format!("Between the acts: {} ({}).", row.title, row.about),
    }
}

/// Whether a mechanism keeps floors and lends what is left.
fn keeps_floors(mechanism: &Mechanism) -> bool {
    let keeps = |row: &Row| (row.floors)(&mechanism.preset) == Floors::Everywhere;
    mechanism.row.is_some_and(|row| keeps(row) && !row.reserves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::results::{Perf, Results};

    #[test]
    fn the_embedded_scenario_is_sound_and_has_three_acts() {
        let file = File::parse("demo", SCENARIO, &[]).expect("a sound file");
        let points = file.points().expect("floors that fit");
        assert_eq!(points.len(), 1);
        let acts: Vec<String> = points[0].mechanisms.iter().map(act).collect();
        assert_eq!(acts.len(), 3);
        for (n, act) in acts.iter().enumerate() {
            assert!(act.starts_with(&format!("Act {}: ", n + 1)), "{act}");
        }
        assert!(keeps_floors(&points[0].mechanisms[2]) && acts[2].contains("ElasticSwitch"));
        assert!(points[0].duration.as_secs_f64() * 3.0 < 70.0, "three acts fit into 90 s");
        assert!(!points[0].expect.is_empty(), "nothing expected, nothing shown");
        assert_eq!(file.check_presets(), Ok(()));
    }

    #[test]
    fn the_second_play_has_half_the_rates_and_half_the_neighbours() {
        let of = |set: &[(&str, &str)]| {
            let points = file(set).and_then(|f| Ok(f.points()?)).expect("floors that fit");
            let rates = points[0].topology.links.iter().map(|link| link.rate.as_bps());
            let bulk = points[0].vms.iter().filter(|vm| vm.name.starts_with("bulk-src"));
            (rates.min().expect("links"), bulk.count())
        };
        let ((rate, neighbours), smaller) = (of(&[]), of(&SMALLER));
        assert_eq!(smaller, (rate / 2, neighbours / 2));
        assert_eq!(smaller.1, 25, "its title says 25");
    }

    /// All three acts were played; the last got `floor` of its floors. The machine was busy in
    /// `busy` of them.
    fn ended(floor: f64, busy: &[usize]) -> Outcome {
        ended_beside(floor, busy, &[])
    }

    /// The same where a hypervisor stopped the machine in the acts of `stopped` for these shares of samples.
    fn ended_beside(floor: f64, busy: &[usize], stopped: &[(usize, Vec<f64>)]) -> Outcome {
        let points = File::parse("demo", SCENARIO, &[]).and_then(|f| f.points()).expect("sound");
        let act = |(n, mechanism): (usize, &Mechanism)| {
            let of = |group: &str| (format!("goodput_of_floor.{group}"), floor);
            let busy = busy.contains(&n);
            Run {
                world: "lab".into(),
                mechanism: mechanism.label.clone(),
                point: points[0].point.iter().cloned().collect(),
                valid: !busy,
                reasons: if busy { vec!["a CPU was under 5 % idle".into()] } else { vec![] },
                summary: [of("gold"), of("bulk")].into(),
                perf: Perf {
                    saturated: if busy { 0.4 } else { 0.0 },
                    stolen: stopped
                        .iter()
                        .find(|of| of.0 == n)
                        .map(|of| of.1.clone())
                        .unwrap_or_default(),
                    ..Perf::default()
                },
                sample_s: 0.1,
                warmup_s: 3.0,
                ..Run::default()
            }
        };
        let runs = points[0].mechanisms.iter().enumerate().map(act).collect();
        let results = Results { runs, ..Results::default() };
        judge(&points, &mut Played { results, cut: None })
    }

    #[test]
    fn the_demo_asks_a_busy_machine_for_its_floors_and_for_nothing_else() {
        assert_eq!(ended(1.0, &[]), Outcome::Held);
        assert_eq!(ended(1.0, &[0, 1, 2]), Outcome::Held, "held in spite of the load");
        assert_eq!(ended(0.5, &[2]), Outcome::Invalid, "the machine may be to blame");
        assert_eq!(ended(0.5, &[]), Outcome::Failed);
        assert_eq!(ended(0.5, &[0, 1]), Outcome::Failed, "the act that decides was not disturbed");
    }

    #[test]
    fn a_floor_that_breaks_while_a_hypervisor_stops_the_machine_is_not_judged() {
        let seconds = |count: usize, share: f64| {
            [vec![0.0; 30], vec![share; count], vec![0.0; 150 - count]].concat()
        };
        let stopped = |n: usize| [(n, seconds(20, 0.2))];
        assert_eq!(ended_beside(0.9, &[], &stopped(2)), Outcome::Invalid);
        assert_eq!(ended_beside(1.0, &[], &stopped(2)), Outcome::Held);
        assert_eq!(
            ended_beside(0.9, &[], &stopped(0)),
            Outcome::Failed,
            "not in the act that decides"
        );
        // One tick of the kernel's accounts in nearly each tenth sample.
        assert_eq!(ended_beside(0.9, &[], &[(2, seconds(14, 0.1))]), Outcome::Failed, "too little");
        let early = [vec![0.5; 30], vec![0.0; 150]].concat();
        assert_eq!(
            ended_beside(0.9, &[], &[(2, early)]),
            Outcome::Failed,
            "nothing was measured then"
        );
    }

    #[test]
    fn only_the_floors_under_elasticswitch_decide_how_the_demo_ends() {
        let points = File::parse("demo", SCENARIO, &[]).and_then(|f| f.points()).expect("sound");
        let all = verdict::judge(&points[0], &[]);
        let deciding: Vec<(String, String)> =
            deciding(&points, &all).into_iter().map(|v| (v.mechanism, v.metric)).collect();
        let floor =
            |group: &str| ("elasticswitch:steady".to_string(), format!("goodput_of_floor.{group}"));
        assert_eq!(deciding, [floor("gold"), floor("bulk")]);
        assert!(all.len() > deciding.len(), "the other acts are judged, too");
    }
}
