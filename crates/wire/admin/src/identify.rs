//! The data that Identify returns. What independent hosts check in them, and the effect of a missing value,
//! is documented at the fields.

use kvdrive_nvme::fabrics::nqn_field;
use kvdrive_nvme::identify::{
    self, CSI_KV, CSI_NVM, IDENTIFY_BYTES, IndependentNamespace, KvController, KvNamespaceAsBlocks,
    ascii_padded, cns, namespace_descriptors,
};
use kvdrive_nvme::opcode::admin;
use kvdrive_nvme::property::VERSION_2_0;
use kvdrive_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use crate::{Controller, ControllerKind, ERRORS_MAX, FIRMWARE, MODEL, Namespace};

/// Bytes of a block in CNS 00h of a namespace of pairs: KV has no blocks, and hosts show sizes in units of 512 B.
const BLOCK_LOG2: u8 = 9;
/// CMIC bit 0, more than one port; bit 1, more than one controller. Without the latter, a connected Linux
/// refuses a second connection by another address.
const PORTS_AND_CONTROLLERS: u8 = 0b11;
/// CTRATT bit 0, host identifiers of 128 bits; bit 6, any command restarts the keep-alive timer.
const ATTRIBUTES: u32 = 1 | 1 << 6;
/// OACS bit 1: Format NVM.
const FORMAT_SUPPORTED: u16 = 1 << 1;
/// VWC bits 2:1 = 10b: no cache is volatile, and a Flush names one namespace.
const NO_VOLATILE_CACHE: u8 = 0b10 << 1;
/// LPA bit 1, effects log; bit 2, offsets in Get Log Page.
const LOG_ATTRIBUTES: u8 = 0b110;
/// KAS: unit of the timer, in 100 ms. Linux requires one.
const KEEP_ALIVE_100MS: u16 = 10;
/// ACL: Abort commands at a time, 0's based.
const ABORTS_Z: u8 = 3;
/// FRMW: slot 1 is read only, and there is one.
const FIRMWARE_SLOTS: u8 = 0b11;

/// The answer to an Identify.
pub enum IdentifyAnswer {
    /// The data.
    Page(Vec<u8>),
    /// The namespace itself must answer: CNS 05h and 0Ah, and CNS 00h of blocks.
    OfNamespace(u32),
}

/// Answers Identify.
///
/// # Errors
/// The command asks for something that does not exist.
pub fn identify(of: &Controller<'_>, sqe: &Sqe) -> Result<IdentifyAnswer, Status> {
    let (structure, csi) = (sqe.cdw10.get() as u8, (sqe.cdw11.get() >> 24) as u8);
    let nsid = sqe.nsid.get();
    if of.kind == ControllerKind::Discovery && structure != cns::CONTROLLER {
        return Err(Status::INVALID_FIELD);
    }
    let page = match structure {
        cns::CONTROLLER => controller(of).as_bytes().to_vec(),
        cns::ACTIVE_NAMESPACES => active(of, nsid, |_| true)?,
        cns::CSI_ACTIVE_NAMESPACES if of.has(csi) => active(of, nsid, |is| is.command_set == csi)?,
        cns::NAMESPACE => {
            let namespace = of.namespace(nsid)?;
            if namespace.command_set == CSI_NVM {
                return Ok(IdentifyAnswer::OfNamespace(nsid));
            }
            as_blocks(namespace).as_bytes().to_vec()
        }
        cns::NAMESPACE_DESCRIPTORS => {
            let namespace = of.namespace(nsid)?;
            namespace_descriptors(namespace.command_set, namespace.nguid, namespace.uuid).to_vec()
        }
        cns::CSI_NAMESPACE => {
            let is_of_set = of.namespace(nsid)?.command_set == csi;
            return if is_of_set {
                Ok(IdentifyAnswer::OfNamespace(nsid))
            } else {
                Err(Status::INVALID_FIELD)
            };
        }
        cns::CSI_FORMAT => {
            let is_one = csi == CSI_KV && sqe.cdw11.get() as u16 == 0;
            let any = of.namespaces.iter().find(|is| is.command_set == csi).filter(|_| is_one);
            return any.map(|is| IdentifyAnswer::OfNamespace(is.nsid)).ok_or(Status::INVALID_FIELD);
        }
        // SPDK asks for command set 2 and, if that succeeds, also for its effects log: refused below.
        cns::CSI_CONTROLLER if csi == CSI_KV && of.has(CSI_KV) => {
            let mut answer = KvController::new_zeroed();
            answer.version.set(KvController::VERSION_1_3);
            answer.as_bytes().to_vec()
        }
        // There is nothing to report for the NVM set, but Linux asks.
        cns::CSI_CONTROLLER if csi == CSI_NVM => vec![0; IDENTIFY_BYTES],
        cns::INDEPENDENT_NAMESPACE => independent(of.namespace(nsid)?).as_bytes().to_vec(),
        cns::COMMAND_SETS => {
            let sets = of.namespaces.iter().fold(0, |sets, is| sets | 1u64 << is.command_set);
            let mut page = vec![0; IDENTIFY_BYTES];
            page[..8].copy_from_slice(&sets.to_le_bytes());
            page
        }
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(IdentifyAnswer::Page(page))
}

impl Controller<'_> {
    /// Does it have namespaces of this command set? A controller without any may get some of pairs.
    pub(crate) fn has(&self, csi: u8) -> bool {
        let mut namespaces = self.namespaces.iter();
        namespaces.any(|is| is.command_set == csi) || self.namespaces.is_empty() && csi == CSI_KV
    }
}

fn active(of: &Controller<'_>, after: u32, is_meant: impl Fn(&Namespace) -> bool) -> Result<Vec<u8>, Status> {
    if after >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    let mut page = vec![0; IDENTIFY_BYTES];
    let listed = of.namespaces.iter().filter(|is| is.nsid > after && is_meant(is));
    page.chunks_exact_mut(4).zip(listed).for_each(|(to, is)| to.copy_from_slice(&is.nsid.to_le_bytes()));
    Ok(page)
}

/// SPDK and xNVMe consider a namespace of pairs inactive without this structure, or without capacity in it.
fn as_blocks(namespace: &Namespace) -> KvNamespaceAsBlocks {
    let blocks = namespace.size_bytes.div_ceil(1 << BLOCK_LOG2).max(1);
    let mut answer = KvNamespaceAsBlocks::new_zeroed();
    answer.size_blocks.set(blocks);
    answer.capacity_blocks.set(blocks);
    answer.used_blocks.set(namespace.used_bytes.div_ceil(1 << BLOCK_LOG2));
    answer.block_log2 = BLOCK_LOG2;
    answer
}

fn independent(namespace: &Namespace) -> IndependentNamespace {
    let mut answer = IndependentNamespace::new_zeroed();
    answer.sharing = namespace.sharing;
    answer.attributes = namespace.attributes;
    answer.status = 1;
    answer
}

fn controller(of: &Controller<'_>) -> identify::Controller {
    let mut answer = identify::Controller::new_zeroed();
    answer.serial = ascii_padded(of.serial);
    answer.model = ascii_padded(MODEL);
    answer.firmware = ascii_padded(FIRMWARE);
    // Any number of hosts may come over a network, or by functions that share a namespace; a local drive has one.
    let has_others = of.capsules.is_some() || of.namespaces.iter().any(|namespace| namespace.sharing != 0);
    answer.multipath = if has_others { PORTS_AND_CONTROLLERS } else { 0 };
    answer.transfer_max_log2 = of.transfer_max_log2;
    answer.controller_id.set(of.id);
    answer.version.set(VERSION_2_0);
    answer.async_events.set(of.async_events);
    answer.async_requests_z = of.async_requests.saturating_sub(1);
    answer.log_attributes = LOG_ATTRIBUTES;
    answer.error_entries_z = ERRORS_MAX as u8 - 1;
    answer.sqe_log2 = 0x66;
    answer.cqe_log2 = 0x44;
    answer.commands_max.set(of.commands_max);
    answer.sgl.set(of.sgl);
    if of.admin_commands.contains(&admin::KEEP_ALIVE) {
        answer.attributes.set(ATTRIBUTES);
        answer.keep_alive_100ms.set(KEEP_ALIVE_100MS);
    }
    answer.subsystem_nqn = of.nqn.and_then(nqn_field).unwrap_or([0; 256]);
    answer.controller_type = match of.kind {
        ControllerKind::Io => 1,
        ControllerKind::Discovery => 2,
    };
    if of.kind == ControllerKind::Io {
        answer.aborts_z = ABORTS_Z;
        answer.firmware_slots = FIRMWARE_SLOTS;
        answer.volatile_cache = NO_VOLATILE_CACHE;
        let formats = of.admin_commands.contains(&admin::FORMAT);
        answer.admin_commands.set(if formats { FORMAT_SUPPORTED } else { 0 });
        answer.optional_commands.set(of.optional_commands);
        let last = of.namespaces.last().map_or(0, |namespace| namespace.nsid);
        answer.namespaces.set(last);
        answer.namespaces_max.set(last);
    }
    if let Some(capsules) = of.capsules {
        answer.command_capsule_16b.set(Sqe::BYTES as u32 / 16 + capsules.data_bytes / 16);
        answer.response_capsule_16b.set(Cqe::BYTES as u32 / 16);
        answer.descriptors_max = 1;
    }
    answer
}
