//! `kvdrive sweep`: every combination of some settings, one JSON object a line.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use clap::Args;
use kvdrive_config::Document;
use kvdrive_experiments::sweep::{Row, Shard, SweepFile, merge, rows};
use kvdrive_run::many::run_each;
use kvdrive_run::{Progress, Watch};
use kvdrive_text::input::read_text;
use kvdrive_text::number_of;
use kvdrive_text::output::{check_apart, check_is_file, shown};

use crate::batch::{TotalBar, jobs};
use crate::cache::Remember;
use crate::output;
use crate::settings::at_least_one;
use crate::watch::{STOPPED, stop_on_interrupt};

/// Options of `sweep`.
#[derive(Args)]
pub struct Sweep {
    /// TOML file: profile, set = ["KEY=VALUE", ...], and a table `grid` with "KEY" = [VALUE, ...]
    file: PathBuf,
    /// File of the lines; rows that it already contains are not run again [default: FILE with .jsonl]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs only part I of N of the rows, with a file of its own [default: FILE with .I-of-N.jsonl]
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Runs nothing: writes the lines of these files as one, in the order of the rows and without time.wall_s
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["shard", "jobs"])]
    merge: Vec<PathBuf>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    jobs: Option<u64>,
    #[command(flatten)]
    remember: Remember,
}

impl Sweep {
    /// Runs the rows that are not finished yet.
    pub fn run(&self) -> anyhow::Result<()> {
        let name = shown(&self.file);
        let mut rows = rows(&name, &read_text(&self.file)?)?;
        let usual = || self.shard.map_or(self.file.with_extension("jsonl"), |shard| shard.file(&self.file));
        let out = self.out.clone().unwrap_or_else(usual);
        check_is_file(&out)?;
        check_apart(&[("the sweep", Some(&self.file)), ("--out", Some(&out))])?;
        if !self.merge.is_empty() {
            return self.merge_into(&out, &rows);
        }
        if let Some(shard) = self.shard {
            rows = shard.of(rows);
        }
        let file = SweepFile::open(&out, &rows)?;
        file.remarks(kvdrive_revision::REVISION).iter().for_each(|remark| output::tell(remark));
        let finished = &file.finished().config_hashes;
        let left: Vec<&Row> = rows.iter().filter(|row| !finished.contains(&row.config_hash)).collect();
        output::tell(&format!(
            "{}: {} of {} done before, {} to run",
            out.display(),
            rows.len() - left.len(),
            number_of(rows.len() as u64, "row"),
            left.len()
        ));
        let documents: Vec<Document> = left.iter().map(|row| row.document.clone()).collect();
        let (cache, jobs) = (self.remember.cache(), jobs(self.jobs));
        let sessions: Vec<_> = (0..documents.len()).map(|index| vec![index]).collect();
        let ahead = cache.ahead(&documents, &sessions)?;
        let stop = stop_on_interrupt()?;
        if !documents.is_empty() {
            output::tell(&ahead.in_words(jobs));
        }
        let bar = TotalBar::new(&documents, &ahead)?;
        let sink = Mutex::new(Sink { file, written: 0, error: None });
        let run = |runs: &[Document], progress: Progress<'_>| {
            cache.run_session_watched(runs, &Watch { stop: stop.clone(), ..Watch::progress(progress) })
        };
        run_each(
            &documents,
            &ahead.sessions.concat(),
            jobs,
            &run,
            &|index, done, total| bar.update(index, done, total),
            &|index, report| {
                let mut sink = sink.lock().expect("a run that panics ends the program");
                // The row of a run that was stopped would not be computed again.
                if stop.load(Ordering::Relaxed) && report.as_ref().map_or(true, |report| report.is_stopped) {
                    return false;
                }
                let line = report
                    .with_context(|| serde_json::Value::from(left[index].settings.clone()).to_string())
                    .and_then(|report| left[index].line(&report));
                sink.add(line)
            },
        );
        Remember::end(&cache);
        bar.finish();
        let Sink { written, error, .. } = sink.into_inner().expect("no run panicked");
        error.map_or(Ok(()), Err)?;
        if stop.load(Ordering::Relaxed) {
            output::tell(&format!(
                "kvdrive: stopped; {} of {} done in {}, and the same command continues",
                rows.len() - left.len() + written,
                number_of(rows.len() as u64, "row"),
                out.display()
            ));
            std::process::exit(STOPPED);
        }
        Ok(())
    }

    /// Writes the lines of several files as one.
    fn merge_into(&self, out: &Path, rows: &[Row]) -> anyhow::Result<()> {
        let read = |path: &PathBuf| {
            check_apart(&[("--merge", Some(path)), ("--out", Some(out))])?;
            let content = std::fs::read(path).map_err(|error| anyhow!("{}: {error}", shown(path)))?;
            anyhow::Ok((shown(path), content))
        };
        let files = self.merge.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        output::write(out, &merge(&files, rows)?)
    }
}

/// The file of the lines, and the first error.
struct Sink {
    file: SweepFile,
    /// Lines added.
    written: usize,
    error: Option<anyhow::Error>,
}

impl Sink {
    /// Adds a line; false when something is wrong and nothing more should be run.
    fn add(&mut self, line: anyhow::Result<String>) -> bool {
        match line.and_then(|line| self.file.add(&line)) {
            Ok(()) => self.written += 1,
            Err(error) => _ = self.error.get_or_insert(error),
        }
        self.error.is_none()
    }
}
