//! `btree`: a copy-on-write B+-tree, after Rodeh, "B-trees, shadowing, and clones" (ACM TOS 3(4), 2008).
//!
//! ```text
//!   pages   | root slot 0 | root slot 1 | nodes and long values, anywhere ... |
//!
//!   root    | frame 32 B, sequence = number of the tree | root page u64 (all ones: none) | its number u64 |
//!           | level u32 | 0 u32 | pairs u64 |
//! ```
//!
//! A node of the last checkpoint's tree is never changed: the path from the root to it is copied (*shadowed*)
//! to new pages, and the copies are changed in memory until a checkpoint writes all of them and then the
//! older one of the two root slots. A node that was evicted from the full buffer was written before that, and
//! is shadowed again before its next change. So each page is written once per node, and every reference to a
//! page identifies the node that must be there.
//!
//! Nodes and kept trees are numbered in ascending order; a kept tree has only nodes with lower numbers. A
//! tree is cloned by keeping its root and giving it a number: that is the snapshot of a cursor.
//!
//! A leaf has room for four pairs; a longer value has pages of its own. On pages of 16 KiB the limit is 4062 B. So a value
//! of 4 KiB takes a page, and a store is full of such pairs when their values are a quarter of its bytes. It counts as full
//! then, because [`Store::space`] counts pages. A full store refuses new keys; overwrites go on.
//!
//! Rodeh counts references to nodes, because clones may be changed. Here only the newest tree changes. If a
//! page was created as number `b` and left the tree when `l` was the next number, only kept trees with
//! numbers from `b` to below `l` need it, so it is free when none of these is the last checkpoint or a
//! cursor's. None of this is stored on pages: recovery walks the tree and finds the free pages. An unreadable
//! or wrong node is lost with the nodes below it, and only these: access to such a key is an error until the store is
//! created again.
//!
//! Changed nodes stay in memory until the buffer is full; nothing is durable before a checkpoint. A sync is a
//! checkpoint. The pages alone cannot tell a root slot that was torn by a power cut from one that was lost
//! afterwards: in both cases recovery takes the tree of the other slot, unless the caller's mark says that
//! there was a newer one ([`Store::mark`]).

mod cursor;
mod node;
mod options;
mod recovery;
mod state;

use std::cell::RefCell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_declare::{Counters, Counts};
use kvdrive_nvme::Key;

use crate::StoreRow;
use crate::cpu::{FifoLock, Step, Thread};
use crate::frame::{self, Facts, Kind};
use crate::pages::{Page, PageId, Purpose};
use crate::store::{
    Applied, Cursor, Ground, MAX_VALUE_BYTES, Recovered, Space, Store, StoreError, StoreRequest,
};
use crate::value::{Part, StoredValue, Value};
use node::{Elsewhere, Item, MOST_RUNS, Node, NodeAt};
pub use options::BtreeOptions;
use state::{BtreeState, FREE_AFTER_REPEATS, FREE_FOR_DELETES, Frame, Need, ROOT_SLOTS};

/// The store's row.
pub const ROW: StoreRow = StoreRow {
    name: "btree",
    about: "copy-on-write B+-tree with a write-back buffer (Rodeh; SAKER's Tree-store)",
    sections: &["ftl", "store", "btree"],
    reclaims: &[],
    steps: &[
        Step::CopyByte,
        Step::ChecksumByte,
        Step::MergeEntry,
        Step::NodeSearch,
        Step::NodeInsert,
        Step::Shadow,
        Step::Split,
    ],
    check: |options, page_bytes, pages, _threads| options.btree.check(page_bytes, pages),
    fit: |_, _, _, _| (),
    layout: |_| Vec::new(),
    log_segment_pages: |_, _| None,
    read_cache: None,
    background: |_| None,
    make: |options, ground| Rc::new(Btree(Rc::new(Tree::new(&options.btree, ground)))),
};

/// Number of pages written at a time.
const WRITES_AT_ONCE: usize = 64;

/// The store.
struct Btree(Rc<Tree>);

/// State shared by the store and its cursors.
struct Tree {
    ground: Ground,
    options: BtreeOptions,
    state: RefCell<BtreeState>,
    /// Serialises the writers of the tree.
    writers: FifoLock,
}

/// The new item of a key; `None` deletes it.
type ItemChange = (Key, Option<Item>);

impl Tree {
    fn new(options: &BtreeOptions, ground: Ground) -> Tree {
        let state = RefCell::new(BtreeState::new(ground.pages.page_bytes()));
        Tree { ground, options: options.clone(), state, writers: FifoLock::default() }
    }

    fn page_bytes(&self) -> u32 {
        self.ground.pages.page_bytes()
    }

    /// Calls `call` again until every node it needs is in memory.
    fn with_nodes<T>(
        &self,
        thread: Thread,
        why: Purpose,
        mut call: impl FnMut(&mut BtreeState) -> Result<T, Need>,
    ) -> Result<Option<T>, StoreError> {
        loop {
            let answer = call(&mut self.state.borrow_mut());
            match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(Need::Room) => return Ok(None),
                Err(Need::Node(at, level)) => self.load(thread, at, level, why)?,
            }
        }
    }

    /// Loads a node into memory. One caller reads it; other callers that need it wait.
    fn load(&self, thread: Thread, at: NodeAt, level: u32, why: Purpose) -> Result<(), StoreError> {
        let page = at.page;
        if self.state.borrow().lost.contains(&page) {
            return Err(StoreError::Damaged { page, what: "was lost when the store started".into() });
        }
        if !self.state.borrow_mut().loading.insert(page) {
            self.ground.cpu.wait(thread);
            return Ok(());
        }
        let mut out = Vec::with_capacity(1);
        let read = self.ground.pages.read(thread, page, 1, why, &mut out);
        self.ground.cpu.work(thread, &[(Step::ChecksumByte, self.page_bytes().into())]);
        let mut state = self.state.borrow_mut();
        state.loading.remove(&page);
        self.ground.cpu.wake();
        read?;
        let node = Node::from_page(&state.format, &out[0], at, level)?;
        state.counters.loaded_nodes += 1;
        state.buffer.put(page, Frame { node: Rc::new(node), is_dirty: false });
        Ok(())
    }

    /// Largest number of nodes in memory.
    fn most_nodes(&self) -> usize {
        (self.options.buffer_bytes / u64::from(self.page_bytes())) as usize
    }

    /// Evicts unchanged nodes to make room, after a reader has loaded some.
    fn drop_clean_nodes(&self) {
        let mut state = self.state.borrow_mut();
        while state.buffer.len() > self.most_nodes() && !state.is_gathering {
            let clean = state.buffer.iter().rev().take(WRITES_AT_ONCE).find(|(_, frame)| !frame.is_dirty);
            let Some(page) = clean.map(|(page, _)| *page) else { return };
            state.buffer.pop(&page);
        }
    }

    /// Shrinks the buffer to its size; the caller has the writers' turn.
    fn shrink_buffer(&self, thread: Thread) -> Result<(), StoreError> {
        while self.state.borrow().buffer.len() > self.most_nodes() {
            let oldest: Vec<PageId> = {
                let state = self.state.borrow();
                let oldest = state.buffer.iter().rev().take(WRITES_AT_ONCE);
                oldest.filter(|(_, frame)| frame.is_dirty).map(|(page, _)| *page).collect()
            };
            self.state.borrow_mut().counters.evicted_nodes += oldest.len() as u64;
            self.write_nodes(thread, oldest, Purpose::Node)?;
            let mut state = self.state.borrow_mut();
            for _ in 0..WRITES_AT_ONCE {
                let is_clean = state.buffer.peek_lru().is_some_and(|(_, frame)| !frame.is_dirty);
                if state.buffer.len() <= self.most_nodes() || !is_clean {
                    break;
                }
                state.buffer.pop_lru();
            }
        }
        Ok(())
    }

    /// Writes changed nodes; no node changes in the meantime.
    fn write_nodes(&self, thread: Thread, mut nodes: Vec<PageId>, why: Purpose) -> Result<(), StoreError> {
        nodes.sort_unstable();
        let pages: Vec<(PageId, Page)> = {
            let state = self.state.borrow();
            let encode = |page: &PageId| {
                let frame = state.buffer.peek(page)?;
                Some((*page, frame.node.to_page(&state.format, *page)))
            };
            nodes.iter().filter_map(encode).collect()
        };
        let bytes = pages.len() as u64 * u64::from(self.page_bytes());
        self.ground.cpu.work(thread, &[(Step::CopyByte, bytes), (Step::ChecksumByte, bytes)]);
        self.write_pages(thread, &pages, why)?;
        let mut state = self.state.borrow_mut();
        for (page, _) in pages {
            // A cursor that closed may have freed it.
            if let Some(frame) = state.buffer.peek_mut(&page)
                && std::mem::take(&mut frame.is_dirty)
            {
                state.dirty -= 1;
            }
        }
        Ok(())
    }

    /// Writes pages in order, neighbours in one run, all concurrently.
    fn write_pages(&self, thread: Thread, pages: &[(PageId, Page)], why: Purpose) -> Result<(), StoreError> {
        let mut under_way = Vec::new();
        let mut result = Ok(());
        for run in pages.chunk_by(|(a, _), (b, _)| a.plus(1) == *b) {
            let contents: Vec<Page> = run.iter().map(|(_, page)| page.clone()).collect();
            match self.ground.pages.start_write(thread, run[0].0, &contents, why) {
                Ok(writing) => under_way.push(writing),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for writing in under_way {
            result = result.and(self.ground.pages.finish_write(thread, writing));
        }
        result.map_err(StoreError::from)
    }

    /// Makes the present tree durable, if it is not; the caller has the writers' turn.
    fn checkpoint(&self, thread: Thread) -> Result<(), StoreError> {
        if !self.state.borrow().is_changed {
            return Ok(());
        }
        let kept = self.state.borrow_mut().keep();
        loop {
            let dirty: Vec<PageId> = {
                let state = self.state.borrow();
                let dirty = state.buffer.iter().filter(|(_, frame)| frame.is_dirty).map(|(page, _)| *page);
                dirty.take(WRITES_AT_ONCE * 16).collect()
            };
            if dirty.is_empty() {
                break;
            }
            self.write_nodes(thread, dirty, Purpose::Checkpoint)?;
        }
        self.ground.pages.flush(thread, Purpose::Checkpoint)?;
        self.write_root(thread, &kept)?;
        let mut state = self.state.borrow_mut();
        (state.is_changed, state.changed_bytes) = (false, 0);
        state.counters.checkpoints += 1;
        Ok(())
    }

    /// Writes a tree whose nodes are durable to the older root slot, and makes that durable.
    fn write_root(&self, thread: Thread, kept: &state::KeptTree) -> Result<(), StoreError> {
        let slot = PageId((self.state.borrow().durable_slot.0 + 1) % ROOT_SLOTS);
        let page = root_page(self.page_bytes(), slot, kept);
        let written = self.ground.pages.write(thread, slot, &[page], Purpose::Checkpoint);
        let durable = written.and_then(|()| self.ground.pages.flush(thread, Purpose::Checkpoint));
        let mut state = self.state.borrow_mut();
        if let Err(error) = durable {
            // It is unknown whether the slot has the new tree, so the tree's pages stay.
            state.snapshots.insert(kept.generation);
            return Err(error.into());
        }
        (state.durable, state.durable_slot) = (kept.generation, slot);
        state.reclaim();
        Ok(())
    }

    /// Makes room once; if it is called a second time, returns an error.
    fn make_room(&self, thread: Thread, is_second: bool) -> Result<(), StoreError> {
        if is_second {
            let is_held = self.state.borrow().is_held();
            return Err(if is_held { StoreError::HeldByCursors } else { StoreError::Full });
        }
        self.checkpoint(thread)
    }

    /// Writes a value that is too long for a leaf, and leaves room for the leaf and `keep` pages; the caller
    /// has the writers' turn. A value that replaces one of as many pages needs its pages until the next checkpoint only,
    /// so it may use pages that are kept for deletes: a full store can be overwritten.
    fn write_long(
        &self,
        thread: Thread,
        key: &Key,
        value: &Value<'_>,
        keep: u64,
    ) -> Result<Elsewhere, StoreError> {
        let pages = node::overflow_count(self.page_bytes(), value.bytes());
        let least_kept = |state: &BtreeState| FREE_AFTER_REPEATS + u64::from(state.root.level + 1);
        let mut kept = self.state.borrow().most_pages() + keep;
        let mut is_second = false;
        let at = loop {
            if self.state.borrow().free.pages() < u64::from(pages) + kept {
                let replaced = self.item(thread, key)?;
                if matches!(replaced, Some(Item::Elsewhere(old)) if old.pages() >= pages) {
                    kept = kept.min(least_kept(&self.state.borrow()));
                }
            }
            let taken = {
                let mut state = self.state.borrow_mut();
                let fits = state.free.pages() >= u64::from(pages) + kept;
                let runs = if fits { state.free.take_runs(pages, MOST_RUNS) } else { None };
                runs.map(|runs| Elsewhere { born: state.number(), bytes: value.bytes(), runs })
            };
            match taken {
                Some(at) => break at,
                None => self.make_room(thread, is_second)?,
            }
            is_second = true;
        };
        let pages = node::overflow_pages(self.page_bytes(), value, &at);
        for some in pages.chunks(WRITES_AT_ONCE) {
            if let Err(error) = self.write_pages(thread, some, Purpose::Overflow) {
                self.release_item(&Item::Elsewhere(at));
                return Err(error);
            }
        }
        Ok(at)
    }

    fn release_item(&self, item: &Item) {
        if let Item::Elsewhere(at) = item {
            let mut state = self.state.borrow_mut();
            at.runs.iter().for_each(|run| state.release(*run, at.born));
        }
    }

    /// The item for a value.
    fn item_of(&self, thread: Thread, key: &Key, value: &Value<'_>, keep: u64) -> Result<Item, StoreError> {
        if value.bytes() <= self.state.borrow().inline_bytes(key) {
            return Ok(Item::Value(StoredValue::of(value)));
        }
        self.write_long(thread, key, value, keep).map(Item::Elsewhere)
    }

    /// Applies several changes as one; the caller has the writers' turn. Changes that make the tree larger
    /// leave `keep` pages free.
    fn change_all(&self, thread: Thread, changes: &[ItemChange], keep: u64) -> Result<(), StoreError> {
        let mut is_second = false;
        let is_batch = changes.len() > 1;
        let replaced = loop {
            self.state.borrow_mut().is_gathering = is_batch;
            let done = self.with_nodes(thread, Purpose::Node, |state| {
                if let [(key, item)] = changes {
                    return Ok(vec![state.change(key, item.clone(), keep, false)?]);
                }
                changes.iter().try_for_each(|(key, _)| state.has_path(key))?;
                state.change_all(changes, keep)
            });
            self.state.borrow_mut().is_gathering = false;
            match done? {
                Some(replaced) => break replaced,
                None => self.make_room(thread, is_second)?,
            }
            is_second = true;
        };
        replaced.iter().flatten().for_each(|item| self.release_item(item));
        if is_batch {
            for (key, _) in changes.iter().filter(|(_, item)| item.is_none()) {
                // If an empty leaf cannot be removed, it stays and does no harm.
                if self.with_nodes(thread, Purpose::Node, |state| state.prune(key)).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], keep: u64) -> Result<(), StoreError> {
        let (mut copied, most) = (0, MAX_VALUE_BYTES);
        for (key, value) in batch.iter().map(StoreRequest::parts) {
            let bytes = value.map_or(0, |value| value.bytes());
            if bytes > most {
                return Err(StoreError::ValueTooLong { bytes, most });
            }
            copied += key.len() as u64 + u64::from(bytes);
        }
        let before = self.state.borrow().counters;
        {
            let _turn = self.writers.take(&self.ground.cpu, thread);
            let mut changes: Vec<ItemChange> = Vec::with_capacity(batch.len());
            for (key, value) in batch.iter().map(StoreRequest::parts) {
                let item = value.map(|value| self.item_of(thread, &key, &value, keep)).transpose();
                match item {
                    Ok(item) => changes.push((key, item)),
                    Err(error) => {
                        changes.iter().flat_map(|(_, item)| item).for_each(|item| self.release_item(item));
                        return Err(error);
                    }
                }
            }
            if let Err(error) = self.change_all(thread, &changes, keep) {
                changes.iter().flat_map(|(_, item)| item).for_each(|item| self.release_item(item));
                return Err(error);
            }
            self.shrink_buffer(thread)?;
            if self.state.borrow().changed_bytes >= self.options.checkpoint_bytes {
                self.checkpoint(thread)?;
            }
        }
        let (after, levels) = {
            let state = self.state.borrow();
            (state.counters, u64::from(state.root.level + 1))
        };
        let (shadows, splits) =
            (after.shadowed_nodes - before.shadowed_nodes, after.split_nodes - before.split_nodes);
        let searches = levels * batch.len() as u64;
        let steps = [
            (Step::NodeSearch, searches),
            (Step::NodeInsert, batch.len() as u64),
            (Step::Shadow, shadows),
            (Step::Split, splits),
            (Step::CopyByte, copied),
        ];
        self.ground.cpu.work(thread, &steps);
        Ok(())
    }

    /// The item of a key in the present tree.
    fn item(&self, thread: Thread, key: &Key) -> Result<Option<Item>, StoreError> {
        let leaf = self.with_nodes(thread, Purpose::Lookup, |state| {
            let root = state.root;
            state.leaf(&root, key)
        })?;
        self.drop_clean_nodes();
        Ok(leaf.flatten().and_then(|leaf| leaf.find(key).ok().map(|index| leaf.entries[index].1.clone())))
    }

    fn get(&self, thread: Thread, key: &Key) -> Result<Option<StoredValue>, StoreError> {
        let levels = u64::from(self.state.borrow().root.level + 1);
        self.ground.cpu.work(thread, &[(Step::NodeSearch, levels)]);
        let mut item = self.item(thread, key)?;
        loop {
            let at = match item {
                Some(Item::Elsewhere(at)) => at,
                Some(Item::Value(value)) => return Ok(Some(value)),
                _ => return Ok(None),
            };
            let value = self.read_long(thread, &at, Purpose::Lookup);
            // If the key has another value by now, the pages may have been reused.
            item = self.item(thread, key)?;
            if matches!(&item, Some(Item::Elsewhere(now)) if *now == at) {
                return value.map(Some);
            }
        }
    }

    /// Reads a value from its own pages.
    fn read_long(&self, thread: Thread, at: &Elsewhere, why: Purpose) -> Result<StoredValue, StoreError> {
        let page_bytes = self.page_bytes();
        let body = page_bytes - frame::FRAME_BYTES;
        let (mut parts, mut missing) = (Vec::new(), at.bytes);
        for run in &at.runs {
            let mut pages = Vec::with_capacity(run.pages as usize);
            self.ground.pages.read(thread, run.first, run.pages, why, &mut pages)?;
            for (number, page) in (run.first.0..).map(PageId).zip(pages) {
                let facts = frame::open(&page, number, page_bytes)?;
                if facts != node::overflow_facts(at) {
                    let what = "is not the expected part of a value".into();
                    return Err(StoreError::Damaged { page: number, what });
                }
                let bytes = missing.min(body);
                missing -= bytes;
                parts.push(Part { page, at: frame::FRAME_BYTES, bytes });
            }
        }
        self.ground.cpu.work(thread, &[(Step::ChecksumByte, at.bytes.into())]);
        Ok(StoredValue::of_parts(parts))
    }
}

/// The page of a root slot.
fn root_page(page_bytes: u32, slot: PageId, kept: &state::KeptTree) -> Page {
    let mut region = Region::new();
    let mut head = [0; (frame::FRAME_BYTES + ROOT_BYTES) as usize];
    let (own, node) = (&mut head[frame::FRAME_BYTES as usize..], kept.root.node);
    own[..8].copy_from_slice(&node.map_or(u64::MAX, |node| node.page.0).to_le_bytes());
    own[8..16].copy_from_slice(&node.map_or(0, |node| node.born).to_le_bytes());
    own[16..20].copy_from_slice(&kept.root.level.to_le_bytes());
    own[24..32].copy_from_slice(&kept.root.pairs.to_le_bytes());
    region.write(0, Piece::Bytes(&head));
    let head_bytes = frame::FRAME_BYTES + ROOT_BYTES;
    let facts = Facts { kind: Kind::Root, head_bytes, count: 1, sequence: kept.generation };
    frame::seal(&mut region, slot, page_bytes, facts);
    Rc::new(region)
}

/// Bytes of a root slot after the frame.
const ROOT_BYTES: u32 = 32;

impl Store for Btree {
    fn recover_from(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        self.0.recover(thread, mark)
    }

    fn mark(&self) -> Vec<u8> {
        self.0.state.borrow().durable.to_le_bytes().to_vec()
    }

    fn put(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Put(key, value)], FREE_FOR_DELETES)
    }

    fn put_again(&self, thread: Thread, key: Key, value: Value<'_>) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Put(key, value)], FREE_AFTER_REPEATS)
    }

    fn get(&self, thread: Thread, key: Key) -> Result<Option<StoredValue>, StoreError> {
        self.0.get(thread, &key)
    }

    fn delete(&self, thread: Thread, key: Key) -> Result<(), StoreError> {
        self.0.apply(thread, &[StoreRequest::Delete(key)], FREE_FOR_DELETES)
    }

    fn apply(&self, thread: Thread, batch: &[StoreRequest<'_>], atomic: bool) -> Applied {
        if atomic {
            let error =
                if batch.is_empty() { None } else { self.0.apply(thread, batch, FREE_FOR_DELETES).err() };
            return Applied { requests: if error.is_none() { batch.len() as u32 } else { 0 }, error };
        }
        crate::store::apply_in_order(self, thread, batch)
    }

    fn cursor(&self, thread: Thread, from: Option<Key>) -> Result<Box<dyn Cursor>, StoreError> {
        Ok(Box::new(cursor::BtreeCursor::open(&self.0, thread, from)))
    }

    fn sync(&self, thread: Thread) -> Result<(), StoreError> {
        let _turn = self.0.writers.take(&self.0.ground.cpu, thread);
        self.0.checkpoint(thread)
    }

    fn max_value_bytes(&self) -> u32 {
        MAX_VALUE_BYTES
    }

    fn space(&self) -> Space {
        let state = self.0.state.borrow();
        let all = self.0.ground.pages.pages() - ROOT_SLOTS;
        let page = u64::from(self.0.page_bytes());
        let capacity_bytes = all.saturating_sub(state.most_pages() + FREE_FOR_DELETES) * page;
        Space { live_bytes: (all - state.free.pages() - state.left_pages()) * page, capacity_bytes }
    }

    fn counts(&self) -> Counts {
        let state = self.0.state.borrow();
        let shape = state::Shape {
            pairs: state.root.pairs,
            levels: if state.root.node.is_some() { u64::from(state.root.level) + 1 } else { 0 },
            free_pages: state.free.pages(),
        };
        state.counters.counts().and(&shape)
    }

    fn dram(&self) -> Counts {
        let state = self.0.state.borrow();
        state::Memory { buffer: state.buffer.len() as u64 * u64::from(self.0.page_bytes()) }.counts()
    }
}
