//! `kvdrive top`: a drive that is served, in a terminal, as it runs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kvdrive_text::scaled::{bytes, rate, time};
use kvdrive_text::{grouped, number_of, wrap};
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
/// Columns of a bar that is full, of a share and of a latency.
const BAR: u16 = 8;
const SHARE: u16 = 4;
const LATENCY: u16 = 8;
/// Lines of the curve with its frame. It is lower, or left out, where the counts below it would have fewer than these.
const CURVE: u16 = 6;
const LOWEST_CURVE: u16 = 3;
const COUNTS: u16 = 9;
/// Columns of a screen that has room for the bars of resources.
const WIDE_SCREEN: u16 = 76;

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
        let screen = frame.area();
        let lines = self.head(seen, screen.width.into());
        let head_lines = lines.len() as u16;
        let room_of_curve = screen.height.saturating_sub(head_lines + COUNTS + 1).min(CURVE);
        let areas = Layout::vertical([
            Constraint::Length(head_lines),
            Constraint::Length(if room_of_curve < LOWEST_CURVE { 0 } else { room_of_curve }),
            Constraint::Min(6),
            Constraint::Length(1),
        ]);
        let [head, curve, middle, foot] = areas.areas(screen);
        frame.render_widget(Paragraph::new(lines), head);
        // A column of the curve is a second.
        let columns = usize::from(curve.width.saturating_sub(2));
        let shown = &self.rates[self.rates.len().saturating_sub(columns)..];
        let most = *shown.iter().max().unwrap_or(&0);
        let title = format!(" commands a second, counted; at most {} ", rate(most as f64));
        let line = Sparkline::default().data(shown).style(Style::new().fg(Color::Blue));
        frame.render_widget(line.block(Block::bordered().title(title)), curve);
        let resources = seen.drive.as_ref().map_or(&[][..], |drive| &drive.resources);
        let bar = if screen.width < WIDE_SCREEN { 0 } else { BAR + 1 };
        let names = resources.iter().map(|resource| resource.name.len()).max().unwrap_or(0) as u16;
        let heat = (names + 1 + SHARE + bar + 2).max(" busy, modelled ".len() as u16 + 2);
        let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(heat)]).areas(middle);
        counts(frame, left, seen);
        self.heat(frame, right, resources);
        frame.render_widget(Line::from(" q ends; kvdrive ctl makes the drive fail").dim(), foot);
    }

    /// What the drive and its hosts do, in lines of at most `room` columns.
    fn head(&self, seen: &Seen, room: usize) -> Vec<Line<'static>> {
        let of = |path: &str| seen.counts.of(path);
        let power = match &seen.drive {
            None => vec![format!("no power: {} power on", seen.ctl)],
            Some(SeenDrive { read_only: Some(why), .. }) => vec![why.clone()],
            Some(drive) => vec![
                format!("power on, life {}", of("server.power_ons")),
                format!("{} of model time", time(drive.counts.of("drive.model_ns") as f64)),
                format!("recovery {}", time(drive.counts.of("drive.recovery_ns") as f64)),
            ],
        };
        let is_alarm = seen.drive.as_ref().is_none_or(|drive| drive.read_only.is_some());
        let amount = |path: &str| bytes(self.per_second(path));
        let work = [
            rate(self.per_second("hosts.io_commands")),
            format!("in {}/s", amount("hosts.written_bytes")),
            format!("out {}/s", amount("hosts.read_bytes")),
            number_of(of("hosts.controllers"), "controller"),
            format!("{} not found", grouped(of("hosts.io_misses"))),
            format!("{} failed", grouped(of("hosts.io_errors"))),
        ];
        let memory = [
            format!("{} resident", bytes(of("process.resident_bytes") as f64)),
            format!("{} in huge pages", bytes(of("process.huge_page_bytes") as f64)),
            format!("page faults {}: measured", rate(self.per_second("process.page_faults"))),
        ];
        let late = seen.drive.as_ref().and_then(|drive| drive.lateness.as_ref()).map(|late| {
            let [median, p99] = [late.p50_ns, late.p99_ns].map(|ns| time(ns as f64));
            format!("events late by {median} (median), {p99} (p99): measured")
        });
        let alarm = Style::new().white().on_red();
        let of_power = if is_alarm { alarm } else { Style::new() };
        let styled = [
            (vec![seen.nqn.clone()], Style::new().bold()),
            (seen.listening.clone(), Style::new()),
            (power, of_power),
            (work.into(), Style::new()),
            (memory.into(), Style::new()),
            (late.into_iter().collect(), Style::new()),
        ];
        let lines = styled.into_iter().flat_map(|(parts, style)| {
            filled(&parts, room).into_iter().map(move |line| Line::styled(line, style))
        });
        lines.collect()
    }

    fn heat(&self, frame: &mut Frame<'_>, area: Rect, resources: &[SeenResource]) {
        let rows = resources.iter().map(|resource| {
            let busy = self.busy(resource);
            let bar = "█".repeat((busy * f64::from(BAR)).round() as usize);
            let style = if busy > 0.8 { Style::new().red() } else { Style::new() };
            Row::new([resource.name.clone(), format!("{:3.0}%", busy * 100.0), bar]).style(style)
        });
        let widths = [Constraint::Fill(1), Constraint::Length(SHARE), Constraint::Length(BAR)];
        let has_bars = frame.area().width >= WIDE_SCREEN;
        let widths = if has_bars { &widths[..] } else { &widths[..2] };
        let table = Table::new(rows.collect::<Vec<_>>(), widths.to_vec());
        frame.render_widget(table.block(Block::bordered().title(" busy, modelled ")), area);
    }
}

/// Puts `parts` on lines of at most `room` columns, and a part that is longer on several.
fn filled(parts: &[String], room: usize) -> Vec<String> {
    const BETWEEN: &str = "   ";
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let columns = part.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + BETWEEN.len() + columns <= room => {
                line.push_str(BETWEEN);
                line.push_str(part);
            }
            _ if columns > room && part.contains(' ') => {
                lines.extend(wrap(part, room).lines().map(str::to_owned));
            }
            _ => {
                let letters: Vec<char> = part.chars().collect();
                lines.extend(letters.chunks(room.max(1)).map(|piece| piece.iter().collect()));
            }
        }
    }
    lines
}

/// The counts of commands, with their latencies, and below them those of faults and of the drive, as far as there are
/// lines.
fn counts(frame: &mut Frame<'_>, area: Rect, seen: &Seen) {
    let block = Block::bordered().title(" counted; latency measured ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let commands = seen.counts.labels("hosts.io_commands").into_iter().map(|(name, count)| {
        let latency = seen.latencies.get(&name);
        let spans = latency.map(|latency| [latency.p50_ns, latency.p99_ns].map(|ns| time(ns as f64)));
        let [p50, p99] = spans.unwrap_or_default();
        ([name, grouped(count), p50, p99], Style::new())
    });
    let heading = ["command", "", "p50", "p99"].map(str::to_owned);
    let commands: Vec<_> = std::iter::once((heading, Style::new().dim())).chain(commands).collect();
    let areas = Layout::vertical([Constraint::Length(commands.len() as u16), Constraint::Fill(1)]);
    let [above, below] = areas.areas(inner);
    // Latencies as far as names and counts leave room.
    let of_latencies = inner.width.saturating_sub(longest(&commands, 0) + 1 + longest(&commands, 1));
    match of_latencies / (1 + LATENCY) {
        0 => columns(
            frame,
            above,
            commands.into_iter().map(|([name, count, ..], style)| ([name, count], style)),
        ),
        1 => columns(
            frame,
            above,
            commands.into_iter().map(|([name, count, _, p99], style)| ([name, count, p99], style)),
        ),
        _ => columns(frame, above, commands.into_iter()),
    }
    let drive = seen.drive.iter();
    let faults = drive.clone().flat_map(|drive| &drive.faults);
    let faults =
        faults.map(|fault| ([format!("fault {}", fault.name), grouped(fault.struck)], Style::new().red()));
    let counted = drive.flat_map(|drive| {
        let rows = |section| drive.counts.rows(section).into_iter().filter(|(_, count)| *count > 0);
        let named = move |section: &'static str| {
            rows(section)
                .map(move |(name, count)| ([format!("{section} {name}"), grouped(count)], Style::new()))
        };
        SECTIONS.into_iter().flat_map(named)
    });
    columns(frame, below, faults.chain(counted));
}

/// Columns of the longest cell of a column.
fn longest<const N: usize>(rows: &[([String; N], Style)], column: usize) -> u16 {
    rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0) as u16
}

/// Rows of a name and numbers. If there is not enough room, names are cut.
fn columns<const N: usize>(
    frame: &mut Frame<'_>,
    area: Rect,
    rows: impl Iterator<Item = ([String; N], Style)>,
) {
    let rows: Vec<_> = rows.collect();
    let numbers = (1..N).map(|column| longest(&rows, column).max(if column > 1 { LATENCY } else { 0 }));
    let numbers: Vec<u16> = numbers.collect();
    let room = area.width.saturating_sub(numbers.iter().map(|columns| 1 + columns).sum());
    let widths = std::iter::once(longest(&rows, 0).min(room)).chain(numbers);
    let widths: Vec<_> = widths.map(Constraint::Length).collect();
    let rows = rows.into_iter().map(|(cells, style)| {
        let cells = cells.into_iter().enumerate().map(|(column, cell)| match column {
            0 => Line::from(cell),
            _ => Line::from(cell).right_aligned(),
        });
        Row::new(cells.collect::<Vec<_>>()).style(style)
    });
    frame.render_widget(Table::new(rows.collect::<Vec<_>>(), widths), area);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::serve::seen::{SeenCounts, SeenFault, SeenLatency};
    use serde_json::json;

    fn seen(uptime_ms: u64, stores: u64, busy_ns: u64) -> Seen {
        let core = SeenResource { name: "firmware.cores".into(), busy_ns, queue_ns: 0, uses: 0, servers: 2 };
        let counts = json!({
            "server": {"power_ons": 1, "has_power": 1, "uptime_ns": uptime_ms * 1_000_000},
            "hosts": {
                "controllers": 1,
                "io_misses": 40,
                "io_errors": 2,
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

    /// The lines of a screen.
    fn screen(watched: &Watched, columns: u16, lines: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| watched.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content().iter().map(|cell| cell.symbol());
        let cells: Vec<&str> = cells.collect();
        cells.chunks(columns.into()).map(|line| line.concat()).collect()
    }

    #[test]
    fn the_screen_shows_rates_counts_and_what_is_busy() {
        let mut watched = Watched::default();
        watched.take(seen(1_000, 100, 0));
        watched.take(seen(3_000, 2_100, 2_000_000_000));
        let text = screen(&watched, 80, 24).concat();
        for part in [
            "│store   2 100 15.00 us 250.0 us ",
            "1.000 k/s   in 1.000 MB/s   out 0 B/s   1 controller   40 not found   2 failed ",
            "tcp://127.0.0.1:4420",
            "firmware.cores",
            " 50%",
            "life 1",
            "late by 1.500 us (median), 62.00 us (p99): measured",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        watched.take(Seen { drive: None, ..seen(4_000, 2_100, 0) });
        let text = screen(&watched, 80, 24).concat();
        assert!(text.contains("no power: kvdrive ctl --control /run/kv.sock --nsid 2 power on"), "{text}");
    }

    /// A drive at work under names as long as they are in use.
    fn long_names() -> Seen {
        let names = ["store", "retrieve", "retrieve-part", "iter-close"];
        let latency = SeenLatency { p50_ns: 1_835_000, p99_ns: 9_437_000, ..SeenLatency::default() };
        let commands: serde_json::Map<_, _> =
            names.iter().map(|name| ((*name).to_owned(), json!(1_234_567))).collect();
        let counts = json!({
            "server": {"power_ons": 12, "has_power": 1, "uptime_ns": 5_000_000_000_u64},
            "hosts": {"controllers": 12, "io_commands": commands, "io_misses": 123_456, "io_errors": 123_456},
        });
        let resources = ["link.down", "firmware.collection", "channel"].map(|name| SeenResource {
            name: name.into(),
            busy_ns: 0,
            queue_ns: 0,
            uses: 0,
            servers: 1,
        });
        let fault = SeenFault {
            name: "every-third-read".into(),
            kind: "read-error".into(),
            matched: 243,
            struck: 81,
        };
        Seen {
            nqn: "nqn.2014-08.org.nvmexpress:uuid:690ff18d-2ba8-803e-b933-644277a1ae4e".into(),
            listening: ["tcp://127.0.0.1:4420", "tcp://[::1]:4420", "vfio-user:/run/kvdrive/cntrl"]
                .map(str::to_owned)
                .into(),
            counts: SeenCounts::Told(counts),
            latencies: names.map(|name| (name.to_owned(), latency.clone())).into(),
            drive: Some(SeenDrive {
                counts: SeenCounts::Told(json!({"nand": {"programs": {"total": 95, "index": 95}}})),
                resources: resources.into(),
                lateness: Some(latency),
                faults: vec![fault],
                ..SeenDrive::default()
            }),
            ..seen(5_000, 0, 0)
        }
    }

    #[test]
    fn on_screens_of_every_size_numbers_keep_their_units_and_columns_their_edges() {
        let mut watched = Watched::default();
        watched.take(long_names());
        for (columns, lines) in [(60, 20), (80, 24), (200, 60)] {
            let shown = screen(&watched, columns, lines);
            let text = shown.join("\n");
            let size = format!("{columns} x {lines}");
            for part in [
                "12 controllers",
                "123 456 not found",
                "123 456 failed",
                "vfio-user:/run/kvdrive/cntrl",
                "│fault every-third-read ",
            ] {
                assert!(text.contains(part), "{size}: {part} is not in\n{text}");
            }
            let joined: String = shown.iter().map(|line| line.trim_end()).collect();
            assert!(joined.contains("803e-b933-644277a1ae4e"), "{size}:\n{text}");
            assert!(joined.contains("9.437 ms (p99): measured"), "{size}:\n{text}");
            for name in ["store", "retrieve", "retrieve-part", "iter-close"] {
                let row = shown.iter().find(|line| line.starts_with(&format!("│{name} ")));
                let row = row.unwrap_or_else(|| panic!("{size}: no {name} in\n{text}"));
                let cells = row.split('│').nth(1).unwrap();
                let numbers: &[&str] = match columns {
                    60 => &["1 234 567", "9.437 ms"],
                    _ => &["1 234 567", "1.835 ms", "9.437 ms"],
                };
                assert!(cells.contains(&numbers.join(" ")), "{size}: {row}");
            }
            let edge = |of: &str| {
                let rows = shown.iter().filter(|line| line.starts_with('│') && line.contains(of));
                rows.map(|line| line.find(of).unwrap()).collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(edge("1 234 567").len(), 1, "{size}:\n{text}");
            assert_eq!(edge(" 0%").len(), 1, "{size}:\n{text}");
        }
    }
}
