//! The sections in the cache, in the order of eviction, and which of them compete for a place. This file knows slots
//! and numbers of sections, not their content.
//!
//! Without *ways*, a section competes with all others, and the oldest is considered first. With `w` ways, DRAM is a
//! table of places in sets of `w`, and the number of a section hashes to its set. A new section of a full set displaces
//! one of that set, even if places are free elsewhere. So the share of cached sections falls slowly as their number
//! grows, and not suddenly when they exceed the cache. With one way, `n` sections over `p` places leave about `p (1 -
//! exp(-n / p))` in the cache.
//!
//! A place has the mean size of a section, and sections grow with the number of pairs, so the number of sets falls as
//! sections grow. A set is an equal share of the range of hashes, so nothing has to be moved when the number of sets
//! changes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use xxhash_rust::xxh3::xxh3_64;

/// The sections in the cache.
pub(super) enum Residents {
    /// Without sets: slots of the sections, the oldest first.
    Queue(VecDeque<u32>),
    /// With sets.
    Sets(Sets),
}

/// Sections ordered by the hash of their number, so that the sections of a set are neighbours.
pub(super) struct Sets {
    ways: u32,
    by_hash: BTreeMap<(u64, u64), Resident>,
    /// Entries so far.
    entered: u64,
    /// Where the search for the next section to evict continues when the cache as a whole is too full.
    hand: (u64, u64),
}

#[derive(Clone, Copy)]
struct Resident {
    slot: u32,
    entered: u64,
}

/// Key of a section: its hash, and its number, which distinguishes sections with the same hash.
fn key(id: u64) -> (u64, u64) {
    (xxh3_64(&id.to_le_bytes()), id)
}

impl Residents {
    /// An empty list for sets of `ways` places; 0: without sets.
    pub(super) fn new(ways: u32) -> Residents {
        match ways {
            0 => Residents::Queue(VecDeque::new()),
            ways => Residents::Sets(Sets { ways, by_hash: BTreeMap::new(), entered: 0, hand: (0, 0) }),
        }
    }

    /// Number of sections.
    pub(super) fn count(&self) -> usize {
        match self {
            Residents::Queue(queue) => queue.len(),
            Residents::Sets(sets) => sets.by_hash.len(),
        }
    }

    /// Section `id` comes into the cache, in this slot.
    pub(super) fn enter(&mut self, id: u64, slot: u32) {
        match self {
            Residents::Queue(queue) => queue.push_back(slot),
            Residents::Sets(sets) => {
                sets.entered += 1;
                sets.by_hash.insert(key(id), Resident { slot, entered: sets.entered });
            }
        }
    }

    /// Takes out the section that is considered next.
    pub(super) fn take_next(&mut self) -> Option<u32> {
        match self {
            Residents::Queue(queue) => queue.pop_front(),
            Residents::Sets(sets) => {
                let next = sets.by_hash.range(sets.hand..).next().or_else(|| sets.by_hash.first_key_value());
                let key = *next?.0;
                sets.hand = (key.0, key.1.wrapping_add(1));
                sets.by_hash.remove(&key).map(|resident| resident.slot)
            }
        }
    }

    /// Takes out section `id`.
    pub(super) fn leave(&mut self, id: u64) {
        match self {
            Residents::Queue(_) => unreachable!("sections leave a queue in its order"),
            Residents::Sets(sets) => _ = sets.by_hash.remove(&key(id)),
        }
    }

    /// Slots of the other sections in the set of section `id`, oldest first, and how many of them have to leave to give
    /// it a place, in a cache of `places` places. Empty without sets.
    pub(super) fn rivals(&self, id: u64, places: u64) -> (Vec<u32>, usize) {
        let Residents::Sets(sets) = self else { return (Vec::new(), 0) };
        let count = u128::from((places / u64::from(sets.ways)).max(1));
        // Set i of n has the hashes from i / n to below (i + 1) / n of the range.
        let begin = |set: u128| ((set << 64).div_ceil(count)) as u64;
        let set = (u128::from(key(id).0) * count) >> 64;
        let first = (begin(set), 0);
        let end = if set + 1 == count { Bound::Unbounded } else { Bound::Excluded((begin(set + 1), 0)) };
        let of_set = sets.by_hash.range((Bound::Included(first), end));
        let mut found: Vec<Resident> =
            of_set.filter(|(key, _)| key.1 != id).map(|(_, resident)| *resident).collect();
        found.sort_unstable_by_key(|resident| resident.entered);
        let leave = (found.len() + 1).saturating_sub(sets.ways as usize);
        (found.iter().map(|resident| resident.slot).collect(), leave)
    }

    /// The first slots that would be considered for eviction; only known for a queue.
    pub(super) fn next(&self, count: usize) -> impl Iterator<Item = u32> + '_ {
        let queue = match self {
            Residents::Queue(queue) => Some(queue),
            Residents::Sets(_) => None,
        };
        queue.into_iter().flatten().copied().take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_a_set_are_those_of_an_equal_share_of_the_hashes() {
        for ways in [1, 2, 4] {
            let mut residents = Residents::new(ways);
            (0..1000).for_each(|id| residents.enter(id, id as u32));
            for places in [1, 7, 64, 100_000, u64::MAX] {
                let sets = (places / u64::from(ways)).max(1);
                let set = |id: u64| ((u128::from(key(id).0) * u128::from(sets)) >> 64) as u64;
                for id in 0..50 {
                    let (rivals, leave) = residents.rivals(id, places);
                    let others = (0..1000).filter(|other| *other != id && set(*other) == set(id));
                    let same: Vec<u32> = others.map(|id| id as u32).collect();
                    assert_eq!(rivals, same, "{ways} ways, {places} places, section {id}: oldest first");
                    assert_eq!(leave, (same.len() + 1).saturating_sub(ways as usize));
                }
            }
        }
    }

    #[test]
    fn sections_beyond_the_budget_are_looked_at_in_turn() {
        let mut residents = Residents::new(2);
        (0..10).for_each(|id| residents.enter(id, id as u32));
        let mut seen = Vec::new();
        for _ in 0..10 {
            let slot = residents.take_next().unwrap();
            seen.push(slot);
            residents.enter(slot.into(), slot);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>(), "each once in a round");
        residents.leave(3);
        assert_eq!(residents.count(), 9);
        assert_eq!(Residents::new(2).take_next(), None);
    }
}
