//! Ranges over what is pending: a sorted view that is laid over a drive's cursor.
//!
//! A drive's SEEK shows the pairs as they were when it was opened, and knows nothing of what is pending here;
//! batches may be answered between the two looks. So a range is read in three steps:
//!
//! 1. [`Client::begin_range`]: from now on, what is answered is remembered;
//! 2. the runner opens the drive's cursor;
//! 3. [`Client::view`]: what was answered since the first step, and over that what is pending, all buckets at one
//!    moment. Laid over the cursor's pairs ([`View::merge`]) that is the state of this moment: each write
//!    that had entered by then was answered before the first step and is in the cursor, or after it and is
//!    remembered, or is pending.
//!
//! A request on its own that was answered in between is not remembered with its value, and what the drive has after
//! a request that failed is not known here: the view is then refused, and the range begins again.

use std::collections::BTreeMap;
use std::sync::Arc;

use kvdrive_spec::Key;

use crate::cache::Value;
use crate::client::Client;
use crate::remembered::value_at;
use crate::saker::Saker;
use crate::steps::{Step, Steps};
use crate::table::Pending;

/// A range that has begun. While there is one, what is answered is remembered: it is meant to be short.
pub struct Range {
    saker: Arc<Saker>,
    /// Versions and requests on their own that had been remembered for others by then.
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

/// What comes next in a range.
#[derive(Clone, Debug)]
pub enum Merged {
    /// This pair, which the drive may have in an older version: if the cursor stands at its key, it moves on.
    Here(Key, Value),
    /// The pair at which the drive's cursor stands.
    Drive,
    /// The pair at which the drive's cursor stands has been deleted: the cursor moves on.
    Deleted,
    /// Nothing.
    End,
}

impl Client {
    /// Begins a range: the drive's cursor is opened next.
    pub fn begin_range(&mut self) -> Range {
        let saker = self.saker().clone();
        let (versions, alone) = saker.remembered.begin();
        Range { saker, versions, alone }
    }

    /// What is to be laid over the drive's cursor, from `start` on (`None`: from the first key), as of one moment
    /// within this call. `None`: the range begins again.
    pub fn view(&mut self, range: Range, start: Option<Key>, steps: &mut impl Steps) -> Option<View> {
        let saker = self.saker().clone();
        // Nothing enters and nothing leaves while all buckets are held.
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
                // A request on its own is not known to have been carried out.
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
    /// What comes next, where the drive's cursor stands at `drive` (`None`: after its last pair) and moves in
    /// the order of keys.
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

    /// Whether the view has a version of this key, and which (`None`: deleted): for a drive that lists keys in
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
