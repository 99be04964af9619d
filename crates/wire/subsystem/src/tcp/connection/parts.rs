//! Large values: a store or a retrieve that moves more than [`WHOLE_MAX_BYTES`](crate::subsystem::transfer::WHOLE_MAX_BYTES)
//! does so part by part, each as a command of its own to the namespace (*store part*, *retrieve part*), with memory for
//! one part.
//!
//! ```text
//!   Store      memory ─► R2T ─► H2CData ─► store part ─┐ the last one's status is the answer
//!                ▲                                     │
//!                └─────────────────────────────────────┘
//!   Retrieve   memory ─► retrieve part ─► C2HData ─┐     with the last part, the answer
//!                ▲                                 │
//!                └─────────────────────────────────┘
//! ```
//!
//! Between two parts the namespace keeps the unfinished value of the stream, at most until the connection ends. Each
//! part waits for memory in the same line as all other commands, so a host with many large values gets no more memory
//! than any other. If other hosts hold all memory but the reserve of a host, its values move in parts of that size.

use kvdrive_nvme::door::DOOR_STREAMS;
use kvdrive_nvme::opcode;
use kvdrive_nvme::transport_fault::TransportFault;
use kvdrive_nvme::{Command, RetrievePart, Sqe, Status, StorePart};

use super::{Connection, Part, Slot, SlotStep};
use crate::buffer::Buffer;
use crate::namespace::{Completion, Tag};
use crate::shared::Core;
use crate::subsystem::transfer::Transfer;

/// The transfer to carry out for a command and, if it moves more than `whole_max_bytes`, the first of the parts in
/// which it does.
///
/// # Errors
/// The status of a command that cannot move so much, or whose lengths contradict each other.
pub(super) fn split(
    sqe: &mut Sqe,
    transfer: Transfer,
    whole_max_bytes: u32,
    part_bytes: u32,
) -> Result<(Transfer, Option<Part>), Status> {
    let named_bytes = sqe.cdw10.get();
    let first = |bytes: u32| Some(Part { at: 0, bytes: bytes.min(part_bytes), fault: None, verdict: None });
    match (transfer, sqe.opcode) {
        (Transfer::FromHost { bytes } | Transfer::ToHost { bytes }, _) if bytes <= whole_max_bytes => {
            Ok((transfer, None))
        }
        (Transfer::FromHost { bytes }, opcode::STORE) if named_bytes > bytes => {
            Err(Status::SGL_LENGTH_INVALID)
        }
        // The host may name more bytes than the value has; only those of the value are requested.
        (Transfer::FromHost { .. }, opcode::STORE) if named_bytes == 0 => Ok((Transfer::None, None)),
        (Transfer::FromHost { .. }, opcode::STORE) => {
            let part = if named_bytes > whole_max_bytes { first(named_bytes) } else { None };
            Ok((Transfer::FromHost { bytes: named_bytes }, part))
        }
        (Transfer::ToHost { bytes }, opcode::RETRIEVE) => {
            let bytes = bytes.min(named_bytes);
            let part = if bytes > whole_max_bytes { first(bytes) } else { None };
            Ok((if bytes == 0 { Transfer::None } else { Transfer::ToHost { bytes } }, part))
        }
        // Hosts expect that these answers may be shorter than the buffer, so the bytes that one command moves are
        // enough.
        (Transfer::ToHost { .. }, opcode::LIST | opcode::SEEK | opcode::NEXT | opcode::RETRIEVE_PART) => {
            sqe.cdw10.set(named_bytes.min(whole_max_bytes));
            Ok((Transfer::ToHost { bytes: whole_max_bytes }, None))
        }
        (Transfer::FromHost { .. } | Transfer::ToHost { .. }, _) => Err(Status::INVALID_FIELD),
        (Transfer::None | Transfer::InCapsule { .. }, _) => Ok((transfer, None)),
    }
}

impl Slot {
    /// Memory that its next step needs, bytes.
    pub(super) fn wanted_bytes(&self) -> u32 {
        self.part.map_or(self.transfer.bytes(), |part| part.bytes)
    }

    /// Makes its next step need at most `most_bytes`, which are fewer than it needs: a value moves in such parts, and an
    /// answer that may be short is no longer. `false`: its data cannot be divided.
    pub(super) fn lessen(&mut self, most_bytes: u32) -> bool {
        if let Some(part) = &mut self.part {
            part.bytes = most_bytes;
            return true;
        }
        let Ok((transfer, part)) = split(&mut self.sqe, self.transfer, most_bytes, most_bytes) else {
            return false;
        };
        (self.transfer, self.part) = (transfer, part);
        true
    }

    /// Where its present memory begins and ends within its data, bytes.
    pub(super) fn window(&self) -> (u32, u32) {
        self.part.map_or((0, self.transfer.bytes()), |part| (part.at, part.at + part.bytes))
    }

    /// Bytes that a part has moved which has succeeded, and those of all parts.
    fn moved(&self, part: Part, dw0: u32, data_bytes: usize) -> (u32, u32) {
        let room = self.transfer.bytes();
        match self.transfer {
            Transfer::ToHost { .. } => (data_bytes as u32, dw0.min(room)),
            _ => (part.bytes, room),
        }
    }

    /// The fault that the answer of the host's command gets now: one that came with an earlier part waits for the last.
    fn fault_at(&mut self, completion: &Completion) -> Option<TransportFault> {
        let Some(part) = self.part else { return completion.fault };
        let fault = part.fault.or(completion.fault);
        let is_over = if part.verdict.is_some() {
            true
        } else if completion.status.is_success() {
            let here_bytes = completion.data_bytes.min(completion.data.len());
            let (moved_bytes, all_bytes) = self.moved(part, completion.dw0, here_bytes);
            part.at + moved_bytes >= all_bytes
        } else {
            part.at == 0
        };
        self.part = Some(Part { fault, ..part });
        fault.filter(|_| is_over)
    }

    /// Is its next command to the namespace the first one?
    pub(super) fn begins(&self) -> bool {
        self.part.is_none_or(|part| part.at == 0)
    }

    /// The entry of its next command to the namespace.
    ///
    /// # Errors
    /// A store's or retrieve's entry that is none.
    pub(super) fn next_entry(&self, slot: u16) -> Result<Sqe, Status> {
        let Some(Part { at, bytes, verdict, .. }) = self.part else { return Ok(self.sqe) };
        let stream = DOOR_STREAMS + slot;
        let command = match Command::decode(&self.sqe)? {
            _ if verdict.is_some() => Command::Discard { stream },
            Command::Store(store) => Command::StorePart(StorePart { store, at, bytes, stream }),
            Command::Retrieve { key, options, .. } => {
                let room = self.transfer.bytes();
                Command::RetrievePart(RetrievePart { key, at, bytes, stream, room, options })
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        let mut entry = command.encode(self.cid, self.sqe.nsid.get());
        (entry.flags, entry.prp1, entry.prp2) = (self.sqe.flags, self.sqe.prp1, self.sqe.prp2);
        Ok(entry)
    }
}

impl Connection {
    /// The fault that this completion of the namespace brings to the host.
    pub fn fault_at(&mut self, completion: &Completion) -> Option<TransportFault> {
        let command = self.slots.get_mut(usize::from(completion.tag.slot))?;
        command.fault_at(completion)
    }

    /// Continues after a completed part with the next one, or with the answer.
    pub(super) fn complete_part(&mut self, core: &mut Core, part: Part, completion: Completion) {
        let Completion { tag: Tag { slot, .. }, status, dw0, dw1, data, data_bytes, .. } = completion;
        if let Some(verdict) = part.verdict {
            return self.answer(slot, verdict, 0, 0);
        }
        if !status.is_success() {
            // The namespace may not have seen it: an Abort or a fault rule met it before.
            return self.give_up(core, slot, status);
        }
        let command = &self.slots[usize::from(slot)];
        let (moved_bytes, all_bytes) = command.moved(part, dw0, data_bytes.min(data.len()));
        let (cid, at) = (command.cid, part.at + moved_bytes);
        if matches!(command.transfer, Transfer::ToHost { .. }) && moved_bytes > 0 {
            self.put_answer(cid, part.at, at >= all_bytes, moved_bytes as usize, data);
        } else {
            drop(data);
        }
        if at >= all_bytes {
            return self.answer(slot, status, dw0, dw1);
        }
        if moved_bytes == 0 {
            return self.give_up(core, slot, Status::INTERNAL);
        }
        let bytes = (all_bytes - at).min(self.limits.part_bytes);
        let command = &mut self.slots[usize::from(slot)];
        command.part = Some(Part { at, bytes, ..part });
        command.step = SlotStep::WaitsForMemory;
        self.ask_for_memory(core, slot);
    }

    /// Ends a command that cannot continue: the unfinished work of its stream is discarded before it is answered.
    pub(super) fn give_up(&mut self, core: &mut Core, slot: u16, status: Status) {
        let command = &mut self.slots[usize::from(slot)];
        match &mut command.part {
            Some(part) if part.at > 0 => {
                part.verdict = Some(status);
                command.buffer = Some(Buffer::empty());
                self.submit(core, slot);
            }
            _ => self.answer(slot, status, 0, 0),
        }
    }
}
