//! `weir sim --topology T --flows F --flow-level`: ideal rates, without packets.
//!
//! Problem   Seconds of a datacenter with a hundred thousand flows, and floors for its hosts.
//! Approach  The solver of `weir-flow`. Sizes are payload in the files and octets on the wire
//!           there, so headers of full packets are added.
//! Not here  Queues, losses, delays: a flow has its ideal rate at once.

use super::completion::{self, Finish, PACKET, on_the_wire};
use super::import::{Import, Sent};
use super::tenants::Tenants;
use crate::args;
use crate::output::{errln, outln};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_flow::{Arrival, Floor, Flow, Outcome, Routes, Tally, Tolerance, World, play_into};
use weir_units::{Bytes, Rate, Time, show};

/// Plays and prints.
///
/// # Errors
/// Bad input.
#[expect(clippy::disallowed_methods, reason = "a driver: it says how long the play took")]
pub(super) fn play(import: &Import, until: Time, args: &args::Sim) -> Result<u8> {
    let tenants =
        args.files.tenants.as_deref().map(|file| Tenants::read(file, import)).transpose()?;
    let mut world = Routes::new(&import.topology).world();
    if let Some(tenants) = &tenants {
        world.hoses = tenants.hoses();
    }
    let mut order: Vec<u32> = (0..import.flows.len() as u32).collect();
    order.sort_by_key(|number| import.flows[*number as usize].start);
    let arrivals =
        order.iter().map(|number| arrival(&import.flows[*number as usize], tenants.as_ref()));
    let mut finishes = vec![None; import.flows.len()];
    let begin = Instant::now();
    let tally = play_into(&world, arrivals, until, Tolerance::default(), |outcome| {
        let number = order[outcome.number as usize] as usize;
        finishes[number] = Some(finish(&import.flows[number], &outcome, &world));
    })?;
    let wall = begin.elapsed();
    // A flow that was to begin after the end has not begun.
    let late = |(flow, finish): (&Sent, Option<Finish>)| {
        finish.unwrap_or_else(|| Finish::unborn(flow.start, flow.size))
    };
    let finishes: Vec<Finish> = import.flows.iter().zip(finishes).map(late).collect();
    if args.json {
        outln!("{}", whole(import, &finishes, until, &tally, wall))?;
    } else {
        outln!("{}", completion::table(&finishes))?;
        outln!("{}", summary(until, &tally, wall))?;
        overbooked(&tally, args.files.tenants.as_deref());
    }
    Ok(0)
}

fn arrival(sent: &Sent, tenants: Option<&Tenants>) -> Arrival {
    let floor = tenants.map_or(Floor::NONE, |tenants| tenants.floor(sent.from, sent.to));
    let flow = Flow { floor, ..Flow::greedy(sent.forward.clone()) };
    Arrival { at: sent.start, flow, size: sent.size.map(on_the_wire) }
}

/// The payload in what went over the wire; a packet that has begun counts in part.
fn payload(wire: Bytes) -> Bytes {
    let (packet, inside) = PACKET;
    Bytes::new((u128::from(wire.get()) * u128::from(inside) / u128::from(packet)) as u64)
}

fn finish(sent: &Sent, outcome: &Outcome, world: &World) -> Finish {
    let slowest = sent.forward.iter().map(|link| world.links[*link as usize]).min();
    let alone = slowest.zip(sent.size).map(|(rate, size)| rate.time_for(on_the_wire(size)));
    let done = outcome.end.and(sent.size);
    let octets = done.unwrap_or_else(|| payload(outcome.carried));
    let goodput = Rate::of(octets, outcome.lasted);
    Finish { start: sent.start, size: sent.size, completed: outcome.end, octets, goodput, alone }
}

fn whole(
    import: &Import,
    finishes: &[Finish],
    until: Time,
    tally: &Tally,
    wall: Duration,
) -> Value {
    let flows = import.flows.iter().zip(finishes);
    json!({
        "world": "flows",
        "until_s": until.as_secs_f64(),
        "flows": flows.map(|(sent, finish)| finish.json(sent.from, sent.to)).collect::<Vec<_>>(),
        "most_at_once": tally.most,
        "overbooked": tally.overbooked,
        "notes": import.notes,
        "perf": {
            "settled": tally.work.settled,
            "wall_s": wall.as_secs_f64(),
        },
    })
}

fn summary(until: Time, tally: &Tally, wall: Duration) -> String {
    format!(
        "{} of ideal rates in {}: {} flows came, {} ended, {} at once at most",
        show::time(until.as_secs_f64()),
        show::time(wall.as_secs_f64()),
        tally.arrivals,
        tally.ended,
        tally.most
    )
}

/// Floors that do not fit are not kept, and that is said.
fn overbooked(tally: &Tally, tenants: Option<&Path>) {
    if let Some(file) = tenants.filter(|_| tally.overbooked > 0) {
        errln!(
            "{}: at {} moments the floors of those who sent were more than some link carries, and were not kept: \
             lower them, or place tenants elsewhere",
            file.display(),
            tally.overbooked
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_added_for_each_packet_that_begins() {
        assert_eq!(on_the_wire(Bytes::new(1460)), Bytes::new(1500));
        assert_eq!(on_the_wire(Bytes::new(1461)), Bytes::new(1541));
        assert_eq!(payload(Bytes::new(3000)), Bytes::new(2920));
        assert_eq!(on_the_wire(Bytes::ZERO), Bytes::ZERO);
    }
}
