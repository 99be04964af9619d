//! Pages in memory that threads share, counted by purpose.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kvdrive_content::Region;
use kvdrive_nvme::Status;
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose, Thread, Trouble, Writing};

type Counts = [AtomicU64; Purpose::ALL.len()];

/// Pages of 4 KiB. Writes that were not flushed are lost in a power cut.
pub struct SharedMemory {
    pages: Mutex<Contents>,
    count: u64,
    is_off: AtomicBool,
    written: Counts,
    read: Counts,
}

#[derive(Default)]
struct Contents {
    now: Vec<Option<Vec<u8>>>,
    durable: Vec<Option<Vec<u8>>>,
    /// The pages in which the two states differ.
    changed: Vec<u64>,
}

pub const PAGE_BYTES: u32 = 4096;

impl SharedMemory {
    pub fn new(count: u64) -> SharedMemory {
        SharedMemory::with(vec![None; count as usize])
    }

    fn with(pages: Vec<Option<Vec<u8>>>) -> SharedMemory {
        SharedMemory {
            count: pages.len() as u64,
            pages: Mutex::new(Contents { now: pages.clone(), durable: pages, changed: Vec::new() }),
            is_off: AtomicBool::new(false),
            written: Counts::default(),
            read: Counts::default(),
        }
    }

    /// Cuts the power: every call from now on is refused. Returns the durable pages.
    pub fn cut_power(&self) -> SharedMemory {
        let contents = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_off.store(true, Ordering::SeqCst);
        SharedMemory::with(contents.durable.clone())
    }

    /// Sets the counts to 0.
    pub fn forget_counts(&self) {
        self.written.iter().chain(&self.read).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Pages written for this purpose.
    pub fn written_for(&self, why: Purpose) -> u64 {
        self.written[why as usize].load(Ordering::Relaxed)
    }

    /// Pages read for this purpose.
    pub fn read_for(&self, why: Purpose) -> u64 {
        self.read[why as usize].load(Ordering::Relaxed)
    }

    fn with_power<T>(&self, page: PageId, act: impl FnOnce(&mut Contents) -> T) -> Result<T, PageError> {
        let mut contents = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_off.load(Ordering::SeqCst) {
            return Err(PageError { page, trouble: Trouble::Status(Status::ABORTED_POWER_LOSS) });
        }
        Ok(act(&mut contents))
    }
}

impl PageStore for SharedMemory {
    fn page_bytes(&self) -> u32 {
        PAGE_BYTES
    }

    fn pages(&self) -> u64 {
        self.count
    }

    fn read(
        &self,
        _: Thread,
        first: PageId,
        count: u32,
        why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        self.read[why as usize].fetch_add(count.into(), Ordering::Relaxed);
        self.with_power(first, |contents| {
            let run = &contents.now[first.0 as usize..][..count as usize];
            out.extend(
                run.iter().map(|page| Page::new(page.clone().map_or_else(Region::new, Region::from_bytes))),
            );
        })
    }

    fn start_write(
        &self,
        _: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError> {
        self.written[why as usize].fetch_add(run.len() as u64, Ordering::Relaxed);
        self.with_power(first, |contents| {
            for (at, page) in (first.0..).zip(run) {
                contents.now[at as usize] = Some(page.to_bytes(PAGE_BYTES));
                contents.changed.push(at);
            }
            Writing(0)
        })
    }

    fn finish_write(&self, _: Thread, _: Writing) -> Result<(), PageError> {
        Ok(())
    }

    fn trim(&self, _: Thread, first: PageId, count: u32, _: Purpose) -> Result<(), PageError> {
        self.with_power(first, |contents| {
            contents.now[first.0 as usize..][..count as usize].fill(None);
            contents.changed.extend(first.0..first.0 + u64::from(count));
        })
    }

    fn flush(&self, _: Thread, _: Purpose) -> Result<(), PageError> {
        self.with_power(PageId(0), |contents| {
            let Contents { now, durable, changed } = contents;
            changed.drain(..).for_each(|at| durable[at as usize].clone_from(&now[at as usize]));
        })
    }
}
