//! The rows of a comparison: reports that differ only in their seeds.

use crate::report::Report;
use serde_json::Value;

/// Reports that differ only in their seeds: one row of the table.
pub(super) struct Row<'a>(pub(super) Vec<&'a Report>);

impl Row<'_> {
    /// Was a run of it stopped? The drive may then be in another state than those of the other rows, so its figures are
    /// not compared with theirs.
    pub(super) fn is_stopped(&self) -> bool {
        self.0.iter().any(|report| report.is_stopped)
    }
}

/// Groups reports into rows, in the order of first occurrence.
pub(super) fn rows(reports: &[Report]) -> Vec<Row<'_>> {
    let asked = |report: &Report| {
        let mut config = report.config.clone();
        if let Some(seed) = config.pointer_mut("/run/seed") {
            *seed = Value::Null;
        }
        (report.profile.clone(), config, report.dram_point.clone())
    };
    let mut rows: Vec<(_, Row<'_>)> = Vec::new();
    for report in reports {
        let this = asked(report);
        let same_seed = |row: &Row<'_>| row.0.iter().any(|known| known.seed == report.seed);
        match rows.iter_mut().find(|(known, row)| *known == this && !same_seed(row)) {
            Some((_, row)) => row.0.push(report),
            None => rows.push((this, Row(vec![report]))),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}
