//! Cases whose ideal allocation can be worked out by hand, most of them from the papers.

use weir_core::oracle::{
    AllocationError, Bottleneck, Flow, Hose, PairDemand, TCP_PAYLOAD, World, allocate,
    hose_max_min, jain, udp_payload,
};
use weir_units::{Bytes, PairId, Rate, VmId};

fn m(mbps: u64) -> Rate {
    Rate::from_mbps(mbps)
}

fn flow(path: &[usize], demand: Option<Rate>, floor: Rate) -> Flow {
    Flow { path: path.to_vec(), demand, floor }
}

fn world(links: &[Rate], flows: Vec<Flow>) -> World {
    World { links: links.to_vec(), flows }
}

fn hoses(floor: Rate, n: usize) -> Vec<Hose> {
    vec![Hose { floor_out: floor, floor_in: floor }; n]
}

fn pair(src: u32, dst: u32, demand: Option<Rate>) -> PairDemand {
    PairDemand::of_vms(PairId::new(VmId(src), VmId(dst)), demand, true)
}

#[track_caller]
fn rates(world: &World) -> Vec<Rate> {
    allocate(world).expect("admissible").rates
}

/// One sender to X and `n` to Y over one core link; both tenants have `floor` everywhere.
fn many_to_one(core: Rate, floor: Rate, n: u32) -> (Vec<Rate>, World) {
    let mut demands = vec![pair(1, 0, None)];
    demands.extend((0..n).map(|i| pair(3 + i, 2, None)));
    let f = hose_max_min(&hoses(floor, 3 + n as usize), &demands);
    let flows = f.iter().map(|&f| flow(&[0], None, f)).collect();
    (f, world(&[core], flows))
}

#[test]
fn one_sender_keeps_half_of_the_core_against_any_number() {
    // ElasticSwitch Fig. 5: X is promised 450 and gets half of the link, whatever Y's senders are.
    for n in [1, 2, 10, 100, 300] {
        let (f, world) = many_to_one(m(1000), m(450), n);
        assert_eq!(f[0], m(450), "N = {n}");
        let got = rates(&world);
        let y: Rate = got[1..].iter().copied().sum();
        let lost = u64::from(n) + 1;
        assert!(m(500).saturating_sub(y).as_bps() <= lost, "Y got {y} at N = {n}");
        // F of each of Y's senders is a whole number of bit/s below 450/n: X may get its part too.
        assert!(got[0] >= m(500) && (got[0] - m(500)).as_bps() <= lost, "X got {}", got[0]);
    }
    let (f, world) = many_to_one(m(1000), m(450), 10);
    assert_eq!(f[1..], [m(45); 10]);
    let got = rates(&world);
    assert_eq!((got[0], &got[1..]), (m(500), &[m(50); 10][..]));
}

#[test]
fn one_sender_alone_has_the_whole_link() {
    let (f, world) = many_to_one(m(1000), m(450), 0);
    assert_eq!(f, [m(450)]);
    let ideal = allocate(&world).expect("admissible");
    assert_eq!(ideal.rates, [m(1000)]);
    assert_eq!(ideal.bottlenecks, [Bottleneck::Link(0)]);
    assert_eq!(ideal.bottleneck_links(), [0]);
}

#[test]
fn tcp_gets_what_udp_leaves_but_never_less_than_half() {
    // ElasticSwitch Fig. 2: floors of 450 on 1 Gb/s, UDP offers u; ideal = max(500, 1000 − u).
    for u in [0, 1, 100, 200, 300, 400, 449, 450, 451, 500, 501, 700, 1000, 4000] {
        let demands = [pair(0, 1, None), pair(2, 3, Some(m(u)))];
        let f = hose_max_min(&hoses(m(450), 4), &demands);
        assert_eq!(f, [m(450), m(u.min(450))]);
        let flows = vec![flow(&[0], None, f[0]), flow(&[0], Some(m(u)), f[1])];
        let got = rates(&world(&[m(1000)], flows));
        // Below its hose UDP's floor is its demand: what it does not want, TCP has.
        let udp = m(u.min(500));
        assert_eq!(got, [m(1000) - udp, udp], "UDP offers {u} Mb/s");
    }
}

#[test]
fn surplus_is_shared_in_proportion_to_floors() {
    // ElasticSwitch Table 2: floors 1:2 on a 1 Gb/s link; ideal is 1:2 of the whole link.
    for (a, b) in [(225, 450), (100, 200), (300, 600)] {
        let flows = vec![flow(&[0], None, m(a)), flow(&[0], None, m(b))];
        let got = rates(&world(&[m(1000)], flows));
        assert_eq!(got, [Rate::from_bps(333_333_333), Rate::from_bps(666_666_666)]);
    }
}

#[test]
fn hoses_are_divided_among_the_unsatisfied() {
    // ElasticSwitch §4: B = 100, demands 20 / ∞ / ∞ → 20 / 40 / 40.
    let demands = [pair(0, 1, Some(m(20))), pair(0, 2, None), pair(0, 3, None)];
    assert_eq!(hose_max_min(&hoses(m(100), 4), &demands), [m(20), m(40), m(40)]);
}

#[test]
fn what_a_busy_receiver_cannot_take_goes_to_another() {
    // ElasticSwitch Fig. 4: X sends to Y and Z, Y also hears from two others: B/3 at Y leaves 2B/3
    // for Z.
    let demands = [pair(0, 1, None), pair(0, 2, None), pair(3, 1, None), pair(4, 1, None)];
    let f = hose_max_min(&hoses(m(300), 5), &demands);
    assert_eq!(f, [m(100), m(200), m(100), m(100)]);
}

#[test]
fn hoses_of_one_vm_are_filled_apart() {
    let hose = |out, into| Hose { floor_out: m(out), floor_in: m(into) };
    // VM 0 sends in two hoses, listed behind those of three VMs; VM 1 receives in the first of them.
    let hoses = [hose(100, 100), hose(100, 100), hose(100, 100), hose(40, 0), hose(0, 90)];
    let mut further = pair(0, 1, None);
    further.hoses = Some((3, 4));
    let both = [further, pair(0, 2, None)];
    assert_eq!(hose_max_min(&hoses, &both), [m(40), m(100)]);
    let narrow = [hoses[0], hoses[1], hoses[2], hose(40, 0), hose(0, 25)];
    assert_eq!(hose_max_min(&narrow, &both), [m(25), m(100)], "what is left is not lent");
}

#[test]
fn pairs_that_share_no_hose_are_promised_nothing_and_cost_nothing() {
    let mut foreign = pair(0, 2, None);
    foreign.hoses = None;
    assert_eq!(hose_max_min(&hoses(m(100), 3), &[pair(0, 1, None), foreign]), [m(100), Rate::ZERO]);
}

#[test]
fn asymmetric_hoses_bind_at_the_narrower_end() {
    let hose = |out, into| Hose { floor_out: m(out), floor_in: m(into) };
    let hoses = [hose(100, 1), hose(1, 30), hose(1, 500)];
    let f = hose_max_min(&hoses, &[pair(0, 1, None), pair(0, 2, None), pair(1, 0, None)]);
    assert_eq!(f, [m(30), m(70), m(1)]);
}

#[test]
fn mappers_share_reducers_and_the_fewer_side_binds() {
    // A MapReduce cell with 2 mappers and 3 reducers, all hoses 60: the mappers' out is the limit.
    let all_to_all = |mappers: u32, reducers: u32| -> Vec<PairDemand> {
        let pairs = (0..mappers).flat_map(|a| (0..reducers).map(move |b| (a, mappers + b)));
        pairs.map(|(a, b)| pair(a, b, None)).collect()
    };
    assert_eq!(hose_max_min(&hoses(m(60), 5), &all_to_all(2, 3)), [m(20); 6]);
    // The other way round the reducers' in is: each of the 3 mappers sends 20 to each.
    assert_eq!(hose_max_min(&hoses(m(60), 5), &all_to_all(3, 2)), [m(20); 6]);
    // So with fewer mappers a reducer is promised 40, not its whole 60.
    let f = hose_max_min(&hoses(m(60), 5), &all_to_all(2, 3));
    let reducer: Rate = f.iter().copied().step_by(3).sum();
    assert_eq!(reducer, m(40));
}

/// EyeQ Fig. 1: tenants A and B with hoses of 2 and 8 Gb/s, all NICs 10 Gb/s. Links: out of A1's
/// and B1's servers, into the shared server j of A2 and B2, into B3's.
fn eyeq(flows: &[usize]) -> Vec<Rate> {
    let g = |gbps: u64| m(gbps * 1000);
    let hose = |gbps| Hose { floor_out: g(gbps), floor_in: g(gbps) };
    // VMs: A1 A2 B1 B2 B3.
    let hoses = [hose(2), hose(2), hose(8), hose(8), hose(8)];
    let all = [(pair(0, 1, None), [0, 2]), (pair(2, 3, None), [1, 2]), (pair(2, 4, None), [1, 3])];
    let demands: Vec<_> = flows.iter().map(|&i| all[i].0).collect();
    let f = hose_max_min(&hoses, &demands);
    let flows = flows.iter().zip(f).map(|(&i, f)| flow(&all[i].1, None, f)).collect();
    rates(&world(&[g(10); 4], flows))
}

#[test]
fn a_spare_part_left_by_the_other_tenants_second_flow_is_taken() {
    // EyeQ §3: F1 alone 10; with F2 2:8; with F3 too, F2 falls to 5 and F1 takes the spare 3.
    assert_eq!(eyeq(&[0]), [m(10_000)]);
    assert_eq!(eyeq(&[0, 1]), [m(2_000), m(8_000)]);
    assert_eq!(eyeq(&[0, 1, 2]), [m(5_000); 3]);
}

#[test]
fn in_a_parking_lot_the_long_flow_gets_the_same_as_the_short_ones() {
    let mut flows = vec![flow(&[0, 1, 2], None, m(100))];
    flows.extend((0..3).map(|link| flow(&[link], None, m(100))));
    let ideal = allocate(&world(&[m(1000), m(600), m(1000)], flows)).expect("admissible");
    assert_eq!(ideal.rates, [m(300), m(700), m(300), m(700)]);
    let at = Bottleneck::Link;
    assert_eq!(ideal.bottlenecks, [at(1), at(0), at(1), at(2)]);
    assert_eq!(ideal.loads, [m(1000), m(600), m(1000)]);
}

#[test]
fn flows_without_a_floor_share_only_what_remains() {
    let flows = |limit| {
        vec![
            flow(&[0], limit, m(100)),
            flow(&[0], None, Rate::ZERO),
            flow(&[0], Some(m(50)), Rate::ZERO),
            flow(&[0], None, Rate::ZERO),
        ]
    };
    let got = rates(&world(&[m(1000)], flows(Some(m(300)))));
    assert_eq!(got, [m(300), m(325), m(50), m(325)]);
    let got = rates(&world(&[m(1000)], flows(None)));
    assert_eq!(got, [m(1000), m(0), m(0), m(0)]);
}

#[test]
fn a_flow_without_a_floor_never_displaces_one_with_a_floor_elsewhere() {
    // The floorless flow crosses both links; the second is full with a floored flow.
    let flows =
        vec![flow(&[0, 1], None, Rate::ZERO), flow(&[1], None, m(1)), flow(&[0], None, m(1))];
    let got = rates(&world(&[m(10), m(20)], flows));
    assert_eq!(got, [m(0), m(20), m(10)]);
}

#[test]
fn a_floor_above_the_demand_reserves_only_the_demand() {
    let flows = vec![flow(&[0], Some(m(10)), m(900)), flow(&[0], None, m(800))];
    assert_eq!(rates(&world(&[m(1000)], flows)), [m(10), m(990)]);
}

#[test]
fn floors_beyond_a_link_are_refused_by_name() {
    let flows = vec![flow(&[0, 1], None, m(60)), flow(&[1], None, m(60))];
    let refused = allocate(&world(&[m(100), m(100)], flows)).expect_err("120 on 100");
    let expected = AllocationError::FloorsExceedLink { link: 1, owed: m(120), capacity: m(100) };
    assert_eq!(refused, expected);
    assert_eq!(
        refused.to_string(),
        "link 1 carries 100 Mb/s, but the floors on it sum to 120 Mb/s"
    );
}

#[test]
fn a_flow_that_nothing_limits_is_refused_by_name() {
    let refused = allocate(&world(&[], vec![flow(&[], None, m(1))]));
    assert_eq!(refused, Err(AllocationError::Unlimited { flow: 0 }));
    // With a demand it is fine: two VMs of one host.
    assert_eq!(rates(&world(&[], vec![flow(&[], Some(m(7)), m(1))])), [m(7)]);
}

#[test]
fn a_path_over_a_link_that_does_not_exist_is_refused_by_name() {
    let refused = allocate(&world(&[m(1)], vec![flow(&[0], None, m(1)), flow(&[1], None, m(0))]));
    assert_eq!(refused, Err(AllocationError::NoSuchLink { flow: 1, link: 1 }));
}

#[test]
fn a_link_crossed_twice_carries_the_flow_twice() {
    let ideal =
        allocate(&world(&[m(90)], vec![flow(&[0, 0], None, m(20)), flow(&[0], None, m(20))]));
    let ideal = ideal.expect("60 on 90");
    assert_eq!(ideal.rates, [m(30); 2]);
    assert_eq!(ideal.loads, [m(90)]);
    let refused = allocate(&world(&[m(90)], vec![flow(&[0, 0], None, m(50))]));
    assert!(matches!(refused, Err(AllocationError::FloorsExceedLink { .. })));
}

#[test]
fn nothing_gives_nothing() {
    assert_eq!(allocate(&World::default()), Ok(Default::default()));
    assert!(hose_max_min(&[], &[]).is_empty());
    assert_eq!(hose_max_min(&hoses(Rate::ZERO, 2), &[pair(0, 1, None)]), [Rate::ZERO]);
    let idle = world(&[Rate::ZERO], vec![flow(&[0], None, Rate::ZERO)]);
    assert_eq!(rates(&idle), [Rate::ZERO]);
    let wants_nothing = world(&[m(1)], vec![flow(&[0], Some(Rate::ZERO), m(1))]);
    assert_eq!(rates(&wants_nothing), [Rate::ZERO]);
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let top = Rate::MAX;
    let half = Rate::from_bps(u64::MAX / 2);
    let flows = vec![flow(&[0], None, half), flow(&[0], Some(top), half), flow(&[0], None, m(0))];
    let got = rates(&world(&[top], flows));
    assert!(got[0] >= half && got[1] >= half && got[2] == m(0));
    let two = vec![flow(&[0], None, top), flow(&[0], None, top)];
    let refused = allocate(&world(&[top], two));
    assert!(matches!(refused, Err(AllocationError::FloorsExceedLink { link: 0, .. })));
    let equal = allocate(&world(&[top], vec![flow(&[0], Some(top), top)])).expect("just fits");
    assert_eq!(equal.bottlenecks, [Bottleneck::Demand]);
    let bit = Rate::from_bps(1);
    let hopes = world(&[bit + bit], vec![flow(&[0], Some(bit), top), flow(&[0], Some(bit), top)]);
    assert_eq!(rates(&hopes), [bit; 2]);
}

#[test]
fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
    assert_eq!(jain(&[5e8; 7]), 1.0);
    assert_eq!(jain(&[0.0, 0.0, 0.0, 3.0]), 0.25);
    assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-12);
    assert_eq!((jain(&[]), jain(&[0.0, 0.0])), (0.0, 0.0));
}

#[test]
fn payload_shares_follow_from_headers() {
    assert!((TCP_PAYLOAD - 0.956_406).abs() < 1e-6);
    assert_eq!(udp_payload(Bytes::new(1472)), 1472.0 / 1514.0);
    assert_eq!(udp_payload(Bytes::new(42)), 0.5);
    assert_eq!(udp_payload(Bytes::ZERO), 0.0);
}
