//! The data that Identify returns. What independent hosts check of them, and what becomes of a host that
//! finds something missing, stands beside the fields.

use kvdrive_spec::fabrics::nqn_field;
use kvdrive_spec::feature::event;
use kvdrive_spec::identify::{
    self, BlockNamespace, CSI_KV, CSI_NVM, IDENTIFY_BYTES, IndependentNamespace, KvController, KvNamespace,
    ascii_padded, cns, namespace_descriptors,
};
use kvdrive_spec::property::VERSION_2_0;
use kvdrive_spec::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::controller::{ASYNC_REQUESTS_MAX, Controller, ERRORS_MAX, Kind};
use super::{Step, Subsystem};
use crate::buffer::Buffer;
use crate::namespace::Completion;

/// Bytes of a block in what CNS 00h says: KV has none, and 512 is the unit that hosts show sizes in.
const BLOCK_LOG2: u8 = 9;
/// CMIC: more than one port, more than one controller. Not set: with it Linux hides a namespace behind a
/// multipath device.
const MULTIPATH: u8 = 0;
/// NMIC bit 0: several controllers may have the namespace at a time.
const SHARED: u8 = 1;
/// CTRATT bit 0, host identifiers of 128 bits; bit 6, any command restarts the keep-alive timer.
const ATTRIBUTES: u32 = 1 | 1 << 6;
/// LPA bit 1, effects log; bit 2, offsets in Get Log Page.
const LOG_ATTRIBUTES: u8 = 0b110;
/// KAS: the timer's unit, 100 ms each. Linux insists on one.
const KEEP_ALIVE_100MS: u16 = 10;
/// SGLS bit 0, SGLs with any alignment; bit 20, offsets into the capsule. Linux insists on bit 0 or 1.
const SGL: u32 = 1 | 1 << 20;
/// ACL: Abort commands at a time, 0's based.
const ABORTS_Z: u8 = 3;
/// FRMW: slot 1 is read only, and there is one.
const FIRMWARE_SLOTS: u8 = 0b11;
/// Bit 1 of a combination of command sets: KV.
const KV_SET: u64 = 1 << CSI_KV;

impl Subsystem {
    /// Identify.
    pub(super) fn identify(&mut self, index: usize, sqe: &Sqe, data: &mut Buffer) -> Result<Step, Status> {
        let Some(page) = data.get_mut(..IDENTIFY_BYTES) else { return Err(Status::SGL_LENGTH_INVALID) };
        let controller = self.controllers[index].as_ref().ok_or(Status::INTERNAL)?;
        let (structure, csi) = (sqe.cdw10.get() as u8, (sqe.cdw11.get() >> 24) as u8);
        let nsid = sqe.nsid.get();
        page.fill(0);
        if controller.kind == Kind::Discovery && structure != cns::CONTROLLER {
            return Err(Status::INVALID_FIELD);
        }
        match (structure, csi) {
            (cns::CONTROLLER, _) => {
                page.copy_from_slice(self.identify_controller(index, controller).as_bytes());
            }
            (cns::ACTIVE_NAMESPACES, _) | (cns::CSI_ACTIVE_NAMESPACES, CSI_KV) => {
                self.active_namespaces(nsid, page)?;
            }
            (cns::NAMESPACE, _) => page.copy_from_slice(self.block_namespace(nsid)?.as_bytes()),
            (cns::NAMESPACE_DESCRIPTORS, _) => {
                self.identity(nsid)?;
                let id = self.identifier(u64::from(nsid)).to_be_bytes();
                page.copy_from_slice(&namespace_descriptors(CSI_KV, id, as_uuid(id)));
            }
            (cns::CSI_NAMESPACE, CSI_KV) => {
                self.identity(nsid)?;
                return Ok(Step::Identify(nsid));
            }
            // SPDK asks for command set 2 and, if that succeeds, wants its effects log too: refused below.
            (cns::CSI_CONTROLLER, CSI_KV) => {
                let mut answer = KvController::new_zeroed();
                answer.version.set(KvController::VERSION_1_3);
                page.copy_from_slice(answer.as_bytes());
            }
            // Of the NVM set there is nothing to say, and Linux asks.
            (cns::CSI_CONTROLLER, CSI_NVM) => {}
            (cns::INDEPENDENT_NAMESPACE, _) => {
                let attributes = self.identity(nsid)?.attributes;
                let mut answer = IndependentNamespace::new_zeroed();
                answer.sharing = SHARED;
                answer.attributes = attributes;
                answer.status = 1;
                page.copy_from_slice(answer.as_bytes());
            }
            (cns::COMMAND_SETS, _) => page[..8].copy_from_slice(&KV_SET.to_le_bytes()),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(Step::Done { dw0: 0, data_bytes: IDENTIFY_BYTES })
    }

    fn identity(&self, nsid: u32) -> Result<&KvNamespace, Status> {
        Ok(self.namespaces.get(&nsid).ok_or(Status::INVALID_NAMESPACE)?.identity())
    }

    fn active_namespaces(&self, after: u32, page: &mut [u8]) -> Result<(), Status> {
        if after >= u32::MAX - 1 {
            return Err(Status::INVALID_NAMESPACE);
        }
        let ids = self.namespaces.range(after + 1..).map(|(nsid, _)| nsid.to_le_bytes());
        page.chunks_exact_mut(4).zip(ids).for_each(|(entry, nsid)| entry.copy_from_slice(&nsid));
        Ok(())
    }

    /// SPDK and xNVMe take a namespace without this, or without capacity in it, for inactive.
    fn block_namespace(&self, nsid: u32) -> Result<BlockNamespace, Status> {
        let identity = self.identity(nsid)?;
        let blocks = identity.size_bytes.get().div_ceil(1 << BLOCK_LOG2).max(1);
        let mut answer = BlockNamespace::new_zeroed();
        answer.size_blocks.set(blocks);
        answer.capacity_blocks.set(blocks);
        answer.used_blocks.set(identity.used_bytes.get().div_ceil(1 << BLOCK_LOG2));
        answer.block_log2 = BLOCK_LOG2;
        Ok(answer)
    }

    fn identify_controller(&self, index: usize, controller: &Controller) -> identify::Controller {
        let options = &self.options;
        let mut answer = identify::Controller::new_zeroed();
        answer.serial = ascii_padded(&format!("{:016X}", self.identifier(0) as u64));
        answer.model = ascii_padded("kvdrive key-value SSD");
        answer.firmware = ascii_padded(env!("CARGO_PKG_VERSION"));
        answer.multipath = MULTIPATH;
        answer.transfer_max_log2 = (options.transfer_max_bytes / 4096).trailing_zeros() as u8;
        answer.controller_id.set(index as u16 + 1);
        answer.version.set(VERSION_2_0);
        answer.attributes.set(ATTRIBUTES);
        answer.async_requests_z = ASYNC_REQUESTS_MAX as u8 - 1;
        answer.log_attributes = LOG_ATTRIBUTES;
        answer.error_entries_z = ERRORS_MAX as u8 - 1;
        answer.keep_alive_100ms.set(KEEP_ALIVE_100MS);
        answer.sqe_log2 = 0x66;
        answer.cqe_log2 = 0x44;
        answer.commands_max.set(options.queue_entries_max.min(u32::from(u16::MAX)) as u16);
        answer.sgl.set(SGL);
        let entry_16b = (Sqe::BYTES / 16) as u32;
        answer.response_capsule_16b.set((Cqe::BYTES / 16) as u32);
        answer.descriptors_max = 1;
        match controller.kind {
            Kind::Io => {
                answer.controller_type = 1;
                answer.async_events.set(event::NAMESPACE_ATTRIBUTES);
                answer.aborts_z = ABORTS_Z;
                answer.firmware_slots = FIRMWARE_SLOTS;
                let namespaces = self.namespaces.keys().next_back().copied().unwrap_or(0);
                answer.namespaces.set(namespaces);
                answer.namespaces_max.set(namespaces);
                answer.command_capsule_16b.set(entry_16b + options.in_capsule_bytes / 16);
                answer.subsystem_nqn = nqn_field(&options.nqn).unwrap_or([0; 256]);
            }
            Kind::Discovery => {
                answer.controller_type = 2;
                answer.async_events.set(event::DISCOVERY_LOG);
                answer.command_capsule_16b.set(entry_16b);
                answer.subsystem_nqn = nqn_field(kvdrive_spec::fabrics::DISCOVERY_NQN).unwrap_or([0; 256]);
            }
        }
        answer
    }

    /// What a namespace said of itself, with what the subsystem knows better: which namespace it is, who shares
    /// it, and that no value may be longer than what one command can move.
    pub(super) fn amend_identity(&self, nsid: u32, completion: &mut Completion) {
        if !completion.status.is_success() {
            return;
        }
        let Ok((identity, _)) = KvNamespace::mut_from_prefix(&mut completion.data) else { return };
        identity.nguid = self.identifier(u64::from(nsid)).to_be_bytes();
        identity.sharing = SHARED;
        let limit_bytes = self.options.transfer_max_bytes;
        for format in &mut identity.formats {
            format.value_max_bytes.set(format.value_max_bytes.get().min(limit_bytes));
        }
    }
}

/// The same identifier as a UUID of version 8, whose bits are whoever's makes them (RFC 9562).
pub(super) fn as_uuid(mut id: [u8; 16]) -> [u8; 16] {
    id[6] = id[6] & 0x0F | 0x80;
    id[8] = id[8] & 0x3F | 0x80;
    id
}
