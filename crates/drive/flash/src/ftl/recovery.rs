//! Rebuilds map, block table and sequence number after power-on, from the headers of all programmed pages.
//!
//! * The highest sequence number of a logical page wins. Two pages with the same number hold the same
//!   content; the other page is recorded as a twin (see [`super::gc`]).
//! * A page whose header cannot be read was in flight at the power cut (its write was not acknowledged), or
//!   its block was being erased, or it is lost with its die. It counts as programmed and holds nothing: its
//!   logical page is unknown, and an older version of that may be found instead. Owners notice by the records
//!   that they keep ([`super`]).
//! * A block is read up to its first erased page. Nothing is written after it: an interrupted erase can leave
//!   pages that only look erased. For the same reason a block without valid pages, even one that looks
//!   erased, is erased before it is used; collectors do that unit by unit as blocks are needed.
//! * Erase counts come with the headers. A block without a readable header gets the mean of the others.
//!
//! While recovery runs, it needs 88 B for every logical page with content.

use std::rc::Rc;

use kvdrive_sim::TaskCell;

use super::{Ftl, Lpa};
use crate::spare::TAG_BYTES;
use crate::{BlockId, FlashPort, Ppa, Purpose, ReadError, Spare};

/// More page writes, or erases of a block, than any drive can reach: a header with such a number is ignored,
/// and numbers continue from the others.
const MOST_PAGES_WRITTEN: u64 = 1 << 60;
const MOST_ERASES: u32 = 1 << 31;

/// Result of the scan so far; it does not depend on the order in which pages are read.
#[derive(Default)]
struct Findings {
    logical_pages: u32,
    /// Index + 1 into `winners`, by logical page.
    index: Vec<u32>,
    winners: Vec<(Ppa, Spare)>,
    /// Logical page, sequence number, and the page that did not win, for pages whose number was the highest
    /// at that time.
    ties: Vec<(Lpa, u64, Ppa)>,
    /// By block, if a header was read in it: erase count and highest sequence number.
    blocks: Vec<Option<(u32, u64)>>,
    sequence: u64,
}

impl Findings {
    fn note(&mut self, block: BlockId, ppa: Ppa, spare: Spare) {
        if spare.sequence >= MOST_PAGES_WRITTEN || spare.block_erases >= MOST_ERASES {
            return;
        }
        self.sequence = self.sequence.max(spare.sequence);
        let (erases, youngest) = self.blocks[block.0 as usize].unwrap_or_default();
        self.blocks[block.0 as usize] = Some((erases.max(spare.block_erases), youngest.max(spare.sequence)));
        if spare.lpa >= u64::from(self.logical_pages) {
            return;
        }
        let lpa = Lpa(spare.lpa as u32);
        let index = &mut self.index[lpa.0 as usize];
        if *index == 0 {
            self.winners.push((ppa, spare));
            *index = self.winners.len() as u32;
            return;
        }
        let best = &mut self.winners[*index as usize - 1];
        if spare.sequence < best.1.sequence {
            return;
        }
        let mut loser = ppa;
        if spare.sequence > best.1.sequence || ppa < best.0 {
            loser = best.0;
            let tied = spare.sequence == best.1.sequence;
            *best = (ppa, spare);
            if !tied {
                return;
            }
        }
        self.ties.push((lpa, spare.sequence, loser));
    }
}

fn scan_unit(flash: FlashPort, unit: u32, findings: Rc<TaskCell<Findings>>) {
    let geometry = *flash.geometry();
    for index in 0..geometry.blocks_per_unit() {
        let block = geometry.block_of_unit(unit, index);
        for page in 0..geometry.pages_per_block {
            let ppa = geometry.ppa(block, page);
            match flash.read_spare(ppa, Purpose::Recovery) {
                Ok(spare) => findings.borrow_mut().note(block, ppa, spare),
                Err(ReadError::Damaged) => {}
                Err(ReadError::Erased) => break,
            }
        }
    }
}

/// Two pages with the same version of a logical page: a copy whose source was not erased before the power
/// cut.
#[derive(Clone, Copy)]
pub(super) struct Twin {
    pub lpa: Lpa,
    /// The page in the map.
    pub mapped: Ppa,
    pub other: Ppa,
}

impl Ftl {
    /// Fills an empty FTL, and calls `found` for every logical page with content.
    pub(super) fn rebuild(&self, found: &mut dyn FnMut(Lpa, u8, &[u8; TAG_BYTES])) {
        let core = &*self.0;
        let findings = Rc::new(TaskCell::new(Findings {
            logical_pages: core.logical_pages,
            index: vec![0; core.logical_pages as usize],
            winners: Vec::new(),
            ties: Vec::new(),
            blocks: vec![None; core.geometry.blocks() as usize],
            sequence: 0,
        }));
        let scan = |unit| {
            let (flash, findings) = (core.flash.clone(), findings.clone());
            core.flash.sim().spawn(move || scan_unit(flash, unit, findings))
        };
        let scans: Vec<_> = (0..core.geometry.units()).map(scan).collect();
        for scan in scans {
            scan.join();
        }
        let findings = findings.take();
        core.sequence.set(findings.sequence);
        self.adopt(&findings);
        for index in findings.index.iter().filter(|index| **index > 0) {
            let (_, spare) = &findings.winners[*index as usize - 1];
            found(Lpa(spare.lpa as u32), spare.kind, &spare.tag);
        }
        for unit in 0..core.geometry.units() {
            self.kick(unit, false);
        }
    }

    /// Takes over the findings.
    fn adopt(&self, findings: &Findings) {
        let core = &*self.0;
        let mut map = core.map.borrow_mut();
        let mut blocks = core.blocks.borrow_mut();
        for (ppa, spare) in &findings.winners {
            map.set(Lpa(spare.lpa as u32), Some(*ppa));
            blocks.page_lives(*ppa);
        }
        core.live_pages.set(findings.winners.len() as u64);
        let winner = |lpa: Lpa| &findings.winners[findings.index[lpa.0 as usize] as usize - 1];
        let twins = findings.ties.iter().filter(|(lpa, sequence, _)| winner(*lpa).1.sequence == *sequence);
        *core.twins.borrow_mut() =
            twins.map(|(lpa, _, other)| Twin { lpa: *lpa, mapped: winner(*lpa).0, other: *other }).collect();
        let known = || findings.blocks.iter().flatten();
        let mean = known().map(|(erases, _)| u64::from(*erases)).sum::<u64>() / known().count().max(1) as u64;
        for (number, block) in findings.blocks.iter().enumerate() {
            let id = BlockId(number as u32);
            let entry = blocks.block_mut(id);
            (entry.erases, entry.youngest) = block.unwrap_or((mean as u32, 0));
            blocks.settle(id);
        }
    }
}
