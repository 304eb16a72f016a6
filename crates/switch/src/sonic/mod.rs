//! SONiC: tenants' queues as rows of CONFIG_DB.
//!
//! Problem   SONiC's queues are five tables that refer to each other, of which operators have rows of
//!           their own. What its programs make of the rows, CONFIG_DB does not say.
//! Approach  All rows of Weir's have names that begin with `WEIR-`. A weight is a scheduler profile
//!           that is never changed, and a queue refers to it. Maps begin as copies of the operator's,
//!           with tenants' code points and classes laid over them; `PORT_QOS_MAP` refers to them.
//!           Each group of changes is one transaction, ordered so that references always hold.
//! Promises  Rows and fields of others stay, but for `QUEUE.scheduler` of tenants' queues and the two
//!           maps of `PORT_QOS_MAP`, which a rollback restores. The result is never more than
//!           [`Outcome::Written`](crate::Outcome::Written).
//! Not here  Virtual output queues (chassis): such ports are barred. How fast the switch follows.
//! Source    sonic-net/sonic-buildimage, `src/sonic-yang-models/yang-models/sonic-{scheduler,queue,
//!           dscp-tc-map,tc-queue-map,port-qos-map}.yang`; sonic-net/sonic-utilities,
//!           `generic_config_updater`.

mod redis;
mod rows;
mod tables;

pub use self::redis::Redis;
pub use tables::{Row, Tables, Write};

use crate::managed::{classes, refuse, work};
use crate::{Backend, Failed, Found, Group, Limit, Managed, Owner, Step, Why};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_core::binding::MostWeight;
use weir_core::binding::switch::{PortName, Stage, SwitchConfig};
use weir_units::{SortedMap, SortedSet};

/// The largest weight of a scheduler profile.
pub const MOST_WEIGHT: MostWeight = MostWeight::new(100);

/// A SONiC switch, as an operator describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Ports on which tenants may have queues.
    pub ports: SortedSet<PortName>,
    /// Queues that a port has in hardware.
    pub queues: u8,
    /// Queues that tenants may have; the least is the shared one. All others are others'.
    pub free: SortedSet<u8>,
    /// Traffic classes that tenants may have; the least is that of shared queues.
    pub classes: SortedSet<u8>,
    /// Code points that tenants may have. All others stay as the operator's maps have them.
    pub codepoints: SortedSet<u8>,
    /// The largest weight, at most 100.
    pub most_weight: MostWeight,
}

/// CONFIG_DB, or a copy of it.
#[expect(clippy::missing_errors_doc, reason = "both fail if the database does not answer in time")]
pub trait Store {
    /// Reads the tables with these names.
    fn load(&mut self, tables: &[&str], limit: &Limit, step: Step) -> Result<Tables, Failed>;

    /// Makes all writes in order, or none.
    fn write(&mut self, writes: &[Write], limit: &Limit, step: Step) -> Result<(), Failed>;
}

/// What was in CONFIG_DB before Weir, of what Weir replaces. `None`: the field was not there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// By port: `dscp_to_tc_map` and `tc_to_queue_map`.
    maps: SortedMap<String, [Option<String>; 2]>,
    /// By key of `QUEUE`: `scheduler`.
    schedulers: SortedMap<String, Option<String>>,
}

/// A SONiC switch.
pub struct Sonic<S> {
    store: S,
    settings: Settings,
}

/// A config in SONiC's own forms, for people and other tools.
#[derive(Clone, PartialEq, Debug)]
pub struct Forms {
    /// The tables that Weir writes to, whole, as `config_db.json` has them.
    pub full: Value,
    /// From what was found to there, for `config apply-patch` (RFC 6902).
    pub patch: Vec<Value>,
}

impl<S: Store> Sonic<S> {
    /// A switch whose CONFIG_DB is `store`.
    pub fn new(store: S, settings: Settings) -> Self {
        Self { store, settings }
    }

    /// The database.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    fn load(&mut self, limit: &Limit, step: Step) -> Result<Tables, Failed> {
        self.store.load(&rows::ALL, limit, step)
    }
}

impl<S: Store> Managed<Sonic<S>> {
    /// `wanted` in SONiC's own forms, from what is there now. The owner's mark is not in them.
    ///
    /// # Errors
    /// The database does not answer, or the switch cannot hold all of it.
    pub fn forms(&mut self, wanted: &SwitchConfig) -> Result<Forms, Failed> {
        let limit = self.limit();
        let found = self.backend().read(&limit)?;
        let work = work(&found, wanted);
        refuse(&found, &work, wanted)?;
        let (kept, _) = self.known(&found, wanted, &limit)?;
        let mut config = work.now;
        config.ports.extend(wanted.ports.clone());
        let classes = classes(&found, &work.fit, &config);
        let before = self.backend().load(&limit, Step::Read)?;
        let settings = &self.backend().settings;
        let mut full = rows::render(&before, settings, &config, &classes, &kept.state);
        let writes = rows::ordered(&before, &full, Stage::Bind);
        let patch = tables::patch(&before, &writes);
        full.0.remove(rows::PORTS);
        Ok(Forms { full: full.to_json(), patch })
    }
}

impl<S: Store> Backend for Sonic<S> {
    type Saved = Saved;

    const PROVES: bool = false;

    fn read(&mut self, limit: &Limit) -> Result<Found, Failed> {
        let tables = self.load(limit, Step::Read)?;
        Ok(rows::import(&tables, &self.settings))
    }

    fn save(&mut self, limit: &Limit) -> Result<Saved, Failed> {
        let tables = self.load(limit, Step::Save)?;
        Ok(rows::save(&tables, &self.settings))
    }

    fn covers(saved: &Saved, port: &PortName) -> bool {
        saved.maps.contains_key(&*port.0)
    }

    fn extend(saved: &mut Saved, now: Saved) {
        for (port, maps) in now.maps {
            saved.maps.entry(port).or_insert(maps);
        }
        for (key, scheduler) in now.schedulers {
            saved.schedulers.entry(key).or_insert(scheduler);
        }
    }

    fn mark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed> {
        let before = self.load(limit, Step::Claim)?;
        let mut after = before.clone();
        after.put(rows::SCHEDULERS, &rows::mark(&owner.to_string()), rows::profile(1));
        let writes = tables::writes(&before, &after, rows::SCHEDULERS, false);
        self.store.write(&writes, limit, Step::Claim)
    }

    fn unmark(&mut self, owner: &Owner, limit: &Limit) -> Result<(), Failed> {
        let before = self.load(limit, Step::Claim)?;
        let mut after = before.clone();
        after.remove(rows::SCHEDULERS, &rows::mark(&owner.to_string()));
        let writes = tables::writes(&before, &after, rows::SCHEDULERS, true);
        self.store.write(&writes, limit, Step::Claim)
    }

    fn make(&mut self, group: &Group<'_, Saved>, limit: &Limit) -> Result<(), Failed> {
        let step = Step::Make(group.stage);
        let before = self.load(limit, step)?;
        for (name, port) in &group.after.ports {
            let speed = rows::speed(&before, name);
            if speed.is_some_and(|speed| speed != port.rate) {
                let why = "a SONiC port's rate is its speed; this one has another rate";
                let why = Why::Refused(why.to_owned());
                return Err(Failed { port: Some(name.clone()), step, why });
            }
        }
        let settings = &self.settings;
        let after = rows::render(&before, settings, group.after, group.classes, group.saved);
        let writes = rows::ordered(&before, &after, group.stage);
        self.store.write(&writes, limit, step)
    }

    fn restore(&mut self, saved: &Saved, limit: &Limit) -> Result<(), Failed> {
        let before = self.load(limit, Step::Restore)?;
        let after = rows::restored(&before, saved);
        let writes = rows::ordered(&before, &after, Stage::Remove);
        self.store.write(&writes, limit, Step::Restore)
    }
}
