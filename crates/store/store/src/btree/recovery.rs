//! Recovery of `btree`: reads the newest root slot, and walks its tree to find the free pages.

use kvdrive_content::Region;

use super::Tree;
use super::node::{Item, Node, NodeAt};
use super::state::{KeptTree, MOST_NUMBER, ROOT_SLOTS, Root};
use crate::cpu::{Step, Thread};
use crate::frame::{self, Kind};
use crate::pages::{PageId, Purpose};
use crate::space::Extent;
use crate::store::{Recovered, StoreError, mark_number};

/// Highest level of an undamaged tree: with two children per node, it would have more leaves than pages.
const MOST_LEVELS: u32 = 48;

/// Decodes the tree of a slot.
fn read_root(region: &Region, slot: PageId, page_bytes: u32) -> Result<KeptTree, StoreError> {
    let facts = frame::expect(region, slot, page_bytes, Kind::Root)?;
    let head = frame::heads_of(region, frame::FRAME_BYTES + super::ROOT_BYTES);
    let word = |at: usize| {
        let at = frame::FRAME_BYTES as usize + at;
        u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
    };
    let level = word(16) as u32;
    if level > MOST_LEVELS || facts.sequence >= MOST_NUMBER {
        let what = format!("has a root of level {level} in tree {}", facts.sequence);
        return Err(StoreError::Damaged { page: slot, what });
    }
    let node = (word(0) != u64::MAX).then(|| NodeAt { page: PageId(word(0)), born: word(8) });
    Ok(KeptTree { generation: facts.sequence, root: Root { node, level, pairs: word(24) } })
}

impl Tree {
    pub(super) fn recover(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let mut roots = Vec::new();
        for slot in (0..ROOT_SLOTS).map(PageId) {
            recovered.pages += 1;
            match self.ground.read_unless_torn(thread, slot)? {
                Some(page) if frame::is_blank(&page) => {}
                Some(page) => match read_root(&page, slot, self.page_bytes()) {
                    Ok(kept) => roots.push((kept, slot)),
                    Err(error) => {
                        error.unless_torn::<()>()?;
                        recovered.torn_pages += 1;
                    }
                },
                None => recovered.torn_pages += 1,
            }
        }
        let pages = self.ground.pages.pages();
        {
            let mut state = self.state.borrow_mut();
            state.free.give(Extent { first: PageId(ROOT_SLOTS), pages: (pages - ROOT_SLOTS) as u32 });
        }
        let newest = roots.iter().max_by_key(|(kept, _)| kept.generation).copied();
        if newest.is_none() && recovered.torn_pages == ROOT_SLOTS {
            let what = "has no root of a tree, and neither has page 1".into();
            return Err(StoreError::Damaged { page: PageId(0), what });
        }
        let generation = newest.map_or(0, |(kept, _)| kept.generation);
        if generation < mark_number(mark) {
            let what = format!(
                "the newest tree here and on page 1 is {generation}; tree {} was durable",
                mark_number(mark)
            );
            return Err(StoreError::Damaged { page: PageId(0), what });
        }
        if let Some((kept, slot)) = newest {
            if let Some(node) = kept.root.node {
                self.walk(thread, node, kept.root.level, generation, &mut recovered)?;
            }
            let mut state = self.state.borrow_mut();
            (state.durable, state.durable_slot, state.root) = (generation, slot, kept.root);
        }
        let kept = {
            let mut state = self.state.borrow_mut();
            state.begin_life(generation);
            state.keep()
        };
        // This is the first write, so that no later life reuses the number.
        self.write_root(thread, &kept)?;
        Ok(recovered)
    }

    /// Claims the pages of a node and of all nodes below it. `newest`: the upper limit of their numbers.
    fn walk(
        &self,
        thread: Thread,
        at: NodeAt,
        level: u32,
        newest: u64,
        recovered: &mut Recovered,
    ) -> Result<(), StoreError> {
        self.claim(Extent { first: at.page, pages: 1 }, at.page)?;
        if at.born >= newest {
            let what = format!("should have node {}; nodes of its tree have numbers below {newest}", at.born);
            return Err(StoreError::Damaged { page: at.page, what });
        }
        recovered.pages += 1;
        let node = match self.read_node(thread, at, level) {
            Ok(node) => node,
            Err(error) if error.is_about_content() => {
                recovered.lost_pages += 1;
                self.state.borrow_mut().lost.insert(at.page);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.ground.cpu.work(thread, &[(Step::MergeEntry, node.entries.len() as u64)]);
        for (_, item) in &node.entries {
            match item {
                Item::Child(child) => self.walk(thread, *child, level - 1, newest, recovered)?,
                Item::Elsewhere(value) => value.runs.iter().try_for_each(|run| self.claim(*run, at.page))?,
                Item::Value(_) => {}
            }
        }
        Ok(())
    }

    fn read_node(&self, thread: Thread, at: NodeAt, level: u32) -> Result<Node, StoreError> {
        let mut out = Vec::with_capacity(1);
        self.ground.pages.read(thread, at.page, 1, Purpose::Recovery, &mut out)?;
        let format = self.state.borrow().format;
        Node::from_page(&format, &out[0], at, level)
    }

    fn claim(&self, extent: Extent, from: PageId) -> Result<(), StoreError> {
        if extent.first.0 < ROOT_SLOTS || !self.state.borrow_mut().free.claim(extent) {
            let what = format!("refers to page {}, which it cannot own", extent.first);
            return Err(StoreError::Damaged { page: from, what });
        }
        Ok(())
    }
}
