//! What 100 offers cost from one host's values to another's: seal, open, read.

#![expect(missing_docs, reason = "criterion's macros make a public function")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_core::message::{Message, Offer};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::{Incarnation, Key, KeyId, Keyring, Opened, Session};

fn session(own: HostId, peer: HostId, incarnation: u64) -> Session {
    let key = Key::from_hex("000102030405060708090a0b0c0d0e0f").expect("32 digits");
    let incarnation = Incarnation::new(incarnation).expect("not 0");
    let mut session = Session::new(own, incarnation, Keyring::new(KeyId(0), key));
    session.add_peer(peer).expect("another host");
    session
}

/// Two sessions that believe each other.
fn confirmed() -> (Session, Session) {
    let (a, b) = (HostId(1), HostId(2));
    let (mut at_a, mut at_b) = (session(a, b, 11), session(b, a, 22));
    let mut out = Vec::new();
    at_a.greet(b, &mut out).expect("a peer");
    while let Some(octets) = out.pop() {
        let (to, from) = if octets[15] == 1 { (&mut at_a, b) } else { (&mut at_b, a) };
        if !matches!(to.open(&octets), Ok(Opened::Believed { greet: false, .. })) {
            to.greet(from, &mut out).expect("a peer");
        }
    }
    assert!(at_a.is_confirmed(b) && at_b.is_confirmed(a));
    (at_a, at_b)
}

fn offers(c: &mut Criterion) {
    let (mut at_a, mut at_b) = confirmed();
    let messages: Vec<_> = (0..100)
        .map(|n| {
            let pair = PairId::new(VmId(n), VmId(1_000 + n));
            let floor = Rate::from_mbps(90);
            let (unbounded, confirm) = (n % 2 == 0, n % 3 == 0);
            Message::Offer(Offer { pair, serial: n, floor, unbounded, confirm, round_trip: None })
        })
        .collect();
    let mut out = Vec::new();
    let mut group = c.benchmark_group("wire");
    group.throughput(Throughput::Elements(100));
    group.bench_function("seal and open 100 offers", |b| {
        b.iter(|| {
            out.clear();
            at_a.seal(HostId(2), black_box(&messages), &mut out).expect("a peer");
            let mut read = 0;
            for octets in &out {
                match at_b.open(octets) {
                    Ok(Opened::Believed { messages, .. }) => {
                        read += messages.map(black_box).count()
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(read, 100);
        });
    });
    group.finish();
}

criterion_group!(benches, offers);
criterion_main!(benches);
