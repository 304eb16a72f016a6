//! What a way's measures mean for floors: one row for each thing that Weir depends on.
//!
//! Problem   "DSCP 10 became 0" says neither whether a floor breaks nor what to do.
//! Approach  Each row has what was found in each direction, a state, what that costs, and a remedy. A state
//!           depends on what the host's configuration uses, if there is one.
//! Promises  [`Report::holds`] is true only if all that Weir needs was seen to survive in both directions.
//! Not here  Measuring: see `ask`.

use super::flow::SEGMENTS;
use super::header::Marks;
use super::note::{Judged, Welcome};
use super::probes::{Fate, Fates, Probed, Sort, WAYS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use weir_units::{Rate, Span, show};

/// Part of a stream's datagrams that may be lost. At 0.1 % one TCP connection has about 2 Gb/s over
/// a round trip of 0.2 ms, and a tenth of that over 2 ms.
const LOSS: f64 = 1e-3;
/// A stream that was sent with less than this part of its rate proves nothing about the rate.
const SLOW: f64 = 0.98;
/// Beyond this round trip floors of single TCP connections may break: limit 5 of docs/STATUS.md.
const LONG: f64 = 5e-3;
/// Clocks that differ by more make reports of two hosts hard to compare.
const APART: f64 = 1.0;
/// Most code points that are named.
const NAMED: usize = 4;
/// Code point of agents' messages.
const CONTROL: u8 = 48;

/// Whether one thing that Weir depends on is as it should be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// It is.
    Fine,
    /// Floors hold without it, at a price.
    Costs,
    /// It was not seen.
    Unknown,
    /// Weir cannot keep what it promises over this way.
    Fails,
}

impl State {
    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Costs => "costs",
            Self::Unknown => "unknown",
            Self::Fails => "FAILS",
        }
    }
}

/// One thing that Weir depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its name.
    pub what: String,
    /// The worse of both directions.
    pub state: State,
    /// What was found on the way to the other host.
    pub there: String,
    /// What was found on the way back.
    pub back: String,
    /// The consequence; empty if the state is fine.
    pub costs: String,
    /// What to do; empty if the state is fine.
    pub remedy: String,
}

/// What was found about the ways to one host and back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The host's name, or its address.
    pub host: String,
    /// Where it was asked.
    pub at: SocketAddr,
    /// All that was looked at.
    pub rows: Vec<Row>,
    /// What a reader of the rows should know.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether all that Weir needs survives.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.state < State::Unknown)
    }
}

/// What this host's configuration uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    /// There is a configuration.
    pub(crate) is_configured: bool,
    /// Of tenants' queues, and of the mechanism.
    pub(crate) code_points: BTreeSet<u8>,
    /// ECN marks are a signal.
    pub(crate) marks: bool,
    /// Losses are, and show by identifications.
    pub(crate) numbers: bool,
    /// Packets carry departure times, which the reserved bit announces.
    pub(crate) times: bool,
}

/// All that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) local: SocketAddr,
    pub(crate) welcome: Welcome,
    pub(crate) greeting: Greeting,
    pub(crate) headers: Vec<Probed>,
    /// Of what looks like a tunnel's packets, with this port.
    pub(crate) outer: Option<(u16, Vec<Probed>)>,
    pub(crate) largest: Largest,
    pub(crate) trips: Trips,
    pub(crate) rate: Option<Rate>,
    pub(crate) there: Option<Carried>,
    pub(crate) back: Option<Carried>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Greeting {
    /// No configuration here.
    Unconfigured,
    /// The directory has no host with this address.
    Unlisted,
    /// What each host says of the other's control message.
    Judged { there: Judged, back: Judged },
}

/// Longest packets that passed, with DF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Largest {
    /// MTU of the device here.
    pub(crate) own: u16,
    /// And there.
    pub(crate) peer: u16,
    pub(crate) there: Option<u16>,
    pub(crate) back: Option<u16>,
}

/// Times of the ways, seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Trips {
    /// How many there are.
    pub(crate) count: usize,
    /// The median of both ways.
    pub(crate) round: f64,
    /// By direction: the 95th percentile above the least.
    pub(crate) jitter: [f64; 2],
    /// What the clock there is ahead.
    pub(crate) ahead: f64,
}

impl Trips {
    /// Of probes' times there and back, in nanoseconds of two clocks.
    pub(crate) fn of(pairs: Vec<(i64, i64)>) -> Self {
        let sorted = |of: &dyn Fn(&(i64, i64)) -> i64| {
            let mut all: Vec<i64> = pairs.iter().map(of).collect();
            all.sort_unstable();
            all
        };
        let (there, back) = (sorted(&|pair| pair.0), sorted(&|pair| pair.1));
        let round = sorted(&|pair| pair.0.saturating_add(pair.1));
        let Some(middle) = round.get(round.len() / 2) else { return Self::default() };
        let seconds = |ns: i64| ns as f64 / 1e9;
        let late = |all: &[i64]| seconds(all[all.len() * 95 / 100].saturating_sub(all[0]));
        // The fastest ways waited least in queues, which are not the same in both directions.
        let ahead = seconds(there[0].saturating_sub(back[0])) / 2.0;
        let jitter = [late(&there), late(&back)];
        Self { count: round.len(), round: seconds(*middle), jitter, ahead }
    }
}

/// What became of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Carried {
    /// Octets of a frame.
    pub(crate) frame: u64,
    pub(crate) sent: u64,
    pub(crate) sent_in: Span,
    pub(crate) got: u64,
    pub(crate) got_in: Span,
    /// Buffers that reached the host and not the program. Each holds as many datagrams as the kernel
    /// merged, [`SEGMENTS`] at most.
    pub(crate) dropped: u64,
}

impl Carried {
    fn rate(&self, datagrams: u64, span: Span) -> f64 {
        let seconds = span.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { datagrams as f64 * (self.frame * 8) as f64 / seconds }
    }

    fn judge(&self, asked: Rate) -> (State, String) {
        if self.sent == 0 {
            return (State::Unknown, "not tried: nothing of the stream there arrived".into());
        }
        let share = |lost: u64| lost as f64 / self.sent as f64;
        let lost = self.sent.saturating_sub(self.got);
        let by_network = lost.saturating_sub(self.dropped.saturating_mul(SEGMENTS as u64));
        // The first datagram begins the time that the others take.
        let got = self.rate(self.got.saturating_sub(1), self.got_in);
        let sent = self.rate(self.sent, self.sent_in);
        let text = format!("{}, {} lost", show::rate(got), show::percent(share(lost)));
        if share(by_network) > LOSS {
            return (State::Fails, text);
        }
        if sent < SLOW * asked.as_f64() {
            return (State::Unknown, format!("only {} were sent", show::rate(sent)));
        }
        if share(lost) > LOSS {
            return (State::Unknown, format!("{text}, by a full socket of the receiving host"));
        }
        (State::Fine, text)
    }
}

/// The only row, where nothing answers.
pub(crate) fn unreachable(what: &str, costs: &str, remedy: String) -> Vec<Row> {
    let row = row("control port", [State::Fails, State::Fails], [what.into(), "–".into()]);
    vec![advised(row, costs, &remedy)]
}

/// All rows and notes.
pub(crate) fn judge(facts: &Facts, needs: &Needs) -> (Vec<Row>, Vec<String>) {
    let is_v6 = facts.local.is_ipv6();
    let mut rows =
        vec![row("control port", [State::Fine; 2], ["arrives".into(), "arrives".into()])];
    rows.extend(translated(facts));
    rows.push(keys(&facts.greeting));
    rows.extend(header_rows(&facts.headers, needs, is_v6, ""));
    if let Some((port, probed)) = &facts.outer {
        rows.extend(header_rows(probed, needs, is_v6, &format!(", to port {port}")));
    }
    rows.push(length(&facts.largest, &facts.headers));
    rows.extend(times(&facts.trips));
    if let (Some(rate), Some(there), Some(back)) = (facts.rate, &facts.there, &facts.back) {
        rows.push(carried(rate, there, back));
    }
    (rows, notes(facts, needs))
}

/// A row without advice.
fn row(what: &str, states: [State; 2], [there, back]: [String; 2]) -> Row {
    let (costs, remedy) = (String::new(), String::new());
    Row { what: what.into(), state: states[0].max(states[1]), there, back, costs, remedy }
}

/// With advice, unless it is fine.
fn advised(mut row: Row, costs: &str, remedy: &str) -> Row {
    if row.state != State::Fine {
        (row.costs, row.remedy) = (costs.into(), remedy.into());
    }
    row
}

fn translated(facts: &Facts) -> Option<Row> {
    let seen = facts.welcome.seen;
    (seen.ip() != facts.local.ip() || seen.port() != facts.local.port()).then(|| {
        let there = format!("{} came as {seen}", facts.local);
        let row = row("addresses", [State::Fails, State::Fine], [there, "–".into()]);
        let costs = "agents know each other by the addresses of the directory, and a translation ends \
                     when nothing is sent";
        advised(row, costs, "let hosts reach each other without address translation")
    })
}

fn keys(greeting: &Greeting) -> Row {
    let side = |judged: &Judged| match judged {
        Judged::Accepted => (State::Fine, "accepted".to_owned()),
        Judged::Unconfigured => (State::Unknown, "not compared".to_owned()),
        Judged::Refused(why) => (State::Fails, format!("refused: {why}")),
    };
    let what = "keys and versions";
    match greeting {
        Greeting::Judged { there, back } => {
            let ((state, there), (other, back)) = (side(there), side(back));
            let row = row(what, [state, other], [there, back]);
            if row.state == State::Unknown {
                let remedy = "start the server with --config, too";
                return advised(
                    row,
                    "a key that does not fit would show in `weir top` only",
                    remedy,
                );
            }
            let costs =
                "the hosts do not believe each other's agents: no floor between them is agreed";
            let remedy = "the same directory on both hosts, keys of one `weir keys make`, and \
                          neighbouring versions of Weir";
            advised(row, costs, remedy)
        }
        // Before keys exist, this is no fault of the way.
        Greeting::Unconfigured => {
            let row = row(what, [State::Costs; 2], ["not compared".into(), "not compared".into()]);
            let costs = "a key that does not fit would show in `weir top` only";
            advised(row, costs, "name agent.toml with --config on both hosts")
        }
        Greeting::Unlisted => {
            let none = "not in the directory".to_owned();
            let row = row(what, [State::Costs; 2], [none.clone(), none]);
            let costs = "no agent here speaks to one at this address";
            advised(row, costs, "ask the address that the directory has, or add the host to it")
        }
    }
}

/// What a direction did to some probes.
#[derive(Default)]
struct Side {
    /// By what was sent; what it became, and on how many ways.
    changed: BTreeMap<u8, BTreeMap<Option<u8>, usize>>,
    /// Values of which nothing is known.
    untried: BTreeSet<u8>,
    /// Some probe was answered for.
    is_tried: bool,
}

/// Follows a field of the probes that `of` gives: as it was sent, and as it came.
fn follow(
    probed: &[Probed],
    side: impl Fn(&Probed) -> &Fates,
    of: impl Fn(Sort, Marks) -> Option<u8>,
) -> Side {
    // A way on which nothing at all comes is closed by a firewall: that says nothing about headers.
    let is_open = |way: usize| {
        let came = |probed: &Probed| matches!(side(probed).all.get(way), Some((_, Fate::Came(_))));
        probed.iter().any(came)
    };
    let open: Vec<bool> = (0..WAYS).map(is_open).collect();
    let mut found = Side::default();
    let mut tried = BTreeSet::new();
    for one in probed {
        for (way, (sent, fate)) in side(one).all.iter().enumerate() {
            let Some(was) = of(one.sort, *sent).filter(|_| open.get(way) == Some(&true)) else {
                continue;
            };
            found.untried.insert(was);
            let became = match fate {
                Fate::Untried => continue,
                Fate::Lost => None,
                Fate::Came(marks) => of(one.sort, *marks),
            };
            tried.insert(was);
            if became != Some(was) {
                *found.changed.entry(was).or_default().entry(became).or_default() += 1;
            }
        }
    }
    found.is_tried = !tried.is_empty();
    found.untried.retain(|value| !tried.contains(value));
    found
}

impl Side {
    /// In words; `name` is one value's name.
    fn text(&self, whole: &str, name: impl Fn(u8) -> String) -> String {
        if !self.is_tried {
            return "–".into();
        }
        let rest = match self.untried.len() {
            0 => String::new(),
            count => format!(", {count} not tried"),
        };
        if self.changed.is_empty() {
            return format!("{whole}{rest}");
        }
        let one = |(was, became): (&u8, &BTreeMap<Option<u8>, usize>)| {
            let one = |(became, ways): (&Option<u8>, &usize)| {
                let became = became.map_or("lost".into(), &name);
                let some =
                    if *ways < WAYS { format!(" on {ways} of {WAYS} ways") } else { String::new() };
                format!("{became}{some}")
            };
            let became: Vec<String> = became.iter().map(one).collect();
            format!("{} → {}", name(*was), became.join(" or "))
        };
        let named: Vec<String> = self.changed.iter().take(NAMED).map(one).collect();
        let more = self.changed.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}{rest}", named.join(", "))
    }

    /// `broken` if this value, or any other, was changed.
    fn state(&self, broken: impl Fn(u8) -> State) -> State {
        if !self.is_tried {
            return State::Unknown;
        }
        self.changed.keys().map(|was| broken(*was)).max().unwrap_or(State::Fine)
    }
}

/// The rows of one kind of packets.
fn header_rows(probed: &[Probed], needs: &Needs, is_v6: bool, suffix: &str) -> Vec<Row> {
    let sides = |of: &dyn Fn(Sort, Marks) -> Option<u8>| {
        [follow(probed, |p| &p.there, of), follow(probed, |p| &p.back, of)]
    };
    let mut rows = vec![dscp(
        &sides(&|sort, marks| matches!(sort, Sort::Dscp(_)).then_some(marks.tos >> 2)),
        needs,
        suffix,
    )];
    rows.push(ecn(
        &sides(&|sort, marks| {
            matches!(sort, Sort::Dscp(0) | Sort::Ecn(_)).then_some(marks.tos & 3)
        }),
        needs,
        suffix,
    ));
    // The number belongs to inner headers: a tunnel's own may have any.
    if is_v6 || !suffix.is_empty() {
        return rows;
    }
    rows.push(identification(probed, needs));
    let bit = |sort, marks: Marks| match sort {
        Sort::Reserved { .. } => {
            Some(u8::from(marks.reserved) << 1 | u8::from(marks.dont_fragment))
        }
        _ => None,
    };
    let bits = sides(&bit);
    let name = |bits: u8| {
        let kept = if bits & 2 != 0 { "set" } else { "cleared" };
        format!("{kept} {} DF", if bits & 1 != 0 { "with" } else { "without" })
    };
    let texts = bits.each_ref().map(|side| side.text("as sent", name));
    let broken = if needs.times { State::Fails } else { State::Costs };
    let states = bits.each_ref().map(|side| side.state(|_| broken).min(broken));
    rows.push(advised(
        row("reserved bit", states, texts),
        "the mechanism Level writes departure times into packets with this bit: on this way it sees no \
         queue, or its packets are lost; no other mechanism needs it",
        "let routers and firewalls on the way leave the fragment field alone, or use another mechanism",
    ));
    rows
}

fn dscp(sides: &[Side; 2], needs: &Needs, suffix: &str) -> Row {
    let broken = |point: u8| match point {
        _ if needs.code_points.contains(&point) => State::Fails,
        CONTROL => State::Costs,
        _ if needs.is_configured => State::Fine,
        _ => State::Costs,
    };
    let texts = sides.each_ref().map(|side| {
        let whole = format!("all {} as sent", 64 - side.untried.len());
        side.text(&whole, |point| point.to_string())
    });
    let row = row(&format!("DSCP{suffix}"), sides.each_ref().map(|side| side.state(broken)), texts);
    if row.state == State::Fails {
        let costs = "tenants with these code points are in the shared queue behind that place, and \
                     nothing limits them to their floors";
        let remedy = "let switches, routers and tunnels on the way trust code points, or leave these \
                      out of `code_points`";
        return advised(row, costs, remedy);
    }
    let costs = "no tenant can have a queue by these code points; without 48, agents' messages wait with data";
    advised(
        row,
        costs,
        "leave them out of `code_points`, or let switches on the way trust code points",
    )
}

fn ecn(sides: &[Side; 2], needs: &Needs, suffix: &str) -> Row {
    let name = |bits: u8| ["Not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(bits & 3)].to_owned();
    // A queue that is full may mark what is ECN-capable. All ways at the same time are no chance.
    let unmarked = |side: &Side| {
        let mut changed = side.changed.clone();
        for became in changed.iter_mut().filter(|(was, _)| matches!(was, 1 | 2)).map(|(_, b)| b) {
            became.retain(|became, ways| *became != Some(3) || *ways == WAYS);
        }
        changed.retain(|_, became| !became.is_empty());
        Side { changed, untried: side.untried.clone(), is_tried: side.is_tried }
    };
    let sides = sides.each_ref().map(unmarked);
    let broken = |_| if needs.marks { State::Fails } else { State::Costs };
    let texts = sides.each_ref().map(|side| side.text("as sent", name));
    let row = row(&format!("ECN{suffix}"), sides.each_ref().map(|side| side.state(broken)), texts);
    let costs = "marks of switches are lost or invented: presets `-ecn` and translations see no \
                 congestion, or see it where there is none";
    let remedy = "let devices on the way leave both bits alone (RFC 3168), or use a preset without \
                  `-ecn` and no translations";
    advised(row, costs, remedy)
}

fn identification(probed: &[Probed], needs: &Needs) -> Row {
    // 1 with DF and 2 without, if it is as sent; else 0.
    let side = |of: fn(&Probed) -> &Fates| {
        let (mut rewritten, mut is_tried) = (BTreeSet::new(), false);
        for one in probed.iter().filter(|one| !matches!(one.sort, Sort::Reserved { .. })) {
            for (sent, fate) in &of(one).all {
                if let Fate::Came(came) = fate {
                    is_tried = true;
                    if came.id != sent.id {
                        rewritten.insert(sent.dont_fragment);
                    }
                }
            }
        }
        let broken = if needs.numbers || !needs.is_configured { State::Fails } else { State::Fine };
        let both: Vec<bool> = rewritten.into_iter().collect();
        match both[..] {
            _ if !is_tried => (State::Unknown, "–".to_owned()),
            [] => (State::Fine, "as sent".to_owned()),
            [true] => (broken, "rewritten with DF".to_owned()),
            [false] => (broken, "rewritten without DF".to_owned()),
            _ => (broken, "rewritten".to_owned()),
        }
    };
    let ((state, there), (other, back)) = (side(|p| &p.there), side(|p| &p.back));
    let row = row("IPv4 identification", [state, other], [there, back]);
    let costs = "packets have their numbers there: without them losses do not show, or show where there \
                 are none, and pairs have their floors at best";
    let remedy = "end address translation, scrubbing or normalization between hosts, or use a preset \
                  `-ecn` where switches mark";
    advised(row, costs, remedy)
}

fn length(largest: &Largest, probed: &[Probed]) -> Row {
    let Largest { own, peer, there, back } = *largest;
    let side = |got: Option<u16>, wanted: u16| match got {
        None => (State::Fails, "nothing passes".to_owned()),
        Some(got) if got >= wanted => (State::Fine, got.to_string()),
        Some(got) => (State::Fails, format!("{got} of {wanted}")),
    };
    let (mut state, mut to) = side(there, own);
    let (mut other, mut home) = match back {
        // No longer question arrives, so no longer answer leaves.
        Some(back) if Some(back) == there && back < own.min(peer) => {
            (State::Unknown, format!("{back} or more"))
        }
        back => side(back, own.min(peer)),
    };
    let is_cleared = |of: fn(&Probed) -> &Fates| {
        let cleared = |(sent, fate): &(Marks, Fate)| matches!(fate, Fate::Came(came) if sent.dont_fragment && !came.dont_fragment);
        probed.iter().any(|one| of(one).all.iter().any(cleared))
    };
    let there = (&mut state, &mut to, (|p| &p.there) as fn(&Probed) -> &Fates);
    for (state, text, of) in [there, (&mut other, &mut home, |p| &p.back)] {
        if is_cleared(of) {
            // What arrives may have been in fragments, which the kernel puts together.
            *state = State::Unknown.max(*state);
            text.push_str(", DF is cleared");
        }
    }
    let row = row("MTU", [state, other], [to, home]);
    let costs = "full packets of VMs are lost or cut into fragments on this way, and fragments have no \
                 numbers";
    let remedy = "raise the MTU of the links on the way, or lower that of the hosts' and VMs' devices \
                  (with a tunnel by its overhead, too)";
    advised(row, costs, remedy)
}

fn times(trips: &Trips) -> Vec<Row> {
    if trips.count == 0 {
        let none = || "–".to_owned();
        let row = row("round trip", [State::Unknown; 2], [none(), none()]);
        return vec![advised(row, "no probe of time was answered", "try it again")];
    }
    let state = if trips.round > LONG { State::Costs } else { State::Fine };
    let [there, back] = trips.jitter.map(|jitter| format!("jitter {}", show::time(jitter)));
    let round = row(&format!("round trip {}", show::time(trips.round)), [state; 2], [there, back]);
    let costs = "beyond 5 ms one TCP connection may have less than its floor, and pairs borrow slowly \
                 after a loss";
    let remedy = "promise less to single connections over this way, or use several of them";
    let state = if trips.ahead.abs() > APART { State::Costs } else { State::Fine };
    let word = if trips.ahead < 0.0 { "behind" } else { "ahead" };
    let there = format!("{} {word}", show::time(trips.ahead.abs()));
    let clocks = row("clock there", [state; 2], [there, "–".into()]);
    vec![
        advised(round, costs, remedy),
        advised(
            clocks,
            "logs and reports of the hosts do not fit together; with hours between them a \
             certificate of the controller is refused",
            "synchronize the clocks of both hosts (NTP)",
        ),
    ]
}

fn carried(rate: Rate, there: &Carried, back: &Carried) -> Row {
    let ((state, to), (other, home)) = (there.judge(rate), back.judge(rate));
    let row = row(&format!("floors of {rate}"), [state, other], [to, home]);
    if row.state == State::Unknown {
        let costs = "whether the way carries this rate is not known";
        let remedy = "a CPU was full, or `host_floor` limits what hosts send: try a lower --rate, or \
                      without agents";
        return advised(row, costs, remedy);
    }
    let costs = "the way does not carry what floors of this sum need";
    let remedy = "find the link that loses (counters of cards and switches), keep other traffic away, \
                  or promise less";
    advised(row, costs, remedy)
}

fn notes(facts: &Facts, needs: &Needs) -> Vec<String> {
    let mut notes = Vec::new();
    let own = env!("CARGO_PKG_VERSION");
    if facts.welcome.release != own {
        notes.push(format!(
            "Weir {own} here, {} there: neighbouring versions fit.",
            facts.welcome.release
        ));
    }
    let closed = |of: fn(&Probed) -> &Fates| {
        let came = |way: usize| {
            let came = |p: &Probed| matches!(of(p).all.get(way), Some((_, Fate::Came(_))));
            facts.headers.iter().any(came)
        };
        (0..WAYS).filter(|way| !came(*way)).count()
    };
    let closed = closed(|p| &p.there).max(closed(|p| &p.back));
    if closed > 0 {
        notes.push(format!(
            "{closed} of {WAYS} source ports do not pass: a firewall may ask for the port of the \
             agents. Equal paths that routers choose by ports were not all tried."
        ));
    }
    if facts.there.is_some() && facts.welcome.has_agent {
        notes.push(
            "An agent runs there. The stream is traffic of the hosts: `uplink.host_floor` limits it to \
             what VMs leave, and without that it takes from them."
                .into(),
        );
    }
    if !needs.is_configured {
        notes.push(
            "Without --config, what no mechanism may need counts as `costs`, not as a failure."
                .into(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
