//! The flash port: the one way to flash. Every read, program and erase passes here, moves its data, takes
//! its time and is counted by purpose, so nothing is free by omission.
//!
//! [`super::timing`] decides how long an operation takes and what it waits for. In every timing, operations
//! on one unit take effect in the order in which they were requested: an owner that allocates a page and
//! calls [`FlashPort::program`] without waiting in between programs its blocks in order, whatever else runs;
//! a read sees what was programmed before the read was requested, and nothing of an erase that was requested
//! later. A unit that runs one operation at a time (timing `dies`) ensures this by itself. Where several
//! programs of a unit may be in flight at once (`flat`), each ends after those before it, an erase waits for
//! all of them, and a read of a page waits for the page's program.
//!
//! Content changes at the end of an operation. The port remembers operations in flight, so that a power cut
//! at any instant leaves the old content, the new content, or neither ([`FlashPort::media_image`]).
//!
//! *Failures.* A program or an erase can fail (so far only because of a rule of [`crate::faults`]). The port
//! then exchanges the block for a spare one (`port/retire.rs`); the caller waits longer and notices nothing
//! else: addresses stay as they are. When no spare block is left, the drive writes nothing more for good
//! ([`FlashPort::protection`]).
//!
//! A program or an erase must run to its end (or the power must be cut): if its task is dropped halfway, the
//! block stays as it was, and later changes of the unit wait for ever.

mod cut;
mod failed;
mod read;
mod reservation;
mod retire;

use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::rc::Rc;

use kvdrive_declare::{Counters, Counts};
use kvdrive_sim::{Cause, Ns, Resource, ResourceStatistics, Sim, TaskCell, TaskRefMut, WaitQueue};

use super::geometry::{BlockId, Geometry, Ppa};
use super::media::{Media, MediaPage, MediumError, PageData};
use super::purpose::Purpose;
use super::spare::Spare;
use super::timing::{self, Moved, Timing};
use super::{FlashConfig, Operation};
use crate::faults::{Effect, Faults, Moment, Struck, Subject};
use failed::bump;
pub use reservation::Reservation;
pub use retire::FlashHealth;
use retire::Retirement;

/// A page that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The page was not programmed since its block was erased.
    #[error("page is erased")]
    Erased,
    /// The content does not match its check.
    #[error("page is damaged")]
    Damaged,
}

/// An operation in flight. Addresses are the owner's.
enum InFlight {
    /// `fails`: its page will not be readable.
    Program {
        ppa: Ppa,
        data: PageData,
        spare: Spare,
        fails: bool,
    },
    Erase {
        block: BlockId,
        fails: bool,
    },
}

impl InFlight {
    fn is_program_of(&self, page: Ppa) -> bool {
        matches!(self, InFlight::Program { ppa, .. } if *ppa == page)
    }

    fn fails(&self) -> bool {
        matches!(self, InFlight::Program { fails: true, .. } | InFlight::Erase { fails: true, .. })
    }
}

/// One plane of one die.
struct Unit {
    /// Held while the unit runs an exclusive operation, or by the operation that begins next.
    resource: Resource,
    channel: u32,
    /// In the order of the requests, which is the order in which they end.
    in_flight: TaskCell<VecDeque<InFlight>>,
    /// Tasks that wait until an operation of this unit ends.
    ended: WaitQueue,
}

impl Unit {
    /// Waits until the operations in flight satisfy `is_so`.
    fn wait_until(&self, is_so: impl Fn(&VecDeque<InFlight>) -> bool) {
        while !is_so(&self.in_flight.borrow()) {
            self.ended.wait();
        }
    }

    /// Ends the first operation in flight.
    fn end_first(&self) {
        self.in_flight.borrow_mut().pop_front();
        self.ended.wake_all();
    }
}

/// Value of `next_page` before the medium was read.
const UNKNOWN: u32 = u32::MAX;

struct PortState {
    sim: Sim,
    config: FlashConfig,
    geometry: Geometry,
    /// By operation, purpose and channel: does the operation take time?
    charged: Vec<bool>,
    timing: Box<dyn Timing>,
    units: Vec<Unit>,
    /// By block, the only page that may be programmed next.
    next_page: TaskCell<Vec<u32>>,
    media: TaskCell<Box<dyn Media>>,
    faults: Faults,
    retirement: Retirement,
    /// Called before the medium is changed.
    before_change: OnceCell<Box<dyn Fn()>>,
    counters: NandCounters,
}

/// Operations on flash, section `nand` of reports.
#[derive(Default, Counters)]
pub struct NandCounters {
    /// NAND pages programmed.
    #[counter(by = &Purpose::LABELS)]
    pub programs: [Cell<u64>; Purpose::COUNT],
    /// NAND pages read, data or headers.
    #[counter(by = &Purpose::LABELS)]
    pub reads: [Cell<u64>; Purpose::COUNT],
    /// Blocks erased.
    #[counter(by = &Purpose::LABELS)]
    pub erases: [Cell<u64>; Purpose::COUNT],
}

/// Handle to the flash of one drive; clones refer to the same flash.
#[derive(Clone)]
pub struct FlashPort(Rc<PortState>);

fn charge_index(config: &FlashConfig, operation: Operation, purpose: Purpose, channel: u32) -> usize {
    (operation as usize * Purpose::COUNT + purpose.index()) * config.channels as usize + channel as usize
}

/// Computes the table of operations that take time.
fn charged(config: &FlashConfig) -> Vec<bool> {
    let mut charged = vec![true; Operation::ALL.len() * Purpose::COUNT * config.channels as usize];
    for uncharged in &config.uncharged {
        let channels = (0..config.channels).filter(|channel| uncharged.channel.is_none_or(|c| c == *channel));
        for channel in channels {
            charged[charge_index(config, uncharged.operation, uncharged.purpose, channel)] = false;
        }
    }
    charged
}

impl FlashPort {
    /// The flash of a drive on `media`, which was made for the same geometry.
    ///
    /// Panics if `config` does not pass [`FlashConfig::check`] or the medium has another geometry.
    pub fn new(sim: &Sim, config: FlashConfig, mut media: Box<dyn Media>) -> FlashPort {
        config.check().expect("a flash configuration is checked when it is loaded");
        let geometry = config.geometry();
        assert_eq!(media.geometry(), &geometry, "the medium was made for another drive");
        let timing = timing::row(&config.timing.name).expect("the timing was checked");
        let charged = charged(&config);
        let unit = |unit: u32| Unit {
            resource: Resource::new(sim, format!("unit {unit}"), 1),
            channel: geometry.channel_of(geometry.block_of_unit(unit, 0)),
            in_flight: TaskCell::default(),
            ended: WaitQueue::new(sim),
        };
        let retirement = Retirement::of(&*media);
        if media.bad_blocks().is_read_only() {
            // Writes of recovery do not survive this power cycle.
            media.freeze();
        }
        FlashPort(Rc::new(PortState {
            sim: sim.clone(),
            geometry,
            retirement,
            charged,
            timing: (timing.build)(sim, &config),
            units: (0..geometry.units()).map(unit).collect(),
            next_page: TaskCell::new(vec![UNKNOWN; geometry.blocks() as usize]),
            media: TaskCell::new(media),
            faults: Faults::new(sim),
            before_change: OnceCell::new(),
            counters: NandCounters::default(),
            config,
        }))
    }

    /// Geometry of the flash.
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// The executor.
    pub fn sim(&self) -> &Sim {
        &self.0.sim
    }

    /// The fault rules of the drive: for flash here, for commands elsewhere.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The faults that strike an operation on a block of the medium that belongs to `unit`.
    fn strike(&self, moment: Moment, unit: u32, block: BlockId, purpose: Purpose) -> Struck {
        let die = unit / self.0.geometry.planes;
        let struck = self.0.faults.strike(moment, Subject::Flash { purpose, die, block: block.0 });
        if struck.effect == Some(Effect::DieOffline) {
            self.lose_die(die);
        }
        struck
    }

    /// Does an operation that was struck like this fail? A read-only drive changes only its memory, where
    /// nothing fails.
    fn fails(&self, unit: u32, struck: Struck) -> bool {
        let is_struck = struck.effect == Some(Effect::Fail);
        (is_struck || self.0.retirement.is_lost(self.die_of_unit(unit))) && !self.protection().is_on()
    }

    fn die_of_unit(&self, unit: u32) -> u32 {
        unit / self.0.geometry.planes
    }

    /// `false`: there is no flash; programs vanish and reads find erased pages.
    pub fn is_enabled(&self) -> bool {
        self.0.config.enabled
    }

    fn sense<T>(
        &self,
        ppa: Ppa,
        purpose: Purpose,
        moved: Moved,
        take: impl Fn(&dyn Media, Ppa) -> MediaPage<T>,
    ) -> Result<T, ReadError> {
        self.sense_reserved(ppa, purpose, moved, None, take)
    }

    fn sense_reserved<T>(
        &self,
        ppa: Ppa,
        purpose: Purpose,
        moved: Moved,
        reserved: Option<Reservation>,
        take: impl Fn(&dyn Media, Ppa) -> MediaPage<T>,
    ) -> Result<T, ReadError> {
        let core = &*self.0;
        if !core.config.enabled {
            return Err(ReadError::Erased);
        }
        bump(&core.counters.reads[purpose.index()]);
        let _spent = core.sim.spend(Cause::Read);
        let since = core.sim.now();
        let number = core.geometry.unit_of(core.geometry.block_of(ppa));
        let unit = &core.units[number as usize];
        let charged = self.is_charged(Operation::Read, purpose, unit);
        let reserved = reserved.filter(|reserved| reserved.is_of(number) && reserved.wait());
        let held = reserved.is_none().then(|| unit.resource.acquire());
        unit.wait_until(|in_flight| !in_flight.iter().any(|other| other.is_program_of(ppa)));
        let mut page = self.attempt_read(number, ppa, purpose, &take, || {
            if charged {
                core.timing.before(Operation::Read, unit.channel, core.geometry.page_of(ppa), moved);
            }
        });
        for _ in 0..core.config.read_retries {
            if !matches!(page, MediaPage::Damaged) || core.retirement.is_lost(self.die_of_unit(number)) {
                break;
            }
            bump(&core.retirement.read_retries);
            page = self.attempt_read(number, ppa, purpose, &take, || {
                if charged {
                    core.sim.sleep(core.config.read_retry_ns);
                }
            });
        }
        let held = core.timing.holds_units().then_some((held, reserved));
        if charged {
            core.timing.after(Operation::Read, unit.channel, moved);
        }
        drop(held);
        self.note(since, "read", core.geometry.page_bytes, purpose);
        match page {
            MediaPage::Programmed(page) => Ok(page),
            MediaPage::Erased => Err(ReadError::Erased),
            MediaPage::Damaged => {
                bump(&core.retirement.read_errors);
                Err(ReadError::Damaged)
            }
        }
    }

    /// One attempt to read a page of `unit`, which `sense` waits for.
    fn attempt_read<T>(
        &self,
        unit: u32,
        ppa: Ppa,
        purpose: Purpose,
        take: impl Fn(&dyn Media, Ppa) -> MediaPage<T>,
        sense: impl FnOnce(),
    ) -> MediaPage<T> {
        let block = self.0.geometry.block_of(self.on_medium(ppa));
        let struck = self.strike(Moment::Read, unit, block, purpose);
        self.0.sim.sleep(struck.delay_ns);
        sense();
        // The block may have been exchanged in the meantime.
        let on_medium = self.on_medium(ppa);
        if struck.effect == Some(Effect::Flip) {
            self.change().flip(on_medium);
        }
        if self.0.retirement.is_lost(self.die_of_unit(unit)) {
            return MediaPage::Damaged;
        }
        let page = take(&**self.0.media.borrow(), on_medium);
        match page {
            MediaPage::Programmed(_) if struck.effect == Some(Effect::Unreadable) => MediaPage::Damaged,
            page => page,
        }
    }

    /// Programs a page. Panics unless it is the next page of its block.
    pub fn program(&self, ppa: Ppa, data: PageData, spare: Spare, purpose: Purpose) {
        let core = &*self.0;
        if !core.config.enabled {
            return;
        }
        assert!(
            data.written_end() <= core.geometry.page_bytes,
            "{} bytes do not fit a page",
            data.written_end()
        );
        let _spent = core.sim.spend(Cause::Program);
        let since = core.sim.now();
        let block = core.geometry.block_of(ppa);
        let number = core.geometry.unit_of(block);
        let unit = &core.units[number as usize];
        let charged = self.is_charged(Operation::Program, purpose, unit);
        let moved = Moved::Data(core.geometry.page_bytes);
        let held = unit.resource.acquire();
        if charged {
            core.timing.before(Operation::Program, unit.channel, core.geometry.page_of(ppa), moved);
        }
        self.step_block(block, core.geometry.page_of(ppa));
        let on_medium = core.geometry.block_of(self.on_medium(ppa));
        let struck = self.strike(Moment::Program, number, on_medium, purpose);
        let fails = self.fails(number, struck);
        unit.in_flight.borrow_mut().push_back(InFlight::Program { ppa, data: data.clone(), spare, fails });
        core.sim.sleep(struck.delay_ns);
        let held = core.timing.holds_units().then_some(held);
        if charged {
            core.timing.after(Operation::Program, unit.channel, moved);
        }
        unit.wait_until(|in_flight| in_flight.front().is_some_and(|first| first.is_program_of(ppa)));
        if fails {
            self.program_elsewhere(number, ppa, &data, &spare);
        } else {
            self.change().program(self.on_medium(ppa), &data, &spare);
        }
        if struck.effect == Some(Effect::Flip) {
            self.change().flip(self.on_medium(ppa));
        }
        unit.end_first();
        bump(&core.counters.programs[purpose.index()]);
        drop(held);
        self.note(since, "program", core.geometry.page_bytes, purpose);
    }

    /// Erases a block.
    pub fn erase(&self, block: BlockId, purpose: Purpose) {
        let core = &*self.0;
        if !core.config.enabled {
            return;
        }
        let _spent = core.sim.spend(Cause::Erase);
        let since = core.sim.now();
        let number = core.geometry.unit_of(block);
        let unit = &core.units[number as usize];
        // Held to the end in every timing: the next operation may be a program of the erased block.
        let held = unit.resource.acquire();
        unit.wait_until(VecDeque::is_empty);
        let struck = self.strike(Moment::Erase, number, self.block_on_medium(block), purpose);
        let fails = self.fails(number, struck);
        unit.in_flight.borrow_mut().push_back(InFlight::Erase { block, fails });
        core.sim.sleep(struck.delay_ns);
        if self.is_charged(Operation::Erase, purpose, unit) {
            core.timing.before(Operation::Erase, unit.channel, 0, Moved::Nothing);
            core.timing.after(Operation::Erase, unit.channel, Moved::Nothing);
        }
        if fails {
            self.erase_elsewhere(number, block, struck.leaves_nothing);
        } else {
            self.change().erase(self.block_on_medium(block));
        }
        unit.end_first();
        core.next_page.borrow_mut()[block.0 as usize] = 0;
        bump(&core.counters.erases[purpose.index()]);
        drop(held);
        self.note(since, "erase", 0, purpose);
    }

    /// Why the drive must not be used, if a record of another version was met on the medium.
    pub fn foreign(&self) -> Option<MediumError> {
        self.0.media.borrow().foreign()
    }

    /// Registers `write`, which is called before each change of the medium, so that the owner's records are
    /// never older than the flash.
    ///
    /// # Panics
    /// A function is registered already.
    pub fn before_change(&self, write: impl Fn() + 'static) {
        assert!(self.0.before_change.set(Box::new(write)).is_ok(), "one owner knows what flash holds");
    }

    fn change(&self) -> TaskRefMut<'_, Box<dyn Media>> {
        if let Some(write) = self.0.before_change.get() {
            write();
        }
        self.0.media.borrow_mut()
    }

    /// The owner will not read this page's data again before its block is erased; a medium may free it.
    pub fn discard(&self, ppa: Ppa) {
        if self.0.config.enabled {
            self.0.media.borrow_mut().discard(self.on_medium(ppa));
        }
    }

    /// As [`FlashPort::discard`], for `bytes` bytes of a page from `at` on. Returns `true` if the medium
    /// freed some of them.
    pub fn discard_part(&self, ppa: Ppa, at: u32, bytes: u32) -> bool {
        self.0.config.enabled && self.0.media.borrow_mut().discard_part(self.on_medium(ppa), at, bytes)
    }

    /// Destroys a page, header and data, to test how the rest of the drive reacts.
    pub fn damage(&self, ppa: Ppa) {
        self.0.media.borrow_mut().tear(self.on_medium(ppa));
    }

    /// Operations so far: [`NandCounters`].
    pub fn counts(&self) -> Counts {
        self.0.counters.counts()
    }

    /// Page reads so far, of data or of headers.
    pub fn reads(&self, purpose: Purpose) -> u64 {
        self.0.counters.reads[purpose.index()].get()
    }

    /// Pages programmed so far.
    pub fn programs(&self, purpose: Purpose) -> u64 {
        self.0.counters.programs[purpose.index()].get()
    }

    /// Blocks erased so far.
    pub fn erases(&self) -> u64 {
        self.0.counters.erases.iter().map(Cell::get).sum()
    }

    /// Blocks erased so far for one purpose.
    pub fn erases_for(&self, purpose: Purpose) -> u64 {
        self.0.counters.erases[purpose.index()].get()
    }

    /// Statistics of the resources that operations waited for: with timing `dies`, all units (`die`) and all channels
    /// (`channel`), each summed up.
    pub fn resources(&self) -> [(String, ResourceStatistics); 2] {
        let units = self.0.units.iter().map(|unit| unit.resource.statistics());
        self.0.timing.resources(ResourceStatistics::sum(units))
    }

    /// How long each unit and each channel was busy, ns, by the names of [`FlashPort::resources`]; nothing under a
    /// timing without units and channels.
    pub fn busy_parts(&self) -> Vec<(String, Vec<Ns>)> {
        let core = &*self.0;
        let units = core.units.iter().map(|unit| unit.resource.statistics().busy_ns).collect();
        core.timing.busy_parts(units)
    }

    fn is_charged(&self, operation: Operation, purpose: Purpose, unit: &Unit) -> bool {
        let core = &*self.0;
        core.charged[charge_index(&core.config, operation, purpose, unit.channel)]
    }

    /// The only page of `block` that may be programmed. Takes no time: it serves to refuse a state that
    /// contradicts the flash before an operation panics.
    pub fn next_page(&self, block: BlockId) -> u32 {
        let next = &mut self.0.next_page.borrow_mut()[block.0 as usize];
        if *next == UNKNOWN {
            *next = self.0.media.borrow().programmed_pages(self.block_on_medium(block));
        }
        *next
    }

    /// Advances the only page of `block` that may be programmed.
    fn step_block(&self, block: BlockId, page: u32) {
        let next = self.next_page(block);
        assert_eq!(page, next, "pages of block {} must be programmed in order and once", block.0);
        self.0.next_page.borrow_mut()[block.0 as usize] = next + 1;
    }

    fn note(&self, since: Ns, what: &'static str, bytes: u32, purpose: Purpose) {
        let trace = self.0.sim.trace();
        if trace.is_on() {
            trace.note(since, self.0.sim.now() - since, "flash", what, bytes.into(), purpose.name());
        }
    }
}
