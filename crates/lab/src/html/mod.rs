//! The report: figures and claims as one HTML page that needs nothing beside itself, no network, no script.
//!
//! The page is a function of its [`Content`] alone: the same runs of the same revision give the same bytes.
//! It is laid out for a telephone, a screen and paper alike.

use std::fmt::Write;

use crate::claims::{self, Outcome, Verdict};
use crate::experiments::{Group, KINDS};
use crate::figure::svg::{self, escape};
use crate::figure::{Chart, Line, Planned, numbers};

const STYLE: &str = include_str!("style.css");

/// What goes onto the page.
pub struct Content<'a> {
    /// Titles of the suites of claims it is about.
    pub titles: Vec<String>,
    /// What a reader should know of their numbers.
    pub notes: Vec<String>,
    /// Revision of the program.
    pub revision: &'a str,
    /// How it was run, as names and values: profiles, seeds, counts.
    pub facts: Vec<(String, String)>,
    /// What became of the claims.
    pub outcomes: Vec<Outcome>,
    /// Figures with their panels.
    pub figures: Vec<(&'a Planned, Vec<Chart>)>,
}

/// Chapters of figures: title, anchor, and what is in them.
const CHAPTERS: &[(Group, &str, &str, &str)] = &[
    (
        Group::Paper,
        "The BandSlim paper",
        "paper",
        "Every panel of the evaluation of Park et al., BandSlim, ICPP'24. Lines and bars are our runs; a ring is a value \
         the paper states in its text. Where the paper states a ratio, the ring stands at that ratio of our own baseline.",
    ),
    (
        Group::Article,
        "The CXL article",
        "article",
        "Park et al., IEEE Micro. No hardware of this kind was measured by the authors either: their numbers are estimates, \
         and ours use constants that were chosen so that the orderings they state come out.",
    ),
    (
        Group::Plus,
        "Hash-table FTLs",
        "plus",
        "Duffy, Kim and Kim, A Hash-Based Key-Value SSD FTL With Efficient Small-Value Support. Its emulator leaves much of what \
         a drive does without time; here everything takes its time, and one figure says what each omission is worth. Absolute \
         throughput is published in figures alone; ratios are held against ours.",
    ),
    (
        Group::Plus2,
        "A hash FTL of ours",
        "plus2",
        "Plus2 keeps what Plus does with a third of the bytes for every pair. It has to be no slower anywhere, faster where much          is written, and to program less and take less DRAM: on the same drive, whichever structures the DRAM is for.",
    ),
    (
        Group::Saker,
        "Stores on either side of the wire",
        "saker",
        "Zhong, Wang and Jiang, SAKER, SYSTOR'25: a key-value store on the host or in the drive, and a layer on the host that \
         batches small writes. Plots of the paper carry no values; ratios of its text are held against ours.",
    ),
    (
        Group::Beyond,
        "Beyond the papers",
        "beyond",
        "What the papers name as open, and what other methods would do on the same drive. There is nothing published to hold \
         these runs against.",
    ),
];

/// The page.
pub fn page(content: &Content<'_>) -> String {
    let about = escape(&listed(&content.titles));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{about}, claim by claim</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{about}, claim by claim</h1>\n\
         <p class=\"lead\">A key-value SSD in software, kvdrive {}, runs the experiments of {about} and says of every \
         claim whether it comes out.</p>\n",
        escape(content.revision)
    );
    html.push_str(&contents(content));
    html.push_str(&facts(content));
    html.push_str(&verdicts(&content.outcomes));
    for (group, title, anchor, lead) in CHAPTERS {
        let figures: Vec<_> =
            content.figures.iter().filter(|(figure, _)| figure.figure().group == *group).collect();
        if figures.is_empty() {
            continue;
        }
        let _ = writeln!(html, "<h2 id=\"{anchor}\">{title}</h2>\n<p>{}</p>", escape(lead));
        for (figure, charts) in figures {
            html.push_str(&section(figure, charts));
        }
    }
    html + &notes(&content.notes) + "</body>\n</html>\n"
}

/// `A, B and C`.
fn listed(names: &[String]) -> String {
    match names {
        [first @ .., before, last] => [first, &[format!("{before} and {last}")]].concat().join(", "),
        names => names.join(", "),
    }
}

fn contents(content: &Content<'_>) -> String {
    let mut html = String::from("<nav><a href=\"#claims\">Claims</a>");
    for (figure, _) in &content.figures {
        let figure = figure.figure();
        let _ = write!(html, " <a href=\"#{0}\">{0}</a>", escape(&figure.id));
    }
    html + " <a href=\"#notes\">Notes</a></nav>\n"
}

fn facts(content: &Content<'_>) -> String {
    let mut html = String::from("<h2 id=\"run\">What was run</h2>\n<dl>\n");
    for (name, value) in &content.facts {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    html.push_str("</dl>\n<p>How a number came about stands beside it:</p>\n<dl>\n");
    for (_, name, meaning) in KINDS {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(meaning));
    }
    html + "</dl>\n"
}

fn verdicts(outcomes: &[Outcome]) -> String {
    let mut html = format!(
        "<h2 id=\"claims\">Claims</h2>\n<p>{}. Where the source states an order rather than a number, &ldquo;published&rdquo; \
         says so, and ours at how many points it holds. Below a claim stands what we get under conditions the source did \
         not have.</p>\n<table class=\"claims\">\n<thead><tr><th>claim</th><th>where</th><th class=\"number\">published</th>\
         <th class=\"number\">ours</th><th>kind</th><th>verdict</th></tr></thead>\n<tbody>\n",
        escape(&claims::counts(outcomes))
    );
    for outcome in outcomes {
        html.push_str(&verdict(outcome));
    }
    html + "</tbody>\n</table>\n"
}

fn verdict(outcome: &Outcome) -> String {
    let class = match outcome.verdict {
        _ if outcome.regressed.is_some() => "regressed",
        Verdict::Reproduced => "reproduced",
        Verdict::Holds => "holds",
        Verdict::NotReproduced | Verdict::Emulated => "not-reproduced",
        Verdict::Skipped(_) => "skipped",
    };
    let mut why = Vec::new();
    why.extend(outcome.regressed.iter().map(|what| format!("Regressed: {what}.")));
    if !outcome.reading.is_empty() {
        why.push(format!("Our reading: {}", outcome.reading));
    }
    if matches!(outcome.verdict, Verdict::NotReproduced | Verdict::Emulated | Verdict::Skipped(_)) {
        why.push(outcome.because.clone());
    }
    why.extend(outcome.beside.iter().map(|beside| format!("{} with {}.", beside.ours, beside.name)));
    let why: String = why.iter().map(|line| format!("<div class=\"why\">{}</div>", escape(line))).collect();
    format!(
        "<tr id=\"claim-{}\"><td class=\"what\"><b>{}</b><br>{}{why}</td><td class=\"where\">{}</td>\
         <td class=\"number\" data-name=\"published\">{}</td><td class=\"number\" data-name=\"ours\">{}</td>\
         <td class=\"kind\">{}</td><td class=\"verdict {class}\">{}</td></tr>\n",
        escape(&outcome.id),
        escape(&outcome.title),
        escape(&outcome.statement),
        escape(&outcome.source),
        unbroken(&outcome.published),
        unbroken(&outcome.ours),
        outcome.kind,
        outcome.verdict
    )
}

/// A number and its unit on one line.
fn unbroken(text: &str) -> String {
    escape(text).replace(' ', "&nbsp;")
}

fn section(planned: &Planned, charts: &[Chart]) -> String {
    let figure = planned.figure();
    let mut html = format!(
        "<section>\n<h3 id=\"{}\">{}: {}</h3>\n",
        escape(&figure.id),
        escape(&figure.source),
        escape(&figure.title)
    );
    if !figure.notes.is_empty() {
        html.push_str("<ul>\n");
        for note in &figure.notes {
            let _ = writeln!(html, "<li>{}</li>", escape(note));
        }
        html.push_str("</ul>\n");
    }
    for (series, lacks) in planned.left_out() {
        let _ = writeln!(html, "<p>{} is left out: this build lacks {}.</p>", escape(series), escape(lacks));
    }
    html.push_str("<div class=\"panels\">\n");
    for chart in charts {
        let _ = writeln!(
            html,
            "<figure>\n{}<figcaption>{}; {}{}</figcaption>\n{}</figure>",
            svg::panel(chart),
            chart.kind,
            escape(&chart.counts),
            if chart.log { "; logarithmic" } else { "" },
            table(chart)
        );
    }
    html.push_str("</div>\n");
    if figure.group == Group::Beyond {
        html.push_str(&best(charts));
    }
    html + "</section>\n"
}

/// Of each panel, the series one should build: the one whose worst point is nearest to the best there.
fn best(charts: &[Chart]) -> String {
    let mut html = String::from("<p>What to build, by these numbers:</p>\n<ul>\n");
    for chart in charts {
        let more_is_better = chart.unit.ends_with("/s");
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
        let chosen = chart.series.iter().max_by(|a, b| worst(a).total_cmp(&worst(b)));
        if let Some(chosen) = chosen {
            let (title, name, worst) = (escape(&chart.title), escape(&chosen.name), worst(chosen));
            let _ = match more_is_better {
                true => writeln!(html, "<li>{title}: {name} is never below {worst:.2} of the best.</li>"),
                false => writeln!(
                    html,
                    "<li>{title}: {name} is never above {:.2} times the least.</li>",
                    1.0 / worst
                ),
            };
        }
    }
    html + "</ul>\n"
}

/// The numbers of a chart, folded away.
fn table(chart: &Chart) -> String {
    let row = |tag: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let mut html =
        String::from("<details><summary>numbers</summary><div class=\"scroll\"><table class=\"numbers\">\n");
    html.push_str(&row("th", numbers::heading(chart)));
    for point in 0..chart.points.len() {
        html.push_str(&row("td", numbers::row(chart, point)));
    }
    html.push_str("</table></div>\n");
    for (says, values) in numbers::published(chart) {
        let _ = writeln!(html, "<div class=\"why\">published: {}: {}</div>", escape(&says), escape(&values));
    }
    html + "</details>\n"
}

/// What a reader should know before believing any of it: of every page, and of the numbers of its suites.
fn notes(of_suites: &[String]) -> String {
    let mut html = String::from("<h2 id=\"notes\">Notes</h2>\n<ul>\n");
    for note in NOTES.iter().copied().chain(of_suites.iter().map(String::as_str)) {
        let _ = writeln!(html, "<li>{}</li>", escape(note));
    }
    html + "</ul>\n"
}

const NOTES: &[&str] = &[
    "Nothing here was measured on the authors' hardware. Bytes, commands, pages and copies are counted and do not depend on any \
     time; times are those of a model whose constants stand, each with its source, in kvdrive config.",
    "A claim that is not reproduced stays in the table with our value and the arithmetic behind it. No constant was changed to hit \
     it.",
];
