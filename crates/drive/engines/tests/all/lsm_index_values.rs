//! The value log of the index's tests: it has addresses and no bytes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use kvdrive_engines::lsm::ValueLiveness;
use kvdrive_engines::value_log::Vaddr;

/// Bytes of a segment.
pub const SEGMENT_BYTES: u64 = 100;

/// A value log that only counts: every reference that an insertion makes must be given back exactly once.
#[derive(Clone, Default)]
pub struct Values {
    pub openings: Cell<u64>,
    pub segments: RefCell<BTreeMap<u64, Segment>>,
    /// Freed segments, for reuse.
    pub free: RefCell<Vec<u64>>,
    pub head: Cell<Option<u64>>,
}

#[derive(Clone, Default)]
pub struct Segment {
    opening: u64,
    used: u64,
    pub live: BTreeMap<u64, u32>,
}

impl Values {
    /// A place for a value. Segments are reused in the order in which they were freed.
    pub fn place(&self, bytes: u32) -> Vaddr {
        let mut segments = self.segments.borrow_mut();
        let full = |id: u64| segments[&id].used + u64::from(bytes) > SEGMENT_BYTES;
        let id = match self.head.get().filter(|id| !full(*id)) {
            Some(id) => id,
            None => {
                let mut free = self.free.borrow_mut();
                let id = if free.is_empty() { segments.len() as u64 } else { free.remove(0) };
                let opening = self.openings.replace(self.openings.get() + 1);
                segments.insert(id, Segment { opening, ..Segment::default() });
                self.head.set(Some(id));
                id
            }
        };
        let segment = segments.get_mut(&id).unwrap();
        let address = id * SEGMENT_BYTES + segment.used;
        segment.used += u64::from(bytes);
        if bytes > 0 {
            segment.live.insert(address, bytes);
        }
        Vaddr(address)
    }

    pub fn addresses(id: u64) -> Range<Vaddr> {
        Vaddr(id * SEGMENT_BYTES)..Vaddr((id + 1) * SEGMENT_BYTES)
    }

    pub fn free(&self, id: u64) {
        self.segments.borrow_mut().get_mut(&id).unwrap().opening = u64::MAX;
        self.free.borrow_mut().push(id);
    }

    pub fn live(&self) -> BTreeMap<u64, u32> {
        let segments = self.segments.borrow();
        let used = segments.values().filter(|segment| segment.opening != u64::MAX);
        used.flat_map(|segment| segment.live.clone()).collect()
    }
}

impl ValueLiveness for Values {
    fn dead(&self, address: Vaddr, bytes: u32) {
        let mut segments = self.segments.borrow_mut();
        let segment = segments.get_mut(&(address.0 / SEGMENT_BYTES)).unwrap();
        assert_ne!(segment.opening, u64::MAX, "a reference to a freed segment was counted");
        assert_eq!(segment.live.remove(&address.0), Some(bytes), "{address:?} died twice, or never lived");
    }

    fn next_opening(&self) -> u64 {
        self.openings.get()
    }

    fn opening_of(&self, address: Vaddr) -> Option<u64> {
        let segments = self.segments.borrow();
        segments.get(&(address.0 / SEGMENT_BYTES)).map(|segment| segment.opening).filter(|it| *it != u64::MAX)
    }
}
