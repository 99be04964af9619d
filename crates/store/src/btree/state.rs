//! The tree in memory, and all that can be done with it without waiting.
//!
//! What a call needs and is not in memory comes back as [`Need::Node`]; whoever called loads it and asks
//! again. So a change is made whole, in one go, when everything it touches is there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use kvdrive_spec::Key;
use lru::LruCache;

use super::node::{Item, Node, OWN_BYTES, entry_bytes};
use crate::frame::Kind;
use crate::pages::PageId;
use crate::records::Format;
use crate::space::{Extent, FreePages};

/// Pages 0 and 1 are the root slots.
pub const ROOT_SLOTS: u64 = 2;
/// Free pages that are left to changes that make the tree no larger: enough to shadow a path of any tree.
pub const FREE_FOR_DELETES: u64 = 24;

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

/// Why a call could not be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This node, of this level, has to be in memory.
    Node(PageId, u32),
    /// Free pages.
    Room,
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its node, if it has any.
    pub page: Option<PageId>,
    /// Its level.
    pub level: u32,
    /// Newest generation of its nodes.
    pub generation: u64,
    /// Pairs in it.
    pub pairs: u64,
}

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
    /// Those of earlier lives too: which root slot is next.
    pub checkpoints_ever: u64,
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
    /// Trees that cursors walk, by generation, and by how many.
    pub snapshots: BTreeMap<u64, u32>,
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
            root: Root { page: None, level: 0, generation: 1, pairs: 0 },
            buffer: LruCache::unbounded_with_hasher(BuildHasherDefault::default()),
            dirty: 0,
            loading: BTreeSet::new(),
            free: FreePages::default(),
            released: Vec::new(),
            durable: 0,
            snapshots: BTreeMap::new(),
            changed_bytes: 0,
            is_changed: false,
            is_gathering: false,
            counters: Counters::default(),
        }
    }

    /// Longest value that lies in a leaf: four such pairs fit.
    pub fn inline_bytes(&self) -> u32 {
        self.format.room() / 4 - crate::records::HEAD_BYTES - Key::MAX_LEN as u32
    }

    fn node(&mut self, page: PageId, level: u32) -> Result<Rc<Node>, Need> {
        let frame = self.buffer.get(&page).ok_or(Need::Node(page, level))?;
        assert_eq!(frame.node.level, level, "node {page} is where it was");
        Ok(frame.node.clone())
    }

    /// The leaf of a tree that has `key`, or where it belongs.
    pub fn leaf(&mut self, root: &Root, key: &Key) -> Result<Option<Rc<Node>>, Need> {
        let Some(mut page) = root.page else { return Ok(None) };
        for level in (1..=root.level).rev() {
            let node = self.node(page, level)?;
            page = node.child(node.child_for(key));
        }
        self.node(page, 0).map(Some)
    }

    /// The leaf of a tree with the first key at or after `from`, and the lowest key of the leaf behind it.
    pub fn leaf_from(&mut self, root: &Root, from: &Key) -> Result<(Option<Rc<Node>>, Option<Key>), Need> {
        let Some(mut page) = root.page else { return Ok((None, None)) };
        let mut next = None;
        for level in (1..=root.level).rev() {
            let node = self.node(page, level)?;
            let index = node.child_for(from);
            next = node.entries.get(index + 1).map(|(key, _)| *key).or(next);
            page = node.child(index);
        }
        Ok((Some(self.node(page, 0)?), next))
    }

    /// Pages of the nodes from the root to the leaf for `key`, all in memory, with the child taken in each.
    fn path(&mut self, key: &Key) -> Result<Vec<(PageId, usize)>, Need> {
        let mut path = Vec::with_capacity(self.root.level as usize + 1);
        let Some(mut page) = self.root.page else { return Ok(path) };
        for level in (1..=self.root.level).rev() {
            let node = self.node(page, level)?;
            let index = node.child_for(key);
            path.push((page, index));
            page = node.child(index);
        }
        self.node(page, 0)?;
        path.push((page, 0));
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

    /// Gives `key` an item, or takes it away, and returns what was there. An empty leaf stays if
    /// `may_be_empty`.
    pub fn change(
        &mut self,
        key: &Key,
        item: Option<Item>,
        may_be_empty: bool,
    ) -> Result<Option<Item>, Need> {
        let mut path = self.path(key)?;
        let leaf = path.last().map(|(page, _)| self.node(*page, 0)).transpose()?;
        let old = leaf.as_ref().and_then(|leaf| Some(&leaf.entries[leaf.find(key).ok()?].1));
        if item.is_none() && old.is_none() {
            return Ok(None);
        }
        let bytes_of = |item: Option<&Item>| item.map_or(0, |item| entry_bytes(key, item));
        let bytes = leaf.as_ref().map_or(0, |leaf| leaf.bytes) + bytes_of(item.as_ref()) - bytes_of(old);
        // What makes the tree no larger takes pages only until the next checkpoint.
        let needed = match leaf.is_some() && bytes <= self.format.room() {
            true => path.len() as u64,
            false => self.most_pages() + FREE_FOR_DELETES,
        };
        drop(leaf);
        if self.free.pages() < needed {
            return Err(Need::Room);
        }
        self.is_changed = true;
        self.changed_bytes +=
            item.as_ref().map_or(u64::from(entry_bytes(key, &Item::Child(PageId(0)))), |item| {
                u64::from(entry_bytes(key, item))
            });
        self.shadow(&mut path);
        let Some(&(page, _)) = path.last() else {
            let node = Node::new(self.root.generation, 0, vec![(*key, item.expect("deletes have a leaf"))]);
            self.root.page = Some(self.add(node));
            self.root.pairs = 1;
            return Ok(None);
        };
        let leaf = self.edit(page);
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
        let Some(&(page, _)) = path.last() else { return Ok(()) };
        if self.node(page, 0)?.entries.is_empty() {
            if self.free.pages() < self.most_pages() {
                return Err(Need::Room);
            }
            self.shadow(&mut path);
            self.remove_empty(&path);
        }
        Ok(())
    }

    /// Makes the nodes of a path such that they can be altered: those of older generations are copied.
    fn shadow(&mut self, path: &mut [(PageId, usize)]) {
        let generation = self.root.generation;
        for at in 0..path.len() {
            let (page, _) = path[at];
            let frame = self.buffer.get(&page).expect("a path is in memory");
            if frame.node.born == generation {
                continue;
            }
            let (born, is_dirty) = (frame.node.born, frame.is_dirty);
            let mut node = (*frame.node).clone();
            node.born = generation;
            // What a cursor may come back to, and no page holds, stays.
            if !is_dirty {
                self.buffer.pop(&page);
            }
            let copy = self.add(node);
            self.counters.shadows += 1;
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => self.edit(parent).entries[index].1 = Item::Child(copy),
                None => self.root.page = Some(copy),
            }
            self.release(Extent { first: page, pages: 1 }, born);
            path[at].0 = copy;
        }
    }

    /// A new node in memory, on a page of its own.
    fn add(&mut self, node: Node) -> PageId {
        let extent = self.free.take(1).expect("whoever adds nodes has asked for pages");
        self.buffer.put(extent.first, Frame { node: Rc::new(node), is_dirty: true });
        self.dirty += 1;
        extent.first
    }

    fn edit(&mut self, page: PageId) -> &mut Node {
        let frame = self.buffer.get_mut(&page).expect("what is altered is in memory");
        assert_eq!(frame.node.born, self.root.generation, "older nodes are shadowed before");
        self.dirty += usize::from(!frame.is_dirty);
        frame.is_dirty = true;
        Rc::make_mut(&mut frame.node)
    }

    /// Splits the leaf of a path, and what that makes too large above it.
    fn split(&mut self, path: &[(PageId, usize)], newest: usize) {
        let mut newest = newest;
        for at in (0..path.len()).rev() {
            let (page, _) = path[at];
            let room = self.format.room();
            let node = self.edit(page);
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
                    parent.insert(index, first, Item::Child(page));
                    parent.insert(index + 1, key, Item::Child(child));
                    newest = index + 1;
                }
                None => {
                    let children = vec![(lowest, Item::Child(page)), (key, Item::Child(child))];
                    let root = Node::new(self.root.generation, level + 1, children);
                    self.root.page = Some(self.add(root));
                    self.root.level = level + 1;
                }
            }
        }
    }

    /// Takes the empty leaf of a path out, and what that makes empty above it.
    fn remove_empty(&mut self, path: &[(PageId, usize)]) {
        for at in (0..path.len()).rev() {
            let (page, _) = path[at];
            if !self.edit(page).entries.is_empty() {
                break;
            }
            self.drop_node(page);
            match at.checked_sub(1).map(|above| path[above]) {
                Some((parent, index)) => {
                    self.edit(parent).remove(index);
                }
                None => (self.root.page, self.root.level) = (None, 0),
            }
        }
        // A root with one child is none, if that child can be told to be one here.
        while let Some(page) = self.root.page
            && self.root.level > 0
        {
            let root = self.edit(page);
            if root.entries.len() > 1 {
                break;
            }
            let child = root.child(0);
            self.drop_node(page);
            (self.root.page, self.root.level) = (Some(child), self.root.level - 1);
            let is_mine =
                self.buffer.peek(&child).is_some_and(|frame| frame.node.born == self.root.generation);
            if !is_mine {
                break;
            }
        }
    }

    /// A node of this generation is not part of the tree any more.
    fn drop_node(&mut self, page: PageId) {
        let frame = self.buffer.pop(&page).expect("what is dropped is in memory");
        self.dirty -= usize::from(frame.is_dirty);
        self.release(Extent { first: page, pages: 1 }, frame.node.born);
    }

    /// Pages have left the tree; they are free when no tree that somebody needs has them.
    pub fn release(&mut self, extent: Extent, born: u64) {
        let released = Released { extent, born, left: self.root.generation };
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

    /// The present tree for somebody who needs it as it is.
    pub fn snapshot(&mut self) -> Root {
        let root = self.root;
        *self.snapshots.entry(root.generation).or_default() += 1;
        self.root.generation += 1;
        root
    }

    /// Somebody does not need that tree any more.
    pub fn forget_snapshot(&mut self, generation: u64) {
        let count = self.snapshots.get_mut(&generation).expect("a snapshot is counted");
        *count -= 1;
        if *count == 0 {
            self.snapshots.remove(&generation);
            self.reclaim();
        }
    }
}
