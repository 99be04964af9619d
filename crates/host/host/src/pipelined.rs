//! [`Pipelined`]: many commands at once from one thread. Begin while there is room, take completions, repeat.
//!
//! | pipeline | its commands gather until |
//! |---|---|
//! | [`threaded::Pipeline`](crate::threaded::Pipeline) | the thread has to wait for the drive, and cross with one doorbell |
//! | [`tcp::Pipeline`](crate::tcp::Pipeline) | nothing that has come is left to be read, and go in one send |
//! | [`spread::Pipeline`](crate::spread::Pipeline) | as on each of its connections, which are to several drives |
//! | [`threaded::saker::Pipeline`](crate::threaded::saker::Pipeline) | SAKER sends them: a write has ended when it is pending |
//!
//! A value belongs to the pipeline until its completion gives it back. A [`Client`](crate::Client) is asked for
//! one answer after the other; a pipeline gives whichever is there.

use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::Error;
use crate::answers::{IteratorId, Pairs};
use crate::client::{Answer, Call, Content};

/// A call that has ended.
#[derive(Debug)]
pub struct Completion<V> {
    /// The call.
    pub call: Call<()>,
    /// The value of a store, or what was handed in with the call.
    pub value: V,
    /// What it answers.
    pub result: Result<Answer, Status>,
    /// What was handed in for a value, which is there if the answer has one.
    pub content: Region,
}

/// Many commands at once from one thread; see above.
pub trait Pipelined<V: Content> {
    /// Can one more command begin?
    fn has_room(&self) -> bool;

    /// Commands whose completion has not been taken.
    fn under_way(&self) -> u32;

    /// Begins a call. `value` is that of a store or a batch; with other calls it is the caller's. A value that is
    /// answered comes to `into`. Gives `value` back when there is no room: take a completion first. A NEXT is begun
    /// when the one before it of its iterator has completed.
    ///
    /// # Errors
    /// The value; as of the calls below.
    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V>;

    /// Begins a store.
    ///
    /// # Errors
    /// As [`Pipelined::begin`].
    fn store(&mut self, key: Key, value: V) -> Result<(), V> {
        self.begin(Call::Store { key, value: (), options: StoreOptions::default() }, value, Region::new())
    }

    /// Begins a retrieve; the value comes back in `into`'s place. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::begin`].
    fn retrieve(&mut self, key: Key, tag: V, into: Region) -> Result<(), V> {
        self.begin(Call::Retrieve { key }, tag, into)
    }

    /// Begins a delete. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::begin`].
    fn delete(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.begin(Call::Delete { key }, tag, Region::new())
    }

    /// Begins an exist. `tag` is the caller's.
    ///
    /// # Errors
    /// As [`Pipelined::begin`].
    fn exist(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.begin(Call::Exist { key }, tag, Region::new())
    }

    /// Takes the pairs that the last NEXT of `iterator` has brought besides the one that it answered: no call asks for
    /// these any more. A pipeline that gives none answers NEXT with them, one after the other.
    fn take_brought(&mut self, _iterator: IteratorId) -> Pairs {
        Pairs::default()
    }

    /// The next command that has ended, waiting on this thread if none has; `None` when nothing is under way.
    ///
    /// # Errors
    /// There is no way to the drive any more; what is under way has not been answered.
    fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error> {
        self.next_completion_within(None)
    }

    /// As [`Pipelined::next_completion`], but waits so long at most; `None`: for ever. No time: what has been answered
    /// is looked at, and what has gathered is sent.
    ///
    /// # Errors
    /// As [`Pipelined::next_completion`].
    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error>;

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
