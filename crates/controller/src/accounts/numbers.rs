//! Numbers of floors for Prometheus.
//!
//! Approach  Counters of VMs as they are when they are asked for: since this controller began. No labels of pairs: their
//!           number grows with the square of the VMs'.

use super::{Books, IN, OUT, Sum, alerts, key};
use crate::clock::Clock;
use crate::view::View;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use weir_model::objects::{Kind, Spec};

/// The collector of a controller's books.
pub(crate) struct Numbers {
    pub(crate) books: Arc<Books>,
    pub(crate) view: Arc<View>,
    pub(crate) clock: Clock,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Numbers")
    }
}

/// A VM as it is told.
struct Row {
    tenant: String,
    vm: String,
    /// Octets per second.
    floor: [u64; 2],
    total: [Sum; 2],
}

/// The alerts whose number is told, also while there is none.
const ALERTS: [&str; 8] = [
    "WeirFloorBroken",
    "WeirVmUnenforced",
    "WeirAgentOverbooked",
    "WeirGuardianDown",
    "WeirHostSilent",
    "WeirNotAdmitted",
    "WeirSwitchDrift",
    "WeirNotReady",
];

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let rows = self.rows();
        let ways = [("out", OUT), ("in", IN)];
        type Of = fn(&Row, usize) -> u64;
        let both: [(&str, &str, Option<Unit>, Of); 3] = [
            ("vm_borrowed", "What arrived beyond the floors", Some(Unit::Bytes), |row, way| {
                row.total[way].borrowed
            }),
            (
                "vm_tested",
                "Time of pairs that wanted more than they had",
                Some(Unit::Seconds),
                |row, way| row.total[way].windows,
            ),
            (
                "vm_held",
                "Of that, the time in which the pair had its floor",
                Some(Unit::Seconds),
                |row, way| row.total[way].held,
            ),
        ];
        for (name, help, unit, of) in both {
            let counter = ConstCounter::new(0_u64);
            let mut family =
                encoder.encode_descriptor(name, help, unit.as_ref(), counter.metric_type())?;
            for row in &rows {
                for (word, way) in ways {
                    let labels = [
                        ("tenant", row.tenant.as_str()),
                        ("vm", row.vm.as_str()),
                        ("direction", word),
                    ];
                    ConstCounter::new(of(row, way)).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        for (name, help, way) in [
            ("vm_transmit", "What left the VM and arrived", OUT),
            ("vm_receive", "What arrived at the VM", IN),
        ] {
            let counter = ConstCounter::new(0_u64);
            let mut family =
                encoder.encode_descriptor(name, help, Some(&Unit::Bytes), counter.metric_type())?;
            for row in &rows {
                let labels = [("tenant", row.tenant.as_str()), ("vm", row.vm.as_str())];
                ConstCounter::new(row.total[way].all).encode(family.encode_family(&labels)?)?;
            }
        }
        let unit = Unit::Other("bytes_per_second".into());
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "vm_guarantee",
            "The VM's floor",
            Some(&unit),
            gauge.metric_type(),
        )?;
        for row in &rows {
            for (word, way) in ways {
                let labels =
                    [("tenant", row.tenant.as_str()), ("vm", row.vm.as_str()), ("direction", word)];
                ConstGauge::new(row.floor[way] as i64).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut alerting: BTreeMap<String, i64> =
            ALERTS.iter().map(|name| ((*name).to_owned(), 0)).collect();
        for alert in alerts(&self.books, &self.view, self.clock.now()) {
            *alerting.entry(alert.name).or_default() += 1;
        }
        let mut family = encoder.encode_descriptor(
            "alerts",
            "What has to be looked at now",
            None,
            gauge.metric_type(),
        )?;
        for (name, count) in &alerting {
            ConstGauge::new(*count).encode(family.encode_family(&[("alert", name.as_str())])?)?;
        }
        Ok(())
    }
}

impl Numbers {
    fn rows(&self) -> Vec<Row> {
        let (stored, _) = self.view.all(&[Kind::Vm]);
        let of = |stored: &Arc<crate::state::Stored>| match &stored.object.spec {
            Spec::Vm(spec) => {
                let vm = stored.object.name().to_owned();
                let floor = [spec.floor.out, spec.floor.inward].map(|floor| floor.0.as_bps() / 8);
                let total = self.books.total(&key(&spec.tenant, &vm));
                Some(Row { tenant: spec.tenant.clone(), vm, floor, total })
            }
            _ => None,
        };
        stored.iter().filter_map(of).collect()
    }
}
