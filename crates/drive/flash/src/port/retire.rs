//! Replacement of a block that has gone bad by a spare block of the same unit.
//!
//! ```text
//!   owner's page 5 ──► block 17 of the medium: programming page 5 fails
//!     1  pages 0 to 4 are copied to the next free spare block, damaged ones as they are
//!     2  page 5 is programmed after them
//!     3  the table of bad blocks is written: the spare block stands for block 17
//! ```
//!
//! *The unit waits.* All of this happens within the program or erase that failed, so that later requests for
//! the unit take effect after it. It takes the time of its reads and programs, under purpose `retire`;
//! writing the table takes the time of one more page.
//!
//! *Power cuts.* The old block counts until the table is written. The page that was to be programmed is then
//! torn there, as if it had been in flight; a spare block with a partial copy counts as free, and is erased
//! before it is used.
//!
//! *A spare block that fails* is given up for the next one. When none is left, the table records that the
//! drive is read-only, and the medium is frozen: it keeps the state that a power cut at this instant would have left.
//! The owner of the flash is notified first ([`FlashPort::before_protection`]), because its own records survive only in
//! the state of that instant, too. After that, flash is written only for this power cycle, and no operation fails, so
//! the layers above need not stop in the middle of an operation.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use kvdrive_declare::Counters;
use kvdrive_sim::{Rng, TaskCell, join_all};

use super::FlashPort;
use super::failed::{EraseError, ProgramError, bump};
use crate::Operation;
use crate::bad_blocks::BadBlocks;
use crate::faults::{Effect, Moment};
use crate::geometry::{BlockId, Ppa};
use crate::identity::Identity;
use crate::media::{Media, PageData};
use crate::power::machine_file::WriteProtection;
use crate::purpose::Purpose;
use crate::spare::Spare;
use crate::timing::Moved;

/// State of a drive's flash: in its life, or since its last power-on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
pub struct FlashHealth {
    /// Blocks retired in the life of the drive, including spare blocks.
    #[counter(state)]
    pub retired_blocks: u32,
    /// Spare blocks that the drive had when it was new.
    #[counter(state)]
    pub spare_blocks: u32,
    /// Spare blocks that are still unused.
    #[counter(state)]
    pub spare_blocks_left: u32,
    /// Programs that have failed since power-on.
    pub program_errors: u64,
    /// Erases that have failed since power-on.
    pub erase_errors: u64,
    /// Repeated attempts of reads since power-on.
    pub read_retries: u64,
    /// Pages that could not be read since power-on, in spite of retries.
    pub read_errors: u64,
    /// 1 if the drive is read-only because a unit had no spare block left, otherwise 0.
    #[counter(state)]
    pub is_read_only: bool,
}

/// State of the port about failed blocks and dies.
pub(super) struct Retirement {
    table: TaskCell<BadBlocks>,
    /// No block is replaced, so addresses of the owner are addresses of the medium.
    is_empty: Cell<bool>,
    /// The table marks dies as lost.
    has_lost_dies: Cell<bool>,
    pub protection: WriteProtection,
    /// Called when the drive is about to become read-only.
    before_protection: OnceCell<Box<dyn Fn()>>,
    /// Called when the number of free spare blocks has decreased.
    on_change: OnceCell<Rc<dyn Fn()>>,
    program_errors: Cell<u64>,
    erase_errors: Cell<u64>,
    pub read_retries: Cell<u64>,
    pub read_errors: Cell<u64>,
}

impl Retirement {
    pub fn of(media: &dyn Media) -> Retirement {
        let table = media.bad_blocks().clone();
        Retirement {
            is_empty: Cell::new(table.is_empty()),
            has_lost_dies: Cell::new(!table.lost_dies().is_empty()),
            table: TaskCell::new(table),
            protection: media.protection(),
            before_protection: OnceCell::new(),
            on_change: OnceCell::new(),
            program_errors: Cell::new(0),
            erase_errors: Cell::new(0),
            read_retries: Cell::new(0),
            read_errors: Cell::new(0),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.is_empty.get()
    }

    #[inline]
    pub fn is_lost(&self, die: u32) -> bool {
        self.has_lost_dies.get() && self.table.borrow().lost_dies().contains(&die)
    }
}

impl FlashPort {
    /// Whether the drive is read-only, and why.
    pub fn protection(&self) -> &WriteProtection {
        &self.0.retirement.protection
    }

    /// Registers `save`, which is called when a unit has no spare block left and the drive is about to become
    /// read-only: the owner's state at that instant survives.
    ///
    /// # Panics
    /// A function is registered already.
    pub fn before_protection(&self, save: impl Fn() + 'static) {
        let is_first = self.0.retirement.before_protection.set(Box::new(save)).is_ok();
        assert!(is_first, "one owner knows what flash holds");
    }

    /// Registers `told`, which is called when the number of free spare blocks has decreased, and when the
    /// drive has become read-only for any reason. It may call [`FlashPort::health`], and must not wait.
    ///
    /// # Panics
    /// A function is registered already.
    pub fn on_health_change(&self, told: Rc<dyn Fn()>) {
        self.protection().on_turn(told.clone());
        assert!(self.0.retirement.on_change.set(told).is_ok(), "one controller tells hosts of it");
    }

    /// The state of the flash.
    pub fn health(&self) -> FlashHealth {
        let retirement = &self.0.retirement;
        let table = retirement.table.borrow();
        FlashHealth {
            retired_blocks: table.retired(),
            spare_blocks: self.0.geometry.all_spare_blocks(),
            spare_blocks_left: table.free_spares(),
            program_errors: retirement.program_errors.get(),
            erase_errors: retirement.erase_errors.get(),
            read_retries: retirement.read_retries.get(),
            read_errors: retirement.read_errors.get(),
            is_read_only: table.is_read_only(),
        }
    }

    /// Has the medium been frozen because a unit had no spare block left?
    pub fn is_frozen(&self) -> bool {
        self.0.retirement.table.borrow().is_read_only()
    }

    /// When the drive is powered on for the first time, finds the blocks that are bad from the factory: reads
    /// the first header of each block, in all units concurrently, and replaces bad blocks by spare blocks.
    pub fn find_factory_bad_blocks(&self) {
        let core = &*self.0;
        let is_first = core.config.enabled
            && core.config.factory_bad_blocks > 0
            && core.retirement.table.borrow().retired() == 0
            && core.media.borrow().is_blank();
        if !is_first {
            return;
        }
        let identity = core.media.borrow().identity();
        let units = (0..core.geometry.units()).map(|unit| move || self.find_in_unit(identity, unit));
        let bad: Vec<_> = join_all(&core.sim, units).into_iter().flatten().collect();
        let mut table = core.retirement.table.borrow().clone();
        // Bad spare blocks first: none of them may replace another block.
        for (_, spare) in bad.iter().filter(|(_, block)| block.0 >= core.geometry.blocks()) {
            table.give_up(*spare);
        }
        for (unit, block) in bad.iter().filter(|(_, block)| block.0 < core.geometry.blocks()) {
            let spare = table.free_spare(*unit).expect("there are as many spare blocks as bad ones");
            table.replace(*block, spare);
        }
        self.keep(table);
    }

    /// Pairs of the unit and each of its blocks that is bad from the factory.
    fn find_in_unit(&self, identity: Identity, unit: u32) -> Vec<(u32, BlockId)> {
        let geometry = &self.0.geometry;
        let own = (0..geometry.blocks_per_unit()).map(|index| geometry.block_of_unit(unit, index));
        let spare = (0..geometry.spare_blocks).map(|index| geometry.spare_block(unit, index));
        let mut blocks: Vec<BlockId> = own.chain(spare).collect();
        for _ in &blocks {
            self.charge_header(unit);
        }
        let seed = u128::from_le_bytes(identity.to_bytes()) as u64;
        let mut rng = Rng::stream(seed, &format!("factory bad blocks of unit {unit}"));
        let bad = (0..self.0.config.factory_bad_blocks).map(|_| {
            let index = rng.below(blocks.len() as u64) as usize;
            (unit, blocks.swap_remove(index))
        });
        bad.collect()
    }

    /// Takes the time of reading the header of a block's first page in `unit`.
    fn charge_header(&self, unit: u32) {
        let core = &*self.0;
        let unit = &core.units[unit as usize];
        if self.is_charged(Operation::Read, Purpose::Recovery, unit) {
            let _held = unit.resource.acquire();
            core.timing.before(Operation::Read, unit.channel, 0, Moved::Header);
            core.timing.after(Operation::Read, unit.channel, Moved::Header);
        }
        bump(&core.counters.reads[Purpose::Recovery.index()]);
    }

    /// The medium's page for an owner's page.
    #[inline]
    pub(super) fn on_medium(&self, ppa: Ppa) -> Ppa {
        if self.0.retirement.is_empty() { ppa } else { self.0.retirement.table.borrow().page(ppa) }
    }

    /// The medium's block for an owner's block.
    #[inline]
    pub(super) fn block_on_medium(&self, block: BlockId) -> BlockId {
        if self.0.retirement.is_empty() { block } else { self.0.retirement.table.borrow().block(block) }
    }

    /// Handles the failed program of page `ppa` of `unit`: its block is exchanged, and the page is programmed
    /// in the new block.
    pub(super) fn program_elsewhere(&self, unit: u32, ppa: Ppa, data: &PageData, spare: &Spare) {
        let geometry = &self.0.geometry;
        let (block, page) = (geometry.block_of(ppa), geometry.page_of(ppa));
        bump(&self.0.retirement.program_errors);
        self.change().tear(self.on_medium(ppa));
        let is_exchanged = self.exchange(unit, block, |standing| {
            self.copy_block(unit, self.block_on_medium(block), standing, page)?;
            self.attempt_program(unit, geometry.ppa(standing, page), &|media, to| {
                media.program(to, data, spare)
            })
        });
        if !is_exchanged {
            self.change().program(self.on_medium(ppa), data, spare);
        }
    }

    /// Handles the failed erase of block `block` of `unit`: it is exchanged for an erased one.
    pub(super) fn erase_elsewhere(&self, unit: u32, block: BlockId, leaves_nothing: bool) {
        bump(&self.0.retirement.erase_errors);
        if leaves_nothing {
            self.spoil(self.block_on_medium(block));
        }
        if !self.exchange(unit, block, |_| Ok(())) {
            self.change().erase(self.block_on_medium(block));
        }
    }

    /// Makes a spare block of `unit`, filled by `fill`, replace `block`. `false`: no spare block works, and the drive
    /// is read-only now.
    fn exchange(
        &self,
        unit: u32,
        block: BlockId,
        fill: impl Fn(BlockId) -> Result<(), ProgramError>,
    ) -> bool {
        loop {
            let is_lost = self.0.retirement.is_lost(self.die_of_unit(unit));
            let free = self.0.retirement.table.borrow().free_spare(unit);
            let Some(standing) = free.filter(|_| !is_lost && !self.protection().is_on()) else {
                self.protect();
                return false;
            };
            let is_filled = self.clear(unit, standing).is_ok() && fill(standing).is_ok();
            self.charge(unit, Operation::Program, 0);
            let mut table = self.0.retirement.table.borrow().clone();
            if is_filled {
                table.replace(block, standing);
            } else {
                table.give_up(standing);
            }
            self.keep(table);
            if is_filled {
                return true;
            }
        }
    }

    /// Marks a die as lost, in this power cycle and all later ones. Recording that takes the time of a page,
    /// like every change of the table.
    pub(super) fn lose_die(&self, die: u32) {
        let retirement = &self.0.retirement;
        if retirement.is_lost(die) {
            return;
        }
        retirement.has_lost_dies.set(true);
        let mut table = retirement.table.borrow().clone();
        table.lose_die(die);
        self.keep(table);
        self.charge(die * self.0.geometry.planes, Operation::Program, 0);
    }

    /// Writes the table of bad blocks, which takes effect then.
    fn keep(&self, table: BadBlocks) {
        self.change().set_bad_blocks(&table);
        self.0.retirement.is_empty.set(table.is_empty());
        *self.0.retirement.table.borrow_mut() = table;
        if let Some(told) = self.0.retirement.on_change.get() {
            told();
        }
    }

    /// Makes the drive read-only.
    fn protect(&self) {
        if self.protection().is_on() {
            return;
        }
        let mut table = self.0.retirement.table.borrow().clone();
        table.make_read_only();
        self.keep(table);
        if let Some(save) = self.0.retirement.before_protection.get() {
            save();
        }
        self.0.media.borrow_mut().freeze();
        self.protection().turn_on_without_spares();
    }

    /// Erases a spare block that a power cut left with a partial copy, before it is used.
    fn clear(&self, unit: u32, standing: BlockId) -> Result<(), EraseError> {
        if self.0.media.borrow().programmed_pages(standing) == 0 {
            return Ok(());
        }
        let struck = self.strike(Moment::Erase, unit, standing, Purpose::Retire);
        self.0.sim.sleep(struck.delay_ns);
        self.charge(unit, Operation::Erase, 0);
        bump(&self.0.counters.erases[Purpose::Retire.index()]);
        if self.fails(unit, struck) {
            bump(&self.0.retirement.erase_errors);
            return Err(EraseError);
        }
        self.change().erase(standing);
        Ok(())
    }

    /// Copies the first `pages` pages of a block of the medium to another block, damaged ones included.
    fn copy_block(&self, unit: u32, from: BlockId, to: BlockId, pages: u32) -> Result<(), ProgramError> {
        let geometry = &self.0.geometry;
        for page in 0..pages {
            let source = geometry.ppa(from, page);
            let struck = self.strike(Moment::Read, unit, from, Purpose::Retire);
            self.0.sim.sleep(struck.delay_ns);
            self.charge(unit, Operation::Read, page);
            let copy = |media: &mut dyn Media, to| {
                media.copy(source, to);
                if struck.effect == Some(Effect::Unreadable) {
                    media.flip(to);
                }
            };
            self.attempt_program(unit, geometry.ppa(to, page), &copy)?;
        }
        Ok(())
    }

    /// Programs a page of a spare block.
    fn attempt_program(
        &self,
        unit: u32,
        to: Ppa,
        program: &dyn Fn(&mut dyn Media, Ppa),
    ) -> Result<(), ProgramError> {
        let block = self.0.geometry.block_of(to);
        let struck = self.strike(Moment::Program, unit, block, Purpose::Retire);
        self.0.sim.sleep(struck.delay_ns);
        self.charge(unit, Operation::Program, 0);
        if self.fails(unit, struck) {
            bump(&self.0.retirement.program_errors);
            return Err(ProgramError);
        }
        program(&mut **self.change(), to);
        if struck.effect == Some(Effect::Flip) {
            self.change().flip(to);
        }
        Ok(())
    }

    /// Takes the time of an operation on a block of `unit`, or on page `page` of one, and counts it.
    fn charge(&self, unit: u32, operation: Operation, page: u32) {
        let core = &*self.0;
        let unit = &core.units[unit as usize];
        let (moved, counters) = match operation {
            Operation::Read => (Moved::Data(core.geometry.page_bytes), Some(&core.counters.reads)),
            Operation::Program => (Moved::Data(core.geometry.page_bytes), Some(&core.counters.programs)),
            Operation::Erase => (Moved::Nothing, None),
        };
        if self.is_charged(operation, Purpose::Retire, unit) {
            core.timing.before(operation, unit.channel, page, moved);
            core.timing.after(operation, unit.channel, moved);
        }
        if let Some(counters) = counters {
            bump(&counters[Purpose::Retire.index()]);
        }
    }

    /// Makes every page of a block of the medium unreadable.
    fn spoil(&self, block: BlockId) {
        let pages = self.0.media.borrow().programmed_pages(block);
        for page in 0..pages {
            self.change().tear(self.0.geometry.ppa(block, page));
        }
    }
}
