//! One report as tables.

use super::stalls::{stalls, stalls_of_commands};
use super::table::{Table, bandwidth, bytes, edges, percent, rate, ratio, short, time};
use super::{Commands, Latency, Report};
use kvdrive_config::NO_STORE;
use kvdrive_declare::{Form, Kind};
use kvdrive_device::engines::looks_at;
use kvdrive_text::{WIDTH, grouped, wrap};
use std::fmt;
use std::ops::Deref;

const COUNTED: &str = "counted";

/// Sections of counters that are a table each.
const SECTIONS: [(&str, &str); 6] = [
    ("DRIVE", "drive"),
    ("WORKLOAD", "workload"),
    ("ENGINE", "engine"),
    ("SAKER", "saker"),
    ("STORE ON THE HOST", "store"),
    ("MEMORY OF THAT STORE", "store_memory"),
];

/// Number of resources shown; the others are idle or nearly so, and in the JSON.
const BUSIEST: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_columns(WIDTH))
    }
}

impl Report {
    /// The report as tables that fit `room` columns.
    pub fn in_columns(&self, room: usize) -> String {
        // Lines aligned at both edges do not become longer when there is more room.
        Text { report: self, room: room.min(WIDTH) }.to_string()
    }
}

/// A report being written as text.
pub(super) struct Text<'a> {
    pub(super) report: &'a Report,
    pub(super) room: usize,
}

impl Deref for Text<'_> {
    type Target = Report;

    fn deref(&self) -> &Report {
        self.report
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.heading())?;
        f.write_str(&self.throughput())?;
        f.write_str(&self.latency())?;
        f.write_str(&self.commands())?;
        f.write_str(&self.transactions())?;
        f.write_str(&self.traffic())?;
        f.write_str(&self.flash())?;
        f.write_str(&self.amplification())?;
        f.write_str(&self.verified())?;
        f.write_str(&self.faults())?;
        f.write_str(&self.flash_health())?;
        f.write_str(&self.precondition())?;
        for (heading, section) in SECTIONS {
            f.write_str(&self.section(heading, section))?;
        }
        f.write_str(&self.dram_table())?;
        f.write_str(&self.occupied())?;
        f.write_str(self.resources().trim_end())?;
        f.write_str("\n")
    }
}

impl Text<'_> {
    fn heading(&self) -> String {
        let engine = self.setting("engine", "name");
        // An engine without a packing policy is headed by its own name.
        let how_placed =
            if looks_at(&engine, "packing") { self.setting("packing", "policy") } else { engine };
        let store = self.setting("host", "store");
        let (transfer, how_placed) = match store == NO_STORE {
            true => (self.setting("host", "transfer"), how_placed),
            // Blocks move by PRP, whichever method the profile has for pairs.
            false => ("prp".to_owned(), format!("{store} on host")),
        };
        // The commands of hosts to a served drive are not a workload.
        let work = match self.ops.answered() {
            0 if !self.commands.is_empty() || self.clock == "wall" => "served".to_owned(),
            _ => self.setting("workload", "name"),
        };
        let what = [work, self.profile.clone(), transfer, how_placed];
        let how = format!("seed {}, {} clock, {}", self.seed, self.clock, self.revision);
        let mut text = edges(&what.join(" | "), &how, self.room) + "\n";
        text.push_str(&"-".repeat(self.room));
        text.push('\n');
        let drive = self.drive_in_words();
        if !drive.is_empty() {
            text.push_str(&wrap(&drive, self.room));
        }
        text.push_str(&self.settings());
        text.push_str(&self.pairs());
        for note in &self.notes {
            text.push_str(&wrap(&format!("note: {note}"), self.room));
        }
        text
    }

    /// The pairs of the workload, wrapped.
    pub(super) fn pairs(&self) -> String {
        self.report.pairs.as_ref().map_or_else(String::new, |pairs| wrap(&pairs.in_words(), self.room))
    }

    /// Settings that differ from the profile, wrapped.
    pub(super) fn settings(&self) -> String {
        let mut text = String::new();
        let mut line = "set:".to_owned();
        for setting in &self.set {
            if line.chars().count() + 1 + setting.chars().count() > self.room {
                text.push_str(&(std::mem::replace(&mut line, "    ".to_owned()) + "\n"));
            }
            line.push(' ');
            line.push_str(setting);
        }
        if self.set.is_empty() { text } else { text + &line + "\n" }
    }

    pub(super) fn throughput(&self) -> String {
        let misses = if self.not_found.is_empty() { &[][..] } else { &["not found"] };
        let headings: Vec<_> = ["count", "values"].into_iter().chain(misses.iter().copied()).collect();
        let mut table = Table::new("OPERATIONS", &headings, COUNTED);
        for (name, count) in self.ops.by_name() {
            let value_bytes = match name {
                "store" => Some(self.value_bytes.stored),
                name => self.read_bytes.get(name).copied(),
            };
            let value_bytes = value_bytes.map_or_else(String::new, |count| bytes(count as f64));
            if count > 0 {
                let missed = self.not_found.get(name).map(|missed| grouped(*missed));
                table.row(name, &[vec![grouped(count), value_bytes], Vec::from_iter(missed)].concat());
            }
        }
        table.row("errors", &[grouped(self.ops.errors)]);
        let mut text = table.finish(self.room);
        let by_wall = self.clock == "wall";
        let (heading, span_ns) = match by_wall {
            true => ("wall time", self.time.wall_s * 1e9),
            false => ("model time", self.time.virtual_ns as f64),
        };
        let headings = ["operations", "stored", "returned", heading];
        let mut table = Table::new("THROUGHPUT", &headings, &self.time_kind());
        let flow = |count: u64, per_s: f64| if count > 0 { bandwidth(per_s) } else { "-".to_owned() };
        let flows = &self.bandwidth_bytes_per_s;
        let stored = flow(self.value_bytes.stored, flows.stored);
        let returned = flow(self.value_bytes.retrieved, flows.retrieved);
        table.row("", &[self.if_operated(rate(self.throughput_ops_per_s)), stored, returned, time(span_ns)]);
        text.push_str(table.finish(self.room).trim_end());
        text.push('\n');
        text.push_str(&self.limited_by());
        if let Some(cache) = &self.cache {
            let of = |key| self.report.setting("workload", key);
            for line in cache.in_words(&of("cache_admission"), &of("cache_shrink")) {
                text.push_str(&edges(&format!("  {line}"), COUNTED, self.room));
                text.push('\n');
            }
        }
        // For a drive on a network the model time is unknown.
        if by_wall && self.time.virtual_ns > 0 {
            let line = format!("  the drive's own clock went on by {}", time(self.time.virtual_ns as f64));
            text.push_str(&edges(&line, &self.model_kind(), self.room));
            text.push('\n');
        }
        if self.clock == "virtual" && self.time.wall_s > 0.0 {
            let loaded = self.precondition.as_ref().map_or(0, |loading| loading.stores);
            let per_s = rate((loaded + self.ops.answered()) as f64 / self.time.wall_s);
            let simulated = self.if_operated(per_s.replace("/s", " operations/s").replace("  ", " "));
            let loading = if loaded > 0 { ", loading included" } else { "" };
            let took = time(self.time.wall_s * 1e9);
            let line = format!("  simulated at {simulated}{loading}, in {took} of this machine's time");
            text.push_str(&edges(&line, "measured", self.room));
            text.push('\n');
        }
        let recovery_ns = self.counts.get("drive.recovery_ns").unwrap_or(0);
        if recovery_ns > 0 {
            let line =
                format!("  power-on took {}: what was on flash was found again", time(recovery_ns as f64));
            text.push_str(&edges(&line, &self.model_kind(), self.room));
            text.push('\n');
        }
        text + "\n"
    }

    /// A figure per operation; a replay does not know the operations.
    fn if_operated(&self, figure: String) -> String {
        if self.ops.answered() > 0 { figure } else { "-".to_owned() }
    }

    pub(super) fn latency(&self) -> String {
        if self.latency_ns.is_empty() {
            return String::new();
        }
        let headings = ["mean", "stdev", "min", "p50", "p95", "p99", "p99.9", "p99.99", "max"];
        let mut table = Table::new("LATENCY", &headings, &self.time_kind());
        let several = self.latency_ns.iter().nth(1).is_some();
        let all = self.latency_all_ns.as_ref().filter(|_| several).map(|latency| ("all", latency));
        for (name, latency) in self.latency_ns.iter().chain(all) {
            let Latency { mean, stdev, min, p50, p95, p99, p999, p9999, max } = *latency;
            let ranks = [min, p50, p95, p99, p999, p9999, max].map(|ns| ns as f64);
            let cells: Vec<_> = [mean, stdev].into_iter().chain(ranks).map(time).collect();
            table.row(name, &cells);
        }
        with_stalls(table.finish(self.room), stalls(std::slice::from_ref(self.report), self.room - 2))
    }

    /// Model time of the commands of a served drive, whatever the clock of the run.
    fn commands(&self) -> String {
        if self.commands.is_empty() {
            return String::new();
        }
        let headings = ["completed", "mean", "p50", "p99", "p99.9", "max"];
        let mut table = Table::new("COMMANDS", &headings, &self.model_kind());
        for (name, commands) in self.commands.iter() {
            let Commands { count, mean_ns, p50_ns, p99_ns, p999_ns, max_ns } = *commands;
            let spans = [mean_ns, p50_ns as f64, p99_ns as f64, p999_ns as f64, max_ns as f64];
            let cells: Vec<_> = std::iter::once(grouped(count)).chain(spans.map(time)).collect();
            table.row(name, &cells);
        }
        with_stalls(table.finish(self.room), stalls_of_commands(self.report, self.room - 2))
    }

    pub(super) fn transactions(&self) -> String {
        if self.transactions.is_empty() {
            return String::new();
        }
        let headings = ["committed", "rolled back", "throughput", "mean", "p50", "p99", "max"];
        let mut table = Table::new("TRANSACTIONS", &headings, &self.time_kind());
        for (name, transactions) in self.transactions.iter() {
            let Latency { mean, p50, p99, max, .. } = transactions.latency_ns;
            let [mean, p50, p99, max] = [mean, p50 as f64, p99 as f64, max as f64].map(time);
            let counts = [transactions.committed, transactions.rolled_back].map(grouped);
            let [committed, rolled_back] = counts;
            table.row(name, &[committed, rolled_back, rate(transactions.per_s), mean, p50, p99, max]);
        }
        table.finish(self.room)
    }

    fn traffic(&self) -> String {
        let headings = ["payload", "B/op", "share", "wire", "B/op"];
        let mut table = Table::new("TRAFFIC", &headings, COUNTED);
        let traffic = self.counts.section("traffic");
        let total = |name| traffic.get(name).unwrap_or(0);
        let (payload, wire) = (total("payload_bytes"), total("wire_bytes"));
        let ops = self.ops.answered() as f64;
        let mut row = |name: &str, payload_bytes: u64, wire_bytes: u64| {
            let cells = [
                bytes(payload_bytes as f64),
                self.if_operated(short(ratio(payload_bytes as f64, ops))),
                percent(ratio(payload_bytes as f64, payload as f64)),
                bytes(wire_bytes as f64),
                self.if_operated(short(ratio(wire_bytes as f64, ops))),
            ];
            table.row(name, &cells);
        };
        let classes = traffic.labels("payload_bytes").zip(traffic.labels("wire_bytes"));
        for ((name, payload_bytes), (_, wire_bytes)) in classes {
            if payload_bytes > 0 || wire_bytes > 0 {
                row(name, payload_bytes, wire_bytes);
            }
        }
        row("total", payload, wire);
        table.finish(self.room)
    }

    fn flash(&self) -> String {
        let mut table = Table::new("NAND", &["programs", "share", "reads", "share"], COUNTED);
        let nand = self.counts.section("nand");
        let total = |name| nand.get(name).unwrap_or(0);
        let (programs, reads) = (total("programs"), total("reads"));
        let count = |count: u64| if count == 0 { String::new() } else { grouped(count) };
        let share = |of: u64, count: u64| match count {
            0 => String::new(),
            count => percent(ratio(count as f64, of as f64)),
        };
        let purposes = || nand.labels("programs").zip(nand.labels("reads"));
        let programmed = purposes().filter(|((_, programmed), _)| *programmed > 0);
        let only_read = purposes().filter(|((_, programmed), (_, read))| *programmed == 0 && *read > 0);
        for ((name, programmed), (_, read)) in programmed.chain(only_read) {
            let cells = [count(programmed), share(programs, programmed), count(read), share(reads, read)];
            table.row(name, &cells);
        }
        table.row("total", &[grouped(programs), String::new(), grouped(reads)]);
        table.row("erases", &[grouped(total("erases"))]);
        if let Some(opened) = self.counts.get("engine.value_pages_opened") {
            table.row("value pages", &[grouped(opened)]);
        }
        table.finish(self.room)
    }

    fn amplification(&self) -> String {
        let headings = ["traffic", "write", "copied", "copied/op"];
        let mut table = Table::new("AMPLIFICATION", &headings, COUNTED);
        let copied = self.counts.get("engine.memcpy_bytes").unwrap_or(0) as f64;
        let cells = [
            amplification(self.amplification.traffic),
            amplification(self.amplification.write),
            bytes(copied),
            self.if_operated(bytes(ratio(copied, self.ops.answered() as f64))),
        ];
        table.row("", &cells);
        table.finish(self.room)
    }

    /// Result of checking values, if they were checked.
    pub(super) fn verified(&self) -> String {
        let Some(verified) = &self.verified else { return String::new() };
        let headings = ["checked", "absent", "wrong", "missing", "unread", "unknown", "unchecked"];
        let mut table = Table::new("VERIFIED", &headings, COUNTED);
        let super::Verified { checked, absent, wrong, missing, unread, unknown, unchecked } = *verified;
        table.row("", &[checked, absent, wrong, missing, unread, unknown, unchecked].map(grouped));
        table.finish(self.room)
    }

    /// Effect of the fault rules, if there are any.
    fn faults(&self) -> String {
        if self.faults.is_empty() {
            return String::new();
        }
        let mut table = Table::new("FAULTS", &["fault", "matched", "struck"], COUNTED);
        for fault in &self.faults {
            table.row(&fault.rule, &[fault.fault.to_owned(), grouped(fault.matched), grouped(fault.struck)]);
        }
        table.finish(self.room)
    }

    /// Failures of flash, if there were rules or failures.
    fn flash_health(&self) -> String {
        let health = self.counts.section("flash_health");
        if health.is_empty() {
            return String::new();
        }
        let of = |name| grouped(health.of(name));
        let headings = [
            "retired",
            "spares left",
            "read-only",
            "program err.",
            "erase err.",
            "read retries",
            "read err.",
        ];
        let mut table = Table::new("FLASH HEALTH", &headings, COUNTED);
        let cells = [
            of("retired_blocks"),
            format!("{} of {}", of("spare_blocks_left"), of("spare_blocks")),
            if health.of("is_read_only") > 0 { "yes" } else { "no" }.to_owned(),
            of("program_errors"),
            of("erase_errors"),
            of("read_retries"),
            of("read_errors"),
        ];
        table.row("", &cells);
        table.finish(self.room)
    }

    /// Cost of loading; empty for a workload that loads nothing.
    fn precondition(&self) -> String {
        let Some(loading) = &self.precondition else { return String::new() };
        let headings = ["stores", "values", "write amp.", "programs", "erases", "model time"];
        let mut table = Table::new("PRECONDITION", &headings, COUNTED);
        let cells = [
            grouped(loading.stores),
            bytes(loading.stored_bytes as f64),
            amplification(loading.write_amplification),
            grouped(loading.counts.of("nand.programs")),
            grouped(loading.counts.of("nand.erases")),
            loading.virtual_ns.map_or_else(|| "untimed".into(), |span_ns| time(span_ns as f64)),
        ];
        table.row("", &cells);
        table.finish(self.room)
    }

    /// The counters of a section, as far as they are not 0.
    fn section(&self, heading: &'static str, section: &str) -> String {
        let mut table = Table::new(heading, &["count", "per op"], COUNTED);
        let ops = self.ops.answered() as f64;
        let mut any = false;
        for count in self.counts.section(section).iter().filter(|count| count.value > 0) {
            let of_label = count.label.map_or_else(String::new, |label| format!(".{label}"));
            let kind = if count.counter.kind == Kind::Counted { "" } else { " (modelled)" };
            let per_op = self.if_operated(short(ratio(count.value as f64, ops)));
            let per_op = if count.counter.form == Form::Sum { per_op } else { String::new() };
            table.row(&format!("{}{of_label}{kind}", count.counter.name), &[grouped(count.value), per_op]);
            any = true;
        }
        if any { table.finish(self.room) } else { String::new() }
    }

    fn resources(&self) -> String {
        let mut busiest: Vec<_> = self.resources.iter().collect();
        // Stable sort: equally busy resources stay in the order of the model.
        busiest.sort_by(|a, b| b.1.busy_fraction.total_cmp(&a.1.busy_fraction));
        busiest.retain(|(_, resource)| resource.busy_fraction > 0.0);
        if busiest.is_empty() {
            return String::new();
        }
        let mut table = Table::new("RESOURCES", &["busy", "busiest", "mean wait"], &self.model_kind());
        for (name, resource) in busiest.into_iter().take(BUSIEST) {
            let one = resource.busiest_fraction.map_or_else(String::new, percent);
            table.row(name, &[percent(resource.busy_fraction), one, time(resource.queue_ns_mean)]);
        }
        table.finish(self.room)
    }
}

/// A table of latencies with the line about its means, if there is one.
fn with_stalls(table: String, line: String) -> String {
    match line.trim_end() {
        "" => table,
        line => format!("{}\n  {}\n\n", table.trim_end(), line.replace('\n', "\n  ")),
    }
}

/// Bytes per byte stored; empty if nothing was stored.
fn amplification(times: Option<f64>) -> String {
    times.map_or_else(|| "-".to_owned(), short)
}
