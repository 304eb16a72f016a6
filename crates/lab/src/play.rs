//! One run from the first namespace to the last.

use crate::agents::Agents;
use crate::attack::Attackers;
use crate::binding::Binding;
use crate::exec::Programs;
use crate::faults::{Faults, Stage};
use crate::plan::Plan;
use crate::ports::Counters;
use crate::relay::Relay;
use crate::traffic::{Tally, Traffic};
use crate::translation::Translators;
use crate::world::World;
use crate::{Error, Frame, Options, Phase, check, machine, sweep};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_dataplane::shaper::SendsByBursts;
use weir_model::observed::{Observed, ObservedFlow};
use weir_model::record::LinkRecord;
use weir_model::scenario::{Mechanism, Scenario};
use weir_units::Span;

/// Longest wait between two checks of `stop`.
const NAP: Duration = Duration::from_millis(20);
/// How often ports and CPUs are read. A reading of all ports takes milliseconds, and the kernel
/// counts a CPU's time in steps of ten.
const READING: Span = Span::from_millis(100);
/// The shortest sample: the traffic's own thread is woken no more exactly.
pub(crate) const SAMPLE_LEAST: Span = Span::from_millis(10);

/// Plays `scenario` with `mechanism` and measures.
///
/// `watch` is called while the world is built, and once per sample or every 100 ms where samples
/// are shorter. It should return soon. `stop` ends the run early with [`Error::Stopped`]. The
/// caller is root. The agents die with the calling thread, should it end before they do.
///
/// What fails once traffic flows ends the run: the record has what was measured until then, and
/// [`Observed::failure`] says why.
///
/// # Errors
///
/// Anything in [`Error`] that happens before traffic flows, and [`Error::Stopped`]; whatever had been set up is
/// undone.
pub fn play(
    scenario: &Scenario,
    mechanism: &Mechanism,
    options: &Options,
    watch: &mut dyn FnMut(&Frame),
    stop: &AtomicBool,
) -> Result<Observed, Error> {
    let begun = Instant::now();
    check::machine(scenario, mechanism, options)?;
    let plan = Plan::new(scenario)?;
    let _sends = SendsByBursts::set(options.htb_by_bursts)
        .map_err(Error::io("set htb_hysteresis, on which links of this lab depend"))?;
    let mut notes = sweep::sweep_stale();
    let run = sweep::new_run();
    let place = Place::new(options.run_dir.as_deref(), &run)?;

    // From here on the order of declaration matters: dropped are first the sockets, then the
    // agents, then the world.
    let is_bound = mechanism.bound.is_some();
    let mut world = build(scenario, &plan, (&run, is_bound), watch, stop)?;
    let relay = Relay::open(scenario, &world)?;
    let (mut agents, mut faults) = if mechanism.row.is_none() {
        (Agents::none(&run), Faults::of_vms(scenario))
    } else {
        watch(&frame(Phase::StartingAgents));
        let place = (run.as_str(), place.path.as_path());
        let agents = Agents::start(scenario, mechanism, options, &plan, &world, place, stop)?;
        (agents, Faults::new(scenario))
    };
    agents.check_translations()?;
    let bind = |bound| Binding::start(scenario, bound, &world, &agents, &place.path);
    let binding = mechanism.bound.map(bind).transpose()?;
    // Where there are agents, they translate.
    let is_own = check::translates(scenario, mechanism);
    let start = || Translators::start(scenario, mechanism.translation, &world);
    let mut translators = is_own.then(start).transpose()?;
    // Servers before sockets: clients connect before anything is played.
    let mut programs = Programs::open(scenario, &world, &place.path)?;
    let sockets = Traffic::open(scenario, &world)?;
    let lost_before = machine::lost_inside();
    let origin = Instant::now();
    let traffic = Traffic::play(scenario, sockets, origin)?;
    let attackers = Attackers::start(scenario, &world, origin)?;

    let mut sampler = Sampler::new(scenario, &traffic.tally);
    let cpu_before = cpu(&agents);
    let stage = Stage {
        scenario,
        plan: &plan,
        agents: &mut agents,
        world: &mut world,
        relay: relay.as_ref(),
        options,
    };
    let cast = (&mut translators, &mut programs, &traffic);
    let measured = measure(&mut sampler, stage, &mut faults, cast, origin, watch, stop);
    let mut failure = match measured {
        Err(Error::Stopped) => return Err(Error::Stopped),
        Err(error) => Some(crate::failure(Span::from(origin.elapsed()), error)),
        Ok(()) => agents.refusal(),
    };
    let cpu_after = cpu(&agents);
    if failure.is_some() {
        sampler.catch_up(&mut world);
    }
    let mut record = sampler.record();
    record.agents_cpu = cpu_after.agents - cpu_before.agents;
    record.user_cpu = cpu_after.user - cpu_before.user;
    let each = cpu_after.each.iter().zip(&cpu_before.each);
    record.agent_cpu = each.map(|(&after, &before)| after - before).collect();
    record.agent_memory = agents.memory();
    record.agent_pairs = agents.pairs();
    record.losses_reported = agents.losses();
    record.reports = agents.reports(origin);
    notes.extend(traffic.tally.notes());
    notes.append(&mut programs.notes);
    notes.extend(attackers.notes());
    if failure.is_none()
        && let Err(error) = agents.check_reloads()
    {
        failure = Some(crate::failure(Span::from(origin.elapsed()), error));
    }
    record.failure = failure;
    record.attacks = (!scenario.attacks.is_empty()).then(|| agents.attacked(attackers.sent()));
    record.control = relay.as_ref().and_then(|relay| agents.control(relay.delay()));
    notes.extend(translators.iter().flat_map(Translators::notes));
    notes.extend(agents.untranslated());
    notes.extend(world.notes());
    notes.extend(relay.as_ref().map(Relay::note));
    let lost = machine::lost_inside().saturating_sub(lost_before);
    if lost > 0 {
        notes.push(format!("this machine lost {lost} packets between devices, at no port"));
    }

    watch(&frame(Phase::TearingDown));
    drop(attackers);
    drop(traffic);
    drop(programs);
    drop(translators);
    if let Some(binding) = &binding {
        let (unbound, said) = binding.astray(scenario);
        record.unbound = unbound;
        notes.extend(said);
    }
    notes.extend(binding.map_or_else(Vec::new, Binding::finish));
    agents.stop();
    notes.append(&mut agents.notes);
    drop(relay);
    drop(world);
    record.notes = notes;
    record.wall = Span::from(begun.elapsed());
    Ok(record)
}

/// Plays faults and takes samples until the scenario's time is over, or something fails: what was
/// sampled until then stays in `sampler`.
fn measure(
    sampler: &mut Sampler<'_>,
    stage: Stage<'_>,
    faults: &mut Faults,
    (translators, programs, traffic): (&mut Option<Translators>, &mut Programs, &Traffic),
    origin: Instant,
    watch: &mut dyn FnMut(&Frame),
    stop: &AtomicBool,
) -> Result<(), Error> {
    let Stage { scenario, plan, agents, world, relay, options } = stage;
    sampler.start(world)?;
    programs.count(world, &traffic.tally)?;
    while !sampler.is_done() {
        programs.step(Span::from(origin.elapsed()))?;
        sampler.wait(origin, stop, &mut |now| {
            translators.as_mut().map_or(Ok(()), Translators::tend)?;
            let (agents, world) = (&mut *agents, &mut *world);
            faults.play(now, Stage { scenario, plan, agents, world, relay, options })
        })?;
        programs.count(world, &traffic.tally)?;
        sampler.sample(world, origin)?;
        if sampler.taken >= sampler.warmup && sampler.record.agent_memory_before.is_empty() {
            sampler.record.agent_memory_before = agents.memory();
        }
        if sampler.read == sampler.taken {
            watch(&sampler.frame());
            agents.check(options, Span::from(origin.elapsed()), stop)?;
        }
        assert!(traffic.is_alive(), "the traffic thread ends only when told to");
    }
    Ok(())
}

fn frame(phase: Phase) -> Frame<'static> {
    let at = Span::ZERO;
    Frame { phase, at, flows_bps: &[], links_bps: &[], drops: &[], marks: &[], idle: 1.0 }
}

/// Directory of a run's files. It is removed on drop unless the caller named it.
struct Place {
    path: PathBuf,
    keep: bool,
}

impl Place {
    fn new(named: Option<&Path>, run: &str) -> Result<Self, Error> {
        let path = named.map_or_else(|| sweep::directory(run), Path::to_path_buf);
        let doing = format!("make {}", path.display());
        fs::create_dir_all(&path).map_err(Error::io(doing))?;
        // Agents run with another working directory in mind: name files absolutely.
        let path = path.canonicalize().unwrap_or(path);
        Ok(Self { path, keep: named.is_some() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Builds the world on a thread of its own, because the builder changes its namespace.
fn build(
    scenario: &Scenario,
    plan: &Plan,
    run: (&str, bool),
    watch: &mut dyn FnMut(&Frame),
    stop: &AtomicBool,
) -> Result<World, Error> {
    let topology = &scenario.topology;
    let total = topology.hosts.len() + topology.switches.len() + scenario.vms.len();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let builder = scope.spawn(|| World::build(scenario, plan, run, &done, stop));
        while !builder.is_finished() {
            watch(&frame(Phase::Building { done: done.load(Ordering::Relaxed), total }));
            std::thread::sleep(NAP);
        }
        builder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// CPU time so far.
struct Cpu {
    agents: Span,
    each: Vec<Span>,
    user: Span,
}

fn cpu(agents: &Agents) -> Cpu {
    let own = getrusage(UsageWho::RUSAGE_SELF)
        .map_or(Span::ZERO, |usage| Span::from_micros(usage.user_time().num_microseconds() as u64));
    let (user, system) = agents.cpu();
    Cpu { agents: user + system, each: agents.cpu_each(), user: own + user }
}

/// Reads sockets at the end of each sample, and everything else every [`READING`], at the same
/// moments. Samples that are shorter share what passed a port since its last reading.
struct Sampler<'a> {
    tally: &'a Tally,
    sample: Span,
    samples: usize,
    warmup: usize,
    /// Samples that exist.
    taken: usize,
    /// Samples of which ports and CPUs are known.
    read: usize,
    counters: Counters,
    cpus: machine::Cpus,
    /// Octets by traffic entry at the last sample, and at the last reading.
    last: Vec<u64>,
    shown: Vec<u64>,
    at_warmup: Vec<Vec<u64>>,
    record: Observed,
    flows_bps: Vec<f64>,
    links_bps: Vec<f64>,
    drops: Vec<u64>,
    marks: Vec<u64>,
}

impl<'a> Sampler<'a> {
    fn new(scenario: &Scenario, tally: &'a Tally) -> Self {
        let sample = scenario.sample.max(SAMPLE_LEAST);
        let count = |span: Span| (span + Span::from_nanos(sample.as_nanos() / 2)).div_span(sample);
        let directions = 2 * scenario.topology.links.len();
        let flows = scenario.traffic.len();
        Self {
            tally,
            sample,
            samples: count(scenario.duration).max(1) as usize,
            warmup: count(scenario.warmup) as usize,
            taken: 0,
            read: 0,
            counters: Counters::new(directions),
            cpus: machine::Cpus::default(),
            last: vec![0; flows],
            shown: vec![0; flows],
            at_warmup: tally.received(),
            record: Observed {
                world: "lab",
                sample,
                flows: vec![ObservedFlow::default(); flows],
                links: vec![LinkRecord::default(); directions],
                ..Observed::default()
            },
            flows_bps: vec![0.0; flows],
            links_bps: vec![0.0; directions],
            drops: vec![0; directions],
            marks: vec![0; directions],
        }
    }

    /// Marks where counting begins.
    fn start(&mut self, world: &mut World) -> Result<(), Error> {
        self.cpus.read();
        world.read(&mut self.counters).map(drop)
    }

    fn is_done(&self) -> bool {
        self.taken >= self.samples
    }

    /// Waits for the end of the current sample. `meanwhile` is called now and then with the time
    /// since the start of traffic.
    fn wait(
        &self,
        origin: Instant,
        stop: &AtomicBool,
        meanwhile: &mut dyn FnMut(Span) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let until = origin + Duration::from(self.sample * (self.taken as u64 + 1));
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            meanwhile(Span::from(origin.elapsed()))?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NAP));
        }
    }

    /// Takes a sample. If whole samples were slept through, they share the octets of that time.
    fn sample(&mut self, world: &mut World, origin: Instant) -> Result<(), Error> {
        let received = self.tally.received();
        let now = Span::from(origin.elapsed());
        let ended = now.div_span(self.sample) as usize;
        let n = ended.clamp(self.taken + 1, self.samples) - self.taken;
        for (i, flow) in self.record.flows.iter_mut().enumerate() {
            let total = received[i].iter().sum();
            let octets = total - self.last[i];
            self.last[i] = total;
            share_out(&mut flow.octets, octets, n);
        }
        if (self.taken + 1..=self.taken + n).contains(&self.warmup) {
            self.at_warmup = received;
        }
        share_time(&mut self.record.ends, now, n);
        self.taken += n;
        let unread = self.taken - self.read;
        if self.sample * unread as u64 >= READING || self.is_done() {
            self.read_ports_and_cpus(world, unread)?;
        }
        Ok(())
    }

    /// Of the last `n` samples.
    fn read_ports_and_cpus(&mut self, world: &mut World, n: usize) -> Result<(), Error> {
        let passed = world.read(&mut self.counters)?;
        let cpus = self.cpus.read();
        let span = self.sample * n as u64;
        for (i, now) in self.last.iter().enumerate() {
            self.flows_bps[i] = bps(now - self.shown[i], span);
            self.shown[i] = *now;
        }
        for (i, link) in self.record.links.iter_mut().enumerate() {
            let passed = passed[i];
            self.links_bps[i] = bps(passed.octets, span);
            self.drops[i] = passed.drops;
            self.marks[i] = passed.marks;
            share_out(&mut link.octets, passed.octets, n);
            share_out(&mut link.drops, passed.drops, n);
            share_out(&mut link.marks, passed.marks, n);
            self.record.overtaken += passed.overtaken;
        }
        self.record.idle.extend(std::iter::repeat_n(cpus.idle, n));
        self.record.stolen.extend(std::iter::repeat_n(cpus.stolen, n));
        self.read = self.taken;
        Ok(())
    }

    /// Reads ports and CPUs of what was sampled since their last reading, as far as they can still be read.
    fn catch_up(&mut self, world: &mut World) {
        let unread = self.taken - self.read;
        if unread > 0 {
            let _ = self.read_ports_and_cpus(world, unread);
        }
    }

    fn frame(&self) -> Frame<'_> {
        Frame {
            phase: Phase::Running,
            at: self.sample * self.taken as u64,
            flows_bps: &self.flows_bps,
            links_bps: &self.links_bps,
            drops: &self.drops,
            marks: &self.marks,
            idle: self.record.idle.last().copied().unwrap_or(1.0),
        }
    }

    fn record(self) -> Observed {
        let mut record = self.record;
        let at_end = self.tally.received();
        for (flow, (then, now)) in record.flows.iter_mut().zip(self.at_warmup.iter().zip(&at_end)) {
            flow.connections =
                then.iter().zip(now).map(|(then, now)| now.saturating_sub(*then)).collect();
        }
        for (entry, flow) in record.flows.iter_mut().enumerate() {
            flow.work = self.tally.work(entry);
            flow.windows = self.tally.windows(entry);
        }
        record
    }
}

fn bps(octets: u64, span: Span) -> f64 {
    octets as f64 * 8.0 / span.as_secs_f64()
}

/// Appends `n` parts of `total`; the last one gets what does not divide.
fn share_out(series: &mut Vec<u64>, total: u64, n: usize) {
    let part = total / n as u64;
    series.extend(std::iter::repeat_n(part, n - 1));
    series.push(total - part * (n as u64 - 1));
}

/// Appends the ends of `n` samples of equal length, of which the last is `now`.
fn share_time(ends: &mut Vec<Span>, now: Span, n: usize) {
    let from = ends.last().copied().unwrap_or_default();
    let passed = now.as_nanos() - from.as_nanos();
    ends.extend((1..=n as u64).map(|k| from + Span::from_nanos(passed * k / n as u64)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_was_read_late_ends_when_it_was_read() {
        let ms = Span::from_millis;
        let mut ends = Vec::new();
        share_time(&mut ends, ms(130), 1);
        share_time(&mut ends, ms(430), 3);
        assert_eq!(ends, [ms(130), ms(230), ms(330), ms(430)]);
    }

    #[test]
    fn samples_that_were_slept_through_lose_no_octet() {
        let mut series = vec![7];
        share_out(&mut series, 11, 3);
        assert_eq!(series, [7, 3, 3, 5]);
        share_out(&mut series, 4, 1);
        assert_eq!(series.last(), Some(&4));
    }
}
