//! One case of `make truth` in this simulator; `ns3.cc` beside this file plays the same in ns-3.
//!
//! Problem   Two simulators can be compared only where both were given the same things.
//! Approach  Both read the same command line, word for word, build the same dumbbell from it, count
//!           payload between the same two instants, and print the same lines.
//! Promises  Same command line, same lines. Packets are as long on the wire as ns-3's, PPP
//!           included.
//! Not here  The cases and what is asked of them: `scripts/truth`. Why things are set as they are:
//!           `docs/results/truth.md`.
//!
//! ```text
//! truth --mbps=100 --cc=reno --recovery=prr --tcp_us=10000 --udp_kbps=30000 --starts_us=0,1700 \
//!       --buffer=102 --mark=0 --from_ms=5000 --until_ms=20000
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use weir_sim::{Algorithm, Flaw, FlowSpec, LinkSpec, Network, Options, Sim, TcpConfig, Traffic};
use weir_units::{Bytes, Rate, Span, Time};

/// Octets of a full packet on the wire: IP's 1500, and PPP's header.
const PACKET: u16 = 1502;
const PPP: u16 = 2;
/// Propagation between the switches, and from the right one to a receiver. The rest of a flow's
/// round trip lies between its sender and the left one.
const MIDDLE: Span = Span::from_micros(500);
const RIGHT: Span = Span::from_micros(100);
/// Round trip of UDP flows.
const UDP_TRIP: Span = Span::from_millis(10);
/// Hosts' links are so many times as fast as the one between the switches.
const ACCESS: u64 = 10;
/// Packets that every other port holds: as many as ever come.
const ROOM: u64 = 100_000;

struct Case {
    /// Between the switches.
    rate: Rate,
    algorithm: Algorithm,
    /// Round trips of the TCP flows, without the time that packets take on the wire.
    tcp: Vec<Span>,
    /// Rates on the wire of the UDP flows.
    udp: Vec<Rate>,
    /// Of each flow; TCP's come first.
    starts: Vec<Time>,
    /// Packets between the switches, the one on the wire included.
    buffer: u64,
    /// A packet is marked if it finds so many waiting behind the next one; 0: none is.
    mark: u64,
    /// What is counted.
    from: Time,
    until: Time,
}

/// A command line of `--NAME=VALUE`.
struct Words(BTreeMap<String, String>);

impl Words {
    fn parse(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = BTreeMap::new();
        for arg in args {
            let pair = arg.strip_prefix("--").and_then(|word| word.split_once('='));
            let (name, value) = pair.ok_or_else(|| format!("{arg}: write --NAME=VALUE"))?;
            words.insert(name.to_owned(), value.to_owned());
        }
        Ok(Self(words))
    }

    fn take(&mut self, name: &str) -> Result<String, String> {
        self.0.remove(name).ok_or_else(|| format!("--{name}=… is missing"))
    }

    fn numbers(&mut self, name: &str) -> Result<Vec<u64>, String> {
        let text = self.take(name)?;
        let parts = text.split(',').filter(|part| !part.is_empty());
        let wrong = |part: &str| format!("--{name}: {part} is no number");
        parts.map(|part| part.parse::<u64>().map_err(|_| wrong(part))).collect()
    }

    /// None if nothing is said.
    fn numbers_if_any(&mut self, name: &str) -> Result<Vec<u64>, String> {
        if self.0.contains_key(name) { self.numbers(name) } else { Ok(Vec::new()) }
    }

    fn number(&mut self, name: &str) -> Result<u64, String> {
        match self.numbers(name)?[..] {
            [number] => Ok(number),
            _ => Err(format!("--{name}: one number is needed")),
        }
    }
}

impl Case {
    fn parse(mut words: Words) -> Result<Self, String> {
        let algorithm = match words.take("cc")?.as_str() {
            "reno" => Algorithm::Reno,
            "cubic" => Algorithm::Cubic,
            "dctcp" => Algorithm::Dctcp,
            other => return Err(format!("--cc: {other} is none of reno, cubic, dctcp")),
        };
        // How ns-3 lowers its window: here there is one way.
        words.take("recovery")?;
        let at = |us: u64| Time::ZERO + Span::from_micros(us);
        let kbps = |rate: u64| Rate::from_bps(rate * 1000);
        let case = Self {
            rate: Rate::from_mbps(words.number("mbps")?),
            algorithm,
            tcp: words.numbers("tcp_us")?.into_iter().map(Span::from_micros).collect(),
            udp: words.numbers_if_any("udp_kbps")?.into_iter().map(kbps).collect(),
            starts: words.numbers("starts_us")?.into_iter().map(at).collect(),
            buffer: words.number("buffer")?,
            mark: words.number("mark")?,
            from: Time::ZERO + Span::from_millis(words.number("from_ms")?),
            until: Time::ZERO + Span::from_millis(words.number("until_ms")?),
        };
        if let Some(name) = words.0.keys().next() {
            return Err(format!("--{name} is not known"));
        }
        if case.starts.len() != case.tcp.len() + case.udp.len() {
            return Err("--starts_us: one for each flow is needed".into());
        }
        if case.tcp.iter().any(|trip| *trip < (MIDDLE + RIGHT) * 2) {
            return Err("--tcp_us: at least 1200 are needed".into());
        }
        if case.from >= case.until {
            return Err("--from_ms: has to be before --until_ms".into());
        }
        Ok(case)
    }

    /// Senders come first, then receivers, then the two switches. The bottleneck is link 0.
    fn network(&self) -> Result<Network, Flaw> {
        let flows = self.starts.len() as u32;
        let (left, right) = (2 * flows, 2 * flows + 1);
        let mut network = Network::framed(2 * flows + 2, PACKET, PPP, self.until)?;
        let packets = |count: u64| Bytes::new(count * u64::from(PACKET));
        let middle = LinkSpec {
            from: left,
            to: right,
            rate: self.rate,
            delay: MIDDLE,
            buffer: packets(self.buffer),
            // The next one to go is counted here, and not in ns-3's queue disc.
            mark_above: (self.mark > 0).then(|| packets(self.mark + 1)),
            loss: 0.0,
        };
        let plain = LinkSpec { buffer: packets(ROOM), mark_above: None, ..middle.clone() };
        let there = network.add_link(middle)?;
        let back = network.add_link(LinkSpec { from: right, to: left, ..plain.clone() })?;
        for (number, start) in (0u32..).zip(&self.starts) {
            let udp = (number as usize).checked_sub(self.tcp.len()).map(|place| self.udp[place]);
            let traffic = match udp {
                Some(rate) => Traffic::Udp { rate, size: PACKET, bursts: None },
                None => Traffic::Tcp { octets: None, algorithm: None },
            };
            let trip = self.tcp.get(number as usize).copied().unwrap_or(UDP_TRIP);
            let near = Span::from_nanos(trip.as_nanos() / 2) - MIDDLE - RIGHT;
            let (src, dst) = (number, flows + number);
            let rate = self.rate * ACCESS;
            let mut link = |from, to, delay| {
                network.add_link(LinkSpec { from, to, rate, delay, ..plain.clone() })
            };
            let forward = vec![link(src, left, near)?, there, link(right, dst, RIGHT)?];
            let reverse = vec![link(dst, right, RIGHT)?, back, link(left, src, near)?];
            network.add_flow(FlowSpec { src, dst, start: *start, traffic, forward, reverse })?;
        }
        Ok(network)
    }

    fn play(&self) -> Result<(), Flaw> {
        // ns-3 does not acknowledge the first segments one by one. All else is set there.
        let tcp = TcpConfig {
            algorithm: self.algorithm,
            ecn: self.mark > 0,
            quick_acks: 0,
            ..TcpConfig::default()
        };
        let network = self.network()?;
        let mut sim = Sim::new(&network, &Options { tcp, seed: 1 });
        sim.run_until(self.from);
        let before = sim.outcome();
        sim.run_until(self.until);
        let after = sim.outcome();
        for (number, (a, b)) in before.flows.iter().zip(&after.flows).enumerate() {
            println!("flow {number} {}", b.octets.get() - a.octets.get());
        }
        println!("drops {}", after.links[0].drops - before.links[0].drops);
        println!("marks {}", after.links[0].marks - before.links[0].marks);
        Ok(())
    }
}

fn main() -> ExitCode {
    let case = Words::parse(std::env::args().skip(1)).and_then(Case::parse);
    let played = case.and_then(|case| case.play().map_err(|flaw| flaw.to_string()));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("truth: {error}");
            ExitCode::from(2)
        }
    }
}
