//! Objects become a network, and places words.

use super::network::{Names, Network, Seen};
use super::{tell, *};
use crate::state::{Stored, nic_of};
use serde_json::{Value, json};
use weir_core::binding::Why;
use weir_core::binding::switch::{Abilities, PortAbilities, PortName, SwitchConfig};
use weir_core::ledger::{Direction, LinkId};
use weir_model::objects::{API_VERSION, Object};
use weir_switch::Found;
use weir_units::{Rate, SortedMap, SortedSet};

fn stored(kind: &str, name: &str, spec: Value) -> Arc<Stored> {
    let document =
        json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    Arc::new(Stored::of(Object::read(document).expect("sound")))
}

/// Two racks of one host each below one switch. Only the racks are described, and the spine.
fn cloud(more: &[Arc<Stored>]) -> Vec<Arc<Stored>> {
    let mut all =
        vec![stored("Topology", "default", json!({"queues": {"codePoints": [10, 12, 46]}}))];
    for rack in 0..2 {
        let (host, switch, link) = (format!("h{rack}"), format!("rack{rack}"), format!("up{rack}"));
        let spec = json!({"switch": switch, "rate": "1Gbit", "slots": 9});
        all.push(stored("Host", &host, spec));
        let spec = json!({"lower": switch, "upper": "spine", "rate": "10Gbit"});
        all.push(stored("Link", &link, spec));
        let ports = json!([{"name": "down", "host": host}, {"name": "up", "link": link}]);
        all.push(stored("Switch", &switch, json!({"driver": "linux-tc", "ports": ports})));
    }
    let ports = json!([{"name": "e0", "link": "up0"}, {"name": "e1", "link": "up1"}]);
    let spine = json!({"driver": "sonic", "address": "redis://192.0.2.1:6379", "ports": ports,
        "free": [1, 3, 4], "reservedCodePoints": [46]});
    all.push(stored("Switch", "spine", spine));
    all.retain(|one| !more.iter().any(|other| other.object.name() == one.object.name()));
    all.extend(more.iter().cloned());
    all
}

fn of(objects: &[Arc<Stored>], names: &mut Names, seen: &SortedMap<String, Seen>) -> Network {
    Network::of(objects, names, seen, &SortedSet::new()).expect("queues are wanted")
}

fn queues(network: &Network, names: &Names, link: &str) -> u8 {
    network.config.fabric.links[names.links.known(link).expect("known") as usize].queues
}

#[test]
fn a_link_has_the_queues_of_its_poorest_port_and_none_where_an_end_is_not_described() {
    let mut names = Names::default();
    let network = of(&cloud(&[]), &mut names, &SortedMap::new());
    assert_eq!(network.is_bound, Ok(()));
    // A host's link needs one port, a cable two; the spine has three free queues.
    assert_eq!(queues(&network, &names, &nic_of("h0")), 8);
    assert_eq!(queues(&network, &names, "up0"), 3);
    let fabric = &network.config.fabric;
    assert_eq!(fabric.codepoints, [10, 12], "one is reserved, and there are classes for two");
    assert_eq!(fabric.most_weight.get(), 15, "the least of all switches");
    let up = LinkId(names.links.known("up0").expect("known"));
    let rack = SwitchId(names.switches.known("rack0").expect("known"));
    let spine = SwitchId(names.switches.known("spine").expect("known"));
    let port = |direction| network.config.ports[&(up, direction)].clone();
    assert_eq!(port(Direction::Forward), (rack, PortName::from("up")));
    assert_eq!(port(Direction::Backward), (spine, PortName::from("e0")));
    let free: Vec<u8> =
        network.config.switches[&spine].ports[&PortName::from("e0")].free().collect();
    assert_eq!(free, [1, 3, 4]);
    // Those that others provisioned, one for each code point, and the shared one.
    let fixed = json!({"queues": {"codePoints": [10, 12], "mode": "static", "sharedWeight": 2}});
    let fixed = of(&cloud(&[stored("Topology", "default", fixed)]), &mut names, &SortedMap::new());
    assert_eq!(queues(&fixed, &names, &nic_of("h0")), 3);
    // Without the spine's object.
    let mut less = cloud(&[]);
    less.retain(|one| one.object.name() != "spine");
    let network = of(&less, &mut names, &SortedMap::new());
    assert_eq!((queues(&network, &names, "up0"), queues(&network, &names, &nic_of("h0"))), (0, 8));
}

#[test]
fn numbers_stay_with_their_names_when_others_come_and_go() {
    let mut names = Names::default();
    let before = of(&cloud(&[]), &mut names, &SortedMap::new());
    let up = names.links.known("up1").expect("known");
    let spec = json!({"switch": "rack0", "rate": "1Gbit", "slots": 9});
    let mut more = cloud(&[stored("Host", "a-first-one", spec)]);
    more.retain(|one| one.object.name() != "up0");
    let after = of(&more, &mut names, &SortedMap::new());
    assert_eq!(names.links.known("up1"), Some(up));
    let at = |network: &Network| network.config.ports[&(LinkId(up), Direction::Forward)].clone();
    assert_eq!(at(&before), at(&after));
    assert_eq!(queues(&after, &names, "up0"), 0, "it is gone");
    assert!(after.astray["rack0"].contains("there is no Link `up0`"), "{:?}", after.astray);
}

#[test]
fn ports_that_lead_nowhere_and_several_cables_are_said() {
    let said = |ports: Value, more: &[Arc<Stored>]| {
        let spec = json!({"driver": "linux-tc", "ports": ports});
        let mut all = vec![stored("Switch", "rack0", spec)];
        all.extend(more.iter().cloned());
        let network = of(&cloud(&all), &mut Names::default(), &SortedMap::new());
        network.astray["rack0"].clone()
    };
    let other = said(json!([{"name": "p", "host": "h1"}]), &[]);
    assert!(other.contains("host `h1` is at switch `rack1`"), "{other}");
    let far = said(json!([{"name": "p", "link": "up1"}]), &[]);
    assert!(far.contains("does not end at this switch"), "{far}");
    let several = json!({"lower": "rack0", "upper": "spine", "rate": "10Gbit", "members": 4});
    let cables = said(json!([{"name": "p", "link": "up0"}]), &[stored("Link", "up0", several)]);
    assert!(cables.contains("several cables"), "{cables}");
}

#[test]
fn tenants_are_bound_where_they_stay_on_their_trees() {
    let with = |spec: Value| {
        let all = cloud(&[stored("Topology", "default", spec)]);
        Network::of(&all, &mut Names::default(), &SortedMap::new(), &SortedSet::new())
    };
    assert!(with(json!({})).is_none(), "no queues are wanted");
    let several = |confined: bool| {
        let queues = json!({"codePoints": [10], "confined": confined});
        with(json!({"routing": "layers", "queues": queues})).expect("wanted").is_bound
    };
    assert!(several(false).is_err_and(|why| why.contains("confined: true")));
    assert_eq!(several(true), Ok(()));
    // Queues that are there are taken away, with the code points that are in use.
    let held = [0, 12].into();
    let all = cloud(&[stored("Topology", "default", json!({}))]);
    let leaving = Network::of(&all, &mut Names::default(), &SortedMap::new(), &held);
    let leaving = leaving.expect("a tenant has one");
    assert_eq!((leaving.config.fabric.codepoints, leaving.is_bound.is_err()), (vec![12], true));
}

fn found(ports: &[(&str, u64, u8)], owners: &[&str]) -> Found {
    let port = |(name, gbit, queues): &(&str, u64, u8)| {
        let rate = Rate::from_mbps(1000 * gbit);
        (PortName::from(*name), PortAbilities { rate, queues: *queues, reserved: SortedSet::new() })
    };
    Found {
        able: Abilities {
            ports: ports.iter().map(port).collect(),
            classes: None,
            most_weight: weir_core::binding::MostWeight::PAPER,
            reserved_codepoints: SortedSet::new(),
        },
        config: SwitchConfig::default(),
        classes: SortedMap::new(),
        owners: owners.iter().map(|owner| (*owner).to_owned()).collect(),
        torn: SortedSet::new(),
        barred: SortedMap::new(),
        others: Vec::new(),
    }
}

#[test]
fn a_switch_with_less_than_said_or_another_owner_takes_queues_away_and_says_so() {
    let mut names = Names::default();
    let all = cloud(&[]);
    let network = of(&all, &mut names, &SortedMap::new());
    let rack = SwitchId(names.switches.known("rack0").expect("known"));
    let described = &network.switches[&rack];
    let mut seen = |found: &Found| {
        let seen = Seen::of(found, described, Some("weir-1"));
        let trouble = seen.trouble.clone();
        let network = of(&all, &mut names, &[("rack0".to_owned(), seen)].into());
        (queues(&network, &names, &nic_of("h0")), queues(&network, &names, "up0"), trouble)
    };
    let whole = found(&[("down", 1, 8), ("up", 10, 8)], &["weir-1"]);
    assert_eq!(seen(&whole), (8, 3, None));
    let fewer = seen(&found(&[("down", 1, 4), ("up", 10, 2)], &[]));
    assert_eq!((fewer.0, fewer.1), (4, 2));
    let (reason, what) = fewer.2.expect("it is said");
    assert!(reason == "Differs" && what.contains("queue 4 of port down"), "{what}");
    let gone = seen(&found(&[("up", 10, 8)], &[]));
    assert_eq!((gone.0, gone.1), (0, 3));
    assert!(gone.2.is_some_and(|(_, what)| what.contains("no port down")));
    let other = seen(&found(&[("down", 1, 8), ("up", 10, 8)], &["weir-2"]));
    assert_eq!((other.0, other.1), (0, 0));
    assert!(other.2.is_some_and(|(reason, what)| reason == "Owned" && what.contains("weir-2")));
    let theirs = found(&[("down", 1, 8), ("up", 10, 8)], &["weir-2"]);
    assert_eq!(Seen::of(&theirs, described, None).trouble, None, "where nothing is written");
}

#[test]
fn a_place_says_which_queue_a_tenant_has_and_why_it_has_none() {
    let mut names = Names::default();
    let link = LinkId(names.links.of("up0"));
    let switch = SwitchId(names.switches.of("rack0"));
    let other = TenantId(names.tenants.of("bulk"));
    let said = |place| tell::place(place, &names, None);
    for (why, word) in [
        (Why::Outscored(link), "up0"),
        (Why::Preempted(link, other), "tenant `bulk` took its place on up0"),
        (Why::QueuesGone(link), "up0 has fewer queues"),
        (Why::NoQueues(link), "up0 has no queues"),
        (Why::Weights(link), "weights of up0"),
        (Why::Codepoints, "code points"),
        (Why::NeedsNone, "reserved nothing"),
        (Why::New, "came in this interval"),
        (Why::Excluded, "spec.queue"),
        (Why::Moving, "being told"),
    ] {
        let (status, _, message) = said(Place::Shared(why));
        assert!(message.contains(word) && message.contains("shared queue"), "{message}");
        assert_eq!(status, Truth::True, "it is as it should be: {message}");
    }
    let (status, reason, message) = said(Place::Shared(Why::Switch(switch)));
    assert_eq!((status, reason), (Truth::False, "SwitchFailed"));
    assert!(message.contains("`rack0`"), "{message}");
    let (_, reason, message) = said(Place::Dedicated(12));
    assert!(reason == "Dedicated" && message.contains("code point 12"), "{message}");
    let (status, reason, message) = tell::place(Place::Shared(Why::Excluded), &names, Some("h3"));
    assert_eq!((status, reason), (Truth::False, "HostCannotTag"));
    assert!(message.contains("host `h3`") && message.contains("code_points"), "{message}");
}
