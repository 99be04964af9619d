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
//!
//! Pages that are freed together ([`super::placement`]) have further open blocks. For each of them the unit with the
//! fewest valid pages is chosen: freed segments leave some units with more room than others, and a unit short of room
//! would copy. A block's pages follow each other to the same unit, and would wait for its collector. So a unit that
//! collects is not chosen, and looks for work only when the block is full ([`Blocks::is_due`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::placement::{OpenBlock, OpenUnits, Placement, Turn};
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
    open: [Option<OpenBlock>; 2],
    collecting: bool,
    /// Valid pages.
    live: u32,
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
    /// Open placement units, by width.
    placed: [OpenUnits; 2],
    /// Of several units with as few valid pages, the first one from here on is opened for a placement unit.
    next_placed: u32,
    /// Is there a placement unit for pages that are freed together?
    is_placing: bool,
    /// Number of units with a running collector.
    collectors: u32,
    /// Programs in flight, all blocks.
    pending: u32,
}

/// While no writer waits, a unit collects only victims with at least `pages / GAIN_DIVISOR` pages to gain:
/// copying nearly full blocks ahead of need costs more than it helps. Where segments are freed as a whole, blocks without
/// a valid page are likely to come, so it waits for nearly empty ones while it has clean blocks to spare, and then for a
/// gain of `pages / low`.
const GAIN_DIVISOR: u32 = 8;

/// Clean blocks of a unit that the host never gets.
const RESERVED_FOR_COPIES: usize = 1;

/// The open units of [`Placement::Together`] and of [`Placement::TogetherWide`] in [`Blocks::placed`].
const NARROW: usize = 0;
const WIDE: usize = 1;

/// Placement units that may be open: the segments of which a full page buffer has pages.
const MOST_PLACED: usize = 8;
/// The same of all dies: two values that arrive at the same time.
const MOST_PLACED_WIDE: usize = 2;

impl Blocks {
    /// All blocks in `state`: clean on a fresh drive, another state if recovery sorts them later.
    /// `placement_dies` as in [`super::FtlConfig`].
    pub fn new(geometry: &Geometry, low: u32, placement_dies: u32, state: BlockState) -> Blocks {
        let block = Block { state, live: 0, pending: 0, pins: 0, erases: 0, youngest: 0 };
        let mut blocks = Blocks {
            geometry: *geometry,
            low,
            blocks: vec![block; geometry.blocks() as usize],
            units: (0..geometry.units()).map(|_| Unit::default()).collect(),
            next_unit: 0,
            placed: match placement_dies {
                0 => [OpenUnits::new(0, 0), OpenUnits::new(0, 0)],
                dies => [
                    OpenUnits::new(dies.min(geometry.units()), MOST_PLACED),
                    OpenUnits::new(geometry.units(), MOST_PLACED_WIDE),
                ],
            },
            next_placed: 0,
            is_placing: placement_dies > 0,
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

    /// The page at `ppa` is valid from now on.
    pub fn page_lives(&mut self, ppa: Ppa) {
        let block = self.geometry.block_of(ppa);
        self.block_mut(block).live += 1;
        self.units[self.geometry.unit_of(block) as usize].live += 1;
    }

    /// The page at `ppa` is not valid any more.
    pub fn page_dies(&mut self, ppa: Ppa) {
        let block = self.geometry.block_of(ppa);
        self.block_mut(block).live -= 1;
        self.units[self.geometry.unit_of(block) as usize].live -= 1;
    }

    /// The next page for the host: in a block of pages that are freed together with it; else of any unit, which take
    /// turns; else, if no unit has a clean block to spare, of any open block. Its program must be queued at the flash
    /// port before the caller waits for anything.
    pub fn take_host_page(&mut self, placement: Placement) -> Option<Ppa> {
        let placed = match placement {
            Placement::Alone => None,
            Placement::Together(number) => self.take_placed_page(NARROW, number),
            Placement::TogetherWide(number) => self.take_placed_page(WIDE, number),
        };
        placed.or_else(|| self.take_page_of_any_unit()).or_else(|| {
            let (width, turn) =
                (0..self.placed.len()).find_map(|width| Some((width, self.placed[width].any_open()?)))?;
            self.take_page_at(width, turn)
        })
    }

    /// Is it time for the unit of this page, which was just taken, to see whether it is short of clean blocks?
    pub fn is_due(&self, ppa: Ppa, placement: Placement) -> bool {
        let page = self.geometry.page_of(ppa);
        match placement {
            Placement::Together(_) | Placement::TogetherWide(_) if self.is_placing => {
                page + 1 == self.geometry.pages_per_block
            }
            _ => page == 0,
        }
    }

    /// A unit without room is skipped.
    fn take_page_of_any_unit(&mut self) -> Option<Ppa> {
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

    fn take_placed_page(&mut self, width: usize, number: u64) -> Option<Ppa> {
        let turn = self.placed[width].next_turn(number)?;
        if self.placed[width].at(turn).is_none() {
            *self.placed[width].at(turn) = self.open_beside(width, turn);
        }
        let turn = self.placed[width].open_from(turn)?;
        self.take_page_at(width, turn)
    }

    /// The next page of the open block at `turn`.
    fn take_page_at(&mut self, width: usize, turn: Turn) -> Option<Ppa> {
        let open = self.placed[width].at(turn).take()?;
        let (ppa, rest) = self.take_from(open);
        *self.placed[width].at(turn) = rest;
        Some(ppa)
    }

    /// Opens a block for a placement unit: on a unit of flash where it has none if possible, that does not collect, with
    /// the fewest valid pages.
    fn open_beside(&mut self, width: usize, turn: Turn) -> Option<OpenBlock> {
        let (all, from) = (self.geometry.units(), self.next_placed);
        let taken: Vec<u32> =
            self.placed[width].blocks_beside(turn).map(|block| self.geometry.unit_of(block)).collect();
        let units = (0..all).map(|skip| (from + skip) % all);
        let with_room = units.filter(|unit| self.units[*unit as usize].clean.len() > RESERVED_FOR_COPIES);
        let best = with_room.min_by_key(|unit| {
            let home = &self.units[*unit as usize];
            (taken.contains(unit), home.collecting, home.live)
        })?;
        self.next_placed = (best + 1) % all;
        self.open_block(best)
    }

    /// The next page of `unit` for `stream`. Its program must be queued at the flash port before the caller
    /// waits for anything.
    pub fn take_page(&mut self, unit: u32, stream: Stream) -> Option<Ppa> {
        let home = &mut self.units[unit as usize];
        let open = match home.open[stream as usize].take() {
            Some(open) => open,
            None if stream == Stream::Host && home.clean.len() <= RESERVED_FOR_COPIES => return None,
            None => self.open_block(unit)?,
        };
        let (ppa, rest) = self.take_from(open);
        self.units[unit as usize].open[stream as usize] = rest;
        Some(ppa)
    }

    /// Opens the least worn clean block of `unit`.
    fn open_block(&mut self, unit: u32) -> Option<OpenBlock> {
        let Reverse((_, block)) = self.units[unit as usize].clean.pop()?;
        self.blocks[block as usize].state = BlockState::Open;
        Some((BlockId(block), 0))
    }

    /// Takes the next page of an open block, and returns the block if it has another one. The full block is closed.
    fn take_from(&mut self, (block, page): OpenBlock) -> (Ppa, Option<OpenBlock>) {
        let is_full = page + 1 == self.geometry.pages_per_block;
        let entry = self.block_mut(block);
        entry.pending += 1;
        if is_full {
            entry.state = BlockState::Closed;
        }
        self.pending += 1;
        (self.geometry.ppa(block, page), (!is_full).then_some((block, page + 1)))
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
        let pages = self.geometry.pages_per_block;
        let least = match eager {
            true => 1,
            false if self.placed[NARROW].is_used() => match home.clean.len() <= RESERVED_FOR_COPIES {
                true => (pages / self.low).max(pages / GAIN_DIVISOR).max(1),
                false => pages - pages / GAIN_DIVISOR,
            },
            false => pages.div_ceil(GAIN_DIVISOR),
        };
        let worth = gain >= least;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of a placement unit is not opened where a collector runs, and its unit looks for work when it is full;
    /// pages that are freed one by one go to all units, which look for work when they open a block.
    #[test]
    fn pages_freed_together_do_not_follow_a_collector() {
        let geometry = crate::FlashConfig { channels: 4, blocks_per_die: 8, ..Default::default() }.geometry();
        let mut blocks = Blocks::new(&geometry, 2, 1, BlockState::Clean);
        let pages = geometry.pages_per_block;
        assert!(blocks.begin_collecting(0) && blocks.begin_collecting(1));
        let together = Placement::Together(7);
        for page in 0..2 * pages {
            let ppa = blocks.take_host_page(together).unwrap();
            let unit = geometry.unit_of(geometry.block_of(ppa));
            assert_eq!(unit, 2 + page / pages, "page {page}");
            assert_eq!(blocks.is_due(ppa, together), page % pages == pages - 1, "page {page}");
        }
        let alone: Vec<Ppa> = (0..4).map(|_| blocks.take_host_page(Placement::Alone).unwrap()).collect();
        assert_eq!(
            alone.iter().map(|ppa| geometry.unit_of(geometry.block_of(*ppa))).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert!(alone.iter().all(|ppa| blocks.is_due(*ppa, Placement::Alone)));
        let mut unplaced = Blocks::new(&geometry, 2, 0, BlockState::Clean);
        let first = unplaced.take_host_page(together).unwrap();
        assert!(
            unplaced.is_due(first, together),
            "without placement units, as pages that are freed one by one"
        );
    }
}
