//! `kvdrive report`: the experiments and claims of a suite, or of several, on one HTML page.

use std::path::PathBuf;

use clap::Args;
use kvdrive_claims as claims;
use kvdrive_experiments::runs::{Extent, Results, StudyPlan};
use kvdrive_experiments::{self as experiments, Figure};
use kvdrive_figures::{Planned, svg};
use kvdrive_page::{Content, page};
use kvdrive_text::grouped;
use kvdrive_text::output::shown;

use crate::batch::Batch;
use crate::claims::{check, listed, plan_all};
use crate::output::{self, write};

/// Options of `report`.
#[derive(Args)]
pub struct Report {
    /// Suites of claims on the page: bandslim and saker (some minutes), plus (most of an hour), plus2, pink, kvcache,
    /// pm983
    #[arg(default_value = "bandslim")]
    suites: Vec<String>,
    /// Folder for index.html, claims.json and one SVG file for each figure; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
    #[command(flatten)]
    batch: Batch,
}

impl Report {
    /// Runs everything and writes the page; an error, after that, when a claim regressed.
    pub fn run(&self) -> anyhow::Result<()> {
        let options = self.batch.options();
        let mut plan = StudyPlan::new(options.clone());
        let suites =
            self.suites.iter().map(|name| claims::suite(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let notes = suites.iter().flat_map(|suite| suite.notes.clone()).collect();
        let titles = suites.iter().flat_map(|suite| suite.titles.clone()).collect();
        let is_asked = |figure: &Figure| self.suites.iter().any(|name| name == figure.chapter.suite);
        let figures = experiments::figures()?.into_iter().filter(is_asked);
        let figures = figures.map(|figure| Planned::new(figure, &mut plan));
        let figures = figures.collect::<anyhow::Result<Vec<_>>>()?;
        let mut planned = Vec::new();
        for suite in suites {
            planned.extend(plan_all(suite, &mut plan, &self.batch)?);
        }
        let scales = plan.scales().to_vec();
        self.batch.check(&plan)?;
        // A folder that cannot be made should be known before minutes of runs.
        std::fs::create_dir_all(&self.out)
            .map_err(|error| anyhow::anyhow!("{}: {error}", shown(&self.out)))?;
        let (results, interrupted) = self.batch.run_so_far(plan)?;
        let ended = planned.iter().filter(|claim| claim.has_ended(&results));
        let outcomes = ended.map(|claim| claim.judge(&results)).collect::<anyhow::Result<Vec<_>>>()?;
        let so_far = interrupted.is_some().then(|| {
            let series = figures.iter().map(|figure| figure.ended(&results));
            let (ended, all) = series.fold((0, 0), |(ended, all), of| (ended + of.0, all + of.1));
            let (judged, claims) = (outcomes.len(), planned.len());
            format!("{judged} of {claims} claims are judged and {ended} of {all} series are drawn, whose runs have ended")
        });
        let mut drawn = Vec::new();
        for figure in &figures {
            let charts = figure.charts(&results)?;
            if charts.is_empty() {
                continue;
            }
            let title = format!("{}: {}", figure.figure().source, figure.figure().title);
            write(&self.out.join(format!("{}.svg", figure.figure().id)), &svg::file(&title, &charts))?;
            drawn.push((figure, charts));
        }
        let path = self.out.join("claims.json");
        output::write_json(&path.display().to_string(), &outcomes)?;
        let mut facts = facts(&results, &options.set, options.extent);
        if !scales.is_empty() {
            facts.push(("scales".to_owned(), listed(&scales)));
        }
        let revision = kvdrive_revision::REVISION;
        let content = Content { titles, notes, revision, facts, outcomes, figures: drawn, so_far };
        let path = self.out.join("index.html");
        write(&path, &page(&content))?;
        output::print(&format!("{}: {}\n", path.display(), claims::counts(&content.outcomes)));
        if let Some((interrupted, so_far)) = interrupted.zip(content.so_far) {
            interrupted.end(&format!("{so_far}; "));
        }
        check(&content.outcomes)
    }
}

/// How everything was run.
fn facts(results: &Results, set: &[String], extent: Extent) -> Vec<(String, String)> {
    let each = |of: &dyn Fn(&kvdrive_run::report::Report) -> String| {
        let mut all: Vec<String> = results.reports().map(of).collect();
        all.sort();
        all.dedup();
        all.join(", ")
    };
    let operations: u64 = results.reports().map(|report| report.ops.total()).sum();
    let counts = match extent {
        Extent::Quick => "few, at each panel (--quick)",
        Extent::Usual => "usual, at each panel",
        Extent::Full => "as published",
    };
    let mut facts = vec![
        (
            "program".to_owned(),
            format!("kvdrive {}, revision {}", env!("CARGO_PKG_VERSION"), kvdrive_revision::REVISION),
        ),
        (
            "source".to_owned(),
            match (kvdrive_revision::REVISION, kvdrive_revision::DIFFERS) {
                ("unknown", _) => "of no known revision".to_owned(),
                (_, "") => "as committed".to_owned(),
                (_, files) => format!("differs from the revision in {files}"),
            },
        ),
        (
            "runs".to_owned(),
            format!("{}, {} operations in all", results.reports().count(), grouped(operations)),
        ),
        ("counts".to_owned(), counts.to_owned()),
        (
            "profiles".to_owned(),
            each(&|report| format!("{} (times: {})", report.profile, report.time_sources)),
        ),
        ("seeds".to_owned(), each(&|report| report.seed.to_string())),
        ("clock".to_owned(), each(&|report| report.clock.clone())),
    ];
    if !set.is_empty() {
        facts.push(("settings over all runs".to_owned(), set.join(", ")));
    }
    facts
}
