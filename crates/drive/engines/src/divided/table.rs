//! The divided values that count, by key, and the free slots. The table is in memory, a few dozen bytes for each value
//! of a megabyte or more, and is rebuilt from flash ([`super::recovery`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_nvme::Key;

use super::names::{Issued, SLOTS_MAX};

/// A divided value. Its parts are not removed while a reader holds it.
#[derive(Debug)]
pub struct DividedValue {
    /// Its number. Later values have higher numbers.
    pub number: u64,
    /// Its slot.
    pub slot: u32,
    /// Its size.
    pub bytes: u32,
    /// Bytes of each part but the last.
    pub part_bytes: u32,
    /// Its head still exists although the engine has a newer pair of its key, because deleting the head failed.
    pub is_hidden: Cell<bool>,
}

impl DividedValue {
    /// How many parts it has.
    pub fn parts(&self) -> u32 {
        self.bytes.div_ceil(self.part_bytes)
    }

    /// Size of a part.
    pub fn bytes_of(&self, index: u32) -> u32 {
        self.part_bytes.min(self.bytes - index * self.part_bytes)
    }
}

/// The table: see the module.
pub struct Table {
    by_key: BTreeMap<Key, Rc<DividedValue>>,
    bytes: u64,
    free: BTreeSet<u32>,
    issued: Issued,
    /// Changes of `by_key` so far.
    version: u64,
}

impl Table {
    /// An empty table for a drive that has given out these names. No slot is known to be free.
    pub fn new(issued: Issued) -> Table {
        Table { by_key: BTreeMap::new(), bytes: 0, free: BTreeSet::new(), issued, version: 0 }
    }

    pub fn issued(&self) -> Issued {
        self.issued
    }

    /// A slot and a number for a new value; `None`: all slots have values.
    pub fn issue(&mut self) -> Option<(u32, u64)> {
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None if self.issued.slots < SLOTS_MAX => {
                self.issued.slots += 1;
                self.issued.slots - 1
            }
            None => return None,
        };
        self.issued.numbers += 1;
        Some((slot, self.issued.numbers - 1))
    }

    /// Marks a slot as free.
    pub fn give_back(&mut self, slot: u32) {
        self.free.insert(slot);
    }

    pub fn get(&self, key: &Key) -> Option<Rc<DividedValue>> {
        self.by_key.get(key).cloned()
    }

    /// Makes `value` the value of `key`; returns the one that it replaces.
    pub fn insert(&mut self, key: Key, value: Rc<DividedValue>) -> Option<Rc<DividedValue>> {
        self.version += 1;
        self.bytes += u64::from(value.bytes);
        let before = self.by_key.insert(key, value);
        self.bytes -= before.as_ref().map_or(0, |before| before.bytes.into());
        before
    }

    pub fn remove(&mut self, key: &Key) -> Option<Rc<DividedValue>> {
        self.version += 1;
        let removed = self.by_key.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |removed| removed.bytes.into());
        removed
    }

    /// A number that changes with every change of the table.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The values at and after `from`, in the order of their keys.
    pub fn from(&self, from: Option<Key>) -> impl Iterator<Item = (Key, Rc<DividedValue>)> {
        let skipped = move |(key, _): &(&Key, &Rc<DividedValue>)| from.is_some_and(|from| **key < from);
        self.by_key.iter().skip_while(skipped).map(|(key, value)| (*key, value.clone()))
    }

    pub fn values(&self) -> usize {
        self.by_key.len()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn memory_bytes(&self) -> u64 {
        let entry = size_of::<(Key, Rc<DividedValue>)>() + size_of::<DividedValue>() + 2 * size_of::<usize>();
        (self.by_key.len() * entry) as u64
    }
}
