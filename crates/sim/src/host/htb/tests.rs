//! The shaper against what it promises, with leaves that are always backlogged or never.

use super::*;
use proptest::prelude::*;

const FRAME: u16 = 1514;
const SECOND: u64 = 1_000_000_000;

/// A class with bursts of a millisecond, as the real ones have.
fn class(rate: u64, ceil: u64) -> Class {
    let lead = |rate: u64| {
        let octets = (rate / 8000).max(2 * u64::from(FRAME));
        (octets * 8 * SECOND / rate) as i64
    };
    Class {
        rate,
        ceil,
        burst: lead(rate),
        cburst: lead(ceil),
        quantum: FRAME.into(),
        wait: None,
        room: 128 * 1024,
    }
}

/// Queues a packet of data of one flow.
fn push(htb: &mut Htb, now: u64, leaf: u32, id: u32, size: u16) -> bool {
    let left = htb.left(leaf);
    htb.push(leaf, id, &Arrival { now, octets: size.into(), hash: 0, is_ack: false, left })
}

fn burst(class: &Class) -> u64 {
    (class.cburst as u64 * class.ceil / 8 / SECOND)
        .max(class.burst as u64 * class.rate / 8 / SECOND)
}

/// Plays until `until` with leaves that never run out; octets that each sent. Leaves are (VM, rate,
/// ceiling).
fn saturate(uplink: Class, vms: &[Class], leaves: &[(u32, Class)], until: u64) -> Vec<u64> {
    saturate_with(Htb::new(uplink, vms, 0), leaves, until)
}

fn saturate_with(mut htb: Htb, leaves: &[(u32, Class)], until: u64) -> Vec<u64> {
    let ids: Vec<u32> = leaves.iter().map(|(vm, class)| htb.add(0, *vm, *class)).collect();
    let mut sent = vec![0; leaves.len()];
    for (leaf, id) in ids.iter().enumerate() {
        assert!((0..2).all(|_| push(&mut htb, 0, *id, leaf as u32, FRAME)));
    }
    let mut now = 0;
    while now < until {
        while let Some(leaf) = htb.pop(now) {
            sent[leaf as usize] += u64::from(FRAME);
            assert!(push(&mut htb, now, ids[leaf as usize], leaf, FRAME));
        }
        let next = htb.next_at().expect("something waits");
        assert!(next > now, "what could go at {next} went at {now}");
        now = next;
    }
    sent
}

#[test]
fn floors_first_then_turns_in_proportion_to_quanta() {
    let uplink = class(200_000_000, 200_000_000);
    let mut big = class(60_000_000, 200_000_000);
    let mut small = class(20_000_000, 200_000_000);
    (big.quantum, small.quantum) = (45_000, 15_000);
    let vms = [class(60_000_000, 200_000_000), class(20_000_000, 200_000_000)];
    let sent = saturate(uplink, &vms, &[(0, big), (1, small)], SECOND);
    let mbps: Vec<f64> = sent.iter().map(|octets| *octets as f64 * 8.0 / 1e6).collect();
    // 80 of floors; the other 120 as 3 to 1.
    assert!((mbps[0] - 150.0).abs() < 2.0 && (mbps[1] - 50.0).abs() < 2.0, "{mbps:?}");
}

#[test]
fn a_queue_is_bounded_and_what_is_in_it_is_lost_with_it() {
    let slow = class(64_000, 64_000);
    let mut htb = Htb::new(slow, &[slow], 0);
    let leaf = htb.add(0, 0, slow);
    let room = (0..).take_while(|id| push(&mut htb, 0, leaf, *id, FRAME)).count();
    assert_eq!(room, 128 * 1024 / 1514);
    assert_eq!(htb.pop(0), Some(0), "in order");
    assert_eq!(htb.remove(leaf).collect::<Vec<_>>(), (1..room as u32).collect::<Vec<_>>());
    assert_eq!(htb.drops, room as u64);
    assert_eq!((htb.pop(0), htb.next_at()), (None, None));
}

#[test]
fn a_flood_waits_for_no_longer_than_is_said_and_loses_nothing_of_its_rate() {
    let uplink = class(100_000_000, 100_000_000);
    let slow = Class { wait: Some(250_000_000), ..class(350_000, 350_000) };
    let mut htb = Htb::new(uplink, &[uplink], 0);
    let leaf = htb.add(0, 0, slow);
    let (mut waits, mut sent, mut now) = (Vec::new(), Vec::new(), 0);
    // A frame every 10 ms, four times the rate.
    for at in (0..10 * SECOND).step_by(10_000_000) {
        while let Some(next) = htb.next_at().filter(|next| *next <= at) {
            now = next.max(now);
            waits.push(now - sent[htb.pop(now).expect("it is time") as usize]);
        }
        now = at;
        if push(&mut htb, at, leaf, sent.len() as u32, FRAME) {
            sent.push(at);
        }
    }
    // To the microsecond; some frame finds the queue less than 10 ms shorter.
    let longest = *waits.iter().max().unwrap();
    assert!((240_000_000..250_001_000).contains(&longest), "{longest} ns");
    let least = 10 * 350_000 / 8 / u64::from(FRAME);
    assert!(waits.len() as u64 >= least, "{} of {least}", waits.len());
}

#[test]
fn a_queue_used_again_is_empty_also_by_its_clock() {
    let slow = Class { wait: Some(250_000_000), ..class(350_000, 350_000) };
    let mut htb = Htb::new(slow, &[slow], 0);
    let leaf = htb.add(0, 0, slow);
    // No longer new, and idle for seconds.
    let age = |htb: &mut Htb, from: u64| {
        assert!(push(htb, from, leaf, 0, FRAME) && htb.pop(from).is_some());
        from + 10_000_000_000
    };
    // Seven last 242 ms, one of them is under way, and one finds only those.
    let room = |htb: &mut Htb, now| (0..100).filter(|id| push(htb, now, leaf, *id, FRAME)).count();
    let now = age(&mut htb, 0);
    assert_eq!((room(&mut htb, now), htb.drops), (7, 93));
    assert_eq!(htb.remove(leaf).count(), 7);
    assert_eq!(htb.add(0, 0, slow), leaf);
    let now = age(&mut htb, now);
    assert_eq!(room(&mut htb, now), 7);
}

#[test]
fn a_debt_is_a_time_and_outlives_a_raise() {
    let slow = Class { burst: 0, cburst: 0, ..class(1_000_000, 1_000_000) };
    let mut htb = Htb::new(class(100_000_000, 100_000_000), &[slow], 0);
    let leaf = htb.add(0, 0, slow);
    assert!(push(&mut htb, 0, leaf, 7, 1250) && push(&mut htb, 0, leaf, 8, 1250));
    assert_eq!(htb.pop(0), Some(7));
    // 1250 octets at 1 Mb/s: 10 ms.
    assert_eq!(htb.next_at(), Some(10_000_000));
    htb.set(leaf, class(50_000_000, 50_000_000));
    assert_eq!(htb.next_at(), Some(10_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_leaf_exceeds_its_ceiling_none_misses_its_floor_and_the_uplink_does_not_rest(
        // VM, part of the uplink that is its floor (all: at most 1), ceiling above the floor.
        leaves in prop::collection::vec((0u32..4, 1u64..100, 0u64..150), 1..12),
    ) {
        let total = 150_000_000u64;
        let parts: u64 = leaves.iter().map(|leaf| leaf.1).sum();
        let leaf = |&(vm, part, more): &(u32, u64, u64)| {
            let rate = (total * 9 / 10 * part / parts).max(64_000);
            (vm, class(rate, (rate + more * 1_000_000).min(total)))
        };
        let leaves: Vec<(u32, Class)> = leaves.iter().map(leaf).collect();
        let vm = |vm: u32| {
            let floor: u64 = leaves.iter().filter(|l| l.0 == vm).map(|l| l.1.rate).sum();
            class(floor.max(64_000), total)
        };
        let vms: Vec<Class> = (0..4).map(vm).collect();
        let sent = saturate(class(total, total), &vms, &leaves, SECOND);
        let bursts: u64 = leaves.iter().map(|(_, class)| burst(class)).sum();
        for ((_, class), sent) in leaves.iter().zip(&sent) {
            // Costs are rounded to the nanosecond: a ten-thousandth at this rate.
            let most = class.ceil / 8 * 10_001 / 10_000 + burst(class) + u64::from(FRAME);
            prop_assert!(*sent <= most, "{sent} octets, at most {most}");
            let least = (class.rate / 8).saturating_sub(2 * u64::from(FRAME));
            prop_assert!(*sent >= least, "{sent} octets, at least {least}");
        }
        let wanted: u64 = leaves.iter().map(|(_, class)| class.ceil).sum();
        let slack = bursts + 2 * u64::from(FRAME) * leaves.len() as u64;
        let least = (wanted.min(total) / 8).saturating_sub(slack);
        prop_assert!(sent.iter().sum::<u64>() >= least, "{sent:?}, at least {least}");
    }
}

/// A VM of 20 of 100 Mbit/s, with two leaves that ask for all, beside one that takes all that is lent. It may
/// borrow for moments only: with one turn per level its first leaf has each of them.
#[test]
fn leaves_of_a_vm_that_borrows_for_moments_take_turns() {
    let uplink = class(100_000_000, 100_000_000);
    let paced = |rate: u64, ceil: u64| {
        let lead = |rate: u64| (2 * u64::from(FRAME) * 8 * SECOND / rate) as i64;
        Class { burst: lead(rate), cburst: lead(ceil), ..class(rate, ceil) }
    };
    let vms = [paced(10_000_000, 25_000_000), paced(60_000_000, 100_000_000)];
    let leaf = paced(64_000, 100_000_000);
    let leaves = [(0, leaf), (0, leaf), (0, leaf), (1, leaf), (1, leaf)];
    let sent = saturate_with(Htb::new(uplink, &vms, 0).keeping_turns(), &leaves, SECOND);
    let least = sent[..3].iter().min().expect("three");
    let most = sent[..3].iter().max().expect("three");
    assert!(least * 10 >= most * 9, "{sent:?}");
}
