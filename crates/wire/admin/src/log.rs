//! The data that Get Log Page returns, and the state that a controller keeps for it. Content that only other
//! crates know (health of flash, discovery, write protection) is passed in.

use std::collections::{BTreeSet, VecDeque};

use kvdrive_nvme::identify::{CSI_KV, CSI_NVM, ascii_padded};
use kvdrive_nvme::log::{
    CHANGED_NAMESPACES_BYTES, Effects, ErrorEntry, FirmwareSlots, Health, LogRequest, lid,
};
use kvdrive_nvme::opcode::{self, Direction, admin};
use kvdrive_nvme::{Cqe, Status, nvm};
use zerocopy::{FromZeros, IntoBytes};

use crate::{CHANGED_MAX, Controller, ControllerKind, ERRORS_MAX, FIRMWARE};

/// Admin commands that every controller has.
const ADMIN: [u8; 4] = [admin::GET_LOG_PAGE, admin::IDENTIFY, admin::SET_FEATURES, admin::GET_FEATURES];
/// I/O commands that change stored content without a data transfer to the drive: they have no value, or carry it
/// themselves. Commands with a transfer to the drive change content, too.
const CHANGING: [u8; 3] = [opcode::DELETE, opcode::WRITE, opcode::TRANSFER];
/// Reported temperature: the drive has no sensor, and hosts that show a temperature show 20 degrees Celsius.
pub const TEMPERATURE_K: u16 = 293;

/// Most bytes of a log page that one command reads; longer pages are read in parts.
pub const ASKED_MAX_BYTES: u64 = 1 << 20;

/// A failed command of a host.
#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u64,
    queue: u16,
    cid: u16,
    status: Status,
}

/// State of one controller for its log pages.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// Newest first.
    failures: VecDeque<Failure>,
    errors: u64,
    /// Namespaces that have changed since the host last read the list.
    pub changed_namespaces: BTreeSet<u32>,
}

impl Logs {
    /// Number of failed commands of the host.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Adds a failure to the error log.
    pub fn note_error(&mut self, queue: u16, cid: u16, status: Status) {
        self.errors += 1;
        self.failures.push_front(Failure { count: self.errors, queue, cid, status });
        self.failures.truncate(ERRORS_MAX);
    }

    /// The whole page that `request` names; `health` is called only for the health page.
    ///
    /// # Errors
    /// The page does not exist.
    pub fn page(
        &self,
        of: &Controller<'_>,
        request: &LogRequest,
        health: impl FnOnce() -> Health,
    ) -> Result<Vec<u8>, Status> {
        match (of.kind, request.page) {
            (_, lid::ERRORS) => Ok(self.error_page()),
            (ControllerKind::Io, lid::HEALTH) => Ok(health().as_bytes().to_vec()),
            (ControllerKind::Io, lid::FIRMWARE) => Ok(firmware().as_bytes().to_vec()),
            (ControllerKind::Io, lid::CHANGED_NAMESPACES) => Ok(self.changed_page()),
            (ControllerKind::Io, lid::EFFECTS) => Ok(effects(of, request.command_set)?.as_bytes().to_vec()),
            _ => Err(Status::INVALID_LOG_PAGE),
        }
    }

    fn error_page(&self) -> Vec<u8> {
        let mut page = vec![0; ERRORS_MAX * size_of::<ErrorEntry>()];
        for (to, failure) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(&self.failures) {
            let mut entry = ErrorEntry::new_zeroed();
            entry.count.set(failure.count);
            entry.queue_id.set(failure.queue);
            entry.cid.set(failure.cid);
            entry.status.set(failure.status_field());
            entry.parameter_at.set(u16::MAX);
            to.copy_from_slice(entry.as_bytes());
        }
        page
    }

    fn changed_page(&self) -> Vec<u8> {
        let mut page = vec![0; CHANGED_NAMESPACES_BYTES];
        if self.changed_namespaces.len() > CHANGED_MAX {
            page[..4].copy_from_slice(&u32::MAX.to_le_bytes());
            return page;
        }
        let changed = self.changed_namespaces.iter();
        page.chunks_exact_mut(4).zip(changed).for_each(|(to, nsid)| to.copy_from_slice(&nsid.to_le_bytes()));
        page
    }
}

impl Failure {
    /// The status in the format of a completion entry.
    fn status_field(&self) -> u16 {
        let bytes = *Cqe::new(self.cid, self.status).as_bytes();
        u16::from_le_bytes([bytes[14], bytes[15]])
    }
}

/// As many bytes as `request` asks for, from its offset on; bytes after the end of `page` are zeros.
///
/// # Errors
/// It begins after the end or not at a multiple of 4, or asks for more than [`ASKED_MAX_BYTES`].
pub fn part(page: &[u8], request: &LogRequest) -> Result<Vec<u8>, Status> {
    let at = usize::try_from(request.offset).map_err(|_| Status::INVALID_FIELD)?;
    if !at.is_multiple_of(4) || at > page.len() || request.bytes > ASKED_MAX_BYTES {
        return Err(Status::INVALID_FIELD);
    }
    let bytes = request.bytes as usize;
    let mut part = page[at..page.len().min(at + bytes)].to_vec();
    part.resize(bytes, 0);
    Ok(part)
}

fn firmware() -> FirmwareSlots {
    let mut answer = FirmwareSlots::new_zeroed();
    answer.active = 1;
    answer.revisions[0] = ascii_padded(FIRMWARE);
    answer
}

/// Linux creates no device for a KV namespace without this page for command set 1, and first asks for set 0.
fn effects(of: &Controller<'_>, command_set: u8) -> Result<Effects, Status> {
    let mut answer = Effects::new_zeroed();
    let admin = ADMIN.iter().chain(of.admin_commands);
    admin.for_each(|opcode| answer.admin[usize::from(*opcode)].set(Effects::SUPPORTED));
    let mut note = |opcode: u8, changes: bool| {
        let changes = if changes { Effects::CHANGES_CONTENT } else { 0 };
        answer.io[usize::from(opcode)].set(Effects::SUPPORTED | changes);
    };
    match command_set {
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
    Ok(answer)
}
