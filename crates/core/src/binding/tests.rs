use super::*;
use proptest::prelude::*;
use weir_units::{SortedMap, SortedSet, TenantId};

const LINK: u64 = 1000;

fn fabric(queues: &[u8]) -> Fabric {
    let link = |queues: &u8| LinkPorts { rate: Rate::from_mbps(LINK), queues: *queues };
    Fabric {
        links: queues.iter().map(link).collect(),
        codepoints: Fabric::all_codepoints(),
        most_weight: MostWeight::PAPER,
        last_queue: LastQueue::AlwaysShared,
    }
}

fn need(link: u32, mbps: u64) -> Need {
    Need { link: LinkId(link), forward: Rate::from_mbps(mbps), backward: Rate::from_mbps(mbps) }
}

fn contender(tenant: u32, score: f64, links: &[u32]) -> Contender {
    let needs = links.iter().map(|link| need(*link, 50)).collect();
    Contender { tenant: TenantId(tenant), needs, score, wish: Wish::ByScore, is_new: false }
}

/// The tenants that have a queue of their own.
fn dedicated(binder: &Binder) -> Vec<u32> {
    let is = |place: &Place| matches!(place, Place::Dedicated(_));
    binder.places().filter(|(_, place)| is(place)).map(|(tenant, _)| tenant.0).collect()
}

fn why(binder: &Binder, tenant: u32) -> Why {
    match binder.place(TenantId(tenant)) {
        Some(Place::Shared(why)) => why,
        other => panic!("tenant {tenant}: {other:?}"),
    }
}

#[test]
fn a_tenant_has_a_queue_on_all_links_or_on_none() {
    let mut binder = Binder::new(fabric(&[3, 2]));
    binder.bind(
        &[contender(1, 5.0, &[0, 1]), contender(2, 4.0, &[0, 1]), contender(3, 3.0, &[0])],
        1,
    );
    assert_eq!(dedicated(&binder), [1, 3]);
    assert_eq!(why(&binder, 2), Why::Outscored(LinkId(1)));
}

#[test]
fn a_higher_score_takes_the_lowest_queue_on_each_full_link() {
    let mut binder = Binder::new(fabric(&[3, 3]));
    let mut all = vec![
        contender(1, 10.0, &[0]),
        contender(2, 20.0, &[0]),
        contender(3, 15.0, &[1]),
        contender(4, 25.0, &[1]),
        contender(5, 0.0, &[0, 1]),
    ];
    binder.bind(&all, 1);
    assert_eq!(dedicated(&binder), [1, 2, 3, 4]);
    // Above only one of the two lowest: no tenant is evicted.
    all[4].score = 12.0;
    binder.bind(&all, 2);
    assert_eq!(dedicated(&binder), [1, 2, 3, 4]);
    assert_eq!(why(&binder, 5), Why::Outscored(LinkId(1)));
    all[4].score = 17.0;
    binder.bind(&all, 3);
    assert_eq!(dedicated(&binder), [2, 4, 5]);
    assert_eq!(why(&binder, 1), Why::Preempted(LinkId(0), TenantId(5)));
    // The next interval considers them again.
    all[4].score = 0.0;
    binder.bind(&all, 4);
    assert_eq!(dedicated(&binder), [1, 2, 3, 4]);
}

#[test]
fn a_queue_that_is_held_is_kept_while_there_is_room() {
    let mut binder = Binder::new(fabric(&[4]));
    binder.bind(&[contender(1, 1.0, &[0])], 1);
    let queue = |binder: &Binder| {
        let of = |plan: &QueuePlan| plan.of.is_some_and(|(tenant, _)| tenant == TenantId(1));
        binder.port(LinkId(0), Direction::Forward).into_iter().find(of).map(|plan| plan.queue)
    };
    let before = (queue(&binder), binder.place(TenantId(1)));
    binder.bind(&[contender(0, 9.0, &[0]), contender(1, 0.0, &[0]), contender(2, 9.0, &[0])], 2);
    assert_eq!((queue(&binder), binder.place(TenantId(1))), before);
    assert_eq!(dedicated(&binder), [0, 1, 2]);
}

#[test]
fn newcomers_wait_and_those_who_left_give_up() {
    let mut binder = Binder::new(fabric(&[2]));
    let new = Contender { is_new: true, ..contender(1, 9.0, &[0]) };
    binder.bind(std::slice::from_ref(&new), 1);
    assert_eq!(why(&binder, 1), Why::New);
    binder.bind(&[Contender { is_new: false, ..new }], 2);
    assert_eq!(dedicated(&binder), [1]);
    binder.bind(&[contender(2, 0.1, &[0])], 3);
    assert_eq!(dedicated(&binder), [2]);
    assert_eq!(binder.place(TenantId(1)), None);
}

#[test]
fn an_operator_pins_and_excludes() {
    let mut binder = Binder::new(fabric(&[2]));
    let excluded = Contender { wish: Wish::Excluded, ..contender(1, 9.0, &[0]) };
    binder.bind(&[excluded.clone(), contender(2, 1.0, &[0])], 1);
    assert_eq!(dedicated(&binder), [2]);
    assert_eq!(why(&binder, 1), Why::Excluded);
    let pinned = Contender { wish: Wish::Pinned, ..contender(3, 0.0, &[0]) };
    binder.bind(&[contender(1, 9.0, &[0]), contender(2, 9.0, &[0]), pinned], 2);
    assert_eq!(dedicated(&binder), [3]);
}

#[test]
fn a_port_that_loses_queues_keeps_the_best_tenants() {
    let mut binder = Binder::new(fabric(&[4]));
    let all = [contender(1, 3.0, &[0]), contender(2, 1.0, &[0]), contender(3, 2.0, &[0])];
    binder.bind(&all, 1);
    assert_eq!(dedicated(&binder), [1, 2, 3]);
    binder.set_fabric(fabric(&[3]));
    binder.bind(&all, 2);
    assert_eq!(dedicated(&binder), [1, 3]);
    assert_eq!(why(&binder, 2), Why::QueuesGone(LinkId(0)));
    let numbers = binder.port(LinkId(0), Direction::Forward);
    assert_eq!(numbers.iter().map(|plan| plan.queue).collect::<Vec<u8>>().len(), 3);
    assert!(numbers.iter().all(|plan| plan.queue < 3), "{numbers:?}");
    // A port with one queue has none to give; one that is not there, too.
    binder.set_fabric(fabric(&[1]));
    binder.bind(&[contender(1, 3.0, &[0]), contender(2, 1.0, &[7])], 3);
    assert_eq!(dedicated(&binder), [0u32; 0]);
    binder.bind(&[contender(1, 3.0, &[0]), contender(2, 1.0, &[7])], 4);
    assert_eq!(why(&binder, 1), Why::NoQueues(LinkId(0)));
    assert_eq!(why(&binder, 2), Why::NoQueues(LinkId(7)));
}

#[test]
fn the_papers_port_of_eight_has_no_shared_queue_until_a_ninth_comes() {
    let mut binder = Binder::new(Fabric { last_queue: LastQueue::SharedIfCrowded, ..fabric(&[8]) });
    let mut all: Vec<Contender> = (1..=8).map(|n| contender(n, f64::from(n), &[0])).collect();
    binder.bind(&all, 1);
    assert_eq!(dedicated(&binder).len(), 8);
    let plans = binder.port(LinkId(0), Direction::Forward);
    let mut numbers: Vec<u8> = plans.iter().map(|plan| plan.queue).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(plans.iter().all(|plan| plan.of.is_some()));
    all.push(Contender { is_new: true, ..contender(9, 9.0, &[0]) });
    binder.bind(&all, 2);
    assert_eq!(dedicated(&binder), [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(why(&binder, 1), Why::QueuesGone(LinkId(0)));
}

#[test]
fn weights_that_cannot_hold_a_floor_keep_a_tenant_out() {
    // 850 beside 10, 10 and the shared queue's 10: weights up to 15 give the large one 15/18.
    let mut binder = Binder::new(fabric(&[8]));
    let with = |tenant, mbps, score| Contender {
        needs: vec![need(0, mbps)],
        ..contender(tenant, score, &[])
    };
    let all = [with(1, 850, 9.0), with(2, 10, 8.0), with(3, 10, 7.0), with(4, 10, 6.0)];
    binder.bind(&all, 1);
    assert_eq!(dedicated(&binder), [1, 2]);
    assert_eq!(why(&binder, 3), Why::Weights(LinkId(0)));
    // With them, the large tenant's part is 15/17 of the link.
    let plans = binder.port(LinkId(0), Direction::Backward);
    assert_eq!(plans.iter().map(|plan| plan.weight).collect::<Vec<u16>>(), [1, 15, 1]);
}

#[test]
fn the_same_code_point_is_used_where_trees_do_not_meet() {
    let mut binder = Binder::new(Fabric { codepoints: vec![10, 12], ..fabric(&[8, 8, 8]) });
    let all = [
        contender(1, 9.0, &[0]),
        contender(2, 8.0, &[1]),
        contender(3, 7.0, &[0, 1]),
        contender(4, 6.0, &[1, 2]),
        contender(5, 5.0, &[2]),
    ];
    binder.bind(&all, 1);
    let place = |tenant| binder.place(TenantId(tenant));
    assert_eq!(place(1), Some(Place::Dedicated(10)));
    assert_eq!(place(2), Some(Place::Dedicated(10)));
    assert_eq!(place(3), Some(Place::Dedicated(12)));
    assert_eq!(why(&binder, 4), Why::Codepoints);
    assert_eq!(place(5), Some(Place::Dedicated(10)));
}

#[test]
fn ties_go_to_another_tenant_in_another_interval() {
    let all: Vec<Contender> = (0..6).map(|n| contender(n, 1.0, &[0])).collect();
    let winner = |seed| {
        let mut binder = Binder::new(fabric(&[2]));
        binder.bind(&all, seed);
        dedicated(&binder)[0]
    };
    assert_eq!(winner(3), winner(3));
    let winners: SortedSet<u32> = (0..50).map(winner).collect();
    assert_eq!(winners.len(), 6);
}

/// What the header promises, of any state after a round.
fn check(binder: &Binder, contenders: &[Contender]) {
    for (at, link) in binder.fabric.links.iter().enumerate() {
        let id = LinkId(at as u32);
        let score = |tenant: TenantId| contenders.iter().find(|c| c.tenant == tenant).unwrap();
        for direction in [Direction::Forward, Direction::Backward] {
            let plans = binder.port(id, direction);
            let own: Vec<(TenantId, u8)> = plans.iter().filter_map(|plan| plan.of).collect();
            assert!(own.len() <= binder.most_dedicated(at), "{plans:?}");
            let unique = |mut all: Vec<u8>| {
                all.sort_unstable();
                all.windows(2).all(|pair| pair[0] != pair[1])
            };
            assert!(unique(own.iter().map(|(_, codepoint)| *codepoint).collect()), "{plans:?}");
            assert!(unique(plans.iter().map(|plan| plan.queue).collect()), "{plans:?}");
            assert!(plans.iter().all(|plan| plan.queue < link.queues.max(1)), "{plans:?}");
            let sum: u16 = plans.iter().map(|plan| plan.weight).sum();
            for plan in plans.iter().filter(|_| !own.is_empty()) {
                let part = link.rate.as_f64() * f64::from(plan.weight) / f64::from(sum);
                assert!(part >= plan.reserved.as_f64() * (1.0 - 1e-9), "{plan:?} of {plans:?}");
            }
            // Each dedicated tenant has a queue on each of its links.
            for contender in contenders {
                let is_here = contender.needs.iter().any(|need| need.link == id);
                let has = own.iter().any(|(tenant, _)| *tenant == contender.tenant);
                let is = matches!(binder.place(contender.tenant), Some(Place::Dedicated(_)));
                assert_eq!(has, is && is_here, "{contender:?}");
            }
            for contender in contenders {
                if binder.place(contender.tenant) == Some(Place::Shared(Why::Outscored(id))) {
                    let mut others = own.iter().map(|(tenant, _)| score(*tenant));
                    let is_no_less = |other: &Contender| {
                        other.wish == Wish::Pinned || other.score >= contender.score
                    };
                    assert!(others.all(is_no_less), "{contender:?} {plans:?}");
                }
            }
        }
    }
}

prop_compose! {
    fn any_contender(links: u32)(
        tenant in 0u32..24,
        needs in proptest::collection::btree_map(0..links, (0u64..200, 0u64..200), 0..4),
        score in 0u8..6,
        wish in prop_oneof![
            8 => Just(Wish::ByScore), 1 => Just(Wish::Pinned), 1 => Just(Wish::Excluded)
        ],
        is_new in proptest::bool::weighted(0.1),
    ) -> Contender {
        let need = |(link, (forward, backward)): (u32, (u64, u64))| Need {
            link: LinkId(link),
            forward: Rate::from_mbps(forward),
            backward: Rate::from_mbps(backward),
        };
        let needs = needs.into_iter().map(need).collect();
        Contender { tenant: TenantId(tenant), needs, score: f64::from(score), wish, is_new }
    }
}

/// Those of the contenders that admission lets in: no link promises more than nine tenths.
fn admitted(contenders: Vec<Contender>) -> Vec<Contender> {
    let mut sums = [[0; 2]; 4];
    let mut all: SortedMap<TenantId, Contender> = Default::default();
    for contender in contenders {
        let most = LINK * 1_000_000 * 9 / 10;
        let with = |sums: &mut [[u64; 2]; 4]| {
            for need in &contender.needs {
                sums[need.link.0 as usize][0] += need.forward.as_bps();
                sums[need.link.0 as usize][1] += need.backward.as_bps();
            }
        };
        let mut after = sums;
        with(&mut after);
        if after.iter().flatten().all(|sum| *sum <= most) && !all.contains_key(&contender.tenant) {
            sums = after;
            all.insert(contender.tenant, contender);
        }
    }
    all.into_values().collect()
}

proptest! {
    #[test]
    fn every_round_keeps_what_the_header_promises(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(any_contender(4), 0..24), proptest::collection::vec(0u8..9, 4)),
            1..6,
        ),
        is_paper in any::<bool>(),
        codepoints in 1u8..12,
        seed in any::<u64>(),
    ) {
        let fabric = |queues: &[u8]| Fabric {
            codepoints: (1..=codepoints).collect(),
            last_queue: if is_paper { LastQueue::SharedIfCrowded } else { LastQueue::AlwaysShared },
            ..fabric(queues)
        };
        let mut binder = Binder::new(fabric(&[8; 4]));
        for (contenders, queues) in rounds {
            binder.set_fabric(fabric(&queues));
            let contenders = admitted(contenders);
            binder.bind(&contenders, seed);
            check(&binder, &contenders);
        }
    }
}

#[test]
fn weights_that_others_provisioned_decide_who_may_have_which_queue() {
    let of = |floors: &[u64]| -> Vec<Contender> {
        let one = |(tenant, floor): (usize, &u64)| Contender {
            needs: vec![need(0, *floor)],
            ..contender(tenant as u32 + 1, 100.0 - tenant as f64, &[0])
        };
        floors.iter().enumerate().map(one).collect()
    };
    let fabric = Fabric { codepoints: vec![10, 20], ..fabric(&[3]) };
    let provisioned = Provisioned { shared: 5, own: [(10, 1), (20, 4)].into() };
    let mut binder = Binder::provisioned(fabric, provisioned);
    // 1/10 of the link is too little for the first, 4/10 is enough.
    binder.bind(&of(&[300, 90, 410]), 1);
    assert_eq!(binder.place(TenantId(1)), Some(Place::Dedicated(20)));
    assert_eq!(binder.place(TenantId(2)), Some(Place::Dedicated(10)));
    // No queue is large enough for this one.
    binder.bind(&of(&[300, 90, 410, 10])[2..], 2);
    assert_eq!(why(&binder, 3), Why::Weights(LinkId(0)));
    assert_eq!(binder.place(TenantId(4)), Some(Place::Dedicated(10)));
}
