//! The FTL's state of every block, and the choice of the next page to write.
//!
//! ```text
//!            open                 full               choose                 erase
//!   clean ---------> open (host) -------> closed ------------> collecting --------> clean
//!            open                 full      ^
//!         ---------> open (copies) ---------+      dirty (after power-on) --------> clean
//! ```
//!
//! Per unit there are a heap of clean blocks, least worn first, a heap of dirty blocks, one open block for
//! the host and one for copies, so that data that has survived a collection does not mix with fresh data. The
//! host never gets the last clean block of a unit: it is reserved for the copies of the next victim.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::victim::{Candidate, VictimPolicy};
use crate::{BlockId, Geometry, Ppa};

/// The writer of an open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The owner of the FTL, on behalf of a host.
    Host,
    /// Garbage collection.
    Copies,
}

/// The state of a block; see the drawing above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    Clean,
    /// Holds nothing valid and was not erased in this power cycle.
    Dirty,
    Open,
    Closed,
    Collecting,
}

/// One block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub state: BlockState,
    /// Valid pages.
    pub live: u32,
    /// Programs in flight.
    pub pending: u32,
    /// Reads that keep it from being erased.
    pub pins: u32,
    pub erases: u32,
    /// Highest sequence number among its pages.
    pub youngest: u64,
}

/// Erase count and number of a block: the order of the heaps.
type Worn = Reverse<(u32, u32)>;

#[derive(Default)]
struct Unit {
    clean: BinaryHeap<Worn>,
    dirty: BinaryHeap<Worn>,
    /// By [`Stream`]: the open block and its next page.
    open: [Option<(BlockId, u32)>; 2],
    collecting: bool,
}

/// The next step of a unit towards clean blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Erase(BlockId),
    Collect(BlockId),
}

/// All blocks of the drive.
pub(super) struct Blocks {
    geometry: Geometry,
    /// Number of clean blocks of a unit below which it collects.
    low: u32,
    blocks: Vec<Block>,
    units: Vec<Unit>,
    /// Unit of the host's next page, if it has room.
    next_unit: u32,
    /// Number of units with a running collector.
    collectors: u32,
    /// Programs in flight, all blocks.
    pending: u32,
}

/// While no writer waits, a unit collects only victims with at least `pages / GAIN_DIVISOR` pages to gain:
/// copying nearly full blocks ahead of need costs more than it helps.
const GAIN_DIVISOR: u32 = 8;

impl Blocks {
    /// All blocks in `state`: clean on a fresh drive, another state if recovery sorts them later.
    pub fn new(geometry: &Geometry, low: u32, state: BlockState) -> Blocks {
        let block = Block { state, live: 0, pending: 0, pins: 0, erases: 0, youngest: 0 };
        let mut blocks = Blocks {
            geometry: *geometry,
            low,
            blocks: vec![block; geometry.blocks() as usize],
            units: (0..geometry.units()).map(|_| Unit::default()).collect(),
            next_unit: 0,
            collectors: 0,
            pending: 0,
        };
        if state == BlockState::Clean {
            for unit in 0..geometry.units() {
                let all = (0..geometry.blocks_per_unit()).map(|index| geometry.block_of_unit(unit, index));
                blocks.units[unit as usize].clean = all.map(|block| Reverse((0, block.0))).collect();
            }
        }
        blocks
    }

    pub fn block(&self, block: BlockId) -> &Block {
        &self.blocks[block.0 as usize]
    }

    pub fn block_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block.0 as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    pub fn of(&mut self, ppa: Ppa) -> &mut Block {
        &mut self.blocks[self.geometry.block_of(ppa).0 as usize]
    }

    /// Clean blocks of all units.
    pub fn clean(&self) -> usize {
        self.units.iter().map(|unit| unit.clean.len()).sum()
    }

    /// The next page for the host: units take turns; a unit without room is skipped.
    pub fn take_host_page(&mut self) -> Option<Ppa> {
        let units = self.geometry.units();
        for turn in 0..units {
            let unit = (self.next_unit + turn) % units;
            if let Some(ppa) = self.take_page(unit, Stream::Host) {
                self.next_unit = (unit + 1) % units;
                return Some(ppa);
            }
        }
        None
    }

    /// The next page of `unit` for `stream`. Its program must be queued at the flash port before the caller
    /// waits for anything.
    pub fn take_page(&mut self, unit: u32, stream: Stream) -> Option<Ppa> {
        let home = &mut self.units[unit as usize];
        let open = &mut home.open[stream as usize];
        if open.is_none() {
            let reserved = if stream == Stream::Host { 1 } else { 0 };
            if home.clean.len() <= reserved {
                return None;
            }
            let Reverse((_, block)) = home.clean.pop()?;
            self.blocks[block as usize].state = BlockState::Open;
            *open = Some((BlockId(block), 0));
        }
        let (block, page) = (*open)?;
        let entry = &mut self.blocks[block.0 as usize];
        entry.pending += 1;
        self.pending += 1;
        *open = Some((block, page + 1));
        if page + 1 == self.geometry.pages_per_block {
            entry.state = BlockState::Closed;
            *open = None;
        }
        Some(self.geometry.ppa(block, page))
    }

    /// Notes that a program has ended; its page may be valid or not.
    pub fn programmed(&mut self, ppa: Ppa, sequence: u64) {
        self.pending -= 1;
        let block = self.of(ppa);
        block.pending -= 1;
        block.youngest = block.youngest.max(sequence);
    }

    /// Marks a unit as collecting; `false` if it was marked already.
    pub fn begin_collecting(&mut self, unit: u32) -> bool {
        let begins = !std::mem::replace(&mut self.units[unit as usize].collecting, true);
        self.collectors += u32::from(begins);
        begins
    }

    pub fn end_collecting(&mut self, unit: u32) {
        self.units[unit as usize].collecting = false;
        self.collectors -= 1;
    }

    /// Has `unit` neither room for copies nor a block that it could erase at once?
    pub fn is_without_blocks(&self, unit: u32) -> bool {
        self.units[unit as usize].dirty.is_empty() && self.copy_room(unit) == 0
    }

    /// Is anything in progress that can make room?
    pub fn may_improve(&self) -> bool {
        self.collectors > 0 || self.pending > 0
    }

    /// The next job of `unit`; `None` if it has enough clean blocks or can gain nothing. `eager`: a writer
    /// waits for space, so any gain is enough.
    pub fn next_job(&self, unit: u32, policy: &dyn VictimPolicy, now: u64, eager: bool) -> Option<Job> {
        let home = &self.units[unit as usize];
        if home.clean.len() >= self.low as usize {
            return None;
        }
        if let Some(Reverse((_, block))) = home.dirty.peek() {
            return Some(Job::Erase(BlockId(*block)));
        }
        let victim = policy.choose(&mut self.candidates(unit, now))?;
        let gain = victim.pages - victim.live;
        let worth = gain >= if eager { 1 } else { self.geometry.pages_per_block.div_ceil(GAIN_DIVISOR) };
        (worth && victim.live <= self.copy_room(unit)).then_some(Job::Collect(victim.block))
    }

    /// Full blocks of `unit` with invalid pages and no program in flight.
    fn candidates(&self, unit: u32, now: u64) -> impl Iterator<Item = Candidate> {
        let pages = self.geometry.pages_per_block;
        (0..self.geometry.blocks_per_unit()).filter_map(move |index| {
            let id = self.geometry.block_of_unit(unit, index);
            let block = self.block(id);
            let fit = block.state == BlockState::Closed && block.pending == 0 && block.live < pages;
            let age = now.saturating_sub(block.youngest);
            fit.then_some(Candidate { block: id, live: block.live, pages, age, erases: block.erases })
        })
    }

    /// Pages that garbage collection could write in `unit` without an erase.
    fn copy_room(&self, unit: u32) -> u32 {
        let home = &self.units[unit as usize];
        let open =
            home.open[Stream::Copies as usize].map_or(0, |(_, page)| self.geometry.pages_per_block - page);
        open + home.clean.len() as u32 * self.geometry.pages_per_block
    }

    /// Removes a dirty block from its heap, or marks a closed one, so that it is taken only once.
    pub fn claim(&mut self, unit: u32, job: Job) -> BlockId {
        let block = match job {
            Job::Erase(block) => {
                self.units[unit as usize].dirty.pop();
                block
            }
            Job::Collect(block) => block,
        };
        self.block_mut(block).state = BlockState::Collecting;
        block
    }

    /// Notes that a block was erased.
    pub fn erased(&mut self, block: BlockId) {
        let unit = self.geometry.unit_of(block) as usize;
        let entry = self.block_mut(block);
        assert_eq!(
            (entry.live, entry.pending, entry.pins),
            (0, 0, 0),
            "block {} was erased while in use",
            block.0
        );
        entry.state = BlockState::Clean;
        entry.erases += 1;
        entry.youngest = 0;
        let worn = Reverse((entry.erases, block.0));
        self.units[unit].clean.push(worn);
    }

    /// Sets a block's state after recovery: dirty if nothing in it is valid, closed otherwise.
    pub fn settle(&mut self, block: BlockId) {
        let unit = self.geometry.unit_of(block) as usize;
        let entry = self.block_mut(block);
        if entry.live > 0 {
            entry.state = BlockState::Closed;
        } else {
            entry.state = BlockState::Dirty;
            let worn = Reverse((entry.erases, block.0));
            self.units[unit].dirty.push(worn);
        }
    }
}
