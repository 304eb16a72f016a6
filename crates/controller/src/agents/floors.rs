//! The floors of one VM: to and from its tenant, to and from the outside.

use serde::{Deserialize, Serialize};
use weir_model::objects::VmSpec;
use weir_units::Rate;

/// Four rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Floors {
    pub(crate) out: Rate,
    pub(crate) inward: Rate,
    pub(crate) external_out: Rate,
    pub(crate) external_in: Rate,
}

/// What the store keeps: the tenant, and bit/s.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    tenant: String,
    floors: [u64; 4],
}

impl Floors {
    pub(crate) fn of(spec: &VmSpec) -> Self {
        let external = spec.external.unwrap_or_default();
        Self {
            out: spec.floor.out.0,
            inward: spec.floor.inward.0,
            external_out: external.out.0,
            external_in: external.inward.0,
        }
    }

    const fn all(&self) -> [Rate; 4] {
        [self.out, self.inward, self.external_out, self.external_in]
    }

    fn each(&self, other: &Self, of: impl Fn(Rate, Rate) -> Rate) -> Self {
        Self {
            out: of(self.out, other.out),
            inward: of(self.inward, other.inward),
            external_out: of(self.external_out, other.external_out),
            external_in: of(self.external_in, other.external_in),
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
        self.all().iter().zip(other.all()).any(|(mine, other)| *mine > other)
    }

    /// By how much more this may load a link than `other`, in one direction, at most.
    pub(crate) fn beyond(&self, other: &Self) -> Rate {
        let more = self.each(other, Rate::saturating_sub);
        (more.out + more.external_out).max(more.inward + more.external_in)
    }

    pub(crate) fn record(&self, tenant: &str) -> Vec<u8> {
        let record = Record { tenant: tenant.into(), floors: self.all().map(Rate::as_bps) };
        serde_json::to_vec(&record).expect("plain data is JSON")
    }

    pub(crate) fn read(record: &[u8]) -> Result<(String, Self), String> {
        let Record { tenant, floors } =
            serde_json::from_slice(record).map_err(|e| e.to_string())?;
        let [out, inward, external_out, external_in] = floors.map(Rate::from_bps);
        Ok((tenant, Self { out, inward, external_out, external_in }))
    }
}
