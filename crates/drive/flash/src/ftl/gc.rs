//! Garbage collection: one collector task per unit, started when the unit's clean blocks run low.
//!
//! A collector copies the valid pages of its victim into the unit's block for copies and erases the victim.
//! These rules keep it correct:
//!
//! * **A copy keeps its sequence number.** So however late a copy is programmed, recovery never prefers it to
//!   data that the host has written in the meantime.
//! * **Checked again before the switch.** The map changes to the copy only if it still points at the source.
//! * **Pins.** A read pins the block it reads from, and an erase waits for all pins. The collector pins its
//!   own victim, so that no page of it is discarded while it copies.
//! * **Progress.** The host never gets a unit's last clean block, so a victim's copies always have room. As
//!   long as the logical space is respected, some full block has an invalid page (see
//!   [`super::logical_pages`]); each round then gains at least one page, and every wait is for flash
//!   operations in flight.
//!
//! *After a power cut* a unit can be without any clean block: its last one was open for copies when the power
//! was cut. All valid pages in that block have a *twin*, the source in the unfinished victim (or, if the cut
//! came during the erase of the victim, the victim's pages have their twins among the copies). Recovery
//! records twins; a collector without any clean block looks for a block that has a twin for every valid page,
//! moves the map to these twins, and may then erase the block.
//!
//! A page that cannot be read any more is replaced by a page whose header says so (`lost`): the loss of data
//! must be durable, or an older version would reappear.

use std::rc::Rc;

use kvdrive_content::Region;

use super::blocks::{BlockState, Job, Stream};
use super::recovery::Twin;
use super::{Ftl, FtlState, Lpa, Pin};
use crate::media::PageData;
use crate::{BlockId, Ppa, Purpose, Spare};

impl Ftl {
    /// Starts the collector of `unit` if it has work. `eager`: a writer waits for space.
    pub(super) fn kick(&self, unit: u32, eager: bool) {
        let core = &*self.0;
        if core.next_job(unit, eager).is_some() && core.blocks.borrow_mut().begin_collecting(unit) {
            let ftl = self.clone();
            core.flash.sim().spawn(move || ftl.collect(unit));
        }
    }

    fn collect(&self, unit: u32) {
        let core = &*self.0;
        while let Some(job) = core.next_job(unit, !core.space.is_empty()) {
            let block = core.blocks.borrow_mut().claim(unit, job);
            // Either page of a pair may hold other data as soon as its block is written again.
            let is_here = |ppa| core.geometry.block_of(ppa) == block;
            core.twins.borrow_mut().retain(|twin| !is_here(twin.mapped) && !is_here(twin.other));
            if matches!(job, Job::Collect(_)) {
                self.relocate(unit, block);
                core.collected_blocks.set(core.collected_blocks.get() + 1);
            }
            while core.blocks.borrow().block(block).pins > 0 {
                core.unpinned.wait();
            }
            core.flash.erase(block, Purpose::FtlGc);
            core.blocks.borrow_mut().erased(block);
            core.space.wake_all();
        }
        core.blocks.borrow_mut().end_collecting(unit);
    }

    /// Moves every valid page out of `victim`.
    fn relocate(&self, unit: u32, victim: BlockId) {
        let core = &*self.0;
        let pin = Pin::on(core, victim);
        for page in 0..core.geometry.pages_per_block {
            let source = core.geometry.ppa(victim, page);
            if !core.map.borrow().is_valid(source) {
                continue;
            }
            let (data, spare) = match core.flash.read(source, Purpose::FtlGc) {
                Ok(read) => read,
                Err(_) => match self.lost_page_header(source) {
                    Some(spare) => (Rc::new(Region::new()).into(), spare),
                    None => continue,
                },
            };
            if core.map.borrow().is_valid(source) {
                self.copy(unit, source, data, spare);
            }
        }
        drop(pin);
        let block = *core.blocks.borrow().block(victim);
        assert_eq!(
            (block.state, block.live),
            (BlockState::Collecting, 0),
            "a page stayed in block {}",
            victim.0
        );
    }

    fn copy(&self, unit: u32, source: Ppa, data: PageData, spare: Spare) {
        let core = &*self.0;
        let lpa = Lpa(spare.lpa as u32);
        let place = core.blocks.borrow_mut().take_page(unit, Stream::Copies);
        let place = place.expect("a unit keeps a clean block for copies");
        let block_erases = core.blocks.borrow_mut().of(place).erases;
        let copy = Spare { block_erases, ..spare };
        core.flash.program(place, data, copy, Purpose::FtlGc);
        core.copied_pages.set(core.copied_pages.get() + 1);
        *core.copied_by_kind.borrow_mut().entry(copy.kind).or_default() += 1;
        core.blocks.borrow_mut().programmed(place, copy.sequence);
        if core.map.borrow().get(lpa) == Some(source) {
            core.move_to(lpa, source, place);
        }
    }

    /// The header of a page that replaces the unreadable page `source`. `None` if `source` became invalid in
    /// the meantime.
    fn lost_page_header(&self, source: Ppa) -> Option<Spare> {
        let core = &*self.0;
        core.lost_pages.set(core.lost_pages.get() + 1);
        if let Ok(spare) = core.flash.read_spare(source, Purpose::FtlGc) {
            return Some(Spare { lost: true, ..spare });
        }
        let lpa = core.map.borrow().find(source)?;
        // The sequence number of the lost version is unknown. A new number is correct if no write of this
        // page that already has its number is still in flight; such a write needs no space any more, so
        // waiting for it is safe.
        while core.is_numbered(lpa) {
            core.written.wait();
        }
        let spare = Spare { lost: true, ..Spare::new(0, lpa.0.into(), core.next_sequence(), [0; 48]) };
        core.map.borrow().is_valid(source).then_some(spare)
    }
}

impl FtlState {
    fn next_job(&self, unit: u32, eager: bool) -> Option<Job> {
        if self.blocks.borrow().is_without_blocks(unit) && !self.twins.borrow().is_empty() {
            self.use_twins(unit);
        }
        self.blocks.borrow().next_job(unit, &*self.policy, self.sequence.get(), eager)
    }

    /// Empties a block of `unit` without copying, if every valid page in it has a twin in another block.
    fn use_twins(&self, unit: u32) {
        let home = |ppa: Ppa| self.geometry.block_of(ppa);
        let mut twins = self.twins.borrow_mut();
        // Pairs whose mapped page is still the content of its logical page.
        twins.retain(|twin| self.map.borrow().get(twin.lpa) == Some(twin.mapped));
        for index in 0..self.geometry.blocks_per_unit() {
            let id = self.geometry.block_of_unit(unit, index);
            let mut ways: Vec<Twin> = twins
                .iter()
                .filter(|twin| home(twin.mapped) == id && home(twin.other) != id)
                .filter(|twin| self.blocks.borrow_mut().of(twin.other).state == BlockState::Closed)
                .copied()
                .collect();
            ways.sort_by_key(|twin| (twin.lpa, twin.other));
            ways.dedup_by_key(|twin| twin.lpa);
            let block = *self.blocks.borrow().block(id);
            if block.state != BlockState::Closed || block.pending > 0 || ways.len() as u32 != block.live {
                continue;
            }
            for twin in ways {
                self.move_to(twin.lpa, twin.mapped, twin.other);
            }
            self.blocks.borrow_mut().settle(id);
            return;
        }
    }

    /// Moves the map from one page to another with the same content. The source is not discarded: if the
    /// power is cut before its block is erased, either page may be found.
    fn move_to(&self, lpa: Lpa, source: Ppa, place: Ppa) {
        self.map.borrow_mut().set(lpa, Some(place));
        let mut blocks = self.blocks.borrow_mut();
        blocks.page_dies(source);
        blocks.page_lives(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::FtlConfig;
    use crate::media::{self, Media, MediaOptions};
    use crate::{FlashConfig, FlashPort};
    use kvdrive_sim::Sim;

    const KIND: u8 = 1;

    fn flash_config() -> FlashConfig {
        FlashConfig {
            blocks_per_die: 7,
            page_bytes: 512,
            sense_ns: 1_000,
            program_ns: 10_000,
            erase_ns: 50_000,
            transfer_ns_per_kib: 100,
            ..FlashConfig::default()
        }
    }

    /// A medium after a power cut, with pages of these logical pages and sequence numbers, from block 0 on.
    fn left_behind(blocks: &[[(u64, u64); 4]]) -> Box<dyn Media> {
        let kind = media::kind("tags").unwrap();
        let mut medium = (kind.open)(&flash_config().geometry(), &MediaOptions::default()).unwrap();
        for (at, (lpa, sequence)) in (0..).zip(blocks.iter().flatten()) {
            let spare = Spare::new(KIND, *lpa, *sequence, [0; 48]);
            medium.program(Ppa(at), &Rc::new(Region::new()).into(), &spare);
        }
        medium
    }

    /// Page 0 has a twin in block 1, which holds more valid pages than all others and is not collected. The
    /// block of its mapped page is erased and written again: a later version of page 0 may lie where the
    /// mapped one lay, and must not have that twin.
    #[test]
    fn a_twin_is_forgotten_when_the_block_of_either_page_is_collected() {
        let medium = left_behind(&[[(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1), (10, 5), (11, 6), (12, 7)]]);
        let sim = Sim::new();
        let config = FtlConfig {
            over_provisioning: 0.07,
            victim: "greedy".into(),
            gc_low_blocks: 2,
            placement_dies: 0,
        };
        sim.block_on(|| {
            let port = FlashPort::new(&sim, flash_config(), medium);
            let ftl = Ftl::recover(port, &config, &mut |_, _, _| {});
            let core = &*ftl.0;
            let pairs =
                || core.twins.borrow().iter().map(|twin| (twin.mapped, twin.other)).collect::<Vec<_>>();
            assert_eq!(pairs(), [(Ppa(0), Ppa(4))]);
            let is_written_again =
                || core.blocks.borrow().block(BlockId(0)).erases > 0 && core.map.borrow().is_valid(Ppa(0));
            for number in 0.. {
                assert!(number < 1000, "block 0 is never written again");
                if is_written_again() {
                    break;
                }
                ftl.write(Lpa(number % 4), Rc::new(Region::new()), KIND, [0; 48], Purpose::Value);
            }
            assert_eq!(core.blocks.borrow().block(BlockId(1)).erases, 0);
            assert_eq!(pairs(), []);
        });
    }
}
