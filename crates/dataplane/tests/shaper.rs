//! The shaper against a real kernel: what it sets is what is there, and is undone.

use crate::frame::acknowledgements;
use crate::shaper_world::*;
use std::time::{Duration, Instant};
use weir_core::classes::Overbooked;
use weir_dataplane::nl::{self, Socket, htb, link, redirect, tc};
use weir_dataplane::shaper::{
    ClassId, Error, Htb, MIN_RATE, Overbooking, PairRate, Shaper, ShaperConfig, VmShare,
    device_name, reclaim, remove,
};
use weir_units::{Bytes, PairId, Rate, VmId};

fn vms() -> [VmShare; 2] {
    [vm(VM_A, "pa", 90), vm(VM_B, "pb", 60)]
}

fn classes(shaper: &Htb) -> Vec<htb::ClassEntry> {
    htb::classes(&mut Socket::open().unwrap(), shaper.device(), 0x1_0000).unwrap()
}

/// Whether a class is one of a pair's.
fn is_pairs(class: u32) -> bool {
    (0x1_4000..0x1_e000).contains(&class)
}

/// All that could be left behind: devices, qdiscs, filters on the ports.
fn everything() -> String {
    let qdiscs = sh("tc qdisc show");
    let filters = ["pa", "pb"].map(|p| {
        let hooked = qdiscs.lines().any(|l| l.contains("clsact") && l.contains(p));
        if hooked { sh(&format!("tc filter show dev {p} ingress")) } else { String::new() }
    });
    format!("{}{qdiscs}{}", sh("ip -o link show"), filters.concat())
}

#[test]
fn the_tree_in_the_kernel_is_the_desired_one_and_a_second_pass_writes_nothing() {
    two_ports();
    let mut shaper = open("tree", 200);
    assert!(!shaper.adopted());
    let changes = shaper.apply_vms(&vms()).unwrap();
    assert_eq!((changes.created, changes.changed, changes.deleted), (13, 0, 0));

    let pairs = [pair(VM_A, 10), pair(VM_A, 11), pair(VM_B, 10)];
    let ids = shaper.add_pairs(&pairs).unwrap();
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(30, 40)), (pairs[2], mbit(50, 50))];
    assert_eq!(shaper.set(&rates).unwrap(), 3);
    assert_eq!(shaper.set(&rates).unwrap(), 0, "the same levels again");
    let mut found = shaper.read_back().unwrap();
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(found, rates);

    let there = classes(&shaper);
    let class = |id: u32| there.iter().find(|e| e.id == id).unwrap();
    let first = class(ids[0].0);
    assert_eq!(first.parent, 0x1_1000);
    assert_eq!((first.class.rate, first.class.ceil), (7_500_000, 25_000_000));
    assert_eq!((first.class.quantum, class(ids[1].0).class.quantum), (40_000, 20_000));
    assert_eq!(htb::burst_octets(first.class.burst, first.class.rate), Bytes::new(7500));
    assert_eq!((class(0x1_0001).class.rate, class(0x1_0001).class.ceil), (25_000_000, 25_000_000));
    assert_eq!(class(0x1_3000).class.prio, 0);
    // Floor, and a part of what is kept for default (4 Mbit/s in 3) and control (1 Mbit/s in 2),
    // and beside them a twentieth of the floor for places that no directory lists.
    let kept = (4_000_000 / 3 + 500_000 + 4_500_000) / 8;
    assert!(class(0x1_1000).class.rate.abs_diff(11_250_000 + kept) <= 1);

    let mut socket = Socket::open().unwrap();
    let queues = tc::qdiscs(&mut socket, Some(shaper.device())).unwrap();
    for leaf in there.iter().filter(|e| e.level == 0) {
        let queue = queues.iter().find(|q| q.parent == leaf.id).unwrap();
        if is_pairs(leaf.id) {
            assert_eq!((queue.kind.as_str(), queue.default), ("htb", Some(1)), "data by default");
            for fifo in [1, 2].map(|minor| queues.iter().find(|q| q.parent == queue.handle | minor))
            {
                assert_eq!(fifo.unwrap().limit, Some(128 * 1024));
            }
            continue;
        }
        // External traffic waits 250 ms at its ceiling: 4.5 and 3 Mbit/s.
        let limit = match leaf.id {
            0x1_e000 => 128 * 1024,
            0x1_e001 => 93_750,
            _ => 128 * 1024,
        };
        assert_eq!((queue.kind.as_str(), queue.limit), ("bfifo", Some(limit)));
    }

    let written = shaper.written();
    assert!(shaper.apply_vms(&vms()).unwrap().is_empty());
    assert_eq!(shaper.written(), written, "the second pass wrote something");
}

#[test]
fn what_somebody_else_changed_is_mended() {
    two_ports();
    let mut shaper = open("mend", 200);
    shaper.apply_vms(&vms()).unwrap();
    let id = shaper.add_pairs(&[pair(VM_A, 10)]).unwrap()[0];
    shaper.set(&[(pair(VM_A, 10), mbit(60, 200))]).unwrap();
    let before =
        classes(&shaper).into_iter().map(|e| (e.id, e.parent, e.class)).collect::<Vec<_>>();

    let device = shaper.device().name.to_string();
    let class = format!("1:{:x}", id.0 & 0xffff);
    sh(&format!("tc class change dev {device} classid {class} parent 1:1000 htb rate 1mbit"));
    sh(&format!("tc class del dev {device} classid 1:2000"));
    sh("tc filter del dev pa ingress");
    let changes = shaper.apply_vms(&vms()).unwrap();
    assert_eq!((changes.created, changes.changed, changes.deleted), (2, 1, 0));
    let mut after =
        classes(&shaper).into_iter().map(|e| (e.id, e.parent, e.class)).collect::<Vec<_>>();
    after.sort_by_key(|e| before.iter().position(|b| b.0 == e.0));
    assert_eq!(after, before);
    assert!(shaper.apply_vms(&vms()).unwrap().is_empty());
}

#[test]
fn freed_classes_are_used_again_and_the_pool_is_bounded() {
    two_ports();
    let config = ShaperConfig { max_pairs: 20, ..ShaperConfig::new("pool", Rate::from_mbps(200)) };
    let mut shaper = Htb::open(config).unwrap();
    shaper.apply_vms(&vms()).unwrap();
    let of = |vm, n: std::ops::Range<u32>| n.map(|i| pair(vm, i)).collect::<Vec<_>>();
    let pooled = |shaper: &Htb| classes(shaper).iter().filter(|e| is_pairs(e.id)).count();

    let first = shaper.add_pairs(&of(VM_A, 0..3)).unwrap();
    assert_eq!(pooled(&shaper), 8, "pools grow by eight");
    assert_eq!(shaper.add_pairs(&of(VM_A, 0..3)).unwrap(), first, "a pair keeps its queue");
    shaper.set(&[(pair(VM_A, 0), mbit(10, 50))]).unwrap();
    shaper.remove(&of(VM_A, 0..1)).unwrap();
    let freed = classes(&shaper).into_iter().find(|e| e.id == first[0].0).unwrap();
    assert_eq!(htb::rate(freed.class.ceil), MIN_RATE);
    assert!(matches!(shaper.set(&[(pair(VM_A, 0), mbit(1, 1))]), Err(Error::UnknownPair(_))));

    shaper.add_pairs(&of(VM_A, 5..11)).unwrap();
    assert_eq!(pooled(&shaper), 8, "all eight in use, none made");
    let error = shaper.add_pairs(&of(VM_B, 0..13)).unwrap_err();
    assert_eq!(error.to_string(), "no queue left for 13 more pairs: 8 of 20 are in use");
    shaper.add_pairs(&of(VM_B, 0..12)).unwrap();
    assert_eq!(pooled(&shaper), 20);
    // What one VM has given back another may take.
    shaper.remove(&of(VM_A, 5..11)).unwrap();
    shaper.add_pairs(&of(VM_B, 20..26)).unwrap();
    assert_eq!(pooled(&shaper), 20);
    assert_eq!(shaper.read_back().unwrap().len(), 20);
    assert!(shaper.apply_vms(&vms()).unwrap().is_empty());
}

#[test]
fn floors_above_their_parent_and_other_nonsense_are_refused_by_name() {
    two_ports();
    let strict = ShaperConfig {
        overbooking: Overbooking::Refuse,
        ..ShaperConfig::new("refuse", Rate::from_mbps(200))
    };
    let mut shaper = Htb::open(strict).unwrap();
    let refused = |result: Result<_, Error>| result.map(|_: ()| ()).unwrap_err().to_string();
    let mut apply = |vms: &[VmShare]| refused(shaper.apply_vms(vms).map(|_| ()));
    assert_eq!(
        apply(&[vm(VM_A, "pa", 100), vm(VM_B, "pb", 100)]),
        "floors under the uplink sum to 200 Mb/s, above its 195 Mb/s: lower some of them"
    );
    assert_eq!(apply(&[vm(VM_A, "px", 1)]), "vm1: there is no port `px`");
    assert_eq!(apply(&[vm(VM_A, "pa", 1), vm(VM_A, "pb", 1)]), "vm1 is given twice");
    let capped = VmShare { cap: Some(Rate::from_mbps(50)), ..vm(VM_A, "pa", 90) };
    assert_eq!(apply(&[capped]), "vm1 on port `pa`: ceiling 50 Mb/s is below floor 90 Mb/s");

    shaper.apply_vms(&vms()).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11)];
    shaper.add_pairs(&pairs).unwrap();
    let mut set = |a, b| refused(shaper.set(&[(pairs[0], a), (pairs[1], b)]).map(|_| ()));
    assert_eq!(
        set(mbit(50, 60), mbit(50, 60)),
        "floors under vm1 sum to 100 Mb/s, above its 90 Mb/s: lower some of them"
    );
    assert_eq!(
        set(mbit(50, 60), mbit(30, 20)),
        "pair vm1→vm11: ceiling 20 Mb/s is below floor 30 Mb/s"
    );
    assert_eq!(
        refused(shaper.add_pairs(&[pair(VmId(9), 1)]).map(|_| ())),
        "vm9 is not a VM of this host"
    );
    // Nothing of a refused batch was taken over.
    assert_eq!(shaper.set(&[(pairs[0], mbit(40, 60)), (pairs[1], mbit(50, 60))]).unwrap(), 2);
}

#[test]
fn an_overbooked_uplink_scales_floors_to_fit_and_says_by_how_much() {
    two_ports();
    let mut shaper = open("over", 200);
    shaper.apply_vms(&[vm(VM_A, "pa", 180), vm(VM_B, "pb", 180)]).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_B, 11)];
    shaper.add_pairs(&pairs).unwrap();
    shaper.set(&[(pairs[0], mbit(180, 200))]).unwrap();
    assert_eq!(shaper.overbooked(), None);
    assert_eq!(shaper.set(&[(pairs[1], mbit(180, 200))]).unwrap(), 2, "the other changes too");
    let (floors, budget) = (Rate::from_mbps(360), Rate::from_mbps(195));
    assert_eq!(shaper.overbooked(), Some(Overbooked { floors, budget }));
    for (_, rate) in shaper.read_back().unwrap() {
        assert_eq!(rate.floor, Rate::from_bps(97_500_000));
    }
    shaper.remove(&pairs[1..]).unwrap();
    assert_eq!(shaper.read_back().unwrap(), [(pairs[0], mbit(180, 200))]);
}

#[test]
fn a_guardian_takes_back_what_was_borrowed_and_leaves_floors() {
    two_ports();
    let mut shaper = open("lease", 200);
    shaper.apply_vms(&vms()).unwrap();
    let pairs = [pair(VM_A, 10), pair(VM_A, 11), pair(VM_B, 10)];
    shaper.add_pairs(&pairs).unwrap();
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(30, 30)), (pairs[2], mbit(50, 80))];
    shaper.set(&rates).unwrap();
    let device = shaper.device().name.to_string();
    let others = |s: &Htb| {
        let all = classes(s).into_iter().filter(|e| e.id < 0x1_4000);
        all.map(|e| (e.id, e.class)).collect::<Vec<_>>()
    };
    let before = others(&shaper);

    assert_eq!(reclaim(&device).unwrap(), 2);
    assert_eq!(reclaim(&device).unwrap(), 0);
    let mut found = shaper.read_back().unwrap();
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(
        found,
        [(pairs[0], mbit(60, 60)), (pairs[1], mbit(30, 30)), (pairs[2], mbit(50, 50))]
    );
    assert_eq!(others(&shaper), before, "shares and default queues stand");

    // An agent that only slept must look again before it finds "no difference".
    shaper.refresh().unwrap();
    assert_eq!(shaper.set(&rates).unwrap(), 2);
    assert_eq!(reclaim("weir-nothing").unwrap(), 0);
}

#[test]
fn a_successor_adopts_what_a_dead_agent_left_and_changes_only_what_differs() {
    two_ports();
    let pairs = [pair(VM_A, 10), pair(VM_B, 10), pair(VM_B, 11)];
    let rates = [(pairs[0], mbit(60, 200)), (pairs[1], mbit(50, 80)), (pairs[2], mbit(5, 6))];
    let mut first = open("adopt", 200);
    first.apply_vms(&vms()).unwrap();
    let ids = first.add_pairs(&pairs).unwrap();
    first.set(&rates).unwrap();
    let (index, left) = (first.device().index, classes(&first).len());
    drop(first);

    // The directory was sorted anew: other numbers for the same ports, in another order.
    let (a, b) = (VmId(31), VmId(30));
    let again = [vm(b, "pb", 60), vm(a, "pa", 90)];
    let mut second = open("adopt", 200);
    assert!(second.adopted());
    assert_eq!(second.device().index, index);
    assert!(second.apply_vms(&again).unwrap().is_empty(), "nothing differs");
    assert_eq!(second.written(), 0);

    let renamed = [pair(a, 10), pair(b, 10), pair(b, 99)];
    let claims = [(renamed[0], ids[0]), (renamed[1], ids[1]), (renamed[2], ClassId(0x1_7777))];
    assert_eq!(second.claim(&claims).unwrap(), [renamed[2]], "no such queue");
    assert_eq!(classes(&second).len(), left);
    assert_eq!(second.set(&[(renamed[0], rates[0].1), (renamed[1], rates[1].1)]).unwrap(), 0);
    // What was not claimed is pool: of the smallest rate.
    let unclaimed = classes(&second).into_iter().find(|e| e.id == ids[2].0).unwrap();
    assert_eq!(htb::rate(unclaimed.class.ceil), MIN_RATE);
    second.add_pairs(&[renamed[2]]).unwrap();
    assert_eq!(classes(&second).len(), left);

    // A VM that is gone takes its classes and its redirection along.
    let changes = second.apply_vms(&again[1..]).unwrap();
    assert_eq!(changes.deleted, 1 + 4 + 8);
    assert_eq!(sh("tc qdisc show dev pb").matches("clsact").count(), 0);
    assert_eq!(second.read_back().unwrap(), [(renamed[0], rates[0].1)]);
}

#[test]
fn closing_restores_devices_and_qdiscs_exactly() {
    two_ports();
    // One port has a clsact qdisc and a foreign filter: both stay.
    sh("tc qdisc add dev pb clsact");
    sh("tc filter add dev pb ingress prio 7 protocol ip u32 match u32 0 0 flowid 1:1");
    let before = everything();
    let mut shaper = open("close", 200);
    shaper.apply_vms(&vms()).unwrap();
    shaper.add_pairs(&[pair(VM_A, 1)]).unwrap();
    assert_ne!(everything(), before);
    Box::new(shaper).close().unwrap();
    assert_eq!(everything(), before);

    // The same without the agent that did it, and with a filter that came later.
    let mut shaper = open("close", 200);
    shaper.apply_vms(&vms()).unwrap();
    drop(shaper);
    sh("tc filter add dev pa egress prio 7 protocol ip u32 match u32 0 0 flowid 1:1");
    let foreign = sh("tc filter show dev pa egress");
    assert!(remove("close").unwrap());
    assert!(!remove("close").unwrap(), "nothing left to remove");
    assert_eq!(sh("tc filter show dev pa egress"), foreign, "not ours to remove");
    assert_eq!(sh("tc filter show dev pa ingress"), "");
    sh("tc qdisc del dev pa clsact");
    assert_eq!(everything(), before);
}

#[test]
fn what_belongs_to_somebody_else_is_not_touched() {
    two_ports();
    let name = device_name("foreign");
    sh(&format!("ip link add {name} type ifb"));
    let refused = |config| Htb::open(config).err().unwrap().to_string();
    let config = || ShaperConfig::new("foreign", Rate::from_mbps(200));
    assert_eq!(
        refused(config()),
        format!(
            "device {name} exists already and does not belong to this agent: \
             rename it, or give this agent another instance name"
        )
    );
    sh(&format!("ip link del {name}"));

    let mut other = open("other", 200);
    other.apply_vms(&vms()).unwrap();
    let mut shaper = Htb::open(config()).unwrap();
    let error = shaper.apply_vms(&vms()).unwrap_err().to_string();
    assert!(error.starts_with("a redirection of port pa exists already"), "{error}");
    Box::new(shaper).close().unwrap();
    assert!(other.apply_vms(&vms()).unwrap().is_empty(), "the other one's is untouched");
}

#[test]
fn an_error_names_the_object_the_reason_and_the_kernels_words() {
    two_ports();
    let mut socket = Socket::open().unwrap();
    let device = link::get(&mut socket, "pa").unwrap().unwrap().device;
    let mut batch = nl::Batch::new();
    let class = htb::Class { rate: 1000, ceil: 1000, ..htb::Class::default() };
    batch.add_htb(&device, 0x1_0000, 2);
    batch.set_class(&device, nl::Verb::Change, 0x1_0000, 0x1_4000, &class);
    batch.set_class(&device, nl::Verb::Create, 0x1_0000, 0x1_0001, &class);
    let error = socket.send(&batch).unwrap_err().to_string();
    assert_eq!(error, "cannot change class 1:4000 of pa: No such file or directory (os error 2)");
    // What came behind it in the same send was tried all the same, and the socket stays in step.
    assert_eq!(htb::classes(&mut socket, &device, 0x1_0000).unwrap().len(), 1);

    let mut batch = nl::Batch::new();
    batch.add_clsact(&device);
    batch.add_clsact(&device);
    let error = socket.send(&batch).unwrap_err();
    assert!(error.is_present());
    assert_eq!(
        error.to_string(),
        "cannot create clsact qdisc of pa: File exists (os error 17) \
         (kernel: Exclusivity flag on, cannot modify)"
    );
    assert!(link::get(&mut socket, "nothing").unwrap().is_none());
    let bad = link::get(&mut socket, "no/name").unwrap_err();
    assert!(bad.to_string().contains("`no/name` is no name of a network device"));
}

#[test]
fn a_pair_is_not_left_beside_the_tree_when_its_vms_class_has_vanished() {
    two_ports();
    let mut shaper = open("lost", 200);
    shaper.apply_vms(&vms()).unwrap();
    for class in ["1:e000", "1:2000", "1:3000", "1:1000"] {
        sh(&format!("tc class del dev {} classid {class}", shaper.device()));
    }
    // The kernel takes an unknown parent for the root, and says nothing.
    let error = shaper.add_pairs(&[pair(VM_A, 1)]).unwrap_err().to_string();
    assert!(error.contains("was set but reads back differently"), "{error}");
    shaper.apply_vms(&vms()).unwrap();
    shaper.add_pairs(&[pair(VM_A, 1)]).unwrap();
    assert!(classes(&shaper).iter().filter(|e| is_pairs(e.id)).all(|e| e.parent == 0x1_1000));
}

#[test]
fn a_thousand_messages_are_all_answered() {
    two_ports();
    let mut shaper = open("many", 10_000);
    shaper.apply_vms(&[vm(VM_A, "pa", 5000)]).unwrap();
    let pairs: Vec<PairId> = (0..1000).map(|i| pair(VM_A, i)).collect();
    shaper.add_pairs(&pairs).unwrap();
    for mbps in [1, 2] {
        let rates: Vec<_> = pairs.iter().map(|p| (*p, mbit(mbps, 100))).collect();
        assert_eq!(shaper.set(&rates).unwrap(), 1000);
        let found = shaper.read_back().unwrap();
        assert_eq!(found.len(), 1000);
        assert!(found.iter().all(|(_, rate)| *rate == mbit(mbps, 100)));
    }
    let fast = PairRate { floor: Rate::ZERO, ceiling: Rate::MAX };
    shaper.set(&[(pairs[0], fast)]).unwrap();
    let found = shaper.read_back().unwrap();
    let first = found.iter().find(|(id, _)| *id == pairs[0]).unwrap().1;
    assert_eq!(first, PairRate { floor: Rate::ZERO, ceiling: Rate::from_mbps(10_000) });
}

#[test]
fn rates_beyond_32_bits_survive() {
    two_ports();
    let mut shaper = open("wide", 400_000);
    shaper.apply_vms(&[vm(VM_A, "pa", 100_000)]).unwrap();
    shaper.add_pairs(&[pair(VM_A, 1)]).unwrap();
    shaper.set(&[(pair(VM_A, 1), mbit(100_000, 400_000))]).unwrap();
    assert_eq!(shaper.read_back().unwrap(), [(pair(VM_A, 1), mbit(100_000, 400_000))]);
}

#[test]
fn our_messages_make_the_kernel_hold_what_those_of_tc_do() {
    two_ports();
    let mut socket = Socket::open().unwrap();
    let device = |socket: &mut Socket, name| link::get(socket, name).unwrap().unwrap().device;
    let (ours, theirs) = (device(&mut socket, "pa"), device(&mut socket, "pb"));
    sh("tc qdisc add dev pb root handle 1: htb default 0x2");
    sh("tc class add dev pb parent 1: classid 1:1 htb rate 200mbit ceil 400gbit burst 25000 \
        cburst 64k quantum 20000 prio 1");
    sh("tc qdisc add dev pb parent 1:1 handle 4000: bfifo limit 128k");
    sh("tc qdisc add dev pb clsact");
    sh("tc filter add dev pb ingress prio 4000 protocol all u32 match u32 0 0 \
        action mirred egress redirect dev lo");
    let wanted = htb::classes(&mut socket, &theirs, 0x1_0000).unwrap().remove(0);
    assert_eq!(wanted.class.ceil, 50_000_000_000);
    // tc stores a burst as ticks at the class's rate, rounded its own way.
    let octets = htb::burst_octets(wanted.class.burst, wanted.class.rate).get();
    assert!(octets.abs_diff(25_000) <= 2, "{octets}");

    let mut batch = nl::Batch::new();
    batch.add_htb(&ours, 0x1_0000, 2);
    batch.set_class(&ours, nl::Verb::Create, 0x1_0000, 0x1_0001, &wanted.class);
    batch.set_bfifo(&ours, 0x1_0001, 0x4000_0000, Bytes::new(128 * 1024));
    batch.add_clsact(&ours);
    let lo = link::get(&mut socket, "lo").unwrap().unwrap().device;
    batch.add_redirect(&ours, lo.index, *b"0123456789abcdef");
    socket.send(&batch).unwrap();
    let found = htb::classes(&mut socket, &ours, 0x1_0000).unwrap().remove(0);
    assert_eq!((found.class, found.parent, found.leaf), (wanted.class, wanted.parent, wanted.leaf));

    for show in ["qdisc show dev", "-d class show dev", "filter show ingress dev"] {
        let lines = |port: &str| {
            let text = sh(&format!("tc {show} {port}"));
            let same = |l: &&str| !l.contains("cookie") && !l.contains("index");
            text.lines().filter(same).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(lines("pa"), lines("pb"), "tc {show}");
    }
    let filters = redirect::filters(&mut socket, &ours, redirect::INGRESS).unwrap();
    let redirects: Vec<_> = filters.into_iter().filter_map(|f| f.redirect).collect();
    assert_eq!(redirects, [(lo.index, b"0123456789abcdef".to_vec())]);
}

#[test]
fn only_acknowledgements_and_what_is_as_small_pass_a_pairs_data() {
    const V4: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
    const V6: [&str; 2] = ["fd00::1", "fd00::2"];
    two_ports();
    let guest = link::get(&mut Socket::open().unwrap(), "pa-vm").unwrap().unwrap().device;
    let mut port = std::fs::File::from(weir_dataplane::frames::open(guest.index).unwrap());
    let mut shaper = open("acks", 200);
    shaper.apply_vms(&[vm(VM_A, "pa", 90)]).unwrap();
    let class = shaper.add_pairs(&[pair(VM_A, 10)]).unwrap()[0];
    shaper.set(&[(pair(VM_A, 10), mbit(90, 90))]).unwrap();
    let device = shaper.device().name.to_string();
    let flow = format!("flowid 1:{:x}", class.0 & 0xffff);
    sh(&format!("tc filter add dev {device} parent 1: protocol all u32 match u32 0 0 {flow}"));
    let queue = (class.0 & 0xffff) << 16;
    let counts = || {
        let all = htb::classes(&mut Socket::open().unwrap(), shaper.device(), queue).unwrap();
        let count = |minor: u32| all.iter().find(|c| c.id == queue | minor).unwrap();
        (count(1).stats.packets, count(2).stats.packets)
    };
    for (name, is_ack, frame) in acknowledgements(V4, V6) {
        let (data, acks) = counts();
        std::io::Write::write_all(&mut port, &frame.octets()).unwrap();
        let wanted = (data + u64::from(!is_ack), acks + u64::from(is_ack));
        let begun = Instant::now();
        while counts() == (data, acks) && begun.elapsed() < Duration::from_secs(5) {}
        assert_eq!(counts(), wanted, "what {name}");
    }
    Box::new(shaper).close().unwrap();
}

#[test]
fn the_queue_of_an_earlier_version_is_made_anew() {
    two_ports();
    let mut shaper = open("earlier", 200);
    shaper.apply_vms(&vms()).unwrap();
    let class = shaper.add_pairs(&[pair(VM_A, 10)]).unwrap()[0];
    shaper.set(&[(pair(VM_A, 10), mbit(60, 200))]).unwrap();
    let device = shaper.device().name.to_string();
    drop(shaper);
    // Versions before had a fifo there.
    let minor = format!("{:x}", class.0 & 0xffff);
    sh(&format!("tc qdisc del dev {device} parent 1:{minor}"));
    sh(&format!("tc qdisc add dev {device} parent 1:{minor} handle {minor}: bfifo limit 128k"));
    let mut successor = open("earlier", 200);
    assert!(successor.adopted());
    let changes = successor.apply_vms(&vms()).unwrap();
    assert_eq!((changes.created, changes.changed, changes.deleted), (0, 1, 0));
    assert_eq!(successor.claim(&[(pair(VM_A, 10), class)]).unwrap(), []);
    let queues = tc::qdiscs(&mut Socket::open().unwrap(), Some(successor.device())).unwrap();
    let queue = queues.iter().find(|queue| queue.parent == class.0).unwrap();
    assert_eq!((queue.kind.as_str(), queue.handle), ("htb", (class.0 & 0xffff) << 16));
    assert!(successor.apply_vms(&vms()).unwrap().is_empty());
    Box::new(successor).close().unwrap();
}
