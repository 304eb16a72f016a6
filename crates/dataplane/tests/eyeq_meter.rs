//! EyeQ's meter in the kernel, packet by packet, against the law in Rust. Needs root, and fails
//! without.
#![allow(unsafe_code)]

use crate::eyeq_bench as bench;

use crate::frame::{arp, packet, tcp, udp};
use crate::random::Random;
use bench::{
    Bench, HOMELESS, MINE, MINE6, NEIGHBOUR, PEER, PEER6, SECOND, SLOT, UNIT, alone, input,
    now_after, now_ns, settings,
};
use weir_core::eyeq::{RcpInput, rcp_step};
use weir_dataplane::eyeq::Program;
use weir_dataplane::eyeq::intf::{IDLE_PERIODS, Meter, Settings};
use weir_dataplane::intf;

const CAPACITY: u64 = 1_000 * UNIT;

fn from_peer(payload: usize) -> Vec<u8> {
    packet(PEER, MINE, 17, udp(9, payload)).octets()
}

#[test]
fn a_meter_counts_what_comes_from_other_hosts_to_its_vm_and_nothing_else() {
    let bench = Bench::new();
    let full = from_peer(1472);
    bench.receive(&full, 1);
    bench.receive(&packet(PEER6, MINE6, 17, udp(9, 100)).octets(), 1);
    let mut marked = packet(PEER, MINE, 6, tcp(1000));
    marked.tos = 3;
    let super_packet = marked.octets();
    bench.receive(&super_packet, 10);
    let octets = 1514 + 162 + (super_packet.len() as u64 + 9 * 66);
    let meter = bench.meter();
    assert_eq!((meter.octets, meter.arrived), (octets, octets));
    assert_eq!((meter.segments, meter.marked, meter.steps), (12, 10, 0));
    assert_eq!(meter.rate_bps, CAPACITY, "a new meter begins with all there is");

    // Within the host, between strangers, to another VM by a bridge that floods, and not of a pair
    // at all.
    for (src, dst) in [(NEIGHBOUR, MINE), ("192.0.2.77", MINE), (PEER, NEIGHBOUR), (MINE, PEER)] {
        bench.receive(&packet(src, dst, 17, udp(9, 100)).octets(), 1);
    }
    bench.receive(&arp(std::net::Ipv4Addr::new(10, 0, 0, 2)), 1);
    bench.receive(&full[..40], 1);
    assert_eq!(bench.meter(), meter);
    bench.receive(&packet(HOMELESS, MINE, 17, udp(9, 100)).octets(), 1);
    assert_eq!(bench.meter().octets, octets + 142, "wherever it comes from");
}

#[test]
fn a_port_that_leads_outside_or_has_no_share_has_no_meter() {
    let bench = Bench::new();
    bench.share(0);
    bench.receive(&from_peer(100), 1);
    let meter = bench.meter();
    assert_eq!((meter.octets, meter.arrived, meter.since_ns), (142, 0, 0), "counted, no more");
    let outward =
        intf::Port { vm: 1, tenant: 1, slot: SLOT, flags: intf::OUTWARD, ..Default::default() };
    bench.0.ports.put(1, outward).unwrap();
    bench.share(CAPACITY);
    bench.receive(&from_peer(100), 1);
    assert_eq!(bench.meter(), meter);
    let without = Bench::new();
    without.0.set(Settings { period_ns: 0, ..settings() }).unwrap();
    without.receive(&from_peer(100), 1);
    assert_eq!(without.meter(), Meter::default());
}

/// What a clock would have made of `meter` by the time `passed` periods are over.
fn by_the_clock(meter: Meter, settings: &Settings, passed: u64) -> (u64, u64) {
    let first = rcp_step(input(&meter, settings, CAPACITY));
    let mut out = first;
    for _ in 1..passed {
        let nothing = Meter { rate_bps: out.rate_bps, arrived: 0, segments: 0, marked: 0, ..meter };
        out = rcp_step(input(&nothing, settings, CAPACITY));
    }
    (out.rate_bps, out.load)
}

/// A second passes only where the test says so: `since_ns` is moved into the past by whole periods
/// and a half.
#[test]
fn the_first_packet_after_a_period_closes_it_and_all_that_were_empty() {
    let bench = Bench::new();
    let mut random = Random(7);
    let mut grown = 0;
    for round in 0..400 {
        let settings = Settings {
            alpha: random.below(1 << 17) as u32,
            queue_octets: if random.below(2) == 0 { 0 } else { 45_000 },
            ..settings()
        };
        bench.0.set(settings).unwrap();
        let passed = if round % 2 == 0 { 1 } else { 1 + random.below(IDLE_PERIODS) };
        let now = now_after((IDLE_PERIODS + 2) * SECOND);
        let before = Meter {
            octets: random.next() >> 8,
            since_ns: now - passed * SECOND - SECOND / 2,
            // Up to four times what fits.
            arrived: random.below(CAPACITY / 2),
            segments: 300,
            marked: if random.below(2) == 0 { 0 } else { random.below(301) },
            rate_bps: 100_000 + random.below(CAPACITY),
            load: 77,
            steps: round,
            ..Meter::default()
        };
        bench.0.meters.put(SLOT, before).unwrap();
        bench.receive(&from_peer(1472), 1);
        let after = bench.meter();
        let (rate_bps, load) = by_the_clock(before, &settings, passed);
        let expected = Meter {
            octets: before.octets + 1514,
            since_ns: before.since_ns + passed * SECOND,
            arrived: 1514,
            segments: 1,
            marked: 0,
            rate_bps,
            load,
            steps: round + passed,
            untold: 1514,
            ..before
        };
        assert_eq!(after, expected, "round {round}, {passed} periods: {before:?} {settings:?}");
        grown += u64::from(after.rate_bps > before.rate_bps);
    }
    assert!((50..350).contains(&grown), "of 400 rates {grown} grew");
}

#[test]
fn within_a_period_nothing_but_sums_changes() {
    let bench = Bench::new();
    let since_ns = now_ns() - SECOND / 4;
    let before = Meter { since_ns, rate_bps: 5 * UNIT, arrived: 9, ..Meter::default() };
    bench.0.meters.put(SLOT, before).unwrap();
    bench.receive(&from_peer(1472), 1);
    let after = bench.meter();
    assert_eq!((after.rate_bps, after.since_ns, after.steps), (5 * UNIT, since_ns, 0));
    assert_eq!(after.arrived, 1523);
    // A clock that is behind, as another CPU's look at it may be, closes nothing.
    let ahead = Meter { since_ns: now_ns() + SECOND, ..before };
    bench.0.meters.put(SLOT, ahead).unwrap();
    bench.receive(&from_peer(1472), 1);
    assert_eq!((bench.meter().since_ns, bench.meter().steps), (ahead.since_ns, 0));
}

#[test]
fn who_was_idle_for_long_begins_anew() {
    let bench = Bench::new();
    // Whatever came before: at this gain 64 steps would not reach the capacity.
    bench.0.set(Settings { alpha: 100, ..settings() }).unwrap();
    let now = now_after((IDLE_PERIODS + 2) * SECOND);
    let since_ns = now - (IDLE_PERIODS + 1) * SECOND - SECOND / 2;
    let before = Meter { since_ns, rate_bps: UNIT, arrived: 1 << 40, ..Meter::default() };
    bench.0.meters.put(SLOT, before).unwrap();
    bench.receive(&from_peer(1472), 1);
    let after = bench.meter();
    assert_eq!((after.rate_bps, after.load, after.arrived), (CAPACITY, 0, 1514));
    assert_eq!(after.since_ns, since_ns + (IDLE_PERIODS + 1) * SECOND);
}

#[test]
fn a_share_that_shrinks_bounds_the_rate_with_the_next_step() {
    let bench = Bench::new();
    bench.receive(&from_peer(1472), 1);
    bench.share(CAPACITY / 10);
    let before = bench.meter();
    let aged = Meter { since_ns: before.since_ns - SECOND - SECOND / 2, ..before };
    bench.0.meters.put(SLOT, aged).unwrap();
    bench.receive(&from_peer(1472), 1);
    let law = rcp_step(RcpInput { ..input(&before, &settings(), CAPACITY / 10) });
    assert_eq!(bench.meter().rate_bps, law.rate_bps);
    assert_eq!(law.rate_bps, CAPACITY / 10);
}

/// A period passes, and the next packet closes it.
fn a_period_passes(bench: &Bench) {
    let meter = bench.meter();
    let aged = Meter { since_ns: meter.since_ns - SECOND, ..meter };
    bench.0.meters.put(SLOT, aged).unwrap();
}

/// The test must be done before a period of a second is over.
#[test]
fn ten_kilobytes_tell_one_who_does_not_know_yet_what_this_period_says() {
    alone(|| {
        let bench = Bench::new();
        bench.0.set(Settings { via: 1, ..settings() }).unwrap();
        let other = packet(HOMELESS, MINE, 17, udp(9, 1472)).octets();
        let sampled = || bench.0.counters().sampled;
        (0..6).for_each(|_| bench.receive(&from_peer(1472), 1));
        assert_eq!((sampled(), bench.meter().untold), (0, 6 * 1514));
        bench.receive(&from_peer(1472), 1);
        assert_eq!((sampled(), bench.meter().untold), (1, 7 * 1514 - 10_000));
        (0..100).for_each(|_| bench.receive(&from_peer(1472), 1));
        assert_eq!((sampled(), bench.meter().untold), (1, 10_000), "it knows; nothing is saved up");
        bench.receive(&other, 1);
        assert_eq!((sampled(), bench.meter().untold), (2, 1514), "its turn went to another");
        (0..7).for_each(|_| bench.receive(&other, 1));
        assert_eq!((sampled(), bench.meter().untold), (2, 10_000));
        bench.receive(&from_peer(1472), 1);
        assert_eq!(sampled(), 2, "both know");
        a_period_passes(&bench);
        bench.receive(&from_peer(1472), 1);
        assert_eq!((sampled(), bench.meter().untold), (3, 1514), "and do not know the next one");
        bench.receive(&other, 1);
        assert_eq!(sampled(), 3, "there is one message for 10 kB, however many wait");
        assert_eq!(bench.meter().steps, 1, "too slow: this shows nothing");
    });
}

#[test]
fn a_super_packet_is_answered_once_and_nothing_is_changed() {
    alone(|| {
        let bench = Bench::new();
        bench.0.set(Settings { via: 1, ..settings() }).unwrap();
        let counted = || (bench.0.counters().sampled, bench.0.counters().uncloned);
        // It fills them six times.
        let super_packet = packet(PEER, MINE, 6, tcp(1400)).octets();
        bench.receive(&super_packet, 900);
        let meter = bench.meter();
        let octets = super_packet.len() as u64 + 899 * 66;
        assert_eq!((meter.octets, meter.untold), (octets, octets % 10_000));
        let (sampled, uncloned) = counted();
        assert_eq!(sampled + uncloned, 1, "the loopback may refuse what a test run makes of it");

        let down = std::process::Command::new("ip").args(["link", "set", "lo", "down"]).status();
        assert!(down.unwrap().success());
        a_period_passes(&bench);
        (0..7).for_each(|_| bench.receive(&from_peer(1472), 1));
        assert_eq!(counted(), (sampled, uncloned + 1), "no message is sent, and it shows");
        let counters = bench.0.counters();
        let nobody = Settings { feedback_octets: 0, ..settings() };
        bench.0.set(nobody).unwrap();
        a_period_passes(&bench);
        (0..20).for_each(|_| bench.receive(&from_peer(1472), 1));
        assert_eq!(bench.0.counters(), counters);
        assert_eq!(bench.run(Program::Heed, &from_peer(10), 1).verdict, bench::PASS);
    });
}
