//! What a shaper with floors and ceilings gives each pair of a host.
//!
//! Problem   A receiver's limit is a ceiling, and the uplink is contended, too: a VM has its floor of it, and
//!           a pair must not starve beside pairs of the same VM that ask for more.
//! Approach  All pairs of a VM that send have equal parts of its floor; a ceiling is what the receiver
//!           allows. The shaper lends what a pair leaves, first to its VM's other pairs, then to others by floors:
//!           so VMs share the uplink max-min by floors, and the pairs of a VM its share, without any rate computed here.
//! Promises  A pair's floor never exceeds its ceiling, nor the floors of a VM its own.
//! Not here  The shaper: HTB, or departure times. Limits: see `sender`.
//! Source    EyeQ §3.1, §4.2. Departs: the paper's root limiter is computed each period from what each VM
//!           could send; measured against it: docs/decisions/0017-eyeq-one-law.md.

use crate::host::Setting;
use serde::{Deserialize, Serialize};
use weir_units::{PairId, Rate, SortedSet, VmId};

/// The pairs that send from a host.
#[derive(Default, Debug, Serialize, Deserialize)]
pub(super) struct Division {
    pairs: SortedSet<PairId>,
    /// VMs whose pairs came or went since their floors were last divided.
    undivided: SortedSet<VmId>,
    /// Pairs whose limits changed since.
    limited: SortedSet<PairId>,
}

impl Division {
    /// A pair sends.
    pub(super) fn see(&mut self, pair: PairId) {
        if self.pairs.insert(pair) {
            self.undivided.insert(pair.src);
        }
    }

    /// A pair is over.
    pub(super) fn forget(&mut self, pair: PairId) {
        if self.pairs.remove(&pair) {
            self.undivided.insert(pair.src);
        }
    }

    /// What a pair's receiver allows has changed.
    pub(super) fn limit(&mut self, pair: PairId) {
        self.limited.insert(pair);
    }

    /// What this VM is promised may have changed.
    pub(super) fn redivide(&mut self, vm: VmId) {
        self.undivided.insert(vm);
    }

    /// How many pairs of a VM send.
    pub(super) fn pairs_of(&self, vm: VmId) -> usize {
        self.of(vm).count()
    }

    fn of(&self, vm: VmId) -> impl Iterator<Item = PairId> + '_ {
        let all = PairId::new(vm, VmId(0))..=PairId::new(vm, VmId(u32::MAX));
        self.pairs.range(all).copied()
    }

    /// The settings of all pairs for which they may have changed since the last call: `promised` says what a VM
    /// is promised, `limit` what a pair's receiver allows, if it spoke. Once for all that came
    /// together: a thousand pairs at once are a million parts otherwise.
    pub(super) fn take_settings(
        &mut self,
        line: Rate,
        promised: impl Fn(VmId) -> Rate,
        limit: impl Fn(PairId) -> Option<Rate>,
    ) -> Vec<(PairId, Setting)> {
        let mut changed = std::mem::take(&mut self.limited);
        for vm in std::mem::take(&mut self.undivided) {
            changed.extend(self.of(vm));
        }
        let mut settings = Vec::with_capacity(changed.len());
        let mut last: Option<(VmId, Rate)> = None;
        for pair in changed.into_iter().filter(|pair| self.pairs.contains(pair)) {
            let known = last.filter(|(vm, _)| *vm == pair.src);
            let (_, part) = known
                .unwrap_or_else(|| (pair.src, promised(pair.src).split(self.pairs_of(pair.src))));
            last = Some((pair.src, part));
            settings.push((pair, setting(part, limit(pair), line)));
        }
        settings
    }
}

fn setting(part: Rate, limit: Option<Rate>, line: Rate) -> Setting {
    let ceiling = limit.map_or(line, |limit| limit.min(line));
    Setting { floor: part.min(ceiling), ceiling }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_mbps(200);

    fn pair(src: u32, dst: u32) -> PairId {
        PairId::new(VmId(src), VmId(dst))
    }

    fn take(division: &mut Division, limit: Option<u64>) -> Vec<(PairId, [u64; 2])> {
        let limit = |_| limit.map(Rate::from_mbps);
        let all = division.take_settings(LINE, |_| Rate::from_mbps(60), limit);
        let mbps = |rate: Rate| rate.as_bps() / 1_000_000;
        all.into_iter().map(|(pair, s)| (pair, [mbps(s.floor), mbps(s.ceiling)])).collect()
    }

    #[test]
    fn pairs_that_send_have_equal_parts_and_the_rest_when_one_stops() {
        let mut division = Division::default();
        division.see(pair(1, 7));
        assert_eq!(take(&mut division, None), [(pair(1, 7), [60, 200])]);
        division.see(pair(1, 8));
        division.see(pair(2, 8));
        let all = take(&mut division, None);
        assert_eq!(
            all,
            [(pair(1, 7), [30, 200]), (pair(1, 8), [30, 200]), (pair(2, 8), [60, 200])]
        );
        assert_eq!(take(&mut division, None), [], "nothing changed");
        division.forget(pair(1, 7));
        assert_eq!(take(&mut division, None), [(pair(1, 8), [60, 200])]);
    }

    #[test]
    fn a_limit_is_a_ceiling_and_no_floor_is_above_it() {
        let mut division = Division::default();
        division.see(pair(1, 7));
        assert_eq!(take(&mut division, Some(20)), [(pair(1, 7), [20, 20])]);
        division.limit(pair(1, 7));
        division.limit(pair(1, 9));
        assert_eq!(take(&mut division, Some(900)), [(pair(1, 7), [60, 200])]);
    }
}
