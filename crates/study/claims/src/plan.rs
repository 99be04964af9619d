//! The runs of a claim, asked of a plan.

use kvdrive_experiments::runs::{Extent, Options, RunId, StudyPlan};
use kvdrive_experiments::{Figure, missing};

use super::claim::{Claim, Condition};

/// A claim whose runs have been added to a plan.
#[derive(Debug)]
pub struct Planned {
    pub(super) claim: Claim,
    /// Whether the runs are those the expected values were taken from.
    pub(super) as_usual: bool,
    /// Whether the runs have fewer operations than the expected verdict needs.
    pub(super) is_quick: bool,
    /// Were settings altered for all runs? Then no result is expected.
    pub(super) is_altered: bool,
    /// The seed of its own runs, in words.
    pub(super) first_seed: String,
    pub(super) runs: Result<Runs, String>,
    /// Operations that its runs need, if a quick plan has no room for them: it is not run then.
    pub(super) needs: Option<u64>,
}

/// Operations of a quick suite, those of loads included: about a minute of two cores.
pub const QUICK_OPERATIONS: u64 = 40_000_000;

/// Asks `plan` for the runs of the claims of a suite; they stay in their order. A quick plan has room for some operations,
/// those of the cheapest claims first, and leaves the others open.
///
/// # Errors
/// As [`Planned::new`].
pub fn plan_suite(
    claims: Vec<Claim>,
    figures: &[Figure],
    plan: &mut StudyPlan,
    options: &Options,
) -> anyhow::Result<Vec<Planned>> {
    if options.extent != Extent::Quick {
        return claims.into_iter().map(|claim| Planned::new(claim, figures, plan, options)).collect();
    }
    let mut alone = Vec::new();
    for (place, claim) in claims.iter().enumerate() {
        let mut own = StudyPlan::new(options.clone());
        Planned::new(claim.clone(), figures, &mut own, options)?;
        alone.push((own.operations(), place));
    }
    alone.sort_unstable();
    let most = plan.operations() + QUICK_OPERATIONS;
    let mut planned: Vec<Option<Planned>> = claims.iter().map(|_| None).collect();
    for (operations, place) in alone {
        let mut with = plan.clone();
        let mut claim = Planned::new(claims[place].clone(), figures, &mut with, options)?;
        if with.operations() <= most {
            *plan = with;
        } else {
            claim.needs = Some(operations);
        }
        planned[place] = Some(claim);
    }
    Ok(planned.into_iter().flatten().collect())
}

/// Runs of a claim: by condition (the claim's own first, then its seeds, the emulator, and those beside), by
/// point, by name.
type Runs = Vec<Vec<Vec<(String, RunId)>>>;

impl Planned {
    /// Asks `plan` for the runs of `claim`, which are places among `figures`.
    ///
    /// # Errors
    /// No figure has the place, or a setting is wrong.
    pub fn new(
        mut claim: Claim,
        figures: &[Figure],
        plan: &mut StudyPlan,
        options: &Options,
    ) -> anyhow::Result<Planned> {
        let (as_usual, is_altered) = (options.as_usual(), options.is_altered());
        let is_quick = options.extent == Extent::Quick;
        if is_quick {
            claim.seeds.clear();
            claim.beside.clear();
        }
        if let Some((_, others)) = options.seeds.split_first() {
            claim.seeds = others.iter().map(|seed| Condition::seed(*seed)).collect();
        }
        let first_seed =
            options.seeds.first().map_or("the usual seed".to_owned(), |seed| format!("seed {seed}"));
        // A setting that is made for all runs is not another condition.
        let is_free = |condition: &Condition| !options.set.iter().any(|set| condition.sets_as(set));
        claim.seeds.retain(is_free);
        claim.emulator = claim.emulator.filter(is_free);
        claim.beside.retain(is_free);
        let runs =
            claim.plan(figures, plan).map_err(|problem| anyhow::anyhow!("claim {}: {problem}", claim.id))?;
        Ok(Planned { claim, as_usual, is_quick, is_altered, first_seed, runs, needs: None })
    }

    /// Is it left open, because a quick plan has no room for its runs?
    pub fn is_left_out(&self) -> bool {
        self.needs.is_some()
    }

    /// The claim itself.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }
}

impl Claim {
    /// Adds the runs to `plan`; or returns the part that this build lacks for them.
    fn plan(&self, figures: &[Figure], plan: &mut StudyPlan) -> anyhow::Result<Result<Runs, String>> {
        let mut all = Vec::new();
        for condition in std::iter::once(None).chain(self.conditions().map(Some)) {
            let mut points = Vec::new();
            for point in self.points() {
                let mut runs = Vec::new();
                for (name, source) in &self.runs {
                    let mut found = source.at(point, figures)?;
                    if let Some(lacks) = missing(&found.needs) {
                        return Ok(Err(lacks.to_owned()));
                    }
                    if let Some(condition) = condition {
                        condition.lay_over(&mut found);
                    }
                    runs.push((name.clone(), found.plan(plan)?));
                }
                points.push(runs);
            }
            all.push(points);
        }
        Ok(Ok(all))
    }
}
