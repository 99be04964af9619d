//! A batch: a container while requests are put into it, then closed, handed out to a client (its carrier) and
//! answered.
//!
//! ```text
//!   open ──close──► held ──last older batch answered──► with a carrier ──complete──► answered
//!                     └────── no older batch has one of its keys ──────▲
//! ```
//!
//! A container *is* the structured value that the drive will get ([`kvdrive_nvme::batch`]): a request is
//! appended at the place from which it will be sent. A batch of one request is a plain store or delete.
//!
//! The order of batches is a count and a list: `ahead` is 1 while the batch is open, plus 1 for each older
//! batch that has a key in common with it; each of those has this batch among its `followers`. The call that
//! brings the count to 0 hands the batch out, once.
//!
//! A [`BatchSequence`] is the sequence of batches that one client fills.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::Key;
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BatchBuilder, Request, RequestKind};

use crate::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, Ordering, lock};
use crate::writer::{ClientId, Writer};

/// The batches of one client, or of all clients if they share containers: the open container, and closed
/// batches that are not answered.
#[derive(Default)]
pub(crate) struct BatchSequence(Mutex<SequenceState>);

/// The batches of a sequence.
#[derive(Default)]
pub(crate) struct SequenceState {
    pub(crate) open: Option<Arc<Batch>>,
    /// Closed batches, the oldest first; answered ones may still be in it.
    pub(crate) closed: Vec<Arc<Batch>>,
}

impl BatchSequence {
    pub(crate) fn lock(&self) -> MutexGuard<'_, SequenceState> {
        lock(&self.0)
    }
}

impl SequenceState {
    /// The oldest closed batch that is not answered, and how many there are.
    pub(crate) fn unanswered(&mut self) -> (Option<&Arc<Batch>>, u32) {
        self.closed.retain(|batch| !batch.is_answered());
        (self.closed.first(), self.closed.len() as u32)
    }

    /// Has every closed batch been answered?
    pub(crate) fn is_idle(&self) -> bool {
        self.closed.iter().rev().all(|batch| batch.is_answered())
    }

    /// Moves the container, which was closed, to the closed batches.
    pub(crate) fn shelve(&mut self) {
        self.closed.extend(self.open.take());
    }
}

/// Requests that go to the drive together.
pub struct Batch {
    number: u64,
    sequence: Weak<BatchSequence>,
    /// The key of a bypass.
    bypass: Option<Key>,
    ahead: AtomicU32,
    answered: AtomicBool,
    state: Mutex<BatchState>,
    closed: OnceLock<Closed>,
}

/// The parts of a batch that change.
pub(crate) struct BatchState {
    stage: Stage,
    builder: BatchBuilder,
    content: Region,
    requests: Vec<Request>,
    /// The writer of the requests from each index on.
    writers: Vec<(u32, Arc<Writer>)>,
    /// Batches that wait for this one, and batches that this one waits for; a batch may be in a list twice.
    followers: Vec<Arc<Batch>>,
    waits_for: Vec<Arc<Batch>>,
    /// Time of the first request, ns.
    pub(crate) opened_ns: u64,
    is_atomic: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Held,
    With(ClientId),
    Left,
    Answered,
}

/// The parts of a batch that closing it does not change.
struct Closed {
    content: Region,
    requests: Vec<Request>,
    bytes: u32,
}

/// The command of a closed batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// One request: a Store whose value is the given stretch of [`Batch::content`].
    Store {
        /// The key.
        key: Key,
        /// First byte of the value in the content.
        at: u32,
        /// Size of the value, bytes.
        bytes: u32,
    },
    /// One request: a Delete.
    Delete {
        /// The key.
        key: Key,
    },
    /// A batch command: its value is all of [`Batch::content`].
    Batch {
        /// Size of the structured value, bytes.
        bytes: u32,
        /// Requests in it.
        requests: u32,
    },
}

/// The state of a batch, for a thread that waits for it.
#[derive(Clone, Debug)]
pub enum Whereabouts {
    /// It is still being filled.
    Open,
    /// It waits for that older batch, which has a key in common with it.
    WaitsFor(Arc<Batch>),
    /// Another thread is about to hand it out.
    Between,
    /// It was handed out to that client, which will send it or has sent it.
    With(ClientId),
    /// It was handed out to a client that was dropped before it sent it: the next call of
    /// [`crate::Client::next_batch`] returns it.
    Left,
    /// The drive has answered it.
    Answered,
}

impl Batch {
    /// An open container.
    pub(crate) fn open(number: u64, sequence: &Arc<BatchSequence>) -> Arc<Batch> {
        Arc::new(Batch::new(number, Arc::downgrade(sequence), None))
    }

    /// A bypass of `key`: closed from the beginning, and handed out to `carrier`.
    pub(crate) fn bypass(number: u64, key: Key, carrier: ClientId) -> Arc<Batch> {
        let batch = Batch::new(number, Weak::new(), Some(key));
        batch.ahead.store(0, Ordering::SeqCst);
        lock(&batch.state).stage = Stage::With(carrier);
        Arc::new(batch)
    }

    /// The writes of a transaction (`None`: a delete), all or none: closed, in no sequence, with no batch
    /// ahead of it.
    pub(crate) fn atomic<'a>(
        number: u64,
        requests: impl Iterator<Item = (Key, Option<Piece<'a>>)>,
        writer: &Arc<Writer>,
    ) -> Arc<Batch> {
        let batch = Batch::new(number, Weak::new(), None);
        let mut state = batch.lock();
        state.is_atomic = true;
        for (key, value) in requests {
            let kind = if value.is_some() { RequestKind::Store } else { RequestKind::Delete };
            state.append(kind, key, value.unwrap_or(Piece::Bytes(&[])), writer);
        }
        batch.close(&mut state);
        drop(state);
        Arc::new(batch)
    }

    fn new(number: u64, sequence: Weak<BatchSequence>, bypass: Option<Key>) -> Batch {
        let state = BatchState {
            stage: Stage::Open,
            builder: BatchBuilder::new(),
            content: Region::new(),
            requests: Vec::new(),
            writers: Vec::new(),
            followers: Vec::new(),
            waits_for: Vec::new(),
            opened_ns: 0,
            is_atomic: false,
        };
        Batch {
            number,
            sequence,
            bypass,
            ahead: AtomicU32::new(1),
            answered: AtomicBool::new(false),
            state: Mutex::new(state),
            closed: OnceLock::new(),
        }
    }

    /// Its number, which no other batch has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Is it a bypass, whose value only the caller has?
    pub fn is_bypass(&self) -> bool {
        self.bypass.is_some()
    }

    pub(crate) fn bypass_key(&self) -> Option<Key> {
        self.bypass
    }

    /// Does it take no more requests?
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    pub(crate) fn sequence(&self) -> Option<Arc<BatchSequence>> {
        self.sequence.upgrade()
    }

    /// Has the drive answered it?
    pub fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Its command.
    ///
    /// # Panics
    /// Panics if it is open, or a bypass.
    pub fn payload(&self) -> Payload {
        let Closed { requests, bytes, .. } = self.closed();
        match requests[..] {
            [Request { kind: RequestKind::Store, key, value_at, value_bytes }] => {
                Payload::Store { key, at: value_at, bytes: value_bytes }
            }
            [Request { kind: RequestKind::Delete, key, .. }] => Payload::Delete { key },
            _ => Payload::Batch { bytes: *bytes, requests: requests.len() as u32 },
        }
    }

    /// The structured value.
    ///
    /// # Panics
    /// Panics if it is open, or a bypass.
    pub fn content(&self) -> &Region {
        &self.closed().content
    }

    /// Its requests in order.
    ///
    /// # Panics
    /// Panics if it is open, or a bypass.
    pub fn requests(&self) -> &[Request] {
        &self.closed().requests
    }

    /// Bytes of the structured value, head included.
    ///
    /// # Panics
    /// Panics if it is open, or a bypass.
    pub fn bytes(&self) -> u32 {
        self.closed().bytes
    }

    fn closed(&self) -> &Closed {
        self.closed.get().expect("a container that is open, or a request on its own, has no content to send")
    }

    /// Its state.
    pub fn whereabouts(&self) -> Whereabouts {
        let state = self.lock();
        match state.stage {
            Stage::Open => Whereabouts::Open,
            Stage::With(carrier) => Whereabouts::With(carrier),
            Stage::Left => Whereabouts::Left,
            Stage::Answered => Whereabouts::Answered,
            Stage::Held => match state.waits_for.iter().find(|older| !older.is_answered()) {
                Some(older) => Whereabouts::WaitsFor(older.clone()),
                None => Whereabouts::Between,
            },
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, BatchState> {
        lock(&self.state)
    }

    /// Passes the value of request `index`, from the container or the closed batch, to `sink`; returns its
    /// size.
    pub(crate) fn read_value(&self, index: u32, sink: &mut dyn FnMut(Piece<'_>)) -> u32 {
        let read = |content: &Region, request: &Request, sink: &mut dyn FnMut(Piece<'_>)| {
            content.read(request.value_at, request.value_bytes, sink);
            request.value_bytes
        };
        let state = self.lock();
        match self.closed.get() {
            Some(closed) => {
                drop(state);
                read(&closed.content, &closed.requests[index as usize], sink)
            }
            None => read(&state.content, &state.requests[index as usize], sink),
        }
    }

    /// Closes it if it is open; returns whether this call did.
    pub(crate) fn close(&self, state: &mut BatchState) -> bool {
        if state.stage != Stage::Open {
            return false;
        }
        state.stage = Stage::Held;
        let mut content = std::mem::take(&mut state.content);
        content.write(0, Piece::Bytes(&state.builder.head(state.is_atomic)));
        let requests = std::mem::take(&mut state.requests);
        let closed = Closed { content, requests, bytes: state.builder.bytes() };
        assert!(self.closed.set(closed).is_ok(), "a batch is closed once");
        true
    }

    /// Counts one older batch as answered; returns whether this batch can be sent now.
    pub(crate) fn release(&self) -> bool {
        self.ahead.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Hands it out to `carrier`.
    pub(crate) fn give(&self, carrier: ClientId) {
        let mut state = self.lock();
        state.stage = Stage::With(carrier);
        state.waits_for.clear();
    }

    /// Notes that its carrier was dropped before it sent the batch.
    pub(crate) fn leave(&self) {
        self.lock().stage = Stage::Left;
    }

    /// Makes it wait for the answer to `older`, which is closed. `state` is that of this batch, which is
    /// open.
    pub(crate) fn wait_for(self: &Arc<Batch>, state: &mut BatchState, older: &Arc<Batch>) {
        let mut other = older.lock();
        assert!(other.stage != Stage::Open, "a batch waits for closed ones only");
        if other.stage == Stage::Answered
            || other.followers.last().is_some_and(|last| Arc::ptr_eq(last, self))
        {
            return;
        }
        self.ahead.fetch_add(1, Ordering::SeqCst);
        other.followers.push(self.clone());
        state.waits_for.push(older.clone());
    }

    /// Notes that it was answered; returns the batches that waited for it.
    pub(crate) fn settle(&self) -> Vec<Arc<Batch>> {
        let mut state = self.lock();
        assert!(matches!(state.stage, Stage::With(_)), "only what was handed out is answered, and once");
        state.stage = Stage::Answered;
        self.answered.store(true, Ordering::SeqCst);
        std::mem::take(&mut state.followers)
    }
}

impl BatchState {
    pub(crate) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> u32 {
        self.builder.count()
    }

    /// Bytes so far, head included.
    pub(crate) fn bytes(&self) -> u32 {
        self.builder.bytes()
    }

    /// Appends a request; returns its index and the bytes it took.
    pub(crate) fn append(
        &mut self,
        kind: RequestKind,
        key: Key,
        value: Piece<'_>,
        writer: &Arc<Writer>,
    ) -> (u32, u32) {
        let (at, index, value_bytes) = (self.builder.bytes(), self.builder.count(), value.bytes());
        if index == 0 {
            // Room for the head, which closing the batch writes.
            self.content.write(0, Piece::Bytes(&[0; BATCH_HEAD_BYTES as usize]));
        }
        let prefix = self.builder.push(kind, key, value_bytes);
        self.content.write(at, Piece::Bytes(prefix.as_bytes()));
        if !prefix.tail().is_empty() {
            self.content.write(at + prefix.as_bytes().len() as u32, Piece::Bytes(prefix.tail()));
        }
        let value_at = at + prefix.bytes();
        self.content.write(value_at, value);
        self.requests.push(Request { kind, key, value_at, value_bytes });
        if self.writers.last().is_none_or(|(_, last)| !Arc::ptr_eq(last, writer)) {
            self.writers.push((index, writer.clone()));
        }
        (index, self.builder.bytes() - at)
    }

    /// The writers of the requests, as runs: each from its first index on, in order.
    pub(crate) fn take_writers(&mut self) -> Vec<(u32, Arc<Writer>)> {
        std::mem::take(&mut self.writers)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({})", self.number)
    }
}
