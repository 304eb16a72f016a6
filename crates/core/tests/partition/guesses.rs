//! Many small pairs beside one that wants all of a hose, and how fast a pair grows.

use super::examples::offer;
use super::world::{Flow, PERIOD, World};
use weir_core::partition::{PartitionConfig, ReceiveHose, SendHose};
use weir_units::{Rate, Span, SplitMix64, Time, VmId};

const SMALL: usize = 60;
const HOSE: Rate = Rate::from_mbps(400);

fn period(n: u64) -> Time {
    Time::ZERO + Span::from_millis(60) * n
}

/// What a pair without end has of a hose beside sixty that send `octets` at a time, `rate` times a
/// second at random moments, as a part of what they leave.
fn part_beside_bursts(at_the_sender: bool, octets: u64, rate: u64) -> f64 {
    let (hub, x, ticks, warmup) = (0, SMALL + 1, 6000, 1000);
    let ends = |vm: usize| if at_the_sender { (hub, vm) } else { (vm, hub) };
    let between = |vm: usize| Flow { src: ends(vm).0, dst: ends(vm).1, ..Flow::backlogged(0, 0) };
    let mut random = SplitMix64::new(7);
    let mut flows = vec![between(x)];
    for vm in 1..=SMALL {
        for slot in 0..ticks * rate / 1000 {
            let start = slot * 1000 / rate + random.next() % (1000 / rate - 1);
            let burst = Flow { start, stop: start + 1, ..between(vm) };
            flows.push(burst.at_most(octets * 8 * 1000));
        }
    }
    let mut world = World::new(&PartitionConfig::default(), &[(HOSE, HOSE); SMALL + 2], &flows, 3);
    world.lend = 1e6;
    world.run(warmup);
    let mut has = 0.0;
    for _ in warmup..ticks {
        world.run(1);
        has += world.floor(ends(x).0, ends(x).1).as_f64();
    }
    let left = HOSE.as_f64() - (SMALL as u64 * octets * 8 * rate) as f64;
    has / (ticks - warmup) as f64 / left
}

#[test]
fn sixty_pairs_with_small_bursts_leave_a_large_one_its_part_of_a_hose() {
    for (octets, rate) in [(4000, 10), (20_000, 5), (16_000, 2)] {
        for at_the_sender in [false, true] {
            let part = part_beside_bursts(at_the_sender, octets, rate);
            let case = format!("{octets} B, {rate} a second, at the sender: {at_the_sender}");
            assert!(part >= 0.95, "{part} of its part beside {case}");
        }
    }
}

#[test]
fn where_a_hose_has_room_nothing_is_held_back_from_new_pairs() {
    // A small start of 10 for each of sixty, and one that uses 20.
    let hose = Rate::from_mbps(640);
    let mut send = SendHose::new(PartitionConfig::default(), hose);
    let old = VmId(0);
    send.see(Time::ZERO, old);
    for n in 1..20 {
        send.offer(period(n), old, offer(0, n as u32, hose));
        send.step(period(n), |_| Rate::from_mbps(20));
    }
    for peer in 1..=60 {
        send.see(period(20), VmId(peer));
        assert_eq!(send.floor(period(20), VmId(peer)), Rate::from_mbps(10), "peer {peer}");
    }
    let all = send.floor(period(20), old);
    assert!(all >= Rate::from_mbps(20), "the division follows");
    for peer in 1..=60 {
        assert_eq!(send.floor(period(20), VmId(peer)), Rate::from_mbps(10), "peer {peer}");
    }
}

#[test]
fn where_a_hose_has_none_all_new_pairs_together_begin_with_one_small_start() {
    let hose = Rate::from_mbps(640);
    let mut send = SendHose::new(PartitionConfig::default(), hose);
    let old = VmId(0);
    send.see(Time::ZERO, old);
    for n in 1..10 {
        send.offer(period(n), old, offer(0, n as u32, hose));
        send.step(period(n), |_| hose);
    }
    for peer in 1..=60 {
        send.see(period(10), VmId(peer));
        let first = send.floor(period(10), VmId(peer));
        assert!(first <= Rate::from_mbps(10).split(peer as usize), "{first} for peer {peer}");
    }
    assert!(send.floor(period(10), old) >= Rate::from_mbps(630));
}

#[test]
fn where_a_hose_has_room_a_quiet_pair_has_the_small_start_after_one_period() {
    let mut hose = ReceiveHose::new(PartitionConfig::default(), VmId(0), HOSE);
    let [steady, quiet] = [1, 2].map(VmId);
    let step = |hose: &mut ReceiveHose, n: u64, used: Rate| {
        hose.see(period(n), steady);
        hose.see(period(n), quiet);
        hose.step(period(n), |peer| if peer == steady { Rate::from_mbps(200) } else { used });
    };
    for n in 1..10 {
        step(&mut hose, n, Rate::ZERO);
    }
    step(&mut hose, 10, Rate::from_mbps(400));
    let start = PartitionConfig::default().small_start_of(HOSE);
    assert!(hose.wants(quiet).is_some_and(|(_, rate)| rate >= start));
    assert!(hose.offered(quiet) >= start, "{}", hose.offered(quiet));
}

/// Half of a hose is 32 small starts: five periods, and one in which the pair begins.
#[test]
fn a_lone_pair_has_its_fair_share_after_six_periods() {
    for at_the_sender in [false, true] {
        let flow =
            |vm| if at_the_sender { Flow::backlogged(0, vm) } else { Flow::backlogged(vm, 0) };
        for seed in 1..=8 {
            let flows = [flow(1), flow(2).from(1000)];
            let mut world =
                World::new(&PartitionConfig::default(), &[(HOSE, HOSE); 3], &flows, seed);
            world.run(1000);
            let has = |world: &mut World| world.floor(flows[1].src, flows[1].dst);
            let after = (0..20 * PERIOD).find(|_| {
                world.run(1);
                has(&mut world) >= Rate::from_mbps(190)
            });
            assert!(after.is_some_and(|ms| ms <= 6 * PERIOD), "{after:?} ms");
        }
    }
}

/// Three hundred that want all they can get. Hosts that say what waits tell them from bursts; without
/// that, what is sure doubles in each period.
#[test]
fn three_hundred_that_begin_beside_one_share_its_hose_in_three_periods_or_in_seven() {
    let n = 300;
    let mut flows: Vec<Flow> =
        (1..=n).map(|src| Flow::backlogged(src, 0).from(1000 + src as u64 % 7)).collect();
    flows.push(Flow::backlogged(n + 1, 0));
    for (silent, periods) in [(0, 3), (u64::MAX, 7)] {
        let hoses = vec![(HOSE, HOSE); n + 2];
        let mut world = World::new(&PartitionConfig::default(), &hoses, &flows, 5);
        world.silent = silent;
        world.run(1000);
        world.run_rounds(periods);
        let least = (1..=n).map(|src| world.floor(src, 0)).min().expect("three hundred");
        let fair = HOSE.split(n + 1);
        assert!(least >= fair.scale(0.95), "{least} of {fair} after {periods} periods");
    }
}
