//! 1Ch: the combination of command sets that the controller has.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::IDENTIFY_BYTES;

use super::{Asked, IdentifyAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let sets = asked.of.namespaces.iter().fold(0, |sets, is| sets | 1u64 << is.command_set);
    let mut page = vec![0; IDENTIFY_BYTES];
    page[..8].copy_from_slice(&sets.to_le_bytes());
    Ok(IdentifyAnswer::Page(page))
}
