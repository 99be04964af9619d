//! The segments of the value log: their live bytes, their users, and when each can be given back.
//!
//! ```text
//!   open ──► sealed ──► retired ──► dying ──► (pool)
//!            no more    nothing     pins of   last program
//!            values     live or     the past  of its pages
//!                       arriving    are gone  has ended
//! ```
//!
//! *Pins of the past* serve lookups and snapshots: a pin marks the moment at which it was taken, and a segment is not
//! given back while a pin is older than the segment's retirement. Taking or dropping a pin changes one counter.

use std::collections::VecDeque;

use super::SegmentId;
use super::chain::Chains;
use super::record::Head;

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Not ours.
    Absent,
    /// Values may still be placed in it.
    Open,
    /// No value will be placed in it any more.
    Sealed,
    /// Sealed, and nothing in it is live or arriving.
    Retired,
    /// Forgotten, but the buffer still uses this many of its pages.
    Dying(u32),
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub life: Life,
    pub head: Head,
    /// Where it begins in the head's linear space.
    pub base: u64,
    /// Number of its opening: its age, and the mark of its pages.
    pub opening: u64,
    pub live_bytes: u64,
    /// Places that values are arriving at.
    pub places: u32,
}

const ABSENT: Segment =
    Segment { life: Life::Absent, head: Head::Host, base: 0, opening: 0, live_bytes: 0, places: 0 };

/// All segments, and the pins of the past.
pub(super) struct Segments {
    by_id: Vec<Segment>,
    pub live_bytes: u64,
    /// Chains of large values.
    pub chains: Chains,
    /// Bytes that died in segments whose count was 0 already; see [`Segments::end_live`].
    pub miscounted_bytes: u64,
    /// Counts come out of an image.
    recovered: bool,
    pub next_opening: u64,
    /// Pins by moment; the last one is now, and there is always one.
    pins: VecDeque<u32>,
    /// The moment of `pins[0]`.
    first_moment: u64,
    /// Retired segments and the last moment that knew them, in order.
    retired: VecDeque<(u64, SegmentId)>,
    /// How many of the pins are snapshots'.
    pub snapshots: u32,
    /// How many readers keep the segments of a large value.
    pub kept_chains: u32,
}

impl Segments {
    pub fn new(count: u32) -> Segments {
        Segments {
            by_id: vec![ABSENT; count as usize],
            live_bytes: 0,
            chains: Chains::default(),
            miscounted_bytes: 0,
            recovered: false,
            next_opening: 0,
            pins: VecDeque::from([0]),
            first_moment: 0,
            retired: VecDeque::new(),
            snapshots: 0,
            kept_chains: 0,
        }
    }

    /// The segments of a log that continues from an image; they are restored one by one.
    pub fn recovered(count: u32, next_opening: u64) -> Segments {
        Segments { recovered: true, next_opening, ..Segments::new(count) }
    }

    #[inline]
    pub fn get(&self, id: SegmentId) -> &Segment {
        &self.by_id[id.0 as usize]
    }

    #[inline]
    fn at(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.by_id[id.0 as usize]
    }

    /// Ours, and not forgotten, by id.
    pub fn known(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        let ids = (0..self.by_id.len() as u32).map(SegmentId);
        ids.zip(&self.by_id).filter(|(_, segment)| !matches!(segment.life, Life::Absent | Life::Dying(_)))
    }

    pub fn open(&mut self, id: SegmentId, head: Head, base: u64) -> u64 {
        let opening = self.next_opening;
        self.next_opening += 1;
        assert_eq!(self.get(id).life, Life::Absent, "{id:?} is opened twice");
        *self.at(id) = Segment { life: Life::Open, head, base, opening, ..ABSENT };
        opening
    }

    /// A segment known from before a power cut.
    pub fn restore(&mut self, id: SegmentId, segment: Segment) {
        self.live_bytes += segment.live_bytes;
        *self.at(id) = segment;
    }

    /// Sets the live bytes of a segment to 0, whatever its image says.
    pub fn forget_live(&mut self, id: SegmentId) {
        self.live_bytes -= std::mem::take(&mut self.at(id).live_bytes);
    }

    pub fn seal(&mut self, id: SegmentId) {
        let segment = self.at(id);
        assert_eq!(segment.life, Life::Open, "{id:?} is sealed");
        segment.life = Life::Sealed;
    }

    #[inline]
    pub fn add_place(&mut self, id: SegmentId) {
        self.at(id).places += 1;
    }

    /// `true` when the segment may be retired now.
    #[inline]
    pub fn end_place(&mut self, id: SegmentId) -> bool {
        let segment = self.at(id);
        segment.places -= 1;
        is_spent(segment)
    }

    #[inline]
    pub fn add_live(&mut self, id: SegmentId, bytes: u32) {
        let segment = self.at(id);
        assert!(
            matches!(segment.life, Life::Open | Life::Sealed),
            "a value in {id:?}, which is {:?}",
            segment.life
        );
        segment.live_bytes += u64::from(bytes);
        self.live_bytes += u64::from(bytes);
    }

    /// Counts bytes of a segment as dead. Returns by how much the count of live bytes decreased, and whether the
    /// segment may be retired now.
    ///
    /// The count decreases by `bytes` in a log that was never without power. A crafted image may contain a count that
    /// is too low, and power-on does not detect that, because it would have to read all tables of the index. The count
    /// then stops at 0. Such a segment is given back too early, so that some of its values cannot be read and the
    /// counts of its next use are too low as well. There is no other damage, so the drive continues.
    #[inline]
    pub fn end_live(&mut self, id: SegmentId, bytes: u64) -> (u64, bool) {
        let recovered = self.recovered;
        let segment = self.at(id);
        let died = bytes.min(segment.live_bytes);
        assert!(
            died == bytes || recovered,
            "{bytes} bytes died in {id:?}, where {} lived",
            segment.live_bytes
        );
        segment.live_bytes -= died;
        let spent = is_spent(segment);
        self.live_bytes -= died;
        self.miscounted_bytes += bytes - died;
        (died, spent)
    }

    /// Can the segment be retired?
    pub fn is_spent(&self, id: SegmentId) -> bool {
        is_spent(self.get(id))
    }

    /// Retires a spent segment. `true` when it can be given back at once.
    pub fn retire(&mut self, id: SegmentId) -> bool {
        assert!(self.is_spent(id), "{id:?} is still in use");
        self.at(id).life = Life::Retired;
        if self.pins.len() == 1 && self.pins[0] == 0 {
            return true;
        }
        let now = self.first_moment + self.pins.len() as u64 - 1;
        self.retired.push_back((now, id));
        self.pins.push_back(0);
        false
    }

    /// Pins everything that is known now.
    #[inline]
    pub fn pin(&mut self) -> u64 {
        let last = self.pins.len() - 1;
        self.pins[last] += 1;
        self.first_moment + last as u64
    }

    /// Drops a pin. Segments that only older pins kept come out of [`Segments::next_unpinned`].
    #[inline]
    pub fn unpin(&mut self, moment: u64) {
        self.pins[(moment - self.first_moment) as usize] -= 1;
        while self.pins.len() > 1 && self.pins[0] == 0 {
            self.pins.pop_front();
            self.first_moment += 1;
        }
    }

    /// Is there a large value of which nothing lives any more, and that is read or about to be committed?
    pub fn has_dead_chain(&self) -> bool {
        let dead = |segment: &Segment| segment.live_bytes == 0 && segment.places > 0;
        self.known().any(|(id, segment)| dead(segment) && self.chains.of(id).is_some())
    }

    /// Is a retired segment kept by a pin?
    pub fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// A retired segment that is not pinned any more.
    #[inline]
    pub fn next_unpinned(&mut self) -> Option<SegmentId> {
        let (moment, _) = self.retired.front()?;
        if *moment >= self.first_moment {
            return None;
        }
        self.retired.pop_front().map(|(_, id)| id)
    }

    /// Forgets a retired segment, of which the buffer still uses `pages_in_use` pages. `true`: it can go to the pool
    /// now.
    pub fn forget(&mut self, id: SegmentId, pages_in_use: u32) -> bool {
        assert_eq!(self.get(id).life, Life::Retired, "{id:?} is forgotten in use");
        if self.get(id).head == Head::Large {
            self.chains.remove(id);
        }
        *self.at(id) = ABSENT;
        if pages_in_use > 0 {
            self.at(id).life = Life::Dying(pages_in_use);
        }
        pages_in_use == 0
    }

    /// Counts a page of a dying segment as gone. `true` if it was the last one.
    pub fn page_gone(&mut self, id: SegmentId) -> bool {
        let segment = self.at(id);
        let Life::Dying(pages) = segment.life else { panic!("{id:?} is not dying") };
        segment.life = if pages == 1 { Life::Absent } else { Life::Dying(pages - 1) };
        pages == 1
    }
}

fn is_spent(segment: &Segment) -> bool {
    segment.life == Life::Sealed && segment.live_bytes == 0 && segment.places == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(segments: &mut Segments, id: u32) -> bool {
        segments.open(SegmentId(id), Head::Host, 0);
        segments.seal(SegmentId(id));
        segments.retire(SegmentId(id))
    }

    #[test]
    fn a_segment_outlives_the_pins_that_knew_it_and_no_others() {
        let mut segments = Segments::new(4);
        assert!(spent(&mut segments, 0), "nothing is pinned");
        let early = segments.pin();
        assert!(!spent(&mut segments, 1));
        let late = segments.pin();
        assert!(!spent(&mut segments, 2));
        let latest = segments.pin();
        segments.unpin(late);
        assert_eq!(segments.next_unpinned(), None, "the early pin keeps both");
        segments.unpin(early);
        assert_eq!(segments.next_unpinned(), Some(SegmentId(1)));
        assert_eq!(segments.next_unpinned(), Some(SegmentId(2)), "the latest never knew it");
        segments.unpin(latest);
        assert_eq!(segments.next_unpinned(), None);
        assert!(spent(&mut segments, 3));
    }
}
