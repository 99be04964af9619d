//! The report: figures and claims as one self-contained HTML page, without network access or scripts.
//!
//! The page is a function of its [`Content`] alone: the same runs of the same revision give the same bytes.
//! It is laid out for telephones, screens and paper. The templates (crate `maud`) escape all text; only style
//! sheet and drawings are inserted unescaped.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use kvdrive_claims::{self as claims, Outcome, Standing, Verdict};
use kvdrive_experiments::{CHAPTERS, Chapter, KINDS};
use kvdrive_figures::svg;
use kvdrive_figures::{Chart, Line, Planned, numbers};

const STYLE: &str = include_str!("style.css");

/// The content of the page.
pub struct Content<'a> {
    /// Titles of the suites of claims on it.
    pub titles: Vec<String>,
    /// Notes on their numbers.
    pub notes: Vec<String>,
    /// Revision of the program.
    pub revision: &'a str,
    /// Conditions of the runs, as names and values: profiles, seeds, numbers of operations.
    pub facts: Vec<(String, String)>,
    /// Verdicts of the claims.
    pub outcomes: Vec<Outcome>,
    /// Figures with their panels.
    pub figures: Vec<(&'a Planned, Vec<Chart>)>,
    /// If the call was interrupted: how much of it is on the page.
    pub so_far: Option<String>,
}

/// The page.
pub fn page(content: &Content<'_>) -> String {
    let about = listed(&content.titles);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (about) ", claim by claim" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (about) ", claim by claim" }
                p.lead {
                    "A key-value SSD in software, kvdrive " (content.revision) ", runs the experiments of " (about)
                    " and states of every claim whether it is reproduced."
                }
                @if let Some(so_far) = &content.so_far {
                    p #interrupted { strong { "This page is of an interrupted call: " } (so_far) "." }
                }
                p {
                    (claims::counts(&content.outcomes)) ". The figures come first, then "
                    a href="#claims" { "every claim" } ", then " a href="#run" { "how it was run" } "."
                }
                (contents(content))
                @for (chapter, figures) in chapters(content) {
                    h2 id={ "chapter-" (chapter.name) } { (chapter.title) }
                    p { (chapter.lead) }
                    @for (figure, charts) in &figures { (section(figure, charts, content.so_far.is_none())) }
                }
                (verdicts(&content.outcomes))
                (facts(content))
                (notes(&content.notes))
            }
        }
    };
    page.into_string() + "\n"
}

/// Figures of one chapter.
type Figures<'c> = Vec<&'c (&'c Planned, Vec<Chart>)>;

/// The chapters that have figures.
fn chapters<'c>(content: &'c Content<'_>) -> Vec<(&'static Chapter, Figures<'c>)> {
    let chapters = CHAPTERS.iter().map(|chapter| {
        let figures = content.figures.iter().filter(|(figure, _)| figure.figure().chapter == chapter);
        (chapter, figures.collect::<Figures<'c>>())
    });
    chapters.filter(|(_, figures)| !figures.is_empty()).collect()
}

/// `A, B and C`.
fn listed(names: &[String]) -> String {
    match names {
        [first @ .., before, last] => [first, &[format!("{before} and {last}")]].concat().join(", "),
        names => names.join(", "),
    }
}

fn contents(content: &Content<'_>) -> Markup {
    html! {
        nav {
            @for (chapter, figures) in chapters(content) {
                div {
                    a.chapter href={ "#chapter-" (chapter.name) } { (chapter.title) }
                    ul {
                        @for (figure, _) in &figures {
                            @let figure = figure.figure();
                            li { a href={ "#" (figure.id) } { (number_of(&figure.source)) (figure.title) } }
                        }
                    }
                }
            }
            div {
                a.chapter href="#claims" { "Claims" }
                ul {
                    li { a href="#run" { "What was run" } }
                    li { a href="#notes" { "Notes" } }
                }
            }
        }
    }
}

/// `Figure 3: ` of a source like `ICPP'24, Figure 3`: the chapter names the publication.
fn number_of(source: &str) -> String {
    let number = source.rsplit_once(", ").map(|(_, number)| number);
    let number = number.filter(|number| number.starts_with("Figure") || number.starts_with("section"));
    number.map_or(String::new(), |number| format!("{number}: "))
}

fn facts(content: &Content<'_>) -> Markup {
    html! {
        h2 #run { "What was run" }
        dl {
            @for (name, value) in &content.facts { dt { (name) } dd { (value) } }
        }
        p { "The word beside a number is its kind:" }
        dl {
            @for (_, name, meaning) in KINDS { dt { (name) } dd { (meaning) } }
        }
    }
}

fn verdicts(outcomes: &[Outcome]) -> Markup {
    html! {
        h2 #claims { "Claims" }
        p {
            (claims::counts(outcomes)) ". If the source states an order and no number, column \u{201c}published\u{201d} has the order, "
            "and column \u{201c}ours\u{201d} the smallest margin by which it holds, or the number of points at which it holds. "
            "Below a published number is the tolerance with which ours is judged; points are of a percentage. "
            "Our results under other conditions than those of the source are below a claim. Green is evidence: the claim could "
            "have failed. A result to which constants were fitted, or from which one was solved, is marked, and so is a "
            "statement of ours."
        }
        table.claims {
            thead {
                tr {
                    th { "claim" } th { "where" } th.number { "published" } th.number { "ours" } th { "kind" }
                    th { "verdict" }
                }
            }
            tbody { @for outcome in outcomes { (verdict(outcome, outcomes)) } }
        }
    }
}

fn verdict(outcome: &Outcome, all: &[Outcome]) -> Markup {
    let class = match (&outcome.verdict, outcome.standing) {
        _ if outcome.regressed.is_some() => "regressed",
        (Verdict::NotReproduced | Verdict::Emulated, _) => "not-reproduced",
        (Verdict::Skipped(_) | Verdict::NeedsMore, _) => "open",
        (Verdict::Reproduced | Verdict::Holds, Standing::Evidence) => "evidence",
        (Verdict::Reproduced | Verdict::Holds, Standing::Fit | Standing::Set) => "fit",
        (Verdict::Reproduced | Verdict::Holds, Standing::Ours) => "ours",
    };
    let mut why = Vec::new();
    why.extend(outcome.regressed.iter().map(|what| format!("Regressed: {what}.")));
    // A claim that was expected to hold has no explanation for its failure.
    if outcome.verdict == Verdict::NotReproduced
        && outcome.because.is_empty()
        && outcome.comparisons.is_empty()
    {
        why.push(format!("Published is {}, ours {}.", outcome.published, outcome.ours));
    }
    if !outcome.reading.is_empty() {
        why.push(format!("Our reading: {}", outcome.reading));
    }
    if !outcome.verdict.holds() && !outcome.because.is_empty() {
        why.push(outcome.because.clone());
    }
    why.extend(outcome.tightest().map(|tightest| format!("Tightest: {tightest}.")));
    if !outcome.seeds.is_empty() {
        why.push(format!("Of seeds: {}.", outcome.seeds));
    }
    why.extend(outcome.beside.iter().map(|beside| format!("{beside}.")));
    html! {
        tr id={ "claim-" (outcome.id) } {
            td.what {
                b { (outcome.title) } " " span.id { (outcome.id) } br; (outcome.statement)
                (by_point(outcome))
                @for line in &why { div.why { (linked(line, outcome, all)) } }
                details.why {
                    summary { "runs" }
                    dl { @for name in &outcome.names { dt { (name.name) } dd { (name.is) } } }
                }
            }
            td.where data-name="where" { (outcome.source) }
            td.number data-name="published" {
                div {
                    (unbroken(&outcome.published))
                    @if !outcome.tolerance.is_empty() {
                        br; span.soft { (unbroken(&format!("\u{b1} {}", outcome.tolerance))) }
                    }
                }
            }
            td.number data-name="ours" { (unbroken(&outcome.ours)) }
            td.kind data-name="kind" { (outcome.kind) }
            td class={ "verdict " (class) } data-name="verdict" {
                // One element, which is one cell of the grid on a telephone.
                div { (outcome.verdict) @if let Some(word) = standing_beside(outcome) { br; span.soft { (word) } } }
            }
        }
    }
}

/// Our value at each point, if they differ; points at which the claim fails stand out.
fn by_point(outcome: &Outcome) -> Markup {
    let points = outcome.by_point();
    let heading = if outcome.seeds.is_empty() { "By point: " } else { "Means by point: " };
    html! {
        @if !points.is_empty() {
            div.why {
                (heading)
                @for (index, point) in points.iter().enumerate() {
                    @if index > 0 { ", " }
                    @if point.holds { (point) } @else { b { (point) } }
                }
                "."
            }
        }
    }
}

/// The text, with a link for the id of each other claim in it. Only ids with a hyphen are: the others are words.
fn linked(text: &str, outcome: &Outcome, all: &[Outcome]) -> Markup {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let is_id =
        |word: &str| word.contains('-') && word != outcome.id && all.iter().any(|claim| claim.id == word);
    html! {
        @for piece in text.split_inclusive(ends) {
            @let (word, end) = piece.split_at(piece.trim_end_matches(ends).len());
            @if is_id(word) { a href={ "#claim-" (word) } { (word) } (end) } @else { (piece) }
        }
    }
}

/// A remark on a verdict with a standing below evidence.
fn standing_beside(outcome: &Outcome) -> Option<&'static str> {
    match (outcome.standing, outcome.verdict == Verdict::NotReproduced) {
        (Standing::Evidence, _) => None,
        (Standing::Fit, false) => Some("by a fit"),
        (Standing::Fit, true) => Some("despite a fit"),
        (Standing::Set, false) => Some("by construction"),
        (Standing::Set, true) => Some("despite a set constant"),
        (Standing::Ours, _) => Some("ours"),
    }
}

/// Longest text that stays on one line, in characters: a number, its unit, and a word or two.
const ONE_LINE: usize = 20;

/// Keeps a number and its unit on one line; longer text may wrap.
fn unbroken(text: &str) -> String {
    if text.chars().count() > ONE_LINE { text.to_owned() } else { text.replace(' ', "\u{a0}") }
}

/// A figure. What to build is said of a whole one only: a series that is missing might be the best.
fn section(planned: &Planned, charts: &[Chart], is_whole: bool) -> Markup {
    let figure = planned.figure();
    html! {
        section {
            h3 #(figure.id) { (figure.source) ": " (figure.title) }
            @if !figure.notes.is_empty() {
                ul { @for note in &figure.notes { li { (note) } } }
            }
            @for (series, lacks) in planned.left_out() {
                p { (series) " is left out: this build lacks " (lacks) "." }
            }
            div.panels {
                @for chart in charts {
                    figure {
                        (PreEscaped(svg::panel(chart)))
                        figcaption { (chart.kind) "; " (chart.counts) @if chart.log { "; logarithmic" } }
                        (table(chart))
                    }
                }
            }
            @if is_whole && figure.chapter.says_best { (best(charts)) }
        }
    }
}

/// For each panel, the recommended series: the one whose worst point is nearest to the best there.
fn best(charts: &[Chart]) -> Markup {
    html! {
        p { "What to build, by these numbers:" }
        ul {
            @for chart in charts {
                @if let Some((name, worst)) = nearest_to_the_best(chart) {
                    @if more_is_better(chart) {
                        li { (chart.title) ": " (name) " is never below " (format!("{worst:.2}")) " of the best." }
                    } @else {
                        li { (chart.title) ": " (name) " is never above " (format!("{:.2}", 1.0 / worst)) " times the least." }
                    }
                }
            }
        }
    }
}

fn more_is_better(chart: &Chart) -> bool {
    chart.unit.ends_with("/s") || chart.unit.ends_with("hits")
}

/// The series whose worst point is nearest to the best there, and the ratio of the two.
fn nearest_to_the_best(chart: &Chart) -> Option<(&str, f64)> {
    let more_is_better = more_is_better(chart);
    let ratio = |value: f64, best: f64| if more_is_better { value / best } else { best / value };
    let bests: Vec<f64> = (0..chart.points.len())
        .map(|point| {
            let values = chart.series.iter().filter_map(|line| line.values[point]);
            if more_is_better { values.fold(0.0, f64::max) } else { values.fold(f64::INFINITY, f64::min) }
        })
        .collect();
    let worst = |line: &Line| {
        let ratios =
            line.values.iter().zip(&bests).map(|(value, best)| value.map_or(0.0, |it| ratio(it, *best)));
        ratios.fold(f64::INFINITY, f64::min)
    };
    let chosen = chart.series.iter().max_by(|a, b| worst(a).total_cmp(&worst(b)))?;
    Some((&chosen.name, worst(chosen)))
}

/// The numbers of a chart, in a section that can be opened.
fn table(chart: &Chart) -> Markup {
    html! {
        details {
            summary { "numbers" }
            div.scroll {
                table.numbers {
                    tr { @for cell in numbers::heading(chart) { th { (cell) } } }
                    @for point in chart.labelled() {
                        tr { @for cell in numbers::row(chart, point) { td { (cell) } } }
                    }
                }
            }
            @for (says, values) in numbers::published(chart) {
                div.why { "published: " (says) ": " (values) }
            }
        }
    }
}

/// Notes for readers: those of every page, and those of its suites.
fn notes(of_suites: &[String]) -> Markup {
    html! {
        h2 #notes { "Notes" }
        ul {
            @for note in NOTES.iter().copied().chain(of_suites.iter().map(String::as_str)) { li { (note) } }
        }
    }
}

const NOTES: &[&str] = &[
    "Nothing here was measured on the authors' hardware. Bytes, commands, pages and copies are counted and do not depend on any \
     time; times are those of a model; kvdrive config prints its constants, each with its source.",
    "A claim that is not reproduced stays in the table with our value and the arithmetic for it. No constant was changed to \
     reach it.",
];
