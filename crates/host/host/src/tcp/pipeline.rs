//! A client as [`Pipelined`].
//!
//! Commands gather until everything that has come is looked at, and go in one send; what comes is read as far
//! as it is there, in one call.

use std::collections::VecDeque;

use kvdrive_content::Region;
use kvdrive_spec::{Command, Key, Status, StoreOptions};

use super::client::{Client, Received, data_of, lock};
use super::queue::Completed;
use crate::Error;
use crate::client::{Answer, Call, Content, NoValue};
use crate::course;
use crate::pipelined::{Completion, Kind, Pipelined};

struct Flight<V> {
    key: Key,
    value: V,
    kind: Kind,
    /// Of a retrieve: where the value goes.
    into: Region,
    command: Command,
    room: u32,
}

/// A [`Client`] used as a queue of commands. While some are under way, nothing else may be asked of the client.
///
/// Dropping it drops the commands in progress and makes the connection unusable.
pub struct Pipeline<V> {
    client: Client,
    depth: u32,
    /// By command identifier.
    flights: Vec<Option<Flight<V>>>,
    under_way: u32,
    /// Commands that were not sent: their values are too long.
    refused: VecDeque<Completion<V>>,
    /// Why commands could not be sent: returned to callers that wait.
    failure: Option<Error>,
    bytes: Vec<u8>,
}

impl Client {
    /// This client as a pipeline of as many commands as it has at once.
    pub fn pipeline<V: Content>(&self) -> Pipeline<V> {
        Pipeline {
            client: self.clone(),
            depth: self.depth(),
            flights: Vec::new(),
            under_way: 0,
            refused: VecDeque::new(),
            failure: None,
            bytes: Vec::new(),
        }
    }
}

impl<V: Content> Pipeline<V> {
    fn send(
        &mut self,
        key: Key,
        value: V,
        kind: Kind,
        (command, room): (Command, u32),
        into: Region,
    ) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        let mut connection = lock(&self.client.connection);
        let sqe = command.encode(0, connection.queue.nsid);
        let data = data_of(&command, value.piece(), room, &mut self.bytes);
        self.under_way += 1;
        match connection.queue.gather(sqe, data) {
            Ok(cid) => {
                let cid = usize::from(cid);
                if self.flights.len() <= cid {
                    self.flights.resize_with(cid + 1, || None);
                }
                self.flights[cid] = Some(Flight { key, value, kind, into, command, room });
            }
            Err(error) => _ = self.failure.get_or_insert(error),
        }
        Ok(())
    }

    fn other(&mut self, call: NoValue, key: Key, tag: V, kind: Kind, into: Region) -> Result<(), V> {
        let command = self.client.command(&call);
        self.send(key, tag, kind, command, into)
    }
}

impl<V: Content> Pipelined<V> for Pipeline<V> {
    fn has_room(&self) -> bool {
        self.under_way < self.depth && self.refused.is_empty() && self.failure.is_none()
    }

    fn under_way(&self) -> u32 {
        self.under_way + self.refused.len() as u32
    }

    fn store_with(&mut self, key: Key, value: V, options: StoreOptions) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        if self.client.is_too_long(value.piece().bytes()) {
            let result = Err(Status::INVALID_VALUE_SIZE);
            self.refused.push_back(Completion { key, value, result });
            return Ok(());
        }
        let command = self.client.command(&Call::Store { key, value: value.piece(), options });
        self.send(key, value, Kind::Store, command, Region::new())
    }

    fn retrieve(&mut self, key: Key, tag: V, into: Region) -> Result<(), V> {
        self.other(NoValue::Retrieve { key }, key, tag, Kind::Retrieve, into)
    }

    fn delete(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.other(NoValue::Delete { key }, key, tag, Kind::Delete, Region::new())
    }

    fn exist(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.other(NoValue::Exist { key }, key, tag, Kind::Exist, Region::new())
    }

    fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error> {
        if let Some(refused) = self.refused.pop_front() {
            return Ok(Some(refused));
        }
        if self.under_way == 0 {
            return Ok(None);
        }
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        let mut connection = lock(&self.client.connection);
        let Completed { cqe, data } = connection.queue.next_completion()?;
        let flight = self.flights.get_mut(usize::from(cqe.cid.get())).and_then(Option::take);
        let flight = flight.ok_or(Error::Protocol("a response to nothing"))?;
        self.under_way -= 1;
        let Flight { key, value, kind, mut into, command, room } = flight;
        let result = kind.outcome(cqe.status(), || {
            let answer = course::answer(&command, room, cqe.status(), &cqe, &Received(&data), 0, &mut into);
            (answer.map_or(0, Answer::value), into)
        });
        connection.queue.give_back(data);
        Ok(Some(Completion { key, value, result }))
    }
}

impl<V> Drop for Pipeline<V> {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The other end has gone already.
            let _ = lock(&self.client.connection).queue.socket().shutdown(std::net::Shutdown::Both);
        }
    }
}
