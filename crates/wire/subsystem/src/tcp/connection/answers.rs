//! Outgoing units: responses, data, and the reason why a connection ends.

use std::mem::take;

use kvdrive_nvme::fabrics::NO_FLOW_CONTROL_HEAD;
use kvdrive_nvme::tcp::{self, DIGEST_BYTES, Header, digests, flag, kind};
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Cqe, Status};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

use super::{Connection, ConnectionState, Fatal, NO_CID, SlotStep};
use crate::buffer::Buffer;
use crate::namespace::Completion;
use crate::shared::Core;
use crate::subsystem::transfer::Transfer;
use crate::tcp::digest::{self, DataDigest, Reading};

/// The first bytes of a TLS handshake record, of any version.
const TLS_RECORD: [u8; 2] = [0x16, 0x03];

impl Connection {
    /// A command of this connection has completed.
    pub fn complete(&mut self, core: &mut Core, completion: Completion) {
        let Completion { tag, status, dw0, dw1, data_bytes, fault, .. } = completion;
        let Some(command) = self.slots.get(usize::from(tag.slot)) else { return };
        if command.step != SlotStep::AtSubsystem {
            return;
        }
        let (opcode, nsid, began_ns) = (command.sqe.opcode, command.sqe.nsid.get(), command.began_ns);
        self.spoils_digest = fault == Some(TransportFault::BadDigest);
        if command.part.is_none() && !self.is_admin {
            self.begun.note(&command.sqe, &completion, core.now_ms);
        }
        if let Some(part) = command.part {
            self.complete_part(core, part, completion);
        } else {
            let bytes = data_bytes.min(completion.data.len());
            let wants_data = matches!(command.transfer, Transfer::ToHost { .. });
            if status.is_success() && wants_data && bytes > 0 {
                self.put_answer(command.cid, 0, true, bytes, completion.data);
            }
            self.answer(tag.slot, status, dw0, dw1);
        }
        self.spoils_digest = false;
        let is_answered = self.slots[usize::from(tag.slot)].step == SlotStep::Free;
        if is_answered && !self.is_admin {
            let spent_ns = core.now_ns.saturating_sub(began_ns);
            let place = core.subsystem.counted_at(opcode, nsid);
            core.latencies.entry(place).or_default().record(spent_ns);
        }
    }

    /// Sends the first `bytes` bytes of `data`, which are those from byte `at` on of a command's answer.
    pub(super) fn put_answer(
        &mut self,
        cid: u16,
        at: u32,
        is_last: bool,
        mut bytes: usize,
        mut data: Buffer,
    ) {
        let room = bytes.next_multiple_of(4);
        let has_digest = self.digests & digests::DATA != 0;
        if has_digest && self.reading == Reading::Unknown && room <= data.len() {
            data.zero(bytes, room);
            bytes = room;
        }
        let mut unit = tcp::Transfer::new_zeroed();
        unit.header = Header::new(kind::C2H_DATA, 24);
        unit.header.flags = if is_last { flag::LAST } else { 0 };
        unit.cid = U16::new(cid);
        unit.offset = U32::new(at);
        unit.length = U32::new(bytes as u32);
        self.put(unit.as_mut_bytes(), bytes, Some(data));
    }

    /// Sends a slot's response and frees it.
    pub(super) fn answer(&mut self, slot: u16, status: Status, dw0: u32, dw1: u32) {
        let cqe = Cqe::new(self.slots[usize::from(slot)].cid, status).with_result(dw0, dw1);
        self.free_slot(slot);
        self.respond(cqe);
    }

    pub(super) fn free_slot(&mut self, slot: u16) {
        let command = &mut self.slots[usize::from(slot)];
        command.step = SlotStep::Free;
        command.buffer = None;
        self.cids[usize::from(slot)] = NO_CID;
        self.free.push(slot);
    }

    pub(super) fn respond(&mut self, cqe: Cqe) {
        let head = if self.flow_control { (self.head % self.entries) as u16 } else { NO_FLOW_CONTROL_HEAD };
        let mut unit = tcp::ResponseCapsule {
            header: Header::new(kind::CAPSULE_RESP, 24),
            cqe: cqe.with_queue(0, head),
        };
        self.put(unit.as_mut_bytes(), 0, None);
    }

    /// Sends a unit: completes its header (digest, PDO, PLEN) and appends `bytes` bytes of data.
    pub(super) fn put(&mut self, header: &mut [u8], bytes: usize, data: Option<Buffer>) {
        let has_header_digest = self.has_header_digest();
        let mut end = header.len() + if has_header_digest { DIGEST_BYTES } else { 0 };
        let padding = end.next_multiple_of(self.alignment_bytes) - end;
        let has_data_digest = data.is_some() && self.digests & digests::DATA != 0;
        if has_header_digest {
            header[1] |= flag::HEADER_DIGEST;
        }
        if data.is_some() {
            header[3] = (end + padding) as u8;
            end += padding + bytes + if has_data_digest { DIGEST_BYTES } else { 0 };
        }
        if has_data_digest {
            header[1] |= flag::DATA_DIGEST;
        }
        header[4..8].copy_from_slice(&(end as u32).to_le_bytes());
        self.output.put(header);
        if has_header_digest {
            let mut digest = digest::header(header);
            // An injected fault spoils the digest of the data if there are data, otherwise that of the
            // header.
            digest[0] ^= u8::from(data.is_none() && take(&mut self.spoils_digest));
            self.output.put(&digest);
        }
        let Some(data) = data else { return };
        self.output.put(&[0; 128][..padding]);
        let mut digest = DataDigest::default();
        if has_data_digest {
            digest.add(&data[..bytes]);
        }
        self.output.put_data(data, bytes);
        if has_data_digest {
            let spoilt = u32::from(take(&mut self.spoils_digest));
            self.output.put(&(digest.value(self.reading) ^ spoilt).to_le_bytes());
        }
    }

    /// Ends the connection with a unit that says why; its last field is the header at fault.
    pub(super) fn terminate(&mut self, core: &mut Core, reason: Fatal) {
        let about = self.filled_header();
        self.complain(match self.state {
            ConnectionState::Initializing if self.header.starts_with(&TLS_RECORD) => {
                "it uses TLS, and this server is without TLS".to_owned()
            }
            _ => format!("it broke the protocol: FES {:02X}h, FEI {:X}h", reason.reason, reason.information),
        });
        let mut unit = tcp::Termination::new_zeroed();
        unit.header = Header::new(kind::C2H_TERM_REQ, 24);
        unit.header.bytes = U32::new((24 + about.len()) as u32);
        unit.reason = U16::new(reason.reason);
        unit.information = U32::new(reason.information);
        self.end(core);
        self.output.put(unit.as_bytes());
        self.output.put(&about);
    }

    fn filled_header(&self) -> Vec<u8> {
        let whole = usize::from(self.header[2]).min(tcp::TERM_HEADER_MAX_BYTES);
        // A header that is complete counts as not begun.
        let bytes = match self.filled {
            0 => whole,
            Header::BYTES => Header::BYTES,
            filled => filled.min(whole),
        };
        self.header[..bytes].to_vec()
    }
}
