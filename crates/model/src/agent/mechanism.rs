//! From a mechanism as `agent.toml` names it to its law on a host.
//!
//! Problem   Constants have names and units, and the same ones are set in `agent.toml`, for all
//!           agents of a lab, and in the simulator.
//! Approach  One place that reads them: first the set that the name stands for, then its scale,
//!           then each constant that differs. The registry of mechanisms has all names.
//! Promises  What passes here can work together. An error begins with the field that is wrong, and
//!           says what would be right.
//! Not here  What constants mean: docs/algorithms. Which host has which link: its users.

use super::{MechanismConfig, Reserve};
use crate::text;
use weir_core::host::Capabilities;
use weir_core::mechanism::constants::Written;
use weir_core::mechanism::registry::{self, Row};
use weir_core::mechanism::{Draft, Law, Place};
use weir_units::{Bytes, PairId, Rate, Span, VmId};

/// From a receiver's word to the first packets at the new rate, by default: a network with queues
/// that are short, and hosts that are busy.
const ROUND_TRIP: Span = Span::from_millis(1);

/// What an agent's data plane can do with HTB.
pub const AGENTS_CAN: Capabilities =
    Capabilities { meters: true, limiter: false, paths: 1, timed: true, colours: false };

/// A value of the table `set`.
struct Set<'a>(&'a toml::Value);

impl Written for Set<'_> {
    fn real(&self) -> Result<f64, String> {
        let real = self.0.as_float().or_else(|| self.0.as_integer().map(|i| i as f64));
        let real = real.ok_or("should be a number")?;
        let is_sound = real.is_finite() && real >= 0.0;
        if is_sound { Ok(real) } else { Err("should be a number from 0 up".into()) }
    }

    fn rate(&self) -> Result<Rate, String> {
        text::rate(self.word()?)
    }

    fn span(&self) -> Result<Span, String> {
        let span = text::span(self.word()?)?;
        if span == Span::ZERO { Err("a span of zero".into()) } else { Ok(span) }
    }

    fn octets(&self) -> Result<Bytes, String> {
        text::size(self.word()?)
    }

    fn word(&self) -> Result<&str, String> {
        self.0.as_str().ok_or_else(|| "should be text in quotes, with a unit".into())
    }
}

impl MechanismConfig {
    fn row(&self) -> Result<&'static Row, String> {
        registry::row(&self.name).ok_or_else(|| {
            format!("name: there is no `{}`; there are {}", self.name, registry::names().join(", "))
        })
    }

    /// The mechanism with these constants.
    ///
    /// # Errors
    /// A name that nothing has, or a value that its constant does not take.
    pub fn draft(&self) -> Result<Draft, String> {
        let (row, preset) = (self.row()?, self.preset());
        let is_known = !row.presets.is_empty() || preset == row.usual;
        let draft = (row.draft)(preset).filter(|_| is_known);
        let mut draft = draft.ok_or_else(|| format!("preset: {}", row.no_preset(preset)))?;
        // First: the other keys are given as they are meant.
        if let Some(factor) = self.set.get("scale") {
            draft =
                draft.scaled(Set(factor).real().map_err(|error| format!("set.scale: {error}"))?);
        }
        for (key, value) in self.set.iter().filter(|(key, _)| *key != "scale") {
            draft.set(key, &Set(value)).map_err(|error| format!("set.{key}: {error}"))?;
        }
        draft.check()?;
        Ok(draft)
    }

    /// The law on an agent's host with an uplink of `line`, and the fastest link of the fleet.
    ///
    /// # Errors
    /// As [`MechanismConfig::draft`]; also what cannot work on such a host.
    pub fn on_host(
        &self,
        line: Rate,
        can: Capabilities,
        id: &dyn Fn(&str) -> Option<VmId>,
    ) -> Result<(Law, Rate), String> {
        let (row, mut config) = (self.row()?, self.clone());
        let mut own =
            |key: &str| row.agents_own.contains(&key).then(|| config.set.remove(key)).flatten();
        let round_trip = match own("round_trip") {
            Some(value) => {
                Set(&value).span().map_err(|error| format!("set.round_trip: {error}"))?
            }
            None => ROUND_TRIP,
        };
        let fastest = match own("fastest_line") {
            Some(value) => {
                Set(&value).rate().map_err(|error| format!("set.fastest_line: {error}"))?
            }
            None => line,
        };
        if fastest < line {
            return Err(format!("set.fastest_line: {fastest}, and this uplink has {line}"));
        }
        let mut draft = config.draft()?;
        let reserved = |one: &Reserve| {
            let id =
                |name: &str| id(name).ok_or_else(|| format!("reserve: there is no vm `{name}`"));
            Ok((PairId::new(id(&one.from)?, id(&one.to)?), one.rate.0))
        };
        draft.reserve(self.reserve.iter().map(reserved).collect::<Result<Vec<_>, String>>()?);
        Ok((draft.on(&Place { line, round_trip, can })?, fastest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_core::elasticswitch::ElasticSwitch;
    use weir_core::eyeq::{EyeQ, Tuned};
    use weir_core::mechanism::constants::Value;

    const KERNEL: Capabilities = Capabilities { limiter: true, ..AGENTS_CAN };

    fn config(name: &str, preset: &str, set: &[(&str, toml::Value)]) -> MechanismConfig {
        let set: BTreeMap<_, _> = set.iter().map(|(k, v)| ((*k).into(), v.clone())).collect();
        MechanismConfig { name: name.into(), preset: Some(preset.into()), set, reserve: Vec::new() }
    }

    fn text(text: &str) -> toml::Value {
        toml::Value::String(text.into())
    }

    fn tuned(config: &MechanismConfig) -> Tuned {
        match config.draft() {
            Ok(Draft::EyeQ(tuned)) => *tuned,
            other => panic!("{other:?}"),
        }
    }

    /// EyeQ's preset `final` on a host, with the fastest link of its fleet.
    fn on(
        can: Capabilities,
        mbps: u64,
        set: &[(&str, toml::Value)],
    ) -> Result<(EyeQ, Rate), String> {
        match config("eyeq", "final", set).on_host(Rate::from_mbps(mbps), can, &|_| None)? {
            (Law::EyeQ(eyeq), fastest) => Ok((*eyeq, fastest)),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_preset_agents_play_the_one_that_keeps_the_promises() {
        let law_of = |text: &str| {
            let config: MechanismConfig = toml::from_str(text).expect("a mechanism");
            match config.draft() {
                Ok(Draft::ElasticSwitch(law)) => *law,
                other => panic!("{other:?}"),
            }
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

    #[test]
    fn every_preset_has_a_short_name_and_constants_are_read_with_their_units() {
        for (preset, short) in EyeQ::PRESETS.iter().zip(EyeQ::SHORT_PRESETS) {
            assert_eq!(Some(tuned(&config("eyeq", short, &[])).preset), EyeQ::preset(preset));
        }
        let set = [
            ("alpha", toml::Value::Float(0.3)),
            ("backend", text("agent")),
            ("counts_losses", text("yes")),
            ("fall_at", text("never")),
            ("period", text("400us")),
            ("scale", toml::Value::Float(0.2)),
        ];
        let read = [
            ("alpha", Value::Real(0.3)),
            ("backend", Value::Word("agent")),
            ("counts_losses", Value::Word("yes")),
            ("fall_at", Value::Word("never")),
            ("period", Value::Span(Span::from_micros(400))),
        ];
        assert_eq!(tuned(&config("eyeq", "final", &set)).set, read);
    }

    #[test]
    fn on_a_host_periods_follow_the_agent_and_its_uplink() {
        let period = |mbps| on(AGENTS_CAN, mbps, &[]).expect("sound").0.period;
        let micros = |mbps| (period(mbps).as_nanos() + 500) / 1000;
        assert_eq!([200, 1_000, 10_000].map(micros), [10_000, 2_000, 1_000]);
        let set = [("round_trip", text("300us")), ("fastest_line", text("40Gbit"))];
        let (got, fastest) = on(AGENTS_CAN, 10_000, &set).expect("sound");
        assert_eq!(fastest, Rate::from_mbps(40_000));
        assert_eq!(got.loop_delay.round_trip, Span::from_micros(300));
        assert_eq!(got.loop_delay.actuation, Span::from_millis(1));
        let other = config("elasticswitch", "paper", &[("round_trip", text("300us"))]);
        let other = other.on_host(Rate::from_mbps(200), AGENTS_CAN, &|_| None);
        assert!(other.expect_err("another's").starts_with("set.round_trip: there is no such"));
    }

    #[test]
    fn where_the_kernel_sets_limits_a_period_waits_for_no_agent() {
        let on = |set: &[(&str, toml::Value)]| on(KERNEL, 10_000, set).map(|(eyeq, _)| eyeq);
        let got = on(&[("round_trip", text("100us"))]).expect("sound");
        assert_eq!((got.period, got.alpha), (Span::from_micros(200), 0.2));
        assert_eq!(got.loop_delay.actuation, Span::ZERO);
        assert_eq!(got.departs_within, Some(Span::from_micros(1200)));
        let set = [("round_trip", text("100us")), ("alpha", toml::Value::Float(0.7))];
        let error = on(&set).expect_err("a sender that fills its queue is two periods late");
        assert!(error.starts_with("set: alpha = 0.7 oscillates: feedback is 2 periods"), "{error}");
        on(&[("backend", text("kernel"))]).expect("the same in words");
        let error = on(&[("backend", text("agent"))]).expect_err("another");
        assert!(error.starts_with("set.backend: departure times"), "{error}");
    }

    #[test]
    fn what_cannot_work_on_a_host_is_refused_with_the_reason() {
        let refused = |key: &str, value: toml::Value| {
            on(AGENTS_CAN, 10_000, &[(key, value)]).expect_err("refused")
        };
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
            config("eyeq", preset, &[(key, text(value))]).draft().expect_err("a mistake")
        };
        let wrong = error("steady", "alpha", "0.5");
        assert_eq!(wrong, "preset: there is no `steady`; there are final, paper");
        assert!(error("final", "alhpa", "1").starts_with("set.alhpa: there is no such constant"));
        let wrong = error("final", "backend", "htb");
        assert_eq!(wrong, "set.backend: `htb` is none of kernel, agent");
        assert!(error("final", "period", "200").starts_with("set.period: "));
        let wrong = config("magic", "paper", &[]).draft().expect_err("no mechanism");
        assert!(wrong.starts_with("name: there is no `magic`; there are reservation"), "{wrong}");
        let wrong = config("seawall", "steady", &[]).draft().expect_err("no presets");
        assert_eq!(wrong, "preset: `seawall` has none; leave it out");
    }
}
