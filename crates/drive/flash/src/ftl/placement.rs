//! Placement: pages that their owner frees together are written to blocks of their own.
//!
//! ```text
//!   segment 7 ─► chains: block 12 of die 3, block 40 of die 4      freed: no page of either block is live,
//!   segment 8 ─► chains: block  9 of die 5, block 17 of die 6             an erase gains the blocks without a copy
//! ```
//!
//! A log that frees segments, over an FTL that spreads pages over all dies, is a log on a log: each block has pages of
//! many segments, and the FTL copies pages of segments that the log is about to free. A *placement unit* is the set of
//! blocks that takes the pages of one segment. It is open as long as it takes pages, like a reclaim unit of NVMe's
//! Flexible Data Placement whose handle is the number of the segment.
//!
//! This module knows which blocks are open for which number. [`super::blocks`] opens and fills them. A unit whose blocks
//! are full makes place for the next one. If all have open blocks, the one that was not written for longest hands its
//! blocks on, so a block that a segment did not fill is shared, never wasted; a segment that fills slowly, as that of
//! values which collection moves, keeps its blocks meanwhile. If no clean block is left, every writer takes pages of any
//! open block. Open units therefore hold back no capacity.
//!
//! On flash nothing says to which unit a page belongs: after power-on no unit is open.

use crate::BlockId;

/// How the pages of a write are freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One by one: the pages go to all dies in turn.
    Alone,
    /// Together with all pages of this number. They go to `ftl.placement_dies` dies in turn.
    Together(u64),
    /// As `Together`, to all dies in turn: for a writer with programs under way on all of them.
    TogetherWide(u64),
}

/// An open block and its next page.
pub(super) type OpenBlock = (BlockId, u32);

/// Blocks open for one number: one at most for each of its dies, which take turns.
struct OpenUnit {
    number: u64,
    /// Moment of its last page.
    used: u64,
    open: Vec<Option<OpenBlock>>,
    turn: usize,
}

/// The place of an open block: a unit, and one of its dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    unit: usize,
    die: usize,
}

/// The open units of one width.
pub(super) struct OpenUnits {
    dies: usize,
    most: usize,
    units: Vec<OpenUnit>,
    now: u64,
}

impl OpenUnits {
    /// At most `most` units of `dies` dies; none if either is 0.
    pub fn new(dies: u32, most: usize) -> OpenUnits {
        OpenUnits { dies: dies as usize, most: if dies == 0 { 0 } else { most }, units: Vec::new(), now: 0 }
    }

    /// Was there any number yet?
    pub fn is_used(&self) -> bool {
        !self.units.is_empty()
    }

    /// The place of the next page of `number`; `None` if there are no units. A number that has no unit gets a new one
    /// if there is room for another, else one without open blocks, else the one that was not written for longest, with
    /// its open blocks.
    pub fn next_turn(&mut self, number: u64) -> Option<Turn> {
        if self.most == 0 {
            return None;
        }
        self.now += 1;
        let unit = match self.units.iter().position(|unit| unit.number == number) {
            Some(unit) => unit,
            None if self.units.len() < self.most => {
                self.units.push(OpenUnit { number, used: 0, open: vec![None; self.dies], turn: 0 });
                self.units.len() - 1
            }
            None => (0..self.units.len()).min_by_key(|unit| {
                let OpenUnit { open, used, .. } = &self.units[*unit];
                (open.iter().any(Option::is_some), *used)
            })?,
        };
        let OpenUnit { number: present, used, turn, .. } = &mut self.units[unit];
        let die = *turn;
        (*present, *used, *turn) = (number, self.now, (die + 1) % self.dies);
        Some(Turn { unit, die })
    }

    /// The open block at a place.
    pub fn at(&mut self, turn: Turn) -> &mut Option<OpenBlock> {
        &mut self.units[turn.unit].open[turn.die]
    }

    /// This place, or the next one of the same unit that has an open block.
    pub fn open_from(&self, turn: Turn) -> Option<Turn> {
        let unit = &self.units[turn.unit];
        let dies = (0..self.dies).map(|skip| (turn.die + skip) % self.dies);
        dies.map(|die| Turn { die, ..turn }).find(|turn| unit.open[turn.die].is_some())
    }

    /// A place of any unit that has an open block.
    pub fn any_open(&self) -> Option<Turn> {
        (0..self.units.len()).find_map(|unit| self.open_from(Turn { unit, die: 0 }))
    }

    /// The blocks that are open for the unit of a place.
    pub fn blocks_beside(&self, turn: Turn) -> impl Iterator<Item = BlockId> {
        self.units[turn.unit].open.iter().flatten().map(|(block, _)| *block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_without_open_blocks_goes_first_and_then_the_one_not_written_for_longest() {
        let mut units = OpenUnits::new(2, 2);
        let turns: Vec<_> = [7, 8, 7].map(|number| units.next_turn(number).unwrap()).into();
        assert_eq!((turns[0].unit, turns[0].die), (turns[2].unit, 0));
        assert_eq!((turns[2].die, units.any_open()), (1, None));
        *units.at(turns[1]) = Some((BlockId(4), 2));
        let taken = units.next_turn(9).unwrap();
        assert_eq!(
            (taken.unit, taken.die),
            (turns[0].unit, 0),
            "8 keeps its block, though 7 was written later"
        );
        *units.at(taken) = Some((BlockId(5), 1));
        let handed_on = units.next_turn(10).unwrap();
        assert_eq!((handed_on.unit, handed_on.die), (turns[1].unit, 1), "8 was not written for longest");
        assert_eq!(units.open_from(handed_on), Some(turns[1]));
        assert_eq!(units.blocks_beside(handed_on).collect::<Vec<_>>(), [BlockId(4)]);
        assert_eq!((units.any_open(), units.open_from(turns[0])), (Some(taken), Some(taken)));
        assert_eq!(OpenUnits::new(0, 2).next_turn(7), None);
    }
}
