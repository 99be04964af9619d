//! Files on pages, for a store that was written for a file system. Append, random reads, rename, remove; no
//! directories: a name is just a path.
//!
//! ```text
//!   pages  | journal, half 0 | journal, half 1 | runs of pages of files, anywhere ... |
//!   file   run, run, run, ... | tail: the last bytes, as long as they fill no page
//! ```
//!
//! Every page of a file is written once. A full page is written at once; the last bytes of a file that is
//! being written stay in memory. A sync puts them into the journal, which overwrites no durable data: so a
//! short synchronised append costs one page. When a file is finished, its last bytes get a page.
//!
//! Bytes of files have no checksums here, since RocksDB, which writes the files, has its own. The journal has
//! checksums.
//!
//! **Durable**, after a [`Files::commit`], are all changes of names before it, and of each file the content
//! at its last [`Files::sync`] or [`Files::finish`]. A power cut leaves the state of some commit that began
//! no earlier than the last one that has ended. Pages of a removed file are trimmed, and reused, once the
//! removal is durable.
//!
//! Several threads of the machine may call at once, if the pages permit it; all of them call the pages as
//! thread 0. A file is written by one thread at a time.

mod catalog;
mod journal;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kvdrive_content::Region;

use crate::pages::{Page, PageStore, Purpose};
use crate::space::{Extent, FreePages};
use crate::store::StoreError;
pub use catalog::FileId;
use catalog::{Catalog, Entry, Record};
use journal::{Journal, THREAD};

/// Number of pages of a file written at a time.
const PAGES_AT_ONCE: u64 = 64;
/// Most pages allocated for a file at a time.
const PAGES_TAKEN: u64 = 256;

/// Files on pages.
pub struct Files<P: PageStore> {
    pages: P,
    page_bytes: u64,
    state: Mutex<DirectoryState>,
    journal: Mutex<Journal>,
}

/// The state in memory.
struct DirectoryState {
    catalog: Catalog,
    next_file: u64,
    /// Open files.
    open: BTreeMap<FileId, Open>,
    /// Open files that were removed.
    orphans: BTreeMap<FileId, Entry>,
    free: FreePages,
    /// Changes since the last commit, in order.
    pending: Vec<Record>,
    /// Pages that become free when the pending changes are durable.
    leaving: Vec<Extent>,
    /// Pages were written since the last flush.
    is_dirty: bool,
}

/// An open file.
#[derive(Default)]
struct Open {
    /// Number of times it is open.
    times: u32,
    /// Number of its runs of pages in its last record.
    recorded: usize,
    is_writing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DirectoryState {
    fn entry(&mut self, file: FileId) -> &mut Entry {
        let entry = self.catalog.entries.get_mut(&file).or_else(|| self.orphans.get_mut(&file));
        entry.expect("an open file has an entry")
    }

    /// Applies a change of names; `false` if it is impossible.
    fn change(&mut self, record: Record) -> bool {
        let Some(gone) = self.catalog.apply(&record) else { return false };
        if let Some((file, entry)) = gone {
            match self.open.contains_key(&file) {
                true => drop(self.orphans.insert(file, entry)),
                false => self.leaving.extend(entry.extents),
            }
        }
        self.pending.push(record);
        true
    }

    /// Records the present state of a file, so that the next commit makes it durable.
    fn record(&mut self, file: FileId, page_bytes: u64) {
        let Some(entry) = self.catalog.entries.get(&file) else { return };
        let open = self.open.get_mut(&file).expect("the file is open while it is noted");
        // The last run of the last record may have grown.
        let from = open.recorded.saturating_sub(1);
        let extents = entry.runs(0, entry.on_pages().div_ceil(page_bytes));
        open.recorded = extents.len();
        let extents = extents[from.min(extents.len())..].to_vec();
        let (length, tail) = (entry.length, entry.tail.clone());
        self.pending.push(Record::Grow { file, length, from: from as u32, extents, tail });
    }

    /// Takes pages for a file until it has room for `pages` more. `false`: too few are free.
    fn make_room(&mut self, file: FileId, pages: u64) -> bool {
        let have: u64 = self.entry(file).extents.iter().map(|extent| u64::from(extent.pages)).sum();
        let mut missing = pages.saturating_sub(have);
        if missing > self.free.pages() {
            return false;
        }
        // Twice as much each time: long files get long runs, and short files leave few pages unused.
        let wanted = missing.max(have.min(PAGES_TAKEN)).min(self.free.pages() / 2).max(missing);
        while missing > 0 {
            let run = self.free.take(wanted as u32).expect("there are free pages");
            missing = missing.saturating_sub(run.pages.into());
            let extents = &mut self.entry(file).extents;
            match extents.last_mut() {
                Some(last) if last.end() == run.first.0 => last.pages += run.pages,
                _ => extents.push(run),
            }
        }
        true
    }
}

impl<P: PageStore> Files<P> {
    /// Opens the files on these pages. Pages that are all zero contain no files.
    ///
    /// # Errors
    /// The pages failed, or contain something else.
    pub fn open_on(pages: P) -> Result<Files<P>, StoreError> {
        if pages.pages() < 2 * journal::half_pages(pages.pages()) + 1 {
            return Err(StoreError::Full);
        }
        let (journal, catalog) = Journal::open(&pages)?;
        let mut free = FreePages::default();
        let (mut first, all) = (journal.end(), pages.pages());
        while first < all {
            let count = (all - first).min(u64::from(u32::MAX)) as u32;
            free.give(Extent { first: crate::PageId(first), pages: count });
            first += u64::from(count);
        }
        for extent in catalog.entries.values().flat_map(|entry| &entry.extents) {
            if !free.claim(*extent) {
                let what = "is in two files, or is no page for files, by the journal".into();
                return Err(StoreError::Damaged { page: extent.first, what });
            }
        }
        let state = DirectoryState {
            catalog,
            next_file: journal.next_file(),
            open: BTreeMap::new(),
            orphans: BTreeMap::new(),
            free,
            pending: Vec::new(),
            leaving: Vec::new(),
            is_dirty: false,
        };
        let page_bytes = pages.page_bytes().into();
        Ok(Files { pages, page_bytes, state: Mutex::new(state), journal: Mutex::new(journal) })
    }

    /// The underlying pages.
    pub fn pages(&self) -> &P {
        &self.pages
    }

    /// Creates an empty file and opens it; removes a file of the same name.
    pub fn create(&self, name: &str) -> FileId {
        let mut state = lock(&self.state);
        let file = FileId(state.next_file);
        state.next_file += 1;
        state.change(Record::Create { file, name: name.to_owned() });
        state.open.insert(file, Open { times: 1, ..Open::default() });
        file
    }

    /// Opens a file. It exists until it is closed as often as it was opened, even if its name is removed.
    pub fn open(&self, name: &str) -> Option<FileId> {
        let mut state = lock(&self.state);
        let file = *state.catalog.names.get(name)?;
        state.open.entry(file).or_default().times += 1;
        Some(file)
    }

    /// Closes a file. Appended data that was neither synchronised nor finished is lost at a power cut.
    pub fn close(&self, file: FileId) {
        let mut state = lock(&self.state);
        let open = state.open.get_mut(&file).expect("it was opened");
        open.times -= 1;
        if open.times > 0 {
            return;
        }
        state.open.remove(&file);
        if let Some(entry) = state.orphans.remove(&file) {
            state.leaving.extend(entry.extents);
            return;
        }
        let page_bytes = self.page_bytes;
        let entry = state.entry(file);
        let spare = entry.cut(entry.on_pages().div_ceil(page_bytes));
        spare.into_iter().for_each(|extent| state.free.give(extent));
    }

    /// Appends to a file that was created and has been open since.
    ///
    /// # Errors
    /// The pages failed, or are full; the file then ends with the data written before.
    pub fn append(&self, file: FileId, bytes: &[u8], why: Purpose) -> Result<(), StoreError> {
        let page = self.page_bytes as usize;
        let mut rest = bytes;
        loop {
            let (data, taken, runs) = {
                let mut state = lock(&self.state);
                let entry = state.entry(file);
                assert!(
                    entry.on_pages().is_multiple_of(page as u64),
                    "a file that is finished stays as it is"
                );
                let had = entry.tail.len();
                let full = ((had + rest.len()) / page).min(PAGES_AT_ONCE as usize);
                if full == 0 {
                    entry.tail.extend_from_slice(rest);
                    entry.length += rest.len() as u64;
                    return Ok(());
                }
                let taken = full * page - had;
                let mut data = entry.tail.clone();
                data.extend_from_slice(&rest[..taken]);
                drop(state);
                (data, taken, self.take_room(file, full as u64)?)
            };
            let result = self.write(&runs, &data, why);
            let mut state = lock(&self.state);
            state.open.get_mut(&file).expect("a file that is written is open").is_writing = false;
            result?;
            state.is_dirty = true;
            let entry = state.entry(file);
            entry.length += taken as u64;
            entry.tail.clear();
            drop(state);
            rest = &rest[taken..];
        }
    }

    /// Positions of the next `count` pages of a file.
    fn take_room(&self, file: FileId, count: u64) -> Result<Vec<Extent>, StoreError> {
        let take = || {
            let mut state = lock(&self.state);
            let first = state.entry(file).on_pages() / self.page_bytes;
            if !state.make_room(file, first + count) {
                return None;
            }
            let open = state.open.get_mut(&file).expect("a file that is written is open");
            assert!(!std::mem::replace(&mut open.is_writing, true), "one writes at a time");
            Some(state.entry(file).runs(first, first + count))
        };
        if let Some(runs) = take() {
            return Ok(runs);
        }
        // A commit frees the pages of removed files.
        self.commit()?;
        take().ok_or(StoreError::Full)
    }

    fn write(&self, runs: &[Extent], bytes: &[u8], why: Purpose) -> Result<(), StoreError> {
        let mut pages =
            bytes.chunks(self.page_bytes as usize).map(|page| Page::new(Region::from_bytes(page.to_vec())));
        let (mut result, mut under_way) = (Ok(()), Vec::new());
        for run in runs {
            let content: Vec<Page> = pages.by_ref().take(run.pages as usize).collect();
            match self.pages.start_write(THREAD, run.first, &content, why) {
                Ok(writing) => under_way.push(writing),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for writing in under_way {
            result = result.and(self.pages.finish_write(THREAD, writing));
        }
        Ok(result?)
    }

    /// Makes the content of a file durable, and all earlier changes of names.
    ///
    /// # Errors
    /// The pages failed; then nothing becomes durable any more.
    pub fn sync(&self, file: FileId) -> Result<(), StoreError> {
        lock(&self.state).record(file, self.page_bytes);
        self.commit()
    }

    /// Ends the appending to a file; the next commit makes it durable.
    ///
    /// # Errors
    /// As [`Files::append`].
    pub fn finish(&self, file: FileId, why: Purpose) -> Result<(), StoreError> {
        let tail = lock(&self.state).entry(file).tail.clone();
        if !tail.is_empty() {
            let runs = self.take_room(file, 1)?;
            let result = self.write(&runs, &tail, why);
            let mut state = lock(&self.state);
            state.open.get_mut(&file).expect("a file that is written is open").is_writing = false;
            result?;
            state.is_dirty = true;
            state.entry(file).tail.clear();
        }
        lock(&self.state).record(file, self.page_bytes);
        Ok(())
    }

    /// Makes changes of names and finished files durable.
    ///
    /// # Errors
    /// As [`Files::sync`].
    pub fn commit(&self) -> Result<(), StoreError> {
        let mut journal = lock(&self.journal);
        journal.check()?;
        let (records, leaving, is_dirty) = {
            let mut state = lock(&self.state);
            let DirectoryState { pending, leaving, is_dirty, .. } = &mut *state;
            (std::mem::take(pending), std::mem::take(leaving), std::mem::take(is_dirty))
        };
        // The data that records refer to is durable before the records are.
        if is_dirty && let Err(error) = self.pages.flush(THREAD, Purpose::Manifest) {
            return Err(journal.fail(error.into()));
        }
        if !records.is_empty() {
            journal.commit(&self.pages, &records)?;
        }
        for extent in leaving {
            self.pages.trim(THREAD, extent.first, extent.pages, Purpose::Cleaning)?;
            lock(&self.state).free.give(extent);
        }
        Ok(())
    }

    /// Reads bytes of a file from `at` on; returns how many it read.
    ///
    /// # Errors
    /// The pages failed.
    pub fn read(&self, file: FileId, at: u64, out: &mut [u8], why: Purpose) -> Result<usize, StoreError> {
        let page = self.page_bytes;
        let (end, on_pages, runs) = {
            let mut state = lock(&self.state);
            let entry = state.entry(file);
            let end = entry.length.min(at.saturating_add(out.len() as u64));
            if end <= at {
                return Ok(0);
            }
            let on_pages = entry.on_pages().clamp(at, end);
            if end > on_pages {
                let from = on_pages - entry.on_pages();
                let tail = &entry.tail[from as usize..][..(end - on_pages) as usize];
                out[(on_pages - at) as usize..][..tail.len()].copy_from_slice(tail);
            }
            let runs =
                if on_pages > at { entry.runs(at / page, on_pages.div_ceil(page)) } else { Vec::new() };
            (end, on_pages, runs)
        };
        let (mut skip, mut left) = ((at % page) as u32, &mut out[..(on_pages - at) as usize]);
        for run in runs {
            let mut content = Vec::with_capacity(run.pages as usize);
            self.pages.read(THREAD, run.first, run.pages, why, &mut content)?;
            for of_page in content {
                let count = left.len().min(page as usize - skip as usize);
                let (here, behind) = left.split_at_mut(count);
                of_page.copy_to(skip, here);
                (skip, left) = (0, behind);
            }
        }
        Ok((end - at) as usize)
    }

    /// Length of an open file in bytes.
    pub fn length(&self, file: FileId) -> u64 {
        lock(&self.state).entry(file).length
    }

    /// Length in bytes of the file of this name.
    pub fn find(&self, name: &str) -> Option<u64> {
        let state = lock(&self.state);
        state.catalog.names.get(name).map(|file| state.catalog.entries[file].length)
    }

    /// Renames a file; another file of that name is removed. `false`: there is no such file.
    pub fn rename(&self, name: &str, to: &str) -> bool {
        lock(&self.state).change(Record::Rename { name: name.to_owned(), to: to.to_owned() })
    }

    /// Removes a file. `false`: it does not exist.
    pub fn remove(&self, name: &str) -> bool {
        lock(&self.state).change(Record::Remove { name: name.to_owned() })
    }

    /// The rest of each name that starts with `prefix`, in order.
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let state = lock(&self.state);
        let from = state.catalog.names.range(prefix.to_owned()..);
        from.map_while(|(name, _)| name.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// Bytes available for files, including those of removed files.
    pub fn free_bytes(&self) -> u64 {
        let state = lock(&self.state);
        let leaving: u64 = state.leaving.iter().map(|extent| u64::from(extent.pages)).sum();
        (state.free.pages() + leaving) * self.page_bytes
    }
}
