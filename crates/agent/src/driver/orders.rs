//! What the controller wants, taken up as a reload of files is.
//!
//! Approach  All tenants with a changed state are tried together. If that is refused, one after the
//!           other, so that one tenant's mistake is not another's. What was taken up and what was refused
//!           is answered; the thread that speaks to the controller writes it down.
//! Promises  A tenant keeps its former state, whole, if the new one is refused.

use super::Driver;
use crate::config::Setup;

use anyhow::Result;
use weir_model::agent::AgentConfig;
use weir_rpc::client::desk::{Done, Refusal};
use weir_rpc::kept::Kept;
use weir_rpc::messages::Tenant;
use weir_units::Time;

impl Driver {
    pub(super) fn take_orders(&mut self, now: Time) {
        self.take_mode(now);
        let Some(link) = &self.link else { return };
        let orders = link.take();
        if orders.is_empty() {
            return;
        }
        let before = link.kept().clone();
        let done = self.obey(now, before, orders);
        // As after a reload: the file's lines name hosts of the new directory.
        self.look_at_keys(true);
        if let Some(link) = &self.link {
            link.answer(done);
        }
        self.notifier.ready(&self.status());
    }

    /// Enforces or observes, as the controller says.
    fn take_mode(&mut self, now: Time) {
        let Some(link) = &self.link else { return };
        let Some(mode) = link.other_mode() else { return };
        let next = Kept { mode, ..link.kept().clone() };
        let mut file = self.setup.file.clone();
        // Without the controller's word the file's counts, as it is now.
        let own = match mode {
            Some(_) => Ok(()),
            None => crate::config::read(&self.config).map(|own| file.mode = own.mode),
        };
        match own.and_then(|()| self.try_beside(now, file, next)) {
            Ok(said) => {
                tracing::info!("took up the controller's mode: {said}");
                if let Some(link) = &self.link {
                    link.answer_mode();
                }
            }
            Err(error) => tracing::error!("the controller's mode is not taken up: {error:#}"),
        }
        self.notifier.ready(&self.status());
    }

    fn obey(&mut self, now: Time, before: Kept, orders: Vec<Tenant>) -> Vec<Done> {
        let all = before.with(&orders);
        match self.try_state(now, all) {
            Ok(said) => {
                tracing::info!("took up {} tenants from the controller: {said}", orders.len());
                return orders.into_iter().map(|tenant| (tenant, Ok(()))).collect();
            }
            Err(error) if orders.len() == 1 => {
                let tenant = orders.into_iter().next().expect("there is one");
                return vec![self.refuse_state(tenant, &error)];
            }
            Err(error) => tracing::debug!("one by one, because together: {error:#}"),
        }
        let one = |tenant: Tenant| {
            let next = self.link.as_ref().map(|link| link.kept().with([&tenant]));
            match next.map(|next| self.try_state(now, next)) {
                Some(Err(error)) => self.refuse_state(tenant, &error),
                _ => (tenant, Ok(())),
            }
        };
        orders.into_iter().map(one).collect()
    }

    /// Takes up this state, all or nothing.
    fn try_state(&mut self, now: Time, next: Kept) -> Result<String> {
        self.try_beside(now, self.setup.file.clone(), next)
    }

    /// The same beside this file.
    fn try_beside(&mut self, now: Time, file: AgentConfig, next: Kept) -> Result<String> {
        let setup = Setup::of_kept(file, (&self.config, ""), &next, Some(&self.setup))?;
        let said = self.take_up(now, setup)?;
        self.reloads.taken += 1;
        if let Some(link) = &mut self.link {
            link.keep(next);
        }
        Ok(said)
    }

    fn refuse_state(&mut self, tenant: Tenant, error: &anyhow::Error) -> Done {
        self.reloads.refused += 1;
        let message = format!("{error:#}");
        tracing::error!("tenant {}: its state in use stays: {message}", tenant.name);
        (tenant, Err(Refusal { reason: "NotTakenUp".into(), message }))
    }
}
