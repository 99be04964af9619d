//! The `kvdrive` command.
//!
//! Every subcommand is a file; [`settings`] has the options that all commands which run a drive share. Nothing is
//! modelled here: this crate reads the command line, shows progress and prints.

mod as_host;
mod batch;
mod bench;
mod cache;
mod calibrate;
mod check;
mod claims;
mod compare;
mod conform;
mod connect;
mod crash;
mod ctl;
mod documents;
mod explain;
mod figure;
mod list;
#[cfg(target_os = "linux")]
mod ng;
#[cfg(not(target_os = "linux"))]
#[path = "ng_elsewhere.rs"]
mod ng;
mod nqn;
mod output;
mod progress;
mod replay;
mod report;
mod run;
mod runs;
mod secret;
mod serve;
mod settings;
#[cfg(feature = "shell")]
mod shell;
mod storm;
mod sweep;
#[cfg(feature = "top")]
mod top;
mod tour;
mod tune;
mod verdict;
mod watch;

use std::sync::LazyLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kvdrive_config::{OptionRow, describes_work, option_rows};

/// A run keeps many small allocations for a long time and accesses them at random. With the allocator of the C library
/// a run of a hash engine took a fifth longer; this allocator uses huge pages for its heap where the system allows it.
#[cfg(not(target_os = "macos"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Version of the program, and revision of its source.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), kvdrive_revision::REVISION));

/// A key-value SSD in software.
///
/// Without a command: the tour, one million stores of workload W(M) through each transfer method and each
/// packing policy.
#[derive(Parser)]
#[command(name = "kvdrive", version = VERSION.as_str(), max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    tour: tour::Tour,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one workload on one drive and prints the report.
    #[command(after_help = run::MORE, after_long_help = run::EXAMPLES, disable_help_flag = true)]
    Run(run::Run),
    /// Runs every combination of the given methods, policies and workloads and prints them side by side.
    #[command(after_help = compare::HELP_OF_LISTS)]
    Compare(compare::Compare),
    /// Cuts the power at events of a run and checks the recovered pairs; exit status 1 if a pair is lost.
    ///
    /// Defaults are 2000 operations on 1000 pairs; --ops, --num, a --config file, --set and --scale change them.
    Crash(crash::Crash),
    /// Tests random drives under random loads, with flash errors and power cuts, for minutes or for nights. If a pair
    /// is lost, prints the command that repeats the case; exit status 1.
    Storm(storm::Storm),
    /// Reads an image from end to end and reports whole, damaged and lost pairs; exit status 1 if not all is whole.
    ///
    /// The files are not changed, so they may be on a read-only file system. With --repair the drive is powered on as
    /// usual, which completes the work that was unfinished when the last run ended, and the files change.
    Check(check::Check),
    /// Prints every pair of an image as a line of JSON; exit status 1 if not all is whole.
    Dump(check::Dump),
    /// Checks a namespace against the clauses of the NVMe key-value command set, a line each; exit status 1 if one fails.
    #[command(after_help = conform::HELP)]
    Conform(conform::Conform),
    /// Shows every step of one command: time, room, bytes, purpose.
    Explain(explain::Explain),
    /// Checks published claims by runs of this program; exit status 1 if one regressed.
    Claims(claims::Claims),
    /// Runs the experiment of a published figure and draws every panel.
    Figure(figure::Figure),
    /// Runs every combination of some settings on all cores; writes JSON lines, and continues after an interruption.
    Sweep(sweep::Sweep),
    /// Runs all experiments and claims and writes one HTML page that needs no network.
    Report(report::Report),
    /// Prints the place and size of remembered results; removes them, or sets the limit.
    ///
    /// claims, figure, report, compare and sweep compute a run once: the same program gives the same report for the same
    /// configuration and seed. An entry is a text file that describes its content.
    Cache(cache::Cache),
    /// Serves a drive to hosts over NVMe/TCP, and to virtual machines by vfio-user.
    Serve(serve::Serve),
    /// Runs a program that passes commands through NVMe device nodes, as /dev/ng0n1, on a served drive or on one in its
    /// own process, without root and without a kernel driver.
    ///
    /// kvdrive ng --node /dev/ng0n1=tcp://127.0.0.1:4420 -- nvme id-ctrl /dev/ng0n1
    Ng(ng::Ng),
    /// Shows the state of a served drive, injects faults into it, cuts its power.
    Ctl(ctl::Ctl),
    /// Shows a served drive in the terminal while it runs.
    #[cfg(feature = "top")]
    Top(top::Top),
    /// Repeats a recorded wall-time run in virtual time: same counters, same model times.
    Replay(replay::Replay),
    /// Measures this program on this machine: stores a second, instructions, memory.
    Bench(bench::Bench),
    /// Measures the times of the steps of SAKER and of stores on this machine, which the model then charges.
    Calibrate(calibrate::Calibrate),
    /// Makes a secret or a PSK, with which hosts and a served drive authenticate each other.
    Secret(secret::MakeSecret),
    /// Finds the thresholds of the adaptive transfer method by exploratory runs.
    Tune(tune::Tune),
    /// Lists profiles, workloads, transfers, packings, engines, DRAM points, media, timings, faults, formats of traces.
    List(list::List),
    /// Prints a whole configuration as TOML, every number with its source.
    Config(PrintConfig),
    /// Prints a script that lets a shell complete commands and options.
    #[cfg(feature = "shell")]
    Completions(shell::Completions),
    /// Prints a page for man: kvdrive man run | man -l -
    #[cfg(feature = "shell")]
    Man(shell::Man),
}

/// Prints a whole configuration, or the page of all settings.
#[derive(clap::Args)]
struct PrintConfig {
    #[command(flatten)]
    settings: settings::Settings,
    /// Prints the reference of all settings as Markdown instead: unit, range, default, description
    #[arg(long)]
    reference: bool,
}

impl PrintConfig {
    fn run(&self) -> anyhow::Result<()> {
        let text = match self.reference {
            true => kvdrive_config::reference(),
            false => {
                let document = self.settings.options()?.document()?;
                settings::tell_capacity([&document]);
                document.config()?.workload.known_row().map_err(anyhow::Error::msg)?;
                document.to_string()
            }
        };
        output::print(&text);
        Ok(())
    }
}

type IsIgnored = fn(&OptionRow) -> bool;

/// Commands that do not read every option of a run, and the options that they ignore. Such an option is refused with
/// the reason.
const LOOK_AT_LESS: &[(&str, IsIgnored)] = &[
    ("serve", is_of_work),
    ("conform", is_of_work),
    ("check", is_not_of_image),
    ("dump", is_not_of_image),
    ("compare", is_clock),
    ("crash", |row| row.is_of_load() || is_clock(row)),
    ("tune", |row| row.is_of_load() || is_clock(row) || kvdrive_tune::OWN_KEYS.contains(&row.key)),
    ("explain", |row| explain::is_of_run(row.key) || is_clock(row)),
];

/// Does an option choose the clock? Only `run` has another one than the model's.
fn is_clock(row: &OptionRow) -> bool {
    row.name == "clock"
}

/// Does an option say nothing of a drive whose image is read? The medium is its file.
fn is_not_of_image(row: &OptionRow) -> bool {
    is_of_work(row) || ["media", "seed", "nand"].contains(&row.name)
}

/// Does an option describe the work of a run? A served drive gets its work from hosts, and an image is only read.
fn is_of_work(row: &OptionRow) -> bool {
    describes_work(row.key)
}

/// The command; help of each subcommand lists the options that it looks at.
fn command() -> clap::Command {
    LOOK_AT_LESS.iter().fold(Arguments::command(), |command, (name, is_ignored)| {
        let is_hidden = |argument: &clap::Arg| {
            option_rows().iter().any(|row| Some(row.name) == argument.get_long() && is_ignored(row))
        };
        command.mut_subcommand(*name, |subcommand| {
            subcommand.mut_args(|argument| {
                let is_hidden = argument.is_hide_set() || is_hidden(&argument);
                argument.hide(is_hidden)
            })
        })
    })
}

fn main() {
    kvdrive_run::revision::set(kvdrive_revision::REVISION);
    let matches = command().try_get_matches().unwrap_or_else(refuse);
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(refuse);
    let result = match &arguments.command {
        None => arguments.tour.run(),
        Some(Command::Run(run)) => run.run(),
        Some(Command::Compare(compare)) => compare.run(),
        Some(Command::Crash(crash)) => crash.run(),
        Some(Command::Storm(storm)) => storm.run(),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Dump(dump)) => dump.run(),
        #[cfg(feature = "shell")]
        Some(Command::Completions(completions)) => completions.run(command()),
        #[cfg(feature = "shell")]
        Some(Command::Man(man)) => man.run(command()),
        Some(Command::Conform(conform)) => conform.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::Claims(claims)) => claims.run(),
        Some(Command::Figure(figure)) => figure.run(),
        Some(Command::Sweep(sweep)) => sweep.run(),
        Some(Command::Report(report)) => report.run(),
        Some(Command::Cache(cache)) => cache.run(),
        Some(Command::Serve(serve)) => serve.run(),
        Some(Command::Ng(ng)) => ng.run(),
        Some(Command::Ctl(ctl)) => ctl.run(),
        #[cfg(feature = "top")]
        Some(Command::Top(top)) => top.run(),
        Some(Command::Replay(replay)) => replay.run(),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Calibrate(calibrate)) => calibrate.run(),
        Some(Command::Secret(make)) => make.run(),
        Some(Command::Tune(tune)) => tune.run(),
        Some(Command::List(list)) => list.run(),
        Some(Command::Config(config)) => config.run(),
    };
    if let Err(error) = result {
        output::tell(&format!("kvdrive: {}", printable(&format!("{error:#}"))));
        std::process::exit(verdict::status_of(&error));
    }
}

/// Ends the program because of its arguments, or shows the help that they ask for. A value that is refused is one line,
/// as every other message is: the line says what is allowed, so it needs no pointer to the help.
fn refuse<T>(error: clap::Error) -> T {
    let plain = error.render().to_string();
    let message = match error.kind() {
        clap::error::ErrorKind::ValueValidation => {
            plain.split("\n\n").next().unwrap_or(&plain).trim_end().to_owned() + "\n"
        }
        _ => plain.clone(),
    };
    if error.use_stderr() && printable(&message) != plain {
        output::tell(printable(&message).trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// A message without control characters other than ends of lines: names of files and keys that it repeats may hold
/// bytes that a terminal would obey.
fn printable(message: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    };
    message.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_no_option_that_a_command_does_not_look_at() {
        let hidden = |name: &str, option: &str| {
            let command = command();
            let subcommand = command.find_subcommand(name).unwrap();
            let argument = subcommand.get_arguments().find(|argument| argument.get_long() == Some(option));
            argument.unwrap_or_else(|| panic!("{name} has no --{option}")).is_hide_set()
        };
        for option in ["transfer", "workload", "value-size", "nand", "rate"] {
            assert!(hidden("tune", option), "tune --{option}");
        }
        for option in ["media", "seed", "nand", "ops"] {
            assert!(hidden("check", option) && hidden("dump", option), "check --{option}");
        }
        for command in ["compare", "crash", "tune", "explain"] {
            assert!(hidden(command, "clock"), "{command} --clock");
        }
        assert!(!hidden("run", "clock"));
        assert!(!hidden("tune", "profile") && !hidden("check", "profile") && !hidden("run", "nand"));
    }

    /// The workload comes first; every option of `run` is in a group, and short help is short.
    #[test]
    fn help_of_run_has_groups_with_the_workload_first_and_examples() {
        let mut command = command();
        let run = command.find_subcommand_mut("run").unwrap();
        let (short, long) = (run.render_help().to_string(), run.render_long_help().to_string());
        let headings: Vec<&str> =
            long.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
        assert_eq!(
            headings,
            ["Workload:", "Drive:", "Host:", "Run:", "Network:", "Output:", "Examples:"],
            "{long}"
        );
        let at = |text: &str, what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(
            at(&long, "--key-size") < at(&long, "--value-size")
                && at(&long, "--workload") < at(&long, "--ops")
        );
        let options = |text: &str| text.lines().filter(|line| line.trim_start().starts_with("--")).count();
        assert!(options(&short) * 2 < options(&long), "{short}");
        assert!(
            short.contains("--connect")
                && !short.contains("--dhchap-secret")
                && long.contains("--dhchap-secret")
        );
        for line in run::EXAMPLES.lines().filter(|line| line.starts_with("  kvdrive ")) {
            super::command()
                .try_get_matches_from(line.split_whitespace())
                .map(drop)
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn counts_of_nothing_are_refused() {
        for line in ["--tour-ops 0", "storm --cases 0", "storm --minutes 0", "crash --at 0"] {
            let words = std::iter::once("kvdrive").chain(line.split(' '));
            let error = command().try_get_matches_from(words).map(drop).unwrap_err().to_string();
            assert!(error.contains("from 1 on"), "{line}: {error}");
        }
    }

    #[test]
    fn the_page_of_counters_is_of_all_kinds() {
        assert!(command().try_get_matches_from(["kvdrive", "list", "traces", "--counters"]).is_err());
    }
}
