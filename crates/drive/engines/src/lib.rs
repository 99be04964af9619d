//! Engines: index and value placement of a drive. The controller knows an engine by the traits here and by
//! nothing else; an engine knows flash, and of the link only how values arrive ([`kvdrive_link::Landing`]).
//!
//! Begin reading at [`Engine`], then at `store` in `lsm/engine.rs`.
//!
//! A store reaches an engine in two steps, so that no task has to wait for a value whose bytes arrive in several
//! commands. First the engine reserves a place and takes bytes there ([`kvdrive_link::Landing`]); after the last byte,
//! [`Engine::commit`] makes the value visible under its key. Nothing is visible before, and a place that is not
//! committed is given back.
//!
//! A new engine is one folder here and one row in [`table`].
//!
//! | module | what it is |
//! |---|---|
//! | [`table`] | the engines, a row for each folder |
//! | [`lsm`] | LSM-tree over a value log |
//! | [`anykey`] | LSM-tree of groups that are sorted by hash |
//! | [`hash`] | hash-table FTLs: `original`, `plus`, `plus2` |
//! | [`stored`] | any store of crate `store`, on logical pages |
//! | [`divided`] | values that an engine does not take whole, in parts |
//! | [`dram`] | a budget of DRAM for what an index on flash keeps at hand |
//! | [`over_log`] | values on their way into the log of such an engine, and windows |
//! | [`value_log`], [`page_buffer`], [`packing`] | where value bytes go |
//! | [`firmware`] | cores, and the kinds of steps that each takes |

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_link::transfer::Exposing;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status, StoreOptions};
use kvdrive_sim::{Ns, TaskCell};

mod ahead;
pub mod anykey;
pub mod config;
pub mod divided;
pub mod dram;
pub mod firmware;
pub mod hash;
pub mod lsm;
pub mod over_log;
pub mod packing;
pub mod page_buffer;
pub mod stored;
pub mod table;
pub mod value_log;

pub use config::{EngineConfig, Parts};
pub use table::EngineSettings;

/// Most keys in one call of [`Engine::expect`]: the memory that their operations will touch fits the machine's
/// second-level cache.
pub const KNOWN_AHEAD: usize = 48;

/// A store or a delete of an atomic batch.
#[derive(Clone, Debug)]
pub struct PairChange {
    /// The key.
    pub key: Key,
    /// Its value; `None` deletes.
    pub value: Option<Vec<u8>>,
}

/// The effect of changes by key: the last change of a key counts, since no reader sees the earlier ones.
pub fn newest(changes: Vec<PairChange>) -> BTreeMap<Key, Option<Vec<u8>>> {
    changes.into_iter().map(|PairChange { key, value }| (key, value)).collect()
}

/// The calls of the controller to an engine.
///
/// Errors are the statuses that go to the host. Methods may run side by side for different commands; an
/// engine orders commands of one key itself.
pub trait Engine: Exposing + 'static {
    /// A stored value that stays readable while this is held.
    type Found;
    /// A walk over the pairs that existed when it was opened, in the engine's order.
    type Cursor;

    /// Is the engine's order the order of keys? Otherwise it is that of a hash table.
    const ORDERED: bool;

    /// Limits of atomic batches, by the size of their structured value ([`kvdrive_nvme::batch`]). Every engine of a
    /// drive takes them, because transactions rely on it; `None` is for engines of tests. The answer does not change
    /// while the power is on.
    fn atomic_batches(&self) -> Option<AtomicLimits> {
        None
    }

    /// Carries out the changes of an atomic batch within the limits of [`Engine::atomic_batches`], in their order: all
    /// of them or none, also if one fails and after a power cut at any event. They become visible at one moment: a
    /// lookup, or a cursor that is opened, finds either the state before all of them or the state after.
    ///
    /// Errors: [`Status::INVALID_FIELD`] of an engine that takes no atomic batches; else as of a store.
    fn commit_all(&self, _changes: Vec<PairChange>) -> Result<(), Status> {
        Err(Status::INVALID_FIELD)
    }

    /// Makes the bytes at `place` the value of `key`.
    ///
    /// Errors: [`Status::KEY_NOT_FOUND`] and [`Status::KEY_EXISTS`], if `options` require or exclude an existing pair;
    /// the place is then given back.
    fn commit(&self, key: Key, place: Self::Place, options: StoreOptions) -> Result<(), Status>;

    /// The value is *unfinished*: the host will send its rest in further commands. If commands waited for room that
    /// unfinished values hold, no firmware context might be left to take their rest, so unfinished values together may
    /// hold only a part of the room.
    ///
    /// Errors: [`Status::COMMAND_INTERRUPTED`] if other unfinished values hold that part; the caller then abandons the
    /// place. An engine that checks this when a place is reserved does nothing here.
    fn begin_unfinished(&self, _place: &Self::Place) -> Result<(), Status> {
        Ok(())
    }

    /// The command ends before the value is complete. Its next bytes come with a later command, or never.
    ///
    /// Errors: as of [`Engine::begin_unfinished`], if the engine counts only bytes that are still in memory.
    fn pause(&self, _place: &Self::Place) -> Result<(), Status> {
        Ok(())
    }

    /// These keys will be stored or looked up soon. A hint to the machine's memory without effect on the model; see
    /// [`kvdrive_flash::media::Media::expect`].
    fn expect(&self, _keys: &mut dyn Iterator<Item = Key>) {}

    /// Finds the newest value of `key`.
    fn find(&self, key: Key) -> Result<Option<Self::Found>, Status>;

    /// Its size in bytes.
    fn value_bytes(&self, found: &Self::Found) -> u32;

    /// A number by which values that are sorted lie in the order in which flash has them at the moment, as far as that is
    /// known without reading more. It serves to read many of them with few reads of flash, and for nothing else.
    fn order_on_flash(&self, _found: &Self::Found) -> u64 {
        0
    }

    /// The rest of the value will be read by later commands, which may never come. `true`: `found` may be kept until
    /// then, and delays no other command and no collection. `false`: `found` must be dropped with this command, so the
    /// caller has to copy the rest.
    fn outlives_command(&self, _found: &mut Self::Found) -> bool {
        false
    }

    /// Hands out `bytes` bytes of a value from `at` on, in order, after the necessary flash reads. A caller that reads
    /// a value part by part goes from front to back, and passes with each part the end of the last one, `until`: so the
    /// reads of flash do not depend on the size of the host's pages.
    ///
    /// Errors: [`Status::UNRECOVERED_ERROR`] when stored bytes fail their checksum,
    /// [`Status::VALUE_NOT_RESIDENT`] when flash is switched off and the page has left the buffer.
    fn load(
        &self,
        found: &Self::Found,
        at: u32,
        bytes: u32,
        until: u32,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Status>;

    /// Removes `key`; succeeds, too, if there is no pair. Never fails for lack of space, except with
    /// [`Status::COMMAND_INTERRUPTED`] while open cursors hold the space.
    fn delete(&self, key: Key) -> Result<(), Status>;

    /// As [`Engine::delete`], but the pair must exist. Looking and removing are one step for commands of the same key.
    ///
    /// Errors: [`Status::KEY_NOT_FOUND`]; as of a lookup.
    fn delete_existing(&self, key: Key) -> Result<(), Status>;

    /// Sets the function that gives up a cursor when open cursors hold room that a change needs. Without it, or when it
    /// has no cursor to give up, such a change is answered [`Status::COMMAND_INTERRUPTED`].
    fn on_held(&self, give_up: GiveUpCursor);

    /// Opens a cursor before the first pair at or after `from` (`None`: before the first of all).
    fn open_cursor(&self, from: Option<Key>) -> Result<Self::Cursor, Status>;

    /// The cursor's next pair.
    ///
    /// Errors: [`Status::ITERATOR_LOST`], now and for all later calls, if more has changed since the opening than the
    /// engine keeps. A status of a page that cannot be read: its pairs are skipped, and older versions of them may be
    /// returned later; the next call continues after the page, except in an engine that is a store, where it fails
    /// again.
    fn next(&self, cursor: &mut Self::Cursor) -> Result<Option<(Key, Self::Found)>, Status>;

    /// The range of keys that the cursor's last failed [`Engine::next`] has passed over.
    fn gap(&self, _cursor: &Self::Cursor) -> Gap {
        Gap::default()
    }

    /// Writes partly filled pages to flash, so that a report can count them. Entries that an engine collects in memory
    /// for a table stay there. Not needed for durability.
    fn drain(&self);

    /// Bytes of live values and the most that fit, for Identify (NUSE, NSZE).
    fn utilization(&self) -> Utilization;

    /// Largest value this engine takes, bytes.
    fn max_value_bytes(&self) -> u32;

    /// Largest value, in bytes, that does not go to flash piece by piece while it arrives.
    fn max_whole_bytes(&self) -> u32 {
        self.max_value_bytes()
    }

    /// Builds the engine on its flash: empty, or with the state in `image` and the flash.
    ///
    /// Errors: an image that is damaged or of another configuration.
    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<Self, PowerOnError>
    where
        Self: Sized;

    /// Everything that must survive a power cut and is not on flash. [`Engine::power_on`] takes it.
    fn protected_image(&self) -> Vec<u8>;

    /// Applies journal records to an image: the result is that of [`Engine::protected_image`] after them.
    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError>
    where
        Self: Sized;

    /// Can there be such a drive?
    ///
    /// Errors: a line that begins with the key at fault.
    fn check(config: &EngineConfig) -> Result<(), PowerOnError>
    where
        Self: Sized;

    /// Settings that two drives must have in common to read each other's images. The configuration was checked.
    fn image_settings(config: &EngineConfig) -> Vec<(&'static str, String)>
    where
        Self: Sized;

    /// Its counters since power-on: section `engine` of reports.
    fn counts(&self) -> Counts;

    /// What its structures take of the drive's DRAM, in bytes. A maximum is part of another one.
    fn dram(&self) -> Counts {
        Counts::default()
    }
}

/// Drops an open cursor that no command uses; `false`: there is none.
pub type GiveUpCursor = Rc<dyn Fn() -> bool>;

/// The function that gives up cursors, once it is set.
#[derive(Default)]
pub(crate) struct HeldByCursors(TaskCell<Option<GiveUpCursor>>);

impl HeldByCursors {
    pub fn set(&self, give_up: GiveUpCursor) {
        *self.0.borrow_mut() = Some(give_up);
    }

    /// Gives up one cursor; `false`: there is none to give up.
    pub fn give_up_one(&self) -> bool {
        let give_up = self.0.borrow().clone();
        give_up.is_some_and(|give_up| give_up())
    }

    /// Makes a change. While it fails with `held`, an open cursor is given up and the change is tried again, until it
    /// has room or no cursor is left.
    pub fn make<E: PartialEq>(&self, held: E, change: impl Fn() -> Result<(), E>) -> Result<(), E> {
        loop {
            match change() {
                Err(error) if error == held && self.give_up_one() => {}
                made => return made,
            }
        }
    }
}

/// A range of keys that a walk passed over because the page that lists them cannot be read. Any number of its keys may
/// be missing, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// No key below this one is missing; `None`: not known.
    pub first: Option<Key>,
    /// No key above this one is missing; `None`: not known.
    pub last: Option<Key>,
}

/// Copies within the controller's memory, to stage and pack values.
#[derive(Clone, Debug, Default, Counters)]
pub struct Memcpy {
    /// Bytes of values that firmware copied.
    memcpy_bytes: Cell<u64>,
    /// Time that these copies took.
    #[counter(modelled)]
    memcpy_ns: Cell<u64>,
}

impl Memcpy {
    /// Counts one.
    #[inline]
    pub fn add(&self, bytes: u32, ns: Ns) {
        self.memcpy_bytes.set(self.memcpy_bytes.get() + u64::from(bytes));
        self.memcpy_ns.set(self.memcpy_ns.get() + ns);
    }
}

/// Values that collection moved.
#[derive(Clone, Debug, Default, Counters)]
pub struct Moved {
    /// Pairs that collection moved.
    gc_moved_pairs: Cell<u64>,
    /// Bytes of the pairs that collection moved.
    gc_moved_bytes: Cell<u64>,
}

impl Moved {
    /// Counts one.
    pub fn add(&self, bytes: u64) {
        self.gc_moved_pairs.set(self.gc_moved_pairs.get() + 1);
        self.gc_moved_bytes.set(self.gc_moved_bytes.get() + bytes);
    }
}

/// How full a drive is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(state)]
pub struct Utilization {
    /// Bytes of values that have not been replaced or deleted. Engine `lsm` has an upper bound: it learns that a value was
    /// replaced or deleted when a merge sees both entries (`lsm.count_growth_percent`). `hashlog` adds its head of 8 B
    /// and the key to each value; `btree` and `lsmtree` count whole pages in use, and no pair in a memtable; `anykey` counts
    /// the pages of groups beside the bytes of its log.
    pub live_bytes: u64,
    /// Bytes of values that the engine has room for.
    pub capacity_bytes: u64,
}
