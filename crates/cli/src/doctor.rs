//! `weir doctor`: what this host can do, what is missing, what that costs, and how to get it.
//!
//! Problem   "Never silently unenforced": an operator who installs an agent must know what it will
//!           not see.
//! Approach  The data plane tries and looks ([`weir_dataplane::probe`]); this only asks about the
//!           right things, and shows: a table first, then advice for whatever is not fine.
//! Promises  Exit status 0 means that floors can be enforced on this host, 1 that they cannot, or
//!           not for all of its VMs; the last line says which.
//! Not here  Looking: see `weir-dataplane`.

use crate::args;
use crate::output::{out, outln};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::PathBuf;
use weir_dataplane::probe::{self, Finding, Roots, State};
use weir_model::agent::AgentConfig;
use weir_study::table::Grid;

/// Something cannot be enforced.
const CANNOT: u8 = 1;

/// What was found about one side of the host.
struct Section {
    title: &'static str,
    findings: Vec<Finding>,
}

/// `weir doctor`.
///
/// # Errors
///
/// None but of writing: what is wrong with the host is an answer.
pub(crate) fn doctor(args: &args::Doctor) -> Result<u8> {
    let sections = examine(args);
    if args.json {
        outln!("{}", serde_json::to_string(&as_json(&sections))?)?;
    } else {
        out!("{}", text(&sections))?;
    }
    Ok(if can_enforce(&sections) { 0 } else { CANNOT })
}

/// What `weir doctor --json` says, for a file to be sent.
///
/// # Errors
///
/// None, as above.
pub(crate) fn json(config: Option<PathBuf>) -> Result<String> {
    let args = args::Doctor { config, bpffs: None, json: true };
    Ok(serde_json::to_string_pretty(&as_json(&examine(&args)))?)
}

fn examine(args: &args::Doctor) -> Vec<Section> {
    let roots = Roots::default();
    let mut sections = Vec::new();
    let config = args.config.as_deref().map(weir_agent::check);
    let bpffs = match (&args.bpffs, &config) {
        (Some(bpffs), _) => bpffs.clone(),
        (None, Some(Ok(config))) => config.bpffs.clone(),
        _ => "/sys/fs/bpf".into(),
    };
    sections.push(Section { title: "kernel", findings: probe::kernel(&roots, &bpffs) });
    let mut uplink = None;
    match config {
        Some(Ok(config)) => {
            sections.push(Section { title: "devices", findings: devices(&roots, &config) });
            if let Some(file) = &args.config {
                let findings = ways(weir_agent::try_ways(file));
                sections.push(Section { title: "ways to hosts", findings });
            }
            uplink = Some(config.uplink.interface);
        }
        Some(Err(error)) => {
            let findings = vec![misconfigured(&format!("{error:#}"))];
            sections.push(Section { title: "devices", findings });
        }
        None => {}
    }
    let findings = probe::bypasses(&roots, uplink.as_deref());
    sections.push(Section { title: "ways past the kernel", findings });
    let path = std::env::var_os("PATH");
    sections.push(Section { title: "tools", findings: probe::tools(path.as_deref()) });
    sections
}

fn devices(roots: &Roots, config: &AgentConfig) -> Vec<Finding> {
    let ports: Vec<(&str, &str)> =
        config.vms.iter().map(|vm| (vm.name.as_str(), vm.port.as_str())).collect();
    let names: Vec<&str> = ports.iter().map(|(_, port)| *port).collect();
    let uplink = &config.uplink;
    let mut findings = probe::uplink(roots, &uplink.interface, uplink.rate.0, &names);
    let own = uplink.host_floor.map(|floor| floor.0);
    findings.push(probe::host_traffic(&uplink.interface, own));
    findings.extend(probe::ports(roots, &ports, &uplink.tunnels));
    findings
}

/// Whether the code points of tenants survive the ways to other hosts.
fn ways(tried: Result<Vec<weir_agent::Way>>) -> Vec<Finding> {
    let finding = |what: String, state, found: String, costs: &str, remedy: &str| Finding {
        what,
        state,
        found,
        costs: costs.into(),
        remedy: remedy.into(),
    };
    let tried = match tried {
        Ok(tried) => tried,
        Err(error) => {
            let (what, why) = ("code points on the way".into(), format!("{error:#}"));
            return vec![finding(what, State::Unknown, why, "", "run it as root")];
        }
    };
    let of = |way: weir_agent::Way| {
        let what = format!("code points to {}", way.host);
        if let Some((sent, came)) = way.changed.first_key_value() {
            let others = way.changed.len() - 1;
            let more =
                if others > 0 { format!(", and {others} more changed") } else { String::new() };
            let found = format!("{sent} came back as {came}{more}");
            let costs = "tenants with these code points are in the shared queue there, and nothing limits \
                         them to their floors";
            let remedy = "let switches and tunnels on the way trust code points, or leave these out of \
                          `code_points`; `weir verify` says in which direction they change";
            return finding(what, State::Unenforced, found, costs, remedy);
        }
        if !way.silent.is_empty() {
            let found = "it does not answer echo requests (ICMP)".into();
            return finding(what, State::Unknown, found, "", "let them pass, and see again");
        }
        let found = format!("all {} came back as they left", way.survived.len());
        finding(what, State::Fine, found, "", "")
    };
    tried.into_iter().map(of).collect()
}

fn misconfigured(why: &str) -> Finding {
    Finding {
        what: "configuration".into(),
        state: State::Cannot,
        found: why.into(),
        costs: "no agent starts with it, and its devices were not looked at".into(),
        remedy: "correct it, and see again".into(),
    }
}

fn can_enforce(sections: &[Section]) -> bool {
    sections.iter().flat_map(|s| &s.findings).all(|f| f.state.allows())
}

fn text(sections: &[Section]) -> String {
    let mut grid = Grid::new(&["", "what", "state", "found"], 4);
    for section in sections {
        for (row, finding) in section.findings.iter().enumerate() {
            let title = if row == 0 { section.title } else { "" };
            grid.rows.push(vec![
                title.into(),
                finding.what.clone(),
                finding.state.name().into(),
                shortened(&finding.found),
            ]);
        }
    }
    let mut text = format!("{}\n", grid.table());
    for finding in sections.iter().flat_map(|s| &s.findings) {
        if finding.state != State::Fine {
            text.push_str(&advice(finding));
        }
    }
    text.push_str(&verdict(sections));
    text
}

/// One line of a table; the whole text follows with the advice.
pub(crate) fn shortened(found: &str) -> String {
    const MOST: usize = 72;
    let line = found.lines().next().unwrap_or_default();
    if line.chars().count() <= MOST && line.len() == found.len() {
        return line.into();
    }
    line.chars().take(MOST - 1).collect::<String>() + "…"
}

fn advice(finding: &Finding) -> String {
    let mut text = format!("\n{}: {}: {}\n", finding.what, finding.state.name(), finding.found);
    for (label, words) in [("costs", &finding.costs), ("remedy", &finding.remedy)] {
        if !words.is_empty() {
            text.push_str(&format!("  {label}: {words}\n"));
        }
    }
    text
}

fn verdict(sections: &[Section]) -> String {
    let of = |state: State| {
        let all = sections.iter().flat_map(|s| &s.findings).filter(move |f| f.state == state);
        all.map(|f| f.what.as_str()).collect::<Vec<_>>()
    };
    let (cannot, unenforced) = (of(State::Cannot), of(State::Unenforced));
    let mut text = String::from("\n");
    if cannot.is_empty() && unenforced.is_empty() {
        text.push_str("Floors can be enforced on this host.\n");
    }
    if !cannot.is_empty() {
        text.push_str(&format!(
            "Floors CANNOT be enforced on this host, because of: {}.\n",
            cannot.join(", ")
        ));
    }
    if !unenforced.is_empty() {
        text.push_str(&format!("Unenforced: {}.\n", unenforced.join(", ")));
    }
    let unknown = of(State::Unknown);
    if !unknown.is_empty() {
        text.push_str(&format!("Not found out: {}.\n", unknown.join(", ")));
    }
    text
}

fn as_json(sections: &[Section]) -> Value {
    let finding = |title: &'static str, f: &Finding| {
        json!({
            "section": title,
            "what": f.what,
            "state": f.state.name(),
            "found": f.found,
            "costs": f.costs,
            "remedy": f.remedy,
        })
    };
    let findings: Vec<Value> =
        sections.iter().flat_map(|s| s.findings.iter().map(move |f| finding(s.title, f))).collect();
    json!({ "can_enforce": can_enforce(sections), "findings": findings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(what: &str, state: State) -> Finding {
        Finding {
            what: what.into(),
            state,
            found: "absent".into(),
            costs: "something".into(),
            remedy: "get it".into(),
        }
    }

    fn sections(findings: Vec<Finding>) -> Vec<Section> {
        vec![Section { title: "kernel", findings }]
    }

    #[test]
    fn what_costs_leaves_a_host_able_and_what_is_unenforced_does_not() {
        let able = sections(vec![finding("fq", State::Costs), finding("clock", State::Unknown)]);
        assert!(can_enforce(&able));
        let shown = text(&able);
        assert!(
            shown.ends_with("can be enforced on this host.\nNot found out: clock.\n"),
            "{shown}"
        );
        let unable = sections(vec![finding("port p0 of a", State::Unenforced)]);
        assert!(!can_enforce(&unable));
        assert!(text(&unable).ends_with("\nUnenforced: port p0 of a.\n"));
    }

    #[test]
    fn advice_is_given_for_what_is_not_fine_only() {
        let shown = text(&sections(vec![
            finding("HTB", State::Cannot),
            Finding { costs: String::new(), remedy: String::new(), ..finding("BTF", State::Fine) },
        ]));
        assert!(
            shown.contains("HTB: cannot: absent\n  costs: something\n  remedy: get it"),
            "{shown}"
        );
        assert!(!shown.contains("BTF: fine: absent"), "{shown}");
        assert!(shown.contains("CANNOT be enforced on this host, because of: HTB."), "{shown}");
    }

    #[test]
    fn the_json_has_all_of_it() {
        let value = as_json(&sections(vec![finding("HTB", State::Cannot)]));
        assert_eq!(value["can_enforce"], false);
        assert_eq!(value["findings"][0]["state"], "cannot");
        assert_eq!(value["findings"][0]["remedy"], "get it");
    }

    #[test]
    fn a_configuration_that_is_not_there_is_a_finding() {
        let args =
            args::Doctor { config: Some("/nonexistent.toml".into()), bpffs: None, json: true };
        let sections = examine(&args);
        let found = sections.iter().flat_map(|s| &s.findings).find(|f| f.what == "configuration");
        assert!(found.is_some_and(|f| f.found.contains("/nonexistent.toml")), "named");
        assert!(!can_enforce(&sections));
    }

    #[test]
    fn a_long_finding_is_one_line_of_the_table() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&"x".repeat(100));
        assert!(long.ends_with('…') && long.chars().count() == 72);
        assert_eq!(shortened("one\ntwo"), "one…");
    }
}
