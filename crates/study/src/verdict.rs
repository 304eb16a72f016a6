//! Compares what a scenario showed with what it says it shows.
//!
//! Problem   One lucky run proves nothing, and one number out of hundreds is easily overlooked.
//! Approach  Each expectation is judged at its point on the middle of the repeats: their mean in
//!           the simulator, whose seeds are a sample, their median in the lab. One about floors is
//!           judged on every one of them. One that compares mechanisms or points holds each run
//!           against the middle of the other one; one that compares numbers does it run by run.
//! Promises  Held means that every repeat is valid and has the number. A repeat without it (a
//!           shuffle that did not end has no end) has not shown it: not held. If a repeat is not
//!           valid, nothing is judged, unless the valid ones fail.

use crate::judge::is_merely_busy;
use crate::numbers::median;
use std::collections::BTreeMap;
use weir_model::results::{Run, Verdict};
use weir_model::scenario::{Against, Expectation, Other, Scenario};

/// Which one of several numbers stands for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Middle {
    Mean,
    Median,
}

impl Middle {
    /// That of these runs' world.
    fn of(runs: &[Run]) -> Self {
        let simulated = runs.first().is_some_and(|run| run.world == "sim");
        if simulated { Self::Mean } else { Self::Median }
    }

    /// Of sorted `values`.
    fn pick(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Mean if values.is_empty() => None,
            Self::Mean => Some(values.iter().sum::<f64>() / values.len() as f64),
            Self::Median => median(values),
        }
    }
}

/// Judges the expectations of `scenario` (one point) against `runs`, those of all points.
pub fn judge(scenario: &Scenario, runs: &[Run]) -> Vec<Verdict> {
    let point: BTreeMap<String, f64> = scenario.point.iter().cloned().collect();
    let mut verdicts = Vec::new();
    for expectation in &scenario.expect {
        let asked = |label: &str| expectation.mechanism.as_deref().is_none_or(|m| m == label);
        let judged = scenario.mechanisms.iter().filter(|m| asked(&m.label));
        for mechanism in judged.map(|m| m.label.as_str()) {
            if is_comparable(scenario, expectation, mechanism) {
                let shown = shown(&point, expectation, mechanism, runs);
                verdicts.push(one(&point, mechanism, expectation, &shown, Middle::of(runs)));
            }
        }
    }
    verdicts
}

/// Judges as [`judge`] does, and holds a floor for shown in a run that is no result only because
/// something kept a CPU busy. What such a machine shows is a lower bound: it takes from what
/// arrives, and adds nothing. So a floor that was reached in spite of it is held; one that was not
/// is not judged, for either may be to blame.
pub fn judge_beside_load(scenario: &Scenario, runs: &[Run]) -> Vec<Verdict> {
    let credited: Vec<Run> = runs
        .iter()
        .map(|run| Run { valid: run.valid || is_merely_busy(run), ..run.clone() })
        .collect();
    let strict = judge(scenario, runs).into_iter();
    strict
        .zip(judge(scenario, &credited))
        .map(|(strict, credited)| {
            let is_floor = promises_a_floor(&strict.metric, strict.at_least)
                && strict.at_most.is_none()
                && strict.of.is_none()
                && strict.over.is_none()
                && strict.at.is_empty();
            match (strict.held, credited.held) {
                (None, Some(true)) if is_floor => Verdict { invalid: strict.invalid, ..credited },
                _ => strict,
            }
        })
        .collect()
}

/// No mechanism is compared with itself, or with one that is not played.
fn is_comparable(scenario: &Scenario, expectation: &Expectation, mechanism: &str) -> bool {
    match expectation.against.as_ref().map(|against| &against.other) {
        Some(Other::Mechanism(other)) => {
            other != mechanism && scenario.mechanisms.iter().any(|m| m.label == *other)
        }
        Some(Other::Metric(_)) | None => true,
    }
}

/// What the runs of one mechanism show of one expectation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    /// The number, held against what the expectation says, of each valid run that has it; sorted.
    pub(crate) values: Vec<f64>,
    /// How many valid runs have none: what it counts was not done, or never began.
    pub(crate) absent: u32,
    /// How many runs are not valid, of this and of what it is held against.
    pub(crate) invalid: u32,
}

impl Shown {
    /// What `number` is in each of `runs`.
    pub(crate) fn of<'a>(
        runs: impl IntoIterator<Item = &'a Run>,
        number: impl Fn(&Run) -> Option<f64>,
    ) -> Self {
        let mut shown = Self::default();
        for run in runs {
            match number(run) {
                _ if !run.valid => shown.invalid += 1,
                Some(value) => shown.values.push(value),
                None => shown.absent += 1,
            }
        }
        shown.values.sort_by(f64::total_cmp);
        shown
    }

    /// The number in the middle, if every valid run has one.
    fn whole(&self, middle: Middle) -> Option<f64> {
        if self.absent == 0 { middle.pick(&self.values) } else { None }
    }

    /// Each number by the middle of `other`; no number where that has none.
    pub(crate) fn by(mut self, other: &Self, middle: Middle) -> Self {
        self.invalid += other.invalid;
        match other.whole(middle).filter(|whole| *whole > 0.0) {
            Some(whole) => self.values.iter_mut().for_each(|value| *value /= whole),
            None => (self.values, self.absent) = (Vec::new(), 0),
        }
        self
    }
}

/// What the runs of `mechanism` at `point` show, held against what the expectation says. No number
/// if they are held against another mechanism or point that does not show it whole.
fn shown(
    point: &BTreeMap<String, f64>,
    expectation: &Expectation,
    mechanism: &str,
    runs: &[Run],
) -> Shown {
    let middle = Middle::of(runs);
    let at = |point: &BTreeMap<String, f64>| {
        let here: Vec<&Run> = runs.iter().filter(|r| r.point == *point).collect();
        at_point(expectation, mechanism, &here, middle)
    };
    match &expectation.at {
        Some(there) => at(point).by(&at(&there.iter().cloned().collect()), middle),
        None => at(point),
    }
}

/// What the runs of `mechanism` show at one point. `runs` are those of that point.
fn at_point(expectation: &Expectation, mechanism: &str, runs: &[&Run], middle: Middle) -> Shown {
    let of = |label: &str, number: &dyn Fn(&Run) -> Option<f64>| {
        Shown::of(runs.iter().copied().filter(|run| run.mechanism == label), number)
    };
    let number = |run: &Run, metric: &str| run.summary.get(metric).copied();
    let own = |run: &Run| number(run, &expectation.metric);
    let Some(Against { difference, other }) = &expectation.against else {
        return of(mechanism, &own);
    };
    let others = match other {
        Other::Mechanism(label) => of(label, &own),
        Other::Metric(_) => Shown::default(),
    };
    let whole = others.whole(middle);
    let held = |run: &Run| {
        let other = match other {
            Other::Mechanism(_) => whole?,
            Other::Metric(metric) => number(run, metric)?,
        };
        match difference {
            true => Some(own(run)? - other),
            false => (other > 0.0).then_some(own(run)? / other),
        }
    };
    let mut shown = of(mechanism, &held);
    shown.invalid += others.invalid;
    if matches!(other, Other::Mechanism(_)) && whole.is_none() {
        // Nothing to compare with is not the fault of these runs.
        shown.absent = 0;
    }
    shown
}

/// What each valid run shows of what a verdict is about.
pub(crate) fn values_of(verdict: &Verdict, runs: &[Run]) -> Vec<f64> {
    let other = |name: &String| match runs.iter().any(|run| run.mechanism == *name) {
        true => Other::Mechanism(name.clone()),
        false => Other::Metric(name.clone()),
    };
    let against = |difference: bool, name: &String| Against { difference, other: other(name) };
    let of = verdict.of.as_ref().map(|name| against(false, name));
    let expectation = Expectation {
        mechanism: Some(verdict.mechanism.clone()),
        metric: verdict.metric.clone(),
        against: of.or_else(|| verdict.over.as_ref().map(|name| against(true, name))),
        at: (!verdict.at.is_empty()).then(|| verdict.at.clone().into_iter().collect()),
        at_least: verdict.at_least,
        at_most: verdict.at_most,
        says: verdict.says.clone(),
    };
    shown(&verdict.point, &expectation, &verdict.mechanism, runs).values
}

fn one(
    point: &BTreeMap<String, f64>,
    mechanism: &str,
    expectation: &Expectation,
    shown: &Shown,
    middle: Middle,
) -> Verdict {
    let other = |difference: bool| match expectation.against.as_ref()? {
        against if against.difference != difference => None,
        Against { other: Other::Mechanism(name) | Other::Metric(name), .. } => Some(name.clone()),
    };
    let verdict = Verdict {
        point: point.clone(),
        mechanism: mechanism.into(),
        metric: expectation.metric.clone(),
        says: expectation.says.clone(),
        of: other(false),
        over: other(true),
        at: expectation.at.iter().flatten().cloned().collect(),
        at_least: expectation.at_least,
        at_most: expectation.at_most,
        ..Verdict::default()
    };
    settled(verdict, shown, middle)
}

/// `verdict`, whose metric and bounds are set, with what `shown` says of it.
pub(crate) fn settled(verdict: Verdict, shown: &Shown, middle: Middle) -> Verdict {
    let Shown { values, absent, invalid } = shown;
    let (least, most) = (verdict.at_least, verdict.at_most);
    let within = |v: f64| least.is_none_or(|l| v >= l) && most.is_none_or(|m| v <= m);
    let got = middle.pick(values);
    let every = promises_a_floor(&verdict.metric, least);
    let all = *absent == 0 && (!every || values.iter().copied().all(within));
    let held = match got {
        Some(middle) => Some(within(middle) && all),
        None => (*absent > 0).then_some(false),
    };
    Verdict {
        got,
        worst: worst(values, least, most),
        absent: *absent,
        invalid: *invalid,
        held: held.filter(|held| *invalid == 0 || !held),
        ..verdict
    }
}

/// Of sorted `values` the one that fits the bounds least; with two of them, the one farthest from
/// their middle.
fn worst(values: &[f64], least: Option<f64>, most: Option<f64>) -> Option<f64> {
    let (lowest, highest) = (*values.first()?, *values.last()?);
    Some(match (least, most) {
        (Some(least), Some(most)) if highest + lowest > least + most => highest,
        (Some(_), _) => lowest,
        (None, _) => highest,
    })
}

/// Numbers that say whether a floor held.
pub fn is_about_floors(metric: &str) -> bool {
    ["worst_", "goodput_of_floor", "window_", "receiver_floor", "tenant_floor"]
        .iter()
        .any(|prefix| metric.starts_with(prefix))
}

/// Whether every repeat must lie within the bounds: a floor holds each time or not at all. A lower
/// bound above 1 asks for more than the floor, which no floor promises.
fn promises_a_floor(metric: &str, at_least: Option<f64>) -> bool {
    is_about_floors(metric) && at_least.is_some_and(|least| least <= 1.0)
}

/// What the process says to its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All expectations held and all runs are valid.
    Held,
    /// An expectation failed.
    Failed,
    /// Runs are invalid, so that something could not be judged.
    Invalid,
}

impl Outcome {
    /// Of a whole experiment.
    pub fn of(runs: &[Run], verdicts: &[Verdict]) -> Self {
        let unjudged = verdicts.iter().any(|v| v.held.is_none());
        match () {
            () if verdicts.iter().any(|v| v.held == Some(false)) => Self::Failed,
            () if runs.iter().any(|r| !r.valid) => Self::Invalid,
            // Nothing to judge by, or to compare with, although all runs are valid.
            () if unjudged || runs.is_empty() => Self::Failed,
            () => Self::Held,
        }
    }

    /// Exit status.
    pub fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Failed => 1,
            Self::Invalid => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation(metric: &str, at_least: Option<f64>, at_most: Option<f64>) -> Expectation {
        let says = "a promise".into();
        Expectation {
            mechanism: None,
            metric: metric.into(),
            against: None,
            at: None,
            at_least,
            at_most,
            says,
        }
    }

    fn verdict(metric: &str, at_least: Option<f64>, at_most: Option<f64>, got: &[f64]) -> Verdict {
        let mut values = got.to_vec();
        values.sort_by(f64::total_cmp);
        let shown = Shown { values, ..Shown::default() };
        let expectation = expectation(metric, at_least, at_most);
        one(&BTreeMap::new(), "none", &expectation, &shown, Middle::Median)
    }

    /// A run at the point of the scenario that the tests judge.
    fn run(mechanism: &str, summary: &[(&str, Option<f64>)], valid: bool) -> Run {
        let summary = summary.iter().filter_map(|(name, value)| Some(((*name).into(), (*value)?)));
        Run {
            mechanism: mechanism.into(),
            valid,
            point: BTreeMap::from([("n".into(), 1.0)]),
            summary: summary.collect(),
            ..Run::default()
        }
    }

    #[test]
    fn an_expectation_is_judged_on_the_median() {
        let v = verdict("optimum_ratio", Some(0.9), None, &[0.95, 0.5, 0.92]);
        assert_eq!((v.got, v.worst, v.held), (Some(0.92), Some(0.5), Some(true)));
        let v = verdict("optimum_ratio", Some(0.9), None, &[0.95, 0.5, 0.6]);
        assert_eq!(v.held, Some(false));
    }

    #[test]
    fn one_bad_repeat_breaks_a_promise_about_floors() {
        let v = verdict("worst_floor_ratio", Some(0.95), None, &[0.99, 0.94, 0.98]);
        assert_eq!((v.got, v.held), (Some(0.98), Some(false)));
    }

    #[test]
    fn with_two_bounds_every_repeat_lies_between_them() {
        let reserved = |got| verdict("goodput_of_floor.X", Some(0.97), Some(1.03), got);
        let v = reserved(&[1.00, 1.20, 0.98]);
        assert_eq!((v.got, v.worst, v.held), (Some(1.00), Some(1.20), Some(false)));
        let v = reserved(&[1.00, 1.02, 0.90]);
        assert_eq!((v.worst, v.held), (Some(0.90), Some(false)));
        assert_eq!(reserved(&[1.00, 1.03, 0.97]).held, Some(true));
    }

    #[test]
    fn a_mechanism_can_be_compared_with_another() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.expect = vec![Expectation {
            against: Some(Against { difference: false, other: Other::Mechanism("none".into()) }),
            ..expectation("jain", Some(1.0), None)
        }];
        let run = |mechanism: &str, jain, valid| run(mechanism, &[("jain", jain)], valid);
        let mut runs = vec![
            run("none", Some(0.4), true),
            run("none", Some(0.5), true),
            run("none", Some(0.9), true),
            run("elasticswitch", Some(0.6), true),
        ];
        let verdicts = judge(&scenario, &runs);
        assert_eq!(verdicts.len(), 1, "none is not compared with itself");
        let v = &verdicts[0];
        assert_eq!((v.mechanism.as_str(), v.of.as_deref()), ("elasticswitch", Some("none")));
        assert!((v.got.expect("judged") - 1.2).abs() < 1e-9 && v.held == Some(true), "{v:?}");
        runs[3] = run("elasticswitch", Some(0.45), true);
        assert_eq!(judge(&scenario, &runs)[0].held, Some(false));
        // Without anything to compare with, nothing is held.
        assert_eq!(judge(&scenario, &runs[3..])[0].held, None);
        // Nor with a run to compare with that is not valid.
        runs[3] = run("elasticswitch", Some(0.6), true);
        runs.push(run("none", Some(0.5), false));
        let v = &judge(&scenario, &runs)[0];
        assert_eq!((v.invalid, v.held), (1, None));
        scenario.mechanisms.remove(0);
        assert!(judge(&scenario, &runs).is_empty(), "nobody asked for the other one");
    }

    #[test]
    fn the_values_behind_a_verdict_are_those_of_its_point_and_mechanism() {
        let run = |mechanism: &str, n: f64, jain: f64| Run {
            mechanism: mechanism.into(),
            valid: true,
            point: BTreeMap::from([("n".into(), n)]),
            summary: BTreeMap::from([("jain".into(), jain)]),
            ..Run::default()
        };
        let runs = [run("none", 1.0, 0.5), run("seawall", 1.0, 0.8), run("seawall", 2.0, 0.1)];
        let mut verdict = Verdict {
            point: BTreeMap::from([("n".into(), 1.0)]),
            mechanism: "seawall".into(),
            metric: "jain".into(),
            ..Verdict::default()
        };
        assert_eq!(values_of(&verdict, &runs), [0.8]);
        verdict.of = Some("none".into());
        assert_eq!(values_of(&verdict, &runs), [1.6]);
        verdict.of = None;
        verdict.at = BTreeMap::from([("n".into(), 2.0)]);
        assert_eq!(values_of(&verdict, &runs), [8.0]);
    }

    #[test]
    fn numbers_of_one_run_can_be_compared_and_so_can_differences() {
        let mut scenario = crate::testing::dumbbell(1);
        let against = |difference, other| Some(Against { difference, other });
        scenario.expect = vec![
            Expectation {
                against: against(false, Other::Metric("goodput.a".into())),
                ..expectation("goodput.b", Some(1.9), Some(3.0))
            },
            Expectation {
                against: against(true, Other::Mechanism("none".into())),
                ..expectation("goodput.b", None, Some(0.5))
            },
        ];
        let run = |mechanism: &str, a: f64, b: f64| {
            run(mechanism, &[("goodput.a", Some(a)), ("goodput.b", Some(b))], true)
        };
        let runs = [run("none", 2.0, 5.0), run("elasticswitch", 2.0, 5.25)];
        let verdicts = judge(&scenario, &runs);
        let told: Vec<_> = verdicts
            .iter()
            .map(|v| (v.mechanism.as_str(), v.of.as_deref(), v.over.as_deref(), v.got))
            .collect();
        assert_eq!(
            told,
            [
                ("none", Some("goodput.a"), None, Some(2.5)),
                ("elasticswitch", Some("goodput.a"), None, Some(2.625)),
                ("elasticswitch", None, Some("none"), Some(0.25)),
            ]
        );
        assert!(verdicts.iter().all(|v| v.held == Some(true)), "{verdicts:?}");
    }

    #[test]
    fn a_repeat_without_the_number_has_not_shown_it() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.mechanisms.remove(0);
        scenario.expect = vec![expectation("shuffle_s.t1", None, Some(12.0))];
        let run = |seconds, valid| run("elasticswitch", &[("shuffle_s.t1", seconds)], valid);
        let judged = |runs: &[Run]| {
            let v = judge(&scenario, runs).remove(0);
            (v.got, v.absent, v.held)
        };
        let ended = run(Some(10.0), true);
        let whole = [ended.clone(), ended.clone(), ended.clone()];
        assert_eq!(judged(&whole), (Some(10.0), 0, Some(true)));
        // One of three ended within the bound; when the others would have is not known.
        let one = [ended.clone(), run(None, true), run(None, true)];
        assert_eq!(judged(&one), (Some(10.0), 2, Some(false)));
        let two = [ended.clone(), run(None, true), ended.clone()];
        assert_eq!(judged(&two), (Some(10.0), 1, Some(false)));
        assert_eq!(judged(&[run(None, true)]), (None, 1, Some(false)));
        assert_eq!(judged(&[run(None, false)]), (None, 0, None));
    }

    #[test]
    fn one_valid_repeat_of_three_is_not_held() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.mechanisms.remove(0);
        scenario.expect = vec![expectation("jain", Some(0.9), None)];
        let run = |jain, valid| run("elasticswitch", &[("jain", Some(jain))], valid);
        let judged = |runs: &[Run]| {
            let v = judge(&scenario, runs).remove(0);
            (v.got, v.invalid, v.held)
        };
        let (good, lost) = (run(1.0, true), run(0.2, false));
        assert_eq!(judged(&[good.clone(), lost.clone(), lost.clone()]), (Some(1.0), 2, None));
        // What a valid repeat breaks is broken, whatever the others are.
        assert_eq!(judged(&[run(0.5, true), lost.clone()]), (Some(0.5), 1, Some(false)));
        assert_eq!(judged(&[good.clone(), good]), (Some(1.0), 0, Some(true)));
    }

    #[test]
    fn seeds_are_judged_by_their_mean_and_plays_by_their_median() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.mechanisms.remove(0);
        scenario.expect = vec![expectation("jain", Some(0.9), None)];
        let judged = |world: &str| {
            let of =
                |jain| Run { world: world.into(), ..run("elasticswitch", &[("jain", jain)], true) };
            let v = judge(&scenario, &[0.4, 0.95, 1.0].map(Some).map(of)).remove(0);
            (v.got.map(|got| (got * 1e3).round()), v.held)
        };
        assert_eq!(judged("sim"), (Some(783.0), Some(false)));
        assert_eq!(judged("lab"), (Some(950.0), Some(true)));
    }

    #[test]
    fn more_than_a_floor_is_promised_by_no_floor() {
        let v = verdict("goodput_of_floor.a", Some(3.78), Some(5.66), &[3.0, 4.5, 6.0]);
        assert_eq!((v.got, v.held), (Some(4.5), Some(true)));
    }

    #[test]
    fn a_mechanism_that_did_not_finish_is_nothing_to_compare_with() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.expect = vec![Expectation {
            against: Some(Against { difference: false, other: Other::Mechanism("none".into()) }),
            ..expectation("shuffle_s.t1", None, Some(1.05))
        }];
        let run = |mechanism: &str, seconds| run(mechanism, &[("shuffle_s.t1", seconds)], true);
        let own = run("elasticswitch", Some(10.0));
        let held = |runs: &[Run]| judge(&scenario, runs)[0].held;
        assert_eq!(held(&[run("none", Some(20.0)), own.clone()]), Some(true));
        assert_eq!(held(&[run("none", Some(20.0)), run("none", None), own]), None);
    }

    #[test]
    fn a_point_can_be_compared_with_another() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.mechanisms.remove(0);
        let at = Some(vec![("n".to_string(), 0.0)]);
        scenario.expect = vec![
            Expectation { at: at.clone(), ..expectation("goodput.x", Some(0.95), None) },
            Expectation {
                at,
                against: Some(Against {
                    difference: false,
                    other: Other::Metric("goodput.a".into()),
                }),
                ..expectation("goodput.x", None, Some(1.0))
            },
        ];
        let run = |n: f64, x: Option<f64>, a: f64| Run {
            point: BTreeMap::from([("n".into(), n)]),
            ..run("elasticswitch", &[("goodput.x", x), ("goodput.a", Some(a))], true)
        };
        // Alone (n = 0) it gets 100, of which 96 and 94 of a hundred remain; 2 times and 1.9 times
        // A.
        let alone =
            [run(0.0, Some(99.0), 50.0), run(0.0, Some(100.0), 50.0), run(0.0, Some(110.0), 50.0)];
        let judged = |here: &[Run]| -> Vec<(Option<f64>, Option<bool>)> {
            let runs = [&alone[..], here].concat();
            let rounded = |got: f64| (got * 1e3).round() / 1e3;
            judge(&scenario, &runs).iter().map(|v| (v.got.map(rounded), v.held)).collect()
        };
        assert_eq!(
            judged(&[run(1.0, Some(96.0), 48.0)]),
            [(Some(0.96), Some(true)), (Some(1.0), Some(true))]
        );
        assert_eq!(
            judged(&[run(1.0, Some(94.0), 40.0)]),
            [(Some(0.94), Some(false)), (Some(1.175), Some(false))]
        );
        assert_eq!(judged(&[run(1.0, None, 40.0)]), [(None, Some(false)); 2]);
        assert_eq!(judge(&scenario, &alone)[0].held, None, "this point was not played");
        assert_eq!(judge(&scenario, &[run(1.0, Some(96.0), 48.0)])[0].held, None, "nor was that");
        let v = &judge(&scenario, &alone)[0];
        assert_eq!(v.at, BTreeMap::from([("n".into(), 0.0)]));
    }

    #[test]
    fn an_upper_bound_is_missed_above_it() {
        assert_eq!(verdict("goodput_of_link.X", None, Some(0.1), &[0.11]).held, Some(false));
        assert_eq!(verdict("goodput_of_link.X", None, Some(0.1), &[0.1]).held, Some(true));
    }

    #[test]
    fn what_no_valid_run_shows_is_not_held() {
        let v = verdict("jain", Some(0.9), None, &[]);
        assert_eq!(v.held, None);
        let valid = Run { valid: true, ..Run::default() };
        assert_eq!(Outcome::of(std::slice::from_ref(&valid), &[v]), Outcome::Failed);
        assert_eq!(Outcome::of(&[], &[]), Outcome::Failed);
        assert_eq!(Outcome::of(&[valid], &[]), Outcome::Held);
    }

    #[test]
    fn an_invalid_run_is_told_apart_from_a_broken_promise() {
        let runs = [Run { valid: false, ..Run::default() }];
        assert_eq!(Outcome::of(&runs, &[]).code(), 3);
        let failed = verdict("jain", Some(0.9), None, &[0.1]);
        assert_eq!(Outcome::of(&runs, &[failed]).code(), 1);
    }

    #[test]
    fn a_busy_machine_shows_that_a_floor_held_and_never_that_it_did_not() {
        let mut scenario = crate::testing::dumbbell(1);
        scenario.expect = vec![
            expectation("goodput_of_floor.X", Some(0.95), None),
            expectation("goodput_of_floor.X", Some(0.95), Some(1.05)),
            expectation("jain", Some(0.9), None),
        ];
        scenario.mechanisms.truncate(1);
        let held = |ratio: f64, reasons: &[&str], saturated: f64| {
            let summary = [("goodput_of_floor.X", ratio), ("jain", 1.0)];
            let run = Run {
                mechanism: scenario.mechanisms[0].label.clone(),
                point: scenario.point.iter().cloned().collect(),
                valid: reasons.is_empty(),
                reasons: reasons.iter().map(|&reason| reason.into()).collect(),
                summary: summary.map(|(name, value)| (name.into(), value)).into(),
                perf: weir_model::results::Perf { saturated, ..Default::default() },
                ..Run::default()
            };
            judge_beside_load(&scenario, &[run]).iter().map(|v| v.held).collect::<Vec<_>>()
        };
        assert_eq!(held(1.0, &[], 0.0), [Some(true); 3]);
        assert_eq!(held(1.0, &["busy"], 0.3), [Some(true), None, None], "the floor alone");
        assert_eq!(held(0.5, &["busy"], 0.3)[0], None, "the machine may be to blame");
        assert_eq!(held(0.5, &[], 0.05)[0], Some(false));
        assert_eq!(held(1.0, &["busy", "no congestion"], 0.3)[0], None, "it proves nothing");
        assert_eq!(held(1.0, &["it ended early"], 0.05)[0], None);
    }
}
