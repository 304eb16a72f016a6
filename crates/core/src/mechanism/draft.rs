//! A mechanism's constants as somebody set them, before the host is known.
//!
//! Problem   The same constants are set in `agent.toml`, for all agents of a lab, and in the simulator. What they mean
//!           depends on the host: its link, its data plane, the round trip.
//! Approach  One value that takes a scale, constants by name, and reservations, and becomes a law on a host.
//! Promises  A law that comes out can work on that host. An error begins with `preset`, or with `set.` and the constant.
//! Not here  How values are written: see [`Written`]. Names: see [`super::registry`].

use super::Law;
use super::constants::{Entry, Written};
use super::elasticswitch::{ElasticSwitch, Promise};
use super::eyeq::{Backend, EyeQ, Tuned};
use super::level;
use super::reservation::{self, Reservation};
use super::trinity::Trinity;
use crate::host::Capabilities;
use weir_units::{PairId, Rate, Span};

/// The constants of one mechanism.
#[derive(Clone, PartialEq, Debug)]
pub enum Draft {
    /// Of ElasticSwitch, and of Seawall.
    ElasticSwitch(Box<ElasticSwitch>),
    /// Of EyeQ: a preset, and what differs from it.
    EyeQ(Box<Tuned>),
    /// Of Level.
    Level(Box<level::Draft>),
    /// Of reservations.
    Reservation(reservation::Draft),
    /// Of Trinity.
    Trinity(Box<Trinity>),
}

/// What a law's constants follow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// The line rate of the host's uplink.
    pub line: Rate,
    /// From a receiver's word to the first packets at the new rate.
    pub round_trip: Span,
    /// What the data plane could do for this mechanism.
    pub can: Capabilities,
}

impl Draft {
    pub(super) fn elasticswitch(law: ElasticSwitch) -> Self {
        Self::ElasticSwitch(Box::new(law))
    }

    pub(super) fn eyeq(preset: EyeQ) -> Self {
        Self::EyeQ(Box::new(Tuned::new(preset, Backend::Kernel)))
    }

    /// The same on links `factor` times as fast. To be called before [`Draft::set`]: constants that are set are meant as
    /// they are.
    pub fn scaled(mut self, factor: f64) -> Self {
        match &mut self {
            Self::ElasticSwitch(law) => **law = law.scaled(factor),
            // Its rates and times follow the link.
            Self::EyeQ(_) => {}
            Self::Level(draft) => **draft = draft.as_ref().clone().scaled(factor),
            Self::Reservation(draft) => draft.factor = factor,
            Self::Trinity(law) => **law = law.scaled(factor),
        }
        self
    }

    /// Sets one constant by its name. Reservations ignore the names of other mechanisms' constants: they are the
    /// baseline beside these.
    ///
    /// # Errors
    /// There is no such constant, or the value is none of its kind.
    pub fn set(&mut self, name: &str, written: &dyn Written) -> Result<(), String> {
        match self {
            Self::ElasticSwitch(law) => {
                let entry = Entry::find(name, ElasticSwitch::CONSTANTS)?;
                entry.put(law, entry.read(written)?)
            }
            Self::EyeQ(tuned) => tuned.set(name, written),
            Self::Level(draft) => {
                let entry = Entry::find(name, level::Draft::CONSTANTS)?;
                entry.put(draft, entry.read(written)?)
            }
            Self::Trinity(law) => {
                let entry = Entry::find(name, Trinity::CONSTANTS)?;
                entry.put(law, entry.read(written)?)
            }
            Self::Reservation(draft) => {
                if let Ok(entry) = Entry::find(name, reservation::Draft::CONSTANTS) {
                    entry.put(draft, entry.read(written)?)?;
                }
                Ok(())
            }
        }
    }

    /// Reserves rates for pairs, if the mechanism reserves any.
    pub fn reserve(&mut self, rates: impl IntoIterator<Item = (PairId, Rate)>) {
        if let Self::Reservation(draft) = self {
            draft.rates.extend(rates);
        }
    }

    /// Whether the constants can work together, whatever the host.
    ///
    /// # Errors
    /// The first that cannot, with what could.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::ElasticSwitch(law) => law.check().map_err(|error| format!("set: {error}")),
            Self::Trinity(law) => law.check().map_err(|error| format!("set: {error}")),
            // Whether the loop is stable follows from the host's round trip.
            Self::EyeQ(_) | Self::Level(_) | Self::Reservation(_) => Ok(()),
        }
    }

    /// Whether it divides floors over several paths, where hosts can choose among paths.
    pub fn divides_paths(&self) -> bool {
        matches!(self, Self::ElasticSwitch(law) if law.paths.count > 1)
    }

    /// Whether switches serve its packets by two priorities.
    pub fn has_priorities(&self) -> bool {
        matches!(self, Self::Trinity(_))
    }

    /// The law of hoses, if the mechanism divides them.
    pub fn of_hoses(&self) -> Option<&ElasticSwitch> {
        match self {
            Self::ElasticSwitch(law) if law.promise == Promise::Hose => Some(law),
            Self::Level(draft) => Some(&draft.law.partition),
            Self::Trinity(law) => Some(&law.pairs),
            _ => None,
        }
    }

    /// The law with the constants as they are, for the links that these were published for.
    pub fn as_published(self) -> Law {
        match self {
            Self::ElasticSwitch(law) => Law::ElasticSwitch(law),
            Self::EyeQ(tuned) => Law::EyeQ(Box::new(tuned.preset)),
            Self::Level(draft) => Law::Level(Box::new(draft.law)),
            Self::Trinity(law) => Law::Trinity(law),
            Self::Reservation(reservation::Draft { rates, other, .. }) => {
                Law::Reservation(Reservation { rates, other: other.unwrap_or_default() })
            }
        }
    }

    /// The law on a host.
    ///
    /// # Errors
    /// What cannot work there, with what would be right.
    pub fn on(&self, place: &Place) -> Result<Law, String> {
        let Place { line, round_trip, can } = *place;
        Ok(match self {
            Self::ElasticSwitch(_) if self.divides_paths() && can.paths == 1 => {
                // Never silently unenforced: what it promises per path would be kept on no path.
                return Err(
                    "preset: it divides floors over several paths to a host, and this agent's \
                            data plane has one; choose another preset"
                        .into(),
                );
            }
            Self::ElasticSwitch(law) => {
                let paths = if self.divides_paths() { can.paths } else { 1 };
                Law::ElasticSwitch(Box::new(law.as_ref().clone().with_paths(paths)))
            }
            Self::Level(_) if !can.timed => {
                return Err("level needs departure times in packets, which this data plane does not write; choose \
                            `elasticswitch`"
                    .into());
            }
            Self::Level(draft) => Law::Level(Box::new(draft.on(line, round_trip)?)),
            Self::Trinity(_) if !can.colours => {
                return Err("trinity needs two priorities in packets and switches, which this agent's data plane does \
                            not write; choose `elasticswitch`, or play `trinity` in the simulator"
                    .into());
            }
            Self::Trinity(law) => Law::Trinity(law.clone()),
            Self::EyeQ(tuned) if can.meters => {
                Law::EyeQ(Box::new(tuned.on_host(line, round_trip, can.limiter)?))
            }
            Self::EyeQ(tuned) => Law::EyeQ(Box::new(tuned.on(line, round_trip))),
            Self::Reservation(draft) => Law::Reservation(Reservation {
                rates: draft.rates.clone(),
                other: draft.other.unwrap_or_else(|| Reservation::usual_other(draft.factor, line)),
            }),
        })
    }
}
