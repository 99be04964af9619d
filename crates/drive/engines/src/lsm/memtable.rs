//! Entries that are not in a table yet: a hash table for lookups, sorted when it is written or iterated.
//!
//! The published firmware keeps a skip list (4096 nodes, 10 levels). Its firmware time is a constant of the cost table,
//! so this code need not be one: on this machine it would cost a cache miss per level. Pairs stay in the order of
//! insertion, and slots point at them: one probe and one append per insertion. A removed key is an entry, too (a
//! tombstone), so nothing is ever taken out.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::entry::{Entry, key_hash};

/// A key and its entry.
pub type Pair = (Key, Entry);

/// The newest entry of every key inserted since the last flush.
pub struct Memtable {
    pairs: Vec<Pair>,
    /// Index into `pairs` plus one; 0 is free. A power of two long, at most half full, probed linearly.
    slots: Vec<u32>,
    /// Indices into `pairs` in key order, of as many pairs as there were when they were last sorted.
    order: Vec<u32>,
    /// A copy of all pairs in that order, as long as it is one.
    sorted: Option<Rc<[Pair]>>,
}

impl Memtable {
    /// An empty memtable with room for `entries` keys; more keys make it grow.
    pub fn new(entries: u32) -> Memtable {
        let slots = (entries.max(1) as usize * 2).next_power_of_two();
        let pairs = Vec::with_capacity(entries as usize);
        Memtable { pairs, slots: vec![0; slots], order: Vec::new(), sorted: None }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// No key at all?
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Sets the entry of `key` and returns the one it replaces.
    pub fn insert(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        let slot = self.slot_of(&key);
        self.sorted = None;
        match self.slots[slot] {
            0 => {
                self.pairs.push((key, entry));
                self.slots[slot] = self.pairs.len() as u32;
                if self.pairs.len() * 2 > self.slots.len() {
                    self.grow();
                }
                None
            }
            index => Some(std::mem::replace(&mut self.pairs[index as usize - 1].1, entry)),
        }
    }

    /// The entry of `key`.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        match self.slots[self.slot_of(key)] {
            0 => None,
            index => Some(self.pairs[index as usize - 1].1),
        }
    }

    /// All pairs in the order in which their keys were first inserted.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// All pairs in key order.
    pub fn sorted(&mut self) -> Rc<[Pair]> {
        if let Some(sorted) = &self.sorted {
            return sorted.clone();
        }
        self.sort();
        let sorted: Rc<[Pair]> = self.order.iter().map(|index| self.pairs[*index as usize]).collect();
        self.sorted.insert(sorted).clone()
    }

    /// Puts the pairs into `order` that are not in it.
    fn sort(&mut self) {
        let pairs = &self.pairs;
        if pairs.len() - self.order.len() <= FEW_NEW {
            for index in self.order.len()..pairs.len() {
                let key = pairs[index].0;
                let place = self.order.partition_point(|other| pairs[*other as usize].0 < key);
                self.order.insert(place, index as u32);
            }
            return;
        }
        let mut order: Vec<SortKey> =
            (0..).zip(pairs).map(|(index, (key, _))| SortKey { head: key.halves().0, index }).collect();
        sort_by_head(&mut order);
        for group in order.chunk_by_mut(|a, b| a.head == b.head).filter(|group| group.len() > 1) {
            group.sort_unstable_by_key(|place| pairs[place.index as usize].0);
        }
        self.order = order.iter().map(|place| place.index).collect();
    }

    /// The slot that holds `key`, or the free one where it belongs.
    fn slot_of(&self, key: &Key) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = key_hash(key) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return slot,
                index if self.pairs[index as usize - 1].0 == *key => return slot,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for index in 0..self.pairs.len() {
            let slot = self.slot_of(&self.pairs[index].0);
            self.slots[slot] = index as u32 + 1;
        }
    }
}

/// So many new keys, between two iterators about, are put in their places one by one.
const FEW_NEW: usize = 64;

/// The first eight bytes of a key as a number, and which pair it belongs to: sorted in the pairs' stead.
#[derive(Clone, Copy, Default)]
struct SortKey {
    head: u64,
    index: u32,
}

/// Sorts by the heads: one stable pass over all places for each byte in which any two heads differ, last byte
/// first.
fn sort_by_head(order: &mut Vec<SortKey>) {
    /// Below that, the 256 counters of a pass cost more than comparisons.
    const FEW: usize = 256;
    if order.len() < FEW {
        order.sort_unstable_by_key(|place| place.head);
        return;
    }
    let first = order[0].head;
    let differing = order.iter().fold(0, |bits, place| bits | (place.head ^ first));
    let mut sorted = vec![SortKey::default(); order.len()];
    for shift in (0..u64::BITS).step_by(8).filter(|shift| differing >> shift & 0xFF != 0) {
        let digit = |place: &SortKey| usize::from((place.head >> shift) as u8);
        let mut starts = [0usize; 256];
        order.iter().for_each(|place| starts[digit(place)] += 1);
        let mut next = 0;
        for start in &mut starts {
            next += std::mem::replace(start, next);
        }
        for place in &*order {
            let to = &mut starts[digit(place)];
            sorted[*to] = *place;
            *to += 1;
        }
        std::mem::swap(order, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::value_log::Vaddr;

    #[test]
    fn many_keys_come_out_sorted() {
        let mut memtable = Memtable::new(8);
        for number in 0..3000u32 {
            let scrambled = number.wrapping_mul(0x9E37_79B9);
            let entry = Entry { address: Vaddr(0), bytes: number, sequence: 0, tombstone: false };
            memtable.insert(Key::from_u32_be(scrambled), entry);
            // Same first eight bytes as others.
            memtable.insert(Key::new(&[&[7; 8], &scrambled.to_be_bytes()[..3]].concat()).unwrap(), entry);
        }
        let sorted = memtable.sorted();
        assert_eq!(sorted.len(), memtable.len());
        assert!(sorted.windows(2).all(|two| two[0].0 < two[1].0));
        assert!(sorted.iter().all(|(key, entry)| memtable.get(key) == Some(*entry)));
    }

    proptest! {
        #[test]
        fn it_is_a_map(
            inserts in proptest::collection::vec(
                (proptest::collection::vec(0u8..3, 1..=16), any::<u32>(), proptest::bool::weighted(0.05)),
                0..400,
            ),
        ) {
            let mut memtable = Memtable::new(8);
            let mut model = BTreeMap::new();
            for (sequence, (bytes, address, is_sorted)) in (1u64..).zip(inserts) {
                let key = Key::new(&bytes).unwrap();
                let entry = Entry { address: Vaddr(address.into()), bytes: 1, sequence, tombstone: false };
                prop_assert_eq!(memtable.insert(key, entry), model.insert(key, entry));
                if is_sorted {
                    let expected: Vec<Pair> = model.iter().map(|(key, entry)| (*key, *entry)).collect();
                    prop_assert_eq!(&*memtable.sorted(), &*expected);
                }
            }
            prop_assert_eq!(memtable.len(), model.len());
            for (key, entry) in &model {
                prop_assert_eq!(memtable.get(key), Some(*entry));
            }
            prop_assert_eq!(memtable.get(&Key::new(&[9]).unwrap()), None);
            prop_assert_eq!(memtable.sorted().to_vec(), model.into_iter().collect::<Vec<_>>());
        }
    }
}
