//! Shows a scenario while it plays: moving bars on a terminal, elsewhere a line per second.
//! Everything goes to stderr; stdout belongs to results.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _, stderr};
use weir_model::results::Run;
use weir_model::scenario::{Mechanism, Scenario};
use weir_study::experiment::Screen;
use weir_study::judge::{GroupFloor, group_floor};
use weir_study::world::Moment;
use weir_units::show;

/// On the terminal above the bars, else on stderr.
fn say(terminal: Option<&MultiProgress>, text: &str) {
    match terminal {
        // A terminal that has gone away is no reason to stop measuring.
        Some(terminal) => drop(terminal.println(text)),
        None => drop(writeln!(stderr(), "{text}")),
    }
}

/// Shows runs on stderr.
pub(crate) struct Live {
    /// `None` where stderr is no terminal.
    terminal: Option<MultiProgress>,
    colours: bool,
    run: Option<Playing>,
}

/// The run on the screen.
struct Playing {
    layout: Layout,
    bars: Vec<ProgressBar>,
    recent: VecDeque<Moment>,
    last_line_s: f64,
}

/// Moments that are averaged: half a second.
const RECENT: usize = 5;
const BAR: usize = 32;

impl Live {
    /// A live view on stderr. Colours unless `NO_COLOR` is set.
    pub(crate) fn new() -> Self {
        let terminal = stderr().is_terminal();
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let terminal = terminal.then(|| MultiProgress::with_draw_target(target));
        Self { terminal, colours, run: None }
    }

    /// Says a sentence at any time, from any thread, without spoiling what is shown.
    pub(crate) fn voice(&self) -> impl Fn(&str) + Send + use<> {
        let terminal = self.terminal.clone();
        move |text| say(terminal.as_ref(), text)
    }

    fn say(&self, text: &str) {
        say(self.terminal.as_ref(), text);
    }
}

impl Screen for Live {
    fn begin(&mut self, title: &str, scenario: &Scenario, _: &Mechanism) {
        let layout = Layout::new(title, scenario);
        let mut bars = Vec::new();
        if let Some(terminal) = &self.terminal {
            let style = ProgressStyle::with_template("{msg}").expect("a constant template");
            let lines = layout.groups.len() + layout.links.len() + 1;
            for _ in 0..lines {
                let bar = ProgressBar::new_spinner().with_style(style.clone());
                bars.push(terminal.add(bar));
            }
        } else {
            self.say(&format!("{}: playing for {:.0} s", layout.title, layout.duration_s));
        }
        self.run = Some(Playing { layout, bars, recent: VecDeque::new(), last_line_s: 0.0 });
    }

    fn show(&mut self, moment: &Moment) {
        let Some(run) = &mut self.run else { return };
        if !moment.doing.is_empty() {
            if let Some(bar) = run.bars.first() {
                bar.set_message(format!("{}  {}", run.layout.title, moment.doing));
            }
            return;
        }
        run.recent.push_back(moment.clone());
        if run.recent.len() > RECENT {
            run.recent.pop_front();
        }
        let mean = mean(&run.recent);
        if self.terminal.is_some() {
            let lines = run.layout.lines(&mean, self.colours);
            for (bar, line) in run.bars.iter().zip(lines) {
                bar.set_message(line);
            }
        } else if mean.at_s >= run.last_line_s + 1.0 {
            run.last_line_s = mean.at_s;
            let line = run.layout.one_line(&mean);
            self.say(&line);
        }
    }

    fn end(&mut self) {
        if let Some(run) = self.run.take() {
            for bar in run.bars {
                bar.finish_and_clear();
            }
        }
    }

    fn judged(&mut self, title: &str, run: &Run) {
        let got = |g: &weir_model::results::Group| {
            let ratio = run.summary.get(&format!("goodput_of_floor.{}", g.group));
            let of =
                ratio.map_or(String::new(), |r| format!(" ({} of its floor)", show::percent(*r)));
            format!("{} {}{of}", g.group, show::rate(g.goodput_bps))
        };
        let groups: Vec<String> = run.groups.iter().map(got).collect();
        let valid = if run.valid { "" } else { " – not a valid run" };
        self.say(&format!("{title}: {}{valid}", groups.join(", ")));
    }
}

/// The mean of some moments at the time of the last.
fn mean(moments: &VecDeque<Moment>) -> Moment {
    let n = moments.len().max(1) as f64;
    let Some(last) = moments.back() else { return Moment::default() };
    let over = |values: fn(&Moment) -> &[f64], i: usize| {
        moments.iter().filter_map(|m| values(m).get(i)).sum::<f64>() / n
    };
    Moment {
        doing: String::new(),
        at_s: last.at_s,
        flows_bps: (0..last.flows_bps.len()).map(|i| over(|m| &m.flows_bps, i)).collect(),
        links_bps: (0..last.links_bps.len()).map(|i| over(|m| &m.links_bps, i)).collect(),
    }
}

/// What stands where.
struct Layout {
    title: String,
    duration_s: f64,
    warmup_s: f64,
    groups: Vec<GroupLine>,
    /// Name, index and rate of the links shown.
    links: Vec<(String, usize, f64)>,
    /// A full bar, bit/s.
    full_bps: f64,
    name_width: usize,
}

struct GroupLine {
    name: String,
    flows: Vec<usize>,
    /// Start and stop in seconds, and the floor then, as goodput.
    floor: GroupFloor,
}

impl Layout {
    fn new(title: &str, scenario: &Scenario) -> Self {
        let mut groups: Vec<GroupLine> = Vec::new();
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            match groups.iter_mut().find(|g| g.name == traffic.group) {
                Some(group) => group.flows.push(index),
                None => groups.push(GroupLine {
                    name: traffic.group.clone(),
                    flows: vec![index],
                    floor: GroupFloor::default(),
                }),
            }
        }
        for group in &mut groups {
            group.floor = group_floor(scenario, &group.flows);
        }
        let topology = &scenario.topology;
        let shown =
            |name: &String| scenario.congested.is_empty() || scenario.congested.contains(name);
        let links: Vec<(String, usize, f64)> = topology
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| shown(&link.name))
            .take(3)
            .map(|(index, link)| (link.name.clone(), index, link.rate.as_f64()))
            .collect();
        let full = links.iter().map(|l| l.2).reduce(f64::max).unwrap_or(1.0);
        let names = groups.iter().map(|g| g.name.chars().count());
        let links_names = links.iter().map(|l| l.0.chars().count());
        Self {
            title: title.into(),
            duration_s: scenario.duration.as_secs_f64(),
            warmup_s: scenario.warmup.as_secs_f64(),
            name_width: names.chain(links_names).max().unwrap_or(4).max(4),
            groups,
            links,
            full_bps: full,
        }
    }

    fn lines(&self, moment: &Moment, colours: bool) -> Vec<String> {
        let phase = if moment.at_s < self.warmup_s { "warm-up" } else { "measuring" };
        let mut lines = vec![format!(
            "{}  {:.1} s of {:.0} s, {phase}",
            paint(&self.title, "1", colours),
            moment.at_s,
            self.duration_s
        )];
        for group in &self.groups {
            let got = goodput(group, moment);
            let floor = group.floor.at(moment.at_s);
            let colour = if floor > 0.0 && got < 0.95 * floor { "33" } else { "32" };
            let bar = bar(got / self.full_bps, floor / self.full_bps);
            let says =
                if floor > 0.0 { format!("floor {}", show::rate(floor)) } else { String::new() };
            lines.push(format!(
                "  {:width$} {} {:>11}  {says}",
                group.name,
                paint(&bar, colour, colours),
                show::rate(got),
                width = self.name_width
            ));
        }
        for (name, index, rate) in &self.links {
            let used = link_use(moment, *index, *rate);
            lines.push(format!(
                "  {name:width$} {} {:>11}  of the link",
                paint(&bar(used, 0.0), "36", colours),
                show::percent(used),
                width = self.name_width
            ));
        }
        lines
    }

    fn one_line(&self, moment: &Moment) -> String {
        let mut parts: Vec<String> = self
            .groups
            .iter()
            .map(|group| {
                let floor = group.floor.at(moment.at_s);
                let of = if floor > 0.0 {
                    format!(" (floor {})", show::rate(floor))
                } else {
                    String::new()
                };
                format!("{} {}{of}", group.name, show::rate(goodput(group, moment)))
            })
            .collect();
        for (name, index, rate) in &self.links {
            parts.push(format!("{name} {}", show::percent(link_use(moment, *index, *rate))));
        }
        format!("{} {:5.1} s: {}", self.title, moment.at_s, parts.join(", "))
    }
}

fn goodput(group: &GroupLine, moment: &Moment) -> f64 {
    group.flows.iter().filter_map(|&f| moment.flows_bps.get(f)).sum()
}

/// Use of the busier direction.
fn link_use(moment: &Moment, link: usize, rate: f64) -> f64 {
    let carried = |directed: usize| moment.links_bps.get(directed).copied().unwrap_or(0.0);
    carried(2 * link).max(carried(2 * link + 1)) / rate.max(1.0)
}

/// A bar of [`BAR`] places, with a mark where the floor is.
fn bar(filled: f64, mark: f64) -> String {
    let place = |share: f64| (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    let (filled, mark) = (place(filled), place(mark));
    let at = |i: usize| match i {
        i if mark > 0 && i + 1 == mark => '┃',
        i if i < filled => '█',
        _ => '░',
    };
    (0..BAR).map(at).collect()
}

fn paint(text: &str, code: &str, colours: bool) -> String {
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_study::testing::dumbbell;

    fn layout() -> Layout {
        Layout::new("elasticswitch", &dumbbell(2))
    }

    fn moment() -> Moment {
        let flows_bps = vec![100e6, 40e6, 41e6];
        let links_bps = vec![0.0, 0.0, 190e6, 1e6, 0.0, 0.0];
        Moment { doing: String::new(), at_s: 3.04, flows_bps, links_bps }
    }

    #[test]
    fn a_bar_shows_what_is_got_and_where_the_floor_is() {
        assert_eq!(bar(0.5, 0.0), format!("{}{}", "█".repeat(16), "░".repeat(16)));
        assert_eq!(bar(0.1, 0.45).chars().nth(13), Some('┃'));
        assert_eq!(bar(7.0, 0.0).chars().count(), BAR);
    }

    #[test]
    fn without_a_terminal_there_is_one_line() {
        let line = layout().one_line(&moment());
        assert!(line.contains("X 100 Mb/s (floor 86.1 Mb/s)"), "{line}");
        assert!(line.contains("Y 81.0 Mb/s") && line.contains("core 95 %"), "{line}");
    }

    #[test]
    fn colours_are_left_out_when_not_wanted() {
        let plain = layout().lines(&moment(), false).join("\n");
        assert!(!plain.contains('\x1b') && plain.contains("measuring"), "{plain}");
        assert!(layout().lines(&moment(), true)[1].contains("\x1b[32m"));
    }
}
