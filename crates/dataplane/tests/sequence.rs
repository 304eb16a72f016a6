//! What counts as lost and what only as late, packet by packet, against a plain model too. Needs
//! root, and fails without.

use crate::bench::{AT_ONCE, Bench, FROM_PEER, MINE, MINE6, NEIGHBOUR, NEVER, PEER, PEER6};
use crate::frame::{packet, tcp, udp};
use std::collections::BTreeSet;
use weir_dataplane::intf::{Pair, Rx, WINDOW};
use weir_dataplane::programs::Program;

/// As in sequence.h: so many packets far from the sequence, and it is where they are.
const DOUBTS: u16 = 8;
const RING: u16 = WINDOW as u16;

/// Gives the meter a packet of the peer's: its identification, and its segments.
fn meter(bench: &Bench, id: u16, segments: u32) {
    // The number of segments is told; the kernel's test run takes no packets as long as they would
    // be.
    let mut p = match segments {
        1 => packet(PEER, MINE, 17, udp(9, 100)),
        _ => packet(PEER, MINE, 6, tcp(1000)),
    };
    p.id = id;
    bench.run(Program::Meter, &p.octets(), segments);
}

/// Meters single segments with these identifications, in a window that does not end.
fn metered(ids: &[u16]) -> (Bench, Rx) {
    let bench = Bench::new(0, NEVER);
    for id in ids {
        meter(&bench, *id, 1);
    }
    let rx = bench.rx();
    assert_eq!(rx.segments, ids.len() as u64);
    (bench, rx)
}

/// What is missing, and what of it is lost once the window is over and `next` has come.
fn missing_then_lost(ids: &[u16], next: u16) -> (u32, u64) {
    let (bench, rx) = metered(ids);
    assert_eq!(rx.lost, 0, "{ids:?}: the window is not over");
    bench.set(0, AT_ONCE);
    meter(&bench, next, 1);
    let after = bench.rx();
    assert_eq!(after.missing, 0, "{ids:?}: nothing stays open");
    assert_eq!(after.holes, Rx::default().holes, "{ids:?}: nothing stays open");
    (rx.missing, after.lost)
}

#[test]
fn a_gap_is_a_loss_when_the_window_is_over_and_not_before() {
    assert_eq!(missing_then_lost(&[100, 101, 102], 103), (0, 0));
    assert_eq!(missing_then_lost(&[100, 103, 104], 105), (2, 2));
    assert_eq!(missing_then_lost(&[100, 102, 104, 106], 107), (3, 3));
}

#[test]
fn what_comes_late_within_the_window_was_never_lost() {
    assert_eq!(missing_then_lost(&[100, 102, 101, 103], 104), (0, 0));
    // Two paths, one three packets behind the other.
    assert_eq!(missing_then_lost(&[10, 12, 14, 16, 11, 18, 13, 20, 15, 17, 19], 21), (0, 0));
    // Of a burst, one did not make it.
    assert_eq!(missing_then_lost(&[10, 20, 11, 12, 13, 15, 16, 17, 18, 19], 21), (1, 1));
}

#[test]
fn duplicates_fill_no_holes_and_open_none() {
    assert_eq!(missing_then_lost(&[5, 5, 6, 6, 5], 7), (0, 0));
    assert_eq!(missing_then_lost(&[5, 7, 7, 5], 8), (1, 1));
    let (_, rx) = metered(&[5, 5, 6]);
    assert_eq!((rx.reordered, rx.resyncs, rx.expected), (1, 0, 7));
}

#[test]
fn a_segment_that_comes_after_its_window_stays_lost() {
    let (bench, _) = metered(&[100, 102]);
    bench.set(0, AT_ONCE);
    meter(&bench, 103, 1);
    meter(&bench, 101, 1);
    let rx = bench.rx();
    assert_eq!((rx.lost, rx.reordered, rx.missing, rx.expected), (1, 1, 0, 104));
}

#[test]
fn what_a_path_held_back_is_not_lost_however_long_it_took() {
    let (bench, _) = metered(&[10, 12, 14]);
    bench.set(0, AT_ONCE);
    meter(&bench, 11, 1);
    meter(&bench, 13, 1);
    meter(&bench, 15, 1);
    assert_eq!((bench.rx().lost, bench.rx().missing, bench.rx().reordered), (0, 0, 2));
}

#[test]
fn within_a_few_windows_it_takes_three_later_segments_to_make_a_loss() {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    let (bench, rx) = metered(&[100, 102]);
    // Open since the machine started, which is between one window and eight.
    bench.0.rx.put(FROM_PEER, Rx { aged_ns: 1, gap_ns: 1, ..rx }).unwrap();
    bench.set(0, (seconds * 1e9 / 4.0) as u64);
    for (id, lost) in [(103, 0), (104, 0), (105, 0), (106, 1)] {
        meter(&bench, id, 1);
        assert_eq!(bench.rx().lost, lost, "{id}");
    }
}

#[test]
fn gaps_are_found_across_the_end_of_the_sequence() {
    assert_eq!(missing_then_lost(&[65_534, 65_535, 0, 1], 2), (0, 0));
    assert_eq!(missing_then_lost(&[65_534, 2], 3), (3, 3));
    assert_eq!(missing_then_lost(&[65_533, 2, 65_534, 1, 65_535, 0], 3), (0, 0));
}

#[test]
fn the_window_ends_in_packets_too() {
    let (bench, _) = metered(&[100, 102]);
    // 101 has its place until the sequence is a ring further.
    meter(&bench, 103, 400);
    meter(&bench, 503, WINDOW - 402);
    assert_eq!((bench.rx().expected, bench.rx().lost, bench.rx().missing), (101 + WINDOW, 0, 1));
    meter(&bench, 101 + WINDOW as u16, 1);
    assert_eq!((bench.rx().lost, bench.rx().missing), (1, 0));
}

#[test]
fn a_burst_of_losses_beyond_the_window_is_lost_at_once() {
    assert_eq!(missing_then_lost(&[0, RING], RING + 1), (WINDOW - 1, u64::from(WINDOW) - 1));
    let bench = Bench::new(0, NEVER);
    meter(&bench, 0, 1);
    // All but the oldest nine of those before it may still come.
    meter(&bench, RING, 10);
    assert_eq!((bench.rx().lost, bench.rx().missing), (9, WINDOW - 10));
    let bench = Bench::new(0, NEVER);
    meter(&bench, 0, 1);
    meter(&bench, 10, WINDOW + 100);
    assert_eq!((bench.rx().lost, bench.rx().missing), (9, 0));
    assert_eq!(bench.rx().expected, 110 + WINDOW);
}

#[test]
fn a_super_packet_takes_as_many_numbers_as_it_has_segments() {
    let bench = Bench::new(0, NEVER);
    meter(&bench, 0, 10);
    meter(&bench, 30, 10);
    meter(&bench, 40, 1);
    assert_eq!((bench.rx().missing, bench.rx().expected, bench.rx().segments), (20, 41, 21));
    // On the slower path: ten of the missing twenty in one, five in another.
    meter(&bench, 15, 10);
    assert_eq!((bench.rx().missing, bench.rx().reordered), (10, 10));
    meter(&bench, 10, 5);
    bench.set(0, AT_ONCE);
    meter(&bench, 41, 1);
    assert_eq!((bench.rx().lost, bench.rx().missing), (5, 0));
}

#[test]
fn a_jump_to_the_beginning_is_a_sender_that_began_anew_and_what_was_open_is_forgotten() {
    for [before, first] in [[0x9000, 0], [2000, 700]] {
        let ids: Vec<u16> = std::iter::once(before).chain(first..first + DOUBTS).collect();
        let (_, rx) = metered(&ids);
        assert_eq!((rx.lost, rx.missing, rx.resyncs), (0, 0, 1), "{ids:?}");
        assert_eq!((rx.expected, rx.strange), ((first + DOUBTS).into(), 0), "{ids:?}");
    }
    assert_eq!(missing_then_lost(&[0x9000, 0x9003, 5, 6, 7, 8, 9, 10, 11, 12], 13), (0, 0));
}

#[test]
fn a_jump_too_far_for_the_ring_is_a_loss_of_all_between() {
    for ([before, first], lost) in
        [([0, 1 + 0x4000], 0x4000), ([100, 0x9000], 0x9000 - 101), ([1, 16_502], 16_500)]
    {
        let ids: Vec<u16> = std::iter::once(before).chain(first..first + DOUBTS).collect();
        let (_, rx) = metered(&ids[..DOUBTS.into()]);
        assert_eq!((rx.lost, rx.resyncs, rx.doubts), (0, 0, 7), "{ids:?}: one is missing");
        let (_, rx) = metered(&ids);
        assert_eq!((rx.lost, rx.missing, rx.resyncs), (lost, 0, 1), "{ids:?}");
        assert_eq!((rx.expected, rx.doubts), ((first + DOUBTS).into(), 0));
    }
    // What was missing before is lost, too; and frames that jump each time are believed as well.
    let ids: Vec<u16> = [100, 103].into_iter().chain((1..=8).map(|n| 0x1800 * n)).collect();
    let (_, rx) = metered(&ids);
    assert_eq!((rx.lost, rx.missing, rx.resyncs), (2 + 0x1800 - 104 + 7 * 0x17ff, 0, 1));
}

#[test]
fn packets_that_nobody_numbered_are_told_from_the_sequence_that_goes_on_around_them() {
    let bench = Bench::new(0, NEVER);
    let mut strange = 0;
    for n in 0..100u16 {
        meter(&bench, 500 + n, 1);
        // Of a guest's own counters: far from the sequence, and some of them in a row.
        for k in 0..n % DOUBTS {
            meter(&bench, 0x7000 + n * 13 + k * 5000, 1);
            strange += 1;
        }
    }
    meter(&bench, 600, 1);
    let rx = bench.rx();
    assert_eq!((rx.lost, rx.missing, rx.resyncs, rx.reordered), (0, 0, 0, 0));
    assert_eq!((rx.strange, rx.expected), (strange, 601));
    // And the network's own losses show between them as ever.
    for id in [0xa000, 603, 0xa001] {
        meter(&bench, id, 1);
    }
    bench.set(0, AT_ONCE);
    meter(&bench, 604, 1);
    assert_eq!((bench.rx().lost, bench.rx().strange), (2, strange + 2));
}

#[test]
fn segments_with_a_number_are_counted_apart() {
    let bench = Bench::new(0, NEVER);
    meter(&bench, 5, 1);
    meter(&bench, 6, 10);
    let mut fragment = packet(PEER, MINE, 17, udp(9, 100));
    fragment.fragment = 0x2000;
    for p in [fragment, packet(PEER6, MINE6, 17, udp(9, 100))] {
        bench.run(Program::Meter, &p.octets(), 1);
    }
    assert_eq!((bench.rx().segments, bench.rx().numbered), (13, 11));
}

#[test]
fn what_the_very_first_overtook_is_neither_lost_nor_reordered() {
    let (_, rx) = metered(&[102, 100, 101, 104, 103]);
    assert_eq!((rx.lost, rx.missing, rx.reordered, rx.resyncs, rx.expected), (0, 0, 1, 0, 105));
    // Nor is what came before the sender began anew.
    let (_, rx) = metered(&[0x9000, 11, 10, 12, 13, 14, 15, 17, 16, 18]);
    assert_eq!((rx.lost, rx.missing, rx.reordered, rx.resyncs), (0, 0, 0, 1));
}

#[test]
fn older_gaps_are_lost_while_younger_ones_still_wait() {
    let (bench, rx) = metered(&[100, 103, 110]);
    // As if the first gap had appeared long ago, and the second is from the future.
    let old = Rx { aged: 104, aged_ns: 1, gap_ns: u64::MAX >> 2, ..rx };
    bench.0.rx.put(FROM_PEER, old).unwrap();
    bench.set(0, 1_000_000);
    assert_eq!(old.overdue(32_000_001, 1_000_000), 2, "the agent's reading sees the same");
    assert_eq!(old.overdue(32_000_000, 1_000_000), 0);
    meter(&bench, 111, 1);
    let rx = bench.rx();
    assert_eq!((rx.lost, rx.missing), (2, 6));
    assert_eq!((rx.aged, rx.aged_ns), (111, u64::MAX >> 2), "they are the old ones now");
    assert_eq!(rx.overdue((u64::MAX >> 2) + 32_000_000, 1_000_000), 6);
}

#[test]
fn a_clock_that_is_behind_another_cpus_makes_no_loss() {
    let (bench, rx) = metered(&[100, 103]);
    let ahead = Rx { aged_ns: u64::MAX >> 2, gap_ns: u64::MAX >> 2, ..rx };
    bench.0.rx.put(FROM_PEER, ahead).unwrap();
    bench.set(0, AT_ONCE);
    meter(&bench, 104, 1);
    assert_eq!((bench.rx().lost, bench.rx().missing), (0, 2));
    assert_eq!(ahead.overdue(5, 0), 0);
}

#[test]
fn no_gaps_are_looked_for_within_a_host_in_fragments_and_in_ipv6() {
    let bench = Bench::new(0, AT_ONCE);
    for id in [0, 9, 10] {
        let mut local = packet(NEIGHBOUR, MINE, 17, udp(9, 100));
        local.id = id;
        let mut fragment = packet(PEER, MINE, 17, udp(9, 100));
        (fragment.id, fragment.fragment) = (id, 0x2000);
        for p in [local, fragment, packet(PEER6, MINE6, 17, udp(9, 100))] {
            bench.run(Program::Meter, &p.octets(), 1);
        }
    }
    for pair in [FROM_PEER, Pair { src: 4, dst: 1 }] {
        let rx = bench.0.rx.get(pair).unwrap().expect("it was counted");
        assert_eq!((rx.lost, rx.missing, rx.reordered, rx.resyncs, rx.synced), (0, 0, 0, 0, 0));
    }
}

/// What the kernel side should do, on numbers that do not come round.
#[derive(Default)]
struct Model {
    expected: u64,
    missing: BTreeSet<u64>,
    lost: u64,
    /// Packets without a number since the last one with, and those before.
    doubts: u64,
    strange: u64,
}

impl Model {
    fn end_window(&mut self) {
        self.lost += self.missing.len() as u64;
        self.missing.clear();
    }

    fn receive(&mut self, at: u64, segments: u64) {
        self.strange += std::mem::take(&mut self.doubts);
        if at < self.expected {
            self.missing.retain(|m| !(at..at + segments).contains(m));
            return;
        }
        self.missing.extend(self.expected..at);
        self.expected = at + segments;
        let oldest = self.expected.saturating_sub(u64::from(WINDOW));
        let kept = self.missing.split_off(&oldest);
        self.lost += self.missing.len() as u64;
        self.missing = kept;
    }
}

#[test]
fn any_order_of_packets_is_judged_as_the_model_judges_it() {
    for seed in 1..=8u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let bench = Bench::new(0, NEVER);
        let mut model = Model { expected: 65_000, ..Model::default() };
        meter(&bench, 65_000, 1);
        model.receive(65_000, 1);
        for step in 0..600 {
            let ends = random(40) == 0;
            bench.set(0, if ends { AT_ONCE } else { NEVER });
            if model.doubts + 1 < DOUBTS.into() && random(4) == 0 {
                // A packet without a number, far from the sequence; a sender that begins anew is
                // another test's.
                let far = model.expected + u64::from(WINDOW);
                let id = (far + random(0x1_0000 - 2 * u64::from(WINDOW))) as u16;
                meter(&bench, id, 1 + random(40) as u32);
                model.doubts += 1;
                continue;
            }
            let segments = if random(3) == 0 { 1 + random(60) } else { 1 };
            let at = match random(10) {
                0..=3 => model.expected,
                4..=6 => model.expected + random(12),
                7 => model.expected + random(WINDOW.into()),
                _ => model.expected.saturating_sub(segments + random(1000)).max(65_001),
            };
            let late = model.expected.saturating_sub(at);
            if late > 0 && late < segments {
                // A late one ends before what is expected: numbers are given once.
                continue;
            }
            if ends && late == 0 {
                model.end_window();
            }
            meter(&bench, at as u16, segments as u32);
            model.receive(at, segments);
            let rx = bench.rx();
            let got = (rx.lost, u64::from(rx.missing), rx.expected as u16, rx.resyncs);
            let want = (model.lost, model.missing.len() as u64, model.expected as u16, 0);
            assert_eq!(got, want, "seed {seed}, step {step}: {segments} segments at {at}");
            assert_eq!(rx.strange, model.strange, "seed {seed}, step {step}");
            let bits: u32 = rx.holes.iter().flatten().map(|word| word.count_ones()).sum();
            assert_eq!(bits, rx.missing, "seed {seed}, step {step}");
        }
    }
}
