//! Criteria and endings of figures that were played by hand.

use super::figure::Figure;
use super::judge::{Criterion, Ending, code, criteria};
use super::kept::{Kept, KeptPart, Shown};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_model::results::{Results, Run, Verdict};

const FIGURE: &str = "\
apiVersion: weir/v1alpha1
kind: Figure
metadata: {id: T-1, title: A title, paper: Test Fig 1}
spec:
  says: much
  criterion: more
  play:
    - {name: a, label: part A, scenario: a.yaml}
    - {name: b, label: part B, scenario: b.yaml}
  expect:
    - {says: b is twice a, part: b, mechanism: none, metric: jain, of: {part: a}, at_least: 2}
";

fn run(n: f64, repeat: u32, jain: f64) -> Run {
    Run {
        world: "sim".into(),
        mechanism: "none".into(),
        valid: true,
        repeat,
        point: BTreeMap::from([("n".into(), n)]),
        summary: BTreeMap::from([("jain".into(), jain)]),
        ..Run::default()
    }
}

fn verdict(n: f64, got: f64, held: bool) -> Verdict {
    Verdict {
        point: BTreeMap::from([("n".into(), n)]),
        mechanism: "none".into(),
        metric: "jain".into(),
        says: "they share".into(),
        at_least: Some(0.5),
        got: Some(got),
        worst: Some(got),
        held: Some(held),
        ..Verdict::default()
    }
}

fn shown(b: Option<Results>) -> Shown {
    let figure = Figure::parse(Path::new("f.yaml"), FIGURE).expect("sound");
    let runs = vec![run(1.0, 0, 0.9), run(1.0, 1, 0.7), run(2.0, 0, 0.6), run(2.0, 1, 0.6)];
    let verdicts = vec![verdict(1.0, 0.8, true), verdict(2.0, 0.6, true)];
    let a = Results { runs, verdicts, ..Results::default() };
    let part = |name: &str, not: Option<&str>| KeptPart {
        name: name.into(),
        scale: 1.0,
        not_played: not.map(Into::into),
        ..KeptPart::default()
    };
    let not = b.is_none().then_some("it cannot");
    let kept = Kept { parts: vec![part("a", None), part("b", not)], ..Kept::default() };
    Shown { figure, kept, results: vec![Some(a), b], folder: PathBuf::new() }
}

#[test]
fn points_of_one_expectation_are_one_criterion_shown_where_it_is_worst() {
    let shown = shown(None);
    let criteria = criteria(&shown);
    assert_eq!(criteria.len(), 1, "{criteria:?}");
    let c = &criteria[0];
    assert_eq!((c.points, c.held), ((2, 2), Some(true)));
    assert_eq!(c.got, "0.60 ± 0.00 at n = 2");
    assert_eq!((c.asked.as_str(), c.part.as_deref()), ("jain ≥ 0.5", Some("part A")));
}

#[test]
fn a_part_that_was_not_played_is_never_held() {
    let shown = shown(None);
    let ending = Ending::of(&shown, &criteria(&shown));
    assert_eq!(ending, Ending::Partly);
    assert_eq!(code(&[ending]), 3);
    assert_eq!(code(&[Ending::Held, Ending::Held]), 0);
    assert_eq!(code(&[Ending::NotPlayed, Ending::Failed]), 1);
}

#[test]
fn a_figures_own_expectation_compares_parts_on_their_means() {
    let with = |jain: f64| {
        let runs = vec![run(1.0, 0, jain), run(1.0, 1, jain + 0.2)];
        let shown = shown(Some(Results { runs, ..Results::default() }));
        let criteria = criteria(&shown);
        let own = criteria.last().expect("it was played");
        assert_eq!(own.says, "b is twice a");
        // The scenario of part b expects nothing.
        (own.held, own.got.clone(), Ending::of(&shown, &criteria))
    };
    // The mean of a at n = 1 is 0.8.
    assert_eq!(with(1.5).0, Some(true), "{}", with(1.5).1);
    assert_eq!(with(1.5).2, Ending::Held);
    assert!(with(1.5).1.starts_with("2.00 ± 1.59"), "{}", with(1.5).1);
    assert_eq!((with(1.4).0, with(1.4).2), (Some(false), Ending::Failed));
}

#[test]
fn a_figures_own_expectation_asks_every_repeat_for_validity_and_the_number() {
    // The mean of a at n = 1 is 0.8: twice that is asked.
    let with = |runs: Vec<Run>| {
        let shown = shown(Some(Results { runs, ..Results::default() }));
        let criteria = criteria(&shown);
        let own = criteria.last().expect("it was played");
        (own.held, own.got.clone(), Ending::of(&shown, &criteria))
    };
    let good = |repeat| run(1.0, repeat, 1.8);
    let lost = |repeat| Run { valid: false, ..good(repeat) };
    let silent = |repeat| Run { summary: BTreeMap::new(), ..good(repeat) };
    assert_eq!(with(vec![good(0), good(1), good(2)]).0, Some(true));
    let (held, got, ending) = with(vec![good(0), lost(1), lost(2)]);
    assert_eq!((held, ending), (None, Ending::NotJudged), "{got}");
    assert!(got.contains("2 not valid"), "{got}");
    let (held, got, ending) = with(vec![good(0), silent(1), good(2)]);
    assert_eq!((held, ending), (Some(false), Ending::Failed), "{got}");
    assert!(got.contains("absent in 1"), "{got}");
    // A part that it is compared with is asked the same: nothing held against it is held.
    assert_eq!(with(Vec::new()).0, None, "no point was played");
}

#[test]
fn a_figures_own_expectation_about_a_floor_is_asked_of_every_repeat() {
    let text = FIGURE.replace(
        "metric: jain, of: {part: a}, at_least: 2",
        "metric: goodput_of_floor.x, at_least: 0.95",
    );
    let held = |ratios: &[f64]| {
        let of = |(repeat, &ratio): (usize, &f64)| Run {
            summary: BTreeMap::from([("goodput_of_floor.x".into(), ratio)]),
            ..run(1.0, repeat as u32, 1.0)
        };
        let runs = ratios.iter().enumerate().map(of).collect();
        let mut shown = shown(Some(Results { runs, ..Results::default() }));
        shown.figure = Figure::parse(Path::new("f.yaml"), &text).expect("sound");
        criteria(&shown).last().expect("it was played").held
    };
    assert_eq!(held(&[1.0, 0.96, 1.0]), Some(true));
    assert_eq!(held(&[1.0, 0.94, 1.1]), Some(false), "one of three lost its floor");
}

#[test]
fn a_figure_holds_if_it_holds_with_one_preset_and_says_which() {
    let criterion = |mechanism: &str, says: &str, held: bool| Criterion {
        part: None,
        mechanism: mechanism.into(),
        says: says.into(),
        asked: String::new(),
        got: String::new(),
        held: Some(held),
        points: (1, 1),
    };
    let (paper, steady) = ("elasticswitch", "elasticswitch:steady");
    let of = |criteria: &[Criterion]| {
        let shown = shown(Some(Results::default()));
        let ending = Ending::of(&shown, criteria);
        (ending, ending.words(criteria), code(&[ending]))
    };
    let floors = [
        criterion(paper, "floor", false),
        criterion(steady, "floor", true),
        criterion("none", "starves", true),
    ];
    assert_eq!(of(&floors), (Ending::HeldWith, "held with elasticswitch:steady".into(), 0));
    // Each of them fails in something.
    let mixed = [
        criterion(paper, "floor", false),
        criterion(steady, "floor", true),
        criterion(paper, "link", true),
        criterion(steady, "link", false),
    ];
    assert_eq!(of(&mixed).0, Ending::Failed);
    // A preset that was not asked everything carries nothing: what is asked of its sibling alone
    // may hold or not.
    for held in [true, false] {
        let alone = [
            criterion(paper, "floor", false),
            criterion(steady, "floor", true),
            criterion(paper, "as in the paper", held),
        ];
        assert_eq!(of(&alone), (Ending::Failed, "FAILED".into(), 1));
    }
    // A preset that was asked more than the other may.
    let more = [
        criterion(paper, "floor", true),
        criterion(steady, "floor", false),
        criterion(paper, "as in the paper", true),
    ];
    assert_eq!(of(&more), (Ending::HeldWith, "held with elasticswitch".into(), 0));
    // A baseline is no preset.
    let baseline = [criterion(steady, "floor", true), criterion("none", "starves", false)];
    assert_eq!(of(&baseline).0, Ending::Failed);
    // Nor is a number that is missing a failure.
    let unknown = [Criterion { held: None, ..criterion(steady, "floor", true) }];
    assert_eq!(of(&unknown).0, Ending::NotJudged);
}
