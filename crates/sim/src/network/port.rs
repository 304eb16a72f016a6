//! Functions of a port beyond first come, first served, as plain data with their checks.
//!
//! Promises  Data that passes can be played: thresholds within buffers, parts between zero and one,
//!           a memory that belongs to one node.

use super::{Flaw, Network};
use std::ops::RangeInclusive;
use weir_units::{Bytes, Span};

/// Queues of one port at most: as many as there are classes.
pub const CLASSES: u8 = 8;
/// Weights of queues.
const WEIGHTS: RangeInclusive<u32> = 1..=65_535;
/// Greatest α of a shared memory.
const ALPHA: f64 = 1024.0;

/// Functions of a port that does not simply keep one drop-tail queue and mark above a threshold.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Port {
    /// Discipline: the choice of the next packet, and marks or drops before the queue is full.
    pub discipline: Discipline,
    /// Number of the memory that it shares with other ports, as [`Network::add_pool`] returned it.
    /// The port's own buffer bounds it, too.
    pub pool: Option<u32>,
}

/// Choice of the next packet, and of marks or drops before the queue is full.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Discipline {
    /// First come, first served.
    #[default]
    Fifo,
    /// The same, with random early detection.
    Red(RedSpec),
    /// Strict priority: a queue waits for all before it.
    Priority(Vec<QueueSpec>),
    /// Deficit round robin (Shreedhar and Varghese 1996).
    Drr(Vec<QueueSpec>),
    /// Worst-case fair weighted fair queueing (WF²Q+, Bennett and Zhang 1997).
    Wfq(Vec<QueueSpec>),
}

/// Random early detection (Floyd and Jacobson 1993): marks packets that are ECN-capable, drops
/// others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RedSpec {
    /// While the average is less octets than this nothing happens.
    pub min: Bytes,
    /// Octets at which every packet is struck; if `gentle`, at twice as many.
    pub max: Bytes,
    /// Chance of a packet to be struck just below `max`.
    pub probability: f64,
    /// Weight of the newest queue length in the average.
    pub weight: f64,
    /// From `max` to twice `max` the chance grows from `probability` to one (Floyd 2000).
    pub gentle: bool,
}

/// One of a port's queues: drop-tail. The class of a packet is the number of its queue; classes
/// beyond the last queue share that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSpec {
    /// Part of the link relative to the others', from 1 to 65535. Strict priority has none.
    pub weight: u32,
    /// Octets it holds, what of it is on the wire included as far as it has not left.
    pub buffer: Bytes,
    /// ECN-capable packets that find more octets than this in the queue are marked. `None`: none.
    pub mark_above: Option<Bytes>,
}

/// A switch's memory for several of its ports, with dynamic thresholds: a queue may grow while it
/// is shorter than α times what is free (Choudhury and Hahne 1998).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PoolSpec {
    /// Octets of all its ports together.
    pub octets: Bytes,
    /// More than 0, at most 1024.
    pub alpha: f64,
}

impl Discipline {
    /// Its queues, if it has several.
    pub(crate) fn queues(&self) -> &[QueueSpec] {
        match self {
            Self::Fifo | Self::Red(_) => &[],
            Self::Priority(queues) | Self::Drr(queues) | Self::Wfq(queues) => queues,
        }
    }
}

impl Network {
    /// Adds a memory that ports may share; returns its number.
    pub fn add_pool(&mut self, pool: PoolSpec) -> Result<u32, Flaw> {
        if !(pool.alpha > 0.0 && pool.alpha <= ALPHA) {
            return Err(Flaw::Alpha(pool.alpha));
        }
        self.pools.push(pool);
        Ok(self.pools.len() as u32 - 1)
    }

    /// Makes the port of `link` another one than first come, first served. The last word counts.
    pub fn set_port(&mut self, link: u32, port: Port) -> Result<(), Flaw> {
        let links = self.links.len();
        let spec = self.links.get(link as usize).ok_or(Flaw::Link { link, links })?;
        if let Some(pool) = port.pool {
            let pools = self.pools.len();
            if pool as usize >= pools {
                return Err(Flaw::Pool { pool, pools });
            }
            let mut others = self.ports.iter().filter(|(_, other)| other.pool == Some(pool));
            if let Some((other, _)) = others.next()
                && self.links[*other as usize].from != spec.from
            {
                let node = self.links[*other as usize].from;
                return Err(Flaw::Foreign { pool, node, other: spec.from });
            }
        }
        if port.discipline != Discipline::Fifo && spec.mark_above.is_some() {
            return Err(Flaw::TwoThresholds(link));
        }
        match &port.discipline {
            Discipline::Fifo => {}
            Discipline::Red(red) => check_red(red, spec.buffer)?,
            Discipline::Priority(queues) | Discipline::Drr(queues) | Discipline::Wfq(queues) => {
                if !(1..=CLASSES.into()).contains(&queues.len()) {
                    return Err(Flaw::Queues(queues.len()));
                }
                let weighted = !matches!(port.discipline, Discipline::Priority(_));
                let wrong =
                    queues.iter().find(|queue| weighted && !WEIGHTS.contains(&queue.weight));
                if let Some(queue) = wrong {
                    return Err(Flaw::Weight(queue.weight));
                }
            }
        }
        self.ports.insert(link, port);
        Ok(())
    }

    /// All packets of a flow, its ACKs included, are of this class: 0 unless something else is
    /// said. Its number is one that [`Network::add_flow`] returned.
    pub fn set_class(&mut self, flow: u32, class: u8) -> Result<(), Flaw> {
        let flows = self.flows.len();
        if flow as usize >= flows {
            return Err(Flaw::Flow { flow, flows });
        }
        if class >= CLASSES {
            return Err(Flaw::Class(class));
        }
        self.classes.resize(flows, 0);
        self.classes[flow as usize] = class;
        Ok(())
    }

    /// Sets jitter: each packet on this link arrives up to `late` later, drawn evenly from the
    /// seed, in order. At most 4 s. [`Network::add_link`] returned the link's number.
    pub fn add_jitter(&mut self, link: u32, late: Span) -> Result<(), Flaw> {
        if late > Span::from_secs(4) {
            return Err(Flaw::Delay(late.as_nanos()));
        }
        assert!((link as usize) < self.links.len(), "a link is there before it is uneven");
        let at = self.late.partition_point(|(other, _)| *other < link);
        self.late.insert(at, (link, late));
        Ok(())
    }

    /// How late packets of this link arrive at most.
    pub(crate) fn lateness(&self, link: u32) -> Span {
        let found = self.late.binary_search_by_key(&link, |(other, _)| *other);
        found.map_or(Span::ZERO, |at| self.late[at].1)
    }

    /// Memories that ports share, by number.
    pub fn pools(&self) -> &[PoolSpec] {
        &self.pools
    }

    /// Ports that are not first come, first served, each with its link's number.
    pub fn ports(&self) -> impl Iterator<Item = (u32, &Port)> {
        self.ports.iter().map(|(link, port)| (*link, port))
    }

    /// The class of a flow.
    pub fn class(&self, flow: u32) -> u8 {
        self.classes.get(flow as usize).copied().unwrap_or(0)
    }
}

fn check_red(red: &RedSpec, buffer: Bytes) -> Result<(), Flaw> {
    if red.min == Bytes::ZERO || red.max <= red.min || red.max > buffer {
        let (min, max) = (red.min.get(), red.max.get());
        return Err(Flaw::Red { min, max, buffer: buffer.get() });
    }
    let wrong = |part: f64| !(part > 0.0 && part <= 1.0);
    match [red.probability, red.weight].into_iter().find(|part| wrong(*part)) {
        Some(part) => Err(Flaw::RedPart(part)),
        None => Ok(()),
    }
}
