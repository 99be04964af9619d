//! Flash translation layer: logical pages that can be overwritten, on flash that cannot.
//!
//! ```text
//!   write(lpa) ─► map.rs: lpa -> ppa ─► flash port        blocks.rs: where the next page goes
//!                                                          placement.rs: pages that are freed together
//!                                                          gc.rs: making room;  victim/: at whose expense
//!                                                          recovery.rs: all of it again, from the headers of pages
//! ```
//!
//! *Order.* Every page written by the host gets the next sequence number; the highest number of a logical
//! page is its content. A write enters the map when its program is done; until then reads return the old
//! version, and a power cut leaves either version. Writes of one logical page take effect in the order of
//! their calls; writes of different pages are striped over all units and run concurrently if the caller does
//! not wait for each.
//!
//! *Memory.* 4 B per logical page and one bit per physical page where touched, 32 B per block. There is no
//! reverse table.
//!
//! This layer does not interpret pages: it stores its owner's `kind` and `tag` with a page and returns them
//! after recovery. A trimmed page does not stay trimmed over a power cut (it may come back as `found`):
//! owners that trim must remember what they own.

pub mod away;
mod blocks;
mod gc;
mod map;
mod placement;
mod recovery;
pub mod victim;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_content::Region;
use kvdrive_declare::{Counters, Section};
use kvdrive_nvme::Status;
use kvdrive_sim::{Cause, TaskCell, WaitQueue};

use crate::media::PageData;
use crate::spare::TAG_BYTES;
use crate::{BlockId, FlashConfigError, FlashPort, Geometry, Ppa, Purpose, Spare};
use blocks::{BlockState, Blocks};
pub use map::Lpa;
use map::PageMap;
pub use placement::Placement;
use recovery::Twin;
use victim::VictimPolicy;

/// How a drive's pages are managed: section `[ftl]`.
#[derive(Clone, Debug, PartialEq, Section)]
#[section("ftl", default)]
pub struct FtlConfig {
    /// Fraction of the physical pages that is not offered as logical pages.
    #[setting(is = Number(0.02, 0.9), image)]
    pub over_provisioning: f64,
    /// Victim policy: which block garbage collection empties next (`kvdrive list victims`).
    #[setting(is = Row(|| victim::VICTIMS.iter().map(|row| row.name).collect()))]
    pub victim: String,
    /// The FTL collects garbage in a unit that has fewer clean blocks than this.
    #[setting(is = Integer(2, 1 << 20))]
    pub gc_low_blocks: u32,
    /// Dies, whole blocks of which take the pages of a segment of a log, so that a segment that was freed leaves blocks
    /// that are erased without a copy. Only pages of that segment are in them if they are at most the pages of the
    /// segment over `flash.pages_per_block`. 0: all dies page by page, as for pages that are freed one by one.
    #[setting(is = Integer(0, 1 << 20))]
    pub placement_dies: u32,
}

impl FtlConfig {
    /// Says which value cannot be, on a drive of `geometry`.
    pub fn check(&self, geometry: &Geometry) -> Result<(), FlashConfigError> {
        if !(0.0..1.0).contains(&self.over_provisioning) {
            let what = format!("is {}, must be at least 0 and below 1", self.over_provisioning);
            return Err(FlashConfigError { key: "over_provisioning", what });
        }
        if victim::kind(&self.victim).is_none() {
            let names: Vec<&str> = victim::VICTIMS.iter().map(|kind| kind.name).collect();
            let what = format!("is {:?}, must be one of {}", self.victim, names.join(", "));
            return Err(FlashConfigError { key: "victim", what });
        }
        let most = geometry.blocks_per_unit().saturating_sub(2);
        if self.gc_low_blocks < 2 || self.gc_low_blocks > most {
            let what = format!("is {}, must be 2 to {most} (blocks of a unit - 2)", self.gc_low_blocks);
            return Err(FlashConfigError { key: "gc_low_blocks", what });
        }
        if logical_pages(geometry, self.over_provisioning) == 0 {
            let what = format!("is {}, leaves no logical page", self.over_provisioning);
            return Err(FlashConfigError { key: "over_provisioning", what });
        }
        Ok(())
    }
}

/// Logical pages of a drive: what over-provisioning leaves, but never so many that garbage collection could
/// get stuck.
///
/// Each unit has one clean block in reserve, one open for the host, and one open for copies. If the other
/// blocks can hold all valid pages, then some full block of some unit has a page to gain.
pub fn logical_pages(geometry: &Geometry, over_provisioning: f64) -> u32 {
    const WORKING_BLOCKS: u32 = 3;
    let offered = (geometry.pages() as f64 * (1.0 - over_provisioning)) as u64;
    let usable_blocks = geometry.blocks_per_unit().saturating_sub(WORKING_BLOCKS);
    let usable = u64::from(geometry.units()) * u64::from(usable_blocks) * u64::from(geometry.pages_per_block);
    offered.min(usable) as u32
}

/// The counters and the state of the FTL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Counters)]
#[counters(prefix = "ftl_")]
pub struct FtlStatistics {
    /// Logical pages with content.
    #[counter(state)]
    pub live_pages: u64,
    /// Blocks ready to be written.
    #[counter(state)]
    pub clean_blocks: u64,
    /// Blocks that garbage collection has emptied.
    pub collected_blocks: u64,
    /// Pages that garbage collection has copied.
    pub copied_pages: u64,
    /// Pages that garbage collection could not read.
    pub lost_pages: u64,
}

/// A write that has been called and has not ended.
#[derive(Default)]
struct Writing {
    /// The write has its sequence number, and its program is queued.
    numbered: bool,
    /// The page was trimmed after the call: the written content is not wanted any more.
    trimmed: bool,
}

struct FtlState {
    flash: FlashPort,
    geometry: Geometry,
    policy: Box<dyn VictimPolicy>,
    logical_pages: u32,
    map: TaskCell<PageMap>,
    blocks: TaskCell<Blocks>,
    /// By page and ticket, so writes of one page are in the order of their calls. A page buffer has a handful
    /// of them, a host that writes blocks thousands.
    writing: TaskCell<BTreeMap<(Lpa, u64), Writing>>,
    next_ticket: Cell<u64>,
    /// The last sequence number used.
    sequence: Cell<u64>,
    /// Writers that found no free page.
    space: WaitQueue,
    /// Tasks that wait for the end of an earlier write of the same page.
    written: WaitQueue,
    /// Collectors that wait for readers.
    unpinned: WaitQueue,
    live_pages: Cell<u64>,
    collected_blocks: Cell<u64>,
    copied_pages: Cell<u64>,
    /// The same by the kind of the page.
    copied_by_kind: TaskCell<BTreeMap<u8, u64>>,
    lost_pages: Cell<u64>,
    twins: TaskCell<Vec<Twin>>,
}

/// Handle to the FTL of one drive; clones refer to the same FTL.
#[derive(Clone)]
pub struct Ftl(Rc<FtlState>);

impl Ftl {
    /// The FTL of a fresh drive: every block of `flash` is erased.
    ///
    /// Panics if `config` does not pass [`FtlConfig::check`].
    pub fn new(flash: FlashPort, config: &FtlConfig) -> Ftl {
        Ftl::build(flash, config, BlockState::Clean)
    }

    /// As [`Ftl::new`], over the flash of a drive that was switched off or lost its power. Reads the header
    /// of every programmed page (purpose `recovery`), all units concurrently, and calls `found` for every
    /// logical page with content, in order, with the kind and tag of its last write.
    ///
    /// Content that a trim had removed may be found again.
    pub fn recover(
        flash: FlashPort,
        config: &FtlConfig,
        found: &mut dyn FnMut(Lpa, u8, &[u8; TAG_BYTES]),
    ) -> Ftl {
        let ftl = Ftl::build(flash, config, BlockState::Dirty);
        ftl.rebuild(found);
        ftl
    }

    fn build(flash: FlashPort, config: &FtlConfig, state: BlockState) -> Ftl {
        let geometry = *flash.geometry();
        config.check(&geometry).expect("an FTL configuration is checked when it is loaded");
        let policy = victim::kind(&config.victim).expect("the victim policy was checked");
        let logical_pages = logical_pages(&geometry, config.over_provisioning);
        let queue = || WaitQueue::new(flash.sim());
        Ftl(Rc::new(FtlState {
            geometry,
            policy: (policy.build)(),
            logical_pages,
            map: TaskCell::new(PageMap::new(logical_pages, geometry.pages())),
            blocks: TaskCell::new(Blocks::new(&geometry, config.gc_low_blocks, config.placement_dies, state)),
            writing: TaskCell::default(),
            next_ticket: Cell::new(0),
            sequence: Cell::new(0),
            space: queue(),
            written: queue(),
            unpinned: queue(),
            live_pages: Cell::new(0),
            collected_blocks: Cell::new(0),
            copied_pages: Cell::new(0),
            copied_by_kind: TaskCell::default(),
            lost_pages: Cell::new(0),
            twins: TaskCell::default(),
            flash,
        }))
    }

    /// Number of logical pages: addresses are below this number.
    pub fn logical_pages(&self) -> u32 {
        self.0.logical_pages
    }

    /// Data bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.0.geometry.page_bytes
    }

    /// The flash on which it works.
    pub fn flash(&self) -> &FlashPort {
        &self.0.flash
    }

    /// Does `lpa` have content?
    pub fn is_mapped(&self, lpa: Lpa) -> bool {
        self.0.lookup(lpa).is_some()
    }

    /// Where the content of `lpa` is at the moment. It may move at any time: this is for choosing an order of reads.
    pub fn position(&self, lpa: Lpa) -> Option<Ppa> {
        self.0.lookup(lpa)
    }

    /// The content of `lpa` at the start of the read. [`Status::UNRECOVERED_ERROR`] if it has none or it is
    /// damaged.
    pub fn read(&self, lpa: Lpa, purpose: Purpose) -> Result<Rc<Region>, Status> {
        self.read_data(lpa, purpose).map(PageData::into_region)
    }

    /// As [`Ftl::read`], as the medium keeps it: for a reader that has unpacked the same page before
    /// ([`PageData::is_same`]).
    pub fn read_data(&self, lpa: Lpa, purpose: Purpose) -> Result<PageData, Status> {
        let core = &*self.0;
        let ppa = core.lookup(lpa).ok_or(Status::UNRECOVERED_ERROR)?;
        let _pin = Pin::on(core, core.geometry.block_of(ppa));
        match core.flash.read_with_loss(ppa, purpose) {
            Ok((data, false)) => Ok(data),
            _ => Err(Status::UNRECOVERED_ERROR),
        }
    }

    /// Writes new content to `lpa`, a page that is freed alone; returns when it is on flash. `kind` (not 0) and `tag`
    /// are kept beside it.
    ///
    /// Waits for garbage collection only if no unit has room. Panics if `lpa` is not below
    /// [`Ftl::logical_pages`].
    pub fn write(
        &self,
        lpa: Lpa,
        data: impl Into<PageData>,
        kind: u8,
        tag: [u8; TAG_BYTES],
        purpose: Purpose,
    ) {
        self.write_placed(lpa, data, kind, tag, purpose, Placement::Alone);
    }

    /// As [`Ftl::write`], of a page that may be freed together with others.
    pub fn write_placed(
        &self,
        lpa: Lpa,
        data: impl Into<PageData>,
        kind: u8,
        tag: [u8; TAG_BYTES],
        purpose: Purpose,
        placement: Placement,
    ) {
        let core = &*self.0;
        assert!(lpa.0 < core.logical_pages, "logical page {} of {}", lpa.0, core.logical_pages);
        assert!(kind != 0, "page kind 0 is reserved");
        if !core.flash.is_enabled() {
            return;
        }
        let ticket = core.enter(lpa);
        while core.is_behind(lpa, ticket) {
            core.written.wait();
        }
        let Some(place) = self.take_page(lpa, ticket, placement) else {
            core.leave(lpa, ticket);
            return;
        };
        // No wait from here to the program: the pages of a block must be queued in order.
        core.number(lpa, ticket);
        let sequence = core.next_sequence();
        let block_erases = core.blocks.borrow_mut().of(place).erases;
        let spare = Spare { block_erases, ..Spare::new(kind, lpa.0.into(), sequence, tag) };
        core.flash.program(place, data.into(), spare, purpose);
        core.blocks.borrow_mut().programmed(place, sequence);
        if core.leave(lpa, ticket) {
            core.discard(place);
        } else {
            core.blocks.borrow_mut().page_lives(place);
            core.remap(lpa, Some(place));
        }
        if !core.space.is_empty() {
            core.space.wake_all();
        }
    }

    /// A page for the write of `lpa` with `ticket`; `None` if the write is not wanted any more.
    fn take_page(&self, lpa: Lpa, ticket: u64, placement: Placement) -> Option<Ppa> {
        let core = &*self.0;
        loop {
            if core.is_trimmed(lpa, ticket) {
                return None;
            }
            let place = core.blocks.borrow_mut().take_host_page(placement);
            if let Some(place) = place {
                if core.blocks.borrow().is_due(place, placement) {
                    self.kick(core.geometry.unit_of(core.geometry.block_of(place)), false);
                }
                return Some(place);
            }
            for unit in 0..core.geometry.units() {
                self.kick(unit, true);
            }
            let improves = core.blocks.borrow().may_improve();
            assert!(improves, "no block can be emptied, with {} pages live", core.live_pages.get());
            let _spent = core.flash.sim().spend(Cause::Room);
            core.space.wait();
        }
    }

    /// Removes the content of `lpa`. A write of it that is in progress will leave nothing either.
    pub fn trim(&self, lpa: Lpa) {
        let core = &*self.0;
        for (_, writing) in core.writing.borrow_mut().range_mut((lpa, 0)..=(lpa, u64::MAX)) {
            writing.trimmed = true;
        }
        core.remap(lpa, None);
        if !core.space.is_empty() {
            core.space.wake_all();
        }
    }

    /// Its counters and state.
    pub fn statistics(&self) -> FtlStatistics {
        let core = &*self.0;
        FtlStatistics {
            live_pages: core.live_pages.get(),
            clean_blocks: core.blocks.borrow().clean() as u64,
            collected_blocks: core.collected_blocks.get(),
            copied_pages: core.copied_pages.get(),
            lost_pages: core.lost_pages.get(),
        }
    }

    /// Pages of this kind that garbage collection has copied.
    pub fn copied_pages_of(&self, kind: u8) -> u64 {
        self.0.copied_by_kind.borrow().get(&kind).copied().unwrap_or(0)
    }

    /// Lowest and highest erase count of any block. Iterates over all blocks.
    pub fn wear(&self) -> (u32, u32) {
        let blocks = self.0.blocks.borrow();
        let erases = || blocks.iter().map(|block| block.erases);
        (erases().min().unwrap_or(0), erases().max().unwrap_or(0))
    }
}

impl FtlState {
    fn lookup(&self, lpa: Lpa) -> Option<Ppa> {
        if lpa.0 < self.logical_pages { self.map.borrow().get(lpa) } else { None }
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.set(self.sequence.get() + 1);
        self.sequence.get()
    }

    /// Maps `lpa` to `place`, or unmaps it, and releases its previous page.
    fn remap(&self, lpa: Lpa, place: Option<Ppa>) {
        let old = self.map.borrow_mut().set(lpa, place);
        let live = self.live_pages.get() + u64::from(place.is_some()) - u64::from(old.is_some());
        self.live_pages.set(live);
        if let Some(old) = old {
            self.blocks.borrow_mut().page_dies(old);
            self.discard(old);
        }
    }

    /// `ppa` will not be read again, except by reads in progress.
    fn discard(&self, ppa: Ppa) {
        if self.blocks.borrow_mut().of(ppa).pins == 0 {
            self.flash.discard(ppa);
        }
    }

    fn enter(&self, lpa: Lpa) -> u64 {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.writing.borrow_mut().insert((lpa, ticket), Writing::default());
        ticket
    }

    /// Ends a write; returns whether it was trimmed.
    fn leave(&self, lpa: Lpa, ticket: u64) -> bool {
        let ended = self.writing.borrow_mut().remove(&(lpa, ticket)).expect("the write has entered");
        if !self.written.is_empty() {
            self.written.wake_all();
        }
        ended.trimmed
    }

    /// Must an earlier write of the same page go first?
    fn is_behind(&self, lpa: Lpa, ticket: u64) -> bool {
        self.writing.borrow().range((lpa, 0)..(lpa, ticket)).next().is_some()
    }

    fn is_trimmed(&self, lpa: Lpa, ticket: u64) -> bool {
        self.writing.borrow().get(&(lpa, ticket)).is_some_and(|writing| writing.trimmed)
    }

    fn number(&self, lpa: Lpa, ticket: u64) {
        let mut writing = self.writing.borrow_mut();
        writing.get_mut(&(lpa, ticket)).expect("the write has entered").numbered = true;
    }

    /// Is a write of `lpa` with a sequence number in progress?
    fn is_numbered(&self, lpa: Lpa) -> bool {
        self.writing.borrow().range((lpa, 0)..=(lpa, u64::MAX)).any(|(_, writing)| writing.numbered)
    }
}

/// Pins a block: it is not erased, and no page of it is discarded.
struct Pin<'a> {
    core: &'a FtlState,
    block: BlockId,
}

impl<'a> Pin<'a> {
    fn on(core: &'a FtlState, block: BlockId) -> Pin<'a> {
        core.blocks.borrow_mut().block_mut(block).pins += 1;
        Pin { core, block }
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.core.flash.sim().halted() {
            return;
        }
        let mut blocks = self.core.blocks.borrow_mut();
        let entry = blocks.block_mut(self.block);
        entry.pins -= 1;
        if entry.pins == 0 {
            drop(blocks);
            self.core.unpinned.wake_all();
        }
    }
}
