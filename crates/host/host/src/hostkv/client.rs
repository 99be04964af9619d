//! The calls of one thread on a store of the host, as a [`Client`].
//!
//! A call is carried out when it is submitted: it runs on the thread's own core, and a thread does one thing
//! at a time. So a ticket already holds the answer.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_nvme::list::ListWriter;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_store::{StoreError, StoredValue, Thread, Value};

use super::HostKv;
use crate::answers::{self, IteratorId, Pair};
use crate::client::{Answer, Call, Client, Content};
use crate::error::Error;

/// One thread's access to a store.
pub struct HostKvClient {
    kv: Rc<HostKv>,
    thread: Thread,
    is_inside: Cell<bool>,
}

/// A call that was carried out.
#[must_use = "a dropped ticket loses the answer"]
pub struct AnsweredCall<V> {
    result: Result<(Answer, Option<StoredValue>), Status>,
    call: PhantomData<V>,
}

fn status_of(error: StoreError) -> Status {
    error.status()
}

impl HostKv {
    /// The client of one thread. Each number, from 0 to below the number of cores, is given out once.
    pub fn client(self: &Rc<Self>, thread: u32) -> HostKvClient {
        HostKvClient { kv: self.clone(), thread: Thread(thread), is_inside: Cell::new(false) }
    }
}

impl HostKvClient {
    /// Makes all that ended calls wrote durable.
    ///
    /// # Errors
    /// The status that the drive answered.
    pub fn sync(&self) -> Result<(), Status> {
        self.alone(|| self.kv.store.sync(self.thread).map_err(status_of))
    }

    /// Does `work` in the store; the thread must not be inside the store already.
    fn alone<T>(&self, work: impl FnOnce() -> T) -> T {
        assert!(!self.is_inside.replace(true), "thread {} does one thing at a time", self.thread.0);
        let result = work();
        self.is_inside.set(false);
        result
    }

    fn carry_out<V: Content>(&self, call: &Call<V>) -> Result<(Answer, Option<StoredValue>), Status> {
        let (store, thread) = (&self.kv.store, self.thread);
        let answer = match call {
            Call::Store { key, value, options } => {
                // Another thread could put the key between a look and a put.
                if (StoreOptions { no_compress: false, ..*options }) != StoreOptions::default() {
                    return Err(Status::INVALID_FIELD);
                }
                store.put(thread, *key, Value::Piece(value.piece())).map_err(status_of)?;
                Answer::Done
            }
            // A batch saves crossings of a link, and there is none to a store on the host.
            Call::Batch { .. } => return Err(Status::INVALID_OPCODE),
            // Another thread could put the key between a look and a delete; a pair is read as a whole.
            Call::Remove { .. } | Call::RetrievePart { .. } => return Err(Status::INVALID_OPCODE),
            Call::Retrieve { key } => {
                let kept = store.get(thread, *key).map_err(status_of)?.ok_or(Status::KEY_NOT_FOUND)?;
                return Ok((Answer::Value(kept.bytes()), Some(kept)));
            }
            Call::Delete { key } => {
                store.delete(thread, *key).map_err(status_of)?;
                Answer::Done
            }
            Call::Exist { key } => Answer::Exists(store.get(thread, *key).map_err(status_of)?.is_some()),
            Call::List { start, buffer_bytes } => Answer::Keys(self.list(*start, *buffer_bytes)?),
            Call::Seek { key } => {
                let cursor = store.cursor(thread, *key).map_err(status_of)?;
                let number = self.kv.next_iterator.replace(self.kv.next_iterator.get() + 1);
                self.kv.cursors.borrow_mut().insert(number, cursor);
                let iterator = IteratorId::numbered(number);
                let found = self.step(iterator);
                if found.is_err() {
                    // A failed seek returns no iterator, so its cursor is dropped.
                    self.kv.cursors.borrow_mut().remove(&number);
                }
                let (pair, kept) = found?;
                return Ok((Answer::Opened(iterator, pair), kept));
            }
            Call::Next { iterator } => {
                let (pair, kept) = self.step(*iterator)?;
                return Ok((Answer::Pair(pair), kept));
            }
            Call::Close { iterator } => {
                let closed = self.kv.cursors.borrow_mut().remove(&iterator.number());
                closed.ok_or(Status::NO_SUCH_ITERATOR)?;
                Answer::Done
            }
        };
        Ok((answer, None))
    }

    /// The next pair of an iterator, which is taken out of the table while it is in use.
    fn step(&self, iterator: IteratorId) -> Result<(Option<Pair>, Option<StoredValue>), Status> {
        let taken = self.kv.cursors.borrow_mut().remove(&iterator.number());
        let mut cursor = taken.ok_or(Status::NO_SUCH_ITERATOR)?;
        let found = cursor.next(self.thread).map_err(status_of);
        self.kv.cursors.borrow_mut().insert(iterator.number(), cursor);
        Ok(match found? {
            None => (None, None),
            Some((key, kept)) => {
                let bytes = kept.bytes();
                (Some(Pair { key, value_bytes: bytes, came_bytes: bytes }), Some(kept))
            }
        })
    }

    /// As many keys as a drive would list in `buffer_bytes` bytes.
    fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Status> {
        let most = answers::buffer_bytes(self.kv.max_value_bytes());
        let mut buffer = vec![0; buffer_bytes.min(most) as usize];
        let (mut fits, mut keys) = (ListWriter::new(&mut buffer), Vec::new());
        let mut cursor = self.kv.store.cursor(self.thread, start).map_err(status_of)?;
        while let Some((key, _)) = cursor.next(self.thread).map_err(status_of)? {
            if !fits.push(key) {
                break;
            }
            keys.push(key);
        }
        Ok(keys)
    }
}

impl Client for &HostKvClient {
    type Ticket<V: Content> = AnsweredCall<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<AnsweredCall<V>, Error> {
        Ok(AnsweredCall { result: self.alone(|| self.carry_out(&call)), call: PhantomData })
    }

    fn wait<V: Content>(&mut self, ticket: AnsweredCall<V>, into: &mut Region) -> Result<Answer, Error> {
        let (answer, kept) = ticket.result?;
        match (&answer, kept) {
            (_, Some(kept)) => {
                let mut at = 0;
                into.clear();
                kept.read(0, kept.bytes(), &mut |piece| {
                    into.write(at, piece);
                    at += piece.bytes();
                });
            }
            (Answer::Opened(..) | Answer::Pair(_), None) => into.clear(),
            _ => {}
        }
        Ok(answer)
    }
}
