//! Many runs at once: each is single-threaded and knows nothing of the others, so they spread over the machine's cores
//! and every report is the same as alone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::Document;
use crate::report::Report;
use crate::run::run;

/// Runs every document on up to `threads` threads; reports in the order of the documents.
///
/// `progress` is called with the number of the run, operations done and operations in all, from several threads.
pub fn run_many(
    documents: &[Document],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
) -> anyhow::Result<Vec<Report>> {
    let reports: Vec<Mutex<Option<anyhow::Result<Report>>>> =
        documents.iter().map(|_| Mutex::new(None)).collect();
    run_each(documents, threads, progress, &|index, report| {
        *reports[index].lock().expect("a run that panics ends the program") = Some(report);
        true
    });
    let taken = reports.into_iter().map(|slot| slot.into_inner().expect("no run panicked"));
    taken.map(|report| report.expect("every run has ended")).collect()
}

/// As [`run_many`], but hands each report to `ended` with the number of its run as soon as there is one, from several
/// threads. No further run begins once `ended` has said false.
pub fn run_each(
    documents: &[Document],
    threads: usize,
    progress: &(dyn Fn(usize, u64, u64) + Sync),
    ended: &(dyn Fn(usize, anyhow::Result<Report>) -> bool + Sync),
) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, documents.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(document) = documents.get(index) else { return };
                    let report = run(document, &|done, total| progress(index, done, total));
                    if !ended(index, report) {
                        next.store(documents.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
}
