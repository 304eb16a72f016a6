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
    Control(Box<ControlSpec>),
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

const KINDS: [&str; 6] =
    ["kill-agent", "start-agent", "restart-agent", "stop-vm", "start-vm", "control"];

pub(crate) fn fault(field: &Field<'_>) -> Result<FaultSpec, Error> {
    let table = field.table(&[
        "at",
        "when",
        "guardian",
        "kill-agent",
        "start-agent",
        "restart-agent",
        "stop-vm",
        "start-vm",
        "control",
    ])?;
    let (kind, body) = table.one_of(&KINDS)?;
    let guardian = table.get("guardian");
    if let (Some(guardian), false) = (&guardian, kind == "kill-agent") {
        return Err(guardian.error(
            format!("`guardian` beside `{kind}`"),
            "only `kill-agent` has one: `{kill-agent: left-0, guardian: true}`",
        ));
    }
    let kind = match kind {
        "kill-agent" => {
            let guardian = guardian.as_ref().map_or(Ok(false), truth)?;
            FaultKindSpec::Kill { hosts: words(&body)?, guardian }
        }
        "start-agent" => FaultKindSpec::Start { hosts: words(&body)? },
        "restart-agent" => FaultKindSpec::Restart { hosts: words(&body)? },
        "stop-vm" => FaultKindSpec::StopVm { vms: words(&body)? },
        "start-vm" => FaultKindSpec::StartVm { vms: words(&body)? },
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
