//! Commands that play, report or ask; each ends in an exit status.

use crate::args::{self, quoted};
use crate::constants::Constants;
use crate::input;
use crate::lab::Lab;
use crate::live::Live;
use crate::output::{errln, out, outln};
use anyhow::{Context as _, Result, anyhow, bail};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_model::results::{About, Results};
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_study::experiment::{self, Played, Screen};
use weir_study::verdict::Outcome;
use weir_study::world::Cut;
use weir_study::{report, table};

/// What the shell sees after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// A run failed while it was measured; what was measured is kept.
pub(crate) const BROKE: u8 = 4;

/// A flag that Ctrl-C and a friendly kill set. A second one ends the process at once.
///
/// # Errors
/// The kernel refuses the handlers.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let again = i32::from(INTERRUPTED);
        signal_hook::flag::register_conditional_shutdown(signal, again, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// What is said at one Ctrl-C after the other; the one after the last of them ends the process at
/// once.
const STOPPING: [&str; 2] = [
    "stopping: removing what was set up… (this takes some seconds)",
    "still removing what was set up; once more ends at once and leaves the rest to `weir clean`",
];
const LEFT: &str = "ended at once: `weir clean` removes what was left behind";

/// A flag that the first Ctrl-C and friendly kill set, and which says so: what is torn down in
/// silence is interrupted again. Only the third ends the process at once, and says what removes the
/// rest.
///
/// # Errors
/// The kernel refuses the handlers.
pub(crate) fn stop_aloud(say: impl Fn(&str) + Send + 'static) -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let flag = Arc::clone(&stop);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        heed(signals.forever().map(drop), &flag, &say);
        std::process::exit(i32::from(INTERRUPTED));
    })?;
    Ok(stop)
}

/// Returns when the process should end at once.
fn heed(interrupts: impl Iterator<Item = ()>, stop: &AtomicBool, say: &dyn Fn(&str)) {
    let mut sentences = STOPPING.iter();
    for () in interrupts {
        stop.store(true, Ordering::Relaxed);
        match sentences.next() {
            Some(sentence) => say(sentence),
            None => return say(LEFT),
        }
    }
}

/// `weir lab`.
///
/// # Errors
/// Bad input, or a machine that cannot play it.
pub(crate) fn lab(args: &args::Lab) -> Result<u8> {
    let file = File::load(&args.file, &args.set)?;
    let mut points = file.points()?;
    file.check_presets()?;
    override_mechanisms(&mut points, &args.mechanisms)?;
    let repeats = match args.repeat {
        Some(repeats) => repeats,
        None => file.repeat()?,
    };
    let constants = Constants::new(&args.tuning.constants);
    constants.check(&points)?;
    constants.check_hosts(&points).with_context(|| args.file.display().to_string())?;
    args.out.as_deref().map_or(Ok(()), input::make_folder)?;
    args.journal.as_deref().map_or(Ok(()), input::make_folder)?;
    // Agents are started elsewhere.
    let journal = args.journal.as_deref().map(fs::canonicalize).transpose()?;
    let about = About { title: file.title().into(), command: command_line(args) };
    let mut screen = Live::new();
    let lab = Lab::new(constants)?.by_bursts(args.htb_by_bursts).recorded(journal);
    let say = screen.voice();
    let played = play(&points, repeats, about, lab, &mut screen, say)?;
    let outcome = Outcome::of(&played.results.runs, &played.results.verdicts);
    let code = conclude(played, outcome, args.out.as_deref(), args.json)?;
    if nothing_applies(&file, &points) {
        errln!(
            "No verdict: what {} expects of these mechanisms does not apply at any point that was \
             played.",
            args.file.display()
        );
    }
    Ok(code)
}

/// Whether the file expects something of a mechanism that is played, but nowhere that it is played:
/// a condition may be one that never holds.
pub(crate) fn nothing_applies(file: &File, points: &[Scenario]) -> bool {
    let mut played = points.iter().flat_map(|p| p.mechanisms.iter().map(move |m| (p, &m.label)));
    let applies = |(point, label): (&Scenario, &String)| {
        point.expect.iter().any(|e| e.mechanism.as_ref().is_none_or(|m| m == label))
    };
    let expected = played.clone().any(|(_, label)| file.expects_of(label));
    expected && !played.any(applies)
}

/// Plays in the lab; `say` speaks to the user beside the screen when the user interrupts.
///
/// # Errors
/// The kernel refuses the handlers of signals.
pub(crate) fn play(
    points: &[Scenario],
    repeats: u32,
    about: About,
    mut lab: Lab,
    screen: &mut dyn Screen,
    say: impl Fn(&str) + Send + 'static,
) -> Result<Played> {
    let stop = stop_aloud(say)?;
    Ok(experiment::play(&mut lab, points, repeats, about, screen, &stop))
}

/// [`finish`]es what was played, however little; then says what cut it short, if anything.
///
/// # Errors
/// The world failed, or a file cannot be written.
pub(crate) fn conclude(
    played: Played,
    outcome: Outcome,
    out: Option<&Path>,
    json: bool,
) -> Result<u8> {
    let Played { results, cut } = played;
    let whole = cut.is_none();
    let code = if whole || !results.runs.is_empty() {
        finish(&results, outcome, out, json)?
    } else {
        INTERRUPTED
    };
    match cut {
        None => Ok(code),
        Some(Cut::Stopped) => {
            errln!("stopped; everything that was set up is removed");
            Ok(INTERRUPTED)
        }
        Some(Cut::Failed(error)) => Err(error),
        Some(Cut::Broke(failure)) => {
            eprintln!("weir: the last run {}", weir_study::judge::failed(&failure));
            if !failure.log.is_empty() {
                eprintln!("the agent's log ends with:\n{}", failure.log);
            }
            eprintln!("what was measured until then is kept, and the run is invalid");
            Ok(BROKE)
        }
    }
}

/// Writes and prints what was found; `outcome` is how it ended.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn finish(
    results: &Results,
    outcome: Outcome,
    out: Option<&Path>,
    json: bool,
) -> Result<u8> {
    let text = table::text(results);
    if let Some(dir) = out {
        let page = report::keep(results, &text, dir)?;
        errln!("page: {}", page.display());
    }
    if json {
        crate::output::json(results)?;
    } else {
        out!("{text}")?;
    }
    if outcome == Outcome::Invalid && results.runs.iter().any(|run| run.world == "lab") {
        errln!("No verdict: stop what else runs on this machine, and play it again.");
    }
    Ok(outcome.code())
}

/// `--mechanism` replaces the file's list at every point.
pub(crate) fn override_mechanisms(points: &mut [Scenario], labels: &[String]) -> Result<()> {
    if labels.is_empty() {
        return Ok(());
    }
    let parse = |label: &String| {
        let known = |m: Mechanism| m.check_preset().map(|()| m);
        let parsed = Mechanism::parse(label).and_then(known);
        parsed.map_err(|(wrong, right)| anyhow!("--mechanism: {wrong}; {right}"))
    };
    let mechanisms = labels.iter().map(parse).collect::<Result<Vec<_>>>()?;
    for point in points {
        point.mechanisms.clone_from(&mechanisms);
    }
    Ok(())
}

/// What to type to play this again.
fn command_line(args: &args::Lab) -> String {
    let mut words = vec!["weir lab".into(), quoted(&args.file.display().to_string())];
    words.extend(args.mechanisms.iter().map(|m| format!("--mechanism {}", quoted(m))));
    words.extend(args.set.iter().map(|(k, v)| format!("--set {}", quoted(&format!("{k}={v}")))));
    words.extend(Constants::new(&args.tuning.constants).words());
    words.extend(args.htb_by_bursts.then(|| "--htb-by-bursts".into()));
    let journal = args.journal.as_ref().map(|dir| quoted(&dir.display().to_string()));
    words.extend(journal.map(|dir| format!("--journal {dir}")));
    words.extend(args.repeat.map(|n| format!("--repeat {n}")));
    words.extend(args.out.as_ref().map(|d| format!("--out {}", quoted(&d.display().to_string()))));
    words.join(" ")
}

/// `weir replay`: says what each segment held. Status 1 if one differs.
///
/// # Errors
/// A segment cannot be read, with the number of the record.
pub(crate) fn replay(path: &Path) -> Result<u8> {
    let mut said = Ok(());
    let replayed = weir_journal::replay(path, &mut |segment, found| {
        let lost = match found.lost {
            0 => String::new(),
            lost => format!("; {lost} records after them were dropped, for the disk was slow"),
        };
        let weir_journal::Replayed { records, calls, works, .. } = found;
        said = outln!(
            "{}: {records} records agree ({calls} calls, {works} orders){lost}",
            segment.display()
        );
    });
    said?;
    match replayed {
        Ok(()) => Ok(0),
        Err((segment, error @ weir_journal::Error::Differs { .. })) => {
            errln!("{}: {error}", segment.display());
            Ok(1)
        }
        Err((segment, error)) => Err(anyhow!("{}: {error}", segment.display())),
    }
}

/// `weir clean`.
///
/// # Errors
/// Not root: what others left behind could not be seen, let alone removed.
pub(crate) fn clean() -> Result<u8> {
    use std::os::unix::fs::MetadataExt as _;
    if fs::metadata("/proc/self")?.uid() != 0 {
        bail!("only root can see and remove what a lab left behind: run it with sudo");
    }
    let removed = weir_lab::sweep_stale();
    for sentence in &removed {
        outln!("{sentence}")?;
    }
    if removed.is_empty() {
        outln!("nothing was left behind")?;
    }
    Ok(0)
}

/// `weir remove`.
///
/// # Errors
///
/// An agent lives that no service manager ends, or the kernel refuses.
pub(crate) fn remove(config: &Path) -> Result<u8> {
    // Else it would be started again.
    if Path::new("/run/systemd/system").exists() {
        let mut end = std::process::Command::new("systemctl");
        let ended = end.args(["disable", "--now", "weir-agent"]).output()?;
        if ended.status.success() {
            outln!("the unit weir-agent is stopped, and does not start with the host")?;
        }
    }
    let told = weir_agent::remove(config)?;
    outln!(
        "{}",
        if told.had_state {
            "what an agent had left is removed"
        } else {
            "no agent had left anything"
        }
    )?;
    for sentence in &told.left {
        outln!("STILL THERE: {sentence}")?;
    }
    if told.left.is_empty() {
        outln!("nothing of Weir is in the kernel of this host")?;
        return Ok(0);
    }
    outln!("an agent of another name may run here: name its file with --config")?;
    Ok(1)
}

/// `weir agent` and `weir agent join`.
pub(crate) fn agent(agent: &args::Agent) -> Result<u8> {
    if let Some(args::AgentCommand::Join { config, controller, token, ca }) = &agent.join {
        let mut typed = String::new();
        let token = match token.as_str() {
            "-" => {
                std::io::stdin().read_line(&mut typed)?;
                typed.trim()
            }
            token => token,
        };
        let controller = controller.as_deref();
        let joining = weir_agent::Joining { config, controller, token, ca };
        outln!("{}", weir_agent::join(&joining)?)?;
        return Ok(0);
    }
    crate::log_to_stderr();
    let config = agent.config.as_deref().expect("clap asks for it");
    weir_agent::run(config, agent.journal.as_deref()).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::results::Run;

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let args = args::Lab {
            file: "my scenario.yaml".into(),
            mechanisms: vec!["none".into()],
            set: vec![("duration".into(), "10s".into()), ("floor".into(), "0.4 * core".into())],
            tuning: args::worlds::Tuning { constants: vec![("alpha".into(), "0.5".into())] },
            htb_by_bursts: true,
            journal: Some("bug reports".into()),
            repeat: Some(3),
            out: None,
            json: true,
        };
        assert_eq!(
            command_line(&args),
            "weir lab 'my scenario.yaml' --mechanism none --set duration=10s \
             --set 'floor=0.4 * core' --constant alpha=0.5 --htb-by-bursts --journal 'bug reports' \
             --repeat 3"
        );
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_run_that_failed_has_its_own_status_and_its_results_are_written() {
        let out = std::env::temp_dir().join(format!("weir-cli-broke-{}", std::process::id()));
        let run = Run { world: "lab".into(), reasons: vec!["failed".into()], ..Run::default() };
        let results = Results { runs: vec![run], ..Results::default() };
        let cut = Some(Cut::Broke(weir_model::record::Failure::default()));
        let outcome = Outcome::of(&results.runs, &[]);
        let code =
            conclude(Played { results, cut }, outcome, Some(&out), true).expect("is written");
        let kept = fs::read_to_string(out.join(weir_study::folder::RESULTS)).expect("results");
        fs::remove_dir_all(out).expect("was made");
        assert_eq!(code, BROKE);
        assert!(kept.contains("\"valid\":false"), "{kept}");
    }

    #[test]
    fn the_first_interrupt_stops_and_says_so_and_only_the_third_ends_at_once() {
        let stop = AtomicBool::new(false);
        let said = std::cell::RefCell::new(Vec::new());
        let note =
            |text: &str| said.borrow_mut().push((text.to_owned(), stop.load(Ordering::Relaxed)));
        let mut left = 5;
        let interrupts = std::iter::from_fn(|| {
            left -= 1;
            (left > 0).then_some(())
        });
        heed(interrupts, &stop, &note);
        assert_eq!(left, 2, "three were heeded");
        let said = said.into_inner();
        assert!(said.iter().all(|(_, stopping)| *stopping));
        let said: Vec<&str> = said.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(said, [STOPPING[0], STOPPING[1], LEFT]);
        assert!(STOPPING[0].contains("removing what was set up"), "{}", STOPPING[0]);
        assert!(STOPPING[1].contains("weir clean") && LEFT.contains("weir clean"));
    }

    #[test]
    fn an_unknown_mechanism_is_named() {
        let mut points = [weir_study::testing::dumbbell(1)];
        let error = override_mechanisms(&mut points, &["elastic".into()]).expect_err("unknown");
        assert!(error.to_string().contains("unknown mechanism `elastic`"), "{error}");
        let preset = "elasticswitch:stedy".to_string();
        let error = override_mechanisms(&mut points, &[preset]).expect_err("unknown").to_string();
        assert!(error.contains("`elasticswitch:stedy`"), "{error}");
        assert!(error.contains("`steady`") && error.contains("paper"), "{error}");
        override_mechanisms(&mut points, &["none".into()]).expect("known");
        assert_eq!(points[0].mechanisms.len(), 1);
    }

    #[test]
    fn expectations_that_apply_nowhere_are_told_from_those_nobody_asked_for() {
        let silent = |mechanism: &str, when: &str| {
            let text = format!(
                "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: \
                 {{params: {{n: 1}}, duration: 9s, topology: {{single-switch: {{hosts: 2, link: \
                 1G}}}}, tenants: [{{name: a, vms: [{{name: v, host: host-0}}]}}], mechanisms: \
                 [none, elasticswitch], expect: [{{mechanism: elasticswitch, metric: jain, \
                 at_least: 0.9, when: {when}}}]}}}}"
            );
            let file = File::parse("t", &text, &[]).expect("a sound file");
            let mut points = file.points().expect("a sound scenario");
            override_mechanisms(&mut points, &[mechanism.into()]).expect("known");
            nothing_applies(&file, &points)
        };
        assert!(silent("elasticswitch", "n > 1"), "never judged");
        assert!(!silent("elasticswitch", "n == 1"), "judged");
        assert!(!silent("none", "n > 1"), "nothing was asked of it");
    }
}
