//! The tree in memory, and all operations on it that do not wait.
//!
//! If a node that an operation needs is not in memory, it returns [`Need::Node`]; the caller loads the node
//! and repeats the operation. So a change is made as a whole once every node it touches is in memory.

use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use kvdrive_declare::Counters;
use kvdrive_nvme::Key;
use lru::LruCache;

use super::node::{Item, Node, NodeAt, OWN_BYTES, entry_bytes};
use crate::frame::Kind;
use crate::pages::PageId;
use crate::records::{Format, HEAD_BYTES, head_bytes};
use crate::space::{Extent, FreePages};

/// Pages 0 and 1 are the root slots.
pub const ROOT_SLOTS: u64 = 2;
/// Free pages reserved for changes that do not make the tree larger: enough to shadow a path of any tree.
pub const FREE_FOR_DELETES: u64 = 24;
/// The part of these pages that puts repeated after a power cut leave free.
pub const FREE_AFTER_REPEATS: u64 = 8;

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
    /// The page does not have the node's present content.
    pub is_dirty: bool,
}

impl Frame {
    /// May the node be changed? No if it belongs to the last kept tree, or if its page contains it, since a
    /// page is written once per number.
    fn may_be_altered(&self, last_kept: u64) -> bool {
        self.is_dirty && self.node.born > last_kept
    }
}

/// Why an operation could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This node, of this level, must be in memory.
    Node(NodeAt, u32),
    /// Free pages.
    Room,
}

/// The root of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// Its node, if it has any.
    pub node: Option<NodeAt>,
    /// Its level.
    pub level: u32,
    /// Pairs in it.
    pub pairs: u64,
}

/// A tree that must not change: all of its nodes have lower numbers, and all nodes created later have higher
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTree {
    /// Its number.
    pub generation: u64,
    /// Its root.
    pub root: Root,
}

/// A number of a node or tree consists of the life of the store and a count within the life. Pages that a
/// life wrote after its last checkpoint count as free in the next life; because of the number, such a page is
/// never taken for a page of a later life.
const LIFE_SHIFT: u32 = 40;
/// Upper limit of valid numbers.
pub const MOST_NUMBER: u64 = 1 << 62;

/// Pages that have left the tree and that a kept tree may still need.
struct Released {
    extent: Extent,
    born: u64,
    left: u64,
}

/// Counts since the store was made.
#[derive(Clone, Copy, Debug, Default, Counters)]
pub struct StoreCounters {
    /// Nodes copied because an older tree needs them unchanged.
    pub shadowed_nodes: u64,
    /// Nodes split.
    pub split_nodes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Nodes written because the buffer was full.
    pub evicted_nodes: u64,
    /// Nodes read from pages.
    pub loaded_nodes: u64,
}

/// The state of the tree.
#[derive(Counters)]
#[counters(state)]
pub struct Shape {
    /// Pairs in the store.
    pub pairs: u64,
    /// Levels of the tree.
    pub levels: u64,
    /// Pages that the store does not use.
    pub free_pages: u64,
}

/// Memory of the store.
#[derive(Counters)]
#[counters(state, unit = Bytes)]
pub struct Memory {
    /// Nodes in the buffer.
    pub buffer: u64,
}

/// The state of the store.
pub struct BtreeState {
    /// Layout of nodes on pages.
    pub format: Format,
    /// The present tree.
    pub root: Root,
    /// The last number given to a node or a kept tree.
    last_number: u64,
    /// Number of the last tree that was kept.
    last_kept: u64,
    /// Nodes that recovery could not read, so that their children are unknown: these pages stay lost, even if
    /// they can be read later.
    pub lost: BTreeSet<PageId>,
    /// Nodes in memory, by page, least recently used last.
    pub buffer: LruCache<PageId, Frame, BuildHasherDefault<PageHasher>>,
    /// Number of dirty nodes in memory.
    pub dirty: usize,
    /// Nodes that are being read.
    pub loading: BTreeSet<PageId>,
    /// Free pages.
    pub free: FreePages,
    released: Vec<Released>,
    /// Generation of the tree in the newest root slot.
    pub durable: u64,
    /// The slot of that tree.
    pub durable_slot: PageId,
    /// Trees used by cursors, by generation.
    pub snapshots: BTreeSet<u64>,
    /// Bytes of pairs changed since the last checkpoint.
    pub changed_bytes: u64,
    /// Has anything changed since the last checkpoint?
    pub is_changed: bool,
    /// A batch is loading nodes, and needs all of them at once.
    pub is_gathering: bool,
    /// Counts.
    pub counters: StoreCounters,
}

impl BtreeState {
    /// An empty tree.
    pub fn new(page_bytes: u32) -> BtreeState {
        BtreeState {
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
            counters: StoreCounters::default(),
        }
    }

    /// Longest value of a key in a leaf: four such pairs fit.
    pub fn inline_bytes(&self, key: &Key) -> u32 {
        let least = HEAD_BYTES + Key::IDENTITY_BYTES as u32;
        (self.format.room() / 4).saturating_sub(head_bytes(key).max(least))
    }

    /// A new unique number.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Starts a life after one whose last number was `last`.
    pub fn begin_life(&mut self, last: u64) {
        self.last_number = ((last >> LIFE_SHIFT) + 1) << LIFE_SHIFT;
    }

    /// Keeps the present tree unchanged.
    pub fn keep(&mut self) -> KeptTree {
        self.last_kept = self.number();
        KeptTree { generation: self.last_kept, root: self.root }
    }

    fn node(&mut self, at: NodeAt, level: u32) -> Result<Rc<Node>, Need> {
        let frame = self.buffer.get(&at.page).ok_or(Need::Node(at, level))?;
        let found = (frame.node.born, frame.node.level);
        assert_eq!(found, (at.born, level), "node {} is where it was", at.page);
        Ok(frame.node.clone())
    }

    /// The leaf of a tree that contains `key` or would contain it.
    pub fn leaf(&mut self, root: &Root, key: &Key) -> Result<Option<Rc<Node>>, Need> {
        let Some(mut at) = root.node else { return Ok(None) };
        for level in (1..=root.level).rev() {
            let node = self.node(at, level)?;
            at = node.child(node.child_for(key));
        }
        self.node(at, 0).map(Some)
    }

    /// The leaf of a tree with the first key at or after `from`, and the lowest key of the next leaf.
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

    /// Most pages that a change may take: each level shadowed once and split once, and a new root.
    pub fn most_pages(&self) -> u64 {
        2 * u64::from(self.root.level + 1) + 1
    }

    /// Number of pages for copies of a path's nodes before they can be changed.
    fn pages_to_shadow(&self, path: &[(NodeAt, usize)]) -> u64 {
        let is_as_kept = |(at, _): &&(NodeAt, usize)| {
            !self.buffer.peek(&at.page).expect("a path is in memory").may_be_altered(self.last_kept)
        };
        path.iter().filter(is_as_kept).count() as u64
    }

    /// As [`BtreeState::change`] for several changes, all of whose paths are in memory; all are made or none: if
    /// one has no room, those before it are undone. Returns the previous items.
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
                    // This takes no pages: the nodes were changed just before, and their previous items fit
                    // again.
                    for ((key, _), old) in changes.iter().zip(replaced).rev() {
                        self.change(key, old, 0, true).expect("what was just altered can be altered back");
                    }
                    // Splits may leave empty leaves; one that cannot be removed does no harm.
                    for (key, _) in changes {
                        let _ = self.prune(key);
                    }
                    return Err(Need::Room);
                }
            }
        }
        Ok(replaced)
    }

    /// Sets or removes the item of `key` and returns the previous one. A change that makes the tree larger
    /// leaves `keep` pages free. An empty leaf stays if `may_be_empty`.
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
        // A change that does not make the tree larger takes pages only until the next checkpoint.
        let needed = match leaf.is_some() && bytes <= self.format.room() {
            true => self.pages_to_shadow(&path),
            false => self.most_pages() + keep,
        };
        drop(leaf);
        if self.free.pages() < needed {
            return Err(Need::Room);
        }
        self.is_changed = true;
        let head_bytes = head_bytes(key);
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

    /// Removes the leaf for `key` if it is empty; a batch of deletes leaves such leaves.
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

    /// Makes the nodes of a path changeable by copying those that are not.
    fn shadow(&mut self, path: &mut [(NodeAt, usize)]) {
        for at in 0..path.len() {
            let (old, _) = path[at];
            let frame = self.buffer.peek(&old.page).expect("a path is in memory");
            if frame.may_be_altered(self.last_kept) {
                continue;
            }
            let (node, is_dirty) = (frame.node.clone(), frame.is_dirty);
            // A node that is not on its page, and that a cursor may return to, stays in memory.
            if !is_dirty {
                self.buffer.pop(&old.page);
            }
            let copy = self.add(Rc::unwrap_or_clone(node));
            self.counters.shadowed_nodes += 1;
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => self.edit(parent).entries[index].1 = Item::Child(copy),
                None => self.root.node = Some(copy),
            }
            self.release(Extent { first: old.page, pages: 1 }, old.born);
            path[at].0 = copy;
        }
    }

    /// A new node in memory, with a page and a number of its own.
    fn add(&mut self, node: Node) -> NodeAt {
        let extent = self.free.take(1).expect("the caller has reserved pages for new nodes");
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

    /// Splits the leaf of a path, and the nodes above it that become too large.
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
            self.counters.split_nodes += 1;
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => {
                    let parent = self.edit(parent);
                    // Keys below the first child's key belong to that child, too; its new neighbour may begin
                    // with one.
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

    /// Removes the empty leaf of a path, and the nodes above it that become empty.
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
        // A root with one child is replaced by that child, if the child is in memory.
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

    /// Removes a changeable node that has left the tree.
    fn drop_node(&mut self, at: NodeAt) {
        let frame = self.buffer.pop(&at.page).expect("what is dropped is in memory");
        self.dirty -= usize::from(frame.is_dirty);
        self.release(Extent { first: at.page, pages: 1 }, at.born);
    }

    /// Releases pages that have left the tree; they are free when no kept tree has them.
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

    /// Frees pages that are not needed any more, after a checkpoint became durable or a cursor was closed.
    pub fn reclaim(&mut self) {
        let (kept, free) =
            std::mem::take(&mut self.released).into_iter().partition(|pages| self.is_needed(pages));
        self.released = kept;
        free.into_iter().for_each(|pages: Released| self.free_pages(pages.extent));
    }

    /// Pages that have left the tree and are not free yet.
    pub fn left_pages(&self) -> u64 {
        self.released.iter().map(|released| u64::from(released.extent.pages)).sum()
    }

    /// Would there be more free pages without cursors?
    pub fn is_held(&self) -> bool {
        !self.snapshots.is_empty() && !self.released.is_empty()
    }

    /// Keeps the present tree for a cursor.
    pub fn snapshot(&mut self) -> KeptTree {
        let kept = self.keep();
        self.snapshots.insert(kept.generation);
        kept
    }

    /// Releases the tree of a cursor.
    pub fn forget_snapshot(&mut self, generation: u64) {
        assert!(self.snapshots.remove(&generation), "a snapshot is forgotten once");
        self.reclaim();
    }
}
