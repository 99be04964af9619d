//! 05h and 0Ah: a namespace, or a format of namespaces, as its command set describes it.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::CSI_KV;

use super::{Asked, IdentifyAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    match asked.of.namespace(asked.nsid)?.command_set == asked.csi {
        true => Ok(IdentifyAnswer::OfNamespace(asked.nsid)),
        false => Err(Status::INVALID_FIELD),
    }
}

/// There is one format, of pairs.
pub(super) fn format(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let is_one = asked.csi == CSI_KV && asked.format == 0;
    let any = asked.of.namespaces.iter().find(|is| is.command_set == asked.csi).filter(|_| is_one);
    any.map(|is| IdentifyAnswer::OfNamespace(is.nsid)).ok_or(Status::INVALID_FIELD)
}
