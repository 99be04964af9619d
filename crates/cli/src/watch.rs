//! Looking on while a run goes: Ctrl-C, intervals as JSON lines, and the log of latencies.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use kvdrive_lab::output::{check_writable, shown};
use kvdrive_lab::run::{HistogramLog, Interval, OnInterval, Progress, Ran, Watch};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::output;
use crate::settings::span;

/// What a shell says of a program that Ctrl-C ended.
pub const STOPPED: i32 = 128 + SIGINT;

/// Options of who looks on.
#[derive(Args)]
pub struct Looking {
    /// A line of JSON for each interval of the run's clock, as 100ms: throughput, latency, traffic, flash
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<u64>,
    /// Where the lines go; a file [default: standard output, ahead of the report]
    #[arg(long, value_name = "FILE|-", requires = "interval")]
    interval_file: Option<String>,
    /// Writes all latencies as a log in the format of HdrHistogram, a line for each interval and kind of
    /// operation
    #[arg(long, value_name = "FILE")]
    histogram: Option<PathBuf>,
}

fn interval(text: &str) -> Result<u64, String> {
    span(text)?.checked_sub(1).map(|below| below + 1).ok_or_else(|| "allowed: more than no time".to_owned())
}

type Log = Rc<RefCell<(HistogramLog<BufWriter<File>>, anyhow::Result<()>)>>;

/// Who looks on.
pub struct Looker {
    stop: Arc<AtomicBool>,
    interval: Option<(u64, OnInterval)>,
    log: Option<Log>,
    written: Rc<RefCell<anyhow::Result<()>>>,
}

impl Looking {
    /// Is anything of it given?
    pub fn is_asked_for(&self) -> bool {
        self.interval.is_some() || self.histogram.is_some()
    }

    /// Files that are written, with their options.
    pub fn files(&self) -> [(&'static str, Option<&Path>); 2] {
        let lines = self.interval_file.as_deref().filter(|path| *path != "-").map(Path::new);
        [("--interval-file", lines), ("--histogram", self.histogram.as_deref())]
    }

    /// Opens the files, and takes Ctrl-C: the first ends the run, the second the program.
    pub fn begin(&self, what: &str, json: Option<&str>) -> anyhow::Result<Looker> {
        let to_output = self.interval_file.as_deref().is_none_or(|path| path == "-");
        anyhow::ensure!(
            self.interval.is_none() || !to_output || json != Some("-"),
            "--interval: its lines and --json both go to standard output; give one of them a file"
        );
        let stop = Arc::new(AtomicBool::new(false));
        flag::register_conditional_shutdown(SIGINT, STOPPED, stop.clone())?;
        flag::register(SIGINT, stop.clone())?;
        let log = self.histogram.as_deref().map(|path| {
            check_writable(path)?;
            let out = BufWriter::new(File::create(path)?);
            anyhow::Ok(Rc::new(RefCell::new((HistogramLog::new(out, what)?, Ok(())))))
        });
        let log = log.transpose()?;
        let written = Rc::new(RefCell::new(Ok(())));
        let interval = self.interval.map(|length_ns| anyhow::Ok((length_ns, self.teller(&log, &written)?)));
        Ok(Looker { stop, interval: interval.transpose()?, log, written })
    }

    /// Who writes a line for each interval, and adds it to the log.
    fn teller(
        &self,
        log: &Option<Log>,
        written: &Rc<RefCell<anyhow::Result<()>>>,
    ) -> anyhow::Result<OnInterval> {
        let path = self.files()[0].1.map(Path::to_owned);
        let file = path.as_deref().map(|path| check_writable(path).and_then(|()| Ok(File::create(path)?)));
        let (log, written) = (log.clone(), written.clone());
        let file = RefCell::new(file.transpose()?);
        Ok(Rc::new(move |interval: &Interval<'_>| {
            let line = interval.to_json().to_string();
            match &mut *file.borrow_mut() {
                None => output::print(&line),
                Some(file) => {
                    let wrong = |error| {
                        anyhow::anyhow!("{}: {error}", path.as_deref().map(shown).unwrap_or_default())
                    };
                    let result = writeln!(file, "{line}").map_err(wrong);
                    keep_first(&mut written.borrow_mut(), result);
                }
            }
            if let Some(log) = &log {
                let (log, written) = &mut *log.borrow_mut();
                let result = log.interval(interval.began_ns, interval.ended_ns, interval.latencies());
                keep_first(written, result);
            }
        }))
    }
}

fn keep_first(first: &mut anyhow::Result<()>, next: anyhow::Result<()>) {
    if first.is_ok() {
        *first = next;
    }
}

impl Looker {
    /// For a run.
    pub fn watch<'a>(&self, progress: Progress<'a>) -> Watch<'a> {
        Watch { stop: self.stop.clone(), intervals: self.interval.clone(), ..Watch::progress(progress) }
    }

    /// Completes the files with a run that has ended.
    pub fn end(self, ran: &Ran) -> anyhow::Result<()> {
        if let (Some(log), None) = (&self.log, &self.interval) {
            let span_ns = match ran.report.clock.as_str() {
                "wall" => (ran.report.time.wall_s * 1e9) as u64,
                _ => ran.report.time.virtual_ns,
            };
            let latencies = ran.latencies.iter().map(|(kind, histogram)| (*kind, histogram));
            log.borrow_mut().0.interval(0, span_ns, latencies)?;
        }
        if let Some(log) = self.log {
            std::mem::replace(&mut log.borrow_mut().1, Ok(()))?;
        }
        self.written.replace(Ok(()))
    }
}
