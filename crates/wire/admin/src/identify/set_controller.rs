//! 06h: the controller, as a command set describes it.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::{CSI_KV, CSI_NVM, IDENTIFY_BYTES, KvController};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, IdentifyAnswer};

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    match asked.csi {
        CSI_KV if asked.of.has(CSI_KV) => {
            let mut answer = KvController::new_zeroed();
            answer.version.set(KvController::VERSION_1_3);
            Ok(IdentifyAnswer::Page(answer.as_bytes().to_vec()))
        }
        // There is nothing to report for the NVM set, but Linux asks.
        CSI_NVM => Ok(IdentifyAnswer::Page(vec![0; IDENTIFY_BYTES])),
        // SPDK asks for command set 2 and, if that succeeds, also for its effects log, which does not exist.
        _ => Err(Status::INVALID_FIELD),
    }
}
