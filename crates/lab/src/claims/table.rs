//! Outcomes as an aligned table, and the reasons below it.

use anstyle::{AnsiColor, Style};

use super::{Outcome, Standing, Verdict, counts};
use crate::text::{WIDTH, wrap};

/// How a verdict is painted: what is evidence stands out from what is not.
fn style(outcome: &Outcome) -> Style {
    let colour = match (&outcome.verdict, outcome.standing) {
        _ if outcome.regressed.is_some() => return AnsiColor::BrightRed.on_default().bold().invert(),
        (Verdict::Skipped(_), _) => return Style::new().dimmed(),
        (Verdict::NotReproduced, _) => AnsiColor::Red,
        (Verdict::Emulated, _) => AnsiColor::Magenta,
        (_, Standing::Evidence) => AnsiColor::Green,
        (_, Standing::Fit | Standing::Set) => AnsiColor::Yellow,
        (_, Standing::Ours) => AnsiColor::Cyan,
    };
    colour.on_default()
}

/// The table, with colours if `in_colour`: a terminal shows them.
pub fn text(outcomes: &[Outcome], in_colour: bool) -> String {
    let mut rows: Vec<[String; 7]> =
        vec![["id", "claim", "where", "published", "ours", "kind", "verdict"].map(str::to_owned)];
    for outcome in outcomes {
        let regressed = if outcome.regressed.is_some() { "  REGRESSED" } else { "" };
        rows.push([
            outcome.id.clone(),
            outcome.title.clone(),
            outcome.source.clone(),
            outcome.published.clone(),
            outcome.ours.clone(),
            outcome.kind.to_string(),
            format!("{}{regressed}", outcome.verdict),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * 6) + "\n";
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if matches!(column, 3 | 4) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        let mut cells: Vec<String> = cells.collect();
        if let (true, Some(verdict), Some(outcome)) =
            (in_colour, cells.last_mut(), index.checked_sub(1).map(|index| &outcomes[index]))
        {
            let style = style(outcome);
            *verdict = format!("{style}{}{style:#}", verdict.trim_end());
        }
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        if index == 0 {
            text.push_str(&rule);
        }
    }
    text.push_str(&rule);
    text.push_str(&reasons(outcomes));
    text + &counts(outcomes) + "\n"
}

/// What a reader of the table would ask: what regressed, what is not reproduced and why, what other
/// conditions give.
fn reasons(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let mut say =
        |outcome: &Outcome, what: &str| text.push_str(&wrap(&format!("{}: {what}", outcome.title), WIDTH));
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
        if let Some(tightest) = outcome.tightest() {
            say(outcome, &format!("{tightest}."));
        }
        if !outcome.seeds.is_empty() {
            say(outcome, &format!("{}.", outcome.seeds));
        }
        for beside in &outcome.beside {
            say(outcome, &format!("{} with {}.", beside.ours, beside.name));
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
        text.push_str(&wrap(&format!("Skipped: this build lacks {}.", lacks.join(", ")), WIDTH));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}
