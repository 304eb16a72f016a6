//! The law that a name stands for, with the constants that the user set.
//!
//! Problem   Constants have names and units, and the same ones are set in `agent.toml`, for all
//!           agents of a lab, and in the simulator.
//! Approach  One place that reads them: first the set that the name stands for, then its scale,
//!           then each constant that differs.
//! Promises  What passes here can work together.
//! Not here  EyeQ's: see [`eyeq`], and [`fits`] for what an agent makes of it.
//! Source    `weir_core::mechanism` has the names, docs/algorithms what they mean.

mod eyeq;

pub use eyeq::eyeq;
pub(crate) use eyeq::on_host;

use anyhow::{Context, Result, ensure};
use weir_core::elasticswitch::ElasticSwitch;
use weir_core::eyeq::Backend;
use weir_core::mechanism::constants::{Entry, Take};
use weir_core::reservation::Reservation;
use weir_model::agent::MechanismConfig;
use weir_model::text;
use weir_units::{Bytes, Rate, Span};

/// The law of `elasticswitch` or `seawall`; `None` if `config` names another mechanism.
///
/// # Errors
///
/// Begins with the field of `config` that is wrong, and says what would be right.
pub fn law(config: &MechanismConfig) -> Result<Option<ElasticSwitch>> {
    let mut es = match config.name.as_str() {
        "elasticswitch" => ElasticSwitch::preset(config.preset()).with_context(|| {
            let (name, known) = (config.preset(), ElasticSwitch::PRESETS.join(", "));
            format!("preset: there is no `{name}`; there are {known}")
        })?,
        "seawall" => {
            // Its law has no sets of constants of its own.
            ensure!(config.preset() == "paper", "preset: `seawall` has none; leave it out");
            ElasticSwitch::seawall()
        }
        _ => return Ok(None),
    };
    // First: the other keys are given as they are meant.
    if let Some(factor) = config.set.get("scale") {
        es = es.scaled(real(factor).context("set.scale")?);
    }
    for (key, value) in config.set.iter().filter(|(key, _)| *key != "scale") {
        set(&mut es, ElasticSwitch::CONSTANTS, key, value).with_context(|| format!("set.{key}"))?;
    }
    es.check().map_err(anyhow::Error::msg).context("set")?;
    Ok(Some(es))
}

/// Whether an agent on a host with an uplink of `line` and HTB can keep what `config` says: EyeQ's
/// loop may not come to rest there, or measure nothing.
///
/// # Errors
///
/// As [`law`].
pub fn fits(config: &MechanismConfig, line: Rate) -> Result<()> {
    on_host(config, line, Backend::Agent).map(drop)
}

/// The rate of pairs that a reservation does not name, on a host with an uplink of `line`.
///
/// # Errors
///
/// As [`law`].
pub fn unreserved(config: &MechanismConfig, line: Rate) -> Result<Rate> {
    let factor = match config.set.get("scale") {
        Some(factor) => real(factor).context("set.scale")?,
        None => 1.0,
    };
    match config.set.get("default_floor") {
        Some(value) => rate(value).context("set.default_floor"),
        None => Ok(Reservation::usual_other(factor, line)),
    }
}

/// Sets one constant of a law by its name.
fn set<L>(law: &mut L, all: &[Entry<L>], key: &str, value: &toml::Value) -> Result<()> {
    let entry = Entry::find(key, all).with_context(|| {
        let names: Vec<&str> = all.iter().map(|entry| entry.name).collect();
        format!("there is no such constant; there are {}", names.join(", "))
    })?;
    match entry.take {
        Take::Real(put) => put(law, real(value)?),
        Take::RealOr(none, put) if value.as_str() == Some(none) => put(law, None),
        Take::RealOr(_, put) => put(law, Some(real(value)?)),
        Take::Rate(put) => put(law, rate(value)?),
        Take::RateIf(put) => put(law, rate(value)?).map_err(anyhow::Error::msg)?,
        Take::Span(put) => put(law, span(value)?),
        Take::Octets(put) => put(law, octets(value)?),
        Take::Word(words) => one_of(value, words)?(law),
    }
    Ok(())
}

fn text_of(value: &toml::Value) -> Result<&str> {
    value.as_str().context("should be text in quotes, with a unit")
}

fn rate(value: &toml::Value) -> Result<Rate> {
    text::rate(text_of(value)?).map_err(anyhow::Error::msg)
}

fn span(value: &toml::Value) -> Result<Span> {
    let span = text::span(text_of(value)?).map_err(anyhow::Error::msg)?;
    ensure!(span > Span::ZERO, "a span of zero");
    Ok(span)
}

fn octets(value: &toml::Value) -> Result<Bytes> {
    text::size(text_of(value)?).map_err(anyhow::Error::msg)
}

fn real(value: &toml::Value) -> Result<f64> {
    let real = value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    let real = real.context("should be a number")?;
    ensure!(real.is_finite() && real >= 0.0, "should be a number from 0 up");
    Ok(real)
}

fn one_of<T: Copy>(value: &toml::Value, choices: &[(&str, T)]) -> Result<T> {
    let text = text_of(value)?;
    choices.iter().find(|(name, _)| *name == text).map(|(_, t)| *t).with_context(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_preset_agents_play_the_one_that_keeps_the_promises() {
        let law_of = |text: &str| {
            let config: MechanismConfig = toml::from_str(text).expect("a mechanism");
            law(&config).expect("sound").expect("of these two")
        };
        let preset = |name: &str| ElasticSwitch::preset(name).expect("known");
        assert_eq!(law_of("name = \"elasticswitch\""), preset("steady"));
        assert_eq!(law_of("name = \"elasticswitch\"\npreset = \"paper\""), preset("paper"));
        assert_eq!(law_of("name = \"seawall\""), ElasticSwitch::seawall());
        let slow =
            law_of("name = \"elasticswitch\"\nset = { long_path = \"50ms\", keeps_used = 3 }");
        assert_eq!(slow.rate.long_path, Some(Span::from_millis(50)));
        assert_eq!(slow.rate.keeps_used, Some(3.0));
    }
}
