//! Values while they arrive: staged in protected memory.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_link::transfer::{Arrival, Landing};
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::{Sim, TaskCell, WaitQueue};

use super::StoredEngine;
use crate::Engine;

/// Protected memory of values that arrive.
pub(super) struct Staged {
    share: u64,
    bytes: Cell<u64>,
    unfinished_bytes: Cell<u64>,
    freed: WaitQueue,
}

impl Staged {
    pub fn new(sim: &Sim, share: u64) -> Staged {
        Staged { share, bytes: Cell::new(0), unfinished_bytes: Cell::new(0), freed: WaitQueue::new(sim) }
    }
}

/// A value that arrives.
pub struct StoredPlace {
    staged: Rc<Staged>,
    pub(super) content: TaskCell<Region>,
    pub(super) bytes: u32,
    is_unfinished: Cell<bool>,
}

impl StoredPlace {
    /// The host has yet to send the rest of it; [`crate::Engine::begin_unfinished`].
    pub(super) fn begin_unfinished(&self) -> Result<(), Status> {
        let unfinished = &self.staged.unfinished_bytes;
        let bytes = unfinished.get() + u64::from(self.bytes);
        if bytes > self.staged.share / 2 {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        unfinished.set(bytes);
        self.is_unfinished.set(true);
        Ok(())
    }

    pub(super) fn finish(&self) {
        if self.is_unfinished.replace(false) {
            let unfinished = &self.staged.unfinished_bytes;
            unfinished.set(unfinished.get() - u64::from(self.bytes));
        }
    }
}

impl Drop for StoredPlace {
    fn drop(&mut self) {
        self.finish();
        self.staged.bytes.set(self.staged.bytes.get() - u64::from(self.bytes));
        self.staged.freed.wake_all();
    }
}

impl Landing for StoredEngine {
    type Place = StoredPlace;

    fn reserve(&self, _: &Key, bytes: u32, _: Arrival) -> Result<StoredPlace, Status> {
        if bytes > self.max_value_bytes() {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        let staged = &self.staged;
        while staged.bytes.get() + u64::from(bytes) > staged.share {
            staged.freed.wait();
        }
        staged.bytes.set(staged.bytes.get() + u64::from(bytes));
        Ok(StoredPlace {
            staged: staged.clone(),
            content: TaskCell::default(),
            bytes,
            is_unfinished: Cell::new(false),
        })
    }

    fn copy_in(&self, place: &StoredPlace, at: u32, bytes: &[u8]) {
        self.charge_copy(bytes.len() as u32);
        place.content.borrow_mut().write(at, Piece::Bytes(bytes));
    }

    fn dma_in(&self, place: &StoredPlace, at: u32, piece: Piece<'_>) {
        place.content.borrow_mut().write(at, piece);
    }

    fn settle(&self, _: &StoredPlace) {}

    fn abandon(&self, place: StoredPlace) {
        drop(place);
    }
}
