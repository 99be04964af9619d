//! 01h: the controller.

use kvdrive_nvme::fabrics::nqn_field;
use kvdrive_nvme::identify::{self, ascii_padded};
use kvdrive_nvme::opcode::admin;
use kvdrive_nvme::property::VERSION_2_0;
use kvdrive_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::{Asked, IdentifyAnswer};
use crate::{ControllerKind, ERRORS_MAX, FIRMWARE, MODEL};

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

pub(super) fn page(asked: &Asked<'_>) -> Result<IdentifyAnswer, Status> {
    let of = asked.of;
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
    Ok(IdentifyAnswer::Page(answer.as_bytes().to_vec()))
}
