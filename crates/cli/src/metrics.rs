//! `weir metrics`: the numbers of this host's agents for Prometheus.
//!
//! Problem   An agent's loop must not wait for a scraper, and an agent should not listen on another port.
//! Approach  A process of its own asks the agents on their sockets, as `weir top` does, whenever it is asked.
//! Promises  OpenMetrics, base units, no labels of pairs: their number grows with the square of the VMs'. An
//!           agent that does not answer is `weir_agent_up 0`, and no error. A scrape costs an agent one `weir top`.
//! Not here  Numbers of VMs over all hosts: the controller's `/metrics` has them.

use crate::args;
use crate::output::{errln, out};
use anyhow::{Context as _, Result};
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_agent::client;
use weir_model::status::{FloorKept, Reply, Request, Top};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters of `weir top` that are states and not counts.
const STATES: [&str; 7] = [
    "agent.pairs_without_class",
    "agent.vms_with_braked_strays",
    "agent.vms_unenforced",
    "controller.connected",
    "controller.certificate_s",
    "controller.tenants",
    "journal.ended",
];

/// `weir metrics`.
///
/// # Errors
///
/// The address cannot be used.
pub(crate) fn metrics(args: &args::Metrics) -> Result<u8> {
    match args.listen {
        None => out!("{}", text(&args.run_dir))?,
        Some(address) => serve(address, args.run_dir.clone())?,
    }
    Ok(0)
}

fn serve(address: SocketAddr, run_dir: PathBuf) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!("{address}: cannot be listened at; --listen names another address or port")
        })?;
        errln!("serving http://{}/metrics", listener.local_addr()?);
        let answer = move || {
            let run_dir = run_dir.clone();
            async move {
                let asked = tokio::task::spawn_blocking(move || text(&run_dir)).await;
                ([(CONTENT_TYPE, OPEN_METRICS)], asked.unwrap_or_default())
            }
        };
        axum::serve(listener, axum::Router::new().route("/metrics", get(answer))).await?;
        Ok(())
    })
}

/// What all agents of this host say now.
fn text(run_dir: &Path) -> String {
    let ask = |instance: String| {
        let socket = client::socket_path(run_dir, &instance);
        let top = match client::ask(&socket, &Request::Top) {
            Ok(Reply::Top(top)) => Some(*top),
            _ => None,
        };
        (instance, top)
    };
    written(client::instances(run_dir).into_iter().map(ask).collect())
}

fn written(agents: BTreeMap<String, Option<Top>>) -> String {
    let mut registry = Registry::with_prefix("weir");
    registry.register_collector(Box::new(Agents(agents)));
    let mut text = String::new();
    encode_registry(&mut text, &registry).expect("a string takes everything");
    encode_eof(&mut text).expect("a string takes everything");
    text
}

/// Agents by instance; absent: it does not answer.
#[derive(Debug)]
struct Agents(BTreeMap<String, Option<Top>>);

/// Labels behind that of the agent, and the value.
type Row<'a> = (Vec<(&'static str, &'a str)>, f64);

impl Agents {
    /// A family: for each agent that answers the rows that it has.
    fn family<'a>(
        &'a self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit, counts): (&str, &str, Option<Unit>, bool),
        rows: impl Fn(&'a Top) -> Vec<Row<'a>>,
    ) -> fmt::Result {
        let found: Vec<(&str, Row<'a>)> = self
            .0
            .iter()
            .filter_map(|(instance, top)| Some((instance.as_str(), top.as_ref()?)))
            .flat_map(|(instance, top)| rows(top).into_iter().map(move |row| (instance, row)))
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let kind = match counts {
            true => ConstCounter::new(0.0).metric_type(),
            false => ConstGauge::new(0.0).metric_type(),
        };
        let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (instance, (labels, value)) in found {
            let all: Vec<(&str, &str)> = [("agent", instance)].into_iter().chain(labels).collect();
            let encoder = family.encode_family(&all)?;
            match counts {
                true => ConstCounter::new(value).encode(encoder)?,
                false => ConstGauge::new(value).encode(encoder)?,
            }
        }
        Ok(())
    }

    /// The counters that `weir top` shows, but for those of ports.
    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.values().flatten().flat_map(|top| &top.counters);
        let names: BTreeSet<&str> =
            all.map(|(name, _)| name.as_str()).filter(|name| is_told(name)).collect();
        for name in names {
            let is_state = STATES.contains(&name);
            let help = format!("`{name}` of weir top");
            let own = name.strip_prefix("agent.").unwrap_or(name).replace('.', "_");
            self.family(encoder, (&format!("agent_{own}"), &help, None, !is_state), |top| {
                let found = top.counters.iter().filter(|(other, _)| other == name);
                found.map(|(_, value)| (Vec::new(), *value as f64)).collect()
            })?;
        }
        Ok(())
    }

    /// What ports counted. `octets` says which counters are families of their own.
    fn ports(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let octets = [
            ("tx_octets", "port_transmit", "What the VM sent"),
            ("rx_octets", "port_receive", "What the VM received"),
            ("external_tx", "port_external_transmit", "What it sent to places that nothing lists"),
            ("external_rx", "port_external_receive", "What it received from such places"),
        ];
        for (what, name, help) in octets {
            self.family(encoder, (name, help, Some(Unit::Bytes), true), |top| {
                let found = port_counters(top).filter(|(_, kind, _)| *kind == what);
                found.map(|(vm, _, value)| (vec![("vm", vm)], value)).collect()
            })?;
        }
        let help = "Packets that a VM's port dropped or did not expect, by kind";
        self.family(encoder, ("port_unusual_packets", help, None, true), |top| {
            port_counters(top)
                .filter(|(_, kind, _)| octets.iter().all(|(what, ..)| what != kind))
                .map(|(vm, kind, value)| (vec![("vm", vm), ("kind", kind)], value))
                .collect()
        })
    }

    /// How floors were kept.
    fn floors(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Of = fn(&FloorKept) -> u64;
        let families: [(&str, &str, Of); 2] = [
            (
                "floor_tested",
                "Time in which pairs that send from here wanted more than they had",
                |floor| floor.windows,
            ),
            ("floor_held", "Of that, the time in which the pair had its floor", |floor| floor.held),
        ];
        for (name, help, of) in families {
            self.family(encoder, (name, help, Some(Unit::Seconds), true), |top| {
                let rows = top.floors.iter().map(|floor| {
                    let direction = if floor.out { "out" } else { "in" };
                    let labels = vec![("vm", floor.vm.as_str()), ("direction", direction)];
                    (labels, of(floor) as f64)
                });
                rows.collect()
            })?;
        }
        Ok(())
    }
}

/// Whether a counter is told as it is: ports have families of their own, and a configured rate is not counted.
fn is_told(name: &str) -> bool {
    !name.starts_with("port.") && name != "host.floor_bps"
}

/// VM, kind and value of what ports counted.
fn port_counters(top: &Top) -> impl Iterator<Item = (&str, &str, f64)> {
    top.counters.iter().filter_map(|(name, value)| {
        // A VM's name may have dots.
        let (vm, kind) = name.strip_prefix("port.")?.rsplit_once('.')?;
        Some((vm, kind, *value as f64))
    })
}

impl Collector for Agents {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(0_i64);
        let help = "Whether the agent answers";
        let mut up = encoder.encode_descriptor("agent_up", help, None, gauge.metric_type())?;
        for (instance, top) in &self.0 {
            let value = ConstGauge::new(i64::from(top.is_some()));
            value.encode(up.encode_family(&[("agent", instance.as_str())])?)?;
        }
        let one = |value: f64| vec![(Vec::new(), value)];
        let encoder = &mut encoder;
        self.family(encoder, ("agent_info", "Host and mechanism", None, false), |top| {
            vec![(vec![("host", top.host.as_str()), ("mechanism", top.mechanism.as_str())], 1.0)]
        })?;
        let seconds = || Some(Unit::Seconds);
        self.family(encoder, ("agent_uptime", "Age of the process", seconds(), false), |top| {
            one(top.up_s)
        })?;
        self.family(encoder, ("agent_cpu", "CPU that it used", seconds(), true), |top| {
            one(top.cpu_s)
        })?;
        let help = "Whether it only observes: no floor is enforced";
        self.family(encoder, ("agent_observing", help, None, false), |top| {
            one(f64::from(u8::from(top.observing)))
        })?;
        let help = "Whether the process runs that takes back what is borrowed if the agent hangs";
        self.family(encoder, ("agent_guardian_up", help, None, false), |top| {
            one(f64::from(u8::from(!top.guardian_down)))
        })?;
        let help = "What the uplink holds of the floors promised; 1: all";
        let ratio = Some(Unit::Other("ratio".into()));
        self.family(encoder, ("agent_floors", help, ratio, false), |top| {
            one(top.overbooked.map_or(1.0, |over| over.factor()))
        })?;
        self.family(encoder, ("agent_pairs", "Active pairs", None, false), |top| {
            let mut count: BTreeMap<&str, f64> = BTreeMap::new();
            for pair in &top.pairs {
                *count.entry(pair.side.as_str()).or_default() += 1.0;
            }
            count.into_iter().map(|(side, n)| (vec![("side", side)], n)).collect()
        })?;
        let help = "VMs of which packets are not limited as they should be";
        self.family(encoder, ("vm_unenforced", help, None, false), |top| {
            top.unenforced.iter().map(|vm| (vec![("vm", vm.vm.as_str())], 1.0)).collect()
        })?;
        self.family(encoder, ("vm_port_gone", "VMs without a port", None, false), |top| {
            top.gone.iter().map(|vm| (vec![("vm", vm.vm.as_str())], 1.0)).collect()
        })?;
        self.floors(encoder)?;
        self.ports(encoder)?;
        self.counters(encoder)
    }
}

#[cfg(test)]
mod tests {
    use super::written;
    use std::collections::BTreeMap;
    use weir_model::status::{FloorKept, Overbooked, Pair, Top, Unenforced};

    #[test]
    fn numbers_are_openmetrics_and_an_agent_that_is_silent_is_down() {
        let count = |name: &str, value| (name.to_owned(), value);
        let top = Top {
            host: "h\"0".into(),
            mechanism: "elasticswitch (steady)".into(),
            cpu_s: 1.5,
            overbooked: Some(Overbooked { floors_bps: 400, budget_bps: 300 }),
            pairs: vec![Pair { side: "send".into(), ..Pair::default() }; 2],
            unenforced: vec![Unenforced { vm: "web".into(), why: "no".into() }],
            floors: vec![FloorKept { vm: "web".into(), out: true, windows: 10, held: 9 }],
            counters: vec![
                count("agent.messages", 7),
                count("agent.vms_unenforced", 1),
                count("wire.rejected", 2),
                count("port.a.b.tx_octets", 1500),
                count("port.a.b.spoofed", 3),
            ],
            ..Top::default()
        };
        let agents = BTreeMap::from([("h0".to_owned(), Some(top)), ("h1".to_owned(), None)]);
        let text = written(agents);
        for line in [
            "weir_agent_up{agent=\"h0\"} 1",
            "weir_agent_up{agent=\"h1\"} 0",
            "weir_agent_info{agent=\"h0\",host=\"h\\\"0\",mechanism=\"elasticswitch (steady)\"} 1.0",
            "# UNIT weir_agent_cpu_seconds seconds",
            "weir_agent_cpu_seconds_total{agent=\"h0\"} 1.5",
            "weir_agent_floors_ratio{agent=\"h0\"} 0.75",
            "weir_agent_pairs{agent=\"h0\",side=\"send\"} 2.0",
            "weir_vm_unenforced{agent=\"h0\",vm=\"web\"} 1.0",
            "weir_floor_tested_seconds_total{agent=\"h0\",vm=\"web\",direction=\"out\"} 10.0",
            "weir_floor_held_seconds_total{agent=\"h0\",vm=\"web\",direction=\"out\"} 9.0",
            "weir_port_transmit_bytes_total{agent=\"h0\",vm=\"a.b\"} 1500.0",
            "weir_port_unusual_packets_total{agent=\"h0\",vm=\"a.b\",kind=\"spoofed\"} 3.0",
            "weir_agent_messages_total{agent=\"h0\"} 7.0",
            "weir_agent_vms_unenforced{agent=\"h0\"} 1.0",
            "weir_agent_wire_rejected_total{agent=\"h0\"} 2.0",
        ] {
            assert!(text.lines().any(|told| told == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
