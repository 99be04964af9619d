//! The one loop over runs. Each run is single-threaded and independent of the others, so runs spread over the machine's
//! cores, and every report is the same as if its run were alone; a session stays on one core.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kvdrive_run::plan::Plan;
use kvdrive_run::report::Report;
use kvdrive_run::{FinishedRun, Watch};

use crate::{ResultCache, RunOrder};

/// How runs are carried out, and who is told of them.
pub struct Conduct<'a> {
    /// Sessions at once.
    pub threads: usize,
    /// When set, no session begins any more, and those that are under way end early.
    pub stop: Arc<AtomicBool>,
    /// Called from several threads: the session that begins with this run has done so many operations of so many.
    pub progress: &'a (dyn Fn(usize, u64, u64) + Sync),
}

/// Takes what a run ended with, from several threads: its number, and its outcome. An error of a session is that of its first
/// run. After an error of this function no further session begins.
pub type Ended<'a> = &'a (dyn Fn(usize, anyhow::Result<FinishedRun>) -> anyhow::Result<()> + Sync);

impl ResultCache {
    /// Carries out the runs of `plan` in `order`, except those whose reports are remembered; remembers the others. A report
    /// that was remembered has no latencies beside it. A session that fails after the stop has no outcome.
    ///
    /// # Errors
    /// The first error of `ended`.
    pub fn carry_out(
        &self,
        plan: &Plan,
        order: &RunOrder,
        conduct: &Conduct<'_>,
        ended: Ended<'_>,
    ) -> anyhow::Result<()> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let one = |session: &[usize]| -> anyhow::Result<()> {
            let progress = |done, total| (conduct.progress)(session[0], done, total);
            let watch = Watch { stop: conduct.stop.clone(), ..Watch::progress(&progress) };
            match self.run_session(&plan.of(session), &watch) {
                Ok(runs) => session.iter().zip(runs).try_for_each(|(run, ran)| ended(*run, Ok(ran))),
                // What a stop interrupted has no outcome.
                Err(_) if conduct.stop.load(Ordering::Relaxed) => Ok(()),
                Err(error) => ended(session[0], Err(error)),
            }
        };
        let worker = || {
            while !conduct.stop.load(Ordering::Relaxed) {
                let Some(session) = order.sessions.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                if let Err(error) = one(session) {
                    next.store(order.sessions.len(), Ordering::Relaxed);
                    failure.lock().expect("nothing panics under it").get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..conduct.threads.clamp(1, order.sessions.len().max(1)) {
                scope.spawn(worker);
            }
        });
        failure.into_inner().expect("no run panicked").map_or(Ok(()), Err)
    }

    /// The reports of all runs of `plan`, as [`carry_out`](ResultCache::carry_out) makes them. A run has none if its session
    /// had not begun when the runs were stopped, or failed after that.
    ///
    /// # Errors
    /// A run failed.
    pub fn reports(
        &self,
        plan: &Plan,
        order: &RunOrder,
        conduct: &Conduct<'_>,
    ) -> anyhow::Result<Vec<Option<Report>>> {
        let reports: Vec<_> = plan.documents().iter().map(|_| Mutex::new(None)).collect();
        self.carry_out(plan, order, conduct, &|run, ended| {
            *reports[run].lock().expect("nothing panics under it") = Some(ended?.whole()?);
            Ok(())
        })?;
        Ok(reports.into_iter().map(|report| report.into_inner().expect("no run panicked")).collect())
    }
}
