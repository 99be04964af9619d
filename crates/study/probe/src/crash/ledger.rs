//! The values that a drive may hold after a power cut: for each key, those that the writes so far leave
//! possible.

use std::collections::{BTreeMap, BTreeSet};

use kvdrive_content::{Piece, Region};
use kvdrive_host::{Calls, Client, Error};
use kvdrive_nvme::{Key, Status};
use kvdrive_run::{answered, content};
use kvdrive_workload::ValueSpec;

/// Room for one answer to a List.
const LIST_BYTES: u32 = 1 << 16;

/// The values that each key may have at this moment.
///
/// ```text
///            call          return                  sync returns
///   drive:   begin ─────── end (durable)
///   SAKER:   begin ─────── accept (ordered) ────── end (durable)
/// ```
///
/// A write that is durable replaces every write of its key that was ordered before it began. Writes of one
/// key whose calls overlapped may have happened in any order. A write that is not durable may have happened
/// or not.
#[derive(Clone, Default)]
pub struct Ledger {
    clock: u64,
    writes: BTreeMap<Key, Vec<Write>>,
    /// Keys that are not followed; a list may contain them or not.
    left_out: BTreeSet<Key>,
}

#[derive(Clone, Copy)]
struct Write {
    /// The value that it leaves; `None`: it is a delete.
    value: Option<ValueSpec>,
    began: u64,
    /// When its call returned: writes that begin later come after it.
    ordered: Option<u64>,
    is_durable: bool,
}

/// Identifies a write under way.
#[derive(Clone, Copy)]
pub struct Ticket(u64);

impl Ledger {
    /// Notes that a store of `value` under `key`, or a delete, begins.
    pub fn begin(&mut self, key: Key, value: Option<ValueSpec>) -> Ticket {
        self.clock += 1;
        let write = Write { value, began: self.clock, ordered: None, is_durable: false };
        self.writes.entry(key).or_default().push(write);
        Ticket(self.clock)
    }

    /// SAKER has taken the write: it comes before every write that begins from now on, and is volatile.
    pub fn accept(&mut self, key: Key, ticket: Ticket) {
        self.clock += 1;
        let now = self.clock;
        if let Some(write) = self.find(key, ticket) {
            write.ordered = Some(now);
        }
    }

    /// The drive has answered the write, or a sync of SAKER has returned its result.
    pub fn end(&mut self, key: Key, ticket: Ticket, result: Result<(), Status>) {
        self.clock += 1;
        let now = self.clock;
        // A later write of the key may have become durable first, and replaced this one.
        let Some(write) = self.find(key, ticket) else { return };
        write.ordered.get_or_insert(now);
        write.is_durable = result.is_ok();
        let began = write.began;
        let writes = self.writes.get_mut(&key).expect("it has this write");
        match result {
            Ok(()) => writes.retain(|write| write.ordered.is_none_or(|ordered| ordered > began)),
            // A full drive refuses before it changes any pair.
            Err(Status::CAPACITY_EXCEEDED) => writes.retain(|write| write.began != began),
            Err(_) => {}
        }
    }

    fn find(&mut self, key: Key, Ticket(began): Ticket) -> Option<&mut Write> {
        let writes = self.writes.get_mut(&key).expect("the write has begun");
        writes.iter_mut().find(|write| write.began == began)
    }

    /// All states that `key` may have: values, or `None`.
    fn possible(&self, key: &Key) -> Vec<Option<ValueSpec>> {
        let writes = self.writes.get(key).map_or(&[][..], Vec::as_slice);
        let mut possible: Vec<_> = writes.iter().map(|write| write.value).collect();
        if !writes.iter().any(|write| write.is_durable) {
            possible.push(None);
        }
        possible
    }

    /// Excludes keys that are checked elsewhere.
    pub fn leave_out(&mut self, keys: &[Key]) {
        self.left_out.extend(keys);
    }

    /// Notes that no operation is under way, and that `key` has `value`.
    pub(super) fn settle(&mut self, key: Key, value: Option<ValueSpec>) {
        let write = Write { value, began: self.clock, ordered: Some(self.clock), is_durable: true };
        self.writes.insert(key, vec![write]);
    }

    /// Compares a recovered drive with the ledger, key by key and by a list, and takes the found values into
    /// the ledger. Returns the number of keys read, and how many of them were answered 88h, which is refused
    /// unless `may_be_unreadable`.
    ///
    /// # Errors
    /// The state found, and those expected.
    pub fn check(&mut self, mut client: impl Client, may_be_unreadable: bool) -> Result<(u64, u64), String> {
        let keys: Vec<Key> = self.writes.keys().copied().collect();
        let (mut present, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
        let mut region = Region::new();
        for key in &keys {
            let found = of_drive(client.retrieve(*key, &mut region));
            if found == Err(Status::UNRECOVERED_ERROR) && may_be_unreadable {
                unreadable.insert(*key);
                continue;
            }
            let possible = self.possible(key);
            let fits = |value: &Option<ValueSpec>| match (found, value) {
                (Ok(bytes), Some(value)) => bytes == value.bytes && is_content(&region, key, value),
                (Err(Status::KEY_NOT_FOUND), None) => true,
                _ => false,
            };
            let Some(value) = possible.iter().copied().find(fits) else {
                let found = found.map_or_else(|status| status.to_string(), |bytes| format!("{bytes} bytes"));
                return Err(format!("{key}: {found}; it may have {}", named(&possible)));
            };
            self.settle(*key, value);
            if value.is_some() {
                present.insert(*key);
            }
        }
        let listed = match list(&mut client) {
            Err(Status::UNRECOVERED_ERROR) if may_be_unreadable => {
                return Ok((keys.len() as u64, unreadable.len() as u64));
            }
            Err(status) => return Err(format!("a list: {status}")),
            Ok(listed) => listed,
        };
        if let Some(key) = present.difference(&listed).next() {
            return Err(format!("{key}: is there and not listed"));
        }
        let is_known =
            |key: &Key| present.contains(key) || unreadable.contains(key) || self.left_out.contains(key);
        match listed.iter().find(|key| !is_known(key)) {
            Some(key) => Err(format!("{key}: is listed and not there")),
            None => Ok((keys.len() as u64, unreadable.len() as u64)),
        }
    }
}

/// All states that a key may have, for a message.
fn named(possible: &[Option<ValueSpec>]) -> String {
    let one = |value: &Option<ValueSpec>| match value {
        Some(ValueSpec { bytes, version }) => format!("version {version} of its value, {bytes} bytes"),
        None => "nothing".to_owned(),
    };
    possible.iter().map(one).collect::<Vec<_>>().join(", or ")
}

pub(super) fn is_content(region: &Region, key: &Key, value: &ValueSpec) -> bool {
    let Piece::Pattern(pattern) = content(key, value) else { unreachable!("generated values are patterns") };
    let mut expected = vec![0; value.bytes as usize];
    pattern.expand(&mut expected);
    region.to_bytes(value.bytes) == expected
}

/// The answer of a modelled drive, to which the connection cannot fail.
pub(super) fn of_drive<T>(result: Result<T, Error>) -> Result<T, Status> {
    answered(result).expect("there is always a way to a modelled drive")
}

/// Every key, list by list; each list begins with the last key of the one before.
fn list(client: &mut impl Client) -> Result<BTreeSet<Key>, Status> {
    let mut listed = BTreeSet::new();
    let mut from = None;
    loop {
        let page = of_drive(client.list(from, LIST_BYTES))?;
        from = page.last().copied();
        let before = listed.len();
        listed.extend(page);
        if listed.len() == before {
            return Ok(listed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Option<ValueSpec> = Some(ValueSpec { bytes: 5, version: 1 });
    const OTHER: Option<ValueSpec> = Some(ValueSpec { bytes: 7, version: 2 });

    #[test]
    fn writes_at_the_same_time_may_have_happened_in_any_order() {
        let key = Key::from_u32_be(1);
        let mut ledger = Ledger::default();
        assert_eq!(ledger.possible(&key), [None]);
        let first = ledger.begin(key, SOME);
        assert_eq!(ledger.possible(&key), [SOME, None], "it is under way");
        let second = ledger.begin(key, OTHER);
        ledger.end(key, first, Ok(()));
        assert_eq!(ledger.possible(&key), [SOME, OTHER], "something is there now");
        ledger.end(key, second, Ok(()));
        assert_eq!(ledger.possible(&key), [SOME, OTHER], "they overlapped");
        let delete = ledger.begin(key, None);
        ledger.end(key, delete, Ok(()));
        assert_eq!(ledger.possible(&key), [None], "both were over when it began");
    }

    #[test]
    fn what_a_key_may_have_is_named_in_words() {
        assert_eq!(named(&[SOME, None]), "version 1 of its value, 5 bytes, or nothing");
    }

    #[test]
    fn a_write_that_failed_may_have_happened() {
        let key = Key::from_u32_be(1);
        let mut ledger = Ledger::default();
        ledger.settle(key, SOME);
        let failed = ledger.begin(key, OTHER);
        ledger.end(key, failed, Err(Status::UNRECOVERED_ERROR));
        assert_eq!(ledger.possible(&key), [SOME, OTHER]);
        let full = ledger.begin(key, None);
        ledger.end(key, full, Err(Status::CAPACITY_EXCEEDED));
        assert_eq!(ledger.possible(&key), [SOME, OTHER]);
    }

    #[test]
    fn a_write_that_saker_took_is_ordered_at_once_and_durable_after_its_sync() {
        let key = Key::from_u32_be(1);
        let mut ledger = Ledger::default();
        let first = ledger.begin(key, SOME);
        ledger.accept(key, first);
        let second = ledger.begin(key, OTHER);
        ledger.accept(key, second);
        assert_eq!(ledger.possible(&key), [SOME, OTHER, None], "nothing was synced");
        ledger.end(key, second, Ok(()));
        assert_eq!(ledger.possible(&key), [OTHER], "the first came before it");
        ledger.end(key, first, Ok(()));
        assert_eq!(ledger.possible(&key), [OTHER]);
    }
}
