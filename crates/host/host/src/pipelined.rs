//! [`Pipelined`]: many commands at once from one thread. Begin commands while there is room, take
//! completions, repeat.
//!
//! | pipeline | its commands gather until |
//! |---|---|
//! | [`driver::Pipeline`](crate::driver::Pipeline) | the thread has to wait for the drive, and cross with one doorbell; over a network: all bytes that have come are read, and go in one send |
//! | [`spread::Pipeline`](crate::spread::Pipeline) | as on each of its drivers, which are to several drives |
//! | [`saker::Pipeline`](crate::saker::Pipeline) | SAKER sends them: a write has ended when it is pending |
//! | [`hostkv::Pipeline`](crate::hostkv::Pipeline) | they do not: the thread of a store on the host takes each at once |
//!
//! A value belongs to the pipeline until its completion gives it back. A [`Client`](crate::Client) waits for
//! one chosen answer; a pipeline returns the next answer of any command.

use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::Error;
use crate::answers::{IteratorId, Pairs};
use crate::client::{Answer, Call, Content};

/// A call that has ended.
#[derive(Debug)]
pub struct Completion<V> {
    /// The call.
    pub call: Call<()>,
    /// The value of a store, or the tag that was handed in with the call.
    pub value: V,
    /// The answer of the call, or its status.
    pub result: Result<Answer, Status>,
    /// The region that was handed in; it holds the answer's value, if there is one.
    pub content: Region,
}

/// Many commands at once from one thread; see above.
pub trait Pipelined<V: Content> {
    /// Can one more command begin?
    fn has_room(&self) -> bool;

    /// Commands whose completion has not been taken.
    fn under_way(&self) -> u32;

    /// Begins a call. `value` is the value of a store or a batch; with other calls it is the caller's tag. A
    /// value in the answer is written to `into`. A NEXT is begun after the NEXT before it of its iterator has
    /// completed.
    ///
    /// # Errors
    /// There is no room: gives `value` back. Take a completion first. The calls below have the same error.
    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V>;

    /// Begins a store.
    ///
    /// # Errors
    /// As [`Pipelined::begin`].
    fn store(&mut self, key: Key, value: V) -> Result<(), V> {
        self.begin(Call::Store { key, value: (), options: StoreOptions::default() }, value, Region::new())
    }

    /// Begins a retrieve; the value is written to `into`, which the completion gives back. `tag` is the
    /// caller's.
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

    /// Takes the pairs that the last NEXT of `iterator` brought besides its answer; later calls do not return
    /// them. A pipeline that returns none here answers later NEXTs with them.
    fn take_brought(&mut self, _iterator: IteratorId) -> Pairs {
        Pairs::default()
    }

    /// The next completion, waiting on this thread if there is none yet; `None` when nothing is under way.
    ///
    /// # Errors
    /// The connection to the drive failed; commands under way have no answer.
    fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error> {
        self.next_completion_within(None)
    }

    /// As [`Pipelined::next_completion`], but waits for `timeout` at most; `None`: without a limit. With a
    /// timeout of 0 it returns a completion that has come, and sends the gathered commands.
    ///
    /// # Errors
    /// As [`Pipelined::next_completion`].
    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error>;

    /// Waits until every write whose completion was taken is durable; calls `_on_failed` for each that has
    /// failed since, with its status. Returns at once if the completion of a write already means that it is
    /// durable.
    ///
    /// # Errors
    /// As [`Pipelined::next_completion`].
    fn settle(&mut self, _on_failed: &mut dyn FnMut(FailedWrite, Key, Status)) -> Result<(), Error> {
        Ok(())
    }
}

/// The kind of a write that [`Pipelined::settle`] found failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedWrite {
    /// A store.
    Store,
    /// A delete.
    Delete,
}
