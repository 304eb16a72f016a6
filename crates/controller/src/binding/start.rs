//! How the loop begins, follows a network that changes, and ends.

use super::network::{Network, Seen};
use super::switches::Desk;
use super::{Binding, GATHER, Loop, PAUSE, REPORT_LEAST, REPORTS, tell};
use crate::problem::Problem;
use weir_core::binding::Binder;
use weir_core::binding::control::{Answer, Config, Control, Held, Input, Order, Ticket};
use weir_core::binding::switch::SwitchConfig;
use weir_core::host::Version;
use weir_core::ledger::SwitchId;
use weir_model::objects::{Kind, Spec, Truth};
use weir_units::{SortedMap, SortedSet, TenantId};

/// Objects that say what the network is.
const NETWORK: [Kind; 4] = [Kind::Topology, Kind::Host, Kind::Link, Kind::Switch];
/// A ticket that the loop never draws.
const FIRST: Ticket = Ticket(0);

impl Binding {
    /// Takes up objects that changed since the last look.
    ///
    /// # Errors
    ///
    /// This process does not lead, or has too much to do.
    pub(super) async fn look(&mut self) -> Result<(), Problem> {
        let revision = self.view.revision();
        let began = self.clock.running();
        let is_soon = began < self.looked_at + self.gather && self.looked != u64::MAX;
        if self.looked == revision || is_soon {
            return Ok(());
        }
        if self.is_idle && !self.wants_queues() {
            (self.looked, self.looked_at) = (revision, began);
            return Ok(());
        }
        self.is_idle = false;
        self.bounds = self.engine.look(|state| state.bounds()).await?;
        (self.looked, self.looked_at) = (revision, self.clock.running());
        // Writes wait meanwhile: a tenth of the time at most.
        self.gather = (self.looked_at.saturating_sub(began) * 9).clamp(GATHER, PAUSE);
        let (objects, _) = self.view.all(&NETWORK);
        let tenants = self.bounds.tenants.iter().filter_map(|bound| bound.queue);
        let mut held: SortedSet<u8> = tenants.map(|queue| queue.code_point).collect();
        if let Some(bound) = self.loop_.as_ref().filter(|bound| !bound.is_left()) {
            held.extend(&bound.control.config().fabric.codepoints);
        }
        let Some(network) = Network::of(&objects, &mut self.names, &self.seen, &held) else {
            self.stop();
            self.is_idle = true;
            return Ok(());
        };
        self.tell_network(&network);
        let points = network.config.fabric.codepoints.iter().copied().collect();
        match &self.loop_ {
            Some(bound) if is_same_kind(bound.control.config(), &network) => self.change(network),
            _ => self.begin(network).await,
        }
        let is_bound = self.loop_.as_ref().is_some_and(|bound| bound.network.is_bound.is_ok());
        let members = self.members(is_bound, &points);
        let now = self.now();
        let Some(bound) = &mut self.loop_ else { return Ok(()) };
        if bound.members != members {
            let outcome = bound.control.handle(now, Input::Tenants(&members));
            bound.members = members;
            self.follow(outcome);
            self.forget();
        }
        Ok(())
    }

    fn wants_queues(&self) -> bool {
        let topology = self.view.get(Kind::Topology, "default");
        let wants = |spec: &Spec| matches!(spec, Spec::Topology(it) if it.queues.is_some());
        topology.is_some_and(|stored| wants(&stored.object.spec))
    }

    /// The loop has nothing to do any more.
    fn stop(&mut self) {
        self.loop_ = None;
        self.desks.clear();
        self.seen.clear();
        self.fleet.want_usage(0);
    }

    fn tell_network(&mut self, network: &Network) {
        let points = network.config.fabric.codepoints.iter().copied().collect();
        let said = match network.is_bound {
            Err(why) => (Truth::False, "NotBound", why.to_owned()),
            Ok(()) if network.config.switches.is_empty() => {
                let what = "there is no Switch: no link has queues for tenants";
                (Truth::False, "NoSwitches", what.to_owned())
            }
            Ok(()) => {
                let message = format!("by the code points {}", super::network::listed(&points));
                (Truth::True, "Bound", message)
            }
        };
        self.say(tell::of_topology(said));
    }

    /// Opens, closes and replaces the threads of switches.
    fn arrange(&mut self, network: &Network) {
        let same = |id: &SwitchId, desk: &Desk| network.switches.get(id) == Some(&desk.described);
        self.desks.retain(|id, desk| same(id, desk));
        for (id, described) in &network.switches {
            if self.desks.contains_key(id) {
                continue;
            }
            self.threads += 1;
            let described = described.clone();
            let desk = Desk::open(*id, self.threads, described, &self.common, self.say.clone());
            match desk {
                Ok(desk) => _ = self.desks.insert(*id, desk),
                Err(error) => tracing::error!("a switch has no thread: {error}"),
            }
        }
        let known: SortedSet<&str> =
            network.switches.values().map(|described| described.name.as_str()).collect();
        self.seen.retain(|name, _| known.contains(name.as_str()));
        let interval = network.config.interval.as_nanos() / 1_000_000;
        let every = (interval / REPORTS).max(REPORT_LEAST);
        self.fleet.want_usage(u32::try_from(every).unwrap_or(u32::MAX));
    }

    /// The network is another, and the loop goes on.
    fn change(&mut self, network: Network) {
        self.arrange(&network);
        let now = self.now();
        let Some(bound) = &mut self.loop_ else { return };
        if !is_equal(bound.control.config(), &network.config) {
            bound.control.set_config(network.config.clone());
        }
        bound.network = network;
        let outcome = bound.control.handle(now, Input::Tick);
        self.follow(outcome);
    }

    /// A loop begins: with what switches have, and with what an earlier one wrote down.
    async fn begin(&mut self, network: Network) {
        self.desks.clear();
        self.arrange(&network);
        let found = self.read_all(network.provisioned.is_some()).await;
        // With what was found of the switches.
        let (objects, _) = self.view.all(&NETWORK);
        let points = network.config.fabric.codepoints.iter().copied().collect();
        let again = Network::of(&objects, &mut self.names, &self.seen, &points);
        let network = again.unwrap_or(network);
        self.arrange(&network);
        let members = self.members(network.is_bound.is_ok(), &points);
        let mut held: Vec<Held> = Vec::new();
        for bound in &self.bounds.tenants {
            let tenant = TenantId(self.names.tenants.of(&bound.name));
            // What an earlier loop of this process said may not be written down yet.
            let Some(queue) = self.records.get(&tenant).copied().or(bound.queue) else { continue };
            self.records.insert(tenant, queue);
            held.push(Held {
                tenant,
                codepoint: queue.code_point,
                order: Order { codepoint: queue.tag, is_free: queue.free },
                version: Version(queue.version),
            });
        }
        held.sort_by_key(|held| held.tenant);
        let fabric = network.config.fabric.clone();
        let binder = match &network.provisioned {
            None => Binder::new(fabric),
            Some(provisioned) => Binder::provisioned(fabric, provisioned.clone()),
        };
        let now = self.now();
        let control = Control::with_binder(binder, network.config.clone(), now);
        // More than any that a store knew of which this one is an older copy.
        let mut control = control.with_first_version(self.clock.now().as_millis());
        let outcome = control.resume(now, &members, &held, &found);
        self.loop_ = Some(Loop {
            control,
            network,
            members,
            failures: SortedMap::new(),
            written: SortedSet::new(),
        });
        self.follow(outcome);
        self.take_in_force(true);
        self.tell_places();
    }

    /// Asks all switches at once what they have. Those that do not say so in time are left out.
    async fn read_all(&mut self, is_static: bool) -> SortedMap<SwitchId, SwitchConfig> {
        self.desks.values().for_each(|desk| desk.read(FIRST));
        let mut waiting: SortedSet<SwitchId> = self.desks.keys().copied().collect();
        let mut found = SortedMap::new();
        let until = tokio::time::Instant::now() + super::LIMIT + PAUSE;
        while !waiting.is_empty() {
            let heard = tokio::time::timeout_at(until, self.heard.recv()).await;
            let Ok(Some(heard)) = heard else { break };
            let Some(desk) = self.desks.get(&heard.switch).filter(|it| it.thread == heard.thread)
            else {
                continue;
            };
            waiting.remove(&heard.switch);
            let name = desk.described.name.clone();
            if let Some(read) = &heard.found {
                let us = (!is_static).then(|| self.common.owner.to_string());
                let seen = Seen::of(read, &desk.described, us.as_deref());
                self.seen.insert(name, seen);
            } else if let Some(why) = &heard.failure {
                tracing::warn!("switch {name}: {why}");
                self.say(tell::of_switch(&name, None, (Truth::False, "Failed", why.clone())));
            }
            if let Answer::Found(config) = heard.answer {
                found.insert(heard.switch, config);
            }
        }
        found
    }

    /// Forgets names of tenants that are gone.
    fn forget(&mut self) {
        let Some(bound) = &self.loop_ else { return };
        let known: SortedSet<&str> =
            self.bounds.tenants.iter().map(|bound| bound.name.as_str()).collect();
        let control = &bound.control;
        self.names.tenants.retain(|name, number| {
            known.contains(name) || control.phase(TenantId(number)).is_some()
        });
        self.told.retain(|(kind, name, _), _| *kind != Kind::Tenant || known.contains(&**name));
        self.records.retain(|tenant, _| control.phase(*tenant).is_some());
    }
}

/// Whether a loop can go on with this network.
fn is_same_kind(config: &Config, network: &Network) -> bool {
    config.provision == network.config.provision
        && (network.provisioned.is_none()
            || config.fabric.codepoints == network.config.fabric.codepoints)
}

fn is_equal(now: &Config, next: &Config) -> bool {
    now.fabric == next.fabric
        && now.ports == next.ports
        && now.switches == next.switches
        && now.interval == next.interval
}
