//! A scenario that a seed draws.
//!
//! Approach  The draft is the text of a scenario file, read as any other: what is drawn can be kept,
//!           edited, and played by `weir sim`. First everything starts, stops and breaks; then nothing
//!           changes any more. What is left of the run is judged when all promises hold again without
//!           exception: a hold and a silence later (GUARANTEES.md 5, docs/STATUS.md, Known limits).
//! Promises  Every seed draws a scenario that the reader accepts.

mod churn;
mod draw;
mod fabric;
mod faults;
mod tenants;
mod traffic;
mod world;

pub use world::World;

use draw::Draw;
use weir_core::partition::PartitionConfig;
use weir_model::scenario::{Error, File, Scenario};
use weir_units::Span;

/// How long floors are judged: three seconds are six of the judge's windows.
const JUDGED: Span = Span::from_secs(3);
/// Runs are sampled so often.
const TENTH: Span = Span::from_millis(100);

/// The stream of chance that decides whether VMs of a host may be promised more among themselves than its link
/// carries. Admission does not refuse that; floors are scaled then, and not judged.
const OVERBOOKED: u64 = 1 << 51;

/// After so long without any trouble all promises hold without exception: what a sender got before is
/// let go of, its receiver knows, and hoses were divided twice since. Rounded up to a tenth of a second.
pub(crate) fn settling(partition: &PartitionConfig, period: Span) -> Span {
    let silent = partition.silent_after;
    let all = silent + partition.silent_hold + silent + period * 2;
    TENTH * all.div_span(TENTH) + TENTH
}

/// A scenario that a seed draws.
#[derive(Clone, Debug)]
pub struct Draft {
    seed: u64,
    text: String,
}

impl Draft {
    /// What `seed` draws.
    pub fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let preset = draw.of(&[
            "steady",
            "steady",
            "steady",
            "steady",
            "steady",
            "paper",
            "steady-ecn",
            "paper-ecn",
        ]);
        let scale = draw.of(&["0.05", "0.1"]);
        let fabric = fabric::draw(&mut draw, preset.ends_with("-ecn"));
        let tenants = tenants::draw(&mut draw, &fabric.hosts);
        let text = |factor: u64| -> String { tenants.iter().map(|t| t.text(factor)).collect() };
        let bare =
            |factor| file(seed, preset, scale, &fabric.text, &text(factor), Span::from_secs(9));
        // Of another stream, so that it changes nothing else.
        let may_overbook = Draw::new(seed ^ OVERBOOKED).one_in(32);
        let accepts = |factor| {
            (may_overbook || tenants::fit_their_hosts(&tenants, factor))
                && File::parse("", &bare(factor), &[]).is_ok_and(|f| f.points().is_ok())
        };
        let factor = tenants::factor(&mut draw, accepts);
        let traffic = traffic::draw(&mut draw, &tenants);
        let faults = faults::draw(&mut draw, &fabric);

        let law = weir_core::elasticswitch::ElasticSwitch::default();
        // On the grid of samples.
        let quiet = Span::from_millis(faults.healed.max(traffic::STOPPED).next_multiple_of(100));
        let judged = quiet + settling(&law.partition, law.partition_period);
        let mut text = file(seed, preset, scale, &fabric.text, &text(factor), judged);
        text += "  traffic:\n";
        text.extend(traffic);
        if !faults.steps.is_empty() {
            text += "  faults:\n";
            text.extend(faults.steps);
        }
        Self { seed, text }
    }

    /// The scenario file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The scenario.
    ///
    /// # Errors
    ///
    /// What was drawn is no sound scenario: a mistake in this crate.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        parsed(self.seed, &self.text, &[])
    }
}

fn parsed(seed: u64, text: &str, set: &[(String, String)]) -> Result<Scenario, Error> {
    let file = File::parse(&format!("seed {seed}"), text, set)?;
    let mut points = file.points()?;
    // Without a sweep there is one point.
    Ok(points.swap_remove(0))
}

/// All but traffic and faults; what is measured begins at `judged`.
fn file(
    seed: u64,
    preset: &str,
    scale: &str,
    topology: &str,
    tenants: &str,
    judged: Span,
) -> String {
    let ms = |span: Span| span.as_nanos() / 1_000_000;
    format!(
        "# Drawn by `weir swarm --seed {seed}`; `weir sim FILE --seed {seed}` plays the same run.\n\
         apiVersion: weir/v1alpha1\n\
         kind: Scenario\n\
         metadata: {{name: swarm-{seed}, title: What seed {seed} draws}}\n\
         spec:\n  \
           duration: {}ms\n  \
           warmup: {}ms\n  \
           scale: {scale}\n  \
           mechanisms: [\"elasticswitch:{preset}\"]\n  \
           topology:\n    {topology}\n  \
           tenants:\n{tenants}",
        ms(judged + JUDGED),
        ms(judged),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_model::scenario::{FaultKind, TrafficKind};

    #[test]
    fn every_world_is_sound_with_what_it_expects_and_the_same_again() {
        for seed in 0..100 {
            let world = World::new(seed);
            assert_eq!(world.text(), World::new(seed).text());
            let scenario = world.scenario().unwrap_or_else(|e| panic!("{e}\n{}", world.text()));
            weir_sim::scenario::check(&scenario).unwrap_or_else(|error| panic!("{seed}: {error}"));
            let promises = |m: &&weir_model::scenario::Mechanism| world.promises(m);
            let promised = scenario.mechanisms.iter().filter(promises).count();
            assert_eq!(scenario.expect.len(), promised, "{seed}");
            assert!((3..=6).contains(&scenario.topology.hosts.len()), "{seed}");
            let floors = |vm: &weir_model::scenario::Vm| (vm.host, vm.floor_out, vm.floor_in);
            for (host, out, into) in scenario.vms.iter().map(floors) {
                let line = scenario.topology.links.iter().find(|l| l.a == host || l.b == host);
                let line = line.expect("a host has a link").rate;
                assert!(out.max(into) <= line.scale(0.88), "{seed}: {out} {into} of {line}");
            }
        }
    }

    #[test]
    fn a_churning_world_never_talks_to_a_vm_that_is_away() {
        for seed in 0..10 {
            let world = World::churning(seed, Span::from_secs(3600));
            let scenario = world.scenario().unwrap_or_else(|error| panic!("{seed}: {error}"));
            let mut away = Vec::new();
            for fault in &scenario.faults {
                match fault.kind {
                    FaultKind::StopVm { vm } => away.push((vm, fault.at, scenario.duration)),
                    FaultKind::StartVm { vm } => {
                        let last = away.iter_mut().rev().find(|away| away.0 == vm);
                        last.expect("it was stopped before").2 = fault.at;
                    }
                    _ => panic!("{seed}: another fault"),
                }
            }
            assert!(!away.is_empty(), "{seed}: nobody leaves");
            for traffic in &scenario.traffic {
                let meets = |(vm, from, until): &(usize, Span, Span)| {
                    (*vm == traffic.from || *vm == traffic.to)
                        && traffic.start < *until
                        && traffic.stop > *from
                };
                assert!(!away.iter().any(meets), "{seed}: {traffic:?}");
            }
        }
    }

    #[test]
    fn every_seed_draws_a_sound_scenario_and_the_same_one_again() {
        for seed in 0..300 {
            let draft = Draft::new(seed);
            assert_eq!(draft.text, Draft::new(seed).text);
            let scenario =
                draft.scenario().unwrap_or_else(|error| panic!("{error}\n{}", draft.text));
            weir_sim::scenario::check(&scenario).unwrap_or_else(|error| panic!("{seed}: {error}"));
        }
    }

    /// A swarm that never draws something proves nothing about it.
    #[test]
    fn two_hundred_seeds_draw_every_kind_of_thing() {
        let mut seen = BTreeSet::new();
        let mut at_the_limit = 0;
        for seed in 1..=200 {
            let draft = Draft::new(seed);
            let scenario = draft.scenario().expect("sound");
            let topology = draft.text.split("topology:\n").nth(1).unwrap_or_default();
            seen.extend(topology.trim().split(':').next().map(str::to_owned));
            seen.insert(scenario.mechanisms[0].label.clone());
            seen.extend(scenario.faults.iter().map(|fault| fault.kind.name().to_owned()));
            for fault in &scenario.faults {
                if let FaultKind::Control(control) = &fault.kind {
                    let parts = [control.loss, control.duplicate, control.reorder];
                    for (part, name) in parts.iter().zip(["loss", "duplicate", "reorder"]) {
                        seen.extend((*part > 0.0).then(|| name.to_owned()));
                    }
                    seen.extend((control.delay > Span::ZERO).then(|| "delay".to_owned()));
                }
            }
            for traffic in &scenario.traffic {
                let kind = match &traffic.kind {
                    TrafficKind::Tcp { congestion, .. } => congestion.clone(),
                    TrafficKind::Udp { off: None, .. } => "constant".into(),
                    TrafficKind::Udp { .. } => "bursts".into(),
                    TrafficKind::Request(_) => "requests".into(),
                    TrafficKind::Reply { .. } => "replies".into(),
                    TrafficKind::Flows(_) => "flows".into(),
                    TrafficKind::Shuffle { .. } => "shuffle".into(),
                    TrafficKind::Memcached(_) => "memcached".into(),
                    TrafficKind::Exec(_) => "exec".into(),
                };
                seen.insert(kind);
                let vms = [&scenario.vms[traffic.from], &scenario.vms[traffic.to]];
                seen.extend((vms[0].tenant != vms[1].tenant).then(|| "between tenants".to_owned()));
                seen.extend((vms[0].host == vms[1].host).then(|| "within a host".to_owned()));
            }
            for vm in &scenario.vms {
                seen.extend(vm.cap_out.map(|_| "cap".to_owned()));
                seen.extend((vm.floor_out != vm.floor_in).then(|| "two floors".to_owned()));
                seen.extend(vm.floor_out.is_zero().then(|| "no floor".to_owned()));
            }
            at_the_limit += u32::from(is_at_the_limit(&draft.text));
        }
        for wanted in [
            "dumbbell",
            "single-switch",
            "two-tier",
            "leaf-spine",
            "fat-tree",
            "elasticswitch:steady",
            "elasticswitch:paper",
            "elasticswitch:steady-ecn",
            "elasticswitch:paper-ecn",
            "kill-agent",
            "start-agent",
            "restart-agent",
            "link-down",
            "link-up",
            "pause-host",
            "step-clock",
            "control",
            "loss",
            "duplicate",
            "reorder",
            "delay",
            "cubic",
            "reno",
            "dctcp",
            "constant",
            "bursts",
            "requests",
            "replies",
            "flows",
            "shuffle",
            "between tenants",
            "within a host",
            "cap",
            "two floors",
            "no floor",
        ] {
            assert!(seen.contains(wanted), "no seed draws {wanted}");
        }
        assert!((20..=120).contains(&at_the_limit), "{at_the_limit} of 200 at admission's limit");
    }

    /// Whether a headroom that is larger by a thousandth would be refused.
    fn is_at_the_limit(text: &str) -> bool {
        let more = [("headroom".to_owned(), "0.101".to_owned())];
        !File::parse("", text, &more).is_ok_and(|file| file.points().is_ok())
    }
}
