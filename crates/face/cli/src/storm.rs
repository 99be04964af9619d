//! `kvdrive storm`: random drives, loads, faults and power cuts, for as long as it is let run.

use clap::Args;
use kvdrive_probe::storm::{Case, Failure, shrunk};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_text::grouped;

use crate::output;
use crate::settings::count;

/// Runs that a failure is made smaller with.
const SHRINKING_RUNS: u32 = 40;

/// Options of `storm`.
#[derive(Args)]
pub struct Storm {
    /// The first case; each case has a seed of its own, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of cases
    #[arg(long, value_name = "N", value_parser = count)]
    cases: Option<u64>,
    /// Starts no further case after this number of minutes
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "cases")]
    minutes: u64,
    /// Prints each case
    #[arg(long)]
    verbose: bool,
}

impl Storm {
    /// Runs cases until the time is over or one fails.
    pub fn run(&self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let limit_s = (60 * self.minutes) as f64;
        let (mut cases, mut cuts, mut keys) = (0, 0, 0);
        let goes_on = |cases: u64| self.cases.map_or(watch.seconds() < limit_s, |most| cases < most);
        // A panic is an answer here; its backtrace would hide it.
        std::panic::set_hook(Box::new(|_| {}));
        let mut failed = None;
        while goes_on(cases) && failed.is_none() {
            let case = Case::of_seed(self.seed + cases);
            if self.verbose {
                output::print(&format!("{}: {}", case.seed, command_of(&case)));
            }
            cases += 1;
            match case.run() {
                Ok(verdict) => {
                    cuts += verdict.cuts + verdict.further_cuts + verdict.cut_recoveries;
                    keys += verdict.keys_checked;
                }
                Err(what) => failed = Some(Failure { case, what }),
            }
            if !self.verbose && cases.is_multiple_of(25) {
                eprintln!(
                    "{} cases, {} power cuts, {} keys checked",
                    grouped(cases),
                    grouped(cuts),
                    grouped(keys)
                );
            }
        }
        output::print(&format!(
            "{} cases from seed {} on, {} power cuts, {} keys looked at in recovered drives (counted), {:.0} s (measured)",
            grouped(cases),
            self.seed,
            grouped(cuts),
            grouped(keys),
            watch.seconds()
        ));
        let Some(failure) = failed else { return Ok(()) };
        let seed = failure.case.seed;
        let Failure { case, what } = shrunk(failure, SHRINKING_RUNS);
        let faults = if case.faults.is_empty() { "" } else { "\nfaults.toml:\n" };
        anyhow::bail!(
            "{what}\nagain: kvdrive storm --seed {seed} --cases 1\nshrunk: {}{faults}{}",
            command_of(&case),
            case.faults
        )
    }
}

/// The command that repeats a case, for a shell.
fn command_of(case: &Case) -> String {
    let is_plain = |set: &str| set.chars().all(|c| c.is_ascii_alphanumeric() || "=.,_-/:".contains(c));
    let word = |set: &String| if is_plain(set) { set.clone() } else { format!("'{set}'") };
    let sets: Vec<String> = case.sets.iter().map(|set| format!(" --set {}", word(set))).collect();
    let faults = if case.faults.is_empty() { "" } else { " --faults faults.toml" };
    format!(
        "kvdrive crash --profile cosmos-plus --engine {}{} --cuts {} --lives {}{faults}",
        case.engine,
        sets.concat(),
        case.cuts,
        case.lives
    )
}
