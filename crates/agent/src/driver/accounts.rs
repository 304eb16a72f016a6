//! Were the floors kept: what the controller is told of it.
//!
//! Approach  The looks at the queues are those that the machine takes for itself; a window closes with a heartbeat. The
//!           controller asks how often it wants to hear, and gets all counters each time: a message that is lost is
//!           made up for by the next one.
//! Not here  What a broken floor is: see `weir_core::accounts`.

use super::Driver;
use crate::follow::Link;
use std::cmp::Reverse;
use weir_core::accounts::{Broken, Cause, Standing, Tally};
use weir_core::host::Direction;
use weir_core::mechanism::PairView;
use weir_core::mechanism::explain::{Side, Summary};
use weir_model::status::{FloorBroken, FloorKept};
use weir_rpc::messages::{self, BrokenFloor, FloorAccount, PairNow, Trouble};
use weir_units::{PairId, Rate, Time};

/// Pairs that the controller is told of. More are in `weir top` on the host.
const PAIRS_TOLD: usize = 256;

impl Driver {
    /// Ends a window of the accounts, if it is over.
    pub(super) fn close_accounts(&mut self, now: Time) {
        if self.setup.observes() {
            self.accounts.rest();
            return;
        }
        if !self.accounts.is_due(now) {
            return;
        }
        let overbooked = self.dataplane.overbooked().is_some();
        let views = self.host.pairs(now);
        let standings = views.iter().filter_map(|view| {
            let (pair, summary) = (view.pair(), view.summary());
            let wrong = if self.is_unenforced(pair.src) || !self.dataplane.has_class(pair) {
                Some(Cause::Unenforced)
            } else if overbooked {
                Some(Cause::Overbooked)
            } else {
                summary.long_path.map(|_| Cause::LongPath)
            };
            let Summary { floor, lost, is_heard, .. } = summary;
            sends(&summary).then_some(Standing { pair, floor, lost, wrong, is_heard })
        });
        let standings: Vec<Standing> = standings.collect();
        for broken in self.accounts.close(now, standings) {
            self.note_broken(now, broken);
        }
        let directory = &self.setup.host.directory;
        self.accounts.retain(|vm| directory.contains_key(&vm));
    }

    /// Tells the controller how floors were kept, if it is time to.
    pub(super) fn tell_accounts(&mut self, now: Time) {
        if self.link.as_ref().and_then(Link::accounts_due).is_none_or(|at| at > now) {
            return;
        }
        let told = self.told_accounts(now);
        if let Some(link) = &mut self.link {
            link.account(now, told);
        }
    }

    fn told_accounts(&mut self, now: Time) -> messages::Accounts {
        let views = self.host.pairs(now);
        let name = |vm| self.setup.names.name(vm);
        let floor = |((vm, direction), tally): ((_, Direction), Tally)| FloorAccount {
            vm: name(vm),
            out: direction == Direction::Send,
            windows: tally.windows,
            held: tally.held,
            owed: tally.owed.get(),
            got: tally.got.get(),
            all: tally.all.get(),
            borrowed: tally.borrowed.get(),
        };
        let of_pair = |pair: PairId| (name(pair.src), name(pair.dst));
        messages::Accounts {
            life: self.started.as_nanos(),
            at_ms: ms(now),
            observing: self.setup.observes(),
            floors: self.accounts.tallies().map(floor).collect(),
            broken: self.accounts.broken().map(|broken| told_broken(broken, of_pair)).collect(),
            pairs: self.told_pairs(&views),
            troubles: self.told_troubles(),
        }
    }

    /// The same for `weir top`.
    pub(super) fn kept_floors(&self) -> Vec<FloorKept> {
        let tested = self.accounts.tallies().filter(|(_, tally)| tally.windows > 0);
        let told = tested.map(|((vm, direction), tally)| FloorKept {
            vm: self.setup.names.name(vm),
            out: direction == Direction::Send,
            windows: tally.windows,
            held: tally.held,
        });
        told.collect()
    }

    /// Stretches, the latest last.
    pub(super) fn broken_floors(&self, now: Time) -> Vec<FloorBroken> {
        let told = self.accounts.broken().map(|broken| FloorBroken {
            from: self.setup.names.name(broken.pair.src),
            to: self.setup.names.name(broken.pair.dst),
            lasted_s: broken.until.since(broken.from).as_secs_f64(),
            ended_s: now.since(broken.until).as_secs_f64(),
            part: broken.got.get() as f64 / broken.owed.get().max(1) as f64,
            lost: broken.lost,
            cause: broken.cause.to_string(),
        });
        told.collect()
    }

    /// The pairs that send from here, those with most traffic first.
    fn told_pairs(&self, views: &[PairView]) -> Vec<PairNow> {
        let of = |view: &PairView| (view.pair(), view.summary(), self.accounts.sent(view.pair()));
        let mut all: Vec<_> =
            views.iter().map(of).filter(|(_, summary, _)| sends(summary)).collect();
        all.sort_by_key(|(pair, _, sent)| (Reverse(*sent), *pair));
        let told = |(pair, summary, sent): (PairId, Summary, Rate)| PairNow {
            from: self.setup.names.name(pair.src),
            to: self.setup.names.name(pair.dst),
            floor: summary.floor.as_bps(),
            rate: summary.rate.as_bps(),
            sent: sent.as_bps(),
            phase: summary.phase,
            lost: summary.lost,
            wants: self.accounts.wants(pair),
        };
        all.into_iter().take(PAIRS_TOLD).map(told).collect()
    }

    fn told_troubles(&mut self) -> Vec<Trouble> {
        let of = |kind: &str, vm: String, message| Trouble { kind: kind.into(), vm, message };
        let mut troubles: Vec<Trouble> = Vec::new();
        for one in self.told_unenforced() {
            troubles.push(of("Unenforced", one.vm, one.why));
        }
        for one in self.told_gone() {
            let what = one.what();
            troubles.push(of("Unenforced", one.vm, what));
        }
        if let Some(over) = self.dataplane.overbooked() {
            troubles.push(of("Overbooked", String::new(), over.to_string()));
        }
        if !matches!(self.guardian.try_wait(), Ok(None)) {
            let message = "the guardian does not run: if the agent dies, too, pairs are held to their \
                           floors by dropping";
            troubles.push(of("GuardianDown", String::new(), message.into()));
        }
        troubles
    }
}

fn sends(summary: &Summary) -> bool {
    matches!(summary.side, Side::Send | Side::Local)
}

const fn ms(at: Time) -> u64 {
    at.as_nanos() / 1_000_000
}

fn told_broken(broken: &Broken, names: impl Fn(PairId) -> (String, String)) -> BrokenFloor {
    let (from, to) = names(broken.pair);
    BrokenFloor {
        id: broken.id,
        from,
        to,
        from_ms: ms(broken.from),
        until_ms: ms(broken.until),
        owed: broken.owed.get(),
        got: broken.got.get(),
        lost: broken.lost,
        // Its name is the word for programs.
        cause: format!("{:?}", broken.cause),
    }
}
