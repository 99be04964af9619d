//! From the protected image and the flash back to an engine. Every page that is read is counted and takes its time.
//!
//! ```text
//!   1  open pages, and programs that had not begun, go on; a page that was torn stays in the buffer (*stranded*) until
//!      its superblock is collected; an erase that had begun is done again
//!   2  every page of sections is read, for the pairs that the present copies point at and for the invalid pages; what
//!      the altered sections of the image point at counts too
//!   3  every page of pairs is read for their lengths
//! ```
//!
//! Which copy of a section is the present one says the directory in the image: after a page of sections was damaged,
//! lookups in those answer 88h instead of what an older copy says.
//!
//! Between steps 2 and 3 a bit is kept for every grain, in the DRAM of the section cache, which is empty. Where that is
//! too small for all grains the steps are repeated for as many superblocks at a time as it has room for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use kvdrive_link::Region;

use super::cache::Location;
use super::core::Core;
use super::gc::{MapItem, items_of_unit};
use super::image::{BufferedPage, PageState, Protected};
use super::layout::Grain;
use super::pair::{HEADER_MAX_BYTES, PairHeader};
use super::records::RecordsHeader;
use super::space::{KIND_DATA, KIND_MAP, STREAMS, State};
use crate::flash::{Purpose, ReadError};
use crate::power::ImageError;

/// Pages read at once.
const SCANNERS: u32 = 64;

/// Sequence of a page that is still open: newer than every programmed one.
const OPEN_SEQUENCE: u64 = u64::MAX;

/// The newest copy of each invalid page, by superblock, epoch and serial: sequence of the page, place, head.
type InvalidPages = BTreeMap<(u32, u32, u32), (u64, Grain, RecordsHeader)>;

/// Brings `core`, which is empty, to where the image and the flash are.
pub(super) async fn recover(core: &Rc<Core>, protected: Protected) -> Result<(), ImageError> {
    check(core, &protected)?;
    let Protected { sequence, version, superblocks, free, streams, pages, directory, sections, records } =
        protected;
    core.space.restore(sequence, &superblocks, free, &streams);
    for (number, page) in pages {
        restore_page(core, number, page).await;
    }
    core.cache.restore_version(version);
    for (id, word) in (0..).zip(directory).filter(|(_, word)| *word != 0) {
        let location = Location::of_word(word);
        core.cache.restore_directory(id, location);
        core.space.found(location.grain, location.grains);
    }
    for (id, bytes) in &sections {
        let section = core.cache.format().decode(bytes);
        let section = section.ok_or_else(|| ImageError::new(0, "an altered section is no section"))?;
        core.cache.restore_dirty(*id, section);
    }
    let bits = 8 * core.config.dram_bytes;
    let at_once = (bits / u64::from(core.layout.superblock_grains)).clamp(1, core.layout.superblocks.into());
    for first in (0..core.layout.superblocks).step_by(at_once as usize) {
        let superblocks = first..core.layout.superblocks.min(first + at_once as u32);
        let (live, invalid_pages) = find_pairs(core, &superblocks).await;
        count_pairs(core, superblocks, live).await;
        if first == 0 {
            restore_invalid_pages(core, invalid_pages);
        }
    }
    if let Some(book) = &core.records {
        records.into_iter().for_each(|(superblock, buffer)| book.restore_buffer(superblock, buffer));
    }
    core.space.settle_states();
    Ok(())
}

fn restore_invalid_pages(core: &Core, pages: InvalidPages) {
    let Some(book) = &core.records else { return };
    for (_, page, header) in pages.values() {
        if core.space.superblocks.borrow()[header.superblock as usize].epoch == header.epoch {
            book.restore_page(header, *page);
            core.space.found(*page, book.page_grains());
        }
    }
}

/// Refuses an image that is not of this drive.
fn check(core: &Core, protected: &Protected) -> Result<(), ImageError> {
    let layout = &core.layout;
    let count = protected.superblocks.len() as u32;
    let is_superblock = |superblock: &u32| *superblock < count;
    let streams = protected.streams.iter().flatten();
    let pages = count * layout.superblock_pages;
    let fits = count == layout.superblocks
        && protected.free.iter().all(is_superblock)
        && streams
            .clone()
            .all(|(superblock, at)| is_superblock(superblock) && *at <= layout.superblock_grains)
        && protected.pages.keys().all(|page| *page < pages)
        && protected.pages.values().all(|page| page.region.written_end() <= layout.page_bytes())
        && protected.records.keys().all(is_superblock)
        && protected.directory.len() as u64 == core.cache.sections()
        && protected.directory.iter().filter(|word| **word != 0).all(|word| {
            let Location { grain, grains } = Location::of_word(*word);
            grains > 0 && grain.0.checked_add(grains.into()).is_some_and(|end| end <= layout.grains())
        })
        && protected.sections.keys().all(|id| *id < core.cache.sections());
    if fits { Ok(()) } else { Err(ImageError::new(0, "the image is of a drive with another layout")) }
}

async fn restore_page(core: &Rc<Core>, number: u32, page: BufferedPage) {
    let space = &core.space;
    match page.state {
        PageState::Open => space.restore_open(number, page.stream, page.first_item, page.region),
        PageState::Stranded => space.strand(number, Rc::new(page.region), page.first_item),
        PageState::Programming => {
            match space.flash().read(core.layout.ppa(number), Purpose::Recovery).await {
                Ok(_) => {}
                Err(ReadError::Damaged) => space.strand(number, Rc::new(page.region), page.first_item),
                Err(ReadError::Erased) => {
                    let stream = STREAMS[usize::from(page.stream)];
                    space.restart(number, stream, page.first_item, page.sequence, page.region);
                }
            }
        }
    }
}

/// Calls `on` with every page of those of `superblocks` that are of `kind`: page, content (`None`: it cannot be read),
/// first item, sequence.
async fn scan(
    core: &Rc<Core>,
    kind: u8,
    superblocks: Range<u32>,
    on: impl FnMut(u32, Option<&Region>, u32, u64) + 'static,
) {
    let on = Rc::new(RefCell::new(on));
    let wanted: Vec<u32> = {
        let all = core.space.superblocks.borrow();
        let used = |superblock: &u32| {
            let superblock = &all[*superblock as usize];
            superblock.kind == kind && superblock.state != State::Free
        };
        superblocks.filter(used).collect()
    };
    let pages: Rc<RefCell<Vec<u32>>> = Rc::new(RefCell::new(
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
            core.sim.clone().spawn(async move {
                loop {
                    let next = pages.borrow_mut().pop();
                    let Some(page) = next else { return };
                    if let Some((region, first_item)) = core.space.buffered_page(page) {
                        (on.borrow_mut())(page, Some(&region), first_item, OPEN_SEQUENCE);
                        continue;
                    }
                    let read = core.space.flash().read(core.layout.ppa(page), Purpose::Recovery).await;
                    match read {
                        Ok((region, spare)) => {
                            let first_item = super::space::first_item(&spare);
                            (on.borrow_mut())(page, Some(&region), first_item, spare.sequence);
                        }
                        Err(ReadError::Damaged) => (on.borrow_mut())(page, None, 0, 0),
                        Err(ReadError::Erased) => {}
                    }
                }
            })
        })
        .collect();
    for scanner in scanners {
        scanner.join().await;
    }
}

/// The grains of some superblocks at which a pair begins that a section points at.
#[derive(Default)]
struct LivePairs {
    first: u64,
    words: Vec<u64>,
}

impl LivePairs {
    fn of(core: &Core, superblocks: &Range<u32>) -> LivePairs {
        let grains = u64::from(core.layout.superblock_grains) * superblocks.len() as u64;
        LivePairs {
            first: core.layout.grain(superblocks.start, 0).0,
            words: vec![0; grains.div_ceil(64) as usize],
        }
    }

    fn mark(&mut self, grain: Grain) {
        let bit = grain.0.wrapping_sub(self.first);
        // What lies elsewhere is another pass's.
        if let Some(word) = self.words.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
    }

    fn contains(&self, grain: Grain) -> bool {
        let bit = grain.0 - self.first;
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }
}

/// Step 2: the pairs that sections point at, and the invalid pages.
async fn find_pairs(core: &Rc<Core>, superblocks: &Range<u32>) -> (LivePairs, InvalidPages) {
    let found = Rc::new(RefCell::new((LivePairs::of(core, superblocks), InvalidPages::new())));
    core.cache.dirty_pairs(&mut |grain| found.borrow_mut().0.mark(grain));
    let (all, engine) = (found.clone(), core.clone());
    let mut bytes = vec![0; core.layout.unit_bytes as usize];
    scan(core, KIND_MAP, 0..core.layout.superblocks, move |page, region, _, sequence| {
        let Some(region) = region else { return };
        let layout = &engine.layout;
        let (live, invalid_pages) = &mut *all.borrow_mut();
        for unit in 0..layout.page_bytes() / layout.unit_bytes {
            region.copy_to(unit * layout.unit_bytes, &mut bytes);
            let first = layout.first_grain(page).0 + u64::from(unit * layout.unit_grains);
            items_of_unit(&engine, &bytes, &mut |item, at, length| {
                let grain = Grain(first + u64::from(at / layout.grain_bytes));
                match item {
                    MapItem::Section(header) => {
                        let location = Location { grain, grains: layout.grains_of(length) };
                        if engine.cache.is_as_at(header.id, location)
                            && let Some(section) = engine.cache.format().decode(&bytes[at as usize..])
                        {
                            section.pairs(&mut |_, grain| live.mark(grain));
                        }
                    }
                    MapItem::Records(header) if header.superblock < layout.superblocks => {
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
    })
    .await;
    found.take()
}

/// Step 3: what is valid, by the lengths that stand with the pairs.
async fn count_pairs(core: &Rc<Core>, superblocks: Range<u32>, live: LivePairs) {
    let engine = core.clone();
    scan(core, KIND_DATA, superblocks, move |page, region, first_item, _| {
        let layout = &engine.layout;
        let first = layout.first_grain(page);
        let Some(region) = region else {
            // Nobody knows how long its pairs are; that they are there keeps the superblock from being erased.
            let pairs = (0..layout.page_grains).filter(|at| live.contains(Grain(first.0 + u64::from(*at))));
            pairs.for_each(|at| engine.space.found(Grain(first.0 + u64::from(at)), 1));
            return;
        };
        let mut at = first_item;
        while at < layout.page_grains {
            let offset = at * layout.grain_bytes;
            let mut bytes = [0; HEADER_MAX_BYTES];
            let most = (layout.page_bytes() - offset).min(HEADER_MAX_BYTES as u32) as usize;
            region.copy_to(offset, &mut bytes[..most]);
            let Some(header) = PairHeader::decode(&bytes) else { return };
            let grain = Grain(first.0 + u64::from(at));
            let grains = layout.grains_of(header.pair_bytes());
            if live.contains(grain) {
                engine.space.found(grain, grains);
                engine.live_bytes.set(engine.live_bytes.get() + u64::from(header.value_bytes));
            } else {
                engine.space.found_dead(grain, grains);
            }
            at += grains;
        }
    })
    .await;
}
