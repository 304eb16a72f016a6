//! How the floors of each tenant were held in the course of a day.
//!
//! Problem   The first page shows a day of all tenants. For 10,000 VMs that is three million rows on the disk, which no
//!           page can add up.
//! Approach  Sums by tenant and half hour, in memory. They are written beside the rows of VMs ([`keep`](super::keep))
//!           and read once after a start.
//! Promises  A tenant has at most two days of half hours, and none if no floor of it was tested. A clock that was set
//!           back hides half hours that are still to come and loses none of the present ones.
//! Not here  The half hours of a VM: see [`Books::course_of_vms`](super::Books::course_of_vms).

use super::{Sum, key};
use std::collections::BTreeMap;
use weir_model::moment::Moment;

/// Length of a half hour, ms. A multiple of what VMs' rows cover, so that both maps have the same columns.
pub(crate) const COLUMN: u64 = 1_800_000;
/// Columns of a map: a day.
pub(crate) const COLUMNS: usize = 48;
/// Length of a map, ms.
const DAY: u64 = COLUMN * COLUMNS as u64;
/// In the place of a tenant's name, which is never empty: reports that hosts made.
const REPORTS: &str = "";

/// Seconds of pairs that wanted more than they had, and those of them in which the pair had its floor.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tested {
    pub(crate) windows: u64,
    pub(crate) held: u64,
}

impl Tested {
    pub(crate) fn add(&mut self, other: Self) {
        self.windows = self.windows.saturating_add(other.windows);
        self.held = self.held.saturating_add(other.held);
    }

    /// The part of the windows in which floors were held; none where there was no window.
    pub(crate) fn share(self) -> Option<f64> {
        (self.windows > 0).then(|| self.held as f64 / self.windows as f64)
    }
}

impl From<Sum> for Tested {
    fn from(Sum { windows, held, .. }: Sum) -> Self {
        Self { windows, held }
    }
}

/// The columns of a map: a day that ends with the present half hour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Columns {
    /// Beginning of the first one, ms.
    pub(crate) from: u64,
    /// Whether any host reported in it. Where none did, nothing is known.
    pub(crate) is_known: Vec<bool>,
}

/// The beginning of a map that ends now, ms.
pub(super) fn first(now: Moment) -> u64 {
    (now.as_millis() / COLUMN * COLUMN + COLUMN).saturating_sub(DAY)
}

/// The column of a map that begins at `from`; none for a time outside it.
pub(super) fn column(from: u64, at: u64) -> Option<usize> {
    let column = usize::try_from(at.checked_sub(from)? / COLUMN).ok()?;
    (column < COLUMNS).then_some(column)
}

/// A tenant and the beginning of a half hour, with what is counted in it.
pub(super) type Row = (String, u64, Tested);

#[derive(Default)]
struct Cell {
    tested: Tested,
    is_unwritten: bool,
}

/// The half hours of all tenants.
#[derive(Default)]
pub(super) struct Course {
    tenants: BTreeMap<String, BTreeMap<u64, Cell>>,
    /// Whether the rows of a former start are in. Before that, none of these may be written: it would replace them.
    is_recalled: bool,
}

impl Course {
    /// A host reported.
    pub(super) fn hear(&mut self, now: Moment) {
        self.add(REPORTS, now, Tested { windows: 1, held: 1 });
    }

    /// Adds what was counted for a VM, by its [`key`].
    pub(super) fn count(&mut self, key: &str, now: Moment, grown: Sum) {
        if let Some((tenant, _)) = key.split_once('/').filter(|_| grown.windows > 0) {
            self.add(tenant, now, grown.into());
        }
    }

    fn add(&mut self, tenant: &str, now: Moment, more: Tested) {
        let at = now.as_millis() / COLUMN * COLUMN;
        // A name is copied once.
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.to_owned(), BTreeMap::new());
        }
        let cell = self.tenants.get_mut(tenant).expect("it was made").entry(at).or_default();
        cell.tested.add(more);
        cell.is_unwritten = true;
    }

    pub(super) const fn is_recalled(&self) -> bool {
        self.is_recalled
    }

    /// Adds what a former start wrote, once.
    pub(super) fn recall(&mut self, rows: Vec<Row>) {
        if std::mem::replace(&mut self.is_recalled, true) {
            return;
        }
        for (tenant, at, tested) in rows {
            self.tenants.entry(tenant).or_default().entry(at).or_default().tested.add(tested);
        }
    }

    /// Drops what is further than a day from now, and returns what changed since this was asked last.
    pub(super) fn take_unwritten(&mut self, now: Moment) -> Vec<Row> {
        let from = first(now);
        let mut rows = Vec::new();
        self.tenants.retain(|tenant, cells| {
            cells.retain(|at, _| (from..from + 2 * DAY).contains(at));
            if self.is_recalled {
                for (at, cell) in cells.iter_mut().filter(|(_, cell)| cell.is_unwritten) {
                    cell.is_unwritten = false;
                    rows.push((tenant.clone(), *at, cell.tested));
                }
            }
            !cells.is_empty()
        });
        rows
    }

    /// The disk did not take these.
    pub(super) fn put_back(&mut self, rows: &[Row]) {
        for (tenant, at, _) in rows {
            let cell = self.tenants.get_mut(tenant).and_then(|cells| cells.get_mut(at));
            cell.into_iter().for_each(|cell| cell.is_unwritten = true);
        }
    }

    pub(super) fn columns(&self, now: Moment) -> Columns {
        let from = first(now);
        let is_known = self.row(REPORTS, from).iter().map(|cell| cell.windows > 0).collect();
        Columns { from, is_known }
    }

    /// A tenant's half hours in a map that begins at `from`.
    pub(super) fn row(&self, tenant: &str, from: u64) -> Vec<Tested> {
        let mut row = vec![Tested::default(); COLUMNS];
        for (at, cell) in self.tenants.get(tenant).into_iter().flatten() {
            if let Some(column) = column(from, *at) {
                row[column].add(cell.tested);
            }
        }
        row
    }
}

impl super::Books {
    /// What a former start wrote of tenants' half hours, once the disk gives it.
    pub(super) fn recall(&self, now: Moment) {
        if self.lock().course.is_recalled() {
            return;
        }
        let read = self.keeper().read_course(first(now));
        if let Ok(rows) = read {
            self.lock().course.recall(rows);
        }
    }

    /// The last day of these tenants.
    pub(crate) fn course<'a>(
        &self,
        tenants: impl Iterator<Item = &'a str>,
        now: Moment,
    ) -> (Columns, Vec<Vec<Tested>>) {
        let inner = self.lock();
        let columns = inner.course.columns(now);
        let rows = tenants.map(|tenant| inner.course.row(tenant, columns.from)).collect();
        (columns, rows)
    }

    /// The last day of these VMs of a tenant, out and in together: from the disk, but for the present five minutes.
    pub(crate) fn course_of_vms<'a>(
        &self,
        tenant: &str,
        vms: impl Iterator<Item = &'a str>,
        now: Moment,
    ) -> (Columns, Vec<Vec<Tested>>) {
        let columns = self.lock().course.columns(now);
        let row = |vm: &str| {
            let key = key(tenant, vm);
            let present = self.lock().vms.get(&key).and_then(|vm| vm.bucket);
            let (kept, _) = self.keeper().read(&key, columns.from, now.as_millis());
            let mut all: BTreeMap<u64, [Sum; 2]> = kept.into_iter().collect();
            all.extend(present);
            let mut row = vec![Tested::default(); COLUMNS];
            for (at, sums) in all {
                if let Some(column) = column(columns.from, at) {
                    sums.into_iter().for_each(|sum| row[column].add(sum.into()));
                }
            }
            row
        };
        let rows = vms.map(row).collect();
        (columns, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_millis(100 * DAY + ms)
    }

    fn sum(windows: u64, held: u64) -> Sum {
        Sum { windows, held, ..Sum::default() }
    }

    fn last(course: &Course, tenant: &str, now: Moment) -> (u64, u64) {
        let row = course.row(tenant, first(now));
        (row[COLUMNS - 1].windows, row[COLUMNS - 1].held)
    }

    #[test]
    fn a_tenant_is_the_sum_of_its_vms_and_a_half_hour_without_reports_is_not_known() {
        let mut course = Course::default();
        course.hear(at(0));
        course.count("gold/a", at(1), sum(10, 9));
        course.count("gold/b", at(COLUMN - 1), sum(5, 5));
        course.count("blue/a", at(1), sum(0, 0));
        let now = at(2 * COLUMN);
        course.hear(now);
        let (columns, row) = (course.columns(now), course.row("gold", first(now)));
        assert_eq!(columns.is_known.iter().filter(|known| **known).count(), 2);
        assert_eq!(columns.is_known[COLUMNS - 3..], [true, false, true]);
        assert_eq!(row[COLUMNS - 3], Tested { windows: 15, held: 14 });
        assert_eq!(row[COLUMNS - 2].share(), None, "not tested is not held");
        assert!(!course.tenants.contains_key("blue"), "no floor of it was tested");
    }

    #[test]
    fn what_is_older_than_a_day_is_dropped_and_a_clock_that_goes_back_loses_nothing_of_the_present()
    {
        let mut course = Course::default();
        course.count("gold/a", at(0), sum(1, 1));
        course.take_unwritten(at(DAY));
        assert_eq!(course.tenants.len(), 0);
        // A restart, and the calendar is a week earlier.
        course.count("gold/a", at(8 * DAY), sum(7, 0));
        let now = at(DAY);
        course.count("gold/a", now, sum(3, 2));
        assert_eq!(last(&course, "gold", now), (3, 2));
        course.recall(Vec::new());
        let rows = course.take_unwritten(now);
        assert_eq!(rows.len(), 1, "the future is further than a day away");
        course.count("gold/a", at(DAY - COLUMN), sum(4, 4));
        assert_eq!(last(&course, "gold", now), (3, 2));
        assert_eq!(last(&course, "gold", at(DAY - COLUMN)), (4, 4));
        assert_eq!(course.row("gold", first(Moment::from_millis(0))).len(), COLUMNS);
    }

    #[test]
    fn nothing_is_written_before_the_rows_of_a_former_start_are_in_and_they_are_added_once() {
        let mut course = Course::default();
        let (now, begin) = (at(5), at(0).as_millis());
        course.count("gold/a", now, sum(3, 2));
        assert_eq!(course.take_unwritten(now), []);
        let former = vec![("gold".to_owned(), begin, Tested { windows: 10, held: 10 })];
        course.recall(former.clone());
        course.recall(former);
        let rows = course.take_unwritten(now);
        assert_eq!(rows, [("gold".to_owned(), begin, Tested { windows: 13, held: 12 })]);
        assert_eq!(course.take_unwritten(now), []);
        course.put_back(&rows);
        assert_eq!(course.take_unwritten(now), rows);
    }
}
