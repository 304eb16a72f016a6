//! What decides on a host, as the shim sees it: the same for every mechanism.
//!
//! Problem   ElasticSwitch speaks of pairs with floors and ceilings, EyeQ of limiters and of VMs' parts of the
//!           uplink; packets, queues, counters, clocks and letters are the same.
//! Approach  One small trait around the very machines of `weir-core`. What they hear are first sights,
//!           counters, words and lists; what they say are [`Orders`] for queues, and words.
//! Promises  An agent sees nothing of the network but what passes here.
//! Not here  When it is called: see `shim`. What orders do to queues: see `station` and `classes`.

mod elastic;
mod eyeq;

use super::classes::Share;
use super::htb::Htb;
use super::letters::Words;
use super::pairs::Pair;
use elastic::Elastic;
use eyeq::Eyeq;
use std::collections::BTreeSet;
use std::fmt::Debug;
use weir_core::eyeq::HostConfig as EyeqConfig;
use weir_core::host::{Counters, Direction, Ends, HostConfig, Mechanism, Setting};
use weir_units::{HostId, PairId, Rate, Span, Time, VmId};

/// What a host's agent is told when it starts, or when its files change.
#[derive(Clone, Debug)]
pub(crate) enum Lists {
    /// ElasticSwitch, Seawall, reservations.
    Pairs(HostConfig),
    /// EyeQ.
    EyeQ(EyeqConfig),
}

/// What an agent wants of its host's queues, as far as it has changed.
#[derive(Default, Debug)]
pub(super) struct Orders {
    /// Ends of pairs of which nothing is left.
    pub(super) forgotten: Vec<(PairId, Direction)>,
    /// What pairs may send, on each of their paths.
    pub(super) settings: Vec<(PairId, Vec<Setting>)>,
    /// What VMs may send, and the class of their packets in the network.
    pub(super) shares: Vec<(VmId, Share, u8)>,
}

/// What a host's programs have counted.
pub(super) struct Counted<'a> {
    pub(super) pairs: &'a [Pair],
    /// Numbers of those whose source is here, and whose destination is.
    pub(super) sends: &'a [u32],
    pub(super) receives: &'a [u32],
    pub(super) htb: &'a Htb,
    /// By the network's clock, and how long a gap may stay open. In ns.
    pub(super) now: u64,
    pub(super) window: u64,
}

/// What decides on a host. All times are its own clock's.
pub(super) trait Agent: Debug + Send {
    /// A pair's first packet.
    fn see(&mut self, now: Time, pair: PairId, direction: Direction);

    /// Another agent's words.
    fn hear(&mut self, now: Time, from: HostId, words: &Words);

    /// Reads what was counted.
    fn count(&mut self, now: Time, counted: &Counted<'_>);

    /// Its deadline has passed, and counters were read.
    fn tick(&mut self, now: Time);

    /// When it wants to be called next.
    fn deadline(&self) -> Option<Time>;

    /// Its lists are these from now on.
    fn take_up(&mut self, now: Time, lists: &Lists);

    /// What has changed since the last call.
    fn orders(&mut self, now: Time) -> Orders;

    /// What it has to say: one letter each.
    fn say(&mut self) -> Vec<(HostId, Words)>;

    /// What the queue of a pair is from its first packet on; `None`: it has none before it is ordered.
    fn at_first(&self) -> Option<Setting>;

    /// An agent of another life finds a pair's queue as it is.
    fn adopt(&mut self, now: Time, pair: PairId, level: Setting);

    /// And a pair that sends to it.
    fn find(&mut self, now: Time, pair: PairId);

    /// Another host's agent has begun a new life.
    fn peer_restarted(&mut self, now: Time, peer: HostId);

    /// Segments that it has seen lost, of pairs that it knows; `None` if it does not look for them.
    fn losses(&mut self, now: Time) -> Option<u64>;

    /// Pairs that it lists.
    fn listed(&mut self, now: Time) -> u64;

    /// Words that found no room.
    fn unsent(&self) -> u64;

    /// Pairs that it knows: whose source is here, and whose destination is.
    fn known(&self) -> (usize, usize) {
        (0, 0)
    }

    /// What it counted about itself.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// What it holds of a pair.
    fn ends(&self, _: PairId) -> Ends {
        Ends::default()
    }
}

impl Counted<'_> {
    /// Pairs that send from here, paths in a row.
    fn sending(&self) -> impl Iterator<Item = &Pair> {
        self.sends.iter().map(|pair| &self.pairs[*pair as usize]).filter(|p| p.sending.seen)
    }

    /// Pairs that send to here, likewise.
    fn receiving(&self) -> impl Iterator<Item = &Pair> {
        self.receives.iter().map(|pair| &self.pairs[*pair as usize]).filter(|p| p.receives)
    }
}

impl Lists {
    /// An agent with nothing but these.
    pub(super) fn agent(&self, now: Time) -> Box<dyn Agent> {
        match self {
            Self::Pairs(config) => Box::new(Elastic::new(config, now)),
            Self::EyeQ(config) => Box::new(Eyeq::new(config, now)),
        }
    }

    /// The rate of the host's uplink.
    pub(super) fn line(&self) -> Rate {
        match self {
            Self::Pairs(config) => config.line,
            Self::EyeQ(config) => config.line,
        }
    }

    /// The host's VMs, in order.
    pub(super) fn vms(&self) -> Vec<VmId> {
        match self {
            Self::Pairs(config) => config.vms.keys().copied().collect(),
            Self::EyeQ(config) => config.vms.keys().copied().collect(),
        }
    }

    /// Whether a VM is here according to them, and another one anywhere.
    pub(super) fn knows(&self, here: VmId, there: VmId) -> bool {
        match self {
            Self::Pairs(c) => c.vms.contains_key(&here) && c.directory.contains_key(&there),
            Self::EyeQ(c) => c.vms.contains_key(&here) && c.directory.contains_key(&there),
        }
    }

    /// The same without these VMs. A static reservation has all in its directory, whoever is there.
    pub(super) fn without(&self, away: &BTreeSet<VmId>) -> Self {
        let mut lists = self.clone();
        match &mut lists {
            Self::Pairs(config) => {
                config.vms.retain(|vm, _| !away.contains(vm));
                if matches!(config.mechanism, Mechanism::ElasticSwitch(_)) {
                    config.directory.retain(|vm, _| !away.contains(vm));
                }
            }
            Self::EyeQ(config) => {
                config.vms.retain(|vm, _| !away.contains(vm));
                config.directory.retain(|vm, _| !away.contains(vm));
            }
        }
        lists
    }

    /// What a host's traffic without a floor gets.
    pub(super) fn default_rate(&self) -> Rate {
        match self {
            Self::Pairs(config) => config.mechanism.default_rate(),
            Self::EyeQ(config) => config.eyeq.silent_least,
        }
    }

    /// Marks are a signal: all packets of pairs are ECN-capable on the way.
    pub(super) fn needs_marks(&self) -> bool {
        match self {
            Self::Pairs(config) => match &config.mechanism {
                Mechanism::ElasticSwitch(es) => es.rate.signal.needs_marks(),
                Mechanism::Reservation { .. } => false,
            },
            Self::EyeQ(_) => true,
        }
    }

    /// How long a gap may stay open.
    pub(super) fn reorder_window(&self) -> Span {
        match self {
            Self::Pairs(HostConfig { mechanism: Mechanism::ElasticSwitch(es), .. }) => {
                es.reorder_window
            }
            _ => Span::from_millis(1),
        }
    }

    /// Whether limiters let packets go one by one: a rate that is measured within 200 µs bears no
    /// bursts of a millisecond.
    pub(super) fn is_paced(&self) -> bool {
        matches!(self, Self::EyeQ(_))
    }
}
