//! `kvdrive crash`: cuts the power at events of a run, and checks every pair in the drives that come back.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use kvdrive_lab::crash::{Cuts, Verdict, crash};
use kvdrive_lab::many::in_model_time;
use kvdrive_lab::text::grouped;

use crate::output;
use crate::settings::{Settings, count, crash_rules};

/// Operations, and pairs to begin with, unless the command says otherwise: every cut looks at every pair.
const DEFAULT_OPS: u64 = 2000;
const DEFAULT_NUM: u64 = 1000;
/// Power cuts of a command that does not say how many.
const DEFAULT_CUTS: u64 = 100;

#[derive(Clone, Copy)]
enum Wanted {
    All,
    Some(u64),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        if text == "all" { Ok(Wanted::All) } else { count(text).map(Wanted::Some) }
    }
}

/// Options of `crash`.
#[derive(Args)]
pub struct Crash {
    #[command(flatten)]
    settings: Settings,
    /// Events at which power is cut: so many, drawn by the seed, or all of them [default: 100; with a
    /// `power-cut` rule: where it fires]
    #[arg(long, value_name = "N|all")]
    cuts: Option<Wanted>,
    /// Cuts behind this event alone, whatever --cuts says
    #[arg(long, value_name = "EVENT", value_parser = count)]
    at: Option<u64>,
    /// Rules by which the drive fails, a TOML file (`kvdrive list faults`)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
}

impl Crash {
    /// Runs it and prints the verdict; an error if a pair is lost.
    pub fn run(&self) -> anyhow::Result<()> {
        self.settings.refuse_load("crash")?;
        let mut document = self.settings.document_of_drive("crash")?;
        self.settings.check_for_run(&document)?;
        for (key, given, default) in
            [("ops", self.settings.ops, DEFAULT_OPS), ("num", self.settings.num, DEFAULT_NUM)]
        {
            let is_set = self.settings.set.iter().any(|set| set.starts_with(&format!("workload.{key}=")));
            if given.is_none() && !is_set && self.settings.config.is_empty() && self.settings.scale.is_none()
            {
                document.set(&format!("workload.{key}={default}"))?;
            }
        }
        in_model_time(&document.config()?)?;
        let (rules, has_cuts) = crash_rules(self.faults.as_ref(), &document)?;
        let cuts = match (self.at, self.cuts) {
            (Some(event), _) => Cuts::At(event),
            (None, Some(Wanted::All)) => Cuts::All,
            (None, Some(Wanted::Some(count))) => Cuts::Random(count),
            (None, None) if has_cuts => Cuts::Rules,
            (None, None) => Cuts::Random(DEFAULT_CUTS),
        };
        let verdict = crash(&document, &rules, cuts)?;
        output::print(&text(&verdict));
        match &verdict.lost {
            None => Ok(()),
            Some(lost) => anyhow::bail!(
                "power cut behind event {}: {}\nagain: {} --at {}",
                lost.event,
                lost.what,
                command_line(),
                lost.event
            ),
        }
    }
}

fn text(verdict: &Verdict) -> String {
    let Verdict { operations, events, cuts, cut_recoveries, keys_checked, unreadable, .. } = verdict;
    let mean_ns = verdict.recovery_ns / cuts.max(&1);
    let fate = match (&verdict.lost, cuts) {
        (Some(_), _) => "LOST: a recovered drive does not hold what was acknowledged",
        (None, 0) => "power was not cut",
        (None, _) => "nothing is lost: every acknowledged pair was there, and nothing else",
    };
    format!(
        "{} operations, {} events, {} power cuts, {} of them again during recovery (counted)\n\
         {} keys looked at in recovered drives, {} answered 88h for an injected fault (counted)\n\
         recovery took {} ns, {} ns at most (modelled)\n{fate}\n",
        grouped(*operations),
        grouped(*events),
        grouped(*cuts),
        grouped(*cut_recoveries),
        grouped(*keys_checked),
        grouped(*unreadable),
        grouped(mean_ns),
        grouped(verdict.longest_recovery_ns),
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
