//! The runs of a command: how many and how long, one bar for all of them, and a stop by Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvdrive_results::{Conduct, ResultCache, RunOrder};
use kvdrive_run::operations_of_session;
use kvdrive_run::plan::Plan;
use kvdrive_text::number_of;

use crate::cache::Remember;
use crate::output;
use crate::progress::LoggedBar;

/// Runs at once: as asked, or one for each core.
pub fn jobs(asked: Option<u64>) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or_else(cores, |asked| usize::try_from(asked).unwrap_or(usize::MAX))
}

/// Has the runs of `plan` carried out by `carry_out`, `jobs` at once, until `stop` is set. Refuses runs that cannot be done
/// before it says anything.
pub fn conduct<T>(
    plan: &Plan,
    cache: &ResultCache,
    jobs: usize,
    stop: &Arc<AtomicBool>,
    carry_out: impl FnOnce(&RunOrder, &Conduct<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let order = cache.ahead(plan)?;
    if !plan.documents().is_empty() {
        output::tell(&order.in_words(jobs));
    }
    let bar = TotalBar::new(plan, &order)?;
    let progress = |run, done, total| bar.update(run, done, total);
    let carried_out = carry_out(&order, &Conduct { threads: jobs, stop: stop.clone(), progress: &progress });
    bar.bar.finish();
    Remember::end(cache);
    carried_out
}

/// One bar over the operations of all runs.
struct TotalBar {
    bar: LoggedBar,
    /// For each session, by its first run: the expected number of operations, and the number counted so far.
    sessions: Vec<(u64, AtomicU64)>,
}

impl TotalBar {
    /// A bar for the runs that are not remembered.
    fn new(plan: &Plan, order: &RunOrder) -> anyhow::Result<TotalBar> {
        let (mut total, mut runs) = (0, 0);
        let mut sessions: Vec<_> = plan.documents().iter().map(|_| (0, AtomicU64::new(0))).collect();
        for session in order.to_run() {
            let expected = operations_of_session(&plan.of(session))?;
            sessions[session[0]].0 = expected;
            total += expected;
            runs += session.len();
        }
        Ok(TotalBar { bar: LoggedBar::new(&number_of(runs as u64, "run"), total), sessions })
    }

    /// The session that begins with run `run` has done `done` of `total` operations.
    fn update(&self, run: usize, done: u64, total: u64) {
        let (expected, counted) = &self.sessions[run];
        let now = of_the_expected(*expected, done, total);
        let before = counted.swap(now, Ordering::Relaxed);
        self.bar.advance(now.saturating_sub(before));
    }
}

/// Number of the expected operations of a session that are done. A session that ends by its duration has more
/// operations in its configuration than it ever does, and reports at its end that all are done.
fn of_the_expected(expected: u64, done: u64, total: u64) -> u64 {
    if done >= total { expected } else { done.min(expected) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_session_counts_for_no_more_than_is_expected_of_it_and_for_all_of_it_at_its_end() {
        let of = |done| super::of_the_expected(1_000, done, 1_000_000_000);
        assert_eq!([0, 400, 5_000, 1_000_000_000].map(of), [0, 400, 1_000, 1_000]);
        assert_eq!(super::of_the_expected(1_000, 900, 900), 1_000);
    }
}
