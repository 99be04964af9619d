//! Blocks of a drive as a store's pages: one page is one block.
//!
//! A run of pages is split into commands of at most as many blocks as the drive takes, all in progress at once. A
//! thread submits on its own queue pair; a thread that waits for another thread's write waits on its own
//! core.
//!
//! A drive of blocks answers a write when it is durable, so no page is ever torn. A page that cannot be read
//! is lost: the store gets the status unchanged.

use std::cell::Cell;
use std::collections::BTreeMap;

use kvdrive_declare::{By, Counters};
use kvdrive_nvme::Status;
use kvdrive_nvme::nvm::{BLOCK_BYTES, Blocks};
use kvdrive_sim::TaskCell;
use kvdrive_store::{Page, PageError, PageId, PageStore, Purpose, Thread, Trouble, Writing};

use crate::blocks::{Block, BlockCall, BlockQueue, BlockTicket};

/// Pages by purpose.
type ByPurpose = [Cell<u64>; Purpose::ALL.len()];

const PURPOSES: By = By {
    label: "purpose",
    places: Purpose::ALL.len(),
    name_of: |index| Purpose::ALL[index].1,
    is_sparse: true,
};

/// Pages of the store, on blocks of the drive.
#[derive(Default, Counters)]
pub(super) struct PageCounters {
    /// Pages written.
    #[counter(by = &PURPOSES)]
    pages_written: ByPurpose,
    /// Pages read.
    #[counter(by = &PURPOSES)]
    pages_read: ByPurpose,
    /// Pages trimmed.
    #[counter(by = &PURPOSES)]
    pages_trimmed: ByPurpose,
    /// Flush commands sent to the drive.
    page_flushes: Cell<u64>,
}

/// Commands under way, each with its first page.
type UnderWay = Vec<(PageId, BlockTicket)>;

pub(super) struct BlockPages {
    blocks: u64,
    most_blocks: u32,
    /// One for each thread.
    queues: Vec<Box<dyn BlockQueue>>,
    /// Writes that were started and not waited for, by their numbers.
    writing: TaskCell<BTreeMap<u64, UnderWay>>,
    next_writing: Cell<u64>,
    pub(super) counters: PageCounters,
    /// No page was ever written: pages are zero and are not read.
    pub(super) is_blank: Cell<bool>,
}

impl BlockPages {
    /// The pages on a drive of `blocks` blocks, of which a command moves at most `most_blocks`.
    pub(super) fn new(blocks: u64, most_blocks: u32, queues: Vec<Box<dyn BlockQueue>>) -> BlockPages {
        BlockPages {
            blocks,
            most_blocks,
            queues,
            writing: TaskCell::default(),
            next_writing: Cell::new(0),
            counters: PageCounters::default(),
            is_blank: Cell::new(false),
        }
    }

    fn queue(&self, Thread(thread): Thread) -> &dyn BlockQueue {
        &*self.queues[thread as usize]
    }

    /// Submits and waits.
    fn call(&self, thread: Thread, call: BlockCall<'_>) -> Result<Vec<Block>, Status> {
        let queue = self.queue(thread);
        queue.wait(queue.submit(call))
    }

    /// Divides `count` pages from `first` on among commands: returns the first page and the number of pages
    /// of each.
    fn commands(&self, first: PageId, count: u32) -> impl Iterator<Item = (PageId, u32)> + use<> {
        let most = self.most_blocks;
        (0..count)
            .step_by(most as usize)
            .map(move |from| (first.plus(u64::from(from)), most.min(count - from)))
    }
}

fn count(counts: &ByPurpose, why: Purpose, pages: u32) {
    let count = &counts[why as usize];
    count.set(count.get() + u64::from(pages));
}

/// The error of a page, by the status that the drive answered.
pub(crate) fn error_of(page: PageId, status: Status) -> PageError {
    let trouble = match status {
        Status::NAMESPACE_WRITE_PROTECTED => Trouble::ReadOnly,
        // A drive's blocks are whole or not written: a block that cannot be read was whole.
        Status::UNRECOVERED_ERROR => Trouble::Lost,
        status => Trouble::Status(status),
    };
    PageError { page, trouble }
}

impl PageStore for BlockPages {
    fn page_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn pages(&self) -> u64 {
        self.blocks
    }

    fn is_blank(&self) -> bool {
        self.is_blank.get()
    }

    fn read(
        &self,
        thread: Thread,
        first: PageId,
        pages: u32,
        why: Purpose,
        out: &mut Vec<Page>,
    ) -> Result<(), PageError> {
        if self.is_blank.get() {
            out.extend(std::iter::repeat_n(Page::default(), pages as usize));
            return Ok(());
        }
        count(&self.counters.pages_read, why, pages);
        let queue = self.queue(thread);
        let submit = |(page, count): (PageId, u32)| {
            (page, queue.submit(BlockCall::Read(Blocks { first: page.0, count })))
        };
        // All commands are under way before the first one is waited for.
        let under_way: UnderWay = self.commands(first, pages).map(submit).collect();
        for (page, ticket) in under_way {
            out.extend(queue.wait(ticket).map_err(|status| error_of(page, status))?);
        }
        Ok(())
    }

    fn start_write(
        &self,
        thread: Thread,
        first: PageId,
        run: &[Page],
        why: Purpose,
    ) -> Result<Writing, PageError> {
        self.is_blank.set(false);
        count(&self.counters.pages_written, why, run.len() as u32);
        let queue = self.queue(thread);
        let mut rest = run;
        let submit = |(page, count): (PageId, u32)| {
            let (blocks, behind) = rest.split_at(count as usize);
            rest = behind;
            (page, queue.submit(BlockCall::Write { first: page.0, blocks }))
        };
        let under_way = self.commands(first, run.len() as u32).map(submit).collect();
        let number = self.next_writing.replace(self.next_writing.get() + 1);
        self.writing.borrow_mut().insert(number, under_way);
        Ok(Writing(number))
    }

    fn finish_write(&self, thread: Thread, writing: Writing) -> Result<(), PageError> {
        let under_way = self.writing.borrow_mut().remove(&writing.0).expect("a write is finished once");
        let mut outcome = Ok(());
        for (page, ticket) in under_way {
            // A write ends after all of its commands, also if one was refused.
            let ended = self.queue(thread).wait(ticket).map_err(|status| error_of(page, status));
            outcome = outcome.and(ended.map(drop));
        }
        outcome
    }

    fn trim(&self, thread: Thread, first: PageId, pages: u32, why: Purpose) -> Result<(), PageError> {
        count(&self.counters.pages_trimmed, why, pages);
        let range = Blocks { first: first.0, count: pages };
        let ended = self.call(thread, BlockCall::Deallocate(&[range]));
        ended.map(drop).map_err(|status| error_of(first, status))
    }

    fn flush(&self, thread: Thread, _: Purpose) -> Result<(), PageError> {
        self.counters.page_flushes.set(self.counters.page_flushes.get() + 1);
        let ended = self.call(thread, BlockCall::Flush);
        ended.map(drop).map_err(|status| error_of(PageId(0), status))
    }
}
