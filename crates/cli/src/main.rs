//! The `kvdrive` command.
//!
//! Every subcommand is a file; [`settings`] is what those that run a drive have in common. Nothing is modelled here:
//! this crate reads the command line, shows progress and prints.

mod compare;
mod explain;
mod list;
mod output;
mod progress;
mod run;
mod settings;
mod tour;

use clap::{Parser, Subcommand};

/// A key-value SSD in software.
///
/// Without a command: the tour, one million stores of workload W(M) through each transfer method and each packing
/// policy.
#[derive(Parser)]
#[command(name = "kvdrive", version, max_term_width = 100)]
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
    Compare(compare::Compare),
    /// Shows every step of one command: time, room, bytes, purpose.
    Explain(explain::Explain),
    /// Lists what there is: profiles, workloads, transfers, packings, engines, media.
    List(list::List),
    /// Prints a whole configuration as TOML, every number with its source.
    Config(settings::Settings),
}

fn main() {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        None => arguments.tour.run(),
        Some(Command::Run(run)) => run.run(),
        Some(Command::Compare(compare)) => compare.run(),
        Some(Command::Explain(explain)) => explain.run(),
        Some(Command::List(list)) => list.run(),
        Some(Command::Config(settings)) => settings.document().map(|document| output::print(&document.to_string())),
    };
    if let Err(error) = result {
        eprintln!("kvdrive: {error:#}");
        std::process::exit(1);
    }
}
