//! A page whose bytes are computed from something smaller that its owner keeps: they are computed once, when
//! they are first read, and many such pages are erased before that. A filter is an example.
//!
//! Flash, its time and its counters treat it like any other page. Medium `tags` keeps it as it is; `ram` and
//! `file` compute the bytes when it is programmed.

use std::cell::LazyCell;
use std::fmt;
use std::rc::Rc;

use kvdrive_content::Region;

type Work = Box<dyn FnOnce() -> Vec<u8>>;

/// The page; clones share the computed bytes.
pub struct Deferred {
    bytes: u32,
    region: LazyCell<Rc<Region>, Box<dyn FnOnce() -> Rc<Region>>>,
}

impl Deferred {
    /// A page of `bytes` bytes, which `work` computes.
    ///
    /// # Panics
    /// When the bytes are computed and their number differs.
    pub fn new(bytes: u32, work: Work) -> Deferred {
        let region = move || {
            let literal = work();
            assert_eq!(literal.len(), bytes as usize, "bytes of a page that was to be worked out");
            Rc::new(Region::from_bytes(literal))
        };
        Deferred { bytes, region: LazyCell::new(Box::new(region)) }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The bytes, computed if they were not.
    pub fn region(&self) -> &Rc<Region> {
        &self.region
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(out)
    }
}
