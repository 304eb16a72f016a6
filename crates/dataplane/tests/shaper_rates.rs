//! The shaper under real traffic: MTU packets through the IFB device, measured at the receiver.
//! A measurement counts only if every CPU had idle time left.
#![allow(clippy::disallowed_methods, reason = "tests on real links drive real time")]

use crate::shaper_world::*;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir_dataplane::shaper::{ClassId, Htb, PairRate, SendsByBursts, Shaper, ShaperConfig};
use weir_units::{PairId, Rate};

/// Goodput of a rate on the wire at MTU 1500 (TCP with timestamps).
const TCP_SHARE: f64 = 1448.0 / 1514.0;
const UDP_SHARE: f64 = 1472.0 / 1514.0;
const WARMUP: Duration = Duration::from_millis(700);
const SPAN: Duration = Duration::from_millis(2000);
/// How long to wait, in all, for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// One measurement at a time, or they measure each other; and HTB as kernels have it by default,
/// whatever this machine is set to.
pub(crate) fn alone() -> (SendsByBursts, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let lock = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (SendsByBursts::set(false).unwrap(), lock)
}

/// Plays once. Again only if a CPU had no time left, or if the measurement is bad and the machine
/// was disturbed meanwhile, which is measured and printed: a bad one of a calm machine is the
/// shaper's.
fn measure(
    world: &World,
    flows: &[(&Namespace, u16, Kind)],
    good: impl Fn(&[f64]) -> bool,
) -> Measured {
    let start = Instant::now();
    loop {
        wait_for_idle(start + PATIENCE);
        let measured = play(world, flows, WARMUP, SPAN);
        let mbit: Vec<f64> = measured.goodput.iter().map(|g| g / 1e6).collect();
        eprintln!("goodput {mbit:.3?} Mbit/s, idle {:.2}", measured.idle);
        let saturated = measured.idle < 0.05;
        if !saturated && (good(&measured.goodput) || measured.disturbance.is_none()) {
            return measured;
        }
        let why = measured.disturbance.unwrap_or_else(|| "a CPU had no time left".into());
        eprintln!("this is no measurement: {why}");
        assert!(start.elapsed() < PATIENCE, "this is no measurement: {why}");
    }
}

fn steered(world: &World, shaper: &mut Htb, pairs: &[PairId]) -> Vec<ClassId> {
    let ids = shaper.add_pairs(pairs).unwrap();
    for (id, port) in ids.iter().zip(5001..) {
        world.steer(&shaper.device().name, port, id.0);
    }
    ids
}

#[test]
fn a_pair_gets_its_rate_within_three_percent_with_tcp_and_udp() {
    let _alone = alone();
    let world = World::new();
    let mut shaper = open("rate", 200);
    shaper.apply_vms(&[vm(VM_A, "pa", 150), vm(VM_B, "pb", 20)]).unwrap();
    let id = pair(VM_A, 1);
    steered(&world, &mut shaper, &[id]);
    // Rate limited by its floor, and by a lease far above it.
    for (floor, ceiling) in [(10, 10), (50, 50), (100, 100), (1, 50)] {
        shaper.set(&[(id, mbit(floor, ceiling))]).unwrap();
        for (kind, share) in [(Kind::Tcp, TCP_SHARE), (Kind::Udp(ceiling * 5 / 4), UDP_SHARE)] {
            let ideal = ceiling as f64 * 1e6 * share;
            let good = |g: &[f64]| (g[0] / ideal - 1.0).abs() <= 0.03;
            let measured = measure(&world, &[(&world.a, 5001, kind)], good);
            let ratio = measured.goodput[0] / ideal;
            eprintln!("floor {floor}, ceiling {ceiling}: {ratio:.4} of ideal");
            assert!(good(&measured.goodput), "{ceiling} Mbit/s: {ratio}");
        }
    }
    let sent = shaper.stats().unwrap().into_iter().find(|s| s.pair == Some(id)).unwrap();
    assert!(sent.octets > 1_000_000 && sent.packets > 1000 && sent.drops > 0, "{sent:?}");
    Box::new(shaper).close().unwrap();
}

#[test]
fn a_slow_pair_bursts_no_more_than_two_packets() {
    let _alone = alone();
    bursts_no_more_than_two_packets(false);
}

pub(crate) fn bursts_no_more_than_two_packets(sends_by_bursts: bool) {
    let world = World::new();
    let config = ShaperConfig::new("slow", Rate::from_mbps(200));
    let mut shaper = Htb::open(ShaperConfig { sends_by_bursts, ..config }).unwrap();
    shaper.apply_vms(&[vm(VM_A, "pa", 90)]).unwrap();
    let id = pair(VM_A, 1);
    steered(&world, &mut shaper, &[id]);
    let rate = Rate::from_bps(300_000);
    shaper.set(&[(id, PairRate { floor: rate, ceiling: rate })]).unwrap();
    // From the first packet on: a burst would show.
    let flow = [(&world.a, 5001, Kind::Udp(2))];
    let measured = play(&world, &flow, Duration::ZERO, SPAN);
    let octets = measured.goodput[0] * SPAN.as_secs_f64() / 8.0;
    let ideal = rate.as_f64() * UDP_SHARE * SPAN.as_secs_f64() / 8.0;
    eprintln!("{octets:.0} octets in {SPAN:?}, {:.0} more than the rate", octets - ideal);
    assert!(octets - ideal <= 3.0 * 1472.0, "a burst of {:.0} octets", octets - ideal);
    assert!(octets >= 0.95 * ideal);
}

#[test]
fn what_is_spare_is_shared_in_proportion_to_floors_within_and_between_vms() {
    let _alone = alone();
    let world = World::new();
    let mut shaper = open("spare", 100);
    shaper.apply_vms(&[vm(VM_A, "pa", 30), vm(VM_B, "pb", 10)]).unwrap();
    let pairs = [pair(VM_A, 1), pair(VM_A, 2), pair(VM_B, 1)];
    steered(&world, &mut shaper, &pairs);
    let rates = [(pairs[0], mbit(20, 100)), (pairs[1], mbit(10, 100)), (pairs[2], mbit(10, 100))];
    shaper.set(&rates).unwrap();
    let blast = Kind::Udp(120);
    let flows = [(&world.a, 5001, blast), (&world.a, 5002, blast), (&world.b, 5003, blast)];
    let within = |g: &[f64]| {
        let total: f64 = g.iter().sum();
        let wanted = [0.5, 0.25, 0.25];
        g.iter().zip(wanted).all(|(g, w)| (g / total - w).abs() <= 0.02)
            && (total / (100e6 * UDP_SHARE) - 1.0).abs() <= 0.03
    };
    let measured = measure(&world, &flows, within);
    assert!(within(&measured.goodput), "{:?}", measured.goodput);

    // One falls silent: the others share what it leaves, still in proportion.
    let two = |g: &[f64]| (g[0] / (g[0] + g[1]) - 2.0 / 3.0).abs() <= 0.02;
    let measured = measure(&world, &flows[..2], two);
    assert!(two(&measured.goodput), "{:?}", measured.goodput);
}

#[test]
fn a_floor_holds_against_a_blast_and_what_it_leaves_is_used() {
    let _alone = alone();
    let world = World::new();
    let mut shaper = open("floor", 100);
    shaper.apply_vms(&[vm(VM_A, "pa", 45), vm(VM_B, "pb", 45)]).unwrap();
    let pairs = [pair(VM_A, 1), pair(VM_B, 1)];
    steered(&world, &mut shaper, &pairs);
    shaper.set(&[(pairs[0], mbit(45, 100)), (pairs[1], mbit(45, 100))]).unwrap();
    let both = [(&world.a, 5001, Kind::Tcp), (&world.b, 5002, Kind::Udp(150))];
    let holds = |g: &[f64]| g[0] >= 0.97 * 45e6 * TCP_SHARE;
    let measured = measure(&world, &both, holds);
    assert!(holds(&measured.goodput), "{:?}", measured.goodput);
    let used = |g: &[f64]| g[0] >= 0.97 * 100e6 * TCP_SHARE;
    let measured = measure(&world, &both[..1], used);
    assert!(used(&measured.goodput), "{:?}", measured.goodput);
}

#[test]
fn traffic_goes_on_while_a_successor_takes_over() {
    let _alone = alone();
    let world = World::new();
    let vms = [vm(VM_A, "pa", 45)];
    let mut shaper = open("gap", 100);
    shaper.apply_vms(&vms).unwrap();
    let id = pair(VM_A, 1);
    let ids = steered(&world, &mut shaper, &[id]);
    shaper.set(&[(id, mbit(20, 20))]).unwrap();
    drop(shaper);
    let receiver = world.receiver.run(|| UdpSocket::bind((RECEIVER, 5001)).unwrap());
    let sender = world.a.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    hold_much(&receiver);
    sender.connect((RECEIVER, 5001)).unwrap();
    // The place of each VM is known before anything is counted.
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    sender.send(&[0]).unwrap();
    assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 1);
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let is_over = || stop.load(Ordering::Relaxed);
    let (sent, lost) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (mut sent, mut due) = (0u64, Instant::now());
            while !is_over() {
                sender.send(&[0; 1472]).unwrap();
                sent += 1;
                // 15 Mbit/s. No pause is made up for: a queue may drop such a burst.
                due = (due + Duration::from_nanos(1472 * 8000 / 15)).max(Instant::now());
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            sent
        });
        scope.spawn(|| {
            loop {
                match receiver.recv(&mut [0; 2048]) {
                    Ok(_) => drop(came.fetch_add(1, Ordering::Relaxed)),
                    Err(_) if is_over() => return,
                    Err(_) => {}
                }
            }
        });
        let guard = StopAtEnd(&stop);
        // In this thread, the host: a thread's children share its namespace, not the other way
        // round.
        let mut second = open("gap", 100);
        for _ in 0..20 {
            let (before, begun) = (came.load(Ordering::Relaxed), Instant::now());
            while came.load(Ordering::Relaxed) < before + 100 {
                assert!(begun.elapsed() < Duration::from_secs(10), "nothing comes any more");
                std::thread::sleep(Duration::from_millis(5));
            }
            second = open("gap", 100);
            assert!(second.apply_vms(&vms).unwrap().is_empty());
            assert!(second.claim(&[(id, ids[0])]).unwrap().is_empty());
        }
        let lost = second.stats().unwrap().iter().map(|s| s.drops).sum::<u64>();
        drop(guard);
        (sending.join().unwrap(), lost)
    });
    assert_eq!(lost, 0);
    assert_eq!(came.load(Ordering::Relaxed), sent, "all that was sent came");
}

/// Ends what runs, also after a failure.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
