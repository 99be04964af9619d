//! Runs units of a workload ([`kvdrive_workload::units`]) on the clients of a run: row locks, the time of
//! each operation and of each unit.

use std::collections::BTreeSet;

use kvdrive_content::{Piece, Region};
use kvdrive_host::Calls;
use kvdrive_sim::{Histogram, Ns, Sim, TaskCell, WaitQueue};
use kvdrive_spec::{Key, Status};

use super::seats::Party;
use super::seen::{RETRIEVE, STORE, Seen};
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

/// Rows that are locked by some unit.
pub(super) struct RowLocks {
    held: TaskCell<BTreeSet<Key>>,
    freed: WaitQueue,
}

impl RowLocks {
    pub(super) fn new(sim: &Sim) -> RowLocks {
        RowLocks { held: TaskCell::default(), freed: WaitQueue::new(sim) }
    }

    /// Locks all rows or none, so that no unit waits for a row while it holds another.
    fn lock(&self, rows: &[Key], mut before_waiting: impl FnMut()) {
        let is_held = || rows.iter().any(|row| self.held.borrow().contains(row));
        while is_held() {
            before_waiting();
            // `before_waiting` may have run other tasks, which may have unlocked the rows.
            if is_held() {
                self.freed.wait();
            }
        }
        self.held.borrow_mut().extend(rows);
    }

    fn unlock(&self, rows: &[Key]) {
        let mut held = self.held.borrow_mut();
        rows.iter().for_each(|row| _ = held.remove(row));
        drop(held);
        self.freed.wake_all();
    }
}

/// Pairs as a unit accesses them, through a client of any kind.
pub(super) struct ClientPairs<'a, C> {
    client: &'a mut C,
    buffer: &'a mut Region,
    seen: &'a TaskCell<Seen>,
    clock: &'a dyn Fn() -> Ns,
    /// `None` if there is only one client, which needs no locks.
    locks: Option<&'a RowLocks>,
    held: Vec<Key>,
}

impl<'a, C: Party> ClientPairs<'a, C> {
    pub(super) fn new(
        client: &'a mut C,
        buffer: &'a mut Region,
        seen: &'a TaskCell<Seen>,
        clock: &'a dyn Fn() -> Ns,
    ) -> ClientPairs<'a, C> {
        ClientPairs { client, buffer, seen, clock, locks: None, held: Vec::new() }
    }

    pub(super) fn with_locks(self, locks: &'a RowLocks) -> ClientPairs<'a, C> {
        ClientPairs { locks: Some(locks), ..self }
    }

    fn note(&self, kind: usize, key: Key, began: Ns, result: Result<(), Status>) -> Result<(), Failed> {
        self.seen.borrow_mut().note(kind, &key, (self.clock)() - began, result);
        result.map_err(Failed::Refused)
    }
}

impl<C: Party> Pairs for ClientPairs<'_, C> {
    fn read(&mut self, key: Key, into: &mut Vec<u8>) -> Result<bool, Failed> {
        let began = (self.clock)();
        let found = super::answered(self.client.retrieve(key, self.buffer)).map_err(Failed::lost)?;
        into.clear();
        match found {
            Ok(bytes) => {
                self.note(RETRIEVE, key, began, Ok(()))?;
                self.seen.borrow_mut().read_bytes[RETRIEVE] += u64::from(bytes);
                into.resize(bytes as usize, 0);
                self.buffer.copy_to(0, into);
                Ok(true)
            }
            Err(Status::KEY_NOT_FOUND) => {
                self.seen.borrow_mut().note(
                    RETRIEVE,
                    &key,
                    (self.clock)() - began,
                    Err(Status::KEY_NOT_FOUND),
                );
                Ok(false)
            }
            Err(status) => self.note(RETRIEVE, key, began, Err(status)).map(|()| false),
        }
    }

    fn write(&mut self, key: Key, value: &[u8]) -> Result<(), Failed> {
        let began = (self.clock)();
        let stored = super::answered(self.client.store(key, Piece::Bytes(value))).map_err(Failed::lost)?;
        self.note(STORE, key, began, stored)?;
        self.seen.borrow_mut().stored_bytes += value.len() as u64;
        Ok(())
    }

    fn lock(&mut self, rows: &[Key]) {
        if let Some(locks) = self.locks {
            locks.lock(rows, || self.client.before_waiting());
            self.held.extend(rows);
        }
    }

    fn unlock(&mut self) {
        if let Some(locks) = self.locks {
            locks.unlock(&self.held);
            self.held.clear();
        }
    }
}
