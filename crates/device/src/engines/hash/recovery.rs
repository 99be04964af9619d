//! From the protected image and the flash back to an engine. Every page that is read is counted and takes its time.
//!
//! ```text
//!   1  open pages, and programs that had not begun, go on; a page that was torn stays in the buffer (*stranded*) until
//!      its superblock is collected; an erase that had begun is done again
//!   2  every page of sections is read: of each section the newest version, of each invalid page the newest copy
//!   3  the altered sections of the image lie over them
//!   4  every section is read for the pairs it points at; every page of pairs is read for their lengths
//! ```
//!
//! Step 4 keeps a bit for every grain of the drive while it runs, more than the DRAM of a small drive; a drive would go
//! through its superblocks in as many passes as it needs. That is not modelled.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kvdrive_link::Region;

use super::cache::Location;
use super::core::Core;
use super::gc::{MapItem, items_of_unit};
use super::image::{BufferedPage, PageState, Protected};
use super::layout::Grain;
use super::pair::{HEADER_MAX_BYTES, PairHeader};
use super::space::{KIND_DATA, KIND_MAP, STREAMS, State};
use crate::flash::{Purpose, ReadError};
use crate::power::ImageError;

/// Pages read at once.
const SCANNERS: u32 = 64;

/// Sequence of a page that is still open: newer than every programmed one.
const OPEN_SEQUENCE: u64 = u64::MAX;

/// The newest copies found so far.
#[derive(Default)]
struct Newest {
    /// By section: version, sequence of the page, place.
    sections: BTreeMap<u64, (u64, u64, Location)>,
    /// By superblock, epoch and serial of an invalid page: sequence of the page, place, head.
    records: BTreeMap<(u32, u32, u32), (u64, Grain, super::records::RecordsHeader)>,
}

/// Brings `core`, which is empty, to where the image and the flash are.
pub(super) async fn recover(core: &Rc<Core>, protected: Protected) -> Result<(), ImageError> {
    check(core, &protected)?;
    let Protected { sequence, version, superblocks, free, streams, pages, sections, records } = protected;
    core.space.restore(sequence, &superblocks, free, &streams);
    for (number, page) in pages {
        restore_page(core, number, page).await;
    }
    let newest = find_sections(core).await;
    core.cache.restore_version(version);
    for (id, (_, _, location)) in &newest.sections {
        core.cache.restore_directory(*id, *location);
        core.space.found(location.grain, location.grains);
    }
    if let Some(book) = &core.records {
        for (_, page, header) in newest.records.values() {
            if core.space.superblocks.borrow()[header.superblock as usize].epoch == header.epoch {
                book.restore_page(header, *page);
                core.space.found(*page, core.layout.unit_grains);
            }
        }
        records.into_iter().for_each(|(superblock, buffer)| book.restore_buffer(superblock, buffer));
    }
    for (id, bytes) in &sections {
        let section = core.cache.format().decode(bytes);
        let section = section.ok_or_else(|| ImageError::new(0, "an altered section is no section"))?;
        core.cache.restore_dirty(*id, section);
    }
    let live = find_pairs(core).await;
    count_pairs(core, live).await;
    core.space.settle_states();
    Ok(())
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

/// Calls `on` with every page of the superblocks of `kind` that can be read: page, content, first item, sequence.
async fn scan(core: &Rc<Core>, kind: u8, on: impl FnMut(u32, Option<&Region>, u32, u64) + 'static) {
    let on = Rc::new(RefCell::new(on));
    let wanted: Vec<u32> = {
        let superblocks = core.space.superblocks.borrow();
        let used = |superblock: &u32| {
            let superblock = &superblocks[*superblock as usize];
            superblock.kind == kind && superblock.state != State::Free
        };
        (0..core.layout.superblocks).filter(used).collect()
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

/// Step 2.
async fn find_sections(core: &Rc<Core>) -> Newest {
    let newest = Rc::new(RefCell::new(Newest::default()));
    let (found, engine) = (newest.clone(), core.clone());
    let mut bytes = vec![0; core.layout.unit_bytes as usize];
    scan(core, KIND_MAP, move |page, region, _, sequence| {
        let Some(region) = region else { return };
        let layout = &engine.layout;
        for unit in 0..layout.page_bytes() / layout.unit_bytes {
            region.copy_to(unit * layout.unit_bytes, &mut bytes);
            let first = layout.first_grain(page).0 + u64::from(unit * layout.unit_grains);
            items_of_unit(&engine, &bytes, &mut |item, at, length| {
                let grain = Grain(first + u64::from(at / layout.grain_bytes));
                note(&engine, &mut found.borrow_mut(), item, grain, layout.grains_of(length), sequence);
            });
        }
    })
    .await;
    newest.take()
}

fn note(core: &Core, newest: &mut Newest, item: MapItem, grain: Grain, grains: u32, sequence: u64) {
    match item {
        MapItem::Section(header) if header.id < core.cache.sections() => {
            let new = (header.version, sequence, Location { grain, grains });
            let best = newest.sections.entry(header.id).or_insert(new);
            if (new.0, new.1) > (best.0, best.1) {
                *best = new;
            }
        }
        MapItem::Records(header) if header.superblock < core.layout.superblocks => {
            let new = (sequence, grain, header);
            let best = newest.records.entry((header.superblock, header.epoch, header.serial)).or_insert(new);
            if new.0 > best.0 {
                *best = new;
            }
        }
        _ => {}
    }
}

/// Step 4, first half: a bit for every grain at which a pair begins that a section points at.
async fn find_pairs(core: &Rc<Core>) -> Vec<u64> {
    let live = Rc::new(RefCell::new(vec![0u64; core.layout.grains().div_ceil(64) as usize]));
    let next = Rc::new(std::cell::Cell::new(0));
    let readers: Vec<_> = (0..SCANNERS)
        .map(|_| {
            let (core, live, next) = (core.clone(), live.clone(), next.clone());
            core.sim.clone().spawn(async move {
                let mut mark = |grain: Grain| {
                    let mut live = live.borrow_mut();
                    // A section that was altered on flash passes its check or it is not taken; still: no panic.
                    if let Some(word) = live.get_mut((grain.0 / 64) as usize) {
                        *word |= 1 << (grain.0 % 64);
                    }
                };
                while next.get() < core.cache.sections() {
                    let id = next.get();
                    next.set(id + 1);
                    core.cache.pairs_of(id, Purpose::Recovery, &mut mark).await;
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().await;
    }
    live.take()
}

/// Step 4, second half: what is valid, by the lengths that stand with the pairs.
async fn count_pairs(core: &Rc<Core>, live: Vec<u64>) {
    let engine = core.clone();
    scan(core, KIND_DATA, move |page, region, first_item, _| {
        let layout = &engine.layout;
        let first = layout.first_grain(page);
        let is_live = |grain: Grain| live[(grain.0 / 64) as usize] >> (grain.0 % 64) & 1 == 1;
        let Some(region) = region else {
            // Nobody knows how long its pairs are; that they are there keeps the superblock from being erased.
            let pairs = (0..layout.page_grains).filter(|at| is_live(Grain(first.0 + u64::from(*at))));
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
            if is_live(grain) {
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
