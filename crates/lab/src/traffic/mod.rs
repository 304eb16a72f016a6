//! All traffic of a scenario. One thread plays long-lived connections, another plays requests and
//! flows, a third asks memcached, and two send UDP.
//!
//! Problem   Three hundred senders in three hundred namespaces, on a machine that also has to carry
//!           their packets.
//! Approach  A socket stays in the namespace in which it was opened: one thread opens all of them,
//!           entering namespace after namespace; then they are served with epoll. TCP is written
//!           whenever there is room; UDP is paced on a tick, by threads of its own: a packet's way
//!           through the network costs the CPU of its sender.
//! Promises  What is counted is what the receiver's application got. A UDP packet that its socket
//!           refuses is lost, as on a real NIC, not retried. Nothing here waits for one socket.
//! Not here  Octets on links: see `ports`.

mod blaster;
mod engine;
mod exchange;
pub(crate) mod memcached;
mod sockets;
mod trace;
mod udp;
mod work;

pub(crate) use exchange::descriptors;
pub(crate) use sockets::port;

use crate::Error;
use crate::world::World;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;
use weir_model::observed::Work;
use weir_model::record::Windows;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::SortedMap;

/// Messages about failed connections beyond this many are only counted.
const KEPT: usize = 5;

/// Threads that send UDP, where there are as many sources.
const BLASTERS: usize = 2;

/// Deals `all` to as many hands, in turn; no hand is empty.
fn deal<T>(all: Vec<T>, hands: usize) -> Vec<Vec<T>> {
    let mut dealt: Vec<Vec<T>> = (0..hands.min(all.len())).map(|_| Vec::new()).collect();
    let hands = dealt.len();
    for (i, one) in all.into_iter().enumerate() {
        dealt[i % hands].push(one);
    }
    dealt
}

/// What the playing thread tells the sampling thread.
pub(crate) struct Tally {
    /// Application octets received so far, by traffic entry and connection.
    received: Vec<Vec<AtomicU64>>,
    /// UDP packets that were due.
    due: AtomicU64,
    /// UDP packets that the sender's socket refused.
    refused: AtomicU64,
    /// UDP packets that were not sent because the thread came too late.
    late: AtomicU64,
    /// Requests and flows by traffic entry; of those that have any.
    work: Mutex<SortedMap<usize, Work>>,
    /// What was seen of each connection, by traffic entry; of those with a trace.
    windows: Mutex<SortedMap<usize, Vec<Vec<Windows>>>>,
    trouble: Mutex<Vec<String>>,
    troubles: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    fn new(scenario: &Scenario) -> Self {
        let connections = |kind: &TrafficKind| match kind {
            TrafficKind::Tcp { connections, .. } => *connections as usize,
            _ => 1,
        };
        let zeros = |n| (0..n).map(|_| AtomicU64::new(0)).collect();
        Self {
            received: scenario.traffic.iter().map(|t| zeros(connections(&t.kind))).collect(),
            due: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            late: AtomicU64::new(0),
            work: Mutex::default(),
            windows: Mutex::default(),
            trouble: Mutex::new(Vec::new()),
            troubles: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    fn add(&self, entry: usize, connection: usize, octets: usize) {
        self.received[entry][connection].fetch_add(octets as u64, Ordering::Relaxed);
    }

    /// Sets what traffic entry `entry`, which has one connection, received so far.
    pub(crate) fn set(&self, entry: usize, octets: u64) {
        self.received[entry][0].store(octets, Ordering::Relaxed);
    }

    /// Adds what was seen of a connection.
    fn saw(&self, entry: usize, connection: usize, windows: Windows) {
        let mut all = self.windows.lock().expect("no thread panics while it holds the lock");
        let connections = all.entry(entry).or_default();
        connections.resize_with(connections.len().max(connection + 1), Vec::new);
        connections[connection].push(windows);
    }

    /// Takes what was seen of a traffic entry's connections.
    pub(crate) fn windows(&self, entry: usize) -> Vec<Vec<Windows>> {
        let mut all = self.windows.lock().expect("no thread panics while it holds the lock");
        all.remove(&entry).unwrap_or_default()
    }

    fn complain(&self, what: impl FnOnce() -> String) {
        self.troubles.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.trouble.lock().expect("no thread panics while it holds the lock");
        if kept.len() < KEPT {
            kept.push(what());
        }
    }

    /// Cumulative application octets by traffic entry and connection.
    pub(crate) fn received(&self) -> Vec<Vec<u64>> {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        self.received.iter().map(|entry| entry.iter().map(read).collect()).collect()
    }

    /// What a reader of the results should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes =
            self.trouble.lock().expect("no thread panics while it holds the lock").clone();
        let more = self.troubles.load(Ordering::Relaxed).saturating_sub(notes.len() as u64);
        if more > 0 {
            notes.push(format!("{more} more connections failed"));
        }
        let due = self.due.load(Ordering::Relaxed);
        let mut lost = |n: &AtomicU64, why: &str| {
            let n = n.load(Ordering::Relaxed);
            if n * 100 > due {
                let share = n as f64 / due as f64 * 100.0;
                notes.push(format!("{share:.1} % of the offered UDP packets were not sent: {why}"));
            }
        };
        lost(&self.refused, "their sockets refused them");
        lost(&self.late, "this machine was too busy to send them in time");
        notes
    }
}

/// Traffic that is being played; dropping it closes all sockets.
pub(crate) struct Traffic {
    threads: Vec<JoinHandle<()>>,
    /// What has happened so far.
    pub(crate) tally: Arc<Tally>,
}

impl Traffic {
    /// Opens all sockets of `scenario` in its VMs.
    pub(crate) fn open(scenario: &Scenario, world: &World) -> Result<sockets::Sockets, Error> {
        // A thread of its own, because it wanders from namespace to namespace.
        std::thread::scope(|scope| {
            scope
                .spawn(|| sockets::Sockets::open(scenario, world))
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts playing; `origin` is time zero of the scenario.
    pub(crate) fn play(
        scenario: &Scenario,
        sockets: sockets::Sockets,
        origin: Instant,
    ) -> Result<Self, Error> {
        let tally = Arc::new(Tally::new(scenario));
        let mut traffic = Self { threads: Vec::new(), tally: Arc::clone(&tally) };
        let exchanges = sockets.exchanges;
        if !exchanges.is_empty() {
            let shared = Arc::clone(&tally);
            let mut exchanges = exchange::Exchanges::new(scenario, exchanges, shared, origin)?;
            traffic.start("exchanges", move || exchanges.run())?;
        }
        let opened = sockets.memcached;
        if !opened.is_empty() {
            let shared = Arc::clone(&tally);
            let mut clients = memcached::Clients::new(scenario, opened, shared, origin)?;
            traffic.start("memcached", move || clients.run())?;
        }
        let mut entries = sockets.entries;
        let sources = blaster::sources(scenario, &mut entries);
        for dealt in deal(sources, BLASTERS) {
            let mut blaster = blaster::Blaster::new(dealt, Arc::clone(&tally), origin)?;
            traffic.start("blaster", move || blaster.run())?;
        }
        let mut engine = engine::Engine::new(scenario, entries, tally, origin)?;
        traffic.start("traffic", move || engine.run())?;
        Ok(traffic)
    }

    fn start(&mut self, name: &str, play: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(play)
            .map_err(Error::io("start a traffic thread"))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Whether the threads are still there: they end only when told to, or by a bug.
    pub(crate) fn is_alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.tally.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::deal;

    #[test]
    fn all_are_dealt_and_no_hand_is_empty() {
        assert_eq!(deal(vec![1, 2, 3, 4, 5], 2), [vec![1, 3, 5], vec![2, 4]]);
        assert_eq!(deal(vec![1], 2), [vec![1]]);
        assert_eq!(deal(Vec::<u8>::new(), 2), Vec::<Vec<u8>>::new());
    }
}
