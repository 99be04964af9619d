//! 01h: the newest failures of commands.

use kvdrive_nvme::log::ErrorEntry;
use kvdrive_nvme::{Cqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, LogAnswer};
use crate::ERRORS_MAX;

/// A failed command of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) count: u64,
    pub(super) queue: u16,
    pub(super) cid: u16,
    pub(super) status: Status,
}

impl Failure {
    /// The status in the format of a completion entry.
    fn status_field(&self) -> u16 {
        let bytes = *Cqe::new(self.cid, self.status).as_bytes();
        u16::from_le_bytes([bytes[14], bytes[15]])
    }
}

pub(super) fn page(asked: &Asked<'_>) -> Result<LogAnswer, Status> {
    let mut page = vec![0; ERRORS_MAX * size_of::<ErrorEntry>()];
    for (to, failure) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(&asked.logs.failures) {
        let mut entry = ErrorEntry::new_zeroed();
        entry.count.set(failure.count);
        entry.queue_id.set(failure.queue);
        entry.cid.set(failure.cid);
        entry.status.set(failure.status_field());
        entry.parameter_at.set(u16::MAX);
        to.copy_from_slice(entry.as_bytes());
    }
    Ok(LogAnswer::Page(page))
}
