//! Maps and sets that are vectors in the order of their keys.
//!
//! Problem   A host has tables of hundreds of rows, reads them in order at every step, and changes them
//!           rarely. The standard library's B-tree is made for millions of rows. The compiler makes 17 kB of
//!           code of it for each pair of types. That was more than half of the code of weir-core.
//! Approach  [`SortedMap`] has its keys in one vector, in order, and its values in another. [`SortedSet`] has
//!           keys alone. Their methods have the names of `BTreeMap` and `BTreeSet`.
//! Promises  The same answers in the same order as these two: a property test compares them.
//! Not here  Tables of a whole datacenter. An insertion moves all rows that follow, so that many
//!           insertions without order take quadratic time. Such tables are B-trees.

use std::borrow::Borrow;
use std::fmt;
use std::iter::Zip;
use std::marker::PhantomData;
use std::ops::{Bound, Index, RangeBounds};
use std::{slice, vec};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

#[cfg(test)]
mod tests;

/// Where `key` is, or would be.
fn find<K: Ord + Borrow<Q>, Q: Ord + ?Sized>(keys: &[K], key: &Q) -> Result<usize, usize> {
    // Rows often come in order.
    match keys.last() {
        Some(last) if last.borrow() < key => Err(keys.len()),
        _ => keys.binary_search_by(|one| one.borrow().cmp(key)),
    }
}

/// The places of the keys in `range`.
fn places<K: Ord>(keys: &[K], range: &impl RangeBounds<K>) -> std::ops::Range<usize> {
    let place = |found: Result<usize, usize>, after: bool| match found {
        Ok(at) if after => at + 1,
        Ok(at) | Err(at) => at,
    };
    let start = match range.start_bound() {
        Bound::Included(key) => place(find(keys, key), false),
        Bound::Excluded(key) => place(find(keys, key), true),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(key) => place(find(keys, key), true),
        Bound::Excluded(key) => place(find(keys, key), false),
        Bound::Unbounded => keys.len(),
    };
    assert!(start <= end, "the range ends before it begins");
    start..end
}

/// A map in the order of its keys.
#[derive(Clone, PartialEq, Eq)]
pub struct SortedMap<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> SortedMap<K, V> {
    /// An empty map.
    pub const fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Removes all rows.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
    }

    /// All rows.
    pub fn iter(&self) -> Zip<slice::Iter<'_, K>, slice::Iter<'_, V>> {
        self.keys.iter().zip(&self.values)
    }

    /// All rows; the values can be changed.
    pub fn iter_mut(&mut self) -> Zip<slice::Iter<'_, K>, slice::IterMut<'_, V>> {
        self.keys.iter().zip(&mut self.values)
    }

    /// The keys.
    pub fn keys(&self) -> slice::Iter<'_, K> {
        self.keys.iter()
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> slice::Iter<'_, V> {
        self.values.iter()
    }

    /// The values, to be changed.
    pub fn values_mut(&mut self) -> slice::IterMut<'_, V> {
        self.values.iter_mut()
    }

    /// The keys alone.
    pub fn into_keys(self) -> vec::IntoIter<K> {
        self.keys.into_iter()
    }

    /// The values alone, in the order of their keys.
    pub fn into_values(self) -> vec::IntoIter<V> {
        self.values.into_iter()
    }

    /// The first row.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        Some((self.keys.first()?, self.values.first()?))
    }

    /// Keeps the rows for which `keep` says so. It is asked in the order of the keys.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        let mut kept = 0;
        for at in 0..self.keys.len() {
            if keep(&self.keys[at], &mut self.values[at]) {
                if kept != at {
                    self.keys.swap(kept, at);
                    self.values.swap(kept, at);
                }
                kept += 1;
            }
        }
        self.keys.truncate(kept);
        self.values.truncate(kept);
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn at<Q: Ord + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        find(&self.keys, key).ok()
    }

    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.at(key).map(|at| &self.values[at])
    }

    /// The value of `key`, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.at(key).map(|at| &mut self.values[at])
    }

    /// Whether `key` has a row.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.at(key).is_some()
    }

    /// Sets the value of `key` and returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match find(&self.keys, &key) {
            Ok(at) => Some(std::mem::replace(&mut self.values[at], value)),
            Err(at) => {
                self.keys.insert(at, key);
                self.values.insert(at, value);
                None
            }
        }
    }

    /// Removes the row of `key` and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.at(key)?;
        self.keys.remove(at);
        Some(self.values.remove(at))
    }

    /// Removes the first row.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        (!self.is_empty()).then(|| (self.keys.remove(0), self.values.remove(0)))
    }

    /// The place of `key`, with its value or without.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        Entry { found: find(&self.keys, &key), key, map: self }
    }

    /// The rows whose keys are in `range`.
    pub fn range(&self, range: impl RangeBounds<K>) -> Zip<slice::Iter<'_, K>, slice::Iter<'_, V>> {
        let places = places(&self.keys, &range);
        self.keys[places.clone()].iter().zip(&self.values[places])
    }

    /// The rows whose keys are in `range`; the values can be changed.
    pub fn range_mut(
        &mut self,
        range: impl RangeBounds<K>,
    ) -> Zip<slice::Iter<'_, K>, slice::IterMut<'_, V>> {
        let places = places(&self.keys, &range);
        self.keys[places.clone()].iter().zip(&mut self.values[places])
    }
}

/// The place of a key in a map; see [`SortedMap::entry`].
pub struct Entry<'a, K, V> {
    map: &'a mut SortedMap<K, V>,
    key: K,
    found: Result<usize, usize>,
}

impl<'a, K, V> Entry<'a, K, V> {
    /// The value; without one, `value` is inserted.
    pub fn or_insert(self, value: V) -> &'a mut V {
        self.or_insert_with(|| value)
    }

    /// The value; without one, what `make` returns is inserted.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'a mut V {
        let at = self.found.unwrap_or_else(|at| {
            let value = make();
            self.map.keys.insert(at, self.key);
            self.map.values.insert(at, value);
            at
        });
        &mut self.map.values[at]
    }

    /// The value; without one, the default is inserted.
    pub fn or_default(self) -> &'a mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the map has the key")
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, rows: I) {
        for (key, value) in rows {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(rows: I) -> Self {
        let mut map = Self::new();
        map.extend(rows);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(rows: [(K, V); N]) -> Self {
        rows.into_iter().collect()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = Zip<vec::IntoIter<K>, vec::IntoIter<V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter().zip(self.values)
    }
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Zip<slice::Iter<'a, K>, slice::Iter<'a, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, K, V> IntoIterator for &'a mut SortedMap<K, V> {
    type Item = (&'a K, &'a mut V);
    type IntoIter = Zip<slice::Iter<'a, K>, slice::IterMut<'a, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<K: Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self)
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for SortedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Rows<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Rows<K, V> {
            type Value = SortedMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
                let mut map = SortedMap::new();
                while let Some((key, value)) = rows.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }

        from.deserialize_map(Rows(PhantomData))
    }
}

/// A set in the order of its members.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SortedSet<K> {
    keys: Vec<K>,
}

impl<K> SortedSet<K> {
    /// An empty set.
    pub const fn new() -> Self {
        Self { keys: Vec::new() }
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.keys.clear();
    }

    /// All members.
    pub fn iter(&self) -> slice::Iter<'_, K> {
        self.keys.iter()
    }

    /// The first member.
    pub fn first(&self) -> Option<&K> {
        self.keys.first()
    }

    /// The last member.
    pub fn last(&self) -> Option<&K> {
        self.keys.last()
    }

    /// Keeps the members for which `keep` says so. It is asked in order.
    pub fn retain(&mut self, keep: impl FnMut(&K) -> bool) {
        self.keys.retain(keep);
    }
}

impl<K: Ord> SortedSet<K> {
    /// Whether `key` is a member.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        find(&self.keys, key).is_ok()
    }

    /// Adds a member. Whether it was none before.
    pub fn insert(&mut self, key: K) -> bool {
        let found = find(&self.keys, &key);
        if let Err(at) = found {
            self.keys.insert(at, key);
        }
        found.is_err()
    }

    /// Removes a member. Whether it was one.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let found = find(&self.keys, key);
        if let Ok(at) = found {
            self.keys.remove(at);
        }
        found.is_ok()
    }

    /// Removes the first member.
    pub fn pop_first(&mut self) -> Option<K> {
        (!self.is_empty()).then(|| self.keys.remove(0))
    }

    /// The members in `range`.
    pub fn range(&self, range: impl RangeBounds<K>) -> slice::Iter<'_, K> {
        self.keys[places(&self.keys, &range)].iter()
    }

    /// The members that `other` has not.
    pub fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a K> {
        self.iter().filter(|key| !other.contains(*key))
    }

    /// The members that `other` has, too.
    pub fn intersection<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a K> {
        self.iter().filter(|key| other.contains(*key))
    }

    /// Whether `other` has all members.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).next().is_none()
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug> fmt::Debug for SortedSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl<K: Ord> Extend<K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<'a, K: Ord + Copy + 'a> Extend<&'a K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = &'a K>>(&mut self, keys: I) {
        self.extend(keys.into_iter().copied());
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut set = Self::new();
        set.extend(keys);
        set
    }
}

impl<K: Ord, const N: usize> From<[K; N]> for SortedSet<K> {
    fn from(keys: [K; N]) -> Self {
        keys.into_iter().collect()
    }
}

impl<K> IntoIterator for SortedSet<K> {
    type Item = K;
    type IntoIter = vec::IntoIter<K>;

    fn into_iter(self) -> Self::IntoIter {
        self.keys.into_iter()
    }
}

impl<'a, K> IntoIterator for &'a SortedSet<K> {
    type Item = &'a K;
    type IntoIter = slice::Iter<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Serialize> Serialize for SortedSet<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self)
    }
}

impl<'de, K: Ord + Deserialize<'de>> Deserialize<'de> for SortedSet<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}
