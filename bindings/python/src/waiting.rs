//! How a call waits for runs: on a thread that hears of Ctrl-C and tells how far they are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kvdrive::Error;
use pyo3::prelude::*;

use crate::failure::exception;

/// How often a thread that waits for runs looks whether Ctrl-C was pressed.
const LOOK: Duration = Duration::from_millis(50);
/// Looks before anything is told: what takes a second needs no words.
const LOOKS_IN_SILENCE: u32 = 20;

/// Tells runs to stop, from another thread than theirs.
#[pyclass(frozen, module = "kvdrive._native")]
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Stop {
        Stop::default()
    }

    /// Runs that have it end, and fail.
    fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Stop {
    /// Fails if it has been said.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.0.load(Ordering::Relaxed), "stopped");
        Ok(())
    }

    /// As runs look at it.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

/// How far the runs of a call are.
#[derive(Default)]
pub struct Going {
    /// What is ahead, in words, and how many runs; `None`: that is not known yet.
    ahead: Mutex<Option<(String, usize)>>,
    ended: AtomicUsize,
}

impl Going {
    /// So many runs are ahead.
    pub fn begin(&self, words: String, runs: usize) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some((words, runs));
    }

    /// So many more have ended.
    pub fn end(&self, runs: usize) {
        self.ended.fetch_add(runs, Ordering::Relaxed);
    }

    /// Calls `tell` with what is ahead, how many runs have ended, and how many there are.
    fn tell(&self, py: Python<'_>, tell: &Py<PyAny>) -> PyResult<()> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((words, runs)) = ahead else { return Ok(()) };
        tell.call1(py, (words, self.ended.load(Ordering::Relaxed), runs)).map(drop)
    }
}

/// Runs `work` on a thread of its own, so that this one hears of Ctrl-C: then `stop` is said, and `work` no longer
/// waited for. Meanwhile `tell` is called with how far it is. A run also calls from stacks of its own, which the interpreter
/// must not meet.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    stop: Stop,
    tell: Option<&Py<PyAny>>,
    work: impl FnOnce(&Stop, &Going) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (end, ended) = channel();
    let (stopping, going) = (stop.clone(), Arc::<Going>::default());
    let of_work = going.clone();
    let thread = std::thread::Builder::new().name("kvdrive run".into());
    // The interpreter's lock is let go of by what is `Sync` alone.
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
