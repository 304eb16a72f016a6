//! Numbers for operators, in the format of OpenMetrics.

use crate::accounts::Numbers;
use crate::store::StoreError;
use crate::view::View;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Mutex;
use std::time::Duration;

/// A request by what it was and how it ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub(crate) struct Asked {
    /// One of those that are known, or `other`.
    pub(crate) method: String,
    /// The route, not the path: its number is bounded.
    pub(crate) route: String,
    pub(crate) code: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

/// What the controller counts.
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Numbers of VMs.
    vms: Mutex<Registry>,
    pub(crate) requests: Family<Asked, Counter>,
    pub(crate) queue_full: Counter,
    pub(crate) connections: Gauge,
    pub(crate) refused_connections: Counter,
    pub(crate) failed_handshakes: Counter,
    pub(crate) watches: Gauge,
    pub(crate) agents: Gauge,
    /// VMs whose floors do not hold.
    pub(crate) fallen: Gauge,
    /// 1 while this controller leads.
    pub(crate) leads: Gauge,
    objects: Family<OfKind, Gauge>,
    commits: Histogram,
    failed_commits: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Mutex::new(Registry::with_prefix("weir_controller")),
            vms: Mutex::new(Registry::with_prefix("weir")),
            requests: Family::default(),
            queue_full: Counter::default(),
            connections: Gauge::default(),
            refused_connections: Counter::default(),
            failed_handshakes: Counter::default(),
            watches: Gauge::default(),
            agents: Gauge::default(),
            fallen: Gauge::default(),
            leads: Gauge::default(),
            objects: Family::default(),
            // From 0.1 ms to 1.6 s.
            commits: Histogram::new(exponential_buckets(1e-4, 2.0, 15)),
            failed_commits: Counter::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&self) {
        let mut registry = self.registry.lock().expect("nobody panics while it is held");
        let of = |registry: &mut Registry, name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        registry.register(
            "requests",
            "Requests by method, route and status",
            self.requests.clone(),
        );
        of(&mut registry, "queue_full", "Requests refused because too many wait", &self.queue_full);
        registry.register("connections", "Open connections", self.connections.clone());
        of(
            &mut registry,
            "refused_connections",
            "Connections refused because too many are open",
            &self.refused_connections,
        );
        of(
            &mut registry,
            "failed_handshakes",
            "Connections that ended before TLS was agreed",
            &self.failed_handshakes,
        );
        registry.register("watches", "Open watches", self.watches.clone());
        registry.register("agents", "Agents that follow", self.agents.clone());
        registry.register("unadmitted_vms", "VMs whose floors do not hold", self.fallen.clone());
        registry.register("leads", "Whether this controller leads", self.leads.clone());
        registry.register("objects", "Objects by kind", self.objects.clone());
        let help = "Time of a commit of the store, with its sync";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, self.commits.clone());
        of(
            &mut registry,
            "failed_commits",
            "Commits that the store refused; nothing was changed",
            &self.failed_commits,
        );
    }

    /// From now on also what a collector gathers.
    pub(crate) fn add(&self, numbers: Numbers) {
        let mut vms = self.vms.lock().expect("nobody panics while it is held");
        vms.register_collector(Box::new(numbers));
    }

    pub(crate) fn committed(&self, took: Duration, how: &Result<(), StoreError>) {
        self.commits.observe(took.as_secs_f64());
        if how.is_err() {
            self.failed_commits.inc();
        }
    }

    /// All numbers as text.
    pub(crate) fn text(&self, view: &View) -> String {
        for (kind, count) in view.counts() {
            let of = OfKind { kind: kind.name().into() };
            self.objects.get_or_create(&of).set(count as i64);
        }
        let mut text = String::new();
        let registry = self.registry.lock().expect("nobody panics while it is held");
        let vms = self.vms.lock().expect("nobody panics while it is held");
        for registry in [&*registry, &*vms] {
            encode_registry(&mut text, registry).expect("a string takes everything");
        }
        encode_eof(&mut text).expect("a string takes everything");
        text
    }
}
