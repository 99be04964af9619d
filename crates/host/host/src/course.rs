//! The steps of one command from its start on the host to the answer: what to do next, and what a completion
//! means. No I/O, no clock, no lock: a runner carries out a [`Step`] and asks for the next one.
//!
//! ```text
//!   step ─► TakeSequence ─► Stage ─► Submit ─► (completed) ─► Submit ─► (completed) ─► Done      a store
//!                                       └ the sequence may pass on as soon as `is_whole`
//!   step ─► Clear ─► Submit ─► (completed) ─► Done                                               all others
//! ```
//!
//! The transfer method chooses where a value goes; [`crate::slot`] tracks what the drive still has of a
//! dropped command.

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::transfer::{Choice, HostWindow, Method, Next, Progress, StoreRequest, prp};
use kvdrive_spec::{Batch, Command, Cqe, Key, RetrieveOptions, Sqe, Status, Store, StoreOptions, Way};

use crate::answers::{self, IteratorId, NSID};
use crate::client::{Answer, Call, Content};
use crate::slot::Walk;

/// What the runner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the queue's sequence: no inline command of others goes between those of this value.
    TakeSequence,
    /// Put the value's first so many bytes into the slot's buffer.
    Stage(u32),
    /// Make the slot's buffer empty: an answer comes into it.
    Clear,
    /// Store the value's first bytes into the drive's window.
    WriteWindow { address: u64, bytes: u32 },
    /// Wait until a value in the window is answered.
    WaitForWindow,
    /// Submit the outbox with one doorbell, wait for so many completions, and hand [`Course::completed`] what
    /// they say together.
    Submit(u32),
    /// The command has ended so.
    Done(Status),
}

/// What a slot offers its command.
#[derive(Clone, Copy)]
pub(crate) struct Lot<'a> {
    pub(crate) cid: u16,
    /// Addresses of its buffer and of the list page that names the buffer's pages.
    pub(crate) buffer: u64,
    pub(crate) list: u64,
    /// Queue entries that the command may use at once.
    pub(crate) entries: u32,
    pub(crate) window: Option<&'a HostWindow>,
    /// Inline commands of a value go together, as far as there are entries, and not each when the one before it
    /// has completed.
    pub(crate) is_together: bool,
}

/// What a driver knows of its drive when a command begins.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'m> {
    pub(crate) choice: &'m dyn Choice,
    pub(crate) entries: u32,
    pub(crate) max_value_bytes: u32,
    /// Pairs that one NEXT may bring.
    pub(crate) pairs: u16,
}

#[derive(Clone, Copy)]
enum What<'m> {
    /// Without a key, of a structured value.
    Store { key: Option<Key>, options: StoreOptions, method: &'m dyn Method },
    /// A command whose answer has room for so many bytes; 0: it brings no data.
    Other { command: Command, room: u32 },
}

/// What is next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Stage,
    Send,
    /// What is in the outbox goes behind what was stored into the window.
    Behind,
    Sent,
}

/// One command; see above.
pub(crate) struct Course<'m> {
    what: What<'m>,
    phase: Phase,
    progress: Progress,
}

impl<'m> Course<'m> {
    fn new(what: What<'m>) -> Course<'m> {
        Course { what, phase: Phase::Begin, progress: Progress::default() }
    }

    /// A store of a value of `bytes` bytes, which each step is handed; without a key, a batch. Conditions need the option byte, which
    /// inline commands use for value bytes: such a store goes by `prp`. Errors: it fits no buffer.
    pub(crate) fn store(
        terms: Terms<'m>,
        key: Option<Key>,
        bytes: u32,
        options: StoreOptions,
    ) -> Result<Course<'m>, Status> {
        if bytes > terms.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let plain = options == StoreOptions::default();
        let method = if plain { terms.choice.pick(bytes, terms.entries) } else { &prp::Prp };
        Ok(Course::new(What::Store { key, options, method }))
    }

    /// What a client asks for. Errors: a value that fits no buffer.
    pub(crate) fn of<V: Content>(terms: Terms<'m>, call: &Call<V>) -> Result<Course<'m>, Status> {
        if let Call::Store { key, ref value, options } = *call {
            return Course::store(terms, Some(key), value.piece().bytes(), options);
        }
        if let Call::Batch { ref value } = *call {
            return Course::store(terms, None, value.piece().bytes(), StoreOptions::default());
        }
        let most = answers::buffer_bytes(terms.max_value_bytes);
        let (command, room) = command(call, terms.max_value_bytes, most, terms.pairs);
        Ok(Course::new(What::Other { command, room }))
    }

    /// Does it bring a value, and nothing else?
    pub(crate) fn is_retrieve(&self) -> bool {
        matches!(self.what, What::Other { command: Command::Retrieve { .. }, .. })
    }

    /// What it answers: takes apart what lies in the slot's buffer, or says what a status means. `into` gets a
    /// value. Errors: the status; an answer that contradicts itself.
    pub(crate) fn answer(
        &self,
        status: Status,
        cqe: &Cqe,
        memory: &dyn HostMemory,
        buffer: u64,
        into: &mut Region,
    ) -> Result<Answer, Status> {
        match self.what {
            What::Store { key: None, .. } => Ok(Answer::Applied(cqe.dw0.get(), status)),
            What::Store { .. } => done(status).map(|()| Answer::Done),
            What::Other { command, room } => answer(&command, room, status, cqe, memory, buffer, into),
        }
    }

    /// What it does with an iterator.
    pub(crate) fn walk(&self) -> Walk {
        match &self.what {
            What::Store { .. } => Walk::None,
            What::Other { command, .. } => walk(command),
        }
    }

    /// Has every byte of a value of `bytes` bytes been put into a command or lies where one says? Then other
    /// values may follow, as soon as that command is submitted.
    pub(crate) fn is_whole(&self, bytes: u32) -> bool {
        self.progress.sent_bytes == bytes
    }

    /// What it has of its queue's window.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// What to do next, as long as nothing is under way.
    pub(crate) fn step(&mut self, lot: &Lot<'_>, value: Piece<'_>, outbox: &mut Vec<Sqe>) -> Step {
        loop {
            match (self.phase, self.what) {
                (Phase::Begin, What::Store { method, .. }) => {
                    self.phase = Phase::Stage;
                    if method.is_inline() {
                        return Step::TakeSequence;
                    }
                }
                (Phase::Begin, What::Other { room, .. }) => {
                    self.phase = Phase::Send;
                    if room > 0 {
                        return Step::Clear;
                    }
                }
                (Phase::Stage, What::Store { method, .. }) => {
                    self.phase = Phase::Send;
                    let bytes = method.staged_bytes(value.bytes());
                    if bytes > 0 {
                        return Step::Stage(bytes);
                    }
                }
                (Phase::Send, What::Store { key, options, method }) => {
                    let request = request(lot, key, value, options);
                    let before = outbox.len();
                    let next = method.begin(&request, &mut self.progress, outbox);
                    if let Some(step) = self.follow(next) {
                        return self.gather(step, lot, value, before, outbox);
                    }
                }
                (Phase::Send, What::Other { command, room }) => {
                    let mut sqe = command.encode(lot.cid, NSID);
                    if room > 0 {
                        prp::point_at(&mut sqe, lot.buffer, lot.list, room);
                    }
                    outbox.push(sqe);
                    self.phase = Phase::Sent;
                    return Step::Submit(1);
                }
                (Phase::Behind, _) => {
                    self.phase = Phase::Sent;
                    return Step::Submit(1);
                }
                (Phase::Sent, _) | (Phase::Stage, What::Other { .. }) => {
                    unreachable!("what is under way has a completion to come")
                }
            }
        }
    }

    /// All completions of the last submission have come, and this is what they say; what to do next.
    pub(crate) fn completed(
        &mut self,
        lot: &Lot<'_>,
        value: Piece<'_>,
        cqe: &Cqe,
        outbox: &mut Vec<Sqe>,
    ) -> Step {
        let What::Store { key, options, method } = self.what else { return Step::Done(cqe.status()) };
        let request = request(lot, key, value, options);
        let before = outbox.len();
        let next = method.on_completion(&request, &mut self.progress, cqe, outbox);
        match self.follow(next) {
            Some(step) => self.gather(step, lot, value, before, outbox),
            None => self.step(lot, value, outbox),
        }
    }

    /// Puts the inline commands that follow into the outbox, too, which had `before` entries before this value's:
    /// those that the method sends when all before them succeed. If one does not, the drive refuses those
    /// behind it, and [`outcome`](kvdrive_link::transfer::outcome) finds the first reason.
    fn gather(
        &mut self,
        step: Step,
        lot: &Lot<'_>,
        value: Piece<'_>,
        before: usize,
        outbox: &mut Vec<Sqe>,
    ) -> Step {
        let (Step::Submit(mut completions), What::Store { key, options, method }) = (step, self.what) else {
            return step;
        };
        if lot.is_together && method.is_inline() {
            let request = request(lot, key, value, options);
            let success = Cqe::new(lot.cid, Status::SUCCESS);
            while !self.is_whole(value.bytes()) && outbox.len() - before < lot.entries as usize {
                match method.on_completion(&request, &mut self.progress, &success, outbox) {
                    Next::Submit => completions += 1,
                    Next::SubmitForAll(more) => completions += more,
                    next => unreachable!("{next:?}: an inline value that is not whole has a next command"),
                }
            }
        }
        Step::Submit(completions)
    }

    /// What a method says is next; `None`: something comes before it.
    fn follow(&mut self, next: Next) -> Option<Step> {
        self.phase = Phase::Sent;
        match next {
            Next::Submit => Some(Step::Submit(1)),
            Next::SubmitForAll(completions) => Some(Step::Submit(completions)),
            Next::WriteWindow { address, bytes } => {
                self.phase = Phase::Behind;
                Some(Step::WriteWindow { address, bytes })
            }
            Next::WaitForWindow => {
                self.phase = Phase::Send;
                Some(Step::WaitForWindow)
            }
            Next::Done(status) => Some(Step::Done(status)),
            Next::ByPrp => {
                let What::Store { method, .. } = &mut self.what else {
                    unreachable!("only a store has a method")
                };
                *method = &prp::Prp;
                (self.phase, self.progress) = (Phase::Stage, Progress::default());
                None
            }
        }
    }
}

/// Pairs that a NEXT asks for in wall time, where a command costs more than pairs that nobody uses. In model time
/// it asks for one, as published.
pub(crate) const PAIRS_AT_ONCE: u16 = 32;

/// The one command that does what a client asks for, however a value travels, and the room that its answer
/// has in a client's buffer, at most `most` bytes; 0: it brings no data. A NEXT asks for `pairs` pairs.
pub(crate) fn command<V: Content>(
    call: &Call<V>,
    max_value_bytes: u32,
    most: u32,
    pairs: u16,
) -> (Command, u32) {
    let pair_bytes = answers::pair_bytes(max_value_bytes).min(most);
    match *call {
        Call::Store { key, ref value, options } => {
            (Command::Store(Store { key, value_bytes: value.piece().bytes(), options }), 0)
        }
        Call::Batch { ref value } => {
            (Command::Batch(Batch { value_bytes: value.piece().bytes(), way: Way::Data }), 0)
        }
        Call::Retrieve { key } => {
            let (buffer_bytes, options) = (max_value_bytes.min(most), RetrieveOptions::default());
            (Command::Retrieve { key, buffer_bytes, options }, buffer_bytes)
        }
        Call::Delete { key } => (Command::Delete { key }, 0),
        Call::Exist { key } => (Command::Exist { key }, 0),
        Call::List { start, buffer_bytes } => {
            let buffer_bytes = buffer_bytes.min(most);
            (Command::List { start, buffer_bytes }, buffer_bytes)
        }
        Call::Seek { key } => (Command::Seek { key, buffer_bytes: pair_bytes }, pair_bytes),
        Call::Next { iterator } => {
            let (iterator, pairs_z) = (iterator.number(), pairs - 1);
            (Command::Next { iterator, buffer_bytes: pair_bytes, pairs_z }, pair_bytes)
        }
        Call::Close { iterator } => (Command::IterClose { iterator: iterator.number() }, 0),
    }
}

/// What a command does with an iterator.
pub(crate) fn walk(command: &Command) -> Walk {
    match *command {
        Command::Seek { .. } => Walk::Opens,
        Command::Next { iterator, buffer_bytes, .. } => {
            Walk::Steps { iterator: IteratorId::numbered(iterator), buffer_bytes }
        }
        _ => Walk::None,
    }
}

/// What a command answers that has come to `buffer`, which has `room` bytes; see [`Course::answer`].
pub(crate) fn answer(
    command: &Command,
    room: u32,
    status: Status,
    cqe: &Cqe,
    memory: &dyn HostMemory,
    buffer: u64,
    into: &mut Region,
) -> Result<Answer, Status> {
    if let Command::Exist { .. } = command {
        return match status {
            Status::KEY_NOT_FOUND => Ok(Answer::Exists(false)),
            status => done(status).map(|()| Answer::Exists(true)),
        };
    }
    if let Command::Batch(_) = command {
        return Ok(Answer::Applied(cqe.dw0.get(), status));
    }
    done(status)?;
    Ok(match command {
        Command::Retrieve { .. } => {
            into.clear();
            answers::copy_in(memory, buffer, cqe.dw0.get().min(room), into);
            Answer::Value(cqe.dw0.get())
        }
        Command::List { .. } => Answer::Keys(answers::take_keys(memory, buffer, room)?),
        Command::Seek { .. } => {
            Answer::Opened(IteratorId::of(cqe), answers::take_pair(cqe, memory, buffer, room, into)?)
        }
        Command::Next { .. } => Answer::Pair(answers::take_pair(cqe, memory, buffer, room, into)?),
        _ => Answer::Done,
    })
}

/// Success or a reason.
pub(crate) fn done(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

fn request<'v>(lot: &Lot<'v>, key: Option<Key>, value: Piece<'v>, options: StoreOptions) -> StoreRequest<'v> {
    let Lot { cid, buffer, list, entries, window, .. } = *lot;
    StoreRequest { key, value, options, nsid: NSID, cid, buffer, list, slots: entries, window }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_link::transfer::{METHODS, TransferConfig, method};
    use kvdrive_spec::opcode;

    const LOT: Lot<'static> =
        Lot { cid: 5, buffer: 1 << 20, list: 1 << 30, entries: 8, window: None, is_together: false };

    fn steps(name: &str, bytes: u32) -> Vec<Step> {
        steps_with(LOT, name, bytes)
    }

    /// Every step of a store to a drive that takes everything.
    fn steps_with(lot: Lot<'_>, name: &str, bytes: u32) -> Vec<Step> {
        let config = TransferConfig {
            method: name.into(),
            threshold1_bytes: 128,
            threshold2_bytes: 64,
            alpha: 1.0,
            beta: 1.0,
        };
        let choice = method(&config).expect("a row");
        let terms = Terms { choice: &*choice, entries: lot.entries, max_value_bytes: 1 << 16, pairs: 1 };
        let key = Some(Key::from_u32_be(1));
        let mut course = match Course::store(terms, key, bytes, StoreOptions::default()) {
            Ok(course) => course,
            Err(status) => return vec![Step::Done(status)],
        };
        let value = vec![7; bytes as usize];
        let (mut steps, mut outbox) = (Vec::new(), Vec::new());
        let mut step = course.step(&lot, Piece::Bytes(&value), &mut outbox);
        loop {
            steps.push(step);
            step = match step {
                Step::Done(_) => return steps,
                Step::Submit(completions) => {
                    assert!(!outbox.is_empty() && completions as usize <= outbox.len(), "{name} {bytes}");
                    outbox.clear();
                    let cqe = Cqe::new(lot.cid, Status::SUCCESS);
                    course.completed(&lot, Piece::Bytes(&value), &cqe, &mut outbox)
                }
                _ => course.step(&lot, Piece::Bytes(&value), &mut outbox),
            };
        }
    }

    #[test]
    fn a_store_takes_the_steps_of_its_method() {
        const DONE: Step = Step::Done(Status::SUCCESS);
        assert_eq!(steps("prp", 5_000), [Step::Stage(5_000), Step::Submit(1), DONE]);
        assert_eq!(steps("prp", 0), [Step::Submit(1), DONE]);
        let one = Step::Submit(1);
        assert_eq!(steps("piggyback", 100), [Step::TakeSequence, one, one, one, DONE]);
        assert_eq!(steps("piggyback-pipelined", 100), [Step::TakeSequence, Step::Submit(3), DONE]);
        assert_eq!(steps("hybrid", 4_100), [Step::TakeSequence, Step::Stage(4_096), one, one, DONE]);
        assert_eq!(steps("cxl", 100), [Step::Stage(100), one, DONE], "no window: by prp");
    }

    #[test]
    fn inline_commands_go_together_as_far_as_there_are_entries() {
        const DONE: Step = Step::Done(Status::SUCCESS);
        let together = |name: &str, bytes: u32| steps_with(Lot { is_together: true, ..LOT }, name, bytes);
        assert_eq!(together("piggyback", 100), [Step::TakeSequence, Step::Submit(3), DONE]);
        let hybrid = [Step::TakeSequence, Step::Stage(4_096), Step::Submit(2), DONE];
        assert_eq!(together("hybrid", 4_100), hybrid);
        // One command with 35 B and nine with 56 B, of which eight fit at once.
        let rounds = [Step::TakeSequence, Step::Submit(8), Step::Submit(2), DONE];
        assert_eq!(together("piggyback", 35 + 9 * 56), rounds);
        assert_eq!(together("prp", 100), steps("prp", 100));
        for row in METHODS {
            for bytes in [0, 35, 36, 500, 4_097, 12_000] {
                assert_eq!(together(row.name, bytes).last(), Some(&DONE), "{} {bytes}", row.name);
            }
        }
    }

    #[test]
    fn every_method_ends_and_refuses_what_is_too_long() {
        for row in METHODS {
            for bytes in [0, 1, 35, 36, 4_095, 4_096, 4_097, 12_000, 1 << 16] {
                assert_eq!(steps(row.name, bytes).last(), Some(&Step::Done(Status::SUCCESS)));
            }
            assert_eq!(steps(row.name, (1 << 16) + 1), [Step::Done(Status::INVALID_VALUE_SIZE)]);
        }
    }

    #[test]
    fn a_command_that_brings_data_has_an_empty_buffer() {
        let terms = Terms { choice: &prp::Prp, entries: 8, max_value_bytes: 1 << 16, pairs: 1 };
        let mut outbox = Vec::new();
        let none = Piece::Bytes(&[]);
        let iterator = IteratorId::numbered(4);
        let mut course = Course::of(terms, &Call::<[u8; 0]>::Next { iterator }).unwrap();
        assert_eq!(course.step(&LOT, none, &mut outbox), Step::Clear);
        assert_eq!(course.step(&LOT, none, &mut outbox), Step::Submit(1));
        assert_eq!(outbox[0].opcode, opcode::NEXT);
        let buffer_bytes = answers::pair_bytes(terms.max_value_bytes);
        assert_eq!(course.walk(), Walk::Steps { iterator, buffer_bytes });
        let key = Key::from_u32_be(1);
        let mut course = Course::of(terms, &Call::<[u8; 0]>::Delete { key }).unwrap();
        assert_eq!(course.step(&LOT, none, &mut outbox), Step::Submit(1));
    }
}
