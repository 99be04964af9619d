//! Typed commands over one queue pair, async and blocking.

use std::future::poll_fn;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::HostMemory;
use kvdrive_link::shared::SharedBuffer;
use kvdrive_link::transfer::Choice;

use super::blocking::block_on;
use super::connector::Connector;
use super::port::{ClaimedSlot, Port};
use crate::Error;
use crate::answers::{self, AnswerData, IteratorId};
use crate::client::{Answer, Call, Client, Content, NoValue};
use crate::conversation::course::PAIRS_AT_ONCE;
use crate::conversation::{self, Aftermath, CallState, Capabilities, CommandEnd, Course, Until};

/// A queue pair with as many command slots as its depth.
///
/// Futures work on any executor: the thread that polls a future submits its command, and the drive's thread
/// wakes it. A future may be dropped at any time: a submitted command is carried out, a value that was not
/// submitted as a whole is discarded, an iterator that no caller learns of is closed, and a pair that no
/// caller receives is returned by the next NEXT.
pub struct Driver {
    connector: Connector,
    port: Option<Arc<Port>>,
    choice: Box<dyn Choice>,
    max_value_bytes: u32,
}

impl Connector {
    /// A driver with a queue pair of `entries` slots for up to `depth` commands under way. The queue pair of
    /// a dropped driver is reused by the next driver of the same `entries` and `depth`; if there is none,
    /// this thread waits while the drive deletes unused queue pairs and creates one.
    ///
    /// # Errors
    /// The drive is off, has no free queue identifier, or answers another status.
    ///
    /// Panics when `depth` is 0 or not below `entries`, or `entries` is above 65 536 (NVMe base
    /// specification).
    pub fn connect(&self, choice: Box<dyn Choice>, entries: u32, depth: u32) -> Result<Driver, Error> {
        let max_value_bytes = self.max_value_bytes()?;
        let port = self.port(entries, depth, answers::buffer_bytes(max_value_bytes))?;
        Ok(Driver { connector: self.clone(), port: Some(port), choice, max_value_bytes })
    }
}

impl Driver {
    /// The connector that made it, for more queue pairs.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Size of the largest value that the drive takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.max_value_bytes
    }

    /// Most commands under way.
    pub fn depth(&self) -> u32 {
        self.port().depth()
    }

    /// Commands of this driver that wait on the calling thread.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking(self)
    }

    pub(super) fn port(&self) -> &Port {
        self.port.as_ref().expect("a driver has its port until it is dropped")
    }

    pub(super) fn capabilities(&self) -> Capabilities<'_> {
        let (entries, max_value_bytes) = (self.port().slots(), self.max_value_bytes);
        let (choice, max_answer_bytes) = (Some(&*self.choice), answers::buffer_bytes(max_value_bytes));
        Capabilities { choice, entries, max_value_bytes, max_answer_bytes, pairs: PAIRS_AT_ONCE }
    }

    /// [`Client::submit`](crate::Client::submit).
    pub async fn submit<V: Content>(&self, call: Call<V>) -> Result<Ticket<'_, V>, Error> {
        let has_unclaimed = |iterator| self.connector.unclaimed().has(iterator);
        let course =
            match conversation::begin(self.capabilities(), &call, call.value().bytes(), has_unclaimed) {
                Ok(course) => course,
                Err(state) => return Ok(Ticket { call, state }),
            };
        let mut flight = Flight { slot: self.port().slot().await?, course };
        let state = match flight.advance(call.value(), Until::Whole).await? {
            None => CallState::UnderWay(flight),
            Some((status, _)) => CallState::Ended(status),
        };
        Ok(Ticket { call, state })
    }

    /// [`Client::wait`](crate::Client::wait).
    pub async fn wait<V: Content>(&self, ticket: Ticket<'_, V>, into: &mut Region) -> Result<Answer, Error> {
        let (mut ticket, unclaimed) = (ticket, self.connector.unclaimed());
        while let Some(iterator) = ticket.unclaimed() {
            if let Some(pair) = unclaimed.claim(iterator, into).await {
                return Ok(Answer::Pair(pair?));
            }
            ticket = self.submit(ticket.call).await?;
        }
        let Ticket { call, state: CallState::UnderWay(mut flight) } = ticket else {
            return Ok(ticket.ended()?);
        };
        let (status, cqe) = flight.advance(call.value(), Until::Ended).await?.expect("it has ended");
        let (answer, aftermath) = flight.course.conclude(status, &cqe, flight.slot.buffer(), into);
        drop(flight);
        match aftermath {
            Aftermath::Keep(iterator, more) => unclaimed.keep(iterator, more),
            Aftermath::Close(iterator) => self.close_wordless(iterator).await?,
            Aftermath::Forget(iterator) => unclaimed.forget(|other| other == iterator),
            Aftermath::None => {}
        }
        Ok(answer?)
    }

    /// Closes the iterator of a SEEK whose answer contradicts itself.
    async fn close_wordless(&self, iterator: IteratorId) -> Result<(), Error> {
        let course = Course::of(self.capabilities(), &NoValue::Close { iterator }, 0)?;
        let mut flight = Flight { slot: self.port().slot().await?, course };
        flight.advance(Piece::Bytes(&[]), Until::Ended).await.map(|_| ())
    }

    /// [`Client::call`](crate::Client::call). If the future of a NEXT is dropped, the next NEXT returns its
    /// pair.
    pub async fn call<V: Content>(&self, call: Call<V>, into: &mut Region) -> Result<Answer, Error> {
        let ticket = self.submit(call).await?;
        self.wait(ticket, into).await
    }
}

/// A command that was submitted.
pub type Ticket<'d, V> = conversation::Ticket<V, Flight<'d>>;

/// A command and its slot, as long as a caller waits for it.
pub struct Flight<'d> {
    slot: ClaimedSlot<'d>,
    course: Course<'d>,
}

impl Flight<'_> {
    async fn advance(&mut self, value: Piece<'_>, until: Until) -> Result<CommandEnd, Error> {
        poll_fn(|context| self.course.advance(&mut self.slot, value, until, context)).await
    }
}

/// Exchanges the buffer's value with the caller's region, so that nothing is copied.
impl AnswerData for SharedBuffer {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        (self, self.address())
    }

    fn take_value(&self, _: u32, into: &mut Region) {
        into.clear();
        self.swap(into);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(port) = self.port.take() {
            self.connector.give_back(port);
        }
    }
}

/// A driver's commands, each waiting on the calling thread: a [`Client`], so there is a function for each
/// ([`Calls`](crate::Calls)).
#[derive(Clone, Copy)]
pub struct Blocking<'a>(&'a Driver);

impl<'d> Client for Blocking<'d> {
    type Ticket<V: Content> = Ticket<'d, V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ticket<'d, V>, Error> {
        block_on(self.0.submit(call))
    }

    fn wait<V: Content>(&mut self, ticket: Ticket<'d, V>, into: &mut Region) -> Result<Answer, Error> {
        block_on(self.0.wait(ticket, into))
    }
}
