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
fn a_header_of_the_links_own_is_no_payload() {
    let framed = |mtu, framing| Network::framed(2, mtu, framing, Time::from_nanos(1000));
    let network = framed(1502, 2).expect("it fits");
    assert_eq!((network.mtu(), network.segment(), network.headers()), (1502, 1460, (42, 30)));
    assert_eq!(framed(100, 37), Err(Flaw::Mtu(63)));
    assert_eq!(framed(100, u16::MAX), Err(Flaw::Mtu(0)));
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
            "line 6: a rate of 0 b/s: from 1 kb/s to 10 Tb/s are possible",
        ),
        (
            "0 0 1 1000000 10",
            "0 0 1 1000000 5000000000",
            "line 5: a delay of 5 s: at most 4 s are possible",
        ),
        (
            "3000 1500",
            "99000000000000 1500",
            "line 5: a buffer of 99000000000000 octets takes more than a day to empty at 1 Mb/s",
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

/// `GOOD` without the threshold of link 0, and with all that may follow.
const PORTS: &str = "pools 2\n0 500000 0.5\n1 7 8\nports 5\n0 drr 2 1 3000 0 4 2000 1500\n\
    1 fifo pool 0\n3 red 1000 2000 0.02 0.002 gentle pool 0\n2 priority 1 900 0\n\
    0 wfq 1 3 3000 0 pool 1\nclasses 1\n1 7\nways 2\n0 forward 2 0 1\n1 reverse 2 0 1\n";

fn with_ports() -> String {
    format!("{}{PORTS}", GOOD.replace("3000 1500", "3000 0"))
}

#[test]
fn ports_memories_and_classes_follow_the_flows() {
    let network = Network::parse(&with_ports()).expect("it is good");
    let half = PoolSpec { octets: Bytes::new(500_000), alpha: 0.5 };
    assert_eq!(network.pools(), [half, PoolSpec { octets: Bytes::new(7), alpha: 8.0 }]);
    let queue = |weight, buffer| QueueSpec { weight, buffer: Bytes::new(buffer), mark_above: None };
    let red = RedSpec {
        min: Bytes::new(1000),
        max: Bytes::new(2000),
        probability: 0.02,
        weight: 0.002,
        gentle: true,
    };
    let expected = [
        (0, Port { discipline: Discipline::Wfq(vec![queue(3, 3000)]), pool: Some(1) }),
        (1, Port { discipline: Discipline::Fifo, pool: Some(0) }),
        (2, Port { discipline: Discipline::Priority(vec![queue(1, 900)]), pool: None }),
        (3, Port { discipline: Discipline::Red(red), pool: Some(0) }),
    ];
    let ports: Vec<_> = network.ports().map(|(link, port)| (link, port.clone())).collect();
    assert_eq!(ports, expected, "the last word on link 0 counts");
    assert_eq!([0, 1].map(|flow| network.class(flow)), [0, 7]);
    assert_eq!(network.ways(0, Way::Forward), [[0, 1]]);
    assert_eq!(network.ways(1, Way::Reverse), [[0, 1]]);
    assert!(network.ways(0, Way::Reverse).is_empty());
    let first = PORTS.split("1 fifo").next().expect("a beginning").replace("ports 5", "ports 1");
    let text = format!("{}{first}", GOOD.replace("3000 1500", "3000 0"));
    let network = Network::parse(&text).expect("it is good");
    let two =
        vec![queue(1, 3000), QueueSpec { mark_above: Some(Bytes::new(1500)), ..queue(4, 2000) }];
    assert_eq!(
        network.ports().next(),
        Some((0, &Port { discipline: Discipline::Drr(two), pool: None }))
    );
}

#[test]
fn each_error_of_a_port_names_its_line_and_what_is_wrong() {
    let cases = [
        ("0 500000 0.5", "0 500000 x", r#"line 13: alpha is "x": a number like 0.5 was expected"#),
        (
            "0 500000 0.5",
            "0 500000 0",
            "line 13: an alpha of 0: more than 0 and at most 1024 is possible",
        ),
        ("1 7 8", "1 7 inf", r#"line 14: alpha is "inf": a number like 0.5 was expected"#),
        (
            "0 drr 2",
            "0 drr 9",
            r#"line 16: the number of queues is "9": a whole number up to 8 was expected"#,
        ),
        ("0 drr 2 1 3000 0 4 2000 1500", "0 drr 0", "line 16: 0 queues: from 1 to 8 are possible"),
        ("2 1 3000", "2 0 3000", "line 16: a weight of 0: from 1 to 65535 are possible"),
        ("0 drr 2", "0 drr 1", r#"line 16: "4" is more than was expected on this line"#),
        ("0 drr 2", "0 drr 3", "line 16: the line ends where a queue's weight was expected"),
        ("0 drr", "0 sfq", r#"line 16: "sfq", where fifo, red, priority, drr or wfq was expected"#),
        ("0 drr", "4 drr", "line 16: link 4 does not exist: there are 4, counted from 0"),
        (
            "fifo pool 0",
            "fifo pool 2",
            "line 17: pool 2 does not exist: there are 2, counted from 0",
        ),
        ("fifo pool 0", "fifo pool", "line 17: the line ends where the port's pool was expected"),
        (
            "1 fifo pool 0",
            "2 fifo pool 0",
            "line 18: pool 0 is memory of node 2: a port of node 1 cannot share it",
        ),
        (
            "red 1000 2000",
            "red 1000 4000",
            "line 18: RED from 1000 to 4000 octets at a buffer of 3000: 0 < min < max <= buffer is needed",
        ),
        (
            "0.02 0.002",
            "1.5 0.002",
            "line 18: a probability or weight of 1.5: more than 0 and at most 1 is possible",
        ),
        (
            "0.02 0.002",
            "0.1 0",
            "line 18: a probability or weight of 0: more than 0 and at most 1 is possible",
        ),
        ("gentle", "softly", r#"line 18: "softly", where hard or gentle was expected"#),
        ("1 7\n", "2 7\n", "line 22: flow 2 does not exist: there are 2, counted from 0"),
        ("\n1 7\n", "\n1 8\n", "line 22: class 8: classes are 0 to 7"),
        (
            "classes 1",
            "classes 2",
            r#"line 23: flow is "ways": a whole number up to 4294967295 was expected"#,
        ),
        (
            "0 forward 2",
            "2 forward 2",
            "line 24: flow 2 does not exist: there are 2, counted from 0",
        ),
        ("forward", "there", r#"line 24: "there", where forward or reverse was expected"#),
        (
            "1 reverse 2 0 1",
            "1 reverse 4 0 3 0 1",
            "line 25: a further reverse way of 4 links: it has to have 2 as the first has",
        ),
        (
            "1 reverse 2 0 1",
            "1 forward 2 0 1",
            "line 25: the forward route is broken: link 0 begins at node 0, not at 2",
        ),
        (
            "ports 5",
            "ports 4",
            r#"line 20: "0 wfq 1 3 3000 0 pool 1" is more than was expected on this line"#,
        ),
        (
            "3000 0\n1 1 2",
            "3000 1500\n1 1 2",
            "line 16: link 0 marks above a threshold of its own: let its port mark, or the link, not both",
        ),
    ];
    for (from, to, expected) in cases {
        let text = with_ports();
        // What is of ports, if it is there twice.
        let at = text.rfind(from).unwrap_or_else(|| panic!("{from:?}"));
        let text = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
        let said = Network::parse(&text).map_or_else(|e| e.to_string(), |_| "it was read".into());
        assert_eq!(said, expected, "{from:?} to {to:?}");
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
        word in 0usize..120,
        with in prop_oneof!["[0-9]{0,20}", "[ -~]{0,5}", Just("\n".to_owned())],
        line in 0usize..24,
        copies in 0usize..3,
    ) {
        let mut lines: Vec<_> = with_ports().lines().map(str::to_owned).collect();
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
