//! `kvdrive compare`: every combination of the given choices, side by side.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use clap::Args;
use kvdrive_config::Document;
use kvdrive_device::engines::looks_at;
use kvdrive_results::ResultCache;
use kvdrive_run::many::{RunSession, check, run_sessions_until, sessions};
use kvdrive_run::report::{Report, compare_in as comparison, has_set, record};
use kvdrive_run::{HistogramLog, Progress, Watch, cumulative, run_session_watched};
use kvdrive_text::number_of;
use kvdrive_text::output::{check_apart, check_writable};
use serde_json::Value;

use crate::cache::Remember;
use crate::output;
use crate::progress::Bars;
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
        let stop = stop_on_interrupt()?;
        let ran = match histogram.or(cdf) {
            None => run_with_bars(&documents, &self.remember.cache(), &stop)?,
            Some(_) => self.run_with_latencies(&documents, &stop)?,
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
    fn run_with_latencies(&self, documents: &[Document], stop: &Arc<AtomicBool>) -> anyhow::Result<Ran> {
        let seen = Mutex::new(BTreeMap::new());
        let run = |runs: &[Document], progress: Progress<'_>| {
            let watch = Watch { stop: stop.clone(), ..Watch::progress(progress) };
            let ended = run_session_watched(runs, &watch)?;
            let mut seen = seen.lock().expect("nothing panics under it");
            let reports = runs.iter().zip(ended).map(|(document, mut ran)| {
                seen.insert(document.to_string(), std::mem::take(&mut ran.latencies));
                ran.whole()
            });
            reports.collect()
        };
        let ran = run_all(documents, &ResultCache::none(), stop, &run)?;
        let seen = seen.into_inner().expect("no run panicked");
        let latencies: Vec<_> =
            documents.iter().filter_map(|document| seen.get(&document.to_string())).collect();
        let of_run = |report: &Report| own_settings(report, &ran.reports);
        let settings: Vec<String> = ran.reports.iter().map(of_run).collect();
        if let Some(path) = &self.cdf {
            let runs = settings.iter().map(String::as_str).zip(latencies.iter().copied());
            output::write(path, &cumulative::csv(runs))?;
        }
        if let Some(path) = &self.histogram {
            let numbered = (1..).zip(&settings).map(|(number, settings)| format!("run {number}: {settings}"));
            let head = std::iter::once(format!("kvdrive {}", kvdrive_revision::REVISION)).chain(numbered);
            let head = head.collect::<Vec<_>>().join("\n");
            let mut log = HistogramLog::new(BufWriter::new(File::create(path)?), &head)?;
            for (number, (report, latencies)) in (1..).zip(ran.reports.iter().zip(latencies)) {
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

/// Runs `documents` on all cores with a bar for each drive, except those that are remembered, until `stop` is set.
pub fn run_with_bars(
    documents: &[Document],
    cache: &ResultCache,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Ran> {
    let run = |runs: &[Document], progress: Progress<'_>| {
        cache.run_session_watched(runs, &Watch { stop: stop.clone(), ..Watch::progress(progress) })
    };
    run_all(documents, cache, stop, &run)
}

fn run_all(
    documents: &[Document],
    cache: &ResultCache,
    stop: &AtomicBool,
    run: RunSession<'_>,
) -> anyhow::Result<Ran> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    check(documents)?;
    let ahead = cache.ahead(documents, &sessions(documents)?)?;
    output::tell(&ahead.in_words(threads));
    let mut labels = vec![String::new(); documents.len()];
    for session in &ahead.sessions {
        labels[session[0]] = label(&documents[session[0]], session.len())?;
    }
    let bars = Bars::new(&labels);
    let update = |index: usize, done: u64, total: u64| bars.update(index, done, total);
    let reports = run_sessions_until(documents, &ahead.sessions, threads, run, &update, stop);
    Remember::end(cache);
    let reports = reports?.into_iter().flatten().collect();
    Ok(Ran { reports, asked: documents.len(), is_stopped: stop.load(Ordering::Relaxed) })
}

fn label(document: &Document, runs: usize) -> anyhow::Result<String> {
    let config = document.config()?;
    let (engine, workload) = (&config.engine.name, &config.workload.name);
    Ok(match (engine.as_str(), runs) {
        _ if config.has_store_on_host() => format!("{workload} {} on host", config.host.store),
        (engine, 1) if looks_at(engine, "packing") => {
            format!("{workload} {} {}", config.host.transfer.method, config.engines.lsm.packing.policy)
        }
        (_, 1) => format!("{engine} {workload}"),
        _ => {
            let dram = document.dram_point().unwrap_or(config.engines.hash.dram_accounting.name());
            format!("{engine} {dram} {}", number_of(runs as u64, "workload"))
        }
    })
}
