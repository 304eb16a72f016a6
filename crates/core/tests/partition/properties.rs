//! Properties on generated inputs.

use super::world::{Flow, Network, World, reference};
use proptest::prelude::*;
use weir_core::message::{Backlog, Echo, Offer};
use weir_core::partition::{Demand, PartitionConfig, ReceiveHose, SendHose, hand_out, max_min};
use weir_units::{PairId, Rate, SortedSet, Span, Time, VmId};

// -- the static split -----------------------------------------------------------------------------

fn demand() -> impl Strategy<Value = Demand> {
    prop_oneof![
        Just(Demand::Unbounded),
        (0u64..200).prop_map(|n| Demand::Bounded(Rate::from_bps(n))),
        any::<u64>().prop_map(|n| Demand::Bounded(Rate::from_bps(n))),
    ]
}

proptest! {
    #[test]
    fn a_split_is_max_min_and_hands_out_everything(
        pool in prop_oneof![0u64..2000, any::<u64>()],
        demands in prop::collection::vec(demand(), 1..40),
    ) {
        let pool = Rate::from_bps(pool);
        let mut shares = max_min(pool, &demands);
        let total = |s: &[Rate]| s.iter().map(|r| u128::from(r.as_bps())).sum::<u128>();
        prop_assert!(total(&shares) <= u128::from(pool.as_bps()));
        let unmet = || shares.iter().zip(&demands).filter(|(s, d)| **s < d.limit());
        let least = unmet().map(|(s, _)| s.as_bps()).min();
        if let Some(least) = least {
            prop_assert_eq!(total(&shares), u128::from(pool.as_bps()));
            prop_assert!(shares.iter().all(|s| s.as_bps() <= least.saturating_add(1)));
        }
        let before = shares.clone();
        hand_out(pool, &demands, &mut shares);
        prop_assert_eq!(total(&shares), u128::from(pool.as_bps()));
        prop_assert!(shares.iter().zip(&before).all(|(after, before)| after >= before));
    }
}

// -- worlds ---------------------------------------------------------------------------------------

const MBPS: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Case {
    hoses: Vec<(Rate, Rate)>,
    flows: Vec<Flow>,
    seed: u64,
}

fn hose() -> impl Strategy<Value = Rate> {
    prop_oneof![Just(100u64), 10u64..400].prop_map(Rate::from_mbps)
}

/// Up to `most` VMs and flows among them, one per pair.
fn case(most: usize, flow: fn() -> BoxedStrategy<Flow>) -> impl Strategy<Value = Case> {
    (2..=most).prop_flat_map(move |n| {
        let hoses = prop::collection::vec((hose(), hose()), n);
        let ends = (0..n, 0..n).prop_filter("no loops", |(a, b)| a != b);
        let flows = prop::collection::vec((ends, flow()), 1..=2 * n);
        (hoses, flows, any::<u64>()).prop_map(|(hoses, flows, seed)| {
            let mut seen = SortedSet::new();
            let flows = flows
                .into_iter()
                .filter(|(ends, _)| seen.insert(*ends))
                .map(|((src, dst), flow)| Flow { src, dst, ..flow })
                .collect();
            Case { hoses, flows, seed }
        })
    })
}

fn stationary() -> BoxedStrategy<Flow> {
    let limited = (MBPS / 2..150 * MBPS).prop_map(|d| Flow::backlogged(0, 0).at_most(d));
    prop_oneof![2 => Just(Flow::backlogged(0, 0)), 1 => limited].boxed()
}

fn changing() -> BoxedStrategy<Flow> {
    let demand = prop_oneof![Just(u64::MAX), 0..150 * MBPS];
    (demand, 0u64..2000, 1u64..3000)
        .prop_map(|(demand, start, length)| Flow {
            demand,
            start,
            stop: start + length,
            ..Flow::backlogged(0, 0)
        })
        .boxed()
}

fn lasting() -> BoxedStrategy<Flow> {
    let demand = prop_oneof![2 => Just(u64::MAX), 1 => 0..150 * MBPS];
    (demand, 0u64..9000, 500u64..11_000)
        .prop_map(|(demand, start, length)| Flow {
            demand,
            start,
            stop: start + length,
            ..Flow::backlogged(0, 0)
        })
        .boxed()
}

fn network() -> impl Strategy<Value = Network> {
    (0u64..20, 0u64..380, 0u8..200, 0u8..100).prop_map(|(least, more, lost, repeated)| Network {
        delay: (least, least + more),
        lost,
        repeated,
        ..Network::GOOD
    })
}

/// Margins so small that what is left is the algorithm.
fn exact() -> PartitionConfig {
    PartitionConfig {
        margin_estimate: 1.004,
        margin_rest: 1.004,
        margin_steady: 0.998,
        margin_bounded: 0.99,
        ..PartitionConfig::default()
    }
}

/// The largest shortfall of a floor against both ends' max-min, as part of the hose that `part_of`
/// chooses from the sender's and the receiver's.
fn shortfall(
    config: &PartitionConfig,
    case: &Case,
    part_of: fn(Rate, Rate) -> Rate,
) -> Result<f64, TestCaseError> {
    let mut world = World::new(config, &case.hoses, &case.flows, case.seed);
    // From the small start to the hose, and then a few rounds for each VM a change may pass.
    world.run_rounds(8 + 4 * case.hoses.len() as u64);
    let ideal = reference(&case.hoses, &case.flows);
    let mut worst = 0.0f64;
    for (flow, ideal) in case.flows.iter().zip(ideal) {
        let floor = world.floor(flow.src, flow.dst).as_f64();
        let hose = part_of(case.hoses[flow.src].0, case.hoses[flow.dst].1).as_f64();
        worst = worst.max((ideal - floor) / hose);
    }
    Ok(worst)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// `World::run` checks every hose at every tick.
    #[test]
    fn no_hose_is_exceeded_whatever_the_network_does(
        case in case(7, changing),
        network in network(),
        lend in prop_oneof![Just(1.0), 1.0..4.0f64],
    ) {
        let mut world = World::new(&PartitionConfig::default(), &case.hoses, &case.flows, case.seed);
        world.network = network;
        world.lend = lend;
        world.run(4500);
    }

    /// A host of the first version says nothing of its hose, one of the second nothing of what
    /// waits; what the others say is capped all the same.
    #[test]
    fn no_hose_is_exceeded_where_some_hosts_speak_earlier_versions(
        case in case(7, changing),
        network in network(),
        old in any::<u64>(),
        silent in any::<u64>(),
        lend in 1.0..40.0f64,
    ) {
        let mut world = World::new(&PartitionConfig::default(), &case.hoses, &case.flows, case.seed);
        (world.network, world.old, world.silent, world.lend) = (network, old, silent, lend);
        world.run(4500);
    }

    /// Whichever hosts say what waits, floors converge as where all do.
    #[test]
    fn where_some_hosts_speak_the_second_version_floors_converge_all_the_same(
        case in case(9, stationary),
        silent in any::<u64>(),
    ) {
        let mut world = World::new(&exact(), &case.hoses, &case.flows, case.seed);
        world.silent = silent;
        world.run_rounds(8 + 4 * case.hoses.len() as u64);
        for (flow, ideal) in case.flows.iter().zip(reference(&case.hoses, &case.flows)) {
            let floor = world.floor(flow.src, flow.dst).as_f64();
            let hose = case.hoses[flow.src].0.min(case.hoses[flow.dst].1).as_f64();
            prop_assert!((ideal - floor) / hose <= 0.03, "{flow:?}: {floor} of {ideal}");
        }
    }

    /// Hosts whose messages get lost for long, in one direction or both.
    #[test]
    fn no_hose_is_exceeded_while_hosts_are_mute_for_seconds(
        case in case(6, lasting),
        network in network(),
        mute in any::<u64>(),
        from in 0u64..2000,
        length in 500u64..8000,
    ) {
        let mut world = World::new(&PartitionConfig::default(), &case.hoses, &case.flows, case.seed);
        world.network = Network { mute: (mute, from, from + length), ..network };
        world.run(11_000);
    }

    #[test]
    fn stationary_demands_converge_to_the_max_min_of_both_ends(case in case(9, stationary)) {
        let worst = shortfall(&exact(), &case, Rate::min)?;
        prop_assert!(worst <= 0.03, "short of its max-min by {worst} of the hose");
    }

    /// Borrowing is at its most where nothing but the demand limits it: each end then sees the full
    /// demand of every pair, and must not keep for it what the other end's hose does not have.
    #[test]
    fn while_all_pairs_borrow_each_has_97_percent_of_its_part_of_both_hoses(
        case in case(9, stationary),
        lend in prop_oneof![Just(1000.0), 1.1..8.0f64],
    ) {
        let mut world = World::new(&exact(), &case.hoses, &case.flows, case.seed);
        world.lend = lend;
        world.run_rounds(8 + 6 * case.hoses.len() as u64);
        for (flow, ideal) in case.flows.iter().zip(reference(&case.hoses, &case.flows)) {
            let floor = world.floor(flow.src, flow.dst).as_f64();
            prop_assert!(floor >= 0.97 * ideal, "{flow:?}: {floor} of {ideal}");
        }
    }

    /// Bounded pairs keep a tenth of what they use as a margin, out of a hose that they share with
    /// this pair: it may miss a tenth of that hose, which is more of its own hose if that one is
    /// smaller.
    #[test]
    fn with_the_default_margins_they_converge_within_the_margin(case in case(9, stationary)) {
        let worst = shortfall(&PartitionConfig::default(), &case, Rate::max)?;
        prop_assert!(worst <= 0.12, "short of its max-min by {worst} of the hose");
    }

    #[test]
    fn no_pair_starves_on_a_bad_network(
        case in case(8, stationary),
        lost in 0u8..100,
        delay in 1u64..60,
    ) {
        let mut world = World::new(&PartitionConfig::default(), &case.hoses, &case.flows, case.seed);
        world.network = Network { delay: (1, delay), lost, repeated: 30, ..Network::GOOD };
        world.run(4000);
        for flow in &case.flows {
            let users = |end: fn(&Flow) -> usize, vm| case.flows.iter().filter(|f| end(f) == vm).count();
            let out = case.hoses[flow.src].0.split(users(|f| f.src, flow.src));
            let into = case.hoses[flow.dst].1.split(users(|f| f.dst, flow.dst));
            let fair = out.min(into).min(Rate::from_bps(flow.demand)).as_f64();
            let floor = world.floor(flow.src, flow.dst).as_f64();
            prop_assert!(floor >= 0.5 * fair, "{flow:?}: {floor} of {fair}");
        }
    }
}

// -- any order of inputs --------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Input {
    See(u32),
    Offer { peer: u32, serial: u32, floor: u64, unbounded: bool, confirm: bool },
    Echo { peer: u32, serial: u32, floor: u64, most: Option<u64>, backlog: Backlog },
    Waited(u32, Backlog),
    Exceeds(u32, bool),
    Step(u64),
    SetHose(u64),
    Ask(u32),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..1000, 0..200 * MBPS, any::<u64>(), Just(u64::MAX)]
}

fn backlog() -> impl Strategy<Value = Backlog> {
    use Backlog::*;
    prop::sample::select(vec![Unknown, Free, Sometimes, Always])
}

fn input() -> impl Strategy<Value = Input> {
    let serial = || prop_oneof![0u32..40, any::<u32>()];
    let (yes, peer) = (any::<bool>, || 0u32..6);
    let offer = (peer(), serial(), number(), yes(), yes());
    prop_oneof![
        peer().prop_map(Input::See),
        offer.prop_map(|(peer, serial, floor, unbounded, confirm)| Input::Offer {
            peer,
            serial,
            floor,
            unbounded,
            confirm
        }),
        (peer(), serial(), number(), prop::option::of(number()), backlog()).prop_map(
            |(peer, serial, floor, most, backlog)| Input::Echo {
                peer,
                serial,
                floor,
                most,
                backlog
            }
        ),
        (peer(), backlog()).prop_map(|(peer, backlog)| Input::Waited(peer, backlog)),
        (peer(), yes()).prop_map(|(peer, exceeds)| Input::Exceeds(peer, exceeds)),
        number().prop_map(Input::Step),
        number().prop_map(Input::SetHose),
        peer().prop_map(Input::Ask),
    ]
}

/// Time jumps, also backwards.
fn instant() -> impl Strategy<Value = Time> {
    prop_oneof![
        9 => (0u64..20_000).prop_map(|ms| Time::ZERO + Span::from_millis(ms)),
        1 => any::<u64>().prop_map(Time::from_nanos),
    ]
}

proptest! {
    #[test]
    fn no_order_of_inputs_panics_or_exceeds_a_hose(
        hose in number(),
        inputs in prop::collection::vec((instant(), input()), 0..120),
    ) {
        let config = PartitionConfig { max_peers: 5, ..PartitionConfig::default() };
        let hose = Rate::from_bps(hose);
        let mut send = SendHose::new(config.clone(), hose);
        let mut receive = ReceiveHose::new(config, VmId(99), hose);
        for (now, input) in inputs {
            let shrunk = matches!(input, Input::SetHose(_));
            let (spent, send_hose) = (receive.spent(), send.hose());
            match input {
                Input::See(peer) => {
                    send.see(now, VmId(peer));
                    receive.see(now, VmId(peer));
                }
                Input::Offer { peer, serial, floor, unbounded, confirm } => {
                    let (pair, floor) = (PairId::new(VmId(99), VmId(peer)), Rate::from_bps(floor));
                    let offer = Offer { pair, serial, floor, unbounded, confirm, round_trip: None };
                    let echo = send.offer(now, VmId(peer), offer);
                    prop_assert_eq!(echo.is_some(), confirm);
                }
                Input::Echo { peer, serial, floor, most, backlog } => {
                    let (pair, floor) = (PairId::new(VmId(peer), VmId(99)), Rate::from_bps(floor));
                    let most = most.map(Rate::from_bps);
                    receive.echo(now, VmId(peer), Echo { pair, serial, floor, most, backlog });
                }
                Input::Waited(peer, backlog) => send.waited(VmId(peer), backlog),
                Input::Exceeds(peer, exceeds) => send.exceeds(VmId(peer), exceeds),
                Input::Step(rate) => {
                    send.step(now, |p| Rate::from_bps(rate >> p.0));
                    prop_assert!(send.notes().all(|e| e.most.is_some_and(|m| m <= send_hose)));
                    receive.step(now, |p| Rate::from_bps(rate >> p.0));
                }
                Input::SetHose(hose) => {
                    send.set_hose(Rate::from_bps(hose));
                    receive.set_hose(Rate::from_bps(hose));
                }
                Input::Ask(peer) => {
                    send.floor(now, VmId(peer));
                    send.borrowing(now, VmId(peer));
                    receive.offer(now, VmId(peer));
                }
            }
            let peers: Vec<VmId> = send.peers().collect();
            let out: u128 =
                peers.iter().map(|p| u128::from(send.floor(now, *p).as_bps())).sum();
            prop_assert!(out <= u128::from(send.hose().as_bps()));
            if !shrunk {
                prop_assert!(receive.spent() <= receive.hose().max(spent));
            }
        }
    }
}
