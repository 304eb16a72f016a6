//! `weir worlds --soak TIME --lab`: the same worlds in real time, with real agents.
//!
//! Approach  The lab plays the scenario as any other, traffic, VMs that leave and VMs that return. What
//!           arrived is judged by the judge of the simulated soak.
//! Promises  A second in which this machine was too busy is marked and counts all the same. A run that the
//!           lab's own judge would call invalid decides nothing, and says why.

use super::soak::{Soaked, of};
use crate::commands;
use crate::constants::Constants;
use crate::lab::Lab;
use crate::output::errln;
use crate::sim::scenario;
use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use weir_model::scenario::{Mechanism, Scenario};
use weir_study::judge::{self, Observed};
use weir_study::world::{Cut, Moment, World as _};
use weir_swarm::Arrived;
use weir_units::Span;

/// Sockets are read so often. Shorter samples would only cost memory: worlds have thousands of
/// traffic entries, and windows are whole seconds.
const SAMPLE: Span = Span::from_millis(500);

/// Plays worlds one after the other until one fails, or the user stops.
pub(super) fn play_all(all: Vec<(u64, Scenario)>, mechanism: &Mechanism) -> Result<Vec<Soaked>> {
    let stop = commands::stop_aloud(|text| errln!("{text}"))?;
    let mut lab = Lab::new(Constants::new(&[]))?;
    let mut worlds = Vec::new();
    for (seed, mut scenario) in all {
        let length = scenario.duration;
        scenario.sample = SAMPLE;
        // Agents' memory is read at the end of the warmup; windows are judged from the start.
        scenario.warmup = Span::from_nanos(length.as_nanos() / 10);
        let bar = ProgressBar::new(length.as_nanos()).with_style(scenario::bar_style());
        let mut show = |moment: &Moment| {
            bar.set_message(format!("world {seed} {}", moment.doing));
            bar.set_position((moment.at_s * 1e9) as u64);
        };
        let played = lab.play(&scenario, mechanism, &mut show, &stop);
        bar.finish_and_clear();
        match played {
            Ok(observed) => worlds.push(judged(seed, &scenario, &observed)),
            Err(Cut::Stopped) => break,
            Err(Cut::Failed(error)) => return Err(error),
            Err(Cut::Broke(failure)) => return Err(anyhow!("{}", judge::failed(&failure))),
        }
    }
    Ok(worlds)
}

fn judged(seed: u64, scenario: &Scenario, observed: &Observed) -> Soaked {
    let arrived = Arrived {
        ends: observed.ends.clone(),
        octets: observed.flows.iter().map(|flow| flow.octets.as_slice()).collect(),
    };
    let is_disturbed = |second: u64| {
        let (from, until) = (Span::from_secs(second), Span::from_secs(second + 1));
        let ends = observed.ends.iter();
        let begins = std::iter::once(&Span::ZERO).chain(ends.clone());
        begins
            .zip(ends)
            .enumerate()
            .filter(|(_, (begin, end))| **begin < until && **end > from)
            .any(|(sample, _)| judge::is_disturbed(observed, sample))
    };
    let report = weir_swarm::judge(seed, scenario, &arrived, &is_disturbed);
    let kb = |octets: &[u64]| octets.iter().sum::<u64>() / 1024;
    let (early, late) = (&observed.agent_memory_before, &observed.agent_memory);
    Soaked {
        memory_kb: (kb(early), kb(late)),
        agents_kb: early
            .iter()
            .zip(late)
            .map(|(early, late)| (early / 1024, late / 1024))
            .collect(),
        wall_s: observed.wall.as_secs_f64(),
        invalid: judge::of_world(observed, scenario),
        notes: observed.notes.clone(),
        ..of(report, "lab")
    }
}

#[cfg(test)]
mod tests {
    use super::super::soak::Missed;
    use super::*;
    use weir_study::judge::ObservedFlow;
    use weir_swarm::World;

    /// Each entry has what it wants or its floor of both hoses, in samples that are read late.
    fn observed(scenario: &Scenario, part: f64) -> Observed {
        let late = Span::from_millis(7);
        let samples = scenario.duration.div_span(SAMPLE);
        let ends: Vec<Span> = (1..=samples).map(|n| SAMPLE * n + late).collect();
        let flows = scenario.traffic.iter().map(|traffic| {
            let hose = scenario.vms[traffic.from].floor_out.min(scenario.vms[traffic.to].floor_in);
            let rate = traffic.kind.offers().unwrap_or(hose).min(hose).as_f64() * part;
            let sent = |until: &Span| {
                let until = (*until).min(traffic.stop);
                let begun = until.as_secs_f64() - traffic.start.as_secs_f64();
                (begun.max(0.0) * rate / 8.0) as u64
            };
            let mut before = 0;
            let octets = ends.iter().map(|end| {
                let total = sent(end);
                total - std::mem::replace(&mut before, total)
            });
            ObservedFlow { octets: octets.collect(), ..ObservedFlow::default() }
        });
        let flows = flows.collect();
        Observed {
            world: "lab",
            sample: SAMPLE,
            idle: vec![0.5; samples as usize],
            agent_memory_before: vec![8 << 20, 9 << 20],
            agent_memory: vec![8 << 20, 10 << 20],
            flows,
            ends,
            ..Observed::default()
        }
    }

    #[test]
    fn what_a_lab_measured_is_judged_by_the_second_and_a_busy_machine_is_told() {
        let scenario = World::churning(3, Span::from_secs(60)).scenario().expect("sound");
        let whole = judged(3, &scenario, &observed(&scenario, 1.0));
        assert_eq!((whole.seconds, whole.disturbed), (60, 0));
        assert!(whole.windows > 100 && whole.short.is_empty(), "{:?}", whole.short);
        assert_eq!(whole.memory_kb, (17 << 10, 18 << 10));
        assert_eq!(whole.agents_kb, [(8 << 10, 8 << 10), (9 << 10, 10 << 10)]);
        assert_eq!(whole.invalid, Vec::<String>::new());

        let mut starved = observed(&scenario, 0.0);
        starved.idle[20] = 0.01;
        let starved = judged(3, &scenario, &starved);
        assert_eq!(starved.windows, whole.windows, "windows are drawn by demands");
        assert_eq!(starved.short.len() as u64 + starved.learning, starved.windows);
        // Sample 20 is from 10.007 s to 10.507 s.
        let busy = |short: &Missed| {
            assert_eq!(short.disturbed, short.second == 10);
            short.disturbed
        };
        assert!(starved.short.iter().filter(|short| busy(short)).count() > 0);
        assert!(starved.disturbed > 0);
    }

    #[test]
    fn a_run_that_ended_early_or_was_busy_all_the_time_decides_nothing() {
        let scenario = World::churning(3, Span::from_secs(60)).scenario().expect("sound");
        let mut busy = observed(&scenario, 1.0);
        busy.idle.fill(0.01);
        let busy = judged(3, &scenario, &busy);
        assert_eq!((busy.windows, busy.invalid.len()), (busy.disturbed, 1));
        let mut early = observed(&scenario, 1.0);
        early.ends.truncate(40);
        early.idle.truncate(40);
        early.flows.iter_mut().for_each(|flow| flow.octets.truncate(40));
        let early = judged(3, &scenario, &early);
        assert_eq!(early.seconds, 20);
        assert!(early.invalid[0].contains("40 of 120 samples"), "{:?}", early.invalid);
    }
}
