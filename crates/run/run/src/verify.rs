//! Compares values that are read back with those that were stored.
//!
//! A read may return any value that was present at some moment between its start and its end, as [`History`] has them.
//! A scan sees the drive as it was when the scan was opened.
//!
//! Pairs from an earlier life of the drive are unknown, and are not compared.

use std::collections::BTreeSet;

use kvdrive_content::Region;
use kvdrive_nvme::Key;

use crate::content::is_content;
use crate::history::{History, Reading};
use crate::report;
use kvdrive_workload::{Op, Workload};

/// What a read found under a key.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Size of the value.
    pub(crate) bytes: u32,
    /// How many bytes of it came: of a long value a scan brings only the front.
    pub(crate) came_bytes: u32,
}

impl Found {
    /// A value of which all bytes came.
    pub(crate) fn whole(bytes: u32) -> Found {
        Found { bytes, came_bytes: bytes }
    }
}

/// The values that each key may have, and the results of comparing.
#[derive(Default)]
pub(crate) struct Verifier {
    /// The writes so far.
    pub(crate) history: History,
    /// Keys of writes that were acknowledged and failed later.
    doubtful: BTreeSet<Key>,
    /// The drive held pairs from an earlier life.
    has_past: bool,
    found: report::Verified,
    first: Option<String>,
    /// Buffers for a value's bytes, found and expected.
    bytes: [Vec<u8>; 2],
}

impl Verifier {
    /// A verifier for a new drive, or for one with pairs from an earlier life.
    pub(crate) fn new(has_past: bool) -> Verifier {
        Verifier { has_past, ..Verifier::default() }
    }

    /// Records that an acknowledged write of `key` has failed: from now on the value of the key is unknown.
    pub(crate) fn doubt(&mut self, key: Key) {
        self.doubtful.insert(key);
    }

    /// Compares the result of a read of `key`: a value whose bytes that came are in `region`, or no value.
    pub(crate) fn check(&mut self, reading: Reading, key: &Key, found: Option<Found>, region: &Region) {
        // Nothing, or an unknown pair of an earlier life.
        let may_be_first = self.history.may_be_untouched(key, reading);
        if (may_be_first && self.has_past) || self.doubtful.contains(key) {
            self.found.unknown += 1;
            return;
        }
        self.found.checked += 1;
        let possible = || self.history.possible(key, reading);
        let bytes = &mut self.bytes;
        let fits = match found {
            None => may_be_first || possible().any(|value| value.is_none()),
            Some(Found { bytes: size, came_bytes }) => possible()
                .flatten()
                .any(|value| value.bytes == size && is_content(region, came_bytes, key, &value, bytes)),
        };
        if fits {
            self.found.absent += u64::from(found.is_none());
            return;
        }
        let problem = match found.map(|found| found.bytes) {
            Some(size) if possible().flatten().any(|value| value.bytes == size) => {
                self.found.wrong += 1;
                format!("{size} bytes that were not stored")
            }
            Some(size) => {
                self.found.wrong += 1;
                let sizes: Vec<_> = possible().flatten().map(|value| value.bytes.to_string()).collect();
                match sizes.is_empty() {
                    true => format!("{size} bytes; there was nothing"),
                    false => format!("{size} bytes; stored were {}", sizes.join(" or ")),
                }
            }
            None => {
                self.found.missing += 1;
                "not found; it was stored".to_owned()
            }
        };
        self.first.get_or_insert_with(|| format!("{key}: {problem}"));
    }

    /// Counts a read that was answered with an error, so that nothing can be compared.
    pub(crate) fn unread(&mut self) {
        self.found.unread += 1;
    }

    /// Takes the results so far, and the first wrong value; counting starts again at 0.
    pub(crate) fn take(&mut self) -> (report::Verified, Option<String>) {
        (std::mem::take(&mut self.found), self.first.take())
    }
}

/// The pairs that an earlier run of a workload has left, key by key.
pub(crate) struct ReadBack {
    keys: std::vec::IntoIter<Key>,
    notes: Vec<String>,
}

impl ReadBack {
    /// Draws the first `ops` operations of `source` and the pairs it loads without executing them, and tells
    /// `verifier` what they left. `depth` clients ran them.
    pub(crate) fn of(
        mut source: Box<dyn Workload>,
        ops: u64,
        depth: u32,
        verifier: &mut Verifier,
    ) -> Result<ReadBack, String> {
        let history = if depth > 1 { History::without_order() } else { History::default() };
        *verifier = Verifier { history, ..Verifier::default() };
        for index in 0..source.preload() {
            let (key, value) = source.preload_pair(index);
            verifier.history.settle(key, Some(value));
        }
        for _ in 0..ops {
            let Some((op, _)) = source.draw()? else { break };
            match op {
                Op::Store { key, value } | Op::Modify { key, value } => {
                    verifier.history.settle(key, Some(value))
                }
                Op::Delete { key } => verifier.history.settle(key, None),
                Op::Unit { .. } => unreachable!("workloads of units are not verified by patterns"),
                Op::Retrieve { .. } | Op::Exist { .. } | Op::Seek { .. } | Op::List { .. } => {}
            }
        }
        let keys: Vec<Key> = verifier.history.keys().collect();
        let mut notes = source.notes().to_vec();
        notes.push("nothing was stored: every key of the workload was read and checked".to_owned());
        if depth > 1 {
            notes.push(format!(
                "host.depth {depth}: an older value of a key counts as right, since its stores may have overtaken \
                 each other"
            ));
        }
        Ok(ReadBack { keys: keys.into_iter(), notes })
    }

    /// Number of keys that are still to be read.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.len() as u64
    }
}

impl Workload for ReadBack {
    fn next(&mut self) -> Op {
        Op::Retrieve { key: self.keys.next().expect("no more operations than keys are asked for") }
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_nvme::Status;
    use kvdrive_workload::ValueSpec;

    use crate::content::content;

    const KEY: &[u8] = b"key";

    fn value(version: u64) -> ValueSpec {
        ValueSpec { bytes: 100, version }
    }

    fn found(value: &ValueSpec) -> Region {
        let mut region = Region::new();
        region.write(0, content(&Key::new(KEY).unwrap(), value));
        region
    }

    /// The versions that a read which begins now may return, and whether it may find no pair.
    fn right(verifier: &mut Verifier, versions: u64) -> (Vec<u64>, bool) {
        let key = Key::new(KEY).unwrap();
        let reading = verifier.history.begin_read();
        let mut is_right = |found: Option<u32>, region: &Region| {
            verifier.check(reading, &key, found.map(Found::whole), region);
            let (counts, first) = verifier.take();
            assert_eq!(counts.wrong + counts.missing > 0, first.is_some());
            counts.wrong + counts.missing == 0
        };
        let versions =
            (0..versions).filter(|version| is_right(Some(100), &found(&value(*version)))).collect();
        let nothing = is_right(None, &Region::new());
        verifier.history.end_read(reading);
        (versions, nothing)
    }

    #[test]
    fn what_a_read_may_bring_is_what_was_there_while_it_was_under_way() {
        let key = Key::new(KEY).unwrap();
        let mut verifier = Verifier::new(false);
        assert_eq!(right(&mut verifier, 3), (vec![], true), "nothing was stored");
        verifier.history.settle(key, Some(value(0)));
        assert_eq!(right(&mut verifier, 3), (vec![0], false));
        let early = verifier.history.begin_read();
        let writing = verifier.history.begin_write(key, Some(value(1)));
        assert_eq!(right(&mut verifier, 3), (vec![0, 1], false), "one is under way");
        verifier.history.end_write(&key, writing, Ok(()));
        assert_eq!(right(&mut verifier, 3), (vec![1], false), "and has ended");
        for (version, wrong) in [(0, 0), (1, 0), (2, 1)] {
            verifier.check(early, &key, Some(Found::whole(100)), &found(&value(version)));
            assert_eq!(verifier.take().0.wrong, wrong, "{version}: of who looked before it began");
        }
        verifier.history.end_read(early);
        let [one, other] = [2, 3].map(|version| verifier.history.begin_write(key, Some(value(version))));
        verifier.history.end_write(&key, one, Ok(()));
        verifier.history.end_write(&key, other, Ok(()));
        assert_eq!(right(&mut verifier, 4), (vec![2, 3], false), "two at once, in any order");
        let refused = verifier.history.begin_write(key, None);
        verifier.history.end_write(&key, refused, Err(Status::INTERNAL));
        assert_eq!(right(&mut verifier, 4), (vec![2, 3], true), "it may have been deleted");
    }

    #[test]
    fn one_byte_that_differs_is_found_however_the_content_is_kept() {
        let key = Key::new(KEY).unwrap();
        let mut verifier = Verifier::new(false);
        verifier.history.settle(key, Some(value(0)));
        let reading = verifier.history.begin_read();
        let mut bytes = found(&value(0)).to_bytes(100);
        verifier.check(reading, &key, Some(Found::whole(100)), &Region::from_bytes(bytes.clone()));
        assert_eq!(verifier.take().0, report::Verified { checked: 1, ..Default::default() });
        bytes[99] ^= 1;
        verifier.check(reading, &key, Some(Found::whole(100)), &Region::from_bytes(bytes));
        let (counts, first) = verifier.take();
        assert_eq!((counts.wrong, first.unwrap().as_str()), (1, "6b6579: 100 bytes that were not stored"));
    }

    #[test]
    fn of_a_value_that_came_in_part_that_part_is_compared() {
        let key = Key::new(KEY).unwrap();
        let mut verifier = Verifier::new(false);
        verifier.history.settle(key, Some(value(0)));
        let reading = verifier.history.begin_read();
        let bytes = found(&value(0)).to_bytes(60);
        let mut wrong = |came_bytes, bytes: &[u8]| {
            let found = Found { bytes: 100, came_bytes };
            verifier.check(reading, &key, Some(found), &Region::from_bytes(bytes.to_vec()));
            verifier.take().0.wrong
        };
        assert_eq!(wrong(60, &bytes), 0);
        assert_eq!(wrong(60, &bytes[..59]), 1, "less came than was said");
        assert_eq!(wrong(100, &bytes), 1, "a retrieve brings all of it");
        assert_eq!(wrong(60, &[0; 60]), 1);
    }

    #[test]
    fn what_was_there_before_is_not_judged() {
        let key = Key::new(KEY).unwrap();
        let mut verifier = Verifier::new(true);
        let reading = verifier.history.begin_read();
        verifier.check(reading, &key, Some(Found::whole(7)), &Region::new());
        verifier.check(reading, &key, None, &Region::new());
        assert_eq!(verifier.take().0, report::Verified { unknown: 2, ..Default::default() });
        verifier.history.end_read(reading);
        verifier.history.settle(key, Some(value(0)));
        assert_eq!(right(&mut verifier, 2), (vec![0], false));
    }
}
