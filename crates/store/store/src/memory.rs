//! Pages in memory and a processor, neither of which takes model time: for measurements of a store's own
//! work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kvdrive_content::Region;

use crate::cpu::{Cpu, Step, Thread};
use crate::pages::{Page, PageError, PageId, PageStore, Purpose, Writing};

/// Pages in memory. Written pages are shared, not copied, so a read costs as little as possible.
pub struct MemoryPages {
    page_bytes: u32,
    pages: RefCell<Vec<Option<Page>>>,
    blank: Page,
    read: Cell<u64>,
    written: Cell<u64>,
}

impl MemoryPages {
    /// Creates `pages` blank pages of `page_bytes` bytes.
    pub fn new(page_bytes: u32, pages: u64) -> MemoryPages {
        MemoryPages {
            page_bytes,
            pages: RefCell::new(vec![None; pages as usize]),
            blank: Rc::new(Region::new()),
            read: Cell::new(0),
            written: Cell::new(0),
        }
    }

    /// Numbers of pages read and written since the last call.
    pub fn take_counts(&self) -> (u64, u64) {
        (self.read.take(), self.written.take())
    }
}

impl PageStore for MemoryPages {
    fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    fn pages(&self) -> u64 {
        self.pages.borrow().len() as u64
    }

    fn read(
        &self,
        _: Thread,
        first: PageId,
        count: u32,
        _: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        let pages = self.pages.borrow();
        let run = &pages[first.0 as usize..first.0 as usize + count as usize];
        out.extend(run.iter().map(|page| page.as_ref().unwrap_or(&self.blank).clone()));
        self.read.set(self.read.get() + u64::from(count));
        Ok(())
    }

    fn start_write(&self, _: Thread, first: PageId, run: &[Page], _: Purpose) -> Result<Writing, PageError> {
        let mut pages = self.pages.borrow_mut();
        for (at, page) in (first.0 as usize..).zip(run) {
            pages[at] = Some(page.clone());
        }
        self.written.set(self.written.get() + run.len() as u64);
        Ok(Writing(0))
    }

    fn finish_write(&self, _: Thread, _: Writing) -> Result<(), PageError> {
        Ok(())
    }

    fn trim(&self, _: Thread, first: PageId, count: u32, _: Purpose) -> Result<(), PageError> {
        let mut pages = self.pages.borrow_mut();
        pages[first.0 as usize..first.0 as usize + count as usize].fill(None);
        Ok(())
    }

    fn flush(&self, _: Thread, _: Purpose) -> Result<(), PageError> {
        Ok(())
    }
}

/// A processor of one thread that counts the steps. They take the machine's own time.
#[derive(Default)]
pub struct CountingCpu {
    steps: [Cell<u64>; Step::ALL.len()],
}

impl CountingCpu {
    /// Count of each step since the last call, in the order of [`Step::ALL`].
    pub fn take_steps(&self) -> [u64; Step::ALL.len()] {
        std::array::from_fn(|step| self.steps[step].take())
    }
}

impl Cpu for CountingCpu {
    fn work(&self, _: Thread, steps: &[(Step, u64)]) {
        for (step, times) in steps {
            let count = &self.steps[*step as usize];
            count.set(count.get() + times);
        }
    }

    fn pause(&self, _: Thread, _: u64) {}

    fn wait(&self, _: Thread) {
        panic!("there is no other thread to wait for");
    }

    fn wake(&self) {}
}
