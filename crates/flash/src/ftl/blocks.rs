//! What the FTL knows of every block, and where the next page goes.
//!
//! ```text
//!            open                 full               choose                 erase
//!   clean ---------> open (host) -------> closed ------------> collecting --------> clean
//!            open                 full      ^
//!         ---------> open (copies) ---------+      dirty (after power-on) --------> clean
//! ```
//!
//! Per unit: a heap of clean blocks, least worn first, and a heap of dirty ones; one open block for the host
//! and one for copies, so that data that has survived a collection does not mix with fresh data. The last
//! clean block of a unit is never given to the host: it is where the copies of the next victim go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::victim::{Candidate, VictimPolicy};
use crate::{BlockId, Geometry, Ppa};

/// Who writes into an open block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// The owner of the FTL.
    Host,
    /// Garbage collection.
    Copies,
}

/// Where a block stands; see the picture above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Clean,
    /// Holds nothing valid and was not erased in this life of the drive.
    Dirty,
    Open,
    Closed,
    Collecting,
}

/// One block.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub state: State,
    /// Valid pages.
    pub live: u32,
    /// Programs on their way to it.
    pub pending: u32,
    /// Reads that hold on to it.
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

/// What a unit should do next to have clean blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    Erase(BlockId),
    Collect(BlockId),
}

/// All blocks of the drive.
pub(super) struct Blocks {
    geometry: Geometry,
    /// Clean blocks of a unit below which it collects.
    low: u32,
    blocks: Vec<Block>,
    units: Vec<Unit>,
    /// Unit that the host's next page goes to, if it can.
    next_unit: u32,
    /// Units with a collector at work.
    collectors: u32,
    /// Programs on their way, all blocks.
    pending: u32,
}

/// A unit collects only victims with at least `pages / GAIN_DIVISOR` pages to gain, as long as nobody waits:
/// copying nearly full blocks to be early costs more than it helps.
const GAIN_DIVISOR: u32 = 8;

impl Blocks {
    /// Every block in `state`: clean on a fresh drive, anything else when recovery sorts them out later.
    pub fn new(geometry: &Geometry, low: u32, state: State) -> Blocks {
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
        if state == State::Clean {
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

    /// The next page for the host: units take turns, and one that has no room is left out.
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

    /// The next page of `unit` for `stream`. Its program must be queued at the flash port before anything is
    /// awaited.
    pub fn take_page(&mut self, unit: u32, stream: Stream) -> Option<Ppa> {
        let home = &mut self.units[unit as usize];
        let open = &mut home.open[stream as usize];
        if open.is_none() {
            let reserved = if stream == Stream::Host { 1 } else { 0 };
            if home.clean.len() <= reserved {
                return None;
            }
            let Reverse((_, block)) = home.clean.pop()?;
            self.blocks[block as usize].state = State::Open;
            *open = Some((BlockId(block), 0));
        }
        let (block, page) = (*open)?;
        let entry = &mut self.blocks[block.0 as usize];
        entry.pending += 1;
        self.pending += 1;
        *open = Some((block, page + 1));
        if page + 1 == self.geometry.pages_per_block {
            entry.state = State::Closed;
            *open = None;
        }
        Some(self.geometry.ppa(block, page))
    }

    /// A program has ended; its page is valid or not.
    pub fn programmed(&mut self, ppa: Ppa, sequence: u64) {
        self.pending -= 1;
        let block = self.of(ppa);
        block.pending -= 1;
        block.youngest = block.youngest.max(sequence);
    }

    /// Marks a unit as collecting; `false` if it already was.
    pub fn begin_collecting(&mut self, unit: u32) -> bool {
        let begins = !std::mem::replace(&mut self.units[unit as usize].collecting, true);
        self.collectors += u32::from(begins);
        begins
    }

    pub fn end_collecting(&mut self, unit: u32) {
        self.units[unit as usize].collecting = false;
        self.collectors -= 1;
    }

    /// Has `unit` nothing to write copies to, and nothing that it could erase at once?
    pub fn is_without_blocks(&self, unit: u32) -> bool {
        self.units[unit as usize].dirty.is_empty() && self.copy_room(unit) == 0
    }

    /// Is there anything under way that can make room?
    pub fn may_improve(&self) -> bool {
        self.collectors > 0 || self.pending > 0
    }

    /// What `unit` should do next; `None` when it has enough clean blocks or can gain nothing. `eager`:
    /// somebody waits for space, and any gain will do.
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

    /// Full blocks of `unit` with something to gain and no program on its way.
    fn candidates(&self, unit: u32, now: u64) -> impl Iterator<Item = Candidate> {
        let pages = self.geometry.pages_per_block;
        (0..self.geometry.blocks_per_unit()).filter_map(move |index| {
            let id = self.geometry.block_of_unit(unit, index);
            let block = self.block(id);
            let fit = block.state == State::Closed && block.pending == 0 && block.live < pages;
            let age = now.saturating_sub(block.youngest);
            fit.then_some(Candidate { block: id, live: block.live, pages, age, erases: block.erases })
        })
    }

    /// Pages that garbage collection could write in `unit` without erasing first.
    fn copy_room(&self, unit: u32) -> u32 {
        let home = &self.units[unit as usize];
        let open =
            home.open[Stream::Copies as usize].map_or(0, |(_, page)| self.geometry.pages_per_block - page);
        open + home.clean.len() as u32 * self.geometry.pages_per_block
    }

    /// Takes a dirty block out of its heap, or marks a closed one: nobody else will.
    pub fn claim(&mut self, unit: u32, job: Job) -> BlockId {
        let block = match job {
            Job::Erase(block) => {
                self.units[unit as usize].dirty.pop();
                block
            }
            Job::Collect(block) => block,
        };
        self.block_mut(block).state = State::Collecting;
        block
    }

    /// A block was erased.
    pub fn erased(&mut self, block: BlockId) {
        let unit = self.geometry.unit_of(block) as usize;
        let entry = self.block_mut(block);
        assert_eq!(
            (entry.live, entry.pending, entry.pins),
            (0, 0, 0),
            "block {} was erased while in use",
            block.0
        );
        entry.state = State::Clean;
        entry.erases += 1;
        entry.youngest = 0;
        let worn = Reverse((entry.erases, block.0));
        self.units[unit].clean.push(worn);
    }

    /// Puts a block in its place after recovery: dirty if nothing in it is valid, closed otherwise.
    pub fn settle(&mut self, block: BlockId) {
        let unit = self.geometry.unit_of(block) as usize;
        let entry = self.block_mut(block);
        if entry.live > 0 {
            entry.state = State::Closed;
        } else {
            entry.state = State::Dirty;
            let worn = Reverse((entry.erases, block.0));
            self.units[unit].dirty.push(worn);
        }
    }
}
