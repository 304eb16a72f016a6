//! A host's agent: the machine of `weir-core`, what it is told of counters, and what it wants of
//! queues.
//!
//! Problem   The machine wants counters and gives orders; packets, queues, clocks and letters are
//!           the shim's.
//! Approach  Counters become what a data plane observes; messages become letters; orders that an
//!           agent carries out late wait for their time ([`weir_core::eyeq::Backend`]).
//! Promises  The machine sees nothing of the network but what passes here, whatever its mechanism.
//! Not here  When it is called: see `shim`. What orders do to queues: see `station` and `classes`.

use super::htb::Htb;
use super::letters::Words;
use super::meter::Meter;
use super::pairs::{Pair, Sending};
use std::collections::VecDeque;
use weir_core::elasticswitch::Ends;
use weir_core::host::{
    Brake, Call, Class, Counters, Direction, HostLoop, Input, Observed, Policy, ReceiveCount,
    SendCount, Setting, Timed, Work,
};
use weir_core::mechanism::PairView;
use weir_core::message::Message;
use weir_journal::{Kept, Log};
use weir_units::{Bytes, HostId, PairId, Rate, SortedSet, Span, Time, VmId};
use weir_wire::MAX_RECORDS;

/// The class of packets of VMs with a floor, and of messages; and of those without.
const FIRST: u8 = 0;
pub(super) const LAST: u8 = 1;

/// What an agent wants of its host's queues, as far as it has changed.
#[derive(Default, Debug)]
pub(super) struct Changes {
    /// Ends of pairs of which nothing is left.
    pub(super) forgotten: Vec<(PairId, Direction)>,
    /// What pairs may send, on each of their paths.
    pub(super) settings: Vec<(PairId, Vec<Setting>)>,
    /// The class of VMs' packets in the network.
    pub(super) classes: Vec<(VmId, u8)>,
    /// What is offered to pairs that show marks.
    pub(super) offers: Vec<(PairId, Option<Rate>)>,
    /// What the queues of pairs may hold.
    pub(super) rooms: Vec<(PairId, Option<Bytes>)>,
    /// What VMs' pairs without a queue may send.
    pub(super) brakes: Vec<(VmId, Brake)>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        let pairs = self.forgotten.is_empty() && self.settings.is_empty();
        let orders = self.classes.is_empty() && self.offers.is_empty() && self.rooms.is_empty();
        pairs && orders && self.brakes.is_empty()
    }
}

/// What a host's programs have counted.
pub(super) struct Counted<'a> {
    pub(super) pairs: &'a mut [Pair],
    /// Numbers of those whose source is here, and whose destination is.
    pub(super) sends: &'a [u32],
    pub(super) receives: &'a [u32],
    pub(super) htb: &'a Htb,
    /// The least delayed packet from each host since the last reading.
    pub(super) timed: &'a [(HostId, Timed)],
    /// By the network's clock, and how long a gap may stay open. In ns.
    pub(super) now: u64,
    pub(super) window: u64,
}

/// What decides on a host. All times are its own clock's.
#[derive(Debug)]
pub(super) struct Agent {
    host: Kept,
    /// Messages that were taken with the last orders.
    messages: Vec<(HostId, Message)>,
    /// Peers to greet, taken with them.
    greetings: Vec<HostId>,
    observed: Observed,
    /// How long after it was decided a level is in force, and what waits for that.
    late: Span,
    decided: VecDeque<(Time, Changes)>,
    /// The levels of a new pair until orders come.
    at_first: Option<Setting>,
}

impl Agent {
    /// An agent with nothing but its policy, recorded in `log` if there is one.
    pub(super) fn new(policy: &Policy, now: Time, log: Option<Log>) -> Self {
        Self {
            host: Kept::new(host(policy, now), log),
            messages: Vec::new(),
            greetings: Vec::new(),
            observed: Observed::default(),
            late: policy.law.actuation(),
            decided: VecDeque::new(),
            at_first: policy.law.at_first(policy.line),
        }
    }

    /// A new life with nothing but its policy.
    pub(super) fn live_again(&mut self, policy: &Policy, now: Time) {
        self.host.replace(host(policy, now));
        self.messages.clear();
        self.greetings.clear();
        self.observed.clear();
        self.decided.clear();
        self.at_first = policy.law.at_first(policy.line);
    }

    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) {
        self.host.handle(now, Call::Input(input));
    }

    /// A letter in this peer's name was not believed.
    pub(super) fn doubt(&mut self, now: Time, peer: HostId) {
        self.host.handle(now, Call::Doubted(peer));
    }

    /// Another agent's words.
    pub(super) fn hear(&mut self, now: Time, from: HostId, words: &Words) {
        match words {
            Words::Records(messages) => {
                for message in messages {
                    self.handle(now, Input::Message(from, *message));
                }
            }
            Words::Single(message) => self.handle(now, Input::Message(from, *message)),
        }
    }

    /// Reads what was counted.
    pub(super) fn count(&mut self, now: Time, mut counted: Counted<'_>) {
        self.observed.clear();
        self.read_sent(&counted);
        self.read_received(&mut counted);
        self.observed.timed.extend_from_slice(counted.timed);
        self.host.handle(now, Call::Input(Input::Observed(&self.observed)));
    }

    fn read_sent(&mut self, counted: &Counted<'_>) {
        let Observed { send, send_paths, .. } = &mut self.observed;
        for pair in counted.sending() {
            let Sending { octets, acks, numbered, leaf, .. } = pair.sending;
            let waiting = leaf.map(|leaf| counted.htb.waiting(leaf));
            let waiting_acks = leaf.map_or(0, |leaf| counted.htb.waiting_acks(leaf));
            let count =
                SendCount { octets, acks, numbered, waiting, waiting_acks, ..SendCount::default() };
            if pair.has_several() {
                send_paths.push((pair.id, pair.path, count));
                // The paths of a pair come in a row.
                if let Some((_, all)) = send.last_mut().filter(|(id, _)| *id == pair.id) {
                    all.octets += octets;
                    all.acks += acks;
                    all.numbered += numbered;
                    all.waiting_acks += waiting_acks;
                    all.waiting = all.waiting.zip(waiting).map(|(all, more)| all + more);
                    continue;
                }
            }
            send.push((pair.id, count));
        }
    }

    fn read_received(&mut self, counted: &mut Counted<'_>) {
        let Observed { receive, receive_paths, .. } = &mut self.observed;
        for number in counted.receives {
            // The paths of a pair come in a row.
            let pair = &mut counted.pairs[*number as usize];
            if !pair.receives {
                continue;
            }
            let Meter { octets, segments, marked, .. } = pair.meter;
            let lost = pair.meter.tell_lost(counted.now, counted.window);
            let mut count = ReceiveCount { octets, segments, numbered: None, lost, marked };
            if pair.has_several() {
                receive_paths.push((pair.id, pair.path, count));
                (count.lost, count.marked) = (0, 0);
                if let Some((_, all)) = receive.last_mut().filter(|(id, _)| *id == pair.id) {
                    all.octets += octets;
                    all.segments += segments;
                    continue;
                }
            }
            receive.push((pair.id, count));
        }
    }

    /// When the machine wants its counters, and then [`Input::Tick`].
    pub(super) fn step_at(&self) -> Option<Time> {
        self.host.next_deadline().map(|(at, _)| at)
    }

    /// When it wants to be called next: also to carry out what it decided before.
    pub(super) fn deadline(&self) -> Option<Time> {
        let decided = self.decided.front().map(|(at, _)| *at);
        self.step_at().into_iter().chain(decided).min()
    }

    /// What has changed since the last call, and is due.
    pub(super) fn changes(&mut self, now: Time) -> Changes {
        let changed = self.changed(now);
        if self.late == Span::ZERO {
            return changed;
        }
        if !changed.is_empty() {
            self.decided.push_back((now + self.late, changed));
        }
        let mut due = Changes::default();
        while self.decided.front().is_some_and(|(at, _)| *at <= now) {
            let (_, changes) = self.decided.pop_front().expect("there is a front");
            due.forgotten.extend(changes.forgotten);
            due.settings.extend(changes.settings);
            due.classes.extend(changes.classes);
            due.offers.extend(changes.offers);
            due.rooms.extend(changes.rooms);
            due.brakes.extend(changes.brakes);
        }
        due
    }

    fn changed(&mut self, now: Time) -> Changes {
        let work = self.host.work(now);
        let Work { forgotten, pairs, paths, classes, offers, rooms, brakes, .. } = work;
        self.messages.extend(work.messages);
        self.greetings.extend(work.greetings);
        // What a pair has is what its paths have, if it has several.
        let of_pairs = pairs.into_iter().map(|(id, setting)| (id, vec![setting]));
        let settings = of_pairs.chain(paths).collect();
        // A VM that went has no class, nor anything to send.
        let class = |class| if class == Class::BestEffort { LAST } else { FIRST };
        let classes = classes.into_iter().filter_map(|(vm, of)| Some((vm, class(of?)))).collect();
        Changes { forgotten, settings, classes, offers, rooms, brakes }
    }

    /// Peers to greet, before anything is said.
    pub(super) fn greetings(&mut self) -> Vec<HostId> {
        std::mem::take(&mut self.greetings)
    }

    /// What it has to say: one letter each. A datagram per peer, or several if it is much.
    pub(super) fn say(&mut self) -> Vec<(HostId, Words)> {
        let messages = std::mem::take(&mut self.messages);
        let mut letters: Vec<(HostId, Words)> = Vec::new();
        for (to, message) in messages {
            if let Message::Feedback(_) | Message::Level(_) = message {
                letters.push((to, Words::Single(message)));
                continue;
            }
            match letters.last_mut() {
                Some((last, Words::Records(records)))
                    if *last == to && records.len() < MAX_RECORDS =>
                {
                    records.push(message);
                }
                _ => letters.push((to, Words::Records(vec![message]))),
            }
        }
        letters
    }

    /// What the queue of a pair is from its first packet on; `None`: it has none before it is
    /// ordered.
    pub(super) fn at_first(&self) -> Option<Setting> {
        self.at_first
    }

    /// Segments that it has seen lost, of pairs that it knows; `None` if it does not look for them.
    pub(super) fn losses(&mut self, now: Time) -> Option<u64> {
        let views = self.host.pairs(now);
        let detects = self.host.machine().eyeq().is_none();
        detects.then(|| views.iter().filter_map(PairView::lost_on_arrival).sum())
    }

    /// Pairs that it lists.
    pub(super) fn listed(&mut self, now: Time) -> u64 {
        match self.host.machine().eyeq() {
            Some(_) => (self.observed.send.len() + self.observed.receive.len()) as u64,
            None => self.host.pairs(now).len() as u64,
        }
    }

    /// Words that found no room.
    pub(super) fn unsent(&self) -> u64 {
        self.host.dropped()
    }

    /// Pairs that it knows: whose source is here, and whose destination is.
    pub(super) fn known(&self) -> (usize, usize) {
        self.host.machine().known()
    }

    /// What it counted about itself.
    pub(super) fn counters(&self) -> Counters {
        self.host.machine().counters()
    }

    /// What it holds of a pair.
    pub(super) fn ends(&self, pair: PairId) -> Ends {
        self.host.machine().elasticswitch().map_or_else(Ends::default, |machine| machine.ends(pair))
    }
}

impl Counted<'_> {
    /// Pairs that send from here, paths in a row.
    fn sending(&self) -> impl Iterator<Item = &Pair> {
        self.sends.iter().map(|pair| &self.pairs[*pair as usize]).filter(|p| p.sending.seen)
    }
}

fn host(policy: &Policy, now: Time) -> HostLoop {
    HostLoop::new(policy.clone(), now).expect("what is refused is not played")
}

/// The same policy without these VMs. A static reservation has all in its directory, present or
/// not.
pub(super) fn without(policy: &Policy, away: &SortedSet<VmId>) -> Policy {
    let mut policy = policy.clone();
    policy.retain_vms(|vm| !away.contains(&vm));
    if !policy.law.foresees() {
        policy.directory.retain(|vm, _| !away.contains(vm));
    }
    policy
}
