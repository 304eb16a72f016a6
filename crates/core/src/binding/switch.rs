//! A switch's queues as plain data: as they are wanted, and as they are found.
//!
//! Problem   The controller wants tenants in queues, and switches have weights, code points and maps.
//!           A switch may have fewer queues than said, or use some for others, or its maps cannot
//!           lead each code point to where it should go.
//! Approach  [`SwitchConfig`] has the queues of tenants alone. [`Abilities`] says what the switch can
//!           hold, and what belongs to others. [`fit`] refuses single code points with a reason.
//!           [`diff`] gives the changes from one config to another, in an order in which no packet
//!           meets a queue that is not configured.
//! Promises  After each change of a diff, every code point leads to a queue that has a weight; a queue
//!           is made before a code point leads to it, and removed when none does. A queue passes from
//!           one code point to another through the shared queue. Queues and code points of others are
//!           in no change of a config that [`fit`] accepts. Same arguments, same answers.
//! Not here  Who has a queue: [`super::Binder`]. When hosts tag packets: the controller's loop. How a
//!           kind of switch is written to: its driver.
//! Source    QShare §6; for classes, SONiC's DSCP_TO_TC_MAP (at the port where packets enter) and
//!           TC_TO_QUEUE_MAP (at the port where they leave).

use super::{MostWeight, QueuePlan};
use std::fmt;
use std::sync::Arc;
use weir_units::{Rate, SortedMap, SortedSet};

/// The largest code point of IP's field (DSCP, 6 bits).
pub const LAST_CODEPOINT: u8 = 63;

/// A port of a switch, by the name that the switch gives it (`Ethernet0`, `swp1`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortName(pub Arc<str>);

impl From<&str> for PortName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The queues of tenants on one port, where packets leave the switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortQueues {
    /// What the port sends at most.
    pub rate: Rate,
    /// The queue of all of the tenants' packets whose code point is not in `queue_of`.
    pub shared: u8,
    /// Weights by queue, the shared one among them. A queue has its weight over the sum of those that
    /// have packets.
    pub weights: SortedMap<u8, u16>,
    /// The queue of a code point.
    pub queue_of: SortedMap<u8, u8>,
}

impl PortQueues {
    /// The queues of a [`Binder`](super::Binder)'s plan: its queue n is the n-th free one of the port.
    ///
    /// Error: the port has fewer free queues than the plan.
    pub fn of(port: &PortName, able: &PortAbilities, plan: &[QueuePlan]) -> Result<Self, Cannot> {
        let free: Vec<u8> = able.free().collect();
        let at = |queue: u8| {
            let has = free.len() as u8;
            let too_few = Cannot::NoSuchQueue { port: port.clone(), queue, has };
            free.get(usize::from(queue)).copied().ok_or(too_few)
        };
        let mut made = Self {
            rate: able.rate,
            shared: at(super::SHARED)?,
            weights: SortedMap::new(),
            queue_of: SortedMap::new(),
        };
        for plan in plan {
            let queue = at(plan.queue)?;
            made.weights.insert(queue, plan.weight);
            made.queue_of.extend(plan.of.map(|(_, codepoint)| (codepoint, queue)));
        }
        Ok(made)
    }

    /// A port with the shared queue alone.
    pub fn shared_alone(rate: Rate, shared: u8) -> Self {
        Self { rate, shared, weights: [(shared, 1)].into(), queue_of: SortedMap::new() }
    }

    /// The queue to which a tenants' code point leads.
    pub fn queue(&self, codepoint: u8) -> u8 {
        self.queue_of.get(&codepoint).copied().unwrap_or(self.shared)
    }
}

/// The queues of tenants on a switch. Others' queues and code points are not in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// By port.
    pub ports: SortedMap<PortName, PortQueues>,
}

/// What a port can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortAbilities {
    /// Its rate.
    pub rate: Rate,
    /// Number of its queues, from 0.
    pub queues: u8,
    /// Queues of others (lossless traffic, control), which Weir never touches.
    pub reserved: SortedSet<u8>,
}

impl PortAbilities {
    /// Queues that tenants may have, ascending. The first is the shared one.
    pub fn free(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.queues).filter(|queue| !self.reserved.contains(queue))
    }
}

/// What a switch can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Its ports.
    pub ports: SortedMap<PortName, PortAbilities>,
    /// Classes that tenants may have, between code point and queue. A code point has one class where
    /// packets enter, and a class has one queue per port where they leave. The least is that of shared
    /// queues. `None`: a port leads each code point to a queue by itself.
    pub classes: Option<SortedSet<u8>>,
    /// Its range of weights.
    pub most_weight: MostWeight,
    /// Code points of others, which Weir never binds.
    pub reserved_codepoints: SortedSet<u8>,
}

/// What a switch cannot do, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cannot {
    /// The switch has no port of that name.
    NoSuchPort(PortName),
    /// The port has fewer queues.
    NoSuchQueue {
        /// The port.
        port: PortName,
        /// The queue.
        queue: u8,
        /// How many queues it has.
        has: u8,
    },
    /// The queue belongs to others.
    ReservedQueue {
        /// The port.
        port: PortName,
        /// The queue.
        queue: u8,
    },
    /// A code point leads to a queue without a weight, or the shared queue has none.
    NoWeight {
        /// The port.
        port: PortName,
        /// The queue.
        queue: u8,
    },
    /// The weight is out of range.
    Weight {
        /// The port.
        port: PortName,
        /// The queue.
        queue: u8,
        /// The weight.
        weight: u16,
        /// The largest that the switch takes.
        most: u16,
    },
    /// The rate is zero, or more than the port's.
    Rate {
        /// The port.
        port: PortName,
        /// What it has.
        has: Rate,
        /// What is wanted.
        wanted: Rate,
    },
    /// The code point has more than 6 bits.
    NotACodepoint(u8),
    /// The code point belongs to others.
    ReservedCodepoint(u8),
    /// Every class leads to another queue on some port where this code point has one.
    Classes {
        /// The code point.
        codepoint: u8,
        /// Classes of dedicated queues.
        classes: u8,
    },
}

impl std::error::Error for Cannot {}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPort(port) => write!(f, "the switch has no port {port}"),
            Self::NoSuchQueue { port, queue, has } => {
                write!(
                    f,
                    "port {port} has {has} queues for tenants, and queue {queue} is none of them"
                )
            }
            Self::ReservedQueue { port, queue } => {
                write!(f, "queue {queue} of port {port} is reserved for others")
            }
            Self::NoWeight { port, queue } => {
                write!(f, "queue {queue} of port {port} has no weight")
            }
            Self::Weight { port, queue, weight, most } => {
                write!(f, "weight {weight} of queue {queue} of port {port} is not in 1 to {most}")
            }
            Self::Rate { port, has, wanted } => {
                let (has, wanted) = (has.as_bps(), wanted.as_bps());
                write!(f, "port {port} has {has} bit/s, and {wanted} bit/s are wanted")
            }
            Self::NotACodepoint(codepoint) => {
                write!(f, "{codepoint} is no code point: they are 0 to {LAST_CODEPOINT}")
            }
            Self::ReservedCodepoint(codepoint) => {
                write!(f, "code point {codepoint} is reserved for others")
            }
            Self::Classes { codepoint, classes } => {
                write!(
                    f,
                    "code point {codepoint} needs a class of its own, and all {classes} are in use"
                )
            }
        }
    }
}

/// How much of a wanted config a switch can hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fit {
    /// The class of each code point; empty where the switch has no classes.
    pub classes: SortedMap<u8, u8>,
    /// Code points that cannot be bound on this switch: their tenants stay in the shared queue, on
    /// all switches.
    pub refused: SortedMap<u8, Cannot>,
    /// Ports on which nothing can be configured. All their code points are refused.
    pub ports: SortedMap<PortName, Cannot>,
}

impl Fit {
    /// Whether the switch can hold all.
    pub fn is_whole(&self) -> bool {
        self.refused.is_empty() && self.ports.is_empty()
    }
}

/// What of `wanted` a switch can hold.
///
/// `held` has the classes that code points have now: they keep them if they can, for a code point
/// that changes its class has to pass through the shared queue. `order` has code points in the order
/// in which they get classes; those not named come last, ascending.
///
/// Where the switch has classes, two code points may have one class if no port has different queues
/// for them. A packet off its tenant's tree may then meet another tenant's queue.
pub fn fit(wanted: &SwitchConfig, able: &Abilities, held: &SortedMap<u8, u8>, order: &[u8]) -> Fit {
    let mut fit = Fit::default();
    for (name, port) in &wanted.ports {
        let bound = port.queue_of.iter();
        if let Err(why) = check_port(name, port, able) {
            bound.for_each(|(codepoint, _)| {
                fit.refused.entry(*codepoint).or_insert_with(|| why.clone());
            });
            fit.ports.insert(name.clone(), why);
            continue;
        }
        for (codepoint, queue) in bound {
            if let Err(why) = check_codepoint(name, port, able, *codepoint, *queue) {
                fit.refused.entry(*codepoint).or_insert(why);
            }
        }
    }
    if let Some(classes) = &able.classes {
        color(wanted, classes, held, order, &mut fit);
    }
    fit
}

fn check_port(name: &PortName, port: &PortQueues, able: &Abilities) -> Result<(), Cannot> {
    let Some(has) = able.ports.get(name) else { return Err(Cannot::NoSuchPort(name.clone())) };
    if port.rate.is_zero() || port.rate > has.rate {
        return Err(Cannot::Rate { port: name.clone(), has: has.rate, wanted: port.rate });
    }
    check_queue(name, port, able, port.shared)
}

fn check_queue(
    name: &PortName,
    port: &PortQueues,
    able: &Abilities,
    queue: u8,
) -> Result<(), Cannot> {
    let at = name.clone();
    let has = &able.ports[name];
    let most = able.most_weight.get();
    match port.weights.get(&queue) {
        _ if queue >= has.queues => {
            Err(Cannot::NoSuchQueue { port: at, queue, has: has.free().count() as u8 })
        }
        _ if has.reserved.contains(&queue) => Err(Cannot::ReservedQueue { port: at, queue }),
        None => Err(Cannot::NoWeight { port: at, queue }),
        Some(&weight) if weight == 0 || weight > most => {
            Err(Cannot::Weight { port: at, queue, weight, most })
        }
        Some(_) => Ok(()),
    }
}

fn check_codepoint(
    name: &PortName,
    port: &PortQueues,
    able: &Abilities,
    codepoint: u8,
    queue: u8,
) -> Result<(), Cannot> {
    if codepoint > LAST_CODEPOINT {
        return Err(Cannot::NotACodepoint(codepoint));
    }
    if able.reserved_codepoints.contains(&codepoint) {
        return Err(Cannot::ReservedCodepoint(codepoint));
    }
    check_queue(name, port, able, queue)
}

/// Gives each code point the least class that leads it to its queue on every port.
fn color(
    wanted: &SwitchConfig,
    classes: &SortedSet<u8>,
    held: &SortedMap<u8, u8>,
    order: &[u8],
    fit: &mut Fit,
) {
    let mut own = classes.iter().copied();
    let shared = own.next();
    let own: Vec<u8> = own.collect();
    let bound = wanted.ports.values().flat_map(|port| port.queue_of.keys().copied());
    let all: SortedSet<u8> = bound.filter(|at| !fit.refused.contains_key(at)).collect();
    let first = held.keys().chain(order).copied().filter(|at| all.contains(at));
    // The queue of a class, by port.
    let mut queues: SortedMap<(&PortName, u8), u8> = SortedMap::new();
    let mut seen = SortedSet::new();
    for codepoint in first.chain(all.iter().copied()) {
        if !seen.insert(codepoint) {
            continue;
        }
        let places = wanted.ports.iter().filter_map(|(name, port)| {
            port.queue_of.get(&codepoint).map(|queue| (name, *queue, *queue == port.shared))
        });
        let places: Vec<(&PortName, u8, bool)> = places.collect();
        let fits = |class: &u8| {
            let is_its = |(name, queue, _): &(&PortName, u8, bool)| {
                queues.get(&(*name, *class)).is_none_or(|found| found == queue)
            };
            places.iter().all(is_its)
        };
        let kept = held.get(&codepoint).copied().filter(|class| own.contains(class));
        let class = match shared {
            Some(shared) if places.iter().all(|(.., is_shared)| *is_shared) => Some(shared),
            _ => kept.into_iter().chain(own.iter().copied()).find(fits),
        };
        let Some(class) = class else {
            let classes = own.len() as u8;
            fit.refused.insert(codepoint, Cannot::Classes { codepoint, classes });
            continue;
        };
        queues.extend(places.iter().map(|(name, queue, _)| ((*name, class), *queue)));
        fit.classes.insert(codepoint, class);
    }
}

/// When a change comes: all changes of one stage, on all ports, before those of the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Rates and queues are made.
    Make,
    /// Code points whose queue goes to others, or is removed, go to the shared queue.
    Unbind,
    /// Code points go to their queues.
    Bind,
    /// Queues are removed.
    Remove,
}

/// One change of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The port.
    pub port: PortName,
    /// What changes there.
    pub what: What,
}

/// What changes on a port. `was` is what was found; `None` if nothing was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The port's rate.
    Rate {
        /// The new one.
        rate: Rate,
        /// The old one.
        was: Option<Rate>,
    },
    /// A queue is made, or has another weight.
    Weight {
        /// The queue.
        queue: u8,
        /// Its weight.
        weight: u16,
        /// Its old weight.
        was: Option<u16>,
    },
    /// Another queue is the shared one.
    Share {
        /// The queue.
        queue: u8,
        /// The old one.
        was: Option<u8>,
    },
    /// A code point leads to the shared queue.
    Unbind {
        /// The code point.
        codepoint: u8,
        /// Its old queue.
        was: u8,
    },
    /// A code point leads to a queue.
    Bind {
        /// The code point.
        codepoint: u8,
        /// The queue.
        queue: u8,
        /// Its queue before this change; `None`: the shared one.
        was: Option<u8>,
    },
    /// A queue is removed. No code point leads to it.
    Remove {
        /// The queue.
        queue: u8,
        /// Its weight.
        was: u16,
    },
}

impl Change {
    /// When it comes.
    pub const fn stage(&self) -> Stage {
        match self.what {
            What::Rate { .. } | What::Weight { .. } | What::Share { .. } => Stage::Make,
            What::Unbind { .. } => Stage::Unbind,
            What::Bind { .. } => Stage::Bind,
            What::Remove { .. } => Stage::Remove,
        }
    }

    /// Makes this change in `config`. A port that is not there comes with its rate, or with zero.
    pub fn make(&self, config: &mut SwitchConfig) {
        let port = config.ports.entry(self.port.clone()).or_insert_with(|| PortQueues {
            rate: Rate::ZERO,
            shared: super::SHARED,
            weights: SortedMap::new(),
            queue_of: SortedMap::new(),
        });
        match self.what {
            What::Rate { rate, .. } => port.rate = rate,
            What::Weight { queue, weight, .. } => _ = port.weights.insert(queue, weight),
            What::Share { queue, .. } => port.shared = queue,
            What::Unbind { codepoint, .. } => _ = port.queue_of.remove(&codepoint),
            What::Bind { codepoint, queue, .. } => _ = port.queue_of.insert(codepoint, queue),
            What::Remove { queue, .. } => _ = port.weights.remove(&queue),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {}: ", self.port)?;
        match self.what {
            What::Rate { rate, was } => {
                write!(f, "rate {} bit/s", rate.as_bps())?;
                was.map_or(Ok(()), |was| write!(f, " (was {})", was.as_bps()))
            }
            What::Weight { queue, weight, was: None } => {
                write!(f, "make queue {queue} with weight {weight}")
            }
            What::Weight { queue, weight, was: Some(was) } => {
                write!(f, "queue {queue} has weight {weight} (was {was})")
            }
            What::Share { queue, was } => {
                write!(f, "queue {queue} is shared")?;
                was.map_or(Ok(()), |was| write!(f, " (was queue {was})"))
            }
            What::Unbind { codepoint, was } => {
                write!(f, "code point {codepoint} to the shared queue (was queue {was})")
            }
            What::Bind { codepoint, queue, was } => {
                write!(f, "code point {codepoint} to queue {queue}")?;
                match was {
                    Some(was) => write!(f, " (was queue {was})"),
                    None => f.write_str(" (was the shared queue)"),
                }
            }
            What::Remove { queue, was } => write!(f, "remove queue {queue} (weight {was})"),
        }
    }
}

/// The changes that make `found` into `wanted`, by [`Stage`], then by port.
///
/// Ports that `wanted` does not name stay as they are: to clear a port, name it with its shared queue
/// alone. `wanted` must be what [`fit`] accepts.
pub fn diff(found: &SwitchConfig, wanted: &SwitchConfig) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, port) in &wanted.ports {
        let mut push = |what| changes.push(Change { port: name.clone(), what });
        match found.ports.get(name) {
            Some(found) => diff_port(found, port, push),
            None => {
                push(What::Rate { rate: port.rate, was: None });
                for (&queue, &weight) in &port.weights {
                    push(What::Weight { queue, weight, was: None });
                }
                push(What::Share { queue: port.shared, was: None });
                for (&codepoint, &queue) in &port.queue_of {
                    push(What::Bind { codepoint, queue, was: None });
                }
            }
        }
    }
    // Stable: within a stage, in the order of ports.
    changes.sort_by_key(Change::stage);
    changes
}

fn diff_port(found: &PortQueues, wanted: &PortQueues, mut push: impl FnMut(What)) {
    if found.rate != wanted.rate {
        push(What::Rate { rate: wanted.rate, was: Some(found.rate) });
    }
    for (&queue, &weight) in &wanted.weights {
        let was = found.weights.get(&queue).copied();
        if was != Some(weight) {
            push(What::Weight { queue, weight, was });
        }
    }
    if found.shared != wanted.shared {
        push(What::Share { queue: wanted.shared, was: Some(found.shared) });
    }
    // Queues that another code point than those found there will have.
    let moves = |(codepoint, queue): &(&u8, &u8)| found.queue_of.get(codepoint) != Some(queue);
    let taken: SortedSet<u8> =
        wanted.queue_of.iter().filter(moves).map(|(_, queue)| *queue).collect();
    let mut unbound = SortedSet::new();
    for (&codepoint, &was) in &found.queue_of {
        let to = wanted.queue_of.get(&codepoint);
        if to.is_none() || (to != Some(&was) && taken.contains(&was)) {
            push(What::Unbind { codepoint, was });
            unbound.insert(codepoint);
        }
    }
    for (&codepoint, &queue) in &wanted.queue_of {
        let was = found.queue_of.get(&codepoint).copied();
        if was != Some(queue) {
            let was = was.filter(|_| !unbound.contains(&codepoint));
            push(What::Bind { codepoint, queue, was });
        }
    }
    for (&queue, &was) in &found.weights {
        if !wanted.weights.contains_key(&queue) {
            push(What::Remove { queue, was });
        }
    }
}

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
