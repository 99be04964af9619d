//! Wrong implementations, and the claims that notice them: a claim that is reproduced whatever the drive does
//! proves nothing.
//!
//! A mutant is a row of a TOML file of `mutants/`: its flaw, the runs that contain it, and the settings that cause it.
//! These settings are applied to a run last and override also those that define a series, so that `backfill` can be
//! `selective` under its own name; the report of such a run has them in its configuration like any other. A claim
//! notices a mutant if its verdict differs from the one without it, or if a number of it is missing. Further seeds and
//! conditions are left out.
//!
//! ```toml
//! [[mutant]]
//! id = "backfill-is-selective"
//! what = "backfill fills no gaps"
//! where = ["packing.policy=backfill"]     # runs that have all of these; none: every run
//! set = ["packing.policy=selective"]
//! only = ["backfill-"]                    # claims whose ids begin so; none: all but those the file leaves out
//! ```

use std::fmt::Write;

use anyhow::{anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use super::{Planned, Standing, Suite};
use kvdrive_config::{Document, PROFILES};
use kvdrive_experiments::runs::{Alteration, Options, Results, StudyPlan};
use kvdrive_experiments::{Figure, assignments, from_toml};
use kvdrive_text::{WIDTH, wrap};

/// The embedded files with their names.
pub static FILES: &[(&str, &str)] = &[
    ("anykey.toml", include_str!("../mutants/anykey.toml")),
    ("bandslim.toml", include_str!("../mutants/bandslim.toml")),
    ("pink.toml", include_str!("../mutants/pink.toml")),
    ("plus.toml", include_str!("../mutants/plus.toml")),
    ("pm983.toml", include_str!("../mutants/pm983.toml")),
    ("saker.toml", include_str!("../mutants/saker.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    suite: String,
    #[serde(default)]
    leave_out: Vec<String>,
    mutant: Vec<RawMutant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMutant {
    id: String,
    what: String,
    #[serde(default, rename = "where")]
    within: Vec<String>,
    set: Vec<String>,
    #[serde(default)]
    only: Vec<String>,
}

/// A wrong implementation.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Name, unique within its suite.
    pub id: String,
    /// What is wrong.
    pub what: String,
    /// The runs that it is in, and the settings that make them wrong.
    alteration: Alteration,
    only: Vec<String>,
}

/// The mutants of a suite.
#[derive(Clone, Debug)]
pub struct Mutants {
    /// In the order of the file.
    pub list: Vec<Mutant>,
    /// Claims whose ids have these prefixes are left out, unless a mutant names them.
    pub leave_out: Vec<String>,
}

/// The mutants of the suite of that name.
///
/// # Errors
/// There is no such suite of mutants, or an embedded file is wrong (a test reads them all).
pub fn mutants(suite: &str) -> anyhow::Result<Mutants> {
    for (file, text) in FILES {
        let (name, mutants) = parse(file, text)?;
        if name == suite {
            return Ok(mutants);
        }
    }
    bail!("no mutants of the suite {suite}")
}

/// Parses one file; `name` is the file's, for messages. Returns the suite that it belongs to.
///
/// # Errors
/// One line: the text is not TOML, a key is unknown or missing, or the configuration has no such setting.
pub fn parse(name: &str, text: &str) -> anyhow::Result<(String, Mutants)> {
    let raw: RawFile = from_toml(name, text)?;
    let mut list: Vec<Mutant> = Vec::new();
    for mutant in raw.mutant {
        let id = mutant.id.clone();
        ensure!(list.iter().all(|known| known.id != id), "{name}: mutant {id} twice");
        list.push(mutant.check().map_err(|problem| anyhow!("{name}: mutant {id}: {problem}"))?);
    }
    Ok((raw.suite, Mutants { list, leave_out: raw.leave_out }))
}

impl RawMutant {
    fn check(self) -> anyhow::Result<Mutant> {
        ensure!(!self.set.is_empty(), "sets nothing");
        let (within, set) = (assignments(&self.within)?, assignments(&self.set)?);
        let mut document = Document::profile(PROFILES[0].name)?;
        for (key, value) in &set {
            document.set(&format!("{key}={value}"))?;
        }
        // In the form of documents: 4 KiB and 4096 are the same.
        let plain = |(key, value): (String, String)| {
            document.set(&format!("{key}={value}"))?;
            let value = document.plain(&key).unwrap_or(value);
            Ok((key, value))
        };
        let within = within.into_iter().map(plain).collect::<anyhow::Result<_>>()?;
        Ok(Mutant { id: self.id, what: self.what, alteration: Alteration { within, set }, only: self.only })
    }
}

impl Mutant {
    fn is_in(&self, documents: &[Document]) -> anyhow::Result<bool> {
        for document in documents {
            if self.alteration.lay_over(&mut document.clone())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn asks(&self, id: &str, leave_out: &[String]) -> bool {
        let begins = |names: &[String]| names.iter().any(|name| id.starts_with(name.as_str()));
        if self.only.is_empty() { !begins(leave_out) } else { begins(&self.only) }
    }
}

/// A mutant with the claims whose runs it is in.
#[derive(Debug)]
pub struct Trial {
    mutant: Mutant,
    claims: Vec<Both>,
}

/// A claim without a mutant and with it.
#[derive(Debug)]
struct Both {
    usual: Planned,
    wrong: Planned,
}

/// Asks `plan` for the runs of every claim that a mutant could alter.
///
/// # Errors
/// No figure has the place, or a setting is wrong.
pub fn plan(
    suite: &Suite,
    mutants: Mutants,
    figures: &[Figure],
    plan: &mut StudyPlan,
    options: &Options,
) -> anyhow::Result<Vec<Trial>> {
    // The claims without the mutant: their runs show whether the mutant is in any of them.
    let mut claims = Vec::new();
    for claim in &suite.claims {
        let mut claim = claim.clone();
        claim.seeds.clear();
        claim.emulator = None;
        claim.beside.clear();
        let mut alone = StudyPlan::new(options.clone());
        Planned::new(claim.clone(), figures, &mut alone, options)?;
        claims.push((claim, alone.runs().documents().to_vec()));
    }
    let mut trials = Vec::new();
    for mutant in mutants.list {
        let mut both = Vec::new();
        for (claim, documents) in claims.iter().filter(|(it, _)| mutant.asks(&it.id, &mutants.leave_out)) {
            if mutant.is_in(documents)? {
                plan.alter(Some(mutant.alteration.clone()));
                let wrong = Planned::new(claim.clone(), figures, plan, options)?;
                plan.alter(None);
                both.push(Both { usual: Planned::new(claim.clone(), figures, plan, options)?, wrong });
            }
        }
        trials.push(Trial { mutant, claims: both });
    }
    Ok(trials)
}

/// A mutant and the claims that notice it.
#[derive(Clone, Debug, Serialize)]
pub struct Noticed {
    /// Name of the mutant.
    pub mutant: String,
    /// What is wrong.
    pub what: String,
    /// Number of claims with a run that it is in.
    pub looked_at_by: usize,
    /// Claims that notice it.
    pub claims: Vec<NoticedBy>,
}

/// A claim that notices a mutant.
#[derive(Clone, Debug, Serialize)]
pub struct NoticedBy {
    /// Name of the claim.
    pub claim: String,
    /// The standing of its verdict.
    pub standing: Standing,
    /// The result of a claim under the mutant: the verdict with our value, or why there is none.
    pub verdict: String,
}

impl Noticed {
    /// Is it noticed by a published claim?
    pub fn by_published(&self) -> bool {
        self.claims.iter().any(|claim| claim.standing != Standing::Ours)
    }
}

impl Trial {
    /// Name of the mutant.
    pub fn id(&self) -> &str {
        &self.mutant.id
    }

    /// Number of published claims with a run that the mutant is in.
    pub fn published(&self) -> usize {
        self.claims.iter().filter(|both| both.usual.claim().standing() != Standing::Ours).count()
    }

    /// The claims that notice.
    ///
    /// # Errors
    /// A report without the mutant lacks a number that a quantity needs.
    pub fn judge(&self, results: &Results) -> anyhow::Result<Noticed> {
        let mut claims = Vec::new();
        for Both { usual, wrong } in &self.claims {
            let (claim, usual) = (usual.claim(), usual.judge(results)?);
            let verdict = match wrong.judge(results) {
                Err(problem) => problem.to_string(),
                Ok(wrong) if wrong.verdict == usual.verdict => continue,
                Ok(wrong) => format!("{}, {}", wrong.verdict, wrong.ours),
            };
            claims.push(NoticedBy { claim: claim.id.clone(), standing: claim.standing(), verdict });
        }
        let Mutant { id, what, .. } = self.mutant.clone();
        Ok(Noticed { mutant: id, what, looked_at_by: self.claims.len(), claims })
    }
}

/// The results of the mutants, one after the other, and the sum.
pub fn text(all: &[Noticed]) -> String {
    let mut text = String::new();
    for one in all {
        let by = |standing: Standing, word: &str| {
            let of: Vec<_> = one
                .claims
                .iter()
                .filter(|claim| claim.standing == standing)
                .map(|claim| claim.claim.as_str())
                .collect();
            (!of.is_empty()).then(|| format!("{word}{}", of.join(", ")))
        };
        let parts = [
            by(Standing::Evidence, ""),
            by(Standing::Fit, "by fits: "),
            by(Standing::Set, "by what was set: "),
            by(Standing::Ours, "by ours: "),
        ];
        let parts = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let said = match (one.by_published(), one.claims.is_empty()) {
            (true, _) => format!("noticed by {} of {}: {parts}", one.claims.len(), one.looked_at_by),
            (false, true) => format!("NOT NOTICED by any of {}", one.looked_at_by),
            (false, false) => format!("NOT NOTICED but {parts}"),
        };
        text.push_str(&wrap(&format!("{} ({}): {said}", one.mutant, one.what), WIDTH));
    }
    let _ = writeln!(text, "\n{}", sum(all));
    text
}

/// Number of noticed mutants, each counted under the best standing among the claims that notice it.
fn sum(all: &[Noticed]) -> String {
    let best = |one: &Noticed| {
        let has = |standing: &Standing| one.claims.iter().any(|claim| claim.standing == *standing);
        [Standing::Evidence, Standing::Fit, Standing::Set].into_iter().find(has)
    };
    let count = |standing: Option<Standing>| all.iter().filter(|one| best(one) == standing).count();
    let parts = [
        (count(Some(Standing::Evidence)), "noticed by evidence"),
        (count(Some(Standing::Fit)), "by fits alone"),
        (count(Some(Standing::Set)), "by what was set alone"),
        (count(None), "by no published claim"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, by)| format!("{count} {by}"));
    format!("{} wrong implementations: {}", all.len(), parts.collect::<Vec<_>>().join(", "))
}
