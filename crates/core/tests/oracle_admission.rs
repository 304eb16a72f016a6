//! Whether floors fit, and the small numbers that judges use.

use proptest::prelude::*;
use weir_core::oracle::{
    Cut, Direction, Flow, Headroom, Member, Overbooked, Spread, TCP_PAYLOAD, UDP_PAYLOAD, World,
    admission, allocate, generalized, jain, needed, udp_payload,
};
use weir_units::{Bytes, Rate, TenantId, VmId};

fn m(mbps: u64) -> Rate {
    Rate::from_mbps(mbps)
}

fn member(tenant: u32, out: u64, into: u64) -> Member {
    Member { tenant: TenantId(tenant), floor_out: m(out), floor_in: m(into) }
}

fn vms(numbers: &[u32]) -> Vec<VmId> {
    numbers.iter().map(|&n| VmId(n)).collect()
}

#[test]
fn two_tenants_of_45_percent_fit_a_link_and_no_more() {
    // ElasticSwitch §7: with 10 % slack these are the largest floors a 1 Gb/s link can offer.
    let cuts = Cut::both(0, m(1000), vms(&[0, 1, 2]), vms(&[3, 4]));
    let members = |floor| {
        [0, 1, 1, 0, 1].map(|tenant| member(tenant, floor, floor)) // X and Y receive, 1 and 2 send
    };
    assert_eq!(admission(&members(450), &cuts, Headroom::default()), Ok(()));
    let refused = admission(&members(451), &cuts, Headroom::default()).expect_err("902 of 900");
    let expected = Overbooked {
        link: 0,
        direction: Direction::AToB,
        needed: m(902),
        available: m(900),
        capacity: m(1000),
    };
    assert_eq!(refused, expected);
    assert_eq!(
        refused.to_string(),
        "link 0 (a>b): the floors need 902Mbit, of its 1Gbit only 900Mbit may be promised"
    );
    assert_eq!(admission(&members(500), &cuts, Headroom::NONE), Ok(()));
}

#[test]
fn the_smaller_side_of_each_tenant_counts() {
    // Three VMs against one: the one limits. The other tenant is all on one side and owes nothing.
    let members = [100, 100, 100, 100].map(|b| member(0, b, b));
    let [up, _] = Cut::both(0, m(1000), vms(&[0, 1, 2]), vms(&[3]));
    assert_eq!(needed(&members, &up), m(100));
    let tenants = [member(0, 70, 70), member(1, 80, 80), member(1, 90, 90)];
    let [up, down] = Cut::both(0, m(1000), vms(&[0]), vms(&[1, 2]));
    assert_eq!((needed(&tenants, &up), needed(&tenants, &down)), (m(0), m(0)));
}

#[test]
fn tenants_are_cut_one_by_one_before_they_are_summed() {
    // Summed first it would be min(110, 110); tenant by tenant it is min(100, 10) + min(10, 100).
    let members = [member(0, 100, 100), member(1, 10, 10), member(0, 10, 10), member(1, 100, 100)];
    let [up, _] = Cut::both(0, m(100), vms(&[0, 1]), vms(&[2, 3]));
    assert_eq!(needed(&members, &up), m(20));
}

#[test]
fn the_direction_that_does_not_fit_is_named() {
    // VM 1 may receive much and send little: only the way to it is narrow.
    let members = [member(0, 400, 10), member(0, 10, 400)];
    let [up, down] = Cut::both(7, m(100), vms(&[0]), vms(&[1]));
    assert_eq!((needed(&members, &up), needed(&members, &down)), (m(400), m(10)));
    let refused = admission(&members, &[down.clone(), up], Headroom::default());
    assert!(matches!(refused, Err(Overbooked { link: 7, direction: Direction::AToB, .. })));
    assert_eq!(admission(&members, &[down], Headroom::default()), Ok(()));
}

#[test]
fn links_side_by_side_carry_twice_the_slower_or_all_together() {
    let links = [m(800), m(200)];
    assert_eq!(generalized(&links, Spread::Evenly), m(400));
    assert_eq!(generalized(&links, Spread::ByHosts), m(1000));
    assert_eq!(generalized(&[m(7)], Spread::Evenly), m(7));
    assert_eq!(generalized(&[], Spread::Evenly), Rate::ZERO);
}

proptest! {
    /// Floors are admitted on a generalized link; each pair's floor is then spread over its links, and
    /// the oracle finds that none of these owes more than it has.
    #[test]
    fn what_is_admitted_on_a_generalized_link_fits_each_of_its_links(
        links in prop::collection::vec(1_000_000u64..1_000_000_000, 1..6),
        weights in prop::collection::vec(1u64..100, 1..6),
        by_hosts in any::<bool>(),
    ) {
        let rates: Vec<Rate> = links.iter().map(|bps| Rate::from_bps(*bps)).collect();
        let spread = if by_hosts { Spread::ByHosts } else { Spread::Evenly };
        let whole = generalized(&rates, spread);
        // The largest floors that are admitted: all of the link is promised.
        let sum: u64 = weights.iter().sum();
        let floors: Vec<Rate> = weights.iter().map(|w| whole.mul_ratio(*w, sum)).collect();
        let members: Vec<Member> = (0u32..).zip(&floors).flat_map(|(tenant, floor)| {
            [Member { tenant: TenantId(tenant), floor_out: *floor, floor_in: *floor }; 2]
        }).collect();
        let senders = (0..members.len() as u32).step_by(2).map(VmId).collect();
        let receivers = (1..members.len() as u32).step_by(2).map(VmId).collect();
        let [cut, _] = Cut::both(0, whole, senders, receivers);
        prop_assert_eq!(admission(&members, std::slice::from_ref(&cut), Headroom::NONE), Ok(()));

        let all: u64 = links.iter().sum();
        let flows = floors.iter().flat_map(|floor| {
            links.iter().enumerate().map(|(link, bps)| {
                let part = match spread {
                    Spread::Evenly => floor.split(links.len()),
                    Spread::ByHosts => floor.mul_ratio(*bps, all),
                };
                Flow { path: vec![link], demand: None, floor: part }
            })
        });
        let world = World { flows: flows.collect(), links: rates };
        prop_assert!(allocate(&world).is_ok(), "a link owes more than it has");
    }
}

#[test]
fn nobody_needs_nothing() {
    assert_eq!(admission(&[], &[], Headroom::default()), Ok(()));
    let cuts = Cut::both(0, Rate::ZERO, vec![], vec![]);
    assert_eq!(admission(&[], &cuts, Headroom::default()), Ok(()));
}

#[test]
fn headroom_rounds_in_favour_of_the_tenant_and_refuses_nonsense() {
    let available = |part, bps| {
        let headroom = Headroom::from_fraction(part).expect("a fraction");
        headroom.available(Rate::from_bps(bps)).as_bps()
    };
    assert_eq!(available(0.1, 333_333_333), 300_000_000);
    assert_eq!(available(0.0, u64::MAX), u64::MAX);
    assert_eq!(available(1.0, 1_000), 0);
    assert_eq!(Headroom::from_fraction(0.1), Some(Headroom::default()));
    for nonsense in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Headroom::from_fraction(nonsense), None);
    }
}

#[test]
#[should_panic(expected = "vm9 is not among the 1 members")]
fn a_cut_through_an_unknown_vm_is_a_bug() {
    let cuts = Cut::both(0, m(1), vms(&[9]), vms(&[]));
    let _ = admission(&[member(0, 1, 1)], &cuts, Headroom::NONE);
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
    assert_eq!(udp_payload(Bytes::new(1472)), UDP_PAYLOAD);
    assert_eq!(udp_payload(Bytes::new(42)), 0.5);
    assert_eq!(udp_payload(Bytes::ZERO), 0.0);
}
