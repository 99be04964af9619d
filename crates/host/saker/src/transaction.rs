//! Transactions: reads are recorded and writes held back until a commit sends the writes as one atomic batch,
//! or finds that another client has written a pair that was read.
//!
//! A read records how many writes had entered its key's bucket of the pending table. A commit locks the
//! buckets of all keys that it has read or writes, and continues only if
//!
//! 1. none of the buckets it has read from was written since: else it is a *conflict*, and nothing is
//!    written;
//! 2. none of these keys is pending. Otherwise it first waits for their batches, so that the pairs it has read are on
//!    the drive before the writes that follow from them.
//!
//! Then its writes enter the table, all at that moment. Committed transactions therefore have the effect of
//! one after the other, in the order of these moments; pairs that a transaction with a conflict has read may
//! never have existed together. Two keys of one bucket can conflict without need, which a retry settles. All
//! of this holds between the clients of one [`crate::Saker`]: writes of other hosts are not seen here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::batch::{BATCH_HEAD_BYTES, BATCH_REQUESTS_MAX, RequestKind, request_bytes};
use kvdrive_nvme::{Key, Status};

use crate::batch::Batch;
use crate::cache::Value;
use crate::client::{Client, Read};
use crate::counters::Count;
use crate::steps::{Step, Steps};
use crate::sync::{Ordering, lock};
use crate::table::{Newest, Pending};
use crate::writer::Writer;

/// The reads and writes of a transaction.
#[derive(Debug)]
pub struct Transaction {
    /// Writes that had entered the key's bucket when it was first read.
    reads: BTreeMap<Key, u64>,
    /// `None`: a delete.
    writes: BTreeMap<Key, Option<Value>>,
    /// Bytes of the structured value so far, and the most it may have.
    bytes: u64,
    most_bytes: u64,
}

/// How a transaction has ended.
#[must_use = "a conflict has written nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All its writes are durable.
    Committed,
    /// Another client has written a pair that it read: nothing was written, and the caller may try again.
    Conflict,
}

/// The result of a commit.
#[must_use = "a commit may have to wait"]
pub enum Commit {
    /// It has ended: with a conflict, or committed without writes.
    Ended(Ending),
    /// Nothing changed. Call again after that batch has been answered.
    Wait(Arc<Batch>),
    /// Its writes are handed out as a batch; after the answer, [`Sent::ending`] returns how it ended.
    Sent(Sent),
}

/// The writes of a transaction, handed out as a batch.
pub struct Sent {
    batch: Arc<Batch>,
    writer: Arc<Writer>,
}

impl Sent {
    /// The batch.
    pub fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// How the transaction ended; its batch has been answered.
    ///
    /// # Errors
    /// The status that the drive answered: no write was carried out. [`Status::INVALID_FIELD`]: the drive
    /// takes no atomic batches.
    pub fn ending(self) -> Result<Ending, Status> {
        assert!(self.batch.is_answered(), "a transaction ends when its batch has been answered");
        match lock(&self.writer.failures).first() {
            None => Ok(Ending::Committed),
            Some(failure) => Err(failure.status),
        }
    }
}

impl Transaction {
    /// Gives the key this value, when the transaction is committed.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: the writes would not fit one structured value.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Status> {
        self.write(key, Some(value))
    }

    /// Removes the pair, when the transaction is committed.
    ///
    /// # Errors
    /// As [`Transaction::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), Status> {
        self.write(key, None)
    }

    fn write(&mut self, key: Key, value: Option<Piece<'_>>) -> Result<(), Status> {
        let bytes =
            |value: Option<Piece<'_>>| request_bytes(key.len(), value.map_or(0, |value| value.bytes()));
        let old = self.writes.get(&key).map(|old| bytes(old.as_ref().map(Value::piece)));
        let all = self.bytes + bytes(value) - old.unwrap_or(0);
        let is_one_more = old.is_none() && self.writes.len() as u32 == BATCH_REQUESTS_MAX;
        if all > self.most_bytes || is_one_more {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        self.bytes = all;
        self.writes.insert(key, value.map(Value::of));
        Ok(())
    }
}

impl Client {
    /// An empty transaction.
    pub fn begin(&self) -> Transaction {
        Transaction {
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            bytes: u64::from(BATCH_HEAD_BYTES),
            most_bytes: u64::from(self.saker().config().container_bytes),
        }
    }

    /// As [`Client::retrieve`], in a transaction: its own writes are read first.
    pub fn retrieve_in(
        &mut self,
        transaction: &mut Transaction,
        key: Key,
        into: &mut Region,
        steps: &mut impl Steps,
    ) -> Read {
        match transaction.writes.get(&key) {
            Some(Some(value)) => {
                into.clear();
                into.write(0, value.piece());
                return Read::Found(value.piece().bytes());
            }
            Some(None) => return Read::Missing,
            None => {}
        }
        let (read, writes) = self.retrieve_at(key, into, steps);
        if !matches!(read, Read::Wait(_)) {
            // The count of the first read is kept: a later, different one makes the commit a conflict.
            transaction.reads.entry(key).or_insert(writes);
        }
        read
    }

    /// Commits a transaction. Call again after a `Wait`.
    pub fn commit(&mut self, transaction: &Transaction, steps: &mut impl Steps) -> Commit {
        let Transaction { reads, writes, .. } = transaction;
        let saker = self.saker().clone();
        let keys = || reads.keys().chain(writes.keys());
        // Indexes in ascending order, as in every call that locks several buckets.
        let indexes: BTreeSet<usize> = keys().map(|key| saker.table.index(key)).collect();
        let mut buckets: BTreeMap<usize, _> = BTreeMap::new();
        for index in indexes {
            steps.step(Step::Bucket);
            buckets.insert(index, saker.table.at(index));
        }
        for (key, seen) in reads {
            if buckets[&saker.table.index(key)].writes != *seen {
                self.count(Count::Conflicts);
                return Commit::Ended(Ending::Conflict);
            }
        }
        for key in keys() {
            if let Some(place) = buckets[&saker.table.index(key)].find(key) {
                let batch = place.batch.clone();
                self.close_batch(&batch, Count::ClosedByOrder, steps);
                return Commit::Wait(batch);
            }
        }
        self.count(Count::Commits);
        if writes.is_empty() {
            return Commit::Ended(Ending::Committed);
        }
        let writer = Arc::<Writer>::default();
        writer.unanswered.store(writes.len() as u64, Ordering::SeqCst);
        let requests = writes.iter().map(|(key, value)| (*key, value.as_ref().map(Value::piece)));
        let batch = Batch::atomic(saker.next_number(), requests, &writer);
        saker.pending.add(batch.bytes());
        for (index, (key, value)) in (0..).zip(writes) {
            let (kind, pending, piece) = match value {
                Some(value) => (RequestKind::Store, Pending::Store, value.piece()),
                None => (RequestKind::Delete, Pending::Delete, Piece::Bytes(&[])),
            };
            steps.step(Step::Append { bytes: request_bytes(key.len(), piece.bytes()) as u32 });
            let bucket = buckets.get_mut(&saker.table.index(key)).expect("its bucket is held");
            bucket.enter(*key, Newest { batch: batch.clone(), index, pending });
            self.write_cache(kind, *key, piece, steps);
        }
        steps.step(Step::Close);
        self.send_closed(&batch);
        Commit::Sent(Sent { batch, writer })
    }
}
