//! Numbers by which agents know hosts and VMs.
//!
//! Problem   Agents name hosts and VMs to each other by numbers. Hosts that read a directory took theirs
//!           from it, and have to understand those that follow the controller.
//! Approach  An object may ask for a number with `spec.number`. The others get the next one behind the
//!           largest that there was. `status.number` keeps it.
//! Promises  No two objects of a kind have the same number at a time. An object keeps its number.

use super::command::{Actor, Role};
use super::{State, Undo};
use crate::problem::Problem;
use std::collections::BTreeMap;
use weir_model::objects::{Kind, Object, Spec};

/// Which numbers are taken, of hosts and of VMs.
#[derive(Default)]
pub(super) struct Numbers([Taken; 2]);

#[derive(Default)]
struct Taken {
    names: BTreeMap<u32, String>,
    /// Larger than all numbers that were ever seen: the number of a removed object is not given to the
    /// next one, because agents may know it still.
    next: u32,
}

impl Numbers {
    fn of(&mut self, kind: Kind) -> Option<&mut Taken> {
        match kind {
            Kind::Host => Some(&mut self.0[0]),
            Kind::Vm => Some(&mut self.0[1]),
            _ => None,
        }
    }

    /// Says which object has a number.
    pub(super) fn set(&mut self, kind: Kind, number: u32, name: Option<String>) {
        let Some(taken) = self.of(kind) else { return };
        match name {
            Some(name) => {
                taken.next = taken.next.max(number.saturating_add(1));
                taken.names.insert(number, name);
            }
            None => {
                taken.names.remove(&number);
            }
        }
    }

    /// A number that was given before a start.
    pub(super) fn remember(&mut self, object: &Object) -> Result<(), String> {
        let (kind, Some(number)) = (object.kind(), object.status.number) else { return Ok(()) };
        let other = self.of(kind).and_then(|taken| taken.names.get(&number));
        if let Some(other) = other {
            return Err(format!("number {number} is that of {kind} `{other}`, too"));
        }
        self.set(kind, number, Some(object.name().into()));
        Ok(())
    }
}

impl State {
    /// Takes the number that a host or VM asks for, which has not been given one yet.
    pub(super) fn claim_number(
        &mut self,
        actor: &Actor,
        wanted: Option<u32>,
        object: &Object,
    ) -> Result<(), Problem> {
        let (kind, name) = (object.kind(), object.name());
        let Some(number) = wanted.filter(|wanted| object.status.number != Some(*wanted)) else {
            return Ok(());
        };
        let refuse =
            |status, reason, detail| Err(Problem::new(status, reason, "spec.number", detail));
        if actor.role == Role::Tenant {
            let detail = "only an operator chooses numbers: leave the field out";
            return refuse(403, "Forbidden", detail.into());
        }
        if let Some(is) = object.status.number {
            let detail = format!(
                "the {kind} is number {is}, by which running agents know it, and keeps it: leave the \
                 field out, or delete the {kind} and make it again with number {number}"
            );
            return refuse(422, "Immutable", detail);
        }
        let other = self.numbers.of(kind).and_then(|taken| taken.names.get(&number));
        if let Some(other) = other {
            let detail = format!(
                "{kind} `{other}` has number {number}, by which running agents know it: choose another \
                 number, or leave the field out"
            );
            return refuse(409, "NumberTaken", detail);
        }
        self.set_number(kind, number, Some(name.into()));
        Ok(())
    }

    /// Gives a new host or VM the number that it asked for, or the next one.
    pub(super) fn give_number(&mut self, object: &mut Object) {
        if object.status.number.is_some() {
            return;
        }
        let Some(taken) = self.numbers.of(object.kind()) else { return };
        let number = asked(object).unwrap_or(taken.next);
        self.set_number(object.kind(), number, Some(object.name().into()));
        object.status.number = Some(number);
    }

    pub(super) fn set_number(&mut self, kind: Kind, number: u32, name: Option<String>) {
        let Some(taken) = self.numbers.of(kind) else { return };
        let old = taken.names.get(&number).cloned();
        self.numbers.set(kind, number, name);
        self.pending.undo.push(Undo::Number(kind, number, old));
    }
}

/// The number that [`State::claim_number`] took for it.
const fn asked(object: &Object) -> Option<u32> {
    match &object.spec {
        Spec::Host(spec) => spec.number,
        Spec::Vm(spec) => spec.number,
        _ => None,
    }
}
