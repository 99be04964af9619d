//! A request from its call to its answer: the loop that every runner shares.
//!
//! ```text
//!   call ──► Client says ─┬─ the answer ────────────────────────────────► return
//!     ▲                   ├─ wait for a batch ──► until it is answered ─┐
//!     └───────────────────┼─────────────────────────────────────────────┘
//!                         └─ ask the drive, or send alone ──► its answer ──► return
//! ```
//!
//! A [`Runner`] defines how its kind of caller sends and waits: a thread parks ([`crate::threaded`]), a task
//! in model time suspends (crate `host`). This module determines the requests to the drive, their order, and when they
//! are repeated.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Key, Status, StoreOptions};

use crate::batch::Batch;
use crate::client::{Client, Read, Sync, Write};
use crate::steps::Steps;
use crate::transaction::{Commit, Ending, Transaction};
use crate::writer::Failure;

/// A write that is sent as a command of its own.
#[derive(Clone, Copy, Debug)]
pub enum BypassWrite<'a> {
    /// A Store.
    Store {
        /// The value.
        value: Piece<'a>,
        /// The condition of the store.
        options: StoreOptions,
    },
    /// A Delete.
    Delete,
}

/// How one caller of SAKER sends and waits.
pub trait Runner {
    /// The receiver of SAKER's steps.
    type Steps<'s>: Steps;
    /// The error of a call: the status that the drive answered, or the connection failed.
    type Error: From<Status>;

    /// Calls SAKER, and takes the time of its steps.
    fn ask<T>(&mut self, call: impl FnOnce(&mut Client, &mut Self::Steps<'_>) -> T) -> T;

    /// Sends every batch that SAKER has handed out ([`Client::next_batch`]).
    ///
    /// # Errors
    /// The connection to the drive failed; the calls below have the same error.
    fn send(&mut self) -> Result<(), Self::Error>;

    /// Waits until the state of a batch has changed, or of a batch that it waits for. It may also return
    /// earlier.
    ///
    /// # Errors
    /// As [`Runner::send`].
    fn wait(&mut self, batch: &Arc<Batch>) -> Result<(), Self::Error>;

    /// Has the drive carry out one write, and completes `batch`, the bypass of this write, with the answer.
    ///
    /// # Errors
    /// The status that the drive answered.
    fn write_bypass(
        &mut self,
        batch: Arc<Batch>,
        key: Key,
        write: BypassWrite<'_>,
    ) -> Result<(), Self::Error>;

    /// Retrieves a value from the drive to byte 0 of `into`; returns its size in bytes.
    ///
    /// # Errors
    /// The status that the drive answered.
    fn retrieve_alone(&mut self, key: Key, into: &mut Region) -> Result<u32, Self::Error>;

    /// Asks the drive whether there is a pair.
    ///
    /// # Errors
    /// The status that the drive answered.
    fn exist_alone(&mut self, key: Key) -> Result<bool, Self::Error>;
}

/// Calls SAKER, and sends the batches that it hands out.
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
/// The status of a bypass, or of a condition that does not hold; the connection to the drive failed.
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
                // The answer may have released batches that waited for this one.
                runner.send()?;
                return answered;
            }
        }
    }
}

/// Reads a pair's value to byte 0 of `into`; returns its size in bytes.
///
/// # Errors
/// [`Status::KEY_NOT_FOUND`] or another status of the drive; the connection to the drive failed.
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

/// Asks whether there is a pair.
///
/// # Errors
/// The status that the drive answered; the connection to the drive failed.
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

/// Waits until all earlier writes of this client have been answered; returns the requests that have failed
/// since the last sync. The others are durable.
///
/// # Errors
/// The connection to the drive failed.
pub fn sync<R: Runner>(runner: &mut R) -> Result<Vec<Failure>, R::Error> {
    loop {
        match call(runner, |client, steps| client.sync(steps))? {
            Sync::Done(failures) => return Ok(failures),
            Sync::Wait(batch) => wait_for(runner, &batch)?,
        }
    }
}

/// A transaction of a runner's client. Dropping it changes nothing.
pub struct InTransaction<'h, R> {
    runner: &'h mut R,
    transaction: Transaction,
}

impl<'h, R: Runner> InTransaction<'h, R> {
    /// Begins an empty transaction.
    pub fn begin(runner: &'h mut R) -> InTransaction<'h, R> {
        let transaction = runner.ask(|client, _| client.begin());
        InTransaction { runner, transaction }
    }

    /// Gives the key this value, when the transaction is committed.
    ///
    /// # Errors
    /// [`Status::INVALID_VALUE_SIZE`]: the writes do not fit one structured value.
    pub fn store(&mut self, key: Key, value: Piece<'_>) -> Result<(), R::Error> {
        Ok(self.transaction.store(key, value)?)
    }

    /// Removes the pair, when the transaction is committed.
    ///
    /// # Errors
    /// As [`InTransaction::store`].
    pub fn delete(&mut self, key: Key) -> Result<(), R::Error> {
        Ok(self.transaction.delete(key)?)
    }

    /// Reads a pair's value to byte 0 of `into`, the one that the transaction has written or else the present one;
    /// returns its size in bytes.
    ///
    /// # Errors
    /// [`Status::KEY_NOT_FOUND`] or another status of the drive; the connection to the drive failed.
    pub fn retrieve(&mut self, key: Key, into: &mut Region) -> Result<u32, R::Error> {
        let InTransaction { runner, transaction } = self;
        read(*runner, key, into, |client, into, steps| client.retrieve_in(transaction, key, into, steps))
    }

    /// Ends the transaction. Its writes are durable when this returns [`Ending::Committed`].
    ///
    /// # Errors
    /// The status that the drive answered: no write was carried out; the connection to the drive failed.
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
