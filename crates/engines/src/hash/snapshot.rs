//! Snapshots: what cursors still have to show of the state at their creation.
//!
//! The table itself is the state of now. A snapshot keeps what differs: for every slot that changed since its
//! creation and that its cursor has not passed, the pair that was there, if one was. A pair that a store
//! replaced or a delete removed stays valid for as long as a snapshot holds it; collection moves it like any
//! other. An iterator that stays open on a full drive therefore makes stores answer 21h where its end would
//! make room for them, and power loss ends it.
//!
//! Changes take DRAM; a snapshot that has [`MOST_CHANGES`] of them is given up, and its cursor says so
//! (7D4h).

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

/// The state at a cursor's creation, from its position on.
pub(super) struct Snapshot {
    position: Cell<TableSlot>,
    /// Slots that changed since, and the pair each had.
    changed: TaskCell<BTreeMap<TableSlot, Option<Grain>>>,
    given_up: Cell<bool>,
}

/// A pair that is in no slot any more.
pub(super) struct Held {
    pub header: PairHeader,
    pub slot: TableSlot,
    /// Snapshots that still have to show it.
    users: u32,
}

/// Pairs that nobody holds any more, for their owner to invalidate.
pub(super) type Released = Vec<(Grain, Held)>;

/// All open snapshots of an engine.
#[derive(Default)]
pub(super) struct Snapshots {
    open: TaskCell<Vec<Rc<Snapshot>>>,
    held: TaskCell<BTreeMap<Grain, Held>>,
}

impl Snapshots {
    /// The state of now, from `position` on.
    pub fn open(&self, position: TableSlot) -> Rc<Snapshot> {
        let snapshot = Rc::new(Snapshot {
            position: Cell::new(position),
            changed: TaskCell::default(),
            given_up: Cell::new(false),
        });
        self.open.borrow_mut().push(snapshot.clone());
        snapshot
    }

    /// Is nobody looking?
    pub fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// A slot is about to change, and `old` to leave it. `true`: the pair stays valid, a snapshot holds it.
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
        self.held.borrow_mut().insert(grain, Held { header: *header, slot, users });
        true
    }

    /// Does a snapshot hold anything that is in no slot any more?
    pub fn holds_any(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Grains of the pairs that snapshots hold.
    pub fn held_grains(&self, layout: &Layout) -> u64 {
        let grains = |held: &Held| u64::from(layout.grains_of(held.header.pair_bytes()));
        self.held.borrow().values().map(grains).sum()
    }

    /// Does a snapshot hold the pair at `grain`?
    pub fn holds(&self, grain: Grain) -> bool {
        self.held.borrow().contains_key(&grain)
    }

    /// Collection has moved a held pair.
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

    /// The cursor of a snapshot has passed everything before `position`.
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

    /// The cursor is gone.
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
    /// What was in a slot: `None` if it has not changed since.
    pub fn before(&self, slot: TableSlot) -> Option<Option<Grain>> {
        self.changed.borrow().get(&slot).copied()
    }

    /// Adds the slots of a section, from the position on, that had pairs which are not there any more.
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

    /// Did too much change? Then the rest is lost.
    pub fn is_given_up(&self) -> bool {
        self.given_up.get()
    }
}
