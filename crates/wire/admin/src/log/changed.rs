//! 04h: the namespaces that have changed since a host last read this page.

use kvdrive_nvme::Status;
use kvdrive_nvme::log::CHANGED_NAMESPACES_BYTES;

use super::{Asked, LogAnswer};
use crate::CHANGED_MAX;

pub(super) fn page(asked: &Asked<'_>) -> Result<LogAnswer, Status> {
    let mut page = vec![0; CHANGED_NAMESPACES_BYTES];
    let changed = &asked.logs.changed_namespaces;
    if changed.len() > CHANGED_MAX {
        page[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    } else {
        page.chunks_exact_mut(4).zip(changed).for_each(|(to, nsid)| to.copy_from_slice(&nsid.to_le_bytes()));
    }
    Ok(LogAnswer::Page(page))
}
