//! Runs units of a workload ([`kvdrive_workload::units`]) on the clients of a run: locks rows, and times each
//! operation and each unit.

use std::sync::atomic::Ordering::Relaxed;

use kvdrive_content::{Piece, Region};
use kvdrive_host::{Calls, Error};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Ns;

use super::kinds::{RETRIEVE, STORE};
use super::places::{ConnectedClient, TaskClient, TaskPlace};
use super::stream::{Clock, Stream};
use kvdrive_sim::wall::lock;
use kvdrive_workload::units::{Failed, Pairs, UnitEnd};

/// Units of a workload.
impl Stream {
    /// Carries out a unit that was due at `began`. A refusal is recorded, and the run continues; any other
    /// error ends it.
    pub(super) fn perform_unit(
        &self,
        client: &mut impl TaskClient,
        number: u64,
        began: Ns,
        buffer: &mut Region,
    ) -> Result<(), Error> {
        let units = self.work.units.as_ref().expect("a workload that draws units does them");
        self.work.units_begun.fetch_add(1, Relaxed);
        let mut pairs = ClientPairs::new(client, buffer, self).with_locks();
        match units.run(number, &mut pairs) {
            Ok(UnitEnd { kind, is_committed }) => {
                let kind = units.kinds()[kind];
                self.seen.borrow_mut().note_unit(kind, is_committed, self.clock.now() - began);
            }
            Err(Failed::Refused(_)) => {}
            Err(Failed::Wrong(what)) => self.work.fail(anyhow::anyhow!("unit {number}: {what}")),
        }
        Ok(())
    }

    /// Reads back, through `place`, the pairs that the units stored; see [`Stream::check_units_by`].
    pub(super) fn check_units(&self, place: &TaskPlace, errors: u64) -> anyhow::Result<Option<String>> {
        match &place.client {
            ConnectedClient::Drive(driver) => self.check_units_by(&mut &**driver, errors),
            ConnectedClient::Saker(saker, driver) => self.check_units_by(&mut saker.connect(driver), errors),
            ConnectedClient::Store(client) => self.check_units_by(&mut &**client, errors),
        }
    }

    /// Reads back the pairs that the units stored, after all measured operations; returns the findings as one line.
    pub(super) fn check_units_by(
        &self,
        client: &mut impl TaskClient,
        errors: u64,
    ) -> anyhow::Result<Option<String>> {
        let Some(units) = &self.work.units else { return Ok(None) };
        if errors > 0 {
            return Ok(Some("what its units left was not checked, for some of them failed".into()));
        }
        let mut buffer = Region::new();
        let begun = self.work.units_begun.load(Relaxed);
        let checked = units.check(begun, &mut ClientPairs::new(client, &mut buffer, self));
        Ok(Some(checked.map_err(|failed| anyhow::anyhow!("what the units of the run left: {failed}"))?))
    }
}

/// How long a unit waits before it tries again to lock a row that a unit of another thread has locked, ns.
const LOOK_AGAIN_NS: Ns = 20_000;

/// Pairs as a unit accesses them, through a client of any kind.
pub(super) struct ClientPairs<'a, C> {
    client: &'a mut C,
    buffer: &'a mut Region,
    stream: &'a Stream,
    /// Are rows locked? A single client needs no locks.
    locks: bool,
    held: Vec<Key>,
    /// The unit's writes, kept until it commits; `None`: each write is sent at once.
    kept: Option<Vec<(Key, Vec<u8>)>>,
}

impl<'a, C: TaskClient> ClientPairs<'a, C> {
    pub(super) fn new(client: &'a mut C, buffer: &'a mut Region, stream: &'a Stream) -> ClientPairs<'a, C> {
        let kept = stream.work.atomic.then(Vec::new);
        ClientPairs { client, buffer, stream, locks: false, held: Vec::new(), kept }
    }

    pub(super) fn with_locks(self) -> ClientPairs<'a, C> {
        ClientPairs { locks: true, ..self }
    }

    fn note(&self, kind: usize, key: Key, began: Ns, result: Result<(), Status>) -> Result<(), Failed> {
        self.stream.seen.borrow_mut().note(kind, &key, self.stream.clock.now() - began, result);
        result.map_err(Failed::Refused)
    }

    /// Locks all rows or none, so that no unit waits for a row while it holds another.
    fn try_lock(&self, rows: &[Key]) -> bool {
        let mut held = lock(&self.stream.work.rows);
        let is_free = !rows.iter().any(|row| held.contains(row));
        if is_free {
            held.extend(rows);
        }
        is_free
    }
}

impl<C: TaskClient> Pairs for ClientPairs<'_, C> {
    fn read(&mut self, key: Key, into: &mut Vec<u8>) -> Result<bool, Failed> {
        if let Some((_, own)) = self.kept.iter().flatten().find(|(kept, _)| *kept == key) {
            into.clone_from(own);
            return Ok(true);
        }
        let began = self.stream.clock.now();
        let found = super::scan::answered(self.client.retrieve(key, self.buffer)).map_err(Failed::lost)?;
        into.clear();
        match found {
            Ok(bytes) => {
                self.note(RETRIEVE, key, began, Ok(()))?;
                self.stream.seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                into.resize(bytes as usize, 0);
                self.buffer.copy_to(0, into);
                Ok(true)
            }
            Err(Status::KEY_NOT_FOUND) => {
                let span = self.stream.clock.now() - began;
                self.stream.seen.borrow_mut().note(RETRIEVE, &key, span, Err(Status::KEY_NOT_FOUND));
                Ok(false)
            }
            Err(status) => self.note(RETRIEVE, key, began, Err(status)).map(|()| false),
        }
    }

    fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Failed> {
        if let Some(kept) = &mut self.kept {
            kept.retain(|(other, _)| *other != key);
            kept.push((key, value.to_vec()));
            return Ok(());
        }
        let began = self.stream.clock.now();
        let stored =
            super::scan::answered(self.client.store(key, Piece::Bytes(value))).map_err(Failed::lost)?;
        self.note(STORE, key, began, stored)?;
        self.stream.seen.borrow_mut().stored_bytes += value.len() as u64;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failed> {
        let Some(kept) = self.kept.as_mut().map(std::mem::take).filter(|kept| !kept.is_empty()) else {
            return Ok(());
        };
        let began = self.stream.clock.now();
        let committed = super::scan::answered(self.client.commit(&kept)).map_err(Failed::lost)?;
        // Each of these stores is noted with the time of the whole batch.
        for (key, value) in &kept {
            self.note(STORE, *key, began, committed)?;
            self.stream.seen.borrow_mut().stored_bytes += value.len() as u64;
        }
        Ok(())
    }

    fn lock(&mut self, rows: &[Key]) {
        if !self.locks {
            return;
        }
        while !self.try_lock(rows) {
            // Other tasks may have run while the answer was taken, and unlocked the rows.
            if self.client.take_answer() {
                continue;
            }
            match &self.stream.clock {
                Clock::Model(_) => self.stream.unlocked.wait(),
                Clock::Wall(clock) => self.stream.sim.sleep_until(clock.ns() + LOOK_AGAIN_NS),
            }
        }
        self.held.extend(rows);
    }

    fn unlock(&mut self) {
        if self.locks {
            let mut locked = lock(&self.stream.work.rows);
            self.held.drain(..).for_each(|row| _ = locked.remove(&row));
            drop(locked);
            self.stream.unlocked.wake_all();
        }
    }
}
