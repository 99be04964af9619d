//! Collection: frees superblocks by moving their valid items.
//!
//! One task collects one victim at a time: the superblock of any kind whose valid grains cost least to write
//! again; the weight of a section's grain comes from the scheme ([`super::space::Space::victim`]). Several
//! workers share the pages of the victim. Moving a pair alters its section, and altered sections have to be
//! written sooner or later, so collecting a superblock of pairs can use more space at first than it frees, in
//! sections whose old copies become invalid elsewhere. If very few superblocks are free, workers therefore
//! collect superblocks of sections first, which alters nothing.
//!
//! A pair or section that cannot be read is not moved, and its superblock is never erased: commands that need it are
//! answered 88h.

use std::cell::Cell;
use std::rc::Rc;

use kvdrive_content::{Piece, Region};
use kvdrive_flash::{Forward, PageData, Purpose};
use kvdrive_nvme::Status;
use kvdrive_sim::{JoinHandle, Ns};

use super::core::{HashState, raise};
use super::layout::{Grain, Location};
use super::pair::PairHeader;
use super::records::{RECORDS_MARK, RecordsHeader};
use super::section::{HEADER_BYTES, Probe, SECTION_MARK, SectionHeader};
use super::space::{Content, KIND_DATA, KIND_MAP, Stream, SuperblockState, filling};
use crate::firmware::Role;

/// Collects as long as the drive has power.
pub(super) fn run(core: Rc<HashState>) {
    let space = core.space.clone();
    // Collections since commands could last proceed: a drive that collects without ever gaining space is
    // full.
    let mut futile = 0;
    loop {
        while !space.is_low() {
            space.wanted.wait();
        }
        let collected = collect_one(&core, None);
        futile = if space.is_stalled() { futile + 1 } else { 0 };
        if !collected || futile > 2 * core.layout.superblocks {
            // Collection can gain nothing until something becomes invalid; waiting commands are answered that the drive
            // is full.
            futile = 0;
            space.exhausted.set(true);
            space.freed.wake_all();
            space.wanted.wait();
        }
    }
}

/// Collects the best victim; `false` if there is none.
fn collect_one(core: &Rc<HashState>, kind: Option<u8>) -> bool {
    let Some(victim) = core.space.victim(kind) else { return false };
    core.space.set_state(victim, SuperblockState::Victim);
    let kind = core.space.superblocks.borrow()[victim as usize].kind;
    let (counter, purpose) = match kind {
        KIND_DATA => (&core.counters.gc_data_superblocks, Purpose::DataGc),
        _ => (&core.counters.gc_map_superblocks, Purpose::MapGc),
    };
    raise(counter, 1);
    let lost = Rc::new(Cell::new(false));
    if core.space.superblocks.borrow()[victim as usize].valid > 0 {
        move_items(core, victim, kind, &lost);
    }
    if core.space.superblocks.borrow()[victim as usize].valid > 0 {
        // Lost items stay where they are; items for which there was no space are collected later.
        core.space.set_state(victim, if lost.get() { SuperblockState::Lost } else { SuperblockState::Full });
        raise(&core.counters.lost_superblocks, u64::from(lost.get()));
        return lost.get();
    }
    if let Some(records) = &core.records {
        records.clear(&core.space, victim);
    }
    core.space.erase(victim, purpose);
    true
}

struct Victim {
    superblock: u32,
    kind: u8,
    next_page: Cell<u32>,
    /// Grains known to be invalid, if there are records.
    dead: Option<Vec<u64>>,
    lost: Rc<Cell<bool>>,
}

fn move_items(core: &Rc<HashState>, superblock: u32, kind: u8, lost: &Rc<Cell<bool>>) {
    let dead = match &core.records {
        // Without the records every pair is looked up, which is slower and just as correct.
        Some(records) if kind == KIND_DATA => records.gather(&core.space, superblock).ok(),
        _ => None,
    };
    if let Some(dead) = &dead {
        let records = dead.iter().map(|word| u64::from(word.count_ones())).sum();
        spend(core, core.config.costs.dead_item_ns, records);
    }
    let victim = Rc::new(Victim { superblock, kind, next_page: Cell::new(0), dead, lost: lost.clone() });
    let workers = core.config.gc_workers.min(core.layout.superblock_pages);
    let begin = |_| {
        let (core, victim) = (core.clone(), victim.clone());
        core.sim.clone().spawn(move || work(core, victim))
    };
    let workers: Vec<JoinHandle<()>> = (0..workers).map(begin).collect();
    for worker in workers {
        worker.join();
    }
}

/// Processes pages of a victim until none is left.
fn work(core: Rc<HashState>, victim: Rc<Victim>) {
    let _reader = core.space.pin(core.layout.grain(victim.superblock, 0));
    loop {
        let index = victim.next_page.get();
        if index == core.layout.superblock_pages {
            return;
        }
        victim.next_page.set(index + 1);
        let page = core.layout.first_page(victim.superblock) + index;
        let first = core.layout.first_grain(page);
        if core.space.validity.borrow().is_dead(first, core.layout.page_grains) {
            raise(&core.counters.gc_skipped_pages, 1);
            continue;
        }
        if victim.kind == KIND_DATA {
            make_map_room(&core);
        }
        core.gc_core.run(core.config.omissions.gc_page_ns);
        core.space.gc_room();
        let moved = match victim.kind {
            KIND_DATA => move_pairs(&core, &victim, page),
            _ => move_sections(&core, page),
        };
        if moved.is_err() {
            victim.lost.set(true);
        }
    }
}

/// Collects sections while very few superblocks are free. One worker at a time does that; the others wait for
/// it.
fn make_map_room(core: &Rc<HashState>) {
    let critical = core.config.critical_superblocks();
    while core.space.free_superblocks() <= critical {
        let _turn = core.gc_lock.lock();
        if core.space.free_superblocks() > critical {
            return;
        }
        if !collect_one(core, Some(KIND_MAP)) {
            return;
        }
    }
}

/// Spends time on the core of collection for `items` items.
fn spend(core: &HashState, item_ns: Ns, items: u64) {
    core.work(Role::Collection, item_ns * items, "collect");
}

/// Moves the valid pairs that begin in a page.
fn move_pairs(core: &Rc<HashState>, victim: &Victim, page: u32) -> Result<(), Status> {
    let (data, first_item) = core.space.read_page(page, Purpose::DataGc)?;
    let layout = &core.layout;
    let mut pairs = Vec::with_capacity(layout.page_grains as usize / 4);
    let mut at = first_item;
    let headers = data.forward();
    let mut dead = 0;
    while at < layout.page_grains {
        let offset = at * layout.grain_bytes;
        let read = |bytes, sink: &mut dyn FnMut(Piece<'_>)| headers.read(offset, bytes, sink);
        let Some(header) = PairHeader::read(layout.page_bytes() - offset, read) else { break };
        let grain = Grain(layout.first_grain(page).0 + u64::from(at));
        at += layout.grains_of(header.pair_bytes());
        match is_dead(core, victim, grain) {
            true => dead += 1,
            false => pairs.push((grain, header)),
        }
    }
    core.cache.expect(pairs.iter().map(|(_, header)| core.probe(&header.key, header.probe)));
    spend(core, core.config.costs.dead_item_ns, dead);
    spend(core, core.config.costs.gc_item_ns, pairs.len() as u64);
    let mut result = Ok(());
    let data = data.forward();
    for (grain, header) in &pairs {
        make_map_room(core);
        let moved = move_pair(core, *grain, header, page, &data);
        result = result.and(moved);
    }
    result
}

fn is_dead(core: &HashState, victim: &Victim, grain: Grain) -> bool {
    if let Some(valid) = core.space.validity.borrow().is_valid(grain) {
        return !valid;
    }
    let at = core.layout.within(grain);
    victim.dead.as_ref().is_some_and(|dead| dead[(at / 64) as usize] >> (at % 64) & 1 == 1)
}

fn move_pair(
    core: &Rc<HashState>,
    grain: Grain,
    header: &PairHeader,
    page: u32,
    data: &Forward<'_>,
) -> Result<(), Status> {
    let Probe { section, tag } = core.probe(&header.key, header.probe);
    raise(&core.counters.gc_section_fetches, 1);
    let pin = core.cache.fetch(section, Purpose::GcMap)?;
    let mut slot = pin.slot_of(tag, grain);
    let seen = core.cache.alterations();
    if slot.is_none() && !core.snapshots.holds(grain) {
        return Ok(());
    }
    let layout = &core.layout;
    let offset = layout.byte_in_page(grain);
    let end = offset + header.pair_bytes();
    let whole = if end <= layout.page_bytes() {
        None
    } else {
        let mut whole = Region::new();
        data.read(offset, layout.page_bytes() - offset, &mut filling(&mut whole, 0));
        let mut done = layout.page_bytes() - offset;
        for next in 1..end.div_ceil(layout.page_bytes()) {
            let bytes = (header.pair_bytes() - done).min(layout.page_bytes());
            let aligned = bytes.next_multiple_of(layout.unit_bytes);
            let part = core.space.read(page + next, 0, aligned, Purpose::DataGc)?;
            part.read(0, bytes, &mut filling(&mut whole, done));
            done += bytes;
        }
        Some(whole)
    };
    let is_long = header.pair_bytes() > layout.page_bytes();
    while (is_long && !core.space.has_gc_room()) || !core.space.has_map_room() {
        if is_long {
            core.space.gc_room();
        }
        core.space.map_room();
    }
    // No suspension from here on. Each pair is in one of three states: its slot still points here; or it was
    // replaced while the pages were read and a snapshot holds it; or it is not needed any more.
    if core.cache.alterations() != seen {
        slot = pin.slot_of(tag, grain);
    }
    if slot.is_none() && !core.snapshots.holds(grain) {
        raise(&core.counters.gc_outrun_moves, 1);
        return Ok(());
    }
    let content = match &whole {
        Some(whole) => Content::Stored(whole, 0),
        None => Content::Kept(data, offset),
    };
    if let Some(to) = core.space.append(Stream::DataGc, content, header.pair_bytes()) {
        let grains = layout.grains_of(header.pair_bytes());
        match slot {
            Some(slot) => pin.relocate(slot, tag, to),
            None => core.snapshots.relocate(grain, to),
        }
        core.space.invalidate(grain, grains);
        core.moved.add(u64::from(grains) * u64::from(layout.grain_bytes));
    }
    Ok(())
}

/// Moves the valid sections and invalid pages of a page.
fn move_sections(core: &Rc<HashState>, page: u32) -> Result<(), Status> {
    let (data, _) = core.space.read_page(page, Purpose::MapGc)?;
    let layout = &core.layout;
    let units = layout.page_bytes() / layout.unit_bytes;
    let mut items = Vec::with_capacity(4 * units as usize);
    // For each read unit: how many items begin before its end.
    let mut ends = Vec::with_capacity(units as usize);
    data.meet_items();
    let heads = data.forward();
    for unit in 0..units {
        items_of_unit(core, &heads, unit * layout.unit_bytes, &mut |item, at, length| {
            items.push((item, at, length));
        });
        ends.push(items.len());
    }
    core.cache.expect_location(items.iter().filter_map(|(item, ..)| match item {
        MapItem::Section(header) => Some(header.id),
        MapItem::Records(_) => None,
    }));
    let mut begin = 0;
    for end in ends {
        let items = &items[std::mem::replace(&mut begin, end)..end];
        spend(core, core.config.costs.gc_item_ns, items.len() as u64);
        core.space.gc_room();
        for (item, at, length) in items {
            move_item(core, item, page, &data, *at, *length);
        }
    }
    Ok(())
}

/// Moves the section or invalid page of `length` bytes at byte `at` of a page if it is valid and there is
/// space.
fn move_item(core: &Rc<HashState>, item: &MapItem, page: u32, data: &PageData, at: u32, length: u32) {
    let grain = Grain(core.layout.first_grain(page).0 + u64::from(at / core.layout.grain_bytes));
    let grains = core.layout.grains_of(length);
    let is_valid = match item {
        MapItem::Section(header) => core.cache.location(header.id) == Some(Location { grain, grains }),
        MapItem::Records(header) => {
            core.records.as_ref().is_some_and(|records| records.is_listed(header, grain))
        }
    };
    if !is_valid {
        return;
    }
    let bytes = bytes_to_move(core, item, data, at, length);
    let Some(to) = core.space.append(Stream::MapGc, Content::Item(&bytes), length) else { return };
    match item {
        MapItem::Section(header) => {
            core.cache.relocate(header.id, Location { grain: to, grains });
            raise(&core.counters.gc_moved_section_bytes, length.into());
        }
        MapItem::Records(header) => {
            core.records.as_ref().expect("valid records").relocate(header, grain, to);
        }
    }
    core.space.invalidate(grain, grains);
    raise(&core.counters.gc_moved_sections, 1);
}

/// The bytes to move for an item. The copy of an altered section is never read and the medium may have
/// dropped it, so its header is moved, padded to its length.
fn bytes_to_move(core: &HashState, item: &MapItem, data: &PageData, at: u32, length: u32) -> Rc<[u8]> {
    match item {
        MapItem::Section(header) if core.cache.is_altered(header.id) => {
            let mut bytes = vec![0; length as usize];
            data.copy_to(at, &mut bytes[..HEADER_BYTES]);
            bytes.into()
        }
        _ => data.item(at, length),
    }
}

/// An item in a page of sections.
pub(super) enum MapItem {
    Section(SectionHeader),
    Records(RecordsHeader),
}

/// Calls `found` with every item of the read unit that begins at byte `unit` of a page: its offset in the
/// page and its length, bytes.
pub(super) fn items_of_unit(
    core: &HashState,
    data: &Forward<'_>,
    unit: u32,
    found: &mut dyn FnMut(MapItem, u32, u32),
) {
    let mut at = unit;
    let end = unit + core.layout.unit_bytes;
    while at + HEADER_BYTES as u32 <= end {
        let mut bytes = [0; HEADER_BYTES];
        data.copy_to(at, &mut bytes);
        let (item, length) = match bytes[0] {
            SECTION_MARK => {
                let Some(header) = SectionHeader::decode(&bytes) else { return };
                let length = core.cache.format().encoded_bytes(&header);
                (MapItem::Section(header), length)
            }
            RECORDS_MARK => {
                let header = RecordsHeader::decode(&bytes).zip(core.records.as_ref());
                let Some((header, records)) = header else { return };
                (MapItem::Records(header), records.page_bytes())
            }
            _ => return,
        };
        if at + length > end {
            return;
        }
        found(item, at, length);
        at += core.layout.grains_of(length) * core.layout.grain_bytes;
    }
}
