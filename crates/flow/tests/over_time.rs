//! Completion times.

use crate::common::{Promise, case, near, widened};
use proptest::collection::vec;
use proptest::prelude::*;
use weir_flow::{
    AllocationError, Arrival, Flow, Outcome, PlayError, Tolerance, World, allocate, play, play_into,
};
use weir_units::{Bytes, Rate, Span, Time};

const S: u64 = 1_000_000_000;

/// One link of 8000 bit/s: a kilobyte takes a second.
fn one_link() -> World {
    World { links: vec![Rate::from_bps(8000)], hoses: vec![] }
}

fn arrival(at: u64, octets: u64) -> Arrival {
    let size = Some(Bytes::new(octets));
    Arrival { at: Time::from_nanos(at), flow: Flow::greedy(vec![0]), size }
}

fn completions(arrivals: Vec<Arrival>) -> Vec<Option<u64>> {
    let played = play(&one_link(), arrivals, Time::from_nanos(100 * S), Tolerance::LEAST);
    let ends = played.expect("in order").outcomes;
    ends.iter().map(|outcome| outcome.completion().map(Span::as_nanos)).collect()
}

#[test]
fn a_link_is_shared_as_long_as_both_are_there() {
    // Alone for 1 s (1000 of 3000 octets), shared for 2 s (1000 each), alone for 1 s.
    assert_eq!(completions(vec![arrival(0, 3000), arrival(S, 1000)]), [Some(4 * S), Some(2 * S)]);
    // Three thirds take three times as long, all to the same nanosecond.
    assert_eq!(completions(vec![arrival(5, 1000); 3]), [Some(3 * S); 3]);
    // Nothing to send is done at once.
    assert_eq!(completions(vec![arrival(7, 0), arrival(7, 1)]), [Some(0), Some(S / 1000)]);
}

#[test]
fn ends_are_rounded_up() {
    let mut arrivals = vec![arrival(0, 1)];
    arrivals[0].flow.demand = Some(Rate::from_bps(3));
    assert_eq!(completions(arrivals), [Some(2_666_666_667)]);
}

#[test]
fn who_ends_makes_room_before_who_comes_at_that_moment() {
    let mut order = Vec::new();
    let arrivals = vec![arrival(0, 1000), arrival(S, 1000), arrival(S, 2000)];
    let until = Time::from_nanos(100 * S);
    let tally = play_into(&one_link(), arrivals, until, Tolerance::LEAST, |o| order.push(o));
    let tally = tally.expect("in order");
    assert_eq!(order.iter().map(|o| o.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((tally.most, tally.arrivals, tally.ended, tally.overbooked), (2, 3, 3, 0));
}

#[test]
fn what_does_not_end_is_told_with_what_it_carried() {
    let forever = Arrival { size: None, ..arrival(S, 0) };
    let arrivals = vec![arrival(0, 9000), forever, arrival(200 * S, 1)];
    let played = play(&one_link(), arrivals, Time::from_nanos(3 * S), Tolerance::LEAST);
    let outcomes = played.expect("in order").outcomes;
    let carried: Vec<_> = outcomes.iter().map(|o| (o.end, o.carried.get(), o.lasted)).collect();
    let lasted = Span::from_secs;
    assert_eq!(carried, [(None, 2000, lasted(3)), (None, 1000, lasted(2))]);
    assert_eq!(outcomes[1].mean_rate(), Rate::from_bps(4000));
}

#[test]
fn arrivals_out_of_order_and_without_sense_are_refused_by_number() {
    let error = |arrivals| {
        play(&one_link(), arrivals, Time::from_nanos(9 * S), Tolerance::default()).unwrap_err()
    };
    let told = error(vec![arrival(5, 1), arrival(4, 1)]);
    assert_eq!(told, PlayError::Order { number: 1, at: Time::from_nanos(4) });
    let wrong = Arrival { flow: Flow::greedy(vec![3]), ..arrival(6, 1) };
    let why = AllocationError::NoSuchLink { flow: 0, link: 3 };
    assert_eq!(error(vec![arrival(5, 1), wrong]), PlayError::Flow { number: 1, why });
}

/// The same by the book: all rates from scratch after each event, ends by comparison of all.
fn slow(world: &World, arrivals: &[Arrival], until: f64) -> Vec<Option<f64>> {
    let mut left: Vec<f64> =
        arrivals.iter().map(|a| a.size.map_or(f64::INFINITY, |s| s.get() as f64 * 8.0)).collect();
    let mut ends = vec![None; arrivals.len()];
    let start = |at: usize| arrivals[at].at.as_secs_f64();
    let mut now = 0.0;
    loop {
        let there: Vec<usize> =
            (0..left.len()).filter(|&at| start(at) <= now && ends[at].is_none()).collect();
        let flows = there.iter().map(|&at| &arrivals[at].flow).collect();
        let rates = allocate(world, &flows).expect("wide enough").rates;
        let next_end = there.iter().zip(&rates).map(|(&at, rate)| now + left[at] / rate);
        let coming = (0..left.len()).map(start).filter(|&start| start > now);
        let next =
            next_end.filter(|end| end.is_finite()).chain(coming).fold(f64::INFINITY, f64::min);
        if next > until {
            return ends;
        }
        for (&at, rate) in there.iter().zip(&rates) {
            left[at] -= rate * (next - now);
            // Within a nanosecond, or a billionth of a bit.
            if left[at] <= rate * 1e-9 + 1e-9 {
                ends[at] = Some(next - start(at));
            }
        }
        now = next;
    }
}

fn arrivals() -> impl Strategy<Value = (World, Vec<Arrival>)> {
    let times = vec((0..5_000_000u64, 0..100_000u64, prop::bool::weighted(0.9)), 40);
    (case(Promise::Both, true), times).prop_map(|((world, flows), mut times)| {
        let world = widened(world, &flows);
        times.sort_unstable();
        let arrival = |(flow, (at, octets, ends)): (Flow, (u64, u64, bool))| Arrival {
            at: Time::from_nanos(at * 1000),
            flow,
            size: ends.then_some(Bytes::new(octets + 1)),
        };
        (world, flows.into_iter().zip(times).map(arrival).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn completion_times_are_those_by_the_book((world, arrivals) in arrivals()) {
        let until = Time::from_nanos(20 * S);
        let played = play(&world, arrivals.clone(), until, Tolerance::LEAST).expect("in order");
        let ends = slow(&world, &arrivals, 20.0);
        for ((outcome, end), arrival) in played.outcomes.iter().zip(ends).zip(&arrivals) {
            let ours = outcome.completion().map(Span::as_secs_f64);
            match (ours, end) {
                // The tolerance is 10⁻⁹ of a link: some tens of bit/s of a rate here, which a slow flow
                // beside fast ones feels more.
                (Some(ours), Some(end)) => {
                    let bits = arrival.size.expect("it ended").get() as f64 * 8.0;
                    let off = 1e-4 + 60.0 * end / bits;
                    prop_assert!((ours - end).abs() <= off * end + 1e-6, "{ours} and {end}");
                }
                (None, None) => {}
                (Some(last), None) | (None, Some(last)) => {
                    prop_assert!(last + outcome.start.as_secs_f64() > 19.9, "{outcome:?}, {end:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_arrivals_give_the_same_results_and_nothing_is_lost(
        (world, arrivals) in arrivals(),
    ) {
        let until = Time::from_nanos(2 * S);
        let run = || play(&world, arrivals.clone(), until, Tolerance::default()).expect("in order");
        let played = run();
        prop_assert_eq!(&played, &run());
        let came = arrivals.iter().filter(|arrival| arrival.at <= until).count();
        prop_assert_eq!(played.outcomes.len(), came);
        let numbers = played.outcomes.iter().map(|outcome| outcome.number);
        prop_assert!(numbers.eq(0..came as u64));
        let ended = |o: &&Outcome| o.end.is_some();
        prop_assert_eq!(played.outcomes.iter().filter(ended).count() as u64, played.tally.ended);
        for (outcome, arrival) in played.outcomes.iter().zip(&arrivals) {
            let most = arrival.size.unwrap_or(Bytes::new(u64::MAX));
            prop_assert!(outcome.carried <= most);
            prop_assert!(outcome.end.is_none() || outcome.carried == most);
            let fast = arrival.flow.demand.is_none_or(|demand| {
                let demand = demand.as_f64();
                near(outcome.mean_rate().as_f64().min(demand), outcome.mean_rate().as_f64(), 1e4)
            });
            prop_assert!(fast, "{outcome:?} beyond {:?}", arrival.flow.demand);
        }
    }
}
