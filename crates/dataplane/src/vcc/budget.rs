//! `bpf/vcc_budget.h` in Rust, and the count of connections for it: a port's window budget.
//!
//! Problem   Shares follow from the number of live connections. Connections do not only end by FIN:
//!           they are pushed out of the table, fall silent, or get a RST that the peer does not
//!           believe.
//! Approach  The table is the truth. It is counted twice a second, and within 50 ms when the kernel
//!           reports that a connection began or ended to use the budget. The caller divides, and
//!           the shares are written where the programs read them. A guest that opens and closes
//!           connections all the time has them counted as often as a hundredth of a CPU allows: see
//!           [`Credit`].
//! Promises  Shares of other classes than those in force are never read together with them. While
//!           no agent counts, and for its successor, shares stay as they were. A connection that
//!           begins after a quiet second is counted within 50 ms, whatever a count costs.
//! Not here  The division: `weir_core::vcc::Budget`. The effect of a share: `vcc_law.h`.

use super::Programs;
use super::intf::State;
use crate::error::Error;
use crate::intf::{Flow, Plain, shared};
use crate::table::Table;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Most classes of a budget.
pub const CLASSES_MOST: usize = 16;
/// Interval at which [`Divided::tend`] is called.
pub const LOOK_NS: u64 = 50_000_000;
/// Interval at which the table is counted although the kernel reports nothing. It finds connections
/// that were pushed out or fell silent.
const COUNT_NS: u64 = 500_000_000;
/// Part of a CPU that counts on the kernel's request may use: one in this many,
const CREDIT_PART: u64 = 100;
/// and at once what they may use in a second.
const CREDIT_MOST_NS: i64 = 10_000_000;
/// A connection that is silent for this many 1024 ticks (64 s) does not use the budget until it
/// sends.
const QUIET: u16 = 60;
/// A connection that is silent for nearly as long as sixteen bits can express (19.5 hours) is
/// remembered until that is over, because then it looks as if it had just sent.
const QUIET_MOST: u16 = u16::MAX - 2 * QUIET;
/// Most time by which a segment that passes during the count is later than the count.
const AHEAD: u16 = 2;

shared!(
    /// Connections of one class: those with both ports in these ranges.
    Class, 12, {
        /// Ports of the guest's, from
        local_first: u16,
        /// to.
        local_last: u16,
        /// Ports of the peer's, from
        remote_first: u16,
        /// to.
        remote_last: u16,
        /// Octets of window for each connection.
        share: u32,
    }
);
shared!(
    /// A budget as the kernel has it.
    Budget, 196, {
        /// Number of classes.
        classes: u32,
        /// The classes.
        class: [Class; CLASSES_MOST],
    }
);

impl Class {
    /// Connections by these ports.
    pub fn new(local_ports: RangeInclusive<u16>, remote_ports: RangeInclusive<u16>) -> Self {
        let (local_first, local_last) = local_ports.into_inner();
        let (remote_first, remote_last) = remote_ports.into_inner();
        Self { local_first, local_last, remote_first, remote_last, share: 0 }
    }

    /// Whether a connection is one of these, as the kernel sees it.
    pub fn has(&self, name: &Flow) -> bool {
        let (remote, local) =
            (u16::from_be_bytes(name.src_port), u16::from_be_bytes(name.dst_port));
        (self.remote_first..=self.remote_last).contains(&remote)
            && (self.local_first..=self.local_last).contains(&local)
    }
}

impl Budget {
    /// A budget of these classes.
    ///
    /// # Panics
    /// More than [`CLASSES_MOST`], which the caller has checked.
    pub fn new(classes: &[Class]) -> Self {
        let mut budget = Self { classes: classes.len() as u32, ..Self::default() };
        budget.class[..classes.len()].copy_from_slice(classes);
        budget
    }

    /// Its classes.
    pub fn classes(&self) -> &[Class] {
        &self.class[..(self.classes as usize).min(CLASSES_MOST)]
    }
}

/// CPU time for counts on the kernel's request. It grows as time passes, and pays for each count. A
/// count may use more than there is; then the next ones wait, for a second at most. The counts
/// twice a second are free, so neither an expensive table nor a busy guest delays them.
#[derive(Debug)]
struct Credit {
    left_ns: i64,
    /// Time of its last growth.
    at_ns: u64,
}

impl Credit {
    const fn full() -> Self {
        Self { left_ns: CREDIT_MOST_NS, at_ns: 0 }
    }

    /// Whether there is any by now.
    fn is_there(&mut self, now_ns: u64) -> bool {
        let parts = now_ns.saturating_sub(self.at_ns) / CREDIT_PART;
        self.at_ns += parts * CREDIT_PART;
        let grown = i64::try_from(parts).unwrap_or(i64::MAX).saturating_add(self.left_ns);
        self.left_ns = grown.min(CREDIT_MOST_NS);
        self.left_ns >= 0
    }

    fn pay(&mut self, ns: u64) {
        let left_ns = self.left_ns.saturating_sub(i64::try_from(ns).unwrap_or(i64::MAX));
        self.left_ns = left_ns.max(-CREDIT_MOST_NS);
    }
}

/// Connections that died in silence, by name, with the time of their last segment. The table's time
/// has sixteen bits, so such a connection looks alive again for a minute every 19.5 hours.
#[derive(Debug, Default)]
struct Silent(BTreeMap<Flow, u16>);

impl Silent {
    /// Whether an open connection has sent lately. A connection that has to be remembered for the
    /// next count goes to `then`.
    fn is_heard(&self, name: Flow, state: &State, now: u32, then: &mut Self) -> bool {
        let silent = state.silent(now);
        let is_ahead = silent > u16::MAX - AHEAD;
        let is_known = self.0.get(&name) == Some(&state.seen);
        if (is_known && (silent < QUIET || is_ahead)) || (silent >= QUIET_MOST && !is_ahead) {
            then.0.insert(name, state.seen);
            return false;
        }
        silent < QUIET || is_ahead
    }
}

/// A port's budget, from the counting side.
#[derive(Debug)]
pub struct Divided {
    slot: u32,
    classes: Vec<Class>,
    /// Live connections by class, when they were last counted.
    live: Vec<u32>,
    table: Table<Flow, State>,
    /// Connections that were over at the last count, with the sequence that their guests had
    /// reached.
    over: BTreeMap<Flow, u32>,
    silent: Silent,
    credit: Credit,
    turns: u64,
    /// When the table was counted; `None`: not yet.
    counted_ns: Option<u64>,
}

impl Divided {
    /// Puts a budget of these classes on the port in `slot`, which has a table, or none if there
    /// are none. Present classes keep their shares; new ones keep the given shares until they are
    /// counted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(programs: &Programs, slot: u32, classes: &[Class]) -> Result<Self, Error> {
        let Some(table) = programs.flows(slot)? else {
            return Err(Error::Config(format!(
                "a window budget for slot {slot}, which has no table"
            )));
        };
        let (live, mut classes) = (vec![0; classes.len()], classes.to_vec());
        match programs.budgets.get(slot)? {
            _ if classes.is_empty() => {}
            Some(there) if are_same(there.classes(), &classes) => {
                classes = there.classes().to_vec();
                // The agent that put it there may have died before it reported so.
                programs.bound(slot, true)?;
            }
            _ => programs.set_budget(slot, Some(Budget::new(&classes)))?,
        }
        let (over, silent, credit) = (BTreeMap::new(), Silent::default(), Credit::full());
        let (turns, counted_ns) = (0, None);
        Ok(Self { slot, classes, live, table, over, silent, credit, turns, counted_ns })
    }

    /// For a budget that no other port shares, to be called every [`LOOK_NS`]: counts if it is
    /// time, lets `divide` compute shares from the live connections by class, and puts them in
    /// force. Returns whether anything changed. `cpu_ns` is the CPU time that the caller has used.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tend(
        &mut self,
        programs: &Programs,
        now_ns: u64,
        cpu_ns: &dyn Fn() -> u64,
        divide: &mut dyn FnMut(&[u32]) -> Vec<u32>,
    ) -> Result<bool, Error> {
        if !self.count_if_due(programs, now_ns, cpu_ns)? {
            return Ok(false);
        }
        let shares = divide(&self.live);
        self.share_out(programs, &shares)
    }

    /// The first half of [`tend`](Self::tend): returns whether connections were counted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn count_if_due(
        &mut self,
        programs: &Programs,
        now_ns: u64,
        cpu_ns: &dyn Fn() -> u64,
    ) -> Result<bool, Error> {
        // Read before the table: what turns in between is counted now, and once more.
        let turns = programs.turns(self.slot);
        let is_due = |counted: u64| now_ns.saturating_sub(counted) >= COUNT_NS;
        if self.counted_ns.is_none_or(is_due) {
            self.count(now_ns)?;
        } else if turns != self.turns && self.credit.is_there(now_ns) {
            let before_ns = cpu_ns();
            self.count(now_ns)?;
            self.credit.pay(cpu_ns().saturating_sub(before_ns));
        } else {
            return Ok(false);
        }
        (self.turns, self.counted_ns) = (turns, Some(now_ns));
        Ok(true)
    }

    /// The second half: puts a share for each class in force. Returns whether one has changed.
    ///
    /// # Errors
    /// The kernel refuses; all are as they were.
    ///
    /// # Panics
    /// There is not one share per class.
    pub(crate) fn share_out(&mut self, programs: &Programs, shares: &[u32]) -> Result<bool, Error> {
        assert_eq!(shares.len(), self.classes.len(), "a share for each class");
        let with = |(class, share): (&Class, &u32)| Class { share: *share, ..*class };
        let classes: Vec<Class> = self.classes.iter().zip(shares).map(with).collect();
        if classes == self.classes {
            return Ok(false);
        }
        programs.budgets.put(self.slot, Budget::new(&classes))?;
        self.classes = classes;
        Ok(true)
    }

    /// Whether it has these classes, whatever their shares.
    pub(crate) fn is_of(&self, classes: &[Class]) -> bool {
        are_same(&self.classes, classes)
    }

    /// The VM.
    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    /// Live connections of each class, as they were counted last.
    pub fn live(&self) -> &[u32] {
        &self.live
    }

    /// The classes with their present shares.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn count(&mut self, now_ns: u64) -> Result<(), Error> {
        let now = (now_ns >> 20) as u32;
        let (mut over, mut silent) = (BTreeMap::new(), Silent::default());
        let mut live = vec![0; self.classes.len()];
        for (name, state) in self.table.read()? {
            if !state.is_open() || !self.silent.is_heard(name, &state, now, &mut silent) {
                continue;
            }
            if state.is_over() {
                // Any sender can make a RST. A guest that goes on to send new data did not believe
                // it.
                let nxt = self.over.get(&name).copied().unwrap_or(state.nxt);
                over.insert(name, nxt);
                if nxt == state.nxt {
                    continue;
                }
            }
            if let Some(class) = self.classes.iter().position(|class| class.has(&name)) {
                live[class] += 1;
            }
        }
        (self.over, self.silent, self.live) = (over, silent, live);
        Ok(())
    }
}

/// Whether these are the same but for their shares.
fn are_same(some: &[Class], others: &[Class]) -> bool {
    let bare = |class: &Class| Class { share: 0, ..*class };
    some.iter().map(bare).eq(others.iter().map(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(remote_port: u16, local_port: u16) -> Flow {
        let (src_port, dst_port) = (remote_port.to_be_bytes(), local_port.to_be_bytes());
        Flow { src_port, dst_port, ..Flow::default() }
    }

    #[test]
    fn counts_in_a_row_cost_a_hundredth_of_a_cpu_and_none_waits_after_a_quiet_second() {
        for cost_ns in [1_000, 700_000, 1_500_000, 40_000_000] {
            let (mut credit, mut counts) = (Credit::full(), 0);
            let looks = 60_000_000_000 / LOOK_NS;
            for look in 0..looks {
                if credit.is_there(7_000_000_000_000 + look * LOOK_NS) {
                    credit.pay(cost_ns);
                    counts += 1;
                }
            }
            // Of a hundredth of a minute, and what there is at once; but once a second in any case.
            let most = (610_000_000 / cost_ns).clamp(60, looks);
            assert!(counts <= most + 1, "{counts} of {most} for {cost_ns}");
            assert!(counts >= most * 9 / 10, "{counts} of {most} for {cost_ns}");
            assert!(credit.is_there(7_000_000_000_000 + (looks + 20) * LOOK_NS), "{cost_ns}");
        }
    }

    #[test]
    fn who_died_in_silence_stays_dead_when_sixteen_bits_of_time_are_over() {
        let one = name(5001, 40_000);
        let (mut silent, mut heard) = (Silent::default(), Vec::new());
        let mut state = State { seen: 65_530, ..State::default() };
        // Looks some seconds apart, for twice as long as sixteen bits say.
        for time in (65_530u32..3 * 65_536).step_by(7) {
            let mut then = Silent::default();
            let is_heard = silent.is_heard(one, &state, time << 10, &mut then);
            heard.extend(is_heard.then_some(time - 65_530));
            silent = then;
        }
        assert!(heard.iter().all(|age| *age < u32::from(QUIET)) && !heard.is_empty(), "{heard:?}");
        // It speaks again, after all that, and a segment may be later than the count.
        let now = 3 * 65_536u32;
        let hears = |silent: &Silent, state: &State, now: u32| {
            silent.is_heard(one, state, now << 10, &mut Silent::default())
        };
        state.seen = now as u16;
        assert!(hears(&silent, &state, now) && hears(&silent, &state, now - 1));
        assert!(!hears(&silent, &state, now + u32::from(QUIET)));
        // Also one that is remembered, as soon as it speaks at another time.
        let known = Silent([(one, 7)].into());
        assert!(
            !hears(&known, &State { seen: 7, ..state }, 8)
                && hears(&known, &State { seen: 8, ..state }, 8)
        );
    }

    #[test]
    fn shares_do_not_make_classes_others() {
        let class = Class::new(0..=u16::MAX, 1..=2);
        let (some, more) = ([class], [class, class]);
        assert!(are_same(&some, &[Class { share: 9, ..class }]));
        assert!(!are_same(&some, &more) && !are_same(&some, &[Class { remote_last: 3, ..class }]));
    }
}
