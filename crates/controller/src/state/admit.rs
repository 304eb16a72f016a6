//! Claims: what is promised to whom, and what happens when the network changes beneath the promises.

use super::book::{Book, Change, Claim, NoRoom, Promise, Terms, Usage, Wanted};
use super::change::vm_claim;
use super::network::Network;
use super::reserve::{reserved_claim, wish_of};
use super::{Stale, State, Stored, Undo};
use crate::problem::Problem;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, HostState, Kind, Object, Phase, ReservationSpec, Spec, TenantSpec, TopologySpec,
    TreeName, Truth, VmSpec,
};

/// Name of the condition.
pub(super) const ADMITTED: &str = "Admitted";

/// What is refused, and the number of the change that is to blame.
pub(super) type Refused = (usize, Problem);

/// A VM or a held reservation, in the order in which they keep their floors: by the tenant's priority,
/// then by age, then by kind and name.
struct Claimant {
    priority: u32,
    made: u64,
    stored: Arc<Stored>,
}

impl State {
    /// Changes claims of a tenant, all or none. A refusal names the first change that does not fit
    /// together with those before it.
    pub(super) fn admit(
        &mut self,
        tenant: &str,
        terms: impl FnOnce(&TenantSpec) -> Terms,
        changes: &[Change],
    ) -> Result<(), Refused> {
        let spec = self.tenant_spec(tenant).map_err(|problem| (0, problem))?;
        let terms = terms(spec);
        self.check_quota(tenant, spec, changes)?;
        match self.book.change(tenant, terms, changes) {
            Ok(before) => {
                self.pending.undo.push(Undo::Claims(Box::new(before)));
                self.touched.insert(tenant.to_owned());
                Ok(())
            }
            Err(no) => Err(self.blame(tenant, terms, changes, no)),
        }
    }

    fn tenant_spec(&self, tenant: &str) -> Result<&TenantSpec, Problem> {
        match self.get(Kind::Tenant, tenant).map(|stored| &stored.object.spec) {
            Some(Spec::Tenant(spec)) => Ok(spec),
            _ => {
                let detail = format!("there is no Tenant with the name `{tenant}`: apply it first");
                Err(Problem::new(422, "NoSuchTenant", "spec.tenant", detail))
            }
        }
    }

    /// The first change with which those up to it do not fit. Of survival the whole is to blame.
    fn blame(&mut self, tenant: &str, terms: Terms, changes: &[Change], mut no: NoRoom) -> Refused {
        let terms = Terms { survival: Default::default(), ..terms };
        let (mut fit, mut do_not) = (0, changes.len());
        while no.reason != "Survival" && do_not - fit > 1 {
            let middle = fit.midpoint(do_not);
            match self.book.change(tenant, terms, &changes[..middle]) {
                Ok(before) => {
                    self.book.take_back(before);
                    fit = middle;
                }
                Err(sooner) => (do_not, no) = (middle, sooner),
            }
        }
        let at = if no.reason == "Survival" { 0 } else { do_not.saturating_sub(1) };
        let wanted = changes.get(at).and_then(|change| change.to.as_ref());
        (at, no_room(&no, wanted.is_some_and(|wanted| wanted.host.is_some())))
    }

    fn check_quota(
        &self,
        tenant: &str,
        spec: &TenantSpec,
        changes: &[Change],
    ) -> Result<(), Refused> {
        let Some(quota) = spec.quota else { return Ok(()) };
        let before = self.book.usage(tenant);
        let had = changes.iter().filter_map(|change| self.book.claim(&change.id));
        let mut used = had.fold(before, |used, claim| used.less(claim.counted));
        let mut first = None;
        for (n, change) in changes.iter().enumerate() {
            let Some(wanted) = &change.to else { continue };
            used = used.plus(wanted.counted);
            let over = quota.excess(used.vms, used.out, used.inward);
            first = first.or(over.map(|over| (n, over)));
        }
        let is_less =
            used.vms <= before.vms && used.out <= before.out && used.inward <= before.inward;
        let Some((n, (what, wanted, most))) = first.filter(|_| !is_less) else { return Ok(()) };
        let field = match what {
            "vms" => "spec.tenant".to_owned(),
            direction => format!("spec.floor.{direction}"),
        };
        let detail = format!(
            "tenant `{tenant}` would have {wanted}, its quota is {most}: ask an operator for a larger one"
        );
        let problem = Problem::new(409, "QuotaExceeded", field, detail);
        Err((n, problem.with("quota", format!("quota.{what}"))))
    }

    /// Gives claims of a tenant back. That always works.
    pub(super) fn release_claims(&mut self, tenant: &str, ids: impl IntoIterator<Item = String>) {
        let claimed = ids.into_iter().filter(|id| self.book.claim(id).is_some());
        let changes: Vec<Change> = claimed.map(|id| Change { id, to: None }).collect();
        if !changes.is_empty() {
            let before = self.book.change(tenant, Terms::default(), &changes);
            let before = before.expect("less always fits");
            self.pending.undo.push(Undo::Claims(Box::new(before)));
            self.touched.insert(tenant.to_owned());
        }
    }

    pub(super) fn rename_claim(&mut self, before: &str, now: &str, counted: Usage) {
        let Some(claim) = self.book.claim(before) else { return };
        let undo = Undo::Renamed(now.into(), before.into(), claim.counted);
        self.book.rename(before, now, counted);
        self.pending.undo.push(undo);
    }

    /// What a reserved VM counts for: if it exists, only what it has more than now.
    pub(super) fn counted(&self, vm: &str, promise: &Promise) -> Usage {
        let old = self.get(Kind::Vm, vm).map(|stored| &stored.object.spec);
        match old {
            Some(Spec::Vm(old)) => promise.usage().less(Promise::of(old).usage()),
            _ => promise.usage(),
        }
    }

    pub(super) fn check_host(&self, name: &str) -> Result<(), Problem> {
        let refuse = |reason, detail| Err(Problem::new(409, reason, "spec.host", detail));
        match self.host_state(name) {
            None => {
                let detail = format!("there is no Host with the name `{name}`: apply it first");
                Err(Problem::new(422, "NoSuchHost", "spec.host", detail))
            }
            Some(HostState::Active) => Ok(()),
            Some(HostState::Draining) => {
                refuse("HostDraining", format!("host `{name}` takes no new VMs: choose another"))
            }
            Some(HostState::Dead) => {
                refuse("HostDead", format!("host `{name}` is declared dead: choose another"))
            }
        }
    }

    fn host_state(&self, name: &str) -> Option<HostState> {
        match &self.get(Kind::Host, name)?.object.spec {
            Spec::Host(spec) => Some(spec.state),
            _ => None,
        }
    }

    /// Whether a host has its VMs still.
    pub(super) fn takes_part(&self, host: &str) -> bool {
        self.host_state(host).is_some_and(|state| state != HostState::Dead)
    }

    /// At the end of a request: adds up again if the network changed, and says where tenants are.
    pub(super) fn refresh(&mut self, now: Moment) -> Result<(), Problem> {
        self.settle(now)?;
        self.say_trees();
        self.say_draining(now)
    }

    /// Writes into tenants' statuses which trees they are on, if that is news.
    pub(super) fn say_trees(&mut self) {
        for tenant in std::mem::take(&mut self.touched) {
            self.note_draining(&tenant);
            let Some(stored) = self.get(Kind::Tenant, &tenant) else { continue };
            let tree = self.book.tree(&tenant);
            if stored.object.status.routing != tree {
                let mut object = stored.object.clone();
                object.status.routing = tree;
                self.put_object(object);
            }
        }
    }

    /// Makes the book anew if the network changed, and decides which floors fall.
    pub(super) fn settle(&mut self, now: Moment) -> Result<(), Problem> {
        if self.stale == Stale::No {
            return Ok(());
        }
        self.add_up(now)?;
        for tenant in self.touched.clone() {
            self.note_draining(&tenant);
        }
        self.leave_draining();
        self.drain_is_news = true;
        Ok(())
    }

    /// The book of the network as it is now.
    pub(super) fn add_up(&mut self, now: Moment) -> Result<(), Problem> {
        let mark = self.mark();
        let only_drains = self.stale == Stale::Drain;
        let trees = self.book.trees();
        self.renew(self.make_book(trees.clone())?);
        if !self.claim_whole(now, only_drains) {
            self.undo_to(mark);
            self.renew(self.make_book(trees)?);
            self.claim_by_rank(now);
        }
        self.touched.extend(self.objects[Kind::Tenant as usize].keys().cloned());
        Ok(())
    }

    fn renew(&mut self, book: Book) {
        let old = std::mem::replace(&mut self.book, book);
        self.pending.undo.push(Undo::Book(Box::new(old)));
        self.pending.undo.push(Undo::Stale(self.stale));
        self.stale = Stale::No;
    }

    /// At a start: the book of the objects as they are, which are believed.
    pub(super) fn admit_again(&mut self) {
        let stored = self.objects[Kind::Tenant as usize].values();
        let tree = |stored: &Arc<Stored>| {
            let tree = stored.object.status.routing.clone()?;
            Some((stored.object.name().to_owned(), tree))
        };
        let trees = stored.filter_map(tree).collect();
        self.book = self.make_book(trees).unwrap_or_else(|problem| {
            // It was admitted once, so only a change of the rules can refuse it now.
            tracing::error!("the stored network is refused: {}", problem.detail);
            Book::default()
        });
        let stands = |object: &Object| {
            object.status.condition(ADMITTED).is_none_or(|c| c.status == Truth::True)
        };
        let (standing, fallen): (Vec<_>, Vec<_>) =
            self.claiming().cloned().partition(|stored| stands(&stored.object));
        self.fallen = fallen.iter().map(|stored| stored.object.name().to_owned()).collect();
        let mut tenants: BTreeMap<String, Vec<(String, Claim)>> = BTreeMap::new();
        for stored in &standing {
            for (id, claim) in self.claims_of(&stored.object) {
                tenants.entry(claim.tenant.clone()).or_default().push((id, claim));
            }
            self.note_reserved(&stored.object);
        }
        for (tenant, claims) in tenants {
            if self.book.restore(&tenant, claims.clone()).is_ok() {
                continue;
            }
            tracing::error!("tenant {tenant} does not fit any more");
            for (id, claim) in claims {
                let vm = id.strip_prefix("VM:").map(str::to_owned);
                let change = returning(id, &claim);
                let terms = Terms { is_returning: true, is_kept: true, ..Terms::default() };
                if self.book.change(&tenant, terms, &[change]).is_err() {
                    self.fallen.extend(vm);
                }
            }
        }
        let tenants = self.objects[Kind::Tenant as usize].values().map(|stored| &stored.object);
        let other = tenants.filter(|one| one.status.routing != self.book.tree(one.name()));
        self.touched = other.map(|one| one.name().to_owned()).collect();
        let names: Vec<String> = self.objects[Kind::Tenant as usize].keys().cloned().collect();
        names.iter().for_each(|tenant| self.note_draining(tenant));
    }

    fn make_book(&self, trees: BTreeMap<String, TreeName>) -> Result<Book, Problem> {
        let of = |kind: Kind| self.objects[kind as usize].values().map(|stored| &stored.object);
        let topology = of(Kind::Topology).find_map(|object| match &object.spec {
            Spec::Topology(spec) => Some(spec.clone()),
            _ => None,
        });
        let hosts = of(Kind::Host).filter_map(|object| match &object.spec {
            Spec::Host(spec) => Some((object.name(), spec)),
            _ => None,
        });
        let links = of(Kind::Link).filter_map(|object| match &object.spec {
            Spec::Link(spec) => Some((object.name(), spec)),
            _ => None,
        });
        let topology: TopologySpec = topology.unwrap_or_default();
        let mut book = Book::new(Network::new(&topology, hosts, links)?, trees)?;
        book.follow(&self.book);
        Ok(book)
    }

    /// Claims tenants as they were, whole. False if one of them lacks room: then priorities decide.
    /// Whoever has fallen may stay so, if only what drains is different.
    fn claim_whole(&mut self, now: Moment, only_drains: bool) -> bool {
        let mut tenants: BTreeMap<String, Vec<(String, Claim)>> = BTreeMap::new();
        let (mut rest, mut whole) = (Vec::new(), Vec::new());
        for stored in self.claiming() {
            let object = &stored.object;
            let claims = self.claims_of(object);
            let stays = !self.fallen.contains(object.name()) || object.kind() != Kind::Vm;
            if stays && claims.iter().all(|(_, claim)| self.takes_part(&claim.host)) {
                for (id, claim) in claims {
                    tenants.entry(claim.tenant.clone()).or_default().push((id, claim));
                }
                if object.kind() == Kind::Reservation {
                    whole.push(Arc::clone(stored));
                }
            } else {
                rest.push(Arc::clone(stored));
            }
        }
        for (tenant, claims) in tenants {
            if self.book.restore(&tenant, claims).is_err() {
                return false;
            }
        }
        whole.iter().for_each(|stored| self.note_reserved(&stored.object));
        let rest = self.ranked(rest.into_iter());
        rest.iter().all(|one| self.claim_again(now, &one.stored.object) || only_drains)
    }

    /// Claims VM by VM, those of the highest priority first. What does not fit any more falls, and its
    /// object says so.
    fn claim_by_rank(&mut self, now: Moment) {
        for claimant in self.claimants() {
            self.claim_again(now, &claimant.stored.object);
        }
        // A VM that lost its host counts on those of its tenant that came later.
        self.return_fallen(now);
    }

    /// VMs and held reservations in the order in which they keep their floors.
    fn claimants(&self) -> Vec<Claimant> {
        self.ranked(self.claiming().cloned())
    }

    /// VMs and held reservations, by kind and name.
    fn claiming(&self) -> impl Iterator<Item = &Arc<Stored>> {
        let vms = self.objects[Kind::Vm as usize].values();
        let reservations = self.objects[Kind::Reservation as usize].values();
        vms.chain(reservations.filter(|one| one.object.status.phase == Some(Phase::Held)))
    }

    fn ranked(&self, stored: impl Iterator<Item = Arc<Stored>>) -> Vec<Claimant> {
        let claimant = |stored: Arc<Stored>| {
            let tenant = stored.object.owner().unwrap_or_default();
            let priority = self.tenant_spec(tenant).map_or(0, |spec| spec.priority);
            let made = stored.object.metadata.creation_timestamp.unwrap_or_default().as_millis();
            Claimant { priority, made, stored }
        };
        let mut found: Vec<Claimant> = stored.map(claimant).collect();
        // Stable: of the same age those that come first in the order of kinds and names.
        found.sort_by_key(|claimant| (Reverse(claimant.priority), claimant.made));
        found
    }

    /// The claims of a VM that has a host, or of a held reservation.
    fn claims_of(&self, object: &Object) -> Vec<(String, Claim)> {
        let claim = |spec: &VmSpec, host: &str, counted: Option<Usage>| {
            let promise = Promise::of(spec);
            let counted = counted.unwrap_or_else(|| promise.usage());
            Claim { tenant: spec.tenant.clone(), host: host.into(), promise, counted }
        };
        match &object.spec {
            Spec::Vm(spec) => {
                let host = object.status.host.as_deref().unwrap_or_default();
                vec![(vm_claim(object.name()), claim(spec, host, None))]
            }
            Spec::Reservation(spec) => {
                let of = |vm: &weir_model::objects::ReservedVm| {
                    let wish = wish_of(spec, vm);
                    let counted = self.counted(&vm.name, &Promise::of(&wish));
                    let id = reserved_claim(object.name(), &vm.name);
                    (id, claim(&wish, &vm.host, Some(counted)))
                };
                spec.vms.iter().map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    fn note_reserved(&mut self, object: &Object) {
        let Spec::Reservation(spec) = &object.spec else { return };
        for vm in &spec.vms {
            self.set_reserved(&vm.name, Some(object.name().into()));
        }
    }

    /// Claims anew what a VM or a reservation had. False if room is missing.
    fn claim_again(&mut self, now: Moment, object: &Object) -> bool {
        match &object.spec {
            Spec::Vm(spec) => self.claim_vm_again(now, object, spec),
            Spec::Reservation(spec) => self.hold_again(now, object, spec),
            _ => true,
        }
    }

    fn claim_vm_again(&mut self, now: Moment, object: &Object, spec: &VmSpec) -> bool {
        let host = object.status.host.clone().filter(|host| self.takes_part(host));
        if let (None, Some(gone)) = (&host, &spec.host) {
            let detail = format!("host `{gone}` is dead or was deleted");
            let problem = Problem::new(409, "HostDead", "spec.host", detail);
            self.say_admitted(now, object, Err(problem));
            return true;
        }
        // Whether the host takes new VMs is no question for one that is there.
        let terms = match (&host, self.fallen.contains(object.name())) {
            (Some(_), false) => Terms::kept,
            (Some(_), true) => Terms::returning,
            (None, _) => Terms::of,
        };
        let id = vm_claim(object.name());
        let promise = Promise::of(spec);
        let counted = promise.usage();
        let change = Change { id: id.clone(), to: Some(Wanted { host, promise, counted }) };
        let done = self.admit(&spec.tenant, terms, &[change]).map_err(|(_, problem)| problem);
        let fits = done.is_ok();
        let placed = done.map(|()| self.book.claim(&id).expect("it was admitted").host.clone());
        self.say_admitted(now, object, placed);
        fits
    }

    /// Writes into a VM's status whether its floor holds, if that is news.
    fn say_admitted(&mut self, now: Moment, object: &Object, claimed: Result<String, Problem>) {
        let mut new = object.clone();
        let fallen = claimed.is_err();
        match claimed {
            Ok(host) => {
                new.status.host = Some(host);
                // What was foretold stays said.
                if object.status.condition(ADMITTED).is_none_or(|had| had.status != Truth::True) {
                    new.status.set(admitted(now));
                }
            }
            Err(problem) => new.status.set(Condition {
                name: ADMITTED.into(),
                status: Truth::False,
                reason: problem.reason.into(),
                message: problem.detail,
                last_transition_time: now,
            }),
        }
        self.set_fallen(object.name(), fallen);
        if new.status != object.status {
            self.put_object(new);
        }
    }

    fn hold_again(&mut self, now: Moment, object: &Object, spec: &ReservationSpec) -> bool {
        let claims = self.claims_of(object);
        let gone = claims.iter().find(|(_, claim)| !self.takes_part(&claim.host));
        let (done, lacks_room) = match gone {
            Some((_, claim)) => {
                let detail = format!("host `{}` is dead or was deleted", claim.host);
                (Err(Problem::new(409, "HostDead", "spec.host", detail)), false)
            }
            None => {
                let changes: Vec<Change> =
                    claims.into_iter().map(|(id, claim)| returning(id, &claim)).collect();
                let done = self.admit(&spec.tenant, Terms::kept, &changes);
                let lacks_room = done.is_err();
                (done.map_err(|(_, problem)| problem), lacks_room)
            }
        };
        match done {
            Ok(()) => self.note_reserved(object),
            Err(problem) => {
                self.give_back(object);
                self.end(now, object, Phase::Failed, &problem.detail);
            }
        }
        !lacks_room
    }

    /// Room was given back: floors that had fallen may hold again, those of the highest priority first,
    /// before anybody else is asked.
    pub(super) fn admit_fallen(&mut self, now: Moment) {
        self.return_fallen(now);
        self.leave_draining();
    }

    fn return_fallen(&mut self, now: Moment) {
        if self.fallen.is_empty() {
            return;
        }
        let vms = &self.objects[Kind::Vm as usize];
        let fallen = self.fallen.iter().filter_map(|name| vms.get(name).cloned());
        for claimant in self.ranked(fallen) {
            self.claim_again(now, &claimant.stored.object);
        }
    }

    pub(super) fn check_claims(&self) {
        let mut expected = std::collections::BTreeSet::new();
        for stored in self.objects() {
            let object = &stored.object;
            match &object.spec {
                Spec::Vm(_) if !self.fallen.contains(object.name()) => {
                    expected.insert(vm_claim(object.name()));
                }
                Spec::Reservation(spec) if object.status.phase == Some(Phase::Held) => {
                    let claims = spec.vms.iter().map(|vm| reserved_claim(object.name(), &vm.name));
                    expected.extend(claims);
                }
                Spec::Tenant(_) => {
                    let is_said = object.status.routing == self.book.tree(object.name());
                    assert!(is_said || self.touched.contains(object.name()), "{}", object.name());
                }
                _ => {}
            }
        }
        let claimed: std::collections::BTreeSet<String> =
            self.book.claims().map(|(id, _)| id.to_owned()).collect();
        assert_eq!(claimed, expected, "claims are those of VMs and held reservations");
        for vm in &self.fallen {
            assert!(self.get(Kind::Vm, vm).is_some(), "{vm} has fallen and does not exist");
        }
    }
}

/// The claim again, where it is.
fn returning(id: String, claim: &Claim) -> Change {
    let (promise, counted) = (claim.promise.clone(), claim.counted);
    Change { id, to: Some(Wanted { host: Some(claim.host.clone()), promise, counted }) }
}

pub(super) fn admitted(now: Moment) -> Condition {
    Condition {
        name: ADMITTED.into(),
        status: Truth::True,
        reason: "Fits".into(),
        message: String::new(),
        last_transition_time: now,
    }
}

/// A refusal by the book, for whoever asked.
fn no_room(no: &NoRoom, host_given: bool) -> Problem {
    let field = match (no.reason, host_given) {
        ("HostFull" | "HostDraining" | "Survival", true) => "spec.host",
        ("Survival", false) => "spec.tenant",
        _ => "spec.floor",
    };
    let mut problem = Problem::new(409, no.reason, field, no.detail.clone());
    if let Some(link) = &no.link {
        problem = problem.with("link", link.as_str());
    }
    if let Some(missing) = no.missing {
        problem = problem.with("missing", weir_model::text::show_rate(missing));
    }
    if !no.tenants.is_empty() {
        problem = problem.with("tenants", no.tenants.clone());
    }
    problem
}
