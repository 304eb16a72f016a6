//! The constants of ElasticSwitch, of Seawall beside it, and their presets.

use crate::partition::PartitionConfig;
use crate::path::{MAX_PATHS, PathConfig};
use crate::rate::{DeltaTFrom, DeltaTUnit, HoldForm, RateConfig, Signal};
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Rate, Span};

/// Constants of ElasticSwitch. The default is the paper's, for links of 1 Gb/s.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ElasticSwitch {
    /// Constants of rate allocation.
    pub rate: RateConfig,
    /// Constants of guarantee partitioning.
    pub partition: PartitionConfig,
    /// Constants of path partitioning. The paper has no such layer: one path.
    pub paths: PathConfig,
    /// Guarantee partitioning period. Paper: 60 ms.
    pub partition_period: Span,
    /// How often a receiver looks for losses. The paper counts in the kernel and reports at once.
    pub sample_period: Span,
    /// At most one congestion message per destination in this time. Paper: 0.5 ms.
    pub feedback_gap: Span,
    /// New pairs are offered their part at once, and all others of that VM their changed parts
    /// after this time: many pairs that start together share one new division.
    pub new_pair_delay: Span,
    /// The small hose, in each direction of each VM, that all its traffic to other tenants shares.
    pub default_floor: Rate,
    /// A gap in a pair's sequence is a loss when it has stayed open for this long: on several paths
    /// packets overtake each other. Paper: at once.
    pub reorder_window: Span,
    /// What a pair may send in any case.
    pub promise: Promise,
}

/// What a pair may send in any case, and what decides its part of the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Promise {
    /// Its part of both hoses, which is its weight too.
    Hose,
    /// Nothing but a trickle. All sending VMs have the weight of a floor of this much, each divided
    /// evenly over the VMs it sends to.
    Weight(Rate),
}

impl Promise {
    /// Whether floors of several hoses of a VM are kept.
    pub const fn has_hoses(self) -> bool {
        matches!(self, Self::Hose)
    }
}

impl Default for ElasticSwitch {
    fn default() -> Self {
        Self {
            rate: RateConfig::default(),
            partition: PartitionConfig::default(),
            paths: PathConfig::default(),
            partition_period: Span::from_millis(60),
            sample_period: Span::from_millis(5),
            feedback_gap: Span::from_micros(500),
            new_pair_delay: Span::from_millis(5),
            default_floor: Rate::from_mbps(1),
            reorder_window: Span::from_millis(1),
            promise: Promise::Hose,
        }
    }
}

impl ElasticSwitch {
    /// The named sets of constants for pairs with one path.
    pub const PRESETS: &[&str] = &["paper", "steady", "paper-ecn", "steady-ecn", "fast"];
    /// All of them: also the one that needs a data plane with several paths to a host, and guarantee
    /// partitioning alone.
    pub const ALL_PRESETS: &[&str] =
        &["paper", "steady", "paper-ecn", "steady-ecn", "fast", "steady-paths", "floors"];

    /// A named set of constants, for links of 1 Gb/s; see docs/algorithms/elasticswitch.md.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "paper" => Some(Self::default()),
            "steady" => Some(Self::steady()),
            "paper-ecn" => Some(Self::default().with_ecn()),
            "steady-ecn" => Some(Self::steady_ecn()),
            "steady-paths" => Some(Self::steady().with_paths(2)),
            "fast" => Some(Self::steady().with_fast_partitioning()),
            "floors" => Some(Self::floors()),
            _ => None,
        }
    }

    /// Seawall: shares of a link in proportion to the weights of the VMs that send over it, without
    /// any floor, Hold-Increase or Rate-Caution (ElasticSwitch §2, §7.2). Weights are equal. That
    /// of a floor of 45 Mb/s on 1 Gb/s: the shares do not depend on it, only how fast they are
    /// reached.
    ///
    /// Offers and echoes go on, for they say that the other host lives; floors do not follow them.
    pub fn seawall() -> Self {
        let rate = RateConfig::default().without_hold_and_caution();
        Self { rate, promise: Promise::Weight(Rate::from_mbps(45)), ..Self::default() }
    }

    /// Guarantee partitioning without rate allocation: nothing is borrowed. QShare's tenants in the
    /// shared queue, where ElasticSwitch is off there (QShare §7.1).
    fn floors() -> Self {
        let rate = RateConfig { lends_vm: Some(0.0), ..RateConfig::default() };
        Self { rate, ..Self::default() }
    }

    /// The same with floors that follow demands within 10 ms. Needs a data plane that says what waits in
    /// a pair's queue: in 10 ms a slow pair's use says little.
    fn with_fast_partitioning(self) -> Self {
        let (partition_period, new_pair_delay) = (Span::from_millis(10), Span::from_millis(1));
        Self { partition_period, new_pair_delay, ..self }
    }

    /// Fast guarantee partitioning for a mechanism that lends by itself.
    pub(crate) fn fast_floors() -> Self {
        Self::floors().with_fast_partitioning()
    }

    /// The same with a third layer, for hosts that can tell `count` paths to each other.
    pub fn with_paths(self, count: usize) -> Self {
        Self { paths: PathConfig { count, ..self.paths.clone() }, ..self }
    }

    /// The same on links `factor` times as fast: rates scale, periods do not.
    pub fn scaled(&self, factor: f64) -> Self {
        let mut partition = self.partition.clone();
        partition.small_start = partition.small_start.scale(factor);
        Self {
            rate: self.rate.scaled(factor),
            partition,
            default_floor: self.default_floor.scale(factor),
            promise: match self.promise {
                Promise::Hose => Promise::Hose,
                Promise::Weight(weight) => Promise::Weight(weight.scale(factor)),
            },
            ..self.clone()
        }
    }

    /// Whether the constants can work together; says which cannot, and what could.
    pub fn check(&self) -> Result<(), String> {
        let (r, p) = (&self.rate, &self.partition);
        let within = |name: &str, value: f64, from: f64, to: f64| {
            if (from..=to).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name} is {value}; it should lie between {from} and {to}"))
            }
        };
        let ms = |span: Span| span.as_secs_f64() * 1e3;
        within("sample_period in ms", ms(self.sample_period), 0.2, 1000.0)?;
        within("rate_period in ms", ms(r.period), 1.0, 1000.0)?;
        // Receivers speak once per period: twice in what counts as silence, or no pair ever
        // borrows.
        within("partition_period in ms", ms(self.partition_period), 5.0, ms(p.silent_after) / 2.0)?;
        within("alpha", r.alpha, 0.0, 1.0)?;
        within("alpha_marked", r.alpha_marked, 0.0, 1.0)?;
        within("alpha_again", r.alpha_again.unwrap_or(r.alpha), 0.0, 1.0)?;
        within("again_after in ms", ms(r.again_after), 0.0, 1e6)?;
        within("settle in ms", ms(r.settle), 0.0, 1e6)?;
        within("hold_base in ms", ms(r.hold_base), 0.0, 1e6)?;
        within("delta", r.delta, 0.0, 1.0)?;
        within("gamma", r.gamma, 0.0, 0.999)?;
        within("caution_min", r.caution_min, 0.0, 1.0)?;
        within("time_scale", r.time_scale, 0.001, 1e6)?;
        within("steps_max", f64::from(r.steps_max), 1.0, f64::from(u32::MAX))?;
        if let Some(patience) = r.steps_patience {
            within("steps_patience in ms", ms(patience), ms(r.period), 1e6)?;
        }
        within("reference_rate in bit/s", r.reference.as_f64(), 1.0, 1e13)?;
        within("keeps_used", r.keeps_used.unwrap_or(2.0), 1.0, 1e6)?;
        within("lends_vm", r.lends_vm.unwrap_or(2.0), 0.0, 1e6)?;
        within("long_path in ms", r.long_path.map_or(1.0, ms), 0.01, 1e6)?;
        within("paths", self.paths.count as f64, 1.0, MAX_PATHS as f64)?;
        // Above, a fast pair's sequence of 16 bits could come round within the window.
        within("reorder_window in ms", ms(self.reorder_window), 0.01, 20.0)?;
        Ok(())
    }

    /// For links whose floors may all be reserved, and many small pairs. Found in the lab at 50,
    /// 150 and 250 senders, and for Table 2 and Fig. 2 in the fluid world; measured at the paper's
    /// points in docs/results.
    ///
    /// With the paper's constants a small pair's single loss holds one period only, its cut leaves
    /// it above its floor, and one that was spared for seconds grows by several floors at once:
    /// many small pairs then keep the link congested, and one large TCP flow pays. Here every loss
    /// holds in inverse proportion to the floor, a pair that loses again soon returns to its floor,
    /// and growth all but stops at twice the floor, until a pair has seen no loss for seconds. A
    /// pair so slow that a packet takes more than a period grows once per full frame: of less it
    /// cannot have heard anything.
    fn steady() -> Self {
        let rate = RateConfig {
            alpha_again: Some(0.9),
            hold: HoldForm::Linear,
            hold_base: Span::from_millis(100),
            steps_max: 3,
            steps_patience: Some(Span::from_millis(1500)),
            growth_needs_sent: Bytes::new(1514),
            delta_t_unit: DeltaTUnit::Second,
            delta_t_from: DeltaTFrom::HoldEnd,
            time_scale: 0.25,
            caution: 1.0,
            caution_min: 0.1,
            ..RateConfig::default()
        };
        Self { rate, ..Self::default() }.operating()
    }

    /// What every preset for operation has beyond the law: see the fields.
    fn operating(self) -> Self {
        let rate = RateConfig {
            long_path: Some(Span::from_millis(5)),
            // Twice is too little where a host's floors are overbooked: a pair there had 0.74 of
            // its scaled floor in the simulator (tests/overbooked.rs).
            keeps_used: Some(4.0),
            lends_vm: Some(2.0),
            ..self.rate
        };
        Self { rate, ..self }
    }

    /// The same law with marks as its signal (ElasticSwitch §6, §7.4).
    fn with_ecn(self) -> Self {
        Self { rate: RateConfig { signal: Signal::Ecn, ..self.rate }, ..self }
    }

    /// For links that mark all that passes above a threshold. Found in the fluid world; the size of
    /// the cut in the lab.
    ///
    /// Marks come before losses and to all pairs at once, so no pair need wait for the others:
    /// small cuts and small steps, and no hold ("our improvements to Seawall's algorithm are not
    /// necessary on ECN-capable networks", ElasticSwitch §7.4). A loss, where marks came too late,
    /// takes as much as in `paper`.
    fn steady_ecn() -> Self {
        let rate = RateConfig {
            alpha_marked: 0.02,
            hold: HoldForm::None,
            steps_max: 8,
            ..RateConfig::default()
        };
        Self { rate, ..Self::default() }.operating().with_ecn()
    }
}
