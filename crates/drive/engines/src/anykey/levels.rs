//! Which groups there are: lists that are never altered, and replaced as a whole when a piece of work ends.
//!
//! A lookup or cursor clones the `Rc` of the lists that it began with; that is its pin on every group in them.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::group::{GroupId, Member};

/// The groups of one level.
#[derive(Clone, Default)]
pub struct Level {
    /// In the order of their keys; no two share a key.
    pub groups: Vec<Member>,
    /// Groups with a page that cannot be read, newest first. They are older than the other groups of the level. They
    /// stay, so that nobody gets an older version of a key that they may have.
    pub scars: Vec<Member>,
}

impl Level {
    /// The group that may have the key.
    pub fn at(&self, key: &Key) -> Option<usize> {
        let at = self.groups.partition_point(|member| member.group.facts.highest < *key);
        self.groups.get(at).filter(|member| member.covers(key)).map(|_| at)
    }

    /// The group to which the key goes: the last one that begins at or before it, or the first.
    pub fn owner(&self, key: &Key) -> usize {
        self.groups.partition_point(|member| member.group.facts.lowest <= *key).saturating_sub(1)
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.scars.is_empty()
    }

    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.groups.iter().chain(&self.scars)
    }

    fn sort(&mut self) {
        self.groups.sort_by_key(|member| member.group.facts.lowest);
        self.scars.sort_by_key(|member| std::cmp::Reverse(member.id()));
    }
}

/// All groups at one moment.
#[derive(Clone)]
pub struct Version {
    /// Level 1 first.
    pub levels: Vec<Rc<Level>>,
}

/// A change of the lists.
#[derive(Default)]
pub struct Edit {
    /// New groups, with the level of all of them.
    pub added: Vec<Member>,
    pub to: usize,
    pub dropped: Vec<GroupId>,
    /// A group whose keys up to this one have gone on.
    pub trimmed: Option<(GroupId, Key)>,
    /// A group that goes to level `to`.
    pub moved: Option<GroupId>,
    /// A group that becomes a scar of its level.
    pub scarred: Option<GroupId>,
}

impl Version {
    pub fn new(levels: u32) -> Version {
        Version { levels: (0..levels).map(|_| Rc::default()).collect() }
    }

    /// Every group.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.levels.iter().flat_map(|level| level.all())
    }

    /// Is there nothing below `level`, and no scar in it? What is deleted there need not be remembered.
    pub fn is_bottom(&self, level: usize) -> bool {
        self.levels[level].scars.is_empty() && self.levels[level + 1..].iter().all(|below| below.is_empty())
    }

    /// The lists after a change.
    pub fn changed(&self, edit: &Edit) -> Version {
        let mut version = self.clone();
        let mut moved = Vec::new();
        let has_left = |id: GroupId| edit.dropped.contains(&id) || edit.moved == Some(id);
        for (number, level) in version.levels.iter_mut().enumerate() {
            let is_named = |member: &Member| {
                let id = member.id();
                has_left(id)
                    || edit.scarred == Some(id)
                    || edit.trimmed.is_some_and(|(trimmed, _)| trimmed == id)
            };
            if number != edit.to && !level.all().any(is_named) {
                continue;
            }
            let level = Rc::make_mut(level);
            moved.extend(level.groups.iter().filter(|member| edit.moved == Some(member.id())).cloned());
            level.groups.retain(|member| !has_left(member.id()));
            if let Some((id, after)) = edit.trimmed
                && let Some(member) = level.groups.iter_mut().find(|member| member.id() == id)
            {
                member.after = Some(after);
            }
            if let Some(at) = level.groups.iter().position(|member| edit.scarred == Some(member.id())) {
                let member = level.groups.remove(at);
                level.scars.push(member);
                level.sort();
            }
        }
        if !edit.added.is_empty() || !moved.is_empty() {
            let level = Rc::make_mut(&mut version.levels[edit.to]);
            level.groups.extend(edit.added.iter().cloned());
            level.groups.extend(moved);
            level.sort();
        }
        version
    }
}
