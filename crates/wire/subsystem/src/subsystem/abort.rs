//! Abort: takes a command back wherever it still waits.
//!
//! ```text
//!   memory ─► turn ─► queue of the drive ─► engine
//!   taken back, answered 07h                ends by itself: dword 0 of the Abort says "not aborted"
//! ```
//!
//! A command is not taken back if its data were requested from the host (no message revokes an R2T), or if it moves its
//! data part by part and has begun.

use kvdrive_nvme::{Sqe, Status};

use super::{Event, Step, Subsystem};
use crate::buffer::Buffer;
use crate::namespace::{Completion, Tag};

/// Dword 0 of an Abort that did not abort.
pub const NOT_ABORTED: u32 = 1;

/// How far a transport finds that a command has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It waited in the transport, which has answered it.
    Aborted,
    /// It was submitted: a namespace may take it back.
    Submitted(Tag),
    /// It cannot be taken back, or there is none.
    Kept,
}

impl Subsystem {
    /// Abort: ends a waiting Asynchronous Event Request, or an I/O command that waits for its turn. A command that
    /// waits for memory is found by its transport.
    pub(super) fn abort(&mut self, index: usize, sqe: &Sqe) -> Result<Step, Status> {
        let not_aborted = Step::Done { dw0: NOT_ABORTED, data_bytes: 0 };
        let (queue, cid) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
        let controller = self.controller(index)?;
        if queue != 0 {
            let Some(queue) = controller.io.get(usize::from(queue) - 1).copied().flatten() else {
                return Ok(not_aborted);
            };
            let host = self.queues[queue.index as usize].host;
            let Some(held) = host.and_then(|host| self.arbiter.abort(host, queue, cid)) else {
                return Ok(Step::Abort { queue, cid });
            };
            let aborted = Completion::failed(held.tag, Status::ABORT_REQUESTED, held.data);
            self.events.push_back(Event::Completed(aborted));
            return Ok(Step::SUCCESS);
        }
        let parked = controller.events.unpark(|(_, of)| *of == cid);
        let Some((slot, _)) = parked else { return Ok(not_aborted) };
        let tag = Tag { queue: controller.admin, slot };
        let aborted = Completion::failed(tag, Status::ABORT_REQUESTED, Buffer::empty());
        self.events.push_back(Event::Completed(aborted));
        Ok(Step::SUCCESS)
    }

    /// Goes on with [`Event::Abort`] after the transport has looked: returns its completion, or has the namespace do so
    /// later.
    pub fn go_on_aborting(&mut self, by: Completion, reach: Reach) -> Option<Completion> {
        let tag = match reach {
            Reach::Aborted => return Some(Completion { dw0: 0, ..by }),
            Reach::Kept => return Some(by),
            Reach::Submitted(tag) => tag,
        };
        let Some(queue) = self.queue(tag.queue) else { return Some(by) };
        let sessions = queue.sessions.clone();
        sessions.into_iter().try_fold(by, |by, (nsid, session)| match self.namespaces.get_mut(&nsid) {
            Some(namespace) => namespace.abort(session, tag, by),
            None => Some(by),
        })
    }
}
