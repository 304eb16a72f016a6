//! Speed of the machine without a simulation: bare events on a wheel.
//!
//! Problem   Speeds of different days and machines do not compare.
//! Approach  A wheel as full as in a medium network. Each event is scheduled again a little later.
//!           A simulation does this for every hop, and much more besides.

use crate::packet::{Kind, Packet, Slab};
use crate::rng::Rng;
use crate::wheel::Wheel;

/// Events that wait at any time, and how far ahead they are scheduled at most, in ns.
const WAITING: u32 = 8192;
const AHEAD: u64 = 1 << 16;

/// Plays this many events on a bare wheel. Returns the time of the last one, in ns, which is always
/// the same.
pub fn turn_wheel(events: u64) -> u64 {
    let (mut slab, mut wheel) = (Slab::default(), Wheel::new(AHEAD));
    let mut rng = Rng::new(1, 0);
    let mut draw = || rng.next() % AHEAD;
    for flow in 0..WAITING {
        let id = slab.put(Packet { at: draw(), ..Packet::wake(Kind::Emit, flow) });
        wheel.schedule(&mut slab.cells, id);
    }
    let mut now = 0;
    for _ in 0..events {
        let Some(id) = wheel.pop(&mut slab.cells) else { break };
        let cell = &mut slab.cells[id as usize];
        now = cell.at;
        cell.at += draw();
        wheel.schedule(&mut slab.cells, id);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_as_fast_as_events_are_dense() {
        // 8192 wait for 32768 ns on average: an event each 4 ns.
        let now = turn_wheel(100_000);
        assert!((now as f64 / 400_000.0 - 1.0).abs() < 0.1, "{now}");
        assert_eq!(turn_wheel(100_000), now);
    }
}
