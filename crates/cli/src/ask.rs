//! `weir top` and `weir explain`: questions to a running agent.

pub(crate) mod observe;
mod screen;

use crate::args::Socket;
use crate::output::{out, outln};
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use weir_agent::client;
use weir_model::status::{
    Budget, BudgetClass, Explain, External, Key, LeftAlone, Pair, Renamed, Reply, Request,
    TenantUse, Top, Translation, Unenforced,
};
use weir_model::text::show_size;
use weir_study::table::Grid;
use weir_units::Bytes;
use weir_units::show;

/// Names shown in one line of a list; `--json` has all.
const LISTED_MOST: usize = 8;
/// A broken floor is shown for so long, seconds.
const LATELY: f64 = 60.0;

/// `weir top`: until `q` on a terminal, elsewhere once.
///
/// # Errors
/// No agent answers.
pub(crate) fn top(socket: &Socket, once: bool) -> Result<u8> {
    if once || socket.json || !stdout().is_terminal() || !stdin().is_terminal() {
        return answer(socket, &Request::Top);
    }
    screen::show(&path(socket)?)
}

/// `weir explain A B`.
///
/// # Errors
/// No agent answers, or it does not know the pair.
pub(crate) fn explain(socket: &Socket, from: &str, to: &str) -> Result<u8> {
    answer(socket, &Request::Explain { from: from.into(), to: to.into() })
}

fn answer(socket: &Socket, request: &Request) -> Result<u8> {
    let reply = client::ask(&path(socket)?, request)?;
    if socket.json {
        outln!("{}", serde_json::to_string(&reply)?)?;
        return Ok(if matches!(reply, Reply::Error { .. }) { 2 } else { 0 });
    }
    match reply {
        Reply::Top(top) => out!("{}", top_text(&top))?,
        Reply::Explain(explain) => out!("{}", explain_text(&explain))?,
        Reply::Done { message } => outln!("{message}")?,
        Reply::Events(_) => bail!("the agent answers another question than it was asked"),
        Reply::Error { message } => bail!("{message}"),
    }
    Ok(0)
}

fn path(socket: &Socket) -> Result<PathBuf> {
    if let Some(instance) = &socket.instance {
        return Ok(client::socket_path(&socket.run_dir, instance));
    }
    let instances = client::instances(&socket.run_dir);
    match instances.as_slice() {
        [one] => Ok(client::socket_path(&socket.run_dir, one)),
        [] => bail!(
            "no agent runs here (nothing in {}): start one with `weir agent --config FILE`",
            socket.run_dir.display()
        ),
        several => {
            bail!("several agents run here: choose one with --instance: {}", several.join(", "))
        }
    }
}

fn top_text(top: &Top) -> String {
    let header = ["from", "to", "side", "floor", "rate", "measured", "lost", "marked", "phase"];
    let has_hoses = top.pairs.iter().any(|pair| pair.hose.is_some());
    let header: Vec<&str> = header.into_iter().chain(has_hoses.then_some("hose")).collect();
    let mut grid = Grid::new(&header, 3);
    for pair in &top.pairs {
        let rate = |bps: u64| if bps == 0 { "–".into() } else { show::rate(bps as f64) };
        let mut row = vec![
            pair.from.clone(),
            pair.to.clone(),
            pair.side.clone(),
            rate(pair.floor_bps),
            rate(pair.rate_bps),
            show::rate(pair.measured_bps as f64),
            pair.lost.to_string(),
            pair.marked.to_string(),
            pair.long_path.map_or(pair.phase.clone(), |long| format!("{}, {long}", pair.phase)),
        ];
        if has_hoses {
            row.push(pair.hose.clone().unwrap_or_else(|| "–".into()));
        }
        grid.rows.push(row);
    }
    let text = format!(
        "{}: {}, up {:.0} s, {:.2} s of CPU, {} pairs\n{}\n",
        top.host,
        top.mechanism,
        top.up_s,
        top.cpu_s,
        top.pairs.len(),
        grid.table()
    );
    text + &note_text(top)
}

/// What is said beside the table of pairs.
fn note_text(top: &Top) -> String {
    let mut text = String::new();
    if top.observing {
        text.push_str(
            "OBSERVING: nothing is enforced; rates are what would be set. Packets carry no numbers, so \
             losses do not show, and ceilings are those of pairs whose losses nobody sees\n",
        );
    }
    if let Some(over) = &top.overbooked {
        text.push_str(&format!(
            "overbooked: the pairs' floors sum to {}, the uplink holds {} of floors: each is scaled to \
             {:.1} %\n",
            show::rate(over.floors_bps as f64),
            show::rate(over.budget_bps as f64),
            over.factor() * 100.0
        ));
    }
    for gone in &top.gone {
        let is = if gone.why.is_some() { "not guarded" } else { "gone" };
        let (vm, what) = (&gone.vm, gone.what());
        text.push_str(&format!("{vm} is {is}: {what}; no floor of it is enforced\n"));
    }
    text.push_str(&floors_text(top));
    text.push_str(&unenforced_text(&top.pairs));
    for external in &top.externals {
        text.push_str(&external_text(external));
    }
    for tenant in &top.tenants {
        text.push_str(&tenant_text(tenant));
    }
    for Unenforced { vm, why } in &top.unenforced {
        text.push_str(&format!(
            "UNENFORCED {vm}: {why}; under HTB its pairs get no more than their floors meanwhile\n"
        ));
    }
    if top.guardian_down {
        text.push_str(
            "the guardian does not run (its reason is in the agent's log): if the agent dies, too, \
             pairs are held to their floors by dropping\n",
        );
    }
    for Renamed { configured, now, taken } in &top.renamed {
        let other =
            if *taken { ", and another interface has that name, which is not guarded" } else { "" };
        text.push_str(&format!("{configured} is called {now} by now and stays enforced{other}\n"));
    }
    for meter in &top.meters {
        let rate = |bps: u64| show::rate(bps as f64);
        text.push_str(&format!(
            "{} may receive {} (floor {}): tells {}, gets {}\n",
            meter.vm,
            rate(meter.capacity_bps),
            rate(meter.floor_bps),
            rate(meter.advertised_bps),
            rate(meter.received_bps)
        ));
    }
    for translation in &top.translations {
        text.push_str(&format!("{}\n", translation_text(translation)));
    }
    for budget in &top.budgets {
        text.push_str(&format!("{}\n", budget_text(budget)));
    }
    if !top.keys.is_empty() {
        text.push_str(&format!("{}\n", keys_text(&top.keys)));
    }
    if !top.keyless.is_empty() {
        let (some, more) = (&top.keyless[..top.keyless.len().min(LISTED_MOST)], top.keyless.len());
        text.push_str(&format!(
            "NO KEYS for {} of the hosts ({}): floors are not agreed with them; `weir keys make`\n",
            more,
            some.join(", ")
        ));
    }
    let told: Vec<String> =
        top.counters.iter().filter(|c| c.1 > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if !told.is_empty() {
        text.push_str(&format!("{}\n", told.join(", ")));
    }
    text
}

/// Which part of the time floors were held, and those that were broken lately.
fn floors_text(top: &Top) -> String {
    // Each window is one of a sender's floor and one of a receiver's.
    let sent = top.floors.iter().filter(|floor| floor.out);
    let (windows, held) =
        sent.fold((0, 0), |sum, floor| (sum.0 + floor.windows, sum.1 + floor.held));
    let mut text = String::new();
    if windows > 0 {
        let percent = (held as f64 / windows as f64 * 1e4).floor() / 1e2;
        text.push_str(&format!(
            "floors were held in {percent:.2} % of the {windows} s in which a pair wanted more than it had\n"
        ));
    }
    for broken in top.broken.iter().filter(|broken| broken.ended_s < LATELY) {
        text.push_str(&format!(
            "FLOOR BROKEN {} → {}: {:.2} of it for {:.0} s, until {:.0} s ago: {}\n",
            broken.from, broken.to, broken.part, broken.lasted_s, broken.ended_s, broken.cause
        ));
    }
    text
}

/// A line for each VM that has pairs whose losses do not show: they do not borrow.
fn unenforced_text(pairs: &[Pair]) -> String {
    let reasons = [
        ("unseen", "leaves this host where nothing numbers it (a tunnel behind its port?)"),
        ("misdirected", "does not arrive where it is addressed: look at its guest"),
    ];
    let mut text = String::new();
    for (phase, why) in reasons {
        let is_one = |pair: &&Pair| pair.phase == phase && pair.side != "receive";
        let mut to: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for pair in pairs.iter().filter(is_one) {
            to.entry(&pair.from).or_default().push(&pair.to);
        }
        for (from, to) in to {
            let shown = to[..to.len().min(LISTED_MOST)].join(", ");
            text.push_str(&format!(
                "Unenforced: what {from} sends to {shown} {why}; losses do not show, so it borrows nothing\n"
            ));
        }
    }
    text
}

/// A line for a tenant's queue on switches and its use of the network card.
fn tenant_text(told: &TenantUse) -> String {
    let TenantUse { tenant, code_point, why, sent, received } = told;
    if *code_point == 0 && *sent == 0 && *received == 0 {
        return String::new();
    }
    let size = |octets: u64| show_size(Bytes::new(octets));
    let queue = match code_point {
        0 => "the shared queue".to_owned(),
        point => format!("queues of its own, code point {point}"),
    };
    let why = why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let (sent, received) = (size(*sent), size(*received));
    format!("tenant {tenant}: {queue}{why}; by the network card sent {sent}, got {received}\n")
}

/// Lines for what a VM exchanges with places that no directory lists, and for what it must not
/// send.
fn external_text(told: &External) -> String {
    let External { vm, .. } = told;
    let mut text = String::new();
    if told.sent > 0 || told.received > 0 {
        let (rate, size) = (|bps: u64| show::rate(bps as f64), |n: u64| show_size(Bytes::new(n)));
        text = format!(
            "{vm} to places that no directory lists: floor {}, ceiling {}; sent {}, got {}{}\n",
            rate(told.floor_bps),
            rate(told.ceiling_bps),
            size(told.sent),
            size(told.received),
            behind(&[(told.dropped, "packets dropped: its queue was full")])
        );
    }
    let wrong = [
        (told.unpaired, "packets to no place (not IP, or to itself, its link or everybody)"),
        (told.rogue, "packets that speak for a router or a DHCP server"),
        (told.misdirected, "packets to a VM's address at another's hardware address"),
    ];
    for (count, what) in wrong.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{vm}: {count} {what} were dropped: look at its guest\n"));
    }
    text
}

/// One line for a VM's translation.
fn translation_text(told: &Translation) -> String {
    let Translation { vm, to, .. } = told;
    if let Some(why) = &told.refused {
        return format!("{vm} is not translated to {to}: {why}");
    }
    let LeftAlone {
        peer_without_ecn,
        guest_with_ecn,
        unclear,
        no_place,
        unknown_segments,
        malformed_segments,
    } = told.left_alone;
    let counts = [
        (told.connections, "connections"),
        (told.agreed, "with ECN in its place"),
        (told.found_deaf, "found deaf to ECN"),
        (told.edited, "segments edited"),
        (told.reports, "reports heard"),
        (told.marks_hidden, "marks hidden"),
        (told.unedited, "segments that could not be edited"),
        (told.asked_by_peers, "begun by peers"),
        (told.policed, "segments dropped beyond the window"),
        (told.fragments, "fragments dropped (policed)"),
        (told.repeated_syns, "SYNs within a connection ignored (policed)"),
        (peer_without_ecn, "left alone for a peer without ECN"),
        (guest_with_ecn, "left alone for a guest with ECN"),
        (unclear, "left alone for unclear SYNs"),
        (no_place, "left alone for want of a place"),
        (unknown_segments, "segments of unknown connections"),
        (malformed_segments, "malformed"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let to = if to == "none" { "what they began with, new ones are not" } else { to.as_str() };
    let counts = if counts.is_empty() { "nothing yet".into() } else { counts.join(", ") };
    format!("{vm}'s connections are translated to {to}: {counts}")
}

/// What was counted, if it was, behind the rest of a line.
fn behind(counts: &[(u64, &str)]) -> String {
    let counted = counts.iter().filter(|(count, _)| *count > 0);
    counted.map(|(count, what)| format!("; {count} {what}")).collect()
}

/// One line for a VM's window budget.
fn budget_text(told: &Budget) -> String {
    let Budget { vm, total, flows_most, .. } = told;
    if let Some(why) = &told.refused {
        return format!("{vm} has no window budget: {why}");
    }
    let live: u64 = told.classes.iter().map(|class| u64::from(class.live)).sum();
    let size = |octets: u64| show_size(Bytes::new(octets));
    let class = |class: &BudgetClass| {
        format!("{} {} with {} each", class.live, class.name, size(class.share.into()))
    };
    let classes: Vec<String> = told.classes.iter().map(class).collect();
    let (total, classes) = (size(*total), classes.join(", "));
    let counts = [
        (told.lowered, "windows lowered"),
        (told.no_place, "connections not bounded for want of a place"),
        (told.unedited, "segments that could not be edited"),
    ];
    let counts = behind(&counts);
    format!(
        "{vm}'s windows are {total} together, {live} of at most {flows_most} connections: {classes}{counts}"
    )
}

/// `keys: 2 signs for 3 (seen 90), 1 accepted from 3 (seen 7)`: peers, and messages.
fn keys_text(keys: &[Key]) -> String {
    let one = |key: &Key| {
        let (signs, accepted) = (key.signs, key.accepted);
        let role = match signs {
            0 => format!("accepted from {accepted}"),
            _ if signs == accepted => format!("signs for {signs}"),
            _ => format!("signs for {signs}, accepted from {accepted}"),
        };
        let shared = if key.shared { ", on ALL hosts" } else { "" };
        format!("{} {role} (seen {}{shared})", key.id, key.seen)
    };
    format!("keys: {}", keys.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn explain_text(explain: &Explain) -> String {
    let pair = &explain.pair;
    let mut text = format!(
        "{} → {}: floor {}, rate {}, measured {}\n",
        pair.from,
        pair.to,
        show::rate(pair.floor_bps as f64),
        show::rate(pair.rate_bps as f64),
        show::rate(pair.measured_bps as f64)
    );
    for (index, reason) in explain.reasons.iter().enumerate() {
        text.push_str(&format!("{:>3}. {reason}\n", index + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::status::{Meter, Overbooked};

    fn socket(instance: Option<&str>) -> Socket {
        let run_dir = "/nonexistent".into();
        Socket { instance: instance.map(String::from), run_dir, json: false }
    }

    #[test]
    fn a_missing_agent_is_an_error_that_says_what_to_do() {
        for socket in [socket(None), socket(Some("a"))] {
            let error = format!("{:#}", top(&socket, true).expect_err("no agent runs"));
            assert!(error.contains("weir agent --config"), "{error}");
        }
    }

    #[test]
    fn an_overbooked_uplink_is_told_with_the_factor() {
        let over = Overbooked { floors_bps: 360_000_000, budget_bps: 195_000_000 };
        let text = top_text(&Top { overbooked: Some(over), ..Top::default() });
        let line = "overbooked: the pairs' floors sum to 360 Mb/s, the uplink holds 195 Mb/s \
                    of floors: each is scaled to 54.2 %\n";
        assert!(text.contains(line), "{text}");
        assert!(!top_text(&Top::default()).contains("overbooked"));
    }

    #[test]
    fn pairs_whose_losses_nobody_sees_are_told_as_unenforced_with_the_reason() {
        let pair = |to: &str, phase: &str| Pair {
            from: "a".into(),
            to: to.into(),
            side: "send".into(),
            phase: phase.into(),
            ..Pair::default()
        };
        let pairs = vec![pair("b", "unseen"), pair("c", "unseen"), pair("d", "holding")];
        let text = top_text(&Top { pairs, ..Top::default() });
        let line = "Unenforced: what a sends to b, c leaves this host where nothing numbers it (a tunnel \
                    behind its port?); losses do not show, so it borrows nothing\n";
        assert!(text.contains(line), "{text}");
        let text = top_text(&Top { pairs: vec![pair("b", "misdirected")], ..Top::default() });
        assert!(text.contains("to b does not arrive where it is addressed"), "{text}");
    }

    #[test]
    fn external_traffic_and_what_must_not_be_sent_are_told_where_there_is_any() {
        let quiet = External { vm: "q".into(), floor_bps: 5_000_000, ..External::default() };
        let a = External {
            vm: "a".into(),
            floor_bps: 5_000_000,
            ceiling_bps: 20_000_000,
            sent: 30_000,
            received: 2_000,
            dropped: 7,
            unpaired: 99,
            ..External::default()
        };
        let text = top_text(&Top { externals: vec![quiet, a], ..Top::default() });
        let lines = "a to places that no directory lists: floor 5.00 Mb/s, ceiling 20.0 Mb/s; sent 30kB, \
                     got 2kB; 7 packets dropped: its queue was full\na: 99 packets to no place (not IP, or to \
                     itself, its link or everybody) were dropped: look at its guest\n";
        assert!(text.contains(lines), "{text}");
        assert!(!text.contains("q to"), "{text}");
    }

    #[test]
    fn a_tenants_queue_and_use_are_told() {
        let own = TenantUse {
            tenant: "red".into(),
            code_point: 10,
            why: Some("score 3".into()),
            sent: 30_000,
            received: 2_000,
        };
        let shared = TenantUse { tenant: "blue".into(), sent: 1_000, ..TenantUse::default() };
        let idle = TenantUse { tenant: "green".into(), ..TenantUse::default() };
        let text = top_text(&Top { tenants: vec![own, shared, idle], ..Top::default() });
        let lines = "tenant red: queues of its own, code point 10 (score 3); by the network card sent \
                     30kB, got 2kB\ntenant blue: the shared queue; by the network card sent 1kB, got 0B\n";
        assert!(text.contains(lines), "{text}");
        assert!(!text.contains("green"), "{text}");
    }

    #[test]
    fn what_a_vm_may_receive_is_told_beside_what_senders_are_told() {
        let meter = Meter {
            vm: "b".into(),
            floor_bps: 60_000_000,
            capacity_bps: 120_000_000,
            advertised_bps: 40_000_000,
            received_bps: 119_000_000,
        };
        let text = top_text(&Top { meters: vec![meter], ..Top::default() });
        let line = "b may receive 120 Mb/s (floor 60.0 Mb/s): tells 40.0 Mb/s, gets 119 Mb/s\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_budget_is_told_with_who_lives_on_it_or_why_it_is_refused() {
        let class = |name: &str, weight, live, share| BudgetClass {
            name: name.into(),
            weight,
            live,
            share,
        };
        let one = Budget {
            vm: "a".into(),
            total: 90_000,
            flows_most: 5,
            classes: vec![class("bulk", 1, 3, 10_000), class("urgent", 3, 2, 30_000)],
            connections: 20,
            lowered: 99,
            no_place: 7,
            ..Budget::default()
        };
        let refused = Budget { refused: Some("too small".into()), ..one.clone() };
        let text = top_text(&Top { budgets: vec![one, refused], ..Top::default() });
        let line = "a's windows are 90kB together, 5 of at most 5 connections: 3 bulk with 10kB each, 2 \
                    urgent with 30kB each; 99 windows lowered; 7 connections not bounded for want of a place\na has no window budget: too small\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_translation_is_told_with_what_it_did_or_why_it_is_refused() {
        let alone = LeftAlone { guest_with_ecn: 2, ..LeftAlone::default() };
        let one = Translation {
            vm: "a".into(),
            to: "dctcp".into(),
            connections: 9,
            agreed: 7,
            marks_hidden: 31,
            left_alone: alone,
            ..Translation::default()
        };
        let refused = Translation { refused: Some("no kernel".into()), ..one.clone() };
        let text = top_text(&Top { translations: vec![one, refused], ..Top::default() });
        let line = "a's connections are translated to dctcp: 9 connections, 7 with ECN in its place, 31 marks \
                    hidden, 2 left alone for a guest with ECN\na is not translated to dctcp: no kernel\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn hosts_without_keys_are_named() {
        let keyless = vec!["h7".to_owned(), "h8".to_owned()];
        let text = top_text(&Top { keyless, ..Top::default() });
        assert!(text.contains("NO KEYS for 2 of the hosts (h7, h8)"), "{text}");
    }

    #[test]
    fn counters_that_are_zero_are_not_shown() {
        let pair =
            Pair { from: "a".into(), to: "b".into(), floor_bps: 90_000_000, ..Pair::default() };
        let counters = vec![("forged".into(), 0), ("sent".into(), 7)];
        let keys = vec![
            Key { id: 2, shared: false, signs: 3, accepted: 3, seen: 90 },
            Key { id: 1, shared: true, signs: 0, accepted: 3, seen: 7 },
        ];
        let text = top_text(&Top { pairs: vec![pair.clone()], counters, keys, ..Top::default() });
        assert!(
            text.contains(
                "keys: 2 signs for 3 (seen 90), 1 accepted from 3 (seen 7, on ALL hosts)"
            ),
            "{text}"
        );
        assert!(text.contains("90.0 Mb/s") && text.contains("sent 7"), "{text}");
        assert!(!text.contains("forged"), "{text}");
        let text = explain_text(&Explain { pair, reasons: vec!["the hose is split".into()] });
        assert!(text.contains("a → b") && text.contains("1. the hose is split"), "{text}");
    }
}
