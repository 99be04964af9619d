//! Power-protected memory of an engine: the limit for each part, and the check that all parts fit.
//!
//! It holds everything in `super::image`. The write buffer, pages being programmed and the tables have limits
//! of their own; altered sections get the rest ([`Bounds::altered_bytes`]): if there are more, the oldest are
//! written.

use super::config::{HashConfig, SUPERBLOCK_PAIRS};
use super::layout::Layout;
use super::section::Format;
use super::space::MAP_PAGES_IN_FLIGHT;

/// Bytes for a superblock's state, kind, erase count and position among the free.
const SUPERBLOCK_BYTES: u64 = 12;
/// Most pages that one alteration can complete: it can cause two sections to be written, which are in two
/// read units.
const ALTERATION_PAGES: u64 = 2;
/// Minimum room for altered sections, in read units: with less, every section would be written at once.
const ALTERED_UNITS_LEAST: u64 = 8;

/// Limits for the uses of power-protected memory, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Pairs from their arrival to the end of their program.
    pub write_buffer_bytes: u64,
    /// Open pages, and pages of collection and of sections being programmed.
    pub page_bytes: u64,
    /// Locations of sections, and states of superblocks.
    pub table_bytes: u64,
    /// Invalid records that are not in an invalid page yet.
    pub records_bytes: u64,
    /// Altered sections.
    pub altered_bytes: u64,
}

impl Bounds {
    /// The limits for a drive with `protected_bytes` bytes of such memory, `records_bytes` of them for
    /// buffers of records.
    ///
    /// Errors: the number of missing bytes, and their use.
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

/// Limit for pages that are open or being programmed, besides those of the write buffer, bytes.
///
/// * Collection stops at twice the number of units and of section pages. A worker checks this before it begins a page
///   of pairs, which may fill two pages, and right before it moves a pair of more than a page, or sections.
/// * All other writers of sections stop at the number of section pages; they check right before a change, which can
///   then add the pages of one alteration.
/// * The last page of a superblock of the host's pairs takes a whole page here, though it may hold fewer bytes, and
///   only these leave the write buffer. A superblock is closed when less than the largest pair would fit.
pub fn bytes_on_their_way(layout: &Layout, config: &HashConfig) -> u64 {
    let streams = 4;
    let stops = 2 * u64::from(layout.units()) + 2 * u64::from(MAP_PAGES_IN_FLIGHT);
    let workers = 2 * u64::from(config.gc_workers.min(layout.superblock_pages));
    let superblock = u64::from(layout.superblock_pages) * u64::from(layout.page_bytes());
    let ends = config.write_buffer_bytes / (superblock - superblock / SUPERBLOCK_PAIRS) + 1;
    let pages = stops + streams + ends + workers + config.largest_pair_pages(layout) + 2 * ALTERATION_PAGES;
    pages * u64::from(layout.page_bytes())
}
