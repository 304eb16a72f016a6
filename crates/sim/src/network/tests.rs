use super::*;
use proptest::prelude::*;

const GOOD: &str = "until_ns 1000\nmtu 1500\nnodes 3\nlinks 4\n\
    0 0 1 1000000 10 3000 1500\n1 1 2 1000000 10 3000 0\n2 2 1 1000000 10 3000 0\n3 1 0 1000000 10 3000 0\n\
    flows 2\n0 0 2 5 0 2 0 1 2 2 3\n1 2 0 7 3000 2 2 3 2 0 1\n";

/// What the reader says of `GOOD` with `from` replaced by `to`.
fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?}");
    match Network::parse(&GOOD.replacen(from, to, 1)) {
        Ok(_) => "it was read".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_good_file_is_read_as_it_stands() {
    let network = Network::parse(GOOD).expect("it is good");
    assert_eq!((network.until().as_nanos(), network.mtu(), network.segment()), (1000, 1500, 1460));
    assert_eq!(network.links()[0].mark_above, Some(Bytes::new(1500)));
    assert_eq!(network.links()[1].mark_above, None, "0: no marks");
    assert_eq!(network.links()[3].to, 0);
    let [first, second] = network.flows() else { panic!("two flows") };
    assert_eq!(first.traffic, Traffic::Tcp { octets: None, algorithm: None });
    assert_eq!((&first.forward[..], &first.reverse[..]), (&[0, 1][..], &[2, 3][..]));
    assert_eq!(second.traffic, Traffic::Tcp { octets: NonZero::new(3000), algorithm: None });
    assert_eq!(second.start, Time::from_nanos(7));
    assert!(Network::parse(&GOOD.replace('\n', "\r\n")).is_ok(), "other line ends");
    assert!(Network::parse(&format!("{GOOD}\n \n")).is_ok(), "empty lines at the end");
}

#[test]
fn each_error_names_its_line_and_what_is_wrong() {
    let cases = [
        ("until_ns 1000", "until 1000", r#"line 1: "until", where "until_ns NUMBER" was expected"#),
        ("until_ns 1000", "until_ns", "line 1: the line ends where until_ns was expected"),
        (
            "until_ns 1000",
            "until_ns 99000000000000000",
            "line 1: 99000000000000000 ns: at most a day can be simulated",
        ),
        (
            "mtu 1500",
            "mtu 70000",
            "line 2: mtu is \"70000\": a whole number up to 65535 was expected",
        ),
        ("mtu 1500", "mtu 40", "line 2: packets of 40 octets: at least 64 are needed"),
        ("mtu 1500", "mtu 1500 9", "line 2: \"9\" is more than was expected on this line"),
        ("links 4", "links 3", "line 8: \"3\", where \"flows NUMBER\" was expected"),
        (
            "links 4",
            "links 9",
            "line 9: link is \"flows\": a whole number up to 18446744073709551615 was expected",
        ),
        (
            "1 1 2 1000000",
            "7 1 2 1000000",
            "line 6: link 7, where link 1 was expected: they are numbered from 0, in order",
        ),
        (
            "1 1 2 1000000",
            "1 1 3 1000000",
            "line 6: node 3 does not exist: there are 3, counted from 0",
        ),
        (
            "1 1 2 1000000",
            "1 1 2 -5",
            "line 6: rate_bps is \"-5\": a whole number up to 18446744073709551615 was expected",
        ),
        (
            "1 1 2 1000000",
            "1 1 2 0",
            "line 6: a rate of 0 bit/s: from 1000 to 10000000000000 are possible",
        ),
        (
            "0 0 1 1000000 10",
            "0 0 1 1000000 5000000000",
            "line 5: a delay of 5000000000 ns: at most 4 s are possible",
        ),
        (
            "3000 1500",
            "99000000000000 1500",
            "line 5: a buffer of 99000000000000 octets takes more than a day to empty at 1000000 bit/s",
        ),
        ("2 0 1 2 2 3", "0 2 2 3", "line 10: the forward route is empty: name at least one link"),
        (
            "2 0 1 2 2 3",
            "2 0 9 2 2 3",
            "line 10: link 9 does not exist: there are 4, counted from 0",
        ),
        (
            "2 0 1 2 2 3",
            "2 1 0 2 2 3",
            "line 10: the forward route is broken: link 1 begins at node 1, not at 0",
        ),
        ("2 0 1 2 2 3", "2 0 1 1 2", "line 10: the reverse route ends at node 1, not at 0"),
        (
            "2 0 1 2 2 3",
            "2 0 1 3 2 3",
            "line 10: the line ends where a link of the route was expected",
        ),
        (
            "2 0 1 2 2 3",
            "4000000000 0 1",
            "line 10: the line ends where a link of the route was expected",
        ),
        (
            "0 0 2 5 0",
            "0 0 2 99000000000000000 0",
            "line 10: 99000000000000000 ns: at most a day can be simulated",
        ),
        (
            "1 2 0 7 3000",
            "1 2 0 7 18446744073709551615",
            "line 11: 18446744073709551615 octets: a flow has at most 4294967294 segments",
        ),
        ("flows 2", "flows 3", "line 12: the file ends where a flow was expected"),
        (
            "flows 2",
            "flows 1",
            "line 11: \"1 2 0 7 3000 2 2 3 2 0 1\" is more than was expected on this line",
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(refusal(from, to), expected, "{from:?} to {to:?}");
    }
}

#[test]
fn what_a_file_cannot_say_is_checked_too() {
    let mut network = Network::parse(GOOD).expect("it is good");
    let link = network.links()[0].clone();
    let loss = network.add_link(LinkSpec { loss: f64::NAN, ..link });
    assert!(matches!(loss, Err(Flaw::Loss(_))));
    let udp = |rate, size, bursts| FlowSpec {
        src: 0,
        dst: 1,
        start: Time::ZERO,
        traffic: Traffic::Udp { rate: Rate::from_bps(rate), size, bursts },
        forward: vec![0],
        reverse: vec![],
    };
    assert_eq!(network.add_flow(udp(5, 100, None)), Err(Flaw::Rate(5)));
    assert_eq!(
        network.add_flow(udp(5000, 28, None)),
        Err(Flaw::Datagram { size: 28, least: 29, mtu: 1500 })
    );
    let never = Bursts { on: Span::ZERO, off: Span::ZERO, random: true };
    assert_eq!(
        network.add_flow(udp(5000, 100, Some(never))),
        Err(Flaw::Bursts { on: 0, period: 0 })
    );
    assert_eq!(network.add_flow(udp(5000, 100, None)), Ok(2));
    let circle = FlowSpec { forward: [0, 3].repeat(33), dst: 0, ..udp(5000, 100, None) };
    let links = 66;
    assert_eq!(network.add_flow(circle), Err(Flaw::LongRoute { way: Way::Forward, links }));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~\n]{0,300}") {
        let _ = Network::parse(&text);
    }

    /// A number or a word replaced, a line left out or repeated: read or refused, and what is read
    /// can be played.
    #[test]
    fn no_small_change_of_a_good_file_makes_it_panic(
        word in 0usize..60,
        with in prop_oneof!["[0-9]{0,20}", "[ -~]{0,5}", Just("\n".to_owned())],
        line in 0usize..12,
        copies in 0usize..3,
    ) {
        let mut lines: Vec<_> = GOOD.lines().map(str::to_owned).collect();
        let copy = lines[line.min(lines.len() - 1)].clone();
        lines.splice(line.min(lines.len() - 1)..=line.min(lines.len() - 1), std::iter::repeat_n(copy, copies));
        let text = lines.join("\n");
        let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        if let Some(old) = words.get_mut(word) {
            *old = with;
        }
        for text in [text, words.join(" ")] {
            if let Ok(network) = Network::parse(&text) {
                let until = network.until().min(Time::from_nanos(1_000_000));
                let mut sim = crate::Sim::new(&network, &crate::Options::default());
                sim.run_until(until);
            }
        }
    }
}
