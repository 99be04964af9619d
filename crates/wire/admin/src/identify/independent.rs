//! 08h: what all command sets say of a namespace alike.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::IndependentNamespace;
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, IdentifyAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let namespace = asked.of.namespace(asked.nsid)?;
    let mut answer = IndependentNamespace::new_zeroed();
    answer.sharing = namespace.sharing;
    answer.attributes = namespace.attributes;
    answer.status = 1;
    Ok(IdentifyAnswer::Page(answer.as_bytes().to_vec()))
}
