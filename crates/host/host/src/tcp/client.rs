//! One connection as a [`crate::Client`]. A value goes by one Store command, in the capsule or after an R2T.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use kvdrive_content::{Piece, Region};
use kvdrive_link::{BadAddress, HostMemory};
use kvdrive_nvme::opcode::{Direction, direction};
use kvdrive_nvme::{Cqe, Sqe};
use kvdrive_sim::wall::lock;

use super::queue::{Completed, Data, Queue};
use crate::Error;
use crate::answers::{AnswerData, IteratorId};
use crate::client::{Answer, Call, Calls, Content};
use crate::conversation::course::PAIRS_AT_ONCE;
use crate::conversation::slot::{Arrived, Remaining, Slot};
use crate::conversation::unclaimed::{self, Claimed, NextPair, Unclaimed};
use crate::conversation::{
    self, Aftermath, CallState, Capabilities, CommandEnd, CommandSlot, Course, SlotOffer, Submission, Until,
    at_once,
};

/// One connection, with several commands under way. It needs no thread of its own: a caller that waits for its command
/// reads all arriving bytes, and keeps completions of other commands for their callers. A clone is the same connection.
#[derive(Clone)]
pub struct Client {
    pub(super) connection: Arc<Mutex<Connection>>,
    max_value_bytes: u32,
    max_transfer_bytes: u32,
}

pub(super) struct Connection {
    pub(super) queue: Queue,
    slots: Vec<SlotEntry>,
    pub(super) unclaimed: Unclaimed,
}

/// One command slot.
struct SlotEntry {
    slot: Slot,
    is_free: bool,
    /// The identifier of its command on the connection.
    cid: Option<u16>,
    completed: Option<Completed>,
}

/// A command that was submitted.
pub type Ticket<V> = conversation::Ticket<V, Flight>;

/// A command under way.
pub struct Flight {
    course: Course<'static>,
    slot: TakenSlot,
}

/// A taken slot, given back when it is dropped.
struct TakenSlot {
    connection: Arc<Mutex<Connection>>,
    index: usize,
    outbox: Vec<Sqe>,
    /// The data of the last completion.
    data: Vec<u8>,
}

/// The data that came for one command, as memory that begins at address 0 and continues with zeros.
pub(super) struct Received<'a>(pub(super) &'a [u8]);

impl HostMemory for Received<'_> {
    fn read(&self, address: u64, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) -> Result<(), BadAddress> {
        let from = self.0.len().min(address as usize);
        let came = (self.0.len() - from).min(bytes as usize);
        sink(Piece::Bytes(&self.0[from..from + came]));
        kvdrive_content::zeros(bytes - came as u32, sink);
        Ok(())
    }

    fn write(&self, address: u64, piece: Piece<'_>) -> Result<(), BadAddress> {
        Err(BadAddress { address, bytes: piece.bytes() })
    }
}

impl AnswerData for Received<'_> {
    fn memory(&self) -> (&dyn HostMemory, u64) {
        (self, 0)
    }

    fn bytes(&self) -> u32 {
        self.0.len() as u32
    }
}

/// What a slot offers its command: no memory that the controller could address.
pub(super) const OFFER: SlotOffer<'static> =
    SlotOffer { cid: 0, buffer: 0, list: 0, entries: 1, window: None, is_together: false };

impl Queue {
    /// Queues the entry of a command of this queue's namespace, with its value or room for its answer; it is
    /// sent by the next wait at the latest. `bytes` is memory to expand a pattern in. Returns the identifier.
    pub(super) fn gather_call(
        &mut self,
        mut sqe: Sqe,
        submission: Submission<'_>,
        bytes: &mut Vec<u8>,
    ) -> Result<u16, Error> {
        sqe.nsid.set(self.nsid);
        let Submission { value, room, .. } = submission;
        let data = match (direction(sqe.opcode), value) {
            (Direction::ToDrive, Piece::Bytes(bytes)) => Data::Out(bytes),
            (Direction::ToDrive, piece) => {
                bytes.resize(piece.bytes() as usize, 0);
                piece.expand(bytes);
                Data::Out(bytes)
            }
            _ if room > 0 => Data::In(room),
            _ => Data::None,
        };
        self.gather(sqe, data)
    }
}

impl Client {
    /// A client with up to `depth` commands under way on `queue`, whose namespace takes values of up to
    /// `max_value_bytes` bytes ([`super::Initiator::identify_namespace`]). No command asks for more than
    /// `max_transfer_bytes` bytes (MDTS, [`super::Initiator::identify_controller`]): a longer answer is cut there,
    /// also that of a pair whose value fits but whose key then does not.
    pub fn new(queue: Queue, depth: u32, max_value_bytes: u32, max_transfer_bytes: u32) -> Client {
        let free = |cid| SlotEntry { slot: Slot::new(cid), is_free: true, cid: None, completed: None };
        let slots = (0..depth as u16).map(free).collect();
        let connection = Connection { queue, slots, unclaimed: Unclaimed::default() };
        Client { connection: Arc::new(Mutex::new(connection)), max_value_bytes, max_transfer_bytes }
    }

    /// How often a thread slept to wait for the controller.
    pub fn sleeps(&self) -> u64 {
        lock(&self.connection).queue.sleeps()
    }

    /// Most commands under way.
    pub(super) fn depth(&self) -> u32 {
        lock(&self.connection).slots.len() as u32
    }

    pub(super) fn capabilities(&self) -> Capabilities<'static> {
        let (max_value_bytes, max_answer_bytes) = (self.max_value_bytes, self.max_transfer_bytes);
        Capabilities { choice: None, entries: 1, max_value_bytes, max_answer_bytes, pairs: PAIRS_AT_ONCE }
    }

    /// Takes a slot; waits until one is free.
    fn take_slot(&self) -> Result<TakenSlot, Error> {
        let mut connection = lock(&self.connection);
        let index = loop {
            match connection.slots.iter().position(|entry| entry.is_free) {
                Some(index) => break index,
                None => connection.take_one()?,
            }
        };
        connection.slots[index].is_free = false;
        Ok(TakenSlot { connection: self.connection.clone(), index, outbox: Vec::new(), data: Vec::new() })
    }
}

impl crate::Client for Client {
    type Ticket<V: Content> = Ticket<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ticket<V>, Error> {
        let has_unclaimed = |iterator| lock(&self.connection).unclaimed.has(iterator);
        let begun = conversation::begin(self.capabilities(), &call, call.value().bytes(), has_unclaimed);
        let course = match begun {
            Ok(course) => course,
            Err(state) => return Ok(Ticket { call, state }),
        };
        let mut flight = Flight { course, slot: self.take_slot()? };
        let state = match flight.advance(call.value(), Until::Whole)? {
            None => CallState::UnderWay(flight),
            Some((status, _)) => CallState::Ended(status),
        };
        Ok(Ticket { call, state })
    }

    fn wait<V: Content>(&mut self, ticket: Ticket<V>, into: &mut Region) -> Result<Answer, Error> {
        let mut ticket = ticket;
        while let Some(iterator) = ticket.unclaimed() {
            if let Some(pair) = lock(&self.connection).claim(iterator, into)? {
                return Ok(Answer::Pair(pair?));
            }
            ticket = self.submit(ticket.call)?;
        }
        let Ticket { call, state: CallState::UnderWay(mut flight) } = ticket else {
            return Ok(ticket.ended()?);
        };
        let (status, cqe) = flight.advance(call.value(), Until::Ended)?.expect("it has ended");
        let (answer, aftermath) = flight.course.conclude(status, &cqe, &Received(&flight.slot.data), into);
        drop(flight);
        match aftermath {
            Aftermath::Keep(iterator, more) => lock(&self.connection).unclaimed.keep(iterator, more),
            Aftermath::Close(iterator) => self.close(iterator)?,
            Aftermath::Forget(iterator) => {
                lock(&self.connection).unclaimed.forget(|other| other == iterator);
            }
            Aftermath::None => {}
        }
        Ok(answer?)
    }
}

impl Flight {
    fn advance(&mut self, value: Piece<'_>, until: Until) -> Result<CommandEnd, Error> {
        at_once(|context| self.course.advance(&mut self.slot, value, until, context))
    }
}

/// A command and its data go in one capsule, or the controller asks for them.
impl CommandSlot for TakenSlot {
    type Error = Error;

    fn offer(&mut self) -> (SlotOffer<'_>, &mut Vec<Sqe>) {
        (OFFER, &mut self.outbox)
    }

    fn submit(&mut self, submission: Submission<'_>) -> Result<(), Error> {
        let sqe = self.outbox.pop().expect("there is an entry to submit");
        let (completions, iterator_use) = (submission.completions, submission.iterator_use);
        let Connection { queue, slots, .. } = &mut *lock(&self.connection);
        let cid = queue.gather_call(sqe, submission, &mut Vec::new())?;
        queue.push()?;
        slots[self.index].cid = Some(cid);
        slots[self.index].slot.submitted(completions, iterator_use, false);
        Ok(())
    }

    fn completion(&mut self, _: &mut Context<'_>) -> Poll<Result<Cqe, Error>> {
        let mut connection = lock(&self.connection);
        let Completed { cqe, data } = loop {
            match connection.slots[self.index].completed.take() {
                Some(completed) => break completed,
                None => connection.take_one()?,
            }
        };
        connection.slots[self.index].slot.settled();
        drop(connection);
        self.data = data;
        Poll::Ready(Ok(cqe))
    }
}

impl Connection {
    /// Takes a kept pair of `iterator`; waits for the answer to a dropped NEXT in progress.
    pub(super) fn claim(
        &mut self,
        iterator: IteratorId,
        into: &mut Region,
    ) -> Result<Option<NextPair>, Error> {
        loop {
            match self.unclaimed.claim(iterator, into) {
                Claimed::Nothing => return Ok(None),
                Claimed::Expected => self.take_one()?,
                Claimed::Pair(pair) => return Ok(Some(pair)),
            }
        }
    }

    /// Waits for the next completion of any command.
    fn take_one(&mut self) -> Result<(), Error> {
        let is_under_way = self.slots.iter().any(|entry| entry.cid.is_some());
        assert!(is_under_way, "every slot is a ticket's, and no caller waits for one of them");
        let completed = self.queue.next_completion()?;
        let cid = completed.cqe.cid.get();
        let index = self.slots.iter().position(|entry| entry.cid == Some(cid));
        let index = index.ok_or(Error::Protocol("a response without a command"))?;
        self.slots[index].cid = None;
        match self.slots[index].slot.arrived(&completed.cqe) {
            Arrived::More => Ok(()),
            Arrived::Answered => {
                self.slots[index].completed = Some(completed);
                Ok(())
            }
            Arrived::Left(left) => self.carry_out(index, left, &completed.data),
        }
    }

    /// Does what remains of a dropped command, for which `data` arrived.
    fn carry_out(&mut self, index: usize, left: Remaining, data: &[u8]) -> Result<(), Error> {
        match left {
            Remaining::Wait => {}
            Remaining::Close(sqe) => match self.queue.submit(sqe, Data::None) {
                Ok(cid) => self.slots[index].cid = Some(cid),
                Err(error) => {
                    // No completion will come. The next command of the slot meets the failed socket.
                    let entry = &mut self.slots[index];
                    (entry.slot, entry.is_free) = (Slot::new(index as u16), true);
                    return Err(error);
                }
            },
            Remaining::Over { unclaimed, .. } => {
                if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
                    let came_bytes = buffer_bytes.min(data.len() as u32);
                    self.unclaimed.arrive(iterator, unclaimed::answer(&cqe, &Received(data), came_bytes));
                }
                self.slots[index].is_free = true;
            }
        }
        Ok(())
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        let mut connection = lock(&self.connection);
        let entry = &mut connection.slots[self.index];
        let steps = entry.slot.steps();
        let (left, completed) = (entry.slot.abandon(), entry.completed.take());
        if let Some(iterator) = steps {
            connection.unclaimed.expect(iterator);
        }
        let data = completed.map(|completed| completed.data).unwrap_or_default();
        // If the socket fails here, its next user gets the error.
        let _ = connection.carry_out(self.index, left, &data);
    }
}
