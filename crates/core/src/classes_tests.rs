use super::*;

fn mbps(n: u64) -> Rate {
    Rate::from_mbps(n)
}

fn vm(floor: u64) -> Share {
    Share { floor: mbps(floor), cap: None, external: External::default() }
}

fn levels(vms: &[Share]) -> Levels {
    Levels::new(Uplink::new(mbps(200)), vms)
}

fn rates(class: Class) -> (u64, u64) {
    (class.rate.as_bps(), class.ceil.as_bps())
}

#[test]
fn a_burst_is_a_millisecond_but_never_less_than_two_packets_nor_more_than_256_kb() {
    for (kbps, octets) in [(64, 3028), (300, 3028), (24_224, 3028), (100_000, 12_500)] {
        let rate = Rate::from_bps(kbps * 1000);
        assert_eq!(burst(rate, Pace::Burst).get(), octets, "{kbps} kbit/s");
        assert_eq!(burst(rate, Pace::HalfBurst).get(), octets / 2, "a packet at least");
        assert_eq!(burst(rate, Pace::Packets).get(), 3028);
    }
    assert_eq!(burst(mbps(40_000), Pace::Burst).get(), 256 * 1024);
}

#[test]
fn quanta_are_proportional_to_floors_and_never_less_than_a_packet() {
    let vms = [vm(80), vm(20)];
    let quantum = |n| levels(&vms).pair(&vms[0], (mbps(n), mbps(n)), Rate::ZERO).quantum;
    assert_eq!([quantum(80), quantum(40), quantum(20)], [60_000, 30_000, 15_000]);
    assert_eq!([quantum(1), quantum(0)], [1514, 1514]);
}

#[test]
fn a_ceiling_is_at_least_the_rate_and_at_most_the_cap() {
    let capped = Share { cap: Some(mbps(100)), ..vm(90) };
    let levels = levels(&[capped]);
    let class = levels.pair(&capped, (mbps(5), Rate::MAX), mbps(5));
    assert_eq!(rates(class), (5_000_000, 100_000_000));
    let least = levels.pair(&capped, (Rate::ZERO, Rate::ZERO), Rate::ZERO);
    assert_eq!(rates(least), (64_000, 64_000));
    assert_eq!((floor_of(class.rate), floor_of(least.rate)), (Some(mbps(5)), None));
    let paced = Levels::new(Uplink { pace: Pace::Packets, ..Uplink::new(mbps(200)) }, &[capped]);
    assert_eq!(paced.pair(&capped, (mbps(5), Rate::MAX), mbps(5)).ceil, mbps(200));
    assert_eq!(paced.vm(&capped).ceil, mbps(100));
}

#[test]
fn promises_beyond_the_uplink_are_scaled_to_fit_it() {
    let vms = [vm(90); 10];
    let levels = levels(&vms);
    let inner: u64 = vms.iter().map(|vm| levels.vm(vm).rate.as_bps()).sum();
    assert!(inner <= 200_000_000, "{inner} bit/s of inner classes on 200 Mbit/s");
    let pair = |vm| levels.pair(vm, (mbps(90), mbps(90)), mbps(900)).rate.as_bps();
    let pairs: u64 = vms.iter().map(pair).sum();
    assert!((levels.budget().as_bps() - 10..=levels.budget().as_bps()).contains(&pairs), "{pairs}");
}

#[test]
fn external_traffic_has_a_twentieth_of_the_floor_and_gives_way_to_floors() {
    assert_eq!(rates(levels(&[vm(80)]).vm_external(&vm(80))), (4_000_000, 4_000_000));
    // 195 Mbit/s for floors.
    let full = [vm(95), vm(96)];
    let levels = levels(&full);
    let kept: u64 = full.iter().map(|vm| levels.vm_external(vm).rate.as_bps()).sum();
    assert!((3_999_990..=4_000_000).contains(&kept), "what floors leave: 4 Mbit/s, not {kept}");
    assert_eq!(levels.vm_external(&full[0]).ceil, Rate::from_bps(4_750_000), "borrowed when idle");
    assert_eq!(levels.budget(), mbps(195), "pairs pay nothing");
    let part = rates(levels.vm_external(&vm(0)));
    assert_eq!(part.1, mbps(4).split(3).as_bps(), "as traffic of none");
}

#[test]
fn external_floors_that_were_set_are_promises_like_others() {
    let external =
        |floor, ceiling| External { floor: Some(mbps(floor)), ceiling: Some(mbps(ceiling)) };
    let set = Share { external: external(20, 60), ..vm(90) };
    let one = levels(&[set]);
    assert_eq!(rates(one.vm_external(&set)), (20_000_000, 60_000_000));
    assert_eq!(one.budget(), mbps(175));
    let capped = Share { cap: Some(mbps(120)), ..set };
    assert_eq!(levels(&[capped]).vm_external(&capped).ceil, mbps(60));
    let both = [Share { external: external(20, 20), ..vm(175) }; 2];
    let two = levels(&both);
    let inner: u64 = both.iter().map(|vm| two.vm(vm).rate.as_bps()).sum();
    assert!(inner <= 200_000_000, "{inner} bit/s of inner classes on 200 Mbit/s");
    assert_eq!(rates(two.vm_external(&both[1])), (10_000_000, 20_000_000), "half of all");
    assert_eq!(two.budget(), mbps(175));
    let none = Share { external: External::NONE, ..vm(90) };
    assert_eq!(rates(levels(&[none]).vm_external(&none)), (64_000, 64_000));
    assert_eq!(levels(&[none]).budget(), mbps(195));
}

#[test]
fn a_cap_leaves_default_traffic_what_the_floor_does_not_take() {
    let tight = Share { cap: Some(mbps(90)), ..vm(90) };
    let levels = levels(&[tight]);
    assert_eq!(levels.vm(&tight).rate, levels.vm(&tight).ceil);
    assert_eq!(levels.vm_default(&tight).rate, MIN_RATE);
}

#[test]
fn while_pairs_wait_for_a_queue_a_vm_may_send_some_milliseconds_of_its_link_ahead() {
    let share = Share { floor: Rate::ZERO, cap: None, external: External::NONE };
    let moment = |rate, share: Share| Levels::new(Uplink::new(rate), &[share]).moment(&share);
    assert_eq!(moment(Rate::from_mbps(10_000), share), Bytes::new(12_500_000));
    assert_eq!(moment(Rate::from_mbps(100), share), Bytes::new(256 * 1024));
    let capped = Share { cap: Some(Rate::from_mbps(1000)), ..share };
    assert_eq!(moment(Rate::from_mbps(10_000), capped), Bytes::new(1_250_000));
}

#[test]
fn on_a_long_path_a_queue_has_room_for_twenty_milliseconds_of_its_floor_in_whole_queues() {
    let queues = |mbps| room(Rate::from_mbps(mbps)).get() / QUEUE.get();
    assert_eq!([0, 10, 104, 105, 450, 10_000].map(queues), [1, 1, 1, 2, 8, 190]);
    assert_eq!(room(Rate::MAX), Bytes::new(1 << 30));
}

#[test]
fn what_waits_is_bounded_in_time_by_half_of_a_deep_queue_and_three_quarters_of_the_usual_one() {
    let part = |octets| most_waiting(Bytes::new(octets)).get() as f64 / QUEUE.get() as f64;
    assert_eq!([1, 2, 4, 8].map(|queues| part(queues * QUEUE.get())), [0.75, 1.0, 2.0, 4.0]);
    assert_eq!(part(QUEUE.get() / 2), 0.375);
}
