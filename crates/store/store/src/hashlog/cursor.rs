//! A cursor of `hashlog`: a sorted copy of the index as it was when the cursor was opened.
//!
//! Until it is dropped, segments that had records at that time are not freed.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::Log;
use super::state::RecordAt;
use crate::cpu::{Step, Thread};
use crate::pages::{PageId, Purpose};
use crate::store::{Cursor, StoreError};
use crate::value::StoredValue;

/// Position of a cursor.
pub struct HashlogCursor {
    log: Rc<Log>,
    opened: u64,
    /// The remaining entries, the last key first.
    rest: Vec<(Key, RecordAt)>,
}

impl HashlogCursor {
    pub fn open(log: &Rc<Log>, thread: Thread, from: Option<Key>) -> HashlogCursor {
        let (opened, mut rest) = {
            let mut state = log.state.borrow_mut();
            let opened = state.next_sequence;
            *state.cursors.entry(opened).or_default() += 1;
            let wanted = state.index.iter().filter(|(key, entry)| {
                entry.value_bytes().is_some() && from.is_none_or(|from| **key >= from)
            });
            (opened, wanted.map(|(key, entry)| (*key, entry.place)).collect::<Vec<_>>())
        };
        rest.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(*key));
        let count = rest.len() as u64;
        let compared = count * u64::from(count.checked_ilog2().unwrap_or(0) + 1);
        let walk = HashlogCursor { log: log.clone(), opened, rest };
        log.work(thread, &[(Step::Compare, compared)]);
        walk
    }
}

impl Cursor for HashlogCursor {
    fn next(&mut self, thread: Thread) -> Result<Option<(Key, StoredValue)>, StoreError> {
        let Some(&(key, place)) = self.rest.last() else { return Ok(None) };
        let (found, value) = self.log.load(thread, place, Purpose::Cursor)?;
        if found != Some(key) {
            let what = format!("record {} is not of key {key}", place.slot);
            return Err(StoreError::Damaged { page: PageId(place.page.into()), what });
        }
        self.rest.pop();
        Ok(Some((key, value)))
    }
}

impl Drop for HashlogCursor {
    fn drop(&mut self) {
        let mut state = self.log.state.borrow_mut();
        let open = state.cursors.get_mut(&self.opened).expect("an open cursor is counted");
        *open -= 1;
        if *open == 0 {
            state.cursors.remove(&self.opened);
        }
    }
}
