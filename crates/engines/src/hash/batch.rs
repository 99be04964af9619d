//! Atomic batches: first a slot is found for every pair, then all pairs are appended and all slots set, in one
//! step in which nobody waits.
//!
//! ```text
//!   room in the write buffer for all pairs ─► keys ─► plan: a slot for each, sections held
//!   room for altered sections, a superblock, the slots still free?      else: plan again
//!   append all, set and empty slots                                     one step
//! ```
//!
//! Nobody comes between two changes of that step: no reader, no collection, no power cut, and the records it
//! makes are written to files together. So nothing has to be marked, and recovery knows no batches.
//!
//! Two new pairs of a batch may want the same slot. The second one goes on along its probe sequence, past the
//! slot that the first will have ([`Plan::passed`]), as if it came behind it.

use std::collections::BTreeSet;

use kvdrive_link::Landing;
use kvdrive_sim::TaskCell;
use kvdrive_spec::batch::BATCH_REQUESTS_MAX;
use kvdrive_spec::identify::AtomicLimits;
use kvdrive_spec::{Key, Status};

use super::commands::{HashEngine, Place};
use super::core::{Aim, Core, PairRead, Spot, Walk};
use super::layout::Grain;
use super::pair::PairHeader;
use super::section::{Entry, Probe};
use super::snapshot::TableSlot;
use crate::{Change, newest};

/// A key, and its value that has arrived; `None` deletes.
type Arrived = (Key, Option<Place>);

/// What a batch will do to slots.
#[derive(Default)]
struct Plan {
    points: Vec<Point>,
    /// Slots that pairs of the batch take, besides those that their keys have.
    taken: BTreeSet<TableSlot>,
    /// Where a pair of the batch finds no slot behind the others.
    passed: Vec<Spot>,
}

/// A slot that a batch alters.
struct Point {
    /// Which of the batch's pairs comes there, or leaves.
    index: usize,
    spot: Spot,
    slot: u32,
    /// The pair of the same key that is there.
    old: Option<PairHeader>,
}

impl Plan {
    /// A slot of a spot that is neither used nor taken.
    fn vacancy(&self, spot: &Spot) -> Option<u32> {
        spot.pin.vacancy_besides(spot.tag, &|slot| self.taken.contains(&(spot.section, slot)))
    }

    /// Is it as when it was made, as far as it matters? The batch's own keys are locked.
    fn holds(&self) -> bool {
        let mut new = self.points.iter().filter(|point| point.old.is_none());
        new.all(|point| !matches!(point.spot.pin.get(point.slot), Entry::At(_)))
            && self.passed.iter().all(|spot| self.vacancy(spot).is_none())
    }

    /// Bytes that altered sections may grow by when it is carried out.
    fn altered_bytes(&self, core: &Core) -> u64 {
        let spots = self.points.iter().map(|point| &point.spot).chain(&self.passed);
        let sections: BTreeSet<u64> = spots.map(|spot| spot.section).collect();
        sections.len() as u64 * u64::from(core.layout.unit_bytes)
    }
}

impl HashEngine {
    /// [`crate::Engine::atomic_batches`]: of what the largest may take, half is for what its values take and half
    /// for the ends of grains.
    pub(super) fn batch_limits(&self) -> Option<AtomicLimits> {
        let core = &*self.0;
        let grain_bytes = u64::from(core.layout.grain_bytes);
        // It takes one superblock at most, and comes into the write buffer beside unfinished values.
        let superblock = u64::from(core.layout.superblock_grains) * grain_bytes;
        let half = superblock.min(core.config.unfinished_bytes(&core.layout)) / 2;
        // Each may alter a section.
        let requests =
            (half / grain_bytes).min(core.altered_limit_bytes() / u64::from(core.layout.unit_bytes));
        let requests = requests.min(BATCH_REQUESTS_MAX.into()) as u32;
        let bytes = half.min(core.max_value_bytes.into()) as u32;
        (requests > 0).then_some(AtomicLimits { requests, bytes })
    }

    /// [`crate::Engine::commit_all`].
    pub(super) fn commit_batch(&self, changes: Vec<Change>) -> Result<(), Status> {
        let core = &*self.0;
        let place = |key: Key, value: Vec<u8>| {
            let place = self.place(key, value.len() as u32);
            (place, value)
        };
        let places: Vec<_> = newest(changes)
            .into_iter()
            .map(|(key, value)| (key, value.map(|value| place(key, value))))
            .collect();
        let room_bytes =
            places.iter().flat_map(|(_, place)| place).map(|(place, _)| place.room_bytes()).sum();
        // For all of them at once: batches that wait for each other's would wait for ever.
        core.space.host_room(room_bytes);
        let arrive = |(place, value): (Place, Vec<u8>)| {
            if !value.is_empty() {
                self.copy_in(&place, 0, &value);
            }
            place
        };
        let arrived: Vec<Arrived> = places.into_iter().map(|(key, place)| (key, place.map(arrive))).collect();
        // Everybody who holds several keys takes them in this order.
        let _keys: Vec<_> = arrived.iter().map(|(key, _)| core.locks.lock(*key)).collect();
        let result = self.try_commit_batch(&arrived);
        for place in arrived.into_iter().filter_map(|(_, place)| place) {
            match result {
                // The room comes back when the pages have been programmed.
                Ok(()) => self.recycle_place(place),
                Err(_) => self.abandon(place),
            }
        }
        result
    }

    fn try_commit_batch(&self, arrived: &[Arrived]) -> Result<(), Status> {
        let core = &*self.0;
        // Deletes alone come through where stores find no room.
        let stores = arrived.iter().any(|(_, place)| place.is_some());
        let places = || arrived.iter().filter_map(|(_, place)| place.as_ref());
        let new = places().map(|place| core.layout.grains_of(place.pair_bytes())).sum();
        loop {
            if stores {
                core.admit()?;
            }
            core.space.map_room();
            let plan = self.plan(arrived)?;
            let altered_bytes = plan.altered_bytes(core);
            if altered_bytes > core.altered_limit_bytes() {
                return Err(Status::CAPACITY_EXCEEDED);
            }
            let has_room = core.cache.make_altered_room(altered_bytes);
            let may_go =
                if stores { has_room && !core.space.is_stalled() } else { core.space.has_map_room() };
            if !may_go || !plan.holds() {
                continue;
            }
            let replaced = plan.points.iter().filter_map(|point| point.old);
            core.check_room(new, replaced.map(|old| core.layout.grains_of(old.pair_bytes())).sum())?;
            let grains = self.carry_out(arrived, &plan);
            drop(plan);
            if core.config.omissions.wait_for_program {
                grains.into_iter().for_each(|grain| core.space.page_programmed(core.layout.page(grain)));
            }
            return Ok(());
        }
    }

    /// Looks for a slot for each pair.
    fn plan(&self, arrived: &[Arrived]) -> Result<Plan, Status> {
        let core = &*self.0;
        let mut plan = Plan::default();
        for (index, (key, place)) in arrived.iter().enumerate() {
            let aim = if place.is_some() { Aim::Store } else { Aim::Read };
            let (spot, slot, old) = match core.walk(key, aim)? {
                Walk::Found(spot, slot, PairRead { header, .. }) => (spot, slot, Some(header)),
                Walk::Absent(_) if place.is_none() => continue,
                Walk::Absent(None) => return Err(Status::CAPACITY_EXCEEDED),
                Walk::Absent(Some(spot)) => {
                    let (spot, slot) = self.free_slot(key, spot, &mut plan)?;
                    plan.taken.insert((spot.section, slot));
                    (spot, slot, None)
                }
            };
            plan.points.push(Point { index, spot, slot, old });
        }
        Ok(plan)
    }

    /// The first slot for a new pair that no other of the batch takes, from `spot` on along its probe sequence.
    fn free_slot(&self, key: &Key, mut spot: Spot, plan: &mut Plan) -> Result<(Spot, u32), Status> {
        let core = &*self.0;
        loop {
            if let Some(slot) = plan.vacancy(&spot) {
                return Ok((spot, slot));
            }
            let number = spot.probe.checked_add(1).filter(|next| u32::from(*next) < core.config.max_probes);
            let number = number.ok_or(Status::CAPACITY_EXCEEDED)?;
            plan.passed.push(spot);
            let Probe { section, tag } = core.probe(key, number);
            spot = core.spot(Probe { section, tag }, number)?;
        }
    }

    /// Does it all, in one step. Returns where the pairs lie.
    fn carry_out(&self, arrived: &[Arrived], plan: &Plan) -> Vec<Grain> {
        // Nobody may give way while this is held.
        let step = TaskCell::new(());
        let _one_step = step.borrow();
        let append = |point: &Point| {
            let place = arrived[point.index].1.as_ref()?;
            Some(self.append(place, &point.spot).expect("a batch takes no more than one superblock"))
        };
        // First all of these: what follows may take superblocks, too.
        let grains: Vec<Option<Grain>> = plan.points.iter().map(append).collect();
        for (Point { index, spot, slot, old }, grain) in plan.points.iter().zip(&grains) {
            match (&arrived[*index].1, grain, old) {
                (Some(place), Some(grain), old) => self.point(spot, *slot, *grain, place, old.as_ref()),
                (_, _, Some(old)) => self.empty(spot, *slot, old),
                _ => unreachable!("what is neither there nor stored has no slot"),
            }
        }
        plan.passed.iter().for_each(|spot| spot.pin.mark_passed(spot.tag));
        grains.into_iter().flatten().collect()
    }
}
