//! The senders and receivers: datagrams that block their sender while the limiter holds them, and
//! requests.

use crate::Result;
use crate::cpu::{self, Busy};
use crate::world::World;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_dataplane::shaper::SendsByBursts;

/// Payload of one segment of a super-packet: a full frame.
const SEGMENT: usize = 1472;
/// Octets of a sender that may wait in all queues, in the kernel's own measure (it doubles it):
/// less than the limiter's queue holds, so that nothing is dropped and all that is paid for
/// arrives.
const MAY_WAIT: libc::c_int = 40_000;
/// Attempts at a play that something else disturbs.
const PATIENCE: u32 = 60;
const PORT: u16 = 9000;
/// Between looks at what is due, and what is made up for, where this machine is not said to be
/// slow.
const TURN: Duration = Duration::from_micros(400);
const OWED: Duration = Duration::from_millis(5);

/// The address of the n-th destination.
pub(crate) fn destination(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + n)
}

/// A stream of datagrams.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// Payload; beyond one segment a super-packet.
    pub(crate) payload: usize,
    /// Datagrams per second.
    pub(crate) pace: f64,
    /// Sent to so many addresses in turn; 0: to VM 2's own.
    pub(crate) destinations: u32,
    /// What the sender does by the clock lasts so many times longer.
    pub(crate) slower: u32,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// What a stream cost.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Datagrams (super-packets count once) that were sent, and that arrived, per second.
    pub(crate) sent: f64,
    pub(crate) arrived: f64,
    /// Whole machine, ns per datagram that arrived.
    pub(crate) whole: f64,
    /// The same on the sending host's CPU alone.
    pub(crate) sending: f64,
    /// The agents' part of all of it.
    pub(crate) agents: f64,
    /// The least that a CPU was idle, and the most that was stolen, 0 to 1.
    pub(crate) idle: f64,
    pub(crate) stolen: f64,
    /// Interrupts per datagram that arrived: of timers, and of one CPU by the other.
    pub(crate) timers: f64,
    pub(crate) calls: f64,
}

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> Result<()> {
    let (at, size) = ((&raw const value).cast(), size_of_val(&value) as u32);
    // SAFETY: a live socket; the value outlives the call.
    if unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, size) } == 0 {
        return Ok(());
    }
    Err(format!("socket option {name}: {}", std::io::Error::last_os_error()).into())
}

fn sender(world: &World, stream: &Stream) -> Result<UdpSocket> {
    let socket = world.inside("vm1", || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?))?;
    set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, MAY_WAIT)?;
    socket.set_write_timeout(Some(Duration::from_millis(200)))?;
    if stream.payload > SEGMENT {
        set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, SEGMENT as libc::c_int)?;
    }
    Ok(socket)
}

fn receiver(world: &World) -> Result<UdpSocket> {
    let socket = world.inside("vm2", || Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?))?;
    // Super-packets arrive whole, as at a guest that merges.
    set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(socket)
}

/// Plays it in the n-th world between two moments in which the machine had nothing else to do, and
/// says what it cost. The other worlds' agents stay awake; what they have of the CPUs is none of
/// the cost.
pub(crate) fn play(worlds: &[World], n: usize, stream: &Stream) -> Result<Cost> {
    let _sends = SendsByBursts::set(worlds[n].kind.is_by_bursts())?;
    let agents_of = |counts: &dyn Fn(usize) -> bool| {
        let counted = worlds.iter().enumerate().filter(|(i, _)| counts(*i));
        counted
            .map(|(_, world)| world.agents_seconds())
            .fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    };
    let (all, others) = (|| agents_of(&|_| true), || agents_of(&|i| i != n));
    for _ in 0..PATIENCE {
        // With many pairs agents go on for a while; no other process may.
        if cpu::is_quiet(all)? {
            let cost = play_once(&worlds[n], others, stream)?;
            if cpu::is_quiet(all)? {
                return Ok(cost);
            }
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Err("something else keeps this machine busy: what a packet costs cannot be told".into())
}

fn play_once(world: &World, others: impl Fn() -> [f64; 2], stream: &Stream) -> Result<Cost> {
    let (sending, receiving) = (sender(world, stream)?, receiver(world)?);
    let (sent, arrived) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cpu::pin(1);
            let mut buffer = vec![0; 1 << 16];
            while !stop.load(Relaxed) {
                if receiving.recv(&mut buffer).is_ok() {
                    arrived.fetch_add(1, Relaxed);
                }
            }
        });
        scope.spawn(|| {
            cpu::pin(0);
            send(&sending, stream, &sent, &stop);
        });
        std::thread::sleep(stream.warm_up);
        let counts = || (sent.load(Relaxed), arrived.load(Relaxed));
        let (busy, before) = (Busy::now(), counts());
        let (agents, others_had) = (world.agents_seconds(), others());
        std::thread::sleep(stream.measured);
        let (used, after) = (busy.and_then(|busy| busy.since()), counts());
        let agents = cpu::gained(world.agents_seconds(), agents);
        let others_had = cpu::gained(others(), others_had);
        stop.store(true, Relaxed);
        let used = used?;
        let busy = [used.busy[0] - others_had[0], used.busy[1] - others_had[1]];
        let n = (after.1 - before.1) as f64;
        if n == 0.0 {
            return Err(
                format!("{}: nothing arrived\n{}", world.kind.name(), world.classes()).into()
            );
        }
        Ok(Cost {
            sent: (after.0 - before.0) as f64 / used.seconds,
            arrived: n / used.seconds,
            whole: (busy[0] + busy[1]) * 1e9 / n,
            sending: busy[0] * 1e9 / n,
            agents: (agents[0] + agents[1]) * 1e9 / n,
            idle: used.idle,
            stolen: used.stolen,
            timers: used.interrupts.timers / n,
            calls: used.interrupts.calls / n,
        })
    })
}

fn send(socket: &UdpSocket, stream: &Stream, sent: &AtomicU64, stop: &AtomicBool) {
    let payload = vec![0; stream.payload];
    let to = |n: u32| match stream.destinations {
        0 => SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), PORT),
        all => SocketAddrV4::new(destination(n % all), PORT),
    };
    let (turn, owed) = (TURN * stream.slower, (OWED * stream.slower).as_secs_f64());
    let (began, mut n, mut ahead) = (Instant::now(), 0u32, 0.0f64);
    while !stop.load(Relaxed) {
        // A sender that was held back makes up for no more than a moment.
        let due = began.elapsed().as_secs_f64() * stream.pace;
        ahead = ahead.max(due - stream.pace * owed);
        if ahead >= due {
            std::thread::sleep(turn);
            continue;
        }
        ahead += 1.0;
        if socket.send_to(&payload, to(n)).is_ok() {
            sent.fetch_add(1, Relaxed);
        }
        n = n.wrapping_add(1);
    }
}

/// Percentiles of round trips in µs: of one octet each way, by so many clients that each wait for
/// their answer.
pub(crate) struct Trips {
    pub(crate) per_second: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

pub(crate) fn requests(world: &World, clients: usize, measured: Duration) -> Result<Trips> {
    let _sends = SendsByBursts::set(world.kind.is_by_bursts())?;
    let server = receiver(world)?;
    let mut sockets = Vec::new();
    world.inside("vm1", || {
        for _ in 0..clients {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect((Ipv4Addr::new(10, 0, 0, 2), PORT))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            sockets.push(socket);
        }
        Ok(())
    })?;
    let (counts, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut trips: Vec<u32> = std::thread::scope(|scope| {
        scope.spawn(|| {
            cpu::pin(1);
            let mut octet = [0; 1];
            while !stop.load(Relaxed) {
                if let Ok((_, from)) = server.recv_from(&mut octet) {
                    let _ = server.send_to(&octet, from);
                }
            }
        });
        let clients: Vec<_> = sockets
            .iter()
            .map(|socket| {
                let (counts, stop) = (&counts, &stop);
                scope.spawn(move || {
                    cpu::pin(0);
                    let (mut trips, mut octet) = (Vec::new(), [0; 1]);
                    while !stop.load(Relaxed) {
                        let began = Instant::now();
                        let _ = socket.send(&octet);
                        if socket.recv(&mut octet).is_ok() && counts.load(Relaxed) {
                            trips.push(began.elapsed().as_nanos() as u32);
                        }
                    }
                    trips
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(500));
        counts.store(true, Relaxed);
        std::thread::sleep(measured);
        counts.store(false, Relaxed);
        stop.store(true, Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
    });
    if trips.is_empty() {
        return Err(format!("{}: no answer", world.kind.name()).into());
    }
    trips.sort_unstable();
    let at = |part: f64| f64::from(trips[(trips.len() as f64 * part) as usize]) / 1e3;
    Ok(Trips {
        per_second: trips.len() as f64 / measured.as_secs_f64(),
        median: at(0.5),
        p99: at(0.99),
    })
}
