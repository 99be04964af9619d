//! Commands of many runs: the options they share, and one bar for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget};
use kvdrive_config::{Document, Scale};
use kvdrive_experiments::runs::{Options, Plan, Results};
use kvdrive_run::many::run_sessions;
use kvdrive_run::operations;

use crate::progress::style;
use crate::settings::at_least_one;

/// Options of commands that do many runs.
#[derive(Args)]
pub struct Batch {
    /// Published counts of operations instead of the usual ones, and the full size; takes many times as long
    #[arg(long)]
    full: bool,
    /// Size of what can be shrunk (drive, pairs, operations and DRAM together): 1, or 1/64
    #[arg(long, value_name = "1/N")]
    scale: Option<Scale>,
    /// Seeds in place of the usual ones, as 1,2,3: every number is their mean, and says how far they are apart
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Any key of the configuration, for every run; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    jobs: Option<u64>,
}

impl Batch {
    /// As crate `run` has them.
    pub fn options(&self) -> Options {
        Options { full: self.full, scale: self.scale, set: self.set.clone(), seeds: self.seed.clone() }
    }

    /// Refuses, before anything is made or run, what this plan has no use for, and runs that cannot be had.
    pub fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.scale.is_none() || !plan.scales().is_empty(),
            "--scale: none of these runs can be shrunk"
        );
        plan.check()
    }

    /// Has all runs of `plan` done.
    pub fn run(&self, plan: Plan) -> anyhow::Result<Results> {
        let jobs = jobs(self.jobs);
        self.check(&plan)?;
        plan.run(|documents, sessions| {
            let bar = TotalBar::of_sessions(documents, sessions)?;
            let reports = run_sessions(documents, sessions, jobs, &|index, done, _| bar.update(index, done));
            bar.finish();
            reports
        })
    }
}

/// Runs at once: as asked, or one for each core.
pub fn jobs(asked: Option<u64>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, |asked| usize::try_from(asked).unwrap_or(usize::MAX))
}

/// One bar on standard error over the operations of all runs; none when it is not a terminal.
pub struct TotalBar {
    bar: ProgressBar,
    done: Vec<AtomicU64>,
}

impl TotalBar {
    /// A bar for these runs, each on a drive of its own.
    pub fn new(documents: &[Document]) -> anyhow::Result<TotalBar> {
        let sessions: Vec<_> = (0..documents.len()).map(|index| vec![index]).collect();
        TotalBar::of_sessions(documents, &sessions)
    }

    /// A bar for these runs, of which those of a session share a drive: it is loaded once.
    fn of_sessions(documents: &[Document], sessions: &[Vec<usize>]) -> anyhow::Result<TotalBar> {
        let mut total = 0;
        for session in sessions {
            total += operations(&documents[session[0]].config()?)?;
            for run in &session[1..] {
                total += documents[*run].config()?.workload.ops;
            }
        }
        let template =
            format!("{} runs {{bar:40}} {{percent:>3}}% {{rate:>14}} {{eta:>4}} left", documents.len());
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8))
            .with_style(style(&template));
        Ok(TotalBar { bar, done: documents.iter().map(|_| AtomicU64::new(0)).collect() })
    }

    /// Run `index` has done `done` operations.
    pub fn update(&self, index: usize, done: u64) {
        let before = self.done[index].swap(done, Ordering::Relaxed);
        self.bar.inc(done.saturating_sub(before));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
