//! The tree in memory, and all that can be done with it without waiting.
//!
//! What a call needs and is not in memory comes back as [`Need::Node`]; whoever called loads it and asks
//! again. So a change is made whole, in one go, when everything it touches is there.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use kvdrive_spec::Key;
use lru::LruCache;

use super::node::{Item, Node, NodeAt, OWN_BYTES, entry_bytes};
use crate::frame::Kind;
use crate::pages::PageId;
use crate::records::{Format, HEAD_BYTES};
use crate::space::{Extent, FreePages};

/// Pages 0 and 1 are the root slots.
pub const ROOT_SLOTS: u64 = 2;
/// Free pages that are left to changes that make the tree no larger: enough to shadow a path of any tree.
pub const FREE_FOR_DELETES: u64 = 24;
/// Of these, what is left by pairs that had their place before a cut of power.
pub const FREE_BEHIND_REPEATS: u64 = 8;

/// Hashes page numbers.
#[derive(Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A node in memory.
pub struct Frame {
    /// The node; a cursor may share it.
    pub node: Rc<Node>,
    /// Its page does not hold it.
    pub is_dirty: bool,
}

impl Frame {
    /// May it be altered? Not if the last tree that was kept has it; nor if its page holds it, for a page is
    /// written once for a number.
    fn may_be_altered(&self, last_kept: u64) -> bool {
        self.is_dirty && self.node.born > last_kept
    }
}

/// Why a call could not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This node, of this level, has to be in memory.
    Node(NodeAt, u32),
    /// Free pages.
    Room,
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Its node, if it has any.
    pub node: Option<NodeAt>,
    /// Its level.
    pub level: u32,
    /// Pairs in it.
    pub pairs: u64,
}

/// A tree that somebody needs as it is: all of its nodes have lower numbers, all that were made later higher
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub generation: u64,
    /// Where it begins.
    pub root: Root,
}

/// Numbers of nodes and trees: the life of the store, and a count within it. What a life wrote after its last
/// checkpoint is on pages that the next one takes for free; with another life in its number it is never
/// taken for one of the next.
const LIFE_SHIFT: u32 = 40;
/// No store has lived so often.
pub const MOST_NUMBER: u64 = 1 << 62;

/// Pages that the tree has left and somebody may still need.
struct Released {
    extent: Extent,
    born: u64,
    left: u64,
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Nodes copied because an older tree needs them as they are.
    pub shadows: u64,
    /// Nodes that became two.
    pub splits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Nodes written because the buffer was full.
    pub evicted: u64,
    /// Nodes read.
    pub loaded: u64,
}

/// All of it.
pub struct State {
    /// How nodes lie on pages.
    pub format: Format,
    /// The present tree.
    pub root: Root,
    /// The last number that a node or a kept tree was given.
    last_number: u64,
    /// Number of the last tree that was kept.
    last_kept: u64,
    /// Nodes that recovery could not read, and children of theirs are not known: what is on these pages does
    /// not count, even if they can be read later.
    pub lost: BTreeSet<PageId>,
    /// Nodes in memory, by page, least recently used last.
    pub buffer: LruCache<PageId, Frame, BuildHasherDefault<PageHasher>>,
    /// How many of them are dirty.
    pub dirty: usize,
    /// Nodes that are being read.
    pub loading: BTreeSet<PageId>,
    /// Pages nobody uses.
    pub free: FreePages,
    released: Vec<Released>,
    /// Generation of the tree in the newest root slot.
    pub durable: u64,
    /// Which slot that is.
    pub durable_slot: PageId,
    /// Trees that cursors walk, by generation.
    pub snapshots: BTreeSet<u64>,
    /// Bytes of pairs changed since the last checkpoint.
    pub changed_bytes: u64,
    /// Something was changed since.
    pub is_changed: bool,
    /// A batch brings nodes into memory and needs all of them at once.
    pub is_gathering: bool,
    /// Counts.
    pub counters: Counters,
}

impl State {
    /// An empty tree.
    pub fn new(page_bytes: u32) -> State {
        State {
            format: Format::new(page_bytes, OWN_BYTES, Kind::Leaf),
            root: Root::default(),
            last_number: 0,
            last_kept: 0,
            lost: BTreeSet::new(),
            buffer: LruCache::unbounded_with_hasher(BuildHasherDefault::default()),
            dirty: 0,
            loading: BTreeSet::new(),
            free: FreePages::default(),
            released: Vec::new(),
            durable: 0,
            durable_slot: PageId(ROOT_SLOTS - 1),
            snapshots: BTreeSet::new(),
            changed_bytes: 0,
            is_changed: false,
            is_gathering: false,
            counters: Counters::default(),
        }
    }

    /// Longest value that lies in a leaf: four such pairs fit.
    pub fn inline_bytes(&self) -> u32 {
        self.format.room() / 4 - HEAD_BYTES - Key::MAX_LEN as u32
    }

    /// A number that nothing else has.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// A life begins behind one that gave out `last`.
    pub fn begin_life(&mut self, last: u64) {
        self.last_number = ((last >> LIFE_SHIFT) + 1) << LIFE_SHIFT;
    }

    /// The present tree, for somebody who needs it as it is.
    pub fn keep(&mut self) -> Kept {
        self.last_kept = self.number();
        Kept { generation: self.last_kept, root: self.root }
    }

    fn node(&mut self, at: NodeAt, level: u32) -> Result<Rc<Node>, Need> {
        let frame = self.buffer.get(&at.page).ok_or(Need::Node(at, level))?;
        let found = (frame.node.born, frame.node.level);
        assert_eq!(found, (at.born, level), "node {} is where it was", at.page);
        Ok(frame.node.clone())
    }

    /// The leaf of a tree that has `key`, or where it belongs.
    pub fn leaf(&mut self, root: &Root, key: &Key) -> Result<Option<Rc<Node>>, Need> {
        let Some(mut at) = root.node else { return Ok(None) };
        for level in (1..=root.level).rev() {
            let node = self.node(at, level)?;
            at = node.child(node.child_for(key));
        }
        self.node(at, 0).map(Some)
    }

    /// The leaf of a tree with the first key at or after `from`, and the lowest key of the leaf behind it.
    pub fn leaf_from(&mut self, root: &Root, from: &Key) -> Result<(Option<Rc<Node>>, Option<Key>), Need> {
        let Some(mut at) = root.node else { return Ok((None, None)) };
        let mut next = None;
        for level in (1..=root.level).rev() {
            let node = self.node(at, level)?;
            let index = node.child_for(from);
            next = node.entries.get(index + 1).map(|(key, _)| *key).or(next);
            at = node.child(index);
        }
        Ok((Some(self.node(at, 0)?), next))
    }

    /// The nodes from the root to the leaf for `key`, all in memory, with the child taken in each.
    fn path(&mut self, key: &Key) -> Result<Vec<(NodeAt, usize)>, Need> {
        let mut path = Vec::with_capacity(self.root.level as usize + 1);
        let Some(mut at) = self.root.node else { return Ok(path) };
        for level in (1..=self.root.level).rev() {
            let node = self.node(at, level)?;
            let index = node.child_for(key);
            path.push((at, index));
            at = node.child(index);
        }
        self.node(at, 0)?;
        path.push((at, 0));
        Ok(path)
    }

    /// Are all nodes on the way to `key` in memory?
    pub fn has_path(&mut self, key: &Key) -> Result<(), Need> {
        self.path(key).map(|_| ())
    }

    /// Pages that a change may take at most: each level once shadowed and once split, and a new root.
    pub fn most_pages(&self) -> u64 {
        2 * u64::from(self.root.level + 1) + 1
    }

    /// Pages that the nodes of a path are copied to before they can be altered.
    fn pages_to_shadow(&self, path: &[(NodeAt, usize)]) -> u64 {
        let is_as_kept = |(at, _): &&(NodeAt, usize)| {
            !self.buffer.peek(&at.page).expect("a path is in memory").may_be_altered(self.last_kept)
        };
        path.iter().filter(is_as_kept).count() as u64
    }

    /// As [`State::change`] of several, all of which have their paths in memory, or of none: what was done is undone
    /// where the next has no room. Returns what was there.
    pub fn change_all(
        &mut self,
        changes: &[(Key, Option<Item>)],
        keep: u64,
    ) -> Result<Vec<Option<Item>>, Need> {
        let mut replaced = Vec::with_capacity(changes.len());
        for (key, item) in changes {
            match self.change(key, item.clone(), keep, true) {
                Ok(old) => replaced.push(old),
                Err(Need::Node(at, _)) => {
                    panic!("a path to {key:?} was in memory, and node {} is not", at.page)
                }
                Err(Need::Room) => {
                    // That takes no pages: the nodes were altered a moment ago, and what they had fits again.
                    for ((key, _), old) in changes.iter().zip(replaced).rev() {
                        self.change(key, old, 0, true).expect("what was just altered can be altered back");
                    }
                    // Leaves that splits had made may be empty; one that cannot be taken out does no harm.
                    for (key, _) in changes {
                        let _ = self.prune(key);
                    }
                    return Err(Need::Room);
                }
            }
        }
        Ok(replaced)
    }

    /// Gives `key` an item, or takes it away, and returns what was there. A change that makes the tree larger leaves
    /// `keep` pages free. An empty leaf stays if `may_be_empty`.
    pub fn change(
        &mut self,
        key: &Key,
        item: Option<Item>,
        keep: u64,
        may_be_empty: bool,
    ) -> Result<Option<Item>, Need> {
        let mut path = self.path(key)?;
        let leaf = path.last().map(|(at, _)| self.node(*at, 0)).transpose()?;
        let old = leaf.as_ref().and_then(|leaf| Some(&leaf.entries[leaf.find(key).ok()?].1));
        if item.is_none() && old.is_none() {
            return Ok(None);
        }
        let bytes_of = |item: Option<&Item>| item.map_or(0, |item| entry_bytes(key, item));
        let bytes = leaf.as_ref().map_or(0, |leaf| leaf.bytes) + bytes_of(item.as_ref()) - bytes_of(old);
        // What makes the tree no larger takes pages only until the next checkpoint.
        let needed = match leaf.is_some() && bytes <= self.format.room() {
            true => self.pages_to_shadow(&path),
            false => self.most_pages() + keep,
        };
        drop(leaf);
        if self.free.pages() < needed {
            return Err(Need::Room);
        }
        self.is_changed = true;
        let head_bytes = HEAD_BYTES + key.len() as u32;
        self.changed_bytes += u64::from(item.as_ref().map_or(head_bytes, |item| entry_bytes(key, item)));
        self.shadow(&mut path);
        let Some(&(at, _)) = path.last() else {
            let node = Node::new(0, vec![(*key, item.expect("deletes have a leaf"))]);
            self.root.node = Some(self.add(node));
            self.root.pairs = 1;
            return Ok(None);
        };
        let leaf = self.edit(at);
        let old = match item {
            Some(item) => {
                let old = leaf.set(*key, item);
                let newest = leaf.find(key).expect("it was just put");
                let is_too_large = leaf.bytes > self.format.room();
                self.root.pairs += u64::from(old.is_none());
                if is_too_large {
                    self.split(&path, newest);
                }
                old
            }
            None => {
                let index = leaf.find(key).expect("it was found before");
                let old = leaf.remove(index);
                let is_empty = leaf.entries.is_empty();
                self.root.pairs -= 1;
                if is_empty && !may_be_empty {
                    self.remove_empty(&path);
                }
                Some(old)
            }
        };
        Ok(old)
    }

    /// Takes the leaf for `key` out if it is empty; a batch of deletes leaves such.
    pub fn prune(&mut self, key: &Key) -> Result<(), Need> {
        let mut path = self.path(key)?;
        let Some(&(at, _)) = path.last() else { return Ok(()) };
        if self.node(at, 0)?.entries.is_empty() {
            if self.free.pages() < self.pages_to_shadow(&path) {
                return Err(Need::Room);
            }
            self.shadow(&mut path);
            self.remove_empty(&path);
        }
        Ok(())
    }

    /// Makes the nodes of a path such that they can be altered: others are copied.
    fn shadow(&mut self, path: &mut [(NodeAt, usize)]) {
        for at in 0..path.len() {
            let (old, _) = path[at];
            let frame = self.buffer.peek(&old.page).expect("a path is in memory");
            if frame.may_be_altered(self.last_kept) {
                continue;
            }
            let (node, is_dirty) = (frame.node.clone(), frame.is_dirty);
            // What a cursor may come back to, and no page holds, stays.
            if !is_dirty {
                self.buffer.pop(&old.page);
            }
            let copy = self.add(Rc::unwrap_or_clone(node));
            self.counters.shadows += 1;
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => self.edit(parent).entries[index].1 = Item::Child(copy),
                None => self.root.node = Some(copy),
            }
            self.release(Extent { first: old.page, pages: 1 }, old.born);
            path[at].0 = copy;
        }
    }

    /// A new node in memory, on a page of its own and with a number of its own.
    fn add(&mut self, node: Node) -> NodeAt {
        let extent = self.free.take(1).expect("whoever adds nodes has asked for pages");
        let born = self.number();
        let node = Rc::new(Node { born, ..node });
        self.buffer.put(extent.first, Frame { node, is_dirty: true });
        self.dirty += 1;
        NodeAt { page: extent.first, born }
    }

    fn edit(&mut self, at: NodeAt) -> &mut Node {
        let last_kept = self.last_kept;
        let frame = self.buffer.get_mut(&at.page).expect("what is altered is in memory");
        let is_shadowed = frame.node.born == at.born && frame.may_be_altered(last_kept);
        assert!(is_shadowed, "node {} is shadowed before it is altered", at.page);
        Rc::make_mut(&mut frame.node)
    }

    /// Splits the leaf of a path, and what that makes too large above it.
    fn split(&mut self, path: &[(NodeAt, usize)], newest: usize) {
        let mut newest = newest;
        for at in (0..path.len()).rev() {
            let (lower, _) = path[at];
            let room = self.format.room();
            let node = self.edit(lower);
            if node.bytes <= room {
                return;
            }
            let upper = node.split(newest);
            let (level, key) = (upper.level, upper.entries[0].0);
            let lowest = node.entries[0].0;
            let child = self.add(upper);
            self.counters.splits += 1;
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => {
                    let parent = self.edit(parent);
                    // Keys below that of the first child come to it, too; its new neighbour may begin with one.
                    let first = parent.entries[index].0.min(lowest);
                    parent.remove(index);
                    parent.insert(index, first, Item::Child(lower));
                    parent.insert(index + 1, key, Item::Child(child));
                    newest = index + 1;
                }
                None => {
                    let children = vec![(lowest, Item::Child(lower)), (key, Item::Child(child))];
                    self.root.node = Some(self.add(Node::new(level + 1, children)));
                    self.root.level = level + 1;
                }
            }
        }
    }

    /// Takes the empty leaf of a path out, and what that makes empty above it.
    fn remove_empty(&mut self, path: &[(NodeAt, usize)]) {
        for at in (0..path.len()).rev() {
            let (node, _) = path[at];
            if !self.edit(node).entries.is_empty() {
                break;
            }
            self.drop_node(node);
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => {
                    self.edit(parent).remove(index);
                }
                None => (self.root.node, self.root.level) = (None, 0),
            }
        }
        // A root with one child is none, if that child can be told to be one here.
        while let Some(at) = self.root.node
            && self.root.level > 0
        {
            let root = self.edit(at);
            if root.entries.len() > 1 {
                break;
            }
            let child = root.child(0);
            self.drop_node(at);
            (self.root.node, self.root.level) = (Some(child), self.root.level - 1);
            let child = self.buffer.peek(&child.page);
            if !child.is_some_and(|child| child.may_be_altered(self.last_kept)) {
                break;
            }
        }
    }

    /// A node that may be altered is not part of the tree any more.
    fn drop_node(&mut self, at: NodeAt) {
        let frame = self.buffer.pop(&at.page).expect("what is dropped is in memory");
        self.dirty -= usize::from(frame.is_dirty);
        self.release(Extent { first: at.page, pages: 1 }, at.born);
    }

    /// Pages have left the tree; they are free when no tree that somebody needs has them.
    pub fn release(&mut self, extent: Extent, born: u64) {
        let released = Released { extent, born, left: self.last_number + 1 };
        if self.is_needed(&released) { self.released.push(released) } else { self.free_pages(extent) }
    }

    fn is_needed(&self, released: &Released) -> bool {
        let trees = released.born..released.left;
        trees.contains(&self.durable) || self.snapshots.range(trees).next().is_some()
    }

    fn free_pages(&mut self, extent: Extent) {
        for page in extent.first.0..extent.end() {
            if let Some(frame) = self.buffer.pop(&PageId(page)) {
                self.dirty -= usize::from(frame.is_dirty);
            }
        }
        self.free.give(extent);
    }

    /// Frees what nobody needs any more: a checkpoint is durable, or a cursor closed.
    pub fn reclaim(&mut self) {
        let (kept, free) =
            std::mem::take(&mut self.released).into_iter().partition(|pages| self.is_needed(pages));
        self.released = kept;
        free.into_iter().for_each(|pages: Released| self.free_pages(pages.extent));
    }

    /// Pages that the tree has left and that are not free yet.
    pub fn left_pages(&self) -> u64 {
        self.released.iter().map(|released| u64::from(released.extent.pages)).sum()
    }

    /// Would there be more free pages without cursors?
    pub fn is_held(&self) -> bool {
        !self.snapshots.is_empty() && !self.released.is_empty()
    }

    /// The present tree for a cursor.
    pub fn snapshot(&mut self) -> Kept {
        let kept = self.keep();
        self.snapshots.insert(kept.generation);
        kept
    }

    /// A cursor does not need that tree any more.
    pub fn forget_snapshot(&mut self, generation: u64) {
        assert!(self.snapshots.remove(&generation), "a snapshot is forgotten once");
        self.reclaim();
    }
}
