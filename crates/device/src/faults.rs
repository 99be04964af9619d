//! Faults that strike commands: between fetching and executing.

use std::rc::Rc;

use kvdrive_flash::faults::{Effect, Moment, Subject};
use kvdrive_link::Fetched;
use kvdrive_sim::Ns;
use kvdrive_spec::{Command, Key, Status};

use crate::controller::Controller;
use crate::requests::{complete, in_turn};

/// A command that is not executed.
struct Refusal {
    status: Status,
    /// When its host hears of it, ns from now.
    after_ns: Ns,
}

/// Lets rules strike a command that was just fetched. `None`: it was one of them to answer it.
///
/// A command that is late holds its context. One that is refused takes its turn among the inline commands of
/// its queue, as the refused ones of the drive's own do.
pub fn pass(drive: &Rc<Controller>, fetched: Fetched) -> Option<Fetched> {
    if !drive.faults.is_armed() || fetched.queue.is_admin() {
        return Some(fetched);
    }
    let subject = Subject::Command {
        opcode: fetched.sqe.opcode,
        key: Command::decode(&fetched.sqe).ok().and_then(|command| key_of(&command)),
        namespace: fetched.sqe.nsid.get(),
    };
    let struck = drive.faults.strike(Moment::Command, subject);
    if struck.delay_ns > 0 {
        drive.link.sim().sleep(struck.delay_ns);
    }
    let refusal = match struck.effect {
        Some(Effect::Refuse(status)) => Refusal { status, after_ns: 0 },
        Some(Effect::Lose(after_ns)) => Refusal { status: Status::ABORT_REQUESTED, after_ns },
        _ => return Some(fetched),
    };
    refuse(drive, fetched, refusal);
    None
}

fn refuse(drive: &Rc<Controller>, fetched: Fetched, refusal: Refusal) {
    let Refusal { status, after_ns } = refusal;
    let completion = in_turn(&fetched, || drive.namespace.refuse(&fetched, status));
    if after_ns == 0 || completion.is_none() {
        return complete(drive, &fetched, completion);
    }
    let drive = drive.clone();
    drive.link.sim().clone().spawn(move || {
        drive.link.sim().sleep(after_ns);
        complete(&drive, &fetched, completion);
    });
}

/// The key that a command names.
fn key_of(command: &Command) -> Option<Key> {
    match *command {
        Command::Store(store) | Command::Express(store) => Some(store.key),
        Command::Write(write) => Some(write.key),
        Command::Retrieve { key, .. }
        | Command::Delete { key }
        | Command::Exist { key }
        | Command::Hybrid { key, .. }
        | Command::CxlStore { key, .. } => Some(key),
        Command::List { start: key, .. } | Command::Seek { key, .. } => key,
        Command::Transfer | Command::Next { .. } | Command::IterClose { .. } => None,
    }
}
