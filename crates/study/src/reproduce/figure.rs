//! A figure or a row of a table of a paper, as a file: what it says, how it is played, how it is
//! drawn.
//!
//! Problem   A figure is more than one scenario: a criterion, several worlds, and axes of its own.
//! Approach  YAML like a scenario's (docs/reproduce.md). Scenarios stay what is played and what
//!           expects; a figure names them and says how, and how the paper draws it.
//! Promises  An error names file, line, field and what would be right, before anything is played.
//! Not here  Playing: see `play`. Drawing: see `report::figures`.

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use std::path::{Path, PathBuf};
use weir_model::scenario::{Error, Mechanism, Place, Scenario, is_metric, is_of_datacenter};

/// Written in every figure's file.
const API: &str = "weir/v1alpha1";

/// What a figure's file holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    #[serde(rename = "apiVersion")]
    api: Spanned<String>,
    kind: Spanned<String>,
    /// What it is called.
    pub metadata: Metadata,
    /// What it says and plays.
    pub spec: Spec,
    /// The file it was read from.
    #[serde(skip)]
    pub file: PathBuf,
}

/// What a figure is called.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// `ES-F5`: by what people name it.
    pub id: Spanned<String>,
    /// What it shows.
    pub title: String,
    /// `ElasticSwitch Fig 5`.
    pub paper: String,
}

/// What a figure says and plays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// What the paper says.
    pub says: String,
    /// What is asked of the reproduction, in words.
    pub criterion: String,
    /// Where it departs from the paper's setup.
    pub departs: Option<String>,
    /// Why nothing is played: the row is not there yet, or it is no matter of traffic. Instead of
    /// `play`.
    pub missing: Option<String>,
    /// Tests and benches that show what no traffic shows. Nothing here runs them: they are named,
    /// never held.
    #[serde(default)]
    pub shown_by: Vec<ShownBy>,
    /// What is played, in order.
    #[serde(default)]
    pub play: Vec<Part>,
    /// How the paper draws it.
    #[serde(default)]
    pub plots: Vec<Plot>,
    /// Of the scenarios' expectations, those about these metrics count; without it, all.
    #[serde(default)]
    pub(crate) judged: Vec<Spanned<String>>,
    /// Expectations beyond those of the scenarios.
    #[serde(default)]
    pub(crate) expect: Vec<Expect>,
}

/// A test or a bench beside what is played.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShownBy {
    /// The name of a test that `make test` plays.
    pub test: Option<Spanned<String>>,
    /// What to type instead, where it is no test.
    pub command: Option<Spanned<String>>,
    /// What it shows, and what of the criterion it does not hold.
    pub says: String,
}

impl ShownBy {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.test.as_ref().or(self.command.as_ref()).map_or("", |name| &name.value)
    }
}

/// One scenario file and how it is played.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its folder in the results, and its name in plots and expectations.
    pub name: Spanned<String>,
    /// For people, in legends; without it only the mechanism is named there.
    pub label: Option<String>,
    /// Relative to the figure's file.
    pub scenario: Spanned<String>,
    /// Instead of the scenario's.
    #[serde(default)]
    pub mechanisms: Vec<Spanned<String>>,
    /// Constants of the mechanism, as `--constant` takes them.
    #[serde(default)]
    pub constants: Vec<Spanned<String>>,
    /// How the simulator plays it.
    #[serde(default)]
    pub sim: How,
    /// How the lab plays it.
    #[serde(default)]
    pub lab: How,
    /// What differs when everything is played once, short and at few points.
    #[serde(default)]
    pub quick: How,
}

impl Part {
    /// The scenario that it plays in a world.
    pub fn named<'a>(&'a self, how: &'a How) -> &'a Spanned<String> {
        how.scenario.as_ref().unwrap_or(&self.scenario)
    }
}

/// How a part is played in one world.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct How {
    /// Instead of the part's, where a world carries more than the other; relative to the figure's
    /// file.
    pub scenario: Option<Spanned<String>>,
    /// As `--set` takes them.
    #[serde(default)]
    pub set: Vec<Spanned<String>>,
    /// How often; without it, what is usual in the world.
    pub repeat: Option<u32>,
    /// Why this world cannot show it.
    pub not: Option<String>,
}

/// How the paper draws it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub(crate) title: Option<String>,
    pub(crate) kind: PlotKind,
    /// Absent for a distribution, whose x is the metric.
    pub(crate) x: Option<X>,
    /// In a distribution, what its x axis shows.
    pub(crate) y: Y,
    /// `job=100`: only points with this parameter's value.
    #[serde(default)]
    pub(crate) only: Vec<Spanned<String>>,
    /// Without it, every mechanism of every part.
    #[serde(default)]
    pub(crate) series: Vec<Series>,
    /// The paper's own points, and lines to compare with.
    #[serde(default)]
    pub(crate) reference: Vec<Reference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PlotKind {
    /// Bars at each x: the first metric solid, the others on top of it.
    Bars,
    /// A line per series and metric.
    Lines,
    /// A distribution of the metric over whatever has it.
    Cdf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct X {
    /// A parameter of the sweep; several are written together, `old, fresh`.
    pub(crate) of: Spanned<String>,
    pub(crate) label: String,
    /// Whether places are in proportion to values; else they are side by side.
    #[serde(default)]
    pub(crate) to_scale: bool,
    /// Values are divided by this before they are written.
    pub(crate) unit: Option<Unit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Y {
    /// Names of `summary`, or `receivers` (goodput of each receiving VM). A `*` at the end of a
    /// name stands for every ending.
    pub(crate) metrics: Vec<Spanned<String>>,
    /// How the metrics are called in the legend, in their order.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) unit: Unit,
    /// Ratios to the same metric of this mechanism at the same point.
    pub(crate) of: Option<Spanned<String>>,
    /// Rates are shown as at the paper's scale: divided by the scenario's `scale`.
    #[serde(default)]
    pub(crate) at_scale_1: bool,
    /// A logarithmic axis from the first to the second.
    pub(crate) log: Option<[f64; 2]>,
    pub(crate) max: Option<f64>,
}

/// In what a number is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Unit {
    #[default]
    #[serde(rename = "1")]
    One,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "Mb/s")]
    Mbit,
    #[serde(rename = "ms")]
    Millis,
    #[serde(rename = "s")]
    Seconds,
}

impl Unit {
    /// How many of the results' units it is.
    pub(crate) fn size(self) -> f64 {
        match self {
            Self::One | Self::Seconds => 1.0,
            Self::Percent => 0.01,
            Self::Mbit => 1e6,
            Self::Millis => 1e-3,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    pub(crate) mechanism: Spanned<String>,
    /// Without it, the first part.
    pub(crate) part: Option<Spanned<String>>,
    /// Without it, the part's label or the mechanism's name.
    pub(crate) label: Option<String>,
}

/// The paper's own, or what is ideal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    pub(crate) label: String,
    /// A line at this y, or at this x in a distribution.
    pub(crate) at: Option<f64>,
    /// Places in units of the axes; side by side, x counts from 0.
    #[serde(default)]
    pub(crate) points: Vec<[f64; 2]>,
    /// Whether the points are joined.
    #[serde(default)]
    pub(crate) line: bool,
}

/// A number against bounds, or against another number.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) says: String,
    /// Without it, the first part.
    pub(crate) part: Option<Spanned<String>>,
    pub(crate) mechanism: Spanned<String>,
    /// One that ends in `.*` is asked of every group; see `groups`.
    pub(crate) metric: Spanned<String>,
    /// Of how many groups a metric with `.*` is asked.
    #[serde(default)]
    pub(crate) groups: Groups,
    /// `senders=300`: only there; without it, at every point.
    #[serde(default)]
    pub(crate) at: Vec<Spanned<String>>,
    /// Its ratio to this is bounded.
    pub(crate) of: Option<Other>,
    pub(crate) at_least: Option<f64>,
    pub(crate) at_most: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Groups {
    #[default]
    All,
    /// One group that does is enough.
    Any,
}

/// Another number; what is left out is as in the first one.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Other {
    pub(crate) part: Option<Spanned<String>>,
    pub(crate) mechanism: Option<Spanned<String>>,
    pub(crate) metric: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) at: Vec<Spanned<String>>,
}

/// Not a number of the summary: the goodput of each receiving VM.
pub(crate) const RECEIVERS: &str = "receivers";

impl Figure {
    /// Reads `path`.
    ///
    /// # Errors
    /// It cannot be read, or is not a figure.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let help = match path.is_dir() {
                true => "this is a folder: name a file in it",
                false => "is the path right?",
            };
            wrong(path, Place::Whole, "", format!("cannot be read: {error}"), help.into())
        })?;
        Self::parse(path, &text)
    }

    /// The same from `text`; `path` is what errors call the file, and where scenarios are looked
    /// for.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let mut figure: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| syntax(path, &error))?;
        figure.file = path.into();
        figure.check()?;
        Ok(figure)
    }

    /// The name that people use for it.
    pub fn id(&self) -> &str {
        &self.metadata.id.value
    }

    /// Where a scenario is that a part names.
    pub fn scenario(&self, named: &Spanned<String>) -> PathBuf {
        let joined = self.file.parent().unwrap_or(Path::new("")).join(&named.value);
        tidy(&joined)
    }

    /// Whether an expectation of a scenario about `metric` counts for this figure.
    pub fn judges(&self, metric: &str) -> bool {
        let is = |judged: &Spanned<String>| match judged.value.strip_suffix('*') {
            Some(prefix) => metric.starts_with(prefix),
            None => metric == judged.value,
        };
        self.spec.judged.is_empty() || self.spec.judged.iter().any(is)
    }

    /// An error about `value`, which was written in this file.
    pub fn wrong(
        &self,
        field: &str,
        value: &Spanned<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Error {
        wrong(&self.file, place(value.referenced), field, message.into(), help.into())
    }

    /// The part with this name; without one, the first.
    pub fn part(&self, name: Option<&str>) -> Option<(usize, &Part)> {
        let mut parts = self.spec.play.iter().enumerate();
        match name {
            None => parts.next(),
            Some(name) => parts.find(|(_, part)| part.name.value == name),
        }
    }

    fn check(&self) -> Result<(), Error> {
        for (field, value, right) in
            [("apiVersion", &self.api, API), ("kind", &self.kind, "Figure")]
        {
            if value.value != right {
                let message = format!("is `{}`", value.value);
                return Err(self.wrong(field, value, message, format!("write {right}")));
            }
        }
        let id = &self.metadata.id;
        let harmless = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if id.value.is_empty() || !id.value.chars().all(harmless) {
            let help = "letters, digits and - only: it names a folder";
            return Err(self.wrong("metadata.id", id, "is no name", help));
        }
        if self.spec.play.is_empty() != self.spec.missing.is_some() {
            let help =
                "write `play` with what is played, or `missing` with why there is nothing yet";
            let message = "needs one of `play` and `missing`";
            return Err(self.wrong("spec", id, message, help));
        }
        for by in &self.spec.shown_by {
            if by.test.is_some() == by.command.is_some() {
                let help = "write `test: NAME` or `command: WHAT TO TYPE`";
                let message = "names neither a test nor a command, or both";
                return Err(self.wrong("spec.shown_by", id, message, help));
            }
        }
        self.spec.judged.iter().try_for_each(|m| self.check_metric("spec.judged", m))?;
        self.spec.play.iter().try_for_each(|part| self.check_part(part))?;
        self.spec.plots.iter().enumerate().try_for_each(|(n, plot)| self.check_plot(n, plot))?;
        self.spec.expect.iter().enumerate().try_for_each(|(n, e)| self.check_expect(n, e))
    }

    fn check_part(&self, part: &Part) -> Result<(), Error> {
        let field = |of: &str| format!("spec.play.{}.{of}", part.name.value);
        let harmless = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if part.name.value.is_empty() || !part.name.value.chars().all(harmless) {
            let help = "letters, digits, - and _ only: it names a folder";
            return Err(self.wrong(&field("name"), &part.name, "is no name", help));
        }
        if self.spec.play.iter().filter(|p| p.name.value == part.name.value).count() > 1 {
            let help = "give each part a name of its own";
            return Err(self.wrong(&field("name"), &part.name, "is there twice", help));
        }
        if let Some(scenario) = &part.quick.scenario {
            let help = "write it under `sim` or `lab`";
            return Err(self.wrong(&field("quick"), scenario, "plays the same scenario", help));
        }
        for label in &part.mechanisms {
            self.check_mechanism(&field("mechanisms"), label)?;
        }
        let sets = [&part.sim.set, &part.lab.set, &part.quick.set, &part.constants];
        for text in sets.into_iter().flatten() {
            if text.value.split_once('=').is_none_or(|(key, _)| key.trim().is_empty()) {
                let message = format!("`{}` is no KEY=VALUE", text.value);
                let help = "write for instance \"duration=10s\"";
                return Err(self.wrong(&field("set"), text, message, help));
            }
        }
        Ok(())
    }

    fn check_mechanism(&self, field: &str, label: &Spanned<String>) -> Result<(), Error> {
        let known = |m: Mechanism| m.check_preset().map(|()| m);
        match Mechanism::parse(&label.value).and_then(known) {
            Ok(_) => Ok(()),
            Err((message, help)) => Err(self.wrong(field, label, message, help)),
        }
    }

    fn check_plot(&self, number: usize, plot: &Plot) -> Result<(), Error> {
        let field = |of: &str| format!("spec.plots.{number}.{of}");
        if plot.y.metrics.is_empty() {
            let message = "has no metrics";
            return Err(self.wrong(&field("y"), &self.metadata.id, message, "name one"));
        }
        if plot.x.is_none() && plot.kind != PlotKind::Cdf {
            let help = "write `x: {of: PARAMETER, label: …}`; only a cdf has none";
            return Err(self.wrong(&field("x"), &self.metadata.id, "is missing", help));
        }
        for series in &plot.series {
            self.check_mechanism(&field("series"), &series.mechanism)?;
            self.check_part_name(&field("series"), series.part.as_ref())?;
        }
        plot.y.of.iter().try_for_each(|label| self.check_mechanism(&field("y.of"), label))?;
        plot.y.metrics.iter().try_for_each(|m| self.check_metric(&field("y.metrics"), m))
    }

    fn check_expect(&self, number: usize, expect: &Expect) -> Result<(), Error> {
        let field = |of: &str| format!("spec.expect.{number}.{of}");
        self.check_mechanism(&field("mechanism"), &expect.mechanism)?;
        self.check_metric(&field("metric"), &expect.metric)?;
        self.check_part_name(&field("part"), expect.part.as_ref())?;
        if expect.at_least.is_none() && expect.at_most.is_none() {
            let help = "write `at_least` or `at_most`";
            return Err(self.wrong(&field("metric"), &expect.metric, "has no bound", help));
        }
        let Some(of) = &expect.of else { return Ok(()) };
        self.check_part_name(&field("of.part"), of.part.as_ref())?;
        of.metric.iter().try_for_each(|m| self.check_metric(&field("of.metric"), m))?;
        of.mechanism.iter().try_for_each(|m| self.check_mechanism(&field("of.mechanism"), m))
    }

    fn check_part_name(&self, field: &str, name: Option<&Spanned<String>>) -> Result<(), Error> {
        let Some(name) = name else { return Ok(()) };
        if self.part(Some(&name.value)).is_some() {
            return Ok(());
        }
        let known: Vec<&str> = self.spec.play.iter().map(|p| p.name.value.as_str()).collect();
        let message = format!("there is no part `{}`", name.value);
        Err(self.wrong(field, name, message, format!("known here: {}", known.join(", "))))
    }

    fn check_metric(&self, field: &str, metric: &Spanned<String>) -> Result<(), Error> {
        if is_metric(&metric.value) || metric.value == RECEIVERS {
            return Ok(());
        }
        let message = format!("there is no metric `{}`", metric.value);
        Err(self.wrong(field, metric, message, "docs/results/README.md lists what there is"))
    }

    /// Whether the groups that plots and expectations name are those of the parts' scenarios.
    ///
    /// # Errors
    /// The first that no scenario has.
    pub fn check_groups(&self, scenarios: &[Scenario]) -> Result<(), Error> {
        let of_plots = self.spec.plots.iter().flat_map(|plot| &plot.y.metrics);
        let of_expect = self.spec.expect.iter().flat_map(|e| {
            std::iter::once(&e.metric).chain(e.of.as_ref().and_then(|of| of.metric.as_ref()))
        });
        for metric in of_plots.chain(of_expect) {
            let Some(group) = metric.value.split('.').nth(1).filter(|g| *g != "*") else {
                continue;
            };
            if is_of_datacenter(&metric.value) {
                continue;
            }
            let groups = || scenarios.iter().flat_map(|s| &s.traffic).map(|t| t.group.as_str());
            if !groups().any(|g| g == group) {
                let known: std::collections::BTreeSet<&str> = groups().collect();
                let known: Vec<&str> = known.into_iter().collect();
                let message = format!("no scenario here has a group `{group}`");
                let help = format!("known here: {}", known.join(", "));
                return Err(self.wrong(&metric.value, metric, message, help));
            }
        }
        Ok(())
    }
}

/// Without `..` behind a folder, for people and for the keys of what was played.
fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir if tidied.file_name().is_some() => {
                tidied.pop();
            }
            other => tidied.push(other),
        }
    }
    tidied
}

fn place(at: Location) -> Place {
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Place::File { line: narrow(at.line()), column: narrow(at.column()) }
}

fn wrong(file: &Path, place: Place, field: &str, message: String, help: String) -> Error {
    Error { file: file.display().to_string(), place, field: field.into(), message, help }
}

/// What the parser says, in the form of all errors.
fn syntax(path: &Path, error: &serde_saphyr::Error) -> Error {
    let at = error.location().map_or(Place::Whole, place);
    let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let text = text.split(" at line ").next().unwrap_or_default();
    let text = text.lines().next().unwrap_or_default();
    let (message, help) = match text.split_once(", expected ") {
        Some((message, expected)) => (message, format!("expected {expected}")),
        None => (text, "docs/reproduce.md shows what a figure's file holds".into()),
    };
    let field = message.split('`').nth(1).unwrap_or_default();
    wrong(path, at, field, message.into(), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "\
apiVersion: weir/v1alpha1
kind: Figure
metadata: {id: ES-F2, title: A title, paper: P Fig 2}
spec:
  says: much
  criterion: more
  play:
    - {name: a, scenario: ../s.yaml, mechanisms: [none], sim: {set: [scale=1]}}
  plots:
    - kind: lines
      x: {of: percent, label: x}
      y: {metrics: [goodput.tcp], label: y, unit: Mb/s}
      series: [{mechanism: none, part: a}]
  expect:
    - {says: s, mechanism: none, metric: jain, at_least: 1}
";

    fn error(from: &str, to: &str) -> Error {
        assert!(SOUND.contains(from), "{from}");
        let text = SOUND.replacen(from, to, 1);
        Figure::parse(Path::new("f/x.yaml"), &text).expect_err(to)
    }

    #[test]
    fn a_sound_file_is_read() {
        let figure = Figure::parse(Path::new("f/x.yaml"), SOUND).expect("sound");
        assert_eq!(figure.id(), "ES-F2");
        let part = &figure.spec.play[0];
        assert_eq!(figure.scenario(part.named(&part.sim)), Path::new("s.yaml"));
        assert_eq!(figure.spec.plots[0].y.unit, Unit::Mbit);
    }

    #[test]
    fn a_world_may_have_a_scenario_of_its_own() {
        let text = SOUND.replacen("sim: {set", "sim: {scenario: ../t.yaml, set", 1);
        let figure = Figure::parse(Path::new("f/x.yaml"), &text).expect("sound");
        let part = &figure.spec.play[0];
        assert_eq!(figure.scenario(part.named(&part.sim)), Path::new("t.yaml"));
        assert_eq!(figure.scenario(part.named(&part.lab)), Path::new("s.yaml"));
        let error = error("sim: {set", "quick: {scenario: ../t.yaml}, sim: {set");
        assert!(error.message.contains("plays the same scenario"), "{error}");
    }

    #[test]
    fn a_mistake_has_its_line_its_field_and_what_would_be_right() {
        for (from, to, line, field, message, help) in [
            ("kind: Figure", "kind: Scenario", 2, "kind", "is `Scenario`", "write Figure"),
            ("criterion", "criterium", 6, "criterium", "unknown field", "criterion"),
            (
                "[none], sim",
                "[nine], sim",
                8,
                "spec.play.a.mechanisms",
                "unknown mechanism",
                "none",
            ),
            ("scale=1", "scale", 8, "spec.play.a.set", "`scale` is no KEY=VALUE", "duration=10s"),
            (
                "goodput.tcp",
                "godput.tcp",
                12,
                "spec.plots.0.y.metrics",
                "no metric `godput.tcp`",
                "docs",
            ),
            ("part: a", "part: b", 13, "spec.plots.0.series", "no part `b`", "known here: a"),
            ("kind: lines", "kind: pie", 10, "", "pie", "bars"),
            (", at_least: 1", "", 15, "spec.expect.0.metric", "no bound", "at_least"),
        ] {
            let e = error(from, to);
            assert_eq!(e.line(), line, "{to}: {e}");
            assert!(e.message.contains(message), "{to}: {e}");
            assert!(e.help.contains(help), "{to}: {e}");
            assert!(field.is_empty() || e.field == field, "{to}: {e}");
            assert!(e.to_string().starts_with("f/x.yaml:"), "{e}");
        }
    }

    #[test]
    fn a_figure_can_judge_some_metrics_only() {
        let parse = |text: &str| Figure::parse(Path::new("x.yaml"), text).expect("sound");
        assert!(parse(SOUND).judges("jain.y"), "without a list, all");
        let text = SOUND.replacen("  plots:", "  judged: [jain.y, shuffle_s.*]\n  plots:", 1);
        let figure = parse(&text);
        assert!(figure.judges("jain.y") && figure.judges("shuffle_s.t1"));
        assert!(!figure.judges("goodput.x") && !figure.judges("jain.x"));
    }

    #[test]
    fn a_row_that_is_not_there_yet_says_why() {
        let error = error(
            "  play:\n    - {name: a, scenario: ../s.yaml, mechanisms: [none], sim: {set: [scale=1]}}\n",
            "",
        );
        assert!(error.message.contains("one of `play` and `missing`"), "{error}");
    }
}
