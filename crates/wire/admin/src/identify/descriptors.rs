//! 03h: how a namespace is identified, and its command set.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::namespace_descriptors;

use super::{Asked, IdentifyAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let namespace = asked.of.namespace(asked.nsid)?;
    let page = namespace_descriptors(namespace.command_set, namespace.nguid, namespace.uuid);
    Ok(IdentifyAnswer::Page(page.to_vec()))
}
