//! From the written settings of a link's ports to their treatment of packets.
//!
//! Problem   A threshold beyond the buffer never marks, and no measurement shows the mistake.
//! Approach  Each number is checked where it is written, and against the buffer.
//! Promises  The result can happen: thresholds lie within buffers, parts between zero and one.

use crate::scenario::error::{Error, did_you_mean};
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::spec::links::{PathsSpec, PortSpec, RedSpec};
use crate::scenario::{Link, PathBy, Paths, Queueing, Red};
use weir_units::{Bytes, Span};

/// Weight of the newest queue length in RED's average (Floyd and Jacobson 1993).
const RED_WEIGHT: f64 = 0.002;
/// The largest chance to mark below RED's upper threshold.
const RED_PROBABILITY: f64 = 0.1;
/// Most paths of a bundle: more than any link has here.
const PATHS_MOST: u32 = 16;
/// One full-sized frame.
const FRAME: Bytes = Bytes::new(1514);

/// What a link's ports do: what `spec` says, and `link`'s own where it says nothing.
pub(super) fn apply(link: &mut Link, spec: &PortSpec, scope: &Scope) -> Result<(), Error> {
    if let Some(formula) = &spec.buffer {
        link.buffer = buffer(formula, scope)?;
    }
    if let Some(formula) = &spec.delay {
        link.delay = formula.span(scope)?;
    }
    let mut queueing = Queueing { ..link.queueing };
    if let Some(red_spec) = &spec.red {
        if let Some(both) = &spec.ecn {
            return Err(both.error("`ecn` beside `red`", "keep `ecn` or `red`: both mark"));
        }
        queueing.red = Some(red(red_spec, link.buffer, scope)?);
        queueing.ecn = None;
    }
    if let Some(formula) = &spec.ecn {
        queueing.ecn = threshold(formula, link.buffer, scope)?;
    }
    if let Some(formula) = &spec.priorities {
        queueing.priorities = priorities(formula, scope)?;
    }
    if let (true, Some(red_spec)) = (queueing.priorities, &spec.red) {
        let message = "`red` beside `priorities`";
        return Err(red_spec.whole.error(message, "keep one: RED is for a single queue"));
    }
    if let Some(formula) = &spec.loss {
        queueing.loss = part(formula, scope)?;
    }
    if let Some(spec) = &spec.paths {
        queueing.paths = Some(paths(spec, scope)?);
    }
    link.queueing = queueing;
    let largest = queueing.ecn.max(queueing.red.map(|red| red.max)).unwrap_or_default();
    match &spec.buffer {
        Some(formula) if largest > link.buffer => {
            let message = format!("a buffer of {} below the threshold of {largest}", link.buffer);
            Err(formula.error(message, "lower this link's `ecn` too, or write `ecn: 0`"))
        }
        _ => Ok(()),
    }
}

fn buffer(formula: &Formula, scope: &Scope) -> Result<Bytes, Error> {
    let size = formula.size(scope)?;
    // Less than one full-sized frame would drop every packet.
    if size < FRAME {
        let message = format!("a buffer of {size} holds no full packet");
        return Err(formula.error(message, "write 1514B or more; 128kB is the default"));
    }
    Ok(size)
}

/// Zero turns marking off for a single link although the others mark.
fn threshold(formula: &Formula, buffer: Bytes, scope: &Scope) -> Result<Option<Bytes>, Error> {
    let size = formula.size(scope)?;
    if size == Bytes::ZERO {
        return Ok(None);
    }
    if size < FRAME || size > buffer {
        let message = format!("a threshold of {size} at a buffer of {buffer}");
        let help = format!("write 1514B to {}B; a sixth of the buffer is usual", buffer.get());
        return Err(formula.error(message, help));
    }
    Ok(Some(size))
}

/// Whether there are two queues.
fn priorities(formula: &Formula, scope: &Scope) -> Result<bool, Error> {
    match formula.count(scope, 1)? {
        1 => Ok(false),
        2 => Ok(true),
        count => {
            let help = "write 2: one for best effort, one for all others; or 1";
            Err(formula.error(format!("{count} priorities"), help))
        }
    }
}

fn red(spec: &RedSpec, buffer: Bytes, scope: &Scope) -> Result<Red, Error> {
    let (min, max) = (spec.min.size(scope)?, spec.max.size(scope)?);
    if min < FRAME || max <= min || max > buffer {
        let message = format!("RED from {min} to {max} at a buffer of {buffer}");
        let help = format!("let 1514B <= min < max <= {}B", buffer.get());
        return Err(spec.whole.error(message, help));
    }
    let positive = |formula: &Option<Formula>, usual: f64| {
        let Some(formula) = formula else { return Ok(usual) };
        match part(formula, scope)? {
            0.0 => Err(formula.error("is zero", format!("write a part of one; {usual} is usual"))),
            part => Ok(part),
        }
    };
    Ok(Red {
        min,
        max,
        probability: positive(&spec.probability, RED_PROBABILITY)?,
        weight: positive(&spec.weight, RED_WEIGHT)?,
    })
}

/// A number from 0 to 1.
fn part(formula: &Formula, scope: &Scope) -> Result<f64, Error> {
    let part = formula.number(scope)?;
    if !(0.0..=1.0).contains(&part) {
        return Err(formula.error(format!("a part of {part}"), "write a number from 0 to 1"));
    }
    Ok(part)
}

fn paths(spec: &PathsSpec, scope: &Scope) -> Result<Paths, Error> {
    let count = spec.count.as_ref().map_or(Ok(2), |f| f.count(scope, 2))?;
    if let (Some(formula), true) = (&spec.count, count > PATHS_MOST) {
        let message = format!("{count} paths");
        return Err(formula.error(message, format!("write 2 to {PATHS_MOST}")));
    }
    let skew = spec.skew.span(scope)?;
    if skew == Span::ZERO {
        let help = "write how much longer each path takes than the one before it: 200us";
        return Err(spec.skew.error("paths of the same length", help));
    }
    let by = match &spec.by {
        None => PathBy::Flow,
        Some(word) => match word.text.as_str() {
            "flow" => PathBy::Flow,
            "packet" => PathBy::Packet,
            other => {
                let help = did_you_mean(other, ["flow", "packet"]);
                return Err(word.error(format!("paths by `{other}`"), help));
            }
        },
    };
    Ok(Paths { count, skew, by })
}
