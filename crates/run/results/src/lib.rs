//! Runs of a plan carried out side by side, and their reports remembered on disk.
//!
//! Such a run is a function of the program, of its configuration (the seed included) and of the trace that it
//! reads. [`ResultCache::run_session`] looks up the reports of a session by these three, and runs the session
//! if there are none.
//!
//! ```text
//!   session ─► key (program, profile, configuration, digest of the trace) ─► entry on disk? ─► its reports
//!                                                                             └─ no ─► run ─► entry, reports
//! ```
//!
//! Not remembered: runs of a drive on an image file, since the run changes the image; of a trace that is no
//! regular file; of workloads and packing policies that a program brings as code; and runs with fault rules,
//! which do not use the cache.
//!
//! [`ResultCache::ahead`] orders the runs of a plan and says how many there are and how long they take;
//! [`ResultCache::carry_out`] is the one loop over runs, for every command.
//!
//! This crate takes no part in a run and computes no figure: without a cache the reports are the same.

mod ahead;
mod carry_out;
mod entry;
mod folder;
mod key;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kvdrive_config::Document;
use kvdrive_run::report::Report;
use kvdrive_run::{FinishedRun, Watch, run_session_watched};

pub use ahead::RunOrder;
pub use carry_out::{Conduct, Ended};
pub use folder::{DEFAULT_LIMIT_BYTES, Usage, folder_of_user};
pub use key::program;

use folder::Folder;
use key::EntryKey;

/// The reports that earlier runs left, if there is a folder for them.
pub struct ResultCache {
    folder: Option<Folder>,
    /// Identity of the program, see [`program`].
    program: String,
    /// The first error that kept a result from being written; reported once.
    failure: Mutex<Option<String>>,
}

impl ResultCache {
    /// The cache in `folder`, for results of `program`. The folder is created with the first result.
    pub fn open(folder: PathBuf, program: String) -> ResultCache {
        ResultCache { folder: Some(Folder::open(folder)), program, failure: Mutex::new(None) }
    }

    /// A cache that remembers nothing.
    pub fn none() -> ResultCache {
        ResultCache { folder: None, program: String::new(), failure: Mutex::new(None) }
    }

    /// Runs that follow each other on one drive: with their remembered reports, or else run, and their reports remembered.
    /// `watch` may stop the runs. Reports of runs that were stopped or are not whole are returned and not remembered.
    ///
    /// # Errors
    /// As [`run_session_watched`]. A cache that cannot be written is no error; see [`failure`](ResultCache::failure).
    pub fn run_session(&self, documents: &[Document], watch: &Watch<'_>) -> anyhow::Result<Vec<FinishedRun>> {
        let known = self.folder.as_ref().zip(self.key(documents)?);
        if let Some(reports) = known.as_ref().and_then(|(folder, key)| remembered(folder, key, documents)) {
            let finished = |report| FinishedRun { report, latencies: Vec::new(), failure: None };
            return Ok(reports.into_iter().map(finished).collect());
        }
        let runs = run_session_watched(documents, watch)?;
        let is_whole = |ran: &FinishedRun| ran.failure.is_none() && !ran.report.is_stopped;
        if let Some((folder, key)) = known.filter(|_| runs.iter().all(is_whole)) {
            let reports: Vec<&Report> = runs.iter().map(|ran| &ran.report).collect();
            if let Some(bytes) = entry::encode(&key, &reports, documents)
                && let Err(error) = folder.write(key.name(), &bytes)
            {
                self.failure.lock().expect("nothing panics under it").get_or_insert(error);
            }
        }
        Ok(runs)
    }

    /// The folder of the entries; `None`: nothing is remembered.
    pub fn path(&self) -> Option<&Path> {
        self.folder.as_ref().map(Folder::path)
    }

    /// The contents of the cache.
    ///
    /// # Errors
    /// One line: the folder cannot be read.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        self.folder.as_ref().map_or_else(|| Ok(Usage::default()), Folder::usage)
    }

    /// Removes every entry; returns how many bytes they had.
    ///
    /// # Errors
    /// One line: an entry cannot be removed.
    pub fn clear(&self) -> anyhow::Result<u64> {
        self.folder.as_ref().map_or(Ok(0), Folder::clear)
    }

    /// Sets the limit of this cache, in bytes; removes the entries that were unused for longest until it is
    /// kept.
    ///
    /// # Errors
    /// One line: the folder cannot be written.
    pub fn set_limit(&self, limit_bytes: u64) -> anyhow::Result<()> {
        self.folder.as_ref().map_or(Ok(()), |folder| folder.set_limit(limit_bytes))
    }

    /// The first error that kept a result from being written, in one line.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().expect("nothing panics under it").clone()
    }

    fn key(&self, documents: &[Document]) -> anyhow::Result<Option<EntryKey>> {
        EntryKey::of(&self.program, documents)
    }
}

fn remembered(folder: &Folder, key: &EntryKey, documents: &[Document]) -> Option<Vec<Report>> {
    let reports = entry::decode(&folder.read(key.name())?, key, documents)?;
    folder.touch(key.name());
    Some(reports)
}
