//! What is free, for schedulers of others.

use super::State;
use super::book::{LinkUse, Spare};
use crate::problem::Problem;
use serde_json::{Value, json};
use weir_core::ledger::{Domain, TenantPlace};
use weir_model::text::show_rate;

impl State {
    /// The reservations of every link, as the ledger has them.
    pub(crate) fn links(&self) -> Vec<LinkUse> {
        self.book.links()
    }

    /// The names of the tenants with a reservation on a link; `None` if there is no such link.
    pub(crate) fn tenants_on(&self, link: &str) -> Option<Vec<String>> {
        self.book.tenants_on(link)
    }

    /// The additive room per host, per switch and in all, as `/api/v1/room` tells it.
    ///
    /// # Errors
    ///
    /// The routing has no upper side of a switch.
    pub fn room(&self) -> Result<Value, Problem> {
        let [hosts, switches, network] = self.book.additive().ok_or_else(|| {
            let detail = "with spec.routing paths of the Topology a switch has no upper side: reserve, and \
                          read the refusal";
            Problem::new(409, "NoAdditiveRoom", "request", detail)
        })?;
        let told = |spare: &Spare| {
            json!({
                "name": spare.name,
                "hosts": spare.hosts,
                "out": show_rate(spare.out),
                "in": show_rate(spare.inward),
                "slots": spare.slots,
            })
        };
        Ok(json!({
            "resourceVersion": self.revision.to_string(),
            "hosts": hosts.iter().map(told).collect::<Vec<_>>(),
            "switches": switches.iter().map(told).collect::<Vec<_>>(),
            "network": network.iter().map(told).next(),
        }))
    }

    /// What may be added for one tenant, which need not be there yet.
    ///
    /// # Errors
    ///
    /// There is no host.
    pub fn tenant_room(&self, tenant: &str) -> Result<Value, Problem> {
        let room = self.book.tenant_room(tenant).ok_or_else(|| {
            let detail = "there is no host yet: apply a Host";
            Problem::new(409, "NoAdditiveRoom", "query.tenant", detail)
        })?;
        let name = |place: Domain| self.book.name_of(place);
        let told = |place: &TenantPlace| {
            json!({
                "name": name(place.room.domain),
                "hosts": place.hosts.iter().map(|host| name(Domain::Host(*host))).collect::<Vec<_>>(),
                "switches": place.switches.iter().map(|s| name(Domain::Switch(*s))).collect::<Vec<_>>(),
                "out": show_rate(place.room.floors.out),
                "in": show_rate(place.room.floors.into),
                "slots": place.room.slots,
            })
        };
        let is_host = |place: &&TenantPlace| matches!(place.room.domain, Domain::Host(_));
        let (hosts, switches): (Vec<_>, Vec<_>) = room.places.iter().partition(is_host);
        Ok(json!({
            "resourceVersion": self.revision.to_string(),
            "tenant": tenant,
            "tree": name(Domain::Switch(room.root)),
            "centre": name(room.centre),
            "gateway": room.gateway.map(name),
            "hosts": hosts.into_iter().map(told).collect::<Vec<_>>(),
            "switches": switches.into_iter().map(told).collect::<Vec<_>>(),
        }))
    }
}
