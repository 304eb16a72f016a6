//! Chooses the path of a flow.
//!
//! Problem   Packets of one flow have to stay in order, so flows and not packets are spread; and
//!           few flows spread at random are spread unevenly.
//! Approach  The paths' parts are laid end to end over a circle of 2³² points. Each flow has a
//!           point, and takes the path on whose part it lies. Points of one pair follow van der
//!           Corput's sequence, which fills the circle evenly however many there are; each pair
//!           begins somewhere else, so that pairs of one flow are spread, too.
//! Promises  Of n flows of a pair, a path gets its part of n, to within log₂ n. When parts change,
//!           only flows near their ends move, and a flow that lies at an end does not move to and
//!           fro.
//! Not here  The memory of flows: a table in the data plane, as for connections with ECN.

use weir_units::{PairId, PathId, Rate};

/// Beyond the end of its path's part by less than this fraction of all, a flow stays where it is.
const STAYS: u128 = 32;

/// The point of a pair's `n`-th flow, counted from 0.
pub const fn point(pair: PairId, n: u32) -> u32 {
    let begin =
        pair.src.0.wrapping_mul(0x9e37_79b9).wrapping_add(pair.dst.0.wrapping_mul(0x85eb_ca6b));
    n.reverse_bits().wrapping_add(begin)
}

/// The path of a flow at `point`, which is on path `now` if it is on one already. Without any part,
/// all paths are alike.
///
/// # Panics
/// There is no path.
pub fn place(parts: &[Rate], point: u32, now: Option<PathId>) -> PathId {
    assert!(!parts.is_empty(), "a flow takes some path");
    let sum: u128 = parts.iter().map(|part| u128::from(part.as_bps())).sum();
    let width = |part: &Rate| if sum == 0 { 1 } else { u128::from(part.as_bps()) };
    let whole = if sum == 0 { parts.len() as u128 } else { sum };
    // The point and the ends in units of whole / 2³².
    let at = u128::from(point) * whole;
    let slack = whole << 32;
    let (mut begin, mut found) = (0, parts.len() - 1);
    for (path, part) in parts.iter().enumerate() {
        let width = width(part) << 32;
        let end = begin + width;
        if now.is_some_and(|now| now.0 as usize == path) {
            let stays = (slack / STAYS).min(width / 2);
            if at + stays >= begin && at < end + stays {
                return PathId(path as u32);
            }
        }
        if (begin..end).contains(&at) {
            found = path;
        }
        begin = end;
    }
    PathId(found as u32)
}
