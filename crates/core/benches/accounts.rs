//! What the accounts of floors cost an agent with a thousand VMs: a second of looks at all pairs that send, each
//! 20 ms, and the end of the window.
//!
//! Time per iteration is CPU per second: 20 ms are 2 % of a core.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use weir_core::accounts::{Accounts, Standing};
use weir_core::host::SendCount;
use weir_units::{PairId, Rate, Span, Time, VmId};

/// Virtual machines.
const VMS: u32 = 1000;

struct World {
    accounts: Accounts,
    now: Time,
    send: Vec<(PairId, SendCount)>,
}

impl World {
    /// Each VM sends to so many others.
    fn new(peers: u32) -> Self {
        let pair = |n: u32| PairId::new(VmId(n / peers), VmId(VMS + n % peers));
        let send = (0..VMS * peers).map(|n| (pair(n), SendCount::default())).collect();
        Self { accounts: Accounts::default(), now: Time::ZERO, send }
    }

    /// A second in which all pairs are busy and every tenth lacks its floor.
    fn second(&mut self) -> usize {
        for _ in 0..50 {
            self.now += Span::from_millis(20);
            for (n, (_, count)) in self.send.iter_mut().enumerate() {
                let octets = if n % 10 == 0 { 10_000 } else { 25_000 };
                count.numbered += octets;
                count.segments += octets / 1_500;
                count.waiting = Some(30_000);
            }
            self.accounts.look(self.now, &self.send);
        }
        let standing = |(pair, _): &(PairId, SendCount)| Standing {
            pair: *pair,
            floor: Rate::from_mbps(8),
            lost: 0,
            wrong: None,
            is_heard: true,
        };
        self.accounts.close(self.now, self.send.iter().map(standing)).len()
    }
}

fn accounts(c: &mut Criterion) {
    let mut group = c.benchmark_group("accounts of a second, 1000 VMs");
    for peers in [1, 10] {
        let mut world = World::new(peers);
        world.second();
        group.bench_function(BenchmarkId::new("peers of each", peers), |b| {
            b.iter(|| world.second())
        });
    }
    group.finish();
}

criterion_group!(benches, accounts);
criterion_main!(benches);
