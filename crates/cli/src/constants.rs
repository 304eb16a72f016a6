//! `--constant KEY=VALUE`: constants of the mechanism, the same in every world.
//!
//! Promises  Whatever the world, they are read by what reads `agent.toml`, after the scenario's
//!           scale; a mistake is said before anything is played.
//! Not here  Their names: docs/algorithms/elasticswitch.md, docs/algorithms/eyeq.md.

use crate::args::quoted;
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use weir_core::mechanism::Draft;
use weir_model::agent::{AGENTS_CAN, MechanismConfig};
use weir_model::scenario::{Mechanism, Scenario};
use weir_model::text;

/// A constant that the user set, as it was typed and as agents read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Constants {
    typed: Vec<(String, String)>,
    set: BTreeMap<String, toml::Value>,
}

impl Constants {
    pub(crate) fn new(typed: &[(String, String)]) -> Self {
        // A bare number is a number; all else is text with a unit, as agents read it.
        let value = |text: &str| match text.parse() {
            Ok(number) => toml::Value::Float(number),
            Err(_) => toml::Value::String(text.into()),
        };
        let set = typed.iter().map(|(k, v)| (k.clone(), value(v))).collect();
        Self { typed: typed.to_vec(), set }
    }

    /// As agents of `scenario` are told: `2.5Mbit * scale` is a rate at the paper's scale.
    pub(crate) fn at_scale_of(&self, scenario: &Scenario) -> BTreeMap<String, toml::Value> {
        let scaled = |value: &toml::Value| {
            let (rate, factor) = value.as_str()?.split_once('*')?;
            let rate = text::rate(rate.trim()).ok().filter(|_| factor.trim() == "scale")?;
            Some(toml::Value::String(format!("{}bit", rate.scale(scenario.scale).as_bps())))
        };
        let one = |(key, value): (&String, &toml::Value)| {
            (key.clone(), scaled(value).unwrap_or_else(|| value.clone()))
        };
        self.set.iter().map(one).collect()
    }

    /// What to type to set them again.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.typed.iter().map(|(k, v)| format!("--constant {}", quoted(&format!("{k}={v}"))))
    }

    /// Whether every mechanism of every point can have them.
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn check(&self, points: &[Scenario]) -> Result<()> {
        for point in points {
            for mechanism in &point.mechanisms {
                self.draft(point, mechanism)?;
            }
        }
        Ok(())
    }

    /// Whether agents on the hosts of every point can have them, too: EyeQ's loop has to come to
    /// rest there.
    ///
    /// # Errors
    /// The first that cannot, with its reason.
    pub(crate) fn check_hosts(&self, points: &[Scenario]) -> Result<()> {
        for point in points {
            let hosts = point.topology.hosts.len();
            for mechanism in &point.mechanisms {
                if mechanism.row.is_none() {
                    continue;
                }
                let config = self.config(point, mechanism);
                let links = &point.topology.links;
                for link in links.iter().filter(|link| link.a.min(link.b) < hosts) {
                    config.on_host(link.rate, AGENTS_CAN, &|_| None).map_err(|error| {
                        anyhow!("{} at {}: {error}", mechanism.label, link.name)
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The mechanism's constants with them; `None` if nothing is set, or there is no mechanism.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub(crate) fn draft(
        &self,
        scenario: &Scenario,
        mechanism: &Mechanism,
    ) -> Result<Option<Draft>> {
        if self.set.is_empty() || mechanism.row.is_none() {
            return Ok(None);
        }
        self.config(scenario, mechanism).draft().map(Some).map_err(typed)
    }

    fn config(&self, scenario: &Scenario, mechanism: &Mechanism) -> MechanismConfig {
        weir_lab::mechanism_config(scenario, mechanism, &self.at_scale_of(scenario))
    }
}

/// A mistake in a constant as it was typed: in `agent.toml` it would stand in the table `set`.
fn typed(error: impl std::fmt::Display) -> anyhow::Error {
    let text = format!("{error:#}");
    let text = text.strip_prefix("set.").or_else(|| text.strip_prefix("set: ")).unwrap_or(&text);
    anyhow!("--constant {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::elasticswitch::ElasticSwitch;
    use weir_core::eyeq::EyeQ;
    use weir_core::mechanism::constants::Value;
    use weir_study::testing::dumbbell;
    use weir_units::Rate;

    fn constants(typed: &[(&str, &str)]) -> Constants {
        let typed: Vec<_> = typed.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Constants::new(&typed)
    }

    fn mechanism(label: &str) -> Mechanism {
        Mechanism::parse(label).expect("known")
    }

    /// ElasticSwitch's constants under a label.
    fn law(all: &Constants, scenario: &Scenario, label: &str) -> ElasticSwitch {
        match all.draft(scenario, &mechanism(label)).expect("sound") {
            Some(Draft::ElasticSwitch(law)) => *law,
            other => panic!("{other:?}"),
        }
    }

    /// `dumbbell` is at scale 1; at 0.2 what is not set is a fifth.
    #[test]
    fn a_constant_is_set_as_it_is_meant_and_all_others_follow_the_scale() {
        let mut scenario = dumbbell(1);
        scenario.scale = 0.2;
        let all = constants(&[("a", "3Mbit"), ("alpha", "0.5"), ("hold", "linear")]);
        let law = law(&all, &scenario, "elasticswitch:steady");
        let usual = ElasticSwitch::preset("steady").expect("known").scaled(0.2);
        assert_eq!((law.rate.a, law.rate.alpha), (Rate::from_mbps(3), 0.5));
        assert_eq!(law.default_floor, usual.default_floor);
        assert_eq!(law.rate.reference, usual.rate.reference);
        assert!(all.draft(&scenario, &mechanism("none")).expect("sound").is_none());
        let nothing = constants(&[]).draft(&scenario, &mechanism("elasticswitch"));
        assert!(nothing.expect("sound").is_none());
    }

    #[test]
    fn a_rate_of_the_papers_scale_follows_the_scenarios() {
        let more = constants(&[("a", "2.5Mbit * scale")]);
        for (scale, a) in [(1.0, 2_500_000), (0.2, 500_000)] {
            let scenario = Scenario { scale, ..dumbbell(1) };
            let law = law(&more, &scenario, "elasticswitch");
            assert_eq!(law.rate.a, Rate::from_bps(a), "{scale}");
        }
        let error = constants(&[("a", "2.5Mbit * sclae")]);
        let error = error.draft(&dumbbell(1), &mechanism("elasticswitch")).expect_err("a mistake");
        assert!(format!("{error:#}").contains("sclae"), "{error:#}");
    }

    #[test]
    fn eyeq_has_constants_of_its_own() {
        let (scenario, eyeq) = (dumbbell(1), mechanism("eyeq:paper"));
        let set = constants(&[("alpha", "0.3"), ("fall_at", "never")]);
        let Ok(Some(Draft::EyeQ(tuned))) = set.draft(&scenario, &eyeq) else { panic!("EyeQ's") };
        assert_eq!(Some(&tuned.preset), EyeQ::preset("eyeq-paper").as_ref());
        assert_eq!(tuned.set, [("alpha", Value::Real(0.3)), ("fall_at", Value::Word("never"))]);
        let error = constants(&[("fall_at", "always")]).draft(&scenario, &eyeq);
        let text = format!("{:#}", error.expect_err("a mistake"));
        assert_eq!(text, "--constant fall_at: should be a number");
    }

    #[test]
    fn what_oscillates_on_a_host_is_refused_before_anything_is_made() {
        let mut scenario = dumbbell(1);
        scenario.mechanisms = vec![mechanism("eyeq"), mechanism("elasticswitch")];
        let on_hosts = |all: &Constants| all.check_hosts(std::slice::from_ref(&scenario));
        on_hosts(&constants(&[])).expect("sound");
        let error = on_hosts(&constants(&[("alpha", "1.5")])).expect_err("a wild one");
        assert!(format!("{error:#}").contains("alpha = 1.5 oscillates"), "{error:#}");
        let error = on_hosts(&constants(&[("backend", "kernel")])).expect_err("they have HTB");
        assert!(format!("{error:#}").contains("the agent sets HTB's classes"), "{error:#}");
    }

    #[test]
    fn a_reservation_has_one_constant_of_its_own() {
        let scenario = dumbbell(1);
        let reservation = mechanism("reservation");
        let of = |all: &Constants| match all.draft(&scenario, &reservation).expect("sound") {
            Some(Draft::Reservation(draft)) => draft.other,
            other => panic!("{other:?}"),
        };
        assert_eq!(of(&constants(&[("default_floor", "3Mbit")])), Some(Rate::from_mbps(3)));
        assert_eq!(of(&constants(&[("alpha", "0.5")])), None);
    }

    #[test]
    fn a_mistake_is_said_before_anything_is_played() {
        let mut scenario = dumbbell(1);
        scenario.mechanisms = vec![mechanism("none"), mechanism("elasticswitch")];
        for (key, value, wanted) in [
            ("alhpa", "0.5", "alhpa: there is no such constant"),
            ("alpha", "2", "alpha is 2; it should lie between 0 and 1"),
            ("rate_period", "15", "rate_period: should be text in quotes, with a unit"),
        ] {
            let error = constants(&[(key, value)]).check(std::slice::from_ref(&scenario));
            let text = format!("{:#}", error.expect_err("a mistake"));
            assert!(text.starts_with("--constant ") && text.contains(wanted), "{text}");
        }
        scenario.mechanisms.truncate(1);
        assert!(constants(&[("alhpa", "1")]).check(&[scenario]).is_ok(), "nobody has it");
    }

    #[test]
    fn they_can_be_typed_again() {
        let all = constants(&[("b", "1Mbit"), ("a", "x y")]);
        assert_eq!(all.words().collect::<Vec<_>>(), ["--constant b=1Mbit", "--constant 'a=x y'"]);
    }
}
