//! The segments of the logical page space, and the reserves for the last ones.
//!
//! A segment is `segment_pages` consecutive logical pages. The value log and the index take whole segments from one
//! pool, so that space moves between them as the workload asks for it. When segments run out, values are refused first.
//! The segments that they leave allow the index to take tombstones (so a delete never fails for space), and the very
//! last segments allow garbage collection to move live values, which frees more than it takes.
//!
//! Freed segments go to the back of the queue, so that each rests as long as possible.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_sim::TaskCell;

/// A segment: logical pages `id * segment_pages ..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct SegmentId(pub u32);

/// The use for which a segment is taken. Decides how deep the pool may be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Values from the host: leaves the reserves of the index and of garbage collection.
    Value,
    /// Index tables: leaves the reserve of garbage collection.
    Index,
    /// Values moved by garbage collection: may take the last segment.
    Gc,
}

/// How many segments values, and values and tables, leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Segments that only the index and garbage collection may take.
    pub index_segments: u32,
    /// Segments that only garbage collection may take.
    pub gc_segments: u32,
}

struct Pool {
    segments: u32,
    segment_pages: u32,
    reserve: Cell<Reserve>,
    free: TaskCell<VecDeque<SegmentId>>,
    /// For each segment: is it taken?
    taken: TaskCell<Vec<bool>>,
    on_free: Box<dyn Fn(Range<u32>)>,
}

/// All segments of a drive; clones are the same pool.
#[derive(Clone)]
pub struct SegmentPool(Rc<Pool>);

impl SegmentPool {
    /// A pool over `logical_pages` pages, every segment free. Pages after the last whole segment are not used.
    /// `on_free` is called with the logical pages of each segment that is given back, so that the FTL can unmap them.
    pub fn new(
        logical_pages: u32,
        segment_pages: u32,
        reserve: Reserve,
        on_free: impl Fn(Range<u32>) + 'static,
    ) -> SegmentPool {
        assert!(segment_pages > 0, "a segment has pages");
        let segments = logical_pages / segment_pages;
        SegmentPool(Rc::new(Pool {
            segments,
            segment_pages,
            reserve: Cell::new(reserve),
            free: TaskCell::new((0..segments).map(SegmentId).collect()),
            taken: TaskCell::new(vec![false; segments as usize]),
            on_free: Box::new(on_free),
        }))
    }

    /// A free segment; `None` when the reserves forbid this use to take another.
    pub fn alloc(&self, to: Use) -> Option<SegmentId> {
        if !self.may_take(to) {
            return None;
        }
        let mut free = self.0.free.borrow_mut();
        let id = free.pop_front()?;
        let was_taken = std::mem::replace(&mut self.0.taken.borrow_mut()[id.0 as usize], true);
        assert!(!was_taken, "{id:?} was free and taken");
        Some(id)
    }

    /// Would [`SegmentPool::alloc`] succeed now?
    pub fn may_take(&self, to: Use) -> bool {
        let Reserve { index_segments, gc_segments } = self.0.reserve.get();
        let left_free = match to {
            Use::Value => index_segments + gc_segments,
            Use::Index => gc_segments,
            Use::Gc => 0,
        };
        self.free_count() > left_free
    }

    /// Gives a segment back. No reader may hold its pages any more.
    pub fn free(&self, id: SegmentId) {
        let was_taken = std::mem::replace(&mut self.0.taken.borrow_mut()[id.0 as usize], false);
        assert!(was_taken, "{id:?} freed and not taken");
        (self.0.on_free)(self.lpas(id));
        self.0.free.borrow_mut().push_back(id);
    }

    /// Takes a particular segment, for an owner that found it to be its own after a power cut. `false` when
    /// there is no such segment or it is taken already.
    pub fn claim(&self, id: SegmentId) -> bool {
        let mut free = self.0.free.borrow_mut();
        let Some(index) = free.iter().position(|other| *other == id) else {
            return false;
        };
        free.remove(index);
        self.0.taken.borrow_mut()[id.0 as usize] = true;
        true
    }

    /// Is it taken? `false` for a segment that does not exist.
    pub fn is_taken(&self, id: SegmentId) -> bool {
        self.0.taken.borrow().get(id.0 as usize).copied().unwrap_or(false)
    }

    /// Segments free now, reserves included.
    pub fn free_count(&self) -> u32 {
        self.0.free.borrow().len() as u32
    }

    /// All segments.
    pub fn segments(&self) -> u32 {
        self.0.segments
    }

    /// Pages of a segment.
    pub fn segment_pages(&self) -> u32 {
        self.0.segment_pages
    }

    /// The segments that are kept back.
    pub fn reserve(&self) -> Reserve {
        self.0.reserve.get()
    }

    /// Changes how many segments values leave to the index: as many as it needs to merge itself.
    pub fn keep_for_index(&self, segments: u32) {
        self.0.reserve.set(Reserve { index_segments: segments, ..self.0.reserve.get() });
    }

    /// Logical pages of a segment.
    pub fn lpas(&self, id: SegmentId) -> Range<u32> {
        let first = id.0 * self.0.segment_pages;
        first..first + self.0.segment_pages
    }

    /// The segment that holds a logical page; it may be free, or lie after the last one.
    pub fn segment_of(&self, lpa: u32) -> SegmentId {
        SegmentId(lpa / self.0.segment_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_leave_the_reserves_and_tables_the_last_one() {
        let trimmed = Rc::new(TaskCell::new(Vec::new()));
        let seen = trimmed.clone();
        let reserve = Reserve { index_segments: 2, gc_segments: 1 };
        let pool = SegmentPool::new(23, 4, reserve, move |pages| seen.borrow_mut().push(pages));
        assert_eq!((pool.segments(), pool.free_count()), (5, 5), "three pages are no segment");
        assert_eq!(pool.alloc(Use::Value), Some(SegmentId(0)));
        assert_eq!(pool.alloc(Use::Value), Some(SegmentId(1)));
        assert_eq!(pool.alloc(Use::Value), None);
        assert_eq!(pool.alloc(Use::Index), Some(SegmentId(2)));
        assert_eq!(pool.alloc(Use::Index), Some(SegmentId(3)));
        assert_eq!(pool.alloc(Use::Index), None);
        assert_eq!(pool.alloc(Use::Gc), Some(SegmentId(4)));
        assert_eq!(pool.alloc(Use::Gc), None);
        pool.free(SegmentId(2));
        pool.free(SegmentId(0));
        assert_eq!(*trimmed.borrow(), vec![8..12, 0..4]);
        assert!(!pool.may_take(Use::Value) && pool.may_take(Use::Index));
        assert!(pool.claim(SegmentId(0)) && !pool.claim(SegmentId(0)) && !pool.claim(SegmentId(9)));
        assert!(pool.is_taken(SegmentId(0)) && !pool.is_taken(SegmentId(2)));
        assert_eq!(pool.alloc(Use::Gc), Some(SegmentId(2)));
        assert_eq!((pool.segment_of(11), pool.free_count()), (SegmentId(2), 0));
    }
}
