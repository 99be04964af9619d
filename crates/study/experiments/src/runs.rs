//! The runs that figures and claims need; each is done once, however many of them need it.
//!
//! A [`StudyPlan`] collects settings and makes a [`Plan`] of them, in which equal settings are the same run. Runs that
//! follow each other on one drive are requested together, as a session. [`StudyPlan::run`] has all of them carried out
//! by its caller and yields [`Results`], from which expressions read numbers.

mod over_time;

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail, ensure};
use kvdrive_flash::Purpose;
use serde_json::Value;

use super::expression::Expression;
use kvdrive_config::{Assigned, Document, Scale};
use kvdrive_run::operations_of_session;
use kvdrive_run::plan::Plan;
use kvdrive_run::report::Report;

/// The name of [`Results::change`] in expressions.
const CHANGE: &str = "series.ops.change";

/// A run of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(usize);

/// The differences between a run and the profile it begins with: keys and values, in order.
pub type Assignments = Vec<(String, String)>;

/// How many operations a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The default count.
    pub usual: u64,
    /// The count that the source used.
    pub full: u64,
}

/// Which counts of operations are used, and at which size grids with a scale run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// Few: results in about a minute, which leave claims open that need more operations.
    Quick,
    /// As in the files: enough for every claim.
    #[default]
    Usual,
    /// As published.
    Full,
}

/// Most operations of a quick run.
const QUICK_OPS: u64 = 5_000;

impl Counts {
    fn of(self, extent: Extent) -> u64 {
        match extent {
            Extent::Quick => self.usual.min(QUICK_OPS),
            Extent::Usual => self.usual,
            Extent::Full => self.full,
        }
    }
}

/// How a plan differs from the files of experiments and claims.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many operations, and at which size.
    pub extent: Extent,
    /// Another size for runs that have a scale.
    pub scale: Option<Scale>,
    /// `KEY=VALUE`, which overrides the settings of every run.
    pub set: Vec<String>,
    /// Seeds instead of those in the files; mean and spread over them are shown. Empty: the seeds in the
    /// files.
    pub seeds: Vec<u64>,
}

impl Options {
    fn settings(&self) -> impl Iterator<Item = (String, String)> {
        self.set.iter().map(|assignment| (assignment.clone(), assignment.clone()))
    }

    /// Are runs as in the files?
    pub fn as_usual(&self) -> bool {
        self.extent == Extent::Usual && self.set.is_empty() && self.scale.is_none() && self.seeds.is_empty()
    }

    /// Have runs neither the usual nor the published size, or settings that override those of their figure? Then no
    /// claim is expected to hold or to fail.
    pub fn is_altered(&self) -> bool {
        !self.set.is_empty()
            || !self.seeds.is_empty()
            || self.scale.is_some_and(|scale| self.extent != Extent::Full && scale != Scale::FULL)
    }

    /// The size of runs that have a scale.
    pub fn scale(&self, usual: Scale) -> Scale {
        self.scale.unwrap_or(match self.extent {
            Extent::Quick => usual.quarter(),
            Extent::Usual => usual,
            Extent::Full => Scale::FULL,
        })
    }
}

/// A requested run.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Profile it begins with.
    pub profile: String,
    /// Operations.
    pub counts: Counts,
    /// Settings that override the profile's; at full size if there is a scale.
    pub settings: Assignments,
    /// Scale of the run, if it can be shrunk.
    pub scale: Option<Scale>,
    /// Keys in which the run differs from others of its grid, and what each of them distinguishes. Labels of
    /// the figure depend on these keys, so options must not override them.
    pub own: Vec<(String, String)>,
}

/// Settings that override those of every run within a scope, also the settings by which the series of a
/// figure differ.
#[derive(Clone, Debug)]
pub struct Alteration {
    /// The scope: only runs with these settings are altered.
    pub within: Assignments,
    /// The settings that override those of such a run.
    pub set: Assignments,
}

impl Alteration {
    /// Applies the alteration to a run, if the run is within its scope, reads these settings and has other
    /// values of them. Returns whether it was applied.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn lay_over(&self, document: &mut Document) -> anyhow::Result<bool> {
        if self.within.iter().any(|(key, value)| document.plain(key).as_ref() != Some(value)) {
            return Ok(false);
        }
        let config = document.config()?;
        let mut is_altered = false;
        for (key, value) in &self.set {
            let before = document.plain(key);
            if config.ignores(key).is_none() {
                document.set(&format!("{key}={value}"))?;
                is_altered |= document.plain(key) != before;
            }
        }
        Ok(is_altered)
    }
}

/// Runs to be done.
#[derive(Clone, Debug, Default)]
pub struct StudyPlan {
    options: Options,
    runs: Plan,
    /// Runs by the text of their settings and alterations: many claims request the same run, once for each
    /// mutant.
    asked: BTreeMap<String, Vec<RunId>>,
    /// Documents by the text of their settings, before options and alterations.
    as_asked: BTreeMap<String, Document>,
    scales: Vec<Scale>,
    /// Operations of all sessions, loads included; counted for a quick plan alone.
    operations: u64,
    /// Applied to runs that are requested from now on.
    alteration: Option<Alteration>,
    /// Seed of runs that are requested from now on, unless their own settings have one.
    seed: Option<u64>,
}

impl StudyPlan {
    /// An empty plan.
    pub fn new(options: Options) -> StudyPlan {
        StudyPlan { seed: options.seeds.first().copied(), options, ..StudyPlan::default() }
    }

    /// The number of the run with these settings; a new number if no run has them.
    ///
    /// # Errors
    /// One line: the configuration has no such setting, or does not allow its value.
    pub fn add(&mut self, profile: &str, counts: Counts, settings: &Assignments) -> anyhow::Result<RunId> {
        let (profile, settings) = (profile.to_owned(), settings.clone());
        let asked = Asked { profile, counts, settings, scale: None, own: Vec::new() };
        Ok(self.add_session(&[asked])?[0])
    }

    /// The numbers of runs that follow each other on one drive.
    ///
    /// # Errors
    /// As [`add`](StudyPlan::add).
    pub fn add_session(&mut self, asked: &[Asked]) -> anyhow::Result<Vec<RunId>> {
        let ask = format!("{asked:?} {:?} {:?}", self.seed, self.alteration);
        if let Some(known) = self.asked.get(&ask) {
            return Ok(known.clone());
        }
        let runs = self.add_new(asked)?;
        self.asked.insert(ask, runs.clone());
        Ok(runs)
    }

    fn add_new(&mut self, asked: &[Asked]) -> anyhow::Result<Vec<RunId>> {
        let documents = asked.iter().map(|asked| self.document(asked)).collect::<anyhow::Result<Vec<_>>>()?;
        let (runs, is_new) = self.runs.add(documents)?;
        if is_new {
            if self.options.extent == Extent::Quick {
                self.operations += operations_of_session(&self.runs.of(&runs))?;
            }
            for asked in asked {
                let scale = asked.scale.map(|usual| self.options.scale(usual));
                self.scales.extend(scale.filter(|scale| !self.scales.contains(scale)));
            }
        }
        Ok(runs.into_iter().map(RunId).collect())
    }

    /// Sets the alteration of runs that are requested from now on, or removes it.
    pub fn alter(&mut self, alteration: Option<Alteration>) {
        self.alteration = alteration;
    }

    /// Sets the seed of runs that are requested from now on, unless their own settings have one.
    pub fn seed(&mut self, seed: Option<u64>) {
        self.seed = seed;
    }

    /// The document of a requested run, before alteration and scale.
    fn as_asked(&mut self, asked: &Asked) -> anyhow::Result<Document> {
        let Asked { profile, counts, settings, scale, .. } = asked;
        let name = format!("{profile:?} {counts:?} {settings:?} {scale:?} {:?}", self.seed);
        if let Some(document) = self.as_asked.get(&name) {
            return Ok(document.clone());
        }
        let mut document = Document::profile(profile)?;
        // A run with a scale gets its size from the scale.
        let extent = match (self.options.extent, scale) {
            (Extent::Quick, Some(_)) => Extent::Usual,
            (extent, _) => extent,
        };
        document.set(&format!("workload.ops={}", counts.of(extent)))?;
        if let Some(seed) = self.seed {
            document.set(&format!("run.seed={seed}"))?;
        }
        for (key, value) in settings {
            document.set(&format!("{key}={value}"))?;
        }
        self.as_asked.insert(name, document.clone());
        Ok(document)
    }

    fn document(&mut self, asked: &Asked) -> anyhow::Result<Document> {
        let mut document = self.as_asked(asked)?;
        if let Some(alteration) = &self.alteration {
            alteration.lay_over(&mut document)?;
        }
        if let Some(usual) = asked.scale {
            let scale = self.options.scale(usual);
            document.shrink(scale)?;
            scale.check(&document.config()?)?;
        }
        self.lay_over(&mut document, asked)?;
        Ok(document)
    }

    /// Applies options to a run. A preset sets many keys, so each value is compared to see whether it
    /// changes.
    fn lay_over(&self, document: &mut Document, asked: &Asked) -> anyhow::Result<()> {
        if self.options.set.is_empty() {
            return Ok(());
        }
        document.config()?;
        let before = document.values();
        Assigned::lay_over(document, self.options.settings())?;
        document.config()?;
        let after = document.values();
        for (key, what) in &asked.own {
            let pointer = format!("/{}", key.replace('.', "/"));
            let is_same = before.pointer(&pointer) == after.pointer(&pointer);
            ensure!(is_same, "{key} is {what}, and cannot be set for all runs");
        }
        Ok(())
    }

    /// How it differs from the files.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Operations of all runs of a quick plan, loads included.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Sizes of the runs that have a scale.
    pub fn scales(&self) -> &[Scale] {
        &self.scales
    }

    /// The runs.
    pub fn runs(&self) -> &Plan {
        &self.runs
    }

    /// Refuses runs that cannot be done, before any of them is done.
    ///
    /// # Errors
    /// A setting that no run reads, and as [`Plan::check`].
    pub fn check(&self) -> anyhow::Result<()> {
        let documents = self.runs.documents();
        if let Some(first) = documents.first() {
            let configs = documents.iter().map(Document::config).collect::<Result<Vec<_>, _>>()?;
            Assigned::lay_over(&mut first.clone(), self.options.settings())?.check_looked_at(&configs)?;
        }
        self.runs.check()
    }

    /// Has every run carried out by `carry_out`, which returns the reports in the order of the documents, and none of a
    /// run that has not ended because it was stopped.
    ///
    /// # Errors
    /// A run failed, or an operation of one, so that its numbers have no meaning.
    pub fn run(
        self,
        carry_out: impl FnOnce(&Plan) -> anyhow::Result<Vec<Option<Report>>>,
    ) -> anyhow::Result<Results> {
        Results::new(carry_out(&self.runs)?)
    }
}

/// The reports of the runs of a plan.
#[derive(Debug)]
pub struct Results {
    /// `None`: the run has not ended.
    reports: Vec<Option<Report>>,
    /// The same reports as trees of names and numbers.
    trees: Vec<Value>,
}

impl Results {
    fn new(reports: Vec<Option<Report>>) -> anyhow::Result<Results> {
        for report in reports.iter().flatten() {
            if report.ops.errors > 0 {
                let what = report.config.pointer("/workload/name").and_then(Value::as_str).unwrap_or("?");
                let first = report.notes.iter().find(|note| note.starts_with("first of "));
                let first = first.map_or("", String::as_str);
                bail!("{what} on {}: {} operations failed; {first}", report.profile, report.ops.errors);
            }
        }
        let trees =
            reports.iter().map(serde_json::to_value).collect::<Result<_, _>>().context("a report as JSON")?;
        Ok(Results { reports, trees })
    }

    /// Has a run ended, so that it has a report?
    pub fn has_ended(&self, run: RunId) -> bool {
        self.reports[run.0].is_some()
    }

    /// The report of a run that has ended.
    pub fn report(&self, run: RunId) -> &Report {
        self.reports[run.0].as_ref().expect("the run has ended")
    }

    /// Every report, in the order in which the runs were first requested.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().flatten()
    }

    /// The value of an expression over keys of the report, such as `traffic.payload_bytes.total`.
    ///
    /// # Errors
    /// One line: the name of no number in the report.
    pub fn number(&self, run: RunId, expression: &Expression) -> anyhow::Result<f64> {
        let tree = &self.trees[run.0];
        let names = |name: &str| match leaf_at(tree, name) {
            None if name == CHANGE => self.change(run).map_err(|problem| problem.to_string()),
            Some(Value::Null) => {
                Err(format!("{name}: null in this report: there was nothing that it could be of"))
            }
            leaf => leaf
                .and_then(Value::as_f64)
                .or_else(|| is_purpose(name).then_some(0.0))
                .ok_or_else(|| format!("{name}: no number of that name in the report")),
        };
        expression.value(&names).map_err(|problem| anyhow!("{expression}: {problem}"))
    }
}

/// Is this the name of a count of flash operations by purpose? A report lacks purposes without operations.
fn is_purpose(name: &str) -> bool {
    let name = name.strip_prefix("precondition.").unwrap_or(name);
    let purpose =
        ["nand.programs.", "nand.reads.", "nand.erases."].iter().find_map(|counts| name.strip_prefix(counts));
    purpose.is_some_and(|purpose| Purpose::ALL.iter().any(|(_, known)| *known == purpose))
}

/// The number, text or null at a dotted path. Names of the report may contain dots themselves
/// (`resources.host.core.busy_fraction`).
fn leaf_at<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    let Value::Object(map) = tree else { return None };
    map.iter().find_map(|(name, value)| {
        let rest = path.strip_prefix(name.as_str())?;
        match rest.strip_prefix('.') {
            Some(rest) => leaf_at(value, rest),
            None => (rest.is_empty() && !value.is_object()).then_some(value),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_below_names_with_dots() {
        let tree = serde_json::json!({"a": {"b": 1, "b.c": {"d": 2}}, "a.b": 3, "t": "x"});
        let number_at = |path: &str| leaf_at(&tree, path).and_then(Value::as_f64);
        assert_eq!(number_at("a.b"), Some(1.0));
        assert_eq!(number_at("a.b.c.d"), Some(2.0));
        assert_eq!(number_at("t"), None);
        assert_eq!(number_at("a"), None);
        assert_eq!(number_at("ab"), None);
    }

    #[test]
    fn the_same_settings_are_the_same_run() {
        let set = |pairs: &[(&str, &str)]| -> Assignments {
            pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
        };
        let counts = Counts { usual: 10, full: 20 };
        let mut plan = StudyPlan::new(Options::default());
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
        let ops: Vec<_> = plan.runs().documents().iter().map(|d| d.config().unwrap().workload.ops).collect();
        assert_eq!(ops, [10, 10]);
    }

    #[test]
    fn sessions_are_told_apart_by_all_their_runs_and_shrink_as_asked() {
        let counts = Counts { usual: 1280, full: 12_800 };
        let asked = |names: &[&str]| -> Vec<Asked> {
            let one = |name: &&str| Asked {
                profile: "kvvirt".into(),
                counts,
                settings: vec![("workload.name".into(), name.to_string())],
                scale: Some("1/64".parse().unwrap()),
                own: vec![],
            };
            names.iter().map(one).collect()
        };
        let ops = |plan: &StudyPlan| {
            plan.runs().documents().iter().map(|d| d.config().unwrap().workload.ops).collect::<Vec<_>>()
        };
        let mut plan = StudyPlan::new(Options::default());
        let both = plan.add_session(&asked(&["plus-a", "plus-c"])).unwrap();
        assert_eq!(plan.add_session(&asked(&["plus-a", "plus-c"])).unwrap(), both);
        let alone = plan.add_session(&asked(&["plus-c"])).unwrap();
        assert!(!both.contains(&alone[0]), "after another run it is another run");
        assert_eq!((ops(&plan), plan.runs().sessions().len()), (vec![20, 20, 20], 2));
        assert_eq!(plan.scales(), ["1/64".parse().unwrap()]);
        for (options, expected) in [
            (Options { extent: Extent::Full, ..Options::default() }, 12_800),
            (Options { extent: Extent::Quick, ..Options::default() }, 1280 / 128),
            (Options { scale: Some("1/128".parse().unwrap()), ..Options::default() }, 10),
            (
                Options { extent: Extent::Full, scale: Some("1/128".parse().unwrap()), ..Options::default() },
                100,
            ),
        ] {
            let mut plan = StudyPlan::new(options);
            plan.add_session(&asked(&["plus-a"])).unwrap();
            assert_eq!(ops(&plan), [expected]);
        }
    }

    #[test]
    fn what_did_not_happen_is_none() {
        let mut plan = StudyPlan::new(Options::default());
        let run = plan.add("cosmos-plus", Counts { usual: 1, full: 1 }, &vec![]).unwrap();
        let results = plan.run(|_| Ok(vec![Some(Report::default())])).unwrap();
        let number = |text| results.number(run, &Expression::parse(text).unwrap());
        assert_eq!(number("nand.reads.gc_map + nand.programs.map").unwrap(), 0.0);
        assert!(number("nand.reads.gc_mop").is_err());
        let null = number("amplification.write").unwrap_err().to_string();
        assert!(null.contains("amplification.write: null in this report"), "{null}");
    }

    #[test]
    fn reports_come_back_in_the_order_of_the_plan_and_failed_ones_not_at_all() {
        let mut plan = StudyPlan::new(Options {
            extent: Extent::Full,
            set: vec!["run.seed=9".into()],
            ..Options::default()
        });
        let short = plan.add("cosmos-plus", Counts { usual: 1, full: 2 }, &vec![]).unwrap();
        let long = plan.add("cosmos-plus", Counts { usual: 1, full: 3 }, &vec![]).unwrap();
        let report = |document: &Document| {
            let config = document.config().unwrap();
            Report {
                seed: config.run.seed,
                value_bytes: kvdrive_run::report::ValueBytes { stored: config.workload.ops, retrieved: 0 },
                ..Report::default()
            }
        };
        let results = plan.run(|plan| {
            assert_eq!(plan.sessions(), [[0], [1]]);
            Ok(plan.documents().iter().map(|document| Some(report(document))).collect())
        });
        let results = results.unwrap();
        let stored = Expression::parse("value_bytes.stored + seed").unwrap();
        assert_eq!(results.number(short, &stored).unwrap(), 11.0);
        assert_eq!(results.number(long, &stored).unwrap(), 12.0);
        let unknown = Expression::parse("value_bytes.kept").unwrap();
        assert!(
            results.number(long, &unknown).unwrap_err().to_string().contains("value_bytes.kept: no number")
        );

        let mut plan = StudyPlan::new(Options::default());
        plan.add("cosmos-plus", Counts { usual: 1, full: 1 }, &vec![]).unwrap();
        let failed = plan.run(|_| {
            let ops = kvdrive_run::report::Ops { errors: 2, ..Default::default() };
            Ok(vec![Some(Report { ops, notes: vec!["first of 2 errors".into()], ..Report::default() })])
        });
        assert!(failed.unwrap_err().to_string().contains("2 operations failed"));
    }
}
