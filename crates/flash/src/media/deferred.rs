//! A page whose bytes follow from something smaller that its owner has: they are worked out when somebody asks
//! for them, once, and many pages are erased before anybody does. A filter is such a page.
//!
//! Flash, its time and its counters see a page like any other. Medium `tags` keeps it as it is; `ram` and `file`
//! ask for the bytes when it is programmed.

use std::cell::LazyCell;
use std::fmt;
use std::rc::Rc;

use kvdrive_content::Region;

type Work = Box<dyn FnOnce() -> Vec<u8>>;

/// The page; clones of what holds it share the work.
pub struct Deferred {
    bytes: u32,
    region: LazyCell<Rc<Region>, Box<dyn FnOnce() -> Rc<Region>>>,
}

impl Deferred {
    /// A page of `bytes` bytes, which `work` gives.
    ///
    /// # Panics
    /// When they are asked for, and are more or fewer.
    pub fn new(bytes: u32, work: Work) -> Deferred {
        let region = move || {
            let literal = work();
            assert_eq!(literal.len(), bytes as usize, "bytes of a page that was to be worked out");
            Rc::new(Region::from_bytes(literal))
        };
        Deferred { bytes, region: LazyCell::new(Box::new(region)) }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The bytes.
    pub fn region(&self) -> &Rc<Region> {
        &self.region
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(out)
    }
}
