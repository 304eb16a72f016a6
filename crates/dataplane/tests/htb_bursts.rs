//! A pair's burst where the machine's HTB sends by bursts. As root; no other test that shapes may
//! play meanwhile, because the setting is the machine's.

use crate::shaper_rates::{alone, bursts_no_more_than_two_packets};
use weir_dataplane::shaper::SendsByBursts;

#[test]
fn a_slow_pair_bursts_no_more_than_two_packets_where_htb_sends_by_bursts() {
    let _alone = alone();
    let _sends = SendsByBursts::set(true).unwrap();
    bursts_no_more_than_two_packets(true);
}
