//! Admin commands: what the drive says of itself. The log page of write protection; Identify for the controller, the KV namespace, the KV
//! controller, the active namespaces and the namespace's descriptors; everything else of the admin set is
//! refused.
//!
//! The fields answer what initiators check before they touch a KV namespace; the rest is zero.

use kvdrive_content::Region;
use kvdrive_link::Fetched;
use kvdrive_spec::identify::{
    CSI_KV, IDENTIFY_BYTES, KvController, KvFormat, KvNamespace, ascii_padded, cns, namespace_descriptors,
};
use kvdrive_spec::{Key, Sqe, Status, identify, opcode, write_protection};
use zerocopy::{FromZeros, IntoBytes};

use super::Controller;
use crate::engines::Engine;
use crate::firmware::Role;
use crate::requests::NSID;

/// NVMe base specification version of the answers: 2.0.
const VERSION: u32 = 0x0002_0000;
/// SGLs for I/O commands: supported, any alignment and granularity (SGLS bits 1:0 = 01b).
const SGL_SUPPORTED: u32 = 1;

impl<E: Engine> Controller<E> {
    /// Handles one command of the admin queue.
    pub(crate) async fn admin(&self, fetched: &Fetched) -> Result<(u32, u32), Status> {
        self.cores.of(Role::Dispatch).run_noted(self.costs.decode_other_ns, "controller", "decode").await;
        let sqe = &fetched.sqe;
        match sqe.opcode {
            opcode::admin::GET_LOG_PAGE => return self.log_page(sqe).await,
            opcode::admin::IDENTIFY => {}
            _ => return Err(Status::INVALID_OPCODE),
        }
        let (structure, csi) = (sqe.cdw10.get() as u8, (sqe.cdw11.get() >> 24) as u8);
        let answer = self.identify(structure, csi, sqe.nsid.get())?;
        let bytes = IDENTIFY_BYTES as u32;
        crate::requests::send(self, sqe, bytes, &Region::from_bytes(answer), bytes).await?;
        Ok((0, 0))
    }

    async fn log_page(&self, sqe: &Sqe) -> Result<(u32, u32), Status> {
        if sqe.cdw10.get() as u8 != write_protection::LOG_PAGE {
            return Err(Status::INVALID_LOG_PAGE);
        }
        // Dwords, 0's based.
        let asked_bytes = ((sqe.cdw10.get() >> 16) + 1) * 4;
        let reason = self.journal.write_failure().map(|failure| failure.to_string());
        let bytes = asked_bytes.min(write_protection::BYTES as u32);
        let answer = write_protection::encode(reason.as_deref());
        crate::requests::send(self, sqe, bytes, &Region::from_bytes(answer.to_vec()), bytes).await?;
        Ok((0, 0))
    }

    fn identify(&self, structure: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        match (structure, csi) {
            (cns::CONTROLLER, _) => Ok(self.identify_controller()),
            (cns::ACTIVE_NAMESPACES, _) => Ok(active_namespaces(nsid)),
            (cns::CSI_CONTROLLER, CSI_KV) => {
                let mut answer = KvController::new_zeroed();
                answer.version.set(KvController::VERSION_1_3);
                Ok(answer.as_bytes().to_vec())
            }
            (cns::NAMESPACE_DESCRIPTORS | cns::CSI_NAMESPACE, _) if nsid != NSID => {
                Err(Status::INVALID_NAMESPACE)
            }
            (cns::NAMESPACE_DESCRIPTORS, _) => {
                Ok(namespace_descriptors(CSI_KV, self.nguid(), self.nguid()).to_vec())
            }
            (cns::CSI_NAMESPACE, CSI_KV) => Ok(self.identify_kv_namespace()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn identify_controller(&self) -> Vec<u8> {
        let mut answer = identify::Controller::new_zeroed();
        answer.serial = ascii_padded("KVDRIVE-1");
        answer.model = ascii_padded("kvdrive key-value SSD");
        answer.firmware = ascii_padded(env!("CARGO_PKG_VERSION"));
        answer.version.set(VERSION);
        answer.controller_id.set(1);
        answer.controller_type = 1;
        answer.sqe_log2 = 0x66;
        answer.cqe_log2 = 0x44;
        answer.namespaces.set(1);
        answer.sgl.set(SGL_SUPPORTED);
        answer.as_bytes().to_vec()
    }

    fn identify_kv_namespace(&self) -> Vec<u8> {
        let used = self.engine.utilization();
        let mut answer = KvNamespace::new_zeroed();
        answer.size_bytes.set(used.capacity_bytes);
        answer.used_bytes.set(used.live_bytes.min(used.capacity_bytes));
        answer.nguid = self.nguid();
        let format: &mut KvFormat = &mut answer.formats[0];
        format.key_max_bytes.set(Key::MAX_LEN as u16);
        format.value_max_bytes.set(self.max_value_bytes);
        answer.as_bytes().to_vec()
    }

    /// A fixed identifier: the drive has one namespace, and only one drive is behind a link.
    fn nguid(&self) -> [u8; 16] {
        *b"kvdrive-kv-ns-01"
    }
}

fn active_namespaces(after: u32) -> Vec<u8> {
    let mut answer = vec![0; IDENTIFY_BYTES];
    if after < NSID {
        answer[..4].copy_from_slice(&NSID.to_le_bytes());
    }
    answer
}
