//! `kvdrive compare`: every combination of the given choices, side by side.

use clap::Args;
use kvdrive_lab::config::{Config, Document};
use kvdrive_lab::many::{run_sessions, sessions};
use kvdrive_lab::report::{Report, compare as comparison};

use crate::output;
use crate::progress::Bars;
use crate::settings::Settings;

/// Options of `compare`: those of `run`, of which distribution, workload, dram, engine, side, store, media,
/// packing and transfer take lists. A drive that is preconditioned (loaded and overwritten, as by `--scale`) is so once:
/// the workloads follow each other on it.
#[derive(Args)]
pub struct Compare {
    #[command(flatten)]
    settings: Settings,
    /// Writes the reports as a JSON array to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

impl Compare {
    /// Runs all and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let documents = self.documents()?;
        output::check_json(self.json.as_ref())?;
        let reports = run_with_bars(&documents)?;
        if self.json.as_deref() != Some("-") {
            output::print(&comparison(&reports));
        }
        match &self.json {
            Some(path) => output::write_json(path, &reports),
            None => Ok(()),
        }
    }

    fn documents(&self) -> anyhow::Result<Vec<Document>> {
        let mut all = vec![self.settings.clone()];
        for field in LISTS {
            all = all.iter().flat_map(|settings| expand(settings, *field)).collect();
        }
        // The path is that of the one medium of several that has a file.
        if all.iter().any(|settings| settings.media.as_deref() == Some("file")) {
            for settings in all.iter_mut().filter(|settings| settings.media.as_deref() != Some("file")) {
                let is_of_file =
                    |set: &String| set.starts_with("media.path") || set.starts_with("media.sync");
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
        self.settings.check_looked_at(documents.iter().map(|(config, _)| config))?;
        Ok(documents.into_iter().map(|(_, document)| document).collect())
    }
}

type Field = fn(&mut Settings) -> &mut Option<String>;

/// Options that take a list, the slowest changing first.
const LISTS: &[Field] = &[
    |s| &mut s.distribution,
    |s| &mut s.workload,
    |s| &mut s.dram,
    |s| &mut s.engine,
    |s| &mut s.side,
    |s| &mut s.store,
    |s| &mut s.media,
    |s| &mut s.packing,
    |s| &mut s.transfer,
];

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
        ("lsm", 1) => format!("{workload} {} {}", config.host.transfer, config.packing.policy),
        (_, 1) => format!("{engine} {workload}"),
        _ => {
            let dram = document.dram_point().unwrap_or(&config.hash.dram_accounting);
            format!("{engine} {dram} {runs} workloads")
        }
    })
}
