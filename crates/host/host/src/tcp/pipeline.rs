//! A client as [`Pipelined`].
//!
//! Commands gather until all bytes that have come are read, and go in one send; one call reads all bytes that
//! are available.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvdrive_content::Region;
use kvdrive_nvme::{Cqe, Sqe, Status};
use kvdrive_sim::wall::lock;

use super::client::{Client, OFFER, Received};
use super::queue::{Completed, Queue};
use super::wire::{sleep, wanted};
use crate::Error;
use crate::answers::{IteratorId, Pairs};
use crate::client::{Answer, Call, Content};
use crate::conversation::{self, Aftermath, CallState, CommandSlot, Course, SlotOffer, Submission, Until};
use crate::pipelined::{Completion, Pipelined};

struct Flight<V> {
    call: Call<()>,
    value: V,
    /// Receives a value of the answer.
    into: Region,
    course: Course<'static>,
    /// Its SEEK opened an iterator but failed with this status; the command under way closes the iterator.
    failed: Option<Status>,
}

/// A [`Client`] used as a queue of commands. While commands are under way, the client takes no other calls.
///
/// Dropping it drops the commands in progress and makes the connection unusable.
pub struct Pipeline<V> {
    client: Client,
    depth: u32,
    /// By command identifier.
    flights: Vec<Option<Flight<V>>>,
    under_way: u32,
    /// Calls that were answered without a command.
    answered: VecDeque<Completion<V>>,
    /// The error that kept commands from being sent: returned to callers that wait.
    failure: Option<Error>,
    /// The commands that were not sent.
    unsent: Vec<Flight<V>>,
    outbox: Vec<Sqe>,
    bytes: Vec<u8>,
}

impl Client {
    /// This client as a pipeline of `depth` commands.
    pub fn pipeline<V: Content>(&self) -> Pipeline<V> {
        Pipeline {
            client: self.clone(),
            depth: self.depth(),
            flights: Vec::new(),
            under_way: 0,
            answered: VecDeque::new(),
            failure: None,
            unsent: Vec::new(),
            outbox: Vec::new(),
            bytes: Vec::new(),
        }
    }
}

/// A command's slot: its entry to send, or its completion.
struct InPipeline<'p> {
    queue: &'p mut Queue,
    outbox: &'p mut Vec<Sqe>,
    bytes: &'p mut Vec<u8>,
    cid: u16,
    completed: Option<Cqe>,
}

impl CommandSlot for InPipeline<'_> {
    type Error = Error;

    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        (OFFER, self.outbox)
    }

    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Error> {
        let sqe = self.outbox.pop().expect("there is an entry to submit");
        self.cid = self.queue.gather_call(sqe, submission, self.bytes)?;
        Ok(())
    }

    fn completion(&mut self, _: &mut Context<'_>) -> Poll<Result<Cqe, Error>> {
        self.completed.take().map_or(Poll::Pending, |cqe| Poll::Ready(Ok(cqe)))
    }
}

impl<V: Content> Pipeline<V> {
    /// Takes a command as far as it goes without waiting; returns its completion if it has ended. An error of
    /// sending is kept as the failure.
    fn go_on(&mut self, mut flight: Flight<V>, completed: Option<Completed>) -> Option<Completion<V>> {
        let Pipeline { client, outbox, bytes, flights, .. } = self;
        let mut guard = lock(&client.connection);
        let connection = &mut *guard;
        let (cqe, data) = completed.map_or((None, Vec::new()), |Completed { cqe, data }| (Some(cqe), data));
        let queue = &mut connection.queue;
        let mut slot = InPipeline { queue, outbox, bytes, cid: 0, completed: cqe };
        let mut context = Context::from_waker(Waker::noop());
        let advanced = flight.course.advance(&mut slot, flight.value.piece(), Until::Ended, &mut context);
        let cid = usize::from(slot.cid);
        let (status, cqe) = match advanced {
            Poll::Ready(Ok(ended)) => ended.expect("it has ended"),
            Poll::Ready(Err(error)) => {
                self.failure.get_or_insert(error);
                self.unsent.push(flight);
                return None;
            }
            Poll::Pending => {
                if flights.len() <= cid {
                    flights.resize_with(cid + 1, || None);
                }
                flights[cid] = Some(flight);
                return None;
            }
        };
        let arrived = Received(&data);
        let (result, aftermath) = flight.course.conclude(status, &cqe, &arrived, &mut flight.into);
        connection.queue.give_back(data);
        match aftermath {
            Aftermath::Keep(iterator, more) => connection.unclaimed.keep(iterator, more),
            Aftermath::Forget(iterator) => connection.unclaimed.forget(|other| other == iterator),
            Aftermath::Close(iterator) => {
                flight.failed = result.err();
                let course = Course::of(client.capabilities(), &Call::<()>::Close { iterator }, 0);
                flight.course = course.expect("only a store can be too long");
                drop(guard);
                return self.go_on(flight, None);
            }
            Aftermath::None => {}
        }
        drop(guard);
        self.under_way -= 1;
        let Flight { call, value, into, failed, .. } = flight;
        Some(Completion { call, value, result: failed.map_or(result, Err), content: into })
    }
}

/// For [`crate::spread`], which waits for any of several pipelines.
impl<V: Content> Pipeline<V> {
    /// The error that kept commands from being sent.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// A call that was answered without a command.
    pub(crate) fn answered(&mut self) -> Option<Completion<V>> {
        self.answered.pop_front()
    }

    /// Ends the connection; returns the calls that have no answer.
    pub(crate) fn into_unanswered(mut self) -> Vec<(Call<()>, V, Region)> {
        let flights = std::mem::take(&mut self.flights).into_iter().flatten();
        let flights = flights.chain(std::mem::take(&mut self.unsent));
        flights.map(|Flight { call, value, into, .. }| (call, value, into)).collect()
    }

    /// Sleeps until one of `pipelines` can continue, for the given time at most.
    pub(crate) fn sleep_for_any(
        pipelines: &[&Pipeline<V>],
        timeout: Option<Duration>,
    ) -> std::io::Result<()> {
        let connections: Vec<_> = pipelines.iter().map(|one| lock(&one.client.connection)).collect();
        let queues = connections.iter().map(|connection| &connection.queue);
        let mut sockets: Vec<_> =
            queues.map(|queue| wanted(queue.socket(), queue.unsent_bytes() > 0)).collect();
        sleep(&mut sockets, timeout).map(|_| ())
    }
}

impl<V: Content> Pipelined<V> for Pipeline<V> {
    fn has_room(&self) -> bool {
        self.under_way < self.depth && self.answered.is_empty() && self.failure.is_none()
    }

    fn under_way(&self) -> u32 {
        self.under_way + self.answered.len() as u32
    }

    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        let connection = &self.client.connection;
        let has_unclaimed = |iterator| lock(connection).unclaimed.has(iterator);
        let (capabilities, bytes) = (self.client.capabilities(), value.piece().bytes());
        let (result, content) =
            match conversation::begin::<_, Infallible>(capabilities, &call, bytes, has_unclaimed) {
                Ok(course) => {
                    self.under_way += 1;
                    let ended = self.go_on(Flight { call, value, into, course, failed: None }, None);
                    assert!(ended.is_none(), "nothing of it has completed");
                    return Ok(());
                }
                Err(CallState::Ended(status)) => (Err(status), into),
                Err(CallState::Unclaimed(iterator)) => {
                    let mut into = into;
                    let claimed = lock(connection).claim(iterator, &mut into);
                    match claimed {
                        Ok(Some(pair)) => (pair.map(Answer::Pair), into),
                        Ok(None) => return self.begin(call, value, into),
                        Err(error) => {
                            self.under_way += 1;
                            self.failure = Some(error);
                            return Ok(());
                        }
                    }
                }
                Err(CallState::UnderWay(none)) => match none {},
            };
        self.answered.push_back(Completion { call, value, result, content });
        Ok(())
    }

    fn take_brought(&mut self, iterator: IteratorId) -> Pairs {
        lock(&self.client.connection).unclaimed.take(iterator)
    }

    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error> {
        if let Some(answered) = self.answered.pop_front() {
            return Ok(Some(answered));
        }
        while self.under_way > 0 {
            if let Some(error) = &self.failure {
                return Err(error.clone());
            }
            let mut connection = lock(&self.client.connection);
            if !timeout.map_or(Ok(true), |timeout| connection.queue.has_arrived(timeout))? {
                return Ok(None);
            }
            let completed = connection.queue.next_completion()?;
            drop(connection);
            let cid = usize::from(completed.cqe.cid.get());
            let flight = self.flights.get_mut(cid).and_then(Option::take);
            let flight = flight.ok_or(Error::Protocol("a response without a command"))?;
            let ended = self.go_on(flight, Some(completed));
            if ended.is_some() {
                return Ok(ended);
            }
        }
        Ok(None)
    }
}

impl<V> Drop for Pipeline<V> {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The controller may have closed the socket already.
            let _ = lock(&self.client.connection).queue.socket().shutdown(std::net::Shutdown::Both);
        }
    }
}
