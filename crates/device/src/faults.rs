//! Faults that strike commands: between fetching and executing.

use std::rc::Rc;

use kvdrive_flash::faults::{Effect, Moment, Subject};
use kvdrive_link::{Port, Request};
use kvdrive_sim::Ns;
use kvdrive_spec::{Command, Key, Status};

use crate::controller::Controller;
use crate::namespaces::Asked;
use crate::requests::{Fetched, complete, in_turn};

/// A command that is not executed.
pub(crate) struct Refusal {
    status: Status,
    /// When its host hears of it, ns from now.
    after_ns: Ns,
}

/// Lets rules strike a command that was just fetched: is it refused?
///
/// A command that is late holds its context.
#[inline]
pub(crate) fn strike<P: Port>(drive: &Controller<P>, fetched: &Fetched<P::Request>) -> Option<Refusal> {
    let is_spared = !drive.faults.is_armed() || fetched.request.is_admin();
    if is_spared { None } else { strike_one(drive, fetched) }
}

fn strike_one<P: Port>(drive: &Controller<P>, fetched: &Fetched<P::Request>) -> Option<Refusal> {
    let sqe = fetched.request.sqe();
    let subject = Subject::Command {
        opcode: sqe.opcode,
        key: fetched.asked.as_ref().and_then(key_of),
        namespace: sqe.nsid.get(),
    };
    let struck = drive.faults.strike(Moment::Command, subject);
    if struck.delay_ns > 0 {
        drive.port.sim().sleep(struck.delay_ns);
    }
    match struck.effect {
        Some(Effect::Refuse(status)) => Some(Refusal { status, after_ns: 0 }),
        Some(Effect::AtDoor(fault)) => {
            drive.faults.note_at_door(fetched.request.session().number(), sqe.cid.get(), fault);
            None
        }
        Some(Effect::Lose(after_ns)) => Some(Refusal { status: Status::ABORT_REQUESTED, after_ns }),
        _ => None,
    }
}

/// Refuses a command in its turn among the inline commands of its queue, as the refused ones of the drive's
/// own do.
pub(crate) fn refuse<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, refusal: Refusal) {
    let Refusal { status, after_ns } = refusal;
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

/// The key that a command names.
fn key_of(asked: &Asked) -> Option<Key> {
    let Asked::Pairs(command) = asked else { return None };
    match *command {
        Command::Store(store) | Command::Express(store) => Some(store.key),
        Command::Write(write) => Some(write.key),
        Command::Retrieve { key, .. }
        | Command::Delete { key }
        | Command::Exist { key }
        | Command::Hybrid { key, .. }
        | Command::CxlStore { key, .. } => Some(key),
        Command::List { start: key, .. } | Command::Seek { key, .. } => key,
        Command::Transfer
        | Command::Discard
        | Command::Next { .. }
        | Command::IterClose { .. }
        | Command::Batch(_) => None,
    }
}
