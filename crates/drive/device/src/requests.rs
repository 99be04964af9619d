//! The life of one command, top to bottom.
//!
//! ```text
//!   doorbell ─► fetch (64 B) ─► decode ─► the command ─► completion (16 B) ─► the host's doorbell
//!                                 │
//!                                 ├─ of the admin queue ─► crate::controller
//!                                 ├─ of pairs ───────────► crate::namespaces::kv::commands
//!                                 └─ of blocks ──────────► crate::namespaces::block
//! ```
//!
//! Which task does this, and how many of them there are, is in [`crate::dispatch`].
//!
//! Commands that bring a value together are executed in the order of their queue, whichever context got them.
//!
//! Not here: what an opcode does ([`crate::namespaces`]), how data cross ([`kvdrive_link::port`]), admin commands
//! ([`crate::controller`]).

use std::rc::Rc;

use kvdrive_engines::firmware::Role;
use kvdrive_link::{Port, Request};
use kvdrive_nvme::{Cqe, DRIVE_NSID, Sqe, Status, opcode};
use kvdrive_sim::Cause;

use crate::answers::{Answer, completion_of};
use crate::controller::{Controller, Fetched};
use crate::faults::{self, Struck};
use crate::namespaces::Decoded;

/// Takes the next command and decodes it, in no time; [`decode`] takes the time of decoding.
#[inline]
pub(crate) fn fetch<P: Port>(drive: &Controller<P>) -> Fetched<P::Request> {
    look_at(drive, drive.port.next())
}

/// Decodes a command of the namespace; admin commands and unknown namespaces give `None`.
#[inline]
fn look_at<P: Port>(drive: &Controller<P>, request: P::Request) -> Fetched<P::Request> {
    let is_for_namespace = !request.is_admin() && request.sqe().nsid.get() == DRIVE_NSID;
    let decoded = is_for_namespace.then(|| match refusal(&drive.port, request.sqe()) {
        None => drive.namespace.decode(request.sqe()),
        Some(status) => Decoded::Nothing(status),
    });
    Fetched { request, decoded }
}

/// The status of a command that this port cannot carry, before the namespace decodes it.
#[inline]
fn refusal(port: &impl Port, sqe: &Sqe) -> Option<Status> {
    if port.refused().contains(&sqe.opcode) {
        return Some(Status::INVALID_OPCODE);
    }
    (sqe.is_quiet() && !port.carries_quiet()).then_some(Status::INVALID_FIELD)
}

/// A fetched command, to its completion; `is_decoded` if the time of decoding was already spent.
#[inline]
pub(crate) fn handle<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, is_decoded: bool) {
    let _spent = drive.port.sim().spend(Cause::Other);
    if fetched.request.is_admin() {
        return handle_admin(drive, fetched, is_decoded);
    }
    if let Some(struck) = faults::strike(drive, &fetched) {
        return refuse_struck(drive, fetched, struck);
    }
    let completion = in_turn(&fetched.request, || execute_any(drive, &fetched, is_decoded));
    complete(drive, fetched, completion);
}

/// A fetched command of an admin queue, to its completion or to where it waits for something else than
/// firmware.
fn handle_admin<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, is_decoded: bool) {
    if !is_decoded {
        decode(drive, None);
    }
    let request = fetched.request;
    match request.sqe().opcode {
        opcode::admin::ASYNC_EVENT_REQUEST => drive.hold(request),
        opcode::admin::DELETE_IO_SQ => drive.end_queue(request),
        _ => {
            let answer = drive.admin(&request);
            complete_admin(drive, request, answer);
        }
    }
}

/// Completes an admin command, and notes an error in the log page.
pub(crate) fn complete_admin<P: Port>(drive: &Controller<P>, request: P::Request, answer: Answer) {
    if let Err(status) = answer {
        drive.logs.borrow_mut().note_error(request.queue_id(), request.sqe().cid.get(), status);
    }
    let completion = completion_of(&request, answer);
    complete(drive, Fetched { request, decoded: None }, Some(completion));
}

/// Does `execute` when it is the command's turn.
#[inline]
pub(crate) fn in_turn(request: &impl Request, execute: impl FnOnce() -> Option<Cqe>) -> Option<Cqe> {
    let Some(turn) = request.turn() else { return execute() };
    request.session().wait_turn(turn);
    let completion = execute();
    request.session().end_turn();
    completion
}

/// Refuses a command in its turn among the inline commands of its queue, as the refused ones of the drive's
/// own do.
fn refuse_struck<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, struck: Struck) {
    let Struck { status, after_ns } = struck;
    let request = &fetched.request;
    let completion = in_turn(request, || drive.namespace.refuse(request, status));
    if after_ns == 0 || completion.is_none() {
        return complete(drive, fetched, completion);
    }
    let drive = drive.clone();
    drive.port.sim().clone().spawn(move || {
        drive.port.sim().sleep(after_ns);
        complete(&drive, fetched, completion);
    });
}

/// Answers the host. `None`: a quiet command has no completion; a later command reports its failure.
#[inline]
pub(crate) fn complete<P: Port>(
    drive: &Controller<P>,
    fetched: Fetched<P::Request>,
    completion: Option<Cqe>,
) {
    drive.commands.set(drive.commands.get() + 1);
    let Fetched { request, decoded } = fetched;
    let Some(cqe) = completion else { return request.omit() };
    // A batch may have been carried out in part.
    let says_done = cqe.status().is_success() || cqe.dw0.get() > 0;
    let changes = || says_done && decoded.as_ref().is_some_and(Decoded::changes_content);
    let is_kept = drive.journal.acknowledge(request.session().number(), cqe.cid.get(), changes);
    let cqe = if is_kept { cqe } else { Cqe::new(cqe.cid.get(), Status::NAMESPACE_WRITE_PROTECTED) };
    drive.cores.of(Role::Dispatch).run_noted(drive.costs.complete_ns, "controller", "complete");
    request.complete(cqe);
    if drive.journal.wants_checkpoint() {
        drive.journal.checkpoint(&drive.namespace.protected_image());
    }
}

/// Spends the time of decoding a command.
#[inline]
pub(crate) fn decode<P: Port>(drive: &Controller<P>, decoded: Option<&Decoded>) {
    let span_ns = decoded.map_or(drive.costs.decode_other_ns, |decoded| decoded.decode_ns(&drive.costs));
    drive.cores.of(Role::Dispatch).run_noted(span_ns, "controller", "decode");
}

/// Executes a command where it belongs. `None`: no completion is posted for it.
#[inline]
fn execute_any<P: Port>(
    drive: &Controller<P>,
    fetched: &Fetched<P::Request>,
    is_decoded: bool,
) -> Option<Cqe> {
    let Fetched { request, decoded } = fetched;
    if !is_decoded {
        decode(drive, decoded.as_ref());
    }
    if let Some(decoded) = decoded {
        return drive.namespace.execute(request, decoded);
    }
    let status = Status::INVALID_NAMESPACE;
    drive.logs.borrow_mut().note_error(request.queue_id(), request.sqe().cid.get(), status);
    Some(completion_of(request, Err(status)))
}
