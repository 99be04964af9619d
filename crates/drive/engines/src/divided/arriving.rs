//! A divided value while it arrives: one of its parts at a time has a place in the engine, and is stored when it is
//! full.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_link::{Arrival, Landing};
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::TaskCell;

use super::names::Note;
use super::table::DividedValue;
use super::{Divided, Dividing, add};
use crate::Utilization;

/// A place for a value; `P` is the engine's type of a place.
pub enum DividedPlace<P> {
    /// The engine takes it whole.
    Whole(P),
    /// The value is divided.
    Divided(Box<Arriving<P>>),
}

/// A value that is being divided.
pub struct Arriving<P> {
    value: Rc<DividedValue>,
    received_bytes: Cell<u32>,
    /// The place of the part that is being filled.
    part: TaskCell<Option<P>>,
    stored_parts: Cell<u32>,
    /// The status with which a part could not be stored.
    failure: Cell<Option<Status>>,
    /// Bytes that this value adds to `Divided::unfinished_bytes`.
    unfinished_bytes: Cell<u32>,
    /// Does the engine count the part that is being filled as an unfinished value?
    is_part_unfinished: Cell<bool>,
}

impl<P> Arriving<P> {
    /// Has the part that is being filled received all of its bytes?
    fn is_part_full(&self) -> bool {
        let at = self.received_bytes.get();
        self.part.borrow().is_some()
            && at > self.stored_parts.get() * self.value.part_bytes
            && (at == self.value.bytes || at.is_multiple_of(self.value.part_bytes))
    }

    fn check(&self) -> Result<(), Status> {
        self.failure.get().map_or(Ok(()), Err)
    }
}

impl<E: Dividing> Divided<E> {
    /// Errors: the key is a name of a part.
    pub(super) fn check_name(&self, key: &Key) -> Result<(), Status> {
        if self.names.are(key) { Err(Status::INVALID_FIELD) } else { Ok(()) }
    }

    /// Begins a value of `bytes` bytes: stores its slot, which leads recovery to the parts that follow.
    fn begin(&self, bytes: u32) -> Result<Arriving<E::Place>, Status> {
        self.sweep();
        let (slot, number) = self.table.borrow_mut().issue().ok_or(Status::COMMAND_INTERRUPTED)?;
        self.engine.remember(self.table.borrow().issued());
        // From now on changes hold locks. Changes that began without a lock must end before this value can become
        // visible.
        while self.unlocked.get() > 0 {
            self.turned.wait();
        }
        let part_bytes = self.part_bytes;
        if let Err(status) = self.put(self.names.slot(slot), &Note::Slot { number, bytes, part_bytes }) {
            self.table.borrow_mut().give_back(slot);
            return Err(status);
        }
        let value = DividedValue { number, slot, bytes, part_bytes, is_hidden: Cell::new(false) };
        Ok(Arriving {
            value: Rc::new(value),
            received_bytes: Cell::new(0),
            part: TaskCell::default(),
            stored_parts: Cell::new(0),
            failure: Cell::new(None),
            unfinished_bytes: Cell::new(0),
            is_part_unfinished: Cell::new(false),
        })
    }

    /// Stores the part that is being filled. It must be full.
    fn store_part(&self, arriving: &Arriving<E::Place>) -> Result<(), Status> {
        let place = arriving.part.take().expect("a part that is filled has a place");
        arriving.is_part_unfinished.set(false);
        self.engine.settle(&place);
        let index = arriving.stored_parts.get();
        let name = self.names.part(arriving.value.number, index);
        self.engine.commit(name, place, StoreOptions::default())?;
        arriving.stored_parts.set(index + 1);
        add(&self.counters.stored_parts, 1);
        Ok(())
    }

    /// Makes room for `bytes` bytes if values that are leaving take it: gives up cursors that hold such values, one by
    /// one, until there is room.
    fn make_room(&self, bytes: u32) {
        let is_full = || {
            let Utilization { live_bytes, capacity_bytes } = self.engine.utilization();
            live_bytes + u64::from(bytes) > capacity_bytes
        };
        while !self.leaving.borrow().is_empty() && is_full() && self.held_by_cursors.give_up_one() {
            self.sweep();
        }
    }

    fn admit_divided(&self, arriving: &Arriving<E::Place>) -> Result<u32, Status> {
        arriving.check()?;
        if arriving.is_part_full() {
            self.store_part(arriving)?;
        }
        let (value, at) = (&*arriving.value, arriving.received_bytes.get());
        if at == value.bytes {
            return Ok(0);
        }
        let index = at / value.part_bytes;
        let place = match arriving.part.take() {
            Some(place) => place,
            None => {
                let name = self.names.part(value.number, index);
                self.engine.reserve(&name, value.bytes_of(index), Arrival::Dma)?
            }
        };
        let admitted = self.engine.admit(&place);
        *arriving.part.borrow_mut() = Some(place);
        Ok(admitted?.min(value.bytes_of(index) - at % value.part_bytes))
    }

    /// See [`crate::Engine::begin_unfinished`].
    pub(super) fn begin_unfinished_divided(&self, arriving: &Arriving<E::Place>) -> Result<(), Status> {
        let (own, others) = (arriving.value.bytes, self.unfinished_bytes.get());
        if others > 0 && others + u64::from(own) > self.unfinished_max_bytes {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        self.unfinished_bytes.set(others + u64::from(own));
        arriving.unfinished_bytes.set(own);
        Ok(())
    }

    fn end_unfinished(&self, arriving: &Arriving<E::Place>) {
        let own = u64::from(arriving.unfinished_bytes.take());
        self.unfinished_bytes.set(self.unfinished_bytes.get() - own);
    }

    /// See [`crate::Engine::pause`]. A full part is stored; any other part becomes an unfinished value of the engine.
    pub(super) fn pause_divided(&self, arriving: &Arriving<E::Place>) -> Result<(), Status> {
        if arriving.is_part_full() {
            return self.store_part(arriving);
        }
        let Some(place) = arriving.part.take() else { return Ok(()) };
        let begun = match arriving.is_part_unfinished.get() {
            true => Ok(()),
            false => self.engine.begin_unfinished(&place),
        };
        arriving.is_part_unfinished.set(begun.is_ok());
        *arriving.part.borrow_mut() = Some(place);
        begun
    }

    /// See [`crate::Engine::commit`].
    pub(super) fn commit_divided(
        &self,
        key: Key,
        arriving: Arriving<E::Place>,
        options: StoreOptions,
    ) -> Result<(), Status> {
        self.end_unfinished(&arriving);
        let received = arriving.received_bytes.get();
        let whole = arriving.check().and_then(|()| match arriving.is_part_full() {
            true => self.store_part(&arriving),
            false => Ok(()),
        });
        let _key = self.keys.lock(key);
        let visible = whole.and_then(|()| {
            assert_eq!(received, arriving.value.bytes, "a value that is committed has come");
            self.make_visible(key, &arriving.value, options)
        });
        match visible {
            Ok(old) => {
                add(&self.counters.stored_values, 1);
                old.into_iter().for_each(|old| self.leave(old));
                Ok(())
            }
            Err(status) => {
                self.give_up(arriving);
                Err(status)
            }
        }
    }

    /// Makes a value whose parts are all stored the value of `key`, and returns the divided value that it replaces. The
    /// caller holds the lock of the key.
    fn make_visible(
        &self,
        key: Key,
        value: &Rc<DividedValue>,
        options: StoreOptions,
    ) -> Result<Option<Rc<DividedValue>>, Status> {
        if options.add_only || options.update_only {
            match self.exists(key)? {
                true if options.add_only => return Err(Status::KEY_EXISTS),
                false if options.update_only => return self.absent(Err(Status::KEY_NOT_FOUND))?,
                _ => {}
            }
        }
        self.put(self.names.head(value.number), &Note::Head { key })?;
        let old = self.table.borrow_mut().insert(key, value.clone());
        // For a key in the table, the engine has a pair of its own only if that pair hides the divided value.
        let hidden = match &old {
            Some(old) if !old.is_hidden.get() => self.behead(old),
            Some(old) => self.behead(old).and_then(|()| self.engine.delete(key)),
            None => self.engine.delete(key),
        };
        let Err(status) = hidden else { return Ok(old) };
        // The old value cannot be removed, so the key keeps it and the new value is given up.
        let _ = self.behead(value);
        let mut table = self.table.borrow_mut();
        drop(table.remove(&key));
        old.into_iter().for_each(|old| drop(table.insert(key, old)));
        Err(status)
    }

    /// Gives up a value that was arriving: removes its parts and its slot.
    fn give_up(&self, arriving: Arriving<E::Place>) {
        self.end_unfinished(&arriving);
        if let Some(place) = arriving.part.take() {
            self.engine.abandon(place);
        }
        let (value, parts) = (arriving.value, arriving.stored_parts.get());
        if Rc::strong_count(&value) > 1 || self.journal.is_protected() {
            self.leaving.borrow_mut().push(value);
        } else {
            // The part whose store failed may exist all the same.
            self.remove_parts(&value, value.parts().min(parts + 1));
        }
    }
}

impl<E: Dividing> Landing for Divided<E> {
    type Place = DividedPlace<E::Place>;

    fn reserve(&self, key: &Key, bytes: u32, arrival: Arrival) -> Result<Self::Place, Status> {
        self.catch_up()?;
        self.check_name(key)?;
        if bytes > self.max_value_bytes {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        self.make_room(bytes);
        let reserved = match bytes <= self.whole_max_bytes {
            true => self.engine.reserve(key, bytes, arrival).map(DividedPlace::Whole),
            false => self.begin(bytes).map(|arriving| DividedPlace::Divided(Box::new(arriving))),
        };
        reserved.map_err(|status| self.or_again(status))
    }

    fn admit(&self, place: &Self::Place) -> Result<u32, Status> {
        match place {
            DividedPlace::Whole(place) => self.engine.admit(place),
            DividedPlace::Divided(arriving) => {
                self.admit_divided(arriving).map_err(|status| self.or_again(status))
            }
        }
    }

    fn copy_in(&self, place: &Self::Place, at: u32, bytes: &[u8]) {
        let arriving = match place {
            DividedPlace::Whole(place) => return self.engine.copy_in(place, at, bytes),
            DividedPlace::Divided(arriving) => arriving,
        };
        let mut done = 0;
        while done < bytes.len() {
            let room = match self.admit_divided(arriving) {
                Ok(room) => room as usize,
                Err(status) => return arriving.failure.set(Some(status)),
            };
            let here = &bytes[done..bytes.len().min(done + room)];
            let at = arriving.received_bytes.get();
            let place = arriving.part.take().expect("bytes were admitted to a part");
            self.engine.copy_in(&place, at % arriving.value.part_bytes, here);
            *arriving.part.borrow_mut() = Some(place);
            arriving.received_bytes.set(at + here.len() as u32);
            done += here.len();
        }
        // The next bytes may come with a later command.
        if let Err(status) = self.pause_divided(arriving) {
            arriving.failure.set(Some(status));
        }
    }

    fn dma_in(&self, place: &Self::Place, at: u32, piece: Piece<'_>) {
        match place {
            DividedPlace::Whole(place) => self.engine.dma_in(place, at, piece),
            DividedPlace::Divided(arriving) => {
                assert_eq!(at, arriving.received_bytes.get(), "a divided value arrives in order");
                let part = arriving.part.borrow();
                let part = part.as_ref().expect("bytes were admitted to a part");
                self.engine.dma_in(part, at % arriving.value.part_bytes, piece);
                arriving.received_bytes.set(at + piece.bytes());
            }
        }
    }

    fn settle(&self, place: &Self::Place) {
        if let DividedPlace::Whole(place) = place {
            self.engine.settle(place);
        }
    }

    fn abandon(&self, place: Self::Place) {
        match place {
            DividedPlace::Whole(place) => self.engine.abandon(place),
            DividedPlace::Divided(arriving) => self.give_up(*arriving),
        }
    }
}
