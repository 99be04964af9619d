//! The values that the keys of a drive may have, while hosts change them by commands whose order or outcome is not
//! always known.
//!
//! A value is known by a number, which makes its bytes; so bytes of two values in one are noticed. A change counts as
//! possible from its submission on. After its answer only it and the changes beside it are possible; after a connection
//! or the power has ended without an answer, it and what was there before.

use std::collections::BTreeMap;

use kvdrive_nvme::{Key, Store, StorePart};

/// A value of `bytes` bytes. `None`: bytes that a host has mixed itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    pub number: Option<u32>,
    pub bytes: u32,
}

/// A queue of a host, and an identifier of a command in it.
pub type CommandId = (usize, u16);

/// Bytes `at..at + bytes` of the value with this number.
pub fn content(number: Option<u32>, at: u32, bytes: usize) -> Vec<u8> {
    let number = u64::from(number.unwrap_or(u32::MAX));
    let word = |index: u64| {
        let mixed = (number << 32 | index).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_le_bytes()
    };
    let (first, skip) = (u64::from(at / 8), at as usize % 8);
    let words = (first..).take((skip + bytes).div_ceil(8)).flat_map(word);
    words.skip(skip).take(bytes).collect()
}

/// A change that was submitted and is not answered.
struct Change {
    key: Key,
    /// `None`: there is no pair then.
    to: Option<Value>,
    /// Changes of the key that were acknowledged meanwhile: each may have come before it or after it.
    beside: Vec<Option<Value>>,
}

#[derive(Default)]
struct OfKey {
    /// The values that it may have, without changes in flight. Empty: nothing.
    settled: Vec<Option<Value>>,
    /// All values that it may ever have had.
    history: Vec<Value>,
    /// Counts submissions and answers of changes.
    version: u64,
}

/// The value that a stream has begun.
#[derive(Clone, Copy, Default)]
struct Stream {
    /// Number of the value whose first part was sent last; `None`: parts were under way together.
    number: Option<u32>,
    /// The value, and how many of its bytes were acknowledged.
    begun: Option<(Store, u32)>,
}

#[derive(Default)]
pub struct Oracle {
    keys: BTreeMap<Key, OfKey>,
    changes: BTreeMap<CommandId, Change>,
    /// Changes without an answer, whose queue has ended.
    left: Vec<Change>,
    streams: BTreeMap<(usize, u16), Stream>,
    numbers: u32,
}

impl Oracle {
    /// A number for a new value.
    pub fn new_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    pub fn keys(&self) -> Vec<Key> {
        self.keys.keys().copied().collect()
    }

    fn of(&mut self, key: Key) -> &mut OfKey {
        self.keys.entry(key).or_insert_with(|| OfKey { settled: vec![None], ..OfKey::default() })
    }

    /// A host sends a command that may change `key`.
    pub fn submitted(&mut self, id: CommandId, key: Key, to: Option<Value>) {
        let of = self.of(key);
        of.version += 1;
        of.history.extend(to);
        self.changes.insert(id, Change { key, to, beside: Vec::new() });
    }

    /// The command was answered.
    pub fn answered(&mut self, id: CommandId, is_success: bool) {
        let Some(change) = self.changes.remove(&id) else { return };
        self.of(change.key).version += 1;
        if !is_success {
            return;
        }
        let others = self.changes.values_mut().chain(&mut self.left);
        others.filter(|other| other.key == change.key).for_each(|other| other.beside.push(change.to));
        let settled = &mut self.of(change.key).settled;
        *settled = change.beside;
        settled.push(change.to);
    }

    /// The queue of a host has ended, and with it its streams.
    pub fn queue_ended(&mut self, host: usize) {
        let ids: Vec<CommandId> = self.changes.keys().filter(|(of, _)| *of == host).copied().collect();
        self.left.extend(ids.iter().filter_map(|id| self.changes.remove(id)));
        self.streams.retain(|(of, _), _| *of != host);
    }

    /// The drive has nothing under way, so changes of ended queues have happened or never will.
    pub fn is_quiet(&mut self) {
        for Change { key, to, beside } in std::mem::take(&mut self.left) {
            let of = self.of(key);
            of.version += 1;
            of.settled.extend(beside);
            of.settled.push(to);
        }
    }

    /// A number that shows whether a key was changed meanwhile; `None`: it is being changed.
    pub fn version(&mut self, key: Key) -> Option<u64> {
        let is_changing = self.changes.values().chain(&self.left).any(|change| change.key == key);
        let version = self.of(key).version;
        (!is_changing).then_some(version)
    }

    /// A lookup that began at `version` has found a value of `bytes` bytes, and `piece` of it from `at` on.
    pub fn found(&mut self, key: Key, version: Option<u64>, bytes: u32, at: u32, piece: &[u8]) {
        let is_same = |value: &Value| {
            let is_known = value.number.is_some();
            value.bytes == bytes && (!is_known || piece == content(value.number, at, piece.len()))
        };
        let is_still = version.is_some() && version == self.version(key);
        let of = self.of(key);
        if !is_still {
            let is_any = of.history.iter().any(is_same);
            assert!(is_any, "{key:?}: {bytes} B at {at} of no value that it ever had");
            return;
        }
        let before = of.settled.clone();
        of.settled.retain(|value| value.as_ref().is_some_and(is_same));
        assert!(!of.settled.is_empty(), "{key:?}: {bytes} B at {at} of none of {before:?}");
    }

    /// A lookup that began at `version` has found no pair.
    pub fn missing(&mut self, key: Key, version: Option<u64>) {
        if version.is_some() && version == self.version(key) {
            let settled = &mut self.of(key).settled;
            assert!(settled.contains(&None), "{key:?} is lost; it had one of {settled:?}");
            *settled = vec![None];
        }
    }

    /// All keys of a quiet drive.
    pub fn listed(&self, keys: &[Key]) {
        let unknown = keys.iter().find(|key| !self.keys.contains_key(key));
        assert!(unknown.is_none(), "{unknown:?} is listed, and no host has stored it");
        for (key, of) in &self.keys {
            let is_there = keys.contains(key);
            let may = of.settled.iter().any(|value| value.is_some() == is_there);
            assert!(may, "{key:?}: listed {is_there}; it has one of {:?}", of.settled);
        }
    }

    /// A host sends a part; returns the number of the value to which its bytes belong. `is_alone`: no other command of
    /// its stream is under way.
    pub fn part_sent(&mut self, host: usize, part: &StorePart, is_alone: bool) -> Option<u32> {
        let number = if part.at == 0 { Some(self.new_number()) } else { None };
        let stream = self.streams.entry((host, part.stream)).or_default();
        if part.at == 0 {
            stream.number = number;
        }
        if !is_alone {
            *stream = Stream::default();
        }
        stream.number
    }

    /// A part was answered.
    pub fn part_answered(&mut self, host: usize, part: &StorePart, is_success: bool) {
        let Some(stream) = self.streams.get_mut(&(host, part.stream)) else { return };
        if stream.number.is_none() {
            return;
        }
        if !is_success {
            // The command may have been refused before the drive saw it; then an earlier value can remain.
            if part.at == 0 {
                *stream = Stream::default();
            }
            return;
        }
        if part.at > 0 {
            let follows = stream.begun == Some((part.store, part.at));
            assert!(follows, "a part was taken that follows nothing: {part:?}");
        }
        let end = part.at + part.bytes;
        stream.begun = (end < part.store.value_bytes).then_some((part.store, end));
    }

    /// Another command of the stream has succeeded, which ends the unfinished value.
    pub fn stream_ended(&mut self, host: usize, stream: u16) {
        if let Some(stream) = self.streams.get_mut(&(host, stream)) {
            stream.begun = None;
        }
    }
}
