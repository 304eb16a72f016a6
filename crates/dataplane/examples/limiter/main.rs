//! EyeQ's Fig. 7: what the limiter costs beside HTB alone, in one run, as root:
//!
//! ```text
//! cargo run --release -p weir-dataplane --example limiter -- \
//!     --weir target/release/weir --out out/limiter [--rounds 5] \
//!     [--parts sizes,latency,destinations,programs] [--destinations 1,10,100,1000] [--sizes "64 B,9 kB"] \
//!     [--kinds htb,weir] [--loads binding,half] [--seconds 0.9] [--slower 1] [--slack 50us]
//! ```
//!
//! `--slower 20` is for a machine that is so many times slower than most, as an emulated one: rates
//! of packets are divided by it, and what senders do by the clock takes so many times longer.
//! `--slack` is what fq's timer may be late with departure times, where it is not to be the agent's
//! own 50 us.
//!
//! How it measures, and what came out: docs/results/limiter.md.
#![allow(unsafe_code, reason = "namespaces, affinity and socket options have no safe call")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads clocks and waits")]

mod cpu;
mod programs;
mod traffic;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;
use traffic::{Cost, Stream};
use world::{Kind, Wanted, World};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A size: what it is called, the payload, its octets on the wire and packets per second at the
/// limit.
struct Size {
    name: &'static str,
    payload: usize,
    wire: u64,
    pace: u64,
}

impl Size {
    /// Also without the space, which a list of words cannot have.
    fn is(&self, asked: &str) -> bool {
        asked == self.name || asked == self.name.replace(' ', "")
    }
}

/// Frames, with FCS in the name as is usual and without it on the wire; then super-packets of full
/// ones.
const SIZES: [Size; 6] = [
    Size { name: "64 B", payload: 18, wire: 60, pace: 20_000 },
    Size { name: "512 B", payload: 466, wire: 508, pace: 20_000 },
    Size { name: "1.5 kB", payload: 1472, wire: 1514, pace: 20_000 },
    Size { name: "9 kB", payload: 6 * 1472, wire: 6 * 1514, pace: 15_000 },
    Size { name: "32 kB", payload: 22 * 1472, wire: 22 * 1514, pace: 8_000 },
    Size { name: "64 kB", payload: 44 * 1472, wire: 44 * 1514, pace: 4_000 },
];

/// What is offered where a limiter binds. Not more: a sender that is not held back, because its
/// packets lost their socket on the way to the queue, would pay for what is dropped.
const BEYOND: f64 = 1.05;
/// What counts is three times as long.
const WARM_UP: Duration = Duration::from_millis(300);
/// Into which the agent has made a thousand classes.
const LONG_WARM_UP: Duration = Duration::from_secs(4);
const CLIENTS: [usize; 2] = [1, 512];

struct Arguments {
    weir: PathBuf,
    out: PathBuf,
    parts: String,
    rounds: usize,
    destinations: Vec<u32>,
    /// Names; all if there is none.
    sizes: Vec<String>,
    kinds: Vec<Kind>,
    loads: String,
    /// What counts of a play; what precedes it is a third of that.
    measured: Duration,
    slower: u32,
    slack: Option<String>,
}

impl Arguments {
    fn stream(&self, size: &Size, pace: f64) -> Stream {
        Stream {
            payload: size.payload,
            pace: pace / f64::from(self.slower),
            destinations: 0,
            slower: self.slower,
            warm_up: self.measured / 3,
            measured: self.measured,
        }
    }

    /// The limit of this size, in kbit/s.
    fn limit(&self, size: &Size) -> u64 {
        size.wire * 8 * size.pace / 1000 / u64::from(self.slower)
    }

    fn wanted(&self, limit: u64, line: u64, destinations: u32) -> Wanted<'_> {
        Wanted { limit, line, destinations, slack: self.slack.as_deref(), weir: &self.weir }
    }

    /// Those of these kinds that are asked for, each with a world of its own.
    fn worlds(&self, kinds: &[Kind], wanted: &Wanted<'_>) -> Result<Vec<World>> {
        let asked = kinds.iter().filter(|kind| self.kinds.contains(kind));
        asked.map(|kind| World::new(*kind, wanted)).collect()
    }
}

fn arguments() -> Result<Arguments> {
    let mut read = Arguments {
        weir: "target/release/weir".into(),
        out: "out/limiter".into(),
        parts: "sizes,latency,destinations,programs".into(),
        rounds: 5,
        destinations: vec![1, 10, 100, 1000],
        sizes: Vec::new(),
        kinds: Kind::ALL.into(),
        loads: "binding,half".into(),
        measured: 3 * WARM_UP,
        slower: 1,
        slack: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--weir" => read.weir = value.into(),
            "--out" => read.out = value.into(),
            "--parts" => read.parts = value,
            "--rounds" => read.rounds = value.parse()?,
            "--destinations" => {
                read.destinations =
                    value.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
            }
            "--sizes" => read.sizes = value.split(',').map(str::to_owned).collect(),
            "--kinds" => {
                let kind = |name| Kind::called(name).ok_or_else(|| format!("no kind {name}"));
                read.kinds = value.split(',').map(kind).collect::<std::result::Result<_, _>>()?;
            }
            "--loads" => read.loads = value,
            "--seconds" => read.measured = Duration::try_from_secs_f64(value.parse()?)?,
            "--slower" => read.slower = value.parse::<std::num::NonZeroU32>()?.get(),
            "--slack" => read.slack = Some(value),
            other => {
                let known = "--weir, --out, --parts, --rounds, --destinations, --sizes, --kinds, --loads, \
                             --seconds, --slower, --slack";
                return Err(format!("{other} is not known; there are {known}").into());
            }
        }
    }
    if let Some(unknown) = read.sizes.iter().find(|asked| !SIZES.iter().any(|s| s.is(asked))) {
        let known = SIZES.map(|size| size.name).join(", ");
        return Err(format!("no size is called {unknown}; there are {known}").into());
    }
    if read.rounds == 0 || !read.weir.is_file() {
        return Err(format!("{}: no such file, or no rounds", read.weir.display()).into());
    }
    read.weir = read.weir.canonicalize()?;
    if read.kinds.contains(&Kind::WeirByDepartures) && !world::has_fq()? {
        let name = Kind::WeirByDepartures.name();
        println!("{name} is left out: departure times need fq, which this kernel does not have");
        read.kinds.retain(|kind| *kind != Kind::WeirByDepartures);
    }
    Ok(read)
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    std::fs::create_dir_all(&arguments.out)?;
    let part = |name: &str| arguments.parts.split(',').any(|part| part == name);
    // Written after each part: one that fails leaves the others' results.
    let mut results = Vec::new();
    if part("sizes") {
        results.push(("sizes", sizes(&arguments)?));
        write(&arguments.out, &results)?;
    }
    if part("latency") {
        results.push(("latency", latency(&arguments)?));
        write(&arguments.out, &results)?;
    }
    if part("destinations") {
        results.push(("destinations", destinations(&arguments)?));
        write(&arguments.out, &results)?;
    }
    if part("programs") {
        results.push(("programs", programs::costs()?));
        write(&arguments.out, &results)?;
    }
    Ok(())
}

/// Each row is an object of JSON already.
fn write(out: &Path, results: &[(&str, Vec<String>)]) -> Result<()> {
    let parts: Vec<String> = results
        .iter()
        .map(|(name, rows)| format!("\"{name}\": [\n  {}\n]", rows.join(",\n  ")))
        .collect();
    Ok(std::fs::write(out.join("results.json"), format!("{{{}}}\n", parts.join(",\n")))?)
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { (values[(n - 1) / 2] + values[n / 2]) / 2.0 }
}

/// The median over rounds of one number.
fn of(costs: &[Cost], number: impl Fn(&Cost) -> f64) -> f64 {
    median(costs.iter().map(number).collect())
}

/// The median over rounds of a ratio within one round, and its extremes.
fn ratio(ours: &[Cost], theirs: &[Cost]) -> [f64; 3] {
    let all: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a.whole / b.whole).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    [median(all.clone()), least, all.iter().copied().fold(0.0, f64::max)]
}

fn row(what: &str, kind: Kind, costs: &[Cost], by: [f64; 3]) -> String {
    let [whole, sending, arrived] =
        [of(costs, |c| c.whole), of(costs, |c| c.sending), of(costs, |c| c.arrived)];
    let lost = of(costs, |c| 1.0 - c.arrived / c.sent);
    let [idle, agents] = [of(costs, |c| c.idle), of(costs, |c| c.agents)];
    let [timers, calls] = [of(costs, |c| c.timers), of(costs, |c| c.calls)];
    let stolen = costs.iter().map(|c| c.stolen).fold(0.0, f64::max);
    let [by_htb, least, most] = by;
    println!(
        "{what:<22} {:<8} {whole:>8.0} {sending:>8.0} {agents:>8.0} {timers:>6.2} {calls:>6.2} {arrived:>9.0} {lost:>6.3} \
         {idle:>5.2} {stolen:>5.2}   {by_htb:>5.2} ({least:.2} to {most:.2})",
        kind.name()
    );
    format!(
        "{{\"what\": \"{what}\", \"kind\": \"{}\", \"whole_ns\": {whole:.0}, \"sending_ns\": {sending:.0}, \
         \"agents_ns\": {agents:.0}, \"timers\": {timers:.3}, \"calls\": {calls:.3}, \
         \"arrived_per_s\": {arrived:.0}, \"lost\": {lost:.4}, \"idle\": {idle:.3}, \"stolen\": \
         {stolen:.3}, \"by_htb\": {by_htb:.3}, \"by_htb_least\": {least:.3}, \"by_htb_most\": {most:.3}}}",
        kind.name()
    )
}

fn heading() {
    println!(
        "{:<22} {:<8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>9} {:>6} {:>5} {:>5}   of htb (extremes)",
        "", "", "ns", "sending", "agents", "timers", "calls", "arrive/s", "lost", "idle", "stol"
    );
}

/// All kinds in turn, every round; then the table's rows.
fn paired(
    what: &str,
    worlds: &[World],
    rounds: usize,
    stream: impl Fn(Kind) -> Stream,
) -> Result<Vec<String>> {
    let mut costs = vec![Vec::new(); worlds.len()];
    for _ in 0..rounds {
        for (n, costs) in costs.iter_mut().enumerate() {
            costs.push(traffic::play(worlds, n, &stream(worlds[n].kind))?);
        }
    }
    let htb = worlds.iter().position(|world| world.kind == Kind::Htb);
    let htb = htb.ok_or("all is told in parts of HTB alone: name htb among the --kinds")?;
    let row =
        |(world, own): (&World, &Vec<Cost>)| row(what, world.kind, own, ratio(own, &costs[htb]));
    Ok(worlds.iter().zip(&costs).map(row).collect())
}

fn sizes(arguments: &Arguments) -> Result<Vec<String>> {
    let mut rows = Vec::new();
    heading();
    let is_wanted = |size: &&Size| {
        arguments.sizes.is_empty() || arguments.sizes.iter().any(|asked| size.is(asked))
    };
    for size in SIZES.iter().filter(is_wanted) {
        let limit = arguments.limit(size);
        let wanted = arguments.wanted(limit, 4 * limit, 0);
        let worlds = arguments.worlds(&Kind::ALL, &wanted)?;
        let full = size.pace as f64;
        let load = |name: &str| arguments.loads.split(',').any(|load| load == name);
        if load("binding") {
            let offered = |kind| if kind == Kind::Bare { full } else { full * BEYOND };
            let binding = |kind: Kind| arguments.stream(size, offered(kind));
            let what = format!("{}, binding", size.name);
            rows.extend(paired(&what, &worlds, arguments.rounds, binding)?);
        }
        if load("half") {
            let half = |_| arguments.stream(size, full / 2.0);
            let what = format!("{}, half of it", size.name);
            rows.extend(paired(&what, &worlds, arguments.rounds, half)?);
        }
    }
    Ok(rows)
}

fn latency(arguments: &Arguments) -> Result<Vec<String>> {
    println!("\n{:<10} {:<8} {:>9} {:>9} {:>9}   us", "clients", "", "per s", "median", "p99");
    let [limit, line] = [5_000_000, 10_000_000].map(|rate| rate / u64::from(arguments.slower));
    let wanted = arguments.wanted(limit, line, 0);
    let worlds = arguments.worlds(&Kind::ALL, &wanted)?;
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let mut trips: Vec<Vec<_>> = worlds.iter().map(|_| Vec::new()).collect();
        for _ in 0..arguments.rounds {
            for (world, trips) in worlds.iter().zip(&mut trips) {
                trips.push(traffic::requests(world, clients, arguments.measured)?);
            }
        }
        for (world, trips) in worlds.iter().zip(&trips) {
            let of = |f: fn(&traffic::Trips) -> f64| median(trips.iter().map(f).collect());
            let (rate, half, p99) = (of(|t| t.per_second), of(|t| t.median), of(|t| t.p99));
            let kind = world.kind.name();
            println!("{clients:<10} {kind:<8} {rate:>9.0} {half:>9.1} {p99:>9.1}");
            rows.push(format!(
                "{{\"clients\": {clients}, \"kind\": \"{kind}\", \"per_s\": {rate:.0}, \
                 \"median_us\": {half:.1}, \"p99_us\": {p99:.1}}}"
            ));
        }
    }
    Ok(rows)
}

/// One VM to so many, at the rate of its uplink: pairs under one root, as in the paper (§5.1).
fn destinations(arguments: &Arguments) -> Result<Vec<String>> {
    println!();
    heading();
    let size = &SIZES[2];
    let limit = arguments.limit(size);
    let most = arguments.destinations.iter().copied().max().unwrap_or(1);
    let wanted = arguments.wanted(limit, limit, most);
    let kinds = [Kind::Htb, Kind::Weir, Kind::WeirByBursts, Kind::WeirByDepartures];
    let worlds = arguments.worlds(&kinds, &wanted)?;
    let mut rows = Vec::new();
    for &destinations in &arguments.destinations {
        let usual = arguments.stream(size, size.pace as f64 * BEYOND);
        let stream = |kind: Kind| Stream {
            destinations,
            warm_up: usual.warm_up.max(if kind.is_weir() { LONG_WARM_UP } else { WARM_UP }),
            measured: 2 * usual.measured,
            ..usual
        };
        let what = format!("{destinations} destinations");
        rows.extend(paired(&what, &worlds, arguments.rounds, stream)?);
    }
    Ok(rows)
}
