//! `kvdrive run`: one workload on one drive, in this process or on a network.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kvdrive_config::{Document, RunOptions};
use kvdrive_host::reach::Remote;
use kvdrive_results::ResultCache;
use kvdrive_run::plan::Plan;
use kvdrive_run::report::{Connected, Report, Verified, compare_in as comparison};
use kvdrive_run::wall::connected::run_connected;
use kvdrive_run::wall::{WallOptions, run_wall_watched};
use kvdrive_run::{Progress, Watch, run_watched};
use kvdrive_sim::wall::Pace;
use kvdrive_text::grouped;
use kvdrive_text::output::check_apart;

use crate::compare::Ran;
use crate::connect::Connection;
use crate::output;
use crate::progress::Bar;
use crate::settings::{Settings, fault_rules, tell_capacity};
use crate::verdict::{judge, verdict_of};
use crate::watch::{STOPPED, WatchOptions, Watcher, stop_on_interrupt};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PaceName {
    Model,
    Jump,
    Off,
}

/// What short help has at its end.
pub const MORE: &str = "kvdrive run --help has all options and examples; kvdrive list has the names.";
/// What long help has at its end.
pub const EXAMPLES: &str = "\
Examples:
  kvdrive run --workload ycsb-b --num 100k --key-size 23 --value-size 1000 --profile nvmevirt-970pro
  kvdrive run --workload fillrandom --num 10k --value-size 64KiB --profile nvmevirt-970pro --depth 8
  kvdrive run --workload w-m --transfer adaptive --packing backfill --interval 1s --json report.json
  kvdrive run --workload trace:ops.csv --arrivals trace --verify
  kvdrive run --connect tcp://127.0.0.1:4420 --workload ycsb-c --num 100k --duration 10s

Names of workloads, profiles, methods and engines: kvdrive list. Keys of --set: kvdrive config.";

/// Options of `run`.
#[derive(Args)]
pub struct Run {
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    watch_options: WatchOptions,
    /// Wall clock: `model` paces the drive by its model times; with `jump` it runs as fast as the machine can, and
    /// model time passes from event to event; with `off` it is faster still, and model time stands still [default:
    /// model]
    #[arg(long, hide_short_help = true, help_heading = "Run", value_name = "model|jump|off")]
    pace: Option<PaceName>,
    /// Wall clock, unpaced, one application thread: gives the drive a thread of its own; otherwise it runs on that of
    /// the application
    #[arg(long, hide_short_help = true, help_heading = "Run")]
    own_thread: bool,
    /// Wall clock: records the run for `kvdrive replay`
    #[arg(long, hide_short_help = true, help_heading = "Run", value_name = "FILE")]
    record: Option<PathBuf>,
    /// TOML file of rules by which the drive fails (`kvdrive list faults`); in model time
    #[arg(long, help_heading = "Run", value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Writes the report as JSON to a file, or to standard output (-) instead of the tables
    #[arg(long, help_heading = "Output", value_name = "FILE|-")]
    json: Option<String>,
    /// Prints help (-h: the common options)
    // It is of a group, so that no group of its own stands before that of the workload.
    #[arg(short, long, action = clap::ArgAction::Help, help_heading = "Output")]
    #[allow(dead_code, reason = "clap acts on it")]
    help: Option<bool>,
}

impl Run {
    /// Runs it and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        let options = self.settings.options()?;
        if options.get("seed").is_some_and(|seeds| seeds.contains(',')) {
            return self.run_seeds(&options);
        }
        check_is_one(&options)?;
        let remotes = self.connection.remotes()?;
        let document = match &remotes[..] {
            [] => {
                let document = options.document_of_run()?;
                document.config()?.check_scans()?;
                document
            }
            _ => Connection::document(&options)?,
        };
        let mut files: Vec<_> =
            self.settings.config.iter().map(|path| ("--config", Some(path.as_path()))).collect();
        files.push(("--faults", self.faults.as_deref()));
        files.push(("--record", self.record.as_deref()));
        files.extend(self.watch_options.files());
        files.push(("--json", output::json_file(self.json.as_ref())));
        check_apart(&files)?;
        output::check_json(self.json.as_ref())?;
        let rules = fault_rules(self.faults.as_ref(), &document)?;
        tell_capacity([&document]);
        let bar = Bar::new("running");
        let progress = |done, total| bar.update(done, total);
        let set: Vec<_> =
            document.user_settings().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        let of = [document.profile_name(), &set.join(" ")].join(" ");
        let what = format!("kvdrive {}: {of}", kvdrive_revision::REVISION);
        let watcher = self.watch_options.begin(&what, self.json.as_deref())?;
        if !remotes.is_empty() {
            let only_verifies = options.get("verify-only").is_some();
            return self.run_connected(&document, &remotes, only_verifies, watcher, &progress);
        }
        let going = |going| bar.say(going);
        let watch = Watch { going: Some(&going), ..watcher.watch(&progress) };
        let ran = if document.config()?.run.clock == "wall" {
            anyhow::ensure!(self.faults.is_none(), "--faults: only in model time (--clock virtual)");
            let pace = match self.pace {
                None | Some(PaceName::Model) => Pace::Model,
                Some(PaceName::Jump) => Pace::Jump,
                Some(PaceName::Off) => Pace::Off,
            };
            let (record, own_thread) = (self.record.as_deref(), self.own_thread);
            run_wall_watched(&document, &WallOptions { pace, record, own_thread }, &watch)?
        } else {
            anyhow::ensure!(
                self.record.is_none(),
                "--record: only a wall-time run can be recorded (--clock wall)"
            );
            anyhow::ensure!(self.pace.is_none(), "--pace: only a wall-time run has one (--clock wall)");
            anyhow::ensure!(!self.own_thread, "--own-thread: only in wall time (--clock wall)");
            run_watched(&document, &rules, &watch)?
        };
        watcher.end(&ran)?;
        let report = ran.report;
        if self.json.as_deref() != Some("-") {
            output::print(&report.in_columns(output::columns()));
        }
        if let Some(path) = &self.json {
            output::write_json(path, &report)?;
        }
        output::tell_unmatched(&report.faults);
        verdict_of(ran.failure)?;
        conclude(&report, document.config()?.workload.verify == "only", !rules.is_empty())
    }

    /// The same against drives on a network.
    fn run_connected(
        &self,
        document: &Document,
        remotes: &[Remote],
        only_verifies: bool,
        watcher: Watcher,
        progress: Progress<'_>,
    ) -> anyhow::Result<()> {
        let given = [
            ("--faults", self.faults.is_some()),
            ("--record", self.record.is_some()),
            ("--pace", self.pace.is_some()),
            ("--own-thread", self.own_thread),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            anyhow::bail!("{option}: not for the drive of --connect; kvdrive serve and ctl have it");
        }
        let ran = run_connected(document, remotes, only_verifies, &watcher.watch(progress));
        let (targets, ran) = ran.map_err(Connection::explained)?;
        watcher.end(&ran)?;
        let failure = ran.failure;
        let connected = Connected { targets, report: ran.report };
        if self.json.as_deref() != Some("-") {
            output::print(&connected.in_columns(output::columns()));
        }
        if let Some(path) = &self.json {
            output::write_json(path, &connected)?;
        }
        verdict_of(failure)?;
        conclude(&connected.report, only_verifies, false)
    }

    /// The same run with several seeds: mean and spread, and every report as JSON.
    fn run_seeds(&self, options: &RunOptions) -> anyhow::Result<()> {
        let given = [
            ("--connect", self.connection.is_asked_for()),
            ("--faults", self.faults.is_some()),
            ("--record", self.record.is_some()),
            ("--pace", self.pace.is_some()),
            ("--own-thread", self.own_thread),
            ("--interval, --histogram and --cdf", self.watch_options.is_asked_for()),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            anyhow::bail!("--seed: {option} belong to one run; give one seed");
        }
        check_is_one(&options.clone().without("seed"))?;
        let documents = options.documents()?;
        output::check_json(self.json.as_ref())?;
        tell_capacity(&documents);
        let stop = stop_on_interrupt()?;
        let ran = Ran::of(&Plan::sharing(documents)?, &ResultCache::none(), &stop)?;
        if self.json.as_deref() != Some("-") {
            output::print(&comparison(&ran.reports, output::columns()));
        }
        if let Some(path) = &self.json {
            output::write_json(path, &ran.reports)?;
        }
        ran.end();
        Ok(())
    }
}

/// Refuses a list: it is of several runs.
fn check_is_one(options: &RunOptions) -> anyhow::Result<()> {
    match options.first_list() {
        Some(given) => anyhow::bail!(
            "{given}: run takes one value of each option, and a list only of seeds; kvdrive compare takes lists"
        ),
        None => Ok(()),
    }
}

/// Ends a run after its report is printed: an error if values were wrong or operations failed. `may_fail`: rules may
/// make operations fail.
fn conclude(report: &Report, only_verifies: bool, may_fail: bool) -> anyhow::Result<()> {
    if report.is_stopped {
        output::tell("kvdrive: stopped; this is the report so far");
        std::process::exit(STOPPED);
    }
    // A read that a fault rule failed has no value that could be wrong.
    let holds = |verified: &Verified| verified.wrong == 0 && verified.missing == 0;
    let is_whole = report.verified.as_ref().is_none_or(|it| it.is_whole() || may_fail && holds(it));
    let asked = if only_verifies {
        "--verify-only: not all pairs are as they were stored; the options must be those of the run that stored them, \
         with --ops and --seed"
    } else {
        "--verify: not all values were returned as they were stored"
    };
    judge(is_whole, || asked.to_owned())?;
    let (failed, all) = (report.ops.errors, report.ops.answered());
    let first = report.notes.iter().find(|note| note.starts_with("first of ")).map_or("", String::as_str);
    judge(may_fail || failed == 0, || {
        format!("{} of {} operations failed; {first}", grouped(failed), grouped(all))
    })
}
