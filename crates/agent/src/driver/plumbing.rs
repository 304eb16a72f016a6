//! What of the datapath somebody changed, and what people hear of it.
//!
//! Problem   A floor that is not enforced must never go unsaid, nor flood the log.
//! Approach  With every heartbeat the data plane looks at its plumbing and mends it. Here what it
//!           found becomes counters, a line in the log when it changes, and conditions in the status.
//! Promises  A fault is said once when it appears and once when it has ended, and stands in `weir
//!           top` as long as it is there. What cannot be mended is tried again after pauses that grow.
//! Not here  What is looked at, and how it is mended: the data plane. Ports that went: see `ports`.

use super::Driver;
use super::ports::Refusal;
use std::collections::BTreeMap;
use weir_dataplane::{Renamed, Tended};
use weir_model::status::{self, Unenforced};
use weir_units::{Time, VmId};

/// What was found last, and how often something was.
#[derive(Debug, Default)]
pub(super) struct Plumbing {
    /// Parts that were not as they should be and are again.
    pub(super) mended: u64,
    /// Interfaces that were renamed.
    pub(super) renames: u64,
    /// Times at which the kernel did not answer.
    pub(super) blind: u64,
    unenforced: BTreeMap<VmId, String>,
    renamed: Vec<Renamed>,
    /// While something cannot be mended.
    refusal: Option<Refusal>,
}

impl Plumbing {
    /// VMs that nothing limits as it should.
    pub(super) fn unenforced(&self) -> usize {
        self.unenforced.len()
    }

    /// Whether what cannot be mended is to be tried again by now.
    fn may_mend(&self, now: Time) -> bool {
        self.refusal.as_ref().is_none_or(|refusal| refusal.is_due(now))
    }

    /// Takes up what a look found: what is new about VMs, with the reason or without one if it has
    /// ended.
    fn take(&mut self, now: Time, tended: &Tended, has_tried: bool) -> Vec<(VmId, Option<String>)> {
        let found = tended.unenforced();
        let ended =
            self.unenforced.keys().filter(|vm| !found.contains_key(vm)).map(|vm| (*vm, None));
        let is_news = |(vm, why): &(&VmId, &String)| self.unenforced.get(vm) != Some(*why);
        let begun = found.iter().filter(is_news).map(|(vm, why)| (*vm, Some(why.clone())));
        let news: Vec<_> = ended.chain(begun).collect();
        if found.is_empty() {
            self.refusal = None;
        } else if has_tried {
            let former = self.refusal.take();
            self.refusal = Some(Refusal::new(now, String::new(), former.as_ref()));
        }
        self.unenforced = found;
        self.mended += tended.mended.len() as u64;
        news
    }

    /// Takes up which interfaces have other names: those that are new.
    fn take_names(&mut self, renamed: &[Renamed]) -> Vec<Renamed> {
        let is_news = |one: &&Renamed| !self.renamed.contains(one);
        let news: Vec<Renamed> = renamed.iter().filter(is_news).cloned().collect();
        self.renames += news.len() as u64;
        self.renamed = renamed.to_vec();
        news
    }
}

impl Driver {
    /// With every heartbeat.
    pub(super) fn look_at_plumbing(&mut self, now: Time) {
        let may_mend = self.plumbing.may_mend(now);
        let tended = match self.dataplane.tend(may_mend) {
            Ok(tended) => tended,
            Err(e) => {
                self.plumbing.blind += 1;
                if self.plumbing.blind.is_power_of_two() {
                    tracing::error!("whether floors are enforced could not be looked at: {e}");
                }
                return;
            }
        };
        for what in &tended.mended {
            tracing::warn!("{what}; it is as it was");
        }
        for Renamed { configured, now, taken } in self.plumbing.take_names(&tended.renamed) {
            let other =
                if taken { "; another interface has its name and is not guarded" } else { "" };
            tracing::warn!(
                "interface {configured} is called {now} by now and stays enforced{other}: \
                 write the new name into {}",
                self.config.display()
            );
        }
        for (vm, why) in self.plumbing.take(now, &tended, may_mend) {
            let name = self.setup.names.name(vm);
            match why {
                Some(why) => tracing::error!("Unenforced: vm {name}: {why}"),
                None => tracing::info!("vm {name} is enforced again"),
            }
        }
    }

    /// Somebody asks for everything to be mended at once.
    pub(super) fn mend_at_once(&mut self) {
        self.plumbing.refusal = None;
    }

    /// VMs that are not limited as they should be, for people.
    pub(super) fn told_unenforced(&self) -> Vec<Unenforced> {
        let told = |(vm, why): (&VmId, &String)| Unenforced {
            vm: self.setup.names.name(*vm),
            why: why.clone(),
        };
        self.plumbing.unenforced.iter().map(told).collect()
    }

    /// Whether the floors of a VM are not enforced.
    pub(super) fn is_unenforced(&self, vm: VmId) -> bool {
        self.plumbing.unenforced.contains_key(&vm)
    }

    /// Interfaces with other names than the configuration gives them, for people.
    pub(super) fn told_renamed(&self) -> Vec<status::Renamed> {
        let told = |one: &Renamed| status::Renamed {
            configured: one.configured.clone(),
            now: one.now.clone(),
            taken: one.taken,
        };
        self.plumbing.renamed.iter().map(told).collect()
    }

    /// Why a pair of these VMs may not have its floor.
    pub(super) fn why_unenforced(&self, vms: &[VmId]) -> Vec<String> {
        let told = |vm: &VmId| {
            let why = self.plumbing.unenforced.get(vm)?;
            Some(format!("Unenforced: {}: {why}", self.setup.names.name(*vm)))
        };
        vms.iter().filter_map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use weir_dataplane::Fault;

    fn fault(what: &str, vms: &[u32]) -> Fault {
        Fault { what: what.into(), vms: vms.iter().map(|vm| VmId(*vm)).collect::<BTreeSet<_>>() }
    }

    #[test]
    fn a_fault_is_said_when_it_appears_and_when_it_has_ended_and_not_between() {
        let (mut plumbing, now) = (Plumbing::default(), Time::from_nanos(1));
        let faulty = Tended {
            faults: vec![fault("a filter", &[1, 2]), fault("a link", &[2])],
            ..Tended::default()
        };
        let news = plumbing.take(now, &faulty, true);
        let why = |why: &str| Some(why.to_owned());
        assert_eq!(news, [(VmId(1), why("a filter")), (VmId(2), why("a filter; a link"))]);
        assert_eq!(plumbing.take(now, &faulty, false), []);
        let less = Tended { faults: vec![fault("a filter", &[2])], ..Tended::default() };
        assert_eq!(plumbing.take(now, &less, false), [(VmId(1), None), (VmId(2), why("a filter"))]);
        assert_eq!(plumbing.take(now, &Tended::default(), true), [(VmId(2), None)]);
        assert_eq!(plumbing.unenforced(), 0);
    }

    #[test]
    fn what_cannot_be_mended_is_tried_again_after_pauses_and_at_once_when_it_ended() {
        let (mut plumbing, now) = (Plumbing::default(), Time::from_nanos(1));
        let faulty = Tended { faults: vec![fault("a filter", &[1])], ..Tended::default() };
        assert!(plumbing.may_mend(now));
        plumbing.take(now, &faulty, true);
        assert!(!plumbing.may_mend(now));
        plumbing.take(now, &faulty, false);
        assert!(plumbing.may_mend(now + weir_units::Span::from_millis(500)), "the first pause");
        plumbing.take(now, &Tended::default(), false);
        assert!(plumbing.may_mend(now));
    }

    #[test]
    fn a_new_name_is_said_once() {
        let mut plumbing = Plumbing::default();
        let renamed = |now: &str| Renamed { configured: "p".into(), now: now.into(), taken: false };
        assert_eq!(plumbing.take_names(&[renamed("q")]), [renamed("q")]);
        assert_eq!(plumbing.take_names(&[renamed("q")]), []);
        assert_eq!(plumbing.take_names(&[renamed("r")]), [renamed("r")]);
        assert_eq!(plumbing.take_names(&[]), []);
        assert_eq!(plumbing.renames, 2);
    }
}
