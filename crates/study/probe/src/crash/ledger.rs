//! Compares a drive that came up after a power cut with what its hosts know ([`History`]): key by key, and by a list.

use std::collections::BTreeSet;

use kvdrive_content::Region;
use kvdrive_host::{Calls, Client, Error};
use kvdrive_nvme::{Key, Status};
use kvdrive_run::{History, answered, is_content};
use kvdrive_workload::ValueSpec;

/// Room for one answer to a List.
const LIST_BYTES: u32 = 1 << 16;

/// What each key may have at this moment.
#[derive(Clone, Default)]
pub struct Ledger {
    /// The writes so far.
    pub history: History,
    /// Keys that are not followed; a list may contain them or not.
    left_out: BTreeSet<Key>,
}

impl Ledger {
    /// Excludes keys that are checked elsewhere.
    pub fn leave_out(&mut self, keys: &[Key]) {
        self.left_out.extend(keys);
    }

    /// Compares a recovered drive with the ledger, key by key and by a list, and takes the found values into
    /// the ledger. Returns the number of keys read, and how many of them were answered 88h, which is refused
    /// unless `may_be_unreadable`.
    ///
    /// # Errors
    /// The state found, and those expected.
    pub fn check(&mut self, mut client: impl Client, may_be_unreadable: bool) -> Result<(u64, u64), String> {
        let keys: Vec<Key> = self.history.keys().collect();
        let reading = self.history.begin_read();
        self.history.end_read(reading);
        let (mut present, mut unreadable) = (BTreeSet::new(), BTreeSet::new());
        let mut region = Region::new();
        for key in &keys {
            let found = of_drive(client.retrieve(*key, &mut region));
            if found == Err(Status::UNRECOVERED_ERROR) && may_be_unreadable {
                unreadable.insert(*key);
                continue;
            }
            let mut possible: Vec<_> = self.history.possible(key, reading).collect();
            possible.extend(self.history.may_be_untouched(key, reading).then_some(None));
            let fits = |value: &Option<ValueSpec>| match (found, value) {
                (Ok(bytes), Some(value)) => bytes == value.bytes && holds(&region, key, value),
                (Err(Status::KEY_NOT_FOUND), None) => true,
                _ => false,
            };
            let Some(value) = possible.iter().copied().find(fits) else {
                let found = found.map_or_else(|status| status.to_string(), |bytes| format!("{bytes} bytes"));
                return Err(format!("{key}: {found}; it may have {}", named(&possible)));
            };
            self.history.find_settled(*key, value);
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

/// Does the region hold this version of the key, whole?
pub(super) fn holds(region: &Region, key: &Key, value: &ValueSpec) -> bool {
    is_content(region, value.bytes, key, value, &mut Default::default())
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

    #[test]
    fn what_a_key_may_have_is_named_in_words() {
        let some = Some(ValueSpec { bytes: 5, version: 1 });
        assert_eq!(named(&[some, None]), "version 1 of its value, 5 bytes, or nothing");
    }
}
