use super::super::probes::put_together;
use super::*;

const LOCAL: &str = "10.0.0.1:7001";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// What a network does to a packet on one way; `None` is a loss.
type Network<'a> = &'a dyn Fn(usize, Marks) -> Option<Marks>;

const KEEPS: Network<'_> = &|_, marks| Some(marks);

fn probed(there: Network<'_>, back: Network<'_>, is_v6: bool) -> Vec<Probed> {
    let (mut seen, mut came) = (BTreeMap::new(), BTreeMap::new());
    for sort in Sort::all(is_v6) {
        for way in 0..WAYS {
            let number = sort.number(way, false);
            let sent = sort.marks(number, is_v6);
            let Some(arrived) = there(way, sent) else { continue };
            seen.insert(number, arrived);
            if let Some(back) = back(way, sent) {
                came.insert(number, back);
            }
        }
    }
    put_together(is_v6, false, &seen, &came)
}

fn facts(there: Network<'_>, back: Network<'_>) -> Facts {
    Facts {
        local: at(LOCAL),
        welcome: Welcome {
            seen: at(LOCAL),
            mtu: 1500,
            has_agent: false,
            release: env!("CARGO_PKG_VERSION").into(),
        },
        greeting: Greeting::Judged { there: Judged::Accepted, back: Judged::Accepted },
        headers: probed(there, back, false),
        outer: None,
        largest: Largest { own: 1500, peer: 1500, there: Some(1500), back: Some(1500) },
        trips: Trips { count: 64, round: 2e-4, ..Trips::default() },
        rate: None,
        there: None,
        back: None,
    }
}

fn needs(points: &[u8]) -> Needs {
    let code_points = points.iter().copied().collect();
    Needs { is_configured: true, code_points, marks: false, numbers: true, times: false }
}

fn rows(facts: &Facts, needs: &Needs) -> Vec<Row> {
    judge(facts, needs).0
}

fn found(facts: &Facts, needs: &Needs, what: &str) -> (State, String, String) {
    let rows = rows(facts, needs);
    let row =
        rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("{what}: {rows:?}"));
    let is_fine = row.state == State::Fine;
    assert_eq!(is_fine, row.costs.is_empty() && row.remedy.is_empty(), "{row:?}");
    (row.state, row.there.clone(), row.back.clone())
}

fn only(what: &str, facts: &Facts, needs: &Needs) {
    let broken = rows(facts, needs).into_iter().filter(|row| row.state != State::Fine);
    assert_eq!(broken.map(|row| row.what).collect::<Vec<_>>(), [what]);
}

fn tos(marks: Marks, tos: u8) -> Option<Marks> {
    Some(Marks { tos, ..marks })
}

#[test]
fn a_way_that_changes_nothing_is_fine() {
    let facts = facts(KEEPS, KEEPS);
    for needs in [needs(&[10, 46]), Needs { marks: true, ..needs(&[]) }, Needs::default()] {
        assert!(rows(&facts, &needs).iter().all(|row| row.state == State::Fine));
    }
    let said = |what| found(&facts, &needs(&[]), what);
    assert_eq!(said("DSCP"), (State::Fine, "all 64 as sent".into(), "all 64 as sent".into()));
    assert_eq!(said("MTU"), (State::Fine, "1500".into(), "1500".into()));
}

#[test]
fn a_code_point_that_is_rewritten_fails_where_it_is_used_and_in_its_direction() {
    let zero = |_: usize, m: Marks| if m.tos >> 2 == 10 { tos(m, m.tos & 3) } else { Some(m) };
    let there = facts(&zero, KEEPS);
    let said = |facts: &Facts, needs: &Needs| found(facts, needs, "DSCP");
    let whole = || "all 64 as sent".to_owned();
    assert_eq!(said(&there, &needs(&[10])), (State::Fails, "10 → 0".into(), whole()));
    assert_eq!(said(&there, &needs(&[12])).0, State::Fine, "no tenant has it");
    assert_eq!(said(&there, &Needs::default()).0, State::Costs);
    only("DSCP", &there, &needs(&[10]));
    let back = facts(KEEPS, &zero);
    assert_eq!(said(&back, &needs(&[10])), (State::Fails, whole(), "10 → 0".into()));
    let bleached = facts(&|_, m| tos(m, m.tos & 3), KEEPS);
    let text = said(&bleached, &needs(&[])).1;
    assert_eq!(text, "1 → 0, 2 → 0, 3 → 0, 4 → 0, and 59 more");
    assert_eq!(said(&bleached, &needs(&[])).0, State::Costs, "agents' own");
    let dropped = facts(KEEPS, &|_, m| (m.tos >> 2 != 46).then_some(m));
    assert_eq!(said(&dropped, &needs(&[46])), (State::Fails, whole(), "46 → lost".into()));
    let dropped = facts(&|_, m| (m.tos >> 2 != 46).then_some(m), KEEPS);
    assert_eq!(said(&dropped, &needs(&[46])).2, "all 63 as sent, 1 not tried");
}

#[test]
fn one_of_several_equal_paths_is_enough_to_fail() {
    let one = |way: usize, m: Marks| if way == 2 { tos(m, m.tos & 3) } else { Some(m) };
    let (state, there, _) = found(&facts(&one, KEEPS), &needs(&[10]), "DSCP");
    assert_eq!(state, State::Fails);
    assert!(there.starts_with("1 → 0 on 1 of 4 ways"), "{there}");
    let closed = |way: usize, m: Marks| (way == 0).then_some(m);
    let facts = facts(&closed, KEEPS);
    assert!(rows(&facts, &needs(&[10])).iter().all(|row| row.state == State::Fine));
    let notes = judge(&facts, &needs(&[10])).1;
    assert!(notes[0].starts_with("3 of 4 source ports do not pass"), "{notes:?}");
}

#[test]
fn ecn_that_is_cleared_or_set_fails_where_marks_are_the_signal() {
    let marks = Needs { marks: true, ..needs(&[]) };
    let cleared = |_: usize, m: Marks| tos(m, m.tos & !3);
    let (state, there, back) = found(&facts(KEEPS, &cleared), &marks, "ECN");
    assert_eq!((state, there.as_str()), (State::Fails, "as sent"));
    assert_eq!(back, "ECT(1) → Not-ECT, ECT(0) → Not-ECT, CE → Not-ECT");
    assert_eq!(found(&facts(KEEPS, &cleared), &needs(&[]), "ECN").0, State::Costs);
    let set = |_: usize, m: Marks| tos(m, m.tos | 3);
    let (state, there, _) = found(&facts(&set, KEEPS), &marks, "ECN");
    assert_eq!((state, there.as_str()), (State::Fails, "Not-ECT → CE, ECT(1) → CE, ECT(0) → CE"));
    // A queue that marks while the probes pass does what it should.
    let congested =
        |way: usize, m: Marks| if way == 1 && m.tos & 3 == 2 { tos(m, 3) } else { Some(m) };
    assert_eq!(found(&facts(&congested, KEEPS), &marks, "ECN").0, State::Fine);
}

#[test]
fn a_rewritten_identification_fails_where_losses_are_the_signal() {
    let what = "IPv4 identification";
    let fresh = |_: usize, m: Marks| Some(Marks { id: m.id ^ 1, ..m });
    let zero = |_: usize, m: Marks| Some(Marks { id: if m.dont_fragment { 0 } else { m.id }, ..m });
    let counted =
        |_: usize, m: Marks| Some(Marks { id: if m.dont_fragment { m.id } else { 7 }, ..m });
    let said = |network: Network<'_>| found(&facts(KEEPS, network), &needs(&[]), what);
    assert_eq!(said(&fresh), (State::Fails, "as sent".into(), "rewritten".into()));
    assert_eq!(said(&zero).2, "rewritten with DF");
    assert_eq!(said(&counted).2, "rewritten without DF");
    let unnumbered = Needs { numbers: false, ..needs(&[]) };
    assert_eq!(found(&facts(&fresh, KEEPS), &unnumbered, what).0, State::Fine);
    assert_eq!(found(&facts(&fresh, KEEPS), &Needs::default(), what).0, State::Fails);
}

#[test]
fn the_reserved_bit_may_be_cleared_or_its_packets_lost() {
    let cleared = facts(&|_, m| Some(Marks { reserved: false, ..m }), KEEPS);
    let (state, there, back) = found(&cleared, &needs(&[]), "reserved bit");
    assert_eq!((state, back.as_str()), (State::Costs, "as sent"));
    assert_eq!(there, "set without DF → cleared without DF, set with DF → cleared with DF");
    only("reserved bit", &cleared, &needs(&[]));
    let lost = facts(&|_, m| (!m.reserved).then_some(m), KEEPS);
    let (state, there, back) = found(&lost, &needs(&[]), "reserved bit");
    assert_eq!(state, State::Costs, "this mechanism does not need it");
    let times = Needs { times: true, ..needs(&[]) };
    assert_eq!(found(&cleared, &times, "reserved bit").0, State::Fails, "Level does");
    assert_eq!(found(&facts(KEEPS, KEEPS), &times, "reserved bit").0, State::Fine);
    assert_eq!(there, "set without DF → lost, set with DF → lost");
    assert_eq!(back, "–", "no answer was asked for");
    let back = facts(KEEPS, &|_, m| (!m.reserved).then_some(m));
    assert_eq!(found(&back, &needs(&[]), "reserved bit").1, "as sent");
}

#[test]
fn ipv6_has_no_rows_for_what_it_lacks() {
    let mut facts = facts(KEEPS, KEEPS);
    facts.headers = probed(KEEPS, KEEPS, true);
    (facts.local, facts.welcome.seen) = (at("[fd00::1]:7001"), at("[fd00::1]:7001"));
    let rows = rows(&facts, &needs(&[10]));
    assert!(rows.iter().all(|row| row.state == State::Fine), "{rows:?}");
    assert!(!rows.iter().any(|row| row.what.contains("IPv4") || row.what.contains("reserved")));
}

#[test]
fn a_smaller_mtu_fails_in_its_direction() {
    let said = |there, back, peer| {
        let mut facts = facts(KEEPS, KEEPS);
        facts.largest = Largest { own: 1500, peer, there, back };
        found(&facts, &needs(&[]), "MTU")
    };
    let there = said(Some(1400), Some(1400), 1500);
    assert_eq!(there, (State::Fails, "1400 of 1500".into(), "1400 or more".into()));
    let back = said(Some(1500), Some(1400), 1500);
    assert_eq!(back, (State::Fails, "1500".into(), "1400 of 1500".into()));
    assert_eq!(said(None, None, 1500).1, "nothing passes");
    assert_eq!(said(Some(1400), Some(1400), 1400).0, State::Fails, "its device takes 1400");
    let cleared = facts(&|_, m| Some(Marks { dont_fragment: false, ..m }), KEEPS);
    let (state, there, back) = found(&cleared, &needs(&[]), "MTU");
    assert_eq!((there.as_str(), back.as_str()), ("1500, DF is cleared", "1500"));
    assert_eq!(state, State::Unknown, "whole, or in fragments");
}

#[test]
fn translation_and_keys_that_do_not_fit_fail() {
    let mut facts = facts(KEEPS, KEEPS);
    facts.welcome.seen = at("192.0.2.1:40000");
    let there = found(&facts, &needs(&[]), "addresses").1;
    assert_eq!(there, "10.0.0.1:7001 came as 192.0.2.1:40000");
    facts.greeting = Greeting::Judged {
        there: Judged::Refused("the tag is wrong".into()),
        back: Judged::Accepted,
    };
    let (state, there, back) = found(&facts, &needs(&[]), "keys and versions");
    assert_eq!((state, back.as_str()), (State::Fails, "accepted"));
    assert_eq!(there, "refused: the tag is wrong");
    facts.greeting = Greeting::Judged { there: Judged::Unconfigured, back: Judged::Unconfigured };
    assert_eq!(found(&facts, &needs(&[]), "keys and versions").0, State::Unknown);
    facts.greeting = Greeting::Unconfigured;
    assert_eq!(found(&facts, &Needs::default(), "keys and versions").0, State::Costs);
}

#[test]
fn a_stream_is_judged_by_what_the_network_lost() {
    let rate = Rate::from_mbps(100);
    let stream = Carried {
        frame: 1250,
        sent: 10_000,
        sent_in: Span::from_secs(1),
        got: 10_000,
        got_in: Span::from_secs(1),
        dropped: 0,
    };
    assert_eq!(stream.judge(rate), (State::Fine, "100 Mb/s, 0 % lost".into()));
    let lossy = Carried { got: 9_980, ..stream };
    assert_eq!(lossy.judge(rate), (State::Fails, "99.8 Mb/s, 0.2 % lost".into()));
    let full = Carried { got: 9_980, dropped: 1, ..stream };
    assert_eq!(full.judge(rate).0, State::Unknown, "one buffer may hold all 20");
    let both = Carried { got: 9_900, dropped: 1, ..stream };
    assert_eq!(both.judge(rate).0, State::Fails, "one buffer does not hold 100");
    let slow = Carried { sent_in: Span::from_secs(2), got_in: Span::from_secs(2), ..stream };
    let (state, text) = slow.judge(rate);
    assert_eq!((state, text.as_str()), (State::Unknown, "only 50.0 Mb/s were sent"));
    assert_eq!(Carried { sent: 0, got: 0, ..stream }.judge(rate).0, State::Unknown);
    // A server may say any number.
    for (sent, got, dropped) in [(u64::MAX, 0, 0), (u64::MAX, u64::MAX, 0), (9, 0, u64::MAX)] {
        let said = Carried { sent, got, dropped, ..stream };
        assert_ne!(said.judge(rate).1, "", "{said:?}");
    }
}

#[test]
fn times_are_medians_and_clocks_differ_by_the_fastest_ways() {
    let ms = |n: i64| n * 1_000_000;
    let ahead = 7_000;
    let mut pairs: Vec<(i64, i64)> = (0..20).map(|_| (ms(ahead + 1), ms(1 - ahead))).collect();
    pairs.push((ms(ahead + 9), ms(1 - ahead)));
    pairs.push((ms(ahead + 9), ms(2 - ahead)));
    let trips = Trips::of(pairs);
    assert!((trips.round - 2e-3).abs() < 1e-9 && (trips.ahead - 7.0).abs() < 1e-9, "{trips:?}");
    assert!((trips.jitter[0] - 8e-3).abs() < 1e-9 && trips.jitter[1] == 0.0, "{trips:?}");
    let mut facts = facts(KEEPS, KEEPS);
    facts.trips = trips;
    let clock = found(&facts, &needs(&[]), "clock there");
    assert_eq!((clock.0, clock.1.as_str()), (State::Costs, "7.00 s ahead"));
    facts.trips = Trips { round: 6e-3, ahead: -0.5, ..trips };
    assert_eq!(found(&facts, &needs(&[]), "round trip 6.00 ms").0, State::Costs);
    assert_eq!(found(&facts, &needs(&[]), "clock there").1, "500 ms behind");
    assert_eq!(Trips::of(Vec::new()).count, 0);
    facts.trips = Trips::default();
    assert_eq!(found(&facts, &needs(&[]), "round trip").0, State::Unknown);
}
