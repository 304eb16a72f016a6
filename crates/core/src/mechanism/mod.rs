//! The mechanisms: each a folder here, and one row where they are listed.
//!
//! Problem   Worlds, configuration and people name mechanisms; if each of them knows the list, a
//!           new one is written into many rooms.
//! Approach  A mechanism is a law (constants, [`Law`]) and a machine ([`Mechanism`]) behind one set
//!           of inputs and orders ([`crate::host`]). The compiler names all places of this file
//!           that a new one needs.
//! Not here  What a host is told, and when: see [`crate::host`].

pub mod constants;
pub mod draft;
pub mod elasticswitch;
pub mod explain;
pub mod eyeq;
pub mod level;
pub mod registry;
pub mod reservation;
pub mod trinity;

pub use draft::{Draft, Place};

use crate::host::{
    Capabilities, Counters, Hose, Input, Orders, Outbox, Policy, Setting, Wanted, Why,
};
use crate::vcc;
use elasticswitch::Promise;
use explain::{Facts, Named, Summary};
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::{Bytes, PairId, Rate, SortedSet, Span, TenantId, Time, VmId};

/// A mechanism and its constants, as a host is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Law {
    /// Guarantee partitioning and rate allocation; Seawall with other constants.
    ElasticSwitch(Box<elasticswitch::ElasticSwitch>),
    /// Receivers meter what arrives and tell senders a rate.
    EyeQ(Box<eyeq::EyeQ>),
    /// Guarantee partitioning, and one level per pair of hosts above it.
    Level(Box<level::LevelLaw>),
    /// Static rates for a known traffic matrix; nothing is borrowed.
    Reservation(reservation::Reservation),
    /// Guarantee partitioning, and two priorities in the network.
    Trinity(Box<trinity::Trinity>),
}

impl Law {
    /// What a host's traffic without a floor gets.
    pub fn default_rate(&self) -> Rate {
        match self {
            Self::ElasticSwitch(es) => es.default_floor,
            Self::EyeQ(eyeq) => eyeq.default_floor,
            Self::Level(level) => level.partition.default_floor,
            Self::Reservation(law) => law.other,
            Self::Trinity(law) => law.pairs.default_floor,
        }
    }

    /// Whether marks are a signal: all packets of pairs are to leave ECN-capable.
    pub fn needs_marks(&self) -> bool {
        match self {
            Self::ElasticSwitch(es) => es.rate.signal.needs_marks(),
            Self::Trinity(law) => law.pairs.rate.signal.needs_marks(),
            Self::EyeQ(_) => true,
            Self::Level(_) | Self::Reservation(_) => false,
        }
    }

    /// How long a gap in a pair's sequence may stay open before it is a loss.
    pub fn reorder_window(&self) -> Span {
        match self {
            Self::ElasticSwitch(es) => es.reorder_window,
            Self::Level(level) => level.partition.reorder_window,
            Self::Trinity(law) => law.pairs.reorder_window,
            Self::EyeQ(_) | Self::Reservation(_) => {
                elasticswitch::ElasticSwitch::default().reorder_window
            }
        }
    }

    /// The levels of a new pair until orders come; `None`: it stays in its VM's default queue.
    pub fn at_first(&self, line: Rate) -> Option<Setting> {
        match self {
            // No limiter until a receiver speaks.
            Self::EyeQ(_) => Some(Setting { floor: Rate::ZERO, ceiling: line }),
            Self::ElasticSwitch(_) | Self::Level(_) | Self::Reservation(_) | Self::Trinity(_) => {
                None
            }
        }
    }
}

impl Law {
    /// Whether limiters let packets go one by one: a rate or a delay that is measured within 200 µs
    /// bears no bursts of a millisecond.
    pub fn is_paced(&self) -> bool {
        matches!(self, Self::EyeQ(_) | Self::Level(_))
    }

    /// How often a packet of a pair of hosts carries its departure time; `None`: never.
    pub fn timed_every(&self) -> Option<Span> {
        match self {
            Self::Level(level) => Some(level.timed_every()),
            Self::ElasticSwitch(_) | Self::EyeQ(_) | Self::Reservation(_) | Self::Trinity(_) => {
                None
            }
        }
    }

    /// How many octets a pair may send at once within its floor, where switches serve what is beyond
    /// it last.
    pub fn colours(&self) -> Option<Bytes> {
        match self {
            Self::Trinity(law) => Some(law.burst),
            Self::ElasticSwitch(_) | Self::EyeQ(_) | Self::Level(_) | Self::Reservation(_) => None,
        }
    }

    /// The law of hoses, where guarantee partitioning divides them.
    fn of_hoses(&self) -> Option<&elasticswitch::ElasticSwitch> {
        match self {
            Self::ElasticSwitch(es) => Some(es),
            Self::Level(level) => Some(&level.partition),
            Self::Trinity(law) => Some(&law.pairs),
            Self::EyeQ(_) | Self::Reservation(_) => None,
        }
    }

    /// What it leaves to a data plane that can do so much: one that can meter does it for EyeQ only.
    pub fn leaves(&self, can: Capabilities) -> Capabilities {
        Capabilities { meters: can.meters && matches!(self, Self::EyeQ(_)), ..can }
    }

    /// EyeQ's constants, where the data plane has to meter and to speak as receivers do.
    pub fn metering(&self) -> Option<&eyeq::EyeQ> {
        match self {
            Self::EyeQ(eyeq) => Some(eyeq),
            Self::ElasticSwitch(_) | Self::Level(_) | Self::Reservation(_) | Self::Trinity(_) => {
                None
            }
        }
    }

    /// What VMs of a host are promised, out or in, to or from VMs elsewhere. A tenant that is only there crosses no
    /// uplink.
    pub(crate) fn promised_elsewhere(&self, host: &Policy, out: bool) -> Rate {
        let is_elsewhere = |vm: &VmId| host.directory.get(vm).is_some_and(|l| l.host != host.host);
        match self {
            _ if self.of_hoses().is_some_and(|es| es.promise == Promise::Hose) => {
                let elsewhere = host.directory.values().filter(|l| l.host != host.host);
                let elsewhere: SortedSet<TenantId> = elsewhere.map(|l| l.tenant).collect();
                let crosses = |vm: &VmId| elsewhere.contains(&host.directory[vm].tenant);
                let of = |hose: &Hose| if out { hose.out.floor } else { hose.in_.floor };
                let floors = host.vms().filter(|(vm, _)| crosses(vm)).map(|(_, hose)| of(hose));
                let further =
                    host.further.iter().flat_map(|(vm, all)| all.iter().map(move |h| (*vm, h)));
                let further = further.filter(|(vm, (number, _))| host.reaches(*vm, **number, out));
                floors.chain(further.map(|(_, (_, hose))| of(hose))).sum()
            }
            // Seawall promises nothing; EyeQ has refused what is too much.
            Self::ElasticSwitch(_) | Self::Level(_) | Self::EyeQ(_) | Self::Trinity(_) => {
                Rate::ZERO
            }
            Self::Reservation(law) => {
                let ends = |p: &PairId| if out { (p.src, p.dst) } else { (p.dst, p.src) };
                let crosses =
                    |(here, there): (VmId, VmId)| host.is_here(here) && is_elsewhere(&there);
                law.rates
                    .iter()
                    .filter(|(pair, _)| crosses(ends(pair)))
                    .map(|(_, rate)| *rate)
                    .sum()
            }
        }
    }

    /// How long after it was decided a limit is in force, where a world plays that.
    pub fn actuation(&self) -> Span {
        self.metering().map_or(Span::ZERO, |eyeq| eyeq.loop_delay.actuation)
    }

    /// Whether a policy can be kept with this law.
    ///
    /// # Errors
    /// The first reason why not, with what would be right.
    pub fn check(&self, policy: &Policy) -> Result<(), Refusal> {
        self.metering().map_or(Ok(()), |eyeq| Ok(eyeq::check(policy, eyeq)?))
    }

    /// Whether its directory has VMs that are not there yet: all that were foreseen.
    pub fn foresees(&self) -> bool {
        matches!(self, Self::Reservation(_))
    }

    /// Whether it keeps the floors of several hoses of a VM. EyeQ refuses them; Seawall and
    /// reservations have none.
    pub fn has_hoses(&self) -> bool {
        self.of_hoses().is_some_and(|es| es.promise.has_hoses())
    }

    /// What a VM with these floors out is promised out in all: the pairs of its tenant (with a reservation
    /// all that are foreseen: acknowledgements come on top of the hose), and the small rate for all
    /// other VMs.
    pub fn promised(&self, vm: VmId, floor_out: Rate) -> Rate {
        let own = match self {
            Self::ElasticSwitch(_) | Self::Level(_) | Self::EyeQ(_) | Self::Trinity(_) => floor_out,
            Self::Reservation(law) => floor_out.max(law.of(vm)),
        };
        own + self.default_rate()
    }
}

/// Why a policy cannot be kept, with what would be right.
#[derive(Clone, PartialEq, Debug)]
pub enum Refusal {
    /// By EyeQ.
    EyeQ(eyeq::Refusal),
    /// Whatever the mechanism: the window budget of this VM.
    Windows(VmId, vcc::Refusal),
}

impl From<eyeq::Refusal> for Refusal {
    fn from(refusal: eyeq::Refusal) -> Self {
        Self::EyeQ(refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EyeQ(refusal) => refusal.fmt(f),
            Self::Windows(vm, refusal) => write!(f, "{vm}: {refusal}"),
        }
    }
}

impl std::error::Error for Refusal {}

/// One pair, for people.
#[derive(Clone, Debug)]
pub enum PairView {
    /// As ElasticSwitch sees it.
    ElasticSwitch(Box<elasticswitch::PairView>),
    /// As EyeQ sees it.
    EyeQ(eyeq::PairView),
    /// As Level sees it.
    Level(Box<level::PairView>),
    /// As a reservation sees it.
    Reservation(reservation::PairView),
}

impl PairView {
    /// Which pair.
    pub const fn pair(&self) -> PairId {
        match self {
            Self::ElasticSwitch(view) => view.pair,
            Self::EyeQ(view) => view.pair,
            Self::Level(view) => view.pair,
            Self::Reservation(view) => view.pair,
        }
    }

    /// Segments of it that were seen lost here, at its destination.
    pub fn lost_on_arrival(&self) -> Option<u64> {
        match self {
            Self::ElasticSwitch(view) => view.receive.as_ref().map(|r| r.lost),
            Self::Level(view) => view.floors.receive.as_ref().map(|r| r.lost),
            Self::EyeQ(_) | Self::Reservation(_) => None,
        }
    }

    /// One line about it.
    pub fn summary(&self) -> Summary {
        match self {
            Self::ElasticSwitch(view) => elasticswitch::explain::summary(view),
            Self::EyeQ(view) => eyeq::explain::summary(view),
            Self::Level(view) => view.summary(),
            Self::Reservation(view) => view.summary(),
        }
    }

    /// Why it has its rate, one sentence each, from the demand to the kernel.
    pub fn reasons(&self, named: Named<'_>, facts: &Facts) -> Vec<String> {
        let mut reasons = match self {
            Self::ElasticSwitch(view) => elasticswitch::explain::reasons(view, named, facts),
            Self::EyeQ(view) => eyeq::explain::reasons(view, named, facts),
            Self::Level(view) => view.reasons(named, facts),
            Self::Reservation(view) => view.reasons(facts),
        };
        facts.course(&mut reasons);
        reasons
    }
}

/// The machine of a mechanism.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Mechanism {
    ElasticSwitch(Box<elasticswitch::Machine>),
    EyeQ(Box<eyeq::Host>),
    Level(Box<level::Machine>),
    Reservation(Box<reservation::Machine>),
}

impl Mechanism {
    pub(crate) fn new(policy: Policy, now: Time) -> Result<Self, Refusal> {
        Ok(match policy.law.clone() {
            Law::ElasticSwitch(es) => {
                Self::ElasticSwitch(Box::new(elasticswitch::Machine::new(policy, *es, now)))
            }
            Law::Trinity(law) => {
                Self::ElasticSwitch(Box::new(elasticswitch::Machine::new(policy, law.pairs, now)))
            }
            Law::Level(law) => Self::Level(Box::new(level::Machine::new(policy, *law, now))),
            Law::EyeQ(eyeq) => Self::EyeQ(Box::new(eyeq::Host::new(&policy, *eyeq, now)?)),
            Law::Reservation(law) => {
                Self::Reservation(Box::new(reservation::Machine::new(policy, law, now)))
            }
        })
    }

    pub(crate) fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Outbox) {
        match self {
            Self::ElasticSwitch(machine) => machine.handle(now, input, out),
            Self::EyeQ(machine) => machine.handle(now, input, out),
            Self::Level(machine) => machine.handle(now, input, out),
            Self::Reservation(machine) => machine.handle(now, input),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<(Time, Why)> {
        match self {
            Self::ElasticSwitch(machine) => machine.next_deadline(),
            Self::EyeQ(machine) => machine.next_deadline(),
            Self::Level(machine) => machine.next_deadline(),
            Self::Reservation(machine) => machine.next_deadline(),
        }
    }

    pub(crate) fn wants(&self, now: Time) -> Wanted {
        match self {
            Self::ElasticSwitch(machine) => machine.wants(now),
            Self::EyeQ(machine) => machine.wants(),
            Self::Level(machine) => machine.wants(now),
            Self::Reservation(_) => Wanted { send: true, receive: false },
        }
    }

    /// The orders as they stand: hoses that are to be divided again are not.
    pub(crate) fn undivided(&mut self) -> &mut Orders {
        match self {
            Self::ElasticSwitch(machine) => machine.undivided(),
            Self::EyeQ(machine) => machine.undivided(),
            Self::Level(machine) => machine.undivided(),
            Self::Reservation(machine) => machine.orders(),
        }
    }

    pub(crate) fn orders(&mut self, now: Time) -> &mut Orders {
        match self {
            Self::ElasticSwitch(machine) => machine.orders(now),
            Self::EyeQ(machine) => machine.orders(),
            Self::Level(machine) => machine.orders(now),
            Self::Reservation(machine) => machine.orders(),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        match self {
            Self::ElasticSwitch(machine) => machine.counters(),
            Self::EyeQ(machine) => machine.common_counters(),
            Self::Level(machine) => machine.counters(),
            Self::Reservation(machine) => machine.counters(),
        }
    }

    pub(crate) fn pairs(&mut self, now: Time) -> Vec<PairView> {
        match self {
            Self::ElasticSwitch(machine) => {
                machine.pairs(now).into_iter().map(Box::new).map(PairView::ElasticSwitch).collect()
            }
            Self::EyeQ(machine) => machine.pairs().into_iter().map(PairView::EyeQ).collect(),
            Self::Level(machine) => {
                machine.pairs(now).into_iter().map(Box::new).map(PairView::Level).collect()
            }
            Self::Reservation(machine) => machine.pairs().map(PairView::Reservation).collect(),
        }
    }

    pub(crate) fn pair(&mut self, now: Time, pair: PairId) -> Option<PairView> {
        match self {
            Self::ElasticSwitch(machine) => {
                machine.pair(now, pair).map(Box::new).map(PairView::ElasticSwitch)
            }
            Self::EyeQ(machine) => machine.pair(pair).map(PairView::EyeQ),
            Self::Level(machine) => machine.pair(now, pair).map(Box::new).map(PairView::Level),
            Self::Reservation(machine) => machine.pair(pair).map(PairView::Reservation),
        }
    }

    pub(crate) fn known(&self) -> (usize, usize) {
        match self {
            Self::ElasticSwitch(machine) => machine.known(),
            Self::EyeQ(machine) => machine.known(),
            Self::Level(machine) => machine.known(),
            Self::Reservation(machine) => (machine.pairs().count(), 0),
        }
    }
}
