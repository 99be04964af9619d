//! Many commands at once from one thread: submit while there is room, take completions, repeat.
//!
//! Commands gather until the thread has to wait for the drive, and cross with one doorbell; completions come
//! in batches and are acknowledged with one. A value belongs to the pipeline until its completion gives it
//! back, so nothing is copied and nothing is allocated.

use std::collections::VecDeque;
use std::future::poll_fn;

use kvdrive_content::{Pattern, Piece, Region};
use kvdrive_link::transfer::{Method, Next, Progress, StoreRequest, prp};
use kvdrive_spec::inline::chunks_for;
use kvdrive_spec::{Command, Cqe, Key, RetrieveOptions, Sqe, Status, StoreOptions, opcode};

use super::Error;
use super::blocking::block_on;
use super::driver::Driver;
use super::port::Awaited;
use crate::answers::NSID;

/// A value that a pipeline can keep until it is stored; also what identifies a command to its owner.
pub trait Content {
    /// The value.
    fn piece(&self) -> Piece<'_>;
}

impl Content for Vec<u8> {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

impl<const N: usize> Content for [u8; N] {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

impl Content for &[u8] {
    fn piece(&self) -> Piece<'_> {
        Piece::Bytes(self)
    }
}

impl Content for Pattern {
    fn piece(&self) -> Piece<'_> {
        Piece::Pattern(*self)
    }
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is stored.
    Stored,
    /// The pair, if there was one, is gone.
    Deleted,
    /// Is there a pair?
    Exists(bool),
    /// The value's size and content.
    Retrieved(u32, Region),
}

/// A command that has ended.
#[derive(Debug)]
pub struct Completion<V> {
    /// The key.
    pub key: Key,
    /// What was handed in with it.
    pub value: V,
    /// How it ended.
    pub result: Result<Outcome, Status>,
}

enum Kind<'a> {
    Store { options: StoreOptions, method: &'a dyn Method, progress: Progress, awaited: Awaited },
    Delete,
    Exist,
    Retrieve { into: Region },
}

struct Flight<'a, V> {
    key: Key,
    value: V,
    kind: Kind<'a>,
}

/// A driver used as a queue of commands.
///
/// Dropping it forgets what is under way: commands that were submitted are carried out, the others are not.
pub struct Pipeline<'a, V> {
    driver: &'a Driver,
    /// By command identifier.
    flights: Vec<Option<Flight<'a, V>>>,
    free: Vec<u16>,
    under_way: u32,
    /// Entries that wait for a doorbell, and how many of them get no completion.
    outbox: Vec<Sqe>,
    quiet: u32,
    /// Completions that were taken over and not looked at, latest first.
    batch: Vec<Cqe>,
    /// The value in the middle of its inline commands, and those that wait for it.
    inside: Option<u16>,
    waiting: VecDeque<u16>,
}

impl Driver {
    /// Makes this driver a pipeline, after waiting on this thread for what dropped futures have left under
    /// way.
    pub fn pipeline<V: Content>(&mut self) -> Result<Pipeline<'_, V>, Error> {
        let depth = self.depth();
        block_on(self.port().take_all())?;
        Ok(Pipeline {
            driver: self,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth as u16).rev().collect(),
            under_way: 0,
            outbox: Vec::with_capacity(depth as usize),
            quiet: 0,
            batch: Vec::with_capacity(depth as usize),
            inside: None,
            waiting: VecDeque::new(),
        })
    }
}

impl<'a, V: Content> Pipeline<'a, V> {
    /// Can one more command begin?
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Commands that have not ended.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Begins a store. Gives `value` back when there is no room: take a completion first.
    pub fn store(&mut self, key: Key, value: V) -> Result<(), V> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Begins a store under a condition.
    pub fn store_with(&mut self, key: Key, value: V, options: StoreOptions) -> Result<(), V> {
        let method = self.driver.method(value.piece().bytes(), options);
        let kind = Kind::Store { options, method, progress: Progress::default(), awaited: Awaited::new(1) };
        let cid = self.take_off(key, value, kind)?;
        self.begin_store(cid);
        Ok(())
    }

    /// Begins a retrieve; the value comes back in `into`'s place. `tag` is the caller's.
    pub fn retrieve(&mut self, key: Key, tag: V, into: Region) -> Result<(), V> {
        let cid = self.take_off(key, tag, Kind::Retrieve { into })?;
        let port = self.driver.port();
        let buffer = port.buffer(cid);
        buffer.clear();
        let buffer_bytes = self.driver.max_value_bytes();
        let command = Command::Retrieve { key, buffer_bytes, options: RetrieveOptions::default() };
        let mut sqe = command.encode(cid, NSID);
        prp::point_at(&mut sqe, buffer.address(), port.list_address(cid), buffer_bytes);
        self.outbox.push(sqe);
        Ok(())
    }

    /// Begins a delete. `tag` is the caller's.
    pub fn delete(&mut self, key: Key, tag: V) -> Result<(), V> {
        let cid = self.take_off(key, tag, Kind::Delete)?;
        self.outbox.push(Command::Delete { key }.encode(cid, NSID));
        Ok(())
    }

    /// Begins an exist. `tag` is the caller's.
    pub fn exist(&mut self, key: Key, tag: V) -> Result<(), V> {
        let cid = self.take_off(key, tag, Kind::Exist)?;
        self.outbox.push(Command::Exist { key }.encode(cid, NSID));
        Ok(())
    }

    /// The next command that has ended, waiting on this thread if none has; `None` when nothing is under way.
    ///
    /// Errors: the drive is off; what is under way has not been answered.
    pub fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error> {
        while self.under_way > 0 {
            while let Some(cqe) = self.batch.pop() {
                if let Some(completion) = self.advance(&cqe) {
                    return Ok(Some(completion));
                }
            }
            self.ring();
            let port = self.driver.port();
            block_on(poll_fn(|context| port.poll_finished(context, &mut self.batch)))?;
            self.batch.reverse();
            port.queue().ring_completion();
        }
        Ok(None)
    }

    /// Submits what has gathered, without waiting for anything.
    pub fn ring(&mut self) {
        let quiet = std::mem::take(&mut self.quiet);
        let fits = self.driver.port().queue().submit(&mut self.outbox, quiet);
        assert!(fits, "a port has fewer slots than its queue");
    }

    fn take_off(&mut self, key: Key, value: V, kind: Kind<'a>) -> Result<u16, V> {
        let Some(cid) = self.free.pop() else { return Err(value) };
        self.flights[usize::from(cid)] = Some(Flight { key, value, kind });
        self.under_way += 1;
        // The drive begins with the first half while the second is being made.
        if self.outbox.len() >= self.flights.len() / 2 {
            self.ring();
        }
        Ok(cid)
    }

    /// Puts the first command of a value into the outbox, or queues the value for the sequence.
    fn begin_store(&mut self, cid: u16) {
        let flight = self.flights[usize::from(cid)].as_mut().expect("a store begins with its flight");
        let Kind::Store { options, method, progress, awaited } = &mut flight.kind else { return };
        let bytes = flight.value.piece().bytes();
        if method.is_inline() && self.inside.is_some() {
            self.waiting.push_back(cid);
            return;
        }
        let port = self.driver.port();
        let staged_bytes = method.staged_bytes(bytes);
        if bytes <= self.driver.max_value_bytes() && staged_bytes > 0 {
            port.buffer(cid).fill(flight.value.piece().slice(0, staged_bytes));
        }
        let request = request(self.driver, cid, flight.key, flight.value.piece(), *options);
        *progress = Progress::default();
        let before = self.outbox.len();
        let mut next = method.begin(&request, progress, &mut self.outbox);
        if next == Next::ByPrp {
            *method = &prp::Prp;
            if bytes <= self.driver.max_value_bytes() {
                port.buffer(cid).fill(flight.value.piece());
            }
            next = method.begin(&request, progress, &mut self.outbox);
        }
        *awaited = Awaited::new(completions(next));
        self.quiet += (self.outbox.len() - before) as u32 - awaited.completions;
        if method.is_inline() && progress.sent_bytes < bytes {
            self.inside = Some(cid);
        }
    }

    /// Takes a command one step further; returns it when it has ended.
    fn advance(&mut self, cqe: &Cqe) -> Option<Completion<V>> {
        let cid = cqe.cid.get();
        let flight = self.flights[usize::from(cid)].as_mut()?;
        if let Kind::Store { options, method, progress, awaited } = &mut flight.kind {
            let cqe = awaited.take(cqe)?;
            let value = flight.value.piece();
            let request = request(self.driver, cid, flight.key, value, *options);
            let before = self.outbox.len();
            let next = method.on_completion(&request, progress, &cqe, &mut self.outbox);
            let ended = matches!(next, Next::Done(_));
            if !ended {
                *awaited = Awaited::new(completions(next));
                self.quiet += (self.outbox.len() - before) as u32 - awaited.completions;
            }
            let over = ended || progress.sent_bytes == value.bytes();
            if over && self.inside == Some(cid) {
                self.inside = None;
                self.begin_waiting();
            }
            return if ended { self.land(cid, &cqe) } else { None };
        }
        self.land(cid, cqe)
    }

    /// Begins values that waited for the sequence, until one holds it again.
    fn begin_waiting(&mut self) {
        while self.inside.is_none() {
            let Some(cid) = self.waiting.pop_front() else { return };
            self.begin_store(cid);
        }
    }

    fn land(&mut self, cid: u16, cqe: &Cqe) -> Option<Completion<V>> {
        let Flight { key, value, kind } = self.flights[usize::from(cid)].take()?;
        self.free.push(cid);
        self.under_way -= 1;
        let status = cqe.status();
        let result = match (kind, status) {
            (Kind::Exist, Status::KEY_NOT_FOUND) => Ok(Outcome::Exists(false)),
            (_, status) if !status.is_success() => Err(status),
            (Kind::Store { .. }, _) => Ok(Outcome::Stored),
            (Kind::Delete, _) => Ok(Outcome::Deleted),
            (Kind::Exist, _) => Ok(Outcome::Exists(true)),
            (Kind::Retrieve { mut into }, _) => {
                into.clear();
                self.driver.port().buffer(cid).swap(&mut into);
                Ok(Outcome::Retrieved(cqe.dw0.get(), into))
            }
        };
        Some(Completion { key, value, result })
    }
}

fn request<'v>(
    driver: &Driver,
    cid: u16,
    key: Key,
    value: Piece<'v>,
    options: StoreOptions,
) -> StoreRequest<'v> {
    let port = driver.port();
    let (buffer, list, slots) = (port.buffer(cid).address(), port.list_address(cid), port.slots());
    StoreRequest { key, value, options, nsid: NSID, cid, buffer, list, slots, window: None }
}

/// The commands among entries: all but the chunks behind an *express*.
fn commands(entries: &[Sqe]) -> impl Iterator<Item = &Sqe> {
    let mut chunks = 0;
    entries.iter().filter(move |sqe| {
        if chunks > 0 {
            chunks -= 1;
            return false;
        }
        if sqe.opcode == opcode::EXPRESS {
            chunks = chunks_for(sqe.cdw10.get());
        }
        true
    })
}

/// Completions that what was put into the outbox will get.
fn completions(next: Next) -> u32 {
    match next {
        Next::Submit => 1,
        Next::SubmitForAll(completions) => completions,
        Next::Done(_) | Next::ByPrp | Next::WriteWindow { .. } | Next::WaitForWindow => {
            unreachable!("nothing to submit, and no window")
        }
    }
}

impl<V> Drop for Pipeline<'_, V> {
    fn drop(&mut self) {
        let with_drive = |cid: u16| {
            let Some(flight) = &self.flights[usize::from(cid)] else { return 0 };
            // Commands of one slot are submitted together: either all are in the outbox or none.
            if self.waiting.contains(&cid) || commands(&self.outbox).any(|sqe| sqe.cid.get() == cid) {
                return 0;
            }
            let owed = match &flight.kind {
                Kind::Store { awaited, .. } => awaited.completions,
                _ => 1,
            };
            owed - self.batch.iter().filter(|cqe| cqe.cid.get() == cid).count() as u32
        };
        let begins = |sqe: &Sqe, cid: u16| sqe.cid.get() == cid && sqe.opcode != opcode::TRANSFER;
        // What has its first command in the outbox the drive does not know.
        let inside = self.inside.filter(|cid| !commands(&self.outbox).any(|sqe| begins(sqe, *cid)));
        self.driver.port().give_all(&with_drive, inside);
    }
}
