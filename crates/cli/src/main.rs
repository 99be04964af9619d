//! The `kvdrive` command.
//!
//! Every subcommand is a file; [`settings`] is what those that run a drive have in common. Nothing is
//! modelled here: this crate reads the command line, shows progress and prints.

mod batch;
mod bench;
mod calibrate;
mod check;
mod claims;
mod compare;
mod connect;
mod crash;
mod ctl;
mod explain;
mod figure;
mod list;
mod output;
mod progress;
mod replay;
mod report;
mod run;
mod secret;
mod serve;
mod settings;
mod shell;
mod sweep;
mod top;
mod tour;
mod tune;
mod watch;

use std::sync::LazyLock;

use clap::{Parser, Subcommand};

/// A run keeps many small pieces of memory for long and meets them at random. With the allocator of the C
/// library one of a hash engine took a fifth longer; this one backs its heap with huge pages where the system
/// allows.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Version of the program, and revision of its source.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), kvdrive_lab::REVISION));

/// A key-value SSD in software.
///
/// Without a command: the tour, one million stores of workload W(M) through each transfer method and each
/// packing policy.
#[derive(Parser)]
#[command(name = "kvdrive", version = VERSION.as_str(), max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    tour: tour::Tour,
}

#[derive(Subcommand)]
enum Command {
    /// Runs one workload on one drive and prints the report.
    Run(run::Run),
    /// Runs every combination of the given methods, policies and workloads and prints them side by side.
    #[command(after_help = compare::help_of_lists())]
    Compare(compare::Compare),
    /// Cuts the power at events of a run and checks what comes back; exit status 1 if a pair is lost.
    ///
    /// Without --ops it does 2000 operations, without --num on 1000 pairs; a --config file, --set and --scale
    /// have their own.
    Crash(crash::Crash),
    /// Reads an image from end to end and says what is whole, damaged and lost; exit status 1 if not all is
    /// whole.
    ///
    /// The drive is powered on for it, which finishes what a killed life left under way: the files change, the pairs
    /// do not. To keep the files as they are, check a copy of all of them (cp --sparse=always).
    Check(check::Check),
    /// Prints every pair of an image as a line of JSON; exit status 1 if not all is whole.
    Dump(check::Dump),
    /// Shows every step of one command: time, room, bytes, purpose.
    Explain(explain::Explain),
    /// Says of every published claim whether it comes true here; exit status 1 if one regressed.
    Claims(claims::Claims),
    /// Runs the experiment of a published figure and draws every panel.
    Figure(figure::Figure),
    /// Runs every combination of some settings on all cores; JSON lines, resumable.
    Sweep(sweep::Sweep),
    /// Runs all experiments and claims and writes one HTML page that needs no network.
    Report(report::Report),
    /// Serves a drive to hosts over NVMe/TCP.
    Serve(serve::Serve),
    /// Looks at a drive that is served, makes it fail, cuts its power.
    Ctl(ctl::Ctl),
    /// Shows a drive that is served in the terminal, as it runs.
    Top(top::Top),
    /// Repeats a recorded wall-time run in virtual time: same counters, same model times.
    Replay(replay::Replay),
    /// Measures this program on this machine: stores a second, instructions, memory.
    Bench(bench::Bench),
    /// Measures what the steps of SAKER and of stores take on this machine, for the model to charge.
    Calibrate(calibrate::Calibrate),
    /// Makes a secret or a PSK, by which hosts and a served drive believe each other.
    Secret(secret::Make),
    /// Finds the thresholds of the adaptive transfer method by exploratory runs.
    Tune(tune::Tune),
    /// Lists what there is: profiles, workloads, transfers, packings, engines, DRAM points, media, timings, faults,
    /// formats of traces.
    List(list::List),
    /// Prints a whole configuration as TOML, every number with its source.
    Config(settings::Settings),
    /// Prints what completes commands and options in a shell.
    Completions(shell::Completions),
    /// Prints a page for man: kvdrive man run | man -l -
    Man(shell::Man),
}

fn main() {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        None => arguments.tour.run(),
        Some(Command::Run(run)) => run.run(),
        Some(Command::Compare(compare)) => compare.run(),
        Some(Command::Crash(crash)) => crash.run(),
        Some(Command::Check(check)) => check.run(),
        Some(Command::Dump(dump)) => dump.run(),
        Some(Command::Completions(completions)) => completions.run(),
        Some(Command::Man(man)) => man.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::Claims(claims)) => claims.run(),
        Some(Command::Figure(figure)) => figure.run(),
        Some(Command::Sweep(sweep)) => sweep.run(),
        Some(Command::Report(report)) => report.run(),
        Some(Command::Serve(serve)) => serve.run(),
        Some(Command::Ctl(ctl)) => ctl.run(),
        Some(Command::Top(top)) => top.run(),
        Some(Command::Replay(replay)) => replay.run(),
        Some(Command::Bench(bench)) => bench.run(),
        Some(Command::Calibrate(calibrate)) => calibrate.run(),
        Some(Command::Secret(make)) => make.run(),
        Some(Command::Tune(tune)) => tune.run(),
        Some(Command::List(list)) => list.run(),
        Some(Command::Config(settings)) => {
            settings.document().map(|document| output::print(&document.to_string()))
        }
    };
    if let Err(error) = result {
        eprintln!("kvdrive: {error:#}");
        std::process::exit(1);
    }
}
