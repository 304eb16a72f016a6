//! The floors of one VM: to and from its tenant, in further hoses, to and from the outside.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::objects::{self, VmSpec};
use weir_units::Rate;

/// All rates that a host promises a VM.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Floors {
    pub(crate) out: Rate,
    pub(crate) inward: Rate,
    pub(crate) external_out: Rate,
    pub(crate) external_in: Rate,
    /// In further hoses, by name. Each has one rate at least that is not zero.
    pub(crate) hoses: BTreeMap<String, HoseRates>,
}

/// Two rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HoseRates {
    pub(crate) out: Rate,
    pub(crate) inward: Rate,
}

/// What the store keeps: the tenant, and bit/s.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    tenant: String,
    floors: [u64; 4],
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hoses: BTreeMap<String, [u64; 2]>,
}

impl HoseRates {
    fn of(floor: &objects::Floors) -> Self {
        Self { out: floor.out.0, inward: floor.inward.0 }
    }

    const fn is_zero(&self) -> bool {
        self.out.is_zero() && self.inward.is_zero()
    }
}

impl Floors {
    pub(crate) fn of(spec: &VmSpec) -> Self {
        let external = spec.external.unwrap_or_default();
        let hoses = spec.hoses.iter().map(|hose| (hose.name.clone(), HoseRates::of(&hose.floor)));
        Self {
            out: spec.floor.out.0,
            inward: spec.floor.inward.0,
            external_out: external.out.0,
            external_in: external.inward.0,
            hoses: hoses.filter(|(_, rates)| !rates.is_zero()).collect(),
        }
    }

    const fn all(&self) -> [Rate; 4] {
        [self.out, self.inward, self.external_out, self.external_in]
    }

    fn hose(&self, name: &str) -> HoseRates {
        self.hoses.get(name).copied().unwrap_or_default()
    }

    fn each(&self, other: &Self, of: impl Fn(Rate, Rate) -> Rate) -> Self {
        let names: BTreeSet<&String> = self.hoses.keys().chain(other.hoses.keys()).collect();
        let both = |name: &String| {
            let (mine, others) = (self.hose(name), other.hose(name));
            let (out, inward) = (of(mine.out, others.out), of(mine.inward, others.inward));
            (name.clone(), HoseRates { out, inward })
        };
        Self {
            out: of(self.out, other.out),
            inward: of(self.inward, other.inward),
            external_out: of(self.external_out, other.external_out),
            external_in: of(self.external_in, other.external_in),
            hoses: names.into_iter().map(both).filter(|(_, rates)| !rates.is_zero()).collect(),
        }
    }

    pub(crate) fn max(&self, other: &Self) -> Self {
        self.each(other, Ord::max)
    }

    pub(crate) fn min(&self, other: &Self) -> Self {
        self.each(other, Ord::min)
    }

    /// Whether one of the rates is larger than the other's.
    pub(crate) fn exceeds(&self, other: &Self) -> bool {
        let more = |(name, rates): (&String, &HoseRates)| {
            let than = other.hose(name);
            rates.out > than.out || rates.inward > than.inward
        };
        self.all().iter().zip(other.all()).any(|(mine, other)| *mine > other)
            || self.hoses.iter().any(more)
    }

    /// By how much more this may load a link than `other`, in one direction, at most.
    pub(crate) fn beyond(&self, other: &Self) -> Rate {
        let more = self.each(other, Rate::saturating_sub);
        let hoses = more.hoses.values();
        let (out, inward) = hoses.fold((Rate::ZERO, Rate::ZERO), |(out, inward), rates| {
            (out + rates.out, inward + rates.inward)
        });
        (more.out + more.external_out + out).max(more.inward + more.external_in + inward)
    }

    pub(crate) fn record(&self, tenant: &str) -> Vec<u8> {
        let bps = |(name, rates): (&String, &HoseRates)| {
            (name.clone(), [rates.out.as_bps(), rates.inward.as_bps()])
        };
        let floors = self.all().map(Rate::as_bps);
        let hoses = self.hoses.iter().map(bps).collect();
        let record = Record { tenant: tenant.into(), floors, hoses };
        serde_json::to_vec(&record).expect("plain data is JSON")
    }

    pub(crate) fn read(record: &[u8]) -> Result<(String, Self), String> {
        let Record { tenant, floors, hoses } =
            serde_json::from_slice(record).map_err(|e| e.to_string())?;
        let [out, inward, external_out, external_in] = floors.map(Rate::from_bps);
        let rates = |(name, bps): (String, [u64; 2])| {
            let [out, inward] = bps.map(Rate::from_bps);
            (name, HoseRates { out, inward })
        };
        let hoses = hoses.into_iter().map(rates).collect();
        Ok((tenant, Self { out, inward, external_out, external_in, hoses }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floors(hoses: &[(&str, u64, u64)]) -> Floors {
        let mbps = Rate::from_mbps;
        let rates = |(name, out, inward): &(&str, u64, u64)| {
            ((*name).to_owned(), HoseRates { out: mbps(*out), inward: mbps(*inward) })
        };
        Floors { out: mbps(10), hoses: hoses.iter().map(rates).collect(), ..Floors::default() }
    }

    #[test]
    fn a_floor_that_goes_from_one_hose_to_another_is_a_raise_and_leaves_an_excess() {
        let (before, after) = (floors(&[("a", 5, 0)]), floors(&[("b", 5, 0)]));
        assert!(after.exceeds(&before));
        assert_eq!(before.beyond(&after), Rate::from_mbps(5));
        assert_eq!(before.max(&after), floors(&[("a", 5, 0), ("b", 5, 0)]));
        assert_eq!(before.min(&after), floors(&[]));
        assert!(!before.exceeds(&before) && before.beyond(&before).is_zero());
    }

    #[test]
    fn a_record_reads_back_and_those_without_hoses_are_as_before() {
        for it in [floors(&[]), floors(&[("a", 5, 0), ("b", 0, 7)])] {
            assert_eq!(Floors::read(&it.record("gold")), Ok(("gold".to_owned(), it)));
        }
        let record = String::from_utf8(floors(&[]).record("gold")).expect("text");
        assert_eq!(record, r#"{"tenant":"gold","floors":[10000000,0,0,0]}"#);
    }
}
