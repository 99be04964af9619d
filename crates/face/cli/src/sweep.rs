//! `kvdrive sweep`: every combination of some settings, one JSON object a line.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use anyhow::{Context, anyhow};
use clap::Args;
use kvdrive_experiments::sweep::{Row, Shard, SweepFile, merge, rows};
use kvdrive_run::FinishedRun;
use kvdrive_run::plan::Plan;
use kvdrive_text::input::read_text;
use kvdrive_text::number_of;
use kvdrive_text::output::{check_apart, check_is_file, shown};
use serde_json::Value;

use crate::cache::Remember;
use crate::output;
use crate::runs::{conduct, jobs};
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
        let plan = Plan::apart(left.iter().map(|row| row.document.clone()).collect());
        let (cache, stop) = (self.remember.cache(), stop_on_interrupt()?);
        // The file, and how many lines were added to it.
        let sink = Mutex::new((file, 0));
        conduct(&plan, &cache, jobs(self.jobs), &stop, |order, how| {
            cache.carry_out(&plan, order, how, &|run, ran| {
                let row = left[run];
                let report = ran.and_then(FinishedRun::whole);
                let report = report.with_context(|| Value::from(row.settings.clone()).to_string())?;
                // The row of a run that was stopped would not be computed again.
                if !report.is_stopped {
                    let line = row.line(&report)?;
                    let (file, written) = &mut *sink.lock().expect("nothing panics under it");
                    file.add(&line)?;
                    *written += 1;
                }
                Ok(())
            })
        })?;
        let (_, written) = sink.into_inner().expect("no run panicked");
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
