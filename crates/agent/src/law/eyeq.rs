//! EyeQ's constants, as they are set: the same names as in docs/algorithms/eyeq.md.
//!
//! Promises  What is set is meant as it is, on whatever link; what is not follows the link. Whether
//!           all can work together is known with the link: the machine is asked then.

use super::{rate, set, span};
use anyhow::{Context, Error, Result, ensure};
use weir_core::eyeq::{Backend, EyeQ, Tuned};
use weir_model::agent::MechanismConfig;
use weir_units::{Rate, Span};

/// From a receiver's word to the first packets at the new rate, by default: a network with queues that
/// are short, and hosts that are busy.
const ROUND_TRIP: Span = Span::from_millis(1);

/// EyeQ's law before it knows its link; `None` if `config` names another mechanism.
///
/// # Errors
///
/// Begins with the field of `config` that is wrong, and says what would be right.
pub fn eyeq(config: &MechanismConfig) -> Result<Option<Tuned>> {
    if config.name != "eyeq" {
        return Ok(None);
    }
    let preset = EyeQ::preset(&format!("eyeq-{}", config.preset())).with_context(|| {
        let known = EyeQ::SHORT_PRESETS.join(", ");
        format!("preset: there is no `{}`; there are {known}", config.preset())
    })?;
    let mut tuned = Tuned::new(preset, Backend::Kernel);
    // A scenario's scale changes its links, which EyeQ's rates and times follow anyway.
    for (key, value) in config.set.iter().filter(|(key, _)| *key != "scale") {
        set(&mut tuned, Tuned::CONSTANTS, key, value).with_context(|| format!("set.{key}"))?;
    }
    Ok(Some(tuned))
}

/// EyeQ on a host with an uplink of `line` and limiters that `backend` sets, and the fastest link of
/// the fleet; `None` if `config` names another mechanism.
///
/// # Errors
///
/// As [`eyeq`]; also for what does not work there: a constant that only other worlds have, a loop
/// that would not come to rest.
pub(crate) fn on_host(
    config: &MechanismConfig,
    line: Rate,
    backend: Backend,
) -> Result<Option<(EyeQ, Rate)>> {
    if config.name != "eyeq" {
        return Ok(None);
    }
    let mut config = config.clone();
    let is_set =
        |key: &str, to: &str| config.set.get(key).is_some_and(|value| value.as_str() == Some(to));
    ensure!(
        backend == Backend::Kernel || !is_set("backend", "kernel"),
        "set.backend: the agent sets HTB's classes; leave it out, or write shaper = \"departure-time\""
    );
    ensure!(
        backend == Backend::Agent || !is_set("backend", "agent"),
        "set.backend: departure times go by limits without the agent; leave it out, or write shaper = \"htb\""
    );
    ensure!(
        !is_set("counts_losses", "yes"),
        "set.counts_losses: the kernel's meters do not see losses; leave it out"
    );
    let round_trip = match config.set.remove("round_trip") {
        Some(value) => span(&value).context("set.round_trip")?,
        None => ROUND_TRIP,
    };
    let fastest_line = match config.set.remove("fastest_line") {
        Some(value) => rate(&value).context("set.fastest_line")?,
        None => line,
    };
    ensure!(fastest_line >= line, "set.fastest_line: {fastest_line}, and this uplink has {line}");
    let Some(mut tuned) = eyeq(&config)? else { return Ok(None) };
    tuned.backend = backend;
    let eyeq = match backend {
        Backend::Agent => tuned.on(line, round_trip),
        Backend::Kernel => tuned.departing_on(line, round_trip),
    };
    eyeq.check(line).map_err(Error::new).context("set")?;
    Ok(Some((eyeq, fastest_line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_core::eyeq::Constant;

    fn config(name: &str, preset: &str, set: &[(&str, toml::Value)]) -> MechanismConfig {
        let set: BTreeMap<_, _> = set.iter().map(|(k, v)| ((*k).into(), v.clone())).collect();
        MechanismConfig { name: name.into(), preset: Some(preset.into()), set, reserve: Vec::new() }
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
    fn on_a_host_periods_follow_the_agent_and_its_uplink() {
        let on = |mbps: u64, set: &[(&str, toml::Value)]| {
            on_host(&config("eyeq", "final", set), Rate::from_mbps(mbps), Backend::Agent)
        };
        let period = |mbps| on(mbps, &[]).expect("sound").expect("it is eyeq").0.period;
        let micros = |mbps| (period(mbps).as_nanos() + 500) / 1000;
        assert_eq!([200, 1_000, 10_000].map(micros), [10_000, 2_000, 1_000]);
        let text = |text: &str| toml::Value::String(text.into());
        let set = [("round_trip", text("300us")), ("fastest_line", text("40Gbit"))];
        let (got, fastest) = on(10_000, &set).expect("sound").expect("it is eyeq");
        assert_eq!(fastest, Rate::from_mbps(40_000));
        assert_eq!(got.loop_delay.round_trip, Span::from_micros(300));
        assert_eq!(got.loop_delay.actuation, Span::from_millis(1));
        let other =
            on_host(&config("elasticswitch", "paper", &[]), Rate::from_mbps(200), Backend::Agent);
        assert!(other.expect("another").is_none());
    }

    #[test]
    fn where_the_kernel_sets_limits_a_period_waits_for_no_agent() {
        let on = |set: &[(&str, toml::Value)]| {
            on_host(&config("eyeq", "final", set), Rate::from_mbps(10_000), Backend::Kernel)
        };
        let text = |text: &str| toml::Value::String(text.into());
        let got = on(&[("round_trip", text("100us"))]).expect("sound").expect("it is eyeq").0;
        assert_eq!((got.period, got.alpha), (Span::from_micros(200), 0.2));
        assert_eq!(got.loop_delay.actuation, Span::ZERO);
        assert_eq!(got.departs_within, Some(Span::from_micros(1200)));
        let set = [("round_trip", text("100us")), ("alpha", toml::Value::Float(0.7))];
        let error = format!("{:#}", on(&set).expect_err("who fills his queue is two periods late"));
        assert!(error.starts_with("set: alpha = 0.7 oscillates: feedback is 2 periods"), "{error}");
        on(&[("backend", text("kernel"))]).expect("the same in words");
        let error = format!("{:#}", on(&[("backend", text("agent"))]).expect_err("another"));
        assert!(error.starts_with("set.backend: departure times"), "{error}");
    }

    #[test]
    fn what_cannot_work_on_a_host_is_refused_with_the_reason() {
        let refused = |key: &str, value: toml::Value| {
            let config = config("eyeq", "final", &[(key, value)]);
            let on = on_host(&config, Rate::from_mbps(10_000), Backend::Agent);
            format!("{:#}", on.expect_err("refused"))
        };
        let text = |text: &str| toml::Value::String(text.into());
        assert!(refused("backend", text("kernel")).starts_with("set.backend: the agent sets"));
        assert!(refused("counts_losses", text("yes")).starts_with("set.counts_losses: "));
        assert!(refused("fastest_line", text("1Gbit")).starts_with("set.fastest_line: "));
        let shaky = refused("period", text("200us"));
        assert!(shaky.starts_with("set: alpha = ") && shaky.contains("oscillates"), "{shaky}");
        let wild = refused("alpha", toml::Value::Float(1.5));
        assert!(wild.starts_with("set: alpha = 1.5 oscillates"), "{wild}");
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
