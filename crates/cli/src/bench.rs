//! `kvdrive bench`: how fast and how small this program is on this machine.
//!
//! Memory and instructions are those of a whole process, so this one starts itself again for them.

use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use kvdrive_lab::bench::{self, Figures};
use kvdrive_lab::config::Scale;

use crate::output;
use crate::progress::Bars;
use crate::settings::at_least_one;

/// Options of `bench`.
#[derive(Args)]
pub struct Bench {
    /// Stores of each run in virtual time, and of each in wall time
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    stores: u64,
    /// Pairs whose memory is measured
    #[arg(long, default_value_t = 10_000_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pairs: u64,
    /// Part of the Plus paper's size at which a hash engine runs: 1, or 1/64
    #[arg(long, default_value = "1/64", value_name = "1/N")]
    scale: Scale,
    /// Half a minute: a quarter of that part, a tenth of the stores and a fiftieth of the pairs, once
    #[arg(long)]
    quick: bool,
    /// Writes the figures as JSON to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Only this part, in this process
    #[arg(long, hide = true)]
    part: Option<Part>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Simulate,
    Memory,
    Collecting,
}

impl Bench {
    /// Measures and prints.
    pub fn run(&self) -> anyhow::Result<()> {
        match self.part {
            Some(Part::Simulate) => return bench::simulated(self.stores, 1, &|_, _| {}).map(drop),
            Some(Part::Memory) => {
                let bars = Bars::new(&["memory".to_owned()]);
                let memory = bench::memory(self.pairs, &|done, total| bars.update(0, done, total))?;
                return output::write_json("-", &memory);
            }
            Some(Part::Collecting) => {
                let bars = Bars::new(&["hash engine".to_owned()]);
                let collecting = bench::collecting(self.scale, &|done, total| bars.update(0, done, total))?;
                return output::write_json("-", &collecting);
            }
            None => {}
        }
        let (stores, pairs, runs) =
            if self.quick { (self.stores / 10, self.pairs / 50, 1) } else { (self.stores, self.pairs, 3) };
        let (stores, pairs) = (stores.max(1), pairs.max(1));
        let executable = std::env::current_exe()?;
        let scale = if self.quick { self.scale.quarter() } else { self.scale };
        let part = |part: &str, option: &str, value: String| {
            let mut command = Command::new(&executable);
            command.args(["bench", "--part", part, option]).arg(value);
            command
        };
        let bars = Bars::new(&["simulated", "served", "instructions"].map(str::to_owned));
        let simulated = bench::simulated(stores, runs, &|done, total| bars.update(0, done, total))?;
        let wall = bench::wall(stores, runs, &|done, total| bars.update(1, done, total))?;
        bars.update(2, 0, 1);
        let instructions =
            bench::instructions(stores, &|count| part("simulate", "--stores", count.to_string()));
        bars.update(2, 1, 1);
        let memory = answer(part("memory", "--pairs", pairs.to_string()))?;
        let collecting = answer(part("collecting", "--scale", scale.to_string()))?;
        let idle = bench::idle(Duration::from_secs(1))?;
        let figures = Figures::new(simulated, instructions, memory, collecting, wall, idle);
        if self.json.as_deref() != Some("-") {
            output::print(&figures.to_string());
        }
        match &self.json {
            Some(path) => output::write_json(path, &figures),
            None => Ok(()),
        }
    }
}

/// What a part prints that runs in a process of its own.
fn answer<T: serde::de::DeserializeOwned>(mut command: Command) -> anyhow::Result<T> {
    let child = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(child.status.success(), "{command:?} failed");
    Ok(serde_json::from_slice(&child.stdout)?)
}
