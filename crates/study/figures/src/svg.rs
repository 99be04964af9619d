//! Charts as SVG: one panel for a page ([`panel`]), or all panels of a figure as a file ([`file()`]).
//!
//! Written by hand rather than with a plotting library: every point has its value as a title, which browsers
//! show; colours are attributes, which print converters understand and a page's style sheet can override; and
//! series differ in shape as well as in colour. No script, no external font.

use std::fmt::Write;

use super::{Chart, Line, Mark, Scale, number, precise};
use kvdrive_experiments::Style;

/// Size of a panel, in pixels at scale 1. A panel with many rows of title, legend or axis name is higher.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 330.0;
/// Space around the frame of a panel. The top grows with the legend, the bottom with slanted labels.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 44.0;
/// Height of a row of a title and of the legend, and rows of a legend that a panel has room for.
const ROW: f64 = 18.0;
const LEGEND_ROWS: usize = 2;
/// Size of text, and the width of a character, estimated rather too large since fonts differ.
const TEXT: f64 = 13.0;
const CHARACTER: f64 = 7.4;
/// The same of the values above bars.
const SMALL: f64 = 9.5;
const SMALL_CHARACTER: f64 = 5.3;
/// The same of a panel's bold title, and of the unit after it.
const TITLE: f64 = 14.0;
const TITLE_CHARACTER: f64 = 9.2;
const UNIT_FONT: f64 = 12.0;
const UNIT_CHARACTER: f64 = 6.9;
/// Font size of the title of a file, and the height of its row.
const FILE_TITLE: f64 = 17.0;
const FILE_TITLE_CHARACTER: f64 = 11.2;
const FILE_TITLE_ROW: f64 = 22.0;
/// Least space between two labels of an axis.
const APART: f64 = 6.0;
/// Most characters of a slanted label; the table has labels in full.
const SLANTED: usize = 24;
/// Distance that the marker of a series reaches around its point, about.
const SIGN: f64 = 4.5;
/// Radius of the ring that marks a published value.
const RING: f64 = 6.5;
/// Space between panels of a file.
const GAP: f64 = 16.0;

/// Colours that colour-blind readers can tell apart (Okabe and Ito); from the seventh on also by how dark they are.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#222222", "#999999", "#5b2a86",
    "#7a3b10",
];
const INK: &str = "#222";
const GRID: &str = "#ddd";

/// All panels of a figure as one SVG file, two in a row.
pub fn file(title: &str, charts: &[Chart]) -> String {
    let columns = charts.len().clamp(1, 2);
    let width = columns as f64 * (WIDTH + GAP) + GAP;
    let mut body = String::new();
    let lines = wrapped(title, width - 2.0 * GAP, FILE_TITLE_CHARACTER);
    for (row, line) in lines.iter().enumerate() {
        let y = 26.0 + row as f64 * FILE_TITLE_ROW;
        let _ = writeln!(
            body,
            "<text x=\"{GAP}\" y=\"{y}\" font-size=\"{FILE_TITLE}\" font-weight=\"600\" \
             fill=\"{INK}\">{}</text>",
            escape(line)
        );
    }
    let mut y = 18.0 + lines.len() as f64 * FILE_TITLE_ROW;
    for beside in charts.chunks(columns) {
        let mut highest = 0.0f64;
        for (column, chart) in beside.iter().enumerate() {
            let x = GAP + column as f64 * (WIDTH + GAP);
            let (panel, height) = draw(chart);
            highest = highest.max(height);
            let _ = writeln!(body, "<g transform=\"translate({x} {y})\">\n{panel}</g>");
        }
        y += highest + GAP;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" width=\"{width}\" \
         height=\"{y}\" font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// One panel as an element of a page, as wide as the page allows. Screen readers read its title.
pub fn panel(chart: &Chart) -> String {
    let (panel, height) = draw(chart);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{}\">\n{panel}</svg>\n",
        escape(&format!("{} in {}", chart.title, chart.unit)),
    )
}

/// `text` in lines that fit into `room`, at least one. Words that are too long are cut.
fn wrapped(text: &str, room: f64, character: f64) -> Vec<String> {
    let most = ((room / character) as usize).max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(most) {
            let line = lines.last_mut().expect("there is one");
            let used = line.chars().count();
            if used > 0 && used + 1 + piece.len() > most {
                lines.push(piece.iter().collect());
            } else {
                line.push_str(if used > 0 { " " } else { "" });
                line.extend(piece);
            }
        }
    }
    lines
}

/// `text`, escaped for content and attributes of elements.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The frame within a panel.
struct Frame {
    top: f64,
    bottom: f64,
    /// Distance between two points of the axis.
    step: f64,
    scale: Scale,
    slanted: bool,
    /// Height of the panel.
    height: f64,
}

impl Frame {
    /// The frame below the rows of title and legend, and above the rows of the axis's name.
    fn new(chart: &Chart, title_rows: usize, legend_rows: usize, axis_rows: usize) -> Frame {
        let step = (WIDTH - LEFT - RIGHT) / chart.points.len() as f64;
        let longest = chart.points.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let slanted = longest as f64 * CHARACTER + APART > step * chart.every as f64;
        let room =
            if slanted { BOTTOM + 0.5 * longest.min(SLANTED) as f64 * CHARACTER + 2.0 } else { BOTTOM };
        let title_more = (title_rows - 1) as f64 * ROW;
        let legend_more = legend_rows.saturating_sub(LEGEND_ROWS) as f64 * ROW;
        let axis_more = (axis_rows - 1) as f64 * ROW;
        let height = HEIGHT + title_more + legend_more + axis_more;
        Frame {
            top: TOP + title_more + legend_rows as f64 * ROW + 4.0,
            bottom: height - axis_more - room,
            step,
            scale: chart.scale(),
            slanted,
            height,
        }
    }

    fn x(&self, point: usize) -> f64 {
        LEFT + (point as f64 + 0.5) * self.step
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.scale.at(value) * (self.bottom - self.top)
    }
}

/// The drawn panel, and its height.
fn draw(chart: &Chart) -> (String, f64) {
    let (mut svg, title_rows) = title(chart);
    let (legend, legend_rows) = legend(chart, TOP + (title_rows - 1) as f64 * ROW);
    let axis = axis(chart);
    let frame = Frame::new(chart, title_rows, legend_rows, axis.len());
    svg.push_str(&legend);
    svg.push_str(&axes(chart, &axis, &frame));
    match chart.style {
        Style::Lines => lines(&mut svg, chart, &frame),
        Style::Bars => bars(&mut svg, chart, &frame),
        Style::Stacked => stacks(&mut svg, chart, &frame),
    }
    (svg, frame.height)
}

/// Title, unit and kind of numbers of a panel, and the number of rows that they take.
fn title(chart: &Chart) -> (String, usize) {
    let room = WIDTH - 8.0;
    let mut rows: Vec<(String, String)> =
        wrapped(&format!("({}) {}", chart.letter, chart.title), room, TITLE_CHARACTER)
            .into_iter()
            .map(|line| (line, String::new()))
            .collect();
    let (unit, last) = (format!("[{}]  {}", chart.unit, chart.kind), rows.len() - 1);
    let width = |text: &str, character: f64| text.chars().count() as f64 * character;
    if width(&rows[last].0, TITLE_CHARACTER) + width(&unit, UNIT_CHARACTER) + 12.0 <= room {
        rows[last].1 = format!("  {unit}");
    } else {
        rows.extend(wrapped(&unit, room, UNIT_CHARACTER).into_iter().map(|line| (String::new(), line)));
    }
    let mut svg = String::new();
    for (row, (title, unit)) in rows.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"4\" y=\"{}\" font-size=\"{TITLE}\" font-weight=\"600\" fill=\"{INK}\" \
             xml:space=\"preserve\">\
             {}<tspan font-weight=\"400\" font-size=\"{UNIT_FONT}\">{}</tspan></text>",
            16.0 + row as f64 * ROW,
            escape(title),
            escape(unit)
        );
    }
    (svg, rows.len())
}

/// Rows of series names from `top` on, and their number. Series without values are left out. A name that is
/// longer than a row takes rows of its own.
fn legend(chart: &Chart, top: f64) -> (String, usize) {
    const BEGIN: f64 = 12.0;
    let drawn = chart.series.iter().enumerate().filter(|(_, line)| line.values.iter().any(Option::is_some));
    let mut entries: Vec<(String, String)> =
        drawn.map(|(index, line)| (marker(chart, index, 0.0, 0.0), line.name.clone())).collect();
    if !chart.marks.is_empty() {
        entries.push((ring(0.0, 0.0, ""), "published".into()));
    }
    let (mut x, mut row) = (BEGIN, 0);
    let mut svg = String::new();
    for (sign, name) in entries {
        let names = wrapped(&name, WIDTH - BEGIN - 15.0, CHARACTER);
        let width = 30.0 + name.chars().count() as f64 * CHARACTER;
        if x + width - 15.0 > WIDTH && x > BEGIN {
            (x, row) = (BEGIN, row + 1);
        }
        let y = top + 3.0 + row as f64 * ROW;
        let _ = write!(svg, "<g transform=\"translate({x:.1} {y:.1})\">{sign}");
        for (line, name) in names.iter().enumerate() {
            let y = 4.5 + line as f64 * ROW;
            let name = escape(name);
            let _ = write!(svg, "<text x=\"11\" y=\"{y}\" font-size=\"{TEXT}\" fill=\"{INK}\">{name}</text>");
        }
        svg.push_str("</g>\n");
        // No further name fits after a name of several rows.
        (x, row) = if names.len() > 1 { (BEGIN, row + names.len()) } else { (x + width, row) };
    }
    (svg, if x > BEGIN { row + 1 } else { row.max(1) })
}

/// The name of the axis, row by row.
fn axis(chart: &Chart) -> Vec<String> {
    // The full width that is symmetric to the middle of the frame.
    wrapped(&chart.axis, WIDTH - (LEFT - RIGHT) - 8.0, CHARACTER)
}

fn axes(chart: &Chart, axis: &[String], frame: &Frame) -> String {
    let mut svg = String::new();
    for tick in frame.scale.ticks() {
        let y = frame.y(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{GRID}\"/>\
             <text x=\"{}\" y=\"{:.1}\" font-size=\"{TEXT}\" text-anchor=\"end\" fill=\"{INK}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            y + 4.5,
            number(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{LEFT} {:.1}V{:.1}H{}\" fill=\"none\" stroke=\"{INK}\"/>",
        frame.top,
        frame.bottom,
        WIDTH - RIGHT
    );
    for point in chart.labelled() {
        let label = &chart.points[point];
        let (x, y) = (frame.x(point), frame.bottom + 17.0);
        let (label, place) = if frame.slanted {
            // A slanted label extends to the left by its length times the cosine of its angle, and must not
            // cross the edge.
            let room = ((x / (0.82 * CHARACTER)) as usize).min(SLANTED);
            let place = format!("translate({:.1} {:.1}) rotate(-35)", x + 5.0, y - 3.0);
            (shortened(label, room), format!("transform=\"{place}\" text-anchor=\"end\""))
        } else {
            (label.clone(), format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\""))
        };
        let _ = writeln!(svg, "<text {place} font-size=\"{TEXT}\" fill=\"{INK}\">{}</text>", escape(&label));
    }
    for (row, name) in axis.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{TEXT}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            frame.height - 7.0 - (axis.len() - 1 - row) as f64 * ROW,
            escape(name)
        );
    }
    svg
}

/// A label of at most `most` characters.
fn shortened(label: &str, most: usize) -> String {
    if label.chars().count() <= most {
        return label.to_owned();
    }
    let begin: String = label.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", begin.trim_end())
}

fn lines(svg: &mut String, chart: &Chart, frame: &Frame) {
    for (index, line) in chart.series.iter().enumerate() {
        let mut path = String::new();
        let mut pen = 'M';
        for (point, value) in line.values.iter().enumerate() {
            match value {
                Some(value) => {
                    let _ = write!(path, "{pen}{:.1} {:.1}", frame.x(point), frame.y(*value));
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        let colour = colour(index);
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }
    for (index, line) in chart.series.iter().enumerate() {
        for point in chart.labelled() {
            let Some(value) = &line.values[point] else { continue };
            let sign = marker(chart, index, frame.x(point), frame.y(*value));
            let _ = writeln!(svg, "<g>{sign}<title>{}</title></g>", tooltip(chart, line, point, *value));
        }
    }
    for mark in &chart.marks {
        svg.push_str(&ring(frame.x(mark.point), frame.y(mark.value), &published(chart, mark)));
    }
}

/// Bars from zero, side by side. On a logarithmic axis, which has no zero, lengths have no meaning: values
/// are signs at their positions.
fn bars(svg: &mut String, chart: &Chart, frame: &Frame) {
    let drawn: Vec<usize> = (0..chart.series.len())
        .filter(|&index| chart.series[index].values.iter().any(Option::is_some))
        .collect();
    let width = 0.84 * frame.step / drawn.len().max(1) as f64;
    let place = |point: usize, series: usize| {
        let order = drawn.iter().position(|&index| index == series).unwrap_or(0);
        frame.x(point) - 0.42 * frame.step + order as f64 * width
    };
    let label = |value: f64| number(value).replace(' ', "");
    let labelled = chart.all().all(|value| label(value).chars().count() as f64 * SMALL_CHARACTER <= width);
    for &index in &drawn {
        let line = &chart.series[index];
        for (point, value) in line.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (x, y) = (place(point, index), frame.y(*value));
            let middle = x + width / 2.0 - 0.75;
            let (sign, top) = if frame.scale.log {
                (marker(chart, index, middle, y), y - SIGN)
            } else {
                let (width, height, colour) = (width - 1.5, (frame.bottom - y).max(0.5), colour(index));
                let size = format!("width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"");
                (format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" {size}/>"), y)
            };
            let _ = writeln!(svg, "<g>{sign}<title>{}</title></g>", tooltip(chart, line, point, *value));
            if labelled {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{SMALL}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
                    middle,
                    above_rings(chart, frame, index, point, top - 3.0),
                    label(*value)
                );
            }
        }
    }
    for mark in &chart.marks {
        let x = place(mark.point, mark.series) + width / 2.0 - 0.75;
        svg.push_str(&ring(x, frame.y(mark.value), &published(chart, mark)));
    }
}

/// A bar for each point, of which each series is a part, from the first upwards. A part with room has its value in it.
fn stacks(svg: &mut String, chart: &Chart, frame: &Frame) {
    let width = 0.6 * frame.step;
    for point in 0..chart.points.len() {
        let mut below = 0.0;
        for (index, line) in chart.series.iter().enumerate() {
            let Some(value) = line.values[point] else { continue };
            let (bottom, top) = (frame.y(below), frame.y(below + value));
            let (x, height, colour) = (frame.x(point) - width / 2.0, (bottom - top).max(0.0), colour(index));
            let size = format!("width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"");
            let title = tooltip(chart, line, point, value);
            let _ = writeln!(svg, "<g><rect x=\"{x:.1}\" y=\"{top:.1}\" {size}/><title>{title}</title></g>");
            if height > SMALL + 2.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{SMALL}\" text-anchor=\"middle\" fill=\"#fff\">{}</text>",
                    frame.x(point),
                    f64::midpoint(top, bottom) + 3.0,
                    number(value)
                );
            }
            below += value;
        }
    }
}

/// Where the value of a bar is written: at `y`, or above a published value's ring that is there.
fn above_rings(chart: &Chart, frame: &Frame, series: usize, point: usize, y: f64) -> f64 {
    let here = chart.marks.iter().filter(|mark| mark.series == series && mark.point == point);
    let mut rings: Vec<f64> = here.map(|mark| frame.y(mark.value)).collect();
    // From the lowest ring up: a value that is moved above one ring may meet the next.
    rings.sort_by(|a, b| b.total_cmp(a));
    let room = RING + 1.0;
    let meets = |y: f64, ring: f64| ring - room < y && y - SMALL < ring + room;
    rings.into_iter().fold(y, |y, ring| if meets(y, ring) { ring - room - 1.5 } else { y })
}

fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// The sign of a series, around a point.
fn marker(chart: &Chart, series: usize, x: f64, y: f64) -> String {
    let colour = colour(series);
    let path =
        |d: &str| format!("<path transform=\"translate({x:.1} {y:.1})\" d=\"{d}\" fill=\"{colour}\"/>");
    if chart.style != Style::Lines && !chart.scale().log {
        return path("M-5-5H5V5H-5Z");
    }
    match series % COLOURS.len() {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        1 => path("M-3.8-3.8H3.8V3.8H-3.8Z"),
        2 => path("M0-5L4.8 3.6H-4.8Z"),
        3 => path("M0-5.4L5.4 0L0 5.4L-5.4 0Z"),
        4 => path("M0 5L4.8-3.6H-4.8Z"),
        5 => path("M-1.6-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z"),
        6 => path("M-5-3.4L-3.4-5L0-1.6L3.4-5L5-3.4L1.6 0L5 3.4L3.4 5L0 1.6L-3.4 5L-5 3.4L-1.6 0Z"),
        7 => path("M-5.5-2H5.5V2H-5.5Z"),
        8 => path("M-2-5.5H2V5.5H-2Z"),
        _ => path("M-4.5-4.5H4.5L0 0L4.5 4.5H-4.5L0 0Z"),
    }
}

/// The sign of a published value.
fn ring(x: f64, y: f64, says: &str) -> String {
    let title = if says.is_empty() { String::new() } else { format!("<title>{}</title>", escape(says)) };
    format!(
        "<circle class=\"published\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RING}\" fill=\"none\" stroke=\"{INK}\" \
         stroke-width=\"1.6\" pointer-events=\"all\">{title}</circle>\n"
    )
}

fn tooltip(chart: &Chart, line: &Line, point: usize, value: f64) -> String {
    escape(&format!("{}, {}: {} {}", line.name, chart.points[point], precise(value), chart.unit))
}

fn published(chart: &Chart, mark: &Mark) -> String {
    let name = &chart.series[mark.series].name;
    format!("published for {name}, {}: {} ({})", chart.points[mark.point], precise(mark.value), mark.says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvdrive_experiments::Kind;

    #[test]
    fn ten_series_have_signs_of_their_own() {
        let chart = chart(true, 40.0);
        let signs: std::collections::BTreeSet<_> =
            (0..COLOURS.len()).map(|series| marker(&chart, series, 0.0, 0.0)).collect();
        assert_eq!(signs.len(), 10);
    }

    /// Bars of 40 and 1000, of which the first was published as `published`.
    fn chart(log: bool, published: f64) -> Chart {
        Chart {
            id: "x".into(),
            letter: "a".into(),
            title: "Response".into(),
            unit: "us".into(),
            kind: Kind::ModelledFit,
            axis: "workload".into(),
            points: vec!["A".into(), "B".into()],
            every: 1,
            style: Style::Bars,
            log,
            series: vec![Line {
                name: "ours".into(),
                values: vec![Some(40.0), Some(1000.0)],
                spread: vec![],
            }],
            marks: vec![Mark { series: 0, point: 0, value: published, says: "x".into() }],
            counts: String::new(),
        }
    }

    #[test]
    fn a_panel_says_how_its_numbers_came_about_and_bars_begin_at_zero() {
        let (svg, _) = draw(&chart(true, 40.0));
        assert!(svg.contains("modelled-fit"), "{svg}");
        assert!(!svg.contains("<rect"), "a logarithmic axis has no zero: {svg}");
        assert_eq!(draw(&chart(false, 40.0)).0.matches("<rect").count(), 2);
        let mut zero = chart(true, 40.0);
        zero.series[0].values[1] = Some(0.0);
        assert!(draw(&zero).0.contains("<rect"), "zero has no logarithm: the axis is linear");
    }

    #[test]
    fn parts_of_a_bar_stand_on_each_other_and_the_axis_holds_their_sum() {
        let mut parts = Chart { style: Style::Stacked, marks: Vec::new(), ..chart(false, 40.0) };
        parts.series.push(Line {
            name: "rest".into(),
            values: vec![Some(60.0), Some(500.0)],
            spread: vec![],
        });
        assert_eq!((parts.highest_stack(), parts.scale().at(1500.0) < 1.0), (1500.0, true));
        let (svg, _) = draw(&parts);
        let of = |rect: &str, name: &str| -> f64 {
            rect.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
        };
        let rects: Vec<&str> = svg.split("<rect").skip(1).collect();
        assert_eq!(rects.len(), 4, "{svg}");
        for [lower, upper] in [[rects[0], rects[1]], [rects[2], rects[3]]] {
            assert!((of(upper, "y") + of(upper, "height") - of(lower, "y")).abs() < 0.2, "{svg}");
        }
    }

    #[test]
    fn labels_of_an_axis_keep_apart() {
        let mut sizes = Chart { style: Style::Lines, ..chart(false, 40.0) };
        sizes.points = (1..=18).map(|size| format!("{size}K")).collect();
        sizes.series[0].values = vec![Some(40.0); 18];
        assert!(draw(&sizes).0.contains("rotate(-35)"), "16K and 17K would touch");
        sizes.points.truncate(12);
        sizes.series[0].values.truncate(12);
        assert!(!draw(&sizes).0.contains("rotate(-35)"));
    }

    #[test]
    fn values_stand_above_the_circle_of_a_published_one() {
        let y = |svg: &str, element: &str, attribute: &str| -> f64 {
            // The legend has a circle, too, in front of those of the bars.
            let begin = svg.rfind(element).expect(element);
            let line = svg[..begin].rfind('<').map_or(svg, |at| &svg[at..]);
            let value = line.split_once(&format!(" {attribute}=\"")).expect(attribute).1;
            value.split('"').next().unwrap().parse().unwrap()
        };
        for published in [38.0, 40.0, 41.0, 50.0] {
            let (svg, _) = draw(&chart(true, published));
            let (label, ring) = (y(&svg, ">40</text>", "y"), y(&svg, "class=\"published\" cx", "cy"));
            assert!(label < ring - 6.5 || label - SMALL > ring + 6.5, "{published}: {label} at {ring}");
        }
        let (svg, _) = draw(&chart(true, 40.0));
        assert!(y(&svg, ">1k</text>", "y") > 0.0);
    }

    #[test]
    fn long_titles_legends_and_axes_have_rows_of_their_own() {
        let short = draw(&chart(true, 40.0));
        let words = "what goes into the picture and not out of it ".repeat(4);
        let mut long = chart(true, 40.0);
        (long.title, long.axis) = (words.clone(), words.clone());
        long.series[0].name = words.clone();
        long.points = vec!["a label of a point that is far too long".into(); 12];
        long.series[0].values = vec![Some(40.0); 12];
        let (svg, height) = draw(&long);
        assert!(height > short.1 + 5.0 * ROW, "{height}");
        for text in svg.split("</text>") {
            let Some((_, text)) = text.rsplit_once("<text ") else { continue };
            let (attributes, content) = text.split_once('>').unwrap();
            let plain: String = content.split('<').map(|part| part.rsplit('>').next().unwrap()).collect();
            let length = plain.chars().count() as f64 * CHARACTER;
            assert!(length <= WIDTH, "{attributes}: {plain}");
        }
        assert!(svg.contains(">a label of…<") && svg.contains(">a label of a point that…<"), "{svg}");
        let file = file(&words, &[long]);
        let title = file.matches("font-size=\"17\"").count();
        assert!(title > 2, "{title} rows");
        assert_eq!(wrapped("abcdefgh ij", 3.0, 1.0), ["abc", "def", "gh", "ij"]);
    }
}
