//! `kvdrive sweep`: every combination of some settings, one JSON object a line.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use clap::Args;
use kvdrive_config::Document;
use kvdrive_experiments::sweep::{Finished, Row, rows};
use kvdrive_run::Progress;
use kvdrive_run::many::run_each;
use kvdrive_run::report::Report;
use kvdrive_text::input::read_text;
use kvdrive_text::output::{check_apart, check_is_file, shown};

use crate::batch::{TotalBar, jobs};
use crate::cache::Remember;
use crate::settings::at_least_one;

/// Options of `sweep`.
#[derive(Args)]
pub struct Sweep {
    /// TOML file: profile, set = ["KEY=VALUE", ...], and a table `grid` with "KEY" = [VALUE, ...]
    file: PathBuf,
    /// Where the lines go; rows that are there already are not run again [default: FILE with .jsonl]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    jobs: Option<u64>,
    #[command(flatten)]
    remember: Remember,
}

impl Sweep {
    /// Runs what is not finished yet.
    pub fn run(&self) -> anyhow::Result<()> {
        let name = shown(&self.file);
        let rows = rows(&name, &read_text(&self.file)?)?;
        let out = self.out.clone().unwrap_or_else(|| self.file.with_extension("jsonl"));
        check_is_file(&out)?;
        check_apart(&[("the sweep", Some(&self.file)), ("--out", Some(&out))])?;
        let (file, finished) = open(&out, &rows)?;
        let left: Vec<&Row> =
            rows.iter().filter(|row| !finished.config_hashes.contains(&row.config_hash)).collect();
        eprintln!(
            "{}: {} of {} rows are there, {} to run",
            out.display(),
            rows.len() - left.len(),
            rows.len(),
            left.len()
        );
        let documents: Vec<Document> = left.iter().map(|row| row.document.clone()).collect();
        let (cache, jobs) = (self.remember.cache(), jobs(self.jobs));
        let sessions: Vec<_> = (0..documents.len()).map(|index| vec![index]).collect();
        let ahead = cache.ahead(&documents, &sessions)?;
        if !documents.is_empty() {
            eprintln!("{}", ahead.in_words(jobs));
        }
        let bar = TotalBar::new(&documents, &ahead)?;
        let sink = Mutex::new(Sink { file, error: None });
        let run = |runs: &[Document], progress: Progress<'_>| cache.run_session(runs, progress);
        run_each(
            &documents,
            &ahead.sessions.concat(),
            jobs,
            &run,
            &|index, done, _| bar.update(index, done),
            &|index, report| {
                let mut sink = sink.lock().expect("a run that panics ends the program");
                sink.add(left[index], report)
            },
        );
        Remember::end(&cache);
        bar.finish();
        let error = sink.into_inner().expect("no run panicked").error;
        error.map_or(Ok(()), |error| Err(error.context(out.display().to_string())))
    }
}

/// Opens the file after its last whole line. It is this sweep's alone until it is closed, also by a kill.
fn open(path: &Path, rows: &[Row]) -> anyhow::Result<(File, Finished)> {
    let name = shown(path);
    let wrong = |error: std::io::Error| anyhow!("{name}: {error}");
    anyhow::ensure!(!path.exists() || path.is_file(), "{name}: is no regular file");
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => anyhow::bail!("{name}: another sweep is writing to it"),
        Err(TryLockError::Error(error)) => return Err(wrong(error)),
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(wrong)?;
    let finished = Finished::read(&content, rows).map_err(|problem| anyhow!("{name}: {problem}"))?;
    if finished.cut_off {
        eprintln!("{name}: the last line was cut off; its row is run again");
    }
    if finished.revisions.iter().any(|revision| revision != kvdrive_revision::REVISION) {
        let revisions = finished.revisions.iter().cloned().collect::<Vec<_>>().join(", ");
        eprintln!("{name}: has rows of {revisions}; this is {}", kvdrive_revision::REVISION);
    }
    file.set_len(finished.whole_bytes as u64).map_err(wrong)?;
    file.seek(SeekFrom::End(0)).map_err(wrong)?;
    Ok((file, finished))
}

/// Where lines go, and what went wrong first.
struct Sink {
    file: File,
    error: Option<anyhow::Error>,
}

impl Sink {
    /// Adds a row; false when something is wrong and nothing more should be run.
    fn add(&mut self, row: &Row, report: anyhow::Result<Report>) -> bool {
        let written = report
            .with_context(|| serde_json::Value::from(row.settings.clone()).to_string())
            .and_then(|report| row.line(&report))
            .and_then(|line| Ok(self.file.write_all(line.as_bytes())?));
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
        self.error.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_lines_of_one_sweep_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let rows = rows("s.toml", "[grid]\n\"host.depth\" = [1, 2]\n").unwrap();
        let (first, _) = open(&path, &rows).unwrap();
        let error = open(&path, &rows).map(drop).unwrap_err().to_string();
        assert_eq!(error, format!("{}: another sweep is writing to it", path.display()));
        drop(first);
        open(&path, &rows).unwrap();
    }
}
