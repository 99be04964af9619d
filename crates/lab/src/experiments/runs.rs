//! The runs that figures and claims need, each done once however many ask for it.
//!
//! A [`Plan`] collects settings and hands out numbers of runs; the same settings are the same run. [`Plan::run`] has
//! them all done and yields [`Results`], from which numbers are read by expression. Who runs them, on how many
//! threads, with what progress shown, is the caller's business.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::expression::Expression;
use crate::config::Document;
use crate::report::Report;

/// A run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(usize);

/// What distinguishes a run from the profile it begins with: keys and values, in order.
pub type Assignments = Vec<(String, String)>;

/// How many operations a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// By default: enough for what the run is asked for.
    pub usual: u64,
    /// With `--full`: what the source used.
    pub full: u64,
}

/// How a plan departs from what the files of experiments and claims say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Published counts instead of the usual ones.
    pub full: bool,
    /// `KEY=VALUE`, laid over every run.
    pub set: Vec<String>,
}

/// Runs to be done.
#[derive(Debug, Default)]
pub struct Plan {
    options: Options,
    documents: Vec<Document>,
    /// Profile and typed configuration as JSON: two documents that differ in neither are one run.
    known: BTreeMap<String, RunId>,
}

impl Plan {
    /// An empty plan.
    pub fn new(options: Options) -> Plan {
        Plan { options, ..Plan::default() }
    }

    /// The number of the run with these settings, a new one if no other has them.
    ///
    /// # Errors
    /// One line: a setting the configuration does not know or allow.
    pub fn add(&mut self, profile: &str, counts: Counts, settings: &Assignments) -> anyhow::Result<RunId> {
        let mut document = Document::profile(profile)?;
        let ops = if self.options.full { counts.full } else { counts.usual };
        document.set(&format!("workload.ops={ops}"))?;
        for (key, value) in settings {
            document.set(&format!("{key}={value}"))?;
        }
        for assignment in &self.options.set {
            document.set(assignment)?;
        }
        let identity = format!("{profile} {}", serde_json::to_string(&document.config()?)?);
        let next = RunId(self.documents.len());
        let run = *self.known.entry(identity).or_insert(next);
        if run == next {
            self.documents.push(document);
        }
        Ok(run)
    }

    /// The configuration of every run.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Has every run done by `run_all`, which takes documents and yields their reports in the same order.
    ///
    /// # Errors
    /// A run that failed, or one with operations that did: numbers of such a run mean nothing.
    pub fn run(
        self,
        run_all: impl FnOnce(&[Document]) -> anyhow::Result<Vec<Report>>,
    ) -> anyhow::Result<Results> {
        // The longest first, so that no thread is left with a long one at the end.
        let mut order: Vec<usize> = (0..self.documents.len()).collect();
        let ops = self
            .documents
            .iter()
            .map(|d| Ok(d.config()?.workload.ops))
            .collect::<anyhow::Result<Vec<_>>>()?;
        order.sort_by_key(|&index| std::cmp::Reverse(ops[index]));
        let sorted: Vec<Document> = order.iter().map(|&index| self.documents[index].clone()).collect();
        let reports = run_all(&sorted)?;
        let mut done: Vec<(usize, Report)> = order.into_iter().zip(reports).collect();
        done.sort_by_key(|(index, _)| *index);
        Results::new(done.into_iter().map(|(_, report)| report).collect())
    }
}

/// What the runs of a plan yielded.
#[derive(Debug)]
pub struct Results {
    reports: Vec<Report>,
    /// The reports again, as names and numbers.
    trees: Vec<Value>,
}

impl Results {
    fn new(reports: Vec<Report>) -> anyhow::Result<Results> {
        for report in &reports {
            if report.ops.errors > 0 {
                let what = report.config.pointer("/workload/name").and_then(Value::as_str).unwrap_or("?");
                let first = report.notes.last().map_or("", String::as_str);
                bail!("{what} on {}: {} operations failed; {first}", report.profile, report.ops.errors);
            }
        }
        let trees =
            reports.iter().map(serde_json::to_value).collect::<Result<_, _>>().context("a report as JSON")?;
        Ok(Results { reports, trees })
    }

    /// The report of a run.
    pub fn report(&self, run: RunId) -> &Report {
        &self.reports[run.0]
    }

    /// Every report, in the order in which the runs were first asked for.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// The value of an expression whose names are keys of the report, `traffic.payload_bytes.total`.
    ///
    /// # Errors
    /// One line: a name that is no number of the report.
    pub fn number(&self, run: RunId, expression: &Expression) -> anyhow::Result<f64> {
        let tree = &self.trees[run.0];
        let names = |name: &str| {
            number_at(tree, name).ok_or_else(|| format!("{name}: no number of that name in the report"))
        };
        expression.value(&names).map_err(|problem| anyhow!("{expression}: {problem}"))
    }
}

/// The number at a dotted path. Names of the report may hold dots themselves (`resources.host.core.busy_fraction`).
fn number_at(tree: &Value, path: &str) -> Option<f64> {
    let Value::Object(map) = tree else { return None };
    map.iter().find_map(|(name, value)| {
        let rest = path.strip_prefix(name.as_str())?;
        match rest.strip_prefix('.') {
            Some(rest) => number_at(value, rest),
            None if rest.is_empty() => value.as_f64(),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_below_names_with_dots() {
        let tree = serde_json::json!({"a": {"b": 1, "b.c": {"d": 2}}, "a.b": 3, "t": "x"});
        assert_eq!(number_at(&tree, "a.b"), Some(1.0));
        assert_eq!(number_at(&tree, "a.b.c.d"), Some(2.0));
        assert_eq!(number_at(&tree, "t"), None);
        assert_eq!(number_at(&tree, "a"), None);
        assert_eq!(number_at(&tree, "ab"), None);
    }

    #[test]
    fn the_same_settings_are_the_same_run() {
        let set = |pairs: &[(&str, &str)]| -> Assignments {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let counts = Counts { usual: 10, full: 20 };
        let mut plan = Plan::new(Options::default());
        let a = plan
            .add("cosmos-plus", counts, &set(&[("host.transfer", "prp"), ("nand.enabled", "false")]))
            .unwrap();
        let b = plan
            .add("cosmos-plus", counts, &set(&[("nand.enabled", "false"), ("host.transfer", "prp")]))
            .unwrap();
        let c = plan.add("cosmos-plus", counts, &set(&[("host.transfer", "prp")])).unwrap();
        assert_eq!(a, b);
        assert_ne!(a, c);
        let wrong = plan.add("cosmos-plus", counts, &set(&[("host.transfers", "prp")])).unwrap_err();
        assert!(wrong.to_string().starts_with("host.transfers: unknown key"), "{wrong}");
        let ops: Vec<_> = plan.documents().iter().map(|d| d.config().unwrap().workload.ops).collect();
        assert_eq!(ops, [10, 10]);
    }

    #[test]
    fn reports_come_back_in_the_order_of_the_plan_and_failed_ones_not_at_all() {
        let mut plan = Plan::new(Options { full: true, set: vec!["run.seed=9".into()] });
        let short = plan.add("cosmos-plus", Counts { usual: 1, full: 2 }, &vec![]).unwrap();
        let long = plan.add("cosmos-plus", Counts { usual: 1, full: 3 }, &vec![]).unwrap();
        let report = |document: &Document| {
            let config = document.config().unwrap();
            Report {
                seed: config.run.seed,
                value_bytes: crate::report::ValueBytes { stored: config.workload.ops, retrieved: 0 },
                ..Report::default()
            }
        };
        let results = plan.run(|documents| {
            assert_eq!(documents[0].config().unwrap().workload.ops, 3, "the longest run begins");
            Ok(documents.iter().map(report).collect())
        });
        let results = results.unwrap();
        let stored = Expression::parse("value_bytes.stored + seed").unwrap();
        assert_eq!(results.number(short, &stored).unwrap(), 11.0);
        assert_eq!(results.number(long, &stored).unwrap(), 12.0);
        let unknown = Expression::parse("value_bytes.kept").unwrap();
        assert!(
            results.number(long, &unknown).unwrap_err().to_string().contains("value_bytes.kept: no number")
        );

        let mut plan = Plan::new(Options::default());
        plan.add("cosmos-plus", Counts { usual: 1, full: 1 }, &vec![]).unwrap();
        let failed = plan.run(|_| {
            let ops = crate::report::Ops { errors: 2, ..Default::default() };
            Ok(vec![Report { ops, notes: vec!["first of 2 errors".into()], ..Report::default() }])
        });
        assert!(failed.unwrap_err().to_string().contains("2 operations failed"));
    }
}
