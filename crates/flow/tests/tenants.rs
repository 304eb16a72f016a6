//! A small datacenter of tenants: what QShare's queues are worth, and that it is the same each time.

use weir_flow::tenants::{Numbers, Site, Watch, play};
use weir_model::scenario::{Datacenter, DatacenterFile};
use weir_units::Time;

/// Time stands still.
struct Still {
    /// Calls until it has seen enough.
    patience: u32,
}

impl Watch for Still {
    fn now(&mut self) -> Time {
        Time::ZERO
    }

    fn goes_on(&mut self, part: f64) -> bool {
        assert!((0.0..=1.0).contains(&part), "{part}");
        self.patience = self.patience.saturating_sub(1);
        self.patience > 0
    }
}

/// A fat tree of 16 hosts with 40 slots, whose tenants have ten VMs in the mean, half of each on one host
/// at most.
fn small(sets: &[(&str, &str)]) -> Datacenter {
    let text = "apiVersion: weir/v1alpha1\nkind: Datacenter\nmetadata: {title: small}\n\
        spec: {k: 4, slots: 40, host_rate: 4Gbit, port_rate: 16Gbit, vms: 10, survival: 0.5, weights: 100}\n";
    let sets: Vec<(String, String)> =
        sets.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    DatacenterFile::parse(text, &sets).unwrap().points()[0].clone()
}

fn run(sets: &[(&str, &str)], seed: u64) -> Numbers {
    play(&small(sets), seed, &mut Still { patience: u32::MAX }).expect("nothing ends it")
}

#[test]
fn same_seed_same_numbers_and_another_seed_others() {
    let all = |seed| run(&[("deviations", "20"), ("change", "0.3")], seed);
    assert_eq!(all(1), all(1));
    assert_ne!(all(1), all(2));
    assert_eq!(run(&[("load", "0.5")], 3), run(&[("load", "0.5")], 3));
}

#[test]
fn every_port_is_in_one_column_of_the_table_and_what_is_full_is_full() {
    let numbers = run(&[], 1);
    let sum = numbers["ports_below_9"] + numbers["ports_9_to_12"] + numbers["ports_above_12"];
    assert!((sum - 1.0).abs() < 1e-12, "{numbers:?}");
    assert!(numbers["slots_used"] > 0.5 && numbers["tenants"] > 10.0, "{numbers:?}");
    let of = small(&[]);
    let site = Site::filled(&of, 1, &mut Still { patience: u32::MAX }).unwrap();
    site.ledger.audit().unwrap();
    assert_eq!(site.tenants.len() as f64, numbers["tenants"]);
    assert_eq!(site.ledger.tenants().count(), site.tenants.len());
}

#[test]
fn floors_hold_whatever_the_queues_and_a_reservation_gains_nothing() {
    for queues in ["0", "2", "3", "5", "8"] {
        for inactive in ["0", "0.5", "0.9"] {
            for seed in 1..4 {
                let numbers =
                    run(&[("queues", queues), ("inactive", inactive), ("change", "0.5")], seed);
                // Rates are whole bits per second in the ledger.
                assert!(
                    numbers["tenant_floor_ratio"] > 1.0 - 1e-6,
                    "{queues}, {inactive}: {numbers:?}"
                );
                if queues == "0" {
                    assert_eq!((numbers["gain_mean"], numbers["links_full"]), (1.0, 0.0));
                    assert_eq!(numbers["codepoints_used"], 0.0);
                }
            }
        }
    }
}

#[test]
fn more_queues_and_more_idle_tenants_are_worth_more() {
    let gain = |queues, inactive| {
        let of = |seed| run(&[("queues", queues), ("inactive", inactive)], seed)["gain_mean"];
        (1..6).map(of).sum::<f64>()
    };
    assert!(gain("0", "0.5") < gain("3", "0.5"));
    assert!(gain("3", "0.5") < gain("8", "0.5"));
    assert!(gain("8", "0") < gain("8", "0.5"));
    assert!(gain("8", "0.5") < gain("8", "0.8"));
}

#[test]
fn those_who_have_a_queue_in_every_interval_are_no_more_than_those_who_ever_have() {
    let numbers = run(&[("greedy", "false"), ("inactive", "0"), ("change", "1")], 2);
    let [always, now, ever] =
        ["tenants_always", "tenants_dedicated", "tenants_ever"].map(|name| numbers[name]);
    assert!(always <= now && now <= ever && ever <= 1.0, "{numbers:?}");
    assert!(numbers["codepoints_used"] >= 1.0 && numbers["codepoints_used"] <= 63.0);
}

#[test]
fn a_quiet_datacenter_has_a_queue_for_every_tenant_all_its_life() {
    let quiet = run(&[("load", "0.1"), ("lifetimes", "5")], 1);
    assert_eq!(quiet["tenants_permanent"], 1.0, "{quiet:?}");
    assert!((0.05..0.15).contains(&quiet["slots_used"]), "{quiet:?}");
    let busy = run(&[("load", "1.5"), ("lifetimes", "5"), ("queues", "3")], 1);
    assert!(busy["tenants_permanent"] < 1.0 && busy["tenants_refused"] > 0.0, "{busy:?}");
}

#[test]
fn whoever_asks_for_less_wins_no_queue_and_whoever_asks_for_more_may_be_refused() {
    // With weights as fine as floors a queue is won by the score alone.
    let tries = |asks, seed| {
        let sets = [("asks", asks), ("deviations", "30"), ("queues", "3"), ("weights", "1000")];
        run(&[&sets[..], &[("greedy", "false"), ("inactive", "0"), ("change", "1")]].concat(), seed)
    };
    let mut lost = 0.0;
    for seed in 1..4 {
        for asks in ["0.2", "0.5", "0.9"] {
            let numbers = tries(asks, seed);
            assert_eq!((numbers["lies_won"], numbers["lies_refused"]), (0.0, 0.0), "{numbers:?}");
            lost += numbers["lies_lost"];
        }
        assert!(tries("5", seed)["lies_refused"] > 0.0);
    }
    assert!(lost > 0.0, "asking for less costs some their queue");
}

#[test]
fn liars_are_told_from_honest_tenants() {
    let numbers = run(&[("liars", "0.3"), ("asks", "0.5"), ("inactive", "0")], 1);
    assert!(numbers.contains_key("of_need_liars") && numbers.contains_key("dedicated_liars"));
    let honest = run(&[("inactive", "0")], 1);
    assert!(!honest.contains_key("of_need_liars") && honest.contains_key("of_need_honest"));
}

#[test]
fn whoever_watches_can_end_it() {
    for sets in [&[][..], &[("load", "0.5")]] {
        assert_eq!(play(&small(sets), 1, &mut Still { patience: 10 }), None);
    }
}
