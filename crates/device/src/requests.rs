//! The life of one command, top to bottom.
//!
//! ```text
//!   doorbell ─► fetch (64 B) ─► decode ─► the command ─► completion (16 B) ─► the host's doorbell
//!                                 │
//!     Store      prp, sgl         ├─ reserve a place ─► DMA ─► settle ─► commit
//!     write      piggyback        ├─ reserve a place ─► copy 35 B ─┐
//!     hybrid                      ├─ reserve a place ─► DMA pages ─┤ unfinished values wait in their queue's session
//!     transfer                    ├─ copy 56 B ◄───────────────────┘ ─► after the last byte: settle ─► commit
//!     express    byte-express     ├─ reserve a place ─► copy the chunks fetched with it ─► settle ─► commit
//!     CXL store  cxl              ├─ the place the host has filled ─► commit ─► a fresh window if it is full
//!     batch      all of them      ├─ a region of the controller's ─► its requests one by one (`namespaces/kv/batch.rs`)
//!     Retrieve                    ├─ find ─► load page by page ─► DMA
//!     Exist, Delete               ├─ find; remove
//!     List, SEEK, NEXT            └─ cursor ─► answer in a staging region ─► DMA
//! ```
//!
//! [`serve`] is one firmware context: it runs one command at a time, to its completion. A drive has as
//! many as `controller.contexts` says; with one, the next command waits, as on the published board. A
//! drive may also have a dispatcher, which fetches and decodes, and threads that do the rest
//! ([`crate::dispatch`]).
//!
//! Inline commands (*write*, *hybrid*, *transfer*, and *discard* of what they have begun) of one queue are
//! handled in the order of the queue, whichever context got them. A *quiet* one is not completed: what it would have said is left to the next
//! that is not.

use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_engines::Engine;
use kvdrive_engines::firmware::Role;
use kvdrive_link::transfer::{Assembly, byte_express, hybrid as hybrid_transfer, piggyback, prp};
use kvdrive_link::{Arrival, Port, Request, Session};
use kvdrive_spec::inline::{TAIL_INLINE_BYTES, get_tail};
use kvdrive_spec::iter::{IterHeader, pair_at};
use kvdrive_spec::list::ListWriter;
use kvdrive_spec::window::Grant;
use kvdrive_spec::{Batch, Command, Cqe, Key, Psdt, Status, Store, StoreOptions, Way, Write, opcode};

use crate::controller::Controller;
use crate::faults;
use crate::namespaces::kv::{KvNamespace, PairAnswer, Unfinished, Walk, WindowMatch, batch};
use crate::namespaces::{Answer, Asked, NSID};

/// Longest answer to a List, whatever room the host has and however short values are: the drive builds it in
/// its memory.
const LIST_MAX_BYTES: u32 = 2 << 20;

/// Pairs behind the first are read for an answer as long as it has fewer bytes than this: who asks for many may
/// use few.
const AHEAD_BYTES: u32 = 64 << 10;

/// A command that was taken from its queue, and what it asks of the namespace that it names; `None`: it names
/// none that is there, or is an admin command.
pub(crate) struct Fetched<R> {
    pub(crate) request: R,
    pub(crate) asked: Option<Asked>,
}

/// Takes the next command and looks at what it asks. The time of decoding is [`decode`]'s.
#[inline]
pub(crate) fn fetch<P: Port>(drive: &Controller<P>) -> Fetched<P::Request> {
    let request = drive.port.next();
    let is_for_namespace = !request.is_admin() && request.sqe().nsid.get() == NSID;
    let asked = is_for_namespace.then(|| drive.namespace.decode(request.sqe()));
    Fetched { request, asked }
}

/// One firmware context: takes commands and completes them, for as long as the drive has power.
pub fn serve<P: Port>(drive: Rc<Controller<P>>) {
    loop {
        handle(&drive, fetch(&drive), false);
    }
}

/// A fetched command, to its completion; `is_decoded` if somebody has spent the time of that on it already.
pub(crate) fn handle<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, is_decoded: bool) {
    if let Some(refusal) = faults::strike(drive, &fetched) {
        return faults::refuse(drive, fetched, refusal);
    }
    let completion = in_turn(&fetched.request, || execute_any(drive, &fetched, is_decoded));
    complete(drive, fetched, completion);
}

/// Does `execute` when it is the command's turn.
pub(crate) fn in_turn(request: &impl Request, execute: impl FnOnce() -> Option<Cqe>) -> Option<Cqe> {
    let Some(turn) = request.turn() else { return execute() };
    request.session().wait_turn(turn);
    let completion = execute();
    request.session().end_turn();
    completion
}

/// Tells the host what came of a command. `None`: it was a quiet one, of which the host hears by a later one.
pub(crate) fn complete<P: Port>(
    drive: &Controller<P>,
    fetched: Fetched<P::Request>,
    completion: Option<Cqe>,
) {
    drive.commands.set(drive.commands.get() + 1);
    let Fetched { request, asked } = fetched;
    let Some(cqe) = completion else { return request.omit() };
    // A batch may have been carried out in part.
    let says_done = cqe.status().is_success() || cqe.dw0.get() > 0;
    let changes = || says_done && asked.as_ref().is_some_and(Asked::changes_content);
    let is_kept = drive.journal.acknowledge(request.session().number(), cqe.cid.get(), changes);
    let cqe = if is_kept { cqe } else { Cqe::new(cqe.cid.get(), Status::NAMESPACE_WRITE_PROTECTED) };
    drive.cores.of(Role::Dispatch).run_noted(drive.costs.complete_ns, "controller", "complete");
    request.complete(cqe);
    if drive.journal.wants_checkpoint() {
        drive.journal.checkpoint(&drive.namespace.protected_image());
    }
}

/// Spends the time of decoding a command.
pub(crate) fn decode<P: Port>(drive: &Controller<P>, asked: Option<&Asked>) {
    let span_ns = asked.map_or(drive.costs.decode_other_ns, |asked| drive.costs.decode_ns(asked));
    drive.cores.of(Role::Dispatch).run_noted(span_ns, "controller", "decode");
}

/// Whoever a command is for executes it. `None`: nothing is posted for it.
fn execute_any<P: Port>(
    drive: &Controller<P>,
    fetched: &Fetched<P::Request>,
    is_decoded: bool,
) -> Option<Cqe> {
    let Fetched { request, asked } = fetched;
    if !is_decoded {
        decode(drive, asked.as_ref());
    }
    if let Some(asked) = asked {
        return drive.namespace.execute(request, asked);
    }
    let answer = if request.is_admin() { drive.admin(request) } else { Err(Status::INVALID_NAMESPACE) };
    if let Err(status) = answer {
        drive.logs.borrow_mut().note_error(request.queue_id(), request.sqe().cid.get(), status);
    }
    Some(completion_of(request, answer))
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

/// Executes a command for pairs. `None`: it is quiet, and a later one of its queue completes for it.
pub(crate) fn execute<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: Result<&Command, Status>,
) -> Option<Cqe> {
    let answer = command.map_err(Refusal::from).and_then(|command| answer_to(drive, request, command));
    conclude(drive, request, answer)
}

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

/// Answers a command for pairs that is not executed. A value that its queue has begun lacks its part for good.
pub(crate) fn refuse<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    status: Status,
) -> Option<Cqe> {
    if request.turn().is_some() {
        drive.discard_value(request.session());
    }
    conclude(drive, request, Err(status.into()))
}

/// What the host hears of a command's answer.
fn conclude<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    answer: Result<(u32, u32), Refusal>,
) -> Option<Cqe> {
    let applied = answer.as_ref().err().map_or(0, |refusal| refusal.dw0);
    let answer = answer.map_err(|refusal| refusal.status);
    let in_turn = request.turn().is_some() && request.sqe().opcode != opcode::CXL_STORE;
    if in_turn && answer == Err(Status::COMMAND_INTERRUPTED) {
        // A long value may need the windows' half of the buffer too. The next try must find it free, and
        // queues that are idle would keep theirs.
        drive.sessions.close_windows();
    }
    if in_turn && request.sqe().is_quiet() {
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

/// Is it one that a read-only drive refuses?
pub(crate) fn changes_pairs(command: &Command) -> bool {
    matches!(
        command,
        Command::Store(_)
            | Command::Delete { .. }
            | Command::Express(_)
            | Command::CxlStore { .. }
            | Command::Batch(_)
    ) || is_inline(command)
}

/// Is it one of those that bring a value together?
fn is_inline(command: &Command) -> bool {
    matches!(
        command,
        Command::Write(_)
            | Command::Hybrid { .. }
            | Command::Transfer
            | Command::Batch(Batch { way: Way::Inline | Way::Hybrid { .. }, .. })
    )
}

/// A quiet command was refused: whatever its queue has begun is lost, and a later command says why.
fn remember_refusal<E: Engine>(drive: &KvNamespace<E>, session: &Session, status: Status) {
    drive.discard_value(session);
    drive.sessions.keep_unfinished(session, Unfinished::Refused(status));
}

fn answer_to<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    command: &Command,
) -> Result<(u32, u32), Refusal> {
    if drive.journal.is_protected() && changes_pairs(command) {
        if is_inline(command) {
            drive.discard_value(request.session());
        }
        return Err(Status::NAMESPACE_WRITE_PROTECTED.into());
    }
    let answer = match *command {
        Command::Store(command) => store(drive, request, command),
        Command::Write(command) => write(drive, request, command),
        Command::Hybrid { key, value_bytes, pages_z } => {
            hybrid(drive, request, Write { key, value_bytes }, pages_z)
        }
        Command::Transfer => return transfer(drive, request),
        Command::Batch(command) => return batch::batch(drive, request, command),
        Command::Discard => {
            drive.discard_value(request.session());
            Ok((0, 0))
        }
        Command::Retrieve { key, buffer_bytes, .. } => retrieve(drive, request, key, buffer_bytes),
        Command::Exist { key } => exist(drive, key),
        Command::Delete { key } => delete(drive, key),
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
    take_in_window(drive, session, value.generation, value.at, value.bytes)?;
    if let Err(status) = commit_in_window(drive, request, key, &value) {
        drive.sessions.release(session, value.generation, value.at, value.bytes);
        return Err(status);
    }
    if !drive.sessions.has_room(session, value.at + value.bytes, value.bytes) {
        // The next value would have to ask. When there is none to be had it still will.
        let _ = fresh_window(drive, session);
    }
    Ok(drive.sessions.present(session))
}

/// Takes the bytes of its queue's window that a CXL store names. Where it must name another window it is told
/// which.
pub(crate) fn take_in_window<E: Engine>(
    drive: &KvNamespace<E>,
    session: &Session,
    generation: u32,
    at: u32,
    bytes: u32,
) -> Result<(), Status> {
    if drive.engine.window_bytes().is_none() {
        return Err(Status::INVALID_OPCODE);
    }
    drive.check_value_bytes(bytes)?;
    match drive.sessions.find(session, generation, at, bytes)? {
        WindowMatch::Taken => return Ok(()),
        WindowMatch::Stale => {}
        WindowMatch::Missing => fresh_window(drive, session)?,
    }
    Err(Status::STALE_WINDOW)
}

/// The value of a CXL store lies in its queue's window but for its tail, and its bytes are taken.
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

/// Closes the window of a queue and opens another. Stores of one queue into windows are handled one at a
/// time.
///
/// # Errors
/// [`Status::COMMAND_INTERRUPTED`]: there is none to be had now, whatever the reason.
fn fresh_window<E: Engine>(drive: &KvNamespace<E>, session: &Session) -> Result<(), Status> {
    drive.sessions.close_window(session);
    let bytes = drive.engine.window_bytes().ok_or(Status::COMMAND_INTERRUPTED)?;
    let mut opened = drive.engine.open_window();
    if opened.is_err() && drive.sessions.close_idle() {
        opened = drive.engine.open_window();
    }
    let window = opened.map_err(|_| Status::COMMAND_INTERRUPTED)?;
    drive.sessions.open_window(session, window, bytes);
    Ok(())
}

fn express<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Store) -> Answer {
    let Store { key, value_bytes, options } = command;
    drive.check_value_bytes(value_bytes)?;
    let place = byte_express::receive(request.chunks(), &key, value_bytes, &drive.engine)?;
    commit(drive, key, place, options)
}

/// A *write* or *hybrid* inside an unfinished value: the host has lost count. That value is discarded, and
/// this command is refused so that the host learns of it; the next one finds a clean queue. Behind a quiet
/// command that was refused this is the one that says so.
pub(crate) fn refuse_inside_value<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
) -> Result<(), Status> {
    match drive.sessions.take_unfinished(request.session()) {
        None => Ok(()),
        Some(Unfinished::Refused(status)) => Err(status),
        Some(Unfinished::Value(value)) => {
            drive.engine.abandon(value.place);
            Err(Status::COMMAND_SEQUENCE_ERROR)
        }
        Some(Unfinished::Batch(_)) => Err(Status::COMMAND_SEQUENCE_ERROR),
    }
}

fn write<E: Engine>(drive: &KvNamespace<E>, request: &dyn Request, command: Write) -> Answer {
    refuse_inside_value(drive, request)?;
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
    refuse_inside_value(drive, request)?;
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

/// The index is touched only after the last byte of a value has arrived.
fn settle_and_commit<E: Engine>(drive: &KvNamespace<E>, key: Key, place: E::Place) -> Answer {
    drive.engine.settle(&place);
    commit(drive, key, place, StoreOptions::default())
}

fn commit<E: Engine>(drive: &KvNamespace<E>, key: Key, place: E::Place, options: StoreOptions) -> Answer {
    drive.engine.commit(key, place, options)?;
    Ok((0, 0))
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

/// Deleting what is not there succeeds, as long as the feature that says otherwise (EDNEK) is off.
fn delete<E: Engine>(drive: &KvNamespace<E>, key: Key) -> Answer {
    drive.engine.delete(key)?;
    Ok((0, 0))
}

fn list<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    start: Option<Key>,
    buffer_bytes: u32,
) -> Answer {
    let mut answer = vec![0; buffer_bytes.min(LIST_MAX_BYTES) as usize];
    if answer.len() < kvdrive_spec::list::LIST_HEADER_BYTES {
        return Err(Status::INVALID_FIELD);
    }
    let mut writer = ListWriter::new(&mut answer);
    let mut cursor = drive.engine.open_cursor(start)?;
    while let Some((key, _)) = drive.engine.next(&mut cursor).map_err(of_own_cursor)? {
        if !writer.push(key) {
            break;
        }
    }
    let keys = writer.keys();
    let bytes = writer.finish();
    answer.truncate(bytes);
    send(request, buffer_bytes, &Region::from_bytes(answer), bytes as u32)?;
    Ok((keys, 0))
}

fn seek<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    key: Option<Key>,
    buffer_bytes: u32,
) -> Answer {
    let slot = drive.iterators.reserve()?;
    // Until the first pair is with the host nobody else gets at the cursor: the host does not know its number
    // yet, and when the pair cannot be sent it never will.
    match open_and_send(drive, request, key, buffer_bytes) {
        Ok((walk, bytes)) => Ok((bytes, drive.iterators.fill(slot, walk))),
        Err(status) => {
            drive.iterators.cancel(slot);
            Err(of_own_cursor(status))
        }
    }
}

/// What a command answers that opens its cursor itself: sent again it begins at a state of then.
fn of_own_cursor(status: Status) -> Status {
    if status == Status::ITERATOR_LOST { Status::COMMAND_INTERRUPTED } else { status }
}

fn open_and_send<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    key: Option<Key>,
    buffer_bytes: u32,
) -> Result<(Walk<E::Cursor>, u32), Status> {
    let mut walk = Walk { cursor: drive.engine.open_cursor(key)?, unsent: VecDeque::new() };
    let bytes = send_pairs(drive, request, &mut walk, buffer_bytes, 1)?;
    Ok((walk, bytes))
}

/// Answers the iterator's next pairs, `pairs` at most. Dword 0 is the size of the whole answer, 0 behind the
/// last pair.
fn next<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    iterator: u32,
    buffer_bytes: u32,
    pairs: u32,
) -> Answer {
    let mut walk = drive.iterators.take(iterator)?;
    let sent = send_pairs(drive, request, &mut walk, buffer_bytes, pairs);
    drive.iterators.put_back(iterator, walk);
    if sent == Err(Status::ITERATOR_LOST) {
        drive.iterators.close(iterator).expect("it was put back");
    }
    Ok((sent?, iterator))
}

/// Sends the iterator's next pair, as far as it fits, and up to `pairs` in all, as many as fit whole; returns
/// the size of the whole answer, 0 behind the last pair. Pairs that did not get there stay the next ones.
///
/// Errors: [`Status::ITERATOR_LOST`] when that cannot be, and sent again the command would pass a pair over.
fn send_pairs<E: Engine>(
    drive: &KvNamespace<E>,
    request: &dyn Request,
    walk: &mut Walk<E::Cursor>,
    buffer_bytes: u32,
    pairs: u32,
) -> Result<u32, Status> {
    if !read_pair(drive, walk, 0, buffer_bytes)? {
        return Ok(0);
    }
    let first = match &walk.unsent[0] {
        Ok(pair) if pair.fills(buffer_bytes) => pair,
        // It was read for a smaller buffer.
        Ok(_) => return Err(Status::ITERATOR_LOST),
        Err(status) => {
            let status = *status;
            walk.unsent.pop_front();
            return Err(status);
        }
    };
    let (mut end, mut count) = (first.bytes, 1);
    while (count as u32) < pairs && end < AHEAD_BYTES {
        // What goes wrong behind the first pair is for who asks for that one.
        if !read_pair(drive, walk, count, buffer_bytes).unwrap_or(false) {
            break;
        }
        let Ok(pair) = &walk.unsent[count] else { break };
        match pair_at(end).checked_add(pair.bytes) {
            Some(behind) if behind <= buffer_bytes => (end, count) = (behind, count + 1),
            _ => break,
        }
    }
    match &walk.unsent[0] {
        Ok(pair) if count == 1 => send(request, buffer_bytes, &pair.content, end.min(buffer_bytes))?,
        _ => send(request, buffer_bytes, &side_by_side(walk.unsent.range(..count).flatten()), end)?,
    }
    walk.unsent.drain(..count);
    Ok(end)
}

/// Pairs as one answer has them.
fn side_by_side<'a>(pairs: impl Iterator<Item = &'a PairAnswer>) -> Region {
    let (mut answer, mut at) = (Region::new(), 0);
    for pair in pairs {
        // What lies between two pairs reads as zeros.
        at = pair_at(at);
        pair.content.read(0, pair.bytes, &mut |piece: Piece<'_>| {
            answer.write(at, piece);
            at += piece.bytes();
        });
    }
    answer
}

/// Has the pair at `index` of those that were not sent be there; `false`: the iterator ends before it.
///
/// Errors: what the engine answers and sent again it may not; that it cannot go on is kept instead, so that
/// it is answered in its turn.
fn read_pair<E: Engine>(
    drive: &KvNamespace<E>,
    walk: &mut Walk<E::Cursor>,
    index: usize,
    buffer_bytes: u32,
) -> Result<bool, Status> {
    if index < walk.unsent.len() {
        return Ok(true);
    }
    let pair = match next_pair(drive, &mut walk.cursor, buffer_bytes) {
        Ok(None) => return Ok(false),
        Ok(Some(pair)) => Ok(pair),
        Err(Status::COMMAND_INTERRUPTED) => return Err(Status::COMMAND_INTERRUPTED),
        Err(status) => Err(status),
    };
    walk.unsent.push_back(pair);
    Ok(true)
}

/// The cursor's next pair, as much of it as a buffer of `buffer_bytes` bytes takes.
fn next_pair<E: Engine>(
    drive: &KvNamespace<E>,
    cursor: &mut E::Cursor,
    buffer_bytes: u32,
) -> Result<Option<PairAnswer>, Status> {
    let Some((key, found)) = drive.engine.next(cursor)? else { return Ok(None) };
    let value_bytes = drive.engine.value_bytes(&found);
    let mut content = Region::new();
    content.write(0, Piece::Bytes(IterHeader::new(key, value_bytes).as_bytes()));
    let mut at = IterHeader::BYTES as u32;
    let mut append = |piece: Piece<'_>| {
        content.write(at, piece);
        at += piece.bytes();
    };
    let fits = value_bytes.min(buffer_bytes.saturating_sub(IterHeader::BYTES as u32));
    drive.engine.load(&found, 0, fits, fits, &mut append).map_err(|status| match status {
        Status::COMMAND_INTERRUPTED => Status::ITERATOR_LOST,
        status => status,
    })?;
    let bytes = IterHeader::BYTES as u32 + value_bytes;
    Ok(Some(PairAnswer { content, bytes, room_bytes: buffer_bytes }))
}
