//! Parses a file of `files/` into a [`Figure`]; each error is reported in one line.

use anyhow::{anyhow, bail, ensure};
use serde::Deserialize;

use super::available::is_need;
use super::chapters::Chapter;
use super::expression::Expression;
use super::figure::{Figure, Grid, Kind, Panel, Point, Published, Series, Statement, Style};
use super::runs::{Assignments, Counts};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    id: String,
    source: String,
    title: String,
    #[serde(rename = "group", deserialize_with = "super::chapters::named")]
    chapter: &'static Chapter,
    #[serde(default)]
    notes: Vec<String>,
    grid: Vec<RawGrid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrid {
    name: String,
    #[serde(default = "default_profile")]
    profile: String,
    ops: u64,
    full_ops: u64,
    scale: Option<String>,
    #[serde(default)]
    sequence: bool,
    /// Other numbers of operations from a point on.
    #[serde(default)]
    counts: Vec<RawCounts>,
    #[serde(default)]
    set: Vec<String>,
    points: RawPoints,
    style: Option<Style>,
    series: Vec<RawSeries>,
    #[serde(default)]
    panel: Vec<RawPanel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCounts {
    from: String,
    ops: u64,
    full_ops: u64,
}

/// Either a key and its values, or points with any settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoints {
    label: String,
    key: Option<String>,
    #[serde(default)]
    values: Vec<u64>,
    #[serde(default)]
    list: Vec<RawPoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoint {
    label: String,
    profile: Option<String>,
    #[serde(default)]
    set: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSeries {
    name: String,
    profile: Option<String>,
    #[serde(default)]
    set: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPanel {
    id: String,
    title: String,
    y: String,
    #[serde(default)]
    over_time: bool,
    #[serde(default)]
    parts: Vec<RawPart>,
    relative_to: Option<String>,
    unit: String,
    #[serde(default)]
    log: bool,
    kind: Kind,
    #[serde(default)]
    published: Vec<RawPublished>,
}

/// A part of a bar.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    name: String,
    y: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPublished {
    series: String,
    points: Vec<String>,
    value: Option<f64>,
    times: Option<f64>,
    of: Option<String>,
    says: String,
}

fn default_profile() -> String {
    "cosmos-plus".into()
}

/// Parses one figure; `name` is the file's, for messages.
///
/// # Errors
/// One line: the text is not TOML, or a key is unknown, missing or refers to nothing.
pub fn parse(name: &str, text: &str) -> anyhow::Result<Figure> {
    let raw: RawFigure = from_toml(name, text)?;
    let wrong = |problem: anyhow::Error| anyhow!("{name}: {problem}");
    let grids = raw.grid.into_iter().map(|grid| grid.check(&raw.id));
    let grids = grids.collect::<anyhow::Result<Vec<_>>>().map_err(wrong)?;
    let RawFigure { id, source, title, chapter, notes, .. } = raw;
    Ok(Figure { id, source, title, chapter, notes, grids })
}

/// Reads TOML into a plain structure; an error is one line with the file's name and the line's number.
pub fn from_toml<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> anyhow::Result<T> {
    toml_edit::de::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].matches('\n').count() + 1);
        let place = line.map_or(name.to_owned(), |line| format!("{name}:{line}"));
        anyhow!("{place}: {}", error.message().trim().replace('\n', "; "))
    })
}

/// `KEY=VALUE` of each line.
///
/// # Errors
/// The first line without `=`.
pub fn assignments(lines: &[String]) -> anyhow::Result<Assignments> {
    let split = |line: &String| {
        let (key, value) = line.split_once('=').ok_or_else(|| anyhow!("\"{line}\": expected KEY=VALUE"))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    lines.iter().map(split).collect()
}

/// Refuses a need that cannot be looked up.
pub fn check_needs(needs: &[String]) -> anyhow::Result<()> {
    match needs.iter().find(|need| !is_need(need)) {
        Some(need) => {
            bail!("needs \"{need}\"; expected transfer:, engine:, packing:, profile: or key: and a name")
        }
        None => Ok(()),
    }
}

impl RawGrid {
    fn check(self, figure: &str) -> anyhow::Result<Grid> {
        let name = self.name.clone();
        self.check_all(figure).map_err(|problem| anyhow!("grid {name}: {problem}"))
    }

    fn check_all(self, figure: &str) -> anyhow::Result<Grid> {
        let style = self.style.unwrap_or(if self.points.key.is_some() { Style::Lines } else { Style::Bars });
        let axis = self.points.label.clone();
        let mut points = self.points.check(Counts { usual: self.ops, full: self.full_ops })?;
        for RawCounts { from, ops, full_ops } in &self.counts {
            let first = points.iter().position(|point| point.label == *from);
            let first = first.ok_or_else(|| anyhow!("counts from \"{from}\": no such point"))?;
            points[first..]
                .iter_mut()
                .for_each(|point| point.counts = Counts { usual: *ops, full: *full_ops });
        }
        let series = self.series.into_iter().map(RawSeries::check).collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(!points.is_empty() && !series.is_empty(), "needs at least one point and one series");
        unique(points.iter().map(|point| &point.label))?;
        unique(series.iter().map(|series| &series.name))?;
        let panels = self.panel.into_iter().map(|panel| panel.check(&series, &points));
        let panels = panels.collect::<anyhow::Result<Vec<_>>>()?;
        let set = assignments(&self.set)?;
        let is_timed = set.iter().any(|(key, _)| key == "workload.duration_ns");
        if let Some(panel) = panels.iter().find(|panel| is_timed && panel.kind == Kind::Counted) {
            bail!(
                "panel {}: kind = \"counted\", but workload.duration_ns ends its runs at a model time",
                panel.id
            );
        }
        let scale = self.scale.map(|scale| scale.parse().map_err(|problem| anyhow!("scale: {problem}")));
        Ok(Grid {
            name: self.name,
            axis,
            points,
            series,
            panels,
            scale: scale.transpose()?,
            figure: figure.to_owned(),
            profile: self.profile,
            set,
            sequence: self.sequence,
            drawn_as: style,
        })
    }
}

fn unique<'a>(names: impl Iterator<Item = &'a String>) -> anyhow::Result<()> {
    let mut seen: Vec<&String> = Vec::new();
    for name in names {
        ensure!(!seen.contains(&name), "\"{name}\" twice");
        seen.push(name);
    }
    Ok(())
}

impl RawPoints {
    fn check(self, counts: Counts) -> anyhow::Result<Vec<Point>> {
        match (self.key, self.values.is_empty(), self.list.is_empty()) {
            (Some(key), false, true) => Ok(self
                .values
                .iter()
                .map(|value| {
                    let set = vec![(key.clone(), value.to_string())];
                    Point { label: size_label(*value), counts, profile: None, set }
                })
                .collect()),
            (None, true, false) => self.list.into_iter().map(|point| point.check(counts)).collect(),
            _ => bail!("points: expected either key and values, or list"),
        }
    }
}

impl RawPoint {
    fn check(self, counts: Counts) -> anyhow::Result<Point> {
        Ok(Point { label: self.label, counts, profile: self.profile, set: assignments(&self.set)? })
    }
}

/// A size as the papers write it: 512, 4K, 4K+32.
fn size_label(bytes: u64) -> String {
    match (bytes / 1024, bytes % 1024) {
        (0, _) => bytes.to_string(),
        (kib, 0) => format!("{kib}K"),
        _ if bytes > 4096 => format!("4K+{}", bytes - 4096),
        _ => bytes.to_string(),
    }
}

impl RawSeries {
    fn check(self) -> anyhow::Result<Series> {
        check_needs(&self.needs).map_err(|problem| anyhow!("series {}: {problem}", self.name))?;
        let set = assignments(&self.set)?;
        Ok(Series { name: self.name, needs: self.needs, profile: self.profile, set })
    }
}

impl RawPanel {
    fn check(self, series: &[Series], points: &[Point]) -> anyhow::Result<Panel> {
        let y = Expression::parse(&self.y).map_err(|problem| anyhow!("panel {}: {problem}", self.id))?;
        let published = self.published.into_iter().map(|published| published.check(series, points));
        let published = published.collect::<anyhow::Result<Vec<_>>>();
        let published = published.map_err(|problem| anyhow!("panel {}: published: {problem}", self.id))?;
        let RawPanel { id, title, unit, log, kind, over_time, .. } = self;
        let has_own_bars =
            self.parts.is_empty() || !over_time && !log && published.is_empty() && self.relative_to.is_none();
        ensure!(
            has_own_bars,
            "panel {id}: parts is for a linear axis, without over_time, relative_to and published"
        );
        let part = |part: RawPart| Ok((part.name, Expression::parse(&part.y)?));
        let parts = self.parts.into_iter().map(part).collect::<Result<Vec<_>, String>>();
        let parts = parts.map_err(|problem| anyhow!("panel {id}: parts: {problem}"))?;
        let is_alone = points.len() == 1 && published.is_empty() && self.relative_to.is_none();
        ensure!(
            !over_time || is_alone,
            "panel {id}: over_time is for a grid of one point, without relative_to and published"
        );
        let relative_to = self.relative_to.map(|name| {
            let found = series.iter().position(|series| series.name == name);
            found.ok_or_else(|| anyhow!("panel {id}: relative_to \"{name}\": no such series"))
        });
        let relative_to = relative_to.transpose()?;
        Ok(Panel { id, title, y, over_time, parts, relative_to, unit, log, kind, published })
    }
}

impl RawPublished {
    fn check(self, series: &[Series], points: &[Point]) -> anyhow::Result<Published> {
        let series_of = |name: &String| {
            let found = series.iter().position(|series| series.name == *name);
            found.ok_or_else(|| anyhow!("\"{name}\": no such series"))
        };
        let point_of = |label: &String| {
            let found = points.iter().position(|point| point.label == *label);
            found.ok_or_else(|| anyhow!("\"{label}\": no such point"))
        };
        let value = match (self.value, self.times, &self.of) {
            (Some(value), None, None) => Statement::Absolute(value),
            (None, Some(times), Some(of)) => Statement::Times(times, series_of(of)?),
            _ => bail!("expected either value, or times and of"),
        };
        let points = self.points.iter().map(point_of).collect::<anyhow::Result<_>>()?;
        Ok(Published { series: series_of(&self.series)?, points, value, says: self.says })
    }
}
