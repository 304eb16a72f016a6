//! The page of a paper's figures: what it says, what was asked, what came out, and its plots.

mod data;
mod plot;

use crate::folder::PAGE;
use crate::reproduce::judge::{Criterion, Ending, criteria};
use crate::reproduce::kept::{KeptPart, Shown, World};
use maud::{Markup, html};

/// The table of all figures, then each of them; `dir` is where the page is.
pub(super) fn html(shown: &[Shown], dir: &std::path::Path) -> Markup {
    let judged: Vec<(&Shown, Vec<Criterion>)> = shown.iter().map(|s| (s, criteria(s))).collect();
    html! {
        article class="figures" {
            h1 { "Reproduction: " (papers(shown)) }
            p class="sub" { (world(shown)) }
            (banner(&judged))
            section {
                h2 { "What the paper says, what was asked, what came out" }
                (summary(&judged))
            }
        }
        @for (one, criteria) in &judged { (figure(one, criteria, dir)) }
    }
}

/// The papers, without the figures' numbers: `ElasticSwitch Fig 5` is of ElasticSwitch.
fn papers(shown: &[Shown]) -> String {
    let mut papers: Vec<&str> = Vec::new();
    for one in shown {
        let paper = one.figure.metadata.paper.split(' ').next().unwrap_or_default();
        if !papers.contains(&paper) {
            papers.push(paper);
        }
    }
    papers.join(", ")
}

fn world(shown: &[Shown]) -> String {
    let worlds: Vec<World> = shown.iter().map(|one| one.kept.world).collect();
    let quick = if shown.iter().any(|one| one.kept.quick) {
        " Quick: once, short, at few points; a hint, not a result."
    } else {
        ""
    };
    let text = match (worlds.contains(&World::Sim), worlds.contains(&World::Lab)) {
        (true, true) => "Some figures packet by packet in the simulator, some on real Linux.",
        (_, true) => {
            "Real Linux in network namespaces of one machine. Numbers are medians, whiskers the extremes."
        }
        _ => {
            "Simulated: packet by packet, and datacenters tenant by tenant. Numbers are means over seeds, \
             with 95 % confidence intervals."
        }
    };
    format!("{text}{quick}")
}

fn banner(judged: &[(&Shown, Vec<Criterion>)]) -> Markup {
    let endings: Vec<Ending> = judged.iter().map(|(one, c)| Ending::of(one, c)).collect();
    let held = endings.iter().filter(|ending| ending.is_held()).count();
    let failed = endings.iter().filter(|ending| **ending == Ending::Failed).count();
    let open = judged.len() - held - failed;
    let class = match (failed, open) {
        (0, 0) => "held",
        (0, _) => "doubt",
        _ => "failed",
    };
    html! {
        p class={"banner " (class)} {
            (held) " of " (judged.len()) " figures hold"
            @if failed > 0 { "; " (failed) " failed" }
            @if open > 0 { "; " (open) " were not, or not wholly, played or judged" }
            "."
        }
    }
}

fn summary(judged: &[(&Shown, Vec<Criterion>)]) -> Markup {
    html! {
        div class="scroll" {
            table class="summary" {
                thead { tr {
                    th { "Figure" } th { "The paper says" } th { "Asked" } th { "Got" } th { "Verdict" }
                } }
                @for (one, criteria) in judged { (rows(one, criteria)) }
            }
        }
    }
}

/// The criteria of one figure; at least one row, which says how it ended.
fn rows(one: &Shown, criteria: &[Criterion]) -> Markup {
    let ending = Ending::of(one, criteria);
    let absent: Vec<(&str, &str)> = absent(one);
    let rows = (criteria.len() + absent.len()).max(1);
    let name = html! {
        td rowspan=(rows) class="id" {
            a href={"#" (one.figure.id())} { (one.figure.id()) }
            span class=(class(ending)) { (ending.words(criteria)) }
        }
        td rowspan=(rows) class="says" { (one.figure.spec.says) }
    };
    html! {
        tbody {
            @for (index, c) in criteria.iter().enumerate() {
                tr class=[(index == 0).then_some("first")] {
                    @if index == 0 { (name) }
                    td { (c.says) br; small { (of(c)) " · " (c.asked) } }
                    td class="got" { (c.got) @if c.points.1 > 1 { br; small { "held at " (c.points.0) " of " (c.points.1) " points" } } }
                    td class=(held_class(c.held)) { (held_word(c.held)) }
                }
            }
            @for (index, (part, why)) in absent.iter().enumerate() {
                tr class=[(criteria.is_empty() && index == 0).then_some("first")] {
                    @if criteria.is_empty() && index == 0 { (name) }
                    td colspan="2" class="absent" { @if !part.is_empty() { (part) ": " } (why) }
                    td class="doubt" { "not played" }
                }
            }
            @if criteria.is_empty() && absent.is_empty() {
                tr class="first" { (name) td colspan="2" { "nothing was asked" } td class="doubt" { "not judged" } }
            }
        }
    }
}

/// What was not played, and why.
fn absent(one: &Shown) -> Vec<(&str, &str)> {
    let mut absent = Vec::new();
    if let Some(why) = &one.figure.spec.missing {
        absent.push(("", why.as_str()));
    }
    absent.extend(one.figure.spec.shown_by.iter().map(|by| (by.name(), by.says.as_str())));
    for (index, part) in one.figure.spec.play.iter().enumerate() {
        let several = one.figure.spec.play.len() > 1;
        let name = if several { part.label.as_deref().unwrap_or(&part.name.value) } else { "" };
        match one.part(index) {
            None => absent.push((name, "stopped before its turn")),
            Some(KeptPart { not_played: Some(why), .. } | KeptPart { cut: Some(why), .. }) => {
                absent.push((name, why.as_str()));
            }
            Some(_) => {}
        }
    }
    absent
}

/// Which mechanism, of which part.
fn of(c: &Criterion) -> String {
    let name = data::name(&c.mechanism);
    match &c.part {
        Some(part) => format!("{name}, {part}"),
        None => name,
    }
}

fn class(ending: Ending) -> &'static str {
    match ending {
        Ending::Held | Ending::HeldWith => "held",
        Ending::Failed => "failed",
        _ => "doubt",
    }
}

fn held_class(held: Option<bool>) -> &'static str {
    match held {
        Some(true) => "held",
        Some(false) => "failed",
        None => "doubt",
    }
}

fn held_word(held: Option<bool>) -> &'static str {
    match held {
        Some(true) => "✓ held",
        Some(false) => "✗ failed",
        None => "not judged",
    }
}

fn figure(one: &Shown, criteria: &[Criterion], dir: &std::path::Path) -> Markup {
    let ending = Ending::of(one, criteria);
    let spec = &one.figure.spec;
    html! {
        article id=(one.figure.id()) {
            h1 { (one.figure.id()) " " span class="light" { (one.figure.metadata.title) } }
            p class="sub" { (one.figure.metadata.paper) " · " b class=(class(ending)) { (ending.words(criteria)) } }
            dl {
                dt { "The paper says" } dd { (spec.says) }
                dt { "Asked" } dd { (spec.criterion) }
                @if let Some(departs) = &spec.departs { dt { "Departs" } dd { (departs) } }
                @for (part, why) in absent(one) {
                    dt { "Not played" } dd class="doubt" { @if !part.is_empty() { (part) ": " } (why) }
                }
            }
            @for drawn in spec.plots.iter().filter_map(|plot| plot::draw(one, plot)) { (drawn) }
            (traced(one))
            (numbers(one, dir))
            @if one.results.iter().any(Option::is_some) {
                h2 { "Play it again" }
                pre { (again(one)) }
            }
        }
    }
}

/// Windows over time of the first play of each, where something was traced.
fn traced(one: &Shown) -> Markup {
    let runs = one.results.iter().flatten().flat_map(|results| &results.runs);
    html! { @for run in runs.filter(|run| run.repeat == 0) { (super::windows::charts(run)) } }
}

/// Links to the pages with every number, and what is not a result.
fn numbers(one: &Shown, dir: &std::path::Path) -> Markup {
    let folder = one.folder.strip_prefix(dir).unwrap_or(&one.folder);
    let mut invalid = 0;
    let mut runs = 0;
    for run in one.results.iter().flatten().flat_map(|results| &results.runs) {
        runs += 1;
        invalid += usize::from(!run.valid);
    }
    let links: Vec<(String, &str)> = one
        .kept
        .parts
        .iter()
        .filter_map(|part| {
            let at = folder.join(part.results.as_ref()?).join(PAGE);
            Some((at.display().to_string(), part.name.as_str()))
        })
        .collect();
    html! {
        @if runs > 0 {
            p class="note" {
                (runs) " runs" @if invalid > 0 { ", " (invalid) " of them no results" }
                ". Every number, second by second: "
                @for (index, (link, name)) in links.iter().enumerate() {
                    @if index > 0 { ", " } a href=(link) { (name) }
                }
                "."
            }
        }
    }
}

/// The commands, the figure's first; one that several parts share is there once.
fn again(one: &Shown) -> String {
    let mut lines = vec![one.kept.command.as_str()];
    for part in one.kept.parts.iter().filter(|part| part.results.is_some()) {
        if !lines.contains(&part.command.as_str()) {
            lines.push(&part.command);
        }
    }
    lines.join("\n")
}
