//! `kvdrive compare`: every combination of the given choices, side by side.

use clap::Args;
use kvdrive_config::Document;
use kvdrive_device::engines::looks_at;
use kvdrive_results::ResultCache;
use kvdrive_run::Progress;
use kvdrive_run::many::{run_sessions, sessions};
use kvdrive_run::report::{Report, compare_in as comparison, record};
use kvdrive_text::output::check_apart;

use crate::cache::Remember;
use crate::output;
use crate::progress::Bars;
use crate::settings::Settings;

/// Options of `compare`: those of `run`, with lists. A drive that is preconditioned (loaded and overwritten, as by `--scale`) is so once:
/// the workloads follow each other on it.
#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    remember: Remember,
    /// Writes the reports as a JSON array to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Writes the reports as flat records, a JSON array that a data frame takes as it is; instead of the table
    /// if to standard output (-)
    #[arg(long, value_name = "FILE|-")]
    records: Option<String>,
}

impl Compare {
    /// Runs all and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let documents = self.settings.options()?.documents()?;
        let files = [&self.json, &self.records].map(Option::as_ref);
        let to_output = files.iter().flatten().filter(|path| **path == "-").count();
        anyhow::ensure!(to_output < 2, "--records: --json goes to standard output; give one of them a file");
        let [json, records] = files.map(output::json_file);
        check_apart(&[("--json", json), ("--records", records)])?;
        files.into_iter().try_for_each(output::check_json)?;
        let reports = run_with_bars(&documents, &self.remember.cache())?;
        if to_output == 0 {
            output::print(&comparison(&reports, output::columns()));
        }
        if let Some(path) = &self.records {
            output::write_json(path, &reports.iter().map(record).collect::<Vec<_>>())?;
        }
        match &self.json {
            Some(path) => output::write_json(path, &reports),
            None => Ok(()),
        }
    }
}

/// What help says of lists.
pub const HELP_OF_LISTS: &str = "Every option takes a list, as --transfer prp,piggyback, and so does --set: --set \
     flash.channels=4,8. Every combination is run; runs that differ in nothing but the seed are one row, with mean and \
     spread.";

/// Runs `documents` on all cores with a bar for each drive, but for those that are remembered.
pub fn run_with_bars(documents: &[Document], cache: &ResultCache) -> anyhow::Result<Vec<Report>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let ahead = cache.ahead(documents, &sessions(documents)?)?;
    eprintln!("{}", ahead.in_words(threads));
    let mut labels = vec![String::new(); documents.len()];
    for session in &ahead.sessions {
        labels[session[0]] = label(&documents[session[0]], session.len())?;
    }
    let bars = Bars::new(&labels);
    let run = |runs: &[Document], progress: Progress<'_>| cache.run_session(runs, progress);
    let update = |index: usize, done: u64, total: u64| bars.update(index, done, total);
    let reports = run_sessions(documents, &ahead.sessions, threads, &run, &update);
    Remember::end(cache);
    reports
}

fn label(document: &Document, runs: usize) -> anyhow::Result<String> {
    let config = document.config()?;
    let (engine, workload) = (&config.engine.name, &config.workload.name);
    Ok(match (engine.as_str(), runs) {
        _ if config.has_store_on_host() => format!("{workload} {} on host", config.host.store),
        (engine, 1) if looks_at(engine, "packing") => {
            format!("{workload} {} {}", config.host.transfer.method, config.packing.policy)
        }
        (_, 1) => format!("{engine} {workload}"),
        _ => {
            let dram = document.dram_point().unwrap_or(config.hash.dram_accounting.name());
            format!("{engine} {dram} {runs} workloads")
        }
    })
}
