use super::{SortedMap, SortedSet};
use crate::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type Maps = (SortedMap<u8, u64>, BTreeMap<u8, u64>);

/// One random change of both maps. Both must return the same.
fn change(random: &mut SplitMix64, (ours, theirs): &mut Maps) {
    let (key, value) = (random.below(24) as u8, random.below(1000));
    match random.below(8) {
        0..=2 => assert_eq!(ours.insert(key, value), theirs.insert(key, value)),
        3 => assert_eq!(ours.remove(&key), theirs.remove(&key)),
        4 => {
            *ours.entry(key).or_insert(value) += 1;
            *theirs.entry(key).or_insert(value) += 1;
        }
        5 => {
            let (mut seen, mut seen_there) = (Vec::new(), Vec::new());
            let keeps = |key: u8, old: &mut u64| {
                *old += 1;
                !(u64::from(key) + *old).is_multiple_of(5)
            };
            ours.retain(|key, old| (seen.push(*key), keeps(*key, old)).1);
            theirs.retain(|key, old| (seen_there.push(*key), keeps(*key, old)).1);
            assert_eq!(seen, seen_there);
        }
        6 => assert_eq!(ours.pop_first(), theirs.pop_first()),
        _ => {
            for (old, there) in ours.values_mut().zip(theirs.values_mut()) {
                (*old, *there) = (*old + value, *there + value);
            }
        }
    }
}

/// Everything that can be asked.
fn compare(random: &mut SplitMix64, (ours, theirs): &mut Maps) {
    assert!(ours.iter().eq(theirs.iter()) && ours.iter().rev().eq(theirs.iter().rev()));
    assert!(ours.iter_mut().eq(theirs.iter_mut()));
    assert!(ours.keys().eq(theirs.keys()) && ours.values().eq(theirs.values()));
    assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
    assert_eq!(ours.first_key_value(), theirs.first_key_value());
    let (from, to) = (random.below(26) as u8, random.below(26) as u8);
    let (from, to) = (from.min(to), from.max(to));
    assert_eq!(ours.get(&from), theirs.get(&from));
    assert_eq!(ours.contains_key(&to), theirs.contains_key(&to));
    assert!(ours.range(from..to).eq(theirs.range(from..to)));
    assert!(ours.range(from..=to).eq(theirs.range(from..=to)));
    assert!(ours.range(..to).eq(theirs.range(..to)) && ours.range(from..).eq(theirs.range(from..)));
    let open = (Bound::Excluded(from), Bound::Included(to + 1));
    assert!(ours.range_mut(open).eq(theirs.range_mut(open)));
    assert_eq!(format!("{ours:?} {ours:#?}"), format!("{theirs:?} {theirs:#?}"));
    assert_eq!(
        &theirs.iter().map(|(key, value)| (*key, *value)).rev().collect::<SortedMap<_, _>>(),
        ours
    );
    assert!(ours.clone().into_iter().eq(theirs.clone()));
    assert!(ours.clone().into_keys().eq(theirs.clone().into_keys()));
    assert!(ours.clone().into_values().eq(theirs.clone().into_values()));
}

#[test]
fn a_sorted_map_answers_as_a_b_tree() {
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let mut maps = Maps::default();
        for _ in 0..60 {
            change(&mut random, &mut maps);
            compare(&mut random, &mut maps);
        }
    }
}

#[test]
fn a_sorted_set_answers_as_a_b_tree() {
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let (mut ours, mut theirs) = (SortedSet::new(), BTreeSet::new());
        let (mut others, mut others_there) = (SortedSet::new(), BTreeSet::new());
        for _ in 0..60 {
            let key = random.below(24) as u8;
            match random.below(6) {
                0..=2 => assert_eq!(ours.insert(key), theirs.insert(key)),
                3 => assert_eq!(ours.remove(&key), theirs.remove(&key)),
                4 => assert_eq!(ours.pop_first(), theirs.pop_first()),
                _ => assert_eq!(others.insert(key), others_there.insert(key)),
            }
            assert!(ours.iter().eq(theirs.iter()));
            assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
            assert_eq!((ours.first(), ours.last()), (theirs.first(), theirs.last()));
            assert_eq!(ours.contains(&key), theirs.contains(&key));
            assert!(ours.range(key..).eq(theirs.range(key..)));
            assert!(ours.difference(&others).eq(theirs.difference(&others_there)));
            assert!(ours.intersection(&others).eq(theirs.intersection(&others_there)));
            assert_eq!(ours.is_subset(&others), theirs.is_subset(&others_there));
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
            assert_eq!(theirs.iter().rev().copied().collect::<SortedSet<_>>(), ours);
        }
        ours.retain(|key| key % 3 == 0);
        theirs.retain(|key| key % 3 == 0);
        assert!(ours.into_iter().eq(theirs));
    }
}

#[test]
fn the_last_of_two_rows_with_a_key_counts() {
    assert_eq!(
        SortedMap::from([(2, 'a'), (1, 'b'), (2, 'c')]),
        SortedMap::from([(1, 'b'), (2, 'c')])
    );
}

#[test]
#[should_panic(expected = "the range ends before it begins")]
fn a_range_that_ends_before_it_begins_is_a_mistake() {
    let reversed = (Bound::Included(7), Bound::Excluded(3));
    let _ = SortedSet::from([1, 5, 9]).range(reversed);
}
