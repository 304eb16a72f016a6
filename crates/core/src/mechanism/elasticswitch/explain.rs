//! Why ElasticSwitch gives a pair its rate, in sentences: from its demand over both ends' parts to the kernel.

use super::pairs::Blind;
use super::view::{PairView, ReceiveView, SendView};
use crate::accounts::PROMISED_WITHIN;
use crate::host::HoseKey;
use crate::mechanism::explain::{Facts, LongPath, Named, Side, Summary, plural};
use crate::message::Backlog;
use crate::partition::{Borrowing, Want};
use crate::rate::{Phase, RateView, Signal};
use weir_units::Rate;

/// One line about a pair.
pub(crate) fn summary(view: &PairView) -> Summary {
    let side = Side::of(view.send.is_some(), view.receive.is_some());
    let hose = match view.hose {
        HoseKey::Further(id) => Some(id),
        HoseKey::Tenant | HoseKey::Default => None,
    };
    let mut pair = Summary { side, hose, ..Summary::default() };
    if let Some(r) = &view.receive {
        pair.floor = r.offered.map_or(Rate::ZERO, |o| o.floor);
        pair.measured = r.measured;
        pair.lost = r.lost;
        pair.marked = r.marked;
        pair.phase = match r.offered {
            Some(o) if o.unbounded => "unbounded".into(),
            Some(_) => "bounded".into(),
            None => "new".into(),
        };
    }
    if let Some(s) = &view.send {
        pair.floor = s.setting.floor;
        pair.rate = s.setting.ceiling;
        pair.measured = s.measured;
        pair.lost = s.lost;
        pair.marked = s.marked;
        pair.phase = s.blind.map_or_else(|| s.law.phase.to_string(), |why| blind(why).into());
        // Without the receiver's messages a rate decays.
        pair.is_heard = s.blind.is_none() && s.law.phase != Phase::Decaying;
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

/// The condition of a pair with a longer round trip than floors are promised for.
fn long_path(s: &SendView) -> Option<LongPath> {
    let round_trip = s.heard?.offer.round_trip.filter(|time| *time > PROMISED_WITHIN)?;
    let of_floor = s.measured.as_f64() / s.setting.floor.as_f64().max(1.0);
    let percent_of_floor = (of_floor * 100.0).round() as u64;
    Some(LongPath { round_trip, percent_of_floor })
}

/// The chain of reasons, from the demand to the kernel.
pub(crate) fn reasons(view: &PairView, named: Named<'_>, facts: &Facts) -> Vec<String> {
    let mut reasons = Vec::new();
    let Named { src, dst, hose } = named;
    match view.hose {
        HoseKey::Tenant => {}
        HoseKey::Default => reasons.push(format!(
            "{src} and {dst} share no hose: their traffic lives on the small default one."
        )),
        HoseKey::Further(id) => {
            let name = hose.map_or_else(|| id.to_string(), |name| format!("`{name}`"));
            reasons.push(format!(
                "{src} sends and {dst} receives in the hose {name}: what follows is of that hose, and \
                 no traffic of other hoses takes from it."
            ));
        }
    }
    if let Some(s) = &view.send {
        reasons.push(demand(src, "sent", s.measured, s.wants));
        reasons.extend(waiting(s.waited));
        if s.is_weighted {
            reasons.push(
                "Seawall: no floors. All sending VMs have the same weight, each divided evenly over \
                 the VMs it sends to."
                    .into(),
            );
        } else {
            floor(s, src, dst, facts, &mut reasons);
        }
        silence(s, dst, &mut reasons);
        rate(s, facts, &mut reasons);
        if let Some(long) = long_path(s) {
            reasons.push(format!(
                "{long}: messages to {dst} and back take longer than the {} ms for which floors are \
                 promised. A TCP connection regains its rate slowly after a loss there; what this \
                 pair borrows is held the longer after each.",
                PROMISED_WITHIN.as_secs_f64() * 1e3
            ));
        }
        facts.in_force(s.setting, &mut reasons);
    }
    if let Some(r) = &view.receive {
        receiving(r, src, dst, &mut reasons);
    }
    reasons
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

/// What waits at the source's host says more of the demand than what left.
fn waiting(waited: Backlog) -> Option<String> {
    match waited {
        Backlog::Unknown | Backlog::Free => None,
        Backlog::Sometimes => {
            Some("At times packets waited in its queue: it wants no less than it has.".into())
        }
        Backlog::Always => {
            Some("Packets waited in its queue all the time: it wants more than it has.".into())
        }
    }
}

/// Both parts, and the smaller of them.
fn floor(s: &SendView, src: &str, dst: &str, facts: &Facts, reasons: &mut Vec<String>) {
    reasons.push(format!(
        "{src} is promised {} out, divided over {} active pair{}; this pair's part is {}.",
        s.hose,
        s.peers,
        plural(s.peers),
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

fn receiving(r: &ReceiveView, src: &str, dst: &str, reasons: &mut Vec<String>) {
    reasons.push(demand(src, "reached us with", r.measured, r.wants));
    reasons.push(format!(
        "{dst} is promised {} in, divided over {} active pair{}; senders hold {} of it.",
        r.hose,
        r.peers,
        plural(r.peers),
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
