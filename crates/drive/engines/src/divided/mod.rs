//! Values that are larger than an engine takes whole are *divided* into *parts*: pairs of that engine under names of
//! the drive's own ([`names`]). One layer serves every engine that finds its pairs by key. The engine lays out,
//! collects and recovers parts like all pairs, and values that it takes whole pass through unchanged.
//!
//! ```text
//!   store      slot ─► part 0 ─► part 1 ... ─► last part ─► head ─► delete of the engine's own pair of the key
//!   delete     head ─► the engine's own pair of the key ─► the parts ─► slot
//!   lookup     the engine's own pair of the key, else the value in the table ([`table`])
//! ```
//!
//! A *slot* is a pair that records which parts may exist; a *head* is a pair that records the key whose value they are.
//! Each arrow is one change of the engine, which survives a power cut as a whole or not at all:
//!
//! * A value exists while its head exists. Parts without a head belong to a value that was being stored or removed when
//!   the power was cut; their slot leads to them, and the first command after power-on removes them ([`recovery`]).
//! * Of two heads of one key the later one counts, so a large value replaces another one by its head.
//! * The engine's own pair of the key counts before any head. So a small value replaces a large one in the one step in
//!   which the engine stores it, alone or in an atomic batch, and a large value replaces a small one by the delete that
//!   follows its head.
//!
//! The number of slots used so far is in the engine's protected image ([`Dividing`]). It is 0 until the first large
//! value; until then this layer reads no flash, takes no lock and costs no time.
//!
//! Parts of a replaced or deleted value stay while a reader or a cursor holds it; a later command removes them.

mod arriving;
mod cursor;
pub mod names;
mod reading;
mod recovery;
mod table;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::power::{Journal, PowerOnError};
use kvdrive_link::Arrival;
use kvdrive_link::transfer::Exposing;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{KeyGuard, KeyedLock, TaskCell, WaitQueue};

use crate::{Engine, EngineConfig, Gap, GiveUpCursor, HeldByCursors, PairChange, Parts, Utilization, newest};
pub use arriving::DividedPlace;
pub use cursor::PairCursor;
pub use names::Issued;
use names::{Names, Note};
pub use reading::Found;
use recovery::Loading;
use table::{DividedValue, Table};

/// Largest value whatever the drive: 256 MiB.
pub const LARGEST_VALUE_BYTES: u32 = 256 << 20;

/// Largest part. Commands from a network bring as many bytes at a time, so a slow host leaves no part half filled.
const PART_MAX_BYTES: u32 = 1 << 20;

/// Largest value as a fraction of the drive, 1 in this number, so that it fits beside the value that it replaces. All
/// unfinished values together may have as much; a single one may have more.
const CAPACITY_ONE_IN: u64 = 4;

/// An engine whose large values are divided.
pub trait Dividing: Engine {
    /// The last value of [`Dividing::remember`], also from before a power cut.
    fn issued(&self) -> Issued;

    /// Records in the protected image which names were given out.
    fn remember(&self, issued: Issued);
}

/// Engine `E`, extended by values that are larger than it takes whole.
pub struct Divided<E: Dividing> {
    engine: E,
    names: Names,
    /// Largest value that the engine takes whole.
    whole_max_bytes: u32,
    part_bytes: u32,
    max_value_bytes: u32,
    /// Most bytes of all values that hosts have begun to store and not yet sent in full.
    unfinished_max_bytes: u64,
    unfinished_bytes: Cell<u64>,
    table: TaskCell<Table>,
    /// Replaced and deleted values whose parts still exist, because a reader holds them or the drive is read-only.
    leaving: TaskCell<Vec<Rc<DividedValue>>>,
    /// Orders changes of one key. Not used before the first divided value.
    keys: KeyedLock<Key>,
    /// Changes under way that began before the first divided value, and so hold no lock.
    unlocked: Cell<u32>,
    /// Atomic batches under way that delete divided values. The engine carries such a batch out before the table
    /// changes, so readers wait meanwhile: else they could see some of its changes and not others.
    batches: Cell<u32>,
    loading: Cell<Loading>,
    /// Number of slots and heads that cannot be read. While it is not 0, a key that is not found may be one of a lost
    /// value.
    lost: Cell<u32>,
    /// Tasks that wait until `unlocked` or `batches` is 0, or until loading ends.
    turned: WaitQueue,
    /// Gives up cursors that hold values in `leaving`.
    held_by_cursors: HeldByCursors,
    journal: Journal,
    counters: DividedCounters,
}

/// What happens to divided values.
#[derive(Clone, Debug, Default, Counters)]
#[counters(prefix = "divided_")]
struct DividedCounters {
    /// Values that were stored in parts, because they are larger than the engine takes whole.
    stored_values: Cell<u64>,
    /// Parts of values that were stored.
    stored_parts: Cell<u64>,
    /// Parts of values that were removed.
    removed_parts: Cell<u64>,
}

/// The divided values of a drive.
#[derive(Counters)]
#[counters(state)]
struct Present {
    /// Values of which the engine has parts.
    divided_values: usize,
    /// Bytes of these values.
    #[counter(unit = Bytes)]
    divided_bytes: u64,
}

/// Memory of [`Table`].
#[derive(Counters)]
#[counters(state, unit = Bytes)]
struct Memory {
    /// The table of values that the engine holds in parts.
    divided_table: u64,
}

/// Counters of a drive that has had divided values, in addition to those of its engine.
pub fn counters() -> Counts {
    DividedCounters::default().counts().and(&Present { divided_values: 0, divided_bytes: 0 })
}

/// The counters of memory of such a drive.
pub fn memory() -> Counts {
    Memory { divided_table: 0 }.counts()
}

fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

/// Held by a change of keys until its end: the locks of the keys, or, before the first divided value, a count in
/// `unlocked`.
struct Changing<'a> {
    _locks: Vec<KeyGuard<'a, Key>>,
    _unlocked: Option<Counted<'a>>,
}

/// Adds one to a count while it exists, and wakes tasks when the count returns to 0.
struct Counted<'a>(&'a Cell<u32>, &'a WaitQueue);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<u32>, turned: &'a WaitQueue) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted(count, turned)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
        if self.0.get() == 0 {
            self.1.wake_all();
        }
    }
}

impl<E: Dividing> Divided<E> {
    /// The engine below.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    fn is_in_use(&self) -> bool {
        self.table.borrow().issued().slots > 0
    }

    /// Begins a change of these keys, which are in order: all tasks that hold several take them in that order.
    fn change(&self, keys: impl IntoIterator<Item = Key>) -> Result<Changing<'_>, Status> {
        self.catch_up()?;
        if self.is_in_use() {
            let locks = keys.into_iter().map(|key| self.keys.lock(key)).collect();
            return Ok(Changing { _locks: locks, _unlocked: None });
        }
        let unlocked = Counted::new(&self.unlocked, &self.turned);
        Ok(Changing { _locks: Vec::new(), _unlocked: Some(unlocked) })
    }

    /// The status to answer for `status`. If the drive is full and values are leaving, it will soon not be: a cursor
    /// that may hold them is given up, and the host is told to try again.
    fn or_again(&self, status: Status) -> Status {
        let is_full_of_leaving = status == Status::CAPACITY_EXCEEDED && !self.leaving.borrow().is_empty();
        if !is_full_of_leaving {
            return status;
        }
        self.held_by_cursors.give_up_one();
        Status::COMMAND_INTERRUPTED
    }

    /// The answer of a lookup that has found nothing: `answer`, unless the key may be one of a lost value.
    fn absent<T>(&self, answer: T) -> Result<T, Status> {
        if self.lost.get() > 0 { Err(Status::UNRECOVERED_ERROR) } else { Ok(answer) }
    }

    /// Stores a note, which is a pair of the engine.
    fn put(&self, name: Key, note: &Note) -> Result<(), Status> {
        let bytes = note.to_bytes();
        let place = self.engine.reserve(&name, bytes.len() as u32, Arrival::Inline)?;
        self.engine.copy_in(&place, 0, &bytes);
        self.engine.settle(&place);
        self.engine.commit(name, place, StoreOptions::default())
    }

    /// Deletes the head of a value, which no longer counts from then on.
    fn behead(&self, value: &DividedValue) -> Result<(), Status> {
        self.engine.delete(self.names.head(value.number))
    }

    /// Takes `key` out of the table, because the engine now has a pair of its own under it.
    fn replaced(&self, key: &Key) {
        let Some(value) = self.table.borrow().get(key) else { return };
        match self.behead(&value) {
            Ok(()) => {
                drop(self.table.borrow_mut().remove(key));
                self.leave(value);
            }
            // Lookups find the engine's pair first, and a delete begins with the head.
            Err(_) => value.is_hidden.set(true),
        }
    }

    /// Removes the parts of a value without a head, now, or after its last reader has ended.
    fn leave(&self, value: Rc<DividedValue>) {
        if Rc::strong_count(&value) > 1 || self.journal.is_protected() {
            self.leaving.borrow_mut().push(value);
        } else {
            self.remove_parts(&value, value.parts());
        }
    }

    /// Removes the parts of values whose last reader has ended.
    fn sweep(&self) {
        if self.leaving.borrow().is_empty() || self.journal.is_protected() {
            return;
        }
        let is_read = |value: &Rc<DividedValue>| Rc::strong_count(value) > 1;
        let (stay, go): (Vec<_>, Vec<_>) = self.leaving.take().into_iter().partition(is_read);
        self.leaving.borrow_mut().extend(stay);
        go.iter().for_each(|value| self.remove_parts(value, value.parts()));
    }

    /// Removes the first `parts` parts of a value, and then its slot. Parts that cannot be removed stay until the drive
    /// is powered on again.
    fn remove_parts(&self, value: &DividedValue, parts: u32) {
        for index in 0..parts {
            if self.engine.delete(self.names.part(value.number, index)).is_err() {
                return;
            }
            add(&self.counters.removed_parts, 1);
        }
        if self.engine.delete(self.names.slot(value.slot)).is_ok() {
            self.table.borrow_mut().give_back(value.slot);
        }
    }

    /// Does a pair have this key?
    fn exists(&self, key: Key) -> Result<bool, Status> {
        Ok(self.table.borrow().get(&key).is_some() || self.engine.find(key)?.is_some())
    }

    fn remove(&self, key: Key, must_exist: bool) -> Result<(), Status> {
        let _changing = self.change([key])?;
        let value = self.table.borrow().get(&key);
        let Some(value) = value else {
            let removed = match must_exist || self.lost.get() > 0 {
                true => self.engine.delete_existing(key),
                false => self.engine.delete(key),
            };
            return match removed {
                Err(Status::KEY_NOT_FOUND) => self.absent(Err(Status::KEY_NOT_FOUND))?,
                removed => removed,
            };
        };
        self.behead(&value)?;
        drop(self.table.borrow_mut().remove(&key));
        let removed = if value.is_hidden.get() { self.engine.delete(key) } else { Ok(()) };
        self.leave(value);
        removed
    }

    fn commit_whole(&self, key: Key, place: E::Place, options: StoreOptions) -> Result<(), Status> {
        let _changing = self.change([key])?;
        if self.table.borrow().get(&key).is_none() {
            return match self.engine.commit(key, place, options) {
                Err(Status::KEY_NOT_FOUND) => self.absent(Err(Status::KEY_NOT_FOUND))?,
                committed => committed,
            };
        }
        if options.add_only {
            self.engine.abandon(place);
            return Err(Status::KEY_EXISTS);
        }
        self.engine.commit(key, place, StoreOptions { update_only: false, ..options })?;
        self.replaced(&key);
        Ok(())
    }

    /// Carries out an atomic batch that changes keys of divided values. See [`Engine::commit_all`].
    fn commit_mixed(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        let divided = |key: &Key| self.table.borrow().get(key);
        let (mut below, mut replaced, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in newest(changes) {
            match divided(&key) {
                // The engine has a newer pair of the key, and the head could not be deleted then. Head first: else the
                // old value would be visible again when the pair is deleted.
                Some(hidden) if value.is_none() && hidden.is_hidden.get() => {
                    self.behead(&hidden)?;
                    drop(self.table.borrow_mut().remove(&key));
                    self.leave(hidden);
                    below.push(PairChange { key, value });
                }
                Some(found) if value.is_none() => {
                    below.push(PairChange { key: self.names.head(found.number), value });
                    deleted.push((key, found));
                }
                found => {
                    replaced.extend(found.map(|_| key));
                    below.push(PairChange { key, value });
                }
            }
        }
        let batch = Counted::new(&self.batches, &self.turned);
        self.engine.commit_all(below)?;
        for (key, _) in &deleted {
            drop(self.table.borrow_mut().remove(key));
        }
        drop(batch);
        deleted.into_iter().for_each(|(_, value)| self.leave(value));
        replaced.iter().for_each(|key| self.replaced(key));
        Ok(())
    }
}

impl<E: Dividing> Exposing for Divided<E> {
    type Window = E::Window;

    fn window_bytes(&self) -> Option<u32> {
        self.engine.window_bytes()
    }

    fn open_window(&self) -> Result<E::Window, Status> {
        self.engine.open_window()
    }

    fn write_window(&self, window: &E::Window, at: u32, piece: Piece<'_>) {
        self.engine.write_window(window, at, piece);
    }

    fn read_window(&self, window: &E::Window, at: u32, bytes: u32, sink: &mut dyn FnMut(Piece<'_>)) {
        self.engine.read_window(window, at, bytes, sink);
    }

    fn place_in(&self, window: &E::Window, key: &Key, at: u32, bytes: u32) -> Result<Self::Place, Status> {
        self.check_name(key)?;
        self.engine.place_in(window, key, at, bytes).map(DividedPlace::Whole)
    }
}

impl<E: Dividing> Engine for Divided<E> {
    type Found = Found<E::Found>;
    type Cursor = PairCursor<E>;
    const ORDERED: bool = E::ORDERED;

    fn atomic_batches(&self) -> Option<AtomicLimits> {
        self.engine.atomic_batches()
    }

    fn commit_all(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        changes.iter().try_for_each(|change| self.check_name(&change.key))?;
        let keys: BTreeSet<Key> = changes.iter().map(|change| change.key).collect();
        let _changing = self.change(keys.iter().copied())?;
        let is_mixed = keys.iter().any(|key| self.table.borrow().get(key).is_some());
        let committed = if is_mixed { self.commit_mixed(changes) } else { self.engine.commit_all(changes) };
        committed.map_err(|status| self.or_again(status))
    }

    fn commit(&self, key: Key, place: Self::Place, options: StoreOptions) -> Result<(), Status> {
        let committed = match place {
            DividedPlace::Whole(place) => self.commit_whole(key, place, options),
            DividedPlace::Divided(arriving) => self.commit_divided(key, *arriving, options),
        };
        committed.map_err(|status| self.or_again(status))
    }

    fn begin_unfinished(&self, place: &Self::Place) -> Result<(), Status> {
        match place {
            DividedPlace::Whole(place) => self.engine.begin_unfinished(place),
            DividedPlace::Divided(arriving) => self.begin_unfinished_divided(arriving),
        }
    }

    fn pause(&self, place: &Self::Place) -> Result<(), Status> {
        match place {
            DividedPlace::Whole(place) => self.engine.pause(place),
            DividedPlace::Divided(arriving) => {
                self.pause_divided(arriving).map_err(|status| self.or_again(status))
            }
        }
    }

    fn expect(&self, keys: &mut dyn Iterator<Item = Key>) {
        self.engine.expect(keys);
    }

    fn find(&self, key: Key) -> Result<Option<Self::Found>, Status> {
        self.catch_up()?;
        if self.names.are(&key) {
            return Ok(None);
        }
        loop {
            self.await_batches();
            let before = self.table.borrow().get(&key);
            if let Some(found) = self.engine.find(key)? {
                return Ok(Some(Found::Whole(found)));
            }
            // If a divided value was stored or removed during the lookup, it may have replaced the engine's pair or
            // been replaced by it; then look again.
            let now = self.table.borrow().get(&key);
            match (before, now) {
                (None, None) => return self.absent(None),
                (Some(before), Some(now)) if Rc::ptr_eq(&before, &now) => {
                    return Ok(Some(Found::of_divided(now)));
                }
                _ => {}
            }
        }
    }

    fn value_bytes(&self, found: &Self::Found) -> u32 {
        match found {
            Found::Whole(found) => self.engine.value_bytes(found),
            Found::Divided(reading) => reading.bytes(),
        }
    }

    fn order_on_flash(&self, found: &Self::Found) -> u64 {
        if let Found::Whole(found) = found { self.engine.order_on_flash(found) } else { 0 }
    }

    fn outlives_command(&self, found: &mut Self::Found) -> bool {
        match found {
            Found::Whole(found) => self.engine.outlives_command(found),
            Found::Divided(_) => true,
        }
    }

    fn load(
        &self,
        found: &Self::Found,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        match found {
            Found::Whole(found) => self.engine.load(found, at, bytes, until, sink),
            Found::Divided(reading) => reading.read(&self.engine, &self.names, at..at + bytes, until, sink),
        }
    }

    fn delete(&self, key: Key) -> Result<(), Status> {
        if self.names.are(&key) { Ok(()) } else { self.remove(key, false) }
    }

    fn delete_existing(&self, key: Key) -> Result<(), Status> {
        if self.names.are(&key) { Err(Status::KEY_NOT_FOUND) } else { self.remove(key, true) }
    }

    fn on_held(&self, give_up: GiveUpCursor) {
        self.held_by_cursors.set(give_up.clone());
        self.engine.on_held(give_up);
    }

    fn open_cursor(&self, from: Option<Key>) -> Result<PairCursor<E>, Status> {
        PairCursor::open(self, from)
    }

    fn next(&self, cursor: &mut PairCursor<E>) -> Result<Option<(Key, Self::Found)>, Status> {
        cursor.next(self)
    }

    fn gap(&self, cursor: &PairCursor<E>) -> Gap {
        cursor.gap(self)
    }

    fn drain(&self) {
        self.engine.drain();
    }

    fn utilization(&self) -> Utilization {
        self.engine.utilization()
    }

    fn max_value_bytes(&self) -> u32 {
        self.max_value_bytes
    }

    fn max_whole_bytes(&self) -> u32 {
        self.whole_max_bytes
    }

    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<Divided<E>, PowerOnError> {
        let (sim, journal, identity) = (parts.sim.clone(), parts.journal.clone(), parts.owner.identity);
        let engine = E::power_on(parts, image)?;
        let issued = engine.issued();
        let whole_max_bytes = engine.max_value_bytes();
        let part_bytes = PART_MAX_BYTES.min(1 << whole_max_bytes.max(1).ilog2());
        let share_bytes = engine.utilization().capacity_bytes / CAPACITY_ONE_IN;
        let numbered_bytes = u64::from(part_bytes) * names::PARTS_MAX;
        let divided_bytes = share_bytes.min(numbered_bytes).min(LARGEST_VALUE_BYTES.into()) as u32;
        Ok(Divided {
            engine,
            names: Names::of_drive(identity),
            whole_max_bytes,
            part_bytes,
            max_value_bytes: divided_bytes.max(whole_max_bytes),
            unfinished_max_bytes: share_bytes,
            unfinished_bytes: Cell::new(0),
            table: TaskCell::new(Table::new(issued)),
            leaving: TaskCell::default(),
            keys: KeyedLock::new(&sim),
            unlocked: Cell::new(0),
            batches: Cell::new(0),
            loading: Cell::new(if issued.slots == 0 { Loading::Done } else { Loading::Due }),
            lost: Cell::new(0),
            turned: WaitQueue::new(&sim),
            held_by_cursors: HeldByCursors::default(),
            journal,
            counters: DividedCounters::default(),
        })
    }

    fn protected_image(&self) -> Vec<u8> {
        self.engine.protected_image()
    }

    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        E::fold(config, image, records)
    }

    fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
        E::check(config)
    }

    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
        E::image_settings(config)
    }

    fn counts(&self) -> Counts {
        let counts = self.engine.counts();
        if !self.is_in_use() {
            return counts;
        }
        let table = self.table.borrow();
        let present = Present { divided_values: table.values(), divided_bytes: table.bytes() };
        counts.and(&self.counters).and(&present)
    }

    fn dram(&self) -> Counts {
        let dram = self.engine.dram();
        if !self.is_in_use() {
            return dram;
        }
        dram.and(&Memory { divided_table: self.table.borrow().memory_bytes() })
    }
}
