//! A cursor of `btree`: iterates over the tree as it was when the cursor was opened.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::Tree;
use super::node::{Item, Node};
use super::state;
use crate::cpu::{Step, Thread};
use crate::pages::Purpose;
use crate::store::{Cursor, StoreError};
use crate::value::StoredValue;

/// Lower than every key, or that key itself.
const LOWEST: Key = match Key::from_padded([0; 16], 1) {
    Some(key) => key,
    None => unreachable!(),
};

/// Position of a cursor.
pub struct BtreeCursor {
    tree: Rc<Tree>,
    snapshot: state::KeptTree,
    /// The present leaf, and the next entry in it.
    leaf: Option<(Rc<Node>, usize)>,
    /// The key at which to continue after that leaf; `None`: it is the last one.
    next: Option<Key>,
}

impl BtreeCursor {
    /// A cursor over the present tree.
    pub fn open(tree: &Rc<Tree>, thread: Thread, from: Option<Key>) -> BtreeCursor {
        let snapshot = tree.state.borrow_mut().snapshot();
        let levels = u64::from(snapshot.root.level + 1);
        let walk =
            BtreeCursor { tree: tree.clone(), snapshot, leaf: None, next: Some(from.unwrap_or(LOWEST)) };
        tree.ground.cpu.work(thread, &[(Step::NodeSearch, levels)]);
        walk
    }
}

impl Cursor for BtreeCursor {
    fn next(&mut self, thread: Thread) -> Result<Option<(Key, StoredValue)>, StoreError> {
        loop {
            if let Some((leaf, at)) = &mut self.leaf
                && let Some((key, item)) = leaf.entries.get(*at)
            {
                let value = match item {
                    Item::Value(value) => value.clone(),
                    Item::Elsewhere(elsewhere) => self.tree.read_long(thread, elsewhere, Purpose::Cursor)?,
                    Item::Child(child) => unreachable!("a leaf has no child {child:?}"),
                };
                *at += 1;
                return Ok(Some((*key, value)));
            }
            let Some(from) = self.next else { return Ok(None) };
            let found = self
                .tree
                .with_nodes(thread, Purpose::Cursor, |state| state.leaf_from(&self.snapshot.root, &from))?;
            self.tree.drop_clean_nodes();
            let (leaf, next) = found.unwrap_or_default();
            self.leaf = leaf.map(|leaf| {
                let at = leaf.entries.partition_point(|(key, _)| *key < from);
                (leaf, at)
            });
            self.next = next;
        }
    }
}

impl Drop for BtreeCursor {
    fn drop(&mut self) {
        self.tree.state.borrow_mut().forget_snapshot(self.snapshot.generation);
    }
}
