//! Why a configuration is refused, with what would be right.

use std::fmt;
use weir_units::{Rate, Span, VmId};

/// A configuration that cannot keep what it promises.
#[derive(Clone, PartialEq, Debug)]
pub enum Refusal {
    /// A constant outside the range in which it means something.
    Range {
        /// Which, with its unit.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The least that would do.
        from: f64,
        /// The most that would do.
        to: f64,
    },
    /// A loop that would oscillate for ever on this topology and backend.
    Unstable {
        /// Whose gain.
        name: &'static str,
        /// The gain.
        alpha: f64,
        /// How many periods late its feedback is.
        delay: u64,
        /// Gains below this are stable then.
        bound: f64,
        /// Its period.
        period: Span,
        /// A period with which this gain would be stable, if there is one.
        least_period: Option<Span>,
    },
    /// A period in which too few packets pass to measure a rate.
    ShortPeriod {
        /// The period.
        period: Span,
        /// Packets that the link carries in it.
        packets: u64,
        /// A period that would do.
        least: Span,
    },
    /// VMs of one host are promised more than its link keeps for promises.
    Overbooked {
        /// Which way: "in" or "out".
        direction: &'static str,
        /// The sum of the floors.
        promised: Rate,
        /// The link less headroom.
        available: Rate,
        /// The link.
        line: Rate,
    },
    /// A minimum above its maximum.
    Crossed {
        /// The VM.
        vm: VmId,
        /// The minimum.
        floor: Rate,
        /// The maximum.
        most: Rate,
    },
    /// A VM with floors in further hoses.
    SeveralHoses {
        /// The VM.
        vm: VmId,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { name, value, from, to } => {
                write!(f, "{name} is {value}; it should lie between {from} and {to}")
            }
            Self::Unstable { name, alpha, delay, bound, period, least_period } => {
                write!(
                    f,
                    "{name} = {alpha} oscillates: feedback is {delay} periods of {period} late, and \
                     only gains below {bound:.3} come to rest then; lower it"
                )?;
                match least_period {
                    Some(least) => write!(f, ", or take a period of {least} or more"),
                    None => Ok(()),
                }
            }
            Self::ShortPeriod { period, packets, least } => write!(
                f,
                "a period of {period} measures nothing: the link carries {packets} packets in it; \
                 take {least} or more"
            ),
            Self::Overbooked { direction, promised, available, line } => write!(
                f,
                "the VMs' floors {direction} are {promised} together; of the link's {line} only \
                 {available} may be promised"
            ),
            Self::Crossed { vm, floor, most } => {
                write!(f, "{vm}: the minimum of {floor} is above the maximum of {most}")
            }
            Self::SeveralHoses { vm } => write!(
                f,
                "{vm} has further hoses, and EyeQ keeps one per VM: give the VM one floor toward its \
                 tenant, or choose elasticswitch"
            ),
        }
    }
}

impl std::error::Error for Refusal {}
