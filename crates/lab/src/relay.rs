//! A relay that loses, repeats, delays and reorders control messages on purpose.
//!
//! Problem   A promise about lost messages needs losses between two real agents that do not know of
//!           them.
//! Approach  In a scenario with such faults, the directory names a port of the relay (a door)
//!           beside each agent's own port, in the host's namespace. A thread receives what arrives
//!           there and passes it on as the present [`Weather`] allows. So agents' messages cross
//!           the network and suffer on their last hop. Without a fault every message is passed on
//!           at once.
//! Promises  The same messages suffer the same in every run: the choice is seeded by host. The
//!           relay is bounded: a message that finds no room is dropped and counted.
//! Not here  When faults begin and end: see `faults`. Loss of data packets.

use crate::Error;
use crate::plan;
use crate::world::World;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::BTreeMap;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_model::scenario::{FaultKind, Scenario};
use weir_units::{Span, SplitMix64};

/// Where control messages are sent to in a scenario that breaks them.
const DOOR: u16 = 7002;
/// Delay of a message that later ones are to overtake. Two agents send every 50 to 70 ms, so a
/// message that is delayed less is rarely overtaken.
const HELD_BACK: Duration = Duration::from_millis(100);
/// Most messages that wait at a time.
const ROOM: usize = 100_000;
/// Longest time until the thread notices its end.
const NAP: Duration = Duration::from_millis(20);

/// Fault of the messages to one host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Weather {
    /// The part that is lost.
    pub(crate) loss: f64,
    /// The part that comes twice.
    pub(crate) duplicate: f64,
    /// The part that is overtaken.
    pub(crate) reorder: f64,
    /// Mean delay.
    pub(crate) delay: Duration,
    /// Jitter: the delay of each copy differs by at most this much; not larger than `delay`.
    pub(crate) jitter: Duration,
}

/// Whether a scenario needs doors: they cost a wake-up per message.
pub(crate) fn is_needed(scenario: &Scenario) -> bool {
    scenario.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Control(_)))
}

/// The port that a host's peers send to.
pub(crate) fn port(scenario: &Scenario) -> u16 {
    if is_needed(scenario) { DOOR } else { plan::CONTROL_PORT }
}

/// State that the thread and its owner share.
#[derive(Default)]
struct Shared {
    /// Per host.
    weather: Mutex<Vec<Weather>>,
    stop: AtomicBool,
    passed: AtomicU64,
    lost: AtomicU64,
    doubled: AtomicU64,
    held: AtomicU64,
    no_room: AtomicU64,
    /// Total time that passed messages spent inside, in µs.
    inside: AtomicU64,
}

/// The doors of all hosts; dropping it closes them.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Opens a door in each host's namespace, if the scenario needs any.
    pub(crate) fn open(scenario: &Scenario, world: &World) -> Result<Option<Self>, Error> {
        if !is_needed(scenario) {
            return Ok(None);
        }
        let hosts = scenario.topology.hosts.len();
        // A thread of its own, because it changes its namespace.
        let sockets = std::thread::scope(|scope| {
            scope
                .spawn(|| (0..hosts).map(|host| door(world, host)).collect::<Result<Vec<_>, _>>())
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        Self::keep(sockets).map(Some)
    }

    /// Starts the thread that serves these doors, one per host.
    fn keep(doors: Vec<(UdpSocket, SocketAddrV4)>) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            weather: Mutex::new(vec![Weather::default(); doors.len()]),
            ..Shared::default()
        });
        let mut keeper = Keeper::new(doors, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new()
            .name("relay".into())
            .spawn(move || keeper.run())
            .map_err(Error::io("start the relay of control messages"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the fault of messages to `host` from now on.
    pub(crate) fn set(&self, host: usize, weather: Weather) {
        self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner)[host] = weather;
    }

    /// Mean time for which messages were held so far; `None` if none has passed.
    pub(crate) fn delay(&self) -> Option<Span> {
        let passed = self.shared.passed.load(Ordering::Relaxed);
        self.shared.inside.load(Ordering::Relaxed).checked_div(passed).map(Span::from_micros)
    }

    /// Result of the messages so far, for the notes.
    pub(crate) fn note(&self) -> String {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let s = &self.shared;
        let mut note = format!(
            "of the control messages {} arrived, {} were lost, {} doubled and {} overtaken on purpose",
            count(&s.passed),
            count(&s.lost),
            count(&s.doubled),
            count(&s.held)
        );
        if let Some(delay) = self.delay() {
            note += &format!(", {:.1} ms late on average", delay.as_secs_f64() * 1e3);
        }
        if count(&s.no_room) > 0 {
            note += &format!("; {} found no room in the relay", count(&s.no_room));
        }
        note
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A host's door, and the address of the agent behind it.
fn door(world: &World, host: usize) -> Result<(UdpSocket, SocketAddrV4), Error> {
    world.host(host).enter()?;
    let address = plan::host_address(host);
    let doing = format!("open a door at {address}:{DOOR}");
    let socket = UdpSocket::bind((address, DOOR)).map_err(Error::io(doing.clone()))?;
    socket.set_nonblocking(true).map_err(Error::io(doing))?;
    Ok((socket, SocketAddrV4::new(address, plan::CONTROL_PORT)))
}

/// A message on its last hop.
struct Waiting {
    host: usize,
    octets: Vec<u8>,
    came: Instant,
}

/// The thread that serves the doors.
struct Keeper {
    doors: Vec<(UdpSocket, SocketAddrV4)>,
    epoll: Epoll,
    chance: Vec<Chance>,
    /// Messages to pass on later. The number keeps the order of messages that are due at one time.
    waiting: BTreeMap<(Instant, u64), Waiting>,
    taken: u64,
    shared: Arc<Shared>,
}

impl Keeper {
    fn new(doors: Vec<(UdpSocket, SocketAddrV4)>, shared: Arc<Shared>) -> Result<Self, Error> {
        let doing = || Error::kernel("wait for control messages");
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(doing())?;
        for (host, (socket, _)) in doors.iter().enumerate() {
            epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, host as u64)).map_err(doing())?;
        }
        let chance = (0..doors.len() as u64).map(Chance::new).collect();
        Ok(Self { doors, epoll, chance, waiting: BTreeMap::new(), taken: 0, shared })
    }

    fn run(&mut self) {
        let mut events = [EpollEvent::empty(); 32];
        while !self.shared.stop.load(Ordering::Relaxed) {
            let due = self.waiting.first_key_value().map(|((at, _), _)| *at);
            let left = due.map_or(NAP, |at| at.saturating_duration_since(Instant::now()).min(NAP));
            // Rounded up: a message is late rather than early.
            let ms = left.as_micros().div_ceil(1000) as u16;
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(ms)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => unreachable!("our own epoll descriptor: {errno}"),
            };
            for event in &events[..ready] {
                self.take(event.data() as usize);
            }
            self.pass_on();
        }
    }

    /// Takes everything that waits at a door.
    fn take(&mut self, host: usize) {
        let weather = self.shared.weather.lock().unwrap_or_else(PoisonError::into_inner)[host];
        let mut octets = [0; 2048];
        while let Ok((len, _)) = self.doors[host].0.recv_from(&mut octets) {
            let now = Instant::now();
            let fate = self.chance[host].fate(&weather);
            let count = |n: &AtomicU64, yes: bool| _ = n.fetch_add(yes.into(), Ordering::Relaxed);
            count(&self.shared.lost, fate.copies == 0);
            count(&self.shared.doubled, fate.copies == 2);
            count(&self.shared.held, fate.copies > 0 && fate.is_held);
            for late in &fate.late[..fate.copies.into()] {
                if self.waiting.len() >= ROOM {
                    count(&self.shared.no_room, true);
                    continue;
                }
                let key = (now + *late, self.taken);
                self.taken += 1;
                let octets = octets[..len].to_vec();
                self.waiting.insert(key, Waiting { host, octets, came: now });
            }
        }
    }

    fn pass_on(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 > now {
                return;
            }
            let Waiting { host, octets, came } = first.remove();
            let (socket, agent) = &self.doors[host];
            // The agent does not listen or its buffer is full: the message is lost, as on any
            // network.
            if socket.send_to(&octets, agent).is_ok() {
                let inside = now.duration_since(came).as_micros() as u64;
                self.shared.inside.fetch_add(inside, Ordering::Relaxed);
                self.shared.passed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Fate of one message.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fate {
    /// 0 = lost, 2 = doubled.
    copies: u8,
    is_held: bool,
    /// Delay of each copy.
    late: [Duration; 2],
}

/// Whatever may happen to the messages of a host.
struct Chance(SplitMix64);

impl Chance {
    fn new(seed: u64) -> Self {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed_0f0d_d51c_e001;
        Self(SplitMix64::new(seed))
    }

    /// Evenly between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0.next() as f64 / u64::MAX as f64
    }

    /// Five draws for every message, whatever the fault. So a change of one part does not change
    /// the fate of other messages.
    fn fate(&mut self, weather: &Weather) -> Fate {
        let [lost, doubled, held, first, second] = std::array::from_fn(|_| self.next());
        let copies =
            if lost < weather.loss { 0 } else { 1 + u8::from(doubled < weather.duplicate) };
        let is_held = held < weather.reorder;
        let earliest = weather.delay.saturating_sub(weather.jitter)
            + if is_held { HELD_BACK } else { Duration::ZERO };
        let late = [first, second].map(|die| earliest + (weather.jitter * 2).mul_f64(die));
        Fate { copies, is_held, late }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_messages_suffer_as_the_weather_says() {
        let weather = Weather { loss: 0.3, duplicate: 0.1, reorder: 0.2, ..Weather::default() };
        let mut chance = Chance::new(7);
        let fates: Vec<Fate> = (0..100_000).map(|_| chance.fate(&weather)).collect();
        let part = |yes: &dyn Fn(&Fate) -> bool| {
            fates.iter().filter(|fate| yes(fate)).count() as f64 / fates.len() as f64
        };
        assert!((part(&|f| f.copies == 0) - 0.3).abs() < 0.01);
        assert!((part(&|f| f.copies == 2) - 0.7 * 0.1).abs() < 0.01);
        assert!((part(&|f| f.is_held) - 0.2).abs() < 0.01);
    }

    #[test]
    fn every_copy_is_late_by_the_delay_give_or_take_the_jitter() {
        let ms = Duration::from_millis;
        let weather = Weather { delay: ms(5), jitter: ms(3), duplicate: 1.0, ..Weather::default() };
        let mut chance = Chance::new(7);
        let late: Vec<Duration> = (0..10_000).flat_map(|_| chance.fate(&weather).late).collect();
        assert!(late.iter().all(|late| (ms(2)..=ms(8)).contains(late)));
        let mean = late.iter().sum::<Duration>() / late.len() as u32;
        assert!(mean.abs_diff(ms(5)) < Duration::from_micros(100), "{mean:?}");
        assert!(late.chunks(2).any(|copies| copies[0] > copies[1]), "each copy has its own way");
    }

    #[test]
    fn calm_weather_changes_nothing_and_a_full_storm_loses_all() {
        let mut chance = Chance::new(0);
        for _ in 0..1000 {
            let calm = Fate { copies: 1, is_held: false, late: [Duration::ZERO; 2] };
            assert_eq!(chance.fate(&Weather::default()), calm);
            let storm = Weather { loss: 1.1, ..Weather::default() };
            assert_eq!(chance.fate(&storm).copies, 0);
        }
    }

    /// A door on this machine, and the agent's port behind it.
    fn relay() -> (Relay, UdpSocket, SocketAddrV4) {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = |socket: &UdpSocket| match socket.local_addr().expect("bound") {
            std::net::SocketAddr::V4(address) => address,
            other => panic!("{other}"),
        };
        let (door, agent) = (bind(), bind());
        door.set_nonblocking(true).expect("a socket");
        agent.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
        let (at, to) = (address(&door), address(&agent));
        (Relay::keep(vec![(door, to)]).expect("a thread"), agent, at)
    }

    /// Sends `n` numbered datagrams to the door; the numbers that reach the agent, in their order.
    fn through(agent: &UdpSocket, door: SocketAddrV4, n: u8) -> Vec<u8> {
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for number in 0..n {
            peer.send_to(&[number], door).expect("the door is open");
            std::thread::sleep(Duration::from_micros(500));
        }
        let mut octets = [0; 16];
        std::iter::from_fn(|| agent.recv(&mut octets).ok().map(|_| octets[0])).collect()
    }

    #[test]
    fn messages_pass_the_door_in_order_and_suffer_as_the_weather_says() {
        let (relay, agent, door) = relay();
        assert_eq!(through(&agent, door, 100), (0..100).collect::<Vec<_>>());

        relay.set(0, Weather { loss: 0.5, ..Weather::default() });
        let came = through(&agent, door, 200);
        assert!((70..130).contains(&came.len()) && came.is_sorted(), "{came:?}");

        relay.set(0, Weather { duplicate: 1.0, ..Weather::default() });
        assert_eq!(through(&agent, door, 50).len(), 100);

        relay.set(0, Weather { reorder: 0.3, ..Weather::default() });
        let came = through(&agent, door, 100);
        assert!(came.len() == 100 && !came.is_sorted(), "{came:?}");

        let delay = Duration::from_millis(10);
        relay.set(0, Weather { delay, jitter: delay, ..Weather::default() });
        let came = through(&agent, door, 100);
        assert!(came.len() == 100 && !came.is_sorted(), "{came:?}");

        relay.set(0, Weather { delay: Duration::from_millis(100), ..Weather::default() });
        let start = Instant::now();
        assert_eq!(through(&agent, door, 1), [0]);
        // The last reading waits until its time-out.
        assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
        assert!(relay.note().contains("50 doubled"), "{}", relay.note());
    }

    #[test]
    fn the_same_messages_meet_the_same_fate() {
        let weather = Weather { loss: 0.5, ..Weather::default() };
        let fates = |host| {
            let mut chance = Chance::new(host);
            (0..64).map(|_| chance.fate(&weather).copies).collect::<Vec<_>>()
        };
        assert_eq!(fates(3), fates(3));
        assert_ne!(fates(3), fates(4), "hosts do not suffer in step");
    }
}
