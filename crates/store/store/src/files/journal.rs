//! The durable form of the catalog of files: two halves of pages, one of which counts.
//!
//! ```text
//!   half     | commit 0: the whole catalog   | commit 1 | commit 2 | ...
//!   commit   total u32 | records (`catalog.rs`); begins on a page of its own, continues on the next pages
//!   page     frame, kind journal, sequence = generation | bytes of a commit
//!   commit 0 total u32 | version u32 | pages of a half u64 | next file u64 | records
//! ```
//!
//! A generation is one filling of a half. If a commit does not fit after the others, the whole catalog starts
//! the next generation in the other half. Opening the journal does the same: after the last complete commit
//! there may be pages left by a power cut, and none of them may be taken for a later commit. Commit 0 is
//! durable before a page of the older half is written again. The half with the higher generation counts, if
//! its commit 0 is complete.

use kvdrive_record::{encode, next, put};

use super::catalog::{Catalog, FileId, Record};
use crate::cpu::Thread;
use crate::frame::{self, FRAME_BYTES, Kind};
use crate::lsmtree::{bytes_page, page_of_bytes};
use crate::pages::{Page, PageError, PageId, PageStore, Purpose, Trouble};
use crate::store::StoreError;

const VERSION: u32 = 1;
/// The thread number of all calls to the pages.
pub(super) const THREAD: Thread = Thread(0);

/// The journal, and the catalog that opening it would restore.
pub struct Journal {
    half_pages: u64,
    /// The half that counts.
    half: u64,
    /// Its next page.
    next: u64,
    generation: u64,
    next_file: u64,
    /// The catalog that is durable or about to become durable.
    catalog: Catalog,
    /// A commit failed: the durable state is unknown.
    failed: Option<StoreError>,
}

/// The content of a half.
struct HalfContent {
    generation: u64,
    next_file: u64,
    catalog: Catalog,
}

/// Pages of a half, for this total number of pages.
pub fn half_pages(pages: u64) -> u64 {
    (pages / 256).clamp(16, 1024)
}

impl Journal {
    /// Reads the durable catalog and starts a generation with it. Pages that are all zero contain no files.
    ///
    /// # Errors
    /// A page cannot be read or written, or both halves are damaged.
    pub fn open(pages: &(impl PageStore + ?Sized)) -> Result<(Journal, Catalog), StoreError> {
        let half_pages = half_pages(pages.pages());
        let halves = [read_half(pages, 0, half_pages)?, read_half(pages, half_pages, half_pages)?];
        let found = [find(pages, &halves[0], 0)?, find(pages, &halves[1], half_pages)?];
        let newest = halves.iter().flatten().flatten().map(|(facts, _)| *facts).max().unwrap_or(0);
        let [first, second] = found;
        let is_first = match (&first, &second) {
            (Some(first), Some(second)) => first.generation > second.generation,
            (first, _) => first.is_some(),
        };
        let counts = if is_first { first } else { second };
        if counts.is_none() {
            // Half 1 is written after half 0 is durable, so the program that created these pages was
            // interrupted here.
            let mut page = Vec::new();
            let is_blank = match pages.read(THREAD, PageId(half_pages), 1, Purpose::Recovery, &mut page) {
                Ok(()) => frame::is_blank(&page[0]),
                Err(_) => false,
            };
            if !is_blank {
                let what = "both halves of the journal of files are damaged".into();
                return Err(StoreError::Damaged { page: PageId(0), what });
            }
        }
        let is_new = counts.is_none();
        let HalfContent { next_file, catalog, .. } =
            counts.unwrap_or(HalfContent { generation: 0, next_file: 1, catalog: Catalog::default() });
        let mut journal = Journal {
            half_pages,
            half: u64::from(!is_first),
            next: half_pages,
            generation: newest,
            next_file,
            catalog,
            failed: None,
        };
        for _ in 0..if is_new { 2 } else { 1 } {
            journal.begin_generation(pages)?;
        }
        let catalog = journal.catalog.clone();
        Ok((journal, catalog))
    }

    /// First page after the journal.
    pub fn end(&self) -> u64 {
        2 * self.half_pages
    }

    /// Number of the next file, which no earlier file had.
    pub fn next_file(&self) -> u64 {
        self.next_file
    }

    /// Has a commit failed?
    ///
    /// # Errors
    /// The failure of the first commit that failed.
    pub fn check(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Notes a failure: no later change can become durable.
    pub fn fail(&mut self, error: StoreError) -> StoreError {
        self.failed.get_or_insert(error).clone()
    }

    /// Makes records durable: all of them, or perhaps none if a power cut comes before this returns.
    pub fn commit(
        &mut self,
        pages: &(impl PageStore + ?Sized),
        records: &[Record],
    ) -> Result<(), StoreError> {
        self.check()?;
        let mut bytes = Vec::new();
        for record in records {
            self.catalog.apply(record).expect("files were changed so");
            put(&mut bytes, record);
            if let Record::Create { file: FileId(file), .. } = record {
                self.next_file = self.next_file.max(file + 1);
            }
        }
        let fits = self.next + pages_for(pages, &bytes) <= self.half_pages;
        let result = match fits {
            true => self.write(pages, &bytes),
            false => self.begin_generation(pages),
        };
        result.map_err(|error| self.fail(error))
    }

    /// Writes the whole catalog to the other half, which counts from then on.
    fn begin_generation(&mut self, pages: &(impl PageStore + ?Sized)) -> Result<(), StoreError> {
        let mut bytes = encode(&(VERSION, self.half_pages, self.next_file));
        self.catalog.records().for_each(|record| put(&mut bytes, &record));
        if pages_for(pages, &bytes) > self.half_pages {
            return Err(StoreError::Full);
        }
        (self.half, self.next, self.generation) = (1 - self.half, 0, self.generation + 1);
        self.write(pages, &bytes)
    }

    fn write(&mut self, pages: &(impl PageStore + ?Sized), bytes: &[u8]) -> Result<(), StoreError> {
        let mut commit = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        commit.extend(bytes);
        let first = PageId(self.half * self.half_pages + self.next);
        let page_bytes = pages.page_bytes();
        let page = |(id, chunk): (u64, &[u8])| {
            bytes_page(page_bytes, PageId(id), Kind::Journal, self.generation, chunk)
        };
        let run: Vec<_> = (first.0..).zip(commit.chunks(room(page_bytes))).map(page).collect();
        pages.write(THREAD, first, &run, Purpose::Manifest)?;
        pages.flush(THREAD, Purpose::Manifest)?;
        self.next += run.len() as u64;
        Ok(())
    }
}

/// Bytes of a commit on a page.
fn room(page_bytes: u32) -> usize {
    (page_bytes - FRAME_BYTES) as usize
}

fn pages_for(pages: &(impl PageStore + ?Sized), bytes: &[u8]) -> u64 {
    (bytes.len() + 4).div_ceil(room(pages.page_bytes())) as u64
}

/// The valid pages of a half, each with its generation.
type Half = Vec<Option<(u64, Page)>>;

fn read_half(pages: &(impl PageStore + ?Sized), first: u64, count: u64) -> Result<Half, StoreError> {
    let mut half = Vec::new();
    for id in (first..first + count).map(PageId) {
        let mut out = Vec::new();
        match pages.read(THREAD, id, 1, Purpose::Recovery, &mut out) {
            Ok(()) => {}
            // A power cut may have torn the page.
            Err(PageError { trouble: Trouble::Unreadable, .. }) => {
                half.push(None);
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        let page = out.pop().expect("a page was read");
        let facts = frame::expect(&page, id, pages.page_bytes(), Kind::Journal);
        half.push(match facts {
            Ok(facts) => Some((facts.sequence, page)),
            Err(error) => error.unless_torn()?,
        });
    }
    Ok(half)
}

/// The content of a half, up to its last complete commit; `None` if its first one is incomplete.
fn find(
    pages: &(impl PageStore + ?Sized),
    half: &Half,
    first: u64,
) -> Result<Option<HalfContent>, StoreError> {
    let Some(Some((generation, _))) = half.first() else { return Ok(None) };
    let damaged = |at: usize, what: &str| {
        Err(StoreError::Damaged { page: PageId(first + at as u64), what: what.into() })
    };
    let mut at = 0;
    let Some(bytes) = commit_at(pages, half, first, *generation, &mut at) else { return Ok(None) };
    let mut rest = &bytes[..];
    let Ok(version) = next::<u32>(&mut rest) else {
        return damaged(0, "is a journal of files without a version");
    };
    if version != VERSION {
        let found = u8::try_from(version).unwrap_or(u8::MAX);
        return Err(StoreError::Version { page: PageId(first), found, known: VERSION as u8 });
    }
    let numbers = next::<(u64, u64)>(&mut rest).ok();
    let Some((_, next_file)) = numbers.filter(|(half_pages, _)| *half_pages == half.len() as u64) else {
        return damaged(0, "is a journal of files for another number of pages");
    };
    let mut found = HalfContent { generation: *generation, next_file, catalog: Catalog::default() };
    let mut rest = rest.to_vec();
    loop {
        let mut records = &rest[..];
        while !records.is_empty() {
            let record = next::<Record>(&mut records).ok();
            let Some(record) = record.filter(|record| found.catalog.apply(record).is_some()) else {
                return damaged(at - 1, "ends a commit of the journal of files with an invalid record");
            };
            if let Record::Create { file, .. } = record {
                found.next_file = found.next_file.max(file.0 + 1);
            }
        }
        match commit_at(pages, half, first, *generation, &mut at) {
            Some(bytes) => rest = bytes,
            None => return Ok(Some(found)),
        }
    }
}

/// The bytes of the commit at page `at` of a half; `at` is set to the next page.
fn commit_at(
    pages: &(impl PageStore + ?Sized),
    half: &Half,
    first: u64,
    generation: u64,
    at: &mut usize,
) -> Option<Vec<u8>> {
    let page_bytes = pages.page_bytes();
    let page = |index: usize| {
        let (_, page) = half.get(index)?.as_ref()?;
        let id = PageId(first + index as u64);
        page_of_bytes(page_bytes, (id, page), Kind::Journal, generation).ok()
    };
    let mut bytes = page(*at)?;
    let total = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let count = total.div_ceil(room(page_bytes)).max(1);
    for index in *at + 1..*at + count {
        bytes.extend(page(index)?);
    }
    bytes.truncate(total);
    *at += count;
    bytes.get(4..).map(<[u8]>::to_vec)
}
