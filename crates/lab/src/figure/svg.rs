//! Charts as SVG: one panel for a page ([`panel`]), or all panels of a figure as a file ([`file()`]).
//!
//! Written by hand rather than by a plotting library: every point carries its value as a title that browsers show, colours
//! are attributes that converters for print understand and a page's style sheet can still override, and series differ in
//! shape as well as in colour. No script, no external font.

use std::fmt::Write;

use super::{Chart, Line, Mark, Scale, number, precise};
use crate::experiments::Style;

/// Size of a panel, in pixels at scale 1.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 330.0;
/// Space around the frame of a panel. The top grows with the legend, the bottom with slanted labels.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 44.0;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 18.0;
/// Size of text, and about how wide a character of it is.
const TEXT: f64 = 13.0;
const CHARACTER: f64 = 7.4;
/// The same of the values above bars.
const SMALL: f64 = 9.5;
const SMALL_CHARACTER: f64 = 5.3;
/// Radius of the sign of a published value.
const RING: f64 = 6.5;
/// Space between panels of a file.
const GAP: f64 = 16.0;

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9"];
const INK: &str = "#222";
const GRID: &str = "#ddd";

/// All panels of a figure as one SVG file, two beside each other.
pub fn file(title: &str, charts: &[Chart]) -> String {
    let columns = charts.len().clamp(1, 2);
    let rows = charts.len().div_ceil(columns);
    let width = columns as f64 * (WIDTH + GAP) + GAP;
    let top = 40.0;
    let height = top + rows as f64 * (HEIGHT + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{GAP}\" y=\"26\" font-size=\"17\" font-weight=\"600\" fill=\"{INK}\">{}</text>\n",
        escape(title)
    );
    for (index, chart) in charts.iter().enumerate() {
        let x = GAP + (index % columns) as f64 * (WIDTH + GAP);
        let y = top + (index / columns) as f64 * (HEIGHT + GAP);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>", draw(chart));
    }
    svg + "</svg>\n"
}

/// One panel, as an element of a page: as wide as there is room, to be read aloud by its title.
pub fn panel(chart: &Chart) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
        escape(&format!("{} in {}", chart.title, chart.unit)),
        draw(chart)
    )
}

/// `text` as content or attribute of an element.
pub(crate) fn escape(text: &str) -> String {
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
}

impl Frame {
    fn new(chart: &Chart, legend_rows: usize) -> Frame {
        let step = (WIDTH - LEFT - RIGHT) / chart.points.len() as f64;
        let longest =
            chart.points.iter().map(|label| label.chars().count()).max().unwrap_or(0) as f64 * CHARACTER;
        let slanted = longest > step - 2.0;
        let room = if slanted { BOTTOM + 0.5 * longest + 2.0 } else { BOTTOM };
        Frame {
            top: TOP + legend_rows as f64 * LEGEND_ROW + 4.0,
            bottom: HEIGHT - room,
            step,
            scale: chart.scale(),
            slanted,
        }
    }

    fn x(&self, point: usize) -> f64 {
        LEFT + (point as f64 + 0.5) * self.step
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.scale.at(value) * (self.bottom - self.top)
    }
}

fn draw(chart: &Chart) -> String {
    let (legend, rows) = legend(chart);
    let frame = Frame::new(chart, rows);
    let mut svg = String::new();
    svg.push_str(&title(chart));
    svg.push_str(&legend);
    svg.push_str(&axes(chart, &frame));
    match chart.style {
        Style::Lines => lines(&mut svg, chart, &frame),
        Style::Bars => bars(&mut svg, chart, &frame),
    }
    svg
}

/// What the panel shows, in which unit, and how the numbers came about; smaller where that is long.
fn title(chart: &Chart) -> String {
    let title = format!("({}) {}", chart.letter, chart.title);
    let behind = format!("  [{}]  {}", chart.unit, chart.kind);
    // Heavy text is a little wider.
    let width = (1.1 * title.chars().count() as f64 + 0.85 * behind.chars().count() as f64) * CHARACTER;
    let size = (TEXT + 1.0) * ((WIDTH - 8.0) / width).min(1.0);
    format!(
        "<text x=\"4\" y=\"16\" font-size=\"{size:.1}\" font-weight=\"600\" fill=\"{INK}\" xml:space=\"preserve\">\
         {}<tspan font-weight=\"400\" font-size=\"{:.1}\">{}</tspan></text>\n",
        escape(&title),
        0.85 * size,
        escape(&behind)
    )
}

/// Rows of series names, and how many they are. Series without a value are not named.
fn legend(chart: &Chart) -> (String, usize) {
    let drawn = chart.series.iter().enumerate().filter(|(_, line)| line.values.iter().any(Option::is_some));
    let mut entries: Vec<(String, String)> =
        drawn.map(|(index, line)| (marker(chart, index, 0.0, 0.0), line.name.clone())).collect();
    if !chart.marks.is_empty() {
        entries.push((ring(0.0, 0.0, ""), "published".into()));
    }
    let (mut x, mut row) = (12.0, 0);
    let mut svg = String::new();
    for (sign, name) in entries {
        let width = 30.0 + name.chars().count() as f64 * CHARACTER;
        if x + width > WIDTH && x > 12.0 {
            (x, row) = (12.0, row + 1);
        }
        let y = TOP + 3.0 + row as f64 * LEGEND_ROW;
        let _ = writeln!(
            svg,
            "<g transform=\"translate({x:.1} {y:.1})\">{sign}<text x=\"11\" y=\"4.5\" font-size=\"{TEXT}\" \
             fill=\"{INK}\">{}</text></g>",
            escape(&name)
        );
        x += width;
    }
    (svg, row + 1)
}

fn axes(chart: &Chart, frame: &Frame) -> String {
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
    for (point, label) in chart.points.iter().enumerate() {
        let (x, y) = (frame.x(point), frame.bottom + 17.0);
        let place = if frame.slanted {
            format!("transform=\"translate({:.1} {:.1}) rotate(-35)\" text-anchor=\"end\"", x + 5.0, y - 3.0)
        } else {
            format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"")
        };
        let _ = writeln!(svg, "<text {place} font-size=\"{TEXT}\" fill=\"{INK}\">{}</text>", escape(label));
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{TEXT}\" text-anchor=\"middle\" fill=\"{INK}\">{}\
         <tspan font-size=\"{SMALL}\">{}</tspan></text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 7.0,
        escape(&chart.axis),
        chart.bars_begin().map_or(String::new(), |text| format!(" ({text})"))
    );
    svg
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
        for (point, value) in line.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let sign = marker(chart, index, frame.x(point), frame.y(*value));
            let _ = writeln!(svg, "<g>{sign}<title>{}</title></g>", tooltip(chart, line, point, *value));
        }
    }
    for mark in &chart.marks {
        svg.push_str(&ring(frame.x(mark.point), frame.y(mark.value), &published(chart, mark)));
    }
}

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
            let _ = writeln!(
                svg,
                "<g><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/><title>{}</title></g>",
                width - 1.5,
                (frame.bottom - y).max(0.5),
                colour(index),
                tooltip(chart, line, point, *value)
            );
            if labelled {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{SMALL}\" text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
                    x + width / 2.0 - 0.75,
                    above_rings(chart, frame, index, point, y - 3.0),
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

/// Where the value of a bar is written: at `y`, or higher where a published value has its circle there.
fn above_rings(chart: &Chart, frame: &Frame, series: usize, point: usize, y: f64) -> f64 {
    let here = chart.marks.iter().filter(|mark| mark.series == series && mark.point == point);
    let mut rings: Vec<f64> = here.map(|mark| frame.y(mark.value)).collect();
    // From the lowest up: what is moved above one may meet the next.
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
    if chart.style == Style::Bars {
        return path("M-5-5H5V5H-5Z");
    }
    match series % COLOURS.len() {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        1 => path("M-3.8-3.8H3.8V3.8H-3.8Z"),
        2 => path("M0-5L4.8 3.6H-4.8Z"),
        3 => path("M0-5.4L5.4 0L0 5.4L-5.4 0Z"),
        4 => path("M0 5L4.8-3.6H-4.8Z"),
        _ => path("M-1.6-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5V-1.6H-1.6Z"),
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
    use crate::experiments::Kind;

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
            style: Style::Bars,
            log,
            series: vec![Line { name: "ours".into(), values: vec![Some(40.0), Some(1000.0)] }],
            marks: vec![Mark { series: 0, point: 0, value: published, says: "x".into() }],
            counts: String::new(),
        }
    }

    #[test]
    fn a_panel_says_how_its_numbers_came_about_and_where_bars_begin() {
        let svg = draw(&chart(true, 40.0));
        assert!(svg.contains("modelled-fit"), "{svg}");
        assert!(svg.contains("bars begin at 20, logarithmic"), "{svg}");
        assert!(!draw(&chart(false, 40.0)).contains("bars begin"));
        let mut zero = chart(true, 40.0);
        zero.series[0].values[1] = Some(0.0);
        assert!(!draw(&zero).contains("bars begin"), "zero has no logarithm: the axis is linear");
        let lines = Chart { style: Style::Lines, ..chart(true, 40.0) };
        assert!(!draw(&lines).contains("bars begin"));
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
            let svg = draw(&chart(true, published));
            let (label, ring) = (y(&svg, ">40</text>", "y"), y(&svg, "class=\"published\" cx", "cy"));
            assert!(label < ring - 6.5 || label - SMALL > ring + 6.5, "{published}: {label} at {ring}");
        }
        let svg = draw(&chart(true, 40.0));
        assert!(y(&svg, ">1k</text>", "y") > 0.0);
    }
}
