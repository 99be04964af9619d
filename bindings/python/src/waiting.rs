//! Waiting for runs: on a thread that notices Ctrl-C and reports their progress.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvdrive::Error;
use pyo3::prelude::*;

use crate::failure::exception;

/// Interval at which a thread that waits for runs checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// Checks before anything is reported: a call of one second needs no progress.
const LOOKS_IN_SILENCE: u32 = 20;

/// Stops runs from another thread.
#[pyclass(frozen, module = "kvdrive._native")]
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }

    /// Makes the runs that share it end, and fail.
    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// Fails if it was stopped.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.0.load(Ordering::Relaxed), "stopped");
        Ok(())
    }

    /// The flag that runs read.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// The progress of the runs of a call.
#[derive(Default)]
pub struct RunsProgress {
    /// The estimate in words, and the number of runs; `None`: not known yet.
    ahead: Mutex<Option<(String, usize)>>,
    ended: AtomicUsize,
}

impl RunsProgress {
    /// `runs` runs are to be done.
    pub fn begin(&self, words: String, runs: usize) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some((words, runs));
    }

    /// `runs` more runs have ended.
    pub fn end(&self, runs: usize) {
        self.ended.fetch_add(runs, Ordering::Relaxed);
    }

    /// Calls `tell` with the estimate, the number of runs that have ended, and the number of all.
    fn tell(&self, py: Python<'_>, tell: &Py<PyAny>) -> PyResult<()> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((words, runs)) = ahead else { return Ok(()) };
        tell.call1(py, (words, self.ended.load(Ordering::Relaxed), runs)).map(drop)
    }
}

/// Runs `work` on a thread of its own, so that this one notices Ctrl-C: then it sets `stop`, and does not
/// wait for `work` any more. Meanwhile `tell` is called with the progress. Besides, a run also calls from
/// stacks of its own, on which the interpreter must not run.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    stop: Stop,
    tell: Option<&Py<PyAny>>,
    work: impl FnOnce(&Stop, &RunsProgress) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (end, ended) = channel();
    let (stopping, going) = (stop.clone(), Arc::<RunsProgress>::default());
    let of_work = going.clone();
    let thread = std::thread::Builder::new().name("kvdrive run".into());
    // A closure that runs without the interpreter's lock may use only `Sync` values.
    let ended = Mutex::new(ended);
    thread.spawn(move || _ = end.send(work(&stopping, &of_work)))?;
    let mut looks = 0;
    loop {
        match py.detach(|| ended.lock().expect("one thread waits").recv_timeout(LOOK)) {
            Ok(result) => return result.map_err(|error| exception(py, &Error::Run(format!("{error:#}")))),
            Err(RecvTimeoutError::Timeout) => {
                looks += 1;
                let tell = tell.filter(|_| looks > LOOKS_IN_SILENCE);
                let told = tell.map_or(Ok(()), |tell| going.tell(py, tell));
                if let Err(interrupt) = told.and_then(|()| py.check_signals()) {
                    stop.stop();
                    return Err(interrupt);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(py, &Error::Run("the run has panicked; its message is above".into())));
            }
        }
    }
}
