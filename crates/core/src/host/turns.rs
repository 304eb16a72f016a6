//! Drives a host's machine: the order of calls, retries, adoption, the lease, heartbeats, greetings.
//!
//! Problem   An agent and a simulator drive the same machine. If each has its own order of calls and its own retries,
//!           what was simulated is not what runs, and a recorded run cannot be played again.
//! Approach  One machine around [`HostMachine`]. All that happens is a [`Call`], all that a data plane and a network
//!           shall do is [`Work`], and what could not be done is a [`Call`] again. Calls and work are values: a journal
//!           is the list of them.
//! Promises  Pure, as the machine. A rate that could not be written stays in the work until it is. The lease is not
//!           renewed while a wrong rate is in force for [`UNWRITTEN`]. A class that an earlier life left, and of which
//!           the machine knows no pair, is removed with the first work.
//! Not here  poll, sockets, clocks, counters: see `weir-agent` and `weir-sim`. Files: see `weir-journal`.
//!
//! # A driver's turn
//!
//! 1. [`HostLoop::handle`] for each event and message.
//! 2. While [`HostLoop::due`] asks for counters: read them, [`Call::Input`] with [`Given::Observed`], then
//!    [`Given::Tick`].
//! 3. [`HostLoop::work`]; do it; [`Call::Written`] if there was anything to write.
//! 4. If [`HostLoop::is_beat_due`]: read all counters, renew the lease if [`HostLoop::may_renew`], [`Call::Beat`].
//! 5. Sleep until [`HostLoop::next_deadline`].

use super::{
    Brake, Class, Direction, Event, Given, HostMachine, Input, Observed, Outbox, Pairs, Part,
    Policy, Receive, Setting, Tag, Wanted, Why, WindowShares, greet::Greetings, strays::Strays,
};
use crate::mechanism::{PairView, Refusal};
use crate::message::Message;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use weir_units::{Bytes, HostId, PairId, Rate, SortedSet, Span, TenantId, Time, VmId};

/// An agent renews the lease on what is borrowed at least this often; the guardian takes it back one second after
/// the last renewal.
pub const HEARTBEAT: Span = Span::from_millis(250);
/// With a wrong rate in force for this long the lease is not renewed: better the floor than the wrong rate.
pub const UNWRITTEN: Span = Span::from_millis(500);

/// All that happens to a host's loop.
pub type Call<'a> = Happening<&'a Observed, &'a Policy>;

/// [`Call`], over references or over boxes, as [`Given`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Happening<O, P> {
    /// An input of the machine.
    Input(Given<O, P>),
    /// The host's policy is this from now on. Some ids became other VMs': the machine is told a policy without these
    /// first.
    Change {
        /// As in [`Given::Policy`].
        policy: P,
        /// Ids that name other VMs than before.
        strangers: BTreeSet<VmId>,
    },
    /// What became of the last [`Work`].
    Written(Outcome),
    /// A message in this peer's name was not believed, or the peer has yet to prove that it lives.
    Doubted(HostId),
    /// What the data plane had may be lost: all is to be written again.
    Rewrite,
    /// The heartbeat: what found no room is tried again.
    Beat,
    /// The pairs are looked at: their hoses may be divided again.
    Look(Option<PairId>),
}

impl Happening<Box<Observed>, Box<Policy>> {
    /// The same over references.
    pub fn borrowed(&self) -> Call<'_> {
        match self {
            Self::Input(given) => Call::Input(given.borrowed()),
            Self::Change { policy, strangers } => {
                Call::Change { policy, strangers: strangers.clone() }
            }
            Self::Written(outcome) => Call::Written(outcome.clone()),
            Self::Doubted(peer) => Call::Doubted(*peer),
            Self::Rewrite => Call::Rewrite,
            Self::Beat => Call::Beat,
            Self::Look(pair) => Call::Look(*pair),
        }
    }
}

/// What could not be done of a [`Work`].
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Ends of pairs that could not be removed.
    pub kept: Vec<(PairId, Direction)>,
    /// Pairs whose rate in force is not the one that was ordered.
    pub unwritten: Vec<PairId>,
    /// Pairs that found no class: they send with all others of their VM that have none.
    pub classless: Vec<PairId>,
    /// Tenants whose tag in force is not the one that was ordered.
    pub untagged: Vec<TenantId>,
    /// VMs that have another brake than the one that was ordered.
    pub unbraked: Vec<VmId>,
}

/// What a data plane and a network shall do now.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Ends of pairs that are over. To be done first: their floors are what others are raised by.
    pub forgotten: Vec<(PairId, Direction)>,
    /// Rates of pairs that changed.
    pub pairs: Vec<(PairId, Setting)>,
    /// The same of pairs with several paths, path by path.
    pub paths: Vec<(PairId, Vec<Setting>)>,
    /// What VMs may receive, where it changed.
    pub meters: Vec<((VmId, Part), Option<Receive>)>,
    /// What connections of VMs with a budget may have, where it changed; `None`: they are not bounded any more.
    pub windows: Vec<(VmId, Option<WindowShares>)>,
    /// Classes of VMs' packets that changed.
    pub classes: Vec<(VmId, Option<Class>)>,
    /// Offers to pairs that show marks, where they changed; `None`: their guests see all marks.
    pub offers: Vec<(PairId, Option<Rate>)>,
    /// What the queues of pairs on long paths may hold, where it changed; `None`: what all may.
    pub rooms: Vec<(PairId, Option<Bytes>)>,
    /// What VMs' pairs without a class may send, where it changed.
    pub brakes: Vec<(VmId, Brake)>,
    /// Tags of tenants that changed; `None`: the shared queue.
    pub tags: Vec<(TenantId, Option<Tag>)>,
    /// Peers to greet, before they are sent anything else.
    pub greetings: Vec<HostId>,
    /// Messages to peers, sorted by peer.
    pub messages: Vec<(HostId, Message)>,
    /// What changed since the last work, in order: for the log and for people.
    pub events: Vec<Event>,
}

impl Work {
    /// Whether there is anything to write; messages are not written.
    pub fn writes(&self) -> bool {
        let rates = [self.forgotten.is_empty(), self.pairs.is_empty(), self.paths.is_empty()];
        !(rates == [true; 3] && self.tags.is_empty() && self.brakes.is_empty())
    }
}

/// A host's machine and what its driver has to remember.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostLoop {
    pub(super) machine: HostMachine,
    outbox: Outbox,
    /// When the last heartbeat was; `None`: the driver has none (a simulator's guardian is told of deaths).
    beat: Option<Time>,
    /// Since when some rate in force is wrong.
    unwritten_since: Option<Time>,
    classless: SortedSet<PairId>,
    /// Pairs that an earlier life left a class of, until the first work.
    adopted: SortedSet<PairId>,
    greetings: Greetings,
    strays: Strays,
}

impl HostLoop {
    /// A loop that starts at `now`, without heartbeats.
    ///
    /// # Errors
    /// As [`HostMachine::new`].
    pub fn new(policy: Policy, now: Time) -> Result<Self, Refusal> {
        Ok(Self {
            machine: HostMachine::new(policy, now)?,
            outbox: Outbox::default(),
            beat: None,
            unwritten_since: None,
            classless: SortedSet::new(),
            adopted: SortedSet::new(),
            greetings: Greetings::default(),
            strays: Strays::default(),
        })
    }

    /// The same with a heartbeat, the first at `now`.
    pub fn with_heartbeat(self, now: Time) -> Self {
        Self { beat: Some(now), ..self }
    }

    /// The only way in. Pure: the same state, `now` and call give the same work.
    pub fn handle(&mut self, now: Time, call: Call<'_>) {
        match call {
            Call::Input(input) => {
                let input = match input {
                    Given::Adopt(pair, found) => {
                        self.adopted.insert(pair);
                        Given::Adopt(pair, self.machine.free.lower(pair, found))
                    }
                    other => other,
                };
                match &input {
                    // It tells what it holds once it believes this host.
                    Given::Found(_, peer) => self.greetings.owed(now, *peer),
                    // EyeQ's agents remind a peer themselves, as often as it asks.
                    Given::PeerRestarted(peer) if self.machine.eyeq().is_none() => {
                        self.greetings.owed(now, *peer);
                    }
                    _ => {}
                }
                let stray = self.stray_of(&input);
                let misdirected = stray.map(|_| self.machine.counters().misdirected);
                self.machine.handle(now, input, &mut self.outbox);
                if let Some(vm) = stray
                    && misdirected == Some(self.machine.counters().misdirected)
                {
                    self.strays.congested(now, vm);
                }
            }
            Call::Change { policy, strangers } => {
                if !strangers.is_empty() {
                    // The machine knows numbers only: without them once, they are other VMs the next time.
                    let mut without = policy.clone();
                    without.retain_vms(|vm| !strangers.contains(&vm));
                    without.directory.retain(|vm, _| !strangers.contains(vm));
                    self.machine.handle(now, Given::Policy(&without), &mut self.outbox);
                }
                self.machine.handle(now, Given::Policy(policy), &mut self.outbox);
                // A directory may list a hundred thousand VMs: it is read once, not for each peer.
                let peers: SortedSet<HostId> =
                    policy.directory.values().map(|at| at.host).collect();
                self.greetings.retain(|host| peers.contains(host));
                let is_here = |vm| policy.is_here(vm);
                self.strays.retain(is_here, |vm| strangers.contains(&vm));
            }
            Call::Doubted(peer) => self.greetings.doubted(now, peer),
            Call::Written(outcome) => self.take_outcome(now, outcome),
            Call::Rewrite => {
                self.machine.orders(now).write_again();
                self.strays.write_again();
            }
            Call::Beat => {
                self.beat = self.beat.map(|_| now);
                let classless = self.classless.iter().copied();
                self.machine.orders(now).pairs.retry(classless);
            }
            Call::Look(None) => drop(self.machine.pairs(now)),
            Call::Look(Some(pair)) => drop(self.machine.pair(now, pair)),
        }
    }

    /// The VM, if this is a report of losses of a pair that shares the rate of its VM's strays. The machine
    /// has yet to say whether the report comes from the pair's receiver.
    fn stray_of(&mut self, input: &Input<'_>) -> Option<VmId> {
        let Given::Message(_, Message::Congestion(report)) = input else { return None };
        let pair = report.pair;
        let lost = report.lost > 0 || report.marked > 0;
        let has_class = |pairs: &Pairs| pairs.get(pair).is_some();
        let is_stray = lost
            && (self.classless.contains(&pair)
                || !has_class(&self.machine.mechanism.undivided().pairs));
        is_stray.then_some(pair.src)
    }

    fn take_outcome(&mut self, now: Time, outcome: Outcome) {
        let Outcome { kept, unwritten, classless, untagged, unbraked } = outcome;
        self.strays.retry(unbraked);
        self.machine.orders(now).tags.retry(untagged);
        if unwritten.is_empty() {
            self.unwritten_since = None;
        } else {
            self.unwritten_since.get_or_insert(now);
        }
        self.classless.extend(classless);
        if !unwritten.is_empty() || !kept.is_empty() {
            let pairs = &mut self.machine.orders(now).pairs;
            pairs.retry(unwritten);
            pairs.retry_forgotten(kept);
        }
    }

    /// The only way out: all that changed since the last call.
    pub fn work(&mut self, now: Time) -> Work {
        let orders = self.machine.orders(now);
        let mut forgotten = orders.pairs.take_forgotten();
        for pair in std::mem::take(&mut self.adopted) {
            // Nobody would ever lower its floor, and the others could not have what is kept for it.
            if orders.pairs.get(pair).is_none() {
                forgotten.push((pair, Direction::Send));
            }
        }
        let mut work = Work {
            forgotten,
            pairs: orders.pairs.take_changed(),
            paths: orders.pairs.take_changed_paths(),
            meters: orders.meters.take_changed(),
            windows: orders.windows.take_changed(),
            classes: orders.classes.take_changed(),
            offers: orders.offers.take_changed(),
            rooms: orders.rooms.take_changed(),
            tags: orders.tags.take_changed(),
            brakes: self.strays.take_changed(now),
            greetings: self.greetings.take(),
            messages: self.outbox.take(),
            events: orders.events.take(),
        };
        let free = &self.machine.free;
        work.pairs.iter_mut().for_each(|(pair, wanted)| *wanted = free.lift(*pair, *wanted));
        if !self.classless.is_empty() {
            let is_over = |pair: &PairId| work.forgotten.iter().any(|(over, _)| over == pair);
            let is_tried = |pair: &PairId| work.pairs.iter().any(|(tried, _)| tried == pair);
            self.classless.retain(|pair| !is_over(pair) && !is_tried(pair));
        }
        work
    }

    /// When to call again, and why; `None` while there is nothing to wait for.
    pub fn next_deadline(&self) -> Option<(Time, Why)> {
        let beat = self.beat.map(|at| (at + HEARTBEAT, Why::Heartbeat));
        self.machine.next_deadline().into_iter().chain(beat).min_by_key(|(at, _)| *at)
    }

    /// The counters to read before [`Given::Tick`], and why, if a tick is due.
    pub fn due(&self, now: Time) -> Option<(Wanted, Why)> {
        let (_, why) = self.machine.next_deadline().filter(|(at, _)| *at <= now)?;
        Some((self.machine.wants(now), why))
    }

    /// Whether a heartbeat is due.
    pub fn is_beat_due(&self, now: Time) -> bool {
        self.beat.is_some_and(|at| at + HEARTBEAT <= now)
    }

    /// Whether the lease may be renewed: no wrong rate has been in force for long.
    pub fn may_renew(&self, now: Time) -> bool {
        self.unwritten_since.is_none_or(|at| now.since(at) <= UNWRITTEN)
    }

    /// Whether some rate in force is not the one that was ordered.
    pub const fn has_unwritten(&self) -> bool {
        self.unwritten_since.is_some()
    }

    /// Pairs that found no class.
    pub fn classless(&self) -> usize {
        self.classless.len()
    }

    /// VMs with pairs without a class that may send less than their rate.
    pub fn braked(&self) -> usize {
        self.strays.braked()
    }

    /// Messages that found no room.
    pub const fn dropped(&self) -> u64 {
        self.outbox.dropped
    }

    /// The machine, to look at. Views that may change it: [`HostLoop::pairs`].
    pub const fn machine(&self) -> &HostMachine {
        &self.machine
    }

    /// All active pairs, in the order of their ids. Does what [`Call::Look`] does.
    pub fn pairs(&mut self, now: Time) -> Vec<PairView> {
        self.machine.pairs(now)
    }

    /// One pair, if it is active here. Does what [`Call::Look`] does.
    pub fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        self.machine.pair(now, pair)
    }
}
