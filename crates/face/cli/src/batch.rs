//! Commands of many runs: the options they share, and one bar for all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use kvdrive_config::{Document, Scale};
use kvdrive_experiments::runs::{Extent, Options, Plan, Results};
use kvdrive_results::RunOrder;
use kvdrive_run::many::run_sessions_until;
use kvdrive_run::report::Report;
use kvdrive_run::{Progress, Watch, operations_of_session};
use kvdrive_text::number_of;

use crate::cache::Remember;
use crate::output;
use crate::progress::LoggedBar;
use crate::settings::at_least_one;
use crate::watch::{STOPPED, stop_on_interrupt};

/// Options of commands that do many runs.
#[derive(Args)]
pub struct Batch {
    /// Runs with the published numbers of operations and at full size; takes many times as long
    #[arg(long)]
    full: bool,
    /// Runs few operations at a smaller size, for an answer in about a minute; the output names the claims that need
    /// more
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Scale of drive, pairs, operations and DRAM together: 1, or 1/64
    #[arg(long, value_name = "1/N")]
    scale: Option<Scale>,
    /// Seeds in place of the usual ones, as 1,2,3: each number is the mean over the seeds, with their spread
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    seed: Vec<u64>,
    /// Any key of the configuration, for every run; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Runs at once [default: one for each core]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    jobs: Option<u64>,
    #[command(flatten)]
    remember: Remember,
}

impl Batch {
    /// As crate `run` has them.
    pub fn options(&self) -> Options {
        let extent = match (self.quick, self.full) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Usual,
        };
        Options { extent, scale: self.scale, set: self.set.clone(), seeds: self.seed.clone() }
    }

    /// Refuses, before anything is made or run, options that this plan does not use, and runs that are impossible.
    pub fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.scale.is_none() || !plan.scales().is_empty(),
            "--scale: none of these runs can be shrunk"
        );
        plan.check()
    }

    /// Has all runs of `plan` done; ends the program if it is interrupted.
    pub fn run(&self, plan: Plan) -> anyhow::Result<Results> {
        let (results, interrupted) = self.run_so_far(plan)?;
        match interrupted {
            None => Ok(results),
            Some(interrupted) => interrupted.end(""),
        }
    }

    /// Has all runs of `plan` done, or those that have ended before an interrupt.
    pub fn run_so_far(&self, plan: Plan) -> anyhow::Result<(Results, Option<Interrupted>)> {
        let jobs = jobs(self.jobs);
        self.check(&plan)?;
        let cache = self.remember.cache();
        let mut interrupted = None;
        let results = plan.run_so_far(|documents, sessions| {
            let ahead = cache.ahead(documents, sessions)?;
            let stop = stop_on_interrupt()?;
            output::tell(&ahead.in_words(jobs));
            let bar = TotalBar::new(documents, &ahead)?;
            let run = |runs: &[Document], progress: Progress<'_>| {
                cache.run_session_watched(runs, &Watch { stop: stop.clone(), ..Watch::progress(progress) })
            };
            let update = |index, done, total| bar.update(index, done, total);
            let reports = run_sessions_until(documents, &ahead.sessions, jobs, &run, &update, &stop);
            bar.finish();
            Remember::end(&cache);
            let is_stopped = stop.load(Ordering::Relaxed);
            interrupted = is_stopped.then(|| Interrupted { is_remembered: cache.path().is_some() });
            // A verdict or a curve is of whole runs.
            let whole = |report: Option<Report>| report.filter(|report| !report.is_stopped);
            let reports: Vec<_> = reports?.into_iter().map(whole).collect();
            assert!(is_stopped || reports.iter().all(Option::is_some), "every run has ended");
            Ok(reports)
        })?;
        Ok((results, interrupted))
    }
}

/// Runs that Ctrl-C ended.
pub struct Interrupted {
    is_remembered: bool,
}

impl Interrupted {
    /// Ends the program with a line; in it, `what` says how much was printed before, and is empty if nothing was.
    pub fn end(self, what: &str) -> ! {
        let kept = match self.is_remembered {
            true => "results of ended runs are remembered, and the same command continues",
            false => "nothing is remembered (--no-cache)",
        };
        output::tell(&format!("kvdrive: stopped; {what}{kept}"));
        std::process::exit(STOPPED)
    }
}

/// Runs at once: as asked, or one for each core.
pub fn jobs(asked: Option<u64>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, |asked| usize::try_from(asked).unwrap_or(usize::MAX))
}

/// One bar over the operations of all runs.
pub struct TotalBar {
    bar: LoggedBar,
    /// For each session, by its first run: the expected number of operations, and the number counted so far.
    sessions: Vec<(u64, AtomicU64)>,
}

impl TotalBar {
    /// A bar for the runs that are ahead.
    pub fn new(documents: &[Document], ahead: &RunOrder) -> anyhow::Result<TotalBar> {
        let (mut total, mut runs) = (0, 0);
        let mut sessions: Vec<_> = documents.iter().map(|_| (0, AtomicU64::new(0))).collect();
        for session in ahead.to_run() {
            let of_session: Vec<Document> = session.iter().map(|run| documents[*run].clone()).collect();
            let expected = operations_of_session(&of_session)?;
            sessions[session[0]].0 = expected;
            total += expected;
            runs += session.len();
        }
        Ok(TotalBar { bar: LoggedBar::new(&number_of(runs as u64, "run"), total), sessions })
    }

    /// The session that begins with run `index` has done `done` of `total` operations.
    pub fn update(&self, index: usize, done: u64, total: u64) {
        let (expected, counted) = &self.sessions[index];
        let now = of_the_expected(*expected, done, total);
        let before = counted.swap(now, Ordering::Relaxed);
        self.bar.advance(now.saturating_sub(before));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish();
    }
}

/// Number of the expected operations of a session that are done. A session that ends by its duration has more
/// operations in its configuration than it ever does, and reports at its end that all are done.
fn of_the_expected(expected: u64, done: u64, total: u64) -> u64 {
    if done >= total { expected } else { done.min(expected) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_session_counts_for_no_more_than_is_expected_of_it_and_for_all_of_it_at_its_end() {
        let of = |done| super::of_the_expected(1_000, done, 1_000_000_000);
        assert_eq!([0, 400, 5_000, 1_000_000_000].map(of), [0, 400, 1_000, 1_000]);
        assert_eq!(super::of_the_expected(1_000, 900, 900), 1_000);
    }
}
