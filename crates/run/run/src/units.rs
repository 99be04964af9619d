//! Runs units of a workload ([`kvdrive_workload::units`]) on the clients of a run: row locks, the time of
//! each operation and of each unit.

use kvdrive_content::{Piece, Region};
use kvdrive_host::Calls;
use kvdrive_sim::{Histogram, Ns};
use kvdrive_spec::{Key, Status};

use super::places::TaskClient;
use super::seen::{RETRIEVE, STORE, Seen};
use super::stream::{Clock, Stream};
use super::work::lock;
use kvdrive_workload::units::{Failed, Pairs};

/// Results of the units of one kind.
#[derive(Clone)]
pub(crate) struct UnitsSeen {
    /// Name of the kind.
    pub(crate) kind: &'static str,
    /// Latency of committed units, ns.
    pub(crate) latency: Histogram,
    /// Units that the workload rolls back on purpose.
    pub(crate) rolled_back: u64,
}

impl Seen {
    /// Records that a unit of this kind ended `span_ns` after it began.
    pub(super) fn note_unit(&mut self, kind: &'static str, is_committed: bool, span_ns: Ns) {
        let at = self.units.iter().position(|units| units.kind == kind).unwrap_or_else(|| {
            self.units.push(UnitsSeen { kind, latency: Histogram::default(), rolled_back: 0 });
            self.units.len() - 1
        });
        if is_committed {
            self.units[at].latency.record(span_ns);
        } else {
            self.units[at].rolled_back += 1;
        }
    }
}

/// How long a unit waits before it looks again for a row that a unit of another thread has locked, ns.
const LOOK_AGAIN_NS: Ns = 20_000;

/// Pairs as a unit accesses them, through a client of any kind.
pub(super) struct ClientPairs<'a, C> {
    client: &'a mut C,
    buffer: &'a mut Region,
    stream: &'a Stream,
    /// Is it needed that rows are locked? Not where there is only one client.
    locks: bool,
    held: Vec<Key>,
    /// What the unit writes, until it commits; `None`: each write goes at once.
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
        let found = super::answered(self.client.retrieve(key, self.buffer)).map_err(Failed::lost)?;
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
        let stored = super::answered(self.client.store(key, Piece::Bytes(value))).map_err(Failed::lost)?;
        self.note(STORE, key, began, stored)?;
        self.stream.seen.borrow_mut().stored_bytes += value.len() as u64;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failed> {
        let Some(kept) = self.kept.as_mut().map(std::mem::take).filter(|kept| !kept.is_empty()) else {
            return Ok(());
        };
        let began = self.stream.clock.now();
        let committed = super::answered(self.client.commit(&kept)).map_err(Failed::lost)?;
        // Each of them took as long as all.
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
            self.client.before_waiting();
            // That may have run other tasks, which may have unlocked the rows.
            if self.try_lock(rows) {
                break;
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
