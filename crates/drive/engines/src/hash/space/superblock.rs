//! Superblocks: their states, the choice of the next victim, and erasing.

use std::rc::Rc;

use kvdrive_flash::Purpose;

use super::Space;
use crate::hash::change::Change;
use crate::hash::state::{KIND_DATA, KIND_MAP, Stream, SuperblockState};

/// A superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// Its state.
    pub state: SuperblockState,
    /// [`KIND_DATA`] or [`KIND_MAP`]; if free, its last kind.
    pub kind: u8,
    /// Valid grains.
    pub valid: u32,
    /// Number of erases: records of an earlier life do not count.
    pub epoch: u32,
    pub(super) readers: u32,
    pub(super) programming: u32,
    /// Torn pages of it that stay in the buffer.
    pub(super) stranded: u32,
}

impl Space {
    /// Sets the state of a superblock that is not free.
    pub fn set_state(&self, superblock: u32, state: SuperblockState) {
        self.superblocks.borrow_mut()[superblock as usize].state = state;
        self.journal.append(&Change::Superblock { superblock, state });
    }

    /// A free superblock for `stream`, if it may take one.
    pub(super) fn take_superblock(&self, stream: Stream) -> Option<u32> {
        let reserved = if stream == Stream::Data { self.limits.stall } else { 0 };
        let mut free = self.free.borrow_mut();
        if free.len() as u32 <= reserved {
            drop(free);
            self.wanted.wake_all();
            return None;
        }
        let superblock = free.pop_front().expect("not empty");
        let is_low = free.len() as u32 <= self.limits.low;
        let mut superblocks = self.superblocks.borrow_mut();
        let taken = &mut superblocks[superblock as usize];
        assert!(
            taken.state == SuperblockState::Free && taken.valid == 0,
            "superblock {superblock} is not free"
        );
        taken.state = SuperblockState::Open;
        taken.kind = stream.kind();
        self.journal.append(&Change::Taken { superblock, kind: stream.kind() });
        if is_low {
            self.wanted.wake_all();
        }
        Some(superblock)
    }

    /// The full superblock whose repacking frees most, at least a read unit; of `kind` if given. One with
    /// torn pages comes first. A valid grain of a section counts [`super::Limits::section_weight`] times.
    pub fn victim(&self, kind: Option<u8>) -> Option<u32> {
        let superblocks = self.superblocks.borrow();
        let density = [KIND_DATA, KIND_MAP].map(|kind| self.density(kind));
        let candidates = superblocks.iter().enumerate().filter(|(_, superblock)| {
            superblock.state == SuperblockState::Full
                && superblock.programming == 0
                && kind.is_none_or(|kind| superblock.kind == kind)
        });
        // Collecting writes the valid grains, and padding between them.
        let cost = |superblock: &Superblock| {
            if superblock.stranded > 0 {
                return 0;
            }
            let (appended, padded) = density[usize::from(superblock.kind == KIND_MAP)];
            u64::from(superblock.valid) * (appended + padded) / appended
        };
        let most = u64::from(self.layout.superblock_grains - self.layout.unit_grains);
        let weight = |superblock: &Superblock| match superblock.kind {
            KIND_MAP => self.limits.section_weight,
            _ => 1,
        };
        let costs = candidates
            .map(|(index, superblock)| (cost(superblock), weight(superblock), index as u32))
            .filter(|(cost, ..)| *cost <= most);
        costs.map(|(cost, weight, index)| (cost * weight, index)).min().map(|(_, index)| index)
    }

    /// Grains appended and padded of a kind; never zero.
    fn density(&self, kind: u8) -> (u64, u64) {
        let (appended, padded) = self.packed[usize::from(kind == KIND_MAP)].get();
        (appended.max(1), padded)
    }

    /// Grains that `grains` grains of a kind take with the padding between items.
    pub fn with_padding(&self, kind: u8, grains: u64) -> u64 {
        let (appended, padded) = self.density(kind);
        (u128::from(grains) * u128::from(appended + padded) / u128::from(appended)) as u64
    }

    pub(super) fn note_packed(&self, kind: u8, appended: u32, padded: u32) {
        let packed = &self.packed[usize::from(kind == KIND_MAP)];
        let (mut all, mut lost) = packed.get();
        all += u64::from(appended);
        lost += u64::from(padded);
        // Recent items count more: now and then both are halved.
        if all > 64 * u64::from(self.layout.superblock_grains) {
            (all, lost) = (all / 2, lost / 2);
        }
        packed.set((all, lost));
    }

    /// Waits until no task reads or programs a victim.
    pub fn wait_quiet(&self, superblock: u32) {
        loop {
            let now = self.superblocks.borrow()[superblock as usize];
            if now.readers == 0 && now.programming == 0 {
                return;
            }
            self.quiet.wait();
        }
    }

    /// Erases a victim without valid grains and makes it free.
    pub fn erase(self: &Rc<Self>, superblock: u32, purpose: Purpose) {
        self.wait_quiet(superblock);
        let erases: Vec<_> = (0..self.layout.units())
            .map(|unit| {
                let (flash, block) = (self.flash.clone(), self.layout.block(superblock, unit));
                self.sim.spawn(move || flash.erase(block, purpose))
            })
            .collect();
        for erase in erases {
            erase.join();
        }
        self.validity.borrow_mut().reset(superblock);
        let first = self.layout.first_page(superblock);
        let erased = first..first + self.layout.superblock_pages;
        self.stranded.borrow_mut().retain(|page, _| !erased.contains(page));
        self.strangers.borrow_mut().retain(|page| !erased.contains(page));
        {
            let mut superblocks = self.superblocks.borrow_mut();
            let erased = &mut superblocks[superblock as usize];
            assert!(
                erased.valid == 0 && erased.state == SuperblockState::Victim,
                "superblock {superblock} holds valid grains"
            );
            erased.state = SuperblockState::Free;
            erased.epoch += 1;
            erased.stranded = 0;
        }
        self.journal.append(&Change::Erased { superblock });
        self.free.borrow_mut().push_back(superblock);
        self.exhausted.set(false);
        self.freed.wake_all();
    }
}
