//! Transactions: reads are remembered and writes kept back until a commit sends them as one atomic batch, or finds
//! that another client has written what was read.
//!
//! A read remembers how many writes had entered its key's bucket of the pending table. A commit holds the buckets
//! of all that it has read and writes, and goes on only if
//!
//! 1. none of those it has read was written since: else it is a *conflict*, and nothing of it happens;
//! 2. nothing of these keys is pending: else it waits for that first, so what it has read is on the drive before
//!    what follows from it.
//!
//! Then its writes enter the table, all at that moment. Committed transactions are therefore as if carried out
//! one after the other, in the order of these moments; what one that ends in a conflict has read need never
//! have been there together. Two keys of one bucket may conflict without need, which a retry settles. All of
//! this is between the clients of one [`crate::Saker`]: writes of other hosts are not seen here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_spec::batch::{BATCH_HEAD_BYTES, BATCH_REQUESTS_MAX, RequestKind, request_bytes};
use kvdrive_spec::{Key, Status};

use crate::batch::Batch;
use crate::cache::Value;
use crate::client::{Client, Read};
use crate::counters::Count;
use crate::steps::{Step, Steps};
use crate::sync::{Ordering, lock};
use crate::table::{Newest, Pending};
use crate::writer::Writer;

/// What a transaction has read, and what it would write.
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
    /// All that it wrote is durable.
    Committed,
    /// Another client has written what it read: nothing of it happened, and the caller may try again.
    Conflict,
}

/// What became of a commit.
#[must_use = "a commit may have to wait"]
pub enum Commit {
    /// It has ended: with a conflict, or committed without having written anything.
    Ended(Ending),
    /// Nothing was done. Call again when that batch has been answered.
    Wait(Arc<Batch>),
    /// Its writes are handed out as a batch; when that has been answered, [`Sent::ending`] says how it ended.
    Sent(Sent),
}

/// The writes of a transaction, on their way.
pub struct Sent {
    batch: Arc<Batch>,
    writer: Arc<Writer>,
}

impl Sent {
    /// The batch.
    pub fn batch(&self) -> &Arc<Batch> {
        &self.batch
    }

    /// How it ended, when its batch has been answered.
    ///
    /// # Errors
    /// What the drive answered: nothing of it was carried out. [`Status::INVALID_FIELD`]: it takes no atomic
    /// batches.
    pub fn ending(self) -> Result<Ending, Status> {
        assert!(self.batch.is_answered(), "a transaction ends when its batch has been answered");
        match lock(&self.writer.failures).first() {
            None => Ok(Ending::Committed),
            Some(failure) => Err(failure.status),
        }
    }
}

impl Transaction {
    /// The key gets this value, when it is committed.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: it would not fit one structured value any more.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), Status> {
        self.write(key, Some(value))
    }

    /// The key has no value any more, when it is committed.
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
    /// A transaction that has read and written nothing.
    pub fn begin(&self) -> Transaction {
        Transaction {
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            bytes: u64::from(BATCH_HEAD_BYTES),
            most_bytes: u64::from(self.saker().config().container_bytes),
        }
    }

    /// As [`Client::retrieve`], in a transaction: what it has written itself it reads.
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
            // Read again and found altered, it cannot be committed: the first time counts.
            transaction.reads.entry(key).or_insert(writes);
        }
        read
    }

    /// Commits a transaction. Call again as long as it says `Wait`.
    pub fn commit(&mut self, transaction: &Transaction, steps: &mut impl Steps) -> Commit {
        let Transaction { reads, writes, .. } = transaction;
        let saker = self.saker().clone();
        let keys = || reads.keys().chain(writes.keys());
        // In the order in which every caller that takes several takes them.
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
