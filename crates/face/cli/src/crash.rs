//! `kvdrive crash`: cuts the power at events of a run, and checks every pair in the recovered drives. With
//! `--saker on`, synced writes must be there, and pending ones may be. With `--mutants` the survivors are changed as by
//! mistakes of recovery, and each change must be found.

use std::cell::Cell;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use kvdrive_config::{Config, Document, RunOptions};
use kvdrive_device::engines::ENGINES;
use kvdrive_flash::power::machine_file;
use kvdrive_probe::crash::mutants::MUTANTS;
use kvdrive_probe::crash::{Cuts, Trial, Verdict};
use kvdrive_probe::storm::SMALL;
use kvdrive_run::Watch;
use kvdrive_run::plan::in_model_time;
use kvdrive_text::scaled::{self, time};
use kvdrive_text::{grouped, number_of};

use crate::output;
use crate::progress::LoggedBar;
use crate::settings::{Settings, at_least_one, crash_rules, tell_capacity};
use crate::verdict::judge;
use crate::watch::{STOPPED, stop_on_interrupt};

/// Operations, and pairs to begin with, unless the command says otherwise: every cut looks at every pair.
const DEFAULT_OPS: u64 = 2000;
const DEFAULT_NUM: u64 = 1000;
/// Number of power cuts, unless the command has another one.
const DEFAULT_CUTS: u64 = 100;
/// Bytes of operations of a store between two synchronisations: with the store's own default, 2000 operations have
/// none.
const DEFAULT_OPERATIONS_BYTES: u64 = 65_536;

/// Options that say which drive is meant, or whose pairs need more room than a small one has.
const SAY_WHICH_DRIVE: &[&str] = &["profile", "num", "value-size"];

#[derive(Clone, Copy)]
enum Wanted {
    All,
    Some(u64),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        match text {
            "all" => Ok(Wanted::All),
            text => at_least_one(text).map(Wanted::Some).map_err(|allowed| format!("{allowed}, or all")),
        }
    }
}

/// Options of `crash`.
#[derive(Args)]
pub struct Crash {
    #[command(flatten)]
    settings: Settings,
    /// Number of events at which power is cut, drawn by the seed, or `all` [default: 100; with a `power-cut` rule:
    /// where it fires]
    #[arg(long, value_name = "N|all")]
    cuts: Option<Wanted>,
    /// Cuts after this event only; --cuts is ignored
    #[arg(long, value_name = "EVENT", value_parser = at_least_one)]
    at: Option<u64>,
    /// TOML file of rules by which the drive fails (`kvdrive list faults`)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Largest number of lives of a drive: after a cut, one drive in five continues, and each of its lives except the
    /// last ends with a cut
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    lives: u32,
    /// Makes the mistakes that a recovery could make, one after the other, and says which of them are found; without
    /// --engine on every engine. Exit status 1 if one is not found
    #[arg(long, conflicts_with_all = ["at", "faults"])]
    mutants: bool,
}

impl Crash {
    /// Runs it and prints the verdict; an error if a pair is lost.
    pub fn run(&self) -> anyhow::Result<()> {
        let options = self.settings.options()?;
        options.refuse_load("crash")?;
        if self.mutants {
            return self.run_mutants(&options);
        }
        let document = document(&options)?;
        let (rules, has_cuts) = crash_rules(self.faults.as_ref(), &document)?;
        let cuts = match self.at {
            Some(event) => Cuts::At(event),
            None if has_cuts && self.cuts.is_none() => Cuts::Rules,
            None => self.cuts(),
        };
        let config = document.config()?;
        let trial = Trial { beside: true, lives: self.lives, ..Trial::new(&rules, cuts) };
        let (bar, done) = (LoggedBar::new("crash", config.workload.ops), Cell::new(0));
        let progress = |now: u64, _: u64| bar.advance(now - done.replace(now));
        let watch = Watch { stop: stop_on_interrupt()?, ..Watch::progress(&progress) };
        // A cut is the kill of a process, and the files are thrown away: nobody waits for the machine's storage.
        let _unsynced = machine_file::unsynced();
        let verdict = trial.run_watched(&document, &watch);
        bar.finish();
        let verdict = verdict?;
        output::print(&format!("{}{}", drive(&config), text(&verdict)));
        match &verdict.lost {
            None => {
                end_if_stopped(&watch);
                Ok(())
            }
            Some(lost) => judge(false, || {
                format!(
                    "power cut after event {}: {}\nagain: {} --at {}",
                    lost.event,
                    lost.what,
                    command_line(),
                    lost.event
                )
            }),
        }
    }

    fn cuts(&self) -> Cuts {
        match self.cuts {
            Some(Wanted::All) => Cuts::All,
            Some(Wanted::Some(count)) => Cuts::Random(count),
            None => Cuts::Random(DEFAULT_CUTS),
        }
    }

    fn run_mutants(&self, options: &RunOptions) -> anyhow::Result<()> {
        let engines: Vec<&str> = match options.get("engine") {
            Some(engine) => vec![engine],
            None => ENGINES.iter().map(|row| row.name).collect(),
        };
        let watch = Watch { stop: stop_on_interrupt()?, ..Watch::progress(&|_, _| {}) };
        let mut missed = 0;
        for engine in engines {
            let document = document(&options.clone().with("engine", engine))?;
            for mutant in MUTANTS {
                let trial =
                    Trial { beside: true, lives: 1, mutant: Some(mutant), ..Trial::new(&[], self.cuts()) };
                let verdict = trial.run_watched(&document, &watch)?;
                end_if_stopped(&watch);
                let found = match &verdict.lost {
                    Some(lost) => format!("found at cut {}: {}", verdict.cuts, lost.what),
                    None if verdict.spoilt == 0 => {
                        format!("nothing to change at {}", number_of(verdict.cuts, "cut"))
                    }
                    None => {
                        missed += 1;
                        format!(
                            "NOT FOUND, though it changed the survivors of {} of {}",
                            verdict.spoilt,
                            number_of(verdict.cuts, "cut")
                        )
                    }
                };
                output::print(&format!("{engine:<10} {:<20} {found}", mutant.name));
            }
        }
        let rows = MUTANTS.iter().map(|row| format!("{:<20} {}", row.name, row.stands_for));
        output::print(&format!("\n{}", rows.collect::<Vec<_>>().join("\n")));
        judge(missed == 0, || format!("{} of recovery not found", number_of(missed, "mistake")))
    }
}

/// Ends the program if Ctrl-C has ended the run.
fn end_if_stopped(watch: &Watch<'_>) {
    if watch.is_stopped() {
        output::tell("kvdrive: stopped; these are the findings so far");
        std::process::exit(STOPPED);
    }
}

/// The drive and the workload, with defaults by which a cut checks much in little time.
fn document(options: &RunOptions) -> anyhow::Result<Document> {
    let mut options = options.clone();
    options.make_images();
    let mut document = options.document_of_pairs("crash")?;
    options.check_for_run(&document)?;
    tell_capacity([&document]);
    for (option, key, default) in [("ops", "workload.ops", DEFAULT_OPS), ("num", "workload.num", DEFAULT_NUM)]
    {
        if options.get(option).is_none() && options.leaves(key) {
            document.set(&format!("{key}={default}"))?;
        }
    }
    let config = document.config()?;
    let is_store = kvdrive_store::STORES.iter().any(|row| row.name == config.engine.name);
    if is_store && options.leaves("store.operations_bytes") {
        document.set(&format!("store.operations_bytes={DEFAULT_OPERATIONS_BYTES}"))?;
    }
    in_model_time(&config)?;
    // A trace determines the number of its pairs, so its drive keeps its size.
    let says_which =
        config.workload.ends() || SAY_WHICH_DRIVE.iter().any(|option| options.get(option).is_some());
    if !says_which {
        return Ok(shrink(&options, document));
    }
    config.check_room()?;
    Ok(document)
}

/// Makes the drive of `document` so small that a short run programs, merges, collects and synchronises. On a drive of the
/// usual size most cuts would meet an idle engine, and a recovery looks at every block.
fn shrink(options: &RunOptions, mut document: Document) -> Document {
    for set in SMALL.iter().chain(&["flash.blocks_per_die=64"]) {
        let key = set.split_once('=').map_or(*set, |(key, _)| key);
        let mut small = document.clone();
        // Settings that this engine does not have are left out.
        if options.leaves(key) && small.set(set).is_ok() && small.config().is_ok() {
            document = small;
        }
    }
    document
}

/// The size of the drive that was cut.
fn drive(config: &Config) -> String {
    let geometry = config.flash.geometry();
    let (bytes, blocks) = (geometry.data_bytes(), geometry.blocks());
    let engine = &config.engine.name;
    let blocks = number_of(blocks.into(), "block");
    format!("{engine} on {} of flash in {blocks}\n", scaled::bytes(bytes as f64))
}

fn text(verdict: &Verdict) -> String {
    let Verdict { operations, events, cuts, cut_recoveries, keys_checked, unreadable, recoveries, .. } =
        verdict;
    let mean_ns = verdict.recovery_ns as f64 / (*recoveries).max(1) as f64;
    let fate = match (&verdict.lost, cuts) {
        (Some(_), _) => "LOST: a recovered drive does not have the acknowledged pairs",
        (None, 0) => "power was not cut",
        (None, _) => "nothing is lost: every acknowledged pair was there, and nothing else",
    };
    format!(
        "{}, {} (counted)\n\
         power cuts: {} during the run, {} during a recovery, {} of a recovered drive at work (counted)\n\
         {} compared in recovered drives; {} of them answered 88h for an injected fault (counted)\n\
         {}: {} each on average, {} at most (modelled)\n{fate}\n",
        number_of(*operations, "operation"),
        number_of(*events, "event"),
        grouped(*cuts),
        grouped(*cut_recoveries),
        grouped(verdict.further_cuts),
        number_of(*keys_checked, "key"),
        grouped(*unreadable),
        number_of(*recoveries, "complete recovery"),
        time(mean_ns),
        time(verdict.longest_recovery_ns as f64),
    )
}

/// The command as it was given, without an `--at` of its own.
fn command_line() -> String {
    let mut words = vec!["kvdrive".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        if word == "--at" {
            arguments.next();
        } else if !word.starts_with("--at=") {
            let is_plain =
                !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:,%".contains(c));
            words.push(if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) });
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_every_recovery_and_no_more_than_the_longest() {
        let verdict = Verdict {
            cuts: 2,
            further_cuts: 1,
            recoveries: 3,
            recovery_ns: 180_000_000,
            longest_recovery_ns: 62_347_280,
            ..Verdict::default()
        };
        let text = text(&verdict);
        assert!(
            text.contains("power cuts: 2 during the run, 0 during a recovery, 1 of a recovered drive"),
            "{text}"
        );
        assert!(text.contains("3 complete recoveries: 60.00 ms each on average, 62.35 ms at most"), "{text}");
    }
}
