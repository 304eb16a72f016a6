//! Places of tenants and states of switches, as conditions of their objects.
//!
//! Promises  The same place is the same words, so that nothing is written where nothing changed.

use super::network::Names;
use crate::state::{Observation, QUEUE, READY};
use weir_core::binding::control::Event;
use weir_core::binding::{Place, Why};
use weir_core::ledger::{LinkId, SwitchId};
use weir_model::objects::{Kind, TenantQueue, Truth};

/// Name of the condition that says what others changed on a switch.
pub(super) const OTHERS: &str = "OthersChanges";
/// Name of the Topology's condition that says whether tenants are bound.
pub(super) const QUEUES: &str = "Queues";

/// A condition: whether it holds, one word, and a sentence.
pub(super) type Said = (Truth, &'static str, String);

/// Where a tenant is, and why.
pub(super) fn place(place: Place, names: &Names, cannot_tag: Option<&str>) -> Said {
    let shared = |reason, why: String| (Truth::True, reason, format!("the shared queue: {why}"));
    let link = |link: LinkId| names.links.name(link.0).to_owned();
    let why = match place {
        Place::Dedicated(codepoint) => {
            let message = format!(
                "a queue of its own on all links of its tree, by code point {codepoint}; hosts do not \
                 limit it to its floors"
            );
            return (Truth::True, "Dedicated", message);
        }
        Place::Shared(why) => why,
    };
    match why {
        Why::New => shared("New", "it came in this interval, the next one looks at it".into()),
        Why::Excluded => match cannot_tag {
            Some(host) => {
                let message = format!(
                    "the shared queue: the agent of host `{host}` cannot tag with all of spec.queues.\
                     codePoints of the Topology: write them into its `code_points`, or update it"
                );
                (Truth::False, "HostCannotTag", message)
            }
            None => shared("Excluded", "its spec.queue says so".into()),
        },
        Why::NeedsNone => shared("NeedsNone", "it has reserved nothing on any link".into()),
        Why::Outscored(at) => {
            let at = link(at);
            shared(
                "Outscored",
                format!("the tenants with queues on {at} use as much of theirs or more"),
            )
        }
        Why::Preempted(at, by) => {
            let (at, by) = (link(at), names.tenants.name(by.0));
            shared("Preempted", format!("tenant `{by}` took its place on {at}, and uses more"))
        }
        Why::QueuesGone(at) => {
            shared("QueuesGone", format!("{} has fewer queues than before", link(at)))
        }
        Why::NoQueues(at) => {
            let at = link(at);
            let message = format!("{at} has no queues for tenants: see the Switches at its ends");
            shared("NoQueues", message)
        }
        Why::Weights(at) => {
            let message = format!(
                "no weights of {} would hold all floors beside a queue of its own",
                link(at)
            );
            shared("Weights", message)
        }
        Why::Codepoints => {
            shared("CodePoints", "all code points are in use on links that it shares".into())
        }
        Why::Switch(switch) => {
            let message = format!(
                "the shared queue: switch `{}` could not be written to, or lost its queue; the next \
                 interval tries again",
                names.switches.name(switch.0)
            );
            (Truth::False, "SwitchFailed", message)
        }
        Why::Moving => {
            shared("Moving", "switches and hosts are being told of its next place".into())
        }
    }
}

/// What others did to a switch; nothing if the event is of another kind.
pub(super) fn others(event: &Event) -> Option<(SwitchId, Said)> {
    match event {
        Event::Drifted(switch, changes) => {
            let message = format!("{changes} changes by others, or a reset, were found and mended");
            Some((*switch, (Truth::True, "Mended", message)))
        }
        Event::Foreign(switch, port, codepoint) => {
            let message = format!(
                "port {port} leads code point {codepoint}, which no tenant has, to a queue of tenants: it \
                 was left alone"
            );
            Some((*switch, (Truth::True, "LeftAlone", message)))
        }
        _ => None,
    }
}

/// A switch that reads as it should.
pub(super) fn fine(is_static: bool, is_written: bool) -> Said {
    match (is_static, is_written) {
        (true, _) => (Truth::True, "Verified", "it has the queues that were provisioned".into()),
        (false, true) => {
            let message = "its database is as wanted; whether its hardware is cannot be read";
            (Truth::True, "Written", message.into())
        }
        (false, false) => (Truth::True, "AsWanted", "it was read back and is as wanted".into()),
    }
}

fn observation(kind: Kind, name: &str, condition: &'static str, said: Said) -> Observation {
    let (status, reason, message) = said;
    let message = message.chars().filter(|c| !c.is_control()).take(500).collect();
    Observation {
        kind,
        name: name.into(),
        generation: None,
        condition,
        status,
        reason: reason.into(),
        message,
        agent: None,
        queue: None,
    }
}

pub(super) fn of_tenant(name: &str, said: Said, queue: Option<TenantQueue>) -> Observation {
    Observation { queue, ..observation(Kind::Tenant, name, QUEUE, said) }
}

pub(super) fn of_switch(name: &str, condition: Option<&'static str>, said: Said) -> Observation {
    observation(Kind::Switch, name, condition.unwrap_or(READY), said)
}

pub(super) fn of_topology(said: Said) -> Observation {
    observation(Kind::Topology, weir_model::objects::TOPOLOGY, QUEUES, said)
}
