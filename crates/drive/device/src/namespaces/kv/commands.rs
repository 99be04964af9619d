//! The opcodes of pairs: the KV command set and the vendor commands, one function each.
//!
//! ```text
//!     Store      prp, sgl         ── reserve a place ─► DMA ─► settle ─► commit
//!     write      piggyback        ── reserve a place ─► copy 35 B ─┐
//!     hybrid                      ── reserve a place ─► DMA pages ─┤ unfinished values wait in their queue's session
//!     transfer                    ── copy 56 B ◄───────────────────┘ ─► after the last byte: settle ─► commit
//!     express    byte-express     ── reserve a place ─► copy the chunks fetched with it ─► settle ─► commit
//!     CXL store  cxl              ── the place the host has filled ─► commit ─► a fresh window if it is full
//!     store part sgl, prp         ── the first one reserves a place ─► DMA ─► after the last byte: settle ─► commit
//!     batch      all of them      ── a region of the controller's ─► its requests one by one ([`super::batch`])
//!     Retrieve                    ── find ─► load page by page ─► DMA
//!     Retrieve part               ── find, or what the stream has found ─► load page by page ─► DMA ([`super::parts`])
//!     Exist, Delete               ── find; remove
//!     List, SEEK, NEXT            ── cursor ─► answer in a staging region ─► DMA ([`super::walks`])
//!     Flush                       ── nothing: what was acknowledged is durable
//! ```
//!
//! Inline commands (*write*, *hybrid*, *transfer*, and *discard*, which ends a value that they have begun) are handled
//! in the order of their queue. A *quiet* command is not completed: the next command of its queue that is not quiet
//! reports its refusal.
//!
//! Not here: the flow of a command through the drive ([`crate::requests`]), and how a value is placed and found
//! (crate `engines`).

use kvdrive_engines::Engine;
use kvdrive_link::transfer::{Assembly, byte_express, hybrid as hybrid_transfer, piggyback, prp};
use kvdrive_link::{Arrival, Request, Session};
use kvdrive_nvme::inline::{TAIL_INLINE_BYTES, get_tail};
use kvdrive_nvme::window::Grant;
use kvdrive_nvme::{Batch, Command, Cqe, Key, Psdt, Status, Store, StoreOptions, ValueSource, Write, opcode};

use super::commit::{commit, settle_and_commit};
use super::walks::{list, next, seek};
use super::{KvNamespace, Unfinished, batch, parts};
use crate::answers::{Answer, Refusal, completion_of};

/// The completion of a command's answer; `None`: none is posted.
pub(super) fn conclude<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    answer: Result<(u32, u32), Refusal>,
) -> Option<Cqe> {
    let applied = answer.as_ref().err().map_or(0, |refusal| refusal.dw0);
    let answer = answer.map_err(|refusal| refusal.status);
    let in_turn = request.turn().is_some() && request.sqe().opcode != opcode::CXL_STORE;
    if in_turn && answer == Err(Status::COMMAND_INTERRUPTED) {
        // A long value may need the windows' half of the buffer too. The next try must find it free, but idle
        // queues would keep their windows.
        drive.sessions.close_windows();
    }
    if in_turn && request.is_quiet() {
        if let Err(status) = answer {
            remember_refusal(drive, request.session(), status);
        }
        return None;
    }
    if answer == Err(Status::STALE_WINDOW) {
        let (write_pointer, generation) = drive.sessions.present(request.session());
        return Some(completion_of(request, answer).with_result(write_pointer, generation));
    }
    let cqe = completion_of(request, answer);
    Some(if applied > 0 { cqe.with_result(applied, 0) } else { cqe })
}

/// Is it one of several commands that may make up one value?
fn is_inline(command: &Command) -> bool {
    matches!(
        command,
        Command::Write(_)
            | Command::Hybrid { .. }
            | Command::Transfer
            | Command::Batch(Batch { source: ValueSource::Inline | ValueSource::Hybrid { .. }, .. })
    )
}

/// A quiet command was refused: the unfinished value of its queue is lost, and a later command reports the status.
fn remember_refusal<E: Engine>(drive: &KvNamespace<E>, session: &Session, status: Status) {
    drive.discard_value(session);
    drive.sessions.keep_unfinished(session, Unfinished::Refused(status));
}

/// Executes a command; returns the double words of its completion.
pub(super) fn answer_to<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: &Command,
) -> Result<(u32, u32), Refusal> {
    if let Some(status) = drive.refusal(command) {
        if is_inline(command) {
            drive.discard_value(request.session());
        }
        if let Command::StorePart(part) = command {
            parts::discard(drive, request.session(), part.stream);
        }
        return Err(status.into());
    }
    let answer = match *command {
        // Every acknowledged change survives a power cut, so nothing is left to be written.
        Command::Flush => Ok((0, 0)),
        Command::Store(command) => store(drive, request, command),
        Command::Write(command) => write(drive, request, command),
        Command::Hybrid { key, value_bytes, pages_z } => {
            hybrid(drive, request, Write { key, value_bytes }, pages_z)
        }
        Command::Transfer => return transfer(drive, request),
        Command::Batch(command) => return batch::batch(drive, request, command),
        Command::Discard { stream: 0 } => {
            drive.discard_value(request.session());
            Ok((0, 0))
        }
        Command::Discard { stream } => {
            parts::discard(drive, request.session(), stream);
            Ok((0, 0))
        }
        Command::StorePart(command) => parts::store(drive, request, command),
        Command::RetrievePart(command) => parts::retrieve(drive, request, &command),
        Command::Retrieve { key, buffer_bytes, .. } => retrieve(drive, request, key, buffer_bytes),
        Command::Exist { key } => exist(drive, key),
        Command::Delete { key, must_exist } => delete(drive, key, must_exist),
        Command::List { start, buffer_bytes } => list(drive, request, start, buffer_bytes),
        Command::Seek { key, buffer_bytes } => seek(drive, request, key, buffer_bytes),
        Command::Next { iterator, buffer_bytes, pairs_z } => {
            next(drive, request, iterator, buffer_bytes, u32::from(pairs_z) + 1)
        }
        Command::IterClose { iterator } => drive.iterators.close(iterator).map(|()| (0, 0)),
        Command::Express(command) => express(drive, request, command),
        Command::CxlStore { key, value_bytes, window_offset, generation, tail_bytes } => {
            let value = InWindow { at: window_offset, bytes: value_bytes, generation, tail_bytes };
            cxl_store(drive, request, key, value)
        }
    };
    Ok(answer?)
}

fn store<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Store) -> Answer {
    let Store { key, value_bytes, options } = command;
    drive.check_value_bytes(value_bytes)?;
    let is_by_prp = request.sqe().psdt()? == Psdt::Prp;
    if let Some(grant) = Grant::of(request.sqe()).filter(|_| is_by_prp) {
        return store_granted(drive, request, command, grant);
    }
    let place = prp::receive(request, &key, value_bytes, &drive.engine)?;
    commit(drive, key, place, options)
}

/// A Store whose value may go into the queue's window; the completion says whether it did.
fn store_granted<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: Store,
    grant: Grant,
) -> Answer {
    let Store { key, value_bytes, options } = command;
    let engine = &drive.engine;
    let place = |window: &E::Window, at| engine.place_in(window, &key, at, value_bytes);
    let Some((place, at)) = drive.sessions.take_granted(request.session(), grant, value_bytes, place) else {
        let place = prp::receive(request, &key, value_bytes, engine)?;
        return commit(drive, key, place, options);
    };
    let stored = match place {
        Ok(place) => store_at(drive, request, command, place),
        Err(status) => Err(status),
    };
    if stored.is_err() {
        drive.sessions.release(request.session(), grant.generation, at, value_bytes);
    }
    stored.map(|_| (at, grant.generation))
}

/// The rest of a Store whose place was found before.
fn store_at<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: Store,
    place: E::Place,
) -> Answer {
    let Store { key, value_bytes, options } = command;
    let place = prp::receive_into(request, value_bytes, place, &drive.engine)?;
    commit(drive, key, place, options)
}

/// A value as a CXL store names it.
struct InWindow {
    at: u32,
    bytes: u32,
    generation: u32,
    tail_bytes: u8,
}

fn cxl_store<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, key: Key, value: InWindow) -> Answer {
    let session = request.session();
    drive.take_in_window(session, value.generation, value.at, value.bytes)?;
    if let Err(status) = commit_in_window(drive, request, key, &value) {
        drive.sessions.release(session, value.generation, value.at, value.bytes);
        return Err(status);
    }
    if !drive.sessions.has_room(session, value.at + value.bytes, value.bytes) {
        // Saves the host a command that asks for a window for its next value. If no window is free now, the host has to
        // ask after all.
        let _ = drive.fresh_window(session);
    }
    Ok(drive.sessions.present(session))
}

/// Commits the value of a CXL store. Its bytes are taken in the window of its queue; its tail is in the command.
fn commit_in_window<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    key: Key,
    value: &InWindow,
) -> Answer {
    let engine = &drive.engine;
    let place = |window: &E::Window| engine.place_in(window, &key, value.at, value.bytes);
    let place = drive.sessions.use_window(request.session(), place).expect("it was found")?;
    if value.tail_bytes > 0 {
        let mut tail = [0; TAIL_INLINE_BYTES];
        get_tail(request.sqe(), &mut tail);
        let bytes = u32::from(value.tail_bytes);
        engine.copy_in(&place, value.bytes - bytes, &tail[..bytes as usize]);
    }
    commit(drive, key, place, StoreOptions::default())
}

fn express<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Store) -> Answer {
    let Store { key, value_bytes, options } = command;
    drive.check_value_bytes(value_bytes)?;
    let place = byte_express::receive(request.chunks(), &key, value_bytes, &drive.engine)?;
    commit(drive, key, place, options)
}

fn write<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Write) -> Answer {
    drive.refuse_inside_value(request)?;
    let Write { key, value_bytes } = command;
    drive.check_value_bytes(value_bytes)?;
    let place = drive.engine.reserve(&key, value_bytes, Arrival::Inline)?;
    let received_bytes = piggyback::copy_write(request.sqe(), value_bytes, &place, &drive.engine);
    if received_bytes == value_bytes {
        return settle_and_commit(drive, key, place);
    }
    keep(drive, request, Assembly { key, value_bytes, received_bytes, place })
}

/// Keeps a value whose rest the host has yet to send.
fn keep<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, assembly: Assembly<E::Place>) -> Answer {
    if let Err(status) = drive.engine.begin_unfinished(&assembly.place) {
        drive.engine.abandon(assembly.place);
        return Err(status);
    }
    drive.sessions.keep_unfinished(request.session(), Unfinished::Value(assembly));
    Ok((0, 0))
}

fn hybrid<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Write, pages_z: u32) -> Answer {
    drive.refuse_inside_value(request)?;
    drive.check_value_bytes(command.value_bytes)?;
    let Write { key, value_bytes } = command;
    let engine = &drive.engine;
    let assembly = hybrid_transfer::receive(request, key, value_bytes, pages_z, engine)?;
    if assembly.is_whole() {
        return settle_and_commit(drive, assembly.key, assembly.place);
    }
    keep(drive, request, assembly)
}

fn transfer<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request) -> Result<(u32, u32), Refusal> {
    let mut assembly = match drive.sessions.take_unfinished(request.session()) {
        Some(Unfinished::Value(value)) => value,
        Some(Unfinished::Batch(begun)) => return batch::transfer(drive, request, begun),
        Some(Unfinished::Refused(status)) => return Err(status.into()),
        None => return Err(Status::COMMAND_SEQUENCE_ERROR.into()),
    };
    piggyback::receive_transfer(request.sqe(), &mut assembly, &drive.engine);
    if !assembly.is_whole() {
        drive.sessions.keep_unfinished(request.session(), Unfinished::Value(assembly));
        return Ok((0, 0));
    }
    Ok(settle_and_commit(drive, assembly.key, assembly.place)?)
}

fn retrieve<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, key: Key, buffer_bytes: u32) -> Answer {
    let found = drive.engine.find(key)?.ok_or(Status::KEY_NOT_FOUND)?;
    let value_bytes = drive.engine.value_bytes(&found);
    let until = value_bytes.min(buffer_bytes);
    request.push(buffer_bytes, until, &mut |at, bytes, sink| {
        drive.engine.load(&found, at, bytes, until, sink)
    })?;
    Ok((value_bytes, 0))
}

fn exist<E: Engine>(drive: &KvNamespace<E>, key: Key) -> Answer {
    drive.engine.find(key)?.ok_or(Status::KEY_NOT_FOUND)?;
    Ok((0, 0))
}

/// Deletes a pair. Without a pair the command succeeds, unless its option or the namespace's feature 20h requires one.
fn delete<E: Engine>(drive: &KvNamespace<E>, key: Key, must_exist: bool) -> Answer {
    match must_exist || drive.is_missing_key_an_error() {
        true => drive.engine.delete_existing(key)?,
        false => drive.engine.delete(key)?,
    }
    Ok((0, 0))
}
