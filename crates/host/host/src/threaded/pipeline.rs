//! A driver as [`Pipelined`].
//!
//! Commands gather until the thread has to wait for the drive, and cross with one doorbell; completions come
//! in batches and are acknowledged with one. A value belongs to the pipeline until its completion gives it
//! back, so nothing is copied and nothing is allocated.

use std::collections::VecDeque;
use std::future::poll_fn;

use kvdrive_content::Region;
use kvdrive_spec::{Cqe, Key, Sqe, Status, StoreOptions};

use super::Error;
use super::blocking::block_on;
use super::driver::Driver;
use crate::client::{Content, NoValue};
use crate::course::{Course, Step};
use crate::pipelined::{Completion, Kind, Pipelined};
use crate::slot::{Arrived, Slot, Walk};

struct Flight<'a, V> {
    key: Key,
    value: V,
    kind: Kind,
    /// Of a retrieve: where the value goes.
    into: Region,
    course: Course<'a>,
    slot: Slot,
    /// How often the doorbell had been rung when its first entries were put into the outbox, and its last.
    begun_at: Option<u64>,
    put_at: u64,
}

/// A driver used as a queue of commands.
///
/// Dropping it forgets what is under way: commands that were submitted are carried out, the others are not.
pub struct Pipeline<'a, V> {
    driver: &'a Driver,
    /// By command identifier.
    flights: Vec<Option<Flight<'a, V>>>,
    free: Vec<u16>,
    under_way: u32,
    /// Entries that wait for a doorbell, how many of them get no completion, and doorbells so far.
    outbox: Vec<Sqe>,
    quiet: u32,
    doorbells: u64,
    /// Commands that were refused before they were submitted.
    refused: VecDeque<Completion<V>>,
    /// Completions that were taken over and not looked at, latest first.
    batch: Vec<Cqe>,
    /// The value in the middle of its inline commands, and those that wait for it.
    inside: Option<u16>,
    waiting: VecDeque<u16>,
}

impl Driver {
    /// Makes this driver a pipeline, after waiting on this thread for what dropped futures have left under
    /// way.
    pub fn pipeline<V: Content>(&mut self) -> Result<Pipeline<'_, V>, Error> {
        let depth = self.depth();
        block_on(self.port().take_all())?;
        Ok(Pipeline {
            driver: self,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth as u16).rev().collect(),
            under_way: 0,
            outbox: Vec::with_capacity(depth as usize),
            quiet: 0,
            doorbells: 0,
            refused: VecDeque::new(),
            batch: Vec::with_capacity(depth as usize),
            inside: None,
            waiting: VecDeque::new(),
        })
    }
}

impl<V: Content> Pipelined<V> for Pipeline<'_, V> {
    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.refused.is_empty()
    }

    fn under_way(&self) -> u32 {
        self.under_way + self.refused.len() as u32
    }

    fn store_with(&mut self, key: Key, value: V, options: StoreOptions) -> Result<(), V> {
        if !self.has_room() {
            return Err(value);
        }
        match Course::store(self.driver.terms(), Some(key), value.piece().bytes(), options) {
            Ok(course) => self.take_off(key, value, Kind::Store, course, Region::new()),
            Err(status) => {
                self.refused.push_back(Completion { key, value, result: Err(status) });
                Ok(())
            }
        }
    }

    fn retrieve(&mut self, key: Key, tag: V, into: Region) -> Result<(), V> {
        self.take_off(key, tag, Kind::Retrieve, self.other(NoValue::Retrieve { key }), into)
    }

    fn delete(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.take_off(key, tag, Kind::Delete, self.other(NoValue::Delete { key }), Region::new())
    }

    fn exist(&mut self, key: Key, tag: V) -> Result<(), V> {
        self.take_off(key, tag, Kind::Exist, self.other(NoValue::Exist { key }), Region::new())
    }

    fn next_completion(&mut self) -> Result<Option<Completion<V>>, Error> {
        if let Some(refused) = self.refused.pop_front() {
            return Ok(Some(refused));
        }
        while self.under_way > 0 {
            while let Some(cqe) = self.batch.pop() {
                if let Some(completion) = self.arrived(&cqe) {
                    return Ok(Some(completion));
                }
            }
            let port = self.driver.port();
            port.check_thread()?;
            self.ring();
            block_on(poll_fn(|context| port.poll_finished(context, &mut self.batch)))?;
            self.batch.reverse();
            port.queue().ring_completion();
        }
        Ok(None)
    }
}

impl<'a, V: Content> Pipeline<'a, V> {
    fn other(&self, call: NoValue) -> Course<'a> {
        Course::of(self.driver.terms(), &call).expect("only a store can be too long")
    }

    /// Submits what has gathered, without waiting for anything. Where this thread may not
    /// ([`Connector::check_thread`](super::Connector::check_thread)) it stays gathered.
    pub fn ring(&mut self) {
        if self.driver.port().check_thread().is_err() {
            return;
        }
        let quiet = std::mem::take(&mut self.quiet);
        let fits = self.driver.port().queue().submit(&mut self.outbox, quiet);
        assert!(fits, "a port has fewer slots than its queue");
        self.doorbells += 1;
    }

    fn take_off(
        &mut self,
        key: Key,
        value: V,
        kind: Kind,
        course: Course<'a>,
        into: Region,
    ) -> Result<(), V> {
        let Some(cid) = self.free.pop() else { return Err(value) };
        // The drive begins with the first half while the second is being made.
        if self.outbox.len() >= self.flights.len() / 2 {
            self.ring();
        }
        let (slot, put_at) = (Slot::new(cid), self.doorbells);
        self.flights[usize::from(cid)] =
            Some(Flight { key, value, kind, into, course, slot, begun_at: None, put_at });
        self.under_way += 1;
        self.go_on(cid);
        self.begin_waiting();
        Ok(())
    }

    /// Takes a command of which nothing is under way to its first submission, or to where it waits for the
    /// sequence.
    fn go_on(&mut self, cid: u16) {
        let lot = self.driver.port().lot(cid);
        let flight = self.flights[usize::from(cid)].as_mut().expect("a command goes on that has begun");
        let before = self.outbox.len();
        let step = flight.course.step(&lot, flight.value.piece(), &mut self.outbox);
        self.follow(cid, step, before);
    }

    /// Does what steps say until something is in the outbox, which had `before` entries, or the value waits
    /// for the sequence.
    fn follow(&mut self, cid: u16, mut step: Step, before: usize) {
        let port = self.driver.port();
        let (lot, buffer) = (port.lot(cid), port.buffer(cid));
        let flight = self.flights[usize::from(cid)].as_mut().expect("a command goes on that has begun");
        loop {
            match step {
                Step::TakeSequence if self.inside.is_some() => return self.waiting.push_back(cid),
                Step::TakeSequence => self.inside = Some(cid),
                Step::Stage(bytes) => buffer.fill(flight.value.piece().slice(0, bytes)),
                Step::Clear => buffer.clear(),
                Step::Submit(completions) => return self.put(cid, completions, before),
                other => unreachable!("{other:?}: there is no window, and nothing has been answered"),
            }
            step = flight.course.step(&lot, flight.value.piece(), &mut self.outbox);
        }
    }

    /// Notes that a command has put entries into the outbox, which had `before` of them.
    fn put(&mut self, cid: u16, completions: u32, before: usize) {
        let flight = self.flights[usize::from(cid)].as_mut().expect("it has put something into the outbox");
        self.quiet += (self.outbox.len() - before) as u32 - completions;
        (flight.put_at, flight.begun_at) = (self.doorbells, Some(flight.begun_at.unwrap_or(self.doorbells)));
        let is_inside = self.inside == Some(cid);
        flight.slot.submitted(completions, Walk::None, is_inside);
        if is_inside && flight.course.is_whole(flight.value.piece().bytes()) {
            flight.slot.leave_sequence();
            self.inside = None;
        }
    }

    /// Takes a command one step further; returns it when it has ended.
    fn arrived(&mut self, cqe: &Cqe) -> Option<Completion<V>> {
        let cid = cqe.cid.get();
        let flight = self.flights[usize::from(cid)].as_mut()?;
        if flight.slot.arrived(cqe) != Arrived::Answered {
            return None;
        }
        let cqe = flight.slot.outcome()?;
        let lot = self.driver.port().lot(cid);
        let before = self.outbox.len();
        let ended = match flight.course.completed(&lot, flight.value.piece(), &cqe, &mut self.outbox) {
            Step::Done(status) => {
                if self.inside == Some(cid) {
                    self.inside = None;
                }
                self.land(cid, status, &cqe)
            }
            step => {
                self.follow(cid, step, before);
                None
            }
        };
        self.begin_waiting();
        ended
    }

    /// Begins values that waited for the sequence, until one holds it again.
    fn begin_waiting(&mut self) {
        while self.inside.is_none() {
            let Some(cid) = self.waiting.pop_front() else { return };
            self.inside = Some(cid);
            self.go_on(cid);
        }
    }

    fn land(&mut self, cid: u16, status: Status, cqe: &Cqe) -> Option<Completion<V>> {
        let Flight { key, value, kind, mut into, .. } = self.flights[usize::from(cid)].take()?;
        self.free.push(cid);
        self.under_way -= 1;
        let result = kind.outcome(status, || {
            into.clear();
            self.driver.port().buffer(cid).swap(&mut into);
            (cqe.dw0.get(), into)
        });
        Some(Completion { key, value, result })
    }
}

impl<V> Drop for Pipeline<'_, V> {
    fn drop(&mut self) {
        let slot = |cid: u16| {
            let Some(flight) = &self.flights[usize::from(cid)] else { return Slot::new(cid) };
            let mut slot = flight.slot;
            let has_rung = |at: u64| at < self.doorbells;
            if !has_rung(flight.put_at) {
                // What is in the outbox the drive does not know.
                slot.withdrawn(flight.begun_at.is_some_and(has_rung));
            }
            slot
        };
        self.driver.port().give_all(slot, self.batch.iter().rev().copied());
    }
}
