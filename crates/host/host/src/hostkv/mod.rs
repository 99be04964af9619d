//! HostKV: a key-value store that runs on the host, in the application's threads, over a drive of blocks. The
//! SAKER paper compares it with a store inside the drive.
//!
//! ```text
//!   thread 0 ─► HostKvClient ─┐              ┌─ core 0, queue pair 0 ─┐
//!   thread 1 ─► HostKvClient ─┼─► any Store ─┼─ core 1, queue pair 1 ─┼─► link ─► block namespace
//!   thread 2 ─► HostKvClient ─┘              └─ core 2, queue pair 2 ─┘
//! ```
//!
//! A store is any row of [`kvdrive_store::STORES`]. Its work, and every command it sends, takes time on the
//! core of the calling thread; pages that are not in its memory cross the link as blocks. Its background threads have
//! queue pairs of their own, and run in slices on all of these cores or on one more. It recovers its pairs from its
//! pages alone. A pair is durable after [`HostKvClient::sync`], not before.
//!
//! By the machine's clock the store has a thread of the program ([`StoreThread`]).

mod client;
mod cpu;
mod pages;
mod thread;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_declare::Counts;
use kvdrive_nvme::Status;
use kvdrive_nvme::nvm::BLOCK_BYTES;
use kvdrive_sim::{Core, Resource, Sim, TaskCell, TimeShare};
use kvdrive_store::{
    BACKGROUND_SLICE_NS, BACKGROUND_THREADS, Background, Cpu, Cursor, Ground, Recovered, Space, Store,
    StoreError, StoreOptions, StoreRow, Thread, run_background,
};

use crate::blocks::{BlockDriver, BlockHost, BlockQueue};
pub use client::{AnsweredCall, HostKvClient};
use cpu::HostCpu;
pub use kvdrive_store::StepCosts;
use pages::BlockPages;
pub(crate) use pages::error_of;
pub use thread::{Pipeline, StoreThread, StoreThreadConfig};

/// How a store on the host is configured.
pub struct HostKvConfig<'a> {
    /// Which store.
    pub row: &'static StoreRow,
    /// Its options.
    pub options: &'a StoreOptions,
    /// Times of its steps, ps.
    pub costs_ps: StepCosts,
    /// Entries of a thread's queue.
    pub entries: u32,
    /// Commands that a thread has under way at once.
    pub depth: u32,
}

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Its options do not fit the drive: a line that begins with the key of the option.
    #[error("{0}")]
    Options(String),
    /// The drive has no queue pair for a thread.
    #[error("queue pairs: {0}")]
    Queues(#[from] Status),
    /// The blocks do not hold such a store.
    #[error("recovery: {0}")]
    Store(#[from] StoreError),
    /// By the machine's clock: it has no thread.
    #[error("its thread: {0}")]
    Thread(String),
}

/// What a store is opened with, besides an executor.
struct Opening<'a> {
    row: &'static StoreRow,
    options: &'a StoreOptions,
    /// Threads that serve calls; the queues behind theirs are of background threads.
    served: u32,
    blocks: u64,
    most_blocks: u32,
    queues: Vec<Box<dyn BlockQueue>>,
    own: Option<Rc<Resource>>,
    cpu: Rc<dyn Cpu>,
}

impl Opening<'_> {
    /// Recovers the pairs in the blocks, which are known to be zero if `is_blank`, and starts the background threads.
    fn open(self, sim: &Sim, is_blank: bool) -> Result<(Rc<HostKv>, Recovered), OpenError> {
        let Opening { row, options, served, blocks, most_blocks, queues, own, cpu } = self;
        let threads = queues.len() as u32;
        let pages = Rc::new(BlockPages::new(blocks, most_blocks, queues));
        let store = (row.make)(options, Ground { pages: pages.clone(), cpu: cpu.clone(), threads });
        pages.is_blank.set(is_blank);
        let recovered = store.recover(Thread(0))?;
        pages.is_blank.set(false);
        for thread in (served..threads).map(Thread) {
            let (store, cpu) = (store.clone(), cpu.clone());
            sim.spawn(move || run_background(&*store, &*cpu, thread));
        }
        let (cursors, next_iterator) = (TaskCell::default(), Cell::new(1));
        Ok((Rc::new(HostKv { store, pages, own, cursors, next_iterator }), recovered))
    }
}

/// A store on the host.
pub struct HostKv {
    store: Rc<dyn Store>,
    pages: Rc<BlockPages>,
    /// The core of its background threads, if they do not share the threads' cores.
    own: Option<Rc<Resource>>,
    /// Iterators that are open and not in use at this moment.
    cursors: TaskCell<BTreeMap<u32, Box<dyn Cursor>>>,
    next_iterator: Cell<u32>,
}

impl HostKv {
    /// Opens a store on a drive of blocks, with as many threads as there are cores: it recovers the pairs in the
    /// blocks, and an empty drive is an empty store.
    ///
    /// # Errors
    /// The options do not fit the drive, it has no queue pair for a thread, or the blocks hold data that no
    /// store of this kind wrote.
    pub fn open(
        host: &Rc<BlockHost>,
        cores: &[Rc<Resource>],
        config: &HostKvConfig<'_>,
    ) -> Result<(Rc<HostKv>, Recovered), OpenError> {
        HostKv::on(host, cores, config, false)
    }

    /// As [`HostKv::open`], on a drive that was never written to: its blocks are known to be zero, and none
    /// is read for that.
    ///
    /// # Errors
    /// The options do not fit the drive.
    pub fn create(
        host: &Rc<BlockHost>,
        cores: &[Rc<Resource>],
        config: &HostKvConfig<'_>,
    ) -> Result<Rc<HostKv>, OpenError> {
        HostKv::on(host, cores, config, true).map(|(kv, _)| kv)
    }

    fn on(
        host: &Rc<BlockHost>,
        cores: &[Rc<Resource>],
        config: &HostKvConfig<'_>,
        is_blank: bool,
    ) -> Result<(Rc<HostKv>, Recovered), OpenError> {
        let HostKvConfig { row, options, costs_ps, entries, depth } = config;
        let sim = host.link().sim();
        (row.check)(options, BLOCK_BYTES, host.blocks(), cores.len() as u32).map_err(OpenError::Options)?;
        let background = (row.background)(options);
        let own = (background == Some(Background::Own))
            .then(|| Rc::new(Resource::new(sim, "host.core.background", 1)));
        let served = cores.len() as u32;
        let beside = background.map(|_| {
            let cores = own.as_ref().map_or(cores, std::slice::from_ref);
            Rc::new(TimeShare::new(sim, cores, BACKGROUND_SLICE_NS)) as Rc<dyn Core>
        });
        let beside = beside.iter().flat_map(|core| std::iter::repeat_n(core, BACKGROUND_THREADS as usize));
        let of_threads = cores.iter().map(|core| core.clone() as Rc<dyn Core>);
        let cores: Vec<_> = of_threads.chain(beside.cloned()).collect();
        let connect = |core: &Rc<dyn Core>| BlockDriver::connect(host, core.clone(), *entries, *depth);
        let connected = cores.iter().map(connect).map(|driver| Ok(Box::new(driver?) as Box<dyn BlockQueue>));
        let queues = connected.collect::<Result<_, Status>>()?;
        let (blocks, most_blocks) = (host.blocks(), host.most_blocks());
        let cpu = Rc::new(HostCpu::new(sim, &cores, *costs_ps));
        let opening = Opening { row, options, served, blocks, most_blocks, queues, own, cpu };
        opening.open(sim, is_blank)
    }

    /// The core for background work only, if the options ask for one.
    pub fn background_core(&self) -> Option<&Rc<Resource>> {
        self.own.as_ref()
    }

    /// Longest value it takes, bytes.
    pub fn max_value_bytes(&self) -> u32 {
        self.store.max_value_bytes()
    }

    /// How much space is used and free.
    pub fn space(&self) -> Space {
        self.store.space()
    }

    /// Counters of the store, and of its pages by operation and purpose: section `store` of reports.
    pub fn counts(&self) -> Counts {
        self.store.counts().and(&self.pages.counters)
    }

    /// The memory that the store takes, in bytes: section `store_memory` of reports.
    pub fn memory(&self) -> Counts {
        self.store.dram()
    }
}
