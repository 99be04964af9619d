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
//! handled in the order of the queue, whichever context got them. A *quiet* one is not completed: what it would
//! have said, the next one says that is not quiet.
//!
//! What is not here: how data cross ([`kvdrive_link::port`]), how a value is placed and found (crate
//! `engines`), admin commands ([`crate::controller`]).

use std::rc::{Rc, Weak};

use kvdrive_engines::firmware::Role;
use kvdrive_engines::{Engine, EngineCounters, Utilization};
use kvdrive_link::transfer::{Assembly, byte_express, hybrid as hybrid_transfer, piggyback, prp};
use kvdrive_link::{Arrival, Exposed, Port, Request, Session};
use kvdrive_spec::identify::{CSI_KV, cns};
use kvdrive_spec::inline::{TAIL_INLINE_BYTES, get_tail};
use kvdrive_spec::window::Grant;
use kvdrive_spec::{Batch, Command, Cqe, Key, Psdt, Sqe, Status, Store, StoreOptions, Way, Write, opcode};

use crate::answers::{Answer, Refusal, completion_of};
use crate::controller::{Controller, Fetched};
use crate::faults::{self, Struck};
use crate::namespaces::kv::walks::{self, list, next, seek};
use crate::namespaces::kv::{KvNamespace, Unfinished, batch};
use crate::namespaces::{Asked, NSID, Namespace, OnListed, Pairs};

/// Takes the next command and looks at what it asks. The time of decoding is [`decode`]'s.
#[inline]
pub(crate) fn fetch<P: Port>(drive: &Controller<P>) -> Fetched<P::Request> {
    let request = drive.port.next();
    let is_for_namespace = !request.is_admin() && request.sqe().nsid.get() == NSID;
    let asked = is_for_namespace.then(|| match refusal(&drive.port, request.sqe()) {
        None => drive.namespace.decode(request.sqe()),
        Some(status) => Asked::Nothing(status),
    });
    Fetched { request, asked }
}

/// Why a port cannot have brought this command, whatever a namespace would make of it.
#[inline]
fn refusal(port: &impl Port, sqe: &Sqe) -> Option<Status> {
    if port.refused().contains(&sqe.opcode) {
        return Some(Status::INVALID_OPCODE);
    }
    (sqe.is_quiet() && !port.carries_quiet()).then_some(Status::INVALID_FIELD)
}

/// One firmware context: takes commands and completes them, for as long as the drive has power.
pub fn serve<P: Port>(drive: Rc<Controller<P>>) {
    loop {
        handle(&drive, fetch(&drive), false);
    }
}

/// A fetched command, to its completion; `is_decoded` if somebody has spent the time of that on it already.
#[inline]
pub(crate) fn handle<P: Port>(drive: &Rc<Controller<P>>, fetched: Fetched<P::Request>, is_decoded: bool) {
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

/// Tells a host what came of an admin command.
pub(crate) fn complete_admin<P: Port>(drive: &Controller<P>, request: P::Request, answer: Answer) {
    if let Err(status) = answer {
        drive.logs.borrow_mut().note_error(request.queue_id(), request.sqe().cid.get(), status);
    }
    let completion = completion_of(&request, answer);
    complete(drive, Fetched { request, asked: None }, Some(completion));
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

/// Tells the host what came of a command. `None`: it was a quiet one, of which the host hears by a later one.
#[inline]
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
#[inline]
pub(crate) fn decode<P: Port>(drive: &Controller<P>, asked: Option<&Asked>) {
    let span_ns = asked.map_or(drive.costs.decode_other_ns, |asked| asked.decode_ns(&drive.costs));
    drive.cores.of(Role::Dispatch).run_noted(span_ns, "controller", "decode");
}

/// Whoever a command is for executes it. `None`: nothing is posted for it.
#[inline]
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
    let status = Status::INVALID_NAMESPACE;
    drive.logs.borrow_mut().note_error(request.queue_id(), request.sqe().cid.get(), status);
    Some(completion_of(request, Err(status)))
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
    if drive.journal.is_protected() && command.changes_content() {
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
    drive.take_in_window(session, value.generation, value.at, value.bytes)?;
    if let Err(status) = commit_in_window(drive, request, key, &value) {
        drive.sessions.release(session, value.generation, value.at, value.bytes);
        return Err(status);
    }
    if !drive.sessions.has_room(session, value.at + value.bytes, value.bytes) {
        // The next value would have to ask. When there is none to be had it still will.
        let _ = drive.fresh_window(session);
    }
    Ok(drive.sessions.present(session))
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

impl<E: Engine> Namespace for KvNamespace<E> {
    fn command_set(&self) -> u8 {
        CSI_KV
    }

    fn decode(&self, sqe: &Sqe) -> Asked {
        Command::decode(sqe).map_or_else(Asked::Nothing, Asked::Pairs)
    }

    fn execute(&self, request: &dyn Request, asked: &Asked) -> Option<Cqe> {
        let command = match asked {
            Asked::Pairs(command) => Ok(command),
            Asked::Nothing(status) => Err(*status),
            Asked::Blocks(_) => unreachable!("a namespace decodes its own commands"),
        };
        execute(self, request, command)
    }

    fn refuse(&self, request: &dyn Request, status: Status) -> Option<Cqe> {
        refuse(self, request, status)
    }

    fn identify(&self, structure: u8, nguid: [u8; 16]) -> Option<Vec<u8>> {
        (structure == cns::CSI_NAMESPACE).then(|| self.identify_namespace(nguid))
    }

    fn end_session(&self, session: &Session) {
        self.forget(session);
    }

    fn exposed(self: Rc<Self>) -> Option<Weak<dyn Exposed>> {
        self.engine.window_bytes()?;
        let exposed: Rc<dyn Exposed> = self;
        Some(Rc::downgrade(&exposed))
    }

    fn load(&self, pairs: &mut Pairs<'_>) -> Result<(), (Key, Status)> {
        self.load_pairs(pairs)
    }

    fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        self.engine.expect(keys);
    }

    fn list_all(&self, each: OnListed<'_>) {
        walks::list_all(self, each);
    }

    fn drain(&self) {
        self.engine.drain();
    }

    fn protected_image(&self) -> Vec<u8> {
        self.engine.protected_image()
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.engine.details()
    }

    fn dram(&self) -> Vec<(&'static str, u64)> {
        self.engine.dram()
    }

    fn utilization(&self) -> Utilization {
        self.engine.utilization()
    }
}
