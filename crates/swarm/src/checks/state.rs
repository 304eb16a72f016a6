//! Checks that a host remembers no more than the pairs that talk need.

use crate::breach::Breaches;
use crate::terms::Terms;
use weir_sim::Look;

const CHECK: &str = "state";
/// Octets of the smallest packet, an ACK, on the wire.
const SMALLEST: u64 = 54;
/// And of a full one.
const FRAME: u64 = 1514;
/// Of a shaper's queue, and packets in the ring of a network card (docs/simulator.md).
const QUEUE: u64 = 128 * 1024;
const RING: u64 = 1024;

pub(super) fn look(terms: &Terms, look: &Look, breaches: &mut Breaches) {
    let topology = &terms.scenario.topology;
    let (mut queues, at) = (0, (look.at, CHECK));
    for (number, host) in look.hosts.iter().enumerate() {
        let of = &topology.hosts[number];
        let ends = |end: fn(&weir_sim::PairLook) -> u32| {
            look.pairs.iter().filter(|pair| end(pair) as usize == number).count()
        };
        let (out, into) = (ends(|pair| pair.hosts.0.0), ends(|pair| pair.hosts.1.0));
        let (sends, receives) = host.known;
        breaches.unless(sends <= out && receives <= into, at, of, || {
            format!("knows {sends} pairs out and {receives} in, where {out} and {into} may be")
        });
        let vms = terms.scenario.vms.iter().filter(|vm| vm.host == number).count();
        breaches.unless(host.queues <= vms + out, at, of, || {
            format!("{} queues for {vms} VMs and {out} pairs", host.queues)
        });
        breaches.unless(host.unsent == 0, at, of, || {
            format!("{} messages found no room in the outbox", host.unsent)
        });
        let counted = host.counters;
        breaches.unless(counted.misdirected == 0 && counted.unknown_pairs == 0, at, of, || {
            format!("{counted:?}, though all directories are the same")
        });
        queues += host.queues as u64;
    }
    let ports: u64 = look.links.iter().map(|link| link.queued.get()).sum();
    let wires = topology.links.iter().map(|link| 2 * link.rate.bytes_in(link.delay).get());
    let cards = topology.hosts.len() as u64 * RING;
    // What has left a port may still be spread by the time of a full packet (docs/simulator.md, "hosts").
    let spread = look.links.len() as u64 * FRAME;
    let most = (ports + queues * QUEUE + wires.sum::<u64>() + spread) / SMALLEST + cards;
    breaches.unless(look.packets.in_flight <= most, at, "the network", || {
        format!("{} packets in flight, where {most} have room", look.packets.in_flight)
    });
}
