//! `weir switch`, and `weir plan --switch`: the queues of one switch.

use crate::args::{Form, OneSwitch, Switch};
use crate::input;
use crate::output::outln;
use anyhow::{Context as _, Result, anyhow, bail};
use std::path::Path;
use weir_core::binding::switch::SwitchConfig;
use weir_switch::Outcome;
use weir_switch::file::{self, AnySwitch, Switches};

/// `weir switch`: exit status 1 if the switch is not, or could not be, as wanted.
pub(crate) fn switch(args: &Switch) -> Result<u8> {
    match args {
        Switch::Read(one) => read(one),
        Switch::Plan { switch, wanted, form: Form::Text } => {
            plan(&switch.name, &switch.switches, Some(wanted))
        }
        Switch::Plan { switch, wanted, form } => forms(switch, wanted, *form),
        Switch::Apply { switch, wanted } => {
            let wanted = queues(wanted)?;
            told(open(&switch.name, &switch.switches)?.driver().apply(&wanted))
        }
        Switch::Rollback(one) => told(open(&one.name, &one.switches)?.driver().rollback()),
    }
}

fn open(name: &str, switches: &Path) -> Result<AnySwitch> {
    let text = input::read(switches)?;
    let at = || switches.display();
    let switches = Switches::parse(&text).map_err(|error| anyhow!("{}: {error}", at()))?;
    switches.open(name).map_err(|error| anyhow!("{}: {error}", at()))
}

fn queues(wanted: &Path) -> Result<SwitchConfig> {
    file::wanted(&input::read(wanted)?).map_err(|error| anyhow!("{}: {error}", wanted.display()))
}

fn read(one: &OneSwitch) -> Result<u8> {
    let found = open(&one.name, &one.switches)?.driver().read()?;
    for owner in &found.owners {
        outln!("# owner: {owner}")?;
    }
    for other in &found.others {
        outln!("# left alone: {other}")?;
    }
    outln!("{}", file::show(&found.config).trim_end())?;
    Ok(0)
}

/// `weir plan --switch`: exit status 1 if the switch cannot hold what is wanted.
pub(crate) fn plan(name: &str, switches: &Path, wanted: Option<&Path>) -> Result<u8> {
    let wanted = queues(wanted.context("--switch needs --wanted FILE")?)?;
    let plan = open(name, switches)?.driver().plan(&wanted)?;
    outln!("{}", plan.to_string().trim_end())?;
    let can = plan.fit.is_whole() && plan.barred.is_empty() && plan.owners.is_empty();
    Ok(u8::from(!can))
}

fn forms(one: &OneSwitch, wanted: &Path, form: Form) -> Result<u8> {
    let wanted = queues(wanted)?;
    let Some(forms) = open(&one.name, &one.switches)?.forms(&wanted)? else {
        bail!("{} has no form of its own: only SONiC has", one.name);
    };
    let text = match form {
        Form::Full => serde_json::to_string_pretty(&forms.full)?,
        Form::Patch | Form::Text => serde_json::to_string_pretty(&forms.patch)?,
    };
    outln!("{text}")?;
    Ok(0)
}

fn told(outcome: Outcome) -> Result<u8> {
    let (changes, word) = match outcome {
        Outcome::Applied(changes) => (changes, "applied: the switch was read back and is so"),
        Outcome::Written(changes) => {
            (changes, "written: its database is so; whether its hardware is cannot be read")
        }
        Outcome::Failed(failed) => {
            outln!("failed: {failed}")?;
            return Ok(1);
        }
    };
    for change in &changes {
        outln!("{change}")?;
    }
    outln!("{word}")?;
    Ok(0)
}
