//! The outcome of a command in the subsystem, and the next action of the transport.

use kvdrive_nvme::log::LogRequest;
use kvdrive_nvme::{Sqe, Status};

use crate::buffer::Buffer;
use crate::namespace::{Completion, QueueId, Session, Tag};

/// Work for the transport.
pub enum Event {
    /// Send this completion to its host.
    Completed(Completion),
    /// Close this queue; the subsystem keeps nothing of it.
    Close(QueueId),
    /// Write this line about the queue to the log.
    Complaint(QueueId, String),
    /// Abort the command if it still waits in the transport, then go on with [`super::Subsystem::go_on_aborting`].
    Abort {
        /// The completion of the Abort, which says "not aborted" unless the command is found.
        by: Completion,
        /// The queue of the command to abort.
        queue: QueueId,
        /// The identifier of the command to abort.
        cid: u16,
    },
}

/// A page for a host that needs a fresh look at namespaces.
pub(super) struct PendingPage {
    /// Namespaces that still have to look, in reverse order.
    pub rest: Vec<u32>,
    pub page: Page,
}

pub(super) enum Page {
    /// Identify of the namespace, by its structure (CNS).
    Identity(u8),
    Health(LogRequest),
    /// The answer of the namespace to this command is that of the controller.
    Command(Sqe),
}

/// The outcome of one step of a command.
pub(super) enum Step {
    /// The command succeeded.
    Done { dw0: u32, data_bytes: usize },
    /// The command succeeded, and both dwords of the completion are the answer.
    Property(u64),
    /// The command waits for an asynchronous event.
    Parked,
    /// Namespaces first have to refresh their reports.
    Refresh(PendingPage),
    /// A namespace has to run the command.
    Submit(u32, Session),
    /// The command to abort may still be in the transport.
    Abort { queue: QueueId, cid: u16 },
    /// The command waits for a key agreement.
    AwaitKeys,
    /// The command succeeded, and its queue ends.
    Disconnect { data_bytes: usize },
}

impl Step {
    /// Success without a result.
    pub const SUCCESS: Step = Step::Done { dw0: 0, data_bytes: 0 };
}

/// The completion of a command that succeeded.
#[inline]
pub(super) fn done(tag: Tag, dw0: u32, data_bytes: usize, data: Buffer) -> Completion {
    Completion { tag, status: Status::SUCCESS, dw0, dw1: 0, data, data_bytes, fault: None }
}
