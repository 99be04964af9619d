//! A chart's numbers as a table: one row per point, one column per series, and the published values below.

use super::{Chart, precise};

/// The table as text.
pub fn text(chart: &Chart) -> String {
    let mut rows = vec![heading(chart)];
    rows.extend(chart.labelled().map(|point| row(chart, point)));
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        text.push_str(&format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
    }
    for (says, values) in published(chart) {
        text.push_str(&format!("  published: {says}: {values}\n"));
    }
    text
}

/// Name of the axis and of each series.
pub fn heading(chart: &Chart) -> Vec<String> {
    std::iter::once(chart.axis.clone()).chain(chart.series.iter().map(|line| line.name.clone())).collect()
}

/// Label and values of a point.
pub fn row(chart: &Chart, point: usize) -> Vec<String> {
    let values = chart.series.iter().map(|line| line.values[point].map_or("-".into(), precise));
    std::iter::once(chart.points[point].clone()).chain(values).collect()
}

/// Each published statement with its values, point by point.
pub fn published(chart: &Chart) -> Vec<(String, String)> {
    let mut statements: Vec<(String, Vec<String>)> = Vec::new();
    for mark in &chart.marks {
        let name = &chart.series[mark.series].name;
        let says = format!("{name}, {}", mark.says);
        let value = format!("{} at {}", precise(mark.value), chart.points[mark.point]);
        match statements.iter_mut().find(|(known, _)| *known == says) {
            Some((_, values)) => values.push(value),
            None => statements.push((says, vec![value])),
        }
    }
    statements.into_iter().map(|(says, values)| (says, values.join(", "))).collect()
}
