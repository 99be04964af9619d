//! 03h: the revision of the firmware.

use kvdrive_nvme::Status;
use kvdrive_nvme::identify::ascii_padded;
use kvdrive_nvme::log::FirmwareSlots;
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, LogAnswer};
use crate::FIRMWARE;

pub(super) fn page(_: &Asked<'_>) -> Result<LogAnswer, Status> {
    let mut answer = FirmwareSlots::new_zeroed();
    answer.active = 1;
    answer.revisions[0] = ascii_padded(FIRMWARE);
    Ok(LogAnswer::Page(answer.as_bytes().to_vec()))
}
