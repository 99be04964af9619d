//! Logical pages of the flash translation layer as a store's pages.
//!
//! A page is durable when its program is done, so there is nothing to flush. Pages that were trimmed or never written
//! read as zeros, also after a power cut: a bit for each page is part of the engine's protected image. Any other page
//! that the translation layer does not find is lost. For a page that was rewritten without a trim, the translation
//! layer may find an older version; stores detect that themselves. Writes are numbered, and each page has the number of
//! its write in its spare area:
//!
//! ```text
//!   tag of a page    number of its write (u64) | zeros
//! ```
//!
//! Recovery writes and trims before there is a new protected image, so after a power cut during recovery the old image
//! counts again. A page that this image calls trimmed is nevertheless valid if the number of its write is later than
//! the image. Pages that the interrupted recovery had trimmed are valid again (which does no harm, because a store
//! marks the pages that it trims as void). Flash therefore keeps trimmed pages until recovery has ended; otherwise
//! collection might erase pages that the old image still calls valid.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_flash::Purpose;
use kvdrive_flash::ftl::away::AwayChange;
use kvdrive_flash::ftl::{Ftl, Lpa, Placement};
use kvdrive_flash::power::Journal;
use kvdrive_sim::{Cause, JoinHandle, Sim, TaskCell, join_all};
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose as StorePurpose, Thread, Trouble, Writing};

use super::image::StoreRecord;
use super::trimmed::Trimmed;

/// Kind of a store's page, for the translation layer.
const PAGE_KIND: u8 = b'S';

/// The pages of one drive.
pub struct FlashPages {
    sim: Sim,
    ftl: Ftl,
    journal: Journal,
    trimmed: Rc<TaskCell<Trimmed>>,
    /// See [`kvdrive_store::StoreRow::log_segment_pages`].
    log_segment_pages: Option<u32>,
    /// Writes that were started and not finished, by their numbers.
    writing: TaskCell<BTreeMap<u64, JoinHandle<()>>>,
    next_writing: Cell<u64>,
}

impl FlashPages {
    /// The pages of `ftl`, of which some are trimmed.
    pub fn new(
        sim: &Sim,
        ftl: &Ftl,
        journal: &Journal,
        trimmed: &Rc<TaskCell<Trimmed>>,
        log_segment_pages: Option<u32>,
    ) -> FlashPages {
        let away: Vec<Lpa> =
            trimmed.borrow().away.iter().map(Lpa).filter(|lpa| ftl.is_mapped(*lpa)).collect();
        away.into_iter().for_each(|lpa| ftl.trim(lpa));
        FlashPages {
            sim: sim.clone(),
            ftl: ftl.clone(),
            journal: journal.clone(),
            trimmed: trimmed.clone(),
            log_segment_pages,
            writing: TaskCell::default(),
            next_writing: Cell::new(0),
        }
    }

    fn read_one(&self, page: PageId, why: StorePurpose) -> Result<Page, PageError> {
        let lpa = lpa_of(page);
        if self.is_blank(lpa) {
            return Ok(Rc::new(Region::new()));
        }
        let lost = PageError { page, trouble: Trouble::Lost };
        if !self.ftl.is_mapped(lpa) {
            return Err(lost);
        }
        self.ftl.read(lpa, purpose_of(why)).map_err(|_| lost)
    }

    fn run(&self, first: PageId, pages: &[Page], why: StorePurpose) -> Run {
        let is_log = matches!(why, StorePurpose::Log | StorePurpose::Cleaning);
        Run {
            sim: self.sim.clone(),
            ftl: self.ftl.clone(),
            journal: self.journal.clone(),
            trimmed: self.trimmed.clone(),
            pages: (0..)
                .zip(pages)
                .map(|(page, content)| (lpa_of(first.plus(page)), content.clone()))
                .collect(),
            purpose: purpose_of(why),
            log_segment_pages: self.log_segment_pages.filter(|_| is_log),
        }
    }

    /// Was the page trimmed, or never written? A page that is being written for the first time may be mapped already.
    fn is_blank(&self, lpa: Lpa) -> bool {
        let trimmed = self.trimmed.borrow();
        trimmed.away.has(lpa.0) && (!self.ftl.is_mapped(lpa) || trimmed.holds(lpa))
    }
}

fn lpa_of(page: PageId) -> Lpa {
    Lpa(u32::try_from(page.0).expect("a store keeps to the pages there are"))
}

/// The flash purpose of a store's operation.
fn purpose_of(why: StorePurpose) -> Purpose {
    match why {
        StorePurpose::Log | StorePurpose::Wal | StorePurpose::Overflow => Purpose::Value,
        StorePurpose::Table | StorePurpose::Node | StorePurpose::Manifest | StorePurpose::Checkpoint => {
            Purpose::Index
        }
        StorePurpose::Compaction => Purpose::Compaction,
        StorePurpose::Lookup => Purpose::Lookup,
        StorePurpose::Cursor => Purpose::Cursor,
        StorePurpose::Cleaning => Purpose::ValueGc,
        StorePurpose::Recovery => Purpose::Recovery,
    }
}

/// A run of pages to be written, with what writing one needs.
struct Run {
    sim: Sim,
    ftl: Ftl,
    journal: Journal,
    trimmed: Rc<TaskCell<Trimmed>>,
    pages: Vec<(Lpa, Page)>,
    purpose: Purpose,
    /// Pages of a segment, if these are pages of a log.
    log_segment_pages: Option<u32>,
}

impl Run {
    /// Writes the pages side by side, and then marks them as written.
    fn write(&self) {
        let Run { sim, ftl, journal, trimmed, purpose, .. } = self;
        let writes = self.pages.iter().map(|(lpa, page)| {
            let tag = trimmed.borrow_mut().tag();
            let placement = match self.log_segment_pages {
                Some(pages) => Placement::Together((lpa.0 / pages).into()),
                None => Placement::Alone,
            };
            move || {
                ftl.write_placed(*lpa, page.clone(), PAGE_KIND, tag, *purpose, placement);
                trimmed.borrow_mut().release(*lpa);
            }
        });
        join_all(sim, writes);
        let away = &mut trimmed.borrow_mut().away;
        for (Lpa(page), _) in &self.pages {
            if !away.has(*page) {
                continue;
            }
            away.set(*page, false);
            journal.append(&StoreRecord::Pages(AwayChange { first: *page, pages: 1, is_away: false }));
        }
    }
}

impl PageStore for FlashPages {
    fn page_bytes(&self) -> u32 {
        self.ftl.page_bytes()
    }

    fn pages(&self) -> u64 {
        self.ftl.logical_pages().into()
    }

    fn read(
        &self,
        _: Thread,
        first: PageId,
        count: u32,
        why: StorePurpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        let pages = || (0..u64::from(count)).map(|page| first.plus(page));
        // Recovery of a store on an empty drive reads every page: no tasks for pages that were never written.
        if pages().all(|page| self.is_blank(lpa_of(page))) {
            out.extend(std::iter::repeat_n(Rc::new(Region::new()), count as usize));
            return Ok(());
        }
        let reads = pages().map(|page| move || self.read_one(page, why));
        for page in join_all(&self.sim, reads) {
            out.push(page?);
        }
        Ok(())
    }

    fn write(&self, _: Thread, first: PageId, run: &[Page], why: StorePurpose) -> Result<(), PageError> {
        self.run(first, run, why).write();
        Ok(())
    }

    fn start_write(
        &self,
        _: Thread,
        first: PageId,
        run: &[Page],
        why: StorePurpose,
    ) -> Result<Writing, PageError> {
        let run = self.run(first, run, why);
        let write = self.sim.spawn(move || run.write());
        let number = self.next_writing.replace(self.next_writing.get() + 1);
        self.writing.borrow_mut().insert(number, write);
        Ok(Writing(number))
    }

    fn finish_write(&self, _: Thread, Writing(number): Writing) -> Result<(), PageError> {
        let write = self.writing.borrow_mut().remove(&number).expect("a write is finished once");
        let _spent = self.sim.spend(Cause::Program);
        write.join();
        Ok(())
    }

    fn trim(&self, _: Thread, first: PageId, count: u32, _: StorePurpose) -> Result<(), PageError> {
        let first = lpa_of(first).0;
        for page in first..first + count {
            if !self.trimmed.borrow_mut().trim(Lpa(page)) {
                self.ftl.trim(Lpa(page));
            }
        }
        let next_write = self.trimmed.borrow().next_write;
        self.trimmed.borrow_mut().next_write_at_trim = next_write;
        self.journal.append(&StoreRecord::Written(next_write));
        self.journal.append(&StoreRecord::Pages(AwayChange { first, pages: count, is_away: true }));
        Ok(())
    }

    fn flush(&self, _: Thread, _: StorePurpose) -> Result<(), PageError> {
        Ok(())
    }
}
