//! Ports played alone: one link, packets at given times, and the result of each.

use crate::net::{END, Net};
use crate::network::{Discipline, LinkSpec, Network, PoolSpec, Port, QueueSpec, RedSpec};
use crate::packet::{CE, CLASS, ECT, Kind, Packet};
use proptest::prelude::*;
use weir_units::{Bytes, Rate, Span, Time};

const MTU: u64 = 1500;
/// 1 Gb/s: ns per octet.
const PACE: u64 = 8;

/// A packet that comes to a port: its link, when, its size, class, and whether it may be marked.
#[derive(Clone, Copy, Debug)]
struct Comes {
    link: u32,
    at: u64,
    size: u16,
    class: u8,
    capable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Dropped,
    Arrives { at: u64, marked: bool },
}

/// `links` links of 1 Gb/s without propagation from one node, with this buffer, each with this
/// port.
fn network(links: u32, buffer: u64, port: &Port, pool: Option<PoolSpec>) -> Network {
    let mut network = Network::new(links + 1, MTU as u16, Time::ZERO).expect("fits");
    if let Some(pool) = pool {
        network.add_pool(pool).expect("fits");
    }
    for to in 1..=links {
        let rate = Rate::from_mbps(1000);
        let (delay, buffer) = (Span::ZERO, Bytes::new(buffer));
        let spec = LinkSpec { from: 0, to, rate, delay, buffer, mark_above: None, loss: 0.0 };
        let link = network.add_link(spec).expect("fits");
        network.set_port(link, port.clone()).expect("fits");
    }
    network
}

/// Plays packets, in the order of their instants; one fate for each, and the ports after all.
fn play(network: &Network, packets: &[Comes]) -> (Vec<Fate>, Net) {
    let mut net = Net::new(network, 1);
    let routes: Vec<u32> = (0..network.links().len() as u32).map(|l| net.add_route(&[l])).collect();
    for (number, packet) in packets.iter().enumerate() {
        net.wake(packet.at, Kind::Emit, number as u32);
    }
    let mut fates = vec![Fate::Dropped; packets.len()];
    while let Some(id) = net.wheel.pop(&mut net.slab.cells) {
        let cell = net.slab.cells[id as usize];
        assert!(cell.at >= net.now, "time does not go back");
        net.now = cell.at;
        assert_eq!(net.routes[cell.hop as usize], END);
        net.slab.free(id);
        match cell.kind {
            Kind::Emit => {
                let Comes { link, size, class, capable, .. } = packets[cell.flow as usize];
                let bits = class << CLASS | if capable { ECT } else { 0 };
                let (hop, kind) = (routes[link as usize], Kind::Data);
                net.launch(Packet { hop, size, bits, kind, ..Packet::wake(kind, cell.flow) });
            }
            Kind::Port => net.serve(cell.flow),
            _ => {
                let marked = cell.bits & CE != 0;
                fates[cell.flow as usize] = Fate::Arrives { at: cell.at, marked };
            }
        }
    }
    assert_eq!(net.slab.live(), 0, "everything left");
    (fates, net)
}

fn queue(weight: u32) -> QueueSpec {
    QueueSpec { weight, buffer: Bytes::new(1 << 30), mark_above: None }
}

fn queues(weights: &[u32]) -> Vec<QueueSpec> {
    weights.iter().map(|weight| queue(*weight)).collect()
}

fn port(discipline: Discipline) -> Port {
    Port { discipline, pool: None }
}

fn at(fate: &Fate) -> u64 {
    match fate {
        Fate::Arrives { at, .. } => *at,
        Fate::Dropped => panic!("it was dropped"),
    }
}

/// `count` packets of a class at once.
fn burst(class: u8, count: usize, size: u16) -> Vec<Comes> {
    vec![Comes { link: 0, at: 0, size, class, capable: true }; count]
}

fn comes(classes: u8) -> impl Strategy<Value = Vec<Comes>> {
    let gap = prop_oneof![Just(0u64), 0u64..3_000, 0u64..40_000];
    let one = (gap, 40u16..=MTU as u16, 0..classes, any::<bool>());
    prop::collection::vec(one, 1..200).prop_map(|steps| {
        let mut now = 0;
        let step = |(gap, size, class, capable)| {
            now += gap;
            Comes { link: 0, at: now, size, class, capable }
        };
        steps.into_iter().map(step).collect()
    })
}

fn any_order() -> impl Strategy<Value = fn(Vec<QueueSpec>) -> Discipline> {
    prop_oneof![
        Just(Discipline::Priority as fn(Vec<QueueSpec>) -> Discipline),
        Just(Discipline::Drr as fn(Vec<QueueSpec>) -> Discipline),
        Just(Discipline::Wfq as fn(Vec<QueueSpec>) -> Discipline),
    ]
}

proptest! {
    /// Two ways to simulate the same port: departures computed at enqueue, and events.
    #[test]
    fn a_port_with_one_queue_is_a_fifo(packets in comes(1), order in any_order()) {
        let (buffer, knee) = (20_000, 6_000);
        let mut fifo = Network::new(2, MTU as u16, Time::ZERO).expect("fits");
        let (rate, delay) = (Rate::from_bps(1_234_567_891), Span::from_nanos(77));
        let (buffer, mark_above) = (Bytes::new(buffer), Some(Bytes::new(knee)));
        let spec = LinkSpec { from: 0, to: 1, rate, delay, buffer, mark_above, loss: 0.0 };
        fifo.add_link(spec.clone()).expect("fits");
        let mut one = Network::new(2, MTU as u16, Time::ZERO).expect("fits");
        one.add_link(LinkSpec { mark_above: None, ..spec }).expect("fits");
        let queue = QueueSpec { weight: 7, buffer, mark_above };
        one.set_port(0, port(order(vec![queue]))).expect("fits");
        let ((expected, fifo), (fates, one)) = (play(&fifo, &packets), play(&one, &packets));
        prop_assert_eq!(fates, expected);
        let counts = |net: &Net| {
            let link = &net.links[0];
            (link.octets, link.packets, link.drops, link.marks)
        };
        prop_assert_eq!(counts(&one), counts(&fifo));
    }

    #[test]
    fn the_wire_never_rests_while_anything_waits_and_order_is_kept_within_a_class(
        packets in comes(4), order in any_order(), weights in prop::collection::vec(1u32..9, 4)
    ) {
        let network = network(1, 1 << 30, &port(order(queues(&weights))), None);
        let (fates, _) = play(&network, &packets);
        // Busy periods do not depend on the order of service.
        let mut departures: Vec<u64> = fates.iter().map(at).collect();
        let (mut free, mut ends) = (0, Vec::new());
        for packet in &packets {
            if packet.at > free {
                ends.push(free);
                free = packet.at;
            }
            free += PACE * u64::from(packet.size);
        }
        ends.push(free);
        departures.sort_unstable();
        for end in &ends[1..] {
            prop_assert!(departures.contains(end), "{} of {:?}", end, departures);
        }
        prop_assert_eq!(departures.last(), ends.last());
        for class in 0..4 {
            let of_class = packets.iter().zip(&fates).filter(|(packet, _)| packet.class == class);
            let at: Vec<u64> = of_class.map(|(_, fate)| at(fate)).collect();
            prop_assert!(at.is_sorted(), "class {}: {:?}", class, at);
        }
    }

    /// The first class sees a link of its own, and at most one packet of others before it.
    #[test]
    fn strict_priority_lets_nobody_wait_for_more_than_a_packet_of_lesser_ones(packets in comes(3)) {
        let network = network(1, 1 << 30, &port(Discipline::Priority(queues(&[1; 3]))), None);
        let (fates, _) = play(&network, &packets);
        let mut free = 0;
        for (packet, fate) in packets.iter().zip(&fates).filter(|(packet, _)| packet.class == 0) {
            free = free.max(packet.at) + PACE * u64::from(packet.size);
            prop_assert!(at(fate) <= free + PACE * MTU);
        }
    }

    /// Shreedhar and Varghese, theorem 4.2: of two queues that wait all the time, what they sent by
    /// their weights differs by less than a quantum of weight 1 and two full packets.
    #[test]
    fn drr_is_fair_at_all_times_to_a_quantum_and_two_packets(
        sizes in prop::collection::vec((40u16..=MTU as u16, 40u16..=MTU as u16, 40u16..=MTU as u16), 100..200),
        weights in prop::collection::vec(1u32..5, 2)
    ) {
        let weights = [1, weights[0], weights[1]];
        let network = network(1, 1 << 30, &port(Discipline::Drr(queues(&weights))), None);
        let one = |class: u8, size: u16| Comes { link: 0, at: 0, size, class, capable: true };
        // One packet ahead of all, so that all others wait before the first choice.
        let mut packets = vec![one(0, 40)];
        packets.extend(sizes.iter().flat_map(|s| [one(0, s.0), one(1, s.1), one(2, s.2)]));
        let (fates, _) = play(&network, &packets);
        let mut order: Vec<(u64, usize)> = fates.iter().map(at).zip(0..).skip(1).collect();
        order.sort_unstable();
        let (mut sent, mut left) = ([0u64; 3], [sizes.len(); 3]);
        for (_, number) in order {
            let packet = &packets[number];
            sent[usize::from(packet.class)] += u64::from(packet.size);
            left[usize::from(packet.class)] -= 1;
            if left.contains(&0) {
                break;
            }
            let parts = [0, 1, 2].map(|class| sent[class] / u64::from(weights[class]));
            let (least, most) = (parts.iter().min().unwrap_or(&0), parts.iter().max().unwrap_or(&0));
            prop_assert!(most - least <= 3 * MTU, "{:?} by {:?}", sent, weights);
        }
    }

    /// WF²Q+: a queue that waits gets its part of any stretch of time, less two full packets; and
    /// is ahead of it by no more, however small the others' packets are.
    #[test]
    fn wfq_gives_each_its_part_to_two_packets(
        sizes in prop::collection::vec((40u16..=MTU as u16, 40u16..=200, 1000u16..=MTU as u16), 100..200),
        weights in prop::collection::vec(1u32..20, 3)
    ) {
        let network = network(1, 1 << 30, &port(Discipline::Wfq(queues(&weights))), None);
        let one = |class: u8, size: u16| Comes { link: 0, at: 0, size, class, capable: true };
        let mut packets = vec![one(0, 40)];
        packets.extend(sizes.iter().flat_map(|s| [one(0, s.0), one(1, s.1), one(2, s.2)]));
        let (fates, _) = play(&network, &packets);
        let mut order: Vec<(u64, usize)> = fates.iter().map(at).zip(0..).skip(1).collect();
        order.sort_unstable();
        let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
        let (mut sent, mut left) = ([0f64; 3], [sizes.len(); 3]);
        for (_, number) in order {
            let packet = &packets[number];
            sent[usize::from(packet.class)] += f64::from(packet.size);
            left[usize::from(packet.class)] -= 1;
            if left.contains(&0) {
                break;
            }
            let all: f64 = sent.iter().sum();
            for class in 0..3 {
                let due = all * f64::from(weights[class]) / sum;
                prop_assert!((sent[class] - due).abs() <= 2.0 * MTU as f64, "{sent:?} by {weights:?}");
            }
        }
    }
}

/// WFQ's worst case, which round robin and plain WFQ have: a heavy queue goes in one long burst.
#[test]
fn wfq_does_not_let_a_heavy_queue_run_ahead() {
    let weights = [10, 1, 1, 1, 1, 1, 1, 1];
    let mut packets = burst(7, 1, 1000);
    packets.extend(burst(0, 20, 1000));
    (1..8).for_each(|class| packets.extend(burst(class, 2, 1000)));
    let most_in_a_row = |discipline: Discipline| {
        let (fates, _) = play(&network(1, 1 << 30, &port(discipline), None), &packets);
        let mut order: Vec<(u64, u8)> =
            fates.iter().map(at).zip(packets.iter().map(|p| p.class)).collect();
        order.sort_unstable();
        order[..20]
            .chunk_by(|a, b| a.1 == b.1)
            .map(|run| run.len() * usize::from(run[0].1 == 0))
            .max()
    };
    assert!(most_in_a_row(Discipline::Wfq(queues(&weights))) <= Some(2));
    assert!(
        most_in_a_row(Discipline::Drr(queues(&weights))) >= Some(10),
        "a quantum of ten packets"
    );
}

#[test]
fn who_was_ahead_before_a_silence_owes_nothing() {
    for order in [Discipline::Wfq as fn(_) -> _, Discipline::Drr] {
        let network = network(1, 1 << 30, &port(order(queues(&[1, 1]))), None);
        let mut packets = burst(0, 1000, 1500);
        let later = 1000 * 12_000 + 5;
        packets.extend(
            burst(0, 1, 1500)
                .into_iter()
                .chain(burst(0, 9, 1500))
                .map(|p| Comes { at: later, ..p }),
        );
        packets.extend(burst(1, 10, 1500).into_iter().map(|p| Comes { at: later, ..p }));
        let (fates, _) = play(&network, &packets);
        let end = |fates: &[Fate]| fates.iter().map(at).max().expect("some");
        assert_eq!(end(&fates[1010..]), later + 20 * 12_000);
        assert!(end(&fates[1000..1010]) >= later + 17 * 12_000, "they take turns from the start");
    }
}

#[test]
fn each_queue_has_its_own_end_and_its_own_mark_and_the_port_has_one_too() {
    let spec = |buffer, knee| QueueSpec {
        weight: 1,
        buffer: Bytes::new(buffer),
        mark_above: Some(Bytes::new(knee)),
    };
    let two = vec![spec(6_000, 3_000), spec(100_000, 4_500)];
    let network = network(1, 12_000, &port(Discipline::Priority(two)), None);
    let mut packets = burst(0, 5, 1500);
    packets.extend(burst(1, 5, 1500));
    packets.push(Comes { capable: false, at: 24_000, ..packets[9] });
    let (fates, net) = play(&network, &packets);
    let marked = |range: std::ops::Range<usize>| -> Vec<bool> {
        fates[range].iter().map(|f| matches!(f, Fate::Arrives { marked: true, .. })).collect()
    };
    // Four fit; the fourth finds more than 3000, the one on the wire included.
    assert_eq!(marked(0..4), [false, false, false, true]);
    assert_eq!(fates[4], Fate::Dropped, "its queue is full");
    assert_eq!(marked(5..9), [false; 4], "the other queue holds 4500 at most");
    assert_eq!(fates[9], Fate::Dropped, "the port is full");
    assert!(fates[10] != Fate::Dropped && marked(10..11) == [false], "it may not be marked");
    let link = &net.links[0];
    assert_eq!((link.packets, link.drops, link.marks), (9, 2, 1));
    // Two classes beyond the last queue share that.
    let mut packets = burst(6, 5, 1500);
    packets.extend(burst(7, 4, 1500));
    let (fates, _) = play(&network, &packets);
    assert_eq!(fates.iter().filter(|fate| **fate == Fate::Dropped).count(), 1, "12000 octets");
    assert!(fates[..8].is_sorted_by_key(at));
}

/// Choudhury and Hahne, eq. 3: S queues that are always full hold α·B/(1 + α·S) each.
#[test]
fn queues_of_a_shared_memory_grow_to_their_dynamic_threshold() {
    for (alpha, busy) in [(0.5, 1), (1.0, 1), (1.0, 3), (2.0, 4), (8.0, 2)] {
        let octets = 300_000u64;
        let pool = Some(PoolSpec { octets: Bytes::new(octets), alpha });
        for discipline in [Discipline::Fifo, Discipline::Drr(queues(&[1, 2]))] {
            let port = Port { discipline, pool: Some(0) };
            let network = network(4, 1 << 30, &port, pool);
            // Twice the rate on each port that is busy.
            let comes = |n: u64| {
                (0..busy).map(move |link| Comes {
                    link,
                    at: 1_200 * n + u64::from(link),
                    size: 300,
                    class: 0,
                    capable: false,
                })
            };
            let packets: Vec<Comes> = (0..9000).flat_map(comes).collect();
            let (fates, net) = play(&network, &packets);
            let last = packets[packets.len() - 1].at;
            let expected = alpha * octets as f64 / (1.0 + alpha * f64::from(busy));
            for link in 0..busy {
                let waits = |(packet, fate): (&Comes, &Fate)| {
                    packet.link == link && matches!(fate, Fate::Arrives { at, .. } if *at > last)
                };
                let held = 300 * packets.iter().zip(&fates).filter(|pair| waits(*pair)).count();
                assert!(
                    (held as f64 - expected).abs() <= 300.0 * (2.0 + alpha),
                    "{alpha} {busy}: {held} {expected}"
                );
                assert!(net.links[link as usize].drops > 500);
            }
        }
    }
}

#[test]
fn memory_is_never_overbooked_and_one_port_alone_may_have_nearly_all_with_a_great_alpha() {
    let pool = Some(PoolSpec { octets: Bytes::new(20_000), alpha: 1024.0 });
    let network = network(3, 1 << 30, &Port { discipline: Discipline::Fifo, pool: Some(0) }, pool);
    let packets: Vec<Comes> =
        (0..30).map(|n| Comes { link: n / 10, ..burst(0, 1, 1500)[0] }).collect();
    let (fates, _) = play(&network, &packets);
    let kept: Vec<usize> = (0..30).filter(|n| fates[*n] != Fate::Dropped).collect();
    assert_eq!(kept, (0..13).collect::<Vec<_>>(), "13 packets are 19500 octets");
}

/// RED at a port: capable packets are marked where others are dropped, and as often.
#[test]
fn red_strikes_by_the_average_of_the_queue() {
    let red = |max| RedSpec {
        min: Bytes::new(15_000),
        max: Bytes::new(max),
        probability: 0.1,
        weight: 0.002,
        gentle: false,
    };
    // A tenth more than the rate, 40 packets a ms, for 20 ms: the queue grows to 120 kB and more.
    let stream = |capable| -> Vec<Comes> {
        (0..1833)
            .map(|n| Comes { link: 0, at: n * 10_909, size: 1500, class: 0, capable })
            .collect()
    };
    let network = network(1, 1_000_000, &port(Discipline::Red(red(1_000_000))), None);
    let (fates, net) = play(&network, &stream(true));
    let marked: Vec<usize> = (0..fates.len())
        .filter(|n| matches!(fates[*n], Fate::Arrives { marked: true, .. }))
        .collect();
    assert_eq!((net.links[0].drops, u64::from(net.links[0].marks)), (0, marked.len() as u64));
    // The average passes 15 kB when this recursion says so, and not before.
    let (mut average, mut first) = (0.0f64, None);
    for n in 0..1833u64 {
        let queued = (1500 * n).saturating_sub(n * 10_909 / PACE);
        average += 0.002 * (queued as f64 - average);
        first = first.or((average >= 15_000.0).then_some(n));
    }
    let first = first.expect("it does") as usize;
    assert!(marked[0] >= first, "{} {first}", marked[0]);
    // Chances from 0 to 0.1·(avg − min)/(max − min), spread evenly: about their sum.
    let (_, net) = play(&network, &stream(false));
    let dropped = f64::from(net.links[0].drops);
    assert!(dropped > 0.0 && (dropped - marked.len() as f64).abs() <= 0.5 * dropped + 2.0);
    assert_eq!(net.links[0].marks, 0);
}
