//! Endpoints that stand for the outside, and places in the tables, on hosts made of network
//! namespaces. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::net;

use crate::net::{VM1, VM2, World};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use weir_dataplane::attach::{self, Interface};
use weir_dataplane::{
    Config, Counters, Dataplane, Direction, Endpoint, Mode, Outside, PairRate, Port,
};
use weir_units::{HostId, PairId, Rate, TenantId, VmId};

/// Two tenants' endpoints for all that is outside: VM 2 plays it, and no directory lists its
/// address.
const OUT1: VmId = VmId(10);
const OUT2: VmId = VmId(11);
/// A VM of the other tenant's.
const ELSEWHERE: VmId = VmId(7);
const TENANT1: TenantId = TenantId(1);
const TENANT2: TenantId = TenantId(2);

fn mode(world: &World) -> Mode {
    let tcx = world.inside("host1", || attach::has_tcx(&Interface::find("uplink").unwrap()));
    if tcx { Mode::Tcx } else { Mode::Clsact }
}

/// Host `n`, whose directory has VM 1 of tenant 1, one VM of tenant 2 and the endpoint of
/// the outside. On host 2 they share a port.
fn config(world: &World, n: u32) -> Config {
    let mut config = world.config(n, mode(world));
    config.endpoints.retain(|e| e.vm == VmId(1));
    // On a host that is not here.
    let address = Ipv4Addr::new(10, 7, 7, 7).into();
    config.endpoints.push(Endpoint {
        address,
        vm: ELSEWHERE,
        tenant: TENANT2,
        host: HostId(2),
        mac: None,
    });
    let outside = |vm, tenant| {
        let address = Ipv4Addr::UNSPECIFIED.into();
        Outside { address, length: 0, vm, tenant }
    };
    config.outside = vec![outside(OUT1, TENANT1), outside(OUT2, TENANT2)];
    if n == 2 {
        let port = |vm, tenant| Port {
            vm,
            tenant,
            floor_out: Rate::from_mbps(40),
            ..config.ports[0].clone()
        };
        config.ports = vec![port(OUT1, TENANT1), port(OUT2, TENANT2)];
    }
    config
}

fn open(world: &World, n: u32, config: Config) -> Dataplane {
    world.inside(&format!("host{n}"), || Dataplane::open(config)).unwrap()
}

fn counters(host: &mut Dataplane) -> Counters {
    let mut counters = Counters::default();
    host.read(net::now_ns(), &mut counters).unwrap();
    counters
}

fn talk(from: &UdpSocket, to: Ipv4Addr, n: usize) {
    for _ in 0..n {
        from.send_to(b"hello", (to, 9000)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn the_outside_sends_and_receives_as_one_vm_of_each_tenant() {
    let world = World::new();
    let before = world.snapshot("host2");
    let (mut host1, mut host2) =
        (open(&world, 1, config(&world, 1)), open(&world, 2, config(&world, 2)));
    let (inside, outside) = (world.udp(1), world.udp(2));
    talk(&inside, VM2, 3);
    talk(&outside, VM1, 5);

    let (out, into) = (PairId::new(VmId(1), OUT1), PairId::new(OUT1, VmId(1)));
    let (seen1, seen2) = (counters(&mut host1), counters(&mut host2));
    for (seen, there, back, n) in [(&seen1, out, into, [3, 5]), (&seen2, into, out, [5, 3])] {
        assert_eq!(
            seen.tx.iter().map(|(p, c)| (*p, c.segments)).collect::<Vec<_>>(),
            [(there, n[0])]
        );
        let received: Vec<_> = seen.rx.iter().map(|(p, c)| (*p, c.segments, c.lost)).collect();
        assert_eq!(received, [(back, n[1], 0)]);
    }
    // One port, one entry.
    assert_eq!(seen2.ports.iter().map(|(vm, _)| *vm).collect::<Vec<_>>(), [OUT1]);

    let (floor, ceiling) = (Rate::from_mbps(10), Rate::from_mbps(20));
    let other = PairId::new(OUT2, ELSEWHERE);
    let mut levels = [into, other].map(|pair| PairRate { pair, floor, ceiling });
    levels.sort_by_key(|level| level.pair);
    host2.set(&levels).unwrap();
    // As if it had crashed.
    drop(host2);
    let mut host2 = open(&world, 2, config(&world, 2));
    assert!(host2.adopted());
    let mut found = host2.levels().unwrap();
    found.sort_by_key(|level| level.pair);
    assert_eq!(found, levels, "both tenants' queues are where they were");
    talk(&outside, VM1, 2);
    assert_eq!(counters(&mut host2).tx[0].1.segments, 7);

    world.inside("host2", || host2.close()).unwrap();
    world.inside("host1", || host1.close()).unwrap();
    world.assert_restored("host2", &before);
}

#[test]
fn what_an_agent_forgets_gives_its_places_back() {
    let world = World::new();
    let mut config = config(&world, 1);
    config.pairs_per_vm = 4;
    let address = |n: u32| Ipv4Addr::new(10, 0, 0, n as u8);
    for n in 20..30 {
        let address = address(n).into();
        config.endpoints.push(Endpoint {
            address,
            vm: VmId(n),
            tenant: TENANT1,
            host: HostId(2),
            mac: None,
        });
        world.ip("vm1", &format!("neigh add {address} lladdr 02:00:00:00:00:{n} dev eth0"));
    }
    let mut host = open(&world, 1, config);
    let socket = world.udp(1);
    (20..26).for_each(|n| talk(&socket, address(n), 1));
    let seen = counters(&mut host);
    assert_eq!((seen.tx.len(), seen.ports[0].1.tx_full), (4, 2));

    let ends: Vec<_> = seen.tx.iter().map(|(pair, _)| (*pair, Direction::Tx)).collect();
    host.forget(&ends).unwrap();
    // The first reading deletes what is beyond half, the second sees that it is gone.
    assert_eq!(counters(&mut host).tx, []);
    assert_eq!(counters(&mut host).tx, []);
    (26..30).for_each(|n| talk(&socket, address(n), 1));
    let seen = counters(&mut host);
    let mut fresh: Vec<_> = seen.tx.iter().map(|(pair, _)| pair.dst.0).collect();
    fresh.sort_unstable();
    assert_eq!((fresh, seen.ports[0].1.tx_full), (vec![26, 27], 4));
    world.inside("host1", || host.close()).unwrap();
}
