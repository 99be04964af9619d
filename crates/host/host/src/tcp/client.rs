//! One connection as a [`crate::Client`]. A value goes by one Store command, in the capsule or when the controller
//! asks for it; what is left of a command that nobody waits for says `slot`, as everywhere.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvdrive_content::{Piece, Region};
use kvdrive_link::{BadAddress, HostMemory};
use kvdrive_spec::{Command, Status};

use super::queue::{Completed, Data, Queue};
use crate::Error;
use crate::answers::IteratorId;
use crate::client::{Answer, Call, Content};
use crate::course;
use crate::course::PAIRS_AT_ONCE;
use crate::slot::{Arrived, Left, Slot};
use crate::unclaimed::{self, Claimed, Unclaimed};

/// One connection's commands, several at a time. A thread of its own is not needed: whoever waits for one reads
/// what comes, and keeps what others wait for. A clone is the same connection.
#[derive(Clone)]
pub struct Client {
    pub(super) connection: Arc<Mutex<Connection>>,
    max_value_bytes: u32,
    max_transfer_bytes: u32,
}

pub(super) struct Connection {
    pub(super) queue: Queue,
    seats: Vec<Seat>,
    unclaimed: Unclaimed,
}

/// One command slot.
struct Seat {
    slot: Slot,
    is_free: bool,
    /// The identifier under which the connection has its command.
    cid: Option<u16>,
    completed: Option<Completed>,
}

/// A command that was submitted.
#[must_use = "whoever drops it learns nothing of the answer"]
pub struct Ticket<V> {
    call: Call<V>,
    state: State,
}

enum State {
    UnderWay(Held),
    /// The next pair of this iterator is the answer of a command that was dropped.
    Unclaimed(IteratorId),
    /// The drive was not asked.
    Refused(Status),
}

/// A taken slot, given back when it is dropped.
struct Held {
    connection: Arc<Mutex<Connection>>,
    seat: usize,
}

/// What came for one command, as memory that begins at address 0; zeros behind it.
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

pub(super) fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data of a command: the value of one that stores, for which `bytes` is memory, or `room` for an answer.
pub(super) fn data_of<'a>(
    command: &Command,
    value: Piece<'a>,
    room: u32,
    bytes: &'a mut Vec<u8>,
) -> Data<'a> {
    match (command, value) {
        (Command::Store(_) | Command::Batch(_), Piece::Bytes(bytes)) => Data::Out(bytes),
        (Command::Store(_) | Command::Batch(_), piece) => {
            bytes.resize(piece.bytes() as usize, 0);
            piece.expand(bytes);
            Data::Out(bytes)
        }
        _ if room > 0 => Data::In(room),
        _ => Data::None,
    }
}

impl Client {
    /// Up to `depth` commands at once on `queue`, whose namespace takes values of up to `max_value_bytes` bytes
    /// ([`super::Initiator::identify_namespace`]). No command asks for more than `max_transfer_bytes` bytes (MDTS,
    /// [`super::Initiator::identify_controller`]): of a longer answer the first so many come, as of a pair whose
    /// value alone is as long as that.
    pub fn new(queue: Queue, depth: u32, max_value_bytes: u32, max_transfer_bytes: u32) -> Client {
        let seat = |cid| Seat { slot: Slot::new(cid), is_free: true, cid: None, completed: None };
        let seats = (0..depth as u16).map(seat).collect();
        let connection = Connection { queue, seats, unclaimed: Unclaimed::default() };
        Client { connection: Arc::new(Mutex::new(connection)), max_value_bytes, max_transfer_bytes }
    }

    /// How often its thread slept, waiting for the controller.
    pub fn sleeps(&self) -> u64 {
        lock(&self.connection).queue.sleeps()
    }

    /// How many commands it has under way at most.
    pub(super) fn depth(&self) -> u32 {
        lock(&self.connection).seats.len() as u32
    }

    pub(super) fn is_too_long(&self, value_bytes: u32) -> bool {
        value_bytes > self.max_value_bytes
    }

    pub(super) fn command<V: Content>(&self, call: &Call<V>) -> (Command, u32) {
        course::command(call, self.max_value_bytes, self.max_transfer_bytes, PAIRS_AT_ONCE)
    }
}

impl crate::Client for Client {
    type Ticket<V: Content> = Ticket<V>;

    fn submit<V: Content>(&mut self, call: Call<V>) -> Result<Ticket<V>, Error> {
        let mut connection = lock(&self.connection);
        if let Call::Next { iterator } = call
            && connection.unclaimed.has(iterator)
        {
            return Ok(Ticket { call, state: State::Unclaimed(iterator) });
        }
        let value = call.value();
        if value.bytes() > self.max_value_bytes {
            return Ok(Ticket { call, state: State::Refused(Status::INVALID_VALUE_SIZE) });
        }
        let seat = loop {
            match connection.seats.iter().position(|seat| seat.is_free) {
                Some(seat) => break seat,
                None => connection.take_one()?,
            }
        };
        let (command, room) = self.command(&call);
        let mut bytes = Vec::new();
        let data = data_of(&command, value, room, &mut bytes);
        let sqe = command.encode(0, connection.queue.nsid);
        let cid = connection.queue.submit(sqe, data)?;
        let taken = &mut connection.seats[seat];
        (taken.is_free, taken.cid) = (false, Some(cid));
        taken.slot.submitted(1, course::walk(&command), false);
        drop(connection);
        let held = Held { connection: self.connection.clone(), seat };
        Ok(Ticket { call, state: State::UnderWay(held) })
    }

    fn wait<V: Content>(&mut self, ticket: Ticket<V>, into: &mut Region) -> Result<Answer, Error> {
        let mut ticket = ticket;
        while let State::Unclaimed(iterator) = ticket.state {
            let answer = lock(&self.connection).claim(iterator)?;
            if let Some(answer) = answer {
                *into = answer.value;
                return Ok(Answer::Pair(answer.pair?));
            }
            ticket = self.submit(ticket.call)?;
        }
        let Ticket { call, state: State::UnderWay(held) } = ticket else {
            let State::Refused(status) = ticket.state else { unreachable!("it is asked of the drive") };
            return Err(status.into());
        };
        let mut connection = lock(&self.connection);
        let Completed { cqe, data } = loop {
            match connection.seats[held.seat].completed.take() {
                Some(completed) => break completed,
                None => connection.take_one()?,
            }
        };
        connection.seats[held.seat].slot.settled();
        drop(connection);
        drop(held);
        let (command, room) = self.command(&call);
        let answer = course::answer(&command, room, cqe.status(), &cqe, &Received(&data), 0, into);
        match call {
            Call::Next { iterator } if cqe.status().is_success() => {
                let more = unclaimed::Answer::take_more(&cqe, &Received(&data), 0, room);
                lock(&self.connection).unclaimed.keep(iterator, more);
            }
            Call::Seek { .. } if cqe.status().is_success() && answer.is_err() => {
                crate::Client::close(self, IteratorId::of(&cqe))?;
            }
            Call::Close { iterator } => {
                lock(&self.connection).unclaimed.forget(|other| other == iterator);
            }
            _ => {}
        }
        Ok(answer?)
    }
}

impl Connection {
    /// Takes an answer of `iterator` whose command was dropped; waits for one that is in progress.
    fn claim(&mut self, iterator: IteratorId) -> Result<Option<unclaimed::Answer>, Error> {
        loop {
            match self.unclaimed.claim(iterator) {
                Claimed::Nothing => return Ok(None),
                Claimed::Expected => self.take_one()?,
                Claimed::Answer(answer) => return Ok(Some(answer)),
            }
        }
    }

    /// Waits for the next completion of any command.
    fn take_one(&mut self) -> Result<(), Error> {
        let is_under_way = self.seats.iter().any(|seat| seat.cid.is_some());
        assert!(is_under_way, "every slot is a ticket's, and nobody waits for one of them");
        let completed = self.queue.next_completion()?;
        let cid = completed.cqe.cid.get();
        let seat = self.seats.iter().position(|seat| seat.cid == Some(cid));
        let seat = seat.ok_or(Error::Protocol("a response to nothing"))?;
        self.seats[seat].cid = None;
        match self.seats[seat].slot.arrived(&completed.cqe) {
            Arrived::More => Ok(()),
            Arrived::Answered => {
                self.seats[seat].completed = Some(completed);
                Ok(())
            }
            Arrived::Left(left) => self.carry_out(seat, left, &completed.data),
        }
    }

    /// Completes a dropped command, for which `data` arrived.
    fn carry_out(&mut self, seat: usize, left: Left, data: &[u8]) -> Result<(), Error> {
        match left {
            Left::Wait => {}
            Left::Close(sqe) => self.seats[seat].cid = Some(self.queue.submit(sqe, Data::None)?),
            Left::Over { unclaimed, .. } => {
                if let Some((iterator, buffer_bytes, cqe)) = unclaimed {
                    let answers = unclaimed::Answer::take(&cqe, &Received(data), 0, buffer_bytes);
                    self.unclaimed.arrive(iterator, answers);
                }
                self.seats[seat].is_free = true;
            }
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut connection = lock(&self.connection);
        let seat = &mut connection.seats[self.seat];
        let steps = seat.slot.steps();
        let (left, completed) = (seat.slot.abandon(), seat.completed.take());
        if let Some(iterator) = steps {
            connection.unclaimed.expect(iterator);
        }
        let data = completed.map(|completed| completed.data).unwrap_or_default();
        // A socket that fails here fails its next user.
        let _ = connection.carry_out(self.seat, left, &data);
    }
}
