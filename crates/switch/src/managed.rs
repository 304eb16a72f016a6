//! What is the same for all kinds of switches: owner, save, order, time limit, reading back.

use crate::saves::Kept;
use crate::{Backend, Driver, Failed, Found, Group, Limit, Outcome, Owner, Plan, Saves, Step, Why};
use std::io;
use std::time::Duration;
use weir_core::binding::switch::{Change, Fit, PortQueues, SwitchConfig, What, diff, fit};
use weir_units::{SortedMap, SortedSet};

/// A switch of a kind, with an owner.
pub struct Managed<B: Backend> {
    backend: B,
    owner: Owner,
    saves: Saves,
    limit: Duration,
}

/// What is to do, and whether it can be done.
pub(crate) struct Work {
    pub(crate) fit: Fit,
    /// What was found; see [`without_aliases`].
    pub(crate) now: SwitchConfig,
    pub(crate) changes: Vec<Change>,
}

impl<B: Backend> Managed<B> {
    /// `limit` is the time that one call may take.
    pub fn new(backend: B, owner: Owner, saves: Saves, limit: Duration) -> Self {
        Self { backend, owner, saves, limit }
    }

    /// The kind's own calls.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    fn try_apply(&mut self, wanted: &SwitchConfig) -> Result<Outcome, Failed> {
        let limit = Limit::after(self.limit);
        let found = self.backend.read(&limit)?;
        self.refuse_owned(&found)?;
        let work = work(&found, wanted);
        refuse(&found, &work, wanted)?;
        let saved = self.saved(&found, wanted, &limit)?;
        let is_claimed = self.claim(&found, &limit)?;
        let mut after = work.now.clone();
        for group in work.changes.chunk_by(|a, b| a.stage() == b.stage()) {
            let stage = group[0].stage();
            limit.left(Step::Make(stage))?;
            group.iter().for_each(|change| change.make(&mut after));
            let classes = classes(&found, &work.fit, &after);
            let owner = &self.owner;
            let group = Group {
                stage,
                changes: group,
                after: &after,
                classes: &classes,
                saved: &saved,
                owner,
            };
            self.backend.make(&group, &limit)?;
        }
        if is_claimed || !work.changes.is_empty() {
            self.verify(wanted, &limit)?;
        }
        let made = if B::PROVES { Outcome::Applied } else { Outcome::Written };
        Ok(made(work.changes))
    }

    fn refuse_owned(&self, found: &Found) -> Result<(), Failed> {
        match found.owners.iter().find(|owner| **owner != self.owner.to_string()) {
            Some(other) => Err(Failed::new(Step::Claim, Why::Owned(other.clone()))),
            None => Ok(()),
        }
    }

    /// The state before Weir. Ports that it does not have are saved first.
    fn saved(
        &mut self,
        found: &Found,
        wanted: &SwitchConfig,
        limit: &Limit,
    ) -> Result<B::Saved, Failed> {
        let (kept, is_new) = self.known(found, wanted, limit)?;
        if is_new {
            let failed =
                |error: io::Error| Failed::new(Step::Save, Why::Refused(error.to_string()));
            self.saves.store(&kept).map_err(failed)?;
        }
        Ok(kept.state)
    }

    /// The state before Weir as far as it is known, and whether it is not in the file yet.
    pub(crate) fn known(
        &mut self,
        found: &Found,
        wanted: &SwitchConfig,
        limit: &Limit,
    ) -> Result<(Kept<B::Saved>, bool), Failed> {
        let failed = |error: io::Error| Failed::new(Step::Save, Why::Refused(error.to_string()));
        let is_exact = !found.has_ours();
        if !is_exact && let Some(mut kept) = self.saves.load().map_err(failed)? {
            let is_whole = wanted.ports.keys().all(|port| B::covers(&kept.state, port));
            if !is_whole {
                B::extend(&mut kept.state, self.backend.save(limit)?);
            }
            return Ok((kept, !is_whole));
        }
        let state = self.backend.save(limit)?;
        Ok((Kept { is_exact, state }, true))
    }

    /// A new time limit for one call.
    pub(crate) fn limit(&self) -> Limit {
        Limit::after(self.limit)
    }

    /// Leaves the owner's mark if it is not there. Two that do so at once read each other's, and both
    /// give way. Returns whether it was left.
    fn claim(&mut self, found: &Found, limit: &Limit) -> Result<bool, Failed> {
        if found.owners.contains(&self.owner.to_string()) {
            return Ok(false);
        }
        limit.left(Step::Claim)?;
        self.backend.mark(&self.owner, limit)?;
        let read = self.backend.read(limit)?;
        if let Err(owned) = self.refuse_owned(&read) {
            self.backend.unmark(&self.owner, limit)?;
            return Err(owned);
        }
        Ok(true)
    }

    fn verify(&mut self, wanted: &SwitchConfig, limit: &Limit) -> Result<(), Failed> {
        limit.left(Step::Verify)?;
        let found = self.backend.read(limit)?;
        self.refuse_owned(&found)?;
        if !found.owners.contains(&self.owner.to_string()) {
            let gone =
                "the owner's mark is gone: the switch was reset, or another program removed it";
            return Err(Failed::new(Step::Verify, Why::Refused(gone.to_owned())));
        }
        let missing = work(&found, wanted).changes;
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(Failed {
                port: Some(first.port.clone()),
                step: Step::Verify,
                why: Why::Differs(missing),
            }),
        }
    }

    fn try_rollback(&mut self) -> Result<Outcome, Failed> {
        let limit = Limit::after(self.limit);
        let failed = |error: io::Error| Failed::new(Step::Restore, Why::Refused(error.to_string()));
        let made = if B::PROVES { Outcome::Applied } else { Outcome::Written };
        let found = self.backend.read(&limit)?;
        self.refuse_owned(&found)?;
        let kept: Option<Kept<B::Saved>> = self.saves.load().map_err(failed)?;
        if !found.has_ours() {
            self.saves.remove().map_err(failed)?;
            return Ok(made(Vec::new()));
        }
        let Some(Kept { is_exact: true, state }) = kept else {
            return Err(Failed::new(Step::Restore, Why::NoSave));
        };
        limit.left(Step::Restore)?;
        self.backend.restore(&state, &limit)?;
        self.backend.unmark(&self.owner, &limit)?;
        let left = self.backend.read(&limit)?;
        if left.has_ours() {
            let what = "some of Weir's queues or marks are still there".to_owned();
            return Err(Failed::new(Step::Restore, Why::NotRestored(what)));
        }
        if self.backend.save(&limit)? != state {
            let what = "others changed it while Weir had it".to_owned();
            return Err(Failed::new(Step::Restore, Why::NotRestored(what)));
        }
        self.saves.remove().map_err(failed)?;
        Ok(made(Vec::new()))
    }
}

impl<B: Backend> Driver for Managed<B> {
    fn read(&mut self) -> Result<Found, Failed> {
        self.backend.read(&Limit::after(self.limit))
    }

    fn plan(&mut self, wanted: &SwitchConfig) -> Result<Plan, Failed> {
        let found = self.read()?;
        let Work { fit, changes, .. } = work(&found, wanted);
        let is_other = |owner: &String| *owner != self.owner.to_string();
        let owners = found.owners.iter().filter(|owner| is_other(owner)).cloned().collect();
        let mut barred = found.barred;
        barred.retain(|port, _| wanted.ports.contains_key(port));
        Ok(Plan { changes, fit, barred, owners, others: found.others })
    }

    fn apply(&mut self, wanted: &SwitchConfig) -> Outcome {
        self.try_apply(wanted).unwrap_or_else(Outcome::Failed)
    }

    fn rollback(&mut self) -> Outcome {
        self.try_rollback().unwrap_or_else(Outcome::Failed)
    }
}

/// Refuses what the switch cannot hold, before anything is changed.
pub(crate) fn refuse(found: &Found, work: &Work, wanted: &SwitchConfig) -> Result<(), Failed> {
    let failed = |port: Option<&_>, why| Failed { port: port.cloned(), step: Step::Plan, why };
    for (port, why) in &found.barred {
        if wanted.ports.contains_key(port) {
            return Err(failed(Some(port), Why::Barred(why.clone())));
        }
    }
    if let Some((port, why)) = work.fit.ports.iter().next() {
        return Err(failed(Some(port), Why::Cannot(why.clone())));
    }
    match work.fit.refused.values().next() {
        Some(why) => Err(failed(None, Why::Cannot(why.clone()))),
        None => Ok(()),
    }
}

/// What is to do to make `found` into `wanted`.
pub(crate) fn work(found: &Found, wanted: &SwitchConfig) -> Work {
    let fit = fit(wanted, &found.able, &found.classes, &[]);
    let now = without_aliases(found, &fit, wanted);
    // A code point that changes its class passes through the shared queue, on all ports.
    let movers: SortedSet<u8> = fit
        .classes
        .iter()
        .filter(|(codepoint, class)| found.classes.get(codepoint).is_some_and(|was| was != *class))
        .map(|(codepoint, _)| *codepoint)
        .collect();
    let mut between = now.clone();
    for port in between.ports.values_mut() {
        port.queue_of.retain(|codepoint, _| !movers.contains(codepoint));
    }
    let mut changes = diff(&now, &between);
    let rest = changes.len();
    changes.extend(diff(&between, wanted));
    for (name, codepoint) in &found.torn {
        let Some(port) = wanted.ports.get(name) else { continue };
        let Some(&queue) = port.queue_of.get(codepoint) else { continue };
        let binds = |change: &Change| {
            change.port == *name
                && matches!(change.what, What::Bind { codepoint: at, .. } if at == *codepoint)
        };
        if !changes.iter().any(binds) {
            let was = now.ports.get(name).and_then(|port| port.queue_of.get(codepoint)).copied();
            let what = What::Bind { codepoint: *codepoint, queue, was };
            changes.push(Change { port: name.clone(), what });
        }
    }
    changes[rest..].sort_by_key(Change::stage);
    Work { fit, now, changes }
}

/// What was found, without code points that have a queue on a port only because another one, which is
/// wanted there, has the same class.
fn without_aliases(found: &Found, fit: &Fit, wanted: &SwitchConfig) -> SwitchConfig {
    let mut config = found.config.clone();
    for (name, port) in &mut config.ports {
        let Some(wants) = wanted.ports.get(name) else { continue };
        let class = |codepoint: &u8| fit.classes.get(codepoint).or(found.classes.get(codepoint));
        let keeps = |wants: &PortQueues, codepoint: &u8, queue: &u8| {
            let mut same = wants.queue_of.iter().filter(|(other, at)| {
                *at == queue && class(other).is_some() && class(other) == class(codepoint)
            });
            wants.queue_of.contains_key(codepoint) || same.next().is_none()
        };
        port.queue_of.retain(|codepoint, queue| keeps(wants, codepoint, queue));
    }
    config
}

/// The class of each code point that is bound somewhere: the wanted one, or the one it has.
pub(crate) fn classes(found: &Found, fit: &Fit, after: &SwitchConfig) -> SortedMap<u8, u8> {
    let bound = after.ports.values().flat_map(|port| port.queue_of.keys());
    let class = |codepoint: &u8| {
        let class = fit.classes.get(codepoint).or(found.classes.get(codepoint))?;
        Some((*codepoint, *class))
    };
    bound.filter_map(class).collect()
}
