//! Checks a protected image before anything is built on it. An image comes from outside: a matching checksum
//! says that it was not damaged, not that an engine wrote it.
//!
//! Facts that need data from flash are checked while recovery reads those (`recovery`).

use kvdrive_flash::power::ImageError;

use super::image::{PageState, Protected};
use super::layout::{Grain, Layout, Location};
use super::section::{Format, Section, SectionHeader};
use super::state::{KIND_DATA, KIND_MAP, STREAMS, SuperblockState};

/// Upper limit for counters of any drive; counters that continue from it still fit into the 48 bits of
/// headers.
const FAR: u64 = 1 << 47;

/// An error unless something holds.
pub(super) fn ensure(holds: bool, what: &str) -> Result<(), ImageError> {
    if holds { Ok(()) } else { Err(ImageError::new(0, what)) }
}

/// The section in these bytes and its number; `None` if the drive cannot have such a section.
pub(super) fn section(layout: &Layout, format: &dyn Format, bytes: &[u8]) -> Option<(u64, Box<dyn Section>)> {
    let id = SectionHeader::decode(bytes)?.id;
    let section = format.decode(bytes.into())?;
    (id < format.sections() && has_its_slots(layout, format, &*section)).then_some((id, section))
}

/// An altered section of an image, by its number.
pub(super) fn altered_section(
    layout: &Layout,
    format: &dyn Format,
    (number, bytes): (u64, Vec<u8>),
) -> Result<(u64, Box<dyn Section>), ImageError> {
    let section = section(layout, format, &bytes).filter(|(id, _)| *id == number);
    section.ok_or_else(|| ImageError::new(0, "the bytes of an altered section are not a section"))
}

/// Are the slots and grains of all pairs of a section in range?
pub(super) fn has_its_slots(layout: &Layout, format: &dyn Format, section: &dyn Section) -> bool {
    let mut fits = true;
    section.pairs(&mut |slot, grain| fits &= slot < format.slots() && grain.0 < layout.grains());
    fits
}

/// Can a section, or an invalid page, be at this location? None crosses a read unit.
pub(super) fn is_location(layout: &Layout, Location { grain, grains }: Location) -> bool {
    let at = grain.0 % u64::from(layout.unit_grains);
    grain.0 < layout.grains() && grains > 0 && at + u64::from(grains) <= u64::from(layout.unit_grains)
}

/// Does a record of an invalid pair name a grain of a superblock?
pub(super) fn is_record(layout: &Layout, record: u64) -> bool {
    super::records::grain_of(record) < u64::from(layout.superblock_grains)
}

/// Refuses an image of another layout, and one that contradicts itself.
pub(super) fn check(layout: &Layout, format: &dyn Format, protected: &Protected) -> Result<(), ImageError> {
    ensure(protected.issued.can_be(), "its count of divided values is out of range")?;
    let fits = protected.superblocks.len() as u32 == layout.superblocks
        && protected.directory.len() as u64 == format.sections();
    ensure(fits, "the image belongs to a drive with another layout")?;
    ensure(protected.sequence < FAR && protected.version < FAR, "its sequence numbers are out of range")?;
    let is_worn = |(_, _, epoch): &(SuperblockState, u8, u32)| *epoch > u32::MAX / 2;
    ensure(!protected.superblocks.iter().any(is_worn), "a superblock was erased too often")?;
    let has_kind = |(_, kind, _): &(SuperblockState, u8, u32)| [KIND_DATA, KIND_MAP].contains(kind);
    ensure(protected.superblocks.iter().all(has_kind), "a superblock has an unknown kind")?;
    check_free(protected)?;
    check_streams(layout, protected)?;
    check_pages(layout, protected)?;
    check_directory(layout, protected)?;
    let records_fit = protected.records.iter().all(|(superblock, records)| {
        *superblock < layout.superblocks && records.iter().all(|record| is_record(layout, *record))
    });
    ensure(records_fit, "the address of an invalid pair is out of range")
}

fn check_free(protected: &Protected) -> Result<(), ImageError> {
    let state = |superblock: u32| protected.superblocks.get(superblock as usize).map(|known| known.0);
    let mut free = protected.free.clone();
    free.sort_unstable();
    free.dedup();
    let count =
        protected.superblocks.iter().filter(|superblock| superblock.0 == SuperblockState::Free).count();
    let fits = free.len() == protected.free.len() && free.len() == count;
    let fits = fits && free.iter().all(|superblock| state(*superblock) == Some(SuperblockState::Free));
    ensure(fits, "the list of free superblocks differs from their states")
}

/// Every open superblock belongs to one stream, whose open page is at the position of the stream.
fn check_streams(layout: &Layout, protected: &Protected) -> Result<(), ImageError> {
    let open =
        protected.superblocks.iter().filter(|superblock| superblock.0 == SuperblockState::Open).count();
    let mut taken: Vec<u32> = protected.streams.iter().flatten().map(|(superblock, _)| *superblock).collect();
    taken.sort_unstable();
    taken.dedup();
    let streams = protected.streams.iter().flatten().count();
    ensure(
        taken.len() == streams && streams == open,
        "the open superblocks differ from those of the streams",
    )?;
    let mut pages = 0;
    for (index, stream) in protected.streams.iter().enumerate() {
        let Some((superblock, at)) = *stream else { continue };
        let known = protected.superblocks.get(superblock as usize);
        let fits =
            known.is_some_and(|known| (known.0, known.1) == (SuperblockState::Open, STREAMS[index].kind()));
        ensure(
            fits && at <= layout.superblock_grains,
            "the superblock or the position of a stream is invalid",
        )?;
        if at % layout.page_grains > 0 {
            let page = protected.pages.get(&(layout.first_page(superblock) + at / layout.page_grains));
            let is_open =
                page.is_some_and(|page| page.state == PageState::Open && page.stream == STREAMS[index]);
            ensure(is_open, "a stream's open page is missing")?;
            pages += 1;
        }
    }
    let open = protected.pages.values().filter(|page| page.state == PageState::Open).count();
    ensure(open == pages, "an open page belongs to no stream")
}

fn check_pages(layout: &Layout, protected: &Protected) -> Result<(), ImageError> {
    for (number, page) in &protected.pages {
        let superblock = protected.superblocks.get(layout.superblock_of_page(*number) as usize);
        let fits = superblock.is_some_and(|superblock| {
            let is_its_kind = superblock.1 == page.stream.kind();
            superblock.0 != SuperblockState::Free && (is_its_kind || page.state == PageState::Stranded)
        });
        ensure(fits, "a buffered page belongs to no superblock")?;
        let fits = page.region.written_end() <= layout.page_bytes() && page.first_item <= layout.page_grains;
        ensure(fits && page.sequence < FAR, "a buffered page is too long")?;
    }
    Ok(())
}

/// Copies of sections are in superblocks of sections and do not overlap.
fn check_directory(layout: &Layout, protected: &Protected) -> Result<(), ImageError> {
    let words = protected.directory.iter().filter(|word| **word != 0);
    let mut locations: Vec<Location> = words.map(|word| Location::of_word(*word)).collect();
    locations.sort_unstable_by_key(|location| location.grain);
    let is_kept = |grain: Grain, kind: u8| {
        let superblock = protected.superblocks.get(layout.superblock(grain) as usize);
        superblock.is_some_and(|known| known.0 != SuperblockState::Free && known.1 == kind)
    };
    let is_written = |location: &Location| {
        let superblock = layout.superblock(location.grain);
        let mut streams = protected.streams.iter().flatten();
        let open = streams.find(|(open, _)| *open == superblock);
        open.is_none_or(|(_, at)| layout.within(location.grain) + location.grains <= *at)
    };
    let fits = |location: &Location| {
        is_location(layout, *location) && is_kept(location.grain, KIND_MAP) && is_written(location)
    };
    ensure(locations.iter().all(fits), "the address of a section is out of range")?;
    let end = |location: &Location| location.grain.0 + u64::from(location.grains);
    let apart = locations.windows(2).all(|pair| end(&pair[0]) <= pair[1].grain.0);
    ensure(apart, "two sections have the same address")
}

/// Can a superblock with this state and kind hold a pair that a section points at?
pub(super) fn holds_pairs(state: SuperblockState, kind: u8) -> bool {
    state != SuperblockState::Free && kind == KIND_DATA
}
