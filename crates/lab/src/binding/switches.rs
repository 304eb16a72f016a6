//! The lab's switches: one thread in the namespace of each, with the driver of Linux boxes.

use super::Heard;
use crate::{Error, netns};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::binding::MostWeight;
use weir_core::binding::control::{Answer, Ticket};
use weir_core::binding::switch::{PortName, SwitchConfig};
use weir_core::ledger::SwitchId;
use weir_dataplane::astray::Counter;
use weir_switch::linux::{self, LinuxTc, PortSettings, Settings};
use weir_switch::{Driver, Managed, Outcome, Owner, Saves};
use weir_units::{Bytes, Rate, SortedMap, SortedSet};

/// How long a call may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What a switch is asked.
pub(super) enum Asked {
    Read(Ticket),
    Apply(Ticket, SwitchConfig),
}

/// A switch before it is opened.
pub(super) struct Box {
    pub(super) id: SwitchId,
    pub(super) name: String,
    pub(super) namespace: PathBuf,
    pub(super) ports: SortedMap<PortName, Rate>,
    pub(super) queues: u8,
    pub(super) most_weight: MostWeight,
    pub(super) buffer: Bytes,
    /// All VMs' hardware addresses with their tenants, and the tenants on whose trees a port is.
    pub(super) vms: Vec<([u8; 6], u32)>,
    pub(super) trees: SortedMap<u32, SortedSet<u32>>,
}

/// A switch that answers what it is asked until its sender is dropped.
pub(super) struct Opened {
    pub(super) ask: Sender<Asked>,
    pub(super) thread: JoinHandle<()>,
    pub(super) counter: Counter,
}

/// Opens a switch, gives it `first`, and counts what goes astray there.
pub(super) fn open(
    switch: Box,
    first: SwitchConfig,
    folder: &Path,
    heard: Sender<Heard>,
) -> Result<Opened, Error> {
    let (ask, asked) = channel();
    let (ready, is_ready) = channel();
    let folder = folder.to_owned();
    let thread = std::thread::Builder::new()
        .name("switch".into())
        .spawn(move || match begin(&switch, &first, &folder) {
            Ok((mut driver, counter)) => {
                let _ = ready.send(Ok(counter));
                answer(&switch, &mut driver, &asked, &heard);
            }
            Err(error) => drop(ready.send(Err(error))),
        })
        .map_err(Error::io("start a thread for a switch"))?;
    let died = || Error::Switch { switch: "a switch".into(), why: "its thread ended".into() };
    let counter = is_ready.recv().map_err(|_| died())??;
    Ok(Opened { ask, thread, counter })
}

fn begin(
    switch: &Box,
    first: &SwitchConfig,
    folder: &Path,
) -> Result<(Managed<LinuxTc>, Counter), Error> {
    let error = |why: String| Error::Switch { switch: switch.name.clone(), why };
    netns::enter(&switch.namespace)?;
    let port = |(name, rate): (&PortName, &Rate)| {
        (name.clone(), PortSettings { rate: *rate, queues: switch.queues })
    };
    let mut settings = Settings::new(switch.ports.iter().map(port).collect());
    (settings.most_weight, settings.buffer) = (switch.most_weight, switch.buffer);
    let backend = LinuxTc::open(settings).map_err(|e| error(e.to_string()))?;
    let owner = Owner::new("lab").map_err(error)?;
    let mut driver = Managed::new(backend, owner, Saves::new(folder, &switch.name), LIMIT);
    match driver.apply(first) {
        Outcome::Failed(failed) => return Err(error(failed.to_string())),
        Outcome::Applied(_) | Outcome::Written(_) => {}
    }
    let counter = Counter::open(&switch.vms, &switch.trees, linux::HANDLE);
    Ok((driver, counter.map_err(Error::Dataplane)?))
}

fn answer(
    switch: &Box,
    driver: &mut Managed<LinuxTc>,
    asked: &Receiver<Asked>,
    heard: &Sender<Heard>,
) {
    for asked in asked {
        let failed = |why: String| Heard::Trouble(format!("switch {}: {why}", switch.name));
        let (ticket, answer) = match asked {
            Asked::Read(ticket) => match driver.read() {
                Ok(found) => (ticket, Ok(Answer::Found(found.config))),
                Err(error) => (ticket, Err(error)),
            },
            Asked::Apply(ticket, config) => match driver.apply(&config) {
                Outcome::Failed(error) => (ticket, Err(error)),
                Outcome::Applied(_) | Outcome::Written(_) => (ticket, Ok(Answer::Applied)),
            },
        };
        let answer = answer.unwrap_or_else(|error| {
            let _ = heard.send(failed(error.to_string()));
            Answer::Failed
        });
        if heard.send(Heard::Answer(switch.id, ticket, answer)).is_err() {
            return;
        }
    }
}
