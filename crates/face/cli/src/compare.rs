//! `kvdrive compare`: every combination of the given choices, side by side.

use clap::Args;
use kvdrive_config::{Config, Document};
use kvdrive_device::engines::looks_at;
use kvdrive_run::many::{run_sessions, sessions};
use kvdrive_run::report::{Report, compare_in as comparison, record};
use kvdrive_text::output::check_apart;

use crate::output;
use crate::progress::Bars;
use crate::settings::{HOST, Settings};

/// Options of `compare`: those of `run`, of which [`LISTS`] take lists. A drive that is preconditioned (loaded and overwritten, as by `--scale`) is so once:
/// the workloads follow each other on it.
#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    settings: Settings,
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
        let documents = documents(&self.settings)?;
        let files = [&self.json, &self.records].map(Option::as_ref);
        let to_output = files.iter().flatten().filter(|path| **path == "-").count();
        anyhow::ensure!(to_output < 2, "--records: --json goes to standard output; give one of them a file");
        let [json, records] = files.map(output::json_file);
        check_apart(&[("--json", json), ("--records", records)])?;
        files.into_iter().try_for_each(output::check_json)?;
        let reports = run_with_bars(&documents)?;
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

/// Every combination of what `settings` has lists of.
pub fn documents(settings: &Settings) -> anyhow::Result<Vec<Document>> {
    let mut all = vec![settings.clone()];
    for (_, field) in LISTS {
        all = all.iter().flat_map(|settings| expand(settings, *field)).collect();
    }
    leave_out_saker(&mut all);
    // The path is that of the one medium of several that has a file.
    if all.iter().any(|settings| settings.media.as_deref() == Some("file")) {
        for settings in all.iter_mut().filter(|settings| settings.media.as_deref() != Some("file")) {
            let is_of_file = |set: &String| set.starts_with("media.path") || set.starts_with("media.sync");
            settings.set.retain(|set| !is_of_file(set));
            settings.set.extend(["media.path=".to_owned(), "media.sync=false".to_owned()]);
        }
    }
    let mut documents: Vec<(Config, Document)> = Vec::with_capacity(all.len());
    for settings in &all {
        let document = settings.document_of_one_run()?;
        let config = document.config()?;
        // A workload with a distribution of its own is the same whatever distributions are asked for.
        if documents.iter().all(|(known, _)| *known != config) {
            documents.push((config, document));
        }
    }
    settings.check_looked_at(documents.iter().map(|(config, _)| config))?;
    Ok(documents.into_iter().map(|(_, document)| document).collect())
}

/// Of several runs some may have no SAKER: those whose store is on the host, and those where it is off. Its options
/// are for the others, but for the cache, which a store on the host may have, too.
fn leave_out_saker(all: &mut [Settings]) {
    let is_on_host = |settings: &Settings| settings.side.as_deref() == Some(HOST);
    let has_it = |settings: &Settings| !is_on_host(settings) && settings.saker.as_deref() == Some("on");
    if !all.iter().any(has_it) {
        return;
    }
    for settings in all.iter_mut().filter(|settings| !has_it(settings)) {
        (settings.saker, settings.batch) = (None, None);
        settings.cache = settings.cache.take().filter(|_| settings.read_cache_on_host().is_some());
    }
}

type Field = fn(&mut Settings) -> &mut Option<String>;

/// Options that take a list, the slowest changing first.
const LISTS: &[(&str, Field)] = &[
    ("--distribution", |s| &mut s.distribution),
    ("--workload", |s| &mut s.workload),
    ("--dram", |s| &mut s.dram),
    ("--engine", |s| &mut s.engine),
    ("--side", |s| &mut s.side),
    ("--store", |s| &mut s.store),
    ("--saker", |s| &mut s.saker),
    ("--batch", |s| &mut s.batch),
    ("--cache", |s| &mut s.cache),
    ("--media", |s| &mut s.media),
    ("--packing", |s| &mut s.packing),
    ("--transfer", |s| &mut s.transfer),
    ("--value-size", |s| &mut s.value_size),
    ("--seed", |s| &mut s.seed),
];

/// What help says of lists.
pub fn help_of_lists() -> String {
    let options: Vec<_> = LISTS.iter().map(|(option, _)| *option).collect();
    format!(
        "These options take lists, as --transfer prp,piggyback: {}. Every combination is run; runs that differ in \
         nothing but the seed are one row, with mean and spread.",
        options.join(", ")
    )
}

fn expand(settings: &Settings, field: Field) -> Vec<Settings> {
    let mut settings = settings.clone();
    let Some(list) = field(&mut settings).take() else { return vec![settings] };
    list.split(',')
        .map(|item| {
            let mut one = settings.clone();
            *field(&mut one) = Some(item.trim().to_owned());
            one
        })
        .collect()
}

/// Runs `documents` on all cores with a bar for each drive.
pub fn run_with_bars(documents: &[Document]) -> anyhow::Result<Vec<Report>> {
    let sessions = sessions(documents)?;
    let mut labels = vec![String::new(); documents.len()];
    for session in &sessions {
        labels[session[0]] = label(&documents[session[0]], session.len())?;
    }
    let bars = Bars::new(&labels);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_sessions(documents, &sessions, threads, &|index, done, total| bars.update(index, done, total))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A store on the host has no SAKER, and one that is off no batches: such runs are there once.
    #[test]
    fn options_of_saker_are_for_the_runs_that_have_it() {
        let lists = Settings {
            profile: Some("saker-mid".into()),
            side: Some("host,disk".into()),
            store: Some("hashlog".into()),
            saker: Some("on,off".into()),
            batch: Some("4,64".into()),
            workload: Some("fillrandom".into()),
            value_size: Some("16,256".into()),
            ..Settings::default()
        };
        let runs = documents(&lists).unwrap();
        let asked = |document: &Document| {
            let config = document.config().unwrap();
            let batch = config.saker.enabled.then_some(config.saker.batch);
            (config.has_store_on_host(), batch, config.workload.value_size)
        };
        let sizes = |host, batch| [16, 256].map(move |bytes| (host, batch, bytes));
        let expected = [sizes(true, None), sizes(false, Some(4)), sizes(false, None), sizes(false, Some(64))];
        let mut seen: Vec<_> = runs.iter().map(asked).collect();
        let mut expected = expected.concat();
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected);
        // A store on the host may have a cache, of as many bytes.
        let lists_with_cache = Settings {
            store: Some("hashlog,lsmtree".into()),
            saker: Some("on".into()),
            batch: None,
            cache: Some("1MiB,2MiB".into()),
            value_size: None,
            ..lists.clone()
        };
        let caches = |document: &Document| {
            let config = document.config().unwrap();
            let store = if config.has_store_on_host() { config.host.store } else { config.engine.name };
            (store, config.lsmtree.row_cache_bytes >> 20, config.saker.cache_bytes >> 20)
        };
        let mut seen: Vec<_> = documents(&lists_with_cache).unwrap().iter().map(caches).collect();
        seen.sort_unstable();
        let of = |store: &str, rows, saker| (store.to_owned(), rows, saker);
        let hashlog = [of("hashlog", 0, 0), of("hashlog", 0, 1), of("hashlog", 0, 2)];
        let lsmtree = [of("lsmtree", 0, 1), of("lsmtree", 0, 2), of("lsmtree", 1, 0), of("lsmtree", 2, 0)];
        assert_eq!(seen, [&hashlog[..], &lsmtree[..]].concat());
        // On the host alone it is refused, and where it is off alone, too.
        let host = Settings { side: Some("host".into()), saker: Some("on".into()), ..lists.clone() };
        assert!(documents(&host).unwrap_err().to_string().starts_with("saker.enabled: true; lies in front"));
        let off = Settings { side: Some("disk".into()), saker: Some("off".into()), ..lists };
        assert!(documents(&off).unwrap_err().to_string().starts_with("--batch: saker.enabled=false "));
    }
}
