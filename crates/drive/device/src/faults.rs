//! Faults that strike commands, after fetching and before execution.

use kvdrive_flash::faults::{Effect, Moment, Subject};
use kvdrive_link::{Port, Request};
use kvdrive_nvme::door::sent_opcode;
use kvdrive_nvme::{Command, Key, Status, opcode};
use kvdrive_sim::Ns;

use crate::controller::{Controller, Fetched};
use crate::namespaces::Decoded;

/// A command that is not executed.
pub(crate) struct Struck {
    pub(crate) status: Status,
    /// Delay until the host gets the completion, ns.
    pub(crate) after_ns: Ns,
}

/// Applies the rules to a command of an I/O queue that was just fetched. Returns the status if the command is
/// refused or lost.
///
/// A delayed command occupies its context.
#[inline]
pub(crate) fn strike<P: Port>(drive: &Controller<P>, fetched: &Fetched<P::Request>) -> Option<Struck> {
    if drive.faults.is_armed() { strike_one(drive, fetched) } else { None }
}

fn strike_one<P: Port>(drive: &Controller<P>, fetched: &Fetched<P::Request>) -> Option<Struck> {
    let sqe = fetched.request.sqe();
    // A rule strikes the command of the host, and not the parts in which a door carries it out.
    let opcode = sent_opcode(sqe)?;
    let subject = Subject::Command {
        opcode,
        plain: fetched.decoded.as_ref().map_or(opcode, |decoded| plain(decoded, opcode)),
        key: fetched.decoded.as_ref().and_then(key_of),
        namespace: sqe.nsid.get(),
        changes_content: fetched.decoded.as_ref().is_some_and(Decoded::changes_content),
    };
    let struck = drive.faults.strike(Moment::Command, subject);
    if struck.delay_ns > 0 {
        drive.port.sim().sleep(struck.delay_ns);
    }
    if let Some(fault) = struck.at_door {
        drive.faults.note_at_door(fetched.request.session().number(), sqe.cid.get(), fault);
    }
    match struck.effect {
        Some(Effect::Refuse(status) | Effect::RefuseChange(status)) => Some(Struck { status, after_ns: 0 }),
        Some(Effect::Lose(after_ns)) => Some(Struck { status: Status::ABORT_REQUESTED, after_ns }),
        _ => None,
    }
}

/// The opcode of the plain command that does the same as this one, which was sent as `opcode`: a rule for stores or
/// batches strikes them however their values travel.
fn plain(decoded: &Decoded, opcode: u8) -> u8 {
    match decoded {
        Decoded::Pairs(
            Command::Express(_) | Command::Write(_) | Command::Hybrid { .. } | Command::CxlStore { .. },
        ) => opcode::STORE,
        Decoded::Pairs(Command::Batch(_)) => opcode::BATCH,
        _ => opcode,
    }
}

/// The key that a command names.
fn key_of(decoded: &Decoded) -> Option<Key> {
    let Decoded::Pairs(command) = decoded else { return None };
    match *command {
        Command::Store(store) | Command::Express(store) => Some(store.key),
        Command::Write(write) => Some(write.key),
        Command::StorePart(part) => Some(part.store.key),
        Command::RetrievePart(part) => Some(part.key),
        Command::Retrieve { key, .. }
        | Command::Delete { key, .. }
        | Command::Exist { key }
        | Command::Hybrid { key, .. }
        | Command::CxlStore { key, .. } => Some(key),
        Command::List { start: key, .. } | Command::Seek { key, .. } => key,
        Command::Transfer
        | Command::Discard { .. }
        | Command::Next { .. }
        | Command::IterClose { .. }
        | Command::Batch(_)
        | Command::Flush => None,
    }
}
