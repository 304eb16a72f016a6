//! Marks that a guest need not see, by test run of the meter. Needs root, and fails without.

use crate::bench::{Bench, FROM_PEER, MINE, MINE6, NEIGHBOUR, NEVER, PEER, PEER6};
use crate::frame::{Packet, packet, udp};
use std::time::Duration;
use weir_dataplane::intf;
use weir_dataplane::programs::Program::Meter;

const ECT_0: u8 = 2;
const CE: u8 = 3;

/// A full frame with this ECN field, and what its guest sees of that.
fn seen(bench: &Bench, src: &str, dst: &str, ecn: u8) -> u8 {
    let sent = Packet { tos: 46 << 2 | ecn, ..packet(src, dst, 17, udp(9, 1400)) };
    let ran = bench.run(Meter, &sent.octets(), 1);
    let octets = ran.octets;
    let tos = if octets[14] >> 4 == 4 { octets[15] } else { octets[14] << 4 | octets[15] >> 4 };
    assert_eq!(octets, Packet { tos: 46 << 2 | tos & 3, ..sent }.octets(), "nothing else");
    tos & 3
}

fn with_offer(flags: u32, bps: u64) -> Bench {
    let bench = Bench::new(flags, NEVER);
    bench.0.offers.put(FROM_PEER, bps).unwrap();
    bench
}

#[test]
fn a_guest_sees_no_marks_of_a_pair_that_gets_no_more_than_its_offer_and_all_are_counted() {
    let bench = with_offer(0, 1_000_000_000);
    for n in 1..=50 {
        let (src, dst) = if n % 2 == 0 { (PEER6, MINE6) } else { (PEER, MINE) };
        assert_eq!(seen(&bench, src, dst, CE), ECT_0);
        assert_eq!((bench.rx().ce, bench.rx().segments), (n, n), "the agent sees them");
    }
    for ecn in [0, 1, ECT_0] {
        assert_eq!(seen(&bench, PEER, MINE, ecn), ecn);
    }
}

#[test]
fn a_guest_sees_the_marks_of_a_pair_that_borrows_until_it_has_paid_that_back() {
    // A frame lasts 12 ms, so that 250 ms are saved in 21.
    let bench = with_offer(0, 1_000_000);
    let spared = (0..200).take_while(|_| seen(&bench, PEER, MINE, CE) == ECT_0).count();
    assert!((20..=60).contains(&spared), "{spared}");
    assert_eq!(seen(&bench, PEER, MINE, CE), CE);
    // What it owes is 10 ms, and the frame itself.
    std::thread::sleep(Duration::from_millis(40));
    assert_eq!(seen(&bench, PEER, MINE, CE), ECT_0);
}

#[test]
fn marks_stay_without_an_offer_within_a_host_where_they_are_a_signal_and_where_nothing_is_changed()
{
    assert_eq!(seen(&Bench::new(0, NEVER), PEER, MINE, CE), CE, "no offer");
    assert_eq!(seen(&with_offer(0, 0), PEER, MINE, CE), CE, "an offer of nothing");
    let within = Bench::new(0, NEVER);
    within.0.offers.put(intf::Pair { src: 4, dst: 1 }, 1_000_000_000).unwrap();
    assert_eq!(seen(&within, NEIGHBOUR, MINE, CE), CE, "within the host");
    for flags in [intf::OBSERVE, intf::OBSERVE | intf::ECN] {
        assert_eq!(seen(&with_offer(flags, 1_000_000_000), PEER, MINE, CE), CE, "observes");
    }
    // There no guest sees any mark, nor that a packet was capable.
    assert_eq!(seen(&with_offer(intf::ECN, 1_000_000_000), PEER, MINE, CE), 0);
}
