//! The steps of one command from its start on the host to the answer: what to do next, and what a completion
//! means. [`Course::advance`] carries them out in a slot that a driver has taken.
//!
//! ```text
//!   step ─► TakeSequence ─► Stage ─► Submit ─► (completed) ─► Submit ─► (completed) ─► Done      a store
//!                                       └ the sequence may pass on as soon as `is_whole`
//!   step ─► Clear ─► Submit ─► (completed) ─► Done                                               all others
//! ```
//!
//! The transfer method chooses where a value goes; over a network, a value travels with its command.

use std::task::{Context, Poll};

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::{Choice, Method, Next, Progress, StoreRequest, prp};
use kvdrive_nvme::{
    Batch, Command, Cqe, DRIVE_NSID, Key, PAGE_BYTES, RetrieveOptions, RetrievePart, Sqe, Status, Store,
    StoreOptions, ValueSource,
};

use super::command_slot::{Aftermath, CommandSlot, SlotOffer, Submission};
use super::slot::IteratorUse;
use crate::answers::{self, AnswerData, IteratorId, Pairs};
use crate::client::{Answer, Call};

/// The next step of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the queue's sequence: no other inline command comes between those of this value.
    TakeSequence,
    /// Put this many bytes from the front of the value into the slot's buffer.
    Stage(u32),
    /// Empty the slot's buffer, which receives an answer.
    Clear,
    /// Name this many bytes from the front of the slot's buffer in a chain of list pages behind its list page
    /// ([`answers::chain`]).
    List(u32),
    /// Store the value's first `bytes` bytes into the drive's window.
    WriteWindow { address: u64, bytes: u32 },
    /// Wait until a value in the window has been answered: [`Course::advance`] returns [`Poll::Pending`], and
    /// the driver calls it again when the window may have room.
    WaitForWindow,
    /// Submit the outbox with one doorbell; this many completions will come.
    Submit(u32),
    /// Wait for all completions of the last submission.
    Complete,
    /// The command has ended with this status.
    Done(Status),
}

/// What a driver knows of its drive when a command begins.
#[derive(Clone, Copy)]
pub(crate) struct Capabilities<'m> {
    /// `None`: a value travels with its command.
    pub(crate) choice: Option<&'m dyn Choice>,
    pub(crate) entries: u32,
    pub(crate) max_value_bytes: u32,
    /// Most bytes of an answer.
    pub(crate) max_answer_bytes: u32,
    /// Bytes of a value that a Retrieve asks for first; a longer value is asked for again.
    pub(crate) at_once_bytes: u32,
    /// Pairs that one NEXT may bring.
    pub(crate) pairs: u16,
}

#[derive(Clone, Copy)]
enum Work<'m> {
    /// A store, or without a key a batch.
    Store { key: Option<Key>, options: StoreOptions, method: &'m dyn Method },
    /// A command whose answer has `room` bytes; 0: it brings no data.
    Other { command: Command, room: u32 },
}

/// Can one list page name `bytes` bytes from the front of a page?
fn is_listed(bytes: u32) -> bool {
    bytes.div_ceil(PAGE_BYTES) <= prp::LISTED_MAX_PAGES
}

/// Which step is next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Stage,
    List,
    Send,
    /// The value is in the window: its command follows.
    AfterWindow,
    Sent,
}

/// How far [`Course::advance`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the last entry that must be submitted in turn is in the queue.
    Whole,
    Ended,
}

/// How a command has ended; `None`: it has not.
pub(crate) type CommandEnd = Option<(Status, Cqe)>;

/// One command; see above.
pub(crate) struct Course<'m> {
    work: Work<'m>,
    phase: Phase,
    /// The step under way; `None`: the phase decides the next one.
    step: Option<Step>,
    progress: Progress,
    /// Most bytes of an answer.
    most_bytes: u32,
}

impl<'m> Course<'m> {
    fn new(capabilities: &Capabilities<'m>, work: Work<'m>) -> Course<'m> {
        let most_bytes = capabilities.max_value_bytes.min(capabilities.max_answer_bytes);
        Course { work, phase: Phase::Begin, step: None, progress: Progress::default(), most_bytes }
    }

    /// The course of `call`; the value of a store has `bytes` bytes and is handed to each step. A condition
    /// needs the option byte, which inline commands use for value bytes: a store with a condition uses `prp`.
    ///
    /// # Errors
    /// The value is larger than the drive's largest; a key of more than 16 bytes, and the drive cannot fetch it.
    pub(crate) fn of<V>(
        capabilities: Capabilities<'m>,
        call: &Call<V>,
        bytes: u32,
    ) -> Result<Course<'m>, Status> {
        let (key, options) = match *call {
            Call::Store { key, options, .. } => (Some(key), options),
            Call::Batch { .. } => (None, StoreOptions::default()),
            _ => return Course::beside(&capabilities, call, bytes),
        };
        if bytes > capabilities.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let Some(choice) = capabilities.choice else { return Course::beside(&capabilities, call, bytes) };
        let plain = options == StoreOptions::default();
        let method = if plain { choice.pick(bytes, capabilities.entries) } else { &prp::Prp };
        Ok(Course::new(&capabilities, Work::Store { key, options, method }))
    }

    /// The course of a call whose value, if it has one, travels beside its command.
    fn beside<V>(capabilities: &Capabilities<'m>, call: &Call<V>, bytes: u32) -> Result<Course<'m>, Status> {
        let course = Course::new(capabilities, other(capabilities, call, bytes));
        let is_unreachable = capabilities.choice.is_none() && course.long_key().is_some();
        if is_unreachable { Err(Status::INVALID_FIELD) } else { Ok(course) }
    }

    /// The call's answer, from the data that `arrived`, and the next action of the driver. `into` gets a value. Errors:
    /// the status; the answer contradicts itself.
    pub(crate) fn conclude(
        &self,
        status: Status,
        cqe: &Cqe,
        arrived: &(impl AnswerData + ?Sized),
        into: &mut Region,
    ) -> (Result<Answer, Status>, Aftermath) {
        let (command, room) = match self.work {
            Work::Store { key: None, .. } => {
                return (Ok(Answer::Applied(cqe.dw0.get(), status)), Aftermath::None);
            }
            Work::Store { .. } => return (done(status).map(|()| Answer::Done), Aftermath::None),
            Work::Other { command, room } => (command, room.min(arrived.bytes())),
        };
        let mut more = Pairs::default();
        let answer = answer(&command, room, status, cqe, arrived, into, &mut more);
        let aftermath = match command {
            Command::Next { iterator, .. } => Aftermath::Keep(IteratorId::numbered(iterator), more),
            Command::Seek { .. } if status.is_success() && answer.is_err() => {
                Aftermath::Close(IteratorId::of(cqe))
            }
            Command::IterClose { iterator } => Aftermath::Forget(IteratorId::numbered(iterator)),
            _ => Aftermath::None,
        };
        (answer, aftermath)
    }

    /// Its key, if that is longer than 16 bytes: it lies in memory, and the entry names it.
    #[inline]
    fn long_key(&self) -> Option<Key> {
        let key = match &self.work {
            Work::Store { key, .. } => key.as_ref(),
            Work::Other { command, .. } => command.key(),
        };
        key.copied().filter(Key::is_long)
    }

    /// The effect of the command on an iterator.
    pub(crate) fn iterator_use(&self) -> IteratorUse {
        match self.work {
            Work::Other { command: Command::Seek { .. }, .. } => IteratorUse::Opens,
            Work::Other { command: Command::Next { iterator, buffer_bytes, .. }, .. } => {
                IteratorUse::Steps { iterator: IteratorId::numbered(iterator), buffer_bytes }
            }
            _ => IteratorUse::None,
        }
    }

    /// Carries out steps in `slot` until the command has ended, or until `until`: `None` says that all of it
    /// is submitted and not answered. After [`Poll::Pending`] the next call continues.
    #[inline]
    pub(crate) fn advance<S: CommandSlot>(
        &mut self,
        slot: &mut S,
        value: Piece<'_>,
        until: Until,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommandEnd, S::Error>> {
        let mut cqe = Cqe::new(0, Status::SUCCESS);
        let mut step = match self.step.take() {
            Some(Step::WaitForWindow) => self.look_at_window(slot, value),
            Some(step) => step,
            None => self.first_step(slot, value),
        };
        loop {
            step = match step {
                Step::TakeSequence => {
                    if slot.take_sequence(context)?.is_pending() {
                        self.step = Some(step);
                        return Poll::Pending;
                    }
                    self.next_step(slot, value)
                }
                Step::Stage(bytes) => {
                    slot.stage(value.slice(0, bytes));
                    self.next_step(slot, value)
                }
                Step::Clear => {
                    slot.clear();
                    self.next_step(slot, value)
                }
                Step::List(bytes) => {
                    slot.list(bytes);
                    self.next_step(slot, value)
                }
                Step::WriteWindow { address, bytes } => {
                    slot.write_window(address, value.slice(0, bytes));
                    self.next_step(slot, value)
                }
                Step::WaitForWindow => {
                    self.step = Some(step);
                    return Poll::Pending;
                }
                Step::Submit(completions) => {
                    let (iterator_use, room) = (self.iterator_use(), self.room());
                    slot.submit(Submission { completions, iterator_use, value, room })?;
                    if self.is_whole(value.bytes()) {
                        // The next value may follow.
                        slot.leave_sequence();
                        if until == Until::Whole {
                            self.step = Some(Step::Complete);
                            return Poll::Ready(Ok(None));
                        }
                    }
                    Step::Complete
                }
                Step::Complete => {
                    let Poll::Ready(completed) = slot.completion(context)? else {
                        self.step = Some(step);
                        return Poll::Pending;
                    };
                    cqe = completed;
                    self.after_completion(slot, value, &cqe)
                }
                Step::Done(status) => {
                    slot.leave_sequence();
                    return Poll::Ready(Ok(Some((status, cqe))));
                }
            };
        }
    }

    /// The next step after a wait for a value in the window.
    fn look_at_window<S: CommandSlot>(&mut self, slot: &mut S, value: Piece<'_>) -> Step {
        let next = self.next_step(slot, value);
        if next != Step::WaitForWindow {
            // The window may have room for more than one value.
            slot.pass_window();
        }
        next
    }

    /// What follows the completion of the last submission.
    #[inline]
    fn after_completion<S: CommandSlot>(&mut self, slot: &mut S, value: Piece<'_>, cqe: &Cqe) -> Step {
        let had_claim = self.progress.claim.is_some();
        let (offer, outbox) = slot.offer();
        let next = self.completed(&offer, value, cqe, outbox);
        if had_claim {
            slot.pass_window();
        }
        next
    }

    /// The first step, after a key of more than 16 bytes is where its entry names it.
    #[inline]
    fn first_step(&mut self, slot: &mut impl CommandSlot, value: Piece<'_>) -> Step {
        if let Some(key) = self.long_key() {
            key.with_bytes(|bytes| slot.put_key(bytes));
        }
        self.next_step(slot, value)
    }

    fn next_step(&mut self, slot: &mut impl CommandSlot, value: Piece<'_>) -> Step {
        let (offer, outbox) = slot.offer();
        self.step(&offer, value, outbox)
    }

    /// Bytes that an answer has room for.
    fn room(&self) -> u32 {
        if let Work::Other { room, .. } = self.work { room } else { 0 }
    }

    /// Are all `bytes` bytes of the value in commands, or in memory that a command names? Then other values
    /// may follow after that command is submitted.
    fn is_whole(&self, bytes: u32) -> bool {
        matches!(self.work, Work::Other { .. }) || self.progress.sent_bytes == bytes
    }

    /// The command's progress, with the part of the queue's window that it holds.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// The next step; no step is under way.
    fn step(&mut self, offer: &SlotOffer<'_>, value: Piece<'_>, outbox: &mut Vec<Sqe>) -> Step {
        loop {
            match (self.phase, self.work) {
                (Phase::Begin, Work::Store { method, .. }) => {
                    self.phase = Phase::Stage;
                    if method.is_inline() {
                        return Step::TakeSequence;
                    }
                }
                (Phase::Begin, Work::Other { room, .. }) => {
                    self.phase = Phase::List;
                    if room > 0 {
                        return Step::Clear;
                    }
                }
                (Phase::Stage, Work::Store { method, .. }) => {
                    self.phase = Phase::List;
                    let bytes = method.staged_bytes(value.bytes());
                    if bytes > 0 {
                        return Step::Stage(bytes);
                    }
                }
                (Phase::List, _) => {
                    self.phase = Phase::Send;
                    let bytes = match self.work {
                        Work::Store { method, .. } => method.staged_bytes(value.bytes()),
                        Work::Other { room, .. } => room,
                    };
                    if !is_listed(bytes) {
                        return Step::List(bytes);
                    }
                }
                (Phase::Send, Work::Store { key, options, method }) => {
                    let request = request(offer, key, value, options);
                    let before = outbox.len();
                    let next = method.begin(&request, &mut self.progress, outbox);
                    if let Some(step) = self.follow(next) {
                        return self.gather(step, offer, value, before, outbox);
                    }
                }
                (Phase::Send, Work::Other { command, room }) => {
                    let mut sqe = command.encode(offer.cid, DRIVE_NSID);
                    if self.long_key().is_some() {
                        sqe.set_key_address(offer.key);
                    }
                    if room > 0 {
                        prp::point_at(&mut sqe, offer.buffer, offer.list, room);
                    }
                    outbox.push(sqe);
                    self.phase = Phase::Sent;
                    return Step::Submit(1);
                }
                (Phase::AfterWindow, _) => {
                    self.phase = Phase::Sent;
                    return Step::Submit(1);
                }
                (Phase::Sent, _) | (Phase::Stage, Work::Other { .. }) => {
                    unreachable!("what is under way has a completion to come")
                }
            }
        }
    }

    /// The next step after all completions of the last submission have come; `cqe` is their joint result.
    fn completed(
        &mut self,
        offer: &SlotOffer<'_>,
        value: Piece<'_>,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Step {
        let Work::Store { key, options, method } = self.work else {
            return match self.ask_for_all(cqe) {
                true => self.step(offer, value, outbox),
                false => Step::Done(cqe.status()),
            };
        };
        let request = request(offer, key, value, options);
        let before = outbox.len();
        let next = method.on_completion(&request, &mut self.progress, cqe, outbox);
        match self.follow(next) {
            Some(step) => self.gather(step, offer, value, before, outbox),
            None => self.step(offer, value, outbox),
        }
    }

    /// If the value was longer than the room that the command named, asks again with room for all of it.
    /// `false`: no byte is missing.
    fn ask_for_all(&mut self, cqe: &Cqe) -> bool {
        let Work::Other { command: Command::Retrieve { key, options, .. }, room } = self.work else {
            return false;
        };
        let bytes = cqe.dw0.get().min(self.most_bytes);
        if !cqe.status().is_success() || bytes <= room {
            return false;
        }
        let (command, room) = retrieve(key, bytes, options);
        (self.work, self.phase) = (Work::Other { command, room }, Phase::Begin);
        true
    }

    /// Adds to the outbox the inline commands that the method would submit after the success of the earlier ones. The
    /// outbox had `before` entries before those of this value. If one of them fails, the drive refuses those after it,
    /// and [`outcome`](kvdrive_link::transfer::outcome) finds the first reason.
    fn gather(
        &mut self,
        step: Step,
        offer: &SlotOffer<'_>,
        value: Piece<'_>,
        before: usize,
        outbox: &mut Vec<Sqe>,
    ) -> Step {
        let (Step::Submit(mut completions), Work::Store { key, options, method }) = (step, self.work) else {
            return step;
        };
        if offer.is_together && method.is_inline() {
            let request = request(offer, key, value, options);
            let success = Cqe::new(offer.cid, Status::SUCCESS);
            while !self.is_whole(value.bytes()) && outbox.len() - before < offer.entries as usize {
                match method.on_completion(&request, &mut self.progress, &success, outbox) {
                    Next::Submit => completions += 1,
                    Next::SubmitForAll(more) => completions += more,
                    next => unreachable!("{next:?}: an inline value that is not whole has a next command"),
                }
            }
        }
        Step::Submit(completions)
    }

    /// The step that a method's choice asks for; `None`: the phase decides.
    fn follow(&mut self, next: Next) -> Option<Step> {
        self.phase = Phase::Sent;
        match next {
            Next::Submit => Some(Step::Submit(1)),
            Next::SubmitForAll(completions) => Some(Step::Submit(completions)),
            Next::WriteWindow { address, bytes } => {
                self.phase = Phase::AfterWindow;
                Some(Step::WriteWindow { address, bytes })
            }
            Next::WaitForWindow => {
                self.phase = Phase::Send;
                Some(Step::WaitForWindow)
            }
            Next::Done(status) => Some(Step::Done(status)),
            Next::ByPrp => {
                let Work::Store { method, .. } = &mut self.work else {
                    unreachable!("only a store has a method")
                };
                *method = &prp::Prp;
                (self.phase, self.progress) = (Phase::Stage, Progress::default());
                None
            }
        }
    }
}

/// A Retrieve with room for `buffer_bytes` bytes, and that room.
fn retrieve(key: Key, buffer_bytes: u32, options: RetrieveOptions) -> (Command, u32) {
    (Command::Retrieve { key, buffer_bytes, options }, buffer_bytes)
}

/// Pairs that a NEXT asks for in wall time, where one more command costs more than pairs that are not needed.
/// In model time a NEXT asks for one pair, as published.
pub(crate) const PAIRS_AT_ONCE: u16 = 32;

/// The one command of a call, whose value has `value_bytes` bytes, and the room of its answer in bytes; 0: it
/// brings no data.
fn other<'m, V>(capabilities: &Capabilities<'_>, call: &Call<V>, value_bytes: u32) -> Work<'m> {
    let most = capabilities.max_answer_bytes;
    // Over a network, commands other than Store and Retrieve move at most this much.
    let most_at_once = match capabilities.choice {
        Some(_) => answers::buffer_bytes(answers::AT_ONCE_BYTES),
        None => answers::AT_ONCE_BYTES,
    };
    let pair_bytes = answers::pair_bytes(capabilities.max_value_bytes).min(most).min(most_at_once);
    let (command, room) = match *call {
        Call::Store { key, options, .. } => (Command::Store(Store { key, value_bytes, options }), 0),
        Call::Batch { .. } => (Command::Batch(Batch { value_bytes, source: ValueSource::Data }), 0),
        Call::Retrieve { key } => {
            let at_once = capabilities.at_once_bytes;
            retrieve(key, capabilities.max_value_bytes.min(most).min(at_once), RetrieveOptions::default())
        }
        Call::RetrievePart { key, at, bytes } => {
            let bytes = bytes.min(most).min(answers::AT_ONCE_BYTES);
            let part =
                RetrievePart { key, at, bytes, stream: 0, room: 0, options: RetrieveOptions::default() };
            (Command::RetrievePart(part), bytes)
        }
        Call::Delete { key } => (Command::Delete { key, must_exist: false }, 0),
        Call::Remove { key } => (Command::Delete { key, must_exist: true }, 0),
        Call::Exist { key } => (Command::Exist { key }, 0),
        Call::List { start, buffer_bytes } => {
            let buffer_bytes = buffer_bytes.min(most).min(most_at_once);
            (Command::List { start, buffer_bytes }, buffer_bytes)
        }
        Call::Seek { key } => (Command::Seek { key, buffer_bytes: pair_bytes }, pair_bytes),
        Call::Next { iterator } => {
            let (iterator, pairs_z) = (iterator.number(), capabilities.pairs - 1);
            (Command::Next { iterator, buffer_bytes: pair_bytes, pairs_z }, pair_bytes)
        }
        Call::Close { iterator } => (Command::IterClose { iterator: iterator.number() }, 0),
    };
    Work::Other { command, room }
}

/// A command's answer from the data that `arrived`, at most `room` bytes; see [`Course::conclude`]. `more`
/// gets the pairs that a NEXT brought after the first one.
fn answer(
    command: &Command,
    room: u32,
    status: Status,
    cqe: &Cqe,
    arrived: &(impl AnswerData + ?Sized),
    into: &mut Region,
    more: &mut Pairs,
) -> Result<Answer, Status> {
    match (command, status) {
        (Command::Exist { .. } | Command::Delete { must_exist: true, .. }, Status::KEY_NOT_FOUND) => {
            return Ok(Answer::Exists(false));
        }
        (Command::Batch(_), status) => return Ok(Answer::Applied(cqe.dw0.get(), status)),
        (_, status) => done(status)?,
    }
    Ok(match command {
        Command::Exist { .. } | Command::Delete { must_exist: true, .. } => Answer::Exists(true),
        Command::Retrieve { .. } => {
            arrived.take_value(cqe.dw0.get().min(room), into);
            Answer::Value(cqe.dw0.get())
        }
        Command::RetrievePart(part) => {
            arrived.take_value(cqe.dw0.get().saturating_sub(part.at).min(room), into);
            Answer::Value(cqe.dw0.get())
        }
        Command::List { .. } => {
            let (memory, at) = arrived.memory();
            Answer::Keys(answers::take_keys(memory, at, room)?)
        }
        Command::Seek { .. } => {
            Answer::Opened(IteratorId::of(cqe), Pairs::of(cqe, arrived, room).next(into)?)
        }
        Command::Next { .. } => {
            *more = Pairs::of(cqe, arrived, room);
            Answer::Pair(more.next(into)?)
        }
        _ => Answer::Done,
    })
}

/// `Ok` for success, else the status.
pub(crate) fn done(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

fn request<'v>(
    offer: &SlotOffer<'v>,
    key: Option<Key>,
    value: Piece<'v>,
    options: StoreOptions,
) -> StoreRequest<'v> {
    let SlotOffer { cid, buffer, list, key: key_at, entries, window, .. } = *offer;
    StoreRequest { key, key_at, value, options, nsid: DRIVE_NSID, cid, buffer, list, slots: entries, window }
}

#[cfg(test)]
mod tests;
