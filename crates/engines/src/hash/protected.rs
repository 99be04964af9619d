//! How much of an engine's memory is power-protected: what each part takes at most, and the check that it
//! fits.
//!
//! Everything of `super::image` is in it. The write buffer, pages on their way and the tables have bounds
//! of their own; altered sections get what those leave ([`Bounds::altered_bytes`]): when there are more, the
//! oldest are written.

use super::config::{HashConfig, SUPERBLOCK_PAIRS};
use super::layout::Layout;
use super::section::Format;
use super::space::MAP_PAGES_IN_FLIGHT;

/// Bytes of a superblock's state, kind, erase count and place among the free.
const SUPERBLOCK_BYTES: u64 = 12;
/// Pages that one alteration ends at most: it can make two sections be written, which lie in two read units.
const ALTERATION_PAGES: u64 = 2;
/// Read units of altered sections that there must be room for at least: less would write every section at
/// once.
const ALTERED_UNITS_LEAST: u64 = 8;

/// What power-protected memory is for, bytes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pairs from their arrival to the end of their program.
    pub write_buffer_bytes: u64,
    /// Open pages, and pages of collection and sections on their way.
    pub page_bytes: u64,
    /// Where sections are; state of superblocks.
    pub table_bytes: u64,
    /// Invalid records that are in no invalid page.
    pub records_bytes: u64,
    /// Altered sections.
    pub altered_bytes: u64,
}

impl Bounds {
    /// The bounds of a drive with `protected_bytes` bytes of such memory, `records_bytes` of them for buffers
    /// of records.
    ///
    /// Errors: how much more it needs, and for what.
    pub fn new(
        config: &HashConfig,
        layout: &Layout,
        format: &dyn Format,
        records_bytes: u64,
        protected_bytes: u64,
    ) -> Result<Bounds, String> {
        let (superblocks, unit_bytes) = (u64::from(layout.superblocks), u64::from(layout.unit_bytes));
        let bounds = Bounds {
            write_buffer_bytes: config.write_buffer_bytes,
            page_bytes: bytes_on_their_way(layout, config),
            table_bytes: format.sections() * format.directory_bytes() + superblocks * SUPERBLOCK_BYTES,
            records_bytes,
            altered_bytes: 0,
        };
        let Bounds { write_buffer_bytes, page_bytes, table_bytes, records_bytes, .. } = bounds;
        let fixed = write_buffer_bytes + page_bytes + table_bytes + records_bytes;
        let least = ALTERED_UNITS_LEAST * unit_bytes;
        match protected_bytes.checked_sub(fixed).filter(|rest| *rest >= least) {
            Some(rest) => Ok(Bounds { altered_bytes: rest, ..bounds }),
            None => Err(format!(
                "{protected_bytes}; the engine needs more (write buffer {write_buffer_bytes}, pages on their way \
                 {page_bytes}, directory {table_bytes}, invalid records {records_bytes}, altered sections {least}): set \
                 power.protected_bytes to at least {}",
                fixed + least
            )),
        }
    }
}

/// Bytes of pages that are open or on their way besides those of the write buffer.
///
/// * Collection stops at twice the units and the pages of sections. A worker looks before it begins a page of
///   pairs, which reach into two, and right before it moves a pair of more than a page, or sections.
/// * Whoever else writes sections stops at the pages of sections, looks right before, and adds what one
///   alteration can.
/// * The last page of a superblock of the host's pairs may hold less than the write buffer lost by it; a
///   superblock is full but for less than the largest pair.
pub fn bytes_on_their_way(layout: &Layout, config: &HashConfig) -> u64 {
    let streams = 4;
    let stops = 2 * u64::from(layout.units()) + 2 * u64::from(MAP_PAGES_IN_FLIGHT);
    let workers = 2 * u64::from(config.gc_workers.min(layout.superblock_pages));
    let superblock = u64::from(layout.superblock_pages) * u64::from(layout.page_bytes());
    let ends = config.write_buffer_bytes / (superblock - superblock / SUPERBLOCK_PAIRS) + 1;
    let pages = stops + streams + ends + workers + config.largest_pair_pages(layout) + 2 * ALTERATION_PAGES;
    pages * u64::from(layout.page_bytes())
}
