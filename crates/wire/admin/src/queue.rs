//! Whether an I/O queue can be created or deleted: checks of the commands, in the order in which the
//! specification lists their errors. The caller owns the queues and creates them.

use kvdrive_nvme::Status;
use kvdrive_nvme::queue::QueueCommand;

/// What exists under the identifiers that a command names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct There {
    /// A submission queue under the identifier of the queue to create or delete.
    pub submission: bool,
    /// A completion queue under the identifier of the queue to create or delete; for a submission queue to be
    /// created, under the identifier of its completion queue.
    pub completion: bool,
    /// A submission queue completes to that completion queue.
    pub is_used: bool,
}

/// Can a controller that has granted `most` queues of each kind, and has the queues of `there`, execute `command`?
/// Identifiers of I/O queues are 1 to `most`; 0 is the admin queue's, which no command creates or deletes.
///
/// # Errors
/// [`Status::INVALID_QUEUE_ID`], [`Status::INVALID_QUEUE_SIZE`] for a ring without room for an entry (one
/// slot always stays empty), [`Status::COMPLETION_QUEUE_INVALID`], [`Status::INVALID_QUEUE_DELETION`] for a
/// completion queue that submission queues still use.
pub fn check(command: QueueCommand, there: There, most: u16) -> Result<(), Status> {
    let is_one = |id: u16| (1..=most).contains(&id);
    match command {
        QueueCommand::CreateCompletion { id, .. } if !is_one(id) || there.completion => {
            Err(Status::INVALID_QUEUE_ID)
        }
        QueueCommand::CreateSubmission { id, .. } if !is_one(id) || there.submission => {
            Err(Status::INVALID_QUEUE_ID)
        }
        QueueCommand::CreateCompletion { entries, .. } | QueueCommand::CreateSubmission { entries, .. }
            if entries < 2 =>
        {
            Err(Status::INVALID_QUEUE_SIZE)
        }
        QueueCommand::CreateSubmission { completion, .. } if !is_one(completion) => {
            Err(Status::INVALID_QUEUE_ID)
        }
        QueueCommand::CreateSubmission { .. } if !there.completion => Err(Status::COMPLETION_QUEUE_INVALID),
        QueueCommand::DeleteSubmission { id } if id == 0 || !there.submission => {
            Err(Status::INVALID_QUEUE_ID)
        }
        QueueCommand::DeleteCompletion { id } if id == 0 || !there.completion => {
            Err(Status::INVALID_QUEUE_ID)
        }
        QueueCommand::DeleteCompletion { .. } if there.is_used => Err(Status::INVALID_QUEUE_DELETION),
        _ => Ok(()),
    }
}
