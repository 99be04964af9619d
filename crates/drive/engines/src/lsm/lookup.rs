//! Finding one key in the tables: newest table first, in each table filter, index and data in turn.
//!
//! The release of the published firmware walks the tables of a level from the oldest to the newest and can
//! return a value that was overwritten; here the newest wins. No page is cached in DRAM, as published: every
//! step is a flash read.

use kvdrive_flash::Purpose;
use kvdrive_sim::Resource;
use kvdrive_spec::{Key, Status};

use super::entry::Entry;
use super::layout::{Layout, PageBytes, Part, ProbeStep};
use super::levels::Version;
use super::table::Table;

/// The newest entry of `key` in any table of `version`; tombstones are entries, too. Each table looked into
/// costs `probe_ns` of firmware time.
///
/// `UNRECOVERED_ERROR` when a page that had to be read is damaged: what it held might be the newest entry.
pub fn find(
    version: &Version,
    layout: &dyn Layout,
    key: &Key,
    core: &Resource,
    probe_ns: u64,
    purpose: Purpose,
) -> Result<Option<Entry>, Status> {
    for table in version.candidates(key) {
        core.run_noted(probe_ns, "index", "look into a table");
        if let Some(entry) = find_in(table, layout, key, purpose)? {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

fn find_in(table: &Table, layout: &dyn Layout, key: &Key, purpose: Purpose) -> Result<Option<Entry>, Status> {
    let mut step = layout.probe(&table.facts, key, true);
    loop {
        let want = match step {
            ProbeStep::Found(entry) => return Ok(Some(entry)),
            ProbeStep::Absent => return Ok(None),
            ProbeStep::Read(want) => want,
        };
        let judge = |pages: &[PageBytes]| layout.judge(&table.facts, key, &want, pages);
        let judged = match want.pages.len() {
            1 => table.read_page(want.part, want.pages.start, purpose).map(|page| judge(&[page])),
            _ => table.read(want.part, want.pages.clone(), purpose).map(|pages| judge(&pages)),
        };
        step = match judged {
            Ok(step) => step?,
            // Without its filter a table is slower, not wrong.
            Err(_) if want.part == Part::Bloom => layout.probe(&table.facts, key, false),
            Err(status) => return Err(status),
        };
    }
}
