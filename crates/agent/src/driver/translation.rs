//! Which VMs' connections are translated (vCC), and what is told of it.
//!
//! Problem   A translation that is asked for and cannot be had must be seen by whoever asked, and keep no floor
//!           from being.
//! Approach  The data plane takes all wishes and gives back what became of each. That is in the status, in
//!           the reasons of a pair, and in the log when it changes.
//! Promises  No wish is dropped without a word.
//! Not here  Attaching, tables, refusals: see `weir_dataplane`. What is translated into what: see
//!           `docs/algorithms/vcc.md`.

use super::Driver;
use crate::config::Setup;
use std::collections::{BTreeMap, BTreeSet};
use weir_dataplane::Translated;
use weir_dataplane::vcc::Law;
use weir_model::agent::POLICING_MOST;
use weir_model::status::{self, LeftAlone};
use weir_units::VmId;

/// What the VMs that are there ask for.
pub(super) fn of(setup: &Setup, gone: &BTreeSet<VmId>) -> BTreeMap<VmId, Law> {
    let vms = setup.file.vms.iter();
    let all = vms.filter_map(|vm| Some((setup.names.id(&vm.name)?, vm.translation)));
    all.filter(|(vm, law)| !law.is_none() && !gone.contains(vm)).collect()
}

/// How far beyond their windows those of them may send that are policed.
pub(super) fn policing(setup: &Setup) -> BTreeMap<VmId, u32> {
    let vms = setup.file.vms.iter();
    let all = vms.filter_map(|vm| Some((setup.names.id(&vm.name)?, vm.policing?)));
    all.map(|(vm, slack)| (vm, u32::try_from(slack.0.get()).unwrap_or(POLICING_MOST))).collect()
}

impl Driver {
    /// What became of all wishes, for people.
    pub(super) fn told_translations(&self) -> Vec<status::Translation> {
        let all = self.dataplane.translations();
        all.into_iter().map(|one| told(self.setup.names.name(one.vm), one)).collect()
    }

    /// Says once what is refused, and when it is not any more.
    pub(super) fn tell_of_translations_here(&mut self) {
        let ids = self.setup.file.vms.iter().filter_map(|vm| self.setup.names.id(&vm.name));
        let names: BTreeMap<VmId, String> = ids.map(|vm| (vm, self.setup.names.name(vm))).collect();
        self.tell_of_translations(&|vm| names.get(&vm).cloned());
    }

    /// The same while VMs may have other names than those in force.
    pub(super) fn tell_of_translations(&mut self, named: &dyn Fn(VmId) -> Option<String>) {
        let all = self.dataplane.translations().into_iter();
        let refused = all.filter_map(|one| Some((one.vm, one.refused?))).collect();
        self.untranslated.tell("translation", refused, named);
    }

    /// What is between these VMs' guests and the network, one sentence for each that is here.
    pub(super) fn explain_translations(&self, vms: &[VmId]) -> Vec<String> {
        let all = self.dataplane.translations();
        let here = vms.iter().filter_map(|vm| all.iter().find(|one| one.vm == *vm));
        here.map(|one| sentence(&told(self.setup.names.name(one.vm), one.clone()))).collect()
    }
}

fn told(vm: String, one: Translated) -> status::Translation {
    let c = one.counters.unwrap_or_default();
    status::Translation {
        vm,
        to: one.asked.map_or("none", Law::name).into(),
        refused: one.refused,
        segments: c.segments,
        edited: c.edited,
        lowered: c.lowered,
        marks_hidden: c.hidden,
        connections: c.begun,
        agreed: c.agreed,
        left_alone: LeftAlone {
            peer_without_ecn: c.deaf,
            guest_with_ecn: c.speaking,
            unclear: c.alone,
            no_place: c.full,
            unknown_segments: c.unknown,
            malformed_segments: c.malformed,
        },
        unedited: c.unedited,
        policed: c.policed,
        fragments: c.fragments,
        repeated_syns: c.repeated,
        asked_by_peers: c.asked,
        found_deaf: c.found,
        reports: c.reports,
    }
}

fn sentence(one: &status::Translation) -> String {
    let status::Translation { vm, to, .. } = one;
    match &one.refused {
        Some(why) => {
            format!("{vm} asks for its connections to be translated to {to}, refused: {why}.")
        }
        None if to == "none" => {
            format!("{vm} has no translation any more; connections that began with one keep it.")
        }
        None => format!(
            "The connections of {vm} follow {to} at its port: {} of {} agreed on ECN in its place, {} marks \
             were hidden from it.",
            one.agreed, one.connections, one.marks_hidden
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_dataplane::vcc::intf::Counters;

    #[test]
    fn each_outcome_of_a_wish_has_its_words() {
        let counters = Counters { begun: 7, agreed: 5, deaf: 2, hidden: 31, ..Counters::default() };
        let one = Translated {
            vm: VmId(1),
            asked: Some(Law::VirtualEcn),
            refused: None,
            counters: Some(counters),
        };
        let on = told("a".into(), one.clone());
        assert_eq!((on.to.as_str(), on.left_alone.peer_without_ecn), ("virtual-ecn", 2));
        assert_eq!(
            sentence(&on),
            "The connections of a follow virtual-ecn at its port: 5 of 7 agreed on ECN in its place, 31 \
             marks were hidden from it."
        );
        let ends = told("a".into(), Translated { asked: None, ..one.clone() });
        assert!(sentence(&ends).starts_with("a has no translation any more"), "{ends:?}");
        let refused = Translated { refused: Some("no kernel".into()), counters: None, ..one };
        let refused = told("a".into(), refused);
        assert_eq!(
            sentence(&refused),
            "a asks for its connections to be translated to virtual-ecn, refused: no kernel."
        );
    }
}
