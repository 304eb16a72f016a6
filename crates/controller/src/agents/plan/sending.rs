//! What hosts are sent, and what they answer.
//!
//! Approach  See [`super`]. A host that joins is told of its tenants with its certificate, so that its agent
//!           starts with their floors: a host that moves from files has these floors in force already.

use super::{Next, Plan, Sent};
use crate::accounts::{SENTENCE, plain};
use crate::state::Rooms;
use crate::store::Write;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::moment::Moment;
use weir_model::objects::Truth;
use weir_rpc::messages::{Answer, Tenant};

/// VMs in one message, about: more wait for the next.
const BATCH: usize = 10_000;

/// The records that have to be on the disk before, and the states of tenants.
type Message = (Vec<Write>, Vec<(Tenant, Sent)>);

impl Plan {
    /// What the stream of a host does next. `rooms` is the answer to a question of before.
    pub(crate) fn next(&mut self, host: &str, rooms: Option<&Rooms>) -> Next {
        self.tell_touched();
        let Some(stream) = self.hosts.get(host).and_then(|row| row.stream.as_ref()) else {
            return Next::Nothing;
        };
        if !stream.sent.is_empty() || stream.dirty.is_empty() {
            return Next::Nothing;
        }
        let tenants = self.batch(stream.dirty.iter());
        let (writes, states) = match self.states(host, &tenants, rooms, false) {
            Ok(states) => states,
            Err(asked) => return Next::Rooms(asked),
        };
        let stream = self.hosts.get_mut(host).and_then(|row| row.stream.as_mut());
        let stream = stream.expect("it was there");
        let mut told = Vec::new();
        for (state, sent) in states {
            let tenant = state.name.clone();
            stream.dirty.remove(&tenant);
            if sent.vms.values().any(|(.., wait)| wait.is_some()) {
                stream.waiting.insert(tenant.clone());
            } else {
                stream.waiting.remove(&tenant);
            }
            stream.sent.insert(tenant, sent);
            told.push(state);
        }
        Next::Send(writes, told)
    }

    /// What a host that joins begins with. What one message has no room for comes by the stream.
    pub(crate) fn begin(&mut self, host: &str, rooms: Option<&Rooms>) -> Next {
        self.tell_touched();
        let Some(row) = self.hosts.get(host) else { return Next::Nothing };
        let tenants = self.batch(row.tenants.keys());
        let has_files = self.may.get(host).is_none_or(BTreeMap::is_empty);
        match self.states(host, &tenants, rooms, has_files) {
            Ok((writes, states)) => {
                Next::Send(writes, states.into_iter().map(|(state, _)| state).collect())
            }
            Err(asked) => Next::Rooms(asked),
        }
    }

    /// The first of these tenants, as many as one message has room for.
    fn batch<'a>(&self, all: impl Iterator<Item = &'a String>) -> Vec<String> {
        let mut tenants = Vec::new();
        let mut size = 0;
        for tenant in all {
            size += self.tenants.get(tenant).map_or(0, |row| row.vms.len());
            if !tenants.is_empty() && size > BATCH {
                break;
            }
            tenants.push(tenant.clone());
        }
        tenants
    }

    /// The states of these tenants, and the records that have to be on the disk before the host has them. A
    /// host that was told nothing yet has VMs with numbers of their own from its files: their floors are in
    /// force there and do not wait. An error is the tenants of which the rooms have to be known before.
    fn states(
        &mut self,
        host: &str,
        tenants: &[String],
        rooms: Option<&Rooms>,
        has_files: bool,
    ) -> Result<Message, Vec<String>> {
        // Of a later state than the plan's: lowers of which the plan does not know are counted as free.
        let rooms = rooms.filter(|rooms| rooms.revision <= self.revision);
        if rooms.is_none() && tenants.iter().any(|tenant| self.may_wait(host, tenant)) {
            let all = self.excess.keys().filter_map(|(host, vm)| self.tenant_of_may(host, vm));
            let asked: BTreeSet<String> = all.chain(tenants.iter().cloned()).collect();
            return Err(asked.into_iter().collect());
        }
        let (mut writes, mut states) = (Vec::new(), Vec::new());
        for tenant in tenants {
            let mut vms = BTreeMap::new();
            for (vm, row) in self.local_vms(host, tenant) {
                let may = self.most(host, &vm);
                let is_there = has_files && row.spec.number.is_some();
                let is_raise = row.wanted.exceeds(&may) && !is_there;
                let wait = if is_raise { self.waits(host, &row, rooms) } else { None };
                let floors = if wait.is_some() { row.wanted.min(&may) } else { row.wanted.clone() };
                if let Some(message) = &wait {
                    let message = message.clone();
                    self.observe_vm(&vm, row.generation, Truth::False, "Pending", message);
                }
                vms.insert(vm, (floors, row.generation, wait));
            }
            let state = self.state_of(host, tenant, &|vm, _| vms[vm].0.clone());
            for (vm, (floors, ..)) in &vms {
                writes.extend(self.allow(host, vm, tenant, floors));
            }
            let queue = self.queue_version(host, tenant);
            let sent = Sent { version: state.version, queue, vms };
            states.push((state, sent));
        }
        Ok((writes, states))
    }

    /// Records could not be written, or the message not be sent: all of it is to be sent anew.
    pub(crate) fn unsent(&mut self, host: &str, id: u64) {
        if let Some(stream) = self.hosts.get_mut(host).and_then(|row| row.stream.as_mut())
            && stream.id == id
        {
            stream.dirty.extend(std::mem::take(&mut stream.sent).into_keys());
        }
    }

    /// A host answers for a tenant.
    pub(crate) fn answered(&mut self, host: &str, id: u64, answer: &Answer, now: Moment) {
        let row = self.hosts.get_mut(host);
        let Some(stream) = row.and_then(|row| row.stream.as_mut()).filter(|s| s.id == id) else {
            return;
        };
        let is_sent = |sent: &Sent| sent.version == answer.version;
        if !stream.sent.get(&answer.tenant).is_some_and(is_sent) {
            tracing::debug!("host {host} answers for what it was not sent: {}", answer.tenant);
            // It may have taken up what a former stream sent: it is told again what is wanted.
            if answer.applied && !stream.sent.contains_key(&answer.tenant) {
                stream.dirty.insert(answer.tenant.clone());
                self.woken.insert(host.into());
            }
            return;
        }
        let sent = stream.sent.remove(&answer.tenant).expect("it was found");
        self.woken.insert(host.into());
        if answer.applied {
            let has =
                sent.vms.iter().map(|(vm, (floors, ..))| (vm.clone(), floors.clone())).collect();
            self.holds(host, &answer.tenant, &has);
            self.has_queue(host, &answer.tenant, sent.queue);
            for (vm, (_, generation, wait)) in sent.vms {
                if wait.is_none() {
                    self.tell_in_force(host, &vm, generation);
                }
            }
            return;
        }
        stream.refused.insert(answer.tenant.clone(), now);
        let mut less = false;
        for (vm, (_, generation, _)) in sent.vms {
            let message = format!("host `{host}` refuses: {}", plain(&answer.message, SENTENCE));
            let reason = word(&answer.reason);
            self.observe_vm(&vm, generation, Truth::False, &reason, message);
            // What was in force before stays.
            let may = self.may.get_mut(host).and_then(|may| may.get_mut(&vm));
            if let Some(may) = may {
                may.most = may.acknowledged.clone();
            }
            less |= self.refresh_excess(host, &vm);
        }
        if less {
            self.try_waiting();
        }
    }
}

/// A reason of an agent, as one word.
fn word(reason: &str) -> String {
    let word: String = reason.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    if word.is_empty() { "Refused".into() } else { word }
}
