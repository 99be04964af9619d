//! The data that Get Log Page returns.

use kvdrive_spec::discovery::{DiscoveryEntry, DiscoveryHeader};
use kvdrive_spec::fabrics::{ANY_CONTROLLER, nqn_field};
use kvdrive_spec::identify::{CSI_KV, CSI_NVM, ascii_padded};
use kvdrive_spec::log::{
    CHANGED_NAMESPACES_BYTES, Effects, ErrorEntry, FirmwareSlots, Health, LogRequest, lid,
};
use kvdrive_spec::opcode::{self, Direction, admin};
use kvdrive_spec::{Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::connect::ADMIN_ENTRIES_MAX;
use super::controller::{CHANGED_MAX, Controller, ERRORS_MAX, Kind};
use super::{Step, Subsystem};
use crate::buffer::Buffer;

/// Admin commands there are.
const ADMIN: [u8; 7] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNC_EVENT_REQUEST,
    admin::KEEP_ALIVE,
];
/// I/O commands that change what is stored, besides those that bring data.
const CHANGING: [u8; 3] = [opcode::DELETE, opcode::WRITE, opcode::TRANSFER];
/// I/O commands that need what no network has: windows into the drive, a queue in memory, whole pages there.
pub(crate) const NOT_OVER_NETWORKS: [u8; 3] = [opcode::CXL_STORE, opcode::EXPRESS, opcode::HYBRID];
/// Nothing here is ever warm; hosts that show a temperature show this, 20 degrees Celsius.
const TEMPERATURE_K: u16 = 293;

impl Subsystem {
    /// Get Log Page.
    pub(super) fn get_log_page(
        &mut self,
        index: usize,
        sqe: &Sqe,
        data: &mut Buffer,
    ) -> Result<Step, Status> {
        let request = LogRequest::of(sqe);
        let controller = self.controllers[index].as_ref().ok_or(Status::INTERNAL)?;
        let page = match (controller.kind, request.page) {
            (_, lid::ERRORS) => errors(controller),
            (Kind::Io, lid::HEALTH) => self.health().as_bytes().to_vec(),
            (Kind::Io, lid::FIRMWARE) => firmware().as_bytes().to_vec(),
            (Kind::Io, lid::CHANGED_NAMESPACES) => changed_namespaces(controller),
            (Kind::Io, lid::EFFECTS) => effects(request.command_set)?.as_bytes().to_vec(),
            (Kind::Discovery, lid::DISCOVERY) => self.discovery(controller),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let wanted = usize::try_from(request.bytes).map_err(|_| Status::INVALID_FIELD)?;
        let to = data.get_mut(..wanted).ok_or(Status::SGL_LENGTH_INVALID)?;
        let at = usize::try_from(request.offset).map_err(|_| Status::INVALID_FIELD)?;
        if !at.is_multiple_of(4) || at > page.len() {
            return Err(Status::INVALID_FIELD);
        }
        let there = (page.len() - at).min(wanted);
        to[..there].copy_from_slice(&page[at..at + there]);
        to[there..].fill(0);
        if !request.retain_event
            && let Some(controller) = &mut self.controllers[index]
        {
            controller.note_read(request.page);
            if request.page == lid::CHANGED_NAMESPACES {
                controller.changed_namespaces.clear();
            }
        }
        Ok(Step::Done { dw0: 0, data_bytes: wanted })
    }

    fn health(&self) -> Health {
        let served = &self.served;
        let mut answer = Health::new_zeroed();
        answer.temperature_k.set(TEMPERATURE_K);
        answer.spare_percent = 100;
        answer.read_512k[0].set(served.read_bytes.div_ceil(512_000));
        answer.written_512k[0].set(served.written_bytes.div_ceil(512_000));
        let count = |direction| -> u64 {
            let of = |row: &&(u8, &str, Direction)| row.2 == direction;
            let rows = opcode::IO_TABLE.iter().filter(of);
            rows.map(|row| served.io_commands[usize::from(row.0)]).sum()
        };
        answer.read_commands[0].set(count(Direction::ToHost));
        answer.write_commands[0].set(count(Direction::ToDrive));
        answer
    }

    /// This subsystem, at the address by which the host came.
    fn discovery(&self, controller: &Controller) -> Vec<u8> {
        let mut header = DiscoveryHeader::new_zeroed();
        header.generation.set(self.discovery_generation);
        header.entries.set(1);
        let at = &controller.reached_at;
        let mut entry = DiscoveryEntry::empty();
        entry.transport = at.transport;
        entry.address_family = at.family;
        entry.subsystem_type = DiscoveryEntry::NVM_SUBSYSTEM;
        entry.port_id.set(1);
        entry.controller_id.set(ANY_CONTROLLER);
        entry.admin_entries_max.set(ADMIN_ENTRIES_MAX as u16);
        entry.service = ascii_padded(&at.service);
        entry.address = ascii_padded(&at.address);
        entry.subsystem_nqn = nqn_field(&self.options.nqn).unwrap_or([0; 256]);
        [header.as_bytes(), entry.as_bytes()].concat()
    }
}

fn errors(controller: &Controller) -> Vec<u8> {
    let mut page = vec![0; ERRORS_MAX * size_of::<ErrorEntry>()];
    for (to, failure) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(&controller.failures) {
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

fn firmware() -> FirmwareSlots {
    let mut answer = FirmwareSlots::new_zeroed();
    answer.active = 1;
    answer.revisions[0] = ascii_padded(env!("CARGO_PKG_VERSION"));
    answer
}

fn changed_namespaces(controller: &Controller) -> Vec<u8> {
    let mut page = vec![0; CHANGED_NAMESPACES_BYTES];
    let changed = &controller.changed_namespaces;
    if changed.len() > CHANGED_MAX {
        page[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        return page;
    }
    page.chunks_exact_mut(4)
        .zip(changed)
        .for_each(|(entry, nsid)| entry.copy_from_slice(&nsid.to_le_bytes()));
    page
}

/// Linux makes no device of a KV namespace without this page for command set 1, and asks for 0 before.
fn effects(command_set: u8) -> Result<Effects, Status> {
    let mut answer = Effects::new_zeroed();
    ADMIN.iter().for_each(|opcode| answer.admin[usize::from(*opcode)].set(Effects::SUPPORTED));
    match command_set {
        CSI_NVM => {}
        CSI_KV => {
            for (opcode, _, direction) in opcode::IO_TABLE {
                if NOT_OVER_NETWORKS.contains(&opcode) {
                    continue;
                }
                let changes = direction == Direction::ToDrive || CHANGING.contains(&opcode);
                let changes = if changes { Effects::CHANGES_CONTENT } else { 0 };
                answer.io[usize::from(opcode)].set(Effects::SUPPORTED | changes);
            }
        }
        _ => return Err(Status::INVALID_FIELD),
    }
    Ok(answer)
}
