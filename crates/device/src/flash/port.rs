//! The flash port: the one way to flash. Every read, program and erase passes here, moves its data, takes
//! its time and is counted by purpose, so nothing is free by omission.
//!
//! ```text
//!   read      |-- unit: sense --|-- channel: transfer --|        the unit is held to the end: the page lies in
//!   program   |-- channel: transfer --|-- unit: program --|      its page register
//!   erase     |-- unit: erase --|
//! ```
//!
//! Units and channels serve in the order in which requests *arrive* at them. Requests for one unit
//! therefore happen in the order in which they were asked for; an owner that allocates a page and calls
//! [`FlashPort::program`] without waiting for anything in between programs its blocks in order, whatever
//! else runs.
//!
//! Content changes at the end of an operation. An operation in flight is remembered, so that a power cut at
//! any instant leaves the old content, the new content, or neither ([`FlashPort::media_image`]).
//!
//! A program or an erase must come to its end (or the power be cut): where its task is dropped halfway the
//! block stays as it was, and the next program of that block then panics because it is out of order.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use kvdrive_sim::{Ns, Resource, ResourceStatistics, Rng, Sim, TaskCell, TaskRefMut};

use super::geometry::{BlockId, Geometry, Ppa};
use super::media::{Media, MediaPage, PageData};
use super::purpose::Purpose;
use super::spare::{SPARE_USED_BYTES, Spare};
use super::{FlashConfig, Operation};
use crate::faults::{Effect, Faults, Moment, Struck, Subject};

/// A page that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It was not programmed since its block was erased.
    #[error("page is erased")]
    Erased,
    /// What lies there does not fit its check.
    #[error("page is damaged")]
    Damaged,
}

enum InFlight {
    Program { ppa: Ppa, data: PageData, spare: Spare },
    Erase(BlockId),
}

/// What a power cut leaves of an operation.
#[derive(Clone, Copy)]
enum Left {
    Before,
    Halfway,
    Done,
}

impl Left {
    const OF_A_CUT: [Left; 3] = [Left::Before, Left::Halfway, Left::Done];
}

/// One plane of one die.
struct Unit {
    resource: Resource,
    channel: u32,
    in_flight: TaskCell<Option<InFlight>>,
}

/// Value of `next_page` before the medium was asked.
const UNKNOWN: u32 = u32::MAX;

struct Core {
    sim: Sim,
    config: FlashConfig,
    geometry: Geometry,
    /// By operation, purpose and channel: does it take time?
    charged: Vec<bool>,
    /// Time on the channel for a page with its spare area, and for the used part of the spare area alone, ns.
    page_transfer_ns: Ns,
    spare_transfer_ns: Ns,
    units: Vec<Unit>,
    channels: Vec<Resource>,
    /// By block, the only page that may be programmed next.
    next_page: TaskCell<Vec<u32>>,
    media: TaskCell<Box<dyn Media>>,
    faults: Faults,
    /// Called before the medium is changed.
    before_change: OnceCell<Box<dyn Fn()>>,
    reads: [Cell<u64>; Purpose::COUNT],
    programs: [Cell<u64>; Purpose::COUNT],
    erases: [Cell<u64>; Purpose::COUNT],
}

/// Handle to the flash of one drive; clones are the same flash.
#[derive(Clone)]
pub struct FlashPort(Rc<Core>);

fn charge_index(config: &FlashConfig, operation: Operation, purpose: Purpose, channel: u32) -> usize {
    (operation as usize * Purpose::COUNT + purpose.index()) * config.channels as usize + channel as usize
}

/// The table of what takes time.
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

fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl FlashPort {
    /// The flash of a drive on `media`, which was made for the same geometry.
    ///
    /// Panics when `config` does not pass [`FlashConfig::check`] or the medium has another geometry.
    pub fn new(sim: &Sim, config: FlashConfig, media: Box<dyn Media>) -> FlashPort {
        config.check().expect("a flash configuration is checked when it is loaded");
        let geometry = config.geometry();
        assert_eq!(media.geometry(), &geometry, "the medium was made for another drive");
        let transfer_ns = |bytes: u64| (bytes * config.transfer_ns_per_kib).div_ceil(1024);
        let charged = charged(&config);
        let unit = |unit: u32| Unit {
            resource: Resource::new(sim, format!("unit {unit}"), 1),
            channel: geometry.channel_of(geometry.block_of_unit(unit, 0)),
            in_flight: TaskCell::new(None),
        };
        let channel = |channel: u32| Resource::new(sim, format!("channel {channel}"), 1);
        FlashPort(Rc::new(Core {
            sim: sim.clone(),
            geometry,
            charged,
            page_transfer_ns: transfer_ns(u64::from(config.page_bytes) + u64::from(config.spare_bytes)),
            spare_transfer_ns: transfer_ns(SPARE_USED_BYTES as u64),
            units: (0..geometry.units()).map(unit).collect(),
            channels: (0..geometry.channels).map(channel).collect(),
            next_page: TaskCell::new(vec![UNKNOWN; geometry.blocks() as usize]),
            media: TaskCell::new(media),
            faults: Faults::new(sim),
            before_change: OnceCell::new(),
            reads: Default::default(),
            programs: Default::default(),
            erases: Default::default(),
            config,
        }))
    }

    /// How the flash is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// The executor it runs on.
    pub fn sim(&self) -> &Sim {
        &self.0.sim
    }

    /// The rules by which the drive fails: flash here, commands elsewhere.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// What strikes an operation on `block`.
    fn strike(&self, moment: Moment, block: BlockId, purpose: Purpose) -> Struck {
        let die = self.0.geometry.die_of(block);
        self.0.faults.strike(moment, Subject::Flash { purpose, die, block: block.0 })
    }

    /// `false`: there is no flash; programs vanish and reads find erased pages.
    pub fn is_enabled(&self) -> bool {
        self.0.config.enabled
    }

    /// Reads a page with its header.
    pub fn read(&self, ppa: Ppa, purpose: Purpose) -> Result<(PageData, Spare), ReadError> {
        let transfer_ns = self.0.page_transfer_ns;
        self.sense(ppa, purpose, transfer_ns, |media| match (media.read(ppa), media.read_spare(ppa)) {
            (MediaPage::Programmed(data), MediaPage::Programmed(spare)) => {
                MediaPage::Programmed((data, spare))
            }
            (MediaPage::Erased, _) => MediaPage::Erased,
            _ => MediaPage::Damaged,
        })
    }

    /// Reads `bytes` bytes of a page: a sense, and a transfer of that part with its share of the spare
    /// area. Only they may be taken out of the data.
    pub fn read_part(&self, ppa: Ppa, bytes: u32, purpose: Purpose) -> Result<PageData, ReadError> {
        let core = &*self.0;
        let page_bytes = u64::from(core.geometry.page_bytes);
        let transfer_ns = (core.page_transfer_ns * u64::from(bytes)).div_ceil(page_bytes);
        self.sense(ppa, purpose, transfer_ns, |media| media.read(ppa))
    }

    /// Parts of pages, each with the byte it begins at, will be read soon: [`Media::expect`]. No flash
    /// operation.
    pub fn expect(&self, parts: &[(Ppa, u32)], seen: &mut dyn FnMut(usize, &Rc<[u8]>)) {
        if self.0.config.enabled {
            self.0.media.borrow().expect(parts, seen);
        }
    }

    /// Reads the header of a page: a sense, and a transfer of the header alone. The header can be whole
    /// although the data is not; only [`FlashPort::read`] tells.
    pub fn read_spare(&self, ppa: Ppa, purpose: Purpose) -> Result<Spare, ReadError> {
        let transfer_ns = self.0.spare_transfer_ns;
        self.sense(ppa, purpose, transfer_ns, |media| media.read_spare(ppa))
    }

    fn sense<T>(
        &self,
        ppa: Ppa,
        purpose: Purpose,
        transfer_ns: Ns,
        take: impl FnOnce(&dyn Media) -> MediaPage<T>,
    ) -> Result<T, ReadError> {
        let core = &*self.0;
        if !core.config.enabled {
            return Err(ReadError::Erased);
        }
        bump(&core.reads[purpose.index()]);
        let since = core.sim.now();
        let block = core.geometry.block_of(ppa);
        let unit = self.unit(block);
        let charged = self.is_charged(Operation::Read, purpose, unit);
        let channel = self.channel(unit);
        let held = unit.resource.acquire();
        let struck = self.strike(Moment::Read, block, purpose);
        let sense_ns = if charged { core.config.sense_ns } else { 0 };
        core.sim.sleep(sense_ns.saturating_add(struck.delay_ns));
        if struck.effect == Some(Effect::Flip) {
            self.change().flip(ppa);
        }
        let mut page = take(&**core.media.borrow());
        if struck.effect == Some(Effect::Unreadable) && !matches!(page, MediaPage::Erased) {
            page = MediaPage::Damaged;
        }
        if charged {
            channel.run(transfer_ns);
        }
        drop(held);
        self.note(since, "read", core.geometry.page_bytes, purpose);
        match page {
            MediaPage::Programmed(page) => Ok(page),
            MediaPage::Erased => Err(ReadError::Erased),
            MediaPage::Damaged => Err(ReadError::Damaged),
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
        let since = core.sim.now();
        let block = core.geometry.block_of(ppa);
        let unit = self.unit(block);
        let charged = self.is_charged(Operation::Program, purpose, unit);
        let held = unit.resource.acquire();
        if charged {
            self.channel(unit).run(core.page_transfer_ns);
        }
        self.step_block(block, core.geometry.page_of(ppa));
        *unit.in_flight.borrow_mut() = Some(InFlight::Program { ppa, data: data.clone(), spare });
        let struck = self.strike(Moment::Program, block, purpose);
        let program_ns = if charged { core.config.program_ns } else { 0 };
        core.sim.sleep(program_ns.saturating_add(struck.delay_ns));
        unit.in_flight.borrow_mut().take();
        self.change().program(ppa, &data, &spare);
        if struck.effect == Some(Effect::Flip) {
            self.change().flip(ppa);
        }
        bump(&core.programs[purpose.index()]);
        drop(held);
        self.note(since, "program", core.geometry.page_bytes, purpose);
    }

    /// Erases a block.
    pub fn erase(&self, block: BlockId, purpose: Purpose) {
        let core = &*self.0;
        if !core.config.enabled {
            return;
        }
        let since = core.sim.now();
        let unit = self.unit(block);
        let held = unit.resource.acquire();
        *unit.in_flight.borrow_mut() = Some(InFlight::Erase(block));
        let struck = self.strike(Moment::Erase, block, purpose);
        let erase_ns =
            if self.is_charged(Operation::Erase, purpose, unit) { core.config.erase_ns } else { 0 };
        core.sim.sleep(erase_ns.saturating_add(struck.delay_ns));
        unit.in_flight.borrow_mut().take();
        self.change().erase(block);
        core.next_page.borrow_mut()[block.0 as usize] = 0;
        bump(&core.erases[purpose.index()]);
        drop(held);
        self.note(since, "erase", 0, purpose);
    }

    /// Has `write` called before each change of the medium: what the owner knows must not be older than
    /// what flash holds.
    ///
    /// # Panics
    /// Somebody asked before.
    pub fn before_change(&self, write: impl Fn() + 'static) {
        assert!(self.0.before_change.set(Box::new(write)).is_ok(), "one owner knows what flash holds");
    }

    fn change(&self) -> TaskRefMut<'_, Box<dyn Media>> {
        if let Some(write) = self.0.before_change.get() {
            write();
        }
        self.0.media.borrow_mut()
    }

    /// The owner will not read this page's data again before its block is erased. A medium may let go of it.
    pub fn discard(&self, ppa: Ppa) {
        if self.0.config.enabled {
            self.0.media.borrow_mut().discard(ppa);
        }
    }

    /// As [`FlashPort::discard`], for `bytes` bytes of a page from `at` on. `true` if the medium did let go
    /// of some.
    pub fn discard_part(&self, ppa: Ppa, at: u32, bytes: u32) -> bool {
        self.0.config.enabled && self.0.media.borrow_mut().discard_part(ppa, at, bytes)
    }

    /// Destroys a page, header and data, to see what the rest of the drive makes of it.
    pub fn damage(&self, ppa: Ppa) {
        self.0.media.borrow_mut().tear(ppa);
    }

    /// Page reads so far, of data or of headers.
    pub fn reads(&self, purpose: Purpose) -> u64 {
        self.0.reads[purpose.index()].get()
    }

    /// Pages programmed so far.
    pub fn programs(&self, purpose: Purpose) -> u64 {
        self.0.programs[purpose.index()].get()
    }

    /// Blocks erased so far.
    pub fn erases(&self) -> u64 {
        self.0.erases.iter().map(Cell::get).sum()
    }

    /// Blocks erased so far for one purpose.
    pub fn erases_for(&self, purpose: Purpose) -> u64 {
        self.0.erases[purpose.index()].get()
    }

    /// What units (`die`) and channels (`channel`) did, each kind summed up.
    pub fn resources(&self) -> [(String, ResourceStatistics); 2] {
        let sum = |resources: &mut dyn Iterator<Item = &Resource>| {
            resources.map(Resource::statistics).fold(ResourceStatistics::default(), |sum, one| {
                ResourceStatistics {
                    busy_ns: sum.busy_ns + one.busy_ns,
                    queue_ns: sum.queue_ns + one.queue_ns,
                    uses: sum.uses + one.uses,
                    servers: sum.servers + one.servers,
                }
            })
        };
        let core = &*self.0;
        [
            ("die".to_owned(), sum(&mut core.units.iter().map(|unit| &unit.resource))),
            ("channel".to_owned(), sum(&mut core.channels.iter())),
        ]
    }

    /// What would be found on the medium if the power were cut at this instant. A program in flight is not
    /// there, torn or done; an erase in flight is not begun, done, or has left any page untouched, torn or
    /// looking erased, by `rng`.
    pub fn media_image(&self, rng: &mut Rng) -> Vec<u8> {
        self.image_after(&mut |rng| Left::OF_A_CUT[rng.below(3) as usize], rng)
    }

    /// As [`FlashPort::media_image`], and nothing is torn: an operation in flight has not begun or is done.
    pub fn untorn_media_image(&self, rng: &mut Rng) -> Vec<u8> {
        self.image_after(&mut |rng| if rng.one_in(2) { Left::Before } else { Left::Done }, rng)
    }

    /// What would be on the medium if every operation in flight were left as `left` says.
    fn image_after(&self, left: &mut dyn FnMut(&mut Rng) -> Left, rng: &mut Rng) -> Vec<u8> {
        let core = &*self.0;
        let mut media = core.media.borrow().fork();
        for unit in &core.units {
            match &*unit.in_flight.borrow() {
                None => {}
                Some(InFlight::Program { ppa, data, spare }) => match left(rng) {
                    Left::Before => {}
                    Left::Halfway => media.tear(*ppa),
                    Left::Done => media.program(*ppa, data, spare),
                },
                Some(InFlight::Erase(block)) => match left(rng) {
                    Left::Before => {}
                    Left::Halfway => self.half_erase(&mut *media, *block, rng),
                    Left::Done => media.erase(*block),
                },
            }
        }
        media.image()
    }

    fn half_erase(&self, media: &mut dyn Media, block: BlockId, rng: &mut Rng) {
        for page in 0..media.programmed_pages(block) {
            let ppa = self.0.geometry.ppa(block, page);
            match rng.below(3) {
                0 => {}
                1 => media.tear(ppa),
                _ => media.blank(ppa),
            }
        }
    }

    fn unit(&self, block: BlockId) -> &Unit {
        &self.0.units[self.0.geometry.unit_of(block) as usize]
    }

    fn is_charged(&self, operation: Operation, purpose: Purpose, unit: &Unit) -> bool {
        let core = &*self.0;
        core.charged[charge_index(&core.config, operation, purpose, unit.channel)]
    }

    fn channel(&self, unit: &Unit) -> &Resource {
        &self.0.channels[unit.channel as usize]
    }

    /// The only page of `block` that may be programmed. Takes no time: it is for refusing a state that
    /// contradicts the flash before an operation panics for it.
    pub fn next_page(&self, block: BlockId) -> u32 {
        let next = &mut self.0.next_page.borrow_mut()[block.0 as usize];
        if *next == UNKNOWN {
            *next = self.0.media.borrow().programmed_pages(block);
        }
        *next
    }

    /// Moves on the only page of `block` that may be programmed.
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
