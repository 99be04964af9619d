//! What each key of a drive may have, as far as its hosts know: the writes of each key, with the moments at which
//! they began, were put in order and became durable.
//!
//! ```text
//!            call                 return                      sync returns
//!   drive:   begin_write ──────── end_write (durable)
//!   SAKER:   begin_write ──────── accept (ordered) ────────── end_write (durable)
//! ```
//!
//! A write replaces every write of its key that was in order before it began, once it is durable. Writes of one key whose
//! calls overlapped may have happened in any order. A write that is not durable, or that was refused, may have happened
//! or not, unless the drive was full (81h).
//!
//! It judges no value: the verifier of a run compares reads beside other operations with it, and the trial of power cuts
//! compares a drive that came up again.

use std::collections::BTreeMap;

use kvdrive_nvme::{Key, Status};
use kvdrive_workload::ValueSpec;

/// Moments are ticks of the history's own clock.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// The value that it leaves; `None`: it is a delete.
    value: Option<ValueSpec>,
    began: u64,
    /// Writes that begin later come after it. `None`: it is under way.
    ordered: Option<u64>,
    durable: Option<u64>,
}

/// A write under way, or one that SAKER has accepted.
#[derive(Clone, Copy, Debug)]
pub struct Writing(u64);

/// A read or scan under way.
#[derive(Clone, Copy, Debug)]
pub struct Reading(u64);

/// The writes of each key that some read may still find.
#[derive(Clone, Debug, Default)]
pub struct History {
    clock: u64,
    writes: BTreeMap<Key, Vec<Write>>,
    /// When the reads under way began.
    readings: Vec<u64>,
    /// No write replaces an earlier one, because the order in which they ran is unknown.
    keeps_all: bool,
}

impl History {
    /// A history of writes that ran in an unknown order: a key may have the value of any of them.
    #[must_use]
    pub fn without_order() -> History {
        History { keeps_all: true, ..History::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A store of `value` under `key` begins (`None`: a delete).
    pub fn begin_write(&mut self, key: Key, value: Option<ValueSpec>) -> Writing {
        let began = self.tick();
        let write = Write { value, began, ordered: None, durable: None };
        self.writes.entry(key).or_default().push(write);
        Writing(began)
    }

    /// SAKER has taken the write: it comes before every write that begins from now on, and is volatile.
    pub fn accept(&mut self, key: &Key, Writing(began): Writing) {
        let now = self.tick();
        if let Some(write) = self.find(key, began) {
            write.ordered = Some(now);
        }
    }

    /// The drive has answered the write, or a sync of SAKER has returned its result.
    pub fn end_write(&mut self, key: &Key, Writing(began): Writing, result: Result<(), Status>) {
        let now = self.tick();
        if result == Err(Status::CAPACITY_EXCEEDED) {
            // A full drive refuses before it changes any pair.
            let writes = self.writes.get_mut(key).expect("a write of the key has begun");
            return writes.retain(|write| write.began != began);
        }
        // A later write of the key may have become durable first, and replaced this one.
        let Some(write) = self.find(key, began) else { return };
        write.ordered.get_or_insert(now);
        write.durable = result.is_ok().then_some(now);
        if !self.keeps_all {
            self.forget_replaced(key, now);
        }
    }

    fn find(&mut self, key: &Key, began: u64) -> Option<&mut Write> {
        let writes = self.writes.get_mut(key).expect("a write of the key has begun");
        writes.iter_mut().find(|write| write.began == began)
    }

    /// Forgets writes of `key` that no read finds any more, those under way included.
    fn forget_replaced(&mut self, key: &Key, now: u64) {
        let horizon = self.readings.iter().copied().min().unwrap_or(now + 1);
        let writes = self.writes.get_mut(key).expect("a write of the key has ended");
        let is_settled = |write: &&Write| write.durable.is_some_and(|durable| durable < horizon);
        if let Some(latest) = writes.iter().filter(is_settled).map(|write| write.began).max() {
            writes.retain(|write| write.ordered.is_none_or(|ordered| ordered >= latest));
        }
    }

    /// `key` has `value`, and no write of it is under way.
    pub fn settle(&mut self, key: Key, value: Option<ValueSpec>) {
        let writing = self.begin_write(key, value);
        self.end_write(&key, writing, Ok(()));
    }

    /// `key` was found with `value` while nothing was under way: whatever else might have happened did not.
    pub fn find_settled(&mut self, key: Key, value: Option<ValueSpec>) {
        self.writes.remove(&key);
        self.settle(key, value);
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Reading {
        let began = self.tick();
        self.readings.push(began);
        Reading(began)
    }

    /// A read has ended.
    pub fn end_read(&mut self, Reading(began): Reading) {
        let at = self.readings.iter().position(|known| *known == began).expect("the read has begun");
        self.readings.swap_remove(at);
    }

    /// The values that a read may find under `key` (`None`: that it was deleted). What it had before all writes is not among
    /// them: [`may_be_untouched`](History::may_be_untouched).
    pub fn possible(&self, key: &Key, Reading(began): Reading) -> impl Iterator<Item = Option<ValueSpec>> {
        let writes = self.of(key);
        let is_replaced = move |write: &Write| {
            let replaces = |later: &Write| {
                let is_before_read = later.durable.is_some_and(|durable| durable < began);
                is_before_read && write.ordered.is_some_and(|ordered| ordered < later.began)
            };
            !self.keeps_all && writes.iter().any(replaces)
        };
        writes.iter().filter(move |write| !is_replaced(write)).map(|write| write.value)
    }

    /// May a read find `key` as it was before all writes?
    #[must_use]
    pub fn may_be_untouched(&self, key: &Key, Reading(began): Reading) -> bool {
        !self.of(key).iter().any(|write| write.durable.is_some_and(|durable| durable < began))
    }

    /// All keys of writes, in order.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.writes.keys().copied()
    }

    fn of(&self, key: &Key) -> &[Write] {
        self.writes.get(key).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new(b"key").expect("a short key")
    }

    fn value(version: u64) -> Option<ValueSpec> {
        Some(ValueSpec { bytes: 100, version })
    }

    /// The versions that a read which begins now may find, and whether it may find no pair.
    fn found(history: &mut History) -> (Vec<u64>, bool) {
        let reading = history.begin_read();
        let possible: Vec<_> = history.possible(&key(), reading).collect();
        let is_absent = possible.contains(&None) || history.may_be_untouched(&key(), reading);
        history.end_read(reading);
        (possible.into_iter().flatten().map(|value| value.version).collect(), is_absent)
    }

    #[test]
    fn writes_that_overlap_may_have_happened_in_any_order() {
        let mut history = History::default();
        assert_eq!(found(&mut history), (vec![], true));
        let first = history.begin_write(key(), value(1));
        assert_eq!(found(&mut history), (vec![1], true), "it is under way");
        let second = history.begin_write(key(), value(2));
        history.end_write(&key(), first, Ok(()));
        assert_eq!(found(&mut history), (vec![1, 2], false), "one is there now");
        history.end_write(&key(), second, Ok(()));
        assert_eq!(found(&mut history), (vec![1, 2], false), "they overlapped");
        let delete = history.begin_write(key(), None);
        history.end_write(&key(), delete, Ok(()));
        assert_eq!(found(&mut history), (vec![], true), "both were over when it began");
    }

    #[test]
    fn a_read_may_find_what_was_there_while_it_was_under_way() {
        let mut history = History::default();
        history.settle(key(), value(0));
        let early = history.begin_read();
        history.settle(key(), value(1));
        let versions: Vec<_> = history.possible(&key(), early).flatten().map(|value| value.version).collect();
        assert_eq!(versions, [0, 1]);
        history.end_read(early);
        assert_eq!(found(&mut history), (vec![1], false));
    }

    #[test]
    fn a_write_that_was_refused_may_have_happened() {
        let mut history = History::default();
        history.settle(key(), value(1));
        let refused = history.begin_write(key(), value(2));
        history.end_write(&key(), refused, Err(Status::UNRECOVERED_ERROR));
        assert_eq!(found(&mut history), (vec![1, 2], false));
        history.find_settled(key(), value(1));
        assert_eq!(found(&mut history), (vec![1], false), "it was looked up");
        let refused = history.begin_write(key(), value(3));
        history.end_write(&key(), refused, Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(found(&mut history), (vec![1], false), "the drive was full");
    }

    #[test]
    fn a_write_that_saker_took_is_in_order_at_once_and_durable_after_its_sync() {
        let mut history = History::default();
        let first = history.begin_write(key(), value(1));
        history.accept(&key(), first);
        let second = history.begin_write(key(), value(2));
        history.accept(&key(), second);
        assert_eq!(found(&mut history), (vec![1, 2], true), "nothing was synced");
        history.end_write(&key(), second, Ok(()));
        assert_eq!(found(&mut history), (vec![2], false), "the first came before it");
        history.end_write(&key(), first, Ok(()));
        assert_eq!(found(&mut history), (vec![2], false));
    }

    #[test]
    fn without_an_order_nothing_is_replaced() {
        let mut history = History::without_order();
        history.settle(key(), value(1));
        history.settle(key(), value(2));
        assert_eq!(found(&mut history), (vec![1, 2], false));
    }

    /// Replaced writes are forgotten even if some read is always under way.
    #[test]
    fn what_is_kept_of_a_key_does_not_grow_with_its_writes() {
        let mut history = History::default();
        let mut reading = history.begin_read();
        for version in 0..1000 {
            history.settle(key(), value(version));
            let next = history.begin_read();
            history.end_read(std::mem::replace(&mut reading, next));
            assert!(history.of(&key()).len() <= 3, "{version}");
        }
        assert_eq!(found(&mut history), (vec![999], false));
    }
}
