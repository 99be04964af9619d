//! Ranges over pending writes: a sorted view that is merged with a drive's cursor.
//!
//! A drive's SEEK shows the pairs of the moment when it was opened, without the writes that are pending here; and
//! batches may be answered between looking at the drive and looking at the pending table. So a range is read in three
//! steps:
//!
//! 1. [`Client::begin_range`]: from now on, answered writes are remembered;
//! 2. the runner opens the drive's cursor;
//! 3. [`Client::view`]: writes that were answered since the first step, and over them the pending ones, with
//!    all buckets held at one moment. Merged with the cursor's pairs ([`View::merge`]) that is the state of
//!    this moment: each write that had entered by then was answered before the first step and is in the
//!    cursor, or was answered after it and is remembered, or is pending.
//!
//! The value of a bypass that was answered meanwhile is not remembered, and the drive's version after a
//! failed request is unknown: the view is then refused, and the range begins again.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_nvme::Key;

use crate::cache::Value;
use crate::client::Client;
use crate::remembered::value_at;
use crate::saker::Saker;
use crate::steps::{Step, Steps};
use crate::table::Pending;

/// A range that has begun. Until its view is taken, answered writes are remembered: it is meant to be short.
pub struct Range {
    saker: Arc<Saker>,
    /// Versions and bypasses that had been remembered for other ranges when this one began.
    versions: usize,
    alone: u64,
}

impl Drop for Range {
    fn drop(&mut self) {
        self.saker.remembered.end();
    }
}

/// The newest versions that a drive's cursor may lack, by key.
#[derive(Clone, Debug)]
pub struct View {
    /// `None`: deleted.
    entries: Vec<(Key, Option<Value>)>,
    at: usize,
}

/// The next pair of a range.
#[derive(Clone, Debug)]
pub enum Merged {
    /// This pair. If the drive's cursor stands at the same key, it moves on: its version is older.
    Here(Key, Value),
    /// The pair at which the drive's cursor stands.
    Drive,
    /// The pair at the drive's cursor has been deleted: the cursor moves on.
    Deleted,
    /// There is no further pair.
    End,
}

impl Client {
    /// Begins a range; next, the runner opens the drive's cursor.
    pub fn begin_range(&mut self) -> Range {
        let saker = self.saker().clone();
        let (versions, alone) = saker.remembered.begin();
        Range { saker, versions, alone }
    }

    /// The versions to merge with the drive's cursor, from `start` on (`None`: from the first key), as of one
    /// moment within this call. `None`: begin the range again.
    pub fn view(&mut self, range: Range, start: Option<Key>, steps: &mut impl Steps) -> Option<View> {
        let saker = self.saker().clone();
        // No version enters or leaves while all buckets are held.
        let buckets = saker.table.all();
        let answered = saker.remembered.lock();
        if answered.alone != range.alone {
            return None;
        }
        let is_asked = |key: &Key| start.is_none_or(|start| *key >= start);
        let since = answered.versions[range.versions..].iter().filter(|(key, _)| is_asked(key));
        let mut newest: BTreeMap<Key, Option<Value>> = since.cloned().collect();
        drop(answered);
        for bucket in &buckets {
            steps.step(Step::Bucket);
            for (key, place) in bucket.entries() {
                // The outcome of a bypass is unknown.
                if is_asked(key) && place.pending != Pending::Unknown {
                    let value = value_at(place);
                    let bytes = value.as_ref().map_or(0, |value| value.piece().bytes());
                    steps.step(Step::Unpack { bytes });
                    newest.insert(*key, value);
                }
            }
        }
        Some(View { entries: newest.into_iter().collect(), at: 0 })
    }
}

impl View {
    /// The next pair. The drive's cursor stands at `drive` (`None`: after its last pair) and moves in the
    /// order of keys.
    pub fn merge(&mut self, drive: Option<Key>) -> Merged {
        loop {
            let Some((key, value)) = self.entries.get(self.at) else {
                return if drive.is_some() { Merged::Drive } else { Merged::End };
            };
            if drive.is_some_and(|drive| drive < *key) {
                return Merged::Drive;
            }
            self.at += 1;
            match value {
                Some(value) => return Merged::Here(*key, value.clone()),
                None if drive == Some(*key) => return Merged::Deleted,
                None => {}
            }
        }
    }

    /// The view's version of this key, if it has one (`Some(None)`: deleted): for a drive that lists keys in
    /// an order of its own.
    pub fn get(&self, key: &Key) -> Option<Option<&Value>> {
        let at = self.entries.binary_search_by_key(key, |(key, _)| *key).ok()?;
        Some(self.entries[at].1.as_ref())
    }

    /// All versions of the view, by key; `None`: deleted.
    pub fn entries(&self) -> &[(Key, Option<Value>)] {
        &self.entries
    }
}
