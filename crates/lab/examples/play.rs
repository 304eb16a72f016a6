//! Plays a scenario file and prints means: `play FILE [--set KEY=VALUE]… [--agent PATH]
//! [--mechanism LABEL] [-v]`, as root. Without a mechanism, or with ElasticSwitch if a binary of the
//! agent is named and no other. `-v` prints
//! every sample. For looking into the lab itself; `weir lab` is for people.

#![expect(clippy::disallowed_methods, reason = "it times the lab")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weir_lab::{Options, Phase, play};
use weir_model::observed::Observed;
use weir_model::scenario::{File, Mechanism, Scenario};

fn main() {
    let mut file = None;
    let mut overrides = Vec::new();
    let mut verbose = false;
    let mut agent = None;
    let mut mechanism = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-v" => verbose = true,
            "--agent" => agent = arguments.next(),
            "--mechanism" => mechanism = arguments.next(),
            "--set" => {
                let pair = arguments.next().unwrap_or_default();
                let (key, value) = pair.split_once('=').unwrap_or((&pair, ""));
                overrides.push((key.to_owned(), value.to_owned()));
            }
            _ => file = Some(argument),
        }
    }
    let Some(file) = file else {
        return eprintln!("play FILE [--set KEY=VALUE]… [--agent PATH] [--mechanism LABEL] [-v]");
    };
    let points = File::load(Path::new(&file), &overrides).and_then(|file| file.points());
    match points {
        Ok(points) => {
            let mechanism = mechanism.as_deref();
            points.iter().for_each(|scenario| one(scenario, agent.as_deref(), mechanism, verbose));
        }
        Err(error) => eprintln!("{error}"),
    }
}

fn one(scenario: &Scenario, agent: Option<&str>, mechanism: Option<&str>, verbose: bool) {
    let usual = if agent.is_some() { "elasticswitch" } else { "none" };
    let name = mechanism.unwrap_or(usual);
    let mechanism = Mechanism::parse(name).expect("known");
    let options = Options::new(agent.unwrap_or("weir"));
    let begun = Instant::now();
    let mut last = None;
    let mut watch = |frame: &weir_lab::Frame| {
        let phase = std::mem::discriminant(&frame.phase);
        if verbose && last.replace(phase) != Some(phase) {
            println!("{:.2} s: {:?}", begun.elapsed().as_secs_f64(), frame.phase);
        }
        if verbose && frame.phase == Phase::Running {
            let total = |prefix: &str| -> f64 {
                let flows = scenario.traffic.iter().zip(frame.flows_bps);
                flows.filter(|(t, _)| t.group == prefix).map(|(_, bps)| bps / 1e6).sum()
            };
            let groups: Vec<String> = groups(scenario)
                .iter()
                .map(|group| format!("{group} {:.1}", total(group)))
                .collect();
            let drops: u64 = frame.drops.iter().sum();
            println!("{} {} drops {drops} idle {:.2}", frame.at, groups.join(" "), frame.idle);
        }
    };
    match play(scenario, &mechanism, &options, &mut watch, &AtomicBool::new(false)) {
        Ok(record) => report(scenario, &record),
        Err(error) => eprintln!("{error}"),
    }
}

fn groups(scenario: &Scenario) -> Vec<String> {
    let mut groups: Vec<String> = scenario.traffic.iter().map(|t| t.group.clone()).collect();
    groups.dedup();
    groups
}

fn report(scenario: &Scenario, record: &Observed) {
    let skip = scenario.warmup.div_span(record.sample) as usize;
    let mbps = |series: &[u64]| {
        let seconds = record.sample.as_secs_f64() * (series.len() - skip) as f64;
        series[skip..].iter().sum::<u64>() as f64 * 8.0 / seconds / 1e6
    };
    println!("{:?}", scenario.point);
    for group in groups(scenario) {
        let flows = scenario.traffic.iter().zip(&record.flows);
        let total: f64 =
            flows.filter(|(t, _)| t.group == group).map(|(_, f)| mbps(&f.octets)).sum();
        println!("  {group}: {total:.2} Mb/s");
    }
    for (i, link) in record.links.iter().enumerate() {
        let (carried, drops) = (mbps(&link.octets), link.drops.iter().sum::<u64>());
        if drops > 0 || scenario.congested.contains(&scenario.topology.links[i / 2].name) {
            let name = &scenario.topology.links[i / 2].name;
            println!("  {name}.{}: {carried:.2} Mb/s, {drops} dropped", i % 2);
        }
    }
    let busy = record.idle.iter().filter(|&&idle| idle < 0.05).count();
    println!(
        "  busy in {busy} of {} samples, user CPU {}, wall {}",
        record.idle.len(),
        record.user_cpu,
        record.wall
    );
    for note in &record.notes {
        println!("  note: {note}");
    }
}
