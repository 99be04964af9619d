//! Many runs behind one command: the options they share, and one bar for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kvdrive_lab::config::Document;
use kvdrive_lab::experiments::runs::{Options, Plan, Results};
use kvdrive_lab::many::run_many;

/// Options of commands that do many runs.
#[derive(Args)]
pub struct Batch {
    /// Published counts of operations instead of the usual ones; takes many times as long
    #[arg(long)]
    full: bool,
    /// Any key of the configuration, for every run; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Batch {
    /// As the laboratory has them.
    pub fn options(&self) -> Options {
        Options { full: self.full, set: self.set.clone() }
    }

    /// Has all runs of `plan` done.
    pub fn run(&self, plan: Plan) -> anyhow::Result<Results> {
        let threads = threads(self.threads);
        plan.run(|documents| {
            let bar = TotalBar::new(documents)?;
            let reports = run_many(documents, threads, &|index, done, _| bar.update(index, done));
            bar.finish();
            reports
        })
    }
}

/// Threads to use: as asked, or one for each core.
pub fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// One bar on standard error over the operations of all runs; none when it is not a terminal.
pub struct TotalBar {
    bar: ProgressBar,
    done: Vec<AtomicU64>,
}

impl TotalBar {
    /// A bar for these runs.
    pub fn new(documents: &[Document]) -> anyhow::Result<TotalBar> {
        let mut total = 0;
        for document in documents {
            total += document.config()?.workload.ops;
        }
        let template =
            format!("{} runs {{bar:40}} {{percent:>3}}% {{per_sec:>14}} {{eta:>4}} left", documents.len());
        let style = ProgressStyle::with_template(&template).expect("the template is valid");
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8))
            .with_style(style);
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
