//! From the machines' own state to sentences: the chain of reasons for one pair's rate.

use crate::config::Names;
use weir_core::host::{PairView, ReceiveView, SendView};
use weir_core::partition::Borrowing;
use weir_core::rate::{Phase, Signal};
use weir_model::status::{Explain, Pair};
use weir_units::Time;

/// One row of `weir top`.
pub(crate) fn row(view: &PairView, names: &Names) -> Pair {
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
        pair.phase = if s.is_blind { "no-signal".into() } else { phase(s.phase).into() };
    }
    pair
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

/// The chain of reasons, from the hose to the rate.
pub(crate) fn explain(view: &PairView, names: &Names, now: Time) -> Explain {
    let mut reasons = Vec::new();
    let (src, dst) = (names.name(view.pair.src), names.name(view.pair.dst));
    if view.is_default {
        reasons.push(format!(
            "{src} and {dst} share no hose: their traffic lives on the small default one."
        ));
    }
    if let Some(s) = &view.send {
        sending(s, &src, &dst, now, &mut reasons);
    }
    if let Some(r) = &view.receive {
        receiving(r, &src, &dst, &mut reasons);
    }
    Explain { pair: row(view, names), reasons }
}

fn sending(s: &SendView, src: &str, dst: &str, now: Time, reasons: &mut Vec<String>) {
    if s.is_weighted {
        reasons.push(
            "Seawall: no floors. All sending VMs have the same weight, each divided evenly over the \
             VMs it sends to."
                .into(),
        );
    } else {
        floor(s, src, dst, reasons);
    }
    if let Borrowing::Decaying { silent_for } = s.borrowing {
        reasons.push(format!(
            "{dst}'s host has been silent for {silent_for}: what was borrowed is given back."
        ));
    }
    law(s, now, reasons);
    reasons.push(format!(
        "Now it may send {}; it sent {} in the last period. Lost so far: {} segments, marked {}, {} \
         cuts.",
        s.setting.ceiling, s.measured, s.lost, s.marked, s.cuts
    ));
}

/// From both hoses to the pair's floor.
fn floor(s: &SendView, src: &str, dst: &str, reasons: &mut Vec<String>) {
    reasons.push(format!(
        "{src} is promised {} out; of that, this pair's part is {}.",
        s.hose, s.share
    ));
    reasons.push(match s.offer {
        None => format!(
            "{dst}'s host has not offered its part yet: until it does the floor is the small start."
        ),
        Some(o) if o.floor < s.share && o.unbounded => format!(
            "{dst} can give {} and no more (it divides its own floor over its senders), which is \
             less: {src}'s rest goes to its other pairs.",
            o.floor
        ),
        Some(o) if o.floor < s.share => format!("{dst} offers {}, which is less.", o.floor),
        Some(o) => format!("{dst} offers {}: no less than {src}'s own part.", o.floor),
    });
    reasons
        .push(format!("So the floor is {}: it holds whatever the neighbours do.", s.setting.floor));
}

/// What the law makes of congestion.
fn law(s: &SendView, now: Time, reasons: &mut Vec<String>) {
    if s.is_blind {
        reasons.push(
            "No congestion signal: what it sends is mostly IPv6 or fragments, in which losses do not \
             show, and marks are not the signal here (signal=ecn). So it may not borrow: its ceiling \
             is its floor."
                .into(),
        );
        return;
    }
    let what = match s.signal {
        Signal::Loss => "Losses were",
        Signal::Ecn | Signal::Both => "Marks or losses were",
    };
    let since = |at: Option<Time>| match at {
        Some(at) => format!("{:.2} s ago", now.since(at).as_secs_f64()),
        None => "never".into(),
    };
    let goal = s.goal.map_or_else(|| "none".into(), |g| g.to_string());
    reasons.push(match s.phase {
        Phase::Starting => "No congestion was seen so far: the rate grows.".into(),
        Phase::Holding => format!(
            "{what} reported {}, at {goal}: the rate was cut and is held before it may grow.",
            since(s.congested_at)
        ),
        Phase::Regaining => format!(
            "The hold is over: the rate returns toward {goal}, where the last congestion was ({}).",
            since(s.congested_at)
        ),
        Phase::Probing => format!(
            "No congestion since {} (then at {goal}): the rate grows, the slower the further above \
             the floor.",
            since(s.congested_at)
        ),
        Phase::Decaying => "The rate falls toward the floor.".into(),
    });
}

fn receiving(r: &ReceiveView, src: &str, dst: &str, reasons: &mut Vec<String>) {
    reasons.push(match r.offered {
        None => format!("{dst} has not offered {src} a part of its {} in yet.", r.hose),
        Some(o) => format!(
            "{dst} is promised {} in and offers {src} {} of it{}; {} arrived in the last period.",
            r.hose,
            o.floor,
            if o.unbounded { ", its full fair share" } else { "" },
            r.measured
        ),
    });
}
