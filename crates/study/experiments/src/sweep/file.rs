//! The file of a sweep: a line for each row that is finished.
//!
//! A row is finished if its line is complete and its `config_hash` is that of a row of this sweep. A
//! truncated last line, after a kill or on a full disk, does not count: it is removed before anything is
//! added. Any other line that does not belong to this sweep is an error, and the file is not changed.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use serde_json::Value;

use kvdrive_text::output::{check_is_file, shown};

use super::row::Row;

/// A file of lines, open at the end of its last complete line. One sweep locks it until the file is closed or
/// its process ends.
#[derive(Debug)]
pub struct SweepFile {
    name: String,
    file: File,
    finished: Finished,
}

impl SweepFile {
    /// Opens or creates the file at `path`, for lines of `rows`.
    ///
    /// # Errors
    /// One line with the path: the file is not a regular one, another sweep is writing to it, or as
    /// [`Finished::read`].
    pub fn open(path: &Path, rows: &[Row]) -> anyhow::Result<SweepFile> {
        check_is_file(path)?;
        let name = shown(path);
        let wrong = |error: std::io::Error| anyhow!("{name}: {error}");
        ensure!(!path.exists() || path.is_file(), "{name}: is no regular file");
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{name}: another sweep is writing to it"),
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(wrong)?;
        let finished = Finished::read(&content, rows).map_err(|problem| anyhow!("{name}: {problem}"))?;
        file.set_len(finished.whole_bytes as u64).map_err(wrong)?;
        file.seek(SeekFrom::End(0)).map_err(wrong)?;
        Ok(SweepFile { name, file, finished })
    }

    /// The lines in the file when it was opened.
    pub fn finished(&self) -> &Finished {
        &self.finished
    }

    /// Remarks on these lines, for a user of program `revision`; a sentence each.
    pub fn remarks(&self, revision: &str) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.finished.cut_off {
            remarks.push(format!("{}: the last line was cut off; its row is run again", self.name));
        }
        if self.finished.revisions.iter().any(|other| other != revision) {
            let others: Vec<_> = self.finished.revisions.iter().map(String::as_str).collect();
            remarks.push(format!("{}: has rows of {}; this is {revision}", self.name, others.join(", ")));
        }
        remarks
    }

    /// Adds a [line](Row::line).
    ///
    /// # Errors
    /// One line with the path: it cannot be written.
    pub fn add(&mut self, line: &str) -> anyhow::Result<()> {
        self.file.write_all(line.as_bytes()).map_err(|error| anyhow!("{}: {error}", self.name))
    }
}

/// The rows in a file that earlier calls of a sweep have finished.
#[derive(Debug, Default, PartialEq)]
pub struct Finished {
    /// Bytes of complete lines; the bytes after them were cut off.
    pub whole_bytes: usize,
    /// Were any bytes cut off?
    pub cut_off: bool,
    /// Finished rows.
    pub config_hashes: BTreeSet<String>,
    /// Revisions of the program that wrote them.
    pub revisions: BTreeSet<String>,
}

impl Finished {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// One line: a complete line is no row of this sweep, or a row occurs twice.
    pub fn read(content: &[u8], rows: &[Row]) -> anyhow::Result<Finished> {
        let known: BTreeSet<&str> = rows.iter().map(|row| row.config_hash.as_str()).collect();
        let mut finished = Finished::default();
        for (index, line) in content.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if !line.ends_with(b"\n") {
                finished.cut_off = true;
                break;
            }
            let number = index + 1;
            let row: Value =
                serde_json::from_slice(line).map_err(|error| anyhow!("line {number}: {error}"))?;
            let hash = row.get("config_hash").and_then(Value::as_str);
            let hash =
                hash.ok_or_else(|| anyhow!("line {number}: no config_hash; not written by a sweep"))?;
            let revision = row.get("revision").and_then(Value::as_str);
            ensure!(
                known.contains(hash),
                "line {number}: no row of this sweep: written by {}, whose configuration differs; use another file",
                revision.unwrap_or("another program")
            );
            ensure!(
                finished.config_hashes.insert(hash.to_owned()),
                "line {number}: a row that was there before"
            );
            finished.revisions.extend(revision.map(str::to_owned));
            finished.whole_bytes += line.len();
        }
        Ok(finished)
    }
}
