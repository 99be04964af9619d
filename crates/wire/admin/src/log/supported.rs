//! 00h: which log pages there are.

use kvdrive_nvme::Status;
use kvdrive_nvme::log::{PAGE_SUPPORTED, SUPPORTED_BYTES};

use super::{Asked, LOG_PAGES, LogAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<LogAnswer, Status> {
    let mut page = vec![0; SUPPORTED_BYTES];
    for row in LOG_PAGES.iter().filter(|row| row.is_of(asked.of.kind)) {
        page[4 * usize::from(row.id)] = PAGE_SUPPORTED;
    }
    Ok(LogAnswer::Page(page))
}
