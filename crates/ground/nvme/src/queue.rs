//! Creation and deletion of I/O queues: admin commands by which a host describes rings in its memory to a
//! controller (NVMe base specification, memory-based transports).
//!
//! ```text
//!                                 dword 10                           dword 11
//!   Create completion queue 05h   31:16 entries, 0's based           31:16 interrupt vector   1 interrupts   0 contiguous
//!                                 15:0  identifier
//!   Create submission queue 01h   the same                           31:16 completion queue   2:1 priority   0 contiguous
//!   Delete completion queue 04h   15:0  identifier
//!   Delete submission queue 00h   15:0  identifier
//! ```
//!
//! PRP entry 1 of a Create is the start of the ring, page aligned. This module has only the fields; the
//! controller decides whether a queue can be created or deleted.

use crate::opcode::admin;
use crate::{PAGE_BYTES, Sqe, Status};

/// Dword 11, bit 0: the ring lies in memory without gaps.
const CONTIGUOUS: u32 = 1;
/// Dword 11 of a completion queue, bit 1: completions raise interrupts.
const INTERRUPTS: u32 = 1 << 1;

/// A command that creates or deletes a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueCommand {
    /// Create a completion queue.
    CreateCompletion {
        /// Its identifier.
        id: u16,
        /// Its slots: 1 to 65 536.
        entries: u32,
    },
    /// Create a submission queue.
    CreateSubmission {
        /// Its identifier.
        id: u16,
        /// Its slots: 1 to 65 536.
        entries: u32,
        /// Identifier of the completion queue for its commands.
        completion: u16,
    },
    /// Delete a completion queue.
    DeleteCompletion {
        /// Its identifier.
        id: u16,
    },
    /// Delete a submission queue.
    DeleteSubmission {
        /// Its identifier.
        id: u16,
    },
}

impl QueueCommand {
    /// Is `opcode` of the admin queue one of these commands?
    #[must_use]
    pub const fn is_one(opcode: u8) -> bool {
        matches!(
            opcode,
            admin::CREATE_IO_CQ | admin::CREATE_IO_SQ | admin::DELETE_IO_CQ | admin::DELETE_IO_SQ
        )
    }

    /// The admin entry with command identifier `cid`; `ring` is the address of the ring of a queue that is
    /// created.
    #[must_use]
    pub fn encode(self, cid: u16, ring: u64) -> Sqe {
        let (opcode, id, entries, dword11) = match self {
            QueueCommand::CreateCompletion { id, entries } => {
                (admin::CREATE_IO_CQ, id, entries, CONTIGUOUS | INTERRUPTS)
            }
            QueueCommand::CreateSubmission { id, entries, completion } => {
                (admin::CREATE_IO_SQ, id, entries, u32::from(completion) << 16 | CONTIGUOUS)
            }
            QueueCommand::DeleteCompletion { id } => (admin::DELETE_IO_CQ, id, 1, 0),
            QueueCommand::DeleteSubmission { id } => (admin::DELETE_IO_SQ, id, 1, 0),
        };
        let mut sqe = Sqe::new(opcode, cid, 0);
        sqe.cdw10.set((entries - 1) << 16 | u32::from(id));
        sqe.cdw11.set(dword11);
        if dword11 & CONTIGUOUS != 0 {
            sqe.set_prps(ring, 0);
        }
        sqe
    }

    /// The interrupt vector for completions of a completion queue that this entry creates; `None`: they raise none.
    #[must_use]
    pub fn vector(sqe: &Sqe) -> Option<u16> {
        let dword11 = sqe.cdw11.get();
        (dword11 & INTERRUPTS != 0).then_some((dword11 >> 16) as u16)
    }

    /// Decodes an entry of an admin queue.
    ///
    /// # Errors
    /// [`Status::INVALID_OPCODE`] for all other commands, [`Status::INVALID_FIELD`] for a ring with gaps, and
    /// [`Status::PRP_OFFSET_INVALID`] for one that is not page aligned.
    pub fn decode(sqe: &Sqe) -> Result<QueueCommand, Status> {
        let (id, entries) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) + 1);
        let command = match sqe.opcode {
            admin::DELETE_IO_CQ => return Ok(QueueCommand::DeleteCompletion { id }),
            admin::DELETE_IO_SQ => return Ok(QueueCommand::DeleteSubmission { id }),
            admin::CREATE_IO_CQ => QueueCommand::CreateCompletion { id, entries },
            admin::CREATE_IO_SQ => {
                QueueCommand::CreateSubmission { id, entries, completion: (sqe.cdw11.get() >> 16) as u16 }
            }
            _ => return Err(Status::INVALID_OPCODE),
        };
        if sqe.cdw11.get() & CONTIGUOUS == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if !sqe.prp1.get().is_multiple_of(u64::from(PAGE_BYTES)) {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok(command)
    }
}
