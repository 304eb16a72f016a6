//! Divides what a link or a VM may receive into endpoints' capacities C_i.
//!
//! Problem   Each VM owns a part of the link whatever the others do; what one does not use, the others
//!           should have; nobody tells what he wants.
//! Approach  `Capacity::Formula`: C_i = B_i·C / Σ B over those that receive. `Capacity::Outer`: C_i = B_i·λ,
//!           and λ follows the load of all together by the same law as the rates do ([`rcp_step`]). Those
//!           without a floor get what those with one leave, by a loop of their own.
//! Promises  B_i ≤ C_i ≤ min(maximum, C) for who has a floor, if the floors fit.
//! Not here  What the senders may send: see `receiver`.
//! Source    EyeQ §3.2; the outer loop: the authors' later code. Departs: C_i never below B_i; λ falls at
//!           once when the headroom is in use ([`Outer::fall_at`]); a step waits until the rates have followed the
//!           last one, unless the link is half idle; best effort (§3.5) is metered, too.

use super::config::{Capacity, EyeQ, Outer, fraction};
use super::io::Bounds;
use super::law::{RcpInput, rcp_step};
use weir_units::{Bytes, Rate, Span, Time};

/// The part of the headroom from which on the link counts as full.
const FULL: f64 = 0.95;
/// For so many periods somebody who begins to receive is new; and who is to begin was quiet for as many.
const NEW: u8 = 3;
/// Who receives no more than one part in so many of what his floor is in a period is quiet in it.
const QUIET_PART: u64 = 8;
/// The part of what others leave from which on who begins takes all of it.
const TAKEN: f64 = 0.9;
/// What somebody usually receives is the mean over so many periods.
const USUAL_PERIODS: f64 = 8.0;

/// One that shares in the capacity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) bounds: Bounds,
    /// What it received in the period that is over.
    pub(super) octets: u64,
    /// Whether it received anything lately.
    pub(super) is_active: bool,
    /// How often its rate was computed since the outer loop's last step.
    pub(super) steps: u64,
}

impl Member {
    fn floor(&self) -> Rate {
        self.bounds.floor
    }

    fn has_floor(&self) -> bool {
        !self.bounds.floor.is_zero()
    }
}

/// What the members share, and in what time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// C.
    pub(super) capacity: Rate,
    /// The link, if it bounds what can be received: the share of a VM has no such bound.
    pub(super) line: Option<Rate>,
    /// The period that is over.
    pub(super) elapsed: Span,
}

/// What was seen of one that shares.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Periods in a row in which it was quiet.
    quiet: u8,
    /// What it receives in the mean.
    usual: Rate,
    /// What the others leave of the capacity, or its floor: all that it may have from when it was quiet until it has
    /// taken it.
    held: Option<Rate>,
}

/// The state of the outer loops.
#[derive(Clone, Debug)]
pub(super) struct Scheduler {
    /// λ times the smallest floor, and that floor.
    level: Option<(Rate, Rate)>,
    /// The capacity of each that has no floor, before it is cut to what there is.
    spare_level: Rate,
    /// The last step of the outer loops.
    stepped_at: Time,
    /// Received since, by those with a floor, and by the others.
    octets: (u64, u64),
    /// Whether the outer loops made a step just now.
    pub(super) has_stepped: bool,
    /// What arrived beyond the capacity, in parts of the headroom; each period counts half as much as the next.
    excess: f64,
    /// What is known of each, by its place.
    seen: Vec<Seen>,
    /// Periods for which somebody is still new among them.
    new_for: u8,
}

impl Scheduler {
    pub(super) fn new(now: Time) -> Self {
        Self {
            level: None,
            spare_level: Rate::MAX,
            stepped_at: now,
            octets: (0, 0),
            has_stepped: false,
            excess: 0.0,
            seen: Vec::new(),
            new_for: 0,
        }
    }

    /// The capacities for the next period, one per member.
    pub(super) fn step(
        &mut self,
        eyeq: &EyeQ,
        now: Time,
        pool: Pool,
        members: &[Member],
    ) -> Vec<Rate> {
        match eyeq.capacity {
            Capacity::Formula => by_formula(pool, members),
            Capacity::Outer(outer) => self.by_outer_loop(eyeq, &outer, now, pool, members),
        }
    }

    fn by_outer_loop(
        &mut self,
        eyeq: &EyeQ,
        outer: &Outer,
        now: Time,
        pool: Pool,
        members: &[Member],
    ) -> Vec<Rate> {
        let unit = members.iter().filter(|m| m.has_floor()).map(Member::floor).min();
        let mut level = self.level_in(unit, pool.capacity);
        let (promised, spare) = received(members);
        self.octets.0 = self.octets.0.saturating_add(promised);
        self.octets.1 = self.octets.1.saturating_add(spare);
        let least = pool.capacity.mul_ratio(1, outer.least_divisor.into());

        let has_begun = self.look(pool, members);
        if let Some(unit) = unit {
            level = self.release(pool, members, level, unit);
        }
        if self.is_overrun(outer, pool, promised, has_begun)
            && let Some(unit) = unit
        {
            let floors = active_floors(members);
            level = level.min(pool.capacity.mul_ratio(unit.as_bps(), floors)).max(unit);
        }
        let since = now.since(self.stepped_at);
        let is_idle = is_half_idle(promised.saturating_add(spare), pool.capacity, pool.elapsed);
        self.has_stepped =
            since >= outer.period && (is_idle || have_followed(eyeq, outer, members));
        if self.has_stepped {
            self.stepped_at = now;
            let octets = std::mem::take(&mut self.octets);
            let law = |rate: Rate, capacity: Rate, floor: Rate, octets: u64| {
                let out = rcp_step(RcpInput {
                    rate_bps: rate.as_bps(),
                    capacity_bps: capacity.as_bps(),
                    floor_bps: floor.as_bps(),
                    elapsed_ns: since.as_nanos(),
                    received_octets: octets,
                    alpha: fraction(outer.alpha),
                    least_factor: fraction(eyeq.least_factor),
                    ..RcpInput::default()
                });
                Rate::from_bps(out.rate_bps)
            };
            level = law(level, pool.capacity, least.max(unit.unwrap_or_default()), octets.0);
            let left = pool.capacity.saturating_sub(Rate::of(Bytes::new(octets.0), since));
            self.spare_level = law(self.spare_level, left.max(least), least, octets.1);
        }
        self.level = unit.map(|unit| (level, unit));
        if outer.fall_at.is_some() {
            self.hold(pool, members);
        }
        let capacity = |(m, seen): (&Member, &Seen)| match unit {
            Some(unit) if m.has_floor() => {
                let share = level.mul_ratio(m.floor().as_bps(), unit.as_bps());
                let share = share.min(seen.held.unwrap_or(Rate::MAX));
                share.max(m.floor()).min(pool.capacity).min(m.bounds.most)
            }
            _ => self.spare_level.max(least).min(pool.capacity).min(m.bounds.most),
        };
        members.iter().zip(&self.seen).map(capacity).collect()
    }

    /// Whether so much of the headroom is in use that the load says no more how much the link is asked for.
    ///
    /// What is more in one period alone may be what waited at its sender's until then: the periods before count, too, also
    /// with what they lacked. But where somebody has just begun to receive, a full link is believed at once.
    fn is_overrun(&mut self, outer: &Outer, pool: Pool, octets: u64, has_begun: bool) -> bool {
        let (Some(line), Some(fall_at)) = (pool.line, outer.fall_at) else { return false };
        let headroom = line.saturating_sub(pool.capacity).as_f64();
        let arrived = Rate::of(Bytes::new(octets), pool.elapsed).as_f64();
        let used = (arrived - pool.capacity.as_f64()) / headroom.max(1.0);
        self.excess = (self.excess / 2.0).clamp(-1.0, 1.0) + used;
        self.new_for = if has_begun { NEW } else { self.new_for.saturating_sub(1) };
        self.excess > 2.0 * fall_at || (self.new_for > 0 && used > FULL)
    }

    /// What they received. Says whether somebody with a floor receives again who was quiet. Places change when VMs come
    /// or go: then all are new.
    fn look(&mut self, pool: Pool, members: &[Member]) -> bool {
        if self.seen.len() != members.len() {
            let new = Seen { quiet: NEW, usual: Rate::ZERO, held: None };
            self.seen = vec![new; members.len()];
        }
        let mut has_begun = false;
        for (seen, m) in self.seen.iter_mut().zip(members) {
            let got = Rate::of(Bytes::new(m.octets), pool.elapsed);
            seen.usual =
                seen.usual.scale(1.0 - 1.0 / USUAL_PERIODS) + got.scale(1.0 / USUAL_PERIODS);
            if got <= m.floor().split(QUIET_PART as usize) {
                seen.quiet = seen.quiet.saturating_add(1);
            } else {
                has_begun |= std::mem::take(&mut seen.quiet) >= NEW && m.has_floor();
            }
        }
        has_begun
    }

    /// Who has taken what the others leave may want more: he is held no longer, and λ falls to where it gives him that.
    /// So nobody is overrun by who begins, and who does not want so much takes nothing from the others.
    fn release(&mut self, pool: Pool, members: &[Member], level: Rate, unit: Rate) -> Rate {
        let mut level = level;
        for (seen, m) in self.seen.iter_mut().zip(members).filter(|(_, m)| m.has_floor()) {
            let taken = |held: &mut Rate| m.octets > held.scale(TAKEN).bytes_in(pool.elapsed).get();
            if let Some(held) = seen.held.take_if(taken) {
                level = level.min(held.mul_ratio(unit.as_bps(), m.floor().as_bps()));
            }
        }
        level.max(unit)
    }

    /// What each that is quiet, or has not taken it yet, may have.
    fn hold(&mut self, pool: Pool, members: &[Member]) {
        let with_floor = |(seen, m): (&Seen, &Member)| m.has_floor().then_some(seen.usual);
        let all: Rate = self.seen.iter().zip(members).filter_map(with_floor).sum();
        for (seen, m) in self.seen.iter_mut().zip(members) {
            if seen.held.is_some() || seen.quiet >= NEW {
                let others = all.saturating_sub(seen.usual);
                seen.held = Some(pool.capacity.saturating_sub(others).max(m.floor()));
            }
        }
    }

    /// λ times the smallest floor, which may be another one than it was: λ stays. Who comes first
    /// finds an idle link.
    fn level_in(&self, unit: Option<Rate>, capacity: Rate) -> Rate {
        let Some(unit) = unit else { return capacity };
        let level = match self.level {
            Some((level, was)) if was == unit => level,
            Some((level, was)) => level.mul_ratio(unit.as_bps(), was.as_bps()),
            None => capacity,
        };
        level.max(unit).min(capacity)
    }
}

/// Octets received by those with a floor, and by the others.
fn received(members: &[Member]) -> (u64, u64) {
    members.iter().fold((0u64, 0u64), |(promised, spare), m| {
        if m.has_floor() {
            (promised.saturating_add(m.octets), spare)
        } else {
            (promised, spare.saturating_add(m.octets))
        }
    })
}

/// Whether less than half of `capacity` arrived: rates may then grow unheard. One who is told the whole
/// capacity cannot exceed it alone, and from half on every step waits until it was heard.
pub(super) fn is_half_idle(octets: u64, capacity: Rate, elapsed: Span) -> bool {
    octets < capacity.bytes_in(elapsed).get() / 2
}

/// Whether the rates of most that arrives have followed the last step: each outer step waits for as many of
/// the inner loop as fit into its period, however long those take.
fn have_followed(eyeq: &EyeQ, outer: &Outer, members: &[Member]) -> bool {
    let steps = outer.period.div_span(eyeq.period);
    let octets = |m: &Member| m.octets;
    let followed = members.iter().filter(|m| m.steps >= steps).map(octets);
    let all = members.iter().map(octets);
    eyeq.is_enough(followed.fold(0, u64::saturating_add), all.fold(0, u64::saturating_add))
}

fn active_floors(members: &[Member]) -> u64 {
    members.iter().filter(|m| m.is_active).map(Member::floor).sum::<Rate>().as_bps()
}

fn by_formula(pool: Pool, members: &[Member]) -> Vec<Rate> {
    let floors = active_floors(members);
    let used = Rate::of(Bytes::new(received(members).0), pool.elapsed);
    let left = pool.capacity.saturating_sub(used);
    let sharing = members.iter().filter(|m| m.is_active && !m.has_floor()).count().max(1);
    let capacity = |m: &Member| {
        if !m.has_floor() {
            return left.split(sharing).min(m.bounds.most);
        }
        let own = m.floor().as_bps();
        // Who is not active yet will be once something comes for it.
        let all = if m.is_active { floors } else { floors.saturating_add(own) };
        pool.capacity.mul_ratio(own, all).min(pool.capacity).min(m.bounds.most)
    };
    members.iter().map(capacity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: Rate = Rate::from_mbps(9_000);
    const LINE: Rate = Rate::from_mbps(10_000);

    fn mbps(m: u64) -> Rate {
        Rate::from_mbps(m)
    }

    fn member(floor: u64, received: u64, elapsed: Span) -> Member {
        Member {
            bounds: Bounds::at_least(mbps(floor)),
            octets: mbps(received).bytes_in(elapsed).get(),
            is_active: received > 0,
            steps: u64::MAX,
        }
    }

    fn pool(elapsed: Span) -> Pool {
        Pool { capacity: C, line: Some(LINE), elapsed }
    }

    #[test]
    fn the_printed_formula_divides_among_the_active_by_their_floors() {
        let t = Span::from_micros(200);
        let members = [member(2_000, 5_000, t), member(4_000, 1_000, t), member(2_000, 0, t)];
        let got = by_formula(pool(t), &members);
        assert_eq!(got, [3_000, 6_000, 2_250].map(mbps));
        let alone = by_formula(pool(t), &[member(2_000, 1, t), member(8_000, 0, t)]);
        assert_eq!(alone, [9_000, 7_200].map(mbps));
    }

    #[test]
    fn those_without_a_floor_share_what_the_others_leave() {
        let t = Span::from_micros(200);
        let members = [member(2_000, 5_000, t), member(0, 100, t), member(0, 100, t)];
        assert_eq!(by_formula(pool(t), &members), [9_000, 2_000, 2_000].map(mbps));
    }

    /// Members take all they may up to what they want, at once.
    fn settle(eyeq: &EyeQ, floors: &[u64], wants: &[u64], steps: u64) -> Vec<Rate> {
        let period = Span::from_millis(1);
        let mut scheduler = Scheduler::new(Time::ZERO);
        let mut got = vec![C; floors.len()];
        for n in 1..=steps {
            let received = got.iter().zip(wants).map(|(c, want)| c.as_bps().min(want * 1_000_000));
            let members: Vec<Member> = floors
                .iter()
                .zip(received)
                .map(|(floor, bps)| Member {
                    bounds: Bounds::at_least(mbps(*floor)),
                    octets: Rate::from_bps(bps).bytes_in(period).get(),
                    is_active: bps > 0,
                    steps: u64::MAX,
                })
                .collect();
            got = scheduler.step(eyeq, Time::ZERO + period * n, pool(period), &members);
        }
        got
    }

    fn near(got: Rate, want: u64) {
        let part = got.as_f64() / mbps(want).as_f64();
        assert!((0.99..1.01).contains(&part), "{got}, not {want} Mb/s");
    }

    #[test]
    fn the_outer_loop_gives_floors_and_what_is_left_by_floors() {
        let got = settle(&EyeQ::default(), &[1_800, 7_200], &[10_000, 10_000], 50);
        near(got[0], 1_800);
        near(got[1], 7_200);
    }

    #[test]
    fn what_a_slow_member_leaves_goes_to_the_others() {
        let got = settle(&EyeQ::default(), &[1_800, 7_200], &[10_000, 5_000], 50);
        near(got[0], 4_000);
        assert!(got[1] >= mbps(7_200), "{}", got[1]);
        let paper = EyeQ::preset("eyeq-paper").unwrap();
        let printed = settle(&paper, &[1_800, 7_200], &[10_000, 5_000], 50);
        near(printed[0], 1_800);
    }

    #[test]
    fn a_link_that_is_overrun_is_shared_by_floors_within_one_period() {
        let t = Span::from_micros(200);
        let mut scheduler = Scheduler::new(Time::ZERO);
        let full = [member(4_500, 5_000, t), member(4_500, 5_000, t)];
        let got = scheduler.step(&EyeQ::default(), Time::ZERO + t, pool(t), &full);
        assert_eq!(got, [4_500, 4_500].map(mbps));
        // The authors' loop alone has hardly begun.
        let outer = Outer { fall_at: None, ..Outer::default() };
        let slow = EyeQ { capacity: Capacity::Outer(outer), ..EyeQ::default() };
        let mut scheduler = Scheduler::new(Time::ZERO);
        let got = scheduler.step(&slow, Time::ZERO + t, pool(t), &full);
        assert_eq!(got, [9_000, 9_000].map(mbps));
    }

    #[test]
    fn where_nobody_is_new_a_full_link_is_shared_by_floors_if_it_stays_full() {
        let t = Span::from_micros(200);
        let eyeq = EyeQ::default();
        let mut scheduler = Scheduler::new(Time::ZERO);
        let alike = |mbps| [member(4_500, mbps, t), member(4_500, mbps, t)];
        let mut at = Time::ZERO;
        let mut shares_after = |all: &[u64]| {
            let mut got = Vec::new();
            for mbps in all {
                at += t;
                // The outer loop itself is not due before.
                scheduler.stepped_at = at;
                got = scheduler.step(&eyeq, at, pool(t), &alike(*mbps));
            }
            got
        };
        let (unlimited, by_floors) = ([9_000, 9_000].map(mbps), [4_500, 4_500].map(mbps));
        assert_eq!(shares_after(&[4_500; 5]), unlimited, "they are new for three of them");
        assert_eq!(shares_after(&[5_000]), unlimited, "one period was a burst");
        assert_eq!(shares_after(&[4_000, 5_000]), unlimited, "this waited in a queue");
        assert_eq!(shares_after(&[4_500; 5]), unlimited);
        assert_eq!(shares_after(&[5_000, 5_000]), by_floors);
    }

    /// Octets of a floor of 4.5 Gb/s each, period by period; what they may have in the end.
    fn after(periods: impl IntoIterator<Item = [u64; 2]>) -> Vec<Rate> {
        let t = Span::from_micros(200);
        let (mut scheduler, mut got) = (Scheduler::new(Time::ZERO), Vec::new());
        for (n, [one, other]) in (1..).zip(periods) {
            let members = [member(4_500, one, t), member(4_500, other, t)];
            let at = Time::ZERO + t * n;
            // The outer loop itself is not due.
            scheduler.stepped_at = at;
            got = scheduler.step(&EyeQ::default(), at, pool(t), &members);
        }
        got
    }

    #[test]
    fn who_begins_has_what_the_others_leave_and_all_have_that_share_once_he_takes_it() {
        let quiet = || std::iter::repeat_n([2_000, 0], 100);
        let held = after(quiet());
        assert_eq!(held[0], mbps(9_000));
        near(held[1], 7_000);
        // A part of it, as in the period in which it begins, changes nothing.
        assert_eq!(after(quiet().chain([[2_000, 3_000]]))[0], mbps(9_000));
        let taken = after(quiet().chain([[2_000, 3_000], [2_000, 6_900]]));
        near(taken[0], 7_000);
        assert_eq!(taken[0], taken[1], "so the link is full, and not overrun");
        // It is not held again before it was quiet.
        let on = after(quiet().chain([[2_000, 6_900], [2_000, 3_000], [2_000, 6_900]]));
        near(on[1], 7_000);
    }

    #[test]
    fn who_begins_has_his_floor_however_much_the_others_use() {
        let quiet = || std::iter::repeat_n([9_000, 0], 100);
        assert_eq!(after(quiet()), [9_000, 4_500].map(mbps));
        assert_eq!(after(quiet().chain([[8_000, 1_000]])), [9_000, 4_500].map(mbps));
        assert_eq!(after(quiet().chain([[5_000, 4_200]])), [4_500, 4_500].map(mbps));
    }

    #[test]
    fn a_part_of_the_headroom_that_is_in_use_for_long_is_an_overrun_too() {
        let t = Span::from_micros(200);
        let outer = Outer::default();
        let after = |periods: usize, arrived: u64| {
            let mut scheduler = Scheduler::new(Time::ZERO);
            let octets = mbps(arrived).bytes_in(t).get();
            (0..periods).any(|_| scheduler.is_overrun(&outer, pool(t), octets, false))
        };
        // Of a headroom of 1000.
        assert!(!after(2, 9_700) && after(3, 9_700) && !after(100, 9_550));
    }

    #[test]
    fn best_effort_has_what_floors_leave_and_a_trickle_where_they_leave_nothing() {
        let got = settle(&EyeQ::default(), &[4_000, 0, 0], &[6_000, 10_000, 10_000], 100);
        near(got[1], 1_500);
        near(got[2], 1_500);
        let got = settle(&EyeQ::default(), &[4_000, 0], &[10_000, 10_000], 100);
        near(got[0], 9_000);
        assert_eq!(got[1], mbps(9), "a thousandth");
    }

    #[test]
    fn a_maximum_bounds_a_capacity_and_leaves_the_rest_to_others() {
        let t = Span::from_millis(1);
        let mut scheduler = Scheduler::new(Time::ZERO);
        let capped = Bounds { floor: mbps(4_500), most: mbps(5_000) };
        let mut got = vec![C; 2];
        for n in 1..=50 {
            let of = |i: usize, bounds| Member {
                bounds,
                octets: got[i].bytes_in(t).get(),
                is_active: true,
                steps: u64::MAX,
            };
            let members = [of(0, capped), of(1, Bounds::at_least(mbps(1_000)))];
            got = scheduler.step(&EyeQ::default(), Time::ZERO + t * n, pool(t), &members);
        }
        near(got[0], 5_000);
        near(got[1], 4_000);
    }
}
