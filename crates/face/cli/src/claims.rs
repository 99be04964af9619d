//! `kvdrive claims`: every published claim, its value, ours, and the verdict.

use std::sync::LazyLock;

use clap::Args;
use kvdrive_claims::{self as claims, Outcome, Planned, Suite, mutants};
use kvdrive_config::Scale;
use kvdrive_experiments as experiments;
use kvdrive_experiments::runs::StudyPlan;

use crate::batch::Batch;
use crate::output;
use crate::settings::Known;
use crate::verdict::judge;
use kvdrive_text::number_of;

/// Options of `claims`.
#[derive(Args)]
pub struct Claims {
    /// Suite of claims: bandslim, plus, plus2 (ours beside plus), pink, anykey, saker, kvcache or pm983; without it, all suites
    /// are listed
    #[arg(value_parser = Known(suites), hide_possible_values = true)]
    suite: Option<String>,
    /// Only claims whose id (in the table) begins with this; may be repeated
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Runs the claims with wrong implementations (all, or those whose ids begin with these), and says which claims
    /// notice each
    #[arg(long, value_name = "ID", num_args = 0..)]
    mutants: Option<Vec<String>>,
    #[command(flatten)]
    batch: Batch,
    /// Writes the outcomes as JSON to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

/// Names of all suites.
fn suites() -> Vec<&'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| claims::suite_names().unwrap_or_default());
    NAMES.iter().map(String::as_str).collect()
}

/// Prints every suite with the number of its claims and what they are of.
fn list() -> anyhow::Result<()> {
    let names = suites();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    for name in names {
        let suite = claims::suite(name)?;
        let titles = suite.titles.join("; ");
        let claims = number_of(suite.claims.len() as u64, "claim");
        output::print(&format!("{name:width$}  {claims}: {titles}\n"));
    }
    Ok(())
}

impl Claims {
    /// Runs and prints; an error when a claim regressed.
    pub fn run(&self) -> anyhow::Result<()> {
        let Some(name) = &self.suite else { return list() };
        let mut suite = claims::suite(name)?;
        if !self.only.is_empty() {
            for name in &self.only {
                let ids: Vec<&str> = suite.claims.iter().map(|claim| claim.id.as_str()).collect();
                anyhow::ensure!(
                    ids.iter().any(|id| id.starts_with(name.as_str())),
                    "--only: no claim of {} has an id that begins with {name:?}; there are {}",
                    suite.name,
                    ids.join(", ")
                );
            }
            suite.claims.retain(|claim| self.only.iter().any(|name| claim.id.starts_with(name.as_str())));
        }
        output::check_json(self.json.as_ref())?;
        if let Some(ids) = &self.mutants {
            return self.run_mutants(&suite, ids);
        }
        let mut plan = StudyPlan::new(self.batch.options());
        let planned = plan_all(suite, &mut plan, &self.batch)?;
        let scales = plan.scales().to_vec();
        let (results, interrupted) = self.batch.run_so_far(plan)?;
        let ended = planned.iter().filter(|claim| claim.has_ended(&results));
        let outcomes = ended.map(|claim| claim.judge(&results)).collect::<anyhow::Result<Vec<_>>>()?;
        // Of a call that was stopped before any claim's runs had ended, "none regressed" would say too much.
        let is_nothing = outcomes.is_empty() && interrupted.is_some();
        if self.json.as_deref() != Some("-") && !is_nothing {
            // Without a terminal a claim stays one line, for programs that read lines.
            let room = output::terminal_columns().unwrap_or(usize::MAX);
            output::print(&claims::text(&outcomes, in_colour(), room));
            if !scales.is_empty() {
                output::print(&format!(
                    "scale {}: drive, pairs, operations and DRAM; --scale 1 is the published size\n",
                    listed(&scales)
                ));
            }
            if self.batch.options().is_altered() {
                output::print(
                    "a scale or settings of your own: verdicts are not compared with those of the usual settings\n",
                );
            }
        }
        if let Some(path) = &self.json {
            output::write_json(path, &outcomes)?;
        }
        if let Some(interrupted) = interrupted {
            let (judged, all) = (outcomes.len(), planned.len());
            interrupted.end(&format!("{judged} of {all} claims are judged, whose runs have ended; "));
        }
        check(&outcomes)
    }

    /// Runs and prints; an error when a mutant is noticed by no published claim.
    fn run_mutants(&self, suite: &Suite, ids: &[String]) -> anyhow::Result<()> {
        let mut mutants = mutants::mutants(&suite.name)?;
        if !ids.is_empty() {
            let begins = |id: &str| ids.iter().any(|name| id.starts_with(name.as_str()));
            mutants.list.retain(|mutant| begins(&mutant.id));
            anyhow::ensure!(
                !mutants.list.is_empty(),
                "--mutants: no mutant has an id that begins with {}",
                ids.join(" or ")
            );
        }
        let (options, mut plan) = (self.batch.options(), StudyPlan::new(self.batch.options()));
        let trials = mutants::plan(suite, mutants, &experiments::figures()?, &mut plan, &options)?;
        let results = self.batch.run(plan)?;
        let noticed = trials.iter().map(|trial| trial.judge(&results)).collect::<anyhow::Result<Vec<_>>>()?;
        if self.json.as_deref() != Some("-") {
            output::print(&mutants::text(&noticed));
        }
        if let Some(path) = &self.json {
            output::write_json(path, &noticed)?;
        }
        let not: Vec<&str> =
            noticed.iter().filter(|one| !one.by_published()).map(|one| one.mutant.as_str()).collect();
        judge(not.is_empty(), || format!("noticed by no published claim: {}", not.join(", ")))
    }
}

/// Whether standard output is a terminal that shows colours, and colours are not switched off.
fn in_colour() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Scales in words.
pub fn listed(scales: &[Scale]) -> String {
    scales.iter().map(Scale::to_string).collect::<Vec<_>>().join(" and ")
}

/// Asks `plan` for the runs of every claim of a suite.
pub fn plan_all(suite: Suite, plan: &mut StudyPlan, batch: &Batch) -> anyhow::Result<Vec<Planned>> {
    let figures = experiments::figures()?;
    let options = batch.options();
    claims::plan_suite(suite.claims, &figures, plan, &options)
}

/// An error when a claim regressed.
pub fn check(outcomes: &[Outcome]) -> anyhow::Result<()> {
    let regressed: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.regressed.is_some())
        .map(|outcome| outcome.id.as_str())
        .collect();
    judge(regressed.is_empty(), || format!("regressed: {}", regressed.join(", ")))
}
