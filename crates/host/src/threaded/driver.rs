//! Typed commands over one queue pair, async and blocking.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::shared::SharedBuffer;
use kvdrive_link::transfer::Choice;
use kvdrive_spec::{Cqe, Key, Status, StoreOptions};

use super::blocking::block_on;
use super::port::Port;
use super::{Connector, Error};
use crate::answers::{Iterator, Pair, take_keys, take_pair};
use crate::course::{Course, NO_VALUE, Step, Terms};

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

    pub(super) fn terms(&self) -> Terms<'_> {
        let (entries, max_value_bytes) = (self.port().slots(), self.max_value_bytes);
        Terms { choice: &*self.choice, entries, max_value_bytes }
    }

    /// A command from its slot to its last completion; `take` reads what it brought, before the slot is used
    /// again.
    async fn carry_out<T>(
        &self,
        mut course: Course<'_>,
        value: Piece<'_>,
        take: impl FnOnce(&Cqe, &SharedBuffer) -> Result<T, Status>,
    ) -> Result<T, Error> {
        let mut slot = self.port().slot().await?;
        let lot = slot.lot();
        let mut step = course.step(&lot, value, &mut slot.outbox);
        loop {
            step = match step {
                Step::Submit(completions) => {
                    slot.submit(completions, course.walk())?;
                    if course.is_whole(value.bytes()) {
                        // Its last command is submitted: the next value may follow.
                        slot.leave_sequence();
                    }
                    let cqe = slot.completion().await?;
                    match course.completed(&lot, value, &cqe, &mut slot.outbox) {
                        Step::Done(status) if status.is_success() => return Ok(take(&cqe, slot.buffer())?),
                        step => step,
                    }
                }
                Step::Done(status) => {
                    slot.leave_sequence();
                    return Err(status.into());
                }
                other => {
                    match other {
                        Step::TakeSequence => slot.take_sequence().await?,
                        Step::Stage(bytes) => slot.buffer().fill(value.slice(0, bytes)),
                        Step::Clear => slot.buffer().clear(),
                        _ => unreachable!("there is no window to write to"),
                    }
                    course.step(&lot, value, &mut slot.outbox)
                }
            };
        }
    }

    /// A command that brings no data.
    async fn plain(&self, course: Course<'_>) -> Result<(), Error> {
        self.carry_out(course, NO_VALUE, |_, _| Ok(())).await
    }

    /// Stores a value.
    pub async fn store(&self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default()).await
    }

    /// Stores a value under a condition; such a store goes by `prp`, whatever the driver's method is.
    pub async fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        let course = Course::store(self.terms(), key, value.bytes(), options)?;
        self.carry_out(course, value, |_, _| Ok(())).await
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size.
    pub async fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Error> {
        self.carry_out(Course::retrieve(self.terms(), key), NO_VALUE, |cqe, buffer| {
            into.clear();
            buffer.swap(into);
            Ok(cqe.dw0.get())
        })
        .await
    }

    /// Removes a pair; removing what is not there succeeds.
    pub async fn delete(&self, key: Key) -> Result<(), Error> {
        self.plain(Course::delete(key)).await
    }

    /// Is there a pair?
    pub async fn exist(&self, key: Key) -> Result<bool, Error> {
        match self.plain(Course::exist(key)).await {
            Ok(()) => Ok(true),
            Err(Error::Status(Status::KEY_NOT_FOUND)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    pub async fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Error> {
        let course = Course::list(self.terms(), start, buffer_bytes);
        let room = course.room();
        self.carry_out(course, NO_VALUE, |_, buffer| take_keys(buffer, buffer.address(), room)).await
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None` when
    /// there is none; the iterator is open all the same.
    pub async fn seek(&self, key: Option<Key>, into: &mut Region) -> Result<(Iterator, Option<Pair>), Error> {
        let course = Course::seek(self.terms(), key);
        let room = course.room();
        let (iterator, pair) = self
            .carry_out(course, NO_VALUE, |cqe, buffer| {
                Ok((Iterator::of(cqe), take_pair(cqe, buffer, buffer.address(), room, into)))
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
        let course = Course::next(self.terms(), iterator);
        let room = course.room();
        self.carry_out(course, NO_VALUE, |cqe, buffer| take_pair(cqe, buffer, buffer.address(), room, into))
            .await
    }

    /// Closes an iterator.
    pub async fn close(&self, iterator: Iterator) -> Result<(), Error> {
        let closed = self.plain(Course::close(iterator)).await;
        self.connector.unclaimed().forget(|other| other == iterator);
        closed
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(port) = self.port.take() {
            self.connector.give_back(port);
        }
    }
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
