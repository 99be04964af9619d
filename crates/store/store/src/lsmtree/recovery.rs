//! Recovery of `lsmtree`: the newest complete manifest, its tables, and the newer records of the log.

use std::rc::Rc;

use kvdrive_nvme::Key;

use super::Tree;
use super::memtable::Memtable;
use super::table::{
    Block, Blocks, Table, block_on, data_format, meta_pages, page_of_bytes, parse_meta, read_pages,
};
use super::version::{Header, Version, parse_manifest};
use super::wal::{self, MOST_UNDER_WAY};
use crate::cpu::{Step, Thread};
use crate::frame::{self, FRAME_BYTES, Kind};
use crate::pages::{Page, PageId, Purpose};
use crate::records::{Flags, Record, records};
use crate::space::Extent;
use crate::store::{Recovered, StoreError, mark_number};
use crate::value::{Part, StoredValue};

/// The content of a manifest slot.
enum Slot {
    Blank,
    Torn,
    Whole(u64, Header, Vec<(usize, Table)>),
}

/// A record of the log.
struct Logged {
    key: Key,
    value: Option<StoredValue>,
    sequence: u64,
}

/// A page of the log: the position below which all was durable, and its records.
struct LogPage {
    durable: u64,
    id: PageId,
    page: Page,
    facts: frame::Facts,
}

impl Tree {
    pub(super) fn recover(&self, thread: Thread, mark: &[u8]) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let slots = [self.read_slot(thread, 0, &mut recovered)?, self.read_slot(thread, 1, &mut recovered)?];
        let is_torn = slots.iter().all(|slot| matches!(slot, Slot::Torn));
        if is_torn {
            let what = "has no manifest, and neither has the other slot".into();
            return Err(StoreError::Damaged { page: PageId(0), what });
        }
        let whole = slots.into_iter().filter_map(|slot| match slot {
            Slot::Whole(edition, header, tables) => Some((edition, header, tables)),
            _ => None,
        });
        let newest = whole.max_by_key(|(edition, ..)| *edition);
        let (edition, header, tables) = newest.unwrap_or_default();
        if edition > 0 && header.wal_pages != self.layout.wal_pages {
            let slot = PageId(edition % 2 * self.layout.slot_pages);
            let what = format!(
                "belongs to a store with a log of {} pages, not {}",
                header.wal_pages, self.layout.wal_pages
            );
            return Err(StoreError::Damaged { page: slot, what });
        }
        let mut version = Version::default();
        {
            let mut state = self.state.borrow_mut();
            let pages = (self.layout.pages - self.layout.first_free) as u32;
            state.free.give(Extent { first: PageId(self.layout.first_free), pages });
            (state.edition, state.header, state.sequence) = (edition, header, header.sequence);
        }
        for (level, table) in tables {
            let table = self.read_table(thread, table, &mut recovered)?;
            version = version.changed(&[], &[(level, Rc::new(table))]);
        }
        let log = if edition > 0 && self.options.wal {
            self.read_log(thread, &header, &mut recovered)?
        } else {
            Vec::new()
        };
        let found = log.last().map_or(0, |logged| logged.sequence).max(header.in_tables);
        if found < mark_number(mark) {
            let page = PageId(edition % 2 * self.layout.slot_pages);
            let what = format!(
                "the newest record of tables and log is {found}; record {} was durable",
                mark_number(mark)
            );
            return Err(StoreError::Damaged { page, what });
        }
        self.state.borrow_mut().durable = found;
        self.begin_life(thread, header, version, log)?;
        Ok(recovered)
    }

    /// Enters the records of the log, and writes a manifest for the new life, whose log is empty.
    fn begin_life(
        &self,
        thread: Thread,
        header: Header,
        version: Version,
        log: Vec<Logged>,
    ) -> Result<(), StoreError> {
        let has_log = !log.is_empty();
        {
            let mut state = self.state.borrow_mut();
            state.version = Rc::new(version);
            let memtable = Memtable::new(header.wal_from);
            for Logged { key, value, sequence } in log {
                state.sequence = state.sequence.max(sequence);
                memtable.insert(key, sequence, value);
            }
            // One whole ring further, so that no position of an earlier life is used again.
            let next = header.wal_from + self.layout.wal_pages;
            (state.header.epoch, state.header.wal_pages) = (header.epoch + 1, self.layout.wal_pages);
            state.wal.epoch = header.epoch + 1;
            (state.wal.next, state.wal.durable) = (next, next);
            state.active = Rc::new(Memtable::new(next));
            if has_log {
                state.full.push_back(Rc::new(memtable));
            }
        }
        if has_log {
            self.flush_job(thread)?;
            return Ok(());
        }
        let (header, version) = {
            let mut state = self.state.borrow_mut();
            state.header.wal_from = state.wal.next;
            (state.header, state.version.clone())
        };
        self.ground.pages.flush(thread, Purpose::Manifest)?;
        self.write_manifest(thread, &header, &version)
    }

    fn read_slot(&self, thread: Thread, slot: u64, recovered: &mut Recovered) -> Result<Slot, StoreError> {
        let page_bytes = self.layout.page_bytes;
        let first = slot * self.layout.slot_pages;
        let (mut bytes, mut edition, mut total) = (Vec::new(), 0, u32::MAX as usize);
        for page in first..first + self.layout.slot_pages {
            recovered.pages += 1;
            let Some(content) = self.ground.read_unless_torn(thread, PageId(page))? else {
                recovered.torn_pages += 1;
                return Ok(Slot::Torn);
            };
            if page == first {
                if frame::is_blank(&content) {
                    return Ok(Slot::Blank);
                }
                match frame::expect(&content, PageId(page), page_bytes, Kind::Manifest) {
                    Ok(facts) => edition = facts.sequence,
                    Err(error) => {
                        recovered.torn_pages += 1;
                        return Ok(error.unless_torn()?.unwrap_or(Slot::Torn));
                    }
                }
            }
            match page_of_bytes(page_bytes, (PageId(page), &content), Kind::Manifest, edition) {
                Ok(more) => bytes.extend(more),
                Err(error) => {
                    recovered.torn_pages += 1;
                    return Ok(error.unless_torn()?.unwrap_or(Slot::Torn));
                }
            }
            total = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
            if bytes.len() >= total {
                break;
            }
        }
        let parsed = bytes.get(..total).and_then(parse_manifest);
        Ok(parsed.map_or(Slot::Torn, |(header, tables)| Slot::Whole(edition, header, tables)))
    }

    /// Claims the pages of a table, and reads its blocks and filter, or rebuilds the blocks from its data
    /// pages.
    fn read_table(
        &self,
        thread: Thread,
        table: Table,
        recovered: &mut Recovered,
    ) -> Result<Table, StoreError> {
        let page_bytes = self.layout.page_bytes;
        let first = table.extents.first().map_or(PageId(0), |extent| extent.first);
        let damaged = |what: &str| StoreError::Damaged { page: first, what: what.into() };
        for extent in &table.extents {
            let is_inside = extent.first.0 >= self.layout.first_free;
            if !is_inside || !self.state.borrow_mut().free.claim(*extent) {
                return Err(damaged("is in two tables, or outside of the space for tables"));
            }
        }
        let meta = meta_pages(page_bytes, table.meta_bytes);
        let end = table.data_pages.checked_add(meta).filter(|end| u64::from(*end) == table.pages());
        let end = end.ok_or_else(|| damaged("begins a table of another length"))?;
        let (blocks, filter) = match self.read_meta(thread, &table, end, recovered) {
            Ok(read) => read,
            Err(error) if error.is_about_content() => {
                recovered.lost_pages += 1;
                (self.find_blocks(thread, &table, recovered)?, Vec::new())
            }
            Err(error) => return Err(error),
        };
        Ok(Table { blocks, filter, ..table })
    }

    /// Blocks and filter of a table whose pages end at `end`.
    fn read_meta(
        &self,
        thread: Thread,
        table: &Table,
        end: u32,
        recovered: &mut Recovered,
    ) -> Result<(Blocks, Vec<u8>), StoreError> {
        let range = (table.data_pages, end);
        let pages = read_pages(&self.ground.pages, thread, &table.extents, range, Purpose::Recovery)?;
        recovered.pages += pages.len() as u64;
        let mut bytes = Vec::new();
        for (id, page) in &pages {
            bytes.extend(page_of_bytes(self.layout.page_bytes, (*id, page), Kind::TableMeta, table.number)?);
        }
        bytes.truncate(table.meta_bytes as usize);
        self.work(thread, &[(Step::ChecksumByte, bytes.len() as u64)]);
        let missing = || StoreError::Damaged {
            page: pages.first().map_or(PageId(0), |(id, _)| *id),
            what: "is not the index of its table".into(),
        };
        parse_meta(&bytes, table.data_pages).ok_or_else(missing)
    }

    /// Rebuilds the lost block list of a table from its data pages. The block before an unreadable data page
    /// extends over that page, so that lookups of its keys meet the error.
    fn find_blocks(
        &self,
        thread: Thread,
        table: &Table,
        recovered: &mut Recovered,
    ) -> Result<Blocks, StoreError> {
        let format = data_format(self.layout.page_bytes);
        let mut blocks = vec![Block { first: table.min, page: 0, is_shared: false }];
        for number in 1..table.data_pages {
            let range = (number, number + 1);
            let read = read_pages(&self.ground.pages, thread, &table.extents, range, Purpose::Recovery);
            recovered.pages += 1;
            self.work(thread, &[(Step::ChecksumByte, self.layout.page_bytes.into())]);
            let found = read.and_then(|pages| {
                let (id, page) = &pages[0];
                block_on(&format, table, number, (*id, page))
            });
            match found {
                Ok(block) => blocks.extend(block),
                Err(error) if error.is_about_content() => recovered.lost_pages += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(blocks)
    }

    /// A page of the log, if it is the page of that position.
    fn read_log_page(
        &self,
        thread: Thread,
        position: u64,
        epoch: u64,
        recovered: &mut Recovered,
    ) -> Result<Option<LogPage>, StoreError> {
        let id = self.state.borrow().wal.page_of(position);
        recovered.pages += 1;
        let page = self.ground.read_unless_torn(thread, id)?;
        page.map_or(Ok(None), |page| self.log_page(page, id, position, epoch))
    }

    fn log_page(
        &self,
        page: Page,
        id: PageId,
        position: u64,
        epoch: u64,
    ) -> Result<Option<LogPage>, StoreError> {
        let format = wal::format(self.layout.page_bytes);
        let facts = match frame::expect(&page, id, format.page_bytes, Kind::Wal) {
            Ok(facts) => facts,
            Err(error) => return error.unless_torn(),
        };
        let own = frame::heads_of(&page, format.start.min(facts.head_bytes)).into_owned();
        let word = |index: usize| {
            let at = FRAME_BYTES as usize + 8 * index;
            own.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
        };
        let is_it = (word(0), word(1)) == (Some(epoch), Some(position));
        let durable = word(2).filter(|_| is_it);
        Ok(durable.map(|durable| LogPage { durable, id, page, facts }))
    }

    /// The complete records of the log that are not in tables.
    fn read_log(
        &self,
        thread: Thread,
        header: &Header,
        recovered: &mut Recovered,
    ) -> Result<Vec<Logged>, StoreError> {
        let format = wal::format(self.layout.page_bytes);
        let (mut logged, mut batch): (Vec<Logged>, Vec<Logged>) = (Vec::new(), Vec::new());
        let mut pending: Option<(Record, Vec<Part>)> = None;
        let mut position = header.wal_from;
        let end = header.wal_from + self.layout.wal_pages;
        while position < end
            && let Some(LogPage { id, page, facts, .. }) =
                self.read_log_page(thread, position, header.epoch, recovered)?
        {
            let mut on_page = records(&format, &page, id, facts);
            while let Some(record) = on_page.next()? {
                match (&mut pending, record.flags.has(Flags::CONTINUES)) {
                    (Some((_, parts)), true) => parts.push(record.part(&page)),
                    (None, true) => {
                        let what = "continues a value whose beginning is missing".into();
                        return Err(StoreError::Damaged { page: id, what });
                    }
                    (_, false) => pending = Some((record, vec![record.part(&page)])),
                }
                if record.is_ended()
                    && let Some((first, parts)) = pending.take()
                {
                    let is_there = !first.flags.has(Flags::TOMBSTONE);
                    batch.push(Logged {
                        key: first.key.expect("a record begins with its key"),
                        value: is_there.then(|| StoredValue::of_parts(parts)),
                        sequence: first.sequence,
                    });
                    if !first.flags.has(Flags::MEMBER) || first.flags.has(Flags::LAST) {
                        logged.append(&mut batch);
                    }
                }
            }
            position += 1;
        }
        recovered.dropped_records += batch.len() as u64 + u64::from(pending.is_some());
        // After a missing page, only pages that were in flight with it can be valid.
        for later in position + 1..end.min(position + 2 * MOST_UNDER_WAY as u64 + 2) {
            let page = self.read_log_page(thread, later, header.epoch, recovered)?;
            if page.is_some_and(|page| page.durable > position) {
                let id = self.state.borrow().wal.page_of(position);
                return Err(StoreError::Damaged {
                    page: id,
                    what: "was a durable page of the log, and is missing".into(),
                });
            }
        }
        self.work(thread, &[(Step::MemtableInsert, logged.len() as u64)]);
        Ok(logged)
    }
}
