//! `faults:` as it is written: steps that break something, and mend it.

use super::{Word, word};
use crate::scenario::error::Error;
use crate::scenario::formula::Formula;
use crate::scenario::yaml::Field;

/// One step.
#[derive(Clone, Debug)]
pub(crate) struct FaultSpec {
    pub(crate) at: Formula,
    pub(crate) when: Option<Formula>,
    pub(crate) kind: FaultKindSpec,
}

#[derive(Clone, Debug)]
pub(crate) enum FaultKindSpec {
    Kill { hosts: Vec<Word>, guardian: bool },
    Start { hosts: Vec<Word> },
    Restart { hosts: Vec<Word> },
    StopVm { vms: Vec<Word> },
    StartVm { vms: Vec<Word> },
    BreakPort { vms: Vec<Word>, part: Word },
    Control(Box<ControlSpec>),
    Pull { links: Vec<Word> },
    Plug { links: Vec<Word> },
    Pause { hosts: Vec<Word>, lasts: Formula },
    Step { hosts: Vec<Word>, by: Formula },
}

/// What happens to control messages; what is left out does not.
#[derive(Clone, Debug)]
pub(crate) struct ControlSpec {
    pub(crate) whole: Word,
    pub(crate) hosts: Option<Vec<Word>>,
    pub(crate) loss: Option<Formula>,
    pub(crate) duplicate: Option<Formula>,
    pub(crate) reorder: Option<Formula>,
    pub(crate) delay: Option<Formula>,
    pub(crate) jitter: Option<Formula>,
    pub(crate) lasts: Option<Formula>,
}

const KINDS: [&str; 11] = [
    "kill-agent",
    "start-agent",
    "restart-agent",
    "stop-vm",
    "start-vm",
    "break-port",
    "control",
    "link-down",
    "link-up",
    "pause-host",
    "step-clock",
];

/// What stands beside a kind: its key, the kind, and how it is written.
const BESIDE: [(&str, &str, &str); 4] = [
    ("guardian", "kill-agent", "{kill-agent: left-0, guardian: true}"),
    ("part", "break-port", "{break-port: vm-0, part: redirection}"),
    ("for", "pause-host", "{pause-host: left-0, for: 500ms}"),
    ("by", "step-clock", "{step-clock: left-0, by: 2s}"),
];

pub(crate) fn fault(field: &Field<'_>) -> Result<FaultSpec, Error> {
    let mut keys = vec!["at", "when", "guardian", "part", "for", "by"];
    keys.extend(KINDS);
    let table = field.table(&keys)?;
    let (kind, body) = table.one_of(&KINDS)?;
    for (key, of, example) in BESIDE {
        if let (Some(beside), true) = (table.get(key), kind != of) {
            return Err(beside.error(
                format!("`{key}` beside `{kind}`"),
                format!("only `{of}` has one: `{example}`"),
            ));
        }
    }
    let kind = match kind {
        "kill-agent" => {
            let guardian = table.get("guardian").as_ref().map_or(Ok(false), truth)?;
            FaultKindSpec::Kill { hosts: words(&body)?, guardian }
        }
        "start-agent" => FaultKindSpec::Start { hosts: words(&body)? },
        "restart-agent" => FaultKindSpec::Restart { hosts: words(&body)? },
        "stop-vm" => FaultKindSpec::StopVm { vms: words(&body)? },
        "start-vm" => FaultKindSpec::StartVm { vms: words(&body)? },
        "break-port" => {
            let part = word(table.need("part", "redirection")?)?;
            FaultKindSpec::BreakPort { vms: words(&body)?, part }
        }
        "link-down" => FaultKindSpec::Pull { links: words(&body)? },
        "link-up" => FaultKindSpec::Plug { links: words(&body)? },
        "pause-host" => {
            let lasts = Formula::read(table.need("for", "500ms")?)?;
            FaultKindSpec::Pause { hosts: words(&body)?, lasts }
        }
        "step-clock" => {
            let by = Formula::read(table.need("by", "2s")?)?;
            FaultKindSpec::Step { hosts: words(&body)?, by }
        }
        _ => FaultKindSpec::Control(Box::new(control(&body)?)),
    };
    Ok(FaultSpec {
        at: Formula::read(table.need("at", "10s")?)?,
        when: table.get("when").map(Formula::read).transpose()?,
        kind,
    })
}

fn control(field: &Field<'_>) -> Result<ControlSpec, Error> {
    let table =
        field.table(&["hosts", "loss", "duplicate", "reorder", "delay", "jitter", "for"])?;
    let formula = |key: &str| table.get(key).map(Formula::read).transpose();
    Ok(ControlSpec {
        whole: super::whole(field),
        hosts: table.get("hosts").map(|f| words(&f)).transpose()?,
        loss: formula("loss")?,
        duplicate: formula("duplicate")?,
        reorder: formula("reorder")?,
        delay: formula("delay")?,
        jitter: formula("jitter")?,
        lasts: formula("for")?,
    })
}

fn words(field: &Field<'_>) -> Result<Vec<Word>, Error> {
    field.items()?.into_iter().map(word).collect()
}

fn truth(field: &Field<'_>) -> Result<bool, Error> {
    match field.text()? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(field.error(format!("`{other}` is neither true nor false"), "write `true`")),
    }
}
