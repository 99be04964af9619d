//! The segments of one large value, in order, and how a segment's base says its place among them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::SegmentId;

/// Largest value whatever the drive: 256 MiB.
pub const LARGEST_VALUE_BYTES: u32 = 256 << 20;

/// Bits of a segment's base that say which segment of its value it is.
const LINK_BITS: u32 = 20;

/// The base of a segment of [`super::Head::Large`]: the first segment of the value, and the index of this one in the
/// chain.
pub(super) fn link(first: SegmentId, index: usize) -> u64 {
    u64::from(first.0) << LINK_BITS | index as u64
}

/// See [`link`].
pub(super) fn linked(base: u64) -> (SegmentId, usize) {
    (SegmentId((base >> LINK_BITS) as u32), (base & ((1 << LINK_BITS) - 1)) as usize)
}

/// The segments of a value, in the order of its bytes.
pub type Chain = Rc<[SegmentId]>;

/// Chains by their first segments.
#[derive(Default)]
pub(super) struct Chains(BTreeMap<SegmentId, Chain>);

impl Chains {
    pub fn of(&self, first: SegmentId) -> Option<&Chain> {
        self.0.get(&first)
    }

    pub fn insert(&mut self, chain: Chain) {
        self.0.insert(chain[0], chain);
    }

    pub fn remove(&mut self, first: SegmentId) {
        self.0.remove(&first);
    }
}
