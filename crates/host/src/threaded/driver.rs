//! Typed commands over one queue pair, async and blocking.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::transfer::{Choice, Method, Next, Progress, StoreRequest, prp};
use kvdrive_spec::{Command, Cqe, Key, RetrieveOptions, Status, StoreOptions};

use super::blocking::block_on;
use super::port::{Port, Walk};
use super::{Connector, Error};
use crate::answers::{self, Iterator, NSID, Pair, take_keys, take_pair};

/// A queue pair with as many command slots as its depth.
///
/// Futures work on any executor: whoever polls them submits, and the drive's thread wakes them. A future may
/// be dropped at any time: what it submitted is carried out, or, for a value that was not yet submitted
/// whole, forgotten; an iterator that nobody learns of is closed, and a pair that nobody learns of is the next
/// one that [`Driver::next`] returns.
pub struct Driver {
    connector: Connector,
    port: Option<Arc<Port>>,
    choice: Box<dyn Choice>,
    max_value_bytes: u32,
}

impl Driver {
    pub(super) fn new(
        connector: Connector,
        port: Arc<Port>,
        choice: Box<dyn Choice>,
        max_value_bytes: u32,
    ) -> Driver {
        Driver { connector, port: Some(port), choice, max_value_bytes }
    }

    /// Where more queue pairs come from.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Largest value the drive takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.max_value_bytes
    }

    /// Commands at once.
    pub fn depth(&self) -> u32 {
        self.port().depth()
    }

    /// The same commands, each waiting on the calling thread.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking(self)
    }

    pub(super) fn port(&self) -> &Port {
        self.port.as_ref().expect("a driver has its port until it is dropped")
    }

    /// How a value gets across; no window is reached from here. Conditions need the option byte, which inline
    /// commands use for value bytes: such a store goes by `prp`.
    pub(super) fn method(&self, value_bytes: u32, options: StoreOptions) -> &dyn Method {
        if options == StoreOptions::default() {
            self.choice.pick(value_bytes, self.port().slots())
        } else {
            &prp::Prp
        }
    }

    /// Stores a value.
    pub async fn store(&self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default()).await
    }

    /// Stores a value under a condition.
    pub async fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        let bytes = value.bytes();
        if bytes > self.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE.into());
        }
        let mut method = self.method(bytes, options);
        let mut slot = self.port().slot().await?;
        if method.is_inline() {
            slot.take_sequence().await?;
        }
        let (cid, buffer, list) = (slot.cid(), slot.buffer().address(), slot.list_address());
        let slots = self.port().slots();
        let request =
            StoreRequest { key, value, options, nsid: NSID, cid, buffer, list, slots, window: None };
        let staged_bytes = method.staged_bytes(bytes);
        if staged_bytes > 0 {
            slot.buffer().fill(value.slice(0, staged_bytes));
        }
        let mut progress = Progress::default();
        let mut next = method.begin(&request, &mut progress, &mut slot.outbox);
        loop {
            match next {
                Next::Done(status) => return done(status),
                Next::Submit => slot.submit(1)?,
                Next::SubmitForAll(completions) => slot.submit(completions)?,
                Next::WriteWindow { .. } | Next::WaitForWindow => {
                    unreachable!("there is no window to write to")
                }
                Next::ByPrp => {
                    method = &prp::Prp;
                    slot.buffer().fill(value);
                    next = method.begin(&request, &mut progress, &mut slot.outbox);
                    continue;
                }
            }
            if progress.sent_bytes == bytes {
                slot.leave_sequence();
            }
            let cqe = slot.completion().await?;
            next = method.on_completion(&request, &mut progress, &cqe, &mut slot.outbox);
        }
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size.
    pub async fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Error> {
        let buffer_bytes = self.max_value_bytes;
        let command = Command::Retrieve { key, buffer_bytes, options: RetrieveOptions::default() };
        let mut slot = self.port().slot().await?;
        slot.buffer().clear();
        let mut sqe = command.encode(slot.cid(), NSID);
        prp::point_at(&mut sqe, slot.buffer().address(), slot.list_address(), buffer_bytes);
        slot.outbox.push(sqe);
        slot.submit(1)?;
        let cqe = slot.completion().await?;
        done(cqe.status())?;
        into.clear();
        slot.buffer().swap(into);
        Ok(cqe.dw0.get())
    }

    /// Removes a pair; removing what is not there succeeds.
    pub async fn delete(&self, key: Key) -> Result<(), Error> {
        self.without_data(Command::Delete { key }).await
    }

    /// Is there a pair?
    pub async fn exist(&self, key: Key) -> Result<bool, Error> {
        match self.without_data(Command::Exist { key }).await {
            Ok(()) => Ok(true),
            Err(Error::Status(Status::KEY_NOT_FOUND)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    pub async fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Error> {
        let buffer_bytes = buffer_bytes.min(answers::buffer_bytes(self.max_value_bytes));
        let command = Command::List { start, buffer_bytes };
        self.with_data(command, buffer_bytes, |_, memory, buffer| take_keys(memory, buffer, buffer_bytes))
            .await
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None` when
    /// there is none; the iterator is open all the same.
    pub async fn seek(&self, key: Option<Key>, into: &mut Region) -> Result<(Iterator, Option<Pair>), Error> {
        let buffer_bytes = answers::pair_bytes(self.max_value_bytes);
        let command = Command::Seek { key, buffer_bytes };
        let (iterator, pair) = self
            .with_data(command, buffer_bytes, |cqe, memory, buffer| {
                Ok((Iterator::of(cqe), take_pair(cqe, memory, buffer, buffer_bytes, into)))
            })
            .await?;
        if pair.is_err() {
            self.close(iterator).await?;
        }
        Ok((iterator, pair?))
    }

    /// The iterator's next pair; `None` behind the last. One whose future was dropped is not lost: the next
    /// call returns it.
    pub async fn next(&self, iterator: Iterator, into: &mut Region) -> Result<Option<Pair>, Error> {
        if let Some(mut answer) = self.connector.unclaimed().claim(iterator).await {
            std::mem::swap(into, &mut answer.value);
            return Ok(answer.pair?);
        }
        let buffer_bytes = answers::pair_bytes(self.max_value_bytes);
        let command = Command::Next { iterator: iterator.number(), buffer_bytes };
        self.with_data(command, buffer_bytes, |cqe, memory, buffer| {
            take_pair(cqe, memory, buffer, buffer_bytes, into)
        })
        .await
    }

    /// Closes an iterator.
    pub async fn close(&self, iterator: Iterator) -> Result<(), Error> {
        let closed = self.without_data(Command::IterClose { iterator: iterator.number() }).await;
        self.connector.unclaimed().forget(|other| other == iterator);
        closed
    }

    async fn without_data(&self, command: Command) -> Result<(), Error> {
        let mut slot = self.port().slot().await?;
        let sqe = command.encode(slot.cid(), NSID);
        slot.outbox.push(sqe);
        slot.submit(1)?;
        done(slot.completion().await?.status())
    }

    /// A command that brings data to the slot's buffer; `take` reads it before the slot is used again.
    async fn with_data<T>(
        &self,
        command: Command,
        buffer_bytes: u32,
        take: impl FnOnce(&Cqe, &dyn HostMemory, u64) -> Result<T, Status>,
    ) -> Result<T, Error> {
        let mut slot = self.port().slot().await?;
        slot.walk = match command {
            Command::Seek { .. } => Walk::Opens,
            Command::Next { iterator, .. } => {
                Walk::Steps { iterator: Iterator::numbered(iterator), buffer_bytes }
            }
            _ => Walk::None,
        };
        slot.buffer().clear();
        let mut sqe = command.encode(slot.cid(), NSID);
        prp::point_at(&mut sqe, slot.buffer().address(), slot.list_address(), buffer_bytes);
        slot.outbox.push(sqe);
        slot.submit(1)?;
        let cqe = slot.completion().await?;
        done(cqe.status())?;
        Ok(take(&cqe, slot.buffer(), slot.buffer().address())?)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(port) = self.port.take() {
            self.connector.give_back(port);
        }
    }
}

fn done(status: Status) -> Result<(), Error> {
    if status.is_success() { Ok(()) } else { Err(status.into()) }
}

/// A driver's commands, each waiting on the calling thread. See [`Driver`] for what they do.
#[derive(Clone, Copy)]
pub struct Blocking<'a>(&'a Driver);

impl Blocking<'_> {
    /// [`Driver::store`].
    pub fn store(self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        block_on(self.0.store(key, value))
    }

    /// [`Driver::store_with`].
    pub fn store_with(self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        block_on(self.0.store_with(key, value, options))
    }

    /// [`Driver::retrieve`].
    pub fn retrieve(self, key: Key, into: &mut Region) -> Result<u32, Error> {
        block_on(self.0.retrieve(key, into))
    }

    /// [`Driver::delete`].
    pub fn delete(self, key: Key) -> Result<(), Error> {
        block_on(self.0.delete(key))
    }

    /// [`Driver::exist`].
    pub fn exist(self, key: Key) -> Result<bool, Error> {
        block_on(self.0.exist(key))
    }

    /// [`Driver::list`].
    pub fn list(self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Error> {
        block_on(self.0.list(start, buffer_bytes))
    }

    /// [`Driver::seek`].
    pub fn seek(self, key: Option<Key>, into: &mut Region) -> Result<(Iterator, Option<Pair>), Error> {
        block_on(self.0.seek(key, into))
    }

    /// [`Driver::next`].
    pub fn next(self, iterator: Iterator, into: &mut Region) -> Result<Option<Pair>, Error> {
        block_on(self.0.next(iterator, into))
    }

    /// [`Driver::close`].
    pub fn close(self, iterator: Iterator) -> Result<(), Error> {
        block_on(self.0.close(iterator))
    }
}
