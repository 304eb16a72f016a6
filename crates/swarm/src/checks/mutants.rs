//! Looks that were tampered with: each check complains of what it is there for. What can be broken
//! by playing something else is in `tests/mutants.rs`.

use super::{Breaches, hoses, packets, state};
use crate::terms::Terms;
use weir_core::partition::Want;
use weir_model::scenario::{File, Scenario};
use weir_sim::scenario::{Run, Setup};
use weir_sim::{HostLook, Look};
use weir_units::{HostId, Rate, Span};

/// A real look, in the middle of a run.
fn look_at(scenario: &Scenario) -> (Terms, Look) {
    let mechanism = &scenario.mechanisms[0];
    let setup = Setup { seed: 1, ..Setup::default() };
    let mut run = Run::new(scenario, mechanism, &setup).expect("playable");
    run.play_until(Span::from_millis(900));
    (Terms::new(scenario, mechanism).expect("hoses"), run.look())
}

/// The words of the only complaint about a look that was changed; none about it as it is.
fn complaint(check: impl Fn(&Terms, &Look, &mut Breaches), change: impl Fn(&mut Look)) -> String {
    let (terms, mut look) = incast();
    let mut breaches = Breaches::default();
    check(&terms, &look, &mut breaches);
    assert!(breaches.into_list().is_empty(), "of a look as it is");
    change(&mut look);
    let mut breaches = Breaches::default();
    check(&terms, &look, &mut breaches);
    let list = breaches.into_list();
    assert_eq!(list.len(), 1, "{list:?}");
    list[0].what.clone()
}

fn packets(change: impl Fn(&mut Look)) -> String {
    complaint(|terms, look, b| packets::Packets::default().look(terms, look, b), change)
}

#[test]
fn a_packet_that_is_nowhere_is_found() {
    assert!(packets(|look| look.packets.delivered -= 1).contains("delivered"));
    assert!(packets(|look| look.packets.launched += 1).contains("launched"));
    assert!(packets(|look| look.packets.in_flight -= 1).contains("in flight"));
}

#[test]
fn a_drop_that_nobody_made_is_found() {
    let what = packets(|look| {
        look.packets.dropped += 1;
        look.packets.delivered -= 1;
    });
    assert!(what.contains("by ports and"), "{what}");
}

#[test]
fn counters_that_go_back_are_found() {
    let (terms, look) = incast();
    let (mut packets, mut breaches) = (packets::Packets::default(), Breaches::default());
    packets.look(&terms, &look, &mut breaches);
    let mut later = look.clone();
    later.packets.delivered -= 1;
    later.packets.in_flight += 1;
    packets.look(&terms, &later, &mut breaches);
    assert!(breaches.into_list()[0].what.contains("became"));
}

fn host(change: impl Fn(&mut HostLook)) -> String {
    complaint(state::look, |look| change(&mut look.hosts[0]))
}

#[test]
fn what_a_host_remembers_beyond_who_talks_is_found() {
    assert!(host(|host| host.known.0 += 1000).contains("knows"));
    assert!(host(|host| host.known.1 += 1000).contains("knows"));
    assert!(host(|host| host.queues += 1000).contains("queues for"));
    assert!(host(|host| host.unsent = 1).contains("outbox"));
    assert!(host(|host| host.counters.misdirected = 1).contains("misdirected: 1"));
    assert!(host(|host| host.counters.unknown_pairs = 1).contains("unknown_pairs: 1"));
}

#[test]
fn more_packets_than_there_is_room_for_are_found() {
    let what = complaint(state::look, |look| look.packets.in_flight += 10_000_000);
    assert!(what.contains("have room"), "{what}");
}

/// Two senders with hoses as large as that of their one receiver, halfway through a run.
fn incast() -> (Terms, Look) {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 9s, \
        warmup: 8s, scale: 0.1, topology: {single-switch: {hosts: 3, link: 1Gbit}}, tenants: [\
        {name: a, vms: [{name: a, hosts: [host-0, host-1], count: 2, floor: 400Mbit}, \
        {name: z, host: host-2, floor: 400Mbit}]}], mechanisms: \"elasticswitch:steady\", \
        traffic: [{group: g, from: a, to: z, udp: {rate: 900Mbit}}]}}";
    let file = File::parse("t.yaml", text, &[]).expect("sound");
    look_at(&file.points().expect("sound")[0])
}

/// What `hoses` says of each of these looks, one after the other.
fn hoses(terms: &Terms, looks: &[Look]) -> Vec<Vec<String>> {
    let mut hoses = hoses::Hoses::new(terms);
    let says = |look: &Look| {
        let mut breaches = Breaches::default();
        hoses.look(terms, look, &mut breaches);
        breaches.into_list().into_iter().map(|b| format!("{}: {}", b.of, b.what)).collect()
    };
    looks.iter().map(says).collect()
}

/// The first sender's shaper has all of its hose, though half of it is offered.
fn more_in_force(look: &mut Look, terms: &Terms) {
    let pair = look.pairs.iter_mut().find(|pair| pair.id.src.0 == 0).expect("it sends");
    let (out, _) = terms.hoses_of(pair.id);
    let setting = pair.in_force.as_mut().expect("it has a queue");
    (setting.floor, setting.ceiling) = (terms.hose_out(out), terms.hose_out(out));
}

#[test]
fn what_a_sender_has_in_force_beyond_what_its_receiver_counts_is_found() {
    let (terms, look) = incast();
    let mut more = look.clone();
    more_in_force(&mut more, &terms);
    let says = hoses(&terms, &[look, more]);
    assert!(says[0].is_empty(), "{says:?}");
    assert!(matches!(&says[1][..], [one] if one.starts_with("z, in: floors of")), "{says:?}");
}

#[test]
fn a_receiver_that_lost_its_memory_is_excused_until_it_was_told_and_no_longer() {
    let (terms, look) = incast();
    let restarted = |after: Span| {
        let mut later = look.clone();
        more_in_force(&mut later, &terms);
        later.at += after;
        later.hosts.iter_mut().for_each(|host| host.clock += after);
        later.hosts[2].lives = 1;
        let pair = later.pairs.iter_mut().find(|pair| pair.id.src.0 == 0).expect("it sends");
        let receive = pair.destination.receive.as_mut().expect("it is known");
        (receive.offered, receive.held) = (None, None);
        later
    };
    let (receiver, sender) = (HostId(2), HostId(0));
    let next = terms.next_word(receiver, sender);
    assert!(next > Span::from_millis(60) && next < Span::from_millis(120), "{next}");
    let told = terms.greetings(receiver, sender) + next;
    let (at_once, later) = (Span::from_millis(5), Span::from_millis(10) + told);
    let says = hoses(&terms, &[look.clone(), restarted(at_once), restarted(later)]);
    assert!(says[1].is_empty() && says[2].len() == 1, "{says:?}");
    // A letter between the two was lost meanwhile: the next one is due a period later.
    let mut lost = restarted(later);
    lost.letters_lost.insert((HostId(2), HostId(0)), 1);
    let says = hoses(&terms, &[look.clone(), restarted(at_once), lost]);
    assert!(says[2].is_empty(), "{says:?}");
    // And without a restart nothing is excused.
    let mut same_life = restarted(at_once);
    same_life.hosts[2].lives = 0;
    assert_eq!(hoses(&terms, &[look, same_life])[1].len(), 1);
}

#[test]
fn whom_nobody_can_count_is_excused_for_a_small_start_and_no_more() {
    let (terms, look) = incast();
    let stranger = |more: u64| {
        let mut look = look.clone();
        let small = terms.small(look.pairs[0].id);
        for pair in look.pairs.iter_mut().filter(|pair| pair.id.dst.0 == 2) {
            let setting = pair.in_force.as_mut().expect("it has a queue");
            if pair.id.src.0 == 0 {
                setting.floor = small + Rate::from_bps(more);
                (pair.source.send, pair.destination.receive) = (Some(None), None);
            } else {
                setting.floor = terms.hose_in(terms.hoses_of(pair.id).1);
            }
        }
        look
    };
    assert!(hoses(&terms, &[stranger(0)])[0].is_empty());
    assert_eq!(hoses(&terms, &[stranger(1)])[0].len(), 1);
}

#[test]
fn a_pair_that_was_forgotten_and_met_again_between_two_looks_may_hold_a_small_start() {
    let (terms, look) = incast();
    let later = |want: Want, more: u64| {
        let mut later = look.clone();
        for pair in later.pairs.iter_mut().filter(|pair| pair.id.dst.0 == 2) {
            let setting = pair.in_force.as_mut().expect("it has a queue");
            if pair.id.src.0 != 0 {
                setting.floor = terms.hose_in(terms.hoses_of(pair.id).1);
                continue;
            }
            setting.floor = terms.small(pair.id) + Rate::from_bps(more);
            let receive = pair.destination.receive.as_mut().expect("it is known");
            receive.wants = Some((want, Rate::ZERO));
            receive.held.as_mut().expect("something is held").most = Rate::ZERO;
            receive.offered.as_mut().expect("something is offered").serial += 10;
        }
        later
    };
    let complaints = |want, more| hoses(&terms, &[look.clone(), later(want, more)])[1].len();
    assert_eq!(complaints(Want::New, 0), 0);
    assert_eq!(complaints(Want::New, 1), 1, "not more than a small start");
    assert_eq!(complaints(Want::Unbounded, 0), 1, "its receiver has known it all the time");
}
