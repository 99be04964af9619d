//! Commands about figures and claims: the options that they share, and their runs.

use std::sync::atomic::Ordering;

use clap::Args;
use kvdrive_config::Scale;
use kvdrive_experiments::runs::{Extent, Options, Results, StudyPlan};
use kvdrive_run::report::Report;

use crate::cache::Remember;
use crate::output;
use crate::runs::{conduct, jobs};
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
    pub fn check(&self, plan: &StudyPlan) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.scale.is_none() || !plan.scales().is_empty(),
            "--scale: none of these runs can be shrunk"
        );
        plan.check()
    }

    /// Has all runs of `plan` done; ends the program if it is interrupted.
    pub fn run(&self, plan: StudyPlan) -> anyhow::Result<Results> {
        let (results, interrupted) = self.run_so_far(plan)?;
        match interrupted {
            None => Ok(results),
            Some(interrupted) => interrupted.end(""),
        }
    }

    /// Has all runs of `plan` done, or those that have ended before an interrupt.
    pub fn run_so_far(&self, plan: StudyPlan) -> anyhow::Result<(Results, Option<Interrupted>)> {
        self.check(&plan)?;
        let (cache, stop) = (self.remember.cache(), stop_on_interrupt()?);
        let results = plan.run(|plan| {
            let reports =
                conduct(plan, &cache, jobs(self.jobs), &stop, |order, how| cache.reports(plan, order, how))?;
            // A verdict or a curve is of whole runs.
            let whole = |report: Option<Report>| report.filter(|report| !report.is_stopped);
            let reports: Vec<_> = reports.into_iter().map(whole).collect();
            let is_stopped = stop.load(Ordering::Relaxed);
            assert!(is_stopped || reports.iter().all(Option::is_some), "every run has ended");
            Ok(reports)
        })?;
        let is_remembered = cache.path().is_some();
        let interrupted = stop.load(Ordering::Relaxed).then_some(Interrupted { is_remembered });
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
