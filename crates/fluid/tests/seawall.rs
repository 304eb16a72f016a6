//! Seawall: shares by senders, no floors. What ElasticSwitch is measured against (ElasticSwitch §7.2).

use weir_core::elasticswitch::ElasticSwitch;
use weir_fluid::{PairSpec, World};
use weir_units::{Rate, Span};

const LINK: Rate = Rate::from_mbps(1000);
const FLOOR: Rate = Rate::from_mbps(450);

#[test]
fn a_link_is_shared_by_senders_whatever_their_hoses() {
    for n in [1, 10, 50] {
        let mut pairs = vec![PairSpec::alone(FLOOR)];
        for i in 0..n {
            // The others' hoses are a tenth; Seawall does not look.
            let destination = (i > 0).then_some(1);
            pairs.push(PairSpec { destination, ..PairSpec::alone(FLOOR.split(10)) });
        }
        let world = World::new(LINK, ElasticSwitch::seawall(), pairs);
        let got = world.play(Span::from_secs(30), Span::from_secs(10));
        let fair = got.carried / (n + 1) as f64;
        let share = got.rates[0] / fair;
        assert!((0.7..1.3).contains(&share), "{n}: {share:.2} of an equal share");
        assert!(got.carried >= 0.7 * LINK.as_f64(), "{n}: the link carries {:.0}", got.carried);
    }
}

#[test]
fn a_sender_with_many_destinations_gets_no_more_than_one_with_one() {
    let mut pairs = vec![PairSpec::alone(FLOOR)];
    for i in 0..10 {
        let source = (i > 0).then_some(1);
        pairs.push(PairSpec { source, ..PairSpec::alone(FLOOR) });
    }
    let got = World::new(LINK, ElasticSwitch::seawall(), pairs)
        .play(Span::from_secs(30), Span::from_secs(10));
    let many: f64 = got.rates[1..].iter().sum();
    let ratio = many / got.rates[0];
    assert!((0.7..1.4).contains(&ratio), "{ratio:.2} times as much through ten as through one");
}
