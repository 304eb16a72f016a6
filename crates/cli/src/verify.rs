//! `weir verify`: whether the ways to other hosts and back keep what floors need.
//!
//! Problem   An operator who has installed Weir on twenty hosts wants to know, before any tenant does,
//!           whether the network between them breaks it.
//! Approach  `weir_agent::verify` measures and judges; this asks one host after the other, and shows: a
//!           table for each, then advice for whatever is not fine.
//! Promises  Exit status 0 only if all that Weir needs was seen to survive, on all ways and in both directions.
//! Not here  Measuring: see `weir_agent::verify`.

use crate::args::{self, VerifyCommand};
use crate::commands::{INTERRUPTED, stop_flag};
use crate::doctor::shortened;
use crate::output::{errln, out, outln};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, stderr};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_agent::verify::{Asking, Report, State, Verifier};
use weir_study::table::Grid;

/// Something that Weir needs does not survive, or was not seen.
const BROKEN: u8 = 1;

/// `weir verify`.
///
/// # Errors
///
/// A mistake in the configuration, no right to raw sockets, or no host to ask. What is wrong with a way is
/// an answer.
pub(crate) fn verify(args: &args::Verify) -> Result<u8> {
    let stop = stop_flag()?;
    if let Some(VerifyCommand::Serve { listen, config, lasts }) = &args.serve {
        let say = &mut |text: &str| errln!("{text}");
        weir_agent::verify::serve(*listen, config.as_deref(), *lasts, &stop, say)?;
        return Ok(0);
    }
    let verifier = Verifier::new(args.config.as_deref())?;
    let hosts = if args.hosts.is_empty() { verifier.others() } else { args.hosts.clone() };
    anyhow::ensure!(
        !hosts.is_empty(),
        "no host to ask: the directory lists no other one; name an address"
    );
    let asking = Asking { rate: args.rate, lasts: args.time, outer: args.outer };
    let (mut reports, mut steps) = (Vec::new(), Steps::new());
    let mut failed = Vec::new();
    for (n, at) in hosts.iter().enumerate() {
        let of = (hosts.len() > 1).then(|| format!("{}/{} ", n + 1, hosts.len()));
        let of = of.unwrap_or_default();
        let say = &mut |step: &str| steps.say(&format!("{of}{at}: {step}"));
        match verifier.verify(*at, &asking, &stop, say) {
            Ok(report) => {
                steps.clear();
                if !args.json {
                    out!("{}", text(&report))?;
                }
                reports.push(report);
            }
            Err(_) if stop.load(Ordering::Relaxed) => break,
            Err(error) => {
                steps.clear();
                errln!("weir: {at}: {error:#}");
                failed.push(*at);
            }
        }
    }
    let is_stopped = stop.load(Ordering::Relaxed);
    let holds = !is_stopped && failed.is_empty() && reports.iter().all(Report::holds);
    if args.json {
        outln!("{}", serde_json::to_string(&as_json(&reports, &failed, holds))?)?;
    } else if hosts.len() > 1 {
        out!("{}", summary(&reports, &failed, hosts.len()))?;
    }
    Ok(match holds {
        _ if is_stopped => INTERRUPTED,
        true => 0,
        false => BROKEN,
    })
}

/// The present step on stderr: in place on a terminal, else a line each.
struct Steps(Option<ProgressBar>);

impl Steps {
    fn new() -> Self {
        if !stderr().is_terminal() {
            return Self(None);
        }
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("a constant template");
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(Some(bar))
    }

    fn say(&mut self, step: &str) {
        match &self.0 {
            Some(bar) => bar.set_message(step.to_owned()),
            None => errln!("{step}"),
        }
    }

    /// Before something else is printed.
    fn clear(&mut self) {
        if let Some(bar) = &self.0 {
            bar.set_message("");
            bar.suspend(|| ());
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn text(report: &Report) -> String {
    let mut grid = Grid::new(&["what", "state", "there", "back"], 4);
    for row in &report.rows {
        let (there, back) = (shortened(&row.there), shortened(&row.back));
        grid.rows.push(vec![row.what.clone(), row.state.name().into(), there, back]);
    }
    let mut text = format!("{} ({})\n{}\n", report.host, report.at, grid.table());
    for row in report.rows.iter().filter(|row| row.state != State::Fine) {
        text.push_str(&format!(
            "\n{}: {}: there {}; back {}\n",
            row.what,
            row.state.name(),
            row.there,
            row.back
        ));
        text.push_str(&format!("  costs: {}\n  remedy: {}\n", row.costs, row.remedy));
    }
    text.push('\n');
    report.notes.iter().for_each(|note| text.push_str(&format!("Note: {note}\n")));
    text + &verdict(report)
}

fn verdict(report: &Report) -> String {
    let of = |state: State| {
        let rows = report.rows.iter().filter(move |row| row.state == state);
        rows.map(|row| row.what.as_str()).collect::<Vec<_>>().join(", ")
    };
    if report.holds() {
        return format!("The ways to {} and back keep what Weir needs.\n\n", report.host);
    }
    let mut text = String::new();
    for (words, rows) in [("FAILS", of(State::Fails)), ("Not seen", of(State::Unknown))] {
        if !rows.is_empty() {
            text.push_str(&format!("{words}, to {} or back: {rows}.\n", report.host));
        }
    }
    text + "\n"
}

fn summary(reports: &[Report], failed: &[SocketAddr], hosts: usize) -> String {
    let broken = reports.iter().filter(|report| !report.holds()).map(|report| report.host.clone());
    let broken: Vec<String> = broken.chain(failed.iter().map(SocketAddr::to_string)).collect();
    let asked = reports.len() + failed.len();
    let kept = format!("{} of {hosts} hosts: all that Weir needs survives.", asked - broken.len());
    match broken.is_empty() {
        true => format!("{kept}\n"),
        false => format!("{kept} Not: {}.\n", broken.join(", ")),
    }
}

fn as_json(reports: &[Report], failed: &[SocketAddr], holds: bool) -> Value {
    let row = |row: &weir_agent::verify::Row| {
        json!({
            "what": row.what,
            "state": row.state.name(),
            "there": row.there,
            "back": row.back,
            "costs": row.costs,
            "remedy": row.remedy,
        })
    };
    let host = |report: &Report| {
        let rows: Vec<Value> = report.rows.iter().map(row).collect();
        json!({
            "host": report.host,
            "at": report.at,
            "holds": report.holds(),
            "rows": rows,
            "notes": report.notes,
        })
    };
    let hosts: Vec<Value> = reports.iter().map(host).collect();
    json!({ "holds": holds, "hosts": hosts, "failed": failed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agent::verify::Row;

    fn report(state: State) -> Report {
        let row = Row {
            what: "DSCP".into(),
            state,
            there: "10 → 0".into(),
            back: "all 64 as sent".into(),
            costs: "a queue".into(),
            remedy: "trust code points".into(),
        };
        let at = "10.0.0.2:7001".parse().expect("an address");
        Report { host: "h1".into(), at, rows: vec![row], notes: vec!["A note.".into()] }
    }

    #[test]
    fn what_fails_is_named_with_its_direction_and_its_remedy() {
        let shown = text(&report(State::Fails));
        let advice =
            "DSCP: FAILS: there 10 → 0; back all 64 as sent\n  costs: a queue\n  remedy: trust";
        assert!(shown.contains(advice), "{shown}");
        assert!(shown.ends_with("Note: A note.\nFAILS, to h1 or back: DSCP.\n\n"), "{shown}");
        let fine = text(&report(State::Costs));
        assert!(fine.contains("The ways to h1 and back keep what Weir needs."), "{fine}");
        let unknown = text(&report(State::Unknown));
        assert!(unknown.contains("Not seen, to h1 or back: DSCP."), "{unknown}");
    }

    #[test]
    fn a_summary_counts_hosts_and_names_those_that_are_broken() {
        let reports = [report(State::Fine), report(State::Fails)];
        let failed = ["10.0.0.9:7001".parse().expect("an address")];
        let text = summary(&reports, &failed, 3);
        assert_eq!(text, "1 of 3 hosts: all that Weir needs survives. Not: h1, 10.0.0.9:7001.\n");
        let json = as_json(&reports, &failed, false);
        assert_eq!(json["hosts"][1]["rows"][0]["state"], "FAILS");
        assert_eq!(json["hosts"][0]["holds"], true);
        assert_eq!((&json["holds"], &json["failed"][0]), (&json!(false), &json!("10.0.0.9:7001")));
    }
}
