//! A run sets how this machine's HTB sends, and sets it back. As root; no other test that shapes
//! may play meanwhile, because the setting is the machine's.

use crate::common::{self, alone};
use crate::hygiene::short;
use std::sync::atomic::AtomicBool;
use weir_dataplane::shaper::SendsByBursts;
use weir_lab::{Options, Phase, play};

#[test]
fn how_htb_sends_is_as_the_lab_needs_it_and_as_it_was_afterwards() {
    let _alone = alone();
    let path = "/sys/module/sch_htb/parameters/htb_hysteresis";
    let is_set = || std::fs::read_to_string(path).expect("HTB is loaded").trim() != "0";
    for found in [true, false] {
        let _host = SendsByBursts::set(found).expect("as root");
        for htb_by_bursts in [false, true] {
            let options = Options { htb_by_bursts, ..Options::new("weir") };
            let mut seen = Vec::new();
            let mut look = |frame: &weir_lab::Frame<'_>| {
                if frame.phase == Phase::Running {
                    seen.push(is_set());
                }
            };
            play(&short(), &common::none(), &options, &mut look, &AtomicBool::new(false))
                .expect("plays");
            assert!(!seen.is_empty() && seen.iter().all(|&set| set == htb_by_bursts), "{seen:?}");
            assert_eq!(is_set(), found, "as it was");
        }
    }
}
