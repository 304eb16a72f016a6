//! IPv6, and what is outside: packets arrive, and their headers are counted. As root.

use crate::common::{alone, dumbbell, flow, mechanism, none, tcp, udp, weir};
use std::sync::atomic::AtomicBool;
use weir_lab::{Options, play};
use weir_model::observed::Observed;
use weir_model::scenario::{IpVersion, Scenario, TrafficKind};
use weir_units::{Bytes, Rate, Span};

fn played(scenario: &Scenario) -> Observed {
    let _alone = alone();
    play(scenario, &none(), &Options::new("weir"), &mut |_| {}, &AtomicBool::new(false))
        .expect("plays; these tests need root")
}

/// Mean goodput after the warm-up, in Mb/s.
fn goodput(scenario: &Scenario, record: &Observed, flow: usize) -> f64 {
    let skip = scenario.warmup.div_span(record.sample) as usize;
    let series = &record.flows[flow].octets[skip..];
    let seconds = record.sample.as_secs_f64() * series.len() as f64;
    series.iter().sum::<u64>() as f64 * 8.0 / seconds / 1e6
}

#[test]
fn tcp_and_udp_flow_over_ipv6_beside_ipv4() {
    let mut scenario = dumbbell(2, 2, 100);
    flow(&mut scenario, 0, 2, tcp(1));
    flow(&mut scenario, 1, 3, udp(20.0));
    flow(&mut scenario, 1, 3, udp(20.0));
    scenario.traffic[0].ip = IpVersion::V6;
    scenario.traffic[1].ip = IpVersion::V6;
    if let TrafficKind::Udp { payload, .. } = &mut scenario.traffic[1].kind {
        *payload = Bytes::new(1452);
    }
    let record = played(&scenario);
    let got: Vec<f64> = (0..3).map(|f| goodput(&scenario, &record, f)).collect();
    // Both offer the same on the wire (less on a busy machine), of which the larger header is no
    // payload; the rest is for TCP.
    let ratio = got[1] / got[2];
    assert!((ratio / (1452.0 / 1472.0) - 1.0).abs() < 0.03, "{got:?} {:?}", record.notes);
    assert!((30.0..75.0).contains(&got[0]), "{got:?} {:?}", record.notes);
}

/// Without marks, losses of IPv6 do not show: a pair has its floor and borrows nothing. Without a
/// mechanism the UDP, which offers the whole link, would leave TCP next to nothing.
#[test]
fn floors_hold_over_ipv6_under_elasticswitch_and_nothing_is_borrowed() {
    let mut scenario = dumbbell(2, 2, 100);
    scenario.duration = Span::from_secs(6);
    scenario.warmup = Span::from_secs(3);
    for vm in &mut scenario.vms {
        (vm.floor_in, vm.floor_out) = (Rate::from_mbps(45), Rate::from_mbps(45));
    }
    flow(&mut scenario, 0, 2, tcp(1));
    flow(&mut scenario, 1, 3, udp(100.0));
    for traffic in &mut scenario.traffic {
        traffic.ip = IpVersion::V6;
    }
    if let TrafficKind::Udp { payload, .. } = &mut scenario.traffic[1].kind {
        *payload = Bytes::new(1452);
    }
    let steady = mechanism("elasticswitch", "steady");
    let _alone = alone();
    // A machine that was disturbed measures that, and is given another chance; a calm one is not.
    for attempt in 1.. {
        let record =
            play(&scenario, &steady, &Options::new(weir()), &mut |_| {}, &AtomicBool::new(false))
                .expect("plays; these tests need root");
        let of_floor = |f: usize, share: f64| goodput(&scenario, &record, f) / (45.0 * share);
        let got = [of_floor(0, 1428.0 / 1514.0), of_floor(1, 1452.0 / 1514.0)];
        if got.iter().all(|ratio| (0.95..1.05).contains(ratio)) {
            break;
        }
        let notes = &record.notes;
        match disturbance(&record) {
            Some(why) if attempt < 3 => println!("{got:?} of their floors, but {why}: again"),
            why => panic!("{got:?} of their floors; disturbed: {why:?}; {notes:?}"),
        }
    }
}

/// Why a run says nothing of what was played, as far as this machine knows: the bounds by which
/// runs of the lab are judged.
fn disturbance(record: &Observed) -> Option<String> {
    let samples = record.idle.len();
    let saturated = record.idle.iter().filter(|&&idle| idle < 0.05).count();
    let stolen = record.stolen.iter().filter(|&&share| share >= 0.10).count();
    (saturated * 10 > samples || stolen > 0).then(|| {
        format!(
            "of {samples} samples a CPU was under 5 % idle in {saturated}, and the machine below took \
             10 % of one or more in {stolen}"
        )
    })
}

#[test]
fn the_outside_is_reached_at_an_address_of_its_prefix() {
    let mut scenario = dumbbell(2, 1, 100);
    for (vm, prefix) in [(0, "0.0.0.0/0"), (1, "2001:db8:7::/48")] {
        scenario.vms[vm].outside = vec![prefix.parse().expect("a prefix")];
    }
    flow(&mut scenario, 0, 2, udp(10.0));
    flow(&mut scenario, 2, 1, tcp(1));
    scenario.traffic[1].ip = IpVersion::V6;
    let record = played(&scenario);
    assert!(goodput(&scenario, &record, 0) > 5.0, "from outside: {:?}", record.notes);
    assert!(goodput(&scenario, &record, 1) > 30.0, "to the outside: {:?}", record.notes);
}
