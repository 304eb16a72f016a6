//! The ledger by names: what each VM claims, and what that makes on each link.

use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::objects::{HostSpec, HostState, LinkSpec, LinkState, TopologySpec};
use weir_model::text::show_rate;
use weir_units::Rate;

/// What one VM is promised, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) tenant: String,
    pub(super) host: String,
    pub(super) out: Rate,
    pub(super) inward: Rate,
    pub(super) external_out: Rate,
    pub(super) external_in: Rate,
}

/// Why a claim is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoRoom {
    pub(super) reason: &'static str,
    pub(super) link: Option<String>,
    pub(super) missing: Option<Rate>,
    /// Those with the largest promises on the link.
    pub(super) tenants: Vec<String>,
    pub(super) detail: String,
}

/// Sums of one tenant's claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    pub(super) vms: u32,
    pub(super) out: Rate,
    pub(super) inward: Rate,
}

/// A node's link toward the root.
#[derive(Clone, Debug)]
struct Uplink {
    name: String,
    parent: String,
    /// What may be promised, in each direction.
    room: Rate,
    /// By tenant: sums of what is below the link.
    below: BTreeMap<String, [Rate; 4]>,
}

/// All claims and what they make on each link.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// By lower end.
    links: BTreeMap<String, Uplink>,
    /// Host → slots.
    slots: BTreeMap<String, u32>,
    open: BTreeSet<String>,
    claims: BTreeMap<String, Claim>,
    by_host: BTreeMap<String, BTreeSet<String>>,
    usage: BTreeMap<String, Usage>,
}

impl Book {
    pub(super) fn empty() -> Self {
        Self::default()
    }

    /// The book of a network without claims.
    pub(super) fn new<'a>(
        topology: &TopologySpec,
        hosts: impl Iterator<Item = (&'a str, &'a HostSpec)>,
        links: impl Iterator<Item = (&'a str, &'a LinkSpec)>,
    ) -> Result<Self, Problem> {
        let mut book = Self::default();
        let keep = |rate: Rate| rate.mul_ratio(100 - u64::from(topology.headroom_percent), 100);
        for (name, link) in links {
            let room = if link.state == LinkState::Up { keep(link.rate.0) } else { Rate::ZERO };
            let uplink = Uplink {
                name: name.into(),
                parent: link.upper.clone(),
                room,
                below: BTreeMap::new(),
            };
            if let Some(other) = book.links.insert(link.lower.clone(), uplink) {
                let detail = format!(
                    "`{}` has two uplinks, `{name}` and `{}`: this is no tree",
                    link.lower, other.name
                );
                return Err(Problem::new(422, "NoTree", "spec.lower", detail));
            }
        }
        for (name, host) in hosts {
            if host.state == HostState::Dead {
                continue;
            }
            let room = keep(host.rate.0).saturating_sub(host.own.out.0.max(host.own.inward.0));
            let uplink = Uplink {
                name: format!("nic:{name}"),
                parent: host.switch.clone(),
                room,
                below: BTreeMap::new(),
            };
            book.links.insert(format!("host:{name}"), uplink);
            book.slots.insert(name.into(), host.slots);
            if host.state == HostState::Active {
                book.open.insert(name.into());
            }
        }
        Ok(book)
    }

    fn path(&self, host: &str) -> Vec<String> {
        let (mut path, mut node) = (Vec::new(), format!("host:{host}"));
        while let Some(uplink) = self.links.get(&node) {
            if path.len() > 64 {
                break;
            }
            path.push(std::mem::replace(&mut node, uplink.parent.clone()));
        }
        path
    }

    /// Makes a claim. Without a host, on the first that has room.
    pub(super) fn admit(
        &mut self,
        id: &str,
        mut claim: Claim,
        host: Option<&str>,
    ) -> Result<String, NoRoom> {
        let candidates: Vec<String> = match host {
            Some(host) => vec![host.into()],
            None => self.open.iter().cloned().collect(),
        };
        let mut last = None;
        for host in candidates {
            claim.host.clone_from(&host);
            if self.by_host.get(&host).map_or(0, BTreeSet::len)
                >= self.slots.get(&host).map_or(0, |n| *n as usize)
            {
                last = Some(NoRoom {
                    reason: "HostFull",
                    link: None,
                    missing: None,
                    tenants: vec![],
                    detail: format!("host `{host}` has no slot left"),
                });
                continue;
            }
            self.put_back(id, claim.clone());
            match self.worst(&claim.tenant) {
                None => return Ok(host),
                Some(no) => {
                    self.release(id);
                    last = Some(no);
                }
            }
        }
        Err(last.unwrap_or(NoRoom {
            reason: "NoHost",
            link: None,
            missing: None,
            tenants: vec![],
            detail: "there is no active host: apply one first".into(),
        }))
    }

    /// The first link on which too much is promised.
    fn worst(&self, _: &str) -> Option<NoRoom> {
        for uplink in self.links.values() {
            for up in [true, false] {
                let sum: Rate = uplink.below.keys().map(|tenant| self.on(uplink, tenant, up)).sum();
                if sum > uplink.room {
                    let missing = sum - uplink.room;
                    let direction = if up { "up" } else { "down" };
                    let link = format!("{}-{direction}", uplink.name);
                    let detail = format!("{link} is full: it needs {} more", show_rate(missing));
                    let tenants = uplink.below.keys().cloned().collect();
                    return Some(NoRoom {
                        reason: "LinkFull",
                        link: Some(link),
                        missing: Some(missing),
                        tenants,
                        detail,
                    });
                }
            }
        }
        None
    }

    fn on(&self, uplink: &Uplink, tenant: &str, up: bool) -> Rate {
        let all = self.usage(tenant);
        let Some([out, inward, ext_out, ext_in]) = uplink.below.get(tenant) else {
            return Rate::ZERO;
        };
        let (send, receive) = if up {
            (*out, all.inward.saturating_sub(*inward))
        } else {
            (all.out.saturating_sub(*out), *inward)
        };
        send.min(receive) + if up { *ext_out } else { *ext_in }
    }

    /// Makes a claim that is known to fit.
    pub(super) fn put_back(&mut self, id: &str, claim: Claim) {
        self.add(&claim, true);
        self.by_host.entry(claim.host.clone()).or_default().insert(id.into());
        let before = self.claims.insert(id.into(), claim);
        assert!(before.is_none(), "{id} is claimed twice");
    }

    fn add(&mut self, claim: &Claim, plus: bool) {
        let change = |rate: &mut Rate, by: Rate| *rate = if plus { *rate + by } else { *rate - by };
        for node in self.path(&claim.host) {
            let below = &mut self.links.get_mut(&node).expect("it is on the path").below;
            let sums = below.entry(claim.tenant.clone()).or_default();
            for (sum, by) in sums.iter_mut().zip([
                claim.out,
                claim.inward,
                claim.external_out,
                claim.external_in,
            ]) {
                change(sum, by);
            }
        }
        let usage = self.usage.entry(claim.tenant.clone()).or_default();
        change(&mut usage.out, claim.out);
        change(&mut usage.inward, claim.inward);
        usage.vms = if plus { usage.vms + 1 } else { usage.vms - 1 };
    }

    /// Gives a claim back, if it is there.
    pub(super) fn release(&mut self, id: &str) -> Option<Claim> {
        let claim = self.claims.remove(id)?;
        self.add(&claim, false);
        if let Some(on) = self.by_host.get_mut(&claim.host) {
            on.remove(id);
        }
        Some(claim)
    }

    pub(super) fn rename(&mut self, before: &str, now: &str) {
        let claim = self.claims.remove(before).expect("it was claimed");
        let on = self.by_host.entry(claim.host.clone()).or_default();
        on.remove(before);
        on.insert(now.into());
        let taken = self.claims.insert(now.into(), claim);
        assert!(taken.is_none(), "{now} is claimed twice");
    }

    pub(super) fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.get(id)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = (&str, &Claim)> {
        self.claims.iter().map(|(id, claim)| (id.as_str(), claim))
    }

    pub(super) fn claims_on(&self, host: &str) -> impl Iterator<Item = &str> {
        self.by_host.get(host).into_iter().flatten().map(String::as_str)
    }

    pub(super) fn usage(&self, tenant: &str) -> Usage {
        self.usage.get(tenant).copied().unwrap_or_default()
    }

    /// No link carries more than may be promised, and the sums are those of the claims.
    pub(super) fn check(&self) {
        assert_eq!(self.worst(""), None, "more than a link");
    }
}
