//! How far the count of live bytes may be from the truth, and a merge that makes it exact before space is short.
//!
//! A value that was replaced or deleted counts as live until a merge sees both entries ([`super::collection`]), because a
//! store does not look for the old one. If the same pairs are stored again and again, the count grows with every store until
//! the drive has to collect, and so does the use that Identify reports (NUSE).
//!
//! With `lsm.count_growth_percent` the whole index is merged when the count has grown by that share since the last such
//! merge, so that the count is at most that much above the truth. A merge writes the index once, and the stores that made the
//! count grow have written as many bytes as the share says: merges cost a fixed part of what stores cost, however long a
//! drive runs. Only stored bytes trigger them, in the store that flushes a memtable: a recording needs no word of them.

use super::engine::Lsm;

/// Least growth of the count that is worth a merge, in segments: a small index on a small drive is not merged for a few
/// stores.
const LEAST_SEGMENTS: u64 = 16;

impl Lsm {
    /// Has the count of live bytes grown so much since the last merge of the whole index that another one is due? Asked
    /// when the index has changed.
    pub(super) fn count_is_due(&self) -> bool {
        let percent = u64::from(self.config.engines.lsm.index.count_growth_percent);
        if percent == 0 || !self.config.flash.enabled {
            return false;
        }
        let growth = (self.counted_bytes.get() / 100).saturating_mul(percent);
        let growth = growth.max(LEAST_SEGMENTS * self.segment_bytes());
        self.log.live_bytes() >= self.counted_bytes.get() + growth
    }

    /// Notes that the whole index was merged, or that it could not be, in which case another try waits for more stores.
    pub(super) fn note_counted(&self) {
        self.counted_bytes.set(self.log.live_bytes());
    }
}
