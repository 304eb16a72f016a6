//! Bounds what a VM may receive that begins to receive, until its demand is known.
//!
//! Problem   An idle VM could begin at all of C, beside what the other VMs use. The link is then
//!           overrun until λ has followed, which takes some periods each time: a tenth of a burst
//!           of 25 periods.
//! Approach  A quiet VM may have what the others leave, or its floor if that is more. If it takes
//!           nearly all of that within its first periods, it may want more. Then λ falls to where
//!           it gives the VM exactly that, so the link is full and not overrun.
//! Promises  No VM is held below its floor, nor longer than [`NEW`] periods once it receives. A
//!           newcomer that wants less takes nothing from the others. What is known of a VM stays,
//!           whichever other VMs come or go.
//! Not here  λ: `scheduler`, which does not let it fall below the printed formula's for this.
//! Source    Ours. The paper's formula (§3.2) divides C at once among all active VMs, for as long
//!           as they are active.

use super::scheduler::{Member, Pool};
use weir_units::{Bytes, Rate, SortedMap};

/// Periods for which a VM that begins to receive is new, and for which it was quiet before.
const NEW: u8 = 3;
/// A VM is quiet in a period in which it receives at most its floor divided by this.
const QUIET_PART: usize = 8;
/// A newcomer that receives this part of what it is held to counts as having taken all of it.
const TAKEN: f64 = 0.9;
/// Periods over which the usual rate of a VM is the mean.
const USUAL_PERIODS: f64 = 8.0;

/// What was seen of each VM with a floor, by its key.
#[derive(Clone, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Newcomers {
    seen: SortedMap<u32, Seen>,
}

#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Seen {
    /// Periods in a row in which it was quiet.
    quiet: u8,
    /// Periods for which it is still new.
    new_for: u8,
    /// What it receives in the mean.
    usual: Rate,
    /// All that it may have.
    held: Option<Rate>,
}

impl Newcomers {
    /// Takes what the members received in the period that is over. A member that was not seen
    /// before is quiet until it receives something.
    pub(super) fn look(&mut self, pool: Pool, members: &[Member]) {
        let before = std::mem::take(&mut self.seen);
        for m in members.iter().filter(|m| m.has_floor()) {
            let got = Rate::of(Bytes::new(m.octets), pool.elapsed);
            let unknown = Seen { quiet: NEW, new_for: 0, usual: got, held: None };
            let mut seen = before.get(&m.key).copied().unwrap_or(unknown);
            let part = 1.0 / USUAL_PERIODS;
            seen.usual = seen.usual.scale(1.0 - part) + got.scale(part);
            let is_quiet = got <= m.floor().split(QUIET_PART);
            let begins = !is_quiet && seen.quiet >= NEW;
            seen.quiet = if is_quiet { seen.quiet.saturating_add(1) } else { 0 };
            seen.new_for = if begins { NEW } else { seen.new_for.saturating_sub(1) };
            self.seen.insert(m.key, seen);
        }
    }

    /// Whether some member is new.
    pub(super) fn any_new(&self) -> bool {
        self.seen.values().any(|seen| seen.new_for > 0)
    }

    /// Upper bound on λ × `unit` (the smallest floor) that still gives every saturated newcomer the
    /// rate it was held to.
    ///
    /// Saturated newcomers are no longer held. Nor are those that took less while they were new: by
    /// then λ has answered to their demand, and what the others leave is just that.
    pub(super) fn release(&mut self, pool: Pool, members: &[Member], unit: Rate) -> Rate {
        let mut level = Rate::MAX;
        for m in members {
            let Some(seen) = self.seen.get_mut(&m.key) else { continue };
            let Some(held) = seen.held else { continue };
            let is_taken = m.octets > held.scale(TAKEN).bytes_in(pool.elapsed).get();
            if seen.new_for > 0 && is_taken {
                level = level.min(held.mul_ratio(unit.as_bps(), m.floor().as_bps()));
            }
            if is_taken || (seen.new_for == 0 && seen.quiet < NEW) {
                seen.held = None;
            }
        }
        level
    }

    /// Holds all quiet members whose maximum is not below that bound anyway.
    pub(super) fn hold(&mut self, pool: Pool, members: &[Member]) {
        let all: Rate = self.seen.values().map(|seen| seen.usual).sum();
        for m in members {
            let Some(seen) = self.seen.get_mut(&m.key).filter(|s| s.quiet >= NEW) else { continue };
            let others = all.saturating_sub(seen.usual);
            let left = pool.capacity.saturating_sub(others).max(m.floor());
            seen.held = Some(left).filter(|left| *left < m.bounds.most);
        }
    }

    /// All that it may have.
    pub(super) fn held(&self, key: u32) -> Rate {
        self.seen.get(&key).and_then(|seen| seen.held).unwrap_or(Rate::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Capacity, EyeQ, Outer};
    use super::super::io::Bounds;
    use super::super::scheduler::Scheduler;
    use super::*;
    use weir_units::{Span, Time};

    const T: Span = Span::from_micros(200);

    fn mbps(m: u64) -> Rate {
        Rate::from_mbps(m)
    }

    #[track_caller]
    fn near(got: Rate, want: u64) {
        let part = got.as_f64() / mbps(want).as_f64();
        assert!((0.99..1.01).contains(&part), "{got}, not {want} Mb/s");
    }

    /// A link of 10 Gb/s, and what each receives on it, Mb/s, period by period. The outer loop
    /// makes no step.
    struct Link {
        eyeq: EyeQ,
        scheduler: Scheduler,
        at: Time,
    }

    impl Link {
        fn new() -> Self {
            let outer = Outer { period: Span::from_secs(1000), ..Outer::default() };
            let eyeq = EyeQ { capacity: Capacity::Outer(outer), ..EyeQ::default() };
            Self { eyeq, scheduler: Scheduler::new(Time::ZERO), at: Time::ZERO }
        }

        fn step(&mut self, members: &[Member], elapsed: Span) -> Vec<Rate> {
            self.at += elapsed;
            let pool = Pool { capacity: mbps(9_000), line: Some(mbps(10_000)), elapsed };
            self.scheduler.step(&self.eyeq, self.at, pool, members)
        }

        /// The capacities after these periods.
        fn after<const N: usize>(
            &mut self,
            floors: [u64; N],
            periods: impl IntoIterator<Item = [u64; N]>,
        ) -> Vec<Rate> {
            let of = |key: usize, received| member(key, floors[key], received);
            let members = |all: [u64; N]| -> Vec<Member> {
                all.into_iter().enumerate().map(|(key, received)| of(key, received)).collect()
            };
            let step = |all| self.step(&members(all), T);
            periods.into_iter().map(step).last().expect("some")
        }
    }

    fn member(key: usize, floor: u64, received: u64) -> Member {
        Member {
            key: key as u32,
            bounds: Bounds::at_least(mbps(floor)),
            octets: mbps(received).bytes_in(T).get(),
            is_active: received > 0,
            steps: u64::MAX,
        }
    }

    const HALVES: [u64; 2] = [4_500, 4_500];

    #[test]
    fn who_begins_has_what_the_others_leave_and_all_have_that_share_once_he_takes_it() {
        let mut link = Link::new();
        let quiet = link.after(HALVES, [[2_000, 0]; 100]);
        assert_eq!(quiet[0], mbps(9_000));
        near(quiet[1], 7_000);
        // A part of it, as in the period in which it begins, changes nothing.
        let begun = link.after(HALVES, [[2_000, 3_000]]);
        assert_eq!(begun[0], mbps(9_000));
        near(begun[1], 7_000);
        let taken = link.after(HALVES, [[2_000, 6_900]]);
        near(taken[0], 7_000);
        assert_eq!(taken[0], taken[1], "so the link is full, and not overrun");
        // It is not held again before it was quiet, whatever the others use.
        let on = link.after(HALVES, [[4_000, 3_000]; 50]);
        assert_eq!(on, taken);
    }

    #[test]
    fn who_begins_has_his_floor_however_much_the_others_use() {
        let mut link = Link::new();
        assert_eq!(link.after(HALVES, [[9_000, 0]; 100]), [9_000, 4_500].map(mbps));
        assert_eq!(link.after(HALVES, [[8_000, 1_000]]), [9_000, 4_500].map(mbps));
        assert_eq!(link.after(HALVES, [[5_000, 4_200]]), [4_500, 4_500].map(mbps));
    }

    #[test]
    fn what_no_floor_needs_is_not_lost_when_somebody_begins() {
        let mut link = Link::new();
        let floors = [1_000, 1_000];
        assert_eq!(link.after(floors, [[9_000, 0]; 100]), [9_000, 1_000].map(mbps));
        // The formula's parts, and not the floors: no part of the link is idle.
        assert_eq!(link.after(floors, [[8_000, 1_000]]), [4_500, 4_500].map(mbps));
    }

    #[test]
    fn who_begins_and_is_content_with_less_takes_nothing_from_the_others() {
        let mut link = Link::new();
        let _ = link.after(HALVES, [[6_000, 0]; 100]);
        let got = link.after(HALVES, [[6_000, 3_000]; 50]);
        assert_eq!(got, [9_000, 9_000].map(mbps), "and is not held for long");
        // Nor does a member that has just what the others leave, once it is not new.
        let mut link = Link::new();
        let floors = [2_000, 2_000];
        let _ = link.after(floors, [[6_000, 0]; 100]);
        let got =
            link.after(floors, [[6_000, 1_000], [6_000, 1_000], [6_000, 1_000], [6_000, 2_900]]);
        assert_eq!(got, [9_000, 9_000].map(mbps));
    }

    #[test]
    fn who_may_not_have_what_is_left_is_not_held_and_moves_no_one() {
        let mut link = Link::new();
        let capped = Bounds { floor: mbps(1_000), most: mbps(2_000) };
        let both = |received| {
            [member(0, 4_500, 6_900), Member { bounds: capped, ..member(1, 1_000, received) }]
        };
        for _ in 0..100 {
            link.step(&both(0), T);
        }
        assert_eq!(link.step(&both(2_000), T), [9_000, 2_000].map(mbps));
    }

    #[test]
    fn what_is_known_of_who_stays_is_known_whoever_comes_or_goes() {
        let mut link = Link::new();
        let _ = link.after(HALVES, [[2_000, 0]; 100]);
        // One goes, and another comes in its place.
        let got = link.step(&[member(1, 4_500, 0), member(2, 4_500, 6_900)], T);
        assert_eq!(got[0], mbps(4_500), "the other one leaves less");
        assert_eq!(got[1], mbps(9_000), "it is not held to what was left to another");
        // A step at any moment says nothing of rates.
        for _ in 0..10 {
            link.step(&[member(1, 4_500, 0), member(2, 4_500, 0)], Span::ZERO);
        }
        let got = link.step(&[member(1, 4_500, 0), member(2, 4_500, 6_900)], T);
        assert_eq!(got[1], mbps(9_000));
    }

    #[test]
    fn nobody_is_held_in_the_authors_loop() {
        let mut link = Link::new();
        let outer = Outer { fall_at: None, ..Outer::default() };
        link.eyeq.capacity = Capacity::Outer(outer);
        let got = link.after(HALVES, [[6_000, 0]; 3]);
        assert_eq!(got[0], got[1]);
    }
}
