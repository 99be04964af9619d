//! Answers of commands, and how they are sent to the host.

use kvdrive_content::Region;
use kvdrive_link::Request;
use kvdrive_nvme::{Cqe, Status};

/// The result of a command: its status, and dwords 0 and 1 of the completion.
pub type Answer = Result<(u32, u32), Status>;

/// A failed command: its status, and for a batch the number of its requests that were carried out.
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) dw0: u32,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal { status, dw0: 0 }
    }
}

/// Sends the first `bytes` bytes of an answer to the host memory of the command, which has `buffer_bytes`.
pub(crate) fn send(
    request: &dyn Request,
    buffer_bytes: u32,
    answer: &Region,
    bytes: u32,
) -> Result<(), Status> {
    request.push(buffer_bytes, bytes, &mut |at, bytes, sink| {
        answer.read(at, bytes, sink);
        Ok(())
    })
}

/// The completion for an answer.
pub(crate) fn completion_of(request: &dyn Request, answer: Answer) -> Cqe {
    let cid = request.sqe().cid.get();
    match answer {
        Ok((dw0, dw1)) => Cqe::new(cid, Status::SUCCESS).with_result(dw0, dw1),
        Err(status) => Cqe::new(cid, status),
    }
}
