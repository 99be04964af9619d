//! Typed commands over one queue pair, async and blocking.

use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::Choice;
use kvdrive_spec::{Cqe, Key, Status, StoreOptions};

use super::blocking::block_on;
use super::port::{Claimed, Port};
use super::{Connector, Error};
use crate::answers::{IteratorId, Pair};
use crate::client::{Answer, Call, Client, Content, NoValue};
use crate::course::{Course, PAIRS_AT_ONCE, Step, Terms, done};
use crate::slot::Walk;
use crate::unclaimed;

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
        Terms { choice: &*self.choice, entries, max_value_bytes, pairs: PAIRS_AT_ONCE }
    }

    /// [`Client::submit`](crate::Client::submit).
    pub async fn submit<V: Content>(&self, call: Call<V>) -> Result<Ticket<'_, V>, Error> {
        if let Call::Next { iterator } = call
            && self.connector.unclaimed().has(iterator)
        {
            return Ok(Ticket { call, state: State::Unclaimed(iterator) });
        }
        let course = match Course::of(self.terms(), &call) {
            Ok(course) => course,
            Err(status) => return Ok(Ticket { call, state: State::Ended(status) }),
        };
        let mut flight = Flight { slot: self.port().slot().await?, course };
        let step = flight.step(call.value());
        let state = match flight.follow(call.value(), step, true).await? {
            None => State::UnderWay(flight),
            Some((status, _)) => State::Ended(status),
        };
        Ok(Ticket { call, state })
    }

    /// [`Client::wait`](crate::Client::wait).
    pub async fn wait<V: Content>(&self, ticket: Ticket<'_, V>, into: &mut Region) -> Result<Answer, Error> {
        let mut ticket = ticket;
        while let State::Unclaimed(iterator) = ticket.state {
            if let Some(mut answer) = self.connector.unclaimed().claim(iterator).await {
                std::mem::swap(into, &mut answer.value);
                return Ok(Answer::Pair(answer.pair?));
            }
            ticket = self.submit(ticket.call).await?;
        }
        let Ticket { call, state: State::UnderWay(mut flight) } = ticket else {
            let State::Ended(status) = ticket.state else { unreachable!("it is asked of the drive") };
            return Ok(done(status).map(|()| Answer::Done)?);
        };
        let cqe = flight.slot.completion().await?;
        let step = flight.completed(call.value(), &cqe);
        let ended = match step {
            Step::Done(status) => Some((status, cqe)),
            step => flight.follow(call.value(), step, false).await?,
        };
        let (status, cqe) = ended.expect("who waits is told the status");
        let answer = flight.answer(status, &cqe, into);
        if let (Walk::Steps { iterator, buffer_bytes }, true) = (flight.course.walk(), status.is_success()) {
            let buffer = flight.slot.buffer();
            let more = unclaimed::Answer::take_more(&cqe, buffer, buffer.address(), buffer_bytes);
            self.connector.unclaimed().keep(iterator, more);
        }
        let opened = flight.course.walk() == Walk::Opens && status.is_success();
        drop(flight);
        match call {
            Call::Seek { .. } if opened && answer.is_err() => {
                self.close_wordless(IteratorId::of(&cqe)).await?
            }
            Call::Close { iterator } => self.connector.unclaimed().forget(|other| other == iterator),
            _ => {}
        }
        Ok(answer?)
    }

    /// Closes the iterator of a SEEK whose answer contradicts itself.
    async fn close_wordless(&self, iterator: IteratorId) -> Result<(), Error> {
        let call = NoValue::Close { iterator };
        let mut flight = Flight { slot: self.port().slot().await?, course: Course::of(self.terms(), &call)? };
        let step = flight.step(call.value());
        flight.follow(call.value(), step, false).await.map(|_| ())
    }

    async fn call<V: Content>(&self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        let ticket = self.submit(call).await?;
        self.wait(ticket, into).await
    }

    /// Stores a value.
    pub async fn store(&self, key: Key, value: Piece<'_>) -> Result<(), Error> {
        self.store_with(key, value, StoreOptions::default()).await
    }

    /// Stores a value under a condition; such a store goes by `prp`, whatever the driver's method is.
    pub async fn store_with(&self, key: Key, value: Piece<'_>, options: StoreOptions) -> Result<(), Error> {
        self.call(Call::Store { key, value, options }, &mut Region::new()).await.map(|_| ())
    }

    /// Retrieves a value into `into`, from its byte 0; returns the value's size.
    pub async fn retrieve(&self, key: Key, into: &mut Region) -> Result<u32, Error> {
        self.call(NoValue::Retrieve { key }, into).await.map(Answer::value)
    }

    /// Removes a pair; removing what is not there succeeds.
    pub async fn delete(&self, key: Key) -> Result<(), Error> {
        self.call(NoValue::Delete { key }, &mut Region::new()).await.map(|_| ())
    }

    /// Is there a pair?
    pub async fn exist(&self, key: Key) -> Result<bool, Error> {
        self.call(NoValue::Exist { key }, &mut Region::new()).await.map(Answer::exists)
    }

    /// Keys from `start` on (`None`: from the first), in the drive's order, as many as fit `buffer_bytes`.
    pub async fn list(&self, start: Option<Key>, buffer_bytes: u32) -> Result<Vec<Key>, Error> {
        self.call(NoValue::List { start, buffer_bytes }, &mut Region::new()).await.map(Answer::keys)
    }

    /// Opens an iterator on the pairs as they are now and reads the first one at or after `key`. `None` when
    /// there is none; the iterator is open all the same.
    pub async fn seek(
        &self,
        key: Option<Key>,
        into: &mut Region,
    ) -> Result<(IteratorId, Option<Pair>), Error> {
        self.call(NoValue::Seek { key }, into).await.map(Answer::opened)
    }

    /// The iterator's next pair; `None` behind the last. One whose future was dropped is not lost: the next
    /// call returns it.
    pub async fn next(&self, iterator: IteratorId, into: &mut Region) -> Result<Option<Pair>, Error> {
        self.call(NoValue::Next { iterator }, into).await.map(Answer::pair)
    }

    /// Closes an iterator.
    pub async fn close(&self, iterator: IteratorId) -> Result<(), Error> {
        self.call(NoValue::Close { iterator }, &mut Region::new()).await.map(|_| ())
    }
}

/// A command that was submitted.
#[must_use = "whoever drops it learns nothing of the answer"]
pub struct Ticket<'d, V> {
    call: Call<V>,
    state: State<'d>,
}

enum State<'d> {
    UnderWay(Flight<'d>),
    /// The next pair of this iterator went to nobody before.
    Unclaimed(IteratorId),
    /// The drive has answered before the last entry was submitted, or was not asked at all.
    Ended(Status),
}

/// A command and its slot, as long as somebody waits for it.
struct Flight<'d> {
    slot: Claimed<'d>,
    course: Course<'d>,
}

impl Flight<'_> {
    fn step(&mut self, value: Piece<'_>) -> Step {
        self.course.step(&self.slot.lot(), value, &mut self.slot.outbox)
    }

    fn completed(&mut self, value: Piece<'_>, cqe: &Cqe) -> Step {
        let step = self.course.completed(&self.slot.lot(), value, cqe, &mut self.slot.outbox);
        if matches!(step, Step::Done(_)) {
            self.slot.leave_sequence();
        }
        step
    }

    /// Does what steps say: `until_whole`, until the last entry that must be submitted in turn is submitted
    /// (`None`); else until the command has ended.
    async fn follow(
        &mut self,
        value: Piece<'_>,
        mut step: Step,
        until_whole: bool,
    ) -> Result<Option<(Status, Cqe)>, Error> {
        loop {
            match step {
                Step::TakeSequence => self.slot.take_sequence().await?,
                Step::Stage(bytes) => self.slot.buffer().fill(value.slice(0, bytes)),
                Step::Clear => self.slot.buffer().clear(),
                Step::Submit(completions) => {
                    self.slot.submit(completions, self.course.walk())?;
                    if self.course.is_whole(value.bytes()) {
                        // The next value may follow.
                        self.slot.leave_sequence();
                        if until_whole {
                            return Ok(None);
                        }
                    }
                    let cqe = self.slot.completion().await?;
                    step = self.completed(value, &cqe);
                    if let Step::Done(status) = step {
                        return Ok(Some((status, cqe)));
                    }
                    continue;
                }
                Step::Done(_) => unreachable!("nothing has been answered"),
                Step::WriteWindow { .. } | Step::WaitForWindow => {
                    unreachable!("there is no window to write to")
                }
            }
            step = self.step(value);
        }
    }

    /// What came into the slot's buffer. A value changes places with what `into` has: nothing is copied.
    fn answer(&self, status: Status, cqe: &Cqe, into: &mut Region) -> Result<Answer, Status> {
        let buffer = self.slot.buffer();
        if self.course.is_retrieve() && status.is_success() {
            into.clear();
            buffer.swap(into);
            return Ok(Answer::Value(cqe.dw0.get()));
        }
        self.course.answer(status, cqe, buffer, buffer.address(), into)
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
    pub fn seek(self, key: Option<Key>, into: &mut Region) -> Result<(IteratorId, Option<Pair>), Error> {
        block_on(self.0.seek(key, into))
    }

    /// [`Driver::next`].
    pub fn next(self, iterator: IteratorId, into: &mut Region) -> Result<Option<Pair>, Error> {
        block_on(self.0.next(iterator, into))
    }

    /// [`Driver::close`].
    pub fn close(self, iterator: IteratorId) -> Result<(), Error> {
        block_on(self.0.close(iterator))
    }
}

impl<'d> Client for Blocking<'d> {
    type Ticket<V: Content> = Ticket<'d, V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ticket<'d, V>, Error> {
        block_on(self.0.submit(call))
    }

    fn wait<V: Content>(&mut self, ticket: Ticket<'d, V>, into: &mut Region) -> Result<Answer, Error> {
        block_on(self.0.wait(ticket, into))
    }
}
