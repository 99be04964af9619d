//! What a command answers, and how that gets to its host.

use kvdrive_content::Region;
use kvdrive_link::Request;
use kvdrive_spec::{Cqe, Status};

/// What a command answers besides its status: dwords 0 and 1 of the completion.
pub type Answer = Result<(u32, u32), Status>;

/// What a command that fails says: its status, and of a batch how many of its requests were carried out.
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) dw0: u32,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        Refusal { status, dw0: 0 }
    }
}

/// Sends the first `bytes` bytes of an answer to the command's host memory of `buffer_bytes`.
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

/// The completion that says what a command answered.
pub(crate) fn completion_of(request: &dyn Request, answer: Answer) -> Cqe {
    let cid = request.sqe().cid.get();
    match answer {
        Ok((dw0, dw1)) => Cqe::new(cid, Status::SUCCESS).with_result(dw0, dw1),
        Err(status) => Cqe::new(cid, status),
    }
}
