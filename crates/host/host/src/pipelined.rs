//! [`Pipelined`]: many commands at once from one thread. Begin while there is room, take completions, repeat.
//!
//! | pipeline | its commands gather until |
//! |---|---|
//! | [`threaded::Pipeline`](crate::threaded::Pipeline) | the thread has to wait for the drive, and cross with one doorbell |
//! | [`tcp::Pipeline`](crate::tcp::Pipeline) | nothing that has come is left to be read, and go in one send |
//! | [`threaded::saker::Pipeline`](crate::threaded::saker::Pipeline) | SAKER sends them: a write has ended when it is pending |
//!
//! A value belongs to the pipeline until its completion gives it back. A [`Client`](crate::Client) is asked for
//! one answer after the other; a pipeline gives whichever is there.

use kvdrive_content::Region;
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::Error;
use crate::client::Content;

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

/// What kind of command it was, and so what its completion means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Store,
    Delete,
    Exist,
    Retrieve,
}

impl Kind {
    /// What a command has come to that was answered `status`; `value` takes what a retrieve brought.
    pub(crate) fn outcome(
        self,
        status: Status,
        value: impl FnOnce() -> (u32, Region),
    ) -> Result<Outcome, Status> {
        match (self, status) {
            (Kind::Exist, Status::KEY_NOT_FOUND) => Ok(Outcome::Exists(false)),
            (_, status) if !status.is_success() => Err(status),
            (Kind::Store, _) => Ok(Outcome::Stored),
            (Kind::Delete, _) => Ok(Outcome::Deleted),
            (Kind::Exist, _) => Ok(Outcome::Exists(true)),
            (Kind::Retrieve, _) => {
                let (bytes, content) = value();
                Ok(Outcome::Retrieved(bytes, content))
            }
        }
    }
}

/// Many commands at once from one thread; see above.
pub trait Pipelined<V: Content> {
    /// Can one more command begin?
    fn has_room(&self) -> bool;

    /// Commands whose completion has not been taken.
    fn under_way(&self) -> u32;

    /// Begins a store. Gives `value` back when there is no room: take a completion first.
    ///
    /// # Errors
    /// The value; as of the calls below.
    fn store(&mut self, key: Key, value: V) -> Result<(), V> {
        self.store_with(key, value, StoreOptions::default())
    }

    /// Begins a store under a condition.
    ///
    /// # Errors
    /// As [`Pipelined::store`].
    fn store_with(&mut self, key: Key, value: V, options: StoreOptions) -> Result<(), V>;

    /// Begins a retrieve; the value comes back in `into`'s place. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::store`].
    fn retrieve(&mut self, key: Key, tag: V, into: Region) -> Result<(), V>;

    /// Begins a delete. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::store`].
    fn delete(&mut self, key: Key, tag: V) -> Result<(), V>;

    /// Begins an exist. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::store`].
    fn exist(&mut self, key: Key, tag: V) -> Result<(), V>;

    /// The next command that has ended, waiting on this thread if none has; `None` when nothing is under way.
    ///
    /// # Errors
    /// There is no way to the drive any more; what is under way has not been answered.
    fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error>;

    /// Waits until every write whose completion was taken is durable; hands out those that have failed since,
    /// with their status. Where a completion says that a write is durable there is nothing to wait for.
    ///
    /// # Errors
    /// As [`Pipelined::next_completion`].
    fn settle(&mut self, _on_failed: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        Ok(())
    }
}

/// What it was that [`Pipelined::settle`] found failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedWrite {
    /// A store.
    Store,
    /// A delete.
    Delete,
}
