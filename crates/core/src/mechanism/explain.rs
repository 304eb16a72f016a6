//! What a machine knows of a pair, for people: a line of numbers, and a chain of reasons.
//!
//! Problem   `weir explain` tells why a pair has its rate. Who writes the sentences has to know the law.
//! Approach  Each mechanism's folder has its own (`explain.rs`). A driver gives the names of both VMs and what the machine
//!           does not know ([`Facts`]), and shows what it gets.
//! Promises  The same view, names and facts give the same sentences.
//! Not here  Reasons that a data plane has: programs that are missing, translations, budgets.

use crate::classes::Overbooked;
use crate::host::{Event, Limited, Setting, Why};
use std::fmt;
use weir_units::{HoseId, Rate, Span, Time};

/// What the machine does not know: the driver adds it.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The present.
    pub now: Time,
    /// The source VM's cap, if it has one and is here.
    pub cap: Option<Rate>,
    /// What the kernel has; `None` without a class of its own.
    pub kernel: Option<Setting>,
    /// When the lease on what is borrowed was last renewed.
    pub renewed: Time,
    /// How long it holds without.
    pub lease: Span,
    /// Floors beyond the uplink, if they are.
    pub overbooked: Option<Overbooked>,
    /// The last change of the pair's law ([`Event::is_of_law`]), if there was any.
    pub changed: Option<(Time, Event)>,
    /// When the machine looks again, and why.
    pub next: Option<(Time, Why)>,
}

/// The names of a pair's VMs, and of its hose.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The source.
    pub src: &'a str,
    /// The destination.
    pub dst: &'a str,
    /// The further hose that both share, if the pair belongs to one.
    pub hose: Option<&'a str>,
}

/// Which ends of a pair are on this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Side {
    /// The source.
    Send,
    /// The destination.
    #[default]
    Receive,
    /// Both.
    Local,
}

/// One line about a pair, whatever the mechanism.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Summary {
    /// Which ends are here.
    pub side: Side,
    /// The further hose that it belongs to, if it does.
    pub hose: Option<HoseId>,
    /// Its floor; on the receiving side what its sender is offered.
    pub floor: Rate,
    /// The most it may send; zero on the receiving side.
    pub rate: Rate,
    /// What it sent or received in the last period.
    pub measured: Rate,
    /// The state of the law, in a word.
    pub phase: String,
    /// Segments lost so far.
    pub lost: u64,
    /// Segments marked so far.
    pub marked: u64,
    /// Whether losses of what it sends would be reported by now.
    pub is_heard: bool,
    /// Present while the round trip is longer than floors are promised for.
    pub long_path: Option<LongPath>,
}

/// The condition of a pair whose round trip is longer than floors are promised for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongPath {
    /// Least recent round trip of control messages.
    pub round_trip: Span,
    /// Rate that the pair sent over the last partitioning period, in percent of its floor.
    pub percent_of_floor: u64,
}

impl Side {
    /// Of the ends that are here.
    pub(super) const fn of(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::Local,
            (true, false) => Self::Send,
            (false, _) => Self::Receive,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Local => "local",
        })
    }
}

impl fmt::Display for LongPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.round_trip.as_nanos() as f64 / 1e6;
        write!(f, "LongPath ({ms:.1} ms, {:.2} of its floor)", self.percent_of_floor as f64 / 1e2)
    }
}

impl Facts {
    pub(super) fn ago(&self, at: Time) -> String {
        format!("{:.2} s ago", self.now.since(at).as_secs_f64())
    }

    /// What happened to the pair last, and what comes next.
    pub(super) fn course(&self, reasons: &mut Vec<String>) {
        if let Some((at, event)) = self.changed {
            let ago = self.ago(at);
            reasons.extend(match event {
                Event::Phase { path: None, from, to, .. } => {
                    Some(format!("It went from {from} to {to} {ago}."))
                }
                Event::Phase { path: Some(path), from, to, .. } => {
                    Some(format!("On {path} it went from {from} to {to} {ago}."))
                }
                Event::Limit(_, rate, Limited::First) => {
                    Some(format!("Its first limit came {ago}: {rate}."))
                }
                Event::Limit(_, rate, Limited::Halved) => Some(format!(
                    "Its receiver was silent, so its limit was halved to {rate} {ago}."
                )),
                Event::Began(..) | Event::Ended(..) => None,
            });
        }
        reasons.extend(self.next.map(|(at, why)| {
            let wait = at.since(self.now).as_secs_f64() * 1e3;
            format!("The machine looks again in {wait:.1} ms: {why}.")
        }));
    }

    /// Whether the uplink holds the floor, and whether what was decided is in force.
    pub(super) fn in_force(&self, decided: Setting, reasons: &mut Vec<String>) {
        let floor = decided.floor;
        reasons.extend(self.overbooked.map(|over| {
            let part = floor.mul_ratio(over.budget.as_bps(), over.floors.as_bps().max(1));
            format!("Overbooked: {over} Here the floor of {floor} is worth {part}.")
        }));
        reasons.push(match self.kernel {
            None => "The kernel has no queue for this pair: it shares its VM's default one.".into(),
            Some(k) if k == decided => "The kernel has just that.".into(),
            Some(k) => format!(
                "The kernel has a floor of {} and a ceiling of {}: small rises wait, and what HTB \
                 cannot express is rounded.",
                k.floor, k.ceiling
            ),
        });
    }
}

/// The ending of a noun of which there are `count`.
pub(super) const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Phase;
    use weir_units::{PairId, PathId, VmId};

    #[test]
    fn the_last_change_is_told_with_its_time_and_so_is_what_comes_next() {
        let pair = PairId::new(VmId(1), VmId(2));
        let (from, to) = (Phase::Holding, Phase::Regaining);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let told = |event| {
            let facts = Facts {
                now: at(540),
                cap: None,
                kernel: None,
                renewed: Time::ZERO,
                lease: Span::from_secs(1),
                overbooked: None,
                changed: Some((at(40), event)),
                next: Some((at(555), Why::Rate)),
            };
            let mut reasons = Vec::new();
            facts.course(&mut reasons);
            assert!(reasons.pop().is_some_and(|last| last.contains("looks again in 15.0 ms")));
            reasons.join(" ")
        };
        let phase = |path| told(Event::Phase { pair, path, from, to });
        assert_eq!(phase(None), "It went from holding to regaining 0.50 s ago.");
        assert_eq!(
            phase(Some(PathId(1))),
            "On path1 it went from holding to regaining 0.50 s ago."
        );
        assert_eq!(
            told(Event::Limit(pair, Rate::from_mbps(5), Limited::Halved)),
            "Its receiver was silent, so its limit was halved to 5 Mb/s 0.50 s ago."
        );
    }
}
