//! Streams of numbered datagrams between VMs, and what of them was lost.

use super::{Stop, World, sh};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Datagrams with numbers from one VM to another until told to stop.
pub(crate) struct Stream {
    pub(crate) sent: u64,
    /// The numbers that came, in their order.
    came: Vec<u64>,
    /// Those before are no matter.
    from: u64,
    /// Packets that this machine lost meanwhile before any queue of ours, of whatever test.
    lost_inside: u64,
}

impl Stream {
    /// Whatever the order was in which its datagrams came.
    pub(crate) fn sorted(mut self) -> Self {
        self.came.sort_unstable();
        self
    }
}

/// Numbers of a stream that runs.
#[derive(Default)]
struct Numbers {
    next: AtomicU64,
    /// The first that counts.
    from: AtomicU64,
}

/// Streams that run.
pub(crate) struct Running {
    stop: AtomicBool,
    all: Vec<Numbers>,
}

impl Running {
    /// From now on losses count.
    pub(crate) fn count(&self) {
        for numbers in &self.all {
            numbers.from.store(numbers.next.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// How many of each stream were sent.
    pub(crate) fn sent(&self) -> Vec<u64> {
        self.all.iter().map(|numbers| numbers.next.load(Ordering::Relaxed)).collect()
    }
}

/// Plays `during` while VM 1 sends `mbps` to VM 2 in datagrams of `payload` octets.
pub(crate) fn stream<T>(
    world: &World,
    mbps: u64,
    payload: usize,
    during: impl FnOnce() -> T,
) -> (Stream, T) {
    let (mut streams, result) = streams(world, &[(1, 2)], mbps, payload, |_| during());
    (streams.remove(0), result)
}

/// The same on several ways at once, from one VM to another each, with a port of its own.
pub(crate) fn streams<T>(
    world: &World,
    ways: &[(u8, u8)],
    mbps: u64,
    payload: usize,
    during: impl FnOnce(&Running) -> T,
) -> (Vec<Stream>, T) {
    let open = |vm: u8, n: usize| {
        let bind = || UdpSocket::bind(("0.0.0.0", 9000 + n as u16)).unwrap();
        world.inside(&format!("vm{vm}"), bind)
    };
    let running = &Running {
        stop: AtomicBool::new(false),
        all: ways.iter().map(|_| Numbers::default()).collect(),
    };
    let before = lost_inside();
    std::thread::scope(|scope| {
        let begin = |(n, (sender, receiver)): (usize, &(u8, u8))| {
            let (from, to) = (open(*sender, n), open(*receiver, n));
            from.connect(format!("10.0.0.{receiver}:{}", 9000 + n)).unwrap();
            to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            // A thread that waits for a CPU loses nothing: its socket holds it.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, 8 << 20).unwrap();
            let next = &running.all[n].next;
            let sender = scope.spawn(move || send(&from, mbps, payload, next, &running.stop));
            (sender, scope.spawn(move || receive(&to, &running.stop)))
        };
        let threads: Vec<_> = ways.iter().enumerate().map(begin).collect();
        let stop = Stop(&running.stop);
        let result = during(running);
        drop(stop);
        let ended = threads.into_iter().zip(&running.all).map(|((sender, receiver), numbers)| {
            sender.join().unwrap();
            Stream {
                sent: numbers.next.load(Ordering::Relaxed),
                came: receiver.join().unwrap(),
                from: numbers.from.load(Ordering::Relaxed),
                lost_inside: lost_inside() - before,
            }
        });
        (ended.collect(), result)
    })
}

/// A number that no stream has.
const NONE: u64 = u64::MAX;

/// How far a sender that waited for a CPU may catch up. More at once would not fit in the pair's
/// queue, and those losses would be the machine's.
const CATCH_UP: Duration = Duration::from_millis(10);

fn send(from: &UdpSocket, mbps: u64, payload: usize, next: &AtomicU64, stop: &AtomicBool) {
    let gap = Duration::from_nanos((payload as u64 + 42) * 8 * 1000 / mbps);
    let (mut due, mut n) = (Instant::now(), 0u64);
    let mut datagram = vec![0; payload];
    while !stop.load(Ordering::Relaxed) {
        datagram[..8].copy_from_slice(&n.to_be_bytes());
        // A full queue of the VM's own would be a loss of ours, not of the agent's.
        from.send(&datagram).unwrap();
        n += 1;
        next.store(n, Ordering::Relaxed);
        let now = Instant::now();
        due = (due + gap).max(now - CATCH_UP);
        if let Some(early) = due.checked_duration_since(now) {
            std::thread::sleep(early);
        }
    }
}

fn receive(to: &UdpSocket, stop: &AtomicBool) -> Vec<u64> {
    let (mut came, mut datagram) = (Vec::new(), [0; 2048]);
    loop {
        match to.recv(&mut datagram) {
            Ok(_) => came.push(u64::from_be_bytes(datagram[..8].try_into().unwrap())),
            Err(_) if stop.load(Ordering::Relaxed) => {
                came.retain(|number| *number != NONE);
                return came;
            }
            Err(_) => {}
        }
    }
}

/// What a CPU's own queue between two devices had no room for, all CPUs and namespaces together: the second
/// column of the kernel's table.
fn lost_inside() -> u64 {
    let table = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let lost =
        |line: &str| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    table.lines().map(lost).sum()
}

/// None but what the machine says it lost by itself: tests that flood play beside this one.
#[track_caller]
pub(crate) fn assert_none_lost(world: &World, stream: &Stream) {
    let late = stream.came.windows(2).filter(|two| two[0] > two[1]).count();
    assert_eq!(late, 0, "{late} of {} overtaken", stream.came.len());
    let is_missing = |number: &u64| stream.came.binary_search(number).is_err();
    let missing: Vec<u64> = (stream.from..stream.sent).filter(is_missing).collect();
    assert!(
        missing.len() as u64 <= stream.lost_inside,
        "{} of {} lost, {} by the machine itself: {missing:?}\n{}",
        missing.len(),
        stream.sent,
        stream.lost_inside,
        world.inside("host1", || sh("tc -s qdisc") + &sh("tc -s class show dev up"))
    );
}
