//! What those who ask are told.

use super::{BUCKET, Books, Host, IN, OUT, STEP, STEPS, Stretch, Sum, key};
use crate::view::View;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Spec, VmSpec};

/// Stretches in an answer.
const STRETCHES: usize = 500;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked<'a> {
    /// Only of this tenant.
    pub(crate) tenant: Option<&'a str>,
    /// Only of this VM.
    pub(crate) vm: Option<&'a str>,
    pub(crate) from: Moment,
    pub(crate) until: Moment,
}

/// How floors were kept in a time.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// Beginning, in steps of five minutes.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) from: Moment,
    /// End.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) until: Moment,
    /// One per VM and direction.
    pub(crate) floors: Vec<FloorTold>,
    /// Stretches of time in which floors were broken, the latest first, 500 at most.
    pub(crate) broken: Vec<StretchTold>,
    /// Whether there were more of them.
    pub(crate) more: bool,
    /// The disk did not give what it has: there may be more in every column.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub(crate) incomplete: bool,
}

/// How a VM's floor was kept in one direction.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FloorTold {
    /// Name of the VM.
    pub(crate) vm: String,
    /// Name of its tenant.
    pub(crate) tenant: String,
    /// `out` or `in`.
    pub(crate) direction: &'static str,
    /// The floor, bit/s.
    pub(crate) floor: u64,
    /// Seconds of pairs that wanted more than they had.
    pub(crate) windows: u64,
    /// Of these, those in which the pair had at least 0.95 of its floor.
    pub(crate) held: u64,
    /// `held` / `windows`, from 0 to 1; absent where there was no window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<f64>,
    /// Octets owed in the windows.
    pub(crate) owed: u64,
    /// Octets that arrived in the windows.
    pub(crate) got: u64,
    /// Octets that arrived at any time.
    pub(crate) all: u64,
    /// Octets that arrived beyond the floors.
    pub(crate) borrowed: u64,
    /// The rate that was exceeded in one of twenty of the five minutes, bit/s: a floor of this size would
    /// carry what the VM does.
    pub(crate) used_p95: u64,
}

/// A stretch of time in which a pair had less than its floor.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StretchTold {
    /// Name of the tenant.
    pub(crate) tenant: String,
    /// The VM that sends.
    pub(crate) from: String,
    /// The VM that receives.
    pub(crate) to: String,
    /// Its beginning.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) begin: Moment,
    /// Its end.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) end: Moment,
    /// Its length.
    pub(crate) seconds: f64,
    /// Octets owed.
    pub(crate) owed: u64,
    /// Octets that arrived.
    pub(crate) got: u64,
    /// Segments that the network lost.
    pub(crate) lost: u64,
    /// Why: `Overbooked`, `Unenforced`, `LongPath`, `Lost` or `Waited`.
    pub(crate) cause: String,
    /// The tenant that borrowed most where the pair's hosts send and receive, or `unknown`. Those that may see one
    /// tenant only see `another tenant`.
    pub(crate) took: String,
}

/// A pair that sends now.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PairTold {
    /// The VM that sends.
    pub(crate) from: String,
    /// The VM that receives.
    pub(crate) to: String,
    /// Its floor, bit/s.
    pub(crate) floor: u64,
    /// The most it may send, bit/s.
    pub(crate) rate: u64,
    /// What it sends, bit/s.
    pub(crate) sent: u64,
    /// What it would send if all that is spare was divided by floors, bit/s; absent before it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub(crate) ideal: Option<u64>,
    /// State of its law.
    pub(crate) phase: String,
    /// Segments lost since it began.
    pub(crate) lost: u64,
}

/// The last ten minutes in steps of ten seconds: rates in bit/s.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Series {
    /// Beginnings of the steps, seconds since 1970.
    pub(crate) at: Vec<u64>,
    /// What left the VMs; absent before the controller began.
    pub(crate) out: Vec<Option<u64>>,
    /// What arrived at them.
    #[serde(rename = "in")]
    pub(crate) into: Vec<Option<u64>>,
    /// What was owed to pairs that wanted more, out.
    pub(crate) owed: Vec<Option<u64>>,
    /// What would have left them if all that is spare was divided by floors.
    pub(crate) ideal: Vec<Option<u64>>,
    /// The part of the windows in which floors were held; absent where there was none.
    pub(crate) held: Vec<Option<f64>>,
}

impl Books {
    /// How floors were kept. Only floors of tenants for which `may` says yes.
    pub(crate) fn report(
        &self,
        view: &View,
        asked: &Asked<'_>,
        may: impl Fn(&str) -> bool,
        all: bool,
    ) -> Report {
        let until = asked.until.as_millis();
        let from = (asked.from.as_millis() / BUCKET * BUCKET).max(self.keeper().oldest(until));
        let (floors, all_floors) = self.floors(view, asked, &may);
        let (broken, more, all_broken) = self.stretches(asked, &may, all, |_| true);
        let incomplete = !(all_floors && all_broken);
        let from = Moment::from_millis(from);
        Report { from, until: asked.until, floors, broken, more, incomplete }
    }

    /// How each floor was kept, and whether the disk gave all that it has.
    pub(crate) fn floors(
        &self,
        view: &View,
        asked: &Asked<'_>,
        may: impl Fn(&str) -> bool,
    ) -> (Vec<FloorTold>, bool) {
        let until = asked.until.as_millis();
        let from = (asked.from.as_millis() / BUCKET * BUCKET).max(self.keeper().oldest(until));
        let vms = vms(view, asked, may);
        let (mut floors, mut is_whole) = (Vec::new(), true);
        for (name, spec) in &vms {
            let key = key(&spec.tenant, name);
            // One VM at a time: others wait for the disk, too.
            let (kept, all) = self.keeper().read(&key, from, until);
            is_whole &= all;
            let mut rows: BTreeMap<u64, [Sum; 2]> = kept.into_iter().collect();
            let present = self.lock().vms.get(&key).and_then(|vm| vm.bucket);
            rows.extend(present.filter(|(at, _)| (from..=until).contains(at)));
            floors.extend(floors_of(name, spec, &rows, until.saturating_sub(from)));
        }
        (floors, is_whole)
    }

    /// The stretches that `wanted` says yes of, the latest first; whether there are more, and whether the disk gave all
    /// that it has.
    pub(crate) fn stretches(
        &self,
        asked: &Asked<'_>,
        may: impl Fn(&str) -> bool,
        all: bool,
        wanted: impl Fn(&Stretch) -> bool,
    ) -> (Vec<StretchTold>, bool, bool) {
        let until = asked.until.as_millis();
        let from = (asked.from.as_millis() / BUCKET * BUCKET).max(self.keeper().oldest(until));
        let is_asked = |stretch: &Stretch| {
            may(&stretch.tenant)
                && asked.tenant.is_none_or(|tenant| stretch.tenant == tenant)
                && asked.vm.is_none_or(|vm| stretch.from == vm || stretch.to == vm)
                && wanted(stretch)
        };
        let (mut broken, is_whole) = self.broken(from, until, is_asked);
        let more = broken.len() > STRETCHES;
        broken.truncate(STRETCHES);
        let broken = broken.into_iter().map(|stretch| told(stretch, all)).collect();
        (broken, more, is_whole)
    }

    /// Stretches, the latest first, and whether the disk gave all that it has.
    fn broken(
        &self,
        from: u64,
        until: u64,
        wanted: impl Fn(&Stretch) -> bool,
    ) -> (Vec<Stretch>, bool) {
        let (kept, is_whole) = self.keeper().stretches(from, until, &wanted);
        let key = |s: &Stretch| (s.begin.as_millis(), s.host.clone(), s.id);
        let mut all: BTreeMap<_, Stretch> = kept.into_iter().map(|s| (key(&s), s)).collect();
        let inner = self.lock();
        let is_in = |s: &&Stretch| (from..=until).contains(&s.begin.as_millis()) && wanted(s);
        all.extend(inner.broken.iter().filter(is_in).map(|s| (key(s), s.clone())));
        (all.into_values().rev().collect(), is_whole)
    }

    /// The pairs that send now from or to a VM.
    pub(crate) fn pairs(&self, vm: &str) -> Vec<PairTold> {
        let survey = self.latest();
        let inner = self.lock();
        let all = inner.hosts.values().flat_map(|host| host.pairs.iter());
        let told = all.filter(|pair| pair.from == vm || pair.to == vm).map(|pair| PairTold {
            from: pair.from.clone(),
            to: pair.to.clone(),
            floor: pair.floor,
            rate: pair.rate,
            sent: pair.sent,
            ideal: survey.pair(&pair.from, &pair.to),
            phase: pair.phase.clone(),
            lost: pair.lost,
        });
        told.collect()
    }

    /// The course of some VMs together, by their keys.
    pub(crate) fn series(&self, now: Moment, vms: &[String]) -> Series {
        let newest = now.as_millis() / STEP * STEP;
        let oldest = newest.saturating_sub(STEP * (STEPS as u64 - 1));
        let mut steps: BTreeMap<u64, [Sum; 2]> =
            (0..STEPS as u64).map(|n| (oldest + n * STEP, <[Sum; 2]>::default())).collect();
        let mut ideals: BTreeMap<u64, u64> = BTreeMap::new();
        let inner = self.lock();
        for vm in vms.iter().filter_map(|vm| inner.vms.get(vm)) {
            for (at, sums) in &vm.steps {
                if let Some(step) = steps.get_mut(at) {
                    step[OUT].add(sums[OUT]);
                    step[IN].add(sums[IN]);
                }
            }
            for (at, ideal) in &vm.ideals {
                let sum = ideals.entry(*at).or_default();
                *sum = sum.saturating_add(*ideal);
            }
        }
        let mut series = Series::default();
        // The present step is not over.
        for (at, sums) in steps.into_iter().filter(|(at, _)| *at < newest) {
            let is_known = inner.begun.is_some_and(|begun| at + STEP > begun.as_millis());
            let rate = |octets: u64| is_known.then_some(octets.saturating_mul(8000) / STEP);
            series.at.push(at / 1000);
            series.out.push(rate(sums[OUT].all));
            series.into.push(rate(sums[IN].all));
            series.owed.push(rate(sums[OUT].owed));
            series.ideal.push(ideals.get(&at).copied());
            series.held.push(sums[OUT].share());
        }
        series
    }

    /// Of some VMs together, by their keys, out and in: sums of the last ten minutes, and what they do now, in bit/s where octets are.
    pub(crate) fn lately(&self, now: Moment, vms: &[String]) -> ([Sum; 2], [Sum; 2]) {
        let oldest = now.as_millis().saturating_sub(STEP * STEPS as u64);
        // The latest step that is over.
        let latest = (now.as_millis() / STEP * STEP).saturating_sub(STEP);
        let (mut sums, mut last) = (<[Sum; 2]>::default(), <[Sum; 2]>::default());
        let inner = self.lock();
        for vm in vms.iter().filter_map(|vm| inner.vms.get(vm)) {
            for (at, step) in vm.steps.iter().filter(|(at, _)| *at >= oldest) {
                for way in [OUT, IN] {
                    sums[way].add(step[way]);
                    if *at == latest {
                        last[way].add(step[way]);
                    }
                }
            }
        }
        (sums, last.map(|sum| sum.per_second(STEP)))
    }

    /// What was counted of a VM since this controller began, by its key.
    pub(super) fn total(&self, key: &str) -> [Sum; 2] {
        self.lock().vms.get(key).map(|vm| vm.total).unwrap_or_default()
    }

    /// What the pairs of some VMs would have ideally, out and in, bit/s, by their keys.
    pub(crate) fn ideal(&self, vms: &[String]) -> [u64; 2] {
        let survey = self.latest();
        let add =
            |sum: [u64; 2], one: [u64; 2]| [OUT, IN].map(|way| sum[way].saturating_add(one[way]));
        vms.iter().map(|vm| survey.vm(vm)).fold([0; 2], add)
    }

    /// What VMs of each host send and receive now, bit/s.
    pub(crate) fn used_by_host(&self, view: &View, now: Moment) -> BTreeMap<String, [u64; 2]> {
        let mut used: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for stored in &view.all(&[Kind::Vm]).0 {
            let (object, status) = (&stored.object, &stored.object.status);
            let (Some(host), Some(owner)) = (status.host.clone(), object.owner()) else { continue };
            let (_, last) = self.lately(now, &[key(owner, object.name())]);
            let host = used.entry(host).or_default();
            for way in [OUT, IN] {
                host[way] = host[way].saturating_add(last[way].all);
            }
        }
        used
    }

    /// Hosts that only observe.
    pub(crate) fn observing(&self) -> Vec<String> {
        let inner = self.lock();
        let those = inner.hosts.iter().filter(|(_, host): &(_, &Host)| host.observing);
        those.map(|(name, _)| name.clone()).collect()
    }
}

fn vms(view: &View, asked: &Asked<'_>, may: impl Fn(&str) -> bool) -> Vec<(String, VmSpec)> {
    let stored = match asked.vm {
        Some(vm) => view.get(Kind::Vm, vm).into_iter().collect(),
        None => view.all(&[Kind::Vm]).0,
    };
    let all = stored.iter().filter_map(|stored| match &stored.object.spec {
        Spec::Vm(spec) => Some((stored.object.name().to_owned(), spec.clone())),
        _ => None,
    });
    let wanted = |(name, spec): &(String, VmSpec)| {
        may(&spec.tenant)
            && asked.tenant.is_none_or(|tenant| spec.tenant == tenant)
            && asked.vm.is_none_or(|vm| name == vm)
    };
    all.filter(wanted).collect()
}

fn floors_of(
    name: &str,
    spec: &VmSpec,
    rows: &BTreeMap<u64, [Sum; 2]>,
    length: u64,
) -> [FloorTold; 2] {
    let floor = |way: usize| {
        let mut sum = Sum::default();
        rows.values().for_each(|row| sum.add(row[way]));
        let mut rates: Vec<u64> =
            rows.values().map(|row| row[way].all.saturating_mul(8000) / BUCKET).collect();
        // Where there is no row the VM did nothing.
        rates.resize(rates.len().max(usize::try_from(length / BUCKET).unwrap_or(0)), 0);
        rates.sort_unstable();
        let used_p95 =
            rates.get((rates.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0);
        let (direction, floor) = match way {
            OUT => ("out", spec.floor.out),
            _ => ("in", spec.floor.inward),
        };
        FloorTold {
            vm: name.into(),
            tenant: spec.tenant.clone(),
            direction,
            floor: floor.0.as_bps(),
            windows: sum.windows,
            held: sum.held,
            share: sum.share(),
            owed: sum.owed,
            got: sum.got,
            all: sum.all,
            borrowed: sum.borrowed,
            used_p95,
        }
    };
    [floor(OUT), floor(IN)]
}

fn told(stretch: Stretch, all: bool) -> StretchTold {
    let Stretch { tenant, from, to, begin, end, owed, got, lost, cause, took, .. } = stretch;
    let took = match took {
        None => "unknown".into(),
        Some(took) if all || took == tenant => took,
        Some(_) => "another tenant".into(),
    };
    let seconds = end.as_millis().saturating_sub(begin.as_millis()) as f64 / 1e3;
    StretchTold { tenant, from, to, begin, end, seconds, owed, got, lost, cause, took }
}
