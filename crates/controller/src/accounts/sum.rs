//! Sums of counters, and how they lie on the disk.

/// What was counted for a VM's floor in one direction.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sum {
    /// Seconds of pairs that wanted more.
    pub(crate) windows: u64,
    /// Of these, those in which the pair had its floor.
    pub(crate) held: u64,
    /// Octets owed in them.
    pub(crate) owed: u64,
    /// Octets that arrived in them.
    pub(crate) got: u64,
    /// Octets that arrived at any time.
    pub(crate) all: u64,
    /// Octets that arrived beyond the floors.
    pub(crate) borrowed: u64,
}

/// Octets of a VM's sums on the disk.
pub(super) const OCTETS: usize = 2 * 6 * 8;

impl Sum {
    const fn fields(self) -> [u64; 6] {
        [self.windows, self.held, self.owed, self.got, self.all, self.borrowed]
    }

    const fn of([windows, held, owed, got, all, borrowed]: [u64; 6]) -> Self {
        Self { windows, held, owed, got, all, borrowed }
    }

    fn with(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let (mut fields, other) = (self.fields(), other.fields());
        for (field, other) in fields.iter_mut().zip(other) {
            *field = op(*field, other);
        }
        Self::of(fields)
    }

    /// Adds what another counted.
    pub(crate) fn add(&mut self, other: Self) {
        *self = self.with(other, u64::saturating_add);
    }

    /// What it grew by.
    pub(super) fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// With bit/s in the place of octets.
    pub(super) fn per_second(self, ms: u64) -> Self {
        let rate = |octets: u64| octets.saturating_mul(8000) / ms.max(1);
        let Self { windows, held, owed, got, all, borrowed } = self;
        Self {
            windows,
            held,
            owed: rate(owed),
            got: rate(got),
            all: rate(all),
            borrowed: rate(borrowed),
        }
    }

    /// The part of the windows in which the floor was held; none where there was no window.
    pub(crate) fn share(self) -> Option<f64> {
        (self.windows > 0).then(|| self.held as f64 / self.windows as f64)
    }
}

pub(super) fn write(sums: &[Sum; 2]) -> [u8; OCTETS] {
    let mut octets = [0; OCTETS];
    let fields = sums.iter().flat_map(|sum| sum.fields());
    for (place, field) in octets.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    octets
}

/// Reads them; nothing from a row of another length.
pub(super) fn read(octets: &[u8]) -> Option<[Sum; 2]> {
    let octets: &[u8; OCTETS] = octets.try_into().ok()?;
    let mut fields = [0; 12];
    for (field, octets) in fields.iter_mut().zip(octets.chunks_exact(8)) {
        *field = u64::from_le_bytes(octets.try_into().ok()?);
    }
    let half = |from: usize| std::array::from_fn(|n| fields[from + n]);
    Some([Sum::of(half(0)), Sum::of(half(6))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_as_they_were_written_and_nothing_of_another_length_is() {
        let sums = [Sum::of([1, 2, 3, 4, 5, 6]), Sum::of([7, u64::MAX, 9, 10, 11, 12])];
        assert_eq!(read(&write(&sums)), Some(sums));
        assert_eq!(read(&[0; OCTETS - 1]), None);
    }
}
