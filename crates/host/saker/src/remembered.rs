//! Writes that the drive has answered while a range begins ([`crate::range`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvdrive_content::Region;
use kvdrive_nvme::Key;

use crate::batch::Batch;
use crate::cache::Value;
use crate::sync::{Mutex, MutexGuard, lock};
use crate::table::{Newest, Pending};

/// Writes that were answered while a range begins.
#[derive(Default)]
pub(crate) struct Remembered {
    /// Ranges that have begun and whose view was not taken.
    begun: AtomicU64,
    answered: Mutex<Answered>,
}

#[derive(Default)]
pub(crate) struct Answered {
    /// Versions in the order in which they left the table; `None` for a delete.
    pub(crate) versions: Vec<(Key, Option<Value>)>,
    /// Bypasses, and versions that failed: the drive's version is then unknown here.
    pub(crate) alone: u64,
}

impl Remembered {
    /// Begins a range: from now on, answered writes are remembered. Returns how many are remembered for other
    /// ranges.
    pub(crate) fn begin(&self) -> (usize, u64) {
        let answered = lock(&self.answered);
        self.begun.fetch_add(1, Ordering::SeqCst);
        (answered.versions.len(), answered.alone)
    }

    /// Ends a range. After the last one nothing is remembered.
    pub(crate) fn end(&self) {
        let mut answered = lock(&self.answered);
        if self.begun.fetch_sub(1, Ordering::SeqCst) == 1 {
            answered.versions = Vec::new();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Answered> {
        lock(&self.answered)
    }

    /// Takes a version that leaves the table because the drive has it. The key's bucket is locked.
    pub(crate) fn answered(&self, batch: &Arc<Batch>, index: u32, pending: Pending, key: Key) {
        if self.begun.load(Ordering::SeqCst) == 0 {
            return;
        }
        let place = Newest { batch: batch.clone(), index, pending };
        let mut answered = lock(&self.answered);
        match pending {
            Pending::Unknown => answered.alone += 1,
            Pending::Store | Pending::Delete => answered.versions.push((key, value_at(&place))),
        }
    }
}

/// The value of a pending version; `None` for a delete.
pub(crate) fn value_at(place: &Newest) -> Option<Value> {
    if place.pending != Pending::Store {
        return None;
    }
    let (mut value, mut at) = (Region::new(), 0);
    let bytes = place.batch.read_value(place.index, &mut |piece| {
        value.write(at, piece);
        at += piece.bytes();
    });
    Some(Value::of_region(&value, bytes))
}
