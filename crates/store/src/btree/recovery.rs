//! Recovery of `btree`: the newest root slot, and a walk through its tree to find out which pages are free.

use kvdrive_content::Region;

use super::Tree;
use super::node::{Item, Node};
use super::state::{ROOT_SLOTS, Root};
use crate::cpu::{Step, Thread};
use crate::frame::{self, Kind};
use crate::pages::{PageId, Purpose};
use crate::space::Extent;
use crate::store::{Recovered, StoreError};

/// Highest level of a tree that is not damaged: with two children a node, it has more leaves than pages.
const MOST_LEVELS: u32 = 48;

/// The root that a slot holds.
fn read_root(region: &Region, slot: PageId, page_bytes: u32) -> Result<Root, StoreError> {
    let facts = frame::expect(region, slot, page_bytes, Kind::Root)?;
    let head = frame::heads_of(region, frame::FRAME_BYTES + super::ROOT_BYTES);
    let word = |at: usize| {
        let at = frame::FRAME_BYTES as usize + at;
        u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
    };
    let level = word(8) as u32;
    if level > MOST_LEVELS {
        return Err(StoreError::Damaged { page: slot, what: format!("has a root of level {level}") });
    }
    let page = (word(0) != u64::MAX).then(|| PageId(word(0)));
    Ok(Root { page, level, generation: facts.sequence, pairs: word(16) })
}

impl Tree {
    pub(super) fn recover(&self, thread: Thread) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let mut roots = Vec::new();
        for slot in (0..ROOT_SLOTS).map(PageId) {
            recovered.pages += 1;
            match self.ground.read_unless_torn(thread, slot)? {
                Some(page) if frame::is_blank(&page) => {}
                Some(page) => match read_root(&page, slot, self.page_bytes()) {
                    Ok(root) => roots.push((root, slot)),
                    Err(_) => recovered.torn_pages += 1,
                },
                None => recovered.torn_pages += 1,
            }
        }
        let pages = self.ground.pages.pages();
        {
            let mut state = self.state.borrow_mut();
            state.free.give(Extent { first: PageId(ROOT_SLOTS), pages: (pages - ROOT_SLOTS) as u32 });
        }
        let newest = roots.iter().max_by_key(|(root, _)| root.generation).copied();
        if let Some((root, slot)) = newest {
            if let Some(page) = root.page {
                self.walk(thread, page, root.level, root.generation, &mut recovered)?;
            }
            let mut state = self.state.borrow_mut();
            state.durable = root.generation;
            state.root = Root { generation: root.generation + 1, ..root };
            // The next checkpoint goes to the other slot.
            state.counters.checkpoints_ever = slot.0 + 1;
        } else if recovered.torn_pages == ROOT_SLOTS {
            return Err(StoreError::Damaged {
                page: PageId(0),
                what: "and its twin are no roots of a tree".into(),
            });
        }
        Ok(recovered)
    }

    /// Claims the pages of a node and of all below it.
    fn walk(
        &self,
        thread: Thread,
        page: PageId,
        level: u32,
        newest: u64,
        recovered: &mut Recovered,
    ) -> Result<(), StoreError> {
        self.claim(Extent { first: page, pages: 1 }, page)?;
        let mut out = Vec::with_capacity(1);
        self.ground.pages.read(thread, page, 1, Purpose::Recovery, &mut out)?;
        recovered.pages += 1;
        let format = self.state.borrow().format;
        let node = Node::from_page(&format, &out[0], page, level)?;
        if node.born > newest {
            let what = format!("is a node of generation {}, its tree is of {newest}", node.born);
            return Err(StoreError::Damaged { page, what });
        }
        self.ground.cpu.work(thread, &[(Step::MergeEntry, node.entries.len() as u64)]);
        for (_, item) in &node.entries {
            match item {
                Item::Child(child) => self.walk(thread, *child, level - 1, node.born, recovered)?,
                Item::Elsewhere(at) => at.runs.iter().try_for_each(|run| self.claim(*run, page))?,
                Item::Value(_) => {}
            }
        }
        Ok(())
    }

    fn claim(&self, extent: Extent, from: PageId) -> Result<(), StoreError> {
        if extent.first.0 < ROOT_SLOTS || !self.state.borrow_mut().free.claim(extent) {
            let what = format!("points to page {}, which is not its own", extent.first);
            return Err(StoreError::Damaged { page: from, what });
        }
        Ok(())
    }
}
