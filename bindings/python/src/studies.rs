//! Published claims and figures, computed here.

use anyhow::ensure;
use kvdrive_claims as claims;
use kvdrive_experiments as experiments;
use kvdrive_experiments::runs::{Extent, Options, StudyPlan};
use kvdrive_figures::{Planned, svg, terminal};
use pyo3::prelude::*;
use serde_json::json;

use crate::failure::{self, exception};
use crate::runs::run_all;
use crate::waiting::{Stop, wait};

/// How the runs differ from the files of claims and figures: extent, scale, seeds, `KEY=VALUE`.
type Departure = (String, Option<String>, Vec<u64>, Vec<String>);

fn options((extent, scale, seeds, set): Departure) -> anyhow::Result<Options> {
    let extent = match extent.as_str() {
        "quick" => Extent::Quick,
        "usual" => Extent::Usual,
        "full" => Extent::Full,
        other => anyhow::bail!("extent: {other:?}; there are quick, usual, full"),
    };
    let scale = scale.map(|scale| scale.parse().map_err(|problem| anyhow::anyhow!("scale: {problem}")));
    Ok(Options { extent, scale: scale.transpose()?, set, seeds })
}

/// Refuses a plan whose runs cannot be done, and a scale that fits none of them.
fn check(plan: &StudyPlan) -> anyhow::Result<()> {
    let has_scale = plan.options().scale.is_some();
    ensure!(!has_scale || !plan.scales().is_empty(), "scale: none of these runs can be shrunk");
    plan.check()
}

/// A suite of claims, planned.
fn planned_claims(
    suite: &str,
    only: &[String],
    options: &Options,
) -> anyhow::Result<(Vec<claims::Planned>, StudyPlan)> {
    let mut suite = claims::suite(suite)?;
    for name in only {
        let ids: Vec<&str> = suite.claims.iter().map(|claim| claim.id.as_str()).collect();
        let is_there = ids.iter().any(|id| id.starts_with(name.as_str()));
        ensure!(is_there, "only: no claim has an id that begins with {name:?}; there are {}", ids.join(", "));
    }
    suite
        .claims
        .retain(|claim| only.is_empty() || only.iter().any(|name| claim.id.starts_with(name.as_str())));
    let (figures, mut plan) = (experiments::figures()?, StudyPlan::new(options.clone()));
    let claims = claims::plan_suite(suite.claims, &figures, &mut plan, options)?;
    check(&plan)?;
    Ok((claims, plan))
}

/// The outcomes of a suite of claims as JSON, and as the table of the command. `tell` is called with the
/// progress of the runs, as in [`wait`].
#[pyfunction]
pub fn claims_of(
    py: Python<'_>,
    suite: String,
    only: Vec<String>,
    departure: Departure,
    remember: bool,
    tell: Option<Py<PyAny>>,
) -> PyResult<(String, String)> {
    let planned = py.detach(|| planned_claims(&suite, &only, &options(departure)?));
    let (planned, plan) = planned.map_err(|error| refused(py, &error))?;
    wait(py, Stop::default(), tell.as_ref(), move |stop, going| {
        let results = plan.run(|plan| run_all(plan, remember, stop, going))?;
        let outcomes =
            planned.iter().map(|claim| claim.judge(&results)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok((serde_json::to_string(&outcomes)?, claims::text(&outcomes, false, usize::MAX)))
    })
}

/// The charts of a figure with its texts as JSON, the figure as SVG, and as text.
#[pyfunction]
pub fn figure_of(
    py: Python<'_>,
    name: &str,
    departure: Departure,
    remember: bool,
    tell: Option<Py<PyAny>>,
) -> PyResult<(String, String, String)> {
    let planned = || {
        let mut plan = StudyPlan::new(options(departure)?);
        let figure = match name.ends_with(".toml") {
            true => experiments::parse(name, &kvdrive_text::input::read_text(name.as_ref())?)?,
            false => experiments::figure(name)?,
        };
        let planned = Planned::new(figure, &mut plan)?;
        check(&plan)?;
        anyhow::Ok((planned, plan))
    };
    let (planned, plan) = py.detach(planned).map_err(|error| refused(py, &error))?;
    wait(py, Stop::default(), tell.as_ref(), move |stop, going| {
        let results = plan.run(|plan| run_all(plan, remember, stop, going))?;
        let charts = planned.charts(&results)?;
        let figure = planned.figure();
        let left_out: Vec<_> =
            planned.left_out().iter().map(|(series, lacks)| json!([series, lacks])).collect();
        let of_figure = json!({
            "id": figure.id, "source": figure.source, "title": figure.title, "notes": figure.notes,
            "left_out": left_out, "charts": charts,
        });
        let heading = figure.heading();
        let drawn: String =
            charts.iter().map(|chart| format!("\n{}  {}\n", terminal::text(chart), chart.counts)).collect();
        Ok((of_figure.to_string(), svg::file(&heading, &charts), format!("{heading}\n{drawn}")))
    })
}

/// The published figures: name, source, title.
#[pyfunction]
pub fn figures(py: Python<'_>) -> PyResult<Vec<(String, String, String)>> {
    let figures = experiments::figures().map_err(|error| refused(py, &error))?;
    Ok(figures.into_iter().map(|figure| (figure.id, figure.source, figure.title)).collect())
}

fn refused(py: Python<'_>, error: &anyhow::Error) -> PyErr {
    exception(py, &failure::refused(error))
}
