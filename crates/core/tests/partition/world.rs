//! Many VMs, their hoses, and a network that loses, delays, repeats and reorders their messages.
//!
//! Data is fluid: a pair sends the smaller of its demand and `lend` × its floor, with `lend` = 1 the
//! worst case, in which nothing can be borrowed. A thousand ticks per second.

use std::collections::BTreeMap;
use weir_core::message::{Backlog, Echo, Offer};
use weir_core::partition::{Borrowing, PartitionConfig, ReceiveHose, SendHose};
use weir_units::{Rate, Span, SplitMix64, Time, VmId};

pub(crate) const TICK: Span = Span::from_millis(1);
/// Guarantee partitioning period, in ticks.
pub(crate) const PERIOD: u64 = 60;
/// New pairs and echoes are followed by offers after so many ticks.
const SETTLE: u64 = 5;
/// What rate allocation gives a pair without a floor.
const LEAST: u64 = 10_000;

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// Ticks on the way, at least and at most.
    pub(crate) delay: (u64, u64),
    /// In 256.
    pub(crate) lost: u8,
    /// In 256.
    pub(crate) repeated: u8,
    /// VMs (a bit each) whose hosts are not heard, and between which ticks.
    pub(crate) mute: (u64, u64, u64),
}

impl Network {
    pub(crate) const GOOD: Self = Self { delay: (1, 1), lost: 0, repeated: 0, mute: (0, 0, 0) };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    /// bit/s; `u64::MAX` = without limit.
    pub(crate) demand: u64,
    /// In ticks.
    pub(crate) start: u64,
    pub(crate) stop: u64,
}

impl Flow {
    pub(crate) const fn backlogged(src: usize, dst: usize) -> Self {
        Self { src, dst, demand: u64::MAX, start: 0, stop: u64::MAX }
    }

    pub(crate) const fn at_most(self, demand: u64) -> Self {
        Self { demand, ..self }
    }

    pub(crate) const fn from(self, start: u64) -> Self {
        Self { start, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Offer(Offer),
    Echo(Echo),
}

struct Vm {
    send: SendHose,
    receive: ReceiveHose,
    /// Tick modulo the period at which this VM's host divides.
    phase: u64,
    settle_at: Option<u64>,
}

struct Count {
    sent: u64,
    received: u64,
    /// Ticks since the last step in which it sent, and those in which more was left to send.
    ticks: u64,
    waited: u64,
    /// Serial of the receiver's hose when it last met this pair.
    met: Option<u32>,
}

pub(crate) struct World {
    pub(crate) tick: u64,
    pub(crate) lend: f64,
    pub(crate) network: Network,
    pub(crate) messages: u64,
    /// VMs (a bit each) whose hosts speak the first wire version.
    pub(crate) old: u64,
    /// VMs (a bit each) whose hosts do not say what waits, as those of the second version.
    pub(crate) silent: u64,
    vms: Vec<Vm>,
    /// The small start of each VM's hose out.
    small: Vec<Rate>,
    flows: Vec<Flow>,
    counts: BTreeMap<(usize, usize), Count>,
    flying: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    random: SplitMix64,
}

impl World {
    /// One VM per entry of `hoses` (out, in).
    pub(crate) fn new(
        config: &PartitionConfig,
        hoses: &[(Rate, Rate)],
        flows: &[Flow],
        seed: u64,
    ) -> Self {
        let mut world = Self {
            tick: 0,
            lend: 1.0,
            network: Network::GOOD,
            messages: 0,
            old: 0,
            silent: 0,
            vms: Vec::new(),
            small: hoses.iter().map(|h| config.small_start_of(h.0)).collect(),
            flows: flows.to_vec(),
            counts: BTreeMap::new(),
            flying: BTreeMap::new(),
            sequence: 0,
            random: SplitMix64::new(seed),
        };
        for (i, (out, in_)) in hoses.iter().enumerate() {
            let send = SendHose::new(config.clone(), *out);
            let receive = ReceiveHose::new(config.clone(), VmId(i as u32), *in_);
            let phase = world.random() % PERIOD;
            world.vms.push(Vm { send, receive, phase, settle_at: None });
        }
        world
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + TICK * self.tick
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// As a host of an earlier wire version would say it, if the VM's host is one.
    fn as_said(&self, message: Message) -> Message {
        let Message::Echo(mut echo) = message else { return message };
        let is_among = |vms: u64| vms >> (echo.pair.src.0 % 64) & 1 == 1;
        let (is_first, is_second) = (is_among(self.old), is_among(self.silent));
        if is_first {
            echo.most = None;
        }
        if is_first || is_second {
            echo.backlog = Backlog::Unknown;
        }
        Message::Echo(echo)
    }

    fn post(&mut self, message: Message) {
        self.messages += 1;
        let message = self.as_said(message);
        let speaker = match message {
            Message::Offer(offer) => offer.pair.dst.0,
            Message::Echo(echo) => echo.pair.src.0,
        };
        let (vms, from, to) = self.network.mute;
        if vms >> (speaker % 64) & 1 == 1 && (from..to).contains(&self.tick) {
            return;
        }
        let mut copies = u64::from((self.random() % 256) as u8 >= self.network.lost);
        copies += u64::from(((self.random() % 256) as u8) < self.network.repeated);
        for _ in 0..copies {
            let (least, most) = self.network.delay;
            let at = self.tick + least + self.random() % (most - least + 1);
            self.sequence += 1;
            self.flying.insert((at, self.sequence), message);
        }
    }

    /// The floor in force, as the sender's host applies it.
    pub(crate) fn floor(&mut self, src: usize, dst: usize) -> Rate {
        let now = self.now();
        self.vms[src].send.floor(now, VmId(dst as u32))
    }

    pub(crate) fn share(&self, src: usize, dst: usize) -> Rate {
        self.vms[src].send.share(VmId(dst as u32))
    }

    pub(crate) fn offered(&self, src: usize, dst: usize) -> Rate {
        self.vms[dst].receive.offered(VmId(src as u32))
    }

    pub(crate) fn receivers_know(&self, src: usize, dst: usize) -> bool {
        self.vms[dst].receive.peers().any(|p| p == VmId(src as u32))
    }

    /// Runs for `ticks`, and checks at each that no hose is exceeded.
    pub(crate) fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.deliver();
            self.divide();
            self.transmit();
            self.check();
            self.tick += 1;
        }
    }

    pub(crate) fn run_rounds(&mut self, rounds: u64) {
        self.run(rounds * PERIOD);
    }

    fn deliver(&mut self) {
        let now = self.now();
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.tick {
                break;
            }
            match entry.remove() {
                Message::Offer(offer) => {
                    let vm = &mut self.vms[offer.pair.src.0 as usize];
                    if let Some(echo) = vm.send.offer(now, offer.pair.dst, offer) {
                        self.post(Message::Echo(echo));
                    }
                }
                Message::Echo(echo) => {
                    let vm = &mut self.vms[echo.pair.dst.0 as usize];
                    if vm.receive.echo(now, echo.pair.src, echo) {
                        vm.settle_at = vm.settle_at.or(Some(self.tick + SETTLE));
                    }
                }
            }
        }
    }

    fn divide(&mut self) {
        let now = self.now();
        for i in 0..self.vms.len() {
            let periodic = self.tick % PERIOD == self.vms[i].phase;
            if periodic {
                self.step(i, now);
            }
            let settled = self.vms[i].settle_at.is_some_and(|at| at <= self.tick);
            if periodic || settled {
                let vm = &mut self.vms[i];
                vm.settle_at = None;
                let offers: Vec<Offer> = vm.receive.offers(now).collect();
                for offer in offers {
                    self.post(Message::Offer(offer));
                }
            }
        }
    }

    fn step(&mut self, i: usize, now: Time) {
        let rate = |bits: &mut u64| Rate::from_bps(std::mem::take(bits) * 1000 / PERIOD);
        let counts = &mut self.counts;
        for ((_, dst), count) in counts.range_mut((i, 0)..=(i, usize::MAX)) {
            let (ticks, waited) =
                (std::mem::take(&mut count.ticks), std::mem::take(&mut count.waited));
            let backlog = match waited {
                0 => Backlog::Free,
                _ if waited == ticks => Backlog::Always,
                _ => Backlog::Sometimes,
            };
            self.vms[i].send.waited(VmId(*dst as u32), backlog);
        }
        self.vms[i].send.step(now, |peer| {
            counts.get_mut(&(i, peer.0 as usize)).map_or(Rate::ZERO, |c| rate(&mut c.sent))
        });
        let notes: Vec<Echo> = self.vms[i].send.notes().collect();
        for echo in notes {
            self.post(Message::Echo(echo));
        }
        let counts = &mut self.counts;
        let idle = self.vms[i].receive.step(now, |peer| {
            counts.get_mut(&(peer.0 as usize, i)).map_or(Rate::ZERO, |c| rate(&mut c.received))
        });
        for peer in idle.iter().copied() {
            if let Some(count) = self.counts.get_mut(&(peer.0 as usize, i)) {
                count.met = None;
            }
        }
    }

    fn transmit(&mut self) {
        let now = self.now();
        for k in 0..self.flows.len() {
            let flow = self.flows[k];
            if self.tick < flow.start || self.tick >= flow.stop {
                continue;
            }
            let dst = VmId(flow.dst as u32);
            self.vms[flow.src].send.see(now, dst);
            let floor = self.vms[flow.src].send.floor(now, dst).as_f64() * self.lend;
            let allowed = (floor as u64).max(LEAST);
            let bits = flow.demand.min(allowed) / 1000;
            let count = self.counts.entry((flow.src, flow.dst)).or_insert(Count {
                sent: 0,
                received: 0,
                ticks: 0,
                waited: 0,
                met: None,
            });
            count.ticks += 1;
            count.waited += u64::from(flow.demand > allowed);
            count.sent += bits;
            count.received += bits;
            self.meet(flow.src, flow.dst, now);
        }
    }

    /// The first packet makes the receiver send an offer at once.
    fn meet(&mut self, src: usize, dst: usize, now: Time) {
        let peer = VmId(src as u32);
        if self.counts[&(src, dst)].met.is_some() {
            return;
        }
        let vm = &mut self.vms[dst];
        vm.receive.see(now, peer);
        vm.settle_at = vm.settle_at.or(Some(self.tick + SETTLE));
        let offer = vm.receive.offer(now, peer);
        if let Some(count) = self.counts.get_mut(&(src, dst)) {
            count.met = Some(offer.serial);
        }
        self.post(Message::Offer(offer));
    }

    /// The safety property. What a receiver cannot count: pairs that it does not know, or whose sender
    /// has not heard of it since it met them, or for so long that it fell back; each of these holds at
    /// most the small start.
    fn check(&mut self) {
        let now = self.now();
        let mut into: Vec<u128> = vec![0; self.vms.len()];
        for i in 0..self.vms.len() {
            let send = &mut self.vms[i].send;
            let peers: Vec<VmId> = send.peers().collect();
            let mut out = 0u128;
            for peer in peers {
                let floor = u128::from(send.floor(now, peer).as_bps());
                out += floor;
                let met = self.counts.get(&(i, peer.0 as usize)).and_then(|c| c.met);
                let heard = send.offered(peer).map(|o| o.serial);
                if matches!(send.borrowing(now, peer), Borrowing::Decaying { silent_for }
                    if silent_for > Span::from_millis(5600))
                {
                    assert!(floor <= u128::from(self.small[i].as_bps()), "vm{i}: lapsed");
                    continue;
                }
                if let (Some(met), Some(heard)) = (met, heard)
                    && heard.wrapping_sub(met) as i32 >= 0
                {
                    into[peer.0 as usize] += floor;
                }
            }
            assert!(out <= u128::from(send.hose().as_bps()), "vm{i}: more out than its hose");
        }
        for (i, into) in into.iter().enumerate() {
            let receive = &self.vms[i].receive;
            let hose = u128::from(receive.hose().as_bps());
            assert!(*into <= hose, "vm{i}: {into} in, but its hose is {hose}, tick {}", self.tick);
            assert!(receive.spent() <= receive.hose(), "vm{i}: spent more than its hose");
        }
    }
}

/// What both ends' max-min converges to: all pairs grow alike until their demand, or a hose, binds.
pub(crate) fn reference(hoses: &[(Rate, Rate)], flows: &[Flow]) -> Vec<f64> {
    let mut out: Vec<f64> = hoses.iter().map(|h| h.0.as_f64()).collect();
    let mut in_: Vec<f64> = hoses.iter().map(|h| h.1.as_f64()).collect();
    let mut rates = vec![0.0; flows.len()];
    let mut open: Vec<usize> = (0..flows.len()).collect();
    while !open.is_empty() {
        let users = |vm: usize, end: fn(&Flow) -> usize| {
            open.iter().filter(|k| end(&flows[**k]) == vm).count().max(1) as f64
        };
        let mut more = f64::MAX;
        for k in &open {
            let flow = &flows[*k];
            more = more.min(flow.demand as f64 - rates[*k]);
            more = more.min(out[flow.src] / users(flow.src, |f| f.src));
            more = more.min(in_[flow.dst] / users(flow.dst, |f| f.dst));
        }
        for k in &open {
            rates[*k] += more;
            out[flows[*k].src] -= more;
            in_[flows[*k].dst] -= more;
        }
        open.retain(|k| {
            let flow = &flows[*k];
            flow.demand as f64 - rates[*k] > 1.0 && out[flow.src] > 1.0 && in_[flow.dst] > 1.0
        });
    }
    rates
}
