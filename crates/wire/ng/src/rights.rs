//! What a program without CAP_SYS_ADMIN may ask of a drive whose node it could open, by the rules of Linux 6.2 and
//! later. A node counts every program as privileged unless its row says otherwise.

use std::time::Duration;

use kvdrive_host::tcp::Data;
use kvdrive_nvme::Sqe;
use kvdrive_nvme::log::{Effects, LogRequest, lid};
use kvdrive_nvme::opcode::{FABRICS, admin};
use zerocopy::FromBytes;

use crate::abi::Passthrough;
use crate::drive::{Drive, QueueKind};

/// Identify structures that every user may read.
const IDENTIFY: [u32; 5] = [0x00, 0x01, 0x05, 0x06, 0x08];
/// I/O opcodes from here on are of vendors.
const VENDOR_OPCODES: u8 = 0x80;
/// Bits that the effects log may have for an opcode that every user may use: it is supported, changes content, is
/// selected by a UUID (bit 19), and its scope (bits 31:20).
const HARMLESS: u32 = Effects::SUPPORTED | Effects::CHANGES_CONTENT | 0xFFF8_0000;

/// May it?
pub(crate) fn may(set: QueueKind, command: &Passthrough, is_writable: bool, drive: &Drive) -> bool {
    match set {
        QueueKind::Admin => {
            command.opcode == admin::IDENTIFY && IDENTIFY.contains(&(command.cdw10_15[0].get() & 0xFF))
        }
        QueueKind::Io if command.opcode >= VENDOR_OPCODES || command.opcode == FABRICS => false,
        QueueKind::Io => {
            let Some(effects) = effects(drive, command.opcode) else { return false };
            let writes = command.is_to_drive() || effects & Effects::CHANGES_CONTENT != 0;
            effects & Effects::SUPPORTED != 0 && effects & !HARMLESS == 0 && (is_writable || !writes)
        }
    }
}

/// The effects that the drive reports for an I/O opcode of its command set.
fn effects(drive: &Drive, opcode: u8) -> Option<u32> {
    let command_set = drive.session().ok()?.facts.csi;
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0, u32::MAX);
    let page = lid::EFFECTS;
    let bytes = size_of::<Effects>() as u32;
    LogRequest { page, retain_event: true, bytes: bytes.into(), offset: 0, command_set }.put(&mut sqe);
    let log = drive.command(QueueKind::Admin, sqe, Data::In(bytes), Duration::from_secs(60)).ok()?;
    let effects = Effects::read_from_bytes(&log.data).ok()?;
    log.cqe.status().is_success().then(|| effects.io[usize::from(opcode)].get())
}
