//! Nobody sends more than its cap, no pair may send more than its host's line, no link carries more than
//! its rate.

use crate::breach::Breaches;
use crate::terms::Terms;
use weir_sim::{Look, PairLook};
use weir_units::{Bytes, Rate, Span, Time};

const CHECK: &str = "limit";
/// A full Ethernet frame without FCS.
const FRAME: u64 = 1514;
/// Octets in a port are rounded to the nearest, at both ends of a span.
const ROUNDING: u64 = 2;

/// What earlier looks saw.
#[derive(Debug)]
pub(super) struct Limits {
    at: Time,
    /// Octets that have left, per pair.
    left: Vec<u64>,
    /// Octets that have passed, per link.
    passed: Vec<u64>,
    /// How far each VM with a cap has run ahead of it, in octets; and its host's agent's life.
    ahead: Vec<(f64, u32)>,
}

impl Limits {
    pub(super) fn new(terms: &Terms) -> Self {
        let ahead = vec![(0.0, 0); terms.scenario.vms.len()];
        Self { at: Time::ZERO, left: Vec::new(), passed: Vec::new(), ahead }
    }

    pub(super) fn look(&mut self, terms: &Terms, look: &Look, breaches: &mut Breaches) {
        let span = look.at.since(self.at);
        self.links(terms, look, span, breaches);
        for pair in &look.pairs {
            let (line, of) = (terms.line(pair.hosts.0), || pair_name(terms, pair));
            if let Some(setting) = pair.in_force.filter(|setting| setting.ceiling > line) {
                let what = format!("may send {} on a line of {line}", setting.ceiling);
                breaches.add(look.at, CHECK, &of(), what);
            }
        }
        self.caps(terms, look, span, breaches);
        self.at = look.at;
    }

    fn links(&mut self, terms: &Terms, look: &Look, span: Span, breaches: &mut Breaches) {
        let links = &terms.scenario.topology.links;
        self.passed.resize(2 * links.len(), 0);
        let both = links.iter().flat_map(|link| [link, link]);
        for ((link, seen), passed) in both.zip(&look.links).zip(&mut self.passed) {
            let now = seen.octets.get();
            let (octets, most) = (now - *passed, link.rate.bytes_in(span).get() + ROUNDING);
            breaches.unless(octets <= most, (look.at, CHECK), &link.name, || {
                format!("carried {octets} octets where its rate is {most}")
            });
            breaches.unless(seen.queued <= link.buffer, (look.at, CHECK), &link.name, || {
                format!("{} octets in a buffer of {}", seen.queued.get(), link.buffer.get())
            });
            *passed = now;
        }
    }

    /// A bucket per VM: it drains with the cap and never holds more than a burst and a packet, of its
    /// own and of each of its queues: HTB lets a queue send what its own rate gives it. Between
    /// two looks it is taken to drain as if all had come at the first: never more than there was.
    fn caps(&mut self, terms: &Terms, look: &Look, span: Span, breaches: &mut Breaches) {
        self.left.resize(look.pairs.len(), 0);
        // Octets sent, and what all queues may send on their own account: that of the VM for what has
        // none, and one for each pair that has one.
        let mut vms = vec![(0, 2 * FRAME + FRAME); terms.scenario.vms.len()];
        for (pair, left) in look.pairs.iter().zip(&mut self.left) {
            // A pair that was forgotten counts from zero.
            let more = pair.left.checked_sub(*left).unwrap_or(pair.left);
            let (sent, queues) = &mut vms[pair.id.src.0 as usize];
            *sent += more;
            *queues += pair.in_force.map_or(0, |setting| burst(setting.floor) + FRAME);
            *left = pair.left;
        }
        for ((vm, (sent, queues)), ahead) in terms.scenario.vms.iter().zip(vms).zip(&mut self.ahead)
        {
            let Some(cap) = vm.cap_out else { continue };
            let lives = look.hosts.get(vm.host).map_or(0, |host| host.lives);
            if ahead.1 != lives {
                // A new life may begin with new buckets, full ones.
                *ahead = (0.0, lives);
            }
            let drained = cap.as_f64() / 8.0 * span.as_secs_f64();
            ahead.0 = (ahead.0 + sent as f64 - drained).max(0.0);
            let most = burst(cap) + FRAME + queues;
            breaches.unless(ahead.0 <= most as f64, (look.at, CHECK), &vm.name, || {
                format!("ran {:.0} octets ahead of its cap of {cap}, {most} are bursts", ahead.0)
            });
        }
    }
}

/// The burst of a class of the shaper (docs/simulator.md, "shaper"): a millisecond, and no less than two
/// packets.
fn burst(cap: Rate) -> u64 {
    let octets: Bytes = cap.bytes_in(Span::from_millis(1));
    octets.get().max(2 * FRAME)
}

fn pair_name(terms: &Terms, pair: &PairLook) -> String {
    format!("{} to {}", terms.name(pair.id.src), terms.name(pair.id.dst))
}
