//! What is free, for schedulers of others.

use super::State;
use super::book::Spare;
use crate::problem::Problem;
use serde_json::{Value, json};
use weir_model::text::show_rate;

impl State {
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
}
