//! `kvdrive compare`: every combination of the given choices, side by side.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use clap::Args;
use kvdrive_results::ResultCache;
use kvdrive_run::plan::Plan;
use kvdrive_run::report::{Report, compare_in as comparison, has_set, record};
use kvdrive_run::{HistogramLog, cumulative};
use kvdrive_text::output::{check_apart, check_writable};
use serde_json::Value;

use crate::cache::Remember;
use crate::output;
use crate::runs::{conduct, jobs};
use crate::settings::{Settings, tell_capacity};
use crate::watch::{STOPPED, stop_on_interrupt};

/// Options of `compare`: those of `run`, with lists. A drive that is loaded and overwritten before its runs (as by
/// `--scale`) is prepared once, and the workloads follow each other on it.
#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    remember: Remember,
    /// Writes the reports as a JSON array to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Writes the reports as flat records, a JSON array for data frames, to a file, or to standard output (-) instead
    /// of the table
    #[arg(long, value_name = "FILE|-")]
    records: Option<String>,
    /// Writes the latencies of every run as a log in the format of HdrHistogram, whose tags are `RUN.OPERATION`; every run
    /// is computed
    #[arg(long, value_name = "FILE")]
    histogram: Option<PathBuf>,
    /// Writes the cumulative distribution of latencies of every run as CSV: run, settings, operation, latency in ns,
    /// share; every run is computed
    #[arg(long, value_name = "FILE")]
    cdf: Option<PathBuf>,
}

impl Compare {
    /// Runs all and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let documents = self.settings.options()?.documents()?;
        let files = [&self.json, &self.records].map(Option::as_ref);
        let to_output = files.iter().flatten().filter(|path| **path == "-").count();
        anyhow::ensure!(
            to_output < 2,
            "--records and --json both go to standard output; give one of them a file"
        );
        let [json, records] = files.map(output::json_file);
        let (histogram, cdf) = (self.histogram.as_deref(), self.cdf.as_deref());
        check_apart(&[("--json", json), ("--records", records), ("--histogram", histogram), ("--cdf", cdf)])?;
        files.into_iter().try_for_each(output::check_json)?;
        [histogram, cdf].into_iter().flatten().try_for_each(check_writable)?;
        tell_capacity(&documents);
        let (plan, stop) = (Plan::sharing(documents)?, stop_on_interrupt()?);
        let ran = match histogram.or(cdf) {
            None => Ran::of(&plan, &self.remember.cache(), &stop)?,
            Some(_) => self.run_with_latencies(&plan, &stop)?,
        };
        let reports = &ran.reports;
        if to_output == 0 {
            output::print(&comparison(reports, output::columns()));
        }
        if let Some(path) = &self.records {
            output::write_json(path, &reports.iter().map(record).collect::<Vec<_>>())?;
        }
        if let Some(path) = &self.json {
            output::write_json(path, reports)?;
        }
        ran.end();
        Ok(())
    }

    /// Computes every run, since reports that are remembered have no histograms, and writes the latencies.
    fn run_with_latencies(&self, plan: &Plan, stop: &Arc<AtomicBool>) -> anyhow::Result<Ran> {
        let (cache, seen) = (ResultCache::none(), Mutex::new(BTreeMap::new()));
        conduct(plan, &cache, jobs(None), stop, |order, how| {
            cache.carry_out(plan, order, how, &|run, ran| {
                let mut ran = ran?;
                let latencies = std::mem::take(&mut ran.latencies);
                seen.lock().expect("nothing panics under it").insert(run, (ran.whole()?, latencies));
                Ok(())
            })
        })?;
        let seen = seen.into_inner().expect("no run panicked");
        let (reports, latencies): (Vec<_>, Vec<_>) = seen.into_values().unzip();
        let asked = plan.documents().len();
        let ran = Ran { reports, asked, is_stopped: stop.load(Ordering::Relaxed) };
        let of_run = |report: &Report| own_settings(report, &ran.reports);
        let settings: Vec<String> = ran.reports.iter().map(of_run).collect();
        if let Some(path) = &self.cdf {
            let runs = settings.iter().map(String::as_str).zip(&latencies);
            output::write(path, &cumulative::csv(runs))?;
        }
        if let Some(path) = &self.histogram {
            let numbered = (1..).zip(&settings).map(|(number, settings)| format!("run {number}: {settings}"));
            let head = std::iter::once(format!("kvdrive {}", kvdrive_revision::REVISION)).chain(numbered);
            let head = head.collect::<Vec<_>>().join("\n");
            let mut log = HistogramLog::new(BufWriter::new(File::create(path)?), &head)?;
            for (number, (report, latencies)) in (1..).zip(ran.reports.iter().zip(&latencies)) {
                let tagged =
                    latencies.iter().map(|(kind, histogram)| (format!("{number}.{kind}"), histogram));
                log.interval(0, report.time.virtual_ns, tagged)?;
            }
        }
        Ok(ran)
    }
}

/// The settings in which a run differs from another one: its profile, its seed and those that the user set.
fn own_settings(report: &Report, all: &[Report]) -> String {
    let is_asked = |key: &str| all.iter().any(|report| has_set(report, key));
    let settings = |report: &Report| {
        let of_config = |key: &String| match key.strip_prefix("config.") {
            Some(key) => key == "run.seed" || is_asked(key),
            None => key == "profile",
        };
        record(report).into_iter().filter(|(key, _)| of_config(key)).collect::<BTreeMap<_, _>>()
    };
    let others: Vec<_> = all.iter().map(settings).collect();
    let differs = |key: &String, value: &Value| others.iter().any(|other| other.get(key) != Some(value));
    let own = settings(report).into_iter().filter(|(key, value)| differs(key, value));
    let shown = own.map(|(key, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={text}", key.strip_prefix("config.").unwrap_or(&key))
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The results of runs.
pub struct Ran {
    /// Reports of the finished runs, in the order of the runs.
    pub reports: Vec<Report>,
    /// Number of requested runs.
    asked: usize,
    is_stopped: bool,
}

impl Ran {
    /// Runs `plan` on all cores, except what is remembered, until `stop` is set.
    pub fn of(plan: &Plan, cache: &ResultCache, stop: &Arc<AtomicBool>) -> anyhow::Result<Ran> {
        let reports = conduct(plan, cache, jobs(None), stop, |order, how| cache.reports(plan, order, how))?;
        let (asked, is_stopped) = (reports.len(), stop.load(Ordering::Relaxed));
        Ok(Ran { reports: reports.into_iter().flatten().collect(), asked, is_stopped })
    }

    /// Ends the program, after the reports so far were printed, if it was interrupted.
    pub fn end(self) {
        if self.is_stopped {
            let (done, asked) = (self.reports.len(), self.asked);
            output::tell(&format!(
                "kvdrive: stopped; {done} of {asked} runs have a report, the others had not begun"
            ));
            std::process::exit(STOPPED);
        }
    }
}

/// The help text about lists.
pub const HELP_OF_LISTS: &str = "Every option takes a list, as --transfer prp,piggyback, and so does --set: --set \
     flash.channels=4,8. Every combination is run; runs that differ in nothing but the seed are one row, with mean and \
     spread.";
