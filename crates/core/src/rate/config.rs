//! The constants of rate allocation. Defaults are the paper's (ElasticSwitch §7).

use weir_units::{Bytes, Rate, Span};

/// All constants of the law. [`RateConfig::default`] is the paper's, on a 1 Gb/s link.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RateConfig {
    /// Rate allocation period. Paper: 15 ms.
    pub period: Span,
    /// Settling time after a cut. A report within it is about packets from before the cut: it adds
    /// to the history and cuts no second time. The paper's reports leave the receiver's kernel
    /// within 0.5 ms; ours wait for the next sample (5 ms) and for a full buffer to drain (5 ms for
    /// 128 kB at 200 Mb/s). With zero, one congestion cuts twice: Table 2 is missed by 24 %, not
    /// 7 %.
    pub settle: Span,
    /// Part of the rate that a loss takes. Paper: 0.4.
    pub alpha: f64,
    /// Part of the rate that marks take where nothing was lost. Paper: as a loss. But a marked
    /// packet arrived, so no harm is done yet, and small cuts keep the link in use.
    pub alpha_marked: f64,
    /// Part of the rate that a loss takes during a hold or within one hold time (`hold_base` / w)
    /// after it. The pair has hardly grown since, so its growth alone was not the cause. Meant for
    /// the linear form. Paper: as any other loss (`None`).
    pub alpha_again: Option<f64>,
    /// Time after a cut within which a loss still belongs to the congestion that the cut answered,
    /// reported late or still in a queue. Such a loss takes `alpha`, not `alpha_again`. Four
    /// periods; a megabyte at 200 Mb/s drains in 40 ms.
    pub again_after: Span,
    /// δ, gain of the concave part. Paper: 0.75.
    pub delta: f64,
    /// A, added per period, per unit of weight and per step of the convex part. Paper: 0.5 Mb/s on
    /// a 1 Gb/s link; it goes with the link's rate. The paper does not say "per what"; per period
    /// of rate allocation is the only reading consistent with its results.
    pub a: Rate,
    /// Bound of n, the count of convex steps. The paper has none. A small pair without losses for
    /// seconds then grows by several times its floor within one period, before it sees its own
    /// loss.
    pub steps_max: u32,
    /// Time in which that bound doubles while a pair grows without congestion, after the first such
    /// time and after half a hold time. A pair that harms others gets a report sooner. The paper
    /// has no bound.
    pub steps_patience: Option<Span>,
    /// T_S, divides physical time. Paper: 1.5.
    pub time_scale: f64,
    /// The unit of physical time, on which the paper is silent.
    pub delta_t_unit: DeltaTUnit,
    /// Where that time starts, on which the paper is silent.
    pub delta_t_from: DeltaTFrom,
    /// C of Rate-Caution. Paper: 0.5. Zero turns it off.
    pub caution: f64,
    /// C_min of Rate-Caution. Paper: 0.3.
    pub caution_min: f64,
    /// Form of Hold-Increase.
    pub hold: HoldForm,
    /// γ of the packet-loss history. Paper: 0.75, applied as γ^w per period.
    pub gamma: f64,
    /// Hold time of one loss at weight 1 (linear form). 60 ms fits the paper's Table 2.
    pub hold_base: Span,
    /// The floor that has weight 1: w = B / reference. Paper prints w = 450 Mbps/B, which
    /// contradicts its §5 ("the weight is B") and inverts its Table 2. One number for the whole
    /// fleet: 0.45 of the link's rate.
    pub reference: Rate,
    /// Floor as which a smaller floor (or none) counts in growth.
    pub least_floor: Rate,
    /// Octets that a pair must have sent since it last grew before it grows again, because less
    /// brings no feedback. Counted as the guest sent them, before its queue. Paper: not asked
    /// (zero), but its slowest pairs, a 300th of 0.45 Gb/s, send 1.8 full frames in a period.
    pub growth_needs_sent: Bytes,
    /// Round trip from which on a loss holds longer than in the linear form, by the square of the
    /// round trip over this one, and no less than one connection needs to regain its window; and
    /// from which on a pair that holds comes to its floor, and the pairs of two hosts hold together.
    /// Shorter: long paths borrow less than they could. Longer: a long TCP connection loses its
    /// floor to losses of pairs that probe. Paper: not asked (`None`).
    pub long_path: Option<Span>,
    /// Bound of the rate, as a multiple of what the pair used in the fastest of its last periods,
    /// where that exceeds its floor. Below 1.5 a TCP connection grows late; larger, a pair that
    /// paused keeps a rate that was never tested. Paper: not asked (`None`).
    pub keeps_used: Option<f64>,
    /// Half-life of that use. If it is shorter than a pause between bursts, each burst begins at
    /// the floor again.
    pub used_half_life: Span,
    /// Bound of what all pairs of a VM borrow together, in units of the host's link. Below 2 a VM
    /// with many TCP connections is held back, each of which has `keeps_used` times what it uses.
    /// Paper: not asked.
    pub lends_vm: Option<f64>,
    /// Signal of congestion. Paper: losses, or ECN marks where the switches mark (§6, §7.4).
    pub signal: Signal,
}

/// Signal of congestion (ElasticSwitch §6: gaps in the sequence, or ECN).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Signal {
    /// Lost segments, one by one. Packets leave as the guests made them; marks mean nothing here.
    Loss,
    /// Marks. Every packet leaves ECN-capable. A queue over its threshold marks all that passes, so
    /// the number of marks shows a pair's rate and not the congestion: a report counts as one. A
    /// loss is congestion in any case (RFC 3168 §5) and comes from the same queues, so it counts as
    /// one with them.
    Ecn,
}

impl Signal {
    /// Whether packets have to leave ECN-capable, so that ports can mark them.
    pub const fn needs_marks(self) -> bool {
        !matches!(self, Self::Loss)
    }

    /// What a report of `lost` and `marked` segments adds to a pair's history of congestion; zero
    /// is no congestion.
    pub const fn weigh(self, lost: u32, marked: u32) -> u32 {
        match self {
            Self::Loss => lost,
            Self::Ecn => (lost > 0 || marked > 0) as u32,
        }
    }
}

/// The unit in which Δt counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum DeltaTUnit {
    /// Rate allocation periods.
    Period,
    /// Seconds.
    Second,
}

/// Where Δt starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum DeltaTFrom {
    /// At the last congestion, as the paper's words say.
    Congestion,
    /// At the end of the hold that followed it.
    HoldEnd,
}

/// How long a pair waits after a loss before it grows again: T ∝ 1/B (ElasticSwitch §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum HoldForm {
    /// Not at all: what is left, without Rate-Caution too, is Seawall.
    None,
    /// A fixed time per congestion event: T = base / w.
    Linear,
    /// Exponential decay of the packet-loss history: h ← γ^w·h per period, h += losses; no growth
    /// while h ≥ 1. The paper's prototype. T ∝ ln(h) / w, but a single loss holds one period only.
    History,
}

impl Default for RateConfig {
    fn default() -> Self {
        Self {
            period: Span::from_millis(15),
            settle: Span::from_millis(10),
            alpha: 0.4,
            alpha_marked: 0.4,
            alpha_again: None,
            again_after: Span::from_millis(60),
            delta: 0.75,
            a: Rate::from_bps(500_000),
            steps_max: u32::MAX,
            steps_patience: None,
            time_scale: 1.5,
            delta_t_unit: DeltaTUnit::Period,
            delta_t_from: DeltaTFrom::Congestion,
            caution: 0.5,
            caution_min: 0.3,
            hold: HoldForm::History,
            gamma: 0.75,
            hold_base: Span::from_millis(60),
            reference: Rate::from_mbps(450),
            least_floor: Rate::from_bps(1_000),
            growth_needs_sent: Bytes::new(0),
            long_path: None,
            keeps_used: None,
            used_half_life: Span::from_millis(500),
            lends_vm: None,
            signal: Signal::Loss,
        }
    }
}

impl RateConfig {
    /// Whether a path of this round trip is long ([`Self::long_path`]).
    pub fn is_long(&self, round_trip: Option<Span>) -> bool {
        self.long_path.zip(round_trip).is_some_and(|(long, time)| time > long)
    }

    /// The same law on links `factor` times as fast: rates scale, periods do not.
    pub fn scaled(&self, factor: f64) -> Self {
        Self { a: self.a.scale(factor), reference: self.reference.scale(factor), ..self.clone() }
    }

    /// Seawall's law: neither Hold-Increase nor Rate-Caution (ElasticSwitch §7.2).
    pub fn without_hold_and_caution(&self) -> Self {
        Self { hold: HoldForm::None, caution: 0.0, ..self.clone() }
    }
}
