//! All runs of a scenario file: every point, every mechanism, every repeat; judged.

use crate::aggregate::{differing, point_text};
use crate::judge;
use crate::live::Screen;
use crate::verdict;
use crate::world::{Cut, World};
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::results::{About, Results, Run};
use weir_model::scenario::{Mechanism, Scenario};

/// Plays `points` (the resolved points of one file), each mechanism `repeats` times, and judges.
///
/// # Errors
/// The world failed, or `stop` was set.
pub(crate) fn play(
    world: &mut dyn World,
    points: &[Scenario],
    repeats: u32,
    about: About,
    screen: &mut dyn Screen,
    stop: &AtomicBool,
) -> Result<Results, Cut> {
    let mut results = Results { about, ..Results::default() };
    let all: Vec<BTreeMap<_, _>> =
        points.iter().map(|s| s.point.iter().cloned().collect()).collect();
    let swept = differing(&all.iter().collect::<Vec<_>>());
    for scenario in points {
        let mut here: Vec<Run> = Vec::new();
        for repeat in 0..repeats.max(1) {
            let first = here.len();
            for mechanism in &scenario.mechanisms {
                let title = title(scenario, mechanism, repeat, &swept);
                screen.begin(&title, scenario, mechanism);
                let run = once(world, scenario, mechanism, repeat, screen, stop);
                screen.end();
                let run = run?;
                screen.judged(&title, &run);
                here.push(run);
            }
            judge::without_congestion(scenario, &mut here[first..]);
        }
        results.verdicts.extend(verdict::judge(scenario, &here));
        results.runs.extend(here);
    }
    Ok(results)
}

fn once(
    world: &mut dyn World,
    scenario: &Scenario,
    mechanism: &Mechanism,
    repeat: u32,
    screen: &mut dyn Screen,
    stop: &AtomicBool,
) -> Result<Run, Cut> {
    if stop.load(Ordering::Relaxed) {
        return Err(Cut::Stopped);
    }
    let observed = world.play(scenario, mechanism, &mut |moment| screen.show(moment), stop)?;
    judge::judge(scenario, mechanism, repeat, &observed)
        .map_err(|error| Cut::Failed(anyhow!(error)))
}

/// `elasticswitch [senders = 10], repeat 2`.
fn title(scenario: &Scenario, mechanism: &Mechanism, repeat: u32, swept: &[String]) -> String {
    let at = point_text(&scenario.point.iter().cloned().collect(), swept);
    let at = if at.is_empty() { at } else { format!(" [{at}]") };
    let again = if repeat > 0 { format!(", repeat {}", repeat + 1) } else { String::new() };
    format!("{}{at}{again}", mechanism.label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Observed;
    use crate::judge::testing::{dumbbell, steady};
    use crate::live::Silent;
    use crate::verdict::Outcome;
    use crate::world::Moment;
    use weir_model::scenario::{Expectation, MechanismKind};

    /// Without protection X starves; with it everything is ideal.
    struct Paper {
        drops: u64,
    }

    impl World for Paper {
        fn play(
            &mut self,
            scenario: &Scenario,
            mechanism: &Mechanism,
            watch: &mut dyn FnMut(&Moment),
            stop: &AtomicBool,
        ) -> Result<Observed, Cut> {
            watch(&Moment::default());
            if stop.load(Ordering::Relaxed) {
                return Err(Cut::Stopped);
            }
            let mut observed = match mechanism.kind {
                MechanismKind::None => steady(scenario, &[20.0, 180.0]),
                _ => steady(scenario, &[100.0, 100.0]),
            };
            observed.links[2].drops.fill(self.drops);
            Ok(observed)
        }
    }

    fn scenario() -> Scenario {
        let mut scenario = dumbbell(1);
        scenario.expect = vec![Expectation {
            mechanism: Some("elasticswitch".into()),
            metric: "worst_floor_ratio".into(),
            at_least: Some(0.95),
            at_most: None,
            says: "floors hold".into(),
        }];
        scenario
    }

    fn outcome(scenario: &Scenario, drops: u64) -> Outcome {
        let points = [scenario.clone()];
        let (about, stop) = (About::default(), AtomicBool::new(false));
        let results = play(&mut Paper { drops }, &points, 3, about, &mut Silent, &stop);
        let results = results.expect("paper never fails");
        assert_eq!(results.runs.len(), 6);
        Outcome::of(&results.runs, &results.verdicts)
    }

    #[test]
    fn the_outcome_is_that_of_the_expectations() {
        assert_eq!(outcome(&scenario(), 1), Outcome::Held);
        let mut demanding = scenario();
        demanding.expect[0].mechanism = None;
        assert_eq!(outcome(&demanding, 1), Outcome::Failed);
    }

    #[test]
    fn a_network_without_congestion_proves_nothing() {
        assert_eq!(outcome(&scenario(), 0), Outcome::Invalid);
    }

    #[test]
    fn a_wish_to_stop_ends_the_experiment() {
        let (about, stop) = (About::default(), AtomicBool::new(true));
        let cut = play(&mut Paper { drops: 1 }, &[scenario()], 1, about, &mut Silent, &stop);
        assert!(matches!(cut, Err(Cut::Stopped)));
    }
}
