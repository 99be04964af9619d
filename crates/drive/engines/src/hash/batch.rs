//! Atomic batches: a slot is found for every pair first; then all pairs are appended and all slots set in one
//! step without suspension.
//!
//! ```text
//!   room in the write buffer for all pairs ─► keys ─► plan: a slot for each, sections held
//!   room for altered sections, a superblock, the slots still free?      else: plan again
//!   append all, set and empty slots                                     one step
//! ```
//!
//! Nothing interleaves with that step: no reader, no collection, no power cut; its records are written to files
//! together. So pairs need no mark of their batch, and recovery does not know batches.
//!
//! Two new pairs of a batch may need the same slot. The second one then continues along its probe sequence,
//! past the slot of the first ([`Plan::passed`]), as if it were stored after it.

use std::collections::BTreeSet;

use kvdrive_link::Landing;
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_nvme::identify::AtomicLimits;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::TaskCell;

use super::commands::{HashEngine, PairPlace};
use super::core::{HashState, Lookup, LookupPurpose, PairRead, Probed};
use super::layout::Grain;
use super::pair::PairHeader;
use super::section::{Entry, Probe};
use super::snapshot::TableSlot;
use crate::{PairChange, newest};

/// A key, and its value after arrival; `None` deletes the key.
type PlacedPair = (Key, Option<PairPlace>);

/// The changes of a batch to slots.
#[derive(Default)]
struct Plan {
    points: Vec<Point>,
    /// Slots that pairs of the batch will take, in addition to slots that their keys already have.
    taken: BTreeSet<TableSlot>,
    /// Sections in which a pair of the batch finds no slot because of other pairs of the batch.
    passed: Vec<Probed>,
}

/// A slot that a batch changes.
struct Point {
    /// Index of the pair of the batch that is put there or removed.
    index: usize,
    probed: Probed,
    slot: u32,
    /// The present pair of the same key.
    old: Option<PairHeader>,
}

impl Plan {
    /// A slot of a section that is neither used nor reserved.
    fn vacancy(&self, probed: &Probed) -> Option<u32> {
        probed.pin.vacancy_besides(probed.tag, &|slot| self.taken.contains(&(probed.section, slot)))
    }

    /// Is the plan still valid? The batch's own keys are locked.
    fn holds(&self) -> bool {
        let mut new = self.points.iter().filter(|point| point.old.is_none());
        new.all(|point| !matches!(point.probed.pin.get(point.slot), Entry::At(_)))
            && self.passed.iter().all(|probed| self.vacancy(probed).is_none())
    }

    /// Bytes by which altered sections may grow when it is carried out.
    fn altered_bytes(&self, core: &HashState) -> u64 {
        let all_probed = self.points.iter().map(|point| &point.probed).chain(&self.passed);
        let sections: BTreeSet<u64> = all_probed.map(|probed| probed.section).collect();
        sections.len() as u64 * u64::from(core.layout.unit_bytes)
    }
}

impl HashEngine {
    /// [`crate::Engine::atomic_batches`]: half of the largest allocation is for values, half for rounding up
    /// to grains.
    pub(super) fn batch_limits(&self) -> Option<AtomicLimits> {
        let core = &*self.0;
        let grain_bytes = u64::from(core.layout.grain_bytes);
        // A batch takes at most one superblock, and has to fit into the write buffer beside unfinished
        // values.
        let superblock = u64::from(core.layout.superblock_grains) * grain_bytes;
        let half = superblock.min(core.config.unfinished_bytes(&core.layout)) / 2;
        // Each request may alter a section.
        let requests =
            (half / grain_bytes).min(core.altered_limit_bytes() / u64::from(core.layout.unit_bytes));
        let requests = requests.min(BATCH_REQUESTS_MAX.into()) as u32;
        let bytes = half.min(core.max_value_bytes.into()) as u32;
        (requests > 0).then_some(AtomicLimits { requests, bytes })
    }

    /// [`crate::Engine::commit_all`].
    pub(super) fn commit_batch(&self, changes: Vec<PairChange>) -> Result<(), Status> {
        let core = &*self.0;
        let changes = newest(changes);
        for (key, value) in &changes {
            self.check_bytes(key, value.as_ref().map_or(0, |value| value.len() as u32))?;
        }
        let place = |key: Key, value: Vec<u8>| {
            let place = self.place(key, value.len() as u32);
            (place, value)
        };
        let places: Vec<_> =
            changes.into_iter().map(|(key, value)| (key, value.map(|value| place(key, value)))).collect();
        let room_bytes =
            places.iter().flat_map(|(_, place)| place).map(|(place, _)| place.room_bytes()).sum();
        // Waits once for the room of all pairs: two batches that took room pair by pair could wait for each other for
        // ever.
        core.space.host_room(room_bytes);
        let arrive = |(place, value): (PairPlace, Vec<u8>)| {
            if !value.is_empty() {
                self.copy_in(&place, 0, &value);
            }
            place
        };
        let arrived: Vec<PlacedPair> =
            places.into_iter().map(|(key, place)| (key, place.map(arrive))).collect();
        // Every command that locks several keys locks them in this order.
        let _keys: Vec<_> = arrived.iter().map(|(key, _)| core.locks.lock(*key)).collect();
        let result = core.without_held(|| self.try_commit_batch(&arrived));
        for place in arrived.into_iter().filter_map(|(_, place)| place) {
            match result {
                // The room is freed when the pages are programmed.
                Ok(()) => self.recycle_place(place),
                Err(_) => self.abandon(place),
            }
        }
        result
    }

    fn try_commit_batch(&self, arrived: &[PlacedPair]) -> Result<(), Status> {
        let core = &*self.0;
        // A batch of deletes succeeds where stores find no room.
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

    /// Finds a slot for each pair.
    fn plan(&self, arrived: &[PlacedPair]) -> Result<Plan, Status> {
        let core = &*self.0;
        let mut plan = Plan::default();
        for (index, (key, place)) in arrived.iter().enumerate() {
            let purpose = if place.is_some() { LookupPurpose::Store } else { LookupPurpose::Read };
            let (probed, slot, old) = match core.walk(key, purpose)? {
                Lookup::Found(probed, slot, PairRead { header, .. }) => (probed, slot, Some(header)),
                Lookup::Absent(_) if place.is_none() => continue,
                Lookup::Absent(None) => return Err(Status::CAPACITY_EXCEEDED),
                Lookup::Absent(Some(probed)) => {
                    let (probed, slot) = self.free_slot(key, probed, &mut plan)?;
                    plan.taken.insert((probed.section, slot));
                    (probed, slot, None)
                }
            };
            plan.points.push(Point { index, probed, slot, old });
        }
        Ok(plan)
    }

    /// The first slot for a new pair that no other pair of the batch takes, from `probed` on along its probe
    /// sequence.
    fn free_slot(&self, key: &Key, mut probed: Probed, plan: &mut Plan) -> Result<(Probed, u32), Status> {
        let core = &*self.0;
        loop {
            if let Some(slot) = plan.vacancy(&probed) {
                return Ok((probed, slot));
            }
            let number = probed.probe.checked_add(1).filter(|next| u32::from(*next) < core.config.max_probes);
            let number = number.ok_or(Status::CAPACITY_EXCEEDED)?;
            plan.passed.push(probed);
            let Probe { section, tag } = core.probe(key, number);
            probed = core.probed(Probe { section, tag }, number)?;
        }
    }

    /// Carries out the plan in one step; returns the addresses of the pairs.
    fn carry_out(&self, arrived: &[PlacedPair], plan: &Plan) -> Vec<Grain> {
        // Suspension is not allowed while this is held.
        let step = TaskCell::new(());
        let _one_step = step.borrow();
        let append = |point: &Point| {
            let place = arrived[point.index].1.as_ref()?;
            Some(self.append(place, &point.probed).expect("a batch takes no more than one superblock"))
        };
        // All pairs first, because the changes that follow may take superblocks, too.
        let grains: Vec<Option<Grain>> = plan.points.iter().map(append).collect();
        for (Point { index, probed, slot, old }, grain) in plan.points.iter().zip(&grains) {
            match (&arrived[*index].1, grain, old) {
                (Some(place), Some(grain), old) => self.point(probed, *slot, *grain, place, old.as_ref()),
                (_, _, Some(old)) => self.empty(probed, *slot, old),
                _ => unreachable!("what is neither there nor stored has no slot"),
            }
        }
        plan.passed.iter().for_each(|probed| probed.pin.mark_passed(probed.tag));
        grains.into_iter().flatten().collect()
    }
}
