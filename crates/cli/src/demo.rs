//! `weir demo`: the embedded scenario in three acts, for somebody who has read nothing.

use crate::commands;
use crate::constants::Constants;
use crate::lab::Lab;
use crate::live::Live;
use anyhow::Result;
use std::ops::ControlFlow;
use std::path::Path;
use weir_model::results::{About, Run, Verdict};
use weir_model::scenario::{File, Mechanism, MechanismKind, Scenario};
use weir_study::experiment::Played;
use weir_study::experiment::Screen;
use weir_study::verdict;
use weir_study::world::{Cut, Moment};

const SCENARIO: &str = include_str!("../../../scenarios/demo.yaml");

const PROLOGUE: &str = "\
This plays a small datacenter on this machine, out of network namespaces: two racks, joined by one
link of 100 Mbit/s. Two tenants share that link, and each was promised 45 % of it. “gold” has one
TCP connection. “bulk” has fifty VMs: first with TCP, then with UDP that never slows down.";

/// Played where the machine is too slow or too busy for the file's own rates: half of them, for half
/// the packets, and half the neighbours, so that each of them has as many packets a second as before. A
/// neighbour that sends few hears of few losses, and ElasticSwitch lives on these.
const SMALLER: [(&str, &str); 2] = [("scale", "0.05"), ("senders", "25")];
const SMALLER_TITLE: &str = "A TCP connection against 25 neighbours, then against UDP blasters";

const ONCE_MORE: &str = "
This machine had no idle time left while it played that: what was measured is the machine, not the
network. Once more from the beginning, with half of everything: a link of 50 Mbit/s, and 25 VMs of
bulk's.";

/// Plays the demo; 0 if and only if the floors held under ElasticSwitch and all runs are valid. What
/// else the scenario expects is shown in the table.
///
/// # Errors
/// The machine cannot play it.
pub(crate) fn demo(out: &Path) -> Result<u8> {
    println!("{PROLOGUE}");
    let whole = file(&[])?;
    let (mut points, mut played) = play(&whole, whole.title(), Invalid::Ends)?;
    if matches!(played.cut, Some(Cut::SeenEnough)) {
        println!("{ONCE_MORE}");
        (points, played) = play(&file(&SMALLER)?, SMALLER_TITLE, Invalid::Stays)?;
    }
    println!();
    let deciding = deciding(&points, &played.results.verdicts);
    commands::conclude(played, &deciding, Some(out), false)
}

fn file(set: &[(&str, &str)]) -> Result<File> {
    let set: Vec<_> = set.iter().map(|&(key, value)| (key.into(), value.into())).collect();
    Ok(File::parse("scenarios/demo.yaml", SCENARIO, &set)?)
}

fn play(file: &File, title: &str, invalid: Invalid) -> Result<(Vec<Scenario>, Played)> {
    let points = file.points()?;
    let about = About { title: title.into(), command: "make demo".into() };
    let mut stage = Stage { live: Live::new(), invalid };
    let (lab, say) = (Lab::new(Constants::default())?, stage.live.voice());
    let played = commands::play(&points, 1, about, lab, &mut stage, say)?;
    Ok((points, played))
}

/// The verdicts on floors under ElasticSwitch.
fn deciding(points: &[Scenario], verdicts: &[Verdict]) -> Vec<Verdict> {
    let protects = |label: &str| {
        let mut mechanisms = points.iter().flat_map(|point| &point.mechanisms);
        mechanisms.any(|m| m.label == label && m.kind == MechanismKind::ElasticSwitch)
    };
    let counts = |v: &&Verdict| protects(&v.mechanism) && verdict::is_about_floors(&v.metric);
    verdicts.iter().filter(counts).cloned().collect()
}

/// What an act that is not valid does to the play.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    /// It ends: another play follows.
    Ends,
    /// It goes on, and the table says so.
    Stays,
}

/// The live view, with a few words before each act.
struct Stage {
    live: Live,
    invalid: Invalid,
}

impl Screen for Stage {
    fn begin(&mut self, title: &str, scenario: &Scenario, mechanism: &Mechanism) {
        println!("\n{}", act(mechanism.kind));
        self.live.begin(title, scenario, mechanism);
    }

    fn show(&mut self, moment: &Moment) {
        self.live.show(moment);
    }

    fn end(&mut self) {
        self.live.end();
    }

    fn judged(&mut self, title: &str, run: &Run) -> ControlFlow<()> {
        self.live.judged(title, run)?;
        if run.valid || self.invalid == Invalid::Stays {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn act(mechanism: MechanismKind) -> &'static str {
    match mechanism {
        MechanismKind::None => {
            "Act 1: no protection. TCP shares a link by connections, of which gold has one and bulk one per
VM; when bulk turns to UDP, gold gets nothing. The bar's mark is what gold was promised."
        }
        MechanismKind::Reservation => {
            "Act 2: fixed reservations. Each pair of VMs is limited to what its floor promises. Gold
gets its floor, but the tenth of the link that nobody was promised stays empty."
        }
        MechanismKind::Seawall => {
            "Between the acts: Seawall. Every sending VM has the same weight, and none has a floor."
        }
        MechanismKind::EyeQ => {
            "Between the acts: EyeQ. Receivers meter what arrives and tell senders how fast to go on."
        }
        MechanismKind::ElasticSwitch => {
            "Act 3: Weir with ElasticSwitch. Agents on the hosts split each floor over the pairs that
are active and let them borrow what is left (its preset “steady”). Gold keeps its floor, and the link
is put to use."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_scenario_is_sound_and_has_three_acts() {
        let file = File::parse("demo", SCENARIO, &[]).expect("a sound file");
        let points = file.points().expect("floors that fit");
        assert_eq!(points.len(), 1);
        let kinds: Vec<MechanismKind> = points[0].mechanisms.iter().map(|m| m.kind).collect();
        let acts = [MechanismKind::None, MechanismKind::Reservation, MechanismKind::ElasticSwitch];
        assert_eq!(kinds, acts);
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

    #[test]
    fn an_act_that_is_not_valid_ends_the_first_play_only() {
        for (valid, invalid, goes_on) in [
            (true, Invalid::Ends, true),
            (false, Invalid::Ends, false),
            (false, Invalid::Stays, true),
        ] {
            let mut stage = Stage { live: Live::new(), invalid };
            let run = Run { valid, ..Run::default() };
            assert_eq!(stage.judged("an act", &run).is_continue(), goes_on);
        }
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
