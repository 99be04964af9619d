//! Small drives for tests of the rooms above flash.

use std::rc::Rc;

use kvdrive_device::flash::Purpose;
use kvdrive_device::ftl::{Ftl, Lpa};
use kvdrive_link::Region;
use kvdrive_sim::{Ns, Sim};
use kvdrive_spec::Status;

/// Page size of these drives, bytes.
pub const PAGE_BYTES: u32 = 16384;
/// What a program takes at least.
pub const PROGRAM_NS: Ns = 600_000;

/// A small drive's FTL.
pub fn ftl(sim: &Sim) -> Ftl {
    Ftl::stub(sim)
}

/// What the tests look at behind the buffer's back.
pub trait Behind {
    /// Does flash have a version of this page?
    fn is_mapped_page(&self, lpa: u32) -> bool;
    /// What flash has.
    fn read_page(&self, lpa: u32) -> impl Future<Output = Result<Rc<Region>, Status>>;
}

impl Behind for Ftl {
    fn is_mapped_page(&self, lpa: u32) -> bool {
        self.is_mapped(Lpa(lpa))
    }
    async fn read_page(&self, lpa: u32) -> Result<Rc<Region>, Status> {
        self.read(Lpa(lpa), Purpose::Lookup).await
    }
}
