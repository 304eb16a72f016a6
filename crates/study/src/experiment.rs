//! All runs of a scenario file: every point, every mechanism, every repeat; judged.

use crate::aggregate::{differing, point_text};
use crate::judge;
use crate::verdict;
use crate::world::{Cut, Moment, World};
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::record::Failure;
use weir_model::results::{About, Results, Run};
use weir_model::scenario::{Mechanism, Scenario};

/// Something that shows a run while it is played.
pub trait Screen {
    /// A run starts.
    fn begin(&mut self, title: &str, scenario: &Scenario, mechanism: &Mechanism);
    /// It goes on.
    fn show(&mut self, moment: &Moment);
    /// It is over, and the terminal free again.
    fn end(&mut self);
    /// What became of it.
    fn judged(&mut self, title: &str, run: &Run);
}

/// What was played, and what cut it short, if anything: hours of runs are not lost with the last
/// one.
pub struct Played {
    /// Of all runs that came to their end, and of one that failed while it was measured.
    pub results: Results,
    /// The world failed, or the user asked to stop.
    pub cut: Option<Cut>,
}

/// Plays `points` (the resolved points of one file), each mechanism `repeats` times, and judges.
pub fn play(
    world: &mut dyn World,
    points: &[Scenario],
    repeats: u32,
    about: About,
    screen: &mut dyn Screen,
    stop: &AtomicBool,
) -> Played {
    let mut results = Results { about, ..Results::default() };
    let all: Vec<BTreeMap<_, _>> =
        points.iter().map(|s| s.point.iter().cloned().collect()).collect();
    let swept = differing(&all.iter().collect::<Vec<_>>());
    let mut cut = None;
    for scenario in points {
        let mut here: Vec<Run> = Vec::new();
        'point: for repeat in 0..repeats.max(1) {
            let first = here.len();
            for mechanism in &scenario.mechanisms {
                let title = title(scenario, mechanism, repeat, &swept);
                screen.begin(&title, scenario, mechanism);
                let run = once(world, scenario, mechanism, repeat, screen, stop);
                screen.end();
                match run {
                    Ok((run, failure)) => {
                        screen.judged(&title, &run);
                        here.push(run);
                        cut = failure.map(Cut::Broke);
                    }
                    Err(why) => cut = Some(why),
                }
                if cut.is_some() {
                    judge::without_congestion(scenario, &mut here[first..]);
                    if unproven(scenario, &here[first..]) {
                        // What is invalid anyway needs no proof, and says why nothing follows it.
                        let new = here.split_off(first);
                        here.extend(new.into_iter().filter(|run| !run.valid));
                    }
                    break 'point;
                }
            }
            judge::without_congestion(scenario, &mut here[first..]);
        }
        results.runs.extend(here);
        if cut.is_some() {
            break;
        }
    }
    // Last, because a point may be held against any other.
    for (scenario, point) in points.iter().zip(&all) {
        if results.runs.iter().any(|run| run.point == *point) {
            results.verdicts.extend(verdict::judge(scenario, &results.runs));
        }
    }
    Played { results, cut }
}

/// Whether the run that would show that the network was congested is still missing.
fn unproven(scenario: &Scenario, runs: &[Run]) -> bool {
    let mut shows = scenario.mechanisms.iter().filter(|m| m.is_none()).peekable();
    !scenario.congested.is_empty()
        && shows.peek().is_some()
        && !shows.any(|m| runs.iter().any(|run| run.mechanism == m.label))
}

fn once(
    world: &mut dyn World,
    scenario: &Scenario,
    mechanism: &Mechanism,
    repeat: u32,
    screen: &mut dyn Screen,
    stop: &AtomicBool,
) -> Result<(Run, Option<Failure>), Cut> {
    if stop.load(Ordering::Relaxed) {
        return Err(Cut::Stopped);
    }
    let observed = world.play(scenario, mechanism, &mut |moment| screen.show(moment), stop)?;
    let run = judge::judge(scenario, mechanism, repeat, &observed)
        .map_err(|error| Cut::Failed(anyhow!(error)))?;
    Ok((run, observed.failure))
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
    use crate::testing::{dumbbell, steady};
    use crate::verdict::Outcome;
    use weir_model::scenario::Expectation;

    /// Shows nothing.
    struct Silent;

    impl Screen for Silent {
        fn begin(&mut self, _: &str, _: &Scenario, _: &Mechanism) {}
        fn show(&mut self, _: &Moment) {}
        fn end(&mut self) {}
        fn judged(&mut self, _: &str, _: &Run) {}
    }

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
            let rates = if mechanism.is_none() { [20.0, 180.0] } else { [100.0, 100.0] };
            let mut observed = steady(scenario, &rates);
            observed.links[2].drops.fill(self.drops);
            Ok(observed)
        }
    }

    fn scenario() -> Scenario {
        let mut scenario = dumbbell(1);
        scenario.expect = vec![Expectation {
            mechanism: Some("elasticswitch".into()),
            metric: "worst_floor_ratio".into(),
            against: None,
            at: None,
            at_least: Some(0.95),
            at_most: None,
            says: "floors hold".into(),
        }];
        scenario
    }

    fn outcome(scenario: &Scenario, drops: u64) -> Outcome {
        let points = [scenario.clone()];
        let (about, stop) = (About::default(), AtomicBool::new(false));
        let played = play(&mut Paper { drops }, &points, 3, about, &mut Silent, &stop);
        assert!(played.cut.is_none(), "paper never fails");
        let results = played.results;
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
        let played = play(&mut Paper { drops: 1 }, &[scenario()], 1, about, &mut Silent, &stop);
        assert!(matches!(played.cut, Some(Cut::Stopped)));
        assert!(played.results.runs.is_empty());
    }

    /// A paper that tears after some runs.
    struct Torn {
        whole: u32,
    }

    impl World for Torn {
        fn play(
            &mut self,
            scenario: &Scenario,
            mechanism: &Mechanism,
            watch: &mut dyn FnMut(&Moment),
            stop: &AtomicBool,
        ) -> Result<Observed, Cut> {
            if self.whole == 0 {
                return Err(Cut::Failed(anyhow!("an agent did not answer")));
            }
            self.whole -= 1;
            Paper { drops: 1 }.play(scenario, mechanism, watch, stop)
        }
    }

    #[test]
    fn runs_that_came_to_their_end_outlive_a_world_that_fails() {
        let mut second = scenario();
        second.point[0].1 = 2.0;
        let points = [scenario(), second];
        let (about, stop) = (About::default(), AtomicBool::new(false));
        let played = play(&mut Torn { whole: 3 }, &points, 1, about, &mut Silent, &stop);
        assert!(matches!(played.cut, Some(Cut::Failed(_))));
        assert_eq!(played.results.runs.len(), 3, "both runs of the first point, one of the second");
        let judged: Vec<f64> = played.results.verdicts.iter().map(|v| v.point["n"]).collect();
        assert_eq!(judged, [1.0, 2.0], "each point by its own runs");
        assert_eq!(played.results.verdicts[1].held, None, "its second run was not played");
    }

    /// An agent dies in the run after the first ones.
    struct Mortal {
        whole: u32,
    }

    impl World for Mortal {
        fn play(
            &mut self,
            scenario: &Scenario,
            mechanism: &Mechanism,
            watch: &mut dyn FnMut(&Moment),
            stop: &AtomicBool,
        ) -> Result<Observed, Cut> {
            let mut observed = Paper { drops: 1 }.play(scenario, mechanism, watch, stop)?;
            if self.whole == 0 {
                let last = observed.flows[0].octets.len() - 3;
                observed.flows.iter_mut().for_each(|flow| flow.octets.truncate(last));
                observed.failure = Some(Failure {
                    at: scenario.duration,
                    why: "the agent of left-0 ended (signal: 9)".into(),
                    log: "out of memory".into(),
                });
            }
            self.whole = self.whole.saturating_sub(1);
            Ok(observed)
        }
    }

    #[test]
    fn what_a_run_measured_until_it_failed_is_kept_as_invalid_with_the_reason_and_the_time() {
        // With two, the run without protection was played before; with none, it is what fails.
        for (whole, runs) in [(3, 4), (0, 1)] {
            let points = [scenario()];
            let (about, stop) = (About::default(), AtomicBool::new(false));
            let mut world = Mortal { whole };
            let played = play(&mut world, &points, 3, about, &mut Silent, &stop);
            let Some(Cut::Broke(failure)) = played.cut else { panic!("{:?}", played.cut) };
            assert_eq!(failure.log, "out of memory");
            assert_eq!(played.results.runs.len(), runs);
            let last = played.results.runs.last().expect("some");
            assert!(!last.valid && last.groups[0].goodput_bps > 0.0);
            let why = &last.reasons[0];
            assert!(why.contains("s after traffic began: the agent of left-0 ended"), "{why}");
            assert_eq!(played.results.verdicts[0].held, None, "an invalid run decides nothing");
        }
    }

    #[test]
    fn a_run_that_failed_is_kept_also_where_no_run_shows_congestion() {
        let mut late = scenario();
        late.mechanisms.reverse();
        let (about, stop) = (About::default(), AtomicBool::new(false));
        let played = play(&mut Mortal { whole: 0 }, &[late], 1, about, &mut Silent, &stop);
        assert_eq!(played.results.runs.len(), 1);
    }

    #[test]
    fn runs_whose_congestion_nothing_shows_yet_are_not_kept() {
        let mut late = scenario();
        late.mechanisms.reverse();
        let (about, stop) = (About::default(), AtomicBool::new(false));
        let played = play(&mut Torn { whole: 1 }, &[late], 1, about, &mut Silent, &stop);
        assert!(played.results.runs.is_empty(), "the run without protection was not played");
    }
}
