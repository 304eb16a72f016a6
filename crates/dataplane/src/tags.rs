//! The DSCP of VMs' packets: tags of tenants, and what guests write themselves.
//!
//! Problem   A switch knows a tenant with a queue of its own by a code point. A guest that writes
//!           it must not get into that queue.
//! Approach  One entry per tenant in one map: a tag changes for all VMs of a tenant at once, with
//!           one write. All code points that may be tags are a setting of the programs: these are
//!           never a guest's.
//! Promises  A tag that is no such code point is refused. Tags outlive an agent, as pairs do.
//! Not here  Where the octets change: `bpf/dscp.h`. Who has which tag: the caller.

use crate::dataplane::Dataplane;
use crate::error::Error;
use std::collections::BTreeMap;
use weir_units::TenantId;

/// What becomes of the code points that a VM's guest writes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GuestDscp {
    /// They are 0 in the network and at the receiver.
    #[default]
    Clear,
    /// Those that are no tags stay where no tag takes their place. Behind a tunnel none does.
    Keep,
    /// The same, and packets of a TCP connection that were tagged have its SYN's again at a
    /// receiver with this policy.
    Restore,
}

/// Code points (DSCP) that may be tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodePoints(u64);

impl CodePoints {
    /// These. Of 64 and more there are none.
    pub fn of(points: impl IntoIterator<Item = u8>) -> Self {
        Self(points.into_iter().filter(|point| *point < 64).fold(0, |all, point| all | 1 << point))
    }

    /// Whether this is one of them.
    pub const fn has(self, point: u8) -> bool {
        point < 64 && self.0 >> point & 1 == 1
    }

    /// As the programs read them.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

impl Dataplane {
    /// Sets the tags of tenants; `None` or 0: the shared queue. A tag is in force for all VMs of
    /// its tenant when this returns. Tenants whose tag is not what it should be are returned, with
    /// the reason of the first.
    pub fn set_tags(
        &mut self,
        tags: &[(TenantId, Option<u8>)],
    ) -> Result<(), (Vec<TenantId>, Error)> {
        let mut failed: Option<(Vec<TenantId>, Error)> = None;
        for (tenant, tag) in tags {
            let Err(error) = self.set_tag(*tenant, tag.filter(|tag| *tag != 0)) else { continue };
            match &mut failed {
                Some((tenants, _)) => tenants.push(*tenant),
                None => failed = Some((vec![*tenant], error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn set_tag(&mut self, tenant: TenantId, tag: Option<u8>) -> Result<(), Error> {
        let (tags, code_points) = (&self.programs.tenant_tags, self.config.code_points);
        let Some(tag) = tag else { return tags.delete(tenant.0).map(drop) };
        if !code_points.has(tag) {
            return Err(Error::Config(format!(
                "{tenant} shall have code point {tag}, which is none of `code_points`"
            )));
        }
        tags.put(tenant.0, tag.into())
    }

    /// The tags in force.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tags(&mut self) -> Result<BTreeMap<TenantId, u8>, Error> {
        let all = self.programs.tenant_tags.read()?;
        Ok(all.map(|(tenant, tag)| (TenantId(tenant), tag as u8)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_are_six_bits_each_one_of_the_mask() {
        let points = CodePoints::of([1, 10, 63, 64, 200]);
        assert_eq!(points.bits(), 1 << 1 | 1 << 10 | 1 << 63);
        assert!(points.has(63) && !points.has(0) && !points.has(64) && !points.has(2));
    }
}
