//! Explains one pair's rate: a chain of reasons, from the machines' own state to sentences.

pub(crate) mod eyeq;

use crate::config::Names;
use weir_core::elasticswitch::{Blind, PairView, ReceiveView, SendView};
use weir_core::host::Setting;
use weir_core::mechanism;
use weir_core::partition::{Borrowing, Want};
use weir_core::rate::{Phase, RateView, Signal};
use weir_core::reservation;
use weir_model::status::{Explain, LongPath, Overbooked, Pair};
use weir_units::{Rate, Span, Time};

/// What the machines do not know: the driver adds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) now: Time,
    /// The source VM's cap, if it has one and is here.
    pub(crate) cap: Option<Rate>,
    /// What the kernel has; `None` without a class of its own.
    pub(crate) kernel: Option<Setting>,
    /// When the lease on what is borrowed was last renewed.
    pub(crate) renewed: Time,
    /// How long it holds without.
    pub(crate) lease: Span,
    /// Floors beyond the uplink, if they are.
    pub(crate) overbooked: Option<Overbooked>,
}

impl Facts {
    pub(crate) fn ago(&self, at: Time) -> String {
        format!("{:.2} s ago", self.now.since(at).as_secs_f64())
    }
}

/// One row of `weir top`, whatever the mechanism.
pub(crate) fn row(view: &mechanism::PairView, names: &Names) -> Pair {
    match view {
        mechanism::PairView::ElasticSwitch(view) => row_of(view, names),
        mechanism::PairView::EyeQ(view) => eyeq::row(view, names),
        mechanism::PairView::Reservation(view) => reserved(view, names),
    }
}

/// Why a pair has its rate, whatever the mechanism.
pub(crate) fn explain(view: &mechanism::PairView, names: &Names, facts: &Facts) -> Explain {
    match view {
        mechanism::PairView::ElasticSwitch(view) => chain(view, names, facts),
        mechanism::PairView::EyeQ(view) => eyeq::explain(view, names, facts),
        mechanism::PairView::Reservation(view) => reservation(view, names, facts),
    }
}

fn reserved(view: &reservation::PairView, names: &Names) -> Pair {
    Pair {
        from: names.name(view.pair.src),
        to: names.name(view.pair.dst),
        side: "send".into(),
        floor_bps: view.setting.floor.as_bps(),
        rate_bps: view.setting.ceiling.as_bps(),
        phase: if view.is_foreseen { "reserved" } else { "unforeseen" }.into(),
        ..Pair::default()
    }
}

fn reservation(view: &reservation::PairView, names: &Names, facts: &Facts) -> Explain {
    let Setting { floor, ceiling } = view.setting;
    let mut reasons = vec![if view.is_foreseen {
        format!("The reservation gives this pair {floor}, and nothing is borrowed.")
    } else {
        format!("The reservation does not name this pair: it has no floor and may send {ceiling}.")
    }];
    overbooked(floor, facts, &mut reasons);
    kernel(view.setting, facts, &mut reasons);
    Explain { pair: reserved(view, names), reasons }
}

fn row_of(view: &PairView, names: &Names) -> Pair {
    let side = match (&view.send, &view.receive) {
        (Some(_), Some(_)) => "local",
        (Some(_), None) => "send",
        _ => "receive",
    };
    let mut pair = Pair {
        from: names.name(view.pair.src),
        to: names.name(view.pair.dst),
        side: side.into(),
        ..Pair::default()
    };
    if let Some(r) = &view.receive {
        pair.floor_bps = r.offered.map_or(0, |o| o.floor.as_bps());
        pair.measured_bps = r.measured.as_bps();
        pair.lost = r.lost;
        pair.marked = r.marked;
        pair.phase = match r.offered {
            Some(o) if o.unbounded => "unbounded".into(),
            Some(_) => "bounded".into(),
            None => "new".into(),
        };
    }
    if let Some(s) = &view.send {
        pair.floor_bps = s.setting.floor.as_bps();
        pair.rate_bps = s.setting.ceiling.as_bps();
        pair.measured_bps = s.measured.as_bps();
        pair.lost = s.lost;
        pair.marked = s.marked;
        pair.phase = s.blind.map_or_else(|| phase(s.law.phase), blind).into();
        pair.long_path = long_path(s);
    }
    pair
}

/// Why a pair may not borrow, in a word.
fn blind(blind: Blind) -> &'static str {
    match blind {
        Blind::Unnumbered => "no-signal",
        Blind::Unseen => "unseen",
        Blind::Hidden => "misdirected",
    }
}

/// The same in a sentence or two.
fn blindness(blind: Blind, hidden: u64) -> String {
    let what = match blind {
        Blind::Unnumbered => {
            "what it sends is mostly IPv6 or fragments, in which losses do not show, \
                              and marks are not the signal here (signal=ecn)"
                .to_owned()
        }
        Blind::Unseen => {
            "nothing of what it sends passes the uplink's program as this pair's (a tunnel \
                          that begins behind its port, or another way out), so losses do not show"
                .to_owned()
        }
        Blind::Hidden => format!(
            "next to nothing of what it sends arrives at the receiver's port, and no loss is seen there \
             ({hidden} segments so far): its guest sends it to another hardware address"
        ),
    };
    format!("No congestion signal: {what}. So it may not borrow: its ceiling is its floor.")
}

/// Floors are promised for round trips up to this one (GUARANTEES.md, 1.4.1).
const PROMISED_WITHIN: Span = Span::from_millis(10);

/// The condition of a pair whose round trip is longer than that.
fn long_path(s: &SendView) -> Option<LongPath> {
    let round_trip = s.heard?.offer.round_trip.filter(|time| *time > PROMISED_WITHIN)?;
    let of_floor = s.measured.as_f64() / s.setting.floor.as_f64().max(1.0);
    let percent_of_floor = (of_floor * 100.0).round() as u64;
    Some(LongPath { round_trip_us: round_trip.as_nanos() / 1000, percent_of_floor })
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Holding => "holding",
        Phase::Regaining => "regaining",
        Phase::Probing => "probing",
        Phase::Decaying => "decaying",
    }
}

/// The chain of reasons, from the demand to the kernel.
fn chain(view: &PairView, names: &Names, facts: &Facts) -> Explain {
    let mut reasons = Vec::new();
    let (src, dst) = (names.name(view.pair.src), names.name(view.pair.dst));
    if view.is_default {
        reasons.push(format!(
            "{src} and {dst} share no hose: their traffic lives on the small default one."
        ));
    }
    if let Some(s) = &view.send {
        reasons.push(demand(&src, "sent", s.measured, s.wants));
        if s.is_weighted {
            reasons.push(
                "Seawall: no floors. All sending VMs have the same weight, each divided evenly over \
                 the VMs it sends to."
                    .into(),
            );
        } else {
            floor(s, &src, &dst, facts, &mut reasons);
        }
        silence(s, &dst, &mut reasons);
        rate(s, facts, &mut reasons);
        if let Some(long) = long_path(s) {
            reasons.push(format!(
                "{long}: messages to {dst} and back take longer than the {} ms for which floors are \
                 promised. A TCP connection regains its rate slowly after a loss there; what this \
                 pair borrows is held the longer after each.",
                PROMISED_WITHIN.as_secs_f64() * 1e3
            ));
        }
        overbooked(s.setting.floor, facts, &mut reasons);
        kernel(s.setting, facts, &mut reasons);
    }
    if let Some(r) = &view.receive {
        receiving(r, &src, &dst, &mut reasons);
    }
    Explain { pair: row_of(view, names), reasons }
}

/// What the pair is thought to want at one of its ends.
fn demand(src: &str, verb: &str, measured: Rate, wants: Option<(Want, Rate)>) -> String {
    let Some((want, limit)) = wants else {
        return format!("{src} {verb} {measured} in the last period.");
    };
    let so = match want {
        Want::New => format!("the pair is new and is taken to want {limit}"),
        Want::Bounded => format!("less than it could: it is taken to want {limit} and no more"),
        Want::Growing => format!("all it could: it is taken to want {limit}, and more each period"),
        Want::Unbounded => "all it could, and that is its fair share: it wants all there is".into(),
    };
    format!("{src} {verb} {measured} in the last period, {so}.")
}

/// Both parts, and the smaller of them.
fn floor(s: &SendView, src: &str, dst: &str, facts: &Facts, reasons: &mut Vec<String>) {
    reasons.push(format!(
        "{src} is promised {} out, divided over {} active pair{}; this pair's part is {}.",
        s.hose,
        s.peers,
        if s.peers == 1 { "" } else { "s" },
        s.share
    ));
    let held = s.held_for.as_secs_f64();
    reasons.push(match s.heard {
        None => format!(
            "{dst}'s host has not offered its part yet: until it does the floor is the small start."
        ),
        Some(h) if h.is_adopted => format!(
            "{dst}'s host was not heard since this agent started {}: the {} that was found in force \
             counts as its part, for {held:.1} s.",
            facts.ago(h.at),
            h.offer.floor
        ),
        Some(h) => {
            let (offer, at) = (h.offer, facts.ago(h.at));
            let what = if offer.floor >= s.share {
                format!("no less than {src}'s own part")
            } else if offer.unbounded {
                format!("its full fair share there, and less than {src}'s part: the rest goes to \
                         {src}'s other pairs")
            } else {
                format!("as much as it sees used, and less than {src}'s part")
            };
            let confirmed = if offer.confirm { ", which was echoed" } else { "" };
            format!("{dst}'s host offers {} (offer {}, {at}{confirmed}): {what}.", offer.floor, offer.serial)
        }
    });
    let why = if s.setting.floor.is_zero() {
        "nothing is promised to this pair"
    } else {
        "it holds whatever the neighbours do"
    };
    reasons.push(format!("So the floor is {}, the smaller of both: {why}.", s.setting.floor));
}

fn silence(s: &SendView, dst: &str, reasons: &mut Vec<String>) {
    let held = s.held_for.as_secs_f64();
    if let Borrowing::Decaying { silent_for } = s.borrowing {
        reasons.push(format!(
            "{dst}'s host has been silent for {:.1} s: what was borrowed is given back, and after \
             {held:.1} s of silence the floor falls to the small start.",
            silent_for.as_secs_f64()
        ));
    }
}

/// What the law makes of it.
fn rate(s: &SendView, facts: &Facts, reasons: &mut Vec<String>) {
    reasons.push(match s.blind {
        Some(blind) => blindness(blind, s.hidden),
        None => phase_of(s, facts),
    });
    reasons.push(format!(
        "So far {} segments were lost and {} marked; the rate was cut {} times.",
        s.lost, s.marked, s.law.cuts
    ));
    if s.unfounded > 0 {
        reasons.push(format!(
            "{} more were reported lost, but nothing had numbered what left: these are not counted.",
            s.unfounded
        ));
    }
    ceiling(s, facts, reasons);
}

/// What the law does, and why.
fn phase_of(s: &SendView, facts: &Facts) -> String {
    let law = &s.law;
    let last = congestion(law, s.signal, facts);
    let grows = format!(
        "steps of {} by now, weight {:.3}, slowed to {:.0} % by caution",
        law.steps,
        law.weight,
        law.caution * 100.0
    );
    match law.phase {
        Phase::Starting => format!("No congestion was seen so far: the rate grows ({grows})."),
        Phase::Holding => {
            let until = law.held_until.map_or_else(String::new, |until| {
                let left = until.since(facts.now).as_secs_f64();
                format!(", {left:.2} s more if nothing is lost")
            });
            format!("{last} The rate was cut and is held before it may grow{until}.")
        }
        Phase::Regaining => {
            format!("{last} The hold is over: the rate returns toward that ({grows}).")
        }
        Phase::Probing => {
            let below = law.goal.is_some_and(|goal| law.rate < goal);
            let where_ = if below { "still below that" } else { "above that" };
            format!("{last} The rate is {where_} and probes for more ({grows}).")
        }
        Phase::Decaying => "The rate falls toward the floor.".into(),
    }
}

/// What it may send, and how much of that is lent.
fn ceiling(s: &SendView, facts: &Facts, reasons: &mut Vec<String>) {
    let borrowed = s.setting.ceiling.saturating_sub(s.setting.floor);
    let mut now = format!("Now it may send {}", s.setting.ceiling);
    now += &match borrowed.is_zero() {
        true => ": its floor, nothing borrowed".into(),
        false => format!(": its floor and {borrowed} borrowed"),
    };
    if s.setting.ceiling >= s.line {
        now += "; no more than the uplink's line rate";
    }
    if let Some(cap) = facts.cap {
        now += &format!("; all pairs of the VM together no more than its cap of {cap}");
    }
    reasons.push(now + ".");
    if !borrowed.is_zero() {
        reasons.push(format!(
            "What is borrowed is a lease, renewed {}: the guardian takes it back after {:.1} s without.",
            facts.ago(facts.renewed),
            facts.lease.as_secs_f64()
        ));
    }
}

fn congestion(law: &RateView, signal: Signal, facts: &Facts) -> String {
    let what = match signal {
        Signal::Loss => "got lost",
        Signal::Ecn => "got lost or marked",
    };
    match (law.congested_at, law.goal) {
        (Some(at), Some(goal)) => format!(
            "{}, at {goal}, {} segment{} {what}.",
            facts.ago(at),
            law.congestion,
            if law.congestion == 1 { "" } else { "s" }
        ),
        _ => "No congestion was seen so far.".into(),
    }
}

/// What the uplink cannot hold of all that is promised.
pub(crate) fn overbooked(floor: Rate, facts: &Facts, reasons: &mut Vec<String>) {
    let Some(over) = facts.overbooked else { return };
    let part = floor.mul_ratio(over.budget_bps, over.floors_bps.max(1));
    reasons.push(format!(
        "Overbooked: {} Here the floor of {floor} is worth {part}.",
        crate::overbooked::sentence(&over)
    ));
}

/// Whether what was decided is in force.
pub(crate) fn kernel(decided: Setting, facts: &Facts, reasons: &mut Vec<String>) {
    reasons.push(match facts.kernel {
        None => "The kernel has no queue for this pair: it shares its VM's default one.".into(),
        Some(k) if k == decided => "The kernel has just that.".into(),
        Some(k) => format!(
            "The kernel has a floor of {} and a ceiling of {}: small rises wait, and what HTB cannot \
             express is rounded.",
            k.floor, k.ceiling
        ),
    });
}

fn receiving(r: &ReceiveView, src: &str, dst: &str, reasons: &mut Vec<String>) {
    reasons.push(demand(src, "reached us with", r.measured, r.wants));
    reasons.push(format!(
        "{dst} is promised {} in, divided over {} active pair{}; senders hold {} of it.",
        r.hose,
        r.peers,
        if r.peers == 1 { "" } else { "s" },
        r.spent
    ));
    reasons.push(match r.offered {
        None => format!("{src} was not offered a part yet."),
        Some(o) => format!(
            "{src} is offered {} (offer {}){}.",
            o.floor,
            o.serial,
            if o.unbounded { ", its full fair share" } else { "" }
        ),
    });
    if let Some(held) = r.held.filter(|held| held.awaits_echo) {
        reasons.push(format!(
            "{src} has not confirmed the smaller offer: {} counts as spent until it does.",
            held.most
        ));
    }
    let (lost, marked) = (r.lost, r.marked);
    reasons.push(format!("On the way {lost} segments were lost so far, and {marked} marked."));
    if r.unfounded > 0 {
        reasons.push(format!(
            "{} more seemed to be: the host of {src} knows of no such pair, so its packets have no \
             number of ours (an address that is translated on the way), and losses do not show.",
            r.unfounded
        ));
    }
}

#[cfg(test)]
mod tests;
