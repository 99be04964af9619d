//! Calls that several drives answer together: lists and iterators. Gathering only; [`super::pipeline`] submits
//! the commands.
//!
//! An iterator over several drives has one iterator on each. The next pair of every drive is kept here,
//! except of the drive whose pair was returned last: that drive is asked before the next pair is chosen, so a
//! NEXT is one command to one drive. If all drives keep keys in order, their pairs are merged by key; else
//! the drives follow each other.

use kvdrive_content::Region;
use kvdrive_nvme::list::{LIST_HEADER_BYTES, entry_bytes};
use kvdrive_nvme::{Key, Status};

use crate::answers::{IteratorId, Pair};
use crate::client::{Answer, Call};

/// A call, and the answers to its commands.
pub(super) struct Gathered<V> {
    pub call: Call<()>,
    pub value: V,
    /// Commands that have not ended.
    pub left: usize,
    pub state: GatheredState,
}

pub(super) enum GatheredState {
    /// The keys of the drives that have answered.
    List {
        keys: Vec<Key>,
        buffer_bytes: u32,
    },
    Seek(Cursor),
    /// The iterators are closed, and this is the answer.
    Close(Result<(), Status>),
    /// The drive of this cursor has been asked for its next pair.
    Next {
        cursor: IteratorId,
    },
}

/// An iterator over several drives.
pub(super) struct Cursor {
    /// The iterator on each drive.
    pub iterators: Vec<Option<IteratorId>>,
    /// The next pair of each drive, with the bytes of its value that came.
    heads: Vec<Option<(Pair, Region)>>,
    /// The drive whose pair was returned last: it is asked for the next one.
    pub asked_next: Option<usize>,
    is_ordered: bool,
    /// Why a drive did not open its iterator.
    pub failed: Option<Status>,
}

impl Cursor {
    pub fn new(drives: usize, is_ordered: bool) -> Cursor {
        let heads = (0..drives).map(|_| None).collect();
        Cursor { iterators: vec![None; drives], heads, asked_next: None, is_ordered, failed: None }
    }

    /// Takes the answer of `drive` to its SEEK.
    pub fn opened(&mut self, drive: usize, result: Result<Answer, Status>, content: Region) {
        match result {
            Ok(answer) => {
                let (iterator, pair) = answer.opened();
                self.iterators[drive] = Some(iterator);
                self.heads[drive] = pair.map(|pair| (pair, content));
            }
            Err(status) => _ = self.failed.get_or_insert(status),
        }
    }

    /// Takes the next pair of `drive`.
    pub fn came(&mut self, drive: usize, pair: Option<Pair>, content: Region) {
        self.heads[drive] = pair.map(|pair| (pair, content));
        self.asked_next = None;
    }

    /// The next pair over all drives, with the bytes of its value that came.
    pub fn choose(&mut self) -> (Option<Pair>, Region) {
        let key = |drive: &usize| self.heads[*drive].as_ref().map(|(pair, _)| pair.key);
        let mut with_head = (0..self.heads.len()).filter(|drive| key(drive).is_some());
        let chosen = if self.is_ordered { with_head.min_by_key(key) } else { with_head.next() };
        self.asked_next = chosen;
        match chosen.and_then(|drive| self.heads[drive].take()) {
            Some((pair, content)) => (Some(pair), content),
            None => (None, Region::new()),
        }
    }
}

/// The keys of several lists that begin at one key, in order, as many as fit `buffer_bytes`. Each drive has
/// sent as many of its keys as fit, so none of the result is missing.
pub(super) fn merged(mut keys: Vec<Key>, buffer_bytes: u32) -> Vec<Key> {
    keys.sort_unstable();
    let mut used = LIST_HEADER_BYTES;
    let fitting = keys.iter().take_while(|key| {
        used += entry_bytes(key.len());
        used <= buffer_bytes as usize
    });
    let count = fitting.count();
    keys.truncate(count);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn pair(text: &str) -> Pair {
        Pair { key: key(text), value_bytes: 1, came_bytes: 1 }
    }

    /// All keys that a cursor returns if the drives have these.
    fn all(drives: &[&[&str]], is_ordered: bool) -> Vec<Key> {
        let mut cursor = Cursor::new(drives.len(), is_ordered);
        for (drive, keys) in drives.iter().enumerate() {
            let answer =
                Answer::Opened(IteratorId::numbered(drive as u32), keys.first().map(|key| pair(key)));
            cursor.opened(drive, Ok(answer), Region::new());
        }
        let (mut returned, mut next) = (Vec::new(), vec![1; drives.len()]);
        while let (Some(pair), _) = cursor.choose() {
            returned.push(pair.key);
            let asked = cursor.asked_next.expect("its pair was returned");
            let found = drives[asked].get(next[asked]).map(|key| self::pair(key));
            next[asked] += 1;
            cursor.came(asked, found, Region::new());
        }
        assert_eq!(cursor.asked_next, None, "nothing is asked for after the end");
        returned
    }

    #[test]
    fn pairs_of_ordered_drives_come_in_order_and_others_follow_each_other() {
        let drives: [&[&str]; 4] = [&["b", "e"], &[], &["a", "c", "d"], &["f"]];
        assert_eq!(all(&drives, true), ["a", "b", "c", "d", "e", "f"].map(key));
        assert_eq!(all(&drives, false), ["b", "e", "a", "c", "d", "f"].map(key));
    }

    #[test]
    fn a_list_has_as_many_keys_as_fit() {
        let keys = ["b", "d", "a", "c"].map(key).to_vec();
        assert_eq!(merged(keys.clone(), 4 + 3 * 4), ["a", "b", "c"].map(key));
        assert_eq!(merged(keys.clone(), 4 + 4 * 4 - 1), ["a", "b", "c"].map(key));
        assert_eq!(merged(keys, 3), []);
    }
}
