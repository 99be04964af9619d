//! Garbage collection of the value log, and room in general.
//!
//! The log keeps value bytes only, so a victim's values are found from the other side: index tables whose addresses
//! touch the victim are scanned for entries that point into it (`gc_index`). Of each, the value is moved (`value_gc`)
//! if the newest entry of its key still points there, under the key's lock. Then nobody points into the victim, and it
//! is given back as soon as nobody reads from it.
//!
//! The victim is the sealed segment with the fewest live bytes. What the counters call live may not be: a value that was
//! overwritten is only known to be dead when a merge meets both entries. So before a drive says that it is full it
//! merges its whole index once, and collects by counters that are exact then.

use kvdrive_link::{Arrival, Region};
use kvdrive_spec::{Key, Status};

use super::engine::LsmEngine;
use super::entry::Entry;
use crate::flash::Purpose;
use crate::value_log::{Candidate, Head, Use};

/// Collection ahead of need is worth it while it gains at least 1/8 of a segment.
const EAGER_GAIN: u64 = 8;
/// A drive is full when the best victim gains less than 1/32 of a segment.
const LEAST_GAIN: u64 = 32;

impl LsmEngine {
    /// Before a store: collects a segment when few are free and one is worth it. Does not wait for others.
    #[inline]
    pub(super) async fn keep_room(&self) {
        if self.pool.free_count() > self.gc.free_segments_low || !self.gc.enabled {
            return;
        }
        let Some(_one_at_a_time) = self.collecting.try_lock() else { return };
        if let Some(victim) = self.victim(EAGER_GAIN) {
            // What goes wrong now is met again, and reported, when there is no other way.
            let _ = self.evacuate(victim).await;
        }
    }

    /// Makes room when there is none. `false`: there is nothing left to gain.
    pub(super) async fn make_room(&self) -> bool {
        if !self.gc.enabled {
            return false;
        }
        let free_before = self.pool.free_count();
        let _one_at_a_time = self.collecting.lock().await;
        if self.pool.free_count() > free_before && self.pool.may_take(Use::Value) {
            return true; // somebody else made room while we waited
        }
        if let Some(victim) = self.victim(EAGER_GAIN)
            && self.evacuate(victim).await.is_ok()
        {
            return true;
        }
        if self.compact_for_space().await {
            return true;
        }
        match self.victim(LEAST_GAIN) {
            Some(victim) => self.evacuate(victim).await.is_ok(),
            None => false,
        }
    }

    /// Merges the whole index, if anything was put into it since the last time. That frees table pages and makes the
    /// counters of live bytes exact.
    async fn compact_for_space(&self) -> bool {
        let changes = self.index.changes();
        if self.compacted_at.replace(changes) == changes {
            return false;
        }
        let done = self.index.compact_all().await.is_ok();
        self.compacted_at.set(self.index.changes());
        done
    }

    /// The segment whose collection gains most, if that is at least `1/gain` of a segment. Among equals the oldest.
    fn victim(&self, gain: u64) -> Option<Candidate> {
        let segment_bytes = self.segment_bytes();
        let damaged = self.damaged.borrow();
        let mut best: Option<Candidate> = None;
        self.log.for_each_candidate(&mut |candidate| {
            let better = best.is_none_or(|best| {
                (candidate.live_bytes, u64::MAX - candidate.age) < (best.live_bytes, u64::MAX - best.age)
            });
            if better && !damaged.contains(&candidate.segment) {
                best = Some(candidate);
            }
        });
        best.filter(|victim| victim.live_bytes + segment_bytes / gain <= segment_bytes)
    }

    fn segment_bytes(&self) -> u64 {
        let addresses = self.log.addresses(crate::value_log::SegmentId(0));
        addresses.end.0 - addresses.start.0
    }

    /// Moves what lives in a segment elsewhere.
    ///
    /// Errors: a page that cannot be read keeps the segment as it is, for good; without room for the moved values or
    /// their entries some of them stay.
    async fn evacuate(&self, victim: Candidate) -> Result<(), Status> {
        let addresses = self.log.addresses(victim.segment);
        let mut pairs = Vec::new();
        let result = match self.index.references(addresses, &mut pairs).await {
            Ok(()) => self.move_values(pairs).await,
            Err(status) => Err(status),
        };
        match result {
            Ok(()) => self.log.note_all_dead(victim.segment),
            Err(Status::UNRECOVERED_ERROR) => self.damaged.borrow_mut().push(victim.segment),
            Err(_) => {}
        }
        result
    }

    async fn move_values(&self, mut pairs: Vec<(Key, Entry)>) -> Result<(), Status> {
        // In the order of their addresses: each page of the victim is read once.
        pairs.sort_by_key(|(key, entry)| (entry.address, *key));
        let mut content = Region::new();
        for (key, entry) in pairs {
            let _key = self.keys.lock(key).await;
            if self.index.refers(&key, entry.address).await? {
                self.move_value(key, entry, &mut content).await?;
            }
        }
        Ok(())
    }

    /// The caller holds the key's lock, and the key's newest entry is `entry`.
    async fn move_value(&self, key: Key, entry: Entry, content: &mut Region) -> Result<(), Status> {
        content.clear();
        let mut at = 0;
        let mut keep = |piece: kvdrive_link::Piece<'_>| {
            content.write(at, piece);
            at += piece.bytes();
        };
        self.log.read(entry.address, 0, entry.bytes, Purpose::ValueGc, &mut keep).await?;
        let mut place = self.log.reserve(Head::Gc, entry.bytes, Arrival::Inline).await?;
        self.copy(entry.bytes).await;
        let mut at = 0;
        content.read(0, entry.bytes, &mut |piece| {
            place.write(at, piece);
            at += piece.bytes();
        });
        place.landed();
        self.point_at(key, place.address(), entry.bytes).await?;
        self.count(|counters| {
            counters.collected_values += 1;
            counters.collected_bytes += u64::from(entry.bytes);
        });
        Ok(())
    }
}
