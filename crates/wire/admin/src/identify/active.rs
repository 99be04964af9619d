//! 02h and 07h: the active namespaces, of all command sets or of one.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::IDENTIFY_BYTES;

use super::{Asked, IdentifyAnswer};
use crate::Namespace;

pub(super) fn all(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    listed(asked, |_| true)
}

pub(super) fn of_set(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    match asked.of.has(asked.csi) {
        true => listed(asked, |is| is.command_set == asked.csi),
        false => Err(Status::INVALID_FIELD),
    }
}

/// Those behind the named one.
fn listed(asked: &Asked<'_>, is_meant: impl Fn(&Namespace) -> bool) -> Result<IdentifyAnswer, Status> {
    let after = asked.nsid;
    if after >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let mut page = vec![0; IDENTIFY_BYTES];
    let listed = asked.of.namespaces.iter().filter(|is| is.nsid > after && is_meant(is));
    page.chunks_exact_mut(4).zip(listed).for_each(|(to, is)| to.copy_from_slice(&is.nsid.to_le_bytes()));
    Ok(IdentifyAnswer::Page(page))
}
