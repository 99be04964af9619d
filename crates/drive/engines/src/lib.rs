//! Engines: index and value placement of a drive. The controller knows an engine by the traits here and by
//! nothing else; an engine knows flash, and of the link only how values arrive ([`kvdrive_link::Landing`]).
//!
//! Begin reading at [`Engine`], then at `store` in `lsm/engine.rs`.
//!
//! A store reaches an engine in two steps, so that a value whose bytes arrive with several commands needs no
//! waiting task: first the engine reserves a place and takes bytes there ([`kvdrive_link::Landing`]), then,
//! when the last byte is in, [`Engine::commit`] makes the value visible under its key. Nothing is visible
//! before, and a place that is not committed is given back.
//!
//! A new engine is one folder here and one row in the table of drives (crate `device`, `ENGINES`).
//!
//! | module | what it is |
//! |---|---|
//! | [`lsm`] | LSM-tree over a value log |
//! | [`hash`] | hash-table FTLs: `original`, `plus`, `plus2` |
//! | [`stored`] | any store of crate `store`, on logical pages |
//! | [`divided`] | values that an engine does not take whole, in parts |
//! | [`value_log`], [`page_buffer`], [`packing`] | where value bytes go |
//! | [`firmware`] | cores, and which takes what kind of step |

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_declare::{Counters, Counts};
use kvdrive_flash::power::PowerOnError;
use kvdrive_link::transfer::Exposing;
use kvdrive_sim::{Ns, TaskCell};
use kvdrive_spec::identify::AtomicLimits;
use kvdrive_spec::{Key, Status, StoreOptions};

pub mod config;
pub mod divided;
pub mod firmware;
pub mod hash;
pub mod lsm;
pub mod packing;
pub mod page_buffer;
pub mod stored;
pub mod value_log;

pub use config::{EngineConfig, Parts};

/// Keys of which an engine is told at once ([`Engine::expect`]): what they will meet fits the machine's
/// second cache.
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

/// What the controller asks of an engine.
///
/// Errors are the statuses that go to the host. Methods may run side by side for different commands; an
/// engine orders commands of one key itself.
pub trait Engine: Exposing + 'static {
    /// A stored value that stays readable while this is held.
    type Found;
    /// A walk over the pairs that existed when it was opened, in the engine's order.
    type Cursor;

    /// Is that the order of keys? Otherwise it is that of a table.
    const ORDERED: bool;

    /// The atomic batches that it takes, by the size of their structured value ([`kvdrive_spec::batch`]);
    /// `None`: none, which is for engines of tests; those of drives take them, and transactions stand on that.
    /// Stays as it is for as long as the power is on.
    fn atomic_batches(&self) -> Option<AtomicLimits> {
        None
    }

    /// Carries the changes of an atomic batch out, which is within [`Engine::atomic_batches`], in their order:
    /// all of them or none, where one of them fails and after a power cut at any event. All of them become
    /// visible at one moment: a lookup, and an opening of a cursor, finds the state before it or after
    /// it.
    ///
    /// Errors: [`Status::INVALID_FIELD`] of an engine that takes no atomic batches; else as of a store.
    fn commit_all(&self, _changes: Vec<PairChange>) -> Result<(), Status> {
        Err(Status::INVALID_FIELD)
    }

    /// Makes the bytes at `place` the value of `key`.
    ///
    /// Errors: [`Status::KEY_NOT_FOUND`] and [`Status::KEY_EXISTS`] as `options` ask; the place is given back
    /// then.
    fn commit(&self, key: Key, place: Self::Place, options: StoreOptions) -> Result<(), Status>;

    /// The host has yet to send the rest of a value, in further commands. Commands that waited for such values
    /// could keep the firmware from taking that rest, so these values may hold only a part of the room for values.
    ///
    /// Errors: [`Status::COMMAND_INTERRUPTED`] when others have that part; the value is to be given up. An
    /// engine that looks at it when a place is reserved has nothing to add here.
    fn begin_unfinished(&self, _place: &Self::Place) -> Result<(), Status> {
        Ok(())
    }

    /// The next bytes of such a value come with a later command, if ever.
    ///
    /// Errors: as of [`Engine::begin_unfinished`], for what of it is still in memory.
    fn pause(&self, _place: &Self::Place) -> Result<(), Status> {
        Ok(())
    }

    /// These keys will be stored or asked for soon. Changes nothing of the model; see
    /// [`kvdrive_flash::media::Media::expect`].
    fn expect(&self, _keys: &mut dyn Iterator<Item = Key>) {}

    /// Finds the newest value of `key`.
    fn find(&self, key: Key) -> Result<Option<Self::Found>, Status>;

    /// Its size in bytes.
    fn value_bytes(&self, found: &Self::Found) -> u32;

    /// The rest of what was found is to be read in later commands, whenever a host sends them, perhaps never. `true`: it
    /// stays readable, and holds up no other command and no collection. `false`: it must go with this command, and a copy
    /// of the rest is what can be kept.
    fn outlives_command(&self, _found: &mut Self::Found) -> bool {
        false
    }

    /// Hands out `bytes` bytes of a value from `at` on, in order, after whatever flash reads that takes.
    /// A caller that reads a value part by part begins at its front and says with each part that the last part ends
    /// at byte `until`: the reads of flash then do not depend on how large the host's pages are.
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

    /// Removes `key`; removing what is not there succeeds. Never fails for lack of space, but may with
    /// [`Status::COMMAND_INTERRUPTED`] as long as open cursors hold it.
    fn delete(&self, key: Key) -> Result<(), Status>;

    /// As [`Engine::delete`], of what is there: looking and removing are one step for commands of the same key.
    ///
    /// Errors: [`Status::KEY_NOT_FOUND`]; as of a lookup.
    fn delete_existing(&self, key: Key) -> Result<(), Status>;

    /// Sets what gives up a cursor, for changes whose room open cursors hold. Without it, and when it has none, such a
    /// change is answered [`Status::COMMAND_INTERRUPTED`].
    fn on_held(&self, give_up: GiveUpCursor);

    /// Opens a cursor before the first pair at or after `from` (`None`: before the first of all).
    fn open_cursor(&self, from: Option<Key>) -> Result<Self::Cursor, Status>;

    /// The cursor's next pair.
    ///
    /// Errors: [`Status::ITERATOR_LOST`] when more has changed since the opening than the engine keeps; so it
    /// stays. What cannot be read: pairs may be missing there, and older ones come for them; the next call goes
    /// on after it, or, in an engine that is a store, meets it again.
    fn next(&self, cursor: &mut Self::Cursor) -> Result<Option<(Key, Self::Found)>, Status>;

    /// The range of keys that the cursor's last failed [`Engine::next`] has passed over.
    fn gap(&self, _cursor: &Self::Cursor) -> Gap {
        Gap::default()
    }

    /// Writes pages that are being filled to flash, so that a report can count them; what an engine keeps of
    /// keys in memory until it has a table's worth stays there. Not needed for durability.
    fn drain(&self);

    /// Bytes of live values and the most that fit, for Identify (NUSE, NSZE).
    fn utilization(&self) -> Utilization;

    /// Largest value this engine takes, bytes.
    fn max_value_bytes(&self) -> u32;

    /// Largest value that does not go to flash in parts while it arrives, bytes.
    fn max_whole_bytes(&self) -> u32 {
        self.max_value_bytes()
    }

    /// Builds the engine on its flash: empty, or as `image` and the flash say.
    ///
    /// Errors: an image that is damaged or of another configuration.
    fn power_on(parts: Parts, image: Option<&[u8]>) -> Result<Self, PowerOnError>
    where
        Self: Sized;

    /// Everything that must survive a power cut and is not on flash. [`Engine::power_on`] takes it.
    fn protected_image(&self) -> Vec<u8>;

    /// Applies journal records to an image: what [`Engine::protected_image`] would have given after them.
    fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError>
    where
        Self: Sized;

    /// What it counts since power-on, section `engine` of reports.
    fn counts(&self) -> Counts;

    /// What its structures take of the drive's DRAM, in bytes. A maximum is part of another one.
    fn dram(&self) -> Counts {
        Counts::default()
    }
}

/// Drops an open cursor that no command uses; `false`: there is none.
pub type GiveUpCursor = Rc<dyn Fn() -> bool>;

/// What gives up cursors, once it is known.
#[derive(Default)]
pub(crate) struct HeldByCursors(TaskCell<Option<GiveUpCursor>>);

impl HeldByCursors {
    pub fn set(&self, give_up: GiveUpCursor) {
        *self.0.borrow_mut() = Some(give_up);
    }

    /// `true`: what one cursor held was given back.
    pub fn give_up_one(&self) -> bool {
        let give_up = self.0.borrow().clone();
        give_up.is_some_and(|give_up| give_up())
    }
}

/// Keys that a walk could not tell because what lists them cannot be read. None of them may be missing, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// No key below this one is missing; `None`: that is not known.
    pub first: Option<Key>,
    /// No key above this one is missing; `None`: that is not known.
    pub last: Option<Key>,
}

/// Copies within the controller's memory, to stage and pack values.
#[derive(Clone, Debug, Default, Counters)]
pub struct Memcpy {
    /// Bytes of values that firmware copied.
    memcpy_bytes: Cell<u64>,
    /// What these copies took.
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
    /// Bytes of them.
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
    /// Bytes of values that have not been replaced or deleted, as far as the engine knows.
    pub live_bytes: u64,
    /// Bytes of values that fit.
    pub capacity_bytes: u64,
}
