//! What a journal costs: CPU time of a driver's turn without one and with one, the writing thread
//! included, and the octets that a turn adds.
//!
//! Both drivers take their turns in blocks, one after the other, so that what disturbs one disturbs
//! both. Medians of the blocks.

use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_core::host::{
    Call, Direction, Given, Hose, HostLoop, Location, Observed, Policy, ReceiveCount, SendCount,
};
use weir_core::mechanism::Law;
use weir_core::mechanism::elasticswitch::ElasticSwitch;
use weir_journal::{Kept, Log, Options, Pace, segments};
use weir_units::{HostId, PairId, Rate, Span, TenantId, Time, VmId};

/// Pairs of one VM.
const PEERS: u32 = 10;
/// Turns of a block, and blocks.
const TURNS: u64 = 400;
const BLOCKS: usize = 9;
/// Time between two turns of an agent.
const STEP: Span = Span::from_millis(15);

fn host(pairs: u32) -> HostLoop {
    let vms = pairs / PEERS;
    let at = |host| Location { tenant: TenantId(0), host: HostId(host) };
    let here = (0..vms).map(|vm| (VmId(vm), at(0)));
    let there = (0..PEERS).map(|peer| (VmId(vms + peer), at(1 + peer)));
    let law = ElasticSwitch::preset("steady").expect("the agents' preset");
    let law = Law::ElasticSwitch(Box::new(law));
    let policy = Policy::new(HostId(0), Rate::from_mbps(10_000), law)
        .with_vms((0..vms).map(|vm| (VmId(vm), Hose::both(Rate::from_mbps(100)))))
        .with_directory(here.chain(there));
    HostLoop::new(policy, Time::ZERO).expect("sound").with_heartbeat(Time::ZERO)
}

struct Driver {
    kept: Kept,
    ids: Vec<PairId>,
    turns: u64,
}

impl Driver {
    fn new(pairs: u32, journal: Option<&Path>) -> Self {
        let log = journal.map(|dir| Log::open_in(dir, Options::new(Pace::Drops)).expect("room"));
        let vms = pairs / PEERS;
        let ids = (0..pairs).map(|i| PairId::new(VmId(i / PEERS), VmId(vms + i % PEERS)));
        let mut driver = Self { kept: Kept::new(host(pairs), log), ids: ids.collect(), turns: 0 };
        for id in driver.ids.clone() {
            for (pair, side) in [(id, Direction::Send), (id.reversed(), Direction::Receive)] {
                driver.kept.handle(Time::ZERO, Call::Input(Given::Seen(pair, side)));
            }
        }
        driver
    }

    fn turn(&mut self) {
        self.turns += 1;
        let now = Time::ZERO + Span::from_nanos(STEP.as_nanos() * self.turns);
        let octets = self.turns * 40_000;
        let (segments, lost) = (self.turns * 27, self.turns / 50);
        let sent = SendCount { octets, numbered: octets, segments, ..SendCount::default() };
        let came = ReceiveCount { octets, segments, numbered: Some(segments), lost, marked: 0 };
        let seen = Observed {
            send: self.ids.iter().map(|id| (*id, sent)).collect(),
            receive: self.ids.iter().map(|id| (id.reversed(), came)).collect(),
            ..Observed::default()
        };
        self.kept.handle(now, Call::Input(Given::Observed(&seen)));
        if self.kept.due(now).is_some() {
            self.kept.handle(now, Call::Input(Given::Tick));
        }
        if self.kept.is_beat_due(now) {
            self.kept.handle(now, Call::Beat);
        }
        self.kept.work(now);
    }

    /// CPU time of one turn, of all threads, in microseconds.
    fn block(&mut self) -> f64 {
        let now = || -> Duration {
            clock_gettime(ClockId::ProcessCPUTime).try_into().expect("time since the start")
        };
        let before = now();
        (0..TURNS).for_each(|_| self.turn());
        (now() - before).as_secs_f64() * 1e6 / TURNS as f64
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn octets_in(dir: &Path) -> u64 {
    let all: Vec<PathBuf> = segments(dir).expect("it was written");
    all.iter().map(|file| std::fs::metadata(file).expect("it is ours").len()).sum()
}

fn main() {
    let dir = std::env::temp_dir().join(format!("weir-journal-bench-{}", std::process::id()));
    for pairs in [30, 300] {
        drop(std::fs::remove_dir_all(&dir));
        let (mut alone, mut kept) = (Driver::new(pairs, None), Driver::new(pairs, Some(&dir)));
        let blocks: Vec<_> = (0..BLOCKS).map(|_| (alone.block(), kept.block())).collect();
        let without = median(blocks.iter().map(|(without, _)| *without).collect());
        let with = median(blocks.iter().map(|(_, with)| *with).collect());
        let dropped = kept.kept.log().map_or(0, |log| log.counts().dropped);
        let turns = kept.turns;
        drop(kept);
        println!(
            "a turn of {pairs} pairs each way: {without:.1} µs of CPU without a journal, {with:.1} with one, \
             {} octets, {dropped} records dropped",
            octets_in(&dir) / turns
        );
    }
    drop(std::fs::remove_dir_all(&dir));
}
