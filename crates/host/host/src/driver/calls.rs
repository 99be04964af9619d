//! [`Driver`]: calls as futures, and [`Blocking`] for threads that wait.

use std::future::poll_fn;
use std::sync::Arc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::Choice;

use super::port::{ClaimedSlot, Port};
use super::unclaimed::SharedUnclaimed;
use super::wait::block_on;
use crate::Error;
use crate::answers::IteratorId;
use crate::client::{Answer, Call, Client, Content, NoValue};
use crate::conversation::course::PAIRS_AT_ONCE;
use crate::conversation::unclaimed::NextPair;
use crate::conversation::{self, Aftermath, CallState, Capabilities, CommandEnd, Course, Until};

/// What a driver knows of its drive.
pub(crate) struct Limits {
    /// `None`: a value travels with its command.
    pub(crate) choice: Option<Box<dyn Choice>>,
    /// Size of the largest value that the drive takes, bytes.
    pub(crate) max_value_bytes: u32,
    /// Most bytes of an answer.
    pub(crate) max_answer_bytes: u32,
    /// Bytes of a value that a Retrieve asks for first; a longer value is asked for again.
    pub(crate) at_once_bytes: u32,
}

/// Called when a driver is dropped, whose port another one may use.
pub(super) type Home = Box<dyn FnOnce() + Send + Sync>;

/// One queue of a drive, with as many command slots as its depth.
///
/// Futures work on any executor: the thread that polls a future submits its command, and the thread that brings
/// the completion wakes it; no poll waits. A future may be dropped at any time: a submitted command is carried
/// out, a value that was not submitted as a whole is discarded, an iterator that no caller learns of is closed,
/// and a pair that no caller receives is returned by the next NEXT.
pub struct Driver {
    port: Arc<Port>,
    limits: Limits,
    /// `None`: the port ends with its driver.
    home: Option<Home>,
}

impl Driver {
    pub(crate) fn new(port: Arc<Port>, limits: Limits, home: Option<Home>) -> Driver {
        Driver { port, limits, home }
    }

    /// Size of the largest value that the drive takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.limits.max_value_bytes
    }

    /// Most commands under way.
    pub fn depth(&self) -> u32 {
        self.port().depth()
    }

    /// How often a thread slept to wait for the drive, where callers bring the completions.
    pub fn sleeps(&self) -> u64 {
        self.port().transport().sleeps()
    }

    /// Commands of this driver that wait on the calling thread.
    pub fn blocking(&self) -> Blocking<'_> {
        Blocking(self)
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    pub(super) fn capabilities(&self) -> Capabilities<'_> {
        let Limits { ref choice, max_value_bytes, max_answer_bytes, at_once_bytes } = self.limits;
        let (choice, entries) = (choice.as_deref(), self.port().transport().offer(0).entries);
        let pairs = PAIRS_AT_ONCE;
        Capabilities { choice, entries, max_value_bytes, max_answer_bytes, at_once_bytes, pairs }
    }

    pub(super) fn unclaimed(&self) -> &SharedUnclaimed {
        self.port().board().unclaimed()
    }

    /// Takes the next pair of `iterator` that is kept here, waiting for an expected one.
    pub(super) async fn claim(&self, iterator: IteratorId, into: &mut Region) -> Option<NextPair> {
        poll_fn(|context| self.port().noted(self.unclaimed().poll(iterator, into, context))).await
    }

    /// Does what is left after an answer; returns the iterator that has to be closed, if there is one.
    pub(super) fn settle(&self, aftermath: Aftermath) -> Option<IteratorId> {
        match aftermath {
            Aftermath::Keep(iterator, more) => self.unclaimed().keep(iterator, more),
            Aftermath::Forget(iterator) => self.unclaimed().forget(|other| other == iterator),
            Aftermath::Close(iterator) => return Some(iterator),
            Aftermath::None => {}
        }
        None
    }

    /// The course that closes the iterator of a SEEK whose answer contradicts itself.
    pub(super) fn closing(&self, iterator: IteratorId) -> Course<'_> {
        let course = Course::of(self.capabilities(), &NoValue::Close { iterator }, 0);
        course.expect("only a store can be too long")
    }

    /// [`Client::submit`](crate::Client::submit).
    pub async fn submit<V: Content>(&self, call: Call<V>) -> Result<Ticket<'_, V>, Error> {
        let has_unclaimed = |iterator| self.unclaimed().has(iterator);
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
        let mut ticket = ticket;
        while let Some(iterator) = ticket.unclaimed() {
            if let Some(pair) = self.claim(iterator, into).await {
                return Ok(Answer::Pair(pair?));
            }
            ticket = self.submit(ticket.call).await?;
        }
        let Ticket { call, state: CallState::UnderWay(mut flight) } = ticket else {
            return Ok(ticket.ended()?);
        };
        let (status, cqe) = flight.advance(call.value(), Until::Ended).await?.expect("it has ended");
        let (slot, mut concluded) = (&flight.slot, None);
        slot.port().transport().answer(slot.cid(), &mut |arrived| {
            concluded = Some(flight.course.conclude(status, &cqe, arrived, into));
        });
        drop(flight);
        let (answer, aftermath) = concluded.expect("a completed command has an answer");
        if let Some(iterator) = self.settle(aftermath) {
            let mut flight = Flight { slot: self.port().slot().await?, course: self.closing(iterator) };
            flight.advance(Piece::Bytes(&[]), Until::Ended).await?;
        }
        Ok(answer?)
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

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home();
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
