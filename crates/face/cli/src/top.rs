//! `kvdrive top`: a drive that is served, in a terminal, as it runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kvdrive_text::grouped;
use kvdrive_text::scaled::{bytes, rate, time};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use crate::serve::control::{self, Client, Request};
use crate::serve::seen::{Seen, SeenDrive, SeenResource};

/// Between two snapshots.
const SECOND: Duration = Duration::from_secs(1);
/// Seconds that the curve shows at most.
const KEPT: usize = 600;
/// Counters of the drive, in this order as far as there are lines.
const SECTIONS: [&str; 7] = ["nand", "traffic", "drive", "engine", "flash_health", "dram", "store"];
/// Columns of a bar that is full.
const BAR: u16 = 8;
/// Columns of the resources: a name, its share, its bar. The counts have the others, 44 of 80.
const HEAT: u16 = 36;

/// Options of `top`.
#[derive(Args)]
pub struct Top {
    /// The control socket of the server [default: kvdrive.sock in the user's runtime folder]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Namespace of the drive
    #[arg(long, value_name = "N", default_value = "1")]
    nsid: u32,
}

/// The last snapshots.
#[derive(Default)]
struct Watched {
    now: Option<Seen>,
    before: Option<Seen>,
    /// Commands a second, the newest last.
    rates: Vec<u64>,
}

impl Top {
    /// Shows the drive until q, Esc or Ctrl-C, or until the server ends.
    pub fn run(&self) -> anyhow::Result<()> {
        let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        anyhow::ensure!(has_terminal, "top needs a terminal; kvdrive ctl status prints the same");
        let path = self.control.clone().unwrap_or_else(control::default_path);
        let mut server = Client::connect(&path, self.nsid)?;
        let mut watched = Watched::default();
        watched.take(serde_json::from_value(server.ask(&Request::Status)?)?);
        let mut terminal = ratatui::try_init()?;
        let shown = loop {
            if let Err(error) = terminal.draw(|frame| watched.draw(frame)) {
                break Err(error.into());
            }
            match is_asked_to_end() {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
            match server.ask(&Request::Status).and_then(|seen| Ok(serde_json::from_value(seen)?)) {
                Ok(seen) => watched.take(seen),
                Err(error) => break Err(error),
            }
        };
        ratatui::restore();
        shown
    }
}

/// Waits a second for a key that ends it.
fn is_asked_to_end() -> anyhow::Result<bool> {
    if !event::poll(SECOND)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(event::KeyModifiers::CONTROL);
    let ends = is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    Ok(key.kind == KeyEventKind::Press && ends)
}

impl Watched {
    fn take(&mut self, seen: Seen) {
        self.before = self.now.replace(seen);
        if self.before.is_some() {
            let rate = self.per_second("hosts.io_commands");
            self.rates.push(rate as u64);
            if self.rates.len() > KEPT {
                self.rates.remove(0);
            }
        }
    }

    /// Growth of a count in a second, between the last two snapshots.
    fn per_second(&self, path: &str) -> f64 {
        let (Some(now), Some(before)) = (&self.now, &self.before) else { return 0.0 };
        let grew = |path| now.counts.of(path).saturating_sub(before.counts.of(path)) as f64;
        grew(path) / (grew("server.uptime_ns") / 1e9).max(1e-3)
    }

    /// The part of the last second's model time that a resource was held.
    fn busy(&self, resource: &SeenResource) -> f64 {
        let drive_of = |seen: &Option<Seen>| seen.as_ref().and_then(|seen| seen.drive.clone());
        let (Some(now), Some(before)) = (drive_of(&self.now), drive_of(&self.before)) else { return 0.0 };
        let model_ns = now.counts.of("drive.model_ns").saturating_sub(before.counts.of("drive.model_ns"));
        let was = before.resources.iter().find(|other| other.name == resource.name);
        let held_ns = was.map_or(0, |was| resource.busy_ns.saturating_sub(was.busy_ns));
        if model_ns == 0 {
            return 0.0;
        }
        (held_ns as f64 / model_ns as f64 / f64::from(resource.servers)).min(1.0)
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let Some(seen) = &self.now else { return };
        let areas = Layout::vertical([
            Constraint::Length(5),
            Constraint::Length(6),
            Constraint::Min(6),
            Constraint::Length(1),
        ]);
        let [head, curve, middle, foot] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(seen)), head);
        // A column of the curve is a second.
        let columns = usize::from(curve.width.saturating_sub(2));
        let shown = &self.rates[self.rates.len().saturating_sub(columns)..];
        let most = *shown.iter().max().unwrap_or(&0);
        let title = format!(" commands a second, counted; at most {} ", rate(most as f64));
        let line = Sparkline::default().data(shown).style(Style::new().fg(Color::Blue));
        frame.render_widget(line.block(Block::bordered().title(title)), curve);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(HEAT)]).areas(middle);
        self.counts(frame, left, seen);
        if let Some(drive) = &seen.drive {
            self.heat(frame, right, drive);
        }
        frame.render_widget(Line::from(" q ends; kvdrive ctl makes the drive fail").dim(), foot);
    }

    fn head(&self, seen: &Seen) -> Vec<Line<'static>> {
        let power = match &seen.drive {
            None => format!(" no power: {} power on ", seen.ctl).white().on_red(),
            Some(SeenDrive { read_only: Some(why), .. }) => format!(" {why} ").white().on_red(),
            Some(drive) => format!(
                "power on, life {}; {} of model time, recovery {}",
                seen.counts.of("server.power_ons"),
                time(drive.counts.of("drive.model_ns") as f64),
                time(drive.counts.of("drive.recovery_ns") as f64)
            )
            .into(),
        };
        let late = seen.drive.as_ref().and_then(|drive| drive.lateness.as_ref());
        let late = late.map_or_else(String::new, |late| {
            let [median, p99] = [late.p50_ns, late.p99_ns].map(|ns| time(ns as f64));
            format!("events late by {median} (median), {p99} (p99): measured")
        });
        let amount = |path: &str| bytes(self.per_second(path));
        vec![
            Line::from(seen.nqn.clone()).bold(),
            Line::from(seen.listening.join("  ")),
            Line::from(power),
            Line::from(format!(
                "{}   in {}/s   out {}/s   {} controllers   {} not succeeded",
                rate(self.per_second("hosts.io_commands")),
                amount("hosts.written_bytes"),
                amount("hosts.read_bytes"),
                seen.counts.of("hosts.controllers"),
                seen.counts.of("hosts.io_errors")
            )),
            Line::from(late),
        ]
    }

    fn counts(&self, frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
        let row = |name: &str, count: u64| (name.to_owned(), grouped(count), Style::new());
        let latency = |name: &str| {
            let latency = seen.latencies.get(name);
            latency.map_or_else(String::new, |latency| {
                format!("  {} / {}", time(latency.p50_ns as f64), time(latency.p99_ns as f64))
            })
        };
        let commands = seen.counts.labels("hosts.io_commands").into_iter();
        let commands = commands.map(|(name, count)| row(&format!("{name}{}", latency(&name)), count));
        let drive = seen.drive.iter();
        let counted = drive.clone().flat_map(|drive| {
            let rows = |section| drive.counts.rows(section).into_iter().filter(|(_, count)| *count > 0);
            let named = move |section: &'static str| {
                rows(section).map(move |(name, count)| row(&format!("{section} {name}"), count))
            };
            SECTIONS.into_iter().flat_map(named)
        });
        let faults = drive.flat_map(|drive| {
            drive.faults.iter().map(|fault| {
                let (name, fired, style) = row(&format!("fault {}", fault.name), fault.fired);
                (name, fired, style.red())
            })
        });
        let rows: Vec<_> = commands.chain(faults).chain(counted).collect();
        let widest = rows.iter().map(|(_, count, _)| count.len()).max().unwrap_or(0);
        let rows = rows.into_iter().map(|(name, count, style)| {
            Row::new([name.into(), Line::from(count).right_aligned()]).style(style)
        });
        let table = Table::new(rows, [Constraint::Fill(1), Constraint::Length(widest as u16)]);
        frame.render_widget(table.block(Block::bordered().title(" counted; p50 / p99 measured ")), area);
    }

    fn heat(&self, frame: &mut Frame<'_>, area: Rect, drive: &SeenDrive) {
        let rows = drive.resources.iter().map(|resource| {
            let busy = self.busy(resource);
            let bar = "█".repeat((busy * f64::from(BAR)).round() as usize);
            let style = if busy > 0.8 { Style::new().red() } else { Style::new() };
            Row::new([resource.name.clone(), format!("{:3.0}%", busy * 100.0), bar]).style(style)
        });
        let widths = [Constraint::Fill(1), Constraint::Length(4), Constraint::Length(BAR)];
        let table = Table::new(rows.collect::<Vec<_>>(), widths);
        frame.render_widget(table.block(Block::bordered().title(" busy, modelled ")), area);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::serve::seen::{SeenCounts, SeenLatency};
    use serde_json::json;

    fn seen(uptime_ms: u64, stores: u64, busy_ns: u64) -> Seen {
        let core = SeenResource { name: "firmware.cores".into(), busy_ns, queue_ns: 0, uses: 0, servers: 2 };
        let counts = json!({
            "server": {"power_ons": 1, "has_power": 1, "uptime_ns": uptime_ms * 1_000_000},
            "hosts": {
                "controllers": 1,
                "io_commands": {"total": stores, "store": stores},
                "written_bytes": stores * 1_000,
            },
        });
        Seen {
            nqn: "nqn.x".into(),
            nsid: 1,
            pid: 1,
            ctl: "kvdrive ctl --control /run/kv.sock --nsid 2".into(),
            listening: vec!["tcp://127.0.0.1:4420".into()],
            counts: SeenCounts::Told(counts),
            latencies: BTreeMap::from([(
                "store".to_owned(),
                SeenLatency { p50_ns: 15_000, p99_ns: 250_000, ..SeenLatency::default() },
            )]),
            drive: Some(SeenDrive {
                counts: SeenCounts::Told(json!({"drive": {"model_ns": uptime_ms * 1_000_000}})),
                resources: vec![core],
                lateness: Some(SeenLatency { p50_ns: 1_500, p99_ns: 62_000, ..SeenLatency::default() }),
                ..SeenDrive::default()
            }),
        }
    }

    #[test]
    fn the_screen_shows_rates_counts_and_what_is_busy() {
        let mut watched = Watched::default();
        watched.take(seen(1_000, 100, 0));
        watched.take(seen(3_000, 2_100, 2_000_000_000));
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| watched.draw(frame)).unwrap();
        let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        for part in [
            "│store  15.00 us / 250.0 us ",
            "1.000 k/s   in 1.000 MB/s   out 0 B/s   1 controllers   0 not succeeded ",
            "tcp://127.0.0.1:4420",
            "2 100│",
            "firmware.cores",
            " 50%",
            "life 1",
            "late by 1.500 us (median), 62.00 us (p99): measured",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        watched.take(Seen { drive: None, ..seen(4_000, 2_100, 0) });
        terminal.draw(|frame| watched.draw(frame)).unwrap();
        let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
        assert!(text.contains("no power: kvdrive ctl --control /run/kv.sock --nsid 2 power on"), "{text}");
    }
}
