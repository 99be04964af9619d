//! A run against a drive that is not in this program, for tests.

use kvdrive_config::Document;
use kvdrive_host::reach::Remote;
use kvdrive_run::report::{Report, Target};
use kvdrive_run::wall::connected::run_connected;
use kvdrive_run::{FinishedRun, Watch};

/// A run that checks every value that it reads.
pub fn run_at(address: &str, profile: &str, settings: &[&str]) -> anyhow::Result<(Vec<Target>, Report)> {
    let mut document = Document::profile(profile)?;
    let all = ["run.clock=wall", "workload.name=mixed", "workload.verify=values", "workload.value_size=120"];
    let mixed = ["workload.read_fraction=0.3", "workload.delete_fraction=0.1", "workload.num=300"];
    for set in all.iter().chain(&mixed).chain(settings) {
        document.set(set)?;
    }
    let remote = Remote { address: address.to_owned(), ..Remote::default() };
    let (targets, FinishedRun { report, failure, .. }) =
        run_connected(&document, &[remote], false, &Watch::progress(&|_, _| ()))?;
    failure.map_or(Ok(()), Err)?;
    assert_eq!(report.ops.errors, 0, "{:?}", report.notes);
    let verified = report.verified.as_ref().expect("it was asked for");
    assert!(verified.is_whole() && verified.checked > 100, "{verified:?}");
    Ok((targets, report))
}
