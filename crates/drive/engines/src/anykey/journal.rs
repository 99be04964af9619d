//! The engine's protected image, and the records that keep a copy of it up to date.
//!
//! ```text
//!   protected image (DRAM with a capacitor)   value log, memtables, ids and levels of groups
//!   spare areas of pages (flash)              everything else about a group ([`super::recovery`])
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use kvdrive_flash::power::{self, ImageError, Journal, Owner, PowerOnError};
use kvdrive_nvme::Key;

use super::fit::shape_of_config;
use super::group::GroupId;
use crate::config::EngineConfig;
use crate::lsm::entry::Entry;
use crate::value_log::{LogImage, ProtectedValueLog, Record, RecordSink};

/// Most insertions: no drive reaches this number.
const MOST_INSERTIONS: u64 = 1 << 60;

/// A change of the engine's state. Records made without a suspension between them belong together.
#[derive(BorshSerialize, BorshDeserialize)]
pub enum Change<'a> {
    /// Of the value log.
    Values(Record<'a>),
    /// The newest entry of a key went to the memtable; its sequence number is the last one given out.
    Inserted(Key, Entry),
    /// The memtable is full and is frozen; new entries go to an empty one.
    Frozen,
    /// This id, and every lower one, has been given out.
    IdTaken(GroupId),
    /// The lists of groups have changed.
    Groups(GroupsChanged<'a>),
}

/// See [`super::levels::Edit`].
#[derive(BorshSerialize, BorshDeserialize)]
pub struct GroupsChanged<'a> {
    pub added: Cow<'a, [GroupId]>,
    pub to: u8,
    pub dropped: Cow<'a, [GroupId]>,
    pub trimmed: Option<(GroupId, Key)>,
    pub moved: Option<GroupId>,
    pub scarred: Option<GroupId>,
    /// Entries of the frozen memtable up to this key are in groups.
    pub flushed: Option<Key>,
}

/// Where a group is.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct Seat {
    pub level: u8,
    pub after: Option<Key>,
    pub is_scar: bool,
}

/// The index's part of the image.
#[derive(Clone, Debug, Default, PartialEq, BorshSerialize, BorshDeserialize)]
pub struct IndexImage {
    pub active: BTreeMap<Key, Entry>,
    /// Empty: there is none.
    pub frozen: BTreeMap<Key, Entry>,
    pub groups: BTreeMap<GroupId, Seat>,
    pub next_group: u32,
    pub next_sequence: u64,
}

impl IndexImage {
    fn apply(&mut self, change: Change<'_>) -> Result<(), &'static str> {
        match change {
            Change::Values(_) => unreachable!("the value log applies its own"),
            Change::Inserted(_, entry) if entry.sequence >= MOST_INSERTIONS => return Err(TOO_MANY),
            Change::Inserted(key, entry) => {
                self.next_sequence = entry.sequence + 1;
                self.active.insert(key, entry);
            }
            Change::Frozen if !self.frozen.is_empty() => return Err("a second memtable is frozen"),
            Change::Frozen => self.frozen = std::mem::take(&mut self.active),
            Change::IdTaken(id) if id.0 >= MOST_GROUPS => return Err(TOO_MANY_GROUPS),
            Change::IdTaken(id) => self.next_group = self.next_group.max(id.0.saturating_add(1)),
            Change::Groups(change) => self.change_groups(&change)?,
        }
        Ok(())
    }

    fn change_groups(&mut self, change: &GroupsChanged<'_>) -> Result<(), &'static str> {
        const UNKNOWN: &str = "a group that does not exist";
        for id in change.dropped.iter() {
            self.groups.remove(id).ok_or(UNKNOWN)?;
        }
        for id in change.added.iter() {
            if id.0 >= self.next_group {
                return Err("the number of a group is out of range");
            }
            self.groups.insert(*id, Seat { level: change.to, after: None, is_scar: false });
        }
        if let Some((id, after)) = change.trimmed {
            self.groups.get_mut(&id).ok_or(UNKNOWN)?.after = Some(after);
        }
        if let Some(id) = change.moved {
            self.groups.get_mut(&id).ok_or(UNKNOWN)?.level = change.to;
        }
        if let Some(id) = change.scarred {
            self.groups.get_mut(&id).ok_or(UNKNOWN)?.is_scar = true;
        }
        if let Some(key) = change.flushed {
            self.frozen.retain(|frozen, _| *frozen > key);
        }
        Ok(())
    }

    fn check(&self, levels: u32) -> Result<(), &'static str> {
        if self.groups.last_key_value().is_some_and(|(id, _)| id.0 >= self.next_group) {
            return Err("the number of a group is out of range");
        }
        if self.next_group > MOST_GROUPS {
            return Err(TOO_MANY_GROUPS);
        }
        if self.groups.values().any(|seat| u32::from(seat.level) >= levels) {
            return Err("a group is on a level that there is not");
        }
        let are_reached = self.entries().all(|entry| entry.sequence < MOST_INSERTIONS);
        if are_reached && self.next_sequence < MOST_INSERTIONS { Ok(()) } else { Err(TOO_MANY) }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.active.values().chain(self.frozen.values())
    }
}

/// Flash is worn out before a drive has written as many groups; an image that says otherwise is refused, so that the next
/// number is always there.
pub const MOST_GROUPS: u32 = 1 << 31;
pub const TOO_MANY_GROUPS: &str = "the numbers of groups are used up";
const TOO_MANY: &str = "the sequence numbers of the index are out of range";

/// Where records of log and index go.
pub struct Changes(pub Journal);

impl RecordSink for Changes {
    fn record(&self, record: Record<'_>) {
        self.0.append(&Change::Values(record));
    }
}

/// The protected image, taken apart.
pub struct Protected {
    pub owner: Owner,
    pub values: ProtectedValueLog,
    pub index: IndexImage,
}

impl Protected {
    pub fn encode(&mut self) -> Vec<u8> {
        power::seal(&self.owner, &(self.values.image(), &self.index))
    }

    /// # Errors
    /// No drive of this configuration has the image.
    pub fn decode(config: &EngineConfig, image: &[u8]) -> Result<Protected, PowerOnError> {
        let wrong = |what: String| PowerOnError::from(ImageError::new(0, what));
        let (owner, (values, index)) = power::open::<(LogImage, IndexImage)>(image)?;
        let values = ProtectedValueLog::restore(values, &shape_of_config(config)?);
        let values = values.map_err(|error| wrong(error.to_string()))?;
        index.check(config.engines.anykey.levels).map_err(|what| wrong(what.to_owned()))?;
        let fits = |entry: &Entry| !entry.has_bytes() || values.holds(entry.address, entry.bytes);
        if !index.entries().all(fits) {
            return Err(wrong("the address of a value is out of range".to_owned()));
        }
        Ok(Protected { owner, values, index })
    }

    fn apply(&mut self, change: Change<'_>) -> Result<(), String> {
        match change {
            Change::Values(record) => self.values.apply(record).map_err(|error| error.to_string()),
            change => self.index.apply(change).map_err(str::to_owned),
        }
    }
}

/// Applies journal records to an image.
pub fn fold(config: &EngineConfig, image: &[u8], records: &[Vec<u8>]) -> Result<Vec<u8>, PowerOnError> {
    let mut protected = Protected::decode(config, image)?;
    power::replay(records, |change| protected.apply(change))?;
    Ok(protected.encode())
}
