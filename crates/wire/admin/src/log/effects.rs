//! 05h: the commands of a command set, and their effects. Linux creates no device for a KV namespace without this page for
//! command set 1, and first asks for set 0.

use kvdrive_nvme::identify::{CSI_KV, CSI_NVM};
use kvdrive_nvme::log::Effects;
use kvdrive_nvme::opcode::{self, Direction, admin};
use kvdrive_nvme::{Status, nvm};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, LogAnswer};

/// Admin commands that every controller has.
const ADMIN: [u8; 4] = [admin::GET_LOG_PAGE, admin::IDENTIFY, admin::SET_FEATURES, admin::GET_FEATURES];
/// I/O commands that change stored content without a data transfer to the drive: they have no value, or carry it
/// themselves. Commands with a transfer to the drive change content, too.
const CHANGING: [u8; 3] = [opcode::DELETE, opcode::WRITE, opcode::TRANSFER];

pub(super) fn page(asked: &Asked<'_>) -> Result<LogAnswer, Status> {
    let of = asked.of;
    let mut answer = Effects::new_zeroed();
    let admin = ADMIN.iter().chain(of.admin_commands);
    admin.for_each(|opcode| answer.admin[usize::from(*opcode)].set(Effects::SUPPORTED));
    let mut note = |opcode: u8, changes: bool| {
        let changes = if changes { Effects::CHANGES_CONTENT } else { 0 };
        answer.io[usize::from(opcode)].set(Effects::SUPPORTED | changes);
    };
    match asked.request.command_set {
        CSI_NVM if of.namespaces.iter().any(|is| is.command_set == CSI_NVM) => {
            nvm::TABLE.iter().for_each(|(opcode, changes)| note(*opcode, *changes));
        }
        CSI_NVM => {}
        CSI_KV if of.has(CSI_KV) => {
            let carried = opcode::IO_TABLE.iter().filter(|row| !of.refused.contains(&row.0));
            carried.for_each(|(opcode, _, direction)| {
                note(*opcode, *direction == Direction::ToDrive || CHANGING.contains(opcode));
            });
        }
        _ => return Err(Status::INVALID_FIELD),
    }
    Ok(LogAnswer::Page(answer.as_bytes().to_vec()))
}
