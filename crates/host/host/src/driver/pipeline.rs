//! A driver as [`Pipelined`], over any transport.
//!
//! Commands gather until the thread has to wait for the drive, and cross with one doorbell; completions come
//! in batches and are acknowledged with one doorbell. A value belongs to the pipeline until its completion
//! gives it back, so nothing is copied or allocated.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kvdrive_content::{Piece, Region};
use kvdrive_nvme::{Cqe, Sqe, Status};

use super::calls::Driver;
use super::port::Port;
use super::wait::{self, block_on, block_on_for, block_on_within};
use crate::Error;
use crate::answers::{IteratorId, Pairs};
use crate::client::{Answer, Call, Content};
use crate::conversation::slot::{Arrived, Slot};
use crate::conversation::{self, CallState, CommandSlot, Course, SlotOffer, Submission, Until};
use crate::pipelined::{Completion, Pipelined};

/// With so many commands under way, a thread waits for groups of completions, where they come in groups.
const GROUPED: u32 = 8;
/// How often a thread looks for completions that it cannot sleep for.
const LOOK: Duration = Duration::from_millis(1);

struct Flight<'a, V> {
    call: Call<()>,
    value: V,
    /// Receives a value of the answer.
    into: Region,
    course: Course<'a>,
    place: Place,
    /// Its SEEK opened an iterator but failed with this status; the command under way closes the iterator.
    failed: Option<Status>,
}

/// A command's entries in the queue.
#[derive(Clone, Copy)]
struct Place {
    slot: Slot,
    /// Doorbells so far when its first entries were put into the outbox, and when its last were; 0: the wire
    /// has them.
    begun_at: Option<u64>,
    put_at: u64,
}

/// Entries and values that are not submitted yet.
struct Gathered {
    /// Entries that wait for a doorbell, how many of them get no completion, and doorbells so far, from 1 on.
    outbox: Vec<Sqe>,
    quiet: u32,
    doorbells: u64,
    /// The command that holds the sequence, and those that wait for it.
    inside: Option<u16>,
    waiting: VecDeque<u16>,
    /// Why the wire took no more entries: returned to callers that wait.
    failure: Option<Error>,
}

/// A driver used as a queue of commands.
///
/// Dropping it drops the commands under way: those in the queue are carried out, the others are not.
pub struct Pipeline<'a, V> {
    driver: &'a Driver,
    /// By command identifier.
    flights: Vec<Option<Flight<'a, V>>>,
    free: Vec<u16>,
    under_way: u32,
    gathered: Gathered,
    /// Calls that were answered without a command.
    answered: VecDeque<Completion<V>>,
    /// Completions that were collected and not looked at, latest first.
    batch: Vec<Cqe>,
}

impl Driver {
    /// Makes this driver a pipeline, after waiting on this thread for commands under way of dropped futures.
    ///
    /// # Errors
    /// The drive is off, or this thread may not call it.
    pub fn pipeline<V: Content>(&mut self) -> Result<Pipeline<'_, V>, Error> {
        let depth = self.depth();
        block_on(self.port().take_all())?;
        self.port().board().begin_piped();
        Ok(Pipeline {
            driver: self,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth as u16).rev().collect(),
            under_way: 0,
            gathered: Gathered {
                outbox: Vec::new(),
                quiet: 0,
                doorbells: 1,
                inside: None,
                waiting: VecDeque::new(),
                failure: None,
            },
            answered: VecDeque::new(),
            batch: Vec::with_capacity(depth as usize),
        })
    }
}

impl<V: Content> Pipelined<V> for Pipeline<'_, V> {
    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.answered.is_empty() && self.gathered.failure.is_none()
    }

    fn under_way(&self) -> u32 {
        self.under_way + self.answered.len() as u32
    }

    fn begin(&mut self, call: Call<()>, value: V, into: Region) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        let capabilities = self.driver.capabilities();
        let has_unclaimed = |iterator| self.driver.unclaimed().has(iterator);
        let begun =
            conversation::begin::<_, Infallible>(capabilities, &call, value.piece().bytes(), has_unclaimed);
        let (result, content) = match begun {
            Ok(course) => {
                self.take_off(call, value, into, course);
                return Ok(());
            }
            Err(CallState::Ended(status)) => (Err(status), into),
            Err(CallState::Unclaimed(iterator)) => {
                let mut into = into;
                match block_on(self.driver.claim(iterator, &mut into)) {
                    Some(pair) => (pair.map(Answer::Pair), into),
                    None => return self.begin(call, value, into),
                }
            }
            Err(CallState::UnderWay(none)) => match none {},
        };
        self.answered.push_back(Completion { call, value, result, content });
        Ok(())
    }

    fn take_brought(&mut self, iterator: IteratorId) -> Pairs {
        self.driver.unclaimed().take(iterator)
    }

    fn next_completion_within(&mut self, timeout: Option<Duration>) -> Result<Option<Completion<V>>, Error> {
        if let Some(answered) = self.answered.pop_front() {
            return Ok(Some(answered));
        }
        while self.under_way > 0 {
            while let Some(cqe) = self.batch.pop() {
                if let Some(completion) = self.arrived(&cqe) {
                    return Ok(Some(completion));
                }
            }
            if let Some(error) = &self.gathered.failure {
                return Err(error.clone());
            }
            let port = self.driver.port();
            port.transport().check_thread()?;
            self.publish();
            let batch = &mut self.batch;
            let finished = poll_fn(|context| port.noted(port.board().poll_finished(context, batch)));
            let in_groups = self.under_way >= GROUPED && port.transport().gathers();
            match block_on_for(finished, timeout, in_groups) {
                Some(finished) => finished?,
                None => return Ok(None),
            }
            self.batch.reverse();
            port.transport().acknowledge();
        }
        Ok(None)
    }
}

impl<'a, V: Content> Pipeline<'a, V> {
    /// Submits the gathered commands without waiting. If this thread may not call the drive
    /// ([`Connector::check_thread`](crate::threaded::Connector::check_thread)), they stay gathered.
    pub fn ring(&mut self) {
        let transport = self.driver.port().transport();
        if transport.check_thread().is_err() {
            return;
        }
        self.publish();
        if let Err(error) = self.driver.port().flush() {
            self.gathered.failure.get_or_insert(error);
        }
    }

    /// Hands the gathered entries over; a wait sends what the wire has gathered itself.
    fn publish(&mut self) {
        let Gathered { outbox, quiet, doorbells, .. } = &mut self.gathered;
        self.driver.port().transport().publish(outbox, std::mem::take(quiet));
        *doorbells += 1;
    }

    fn take_off(&mut self, call: Call<()>, value: V, into: Region, course: Course<'a>) {
        let cid = self.free.pop().expect("there is room");
        // The drive begins with the first half while the thread gathers the second.
        if self.gathered.outbox.len() >= self.flights.len() / 2
            && self.driver.port().transport().check_thread().is_ok()
        {
            self.publish();
        }
        let place = Place { slot: Slot::new(cid), begun_at: None, put_at: self.gathered.doorbells };
        self.flights[usize::from(cid)] = Some(Flight { call, value, into, course, place, failed: None });
        self.under_way += 1;
        let ended = self.go_on(cid);
        assert!(ended.is_none(), "nothing of it has completed");
        self.begin_waiting();
    }

    /// Takes a command as far as it goes without a completion; returns its completion if it has ended.
    fn go_on(&mut self, cid: u16) -> Option<Completion<V>> {
        let port = self.driver.port();
        let flight = self.flights[usize::from(cid)].as_mut().expect("a command goes on that has begun");
        let mut slot =
            InPipeline { port, cid, gathered: &mut self.gathered, place: &mut flight.place, before: 0 };
        let mut context = Context::from_waker(Waker::noop());
        let advanced = flight.course.advance(&mut slot, flight.value.piece(), Until::Ended, &mut context);
        let (status, cqe) = match advanced {
            Poll::Ready(Ok(ended)) => ended.expect("it has ended"),
            Poll::Ready(Err(error)) => {
                self.gathered.failure.get_or_insert(error);
                return None;
            }
            Poll::Pending => return None,
        };
        let mut result = None;
        port.transport().answer(cid, &mut |arrived| {
            result = Some(flight.course.conclude(status, &cqe, arrived, &mut flight.into));
        });
        let (result, aftermath) = result.expect("a completed command has an answer");
        if let Some(iterator) = self.driver.settle(aftermath) {
            flight.failed = result.err();
            flight.course = self.driver.closing(iterator);
            return self.go_on(cid);
        }
        let Flight { call, value, into, failed, .. } = self.flights[usize::from(cid)].take()?;
        self.free.push(cid);
        self.under_way -= 1;
        Some(Completion { call, value, result: failed.map_or(result, Err), content: into })
    }

    /// Takes a command on after a completion; returns its completion if it has ended.
    fn arrived(&mut self, cqe: &Cqe) -> Option<Completion<V>> {
        let cid = cqe.cid.get();
        let flight = self.flights[usize::from(cid)].as_mut()?;
        if flight.place.slot.arrived(cqe) != Arrived::Answered {
            return None;
        }
        let ended = self.go_on(cid);
        self.begin_waiting();
        ended
    }

    /// Begins values that wait for the sequence, until one of them holds it.
    fn begin_waiting(&mut self) {
        while self.gathered.inside.is_none() {
            let Some(cid) = self.gathered.waiting.pop_front() else { return };
            self.gathered.inside = Some(cid);
            let ended = self.go_on(cid);
            assert!(ended.is_none(), "nothing of it has completed");
        }
    }
}

/// The slot of one command in a pipeline.
struct InPipeline<'p> {
    port: &'p Port,
    cid: u16,
    gathered: &'p mut Gathered,
    place: &'p mut Place,
    /// Entries in the outbox before those of the present step.
    before: usize,
}

impl CommandSlot for InPipeline<'_> {
    type Error = Error;

    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        self.before = self.gathered.outbox.len();
        (self.port.transport().offer(self.cid), &mut self.gathered.outbox)
    }

    fn take_sequence(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match self.gathered.inside {
            Some(inside) if inside != self.cid => {
                self.gathered.waiting.push_back(self.cid);
                Poll::Pending
            }
            _ => {
                self.gathered.inside = Some(self.cid);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn leave_sequence(&mut self) {
        if self.gathered.inside == Some(self.cid) {
            self.place.slot.leave_sequence();
            self.gathered.inside = None;
        }
    }

    fn put_key(&mut self, key: &[u8]) {
        self.port.transport().put_key(self.cid, key);
    }

    fn stage(&mut self, value: Piece<'_>) {
        self.port.transport().stage(self.cid, value);
    }

    fn clear(&mut self) {
        self.port.transport().clear(self.cid);
    }

    fn list(&mut self, bytes: u32) {
        self.port.transport().list(self.cid, bytes);
    }

    /// The entries stay in the outbox until the next doorbell.
    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Error> {
        let Gathered { outbox, quiet, doorbells, inside, .. } = &mut *self.gathered;
        let Submission { completions, iterator_use, .. } = submission;
        *quiet += (outbox.len() - self.before) as u32 - completions;
        self.port.transport().gather(self.cid, outbox, self.before, &submission)?;
        self.place.put_at = if outbox.len() > self.before { *doorbells } else { 0 };
        self.place.begun_at.get_or_insert(self.place.put_at);
        self.place.slot.submitted(completions, iterator_use, *inside == Some(self.cid));
        Ok(())
    }

    fn completion(&mut self, _: &mut Context<'_>) -> Poll<Result<Cqe, Error>> {
        let Some(cqe) = self.place.slot.outcome() else { return Poll::Pending };
        self.place.slot.settled();
        Poll::Ready(Ok(cqe))
    }
}

/// For [`crate::spread`], which waits for any of several pipelines.
impl<V> Pipeline<'_, V> {
    /// The error that kept commands from being sent.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.gathered.failure.as_ref()
    }

    /// A call that was answered without a command.
    pub(crate) fn answered(&mut self) -> Option<Completion<V>> {
        self.answered.pop_front()
    }

    /// Sleeps until one of `pipelines` can continue, for the given time at most. Where completions come without
    /// this thread and others do not, it looks once a millisecond.
    pub(crate) fn sleep_for_any(pipelines: &mut [&mut Pipeline<'_, V>], timeout: Option<Duration>) {
        let of_each = pipelines.iter().map(|one| one.driver.port().transport().descriptor());
        let descriptors: Vec<_> = of_each.flatten().collect();
        if descriptors.is_empty() {
            let any = |context: &mut Context<'_>| match pipelines.iter_mut().any(|one| one.has_come(context))
            {
                true => Poll::Ready(()),
                false => Poll::Pending,
            };
            block_on_within(poll_fn(any), timeout);
            return;
        }
        let is_mixed = descriptors.len() < pipelines.len();
        let timeout = if is_mixed { Some(timeout.map_or(LOOK, |span| span.min(LOOK))) } else { timeout };
        // A failed socket is found by the next read.
        _ = wait::sleep_for_any(&descriptors, timeout);
    }

    /// Have completions come that were not looked at? Else the context is woken when one comes.
    fn has_come(&mut self, context: &Context<'_>) -> bool {
        !self.batch.is_empty() || {
            let port = self.driver.port();
            let has_come = port.board().poll_finished(context, &mut self.batch).is_ready();
            if has_come {
                self.batch.reverse();
                port.transport().acknowledge();
            }
            has_come
        }
    }

    /// Ends the pipeline; returns the calls that have no answer.
    pub(crate) fn into_unanswered(mut self) -> Vec<(Call<()>, V, Region)> {
        let flights = std::mem::take(&mut self.flights).into_iter().flatten();
        flights.map(|Flight { call, value, into, .. }| (call, value, into)).collect()
    }
}

impl<V> Drop for Pipeline<'_, V> {
    fn drop(&mut self) {
        let slot = |cid: u16| {
            let flight = self.flights.get(usize::from(cid)).and_then(Option::as_ref);
            let Some(flight) = flight else { return Slot::new(cid) };
            let Place { mut slot, begun_at, put_at } = flight.place;
            let has_rung = |at: u64| at < self.gathered.doorbells;
            if !has_rung(put_at) {
                // The drive has not seen entries of the outbox.
                slot.withdrawn(begun_at.is_some_and(has_rung));
            }
            slot
        };
        self.driver.port().give_all(slot, self.batch.iter().rev().copied());
    }
}
