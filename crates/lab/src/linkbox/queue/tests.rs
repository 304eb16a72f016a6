//! The queue's promises, for any traffic.

use super::*;
use proptest::prelude::*;

/// 100 Mb/s, 30 kB.
fn link() -> Link {
    Link {
        name: "l".into(),
        a: 0,
        b: 1,
        rate: Rate::from_mbps(100),
        buffer: Bytes::new(30_000),
        delay: Span::ZERO,
        queueing: Queueing::default(),
    }
}

fn packet(size: u64, ecn_capable: bool) -> Arrival {
    Arrival { size: Bytes::new(size), ecn_capable, flow: 0, pair: 1 }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Dropped,
    Arrives { at: Time, marked: bool },
}

/// Plays arrivals (time, packet); one fate for each.
fn play(link: &Link, arrivals: &[(Time, Arrival)]) -> (Vec<Fate>, Counts) {
    let mut queue = Queue::new(link, true, 7);
    let mut fates = vec![Fate::Dropped; arrivals.len()];
    let mut marked = vec![false; arrivals.len()];
    for (i, (now, arrival)) in arrivals.iter().enumerate() {
        queue.offer(*now, *arrival, i, |i| marked[*i] = true);
    }
    while let Some((at, i)) = queue.pop(Time::MAX) {
        fates[i] = Fate::Arrives { at, marked: marked[i] };
    }
    assert_eq!(queue.next(), None);
    (fates, queue.counts())
}

/// Full-sized packets, `gap_ns` apart.
fn stream(n: u64, gap_ns: u64, ecn_capable: bool) -> Vec<(Time, Arrival)> {
    (0..n).map(|i| (Time::from_nanos(i * gap_ns), packet(1514, ecn_capable))).collect()
}

fn arrivals() -> impl Strategy<Value = Vec<(Time, Arrival)>> {
    let one = (0u64..300_000, 60u64..1515, any::<bool>(), 0u64..8);
    proptest::collection::vec(one, 1..300).prop_map(|steps| {
        let mut now = 0;
        let step = |(gap, size, ecn_capable, flow)| {
            now += gap;
            let size = Bytes::new(size);
            (Time::from_nanos(now), Arrival { size, ecn_capable, flow, pair: flow })
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    #[test]
    fn the_rate_is_never_exceeded_and_no_time_is_wasted(arrivals in arrivals()) {
        let link = link();
        let (fates, counts) = play(&link, &arrivals);
        let mut free_at = Time::ZERO;
        for ((now, arrival), fate) in arrivals.iter().zip(&fates) {
            if let Fate::Arrives { at, .. } = fate {
                free_at = free_at.max(*now) + link.rate.time_for(arrival.size);
                prop_assert_eq!(*at, free_at);
            }
        }
        let arrived = fates.iter().filter(|f| **f != Fate::Dropped).count() as u64;
        prop_assert_eq!(counts.packets + counts.drops, arrivals.len() as u64);
        prop_assert_eq!(counts.packets, arrived);
    }

    #[test]
    fn what_waits_fits_the_buffer_and_a_packet_is_dropped_only_if_it_does_not(
        arrivals in arrivals()
    ) {
        let link = link();
        let (fates, _) = play(&link, &arrivals);
        for (i, (now, arrival)) in arrivals.iter().enumerate() {
            let waits = |j: &usize| matches!(fates[*j], Fate::Arrives { at, .. } if at > *now);
            let backlog: u64 = (0..i).filter(waits).map(|j| arrivals[j].1.size.get()).sum();
            let fits = backlog + arrival.size.get() <= link.buffer.get();
            prop_assert_eq!(fates[i] != Fate::Dropped, fits);
        }
    }

    #[test]
    fn nothing_arrives_before_its_delay_and_the_packets_of_a_flow_stay_in_order(
        arrivals in arrivals(), delay in 0u64..2_000_000, skew in 1u64..500_000
    ) {
        let mut link = link();
        link.delay = Span::from_nanos(delay);
        let skew = Span::from_nanos(skew);
        link.queueing.paths = Some(Paths { count: 3, skew, by: PathBy::Flow });
        let (fates, _) = play(&link, &arrivals);
        for flow in 0..8 {
            let mut last = Time::ZERO;
            for ((now, arrival), fate) in arrivals.iter().zip(&fates) {
                let Fate::Arrives { at, .. } = fate else { continue };
                if arrival.flow == flow {
                    prop_assert!(*at > last);
                    last = *at;
                    let least = link.rate.time_for(arrival.size) + link.delay + skew * (flow % 3);
                    prop_assert!(at.since(*now) >= least);
                }
            }
        }
    }

    #[test]
    fn only_capable_packets_are_marked_and_a_threshold_drops_nobody(arrivals in arrivals()) {
        let mut link = link();
        let plain = play(&link, &arrivals).0;
        link.queueing.ecn = Some(Bytes::new(6000));
        let (fates, counts) = play(&link, &arrivals);
        let mut marks = 0;
        for (((_, arrival), fate), before) in arrivals.iter().zip(&fates).zip(plain) {
            match (fate, before) {
                (Fate::Arrives { at, marked }, Fate::Arrives { at: unmarked, .. }) => {
                    prop_assert_eq!(*at, unmarked);
                    prop_assert!(arrival.ecn_capable || !marked);
                    marks += u64::from(*marked);
                }
                (fate, before) => prop_assert_eq!(*fate, before),
            }
        }
        prop_assert_eq!(counts.marks, marks);
    }

    #[test]
    fn the_same_seed_gives_the_same_run(arrivals in arrivals()) {
        let mut link = link();
        link.queueing.loss = 0.1;
        let (min, max) = (Bytes::new(3000), Bytes::new(9000));
        link.queueing.red = Some(Red { min, max, probability: 0.5, weight: 0.1 });
        prop_assert_eq!(play(&link, &arrivals), play(&link, &arrivals));
    }
}

#[test]
fn twice_the_rate_passes_at_the_rate_behind_a_full_buffer() {
    let (fates, counts) = play(&link(), &stream(10_000, 60_560, true));
    // A packet each 60.56 us is 200 Mb/s: half of them pass, and the 19 that the buffer holds.
    assert!((4990..=5030).contains(&counts.packets), "{counts:?}");
    let at: Vec<Time> = fates
        .iter()
        .filter_map(|f| match f {
            Fate::Arrives { at, .. } => Some(*at),
            Fate::Dropped => None,
        })
        .collect();
    assert!(at.windows(2).all(|w| w[1].since(w[0]) == Span::from_nanos(121_120)));
}

#[test]
fn a_queue_above_the_threshold_marks_all_that_comes() {
    let mut link = link();
    link.queueing.ecn = Some(Bytes::new(2 * 1514));
    let (fates, counts) = play(&link, &stream(6, 0, true));
    let marked = |f: &Fate| matches!(f, Fate::Arrives { marked: true, .. });
    let marks: Vec<bool> = fates.iter().map(marked).collect();
    assert_eq!(marks, [false, false, false, true, true, true], "the fourth finds three");
    assert_eq!(counts.marks, 3);
}

#[test]
fn a_hosts_end_does_not_mark() {
    let mut link = link();
    link.queueing.ecn = Some(Bytes::new(1514));
    let mut queue = Queue::new(&link, false, 7);
    for i in 0..10 {
        queue.offer(Time::ZERO, packet(1514, true), i, |_| panic!("marked"));
    }
    assert_eq!(queue.counts().marks, 0);
}

#[test]
fn red_marks_the_capable_and_drops_the_others_with_the_same_chance() {
    let mut link = link();
    link.buffer = Bytes::new(1_000_000);
    let (min, max) = (Bytes::new(10_000), Bytes::new(1_000_000));
    link.queueing.red = Some(Red { min, max, probability: 0.2, weight: 1.0 });
    // 5 % faster than the rate: the queue grows through all of RED's range.
    let marks = play(&link, &stream(5000, 115_000, true)).1;
    let drops = play(&link, &stream(5000, 115_000, false)).1;
    assert_eq!((marks.drops, drops.marks), (0, 0));
    assert!(marks.marks > 50, "{marks:?}");
    assert!(drops.drops > 50, "{drops:?}");
    // And below `min` neither.
    assert_eq!(play(&link, &stream(5000, 130_000, true)).1.marks, 0);
}

#[test]
fn reds_average_ages_while_nothing_comes() {
    let mut link = link();
    let (min, max) = (Bytes::new(3000), Bytes::new(9000));
    link.queueing.red = Some(Red { min, max, probability: 1.0, weight: 0.1 });
    let mut burst = stream(18, 0, true);
    let again = |(now, arrival): &(Time, Arrival)| (*now + Span::from_secs(1), *arrival);
    let later: Vec<_> = burst.iter().map(again).collect();
    burst.extend(later);
    let fates = play(&link, &burst).0;
    let marked = |f: &Fate| matches!(f, Fate::Arrives { marked: true, .. });
    let first: Vec<bool> = fates[..3].iter().map(marked).collect();
    let second: Vec<bool> = fates[18..21].iter().map(marked).collect();
    assert!(fates[..18].iter().any(marked));
    assert_eq!(first, second, "a second of silence forgets a burst");
}

#[test]
fn paths_by_packet_reorder_by_their_skew() {
    let mut link = link();
    link.delay = Span::from_millis(1);
    let skew = Span::from_micros(200);
    link.queueing.paths = Some(Paths { count: 2, skew, by: PathBy::Packet });
    let (fates, counts) = play(&link, &stream(4, 0, false));
    let us = |f: &Fate| match f {
        Fate::Arrives { at, .. } => at.as_nanos() / 1000,
        Fate::Dropped => panic!("nothing is dropped"),
    };
    assert_eq!(fates.iter().map(us).collect::<Vec<_>>(), [1121, 1442, 1363, 1684]);
    assert_eq!(counts.overtaken, 1, "the second, by the third");
    // The third packet is another pair's, so no packet was overtaken by its own pair.
    let mut two = stream(4, 0, false);
    two[2].1.pair = 2;
    assert_eq!(play(&link, &two).1.overtaken, 0);
    // With time between them none catches up, and on one path none can.
    assert_eq!(play(&link, &stream(4, 330_000, false)).1.overtaken, 0);
    link.queueing.paths = None;
    assert_eq!(play(&link, &stream(4, 0, false)).1.overtaken, 0);
}

#[test]
fn a_tenth_is_lost_and_takes_its_time_all_the_same() {
    let mut link = link();
    link.queueing.loss = 0.1;
    let (fates, counts) = play(&link, &stream(10_000, 130_000, false));
    assert!((900..1100).contains(&counts.drops), "{counts:?}");
    let last = fates.iter().rev().find(|f| **f != Fate::Dropped);
    assert!(matches!(last, Some(Fate::Arrives { at, .. }) if at.as_secs_f64() > 1.29));
}
