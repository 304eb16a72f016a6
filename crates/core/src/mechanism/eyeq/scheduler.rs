//! Divides what a link or a VM may receive into endpoints' capacities C_i.
//!
//! Problem   Each VM owns a part of the link whatever the others do. The others should have what it
//!           does not use, but no VM states its demand.
//! Approach  `Capacity::Formula`: C_i = B_i·C / Σ B over the VMs that receive. `Capacity::Outer`:
//!           C_i = B_i·λ, and λ follows the load of all together by the law of the rates
//!           ([`rcp_step`]). VMs without a floor get what those with a floor leave, by a loop of
//!           their own.
//! Promises  B_i ≤ C_i ≤ min(maximum, C) for a VM with a floor, if the floors fit.
//! Not here  What the senders may send: `receiver`. VMs that begin to receive: `newcomers`.
//! Source    EyeQ §3.2; the outer loop has the form of the authors' later code. Departs: C_i is
//!           never below B_i. λ falls at once when the headroom is in use ([`Outer::fall_at`]). A
//!           newcomer is held to what the others leave until it has taken it. A step waits until
//!           the rates have followed the last one, unless the link is half idle. Best effort (§3.5)
//!           is metered, too.

use super::config::{Capacity, EyeQ, Outer, fraction};
use super::io::Bounds;
use super::law::{RcpInput, rcp_step};
use super::newcomers::Newcomers;
use weir_units::{Bytes, Rate, Span, Time};

/// The part of the headroom from which on the link counts as full.
const FULL: f64 = 0.95;
/// A VM, or a part of its traffic, that shares the capacity.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Member {
    /// Identifies the member in the next period, whichever others come or go.
    pub(super) key: u32,
    pub(super) bounds: Bounds,
    /// What it received in the period that is over.
    pub(super) octets: u64,
    /// Whether it received anything lately.
    pub(super) is_active: bool,
    /// How often its rate was computed since the outer loop's last step.
    pub(super) steps: u64,
}

impl Member {
    pub(super) fn floor(&self) -> Rate {
        self.bounds.floor
    }

    pub(super) fn has_floor(&self) -> bool {
        !self.bounds.floor.is_zero()
    }
}

/// What the members share, and in what time.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Pool {
    /// C.
    pub(super) capacity: Rate,
    /// The link, if it bounds what can be received: the share of a VM has no such bound.
    pub(super) line: Option<Rate>,
    /// The period that is over.
    pub(super) elapsed: Span,
}

/// The state of the outer loops.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
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
    /// What arrived beyond the capacity, in parts of the headroom; each period counts half as much
    /// as the next.
    excess: f64,
    newcomers: Newcomers,
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
            newcomers: Newcomers::default(),
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

        // After VMs came or went a step may come at any moment: it says nothing of rates.
        let is_whole = pool.elapsed * 2 >= eyeq.period;
        if is_whole {
            self.newcomers.look(pool, members);
        }
        if let Some(unit) = unit
            && is_whole
        {
            let floors = active_floors(members).max(unit.as_bps());
            let fair = pool.capacity.mul_ratio(unit.as_bps(), floors).max(unit);
            if self.is_overrun(outer, pool, promised) {
                level = level.min(fair);
            }
            if outer.fall_at.is_some() && pool.line.is_some() {
                level = level.min(self.newcomers.release(pool, members, unit).max(fair));
                self.newcomers.hold(pool, members);
            }
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
        let capacity = |m: &Member| match unit {
            Some(unit) if m.has_floor() => {
                let share = level.mul_ratio(m.floor().as_bps(), unit.as_bps());
                let share = share.min(self.newcomers.held(m.key));
                share.max(m.floor()).min(pool.capacity).min(m.bounds.most)
            }
            _ => self.spare_level.max(least).min(pool.capacity).min(m.bounds.most),
        };
        members.iter().map(capacity).collect()
    }

    /// Whether so much of the headroom is in use that the load no longer shows the demand.
    ///
    /// What is more in one period alone may be what waited at its sender's until then: the periods
    /// before count, too, also with what they lacked. But while a member is new, a full link is
    /// believed at once.
    fn is_overrun(&mut self, outer: &Outer, pool: Pool, octets: u64) -> bool {
        let (Some(line), Some(fall_at)) = (pool.line, outer.fall_at) else { return false };
        let headroom = line.saturating_sub(pool.capacity).as_f64();
        let arrived = Rate::of(Bytes::new(octets), pool.elapsed).as_f64();
        let used = (arrived - pool.capacity.as_f64()) / headroom.max(1.0);
        self.excess = (self.excess / 2.0).clamp(-1.0, 1.0) + used;
        self.excess > 2.0 * fall_at || (self.newcomers.any_new() && used > FULL)
    }

    /// λ times the smallest floor, which may be another one than it was: λ stays. The first
    /// member finds an idle link.
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

/// Whether less than half of `capacity` arrived: rates may then grow before senders have heard of
/// them. A sender that is told the whole capacity cannot exceed it alone. From half on, every step
/// waits until most senders know the rate.
pub(super) fn is_half_idle(octets: u64, capacity: Rate, elapsed: Span) -> bool {
    octets < capacity.bytes_in(elapsed).get() / 2
}

/// Whether the rates of most that arrives have followed the last step: each outer step waits for as
/// many of the inner loop as fit into its period, however long those take.
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
        // A member that is not active yet will be once something arrives for it.
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
            key: 0,
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
                .zip(0..)
                .map(|((floor, bps), key)| Member {
                    key,
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
        let full = [0, 1].map(|key| Member { key, ..member(4_500, 5_000, t) });
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
        let alike = |mbps| [0, 1].map(|key| Member { key, ..member(4_500, mbps, t) });
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

    #[test]
    fn a_part_of_the_headroom_that_is_in_use_for_long_is_an_overrun_too() {
        let t = Span::from_micros(200);
        let outer = Outer::default();
        let after = |periods: usize, arrived: u64| {
            let mut scheduler = Scheduler::new(Time::ZERO);
            let octets = mbps(arrived).bytes_in(t).get();
            (0..periods).any(|_| scheduler.is_overrun(&outer, pool(t), octets))
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
                key: i as u32,
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
