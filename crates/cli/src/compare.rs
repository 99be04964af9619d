//! `kvdrive compare`: every combination of the given choices, side by side.

use clap::Args;
use kvdrive_lab::config::Document;
use kvdrive_lab::many::run_many;
use kvdrive_lab::report::{Report, compare as comparison};

use crate::output;
use crate::progress::Bars;
use crate::settings::Settings;

/// Options of `compare`: those of `run`, of which workload, transfer, packing, engine and media take lists.
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
        all.iter().map(Settings::document).collect()
    }
}

type Field = fn(&mut Settings) -> &mut Option<String>;

/// Options that take a list, the slowest changing first.
const LISTS: &[Field] =
    &[|s| &mut s.workload, |s| &mut s.engine, |s| &mut s.media, |s| &mut s.packing, |s| &mut s.transfer];

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

/// Runs `documents` on all cores with a bar each.
pub fn run_with_bars(documents: &[Document]) -> anyhow::Result<Vec<Report>> {
    let labels = documents
        .iter()
        .map(|document| {
            let config = document.config()?;
            Ok(format!("{} {} {}", config.workload.name, config.host.transfer, config.packing.policy))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let bars = Bars::new(&labels);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_many(documents, threads, &|index, done, total| bars.update(index, done, total))
}
