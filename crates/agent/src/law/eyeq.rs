//! EyeQ's constants, as they are set: the same names as in docs/algorithms/eyeq.md.
//!
//! Promises  What is set is meant as it is, on whatever link; what is not follows the link. Whether all can work
//!           together is known with the link: the machine is asked then.

use super::{octets, one_of, rate, real, span};
use anyhow::{Context, Result, bail};
use weir_core::eyeq::{Backend, Constant, EyeQ, Tuned};
use weir_model::agent::MechanismConfig;

/// EyeQ's law before it knows its link; `None` if `config` names another mechanism.
///
/// # Errors
///
/// Begins with the field of `config` that is wrong, and says what would be right.
pub fn eyeq(config: &MechanismConfig) -> Result<Option<Tuned>> {
    if config.name != "eyeq" {
        return Ok(None);
    }
    let preset = EyeQ::preset(&format!("eyeq-{}", config.preset)).with_context(|| {
        let known = EyeQ::SHORT_PRESETS.join(", ");
        format!("preset: there is no `{}`; there are {known}", config.preset)
    })?;
    let mut tuned = Tuned::new(preset, Backend::Kernel);
    // A scenario's scale changes its links, which EyeQ's rates and times follow anyway.
    for (key, value) in config.set.iter().filter(|(key, _)| *key != "scale") {
        set(&mut tuned, key, value).with_context(|| format!("set.{key}"))?;
    }
    Ok(Some(tuned))
}

fn set(tuned: &mut Tuned, key: &str, value: &toml::Value) -> Result<()> {
    tuned.set.push(match key {
        "backend" => {
            tuned.backend =
                one_of(value, &[("kernel", Backend::Kernel), ("agent", Backend::Agent)])?;
            return Ok(());
        }
        "period" => Constant::Period(span(value)?),
        "alpha" => Constant::Alpha(real(value)?),
        "least_factor" => Constant::LeastFactor(real(value)?),
        "least_divisor" => Constant::LeastDivisor(real(value)? as u32),
        "counts_losses" => Constant::CountsLosses(one_of(value, &[("yes", true), ("no", false)])?),
        "idle_after" => Constant::IdleAfter(span(value)?),
        "told_part" => Constant::ToldPart(real(value)?),
        "feedback_octets" => Constant::FeedbackOctets(octets(value)?),
        "feedback_unit" => Constant::FeedbackUnit(rate(value)?),
        "silence" => Constant::Silence(span(value)?),
        "silent_octets" => Constant::SilentOctets(octets(value)?),
        "silent_least" => Constant::SilentLeast(rate(value)?),
        "limiter_idle" => Constant::LimiterIdle(span(value)?),
        "outer_period" => Constant::OuterPeriod(span(value)?),
        "outer_alpha" => Constant::OuterAlpha(real(value)?),
        "fall_at" if value.as_str() == Some("never") => Constant::FallAt(None),
        "fall_at" => Constant::FallAt(Some(real(value)?)),
        _ => bail!("there is no such constant; see docs/algorithms/eyeq.md"),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_units::Span;

    fn config(name: &str, preset: &str, set: &[(&str, toml::Value)]) -> MechanismConfig {
        let set: BTreeMap<_, _> = set.iter().map(|(k, v)| ((*k).into(), v.clone())).collect();
        MechanismConfig { name: name.into(), preset: preset.into(), set, reserve: Vec::new() }
    }

    #[test]
    fn every_preset_has_a_short_name_and_constants_are_read_with_their_units() {
        for (preset, short) in EyeQ::PRESETS.iter().zip(EyeQ::SHORT_PRESETS) {
            let tuned = eyeq(&config("eyeq", short, &[])).expect("sound").expect("it is eyeq");
            assert_eq!(Some(tuned.preset), EyeQ::preset(preset));
        }
        let text = |text: &str| toml::Value::String(text.into());
        let set = [
            ("alpha", toml::Value::Float(0.3)),
            ("backend", text("agent")),
            ("counts_losses", text("yes")),
            ("fall_at", text("never")),
            ("period", text("400us")),
            ("scale", toml::Value::Float(0.2)),
        ];
        let tuned = eyeq(&config("eyeq", "final", &set)).expect("sound").expect("it is eyeq");
        assert_eq!(tuned.backend, Backend::Agent);
        let period = Constant::Period(Span::from_micros(400));
        let losses = Constant::CountsLosses(true);
        assert_eq!(tuned.set, [Constant::Alpha(0.3), losses, Constant::FallAt(None), period]);
        assert_eq!(eyeq(&config("elasticswitch", "paper", &[])).expect("another"), None);
    }

    #[test]
    fn a_mistake_names_its_field_and_what_would_be_right() {
        let error = |preset: &str, key: &str, value: &str| {
            let set = [(key, toml::Value::String(value.into()))];
            format!("{:#}", eyeq(&config("eyeq", preset, &set)).expect_err("a mistake"))
        };
        let wrong = error("steady", "alpha", "0.5");
        assert_eq!(wrong, "preset: there is no `steady`; there are final, paper");
        assert!(error("final", "alhpa", "1").starts_with("set.alhpa: there is no such constant"));
        let wrong = error("final", "backend", "htb");
        assert_eq!(wrong, "set.backend: `htb` is none of kernel, agent");
        assert!(error("final", "period", "200").starts_with("set.period: "));
    }
}
