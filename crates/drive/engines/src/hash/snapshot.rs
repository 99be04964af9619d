//! Snapshots: the pairs of the state at its opening that a cursor has yet to return.
//!
//! The table itself is the present state. A snapshot keeps the differences: for every slot that changed since the
//! opening and that the cursor has not passed, the pair that was there, if any. A pair that a store replaced or a
//! delete removed stays valid as long as a snapshot holds it; collection moves it like any other. If a full drive has
//! no room for a change because of that, iterators are lost, the one that was not used for longest first
//! ([`crate::Engine::on_held`]); stores get 21h if a cursor cannot be given up. A power cut closes iterators.
//!
//! The differences use DRAM; a snapshot that reaches [`MOST_CHANGES`] of them is given up, and its cursor
//! reports that (7D4h).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_sim::TaskCell;

use super::layout::{Grain, Layout};
use super::pair::PairHeader;

/// Changes that one snapshot keeps: 1.5 MiB at 24 B each.
pub(super) const MOST_CHANGES: usize = 1 << 16;

/// A slot of the table: section, and slot within it.
pub(super) type TableSlot = (u64, u32);

/// The state at the opening of a cursor, from its position on.
pub(super) struct Snapshot {
    position: Cell<TableSlot>,
    /// Slots that changed since, and the pair each had.
    changed: TaskCell<BTreeMap<TableSlot, Option<Grain>>>,
    given_up: Cell<bool>,
}

/// A pair that is in no slot any more.
pub(super) struct DetachedPair {
    pub header: PairHeader,
    pub slot: TableSlot,
    /// Number of snapshots that still have to show it.
    users: u32,
}

/// Pairs that no snapshot holds any more; the caller has to invalidate them.
pub(super) type Released = Vec<(Grain, DetachedPair)>;

/// All open snapshots of an engine.
#[derive(Default)]
pub(super) struct Snapshots {
    open: TaskCell<Vec<Rc<Snapshot>>>,
    held: TaskCell<BTreeMap<Grain, DetachedPair>>,
}

impl Snapshots {
    /// A snapshot of the present state, from `position` on.
    pub fn open(&self, position: TableSlot) -> Rc<Snapshot> {
        let snapshot = Rc::new(Snapshot {
            position: Cell::new(position),
            changed: TaskCell::default(),
            given_up: Cell::new(false),
        });
        self.open.borrow_mut().push(snapshot.clone());
        snapshot
    }

    /// Are there no snapshots?
    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Notes that a slot is about to change, and `old` to leave it. `true`: a snapshot holds the pair, so it
    /// stays valid.
    #[must_use]
    pub fn note(&self, slot: TableSlot, old: Option<(Grain, &PairHeader)>) -> bool {
        let mut users = 0;
        for snapshot in self.open.borrow().iter() {
            let mut changed = snapshot.changed.borrow_mut();
            if snapshot.given_up.get() || slot < snapshot.position.get() || changed.contains_key(&slot) {
                continue;
            }
            changed.insert(slot, old.map(|(grain, _)| grain));
            users += 1;
        }
        let Some((grain, header)) = old.filter(|_| users > 0) else { return false };
        self.held.borrow_mut().insert(grain, DetachedPair { header: *header, slot, users });
        true
    }

    /// Does a snapshot hold anything that is in no slot any more?
    pub fn holds_any(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Grains of the pairs that snapshots hold.
    pub fn held_grains(&self, layout: &Layout) -> u64 {
        let grains = |held: &DetachedPair| u64::from(layout.grains_of(held.header.pair_bytes()));
        self.held.borrow().values().map(grains).sum()
    }

    /// Does a snapshot hold the pair at `grain`?
    pub fn holds(&self, grain: Grain) -> bool {
        self.held.borrow().contains_key(&grain)
    }

    /// Notes that collection has moved a held pair.
    pub fn relocate(&self, from: Grain, to: Grain) {
        let mut held = self.held.borrow_mut();
        let pair = held.remove(&from).expect("only held pairs are moved here");
        for snapshot in self.open.borrow().iter() {
            if let Some(Some(grain)) = snapshot.changed.borrow_mut().get_mut(&pair.slot)
                && *grain == from
            {
                *grain = to;
            }
        }
        held.insert(to, pair);
    }

    /// Notes that the cursor of a snapshot has passed everything before `position`.
    pub fn pass(&self, snapshot: &Snapshot, position: TableSlot) -> Released {
        snapshot.position.set(position);
        let mut changed = snapshot.changed.borrow_mut();
        let rest = changed.split_off(&position);
        self.release(std::mem::replace(&mut *changed, rest))
    }

    /// Gives up snapshots that keep too many changes.
    pub fn give_up_large(&self) -> Released {
        let mut released = Released::new();
        for snapshot in self.open.borrow().iter() {
            if snapshot.changed.borrow().len() >= MOST_CHANGES {
                snapshot.given_up.set(true);
                released.extend(self.release(snapshot.changed.take()));
            }
        }
        released
    }

    /// Closes the snapshot of a cursor.
    pub fn close(&self, snapshot: &Rc<Snapshot>) -> Released {
        self.open.borrow_mut().retain(|other| !Rc::ptr_eq(other, snapshot));
        self.release(snapshot.changed.take())
    }

    fn release(&self, changes: BTreeMap<TableSlot, Option<Grain>>) -> Released {
        let mut held = self.held.borrow_mut();
        let mut released = Released::new();
        for grain in changes.into_values().flatten() {
            let pair = held.get_mut(&grain).expect("a change's pair is held");
            pair.users -= 1;
            if pair.users == 0 {
                released.extend(held.remove_entry(&grain));
            }
        }
        released
    }
}

impl Snapshot {
    /// The previous content of a slot; `None` if it has not changed since the opening.
    pub fn before(&self, slot: TableSlot) -> Option<Option<Grain>> {
        self.changed.borrow().get(&slot).copied()
    }

    /// Adds the slots of a section, from the position on, that had pairs at the opening and have changed.
    pub fn changed_slots(&self, section: u64, slots: &mut Vec<u32>) {
        let from = self.position.get().max((section, 0));
        for ((_, slot), pair) in self.changed.borrow().range(from..(section + 1, 0)) {
            if pair.is_some() && !slots.contains(slot) {
                slots.push(*slot);
            }
        }
    }

    /// The next slot to show.
    pub fn position(&self) -> TableSlot {
        self.position.get()
    }

    /// Were there too many changes? Then the rest is lost.
    pub fn is_given_up(&self) -> bool {
        self.given_up.get()
    }
}
