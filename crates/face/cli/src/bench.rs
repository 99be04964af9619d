//! `kvdrive bench`: speed and memory of this program on this machine, and the speed of a drive on a network.
//!
//! Memory and instructions are measured for a whole process, so the program starts itself again for them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use kvdrive_bench::connected::{DEFAULT_KEYS, DEFAULT_VALUE_BYTES, connected};
use kvdrive_bench::{self as bench, DriveSize, Figures};
use kvdrive_config::Scale;
use kvdrive_host::reach::Remote;
use kvdrive_run::Watch;

use crate::connect::Connection;
use crate::output;
use crate::progress::Bar;
use crate::serve::seen::Seen;
use crate::serve::{FIRST, control};
use crate::settings::at_least_one;
use crate::verdict::verdict_of;
use crate::watch::{STOPPED, stop_on_interrupt};

/// Options of `bench`.
#[derive(Args)]
pub struct Bench {
    /// Stores of each run in virtual time, and of each in wall time
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    stores: u64,
    /// Pairs whose memory is measured
    #[arg(long, default_value_t = 10_000_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pairs: u64,
    /// Scale of the runs with a hash engine, relative to the Plus paper: 1, or 1/64
    #[arg(long, default_value = "1/64", value_name = "1/N")]
    scale: Scale,
    /// Takes half a minute: a quarter of the scale, a tenth of the stores and a fiftieth of the pairs, each run once
    #[arg(long)]
    quick: bool,
    /// Writes the figures as JSON to a file, or to standard output (-) instead of the table
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    /// Bytes of flash of the drives that are served, as 8GiB [default: at most a quarter of this machine's memory]
    #[arg(long, value_name = "SIZE", conflicts_with = "connect")]
    capacity: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// With --connect: operations at depth 32; a tenth as many at depth 1
    #[arg(long, default_value_t = 300_000, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, requires = "connect")]
    operations: u64,
    /// With --connect: keys that the values are stored under; a tenth of them with --quick
    #[arg(long, default_value_t = DEFAULT_KEYS, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true, requires = "connect")]
    keys: u64,
    /// With --connect: size of the values in bytes; above 2 MiB the depth is less than 32
    #[arg(long, default_value_t = DEFAULT_VALUE_BYTES, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..), requires = "connect")]
    value_size: u32,
    /// With --connect: the control socket of the server, which reports its process id [default: kvdrive.sock in the
    /// user's runtime folder, if it belongs to that server]
    #[arg(long, value_name = "PATH", requires = "connect")]
    control: Option<PathBuf>,
    /// With --connect: process id of the server, if it is on this machine and is not kvdrive
    #[arg(long, value_name = "PID", requires = "connect")]
    server_pid: Option<u32>,
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
        output::check_json(self.json.as_ref())?;
        let remotes = self.connection.remotes()?;
        if !remotes.is_empty() {
            return self.run_connected(&remotes);
        }
        match self.part {
            Some(Part::Simulate) => {
                return bench::simulated(self.stores, 1, &Watch::progress(&|_, _| {})).map(drop);
            }
            Some(Part::Memory) => {
                let bar = Bar::new("memory");
                let memory = bench::memory(self.pairs, &|done, total| bar.update(done, total))?;
                return output::write_json("-", &memory);
            }
            Some(Part::Collecting) => {
                let bar = Bar::new("hash engine");
                let collecting = bench::collecting(self.scale, &|done, total| bar.update(done, total))?;
                return output::write_json("-", &collecting);
            }
            None => {}
        }
        let (mut figures, stop) = (Figures::of_this_machine(), stop_on_interrupt()?);
        let size = DriveSize::of(self.capacity.as_deref())?;
        size.note.iter().for_each(|line| output::tell(&format!("kvdrive: {line}")));
        figures.served_capacity_bytes = Some(size.bytes);
        let measured = self.measure(&mut figures, &size, &stop);
        let is_stopped = stop.load(Ordering::Relaxed);
        if !is_stopped {
            measured?;
        }
        if self.json.as_deref() != Some("-") {
            output::print(&figures.to_string());
        }
        self.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &figures))?;
        if is_stopped {
            output::tell("kvdrive: stopped; these are the figures measured so far");
            std::process::exit(STOPPED);
        }
        Ok(())
    }

    /// Measures one figure after the other; when `stop` is set, the one at work is lost.
    fn measure(&self, figures: &mut Figures, size: &DriveSize, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
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
        let bars = &["simulated", "served", "instructions", "stores"].map(Bar::new);
        let progress = [0, 1, 3].map(|row| move |done, total| bars[row].update(done, total));
        let [simulated, wall, of_stores] =
            progress.each_ref().map(|progress| Watch { stop: stop.clone(), ..Watch::progress(progress) });
        figures.simulated = Some(bench::simulated(stores, runs, &simulated)?);
        figures.wall = Some(bench::wall(stores, runs, size, &wall)?);
        bars[2].update(0, 1);
        let simulate = |count: u64| part("simulate", "--stores", count.to_string());
        figures.instructions = Some(bench::instructions(stores, &simulate, stop)?);
        bars[2].update(1, 1);
        figures.stores = bench::stores::stores(if self.quick { 10 } else { 1 }, &of_stores)?;
        figures.memory = Some(answer(part("memory", "--pairs", pairs.to_string()), stop)?);
        figures.collecting = Some(answer(part("collecting", "--scale", scale.to_string()), stop)?);
        figures.idle = Some(bench::idle(Duration::from_secs(1), size)?);
        Ok(())
    }
}

impl Bench {
    /// Measures a drive on a network, or several as one.
    fn run_connected(&self, remotes: &[Remote]) -> anyhow::Result<()> {
        let part = if self.quick { 10 } else { 1 };
        let (operations, keys) = (self.operations.div_ceil(part), self.keys.div_ceil(part));
        let bar = Bar::new("served");
        let pid = match self.server_pid {
            Some(pid) => Some(pid),
            None => self.pid_of(remotes)?,
        };
        let progress = |done, total| bar.update(done, total);
        let watch = Watch { stop: stop_on_interrupt()?, ..Watch::progress(&progress) };
        let figures = connected(remotes, self.value_size, operations, keys, pid, &watch);
        let (figures, failure) = figures.map_err(Connection::explained)?;
        if self.json.as_deref() != Some("-") && !figures.rows.is_empty() {
            output::print(&figures.to_string());
        }
        self.json.as_ref().map_or(Ok(()), |path| output::write_json(path, &figures))?;
        verdict_of(failure)?;
        if watch.is_stopped() {
            output::tell(&format!("kvdrive: stopped; measured before: {}", figures.rows.len()));
            std::process::exit(STOPPED);
        }
        Ok(())
    }

    /// The process of the server, if there is only one and it is a kvdrive on this machine.
    fn pid_of(&self, remotes: &[Remote]) -> anyhow::Result<Option<u32>> {
        let [remote] = remotes else { return Ok(None) };
        let path = self.control.clone().unwrap_or_else(control::default_path);
        let asked = control::ask(&path, FIRST, &control::Request::Status);
        let seen: Seen = match asked {
            Ok(seen) => serde_json::from_value(seen)?,
            Err(error) if self.control.is_some() => return Err(error),
            Err(_) => return Ok(None),
        };
        let is_it = seen.listening.iter().any(|at| at.strip_prefix("tcp://") == Some(&remote.address));
        anyhow::ensure!(
            is_it || self.control.is_none(),
            "--control {}: that server listens at {}",
            path.display(),
            seen.listening.join(", ")
        );
        Ok(is_it.then_some(seen.pid))
    }
}

/// The output of a measurement that runs in a process of its own.
fn answer<T: serde::de::DeserializeOwned>(mut command: Command, stop: &AtomicBool) -> anyhow::Result<T> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = bench::output(command, stop)?;
    anyhow::ensure!(child.status.success(), "{name} failed");
    Ok(serde_json::from_slice(&child.stdout)?)
}
