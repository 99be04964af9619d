//! One thread's view of SAKER.
//!
//! Every call may hand batches out: the runner sends them ([`Client::next_batch`]) before anything else, and
//! in particular before it waits. If a call returns `Wait`, it has changed nothing: the runner waits until
//! that batch is answered ([`crate::Batch::whereabouts`] says in whose queue it is) and calls again.
//!
//! The order of writes is made here, under the lock of the key's bucket: in whose batch the key's newest
//! version is, whether that batch must be closed first, and that the new batch waits for it. Search, append
//! and entry are one step for every reader of the key.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, RequestKind, request_bytes};
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::batch::{Batch, BatchSequence, BatchState, SequenceState};
use crate::cache::{Cache, Value};
use crate::counters::{Count, Counters};
use crate::saker::Saker;
use crate::steps::{NoSteps, Step, Steps};
use crate::sync::{MutexGuard, Ordering, lock};
use crate::table::{Bucket, Newest, Pending};
use crate::writer::{ClientId, Failure, Writer};

/// The result of a write.
#[must_use = "a write may have to wait, or to go on its own"]
#[derive(Clone, Debug)]
pub enum Write {
    /// It is pending: readable, ordered, volatile until a sync.
    Buffered,
    /// Its condition does not hold; the status that the drive would have answered.
    Refused(Status),
    /// Nothing changed. Call again after that batch has been answered.
    Wait(Arc<Batch>),
    /// Send this request to the drive now, as a command of its own, and [`Client::complete`] the batch with
    /// its answer, which is also the answer to the caller.
    Bypass(Arc<Batch>),
}

/// The result of a read.
#[must_use = "a read may have to wait, or to ask the drive"]
#[derive(Clone, Debug)]
pub enum Read {
    /// The pair exists; size of its value in bytes, 0 from `exist`.
    Found(u32),
    /// The pair does not exist: its delete is pending.
    Missing,
    /// Nothing changed. Call again after that batch has been answered.
    Wait(Arc<Batch>),
    /// Ask the drive, and pass the result of a retrieve to [`Client::fill`].
    Ask(Question),
}

/// A question to the drive, with the state of the key's bucket when it was asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The key.
    pub key: Key,
    /// Writes that had entered the key's bucket.
    writes: u64,
}

/// The result of a sync.
#[must_use = "a sync may have to wait, and names what failed"]
#[derive(Clone, Debug)]
pub enum Sync {
    /// All earlier writes have been answered; these requests have failed since the last sync.
    Done(Vec<Failure>),
    /// Call again after that batch has been answered.
    Wait(Arc<Batch>),
}

/// One thread's view of SAKER.
pub struct Client {
    saker: Arc<Saker>,
    id: ClientId,
    sequence: Arc<BatchSequence>,
    writer: Arc<Writer>,
    /// Batches handed out to this client, until the runner takes them.
    outbox: RefCell<VecDeque<Arc<Batch>>>,
    counters: Arc<Counters>,
}

impl Saker {
    /// A client, for one thread.
    pub fn client(self: &Arc<Saker>) -> Client {
        let (id, sequence, counters) = self.enlist();
        Client {
            saker: self.clone(),
            id,
            sequence,
            writer: Arc::default(),
            outbox: RefCell::default(),
            counters,
        }
    }
}

impl Client {
    /// Which client this is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// The state that all clients share.
    pub fn saker(&self) -> &Arc<Saker> {
        &self.saker
    }

    /// The next batch to send: of those that calls have handed out, and of those that dropped clients have
    /// left. The runner asks after every call until it gets `None`, and again while it waits, since a client
    /// may be dropped meanwhile.
    #[must_use]
    pub fn next_batch(&mut self) -> Option<Arc<Batch>> {
        for batch in self.saker.adopt() {
            self.hand_out(batch);
        }
        self.outbox.get_mut().pop_front()
    }

    /// Requests of this client that are not known to be durable: unanswered, or failed and not reported.
    pub fn unsynced(&self) -> u64 {
        self.writer.unanswered.load(Ordering::SeqCst) + lock(&self.writer.failures).len() as u64
    }

    /// Writes a pair.
    ///
    /// # Panics
    /// Panics if the value has 4 GiB or more.
    pub fn store(
        &mut self,
        key: Key,
        value: Piece<'_>,
        options: StoreOptions,
        steps: &mut impl Steps,
    ) -> Write {
        self.write(RequestKind::Store, key, value, options, steps)
    }

    /// Removes a pair; removing an absent pair succeeds.
    pub fn delete(&mut self, key: Key, steps: &mut impl Steps) -> Write {
        self.write(RequestKind::Delete, key, Piece::Bytes(&[]), StoreOptions::default(), steps)
    }

    /// Reads a pair's value to byte 0 of `into`, from a pending write or the cache. Unless the value is
    /// found, `into` is unchanged.
    pub fn retrieve(&mut self, key: Key, into: &mut Region, steps: &mut impl Steps) -> Read {
        self.retrieve_at(key, into, steps).0
    }

    /// As [`Client::retrieve`]; also returns how many writes had entered the key's bucket.
    pub(crate) fn retrieve_at(&self, key: Key, into: &mut Region, steps: &mut impl Steps) -> (Read, u64) {
        let saker = &*self.saker;
        let bucket = saker.table.bucket(&key);
        steps.step(Step::Bucket);
        let writes = bucket.writes;
        if let Some(place) = bucket.find(&key) {
            let read = match place.pending {
                Pending::Unknown => self.waits(&place.batch, Read::Wait),
                Pending::Delete => self.counted(Count::PendingHits, Read::Missing),
                Pending::Store => {
                    into.clear();
                    let bytes = place.batch.read_value(place.index, &mut appending(into));
                    steps.step(Step::Unpack { bytes });
                    self.counted(Count::PendingHits, Read::Found(bytes))
                }
            };
            return (read, writes);
        }
        drop(bucket);
        let ask = Read::Ask(Question { key, writes });
        let Some(cache) = &saker.cache else { return (ask, writes) };
        let found = cache.get(&key);
        let bytes = found.as_ref().map_or(0, |value| value.piece().bytes());
        steps.step(Step::CacheProbe { bytes });
        let read = match found {
            Some(value) => {
                into.clear();
                into.write(0, value.piece());
                self.counted(Count::CacheHits, Read::Found(bytes))
            }
            None => self.counted(Count::CacheMisses, ask),
        };
        (read, writes)
    }

    /// Asks whether a pair exists.
    pub fn exist(&mut self, key: Key, steps: &mut impl Steps) -> Read {
        let saker = &*self.saker;
        let bucket = saker.table.bucket(&key);
        steps.step(Step::Bucket);
        if let Some(place) = bucket.find(&key) {
            return match place.pending {
                Pending::Unknown => self.waits(&place.batch, Read::Wait),
                Pending::Delete => self.counted(Count::PendingHits, Read::Missing),
                Pending::Store => self.counted(Count::PendingHits, Read::Found(0)),
            };
        }
        let writes = bucket.writes;
        drop(bucket);
        if let Some(cache) = &saker.cache {
            steps.step(Step::CacheProbe { bytes: 0 });
            if cache.contains(&key) {
                return self.counted(Count::CacheHits, Read::Found(0));
            }
        }
        Read::Ask(Question { key, writes })
    }

    /// Takes the result of a retrieve: the first `bytes` bytes of `value` are the whole value. It enters the
    /// cache unless a write came after the question: then it is unknown which of the two is newer.
    pub fn fill(&mut self, question: Question, value: &Region, bytes: u32, steps: &mut impl Steps) {
        let Some(cache) = &self.saker.cache else { return };
        if bytes > self.saker.config.cache.admit_bytes {
            self.counters.add(Count::Rejected, 1);
            return;
        }
        let value = Value::of_region(value, bytes);
        let bucket = self.saker.table.bucket(&question.key);
        steps.step(Step::Bucket);
        if bucket.writes != question.writes {
            self.counters.add(Count::LostFills, 1);
            return;
        }
        self.put(&**cache, question.key, value, steps);
        self.counters.add(Count::Admitted, 1);
    }

    /// Waits until all earlier writes of this client are answered. The caller repeats the call for as long as
    /// the result says so.
    pub fn sync(&mut self, steps: &mut impl Steps) -> Sync {
        let mut sequence = self.sequence.lock();
        let waits = || self.writer.unanswered.load(Ordering::SeqCst) > 0;
        if waits() {
            let full = sequence.unanswered().1 >= self.saker.config.in_flight;
            if !full && let Some(open) = sequence.open.clone() {
                self.close(&mut sequence, &open, Count::ClosedBySync, steps);
            }
            // If there is none, the last answer came after `waits()`: writers learn of it before the batch
            // counts as answered.
            if let (Some(oldest), _) = sequence.unanswered() {
                return self.waits(oldest, Sync::Wait);
            }
        }
        assert!(!waits(), "unanswered requests are in batches of their sequence");
        Sync::Done(std::mem::take(&mut lock(&self.writer.failures)))
    }

    /// Closes the containers of all clients that are `max_age_ns` old; returns when the next one will be, in
    /// ns of [`Steps::now_ns`].
    pub fn send_overdue(&mut self, steps: &mut impl Steps) -> Option<u64> {
        let max_age_ns = self.saker.config.max_age_ns;
        if max_age_ns == 0 {
            return None;
        }
        let mut next_ns = None;
        for sequence in self.saker.sequences() {
            let mut sequence = sequence.lock();
            let Some(open) = sequence.open.clone() else { continue };
            let due_ns = open.lock().opened_ns + max_age_ns;
            if due_ns <= steps.now_ns() {
                self.close(&mut sequence, &open, Count::ClosedByAge, steps);
            } else {
                next_ns = Some(next_ns.map_or(due_ns, |next: u64| next.min(due_ns)));
            }
        }
        next_ns
    }

    /// Takes the drive's answer to a batch or a bypass: `applied` is how many of its requests, in their
    /// order, were carried out. (A plain store or delete: 1 if `status` is success.) Any client may report
    /// the answer to any batch.
    ///
    /// # Panics
    /// Panics if the batch was not handed out, or was answered before.
    pub fn complete(&mut self, batch: &Arc<Batch>, status: Status, applied: u32, steps: &mut impl Steps) {
        match batch.bypass_key() {
            Some(key) => {
                steps.step(Step::Bucket);
                let mut bucket = self.saker.table.bucket(&key);
                if let Some(pending) = bucket.leave(&key, batch, 0) {
                    self.saker.remembered.answered(batch, 0, pending, key);
                }
            }
            None => self.leave_table(batch, status, applied, steps),
        }
        // Writers learn of failures before the batch counts as answered.
        for follower in batch.settle() {
            if follower.release() {
                self.hand_out(follower);
            }
        }
        if self.saker.is_adaptive()
            && let Some(sequence) = batch.sequence()
        {
            let mut sequence = sequence.lock();
            if sequence.unanswered().1 == 0
                && let Some(open) = sequence.open.clone()
            {
                self.close(&mut sequence, &open, Count::ClosedByIdle, steps);
            }
        }
    }

    /// Removes the requests of an answered batch from the pending table; their writers learn of those that
    /// failed.
    fn leave_table(&self, batch: &Arc<Batch>, status: Status, applied: u32, steps: &mut impl Steps) {
        let requests = batch.requests();
        let count = requests.len() as u32;
        let status = match status.is_success() && applied < count {
            // The drive reports success and a smaller count: the requests that it did not count have failed.
            true => Status::INTERNAL,
            false => status,
        };
        let applied = if status.is_success() { count } else { applied.min(count) };
        for (index, request) in requests.iter().enumerate() {
            let mut bucket = self.saker.table.bucket(&request.key);
            steps.step(Step::Bucket);
            // If a newer version has entered, its own batch removes it.
            let Some(pending) = bucket.leave(&request.key, batch, index as u32) else { continue };
            let failed = index as u32 >= applied;
            if failed {
                // The write failed; readers saw a value that never existed.
                bucket.writes += 1;
                if let Some(cache) = &self.saker.cache {
                    cache.remove(&request.key);
                }
            }
            let pending = if failed { Pending::Unknown } else { pending };
            self.saker.remembered.answered(batch, index as u32, pending, request.key);
        }
        let writers = batch.lock().take_writers();
        for (run, (first, writer)) in writers.iter().enumerate() {
            let end = writers.get(run + 1).map_or(count, |(next, _)| *next);
            let failed = (*first).max(applied)..end;
            if !failed.is_empty() {
                self.counters.add(Count::Failed, failed.len() as u64);
                let failed = &requests[failed.start as usize..failed.end as usize];
                let failures =
                    failed.iter().map(|request| Failure { kind: request.kind, key: request.key, status });
                lock(&writer.failures).extend(failures);
            }
            writer.unanswered.fetch_sub(u64::from(end - first), Ordering::SeqCst);
        }
        self.saker.pending.sub(batch.bytes());
        self.counters.add(Count::Batches, 1);
        self.counters.add(Count::Singles, u64::from(count == 1));
    }

    fn write(
        &self,
        kind: RequestKind,
        key: Key,
        value: Piece<'_>,
        options: StoreOptions,
        steps: &mut impl Steps,
    ) -> Write {
        let saker = &*self.saker;
        let config = &saker.config;
        let bytes = request_bytes(key.len(), value.bytes());
        let fits = u64::from(BATCH_HEAD_BYTES) + bytes <= u64::from(config.container_bytes);
        let mut bucket = saker.table.bucket(&key);
        steps.step(Step::Bucket);
        let newest = bucket.find(&key).cloned();
        let is_conditional = options.add_only || options.update_only;
        if is_conditional && let Some(place) = &newest {
            match place.pending {
                Pending::Unknown => return self.waits(&place.batch, Write::Wait),
                Pending::Store if options.add_only => return Write::Refused(Status::KEY_EXISTS),
                Pending::Delete if options.update_only => return Write::Refused(Status::KEY_NOT_FOUND),
                _ => {}
            }
        }
        if !fits || (is_conditional && newest.is_none()) {
            return match newest {
                Some(place) => {
                    self.close_batch(&place.batch, Count::ClosedByOrder, steps);
                    self.waits(&place.batch, Write::Wait)
                }
                None => self.bypass(&mut bucket, key),
            };
        }
        let mut sequence = self.sequence.lock();
        if let Some(place) = &newest
            && sequence.open.as_ref().is_none_or(|own| !Arc::ptr_eq(own, &place.batch))
        {
            // Another client's open container is closed: it could otherwise come to wait for ours.
            self.close_batch(&place.batch, Count::ClosedByOrder, steps);
        }
        loop {
            let open = match self.container(&mut sequence, bytes as u32, steps) {
                Ok(open) => open,
                Err(oldest) => return self.waits(&oldest, Write::Wait),
            };
            let mut state = open.lock();
            if !state.is_open() {
                // Another client has written one of its keys and closed it.
                continue;
            }
            if let Some(place) = &newest
                && !Arc::ptr_eq(&place.batch, &open)
            {
                open.wait_for(&mut state, &place.batch);
            }
            let index = self.append(&mut state, kind, key, value, steps);
            let reason = match (state.count() >= config.most_requests(), saker.is_adaptive()) {
                (true, _) => Some(Count::FullByCount),
                (false, true) if sequence.is_idle() => Some(Count::ClosedByIdle),
                _ => None,
            };
            drop(state);
            bucket.enter(key, Newest { batch: open.clone(), index, pending: Pending::of(kind) });
            self.write_cache(kind, key, value, steps);
            if let Some(reason) = reason {
                self.close(&mut sequence, &open, reason, steps);
            }
            return Write::Buffered;
        }
    }

    /// The container for the next request, of `bytes` bytes. If that would leave more closed batches
    /// unanswered than the sequence may have: the oldest of them.
    fn container(
        &self,
        sequence: &mut SequenceState,
        bytes: u32,
        steps: &mut impl Steps,
    ) -> Result<Arc<Batch>, Arc<Batch>> {
        let saker = &*self.saker;
        let (most_requests, in_flight) = (saker.config.most_requests(), saker.config.in_flight);
        loop {
            let Some(open) = sequence.open.clone() else {
                // If one request fills a container, it is closed at once.
                let filled = u32::from(most_requests == 1);
                if let (Some(oldest), unanswered) = sequence.unanswered()
                    && unanswered + filled > in_flight
                {
                    return Err(oldest.clone());
                }
                let open = Batch::open(saker.next_number(), &self.sequence);
                sequence.open = Some(open.clone());
                return Ok(open);
            };
            let state = open.lock();
            let lacks_room = state.bytes() + bytes > saker.config.container_bytes;
            let is_filled = state.count() + 1 >= most_requests;
            drop(state);
            if !lacks_room && !is_filled && !open.is_closed() {
                return Ok(open);
            }
            if let (Some(oldest), unanswered) = sequence.unanswered()
                && unanswered >= in_flight
            {
                return Err(oldest.clone());
            }
            if !lacks_room && !open.is_closed() {
                return Ok(open);
            }
            self.close(sequence, &open, Count::FullByBytes, steps);
        }
    }

    fn append(
        &self,
        state: &mut BatchState,
        kind: RequestKind,
        key: Key,
        value: Piece<'_>,
        steps: &mut impl Steps,
    ) -> u32 {
        if state.count() == 0 {
            self.saker.pending.add(BATCH_HEAD_BYTES);
            if self.saker.config.max_age_ns > 0 {
                state.opened_ns = steps.now_ns();
            }
        }
        let (index, bytes) = state.append(kind, key, value, &self.writer);
        self.writer.unanswered.fetch_add(1, Ordering::SeqCst);
        self.saker.pending.add(bytes);
        self.counters.add(Count::Requests, 1);
        steps.step(Step::Append { bytes });
        index
    }

    /// Puts the new version into the cache, or removes the old one. The key's bucket is locked.
    pub(crate) fn write_cache(&self, kind: RequestKind, key: Key, value: Piece<'_>, steps: &mut impl Steps) {
        let Some(cache) = &self.saker.cache else { return };
        steps.step(Step::CacheProbe { bytes: 0 });
        if kind == RequestKind::Delete || value.bytes() > self.saker.config.cache.admit_bytes {
            cache.remove(&key);
        } else if cache.contains(&key) {
            self.put(&**cache, key, Value::of(value), steps);
        }
    }

    fn put(&self, cache: &dyn Cache, key: Key, value: Value, steps: &mut impl Steps) {
        steps.step(Step::CacheInsert { bytes: value.piece().bytes() });
        let pairs = cache.insert(key, value);
        if pairs > 0 {
            steps.step(Step::CacheEvict { pairs });
            self.counters.add(Count::Evicted, u64::from(pairs));
        }
    }

    /// Makes a bypass. No write of its key is pending. Until it is answered, readers of the key wait, and
    /// later writes are ordered after it.
    fn bypass(&self, bucket: &mut MutexGuard<'_, Bucket>, key: Key) -> Write {
        let batch = Batch::bypass(self.saker.next_number(), key, self.id);
        bucket.enter(key, Newest { batch: batch.clone(), index: 0, pending: Pending::Unknown });
        if let Some(cache) = &self.saker.cache {
            cache.remove(&key);
        }
        self.counters.add(Count::Bypassed, 1);
        Write::Bypass(batch)
    }

    /// Closes the sequence's container.
    fn close(&self, sequence: &mut SequenceState, open: &Arc<Batch>, reason: Count, steps: &mut impl Steps) {
        self.close_batch(open, reason, steps);
        sequence.shelve();
    }

    /// Closes a batch of any client if it is open, and hands it out if no batch is ahead of it.
    pub(crate) fn close_batch(&self, batch: &Arc<Batch>, reason: Count, steps: &mut impl Steps) {
        let is_closed_now = batch.close(&mut batch.lock());
        if !is_closed_now {
            return;
        }
        steps.step(Step::Close);
        self.counters.add(reason, 1);
        if batch.release() {
            self.hand_out(batch.clone());
        } else {
            self.counters.add(Count::Held, 1);
        }
    }

    /// Hands out a batch that was closed from the beginning, with no batch ahead of it.
    pub(crate) fn send_closed(&self, batch: &Arc<Batch>) {
        assert!(batch.release(), "nothing is ahead of it");
        self.hand_out(batch.clone());
    }

    pub(crate) fn count(&self, count: Count) {
        self.counters.add(count, 1);
    }

    fn hand_out(&self, batch: Arc<Batch>) {
        batch.give(self.id);
        self.outbox.borrow_mut().push_back(batch);
    }

    fn counted<T>(&self, count: Count, answer: T) -> T {
        self.counters.add(count, 1);
        answer
    }

    fn waits<T>(&self, batch: &Arc<Batch>, answer: impl FnOnce(Arc<Batch>) -> T) -> T {
        self.counted(Count::Waits, answer(batch.clone()))
    }
}

/// Another client sends its container; [`Count::Unsynced`] counts the requests that were not synced.
impl Drop for Client {
    fn drop(&mut self) {
        let mut sequence = self.sequence.lock();
        if let Some(open) = sequence.open.clone() {
            self.close(&mut sequence, &open, Count::ClosedByDrop, &mut NoSteps);
        }
        self.counters.add(Count::Unsynced, self.unsynced());
        let unsent = self.outbox.take();
        unsent.iter().for_each(|batch| batch.leave());
        self.saker.leave(unsent.into_iter());
        self.saker.part_with(&self.counters);
    }
}

/// Appends each piece to a region.
fn appending(into: &mut Region) -> impl FnMut(Piece<'_>) + '_ {
    let mut at = 0;
    move |piece| {
        into.write(at, piece);
        at += piece.bytes();
    }
}
