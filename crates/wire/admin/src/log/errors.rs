//! 01h: the newest failures of commands.

use kvdrive_nvme::Status;
use kvdrive_nvme::log::ErrorEntry;
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, LogAnswer};
use crate::ERRORS_MAX;

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
