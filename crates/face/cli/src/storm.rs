//! `kvdrive storm`: random drives, loads, faults and power cuts, until a limit or an interrupt.

use std::sync::atomic::Ordering;

use clap::Args;
use kvdrive_probe::storm::{Case, Failure, shrunk};
use kvdrive_sim::wall::Stopwatch;
use kvdrive_text::{grouped, number_of};
use serde::Serialize;

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
    /// Writes the counts and a failing case as JSON to a file, or to standard output (-) instead of the lines
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
}

/// What the cases came to.
#[derive(Default, Serialize)]
struct Outcome {
    seed: u64,
    cases: u64,
    power_cuts: u64,
    keys_compared: u64,
    wall_s: f64,
    is_stopped: bool,
    failed: Option<Failed>,
}

/// A failing case, and the smallest one found that fails alike.
#[derive(Serialize)]
struct Failed {
    seed: u64,
    told: String,
    again: String,
    shrunk: String,
    faults: String,
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
        output::check_json(self.json.as_ref())?;
        let watch = Stopwatch::start();
        let stop = stop_on_interrupt()?;
        let mut sum = Outcome { seed: self.seed, ..Outcome::default() };
        let failed = self.cases(&watch, &mut sum, &|| stop.load(Ordering::Relaxed));
        sum.wall_s = watch.seconds();
        sum.is_stopped = failed.is_none() && stop.load(Ordering::Relaxed);
        if !self.is_quiet() {
            output::print(&format!(
                "cases: {} from seed {} on; power cuts: {}; keys compared in recovered drives: {} (counted); {:.0} s (measured)",
                grouped(sum.cases),
                self.seed,
                grouped(sum.power_cuts),
                grouped(sum.keys_compared),
                sum.wall_s
            ));
        }
        sum.failed = failed.map(Failed::of);
        if let Some(path) = &self.json {
            output::write_json(path, &sum)?;
        }
        if let Some(Failed { told, again, shrunk, faults, .. }) = &sum.failed {
            let faults = with_faults(faults);
            return Err(verdict(format!("{told}\nagain: {again}\nshrunk: {shrunk}{faults}")));
        }
        if sum.is_stopped {
            output::tell("kvdrive: stopped; these are the cases so far");
            std::process::exit(STOPPED);
        }
        Ok(())
    }

    /// Does standard output have the JSON alone?
    fn is_quiet(&self) -> bool {
        self.json.as_deref() == Some("-")
    }

    /// Runs cases until the time is over, one fails or the user stops; returns the one that failed.
    fn cases(&self, watch: &Stopwatch, sum: &mut Outcome, is_stopped: &dyn Fn() -> bool) -> Option<Failure> {
        let limit_s = self.limit_s as f64;
        let goes_on = |cases: u64| self.cases.map_or(watch.seconds() < limit_s, |most| cases < most);
        // A panic is an answer here; its backtrace would hide it.
        std::panic::set_hook(Box::new(|_| {}));
        while goes_on(sum.cases) && !is_stopped() {
            let case = Case::of_seed(self.seed.wrapping_add(sum.cases));
            if self.verbose && !self.is_quiet() {
                let faults = with_faults(case.faults);
                output::print(&format!("{}: {}{faults}", case.seed, command_of(&case)));
            }
            sum.cases += 1;
            match case.run() {
                Ok(verdict) => {
                    sum.power_cuts += verdict.cuts + verdict.further_cuts + verdict.cut_recoveries;
                    sum.keys_compared += verdict.keys_checked;
                }
                Err(what) => return Some(Failure { case, what }),
            }
            if !self.verbose && sum.cases.is_multiple_of(25) {
                output::tell(&format!(
                    "{}, {}, {} checked",
                    number_of(sum.cases, "case"),
                    number_of(sum.power_cuts, "power cut"),
                    number_of(sum.keys_compared, "key")
                ));
            }
        }
        None
    }
}

impl Failed {
    /// Shrinks a case.
    fn of(failure: Failure) -> Failed {
        let seed = failure.case.seed;
        let Failure { case, what } = shrunk(failure, SHRINKING_RUNS);
        let again = format!("kvdrive storm --seed {seed} --cases 1");
        Failed { seed, told: what, again, shrunk: command_of(&case), faults: case.faults.to_owned() }
    }
}

/// The file of fault rules that the command of a case reads, if there are any.
fn with_faults(faults: &str) -> String {
    if faults.is_empty() { String::new() } else { format!("\nfaults.toml:\n{}", faults.trim_end()) }
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
