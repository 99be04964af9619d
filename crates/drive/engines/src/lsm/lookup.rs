//! Finding keys in the tables: newest table first, in each table filter, index and data in turn.
//!
//! The release of the published firmware walks the tables of a level from the oldest to the newest and can
//! return a value that was overwritten; here the newest wins. Without a budget of DRAM ([`crate::dram`]) the lookup of one
//! key caches no page, as published: every step is a flash read. The lookup of many keys at a time ([`find_all`]), which collection of the
//! value log asks for, reads each page of a table once.

use kvdrive_flash::Purpose;
use kvdrive_nvme::{Key, Status};
use kvdrive_sim::Resource;

use super::entry::Entry;
use super::layout::{Layout, PageBytes, Part, ProbeStep, Want};
use super::levels::Version;
use super::table::Table;

/// The end of a lookup.
pub enum Search {
    /// The newest entry; `None` if no table has the key.
    Ended(Option<Entry>),
    /// A table whose pages were pinned in DRAM has been replaced before anything was read from flash: the tables that
    /// are there now have its entries, and are in DRAM.
    Overtaken,
}

/// The newest entry of `key` in any table of `version`; tombstones are entries, too. Each table looked into
/// costs `probe_ns` of firmware time. `reads` counts the pages that it reads from flash.
///
/// `UNRECOVERED_ERROR` when a page that had to be read is damaged: it might have held the newest entry.
pub fn find(
    version: &Version,
    layout: &dyn Layout,
    key: &Key,
    core: &Resource,
    probe_ns: u64,
    purpose: Purpose,
    reads: &mut u32,
) -> Result<Search, Status> {
    for table in version.candidates(key) {
        core.run_noted(probe_ns, "index", "look into a table");
        if *reads == 0 && table.has_left_dram() {
            return Ok(Search::Overtaken);
        }
        if let Some(entry) = find_in(table, layout, key, &mut FromFlash { purpose, reads })? {
            return Ok(Search::Ended(Some(entry)));
        }
    }
    Ok(Search::Ended(None))
}

/// As [`find`], for each of `keys`, which are in ascending order. It goes table by table, and DRAM holds the filter and
/// one page each of index and data of the present table. Calls `pause` before each key.
pub fn find_all(
    version: &Version,
    layout: &dyn Layout,
    keys: &[Key],
    (core, probe_ns): (&Resource, u64),
    purpose: Purpose,
    pause: &dyn Fn(),
) -> Result<Vec<Option<Entry>>, Status> {
    let mut newest = vec![None; keys.len()];
    for table in version.newest_first() {
        let mut pages = ShownBefore { purpose, shown: Vec::new() };
        let open = keys.iter().zip(&mut newest).filter(|(_, newest)| newest.is_none());
        for (key, newest) in open.filter(|(key, _)| table.facts.covers(key)) {
            pause();
            core.run_noted(probe_ns, "index", "look into a table");
            *newest = find_in(table, layout, key, &mut pages)?;
        }
    }
    Ok(newest)
}

/// Provides the pages of a table that a lookup requests.
trait Pages {
    /// Finds the page that the table's list leads to ([`Table::search_list`]).
    fn search_list(&mut self, table: &Table, key: &Key) -> Result<(), Status>;

    fn show<T>(
        &mut self,
        table: &Table,
        want: &Want,
        judge: impl FnOnce(&[PageBytes]) -> T,
    ) -> Result<T, Status>;
}

/// Each time from flash, or from the budget of DRAM.
struct FromFlash<'a> {
    purpose: Purpose,
    reads: &'a mut u32,
}

impl Pages for FromFlash<'_> {
    fn search_list(&mut self, table: &Table, key: &Key) -> Result<(), Status> {
        table.search_list(key, self.purpose, self.reads)
    }

    #[inline]
    fn show<T>(
        &mut self,
        table: &Table,
        want: &Want,
        judge: impl FnOnce(&[PageBytes]) -> T,
    ) -> Result<T, Status> {
        match want.pages.len() {
            1 => {
                let page = table.read_page(want.part, want.pages.start, self.purpose, self.reads);
                page.map(|page| judge(&[page]))
            }
            _ => {
                let pages = table.read_counted(want.part, want.pages.clone(), self.purpose, self.reads);
                pages.map(|pages| judge(&pages))
            }
        }
    }
}

/// From flash, unless they were shown to the lookup before: any pages of the filter, since a key may belong to any of
/// them; the last ones of each other part, since the keys come in order.
struct ShownBefore {
    purpose: Purpose,
    shown: Vec<(Want, Vec<PageBytes>)>,
}

impl Pages for ShownBefore {
    fn search_list(&mut self, table: &Table, key: &Key) -> Result<(), Status> {
        table.search_list(key, self.purpose, &mut 0)
    }

    fn show<T>(
        &mut self,
        table: &Table,
        want: &Want,
        judge: impl FnOnce(&[PageBytes]) -> T,
    ) -> Result<T, Status> {
        let same = |(before, _): &&(Want, _)| before.part == want.part && before.pages == want.pages;
        if let Some((_, pages)) = self.shown.iter().find(same) {
            return Ok(judge(pages));
        }
        let pages = table.read(want.part, want.pages.clone(), self.purpose)?;
        let result = judge(&pages);
        if want.part != Part::Bloom {
            self.shown.retain(|(before, _)| before.part != want.part);
        }
        self.shown.push((want.clone(), pages));
        Ok(result)
    }
}

fn find_in(
    table: &Table,
    layout: &dyn Layout,
    key: &Key,
    pages: &mut impl Pages,
) -> Result<Option<Entry>, Status> {
    pages.search_list(table, key)?;
    let mut step = layout.probe(&table.facts, key, true);
    loop {
        let want = match step {
            ProbeStep::Found(entry) => return Ok(Some(entry)),
            ProbeStep::Absent => return Ok(None),
            ProbeStep::Read(want) => want,
        };
        let judge = |pages: &[PageBytes]| layout.judge(&table.facts, key, &want, pages);
        step = match pages.show(table, &want, judge) {
            Ok(step) => step?,
            // Without its filter a table is slower, not wrong.
            Err(_) if want.part == Part::Bloom => layout.probe(&table.facts, key, false),
            Err(status) => return Err(status),
        };
    }
}
