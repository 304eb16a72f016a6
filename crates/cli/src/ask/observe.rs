//! `weir observe`: what happens at a running agent.

use super::path;
use crate::args::Socket;
use crate::output::outln;
use anyhow::{Result, bail};
use std::time::Duration;
use weir_agent::client;
use weir_model::moment::Moment;
use weir_model::status::{EventTold, Events, Reply, Request};
use weir_units::show;

/// How often the agent is asked. It remembers some thousand events.
const EVERY: Duration = Duration::from_millis(200);

/// Which events are shown.
pub(crate) struct Wanted<'a> {
    pub(crate) tenant: Option<&'a str>,
    pub(crate) vms: &'a [String],
    pub(crate) what: &'a [String],
}

impl Wanted<'_> {
    fn has(&self, event: &EventTold) -> bool {
        let is_named = |vm: &String| *vm == event.from || *vm == event.to;
        self.tenant.is_none_or(|tenant| tenant == event.tenant)
            && (self.vms.is_empty() || self.vms.iter().any(is_named))
            && (self.what.is_empty() || self.what.contains(&event.what))
    }
}

/// Shows events until Ctrl-C.
///
/// # Errors
/// No agent answers, or it ends.
#[expect(clippy::disallowed_methods, reason = "a command waits for the world")]
pub(crate) fn run(socket: &Socket, wanted: &Wanted<'_>, history: bool) -> Result<u8> {
    let path = path(socket)?;
    let ask = |after| match client::ask(&path, &Request::Events { after })? {
        Reply::Events(events) => Ok(events),
        Reply::Error { message } => bail!("{message}"),
        _ => bail!("{}: the agent is of a version without events; restart it", path.display()),
    };
    let mut last = if history { 0 } else { ask(None)?.last };
    loop {
        let Events { last: now, lost, events } = ask(Some(last))?;
        if lost > 0 {
            eprintln!("{lost} events are not known any more");
        }
        for event in events.iter().filter(|event| wanted.has(event)) {
            match socket.json {
                true => outln!("{}", serde_json::to_string(event)?)?,
                false => outln!("{}", line(event))?,
            }
        }
        last = now;
        if events.is_empty() {
            std::thread::sleep(EVERY);
        }
    }
}

fn line(event: &EventTold) -> String {
    let rates = match event.floor_bps {
        0 => String::new(),
        floor => {
            let rate = show::rate(event.rate_bps as f64);
            format!(" (floor {}, may send {rate})", show::rate(floor as f64))
        }
    };
    let EventTold { from, to, says, .. } = event;
    format!("{}  {from} → {to}  {says}{rates}", Moment::from_millis(event.at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_and_filters_take_what_they_name() {
        let event = EventTold {
            number: 7,
            at_ms: 1_795_592_795_000,
            what: "phase".into(),
            tenant: "gold".into(),
            from: "a".into(),
            to: "b".into(),
            says: "goes from holding to regaining".into(),
            floor_bps: 20_000_000,
            rate_bps: 31_900_000,
        };
        let said = "2026-11-25T07:46:35.000Z  a → b  goes from holding to regaining (floor 20.0 Mb/s, may send 31.9 Mb/s)";
        assert_eq!(line(&event), said);
        let has = |tenant: Option<&str>, vms: &[&str], what: &[&str]| {
            let [vms, what] =
                [vms, what].map(|all| all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
            Wanted { tenant, vms: &vms, what: &what }.has(&event)
        };
        assert!(has(None, &[], &[]) && has(Some("gold"), &["b", "x"], &["phase"]));
        assert!(
            !has(Some("blue"), &[], &[]) && !has(None, &["x"], &[]) && !has(None, &[], &["began"])
        );
    }
}
