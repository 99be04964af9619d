//! Work of a command during a run: it watches for Ctrl-C, and writes intervals as JSON lines, latencies as a log and as
//! a distribution.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::Args;
use kvdrive_run::{FinishedRun, HistogramLog, Interval, OnInterval, Progress, Watch, cumulative};
use kvdrive_text::output::{check_writable, shown};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::output;
use crate::settings::span;

/// Exit status of a program that Ctrl-C ended, as shells report it.
pub const STOPPED: i32 = 128 + SIGINT;

/// A flag that the first Ctrl-C sets; the second ends the program.
pub fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, STOPPED, stop.clone())?;
    flag::register(SIGINT, stop.clone())?;
    Ok(stop)
}

/// Options for the output during a run.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub struct WatchOptions {
    /// Writes a line of JSON for each interval of the run's clock, as 100ms: throughput, latency, traffic, flash
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = interval)]
    interval: Option<u64>,
    /// File to which these lines are written [default: standard output, before the report]
    #[arg(long, hide_short_help = true, value_name = "FILE|-", requires = "interval")]
    interval_file: Option<String>,
    /// Writes all latencies as a log in the format of HdrHistogram, a line for each interval and kind of
    /// operation
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    histogram: Option<PathBuf>,
    /// Writes the cumulative distribution of latencies as CSV, a line for each latency that occurred
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    cdf: Option<PathBuf>,
}

fn interval(text: &str) -> Result<u64, String> {
    span(text)?.checked_sub(1).map(|below| below + 1).ok_or_else(|| "allowed: a time above 0".to_owned())
}

/// A file that is created at the first write, so that a refused run leaves an existing file unchanged.
struct Late<T> {
    path: PathBuf,
    open: Box<dyn Fn(File) -> anyhow::Result<T>>,
    file: Option<T>,
    /// The first thing that went wrong.
    result: anyhow::Result<()>,
}

impl<T> Late<T> {
    /// Says at once whether it could not be written.
    fn new(
        path: &Path,
        open: impl Fn(File) -> anyhow::Result<T> + 'static,
    ) -> anyhow::Result<Rc<RefCell<Late<T>>>> {
        check_writable(path)?;
        let late = Late { path: path.to_owned(), open: Box::new(open), file: None, result: Ok(()) };
        Ok(Rc::new(RefCell::new(late)))
    }

    /// Does this with the file, unless something went wrong before.
    fn with(&mut self, write: impl FnOnce(&mut T) -> anyhow::Result<()>) {
        if self.result.is_ok() {
            self.result = self.opened().and_then(write).with_context(|| shown(&self.path));
        }
    }

    fn opened(&mut self) -> anyhow::Result<&mut T> {
        if self.file.is_none() {
            self.file = Some((self.open)(File::create(&self.path)?)?);
        }
        Ok(self.file.as_mut().expect("it is open"))
    }

    /// Creates the file if nothing was written; returns the first error of writing it.
    fn end(&mut self) -> anyhow::Result<()> {
        self.with(|_| Ok(()));
        std::mem::replace(&mut self.result, Ok(()))
    }
}

type Log = Rc<RefCell<Late<HistogramLog<BufWriter<File>>>>>;
type Lines = Rc<RefCell<Late<File>>>;

/// The observer of a run: it takes an interrupt and writes files.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    interval: Option<(u64, OnInterval)>,
    log: Option<Log>,
    lines: Option<Lines>,
    cdf: Option<PathBuf>,
}

impl WatchOptions {
    /// Is one of these options given?
    pub fn is_asked_for(&self) -> bool {
        self.interval.is_some() || self.histogram.is_some() || self.cdf.is_some()
    }

    /// Files that are written, with their options.
    pub fn files(&self) -> [(&'static str, Option<&Path>); 3] {
        let lines = self.interval_file.as_deref().filter(|path| *path != "-").map(Path::new);
        [
            ("--interval-file", lines),
            ("--histogram", self.histogram.as_deref()),
            ("--cdf", self.cdf.as_deref()),
        ]
    }

    /// Checks that the files can be written, and handles Ctrl-C: the first ends the run, the second the program.
    pub fn begin(&self, what: &str, json: Option<&str>) -> anyhow::Result<Watcher> {
        let to_output = self.interval_file.as_deref().is_none_or(|path| path == "-");
        anyhow::ensure!(
            self.interval.is_none() || !to_output || json != Some("-"),
            "--interval: its lines and --json both go to standard output; give one of them a file"
        );
        self.cdf.as_deref().map_or(Ok(()), check_writable)?;
        let stop = stop_on_interrupt()?;
        let log = self.histogram.as_deref().map(|path| {
            let what = what.to_owned();
            Late::new(path, move |file| Ok(HistogramLog::new(BufWriter::new(file), &what)?))
        });
        let log = log.transpose()?;
        let lines = self.files()[0].1.map(|path| Late::new(path, Ok)).transpose()?;
        let interval = self.interval.map(|length_ns| (length_ns, teller(log.clone(), lines.clone())));
        Ok(Watcher { stop, interval, log, lines, cdf: self.cdf.clone() })
    }
}

/// The writer of a line for each interval, which also adds it to the log.
fn teller(log: Option<Log>, lines: Option<Lines>) -> OnInterval {
    Rc::new(move |interval: &Interval<'_>| {
        let line = interval.to_json().to_string();
        match &lines {
            None => output::print(&line),
            Some(lines) => lines.borrow_mut().with(|file| Ok(writeln!(file, "{line}")?)),
        }
        if let Some(log) = &log {
            let (began, ended) = (interval.began_ns, interval.ended_ns);
            log.borrow_mut().with(|log| log.interval(began, ended, interval.latencies()));
        }
    })
}

impl Watcher {
    /// For a run.
    pub fn watch<'a>(&self, progress: Progress<'a>) -> Watch<'a> {
        Watch { stop: self.stop.clone(), intervals: self.interval.clone(), ..Watch::progress(progress) }
    }

    /// Completes the files with a run that has ended.
    pub fn end(self, ran: &FinishedRun) -> anyhow::Result<()> {
        if let (Some(log), None) = (&self.log, &self.interval) {
            let span_ns = match ran.report.clock.as_str() {
                "wall" => (ran.report.time.wall_s * 1e9) as u64,
                _ => ran.report.time.virtual_ns,
            };
            let latencies = ran.latencies.iter().map(|(kind, histogram)| (*kind, histogram));
            log.borrow_mut().with(|log| log.interval(0, span_ns, latencies));
        }
        if let Some(path) = &self.cdf {
            let settings = ran.report.set.join(" ");
            output::write(path, &cumulative::csv([(settings.as_str(), &ran.latencies)]))?;
        }
        let logged = self.log.map_or(Ok(()), |log| log.borrow_mut().end());
        logged.and(self.lines.map_or(Ok(()), |lines| lines.borrow_mut().end()))
    }
}
