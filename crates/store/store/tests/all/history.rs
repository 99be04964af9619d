//! The history of every key, and the versions that may therefore be seen.
//!
//! Every call has a begin and an end. An observer may see a version of a key unless another version that
//! counts for this observer began after the first one had ended.

use std::collections::BTreeMap;

use kvdrive_nvme::Key;

/// A call that gave a key a value, or deleted it.
#[derive(Clone, Debug)]
struct Version {
    begin: u64,
    /// `u64::MAX` until the call ends.
    end: u64,
    value: Option<Vec<u8>>,
    /// The atomic batch it belongs to.
    batch: Option<usize>,
}

/// All versions of all keys.
#[derive(Default)]
pub struct History {
    versions: BTreeMap<Key, Vec<Version>>,
    batches: usize,
    /// Begin and end of the syncs that succeeded.
    syncs: Vec<(u64, u64)>,
}

/// A call that has begun.
pub struct Call(Vec<(Key, usize)>);

impl History {
    pub fn begin(&mut self, at: u64, changes: &[(Key, Option<Vec<u8>>)], is_atomic: bool) -> Call {
        self.batches += 1;
        let batch = is_atomic.then_some(self.batches);
        let mut call = Vec::new();
        for (key, value) in changes {
            let versions = self.versions.entry(*key).or_default();
            call.push((*key, versions.len()));
            versions.push(Version { begin: at, end: u64::MAX, value: value.clone(), batch });
        }
        Call(call)
    }

    /// The call succeeded; of several changes of one key by one call, the last counts.
    pub fn end(&mut self, at: u64, call: Call) {
        for (key, index) in call.0 {
            self.versions.get_mut(&key).unwrap()[index].end = at;
        }
    }

    /// The call had no effect.
    pub fn undo(&mut self, call: Call) {
        for (key, index) in call.0 {
            // No reader can see it, and it hides no other version.
            self.versions.get_mut(&key).unwrap()[index].begin = u64::MAX;
        }
    }

    pub fn synced(&mut self, begin: u64, end: u64) {
        self.syncs.push((begin, end));
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.versions.keys()
    }

    /// May this value of `key` be seen, if all versions that ended until `settled` must be visible, and none
    /// that began after `latest` can be?
    fn may_be(&self, key: &Key, value: Option<&[u8]>, settled: u64, latest: u64) -> bool {
        let versions = self.versions.get(key).map_or(&[][..], |versions| versions);
        let hides = |version: &Version, after: u64| version.begin > after && version.end <= settled;
        // Of two changes by one call the later one hides the earlier.
        let hidden = |index: usize, version: &Version| {
            versions.iter().any(|other| hides(other, version.end))
                || versions[index + 1..].iter().any(|other| {
                    other.begin == version.begin && other.end == version.end && other.begin <= latest
                })
        };
        let from_start = value.is_none() && !versions.iter().any(|version| version.end <= settled);
        from_start
            || versions.iter().enumerate().any(|(index, version)| {
                version.begin <= latest && version.value.as_deref() == value && !hidden(index, version)
            })
    }

    /// Checks the result of a call that lasted from `begin` to `end`.
    pub fn check_seen(&self, key: &Key, value: Option<&[u8]>, begin: u64, end: u64) {
        assert!(
            self.may_be(key, value, begin, end),
            "{key} was {value:?} from {begin} to {end}: {:?}",
            self.of(key)
        );
    }

    /// Checks the values found after a cut at `at`.
    pub fn check_recovered(&self, at: u64, get: &dyn Fn(&Key) -> Option<Vec<u8>>) {
        let settled =
            self.syncs.iter().filter(|(_, end)| *end <= at).map(|(begin, _)| *begin).max().unwrap_or(0);
        let found: BTreeMap<Key, Option<Vec<u8>>> = self.keys().map(|key| (*key, get(key))).collect();
        for (key, value) in &found {
            let may_be = self.may_be(key, value.as_deref(), settled, at);
            assert!(
                may_be,
                "{key} is {value:?} after a cut at {at}, synced to {settled}: {:?}",
                self.of(key)
            );
        }
        self.check_batches(&found);
    }

    /// If a change of an atomic batch is found, no version older than that of the batch is found for its
    /// other keys.
    fn check_batches(&self, found: &BTreeMap<Key, Option<Vec<u8>>>) {
        let is_of = |version: &Version, value: &Option<Vec<u8>>| {
            value.as_ref().is_some_and(|value| value.len() >= 8) && version.value == *value
        };
        let seen = self.versions.iter().flat_map(|(key, versions)| {
            versions.iter().filter(|version| version.batch.is_some() && is_of(version, &found[key]))
        });
        for member in seen {
            for (key, versions) in &self.versions {
                if versions.iter().any(|version| version.batch == member.batch) {
                    let value = found[key].as_deref();
                    let may_be = self.may_be_since(key, value, member);
                    assert!(may_be, "{key} is {value:?} beside a member of {member:?}: {:?}", self.of(key));
                }
            }
        }
    }

    fn may_be_since(&self, key: &Key, value: Option<&[u8]>, member: &Version) -> bool {
        self.versions[key].iter().any(|version| {
            let is_older = version.end < member.begin;
            version.value.as_deref() == value && !is_older && version.begin != u64::MAX
        })
    }

    fn of(&self, key: &Key) -> Vec<String> {
        let versions = self.versions.get(key).map_or(&[][..], |versions| versions);
        let line = |v: &Version| {
            let value = v
                .value
                .as_ref()
                .map(|value| (value.len(), value.iter().take(8).copied().collect::<Vec<_>>()));
            format!("{}..{} {value:?}", v.begin, v.end)
        };
        versions.iter().map(line).collect()
    }
}
