//! ElasticSwitch's constants by name. Seawall has the same, and a weight.
//!
//! Source    docs/algorithms/elasticswitch.md says what each one means.

use super::{ElasticSwitch, Promise};
use crate::mechanism::constants::{Entry, Take, Word};
use crate::rate::{DeltaTFrom, DeltaTUnit, HoldForm, Signal};
use weir_units::Rate;

const DELTA_T_UNIT: &[Word<ElasticSwitch>] = &[
    ("period", |es| es.rate.delta_t_unit = DeltaTUnit::Period),
    ("second", |es| es.rate.delta_t_unit = DeltaTUnit::Second),
];
const DELTA_T_FROM: &[Word<ElasticSwitch>] = &[
    ("congestion", |es| es.rate.delta_t_from = DeltaTFrom::Congestion),
    ("hold-end", |es| es.rate.delta_t_from = DeltaTFrom::HoldEnd),
];
const HOLD: &[Word<ElasticSwitch>] = &[
    ("none", |es| es.rate.hold = HoldForm::None),
    ("linear", |es| es.rate.hold = HoldForm::Linear),
    ("history", |es| es.rate.hold = HoldForm::History),
];
const SIGNAL: &[Word<ElasticSwitch>] =
    &[("loss", |es| es.rate.signal = Signal::Loss), ("ecn", |es| es.rate.signal = Signal::Ecn)];

const fn entry(name: &'static str, take: Take<ElasticSwitch>) -> Entry<ElasticSwitch> {
    Entry { name, take }
}

impl ElasticSwitch {
    /// All constants that can be set by name.
    pub const CONSTANTS: &[Entry<Self>] = &[
        entry("rate_period", Take::Span(|es, span| es.rate.period = span)),
        entry("alpha", Take::Real(|es, part| es.rate.alpha = part)),
        entry("alpha_marked", Take::Real(|es, part| es.rate.alpha_marked = part)),
        entry("alpha_again", Take::Real(|es, part| es.rate.alpha_again = Some(part))),
        entry("again_after", Take::Span(|es, span| es.rate.again_after = span)),
        entry("delta", Take::Real(|es, delta| es.rate.delta = delta)),
        entry("a", Take::Rate(|es, rate| es.rate.a = rate)),
        entry("steps_max", Take::Real(|es, steps| es.rate.steps_max = steps as u32)),
        entry("steps_patience", Take::Span(|es, span| es.rate.steps_patience = Some(span))),
        entry("settle", Take::Span(|es, span| es.rate.settle = span)),
        entry("time_scale", Take::Real(|es, scale| es.rate.time_scale = scale)),
        entry("delta_t_unit", Take::Word(DELTA_T_UNIT)),
        entry("delta_t_from", Take::Word(DELTA_T_FROM)),
        entry("caution", Take::Real(|es, caution| es.rate.caution = caution)),
        entry("caution_min", Take::Real(|es, least| es.rate.caution_min = least)),
        entry("hold", Take::Word(HOLD)),
        entry("gamma", Take::Real(|es, gamma| es.rate.gamma = gamma)),
        entry("hold_base", Take::Span(|es, span| es.rate.hold_base = span)),
        entry("reference_rate", Take::Rate(|es, rate| es.rate.reference = rate)),
        entry("growth_needs_sent", Take::Octets(|es, sent| es.rate.growth_needs_sent = sent)),
        entry("keeps_used", Take::Real(|es, times| es.rate.keeps_used = Some(times))),
        entry("used_half_life", Take::Span(|es, span| es.rate.used_half_life = span)),
        entry("lends_vm", Take::Real(|es, times| es.rate.lends_vm = Some(times))),
        entry("long_path", Take::Span(|es, span| es.rate.long_path = Some(span))),
        entry("ask_every", Take::Span(|es, span| es.partition.ask_every = span)),
        entry("most_lives", Take::Span(|es, span| es.partition.most_lives = span)),
        entry("signal", Take::Word(SIGNAL)),
        entry("reorder_window", Take::Span(|es, span| es.reorder_window = span)),
        entry("weight", Take::RateIf(weight)),
        entry("partition_period", Take::Span(|es, span| es.partition_period = span)),
        entry("sample_period", Take::Span(|es, span| es.sample_period = span)),
        entry("least_judged", Take::Octets(|es, octets| es.partition.least_judged = octets)),
        entry("judged_within", Take::Span(|es, span| es.partition.judged_within = span)),
        entry("small_start", Take::Rate(|es, rate| es.partition.small_start = rate)),
        entry("default_floor", Take::Rate(|es, rate| es.default_floor = rate)),
    ];
}

fn weight(es: &mut ElasticSwitch, weight: Rate) -> Result<(), &'static str> {
    if es.promise == Promise::Hose {
        return Err("pairs have floors here; `seawall` has weights");
    }
    es.promise = Promise::Weight(weight);
    Ok(())
}
