//! A key-value store in the drive: any row of [`kvdrive_store::STORES`] as an engine, on logical pages of the
//! translation layer ([`pages`]), with firmware cores as its processor ([`cpu`]).
//!
//! A store makes nothing durable before it is synchronised, but an engine may acknowledge only durable changes. So the
//! drive keeps each change as an *operation* in its power-protected memory ([`image`]) until the store is synchronised,
//! which happens when operations fill their share of that memory. After a power cut the first command repeats them. It
//! does not happen earlier, during power-on, because a new protected image has to hold them first, in case of another
//! cut. One mechanism serves all stores.
//!
//! A value is staged in protected memory while it arrives. Unfinished values may have half of that memory; beyond it
//! the host is told to try again.

mod about;
mod config;
mod cpu;
mod fit;
mod image;
mod pages;
mod place;
mod trimmed;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::ftl::away::AwayPages;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::power::{self, Journal, Owner, PowerOnError};
use kvdrive_link::transfer::window::NoWindow;
use kvdrive_link::transfer::{Arrival, Exposing, Landing};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{KeyedLock, TaskCell, WaitQueue};
use kvdrive_store::{
    BACKGROUND_THREADS, Cursor as StoreCursor, Ground, Store, StoreError, StoreRequest, StoredValue, Thread,
    Value, most_mark_bytes, run_background,
};

use crate::divided::{Dividing, Issued};
use crate::firmware::{CopyCosts, Cores, Role};
use crate::{Engine, EngineConfig, GiveUpCursor, HeldByCursors, Memcpy, PairChange, Parts, Utilization};
pub use config::StoredConfig;
pub use cpu::GUESSED_COSTS_PS;
use cpu::{FirmwareCpu, Threads};
pub use fit::options;
use fit::{Shares, pages_of, row, threads};
use image::{OPERATION_BYTES, Operation, Protected, StoreRecord};
use pages::FlashPages;
use place::Staged;
pub use place::StoredPlace;
use trimmed::Trimmed;

/// Can there be a drive like this? If not, a line that begins with the key to blame.
fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
    let fail = |line| Err(PowerOnError::Config(line));
    let geometry = config.flash.geometry();
    config.engines.ftl.check(&geometry).or_else(|error| fail(format!("ftl.{error}")))?;
    if !config.flash.enabled {
        let name = &config.name;
        return fail(format!("nand.enabled: false; engine {name} keeps its pairs on flash only"));
    }
    let page_bytes = geometry.page_bytes;
    if !page_bytes.is_power_of_two() || !(512..=32_768).contains(&page_bytes) {
        let name = &config.name;
        return fail(format!(
            "flash.page_bytes: {page_bytes}; allowed with engine.name = \"{name}\": a power of two, 512 to 32768"
        ));
    }
    if let Err(line) = Shares::of(config) {
        return fail(line);
    }
    let store = row(config);
    (store.check)(&options(config), page_bytes, pages_of(config).into(), threads(config))
        .map_err(|line| PowerOnError::Config(format!("{}.{line}", store.name)))
}

/// A store in a drive.
pub struct StoredEngine {
    store: Rc<dyn Store>,
    threads: Threads,
    cores: Cores,
    copy: CopyCosts,
    journal: Journal,
    owner: Owner,
    shares: Shares,
    trimmed: Rc<TaskCell<Trimmed>>,
    /// Orders commands of one key.
    keys: KeyedLock<Key>,
    operations: TaskCell<VecDeque<Operation>>,
    /// The mark of the last sync.
    mark: TaskCell<Vec<u8>>,
    next_number: Cell<u64>,
    /// Names given out to divided values.
    issued: Cell<Issued>,
    /// Bytes of `operations`.
    operation_bytes: Cell<u64>,
    running: Cell<u32>,
    /// The store is being synchronised, or will be when the running operations have ended: no operation begins now.
    is_synchronising: Cell<bool>,
    /// Have operations from before a power cut been repeated?
    repeating: Cell<Repeating>,
    /// Tasks that wait for `running`, `is_synchronising` or `repeating` to change.
    turned: WaitQueue,
    staged: Rc<Staged>,
    held_by_cursors: HeldByCursors,
    memcpy: Memcpy,
    ftl: Ftl,
}

/// How far the repetition of operations is that the store may have lost in a power cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeating {
    Due,
    UnderWay,
    Done,
}

impl Exposing for StoredEngine {
    type Window = NoWindow;
}

impl StoredEngine {
    /// Takes the time in which a core copies `bytes` bytes to staging memory.
    fn charge_copy(&self, bytes: u32) {
        let ns = self.copy.copy_ns(bytes);
        self.memcpy.add(bytes, ns);
        self.cores.of(Role::Copy).run_noted(ns, "controller", "memcpy");
    }

    /// Carries out a store or a delete, and keeps it as an operation until the store is synchronised. The caller holds
    /// the lock of the key.
    fn carry_out(&self, key: Key, value: Option<(Rc<Region>, u32)>) -> Result<(), Status> {
        let operation = Operation { number: 0, is_carried_out: false, goes_on: false, key, value };
        self.carry_out_all(&mut [operation])
    }

    /// As [`StoredEngine::carry_out`], of one operation or of all operations of an atomic batch. The caller holds the
    /// locks of their keys.
    fn carry_out_all(&self, together: &mut [Operation]) -> Result<(), Status> {
        self.begin(together)?;
        let result = self.without_held(|| self.hand_on(together));
        self.end(together, result.is_ok());
        result.map_err(|error| error.status())
    }

    /// Calls the store; if open iterators hold the room that it needs, gives them up one after the other and calls
    /// again.
    fn without_held(&self, act: impl Fn() -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.held_by_cursors.make(StoreError::HeldByCursors, act)
    }

    /// Numbers operations and puts them into protected memory, after waiting for room.
    fn begin(&self, together: &mut [Operation]) -> Result<(), Status> {
        let bytes: u64 = together.iter().map(Operation::bytes).sum();
        if bytes > self.shares.operations {
            return Err(Status::INVALID_VALUE_SIZE);
        }
        loop {
            if self.is_synchronising.get() {
                self.turned.wait();
            } else if self.operation_bytes.get() + bytes > self.shares.operations {
                self.synchronise()?;
            } else {
                break;
            }
        }
        let count = together.len() as u64;
        let first = self.next_number.replace(self.next_number.get() + count);
        (first..).zip(together.iter_mut()).for_each(|(number, operation)| operation.number = number);
        self.running.set(self.running.get() + count as u32);
        self.operation_bytes.set(self.operation_bytes.get() + bytes);
        self.journal.append(&StoreRecord::Begun(Cow::Borrowed(together)));
        self.operations.borrow_mut().extend(together.iter().cloned());
        Ok(())
    }

    fn end(&self, together: &[Operation], is_carried_out: bool) {
        let (first, count) = (together[0].number, together.len());
        let mut operations = self.operations.borrow_mut();
        let begin = place_of(&operations, first);
        if is_carried_out {
            operations.range_mut(begin..begin + count).for_each(|operation| operation.is_carried_out = true);
        } else {
            let failed: u64 = operations.drain(begin..begin + count).map(|failed| failed.bytes()).sum();
            self.operation_bytes.set(self.operation_bytes.get() - failed);
        }
        drop(operations);
        self.journal.append(&StoreRecord::Ended { first, count: count as u64, is_carried_out });
        self.running.set(self.running.get() - count as u32);
        if self.running.get() == 0 && self.is_synchronising.get() {
            self.turned.wake_all();
        }
    }

    /// Synchronises the store, so that all operations are on its pages, and forgets them. No operation runs meanwhile.
    fn synchronise(&self) -> Result<(), Status> {
        self.is_synchronising.set(true);
        while self.running.get() > 0 {
            self.turned.wait();
        }
        let synchronised = self.without_held(|| self.store.sync(self.threads.take().thread()));
        if synchronised.is_ok() {
            let mark = self.store.mark();
            self.operations.borrow_mut().clear();
            self.operation_bytes.set(0);
            self.journal.append(&StoreRecord::Synchronised { mark: Cow::Borrowed(&mark) });
            assert!(mark.len() as u64 <= most_mark_bytes(self.threads.count()), "a mark has its room");
            *self.mark.borrow_mut() = mark;
        }
        self.is_synchronising.set(false);
        self.turned.wake_all();
        synchronised.map_err(|error| error.status())
    }

    /// Every command calls this first. When it returns, the store has everything that it may have lost in a power cut.
    fn catch_up(&self) -> Result<(), Status> {
        loop {
            match self.repeating.get() {
                Repeating::Done => return Ok(()),
                Repeating::UnderWay => self.turned.wait(),
                Repeating::Due => break,
            }
        }
        self.repeating.set(Repeating::UnderWay);
        let repeated = self.repeat();
        self.repeating.set(if repeated.is_ok() { Repeating::Done } else { Repeating::Due });
        self.turned.wake_all();
        repeated
    }

    /// Repeats operations that the store may have lost. No other task is in the store. Pairs that the store still has
    /// are not stored again, because a full store has no room for everything twice.
    fn repeat(&self) -> Result<(), Status> {
        let (done, begun): (Vec<Operation>, Vec<Operation>) =
            self.operations.borrow().iter().cloned().partition(|operation| operation.is_carried_out);
        let newest: BTreeMap<Key, Operation> =
            done.into_iter().map(|operation| (operation.key, operation)).collect();
        let mut left: Vec<Operation> = newest.into_values().collect();
        left.sort_unstable_by_key(|operation| operation.number);
        while !left.is_empty() {
            let mut again = Vec::new();
            let tried = left.len();
            for operation in left {
                match self.hand_on_again(&operation) {
                    Ok(()) => {}
                    Err(StoreError::Full) => again.push(operation),
                    Err(error) => return Err(error.status()),
                }
            }
            if again.len() == tried {
                return Err(StoreError::Full.status());
            }
            left = again;
        }
        for together in begun.chunk_by(|one, _| one.goes_on) {
            let result = self.hand_on(together);
            self.end(together, result.is_ok());
        }
        Ok(())
    }

    /// Repeats an operation, unless the store already has its result.
    fn hand_on_again(&self, operation: &Operation) -> Result<(), StoreError> {
        let thread = self.threads.take();
        // A pair that cannot be read counts as lost.
        let found = self.store.get(thread.thread(), operation.key);
        if found.is_ok_and(|found| operation.is_result(found.as_ref())) {
            return Ok(());
        }
        match request_of(operation) {
            StoreRequest::Put(key, value) => self.store.put_again(thread.thread(), key, value),
            StoreRequest::Delete(key) => self.store.delete(thread.thread(), key),
        }
    }

    /// Hands an operation, or all operations of an atomic batch, to the store.
    fn hand_on(&self, together: &[Operation]) -> Result<(), StoreError> {
        let thread = self.threads.take();
        match together {
            [one] => match request_of(one) {
                StoreRequest::Put(key, value) => self.store.put(thread.thread(), key, value),
                StoreRequest::Delete(key) => self.store.delete(thread.thread(), key),
            },
            several => {
                let requests: Vec<StoreRequest<'_>> = several.iter().map(request_of).collect();
                self.store.apply(thread.thread(), &requests, true).error.map_or(Ok(()), Err)
            }
        }
    }
}

/// The index of the operation with this number. It is its distance from the oldest number unless an operation has
/// failed, so that place is tried first: a binary search would miss the machine's caches at each step.
fn place_of(operations: &VecDeque<Operation>, number: u64) -> usize {
    let is_it = |operation: &Operation| operation.number == number;
    let at = number.wrapping_sub(operations.front().map_or(0, |oldest| oldest.number)) as usize;
    match operations.get(at).is_some_and(is_it) {
        true => at,
        false => operations
            .binary_search_by_key(&number, |operation| operation.number)
            .expect("operations that run are not forgotten"),
    }
}

/// The request by which a store carries out an operation.
fn request_of(operation: &Operation) -> StoreRequest<'_> {
    match &operation.value {
        Some((region, bytes)) => {
            StoreRequest::Put(operation.key, Value::Part { region, at: 0, bytes: *bytes })
        }
        None => StoreRequest::Delete(operation.key),
    }
}

/// A walk over the pairs of one moment.
pub struct PairCursor(Box<dyn StoreCursor>);

impl Engine for StoredEngine {
    type Found = StoredValue;
    type Cursor = PairCursor;
    const ORDERED: bool = true;

    /// Half of the memory of operations is for the overhead of `OPERATION_BYTES` each, the other half for values.
    fn atomic_batches(&self) -> Option<AtomicLimits> {
        let half = self.shares.operations / 2;
        let requests = (half / OPERATION_BYTES).min(BATCH_REQUESTS_MAX.into()) as u32;
        Some(AtomicLimits { requests, bytes: half.min(self.max_value_bytes().into()) as u32 })
    }

    fn commit_all(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        let Some(first) = changes.first() else { return Ok(()) };
        let values = || changes.iter().filter_map(|change| change.value.as_deref());
        let bytes: usize = values().map(<[u8]>::len).sum();
        // Reserves room for all values at once: two batches that reserved value by value could wait for each other for
        // ever.
        let _staged = self.reserve(&first.key, bytes as u32, Arrival::Inline)?;
        values().filter(|value| !value.is_empty()).for_each(|value| self.charge_copy(value.len() as u32));
        self.catch_up()?;
        let keys: BTreeSet<Key> = changes.iter().map(|change| change.key).collect();
        // All tasks that hold several keys take them in this order.
        let _keys: Vec<_> = keys.into_iter().map(|key| self.keys.lock(key)).collect();
        let last = changes.len() - 1;
        let operation = |(index, PairChange { key, value }): (usize, PairChange)| Operation {
            number: 0,
            is_carried_out: false,
            goes_on: index < last,
            key,
            value: value.map(|value| {
                let bytes = value.len() as u32;
                (Rc::new(Region::from_bytes(value)), bytes)
            }),
        };
        let mut together: Vec<Operation> = changes.into_iter().enumerate().map(operation).collect();
        self.carry_out_all(&mut together)
    }

    fn commit(&self, key: Key, place: StoredPlace, options: StoreOptions) -> Result<(), Status> {
        place.finish();
        self.catch_up()?;
        let _key = self.keys.lock(key);
        if options.update_only || options.add_only {
            match self.find(key)? {
                Some(_) if options.add_only => return Err(Status::KEY_EXISTS),
                None if options.update_only => return Err(Status::KEY_NOT_FOUND),
                _ => {}
            }
        }
        let content = Rc::new(place.content.take());
        self.carry_out(key, Some((content, place.bytes)))
    }

    fn on_held(&self, give_up: GiveUpCursor) {
        self.held_by_cursors.set(give_up);
    }

    fn begin_unfinished(&self, place: &StoredPlace) -> Result<(), Status> {
        place.begin_unfinished()
    }

    fn find(&self, key: Key) -> Result<Option<StoredValue>, Status> {
        self.catch_up()?;
        self.store.get(self.threads.take().thread(), key).map_err(|error| error.status())
    }

    fn value_bytes(&self, found: &StoredValue) -> u32 {
        found.bytes()
    }

    fn load(
        &self,
        found: &StoredValue,
        at: u32,
        bytes: u32,
        _: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status> {
        found.read(at, bytes, sink);
        Ok(())
    }

    fn delete(&self, key: Key) -> Result<(), Status> {
        self.catch_up()?;
        let _key = self.keys.lock(key);
        self.carry_out(key, None)
    }

    fn delete_existing(&self, key: Key) -> Result<(), Status> {
        self.catch_up()?;
        let _key = self.keys.lock(key);
        match self.find(key)? {
            Some(_) => self.carry_out(key, None),
            None => Err(Status::KEY_NOT_FOUND),
        }
    }

    fn open_cursor(&self, from: Option<Key>) -> Result<PairCursor, Status> {
        self.catch_up()?;
        let opened = self.store.cursor(self.threads.take().thread(), from);
        opened.map(PairCursor).map_err(|error| error.status())
    }

    fn next(&self, cursor: &mut PairCursor) -> Result<Option<(Key, StoredValue)>, Status> {
        cursor.0.next(self.threads.take().thread()).map_err(|error| error.status())
    }

    fn drain(&self) {
        // Operations that cannot be written stay in protected memory.
        if self.catch_up().is_err() {
            return;
        }
        while self.is_synchronising.get() {
            self.turned.wait();
        }
        let _ = self.synchronise();
    }

    fn utilization(&self) -> Utilization {
        let space = self.store.space();
        Utilization { live_bytes: space.live_bytes, capacity_bytes: space.capacity_bytes }
    }

    fn max_value_bytes(&self) -> u32 {
        self.store.max_value_bytes().min(self.shares.max_value_bytes())
    }

    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<StoredEngine, PowerOnError> {
        let Parts { sim, cores, flash, journal, owner, config } = parts;
        check(&config)?;
        let (ftl, trimmed, operations, next_number, mark, issued) = match image {
            None => {
                let ftl = Ftl::new(flash, &config.engines.ftl);
                let away = AwayPages::all(ftl.logical_pages());
                (ftl, Trimmed::new(away, 0), VecDeque::new(), 0, Vec::new(), Issued::default())
            }
            Some(image) => {
                let found = Protected::decode(pages_of(&config), image)?;
                let (of_image, mut trimmed) = (found.trimmed.next_write, found.trimmed);
                let ftl = Ftl::recover(flash, &config.engines.ftl, &mut |lpa, _, tag| {
                    trimmed.found(lpa, tag, of_image);
                });
                let operations = VecDeque::from(found.operations);
                (ftl, trimmed, operations, found.next_number, found.mark, found.issued)
            }
        };
        let trimmed = Rc::new(TaskCell::new(trimmed));
        let begun = operations.iter().filter(|operation| !operation.is_carried_out).count() as u32;
        let (options, served) = (options(&config), threads(&config));
        let background = (row(&config).background)(&options);
        let log_segment_pages = (row(&config).log_segment_pages)(&options, ftl.page_bytes());
        let costs_ps = config.engines.stored.costs.0;
        let cpu = Rc::new(FirmwareCpu::new(&sim, &cores, costs_ps, Thread(served), background));
        let beside = if background.is_some() { BACKGROUND_THREADS } else { 0 };
        let ground = Ground {
            pages: Rc::new(FlashPages::new(&sim, &ftl, &journal, &trimmed, log_segment_pages)),
            cpu: cpu.clone(),
            threads: served + beside,
        };
        let store = (row(&config).make)(&options, ground);
        let shares = Shares::of(&config).expect("it was checked");
        let engine = StoredEngine {
            store,
            threads: Threads::new(&sim, served),
            cores,
            copy: config.copy,
            journal,
            owner,
            shares,
            trimmed,
            keys: KeyedLock::new(&sim),
            operation_bytes: Cell::new(operations.iter().map(Operation::bytes).sum()),
            operations: TaskCell::new(operations),
            mark: TaskCell::new(mark),
            next_number: Cell::new(next_number),
            issued: Cell::new(issued),
            running: Cell::new(begun),
            repeating: Cell::new(Repeating::Due),
            is_synchronising: Cell::new(false),
            turned: WaitQueue::new(&sim),
            staged: Rc::new(Staged::new(&sim, shares.staged)),
            held_by_cursors: HeldByCursors::default(),
            memcpy: Memcpy::default(),
            ftl,
        };
        let mark = engine.mark.borrow().clone();
        engine.trimmed.borrow_mut().held = Some(BTreeSet::new());
        let recovered = engine.store.recover_from(engine.threads.take().thread(), &mark);
        recovered.map_err(|error| PowerOnError::Pages(error.to_string()))?;
        let held = engine.trimmed.borrow_mut().held.take();
        held.into_iter().flatten().for_each(|page| engine.ftl.trim(Lpa(page)));
        for thread in (served..served + beside).map(Thread) {
            let (store, cpu) = (engine.store.clone(), cpu.clone());
            sim.spawn(move || run_background(&*store, &*cpu, thread));
        }
        Ok(engine)
    }

    fn protected_image(&self) -> Vec<u8> {
        let (trimmed, operations, mark) =
            (self.trimmed.borrow(), self.operations.borrow(), self.mark.borrow());
        let (number, issued) = (self.next_number.get(), self.issued.get());
        Protected::encode(&self.owner, &trimmed, &*operations, number, &mark, issued)
    }

    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
        let pages = pages_of(config);
        let mut protected = Protected::decode(pages, image)?;
        power::replay(records, |change| protected.apply(change, pages))?;
        let Protected { owner, trimmed, operations, next_number, mark, issued } = &protected;
        Ok(Protected::encode(owner, trimmed, operations, *next_number, mark, *issued))
    }

    fn check(config: &EngineConfig) -> Result<(), PowerOnError> {
        check(config)
    }

    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)> {
        fit::image_settings(config)
    }

    fn counts(&self) -> Counts {
        self.memcpy.counts().and(&self.ftl.statistics()).chain(self.store.counts())
    }

    fn dram(&self) -> Counts {
        self.store.dram()
    }
}

impl Dividing for StoredEngine {
    fn issued(&self) -> Issued {
        self.issued.get()
    }

    fn remember(&self, issued: Issued) {
        self.issued.set(issued);
        self.journal.append(&StoreRecord::Issued(issued));
    }
}
