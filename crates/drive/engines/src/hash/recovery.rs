//! Rebuilds an engine from the protected image and flash. Every page that is read is counted and takes its
//! time.
//!
//! ```text
//!   1  open pages, and programs that had not begun, continue; a page that was torn stays in the buffer (*stranded*)
//!      until its superblock is collected; an erase that had begun is done again
//!   2  every page of sections is read, for the pairs that the present copies point at and for the invalid pages; what
//!      the altered sections of the image point at counts too
//!   3  every page of pairs is read for their lengths
//! ```
//!
//! A page whose header names another place, or another life of its superblock, counts as damaged: the drive did not
//! write it there, and the right content is lost.
//!
//! The directory in the image says which copy of a section is the present one: if a page of sections is damaged,
//! lookups in its sections answer 88h instead of using an older copy. A page that cannot be read now may be readable
//! after another power-on, so a pair whose section cannot be read counts as valid and is kept.
//!
//! Between steps 2 and 3, one bit is kept for every grain, in the DRAM of the section cache, which is still empty. If
//! it is too small for all grains, the steps are repeated for as many superblocks at a time as fit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use kvdrive_content::Piece;
use kvdrive_flash::power::ImageError;
use kvdrive_flash::{BlockId, PageData, Purpose, ReadError, Spare};
use kvdrive_sim::TaskCell;

use super::consistency;
use super::core::HashState;
use super::gc::{MapItem, items_of_unit};
use super::image::{BufferedPage, PageState, Protected};
use super::layout::{Grain, Location};
use super::pair::PairHeader;
use super::records::RecordsHeader;
use super::space::{KIND_DATA, KIND_MAP, Space, SuperblockState};

/// The error if the pages of a superblock do not continue each other.
const INSIDE: &str = "a pair begins inside another";

/// The error if there is data after the position of a stream, which the stream would overwrite.
const AFTER_END: &str = "there is data after the end of an open superblock";

/// Pages read in parallel.
const SCANNERS: u32 = 64;

/// Sequence number of an open page: newer than every programmed one.
const OPEN_SEQUENCE: u64 = u64::MAX;

/// The newest copy of each invalid page by superblock, epoch and serial: sequence number of the page,
/// address, header.
type InvalidPages = BTreeMap<(u32, u32, u32), (u64, Grain, RecordsHeader)>;

/// Brings the empty `core` to the state in image and flash.
pub(super) fn recover(core: &Rc<HashState>, protected: Protected) -> Result<(), ImageError> {
    let (layout, format) = (&core.layout, core.cache.format());
    consistency::check(layout, format, &protected)?;
    let Protected { sequence, version, superblocks, free, streams, pages, .. } = protected;
    let Protected { directory, sections, records, issued, .. } = protected;
    core.issued.set(issued);
    core.space.restore(sequence, &superblocks, free, &streams);
    let mut next_pages = NextPages::new(core, &pages)?;
    for (number, page) in pages {
        restore_page(core, number, page, &mut next_pages)?;
    }
    next_pages.check()?;
    core.cache.restore_version(version);
    for (id, word) in (0..).zip(directory).filter(|(_, word)| *word != 0) {
        let location = Location::of_word(word);
        core.cache.restore_directory(id, location);
        core.space.found(location.grain, location.grains);
    }
    for section in sections {
        let (id, section) = consistency::altered_section(layout, format, section)?;
        core.cache.restore_dirty(id, section);
    }
    let bits = 8 * core.cache.budget_bytes();
    let at_once = (bits / u64::from(core.layout.superblock_grains)).clamp(1, core.layout.superblocks.into());
    for first in (0..core.layout.superblocks).step_by(at_once as usize) {
        let superblocks = first..core.layout.superblocks.min(first + at_once as u32);
        let (live, invalid_pages, unread) = find_pairs(core, &superblocks)?;
        count_pairs(core, superblocks, live, unread)?;
        if first == 0 {
            restore_invalid_pages(core, invalid_pages)?;
        }
    }
    if let Some(book) = &core.records {
        records.into_iter().for_each(|(superblock, buffer)| book.restore_buffer(superblock, buffer));
    }
    core.space.settle_states();
    Ok(())
}

fn restore_invalid_pages(core: &HashState, pages: InvalidPages) -> Result<(), ImageError> {
    let Some(book) = &core.records else { return Ok(()) };
    let words = core.cache.locations().into_iter().filter(|word| *word != 0);
    let sections: BTreeMap<Grain, u32> =
        words.map(Location::of_word).map(|location| (location.grain, location.grains)).collect();
    for (_, page, header) in pages.values() {
        if core.space.superblocks.borrow()[header.superblock as usize].epoch == header.epoch {
            let end = Grain(page.0 + u64::from(book.page_grains()));
            let before = sections.range(..end).next_back();
            let is_alone = before.is_none_or(|(section, grains)| section.0 + u64::from(*grains) <= page.0);
            consistency::ensure(is_alone, "an invalid page and a section have the same address")?;
            book.restore_page(header, *page);
            core.space.found(*page, book.page_grains());
        }
    }
    Ok(())
}

/// For each block, the page that is programmed next, according to flash and restarted programs.
struct NextPages<'a> {
    core: &'a Rc<HashState>,
    /// Of blocks with restarted programs: the page after these.
    restarted: BTreeMap<BlockId, u32>,
}

impl<'a> NextPages<'a> {
    /// The next pages of a drive with these buffered pages.
    fn new(
        core: &'a Rc<HashState>,
        pages: &BTreeMap<u32, BufferedPage>,
    ) -> Result<NextPages<'a>, ImageError> {
        let programming = pages.values().filter(|page| page.state == PageState::Programming).count();
        let fits = core.space.has_room_for(programming);
        consistency::ensure(fits, "more pages are on their way than the protected memory can hold")?;
        Ok(NextPages { core, restarted: BTreeMap::new() })
    }

    fn of(&self, block: BlockId) -> u32 {
        let restarted = self.restarted.get(&block).copied();
        restarted.unwrap_or_else(|| self.core.space.flash().next_page(block))
    }

    /// Notes a restarted program: pages of a block are programmed in order.
    fn begin(&mut self, page: u32) -> Result<(), ImageError> {
        let flash = self.core.space.flash();
        let ppa = self.core.layout.ppa(page);
        let (block, index) = (flash.geometry().block_of(ppa), flash.geometry().page_of(ppa));
        let fits = self.of(block) == index || !flash.is_enabled();
        self.restarted.insert(block, index + 1);
        consistency::ensure(fits, "a page on its way is not the next one of its block")
    }

    /// Checks that free superblocks are erased, and that streams continue where flash ends.
    fn check(&self) -> Result<(), ImageError> {
        let (core, layout) = (self.core, &self.core.layout);
        if !core.space.flash().is_enabled() {
            return Ok(());
        }
        let free = core.space.free.borrow().iter().map(|free| (*free, 0)).collect::<Vec<_>>();
        let streams = core
            .space
            .streams
            .borrow()
            .iter()
            .filter_map(|open| Some((open.superblock?, open.at)))
            .collect::<Vec<_>>();
        for (superblock, at) in free.into_iter().chain(streams) {
            let (pages, units) = (at / layout.page_grains, layout.units());
            let fits = (0..units)
                .all(|unit| self.of(layout.block(superblock, unit)) == (pages + units - 1 - unit) / units);
            consistency::ensure(
                fits,
                "flash and the protected image disagree about the pages of a superblock",
            )?;
        }
        Ok(())
    }
}

fn restore_page(
    core: &Rc<HashState>,
    number: u32,
    page: BufferedPage,
    next_pages: &mut NextPages<'_>,
) -> Result<(), ImageError> {
    let space = &core.space;
    match page.state {
        PageState::Open => space.restore_open(number, page.stream, page.first_item, page.region),
        PageState::Stranded => space.strand(number, Rc::new(page.region), page.first_item),
        PageState::Programming => match space.flash().read(core.layout.ppa(number), Purpose::Recovery) {
            Ok((_, spare)) if is_page(space, number, &page, &spare) => {}
            Ok(_) | Err(ReadError::Damaged) => space.strand(number, Rc::new(page.region), page.first_item),
            Err(ReadError::Erased) => {
                next_pages.begin(number)?;
                space.restart(number, page.stream, page.first_item, page.sequence, page.region);
            }
        },
    }
    Ok(())
}

/// Is this the header of a page that was being programmed?
fn is_page(space: &Space, number: u32, page: &BufferedPage, spare: &Spare) -> bool {
    let kind = page.stream.kind();
    space.is_own(number, kind, spare) && spare.sequence == page.sequence
}

/// Calls `on` with every page of those of `superblocks` that are of `kind`: page, content (`None`:
/// unreadable), first item, sequence number.
fn scan(
    core: &Rc<HashState>,
    kind: u8,
    superblocks: Range<u32>,
    on: impl FnMut(u32, Option<&PageData>, u32, u64) + 'static,
) {
    let on = Rc::new(TaskCell::new(on));
    let wanted: Vec<u32> = {
        let all = core.space.superblocks.borrow();
        let used = |superblock: &u32| {
            let superblock = &all[*superblock as usize];
            superblock.kind == kind && superblock.state != SuperblockState::Free
        };
        superblocks.filter(used).collect()
    };
    let pages: Rc<TaskCell<Vec<u32>>> = Rc::new(TaskCell::new(
        wanted
            .into_iter()
            .flat_map(|superblock| {
                let first = core.layout.first_page(superblock);
                first..first + core.layout.superblock_pages
            })
            .rev()
            .collect(),
    ));
    let scanners: Vec<_> = (0..SCANNERS)
        .map(|_| {
            let (core, pages, on) = (core.clone(), pages.clone(), on.clone());
            core.sim.clone().spawn(move || {
                loop {
                    let next = pages.borrow_mut().pop();
                    let Some(page) = next else { return };
                    if let Some((data, first_item)) = core.space.buffered_page(page) {
                        (on.borrow_mut())(page, Some(&data), first_item, OPEN_SEQUENCE);
                        continue;
                    }
                    let read = core.space.flash().read(core.layout.ppa(page), Purpose::Recovery);
                    match read {
                        Ok((_, spare)) if !core.space.is_own(page, kind, &spare) => {
                            core.space.disown(page);
                            (on.borrow_mut())(page, None, 0, 0);
                        }
                        Ok((data, spare)) => {
                            let first_item = super::space::first_item(&spare);
                            (on.borrow_mut())(page, Some(&data), first_item, spare.sequence);
                        }
                        Err(ReadError::Damaged) => (on.borrow_mut())(page, None, 0, 0),
                        Err(ReadError::Erased) => {}
                    }
                }
            })
        })
        .collect();
    for scanner in scanners {
        scanner.join();
    }
}

/// The grains of some superblocks at which a pair begins that a section points at.
#[derive(Default)]
struct LivePairs {
    first: u64,
    grains: u64,
    words: Vec<u64>,
    /// A contradiction that was found.
    wrong: Option<&'static str>,
}

impl LivePairs {
    fn of(core: &HashState, superblocks: &Range<u32>) -> LivePairs {
        let grains = u64::from(core.layout.superblock_grains) * superblocks.len() as u64;
        LivePairs {
            first: core.layout.grain(superblocks.start, 0).0,
            grains,
            words: vec![0; grains.div_ceil(64) as usize],
            wrong: None,
        }
    }

    fn ensure(&mut self, holds: bool, what: &'static str) {
        if !holds {
            self.wrong = Some(what);
        }
    }

    /// Notes that a section points at a pair here; no other section does.
    fn mark(&mut self, core: &HashState, grain: Grain) {
        let bit = grain.0.wrapping_sub(self.first);
        // Other superblocks are handled in other passes.
        if bit < self.grains {
            let word = &mut self.words[(bit / 64) as usize];
            let is_first = *word >> (bit % 64) & 1 == 0;
            *word |= 1 << (bit % 64);
            let superblock = core.space.superblocks.borrow()[core.layout.superblock(grain) as usize];
            let fits = is_first && consistency::holds_pairs(superblock.state, superblock.kind);
            self.ensure(
                fits,
                "two sections refer to one pair, or a section refers to a superblock without pairs",
            );
        }
    }

    /// Does a section point here? Called once for each pair found.
    fn take(&mut self, grain: Grain) -> bool {
        let bit = grain.0 - self.first;
        let word = &mut self.words[(bit / 64) as usize];
        let was = *word >> (bit % 64) & 1 == 1;
        *word &= !(1 << (bit % 64));
        was
    }

    fn result(self) -> Result<LivePairs, ImageError> {
        match self.wrong {
            None => Ok(self),
            Some(what) => Err(ImageError::new(0, what)),
        }
    }
}

/// Sections in pages that cannot be read.
type UnreadSections = BTreeSet<u64>;

/// Sections that were not found at the location in the directory. Sections in unreadable pages are not
/// expected.
#[derive(Default)]
struct MissingSections {
    /// Indexed by section: is it missing?
    sections: Vec<bool>,
    /// Indexed by page: was it read?
    pages: Vec<bool>,
}

impl MissingSections {
    fn of(core: &HashState) -> MissingSections {
        let layout = &core.layout;
        MissingSections {
            sections: vec![true; core.cache.sections() as usize],
            pages: vec![false; (layout.superblocks * layout.superblock_pages) as usize],
        }
    }

    /// The locations where they should be.
    fn locations(&self, core: &HashState) -> impl Iterator<Item = (u64, Location)> {
        let missing = (0..).zip(&self.sections).filter(|(_, is_missing)| **is_missing);
        missing.filter_map(move |(id, _)| {
            // The copy on flash of an altered section is not the present one.
            let location = core.cache.location(id)?;
            core.cache.is_as_at(id, location).then_some((id, location))
        })
    }

    fn is_read(&self, core: &HashState, location: Location) -> bool {
        self.pages[core.layout.page(location.grain) as usize]
    }

    /// Is a section missing from a page that was read?
    fn any(&self, core: &HashState) -> bool {
        self.locations(core).any(|(_, location)| self.is_read(core, location))
    }

    /// Sections in pages that could not be read.
    fn unread(&self, core: &HashState) -> UnreadSections {
        self.locations(core)
            .filter(|(_, location)| !self.is_read(core, *location))
            .map(|(id, _)| id)
            .collect()
    }
}

/// Step 2: finds the pairs that sections point at, the invalid pages, and the sections whose content is
/// unknown.
fn find_pairs(
    core: &Rc<HashState>,
    superblocks: &Range<u32>,
) -> Result<(LivePairs, InvalidPages, UnreadSections), ImageError> {
    let found = Rc::new(TaskCell::new((
        LivePairs::of(core, superblocks),
        InvalidPages::new(),
        MissingSections::of(core),
    )));
    core.cache.dirty_pairs(&mut |grain| found.borrow_mut().0.mark(core, grain));
    let (all, engine) = (found.clone(), core.clone());
    scan(core, KIND_MAP, 0..core.layout.superblocks, move |page, data, _, sequence| {
        let Some(data) = data else { return };
        let layout = &engine.layout;
        let (live, invalid_pages, missing) = &mut *all.borrow_mut();
        missing.pages[page as usize] = true;
        let end = engine.space.written_grains(layout.superblock_of_page(page));
        let heads = data.forward();
        for unit in 0..layout.page_bytes() / layout.unit_bytes {
            items_of_unit(&engine, &heads, unit * layout.unit_bytes, &mut |item, at, length| {
                let grain = Grain(layout.first_grain(page).0 + u64::from(at / layout.grain_bytes));
                live.ensure(layout.within(grain) + layout.grains_of(length) <= end, AFTER_END);
                match item {
                    MapItem::Section(header) => {
                        let location = Location { grain, grains: layout.grains_of(length) };
                        let format = engine.cache.format();
                        if !engine.cache.is_as_at(header.id, location) {
                            return;
                        }
                        if let Some(section) = format.decode(data.item(at, length)) {
                            if !consistency::has_its_slots(layout, format, &*section) {
                                live.ensure(
                                    false,
                                    "a section on flash refers to an address beyond the drive",
                                );
                                return;
                            }
                            missing.sections[header.id as usize] = false;
                            section.pairs(&mut |_, grain| live.mark(&engine, grain));
                        }
                    }
                    MapItem::Records(header)
                        if header.superblock < layout.superblocks && header.serial < u32::MAX =>
                    {
                        let new = (sequence, grain, header);
                        let name = (header.superblock, header.epoch, header.serial);
                        let best = invalid_pages.entry(name).or_insert(new);
                        if new.0 > best.0 {
                            *best = new;
                        }
                    }
                    MapItem::Records(_) => {}
                }
            });
        }
    });
    let (mut live, invalid_pages, missing) = found.take();
    live.ensure(!missing.any(core), "a section is not at its address in the directory");
    Ok((live.result()?, invalid_pages, missing.unread(core)))
}

/// Page boundaries that a pair may cross, of which so far only one of the two pages was read; by the second page, in
/// its grains. Needed because pages are read in any order. Most boundaries are crossed by no pair and are not in here.
#[derive(Default)]
struct Seams {
    /// The last pair of the previous page reaches up to this grain.
    reach: BTreeMap<u32, u32>,
    /// The first pair of the page begins at this grain.
    begin: BTreeMap<u32, u32>,
}

impl Seams {
    fn begin(&mut self, page: u32, at: u32) -> bool {
        match self.reach.remove(&page) {
            None if at == 0 => true,
            None => self.begin.insert(page, at).is_none(),
            Some(reach) => reach <= at,
        }
    }

    fn reach(&mut self, page: u32, to: u32) -> bool {
        match self.begin.remove(&page) {
            None => self.reach.insert(page, to).is_none(),
            Some(begin) => to <= begin,
        }
    }
}

/// Counts the pairs that are found on pages.
struct PairCount {
    engine: Rc<HashState>,
    live: LivePairs,
    unread: UnreadSections,
    seams: Seams,
}

impl PairCount {
    /// Counts the pairs that begin in a page.
    fn page(&mut self, page: u32, data: Option<&PageData>, first_item: u32) {
        let engine = self.engine.clone();
        let layout = &engine.layout;
        let Some(data) = data else { return self.unread_page(page) };
        if first_item > layout.page_grains {
            self.live.ensure(false, "the first item of a page lies outside it");
            return;
        }
        self.live.ensure(self.seams.begin(page, first_item), INSIDE);
        let first = layout.first_grain(page);
        let end = engine.space.written_grains(layout.superblock_of_page(page));
        let mut at = first_item;
        while at < layout.page_grains {
            let offset = at * layout.grain_bytes;
            let read = |bytes, sink: &mut dyn FnMut(Piece<'_>)| data.read(offset, bytes, sink);
            let grain = Grain(first.0 + u64::from(at));
            let Some(header) = PairHeader::read(layout.page_bytes() - offset, read) else {
                // A stream continues directly after its last pair, since a scan for pairs stops at a gap.
                let is_open = end > layout.within(first) && end < layout.within(first) + layout.page_grains;
                let is_whole = !is_open || layout.within(grain) == end;
                self.live.ensure(is_whole, "a stream leaves a gap after its last pair");
                return;
            };
            let grains = layout.grains_of(header.pair_bytes());
            if layout.within(grain) + grains > end {
                self.live.ensure(false, AFTER_END);
                return;
            }
            self.pair(grain, grains, &header);
            at += grains;
        }
        self.reach(page, at);
    }

    /// Of a page that cannot be read the lengths of pairs are unknown; counting them as present keeps the superblock
    /// from being erased. Even if a later read of the page succeeds, it does not count in this life: a pair that became
    /// invalid would take more grains away than were counted.
    fn unread_page(&mut self, page: u32) {
        self.engine.space.disown(page);
        let layout = &self.engine.layout;
        let first = layout.first_grain(page);
        for at in 0..layout.page_grains {
            let grain = Grain(first.0 + u64::from(at));
            if self.live.take(grain) {
                self.engine.space.found(grain, 1);
            }
        }
        self.seams.begin(page, layout.page_grains);
    }

    fn pair(&mut self, grain: Grain, grains: u32, header: &PairHeader) {
        let engine = &self.engine;
        if self.live.take(grain) {
            engine.space.found(grain, grains);
            engine.live_bytes.set(engine.live_bytes.get() + u64::from(header.value_bytes));
        } else if self.unread.contains(&engine.probe(&header.key, header.probe).section) {
            engine.space.found(grain, grains);
        } else {
            self.live.ensure(engine.space.found_dead(grain, grains), INSIDE);
        }
    }

    /// The last pair of `page` ends at grain `to`, counted from the page's first one.
    fn reach(&mut self, page: u32, to: u32) {
        let page_grains = self.engine.layout.page_grains;
        for next in page + 1..page + to.div_ceil(page_grains) {
            let reach = (to - (next - page) * page_grains).min(page_grains);
            self.live.ensure(self.seams.reach(next, reach), INSIDE);
        }
    }
}

/// Step 3: counts valid grains, by the lengths in the pairs' headers.
fn count_pairs(
    core: &Rc<HashState>,
    superblocks: Range<u32>,
    live: LivePairs,
    unread: UnreadSections,
) -> Result<(), ImageError> {
    let count = PairCount { engine: core.clone(), live, unread, seams: Seams::default() };
    let count = Rc::new(TaskCell::new(Some(count)));
    let counting = count.clone();
    scan(core, KIND_DATA, superblocks, move |page, data, first_item, _| {
        let mut count = counting.borrow_mut();
        count.as_mut().expect("pairs are counted until the scan ends").page(page, data, first_item);
    });
    let PairCount { live, seams, .. } = count.take().expect("a scan leaves its count");
    let mut live = live.result()?;
    if !core.space.flash().is_enabled() {
        return Ok(()); // The data are lost; a command that needs them is told so.
    }
    let is_found = live.words.iter().all(|word| *word == 0);
    live.ensure(is_found, "a section refers to an address without a pair");
    // An interrupted erase leaves any pages in its superblock. A drive that was powered on and cut again
    // since does not know it as a victim any more, but nothing in it is valid.
    let superblocks = core.space.superblocks.borrow();
    let is_cut = |page: &u32| {
        let superblock = superblocks.get(core.layout.superblock_of_page(*page) as usize);
        superblock
            .is_some_and(|superblock| superblock.state == SuperblockState::Victim || superblock.valid == 0)
    };
    live.ensure(seams.reach.keys().all(is_cut), INSIDE);
    live.result().map(drop)
}
