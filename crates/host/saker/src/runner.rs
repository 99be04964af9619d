//! A request from its call to its answer: the loop that every runner shares.
//!
//! ```text
//!   call ──► Client says ─┬─ the answer ────────────────────────────────► return
//!     ▲                   ├─ wait for a batch ──► until it is answered ─┐
//!     └───────────────────┼─────────────────────────────────────────────┘
//!                         └─ ask the drive, or send alone ──► its answer ──► return
//! ```
//!
//! A [`Runner`] says how its kind of caller sends and waits: a thread parks ([`crate::threaded`]), a task in model time
//! suspends (crate `host`). What is asked, in which order, and when it is asked again, stands here.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_spec::{Key, Status, StoreOptions};

use crate::batch::Batch;
use crate::client::{Client, Read, Sync, Write};
use crate::steps::Steps;
use crate::transaction::{Commit, Ending, Transaction};
use crate::writer::Failure;

/// A write that goes to the drive on its own.
#[derive(Clone, Copy, Debug)]
pub enum BypassWrite<'a> {
    /// A Store.
    Store {
        /// The value.
        value: Piece<'a>,
        /// Under which condition.
        options: StoreOptions,
    },
    /// A Delete.
    Delete,
}

/// How one caller of SAKER sends and waits.
pub trait Runner {
    /// What is told of SAKER's steps.
    type Steps<'s>: Steps;
    /// Why a call fails: the drive has answered so, or there is no way to it.
    type Error: From<Status>;

    /// Calls SAKER, and takes the time of its steps.
    fn ask<T>(&mut self, call: impl FnOnce(&mut Client, &mut Self::Steps<'_>) -> T) -> T;

    /// Sends every batch that SAKER has handed out ([`Client::next_batch`]).
    ///
    /// # Errors
    /// There is no way to the drive; so have the calls below.
    fn send(&mut self) -> Result<(), Self::Error>;

    /// Waits until there is news of a batch, or of one that it waits for. It may return without any.
    ///
    /// # Errors
    /// As [`Runner::send`].
    fn wait(&mut self, batch: &Arc<Batch>) -> Result<(), Self::Error>;

    /// Has the drive carry out one write, and completes `batch`, which stands for it, with the answer.
    ///
    /// # Errors
    /// What the drive answered.
    fn write_bypass(
        &mut self,
        batch: Arc<Batch>,
        key: Key,
        write: BypassWrite<'_>,
    ) -> Result<(), Self::Error>;

    /// Has the drive retrieve a value to byte 0 of `into`; returns its size.
    ///
    /// # Errors
    /// What the drive answered.
    fn retrieve_alone(&mut self, key: Key, into: &mut Region) -> Result<u32, Self::Error>;

    /// Asks the drive whether there is a pair.
    ///
    /// # Errors
    /// What the drive answered.
    fn exist_alone(&mut self, key: Key) -> Result<bool, Self::Error>;
}

/// Calls SAKER, and sends what it hands out.
fn call<R: Runner, T>(
    runner: &mut R,
    call: impl FnOnce(&mut Client, &mut R::Steps<'_>) -> T,
) -> Result<T, R::Error> {
    let answer = runner.ask(call);
    runner.send()?;
    Ok(answer)
}

/// Waits until a batch has been answered, whichever client sends it.
pub(crate) fn wait_for<R: Runner>(runner: &mut R, batch: &Arc<Batch>) -> Result<(), R::Error> {
    while !batch.is_answered() {
        runner.wait(batch)?;
        runner.send()?;
    }
    Ok(())
}

/// Writes a pair, or removes it.
///
/// # Errors
/// Of a write on its own and of a condition, what the drive answered; there is no way to the drive.
pub fn write<R: Runner>(runner: &mut R, key: Key, write: BypassWrite<'_>) -> Result<(), R::Error> {
    loop {
        let written = call(runner, |client, steps| match write {
            BypassWrite::Store { value, options } => client.store(key, value, options, steps),
            BypassWrite::Delete => client.delete(key, steps),
        })?;
        match written {
            Write::Buffered => return Ok(()),
            Write::Refused(status) => return Err(status.into()),
            Write::Wait(batch) => wait_for(runner, &batch)?,
            Write::Bypass(batch) => {
                let answered = runner.write_bypass(batch, key, write);
                // The answer may have released batches that waited for it.
                runner.send()?;
                return answered;
            }
        }
    }
}

/// Reads a pair's value to byte 0 of `into`; returns its size.
///
/// # Errors
/// [`Status::KEY_NOT_FOUND`] and what else the drive answered; there is no way to the drive.
pub fn retrieve<R: Runner>(runner: &mut R, key: Key, into: &mut Region) -> Result<u32, R::Error> {
    read(runner, key, into, |client, into, steps| client.retrieve(key, into, steps))
}

fn read<R: Runner>(
    runner: &mut R,
    key: Key,
    into: &mut Region,
    mut ask: impl FnMut(&mut Client, &mut Region, &mut R::Steps<'_>) -> Read,
) -> Result<u32, R::Error> {
    loop {
        match call(runner, |client, steps| ask(client, into, steps))? {
            Read::Found(bytes) => return Ok(bytes),
            Read::Missing => return Err(Status::KEY_NOT_FOUND.into()),
            Read::Wait(batch) => wait_for(runner, &batch)?,
            Read::Ask(asked) => {
                let bytes = runner.retrieve_alone(key, into)?;
                call(runner, |client, steps| client.fill(asked, into, bytes, steps))?;
                return Ok(bytes);
            }
        }
    }
}

/// Whether there is a pair.
///
/// # Errors
/// What the drive answered; there is no way to the drive.
pub fn exist<R: Runner>(runner: &mut R, key: Key) -> Result<bool, R::Error> {
    loop {
        match call(runner, |client, steps| client.exist(key, steps))? {
            Read::Found(_) => return Ok(true),
            Read::Missing => return Ok(false),
            Read::Wait(batch) => wait_for(runner, &batch)?,
            Read::Ask(_) => return runner.exist_alone(key),
        }
    }
}

/// Waits until all that this client wrote before has been answered; returns the requests that have failed since the
/// last sync. The others are durable.
///
/// # Errors
/// There is no way to the drive.
pub fn sync<R: Runner>(runner: &mut R) -> Result<Vec<Failure>, R::Error> {
    loop {
        match call(runner, |client, steps| client.sync(steps))? {
            Sync::Done(failures) => return Ok(failures),
            Sync::Wait(batch) => wait_for(runner, &batch)?,
        }
    }
}

/// A transaction of a runner's client. Dropping it leaves everything as it was.
pub struct InTransaction<'h, R> {
    runner: &'h mut R,
    transaction: Transaction,
}

impl<'h, R: Runner> InTransaction<'h, R> {
    /// A transaction that has read and written nothing.
    pub fn begin(runner: &'h mut R) -> InTransaction<'h, R> {
        let transaction = runner.ask(|client, _| client.begin());
        InTransaction { runner, transaction }
    }

    /// The key gets this value, with the commit.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: all that is written would not fit one structured value.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), R::Error> {
        Ok(self.transaction.store(key, value)?)
    }

    /// The key has no value any more, with the commit.
    ///
    /// # Errors
    /// As [`InTransaction::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), R::Error> {
        Ok(self.transaction.delete(key)?)
    }

    /// Reads a pair's value to byte 0 of `into`, as the transaction itself has written it or as it is now; returns
    /// its size.
    ///
    /// # Errors
    /// [`Status::KEY_NOT_FOUND`] and what else the drive answered; there is no way to the drive.
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, R::Error> {
        let InTransaction { runner, transaction } = self;
        read(*runner, key, into, |client, into, steps| client.retrieve_in(transaction, key, into, steps))
    }

    /// Ends it. What it wrote is durable when this returns [`Ending::Committed`].
    ///
    /// # Errors
    /// What the drive answered, and nothing of it was carried out; there is no way to the drive.
    pub fn commit(self) -> Result<Ending, R::Error> {
        let InTransaction { runner, transaction } = self;
        loop {
            match call(runner, |client, steps| client.commit(&transaction, steps))? {
                Commit::Ended(ending) => return Ok(ending),
                Commit::Wait(batch) => wait_for(runner, &batch)?,
                Commit::Sent(sent) => {
                    wait_for(runner, sent.batch())?;
                    return Ok(sent.ending()?);
                }
            }
        }
    }
}
