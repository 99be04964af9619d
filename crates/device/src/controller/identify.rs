//! Admin commands: what the drive says of itself. The log pages of health (SMART) and of write protection;
//! Identify for the controller, the active namespaces, the namespace and its descriptors, and both as its
//! command set has them; everything else of the admin set is refused.
//!
//! The fields answer what initiators check before they touch a namespace; the rest is zero.

use kvdrive_content::Region;
use kvdrive_flash::FlashPort;
use kvdrive_link::{Port, Request};
use kvdrive_spec::identify::{CSI_NVM, IDENTIFY_BYTES, ascii_padded, cns, namespace_descriptors};
use kvdrive_spec::log::{Health, lid};
use kvdrive_spec::{Status, identify, nvm, opcode, write_protection};
use zerocopy::{FromZeros, IntoBytes};

use super::Controller;
use crate::namespaces::{Answer, NSID};
use crate::requests::send;

/// NVMe base specification version of the answers: 2.0.
const VERSION: u32 = 0x0002_0000;
/// With less than this part of its spare blocks left a drive warns.
const SPARE_THRESHOLD_PERCENT: u8 = 10;
/// SGLs for I/O commands: supported, any alignment and granularity (SGLS bits 1:0 = 01b).
const SGL_SUPPORTED: u32 = 1;

impl<P: Port> Controller<P> {
    /// Handles one command of the admin queue.
    pub(crate) fn admin(&self, request: &dyn Request) -> Answer {
        let sqe = request.sqe();
        match sqe.opcode {
            opcode::admin::GET_LOG_PAGE => return self.log_page(request),
            opcode::admin::IDENTIFY => {}
            _ => return Err(Status::INVALID_OPCODE),
        }
        let (structure, csi) = (sqe.cdw10.get() as u8, (sqe.cdw11.get() >> 24) as u8);
        let answer = self.identify(structure, csi, sqe.nsid.get())?;
        let bytes = IDENTIFY_BYTES as u32;
        send(request, bytes, &Region::from_bytes(answer), bytes)?;
        Ok((0, 0))
    }

    fn log_page(&self, request: &dyn Request) -> Answer {
        let sqe = request.sqe();
        let page = match sqe.cdw10.get() as u8 {
            lid::HEALTH => self.health().as_bytes().to_vec(),
            write_protection::LOG_PAGE => {
                let reason = self.journal.write_failure().map(|failure| failure.to_string());
                write_protection::encode(reason.as_deref()).to_vec()
            }
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        // Dwords, 0's based.
        let asked_bytes = ((sqe.cdw10.get() >> 16) + 1) * 4;
        let bytes = asked_bytes.min(page.len() as u32);
        send(request, bytes, &Region::from_bytes(page), bytes)?;
        Ok((0, 0))
    }

    /// How the drive holds out. What hosts have read and written is not counted here.
    fn health(&self) -> Health {
        let flash = self.flash.get().map(FlashPort::health).unwrap_or_default();
        let mut answer = Health::new_zeroed();
        answer.spare_threshold_percent = SPARE_THRESHOLD_PERCENT;
        answer.spare_percent = match flash.spare_blocks {
            (0, _) if flash.is_read_only => 0,
            (0, _) => 100,
            (all, left) => (u64::from(left) * 100 / u64::from(all)) as u8,
        };
        if answer.spare_percent < SPARE_THRESHOLD_PERCENT {
            answer.warnings |= Health::FEW_SPARES;
        }
        if self.journal.is_protected() {
            answer.warnings |= Health::READ_ONLY;
        }
        answer.media_errors[0].set(flash.read_errors);
        answer
    }

    fn identify(&self, structure: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let command_set = self.namespace.command_set();
        // The drive has one namespace, which has its identity.
        let nguid = self.identity.to_bytes();
        let of_namespace = || self.namespace.identify(structure, nguid).ok_or(Status::INVALID_FIELD);
        match structure {
            cns::CONTROLLER => Ok(self.identify_controller()),
            cns::ACTIVE_NAMESPACES => Ok(active_namespaces(nsid)),
            cns::CSI_CONTROLLER if csi == command_set => of_namespace(),
            cns::NAMESPACE | cns::NAMESPACE_DESCRIPTORS | cns::CSI_NAMESPACE if nsid != NSID => {
                Err(Status::INVALID_NAMESPACE)
            }
            cns::NAMESPACE_DESCRIPTORS => Ok(namespace_descriptors(command_set, nguid, nguid).to_vec()),
            cns::NAMESPACE if command_set == CSI_NVM => of_namespace(),
            cns::CSI_NAMESPACE if csi == command_set => of_namespace(),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn identify_controller(&self) -> Vec<u8> {
        let mut answer = identify::Controller::new_zeroed();
        answer.serial = ascii_padded(&self.identity.serial());
        answer.model = ascii_padded("kvdrive key-value SSD");
        answer.firmware = ascii_padded(env!("CARGO_PKG_VERSION"));
        answer.version.set(VERSION);
        answer.controller_id.set(1);
        answer.controller_type = 1;
        answer.sqe_log2 = 0x66;
        answer.cqe_log2 = 0x44;
        answer.namespaces.set(1);
        answer.sgl.set(SGL_SUPPORTED);
        answer.transfer_max_log2 = self.namespace.transfer_max_log2();
        if self.namespace.command_set() == CSI_NVM {
            answer.optional_commands.set(nvm::OPTIONAL_COMMANDS);
        }
        answer.as_bytes().to_vec()
    }
}

fn active_namespaces(after: u32) -> Vec<u8> {
    let mut answer = vec![0; IDENTIFY_BYTES];
    if after < NSID {
        answer[..4].copy_from_slice(&NSID.to_le_bytes());
    }
    answer
}
