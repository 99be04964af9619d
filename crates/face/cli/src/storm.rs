//! `kvdrive storm`: random drives, loads, faults and power cuts, until a limit or an interrupt.

use std::sync::atomic::Ordering;

use clap::Args;
use kvdrive_probe::storm::{Case, Failure, shrunk};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_text::{grouped, number_of};

use crate::output;
use crate::settings::{at_least_one, seed};
use crate::verdict::verdict;
use crate::watch::{STOPPED, stop_on_interrupt};

/// Largest number of runs by which a failing case is shrunk.
const SHRINKING_RUNS: u32 = 40;

/// Options of `storm`.
#[derive(Args)]
pub struct Storm {
    /// Seed of the first case; each further case has the next seed, with 0 after the greatest
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed)]
    seed: u64,
    /// Number of cases
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    cases: Option<u64>,
    /// Starts no further case after this number of minutes, or a time with its unit, as 90s or 1h
    #[arg(long = "minutes", value_name = "N|TIME", default_value = "5", value_parser = minutes, conflicts_with = "cases")]
    limit_s: u64,
    /// Prints each case as a command of `kvdrive crash`, with the file of its fault rules
    #[arg(long)]
    verbose: bool,
}

/// Units of `--minutes`, in seconds; a bare number is of minutes.
const TIMES: [(&str, u64); 4] = [("", 60), ("s", 1), ("min", 60), ("h", 3600)];

/// Reads the duration, in seconds.
fn minutes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (number, given) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = TIMES.iter().find(|(unit, _)| *unit == given.trim_start()).and_then(|(_, seconds)| {
        let number = number.parse::<u64>().ok().filter(|number| *number > 0)?;
        number.checked_mul(*seconds)
    });
    seconds.ok_or_else(|| {
        "allowed: a whole number of minutes from 1 on, or a time, as 90s, 10min or 1h".to_owned()
    })
}

impl Storm {
    /// Runs cases until the time is over or one fails.
    pub fn run(&self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let stop = stop_on_interrupt()?;
        let limit_s = self.limit_s as f64;
        let (mut cases, mut cuts, mut keys) = (0, 0, 0);
        let goes_on = |cases: u64| self.cases.map_or(watch.seconds() < limit_s, |most| cases < most);
        // A panic is an answer here; its backtrace would hide it.
        std::panic::set_hook(Box::new(|_| {}));
        let mut failed = None;
        while goes_on(cases) && failed.is_none() && !stop.load(Ordering::Relaxed) {
            let case = Case::of_seed(self.seed.wrapping_add(cases));
            if self.verbose {
                output::print(&format!("{}: {}", case.seed, description_of(&case)));
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
                output::tell(&format!(
                    "{}, {}, {} checked",
                    number_of(cases, "case"),
                    number_of(cuts, "power cut"),
                    number_of(keys, "key")
                ));
            }
        }
        output::print(&format!(
            "cases: {} from seed {} on; power cuts: {}; keys compared in recovered drives: {} (counted); {:.0} s (measured)",
            grouped(cases),
            self.seed,
            grouped(cuts),
            grouped(keys),
            watch.seconds()
        ));
        let Some(failure) = failed else {
            if stop.load(Ordering::Relaxed) {
                output::tell("kvdrive: stopped; these are the cases so far");
                std::process::exit(STOPPED);
            }
            return Ok(());
        };
        let seed = failure.case.seed;
        let Failure { case, what } = shrunk(failure, SHRINKING_RUNS);
        Err(verdict(format!(
            "{what}\nagain: kvdrive storm --seed {seed} --cases 1\nshrunk: {}",
            description_of(&case)
        )))
    }
}

/// The command that repeats a case, and the file of fault rules that the command reads.
fn description_of(case: &Case) -> String {
    let faults =
        if case.faults.is_empty() { String::new() } else { format!("\nfaults.toml:\n{}", case.faults) };
    command_of(case) + faults.trim_end()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_is_too_large_is_told_the_largest() {
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["18446744073709551616", "-1", "x", ""] {
            assert!(seed(wrong).unwrap_err().contains("18446744073709551615"), "{wrong}");
        }
    }

    #[test]
    fn a_time_is_of_minutes_unless_it_has_a_unit() {
        assert_eq!(["5", "90s", "10min", "1h"].map(minutes), [Ok(300), Ok(90), Ok(600), Ok(3600)]);
        for wrong in ["0", "0h", "-1", "1d", "", "h", "18446744073709551615"] {
            assert!(minutes(wrong).unwrap_err().starts_with("allowed: "), "{wrong}");
        }
    }
}
