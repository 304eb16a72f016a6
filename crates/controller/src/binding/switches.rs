//! One thread per switch, with its driver.
//!
//! Problem   A switch may take seconds, or hang. Neither other switches nor the loop may wait for it.
//! Approach  A thread opens the switch at its first question, and answers one question after the other. A
//!           question to a thread that is still busy is answered at once: it failed.
//! Promises  Nothing is written while this process does not lead. A thread ends when it is dropped and
//!           its last question is answered.

use super::network::Described;
use crate::store::Standing;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use weir_core::binding::control::{Answer, Ticket};
use weir_core::binding::switch::SwitchConfig;
use weir_core::ledger::SwitchId;
use weir_model::objects::SwitchSpec;
use weir_switch::object::{self, Around};
use weir_switch::{Driver, Found, Outcome, Owner, Saves};

/// How long one call to a switch may take.
pub const LIMIT: Duration = Duration::from_secs(2);

/// How switches are opened: another one puts something between a test's controller and its switches.
pub trait Drivers: Send + Sync + 'static {
    /// Opens a switch, in the thread that will use it.
    ///
    /// # Errors
    ///
    /// It cannot be opened; what to do.
    fn open(
        &self,
        name: &str,
        spec: &SwitchSpec,
        around: Around,
    ) -> Result<Box<dyn Driver>, String>;
}

/// Real switches.
#[derive(Clone, Copy, Debug)]
pub struct Real;

impl Drivers for Real {
    fn open(&self, _: &str, spec: &SwitchSpec, around: Around) -> Result<Box<dyn Driver>, String> {
        object::open(spec, around)
    }
}

/// What all switches of a controller have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) drivers: Arc<dyn Drivers>,
    pub(crate) owner: Owner,
    /// Folder of the states before Weir.
    pub(crate) saves: PathBuf,
    pub(crate) standing: watch::Receiver<Standing>,
}

/// What a switch said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) switch: SwitchId,
    /// Which of the threads for this switch it was: a former one is not listened to.
    pub(super) thread: u64,
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    /// What was read.
    pub(super) found: Option<Box<Found>>,
    /// Why it failed.
    pub(super) failure: Option<String>,
    /// Its database is as wanted; whether its hardware is cannot be read.
    pub(super) is_written: bool,
}

#[derive(Debug)]
enum Asked {
    Read(Ticket),
    Apply(Ticket, SwitchConfig),
}

impl Asked {
    const fn ticket(&self) -> Ticket {
        match self {
            Self::Read(ticket) | Self::Apply(ticket, _) => *ticket,
        }
    }
}

/// A switch's thread, as the loop sees it.
pub(super) struct Desk {
    pub(super) described: Described,
    id: SwitchId,
    pub(super) thread: u64,
    ask: SyncSender<Asked>,
    heard: mpsc::UnboundedSender<Heard>,
}

impl Desk {
    /// Starts the thread. The switch is opened with the first question.
    pub(super) fn open(
        id: SwitchId,
        thread: u64,
        described: Described,
        common: &Common,
        heard: mpsc::UnboundedSender<Heard>,
    ) -> std::io::Result<Self> {
        // One that is being answered, and one that waits.
        let (ask, asked) = sync_channel(1);
        let worker = Worker {
            id,
            thread,
            described: described.clone(),
            common: common.clone(),
            heard: heard.clone(),
        };
        std::thread::Builder::new().name("switch".into()).spawn(move || worker.run(&asked))?;
        Ok(Self { described, id, thread, ask, heard })
    }

    pub(super) fn read(&self, ticket: Ticket) {
        self.send(Asked::Read(ticket));
    }

    pub(super) fn apply(&self, ticket: Ticket, config: SwitchConfig) {
        self.send(Asked::Apply(ticket, config));
    }

    fn send(&self, asked: Asked) {
        let ticket = asked.ticket();
        if self.ask.try_send(asked).is_err() {
            let why = "it has not answered an earlier call yet";
            // The loop ends with its receiver.
            drop(self.heard.send(failed(self.id, self.thread, ticket, why.into())));
        }
    }
}

fn failed(switch: SwitchId, thread: u64, ticket: Ticket, why: String) -> Heard {
    Heard {
        switch,
        thread,
        ticket,
        answer: Answer::Failed,
        found: None,
        failure: Some(why),
        is_written: false,
    }
}

struct Worker {
    id: SwitchId,
    thread: u64,
    described: Described,
    common: Common,
    heard: mpsc::UnboundedSender<Heard>,
}

/// A driver stays in the thread that opened it.
type Opened = Option<Box<dyn Driver>>;

impl Worker {
    fn run(self, asked: &Receiver<Asked>) {
        let mut driver: Opened = None;
        for asked in asked {
            let ticket = asked.ticket();
            let heard = self.answer(&mut driver, asked);
            let heard = heard.unwrap_or_else(|why| failed(self.id, self.thread, ticket, why));
            if self.heard.send(heard).is_err() {
                return;
            }
        }
    }

    fn opened<'a>(&self, driver: &'a mut Opened) -> Result<&'a mut dyn Driver, String> {
        if driver.is_none() {
            let Described { name, spec, rates, code_points } = &self.described;
            let around = Around {
                rates: rates.clone(),
                code_points: code_points.clone(),
                owner: self.common.owner.clone(),
                saves: Saves::new(&self.common.saves, name),
                limit: LIMIT,
            };
            *driver = Some(self.common.drivers.open(name, spec, around)?);
        }
        Ok(&mut **driver.as_mut().expect("it was just opened"))
    }

    fn answer(&self, driver: &mut Opened, asked: Asked) -> Result<Heard, String> {
        let (switch, thread, ticket) = (self.id, self.thread, asked.ticket());
        let heard = |answer, found, is_written| Heard {
            switch,
            thread,
            ticket,
            answer,
            found,
            failure: None,
            is_written,
        };
        match asked {
            Asked::Read(_) => {
                let found = self.opened(driver)?.read().map_err(|failed| failed.to_string())?;
                Ok(heard(Answer::Found(found.config.clone()), Some(Box::new(found)), false))
            }
            Asked::Apply(_, config) => {
                if !matches!(*self.common.standing.borrow(), Standing::Leads { .. }) {
                    return Err("another controller leads: nothing was written".into());
                }
                match self.opened(driver)?.apply(&config) {
                    Outcome::Applied(_) => Ok(heard(Answer::Applied, None, false)),
                    Outcome::Written(_) => Ok(heard(Answer::Applied, None, true)),
                    Outcome::Failed(failed) => Err(failed.to_string()),
                }
            }
        }
    }
}
