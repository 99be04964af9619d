//! Outcomes as an aligned table, explanations below it, and the tally that separates evidence from the rest.

use anstyle::{AnsiColor, Style};

use super::judge::{Outcome, Verdict};
use super::points;
use super::standing::Standing;
use kvdrive_experiments::Kind;
use kvdrive_text::{WIDTH, number_of, wrap};

/// The style of a verdict: evidence stands out.
fn style(outcome: &Outcome) -> Style {
    let colour = match (&outcome.verdict, outcome.standing) {
        _ if outcome.regressed.is_some() => return AnsiColor::BrightRed.on_default().bold().invert(),
        (Verdict::Skipped(_) | Verdict::NeedsMore, _) => return Style::new().dimmed(),
        (Verdict::NotReproduced, _) => AnsiColor::Red,
        (Verdict::Emulated, _) => AnsiColor::Magenta,
        (_, Standing::Evidence) => AnsiColor::Green,
        (_, Standing::Fit | Standing::Set) => AnsiColor::Yellow,
        (_, Standing::Ours) => AnsiColor::Cyan,
    };
    colour.on_default()
}

/// The columns of the table, and which of them stay in the line of a claim if the room is too small for all.
const COLUMNS: [(&str, bool); 7] = [
    ("id", true),
    ("claim", false),
    ("where", false),
    ("published", true),
    ("ours", true),
    ("kind", false),
    ("verdict", true),
];

fn cells(outcome: &Outcome) -> [String; 7] {
    let regressed = if outcome.regressed.is_some() { "  REGRESSED" } else { "" };
    [
        outcome.id.clone(),
        outcome.title.clone(),
        outcome.source.clone(),
        outcome.published.clone(),
        outcome.ours.clone(),
        outcome.kind.to_string(),
        format!("{}{regressed}", outcome.verdict),
    ]
}

/// The table, in colours if `in_colour`, for a terminal. If `room` columns are too few for one line a claim,
/// its statement and source are in a second line.
pub fn text(outcomes: &[Outcome], in_colour: bool, room: usize) -> String {
    let rows: Vec<[String; 7]> = outcomes.iter().map(cells).collect();
    let width = |column: usize| {
        let head = COLUMNS[column].0.chars().count();
        rows.iter().map(|row| row[column].chars().count()).fold(head, usize::max)
    };
    let widths: [usize; 7] = std::array::from_fn(width);
    let is_wide = widths.iter().sum::<usize>() + 2 * 6 <= room;
    let shown: Vec<usize> = (0..7).filter(|column| is_wide || COLUMNS[*column].1).collect();
    let line = |row: &[String; 7], style: Option<Style>| {
        let cell = |column: &usize| match (*column, style) {
            (column @ (3 | 4), _) => format!("{:>width$}", row[column], width = widths[column]),
            (6, Some(style)) => format!("{style}{}{style:#}", row[6]),
            (column, _) => format!("{:<width$}", row[column], width = widths[column]),
        };
        shown.iter().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let wide: usize = shown.iter().map(|column| widths[*column] + 2).sum();
    let rule = "-".repeat((wide - 2).min(room)) + "\n";
    let mut text = line(&COLUMNS.map(|(name, _)| name.to_owned()), None) + &rule;
    for (outcome, row) in outcomes.iter().zip(&rows) {
        text.push_str(&line(row, in_colour.then(|| style(outcome))));
        if !is_wide {
            let more = format!("{} ({}; {})", row[1], row[2], row[5]);
            text.push_str(&format!("    {}", wrap(&more, room - 4)));
        }
    }
    text.push_str(&rule);
    text.push_str(&reasons(outcomes, room.min(WIDTH)));
    text + &wrap(&counts(outcomes), if is_wide { usize::MAX } else { room })
}

/// Explanations below the table: what regressed, what is not reproduced and why, what other conditions give.
fn reasons(outcomes: &[Outcome], room: usize) -> String {
    let mut text = String::new();
    let mut say =
        |outcome: &Outcome, what: &str| text.push_str(&wrap(&format!("{}: {what}", outcome.title), room));
    for outcome in outcomes {
        if let Some(regressed) = &outcome.regressed {
            say(outcome, &format!("REGRESSED: {regressed}."));
        }
    }
    for outcome in outcomes
        .iter()
        .filter(|outcome| matches!(outcome.verdict, Verdict::NotReproduced | Verdict::Emulated))
    {
        say(outcome, if outcome.because.is_empty() { "not reproduced." } else { &outcome.because });
    }
    for outcome in outcomes {
        let by_point = outcome.by_point();
        if !by_point.is_empty() {
            let what = if outcome.seeds.is_empty() { "by point" } else { "means by point" };
            say(outcome, &format!("{what}, {}.", points::listed(by_point)));
        }
        if let Some(tightest) = outcome.tightest() {
            say(outcome, &format!("{tightest}."));
        }
        if !outcome.seeds.is_empty() {
            say(outcome, &format!("{}.", outcome.seeds));
        }
        for beside in &outcome.beside {
            say(outcome, &format!("{beside}."));
        }
    }
    let mut lacks: Vec<&str> = outcomes
        .iter()
        .filter_map(|outcome| match &outcome.verdict {
            Verdict::Skipped(lacks) => Some(lacks.as_str()),
            _ => None,
        })
        .collect();
    lacks.sort();
    lacks.dedup();
    if !lacks.is_empty() {
        text.push_str(&wrap(&format!("Skipped: this build lacks {}.", lacks.join(", ")), room));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// In the order of the tally.
const STANDINGS: [(Standing, &str); 4] = [
    (Standing::Evidence, "evidence"),
    (Standing::Fit, "fit"),
    (Standing::Set, "set"),
    (Standing::Ours, "ours"),
];

/// How many outcomes of each standing hold, in words, regressions last.
pub fn counts(outcomes: &[Outcome]) -> String {
    let is_skipped = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Skipped(_));
    let is_open = |outcome: &Outcome| outcome.verdict == Verdict::NeedsMore;
    // The number of claims that hold, and of all.
    let count = |belongs: &dyn Fn(&Outcome) -> bool| {
        let all: Vec<_> =
            outcomes.iter().filter(|one| belongs(one) && !is_skipped(one) && !is_open(one)).collect();
        (all.iter().filter(|one| one.verdict.holds()).count(), all.len())
    };
    let mut parts = Vec::new();
    for (standing, name) in STANDINGS {
        let (good, all) = count(&|one| one.standing == standing);
        if all == 0 {
            continue;
        }
        let mut part = format!("{name}: {good} of {all} hold");
        if standing == Standing::Evidence {
            let (counted, of) = count(&|one| one.standing == standing && one.kind == Kind::Counted);
            part += &format!(" ({counted} of {of} counted, {} of {} modelled)", good - counted, all - of);
        }
        let emulated =
            outcomes.iter().filter(|one| one.standing == standing && one.verdict == Verdict::Emulated);
        match emulated.count() {
            0 => {}
            more => part += &format!(", {more} more under the emulator's accounting"),
        }
        parts.push(part);
    }
    let skipped = outcomes.iter().filter(|one| is_skipped(one)).count();
    if skipped > 0 {
        parts.push(format!("{skipped} skipped"));
    }
    let open = outcomes.iter().filter(|one| is_open(one)).count();
    if open > 0 {
        let need = if open == 1 { "needs" } else { "need" };
        parts.push(format!("{open} {need} more operations"));
    }
    parts.push(match outcomes.iter().filter(|outcome| outcome.regressed.is_some()).count() {
        0 => "none regressed".to_owned(),
        some => format!("{some} REGRESSED"),
    });
    format!("{}; {}", number_of(outcomes.len() as u64, "claim"), parts.join("; "))
}
