//! Where table pages live: logical pages out of segments that the index takes from the common pool.
//!
//! The FTL maps every logical page on its own, so the pages of a table need not be neighbours, and a page given back is
//! reused for any purpose. When all pages of a segment have been given back, the segment returns to the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::{Ftl, Lpa};
use kvdrive_flash::media::PageData;
use kvdrive_nvme::Status;
use kvdrive_sim::{Sim, TaskCell, join_all};

use super::entry::TableId;
use super::layout::{PageBytes, Part};
use crate::dram::Dram;
use crate::value_log::{SegmentId, SegmentPool, Use};

/// Kind of a table page in its spare area.
pub const TABLE_PAGE_KIND: u8 = b'T';

#[derive(Default)]
struct Segments {
    /// Pages not in use of every segment taken.
    free: BTreeMap<SegmentId, Vec<u32>>,
    /// Segments that have a free page.
    open: BTreeSet<SegmentId>,
    free_pages: u32,
}

/// The index's share of the drive.
pub struct TableSpace {
    sim: Sim,
    ftl: Ftl,
    pool: SegmentPool,
    page_bytes: u32,
    dram: Option<TableDram>,
    segments: TaskCell<Segments>,
}

/// Lists and pages of tables that are in DRAM.
pub type TableDram = Dram<PageName, PageBytes>;
/// A page of a table.
pub type PageName = (TableId, Part, u32);

impl TableSpace {
    /// No page is taken.
    pub fn new(
        sim: &Sim,
        ftl: Ftl,
        pool: SegmentPool,
        page_bytes: u32,
        dram: Option<TableDram>,
    ) -> TableSpace {
        TableSpace { sim: sim.clone(), ftl, pool, page_bytes, dram, segments: TaskCell::default() }
    }

    /// The budget of DRAM; `None`: bounds and first keys are in DRAM, and no page is.
    #[inline]
    pub fn dram(&self) -> Option<&TableDram> {
        self.dram.as_ref()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// After a power cut: takes the pages on which live tables were found. `false` if a page lies in a segment of
    /// another owner, or is twice in the list.
    pub fn claim(&self, pages: impl Iterator<Item = Lpa>) -> bool {
        let mut segments = self.segments.borrow_mut();
        for Lpa(lpa) in pages {
            let id = self.pool.segment_of(lpa);
            if !segments.free.contains_key(&id) {
                if !self.pool.claim(id) {
                    return false;
                }
                segments.free_pages += self.pool.segment_pages();
                segments.free.insert(id, self.pool.lpas(id).rev().collect());
                segments.open.insert(id);
            }
            let free = segments.free.get_mut(&id).expect("inserted above");
            let Some(index) = free.iter().position(|other| *other == lpa) else { return false };
            free.remove(index);
            if free.is_empty() {
                segments.open.remove(&id);
            }
            segments.free_pages -= 1;
        }
        true
    }

    /// A page to write to. `CAPACITY_EXCEEDED` when the pool has no segment for tables any more.
    fn take(&self) -> Result<Lpa, Status> {
        let mut segments = self.segments.borrow_mut();
        let id = match segments.open.first() {
            Some(id) => *id,
            None => {
                let id = self.pool.alloc(Use::Index).ok_or(Status::CAPACITY_EXCEEDED)?;
                segments.free.insert(id, self.pool.lpas(id).rev().collect());
                segments.open.insert(id);
                segments.free_pages += self.pool.segment_pages();
                id
            }
        };
        let free = segments.free.get_mut(&id).expect("an open segment is taken");
        let lpa = free.pop().expect("an open segment has a free page");
        if free.is_empty() {
            segments.open.remove(&id);
        }
        segments.free_pages -= 1;
        Ok(Lpa(lpa))
    }

    /// Gives pages back; their content is discarded.
    pub fn release(&self, pages: &[Lpa]) {
        if self.sim.halted() {
            return;
        }
        let mut segments = self.segments.borrow_mut();
        for &Lpa(lpa) in pages {
            self.ftl.trim(Lpa(lpa));
            let id = self.pool.segment_of(lpa);
            let free = segments.free.get_mut(&id).expect("a page in use lies in a taken segment");
            free.push(lpa);
            if free.len() as u32 == self.pool.segment_pages() {
                segments.free.remove(&id);
                segments.open.remove(&id);
                segments.free_pages -= self.pool.segment_pages() - 1;
                self.pool.free(id);
            } else {
                segments.open.insert(id);
                segments.free_pages += 1;
            }
        }
    }

    /// Reads one page, as the medium keeps it. Error `UNRECOVERED_ERROR`: the page is damaged, or recovery did not find
    /// it ([`super::recovery`]).
    pub fn read(&self, page: Option<Lpa>, purpose: Purpose) -> Result<PageData, Status> {
        self.ftl.read_data(page.ok_or(Status::UNRECOVERED_ERROR)?, purpose)
    }

    /// The bytes of a page that was read.
    pub fn bytes_of(&self, page: PageData) -> PageBytes {
        PageBytes::new(page.into_region(), self.page_bytes)
    }

    /// Reads several pages side by side, in the order given.
    pub fn read_all(&self, pages: &[Option<Lpa>], purpose: Purpose) -> Result<Vec<PageBytes>, Status> {
        let reads = pages.iter().map(|page| || Ok(self.bytes_of(self.read(*page, purpose)?)));
        join_all(&self.sim, reads).into_iter().collect()
    }

    /// Pages taken and not given back.
    pub fn pages_in_use(&self) -> u32 {
        let segments = self.segments.borrow();
        segments.free.len() as u32 * self.pool.segment_pages() - segments.free_pages
    }

    /// The last segment that has free pages, and how many its other segments have: new pages are taken from the first one.
    pub fn last_open(&self) -> Option<(SegmentId, u32)> {
        let segments = self.segments.borrow();
        let last = *segments.open.last()?;
        Some((last, segments.free_pages - segments.free[&last].len() as u32))
    }

    /// Has the index taken a segment?
    pub fn has_segment(&self) -> bool {
        !self.segments.borrow().free.is_empty()
    }

    /// Pages that could be taken now, if no other user took from the pool.
    pub fn pages_available(&self) -> u32 {
        let left_free = self.pool.reserve().gc_segments;
        let segments = self.pool.free_count().saturating_sub(left_free);
        self.segments.borrow().free_pages + segments * self.pool.segment_pages()
    }

    /// The translation layer below.
    pub fn ftl(&self) -> &Ftl {
        &self.ftl
    }
}

/// Pages being written for a table that does not exist yet: given back when dropped.
pub struct PagesUnderWay {
    space: Rc<TableSpace>,
    pages: Vec<Lpa>,
}

impl PagesUnderWay {
    /// None yet.
    pub fn new(space: Rc<TableSpace>) -> PagesUnderWay {
        PagesUnderWay { space, pages: Vec::new() }
    }

    /// Writes pages side by side, each with its tag, and returns where they are. Takes every page before it
    /// writes the first one.
    pub fn write(&mut self, contents: Vec<(PageData, [u8; 48])>, purpose: Purpose) -> Result<&[Lpa], Status> {
        let first = self.pages.len();
        for _ in &contents {
            self.pages.push(self.space.take()?);
        }
        let space = &*self.space;
        let writes = contents
            .into_iter()
            .zip(&self.pages[first..])
            .map(|((data, tag), lpa)| move || space.ftl.write(*lpa, data, TABLE_PAGE_KIND, tag, purpose));
        join_all(&space.sim, writes);
        Ok(&self.pages[first..])
    }

    /// The table exists now and answers for its pages.
    pub fn keep(mut self) -> Rc<TableSpace> {
        self.pages.clear();
        self.space.clone()
    }
}

impl Drop for PagesUnderWay {
    fn drop(&mut self) {
        self.space.release(&self.pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value_log::Reserve;
    use kvdrive_content::Region;
    use kvdrive_flash::ftl::FtlConfig;
    use kvdrive_flash::media::{self, MediaOptions};
    use kvdrive_flash::{FlashConfig, FlashPort};

    fn space(sim: &Sim) -> Rc<TableSpace> {
        let flash = FlashConfig {
            blocks_per_die: 12,
            page_bytes: 512,
            sense_ns: 1,
            program_ns: 1,
            erase_ns: 1,
            transfer_ns_per_kib: 1,
            ..FlashConfig::default()
        };
        let media = (media::kind("ram").unwrap().open)(&flash.geometry(), &MediaOptions::default()).unwrap();
        let config = FtlConfig {
            over_provisioning: 0.1,
            victim: "greedy".into(),
            gc_low_blocks: 2,
            placement_dies: 2,
        };
        let ftl = Ftl::new(FlashPort::new(sim, flash, media), &config);
        let pool = SegmentPool::new(11, 4, Reserve { index_segments: 0, gc_segments: 1 }, |_| {});
        Rc::new(TableSpace::new(sim, ftl, pool, 512, None))
    }

    fn contents(pages: usize) -> Vec<(PageData, [u8; 48])> {
        let data = |page: usize| PageData::from(Rc::new(Region::from_bytes(vec![page as u8; 512])));
        (0..pages).map(|page| (data(page), [0; 48])).collect()
    }

    #[test]
    fn pages_written_for_nothing_come_back() {
        let sim = Sim::new();
        let space = space(&sim);
        assert_eq!(space.pages_available(), 4, "one of two segments is kept for others");
        let mut kept = PagesUnderWay::new(space.clone());
        let pages = sim.block_on(|| kept.write(contents(3), Purpose::Index)).unwrap().to_vec();
        kept.keep();
        let mut under_way = PagesUnderWay::new(space.clone());
        sim.block_on(|| under_way.write(contents(1), Purpose::Index)).unwrap();
        let refused = sim.block_on(|| under_way.write(contents(1), Purpose::Index));
        assert_eq!(refused.unwrap_err(), Status::CAPACITY_EXCEEDED);
        assert_eq!((space.pages_in_use(), space.pages_available()), (4, 0));
        drop(under_way);
        assert_eq!((space.pages_in_use(), space.pages_available()), (3, 1));
        let read = sim.block_on(|| space.read(Some(pages[2]), Purpose::Lookup)).unwrap();
        assert_eq!(space.bytes_of(read).view().array(0), Ok([2; 512]));
        space.release(&pages);
        assert_eq!((space.pages_in_use(), space.pages_available()), (0, 4));
    }
}
