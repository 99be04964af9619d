//! Charts for a terminal of 100 columns: lines as a grid of characters, horizontal bars, and paragraphs.
//!
//! The output uses neither colours nor the terminal's size, so a file or a pager gets the same text.

use super::{Chart, Scale, number, numbers};
use kvdrive_experiments::Style;

/// Rows of a grid.
const HEIGHT: usize = 15;
/// Columns of a grid, and of the longest bar.
const WIDTH: usize = 76;
/// Columns left of a grid, for the labels of its ticks.
const MARGIN: usize = 8;
/// The sign of each series.
const SIGNS: [char; 6] = ['●', '■', '▲', '◆', '▼', '✚'];
/// The sign of a published value, and of one that coincides with a value of ours.
const PUBLISHED: char = '○';
const AGREED: char = '◎';

/// Space between two entries of a legend.
const GAP: &str = "   ";

/// The chart, its legend, and its numbers.
pub fn text(chart: &Chart) -> String {
    let mut text = format!("({}) {} [{}]  {}\n", chart.letter, chart.title, chart.unit, chart.kind);
    match chart.style {
        Style::Lines => {
            text.push_str(&legend(chart));
            text.push_str(&grid(chart));
        }
        Style::Bars | Style::Stacked => text.push_str(&bars(chart)),
    }
    text.push('\n');
    text.push_str(&numbers::text(chart));
    text
}

fn sign(series: usize) -> char {
    SIGNS[series % SIGNS.len()]
}

fn legend(chart: &Chart) -> String {
    let drawn = chart.series.iter().enumerate().filter(|(_, line)| line.values.iter().any(Option::is_some));
    let mut parts: Vec<String> =
        drawn.map(|(index, line)| format!("{} {}", sign(index), line.name)).collect();
    if !chart.marks.is_empty() {
        parts.push(format!("{PUBLISHED} published ({AGREED} where ours is)"));
    }
    let mut lines = vec![String::new()];
    for part in parts {
        let last = lines.last_mut().expect("one at least");
        if last.is_empty() {
            *last = part;
        } else if last.chars().count() + GAP.len() + part.chars().count() <= WIDTH {
            last.push_str(GAP);
            last.push_str(&part);
        } else {
            lines.push(part);
        }
    }
    lines.iter().map(|line| format!("{:MARGIN$}  {line}\n", "")).collect()
}

/// A canvas of characters; row 0 is the top.
struct Canvas(Vec<Vec<char>>);

impl Canvas {
    fn set(&mut self, column: usize, row: usize, c: char) {
        self.0[row][column] = c;
    }

    /// Draws only on empty cells.
    fn hint(&mut self, column: usize, row: usize, c: char) {
        if self.0[row][column] == ' ' {
            self.0[row][column] = c;
        }
    }
}

fn grid(chart: &Chart) -> String {
    let scale = chart.scale();
    let row = |value: f64| ((1.0 - scale.at(value)) * (HEIGHT - 1) as f64).round() as usize;
    let places = chart.points.len();
    let column = |point: usize| (2 * point + 1) * WIDTH / (2 * places);
    let mut canvas = Canvas(vec![vec![' '; WIDTH]; HEIGHT]);
    for line in &chart.series {
        connect(&mut canvas, line.values.as_slice(), &column, &scale);
    }
    // The first series is drawn last and stays on top: others are compared with it.
    for (index, line) in chart.series.iter().enumerate().rev() {
        for (point, value) in line.values.iter().enumerate() {
            if let Some(value) = value {
                canvas.set(column(point), row(*value), sign(index));
            }
        }
    }
    for mark in &chart.marks {
        let ours = chart.series[mark.series].values[mark.point];
        let sign = if ours.map(row) == Some(row(mark.value)) { AGREED } else { PUBLISHED };
        canvas.set(column(mark.point), row(mark.value), sign);
    }
    let ticks: Vec<(usize, f64)> = scale.ticks().into_iter().map(|tick| (row(tick), tick)).collect();
    let mut text = String::new();
    for (row, characters) in canvas.0.iter().enumerate() {
        let tick = ticks.iter().find(|(at, _)| *at == row);
        let (label, edge) = tick.map_or((String::new(), '│'), |(_, tick)| (number(*tick), '┤'));
        let line: String = characters.iter().collect();
        text.push_str(&format!("{label:>MARGIN$} {edge}{}\n", line.trim_end()));
    }
    text.push_str(&format!("{:MARGIN$} └{}\n", "", "─".repeat(WIDTH)));
    text + &axis(chart, &column)
}

/// Dots along the straight lines between the points of a series.
fn connect(canvas: &mut Canvas, values: &[Option<f64>], column: &dyn Fn(usize) -> usize, scale: &Scale) {
    for point in 1..values.len() {
        let (Some(from), Some(to)) = (values[point - 1], values[point]) else { continue };
        let (left, right) = (column(point - 1), column(point));
        for x in left + 1..right {
            let share = (x - left) as f64 / (right - left) as f64;
            let height = scale.at(from) + share * (scale.at(to) - scale.at(from));
            canvas.hint(x, ((1.0 - height) * (HEIGHT - 1) as f64).round() as usize, '·');
        }
    }
}

/// Labels of the points, as many as fit, and the name of the axis.
fn axis(chart: &Chart, column: &dyn Fn(usize) -> usize) -> String {
    let mut line = String::new();
    for point in chart.labelled() {
        let label = &chart.points[point];
        let length = label.chars().count();
        let begin = (MARGIN + 2 + column(point)).saturating_sub(length / 2);
        let used = line.chars().count();
        if used == 0 || begin > used {
            line.push_str(&" ".repeat(begin - used));
            line.push_str(label);
        }
    }
    format!("{line}\n{:>width$}\n", chart.axis, width = MARGIN + 2 + WIDTH)
}

fn bars(chart: &Chart) -> String {
    let scale = chart.scale();
    let names = chart.series.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let labels = chart.points.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let room = (WIDTH + MARGIN).saturating_sub(names + labels + 12);
    let mut text = String::new();
    for (point, label) in chart.points.iter().enumerate() {
        let mut label = label.as_str();
        for (index, line) in chart.series.iter().enumerate() {
            let Some(value) = line.values[point] else { continue };
            let mark = chart.marks.iter().find(|mark| mark.series == index && mark.point == point);
            let published = mark.map(|mark| scale.at(mark.value));
            let bar = match scale.log {
                false => bar(scale.at(value), published, room),
                true => point_of(sign(index), scale.at(value), published, room),
            };
            let note = mark.map_or(String::new(), |mark| format!("  {PUBLISHED} {}", number(mark.value)));
            text.push_str(&format!(
                "  {label:<labels$}  {:<names$}  {bar} {}{note}\n",
                line.name,
                number(value)
            ));
            label = "";
        }
    }
    text
}

/// A sign at its position, and the published value as a ring: on a logarithmic axis bars have no zero to
/// begin at.
fn point_of(sign: char, share: f64, published: Option<f64>, room: usize) -> String {
    let column = |share: f64| ((share * room as f64) as usize).min(room.saturating_sub(1));
    let (ours, theirs) = (column(share), published.map(column));
    let mut cells = vec!['·'; ours.max(theirs.unwrap_or(0)) + 1];
    cells[ours] = sign;
    if let Some(theirs) = theirs {
        cells[theirs] = if theirs == ours { AGREED } else { PUBLISHED };
    }
    cells.into_iter().collect()
}

/// A bar to eighths of a column, with the published value as a ring.
fn bar(share: f64, published: Option<f64>, room: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share * (8 * room) as f64).round() as usize;
    let mut cells: Vec<char> = vec!['█'; eighths / 8];
    if !eighths.is_multiple_of(8) {
        cells.push(EIGHTHS[eighths % 8]);
    }
    if let Some(published) = published {
        let at = ((published * room as f64) as usize).min(room.saturating_sub(1));
        if cells.len() <= at {
            cells.resize(at + 1, ' ');
        }
        cells[at] = PUBLISHED;
    }
    cells.into_iter().collect()
}
