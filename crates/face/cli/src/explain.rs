//! `kvdrive explain`: every step of one command.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kvdrive_config::{Document, RunOptions};
use kvdrive_nvme::batch::BATCH_REQUESTS_MAX;
use kvdrive_probe::explain::{Explanation, Kind, explain};
use kvdrive_run::plan::in_model_time;
use kvdrive_sim::TraceEntry;
use kvdrive_text::scaled::time;
use kvdrive_text::{grouped, wrap};
use serde_json::{Value, json};

use crate::output;
use crate::settings::{Settings, fault_rules, tell_capacity};

/// Columns of the lines that are no table.
const COLUMNS: usize = 80;

/// If a command has more steps, only the first and the last ones are shown, and a line for each kind of the others; a
/// large value has tens of thousands.
const STEPS_MAX: usize = 400;
const FIRST_STEPS: usize = 60;
const LAST_STEPS: usize = 30;

/// Options of `explain`.
#[derive(Args)]
pub struct Explain {
    /// Which command
    command: CommandName,
    /// TOML file of rules by which the drive fails (`kvdrive list faults`)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Writes the steps as JSON to a file, or to standard output (-) instead of the table; every step, also those that
    /// the table of a large value summarises
    #[arg(long, value_name = "FILE|-")]
    json: Option<String>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Clone, Copy, ValueEnum)]
enum CommandName {
    Store,
    Retrieve,
    Delete,
    Exist,
    List,
    Seek,
}

/// Requests of the batch that is shown.
fn requests(text: &str) -> anyhow::Result<u32> {
    let requests = text.parse().ok().filter(|requests| (1..=BATCH_REQUESTS_MAX).contains(requests));
    requests.ok_or_else(|| anyhow::anyhow!("--batch: {text}; allowed: 1 to {BATCH_REQUESTS_MAX}"))
}

impl Explain {
    /// Runs it and prints its steps.
    pub fn run(&self) -> anyhow::Result<()> {
        output::check_json(self.json.as_ref())?;
        let options = self.settings.options()?;
        let batch = options.get("batch").map(requests).transpose()?;
        if options.get("saker") == Some("on") {
            return self.run_through_saker(&options, batch);
        }
        let kind = match self.command {
            CommandName::Store => batch.map_or(Kind::Store, Kind::Batch),
            _ if batch.is_some() => anyhow::bail!("--batch is for explain store"),
            CommandName::Retrieve => Kind::Retrieve,
            CommandName::Delete => Kind::Delete,
            CommandName::Exist => Kind::Exist,
            CommandName::List => Kind::List,
            CommandName::Seek => Kind::Seek,
        };
        // The shown batch is built here, not by SAKER.
        let options = options.without("batch");
        let document = options.document_of_drive("explain")?;
        refuse_unlooked_at(&options, &document)?;
        in_model_time(&document.config()?)?;
        self.show(&document, kind)
    }

    /// A batch from SAKER's container to flash.
    fn run_through_saker(&self, options: &RunOptions, batch: Option<u32>) -> anyhow::Result<()> {
        let is_store = matches!(self.command, CommandName::Store);
        anyhow::ensure!(
            is_store,
            "--saker: explain shows a batch of stores by SAKER; give their number with --batch"
        );
        let document = options.document()?;
        refuse_unlooked_at(options, &document)?;
        let config = document.config()?;
        in_model_time(&config)?;
        self.show(&document, Kind::Batch(batch.unwrap_or(config.saker.batch.max(1))))
    }

    fn show(&self, document: &Document, kind: Kind) -> anyhow::Result<()> {
        let rules = fault_rules(self.faults.as_ref(), document)?;
        tell_capacity([document]);
        let explanation = explain(document, kind, &rules)?;
        if self.json.as_deref() != Some("-") {
            output::print(&table(&explanation, kind, &document.time_sources()));
        }
        self.json
            .as_ref()
            .map_or(Ok(()), |path| output::write_json(path, &as_json(&explanation, kind, document)))
    }
}

/// Does a key concern a run, so that one command on an idle drive does not look at it?
pub fn is_of_run(key: &str) -> bool {
    match key.split_once('.') {
        Some(("workload", name)) => name != "value_size",
        _ => ["host.depth", "host.queues", "host.threads", "host.think_ns", "run.seed"].contains(&key),
    }
}

fn refuse_unlooked_at(options: &RunOptions, document: &Document) -> anyhow::Result<()> {
    options.refuse(
        is_of_run,
        "explain shows one command on an idle drive and does not look at it; leave it out",
    )?;
    // The value has the requested size, which this workload uses.
    let mut document = document.clone();
    document.set("workload.name=w-a")?;
    Ok(options.check_looked_at([&document.config()?])?)
}

/// Every step, with the same numbers as the table.
fn as_json(explanation: &Explanation, kind: Kind, document: &Document) -> Value {
    let Explanation { steps, asking, after_answer, occupied, latency_ns, status, value_bytes } = explanation;
    let (command, values) = match kind {
        Kind::Store => ("store", 1),
        Kind::Batch(stores) => ("batch", stores),
        Kind::Retrieve => ("retrieve", 1),
        Kind::Seek => ("seek", 1),
        Kind::Delete => ("delete", 0),
        Kind::Exist => ("exist", 0),
        Kind::List => ("list", 0),
    };
    let answered = steps.len() - after_answer;
    let steps = steps.iter().enumerate().map(|(number, step)| {
        let TraceEntry { at, span_ns, room, what, bytes, purpose } = step;
        let part = match number {
            _ if number < *asking => "request for a window",
            _ if number < answered => "command",
            _ => "after the answer",
        };
        let purpose = Some(*purpose).filter(|purpose| !purpose.is_empty());
        json!({
            "part": part, "at_ns": at, "takes_ns": span_ns, "room": room, "step": what, "bytes": bytes,
            "purpose": purpose,
        })
    });
    let occupied = occupied.iter().map(|of| {
        let spent: serde_json::Map<_, _> =
            of.spent().map(|(cause, ns)| (cause.to_string(), ns.into())).collect();
        json!({"name": of.name, "tasks": of.tasks, "occupied_ns": of.occupied_ns(), "spent_ns": spent})
    });
    json!({
        "command": command,
        "values": values,
        "value_bytes": (values > 0).then_some(value_bytes),
        "status": status.to_string(),
        "latency_ns": latency_ns,
        "payload_bytes": crossed(&explanation.steps[..answered]),
        "steps": steps.collect::<Vec<_>>(),
        "occupied": occupied.collect::<Vec<_>>(),
        "kinds": {"counted": ["bytes", "payload_bytes"], "modelled": ["at_ns", "takes_ns", "latency_ns", "occupied_ns", "spent_ns"]},
        "time_sources": document.time_sources(),
        "profile": document.profile_name(),
        "revision": kvdrive_run::revision::of_program(),
        "config": document.values(),
    })
}

/// Payload bytes that crossed the link.
fn crossed(steps: &[TraceEntry]) -> u64 {
    steps.iter().filter(|step| step.room == "link").map(|step| step.bytes).sum()
}

fn table(explanation: &Explanation, kind: Kind, sources: &str) -> String {
    let width = explanation.steps.iter().map(|step| grouped(step.at).len()).fold(9, usize::max);
    let mut text = format!(
        "{:>width$}  {:>9}  {:<11} {:<28} {:>8}  {}\n",
        "at ns", "takes ns", "room", "step", "bytes", "purpose"
    );
    let Explanation { steps, asking, after_answer, occupied, latency_ns, status, value_bytes } = explanation;
    let (steps, after_answer) = steps.split_at(steps.len() - after_answer);
    let (ahead, store) = steps.split_at(*asking);
    if !ahead.is_empty() {
        text += "the request for a window, which a store sends if it has none or a full one:\n";
        text += &lines(ahead, width);
        text += "the store:\n";
    }
    text += &lines(store, width);
    if !after_answer.is_empty() {
        text += "after the answer, when buffered pages are written:\n";
        text += &lines(after_answer, width);
    }
    let size = grouped(u64::from(*value_bytes));
    let values = match kind {
        Kind::Store | Kind::Retrieve | Kind::Seek => format!(" for a value of {size} B"),
        Kind::Batch(1) => format!(" for a batch of one value of {size} B"),
        Kind::Batch(stores) => format!(" for a batch of {stores} values of {size} B each"),
        Kind::Delete | Kind::Exist | Kind::List => String::new(),
    };
    let answer = format!(
        "{status}: {} (modelled: {sources}), {} payload bytes over the link (counted){values}",
        time(*latency_ns as f64),
        grouped(crossed(steps)),
    );
    text += &format!("\n{}", wrap(&answer, COLUMNS));
    for of in occupied.iter().filter(|of| of.occupied_ns() > 0) {
        let spent: Vec<_> = of.spent().map(|(cause, ns)| format!("{cause} {}", time(ns as f64))).collect();
        text +=
            &format!("{} occupied for {}: {}\n", of.name, time(of.occupied_ns() as f64), spent.join(", "));
    }
    if let (false, Some(first)) = (ahead.is_empty(), store.first()) {
        text += &format!(
            "without the request for a window: {}, {} payload bytes\n",
            time((latency_ns - first.at) as f64),
            grouped(crossed(store))
        );
    }
    text
}

/// The steps; of very many, the first, the last, and a summary of those between.
fn lines(steps: &[TraceEntry], width: usize) -> String {
    if steps.len() <= STEPS_MAX {
        return steps.iter().map(|step| line(step, width)).collect();
    }
    let (first, rest) = steps.split_at(FIRST_STEPS);
    let (between, last) = rest.split_at(rest.len() - LAST_STEPS);
    let mut kinds: Vec<(usize, TraceEntry)> = Vec::new();
    for step in between {
        let is_of = |of: &TraceEntry| (of.room, of.what, of.purpose) == (step.room, step.what, step.purpose);
        match kinds.iter_mut().find(|(_, of)| is_of(of)) {
            Some((count, of)) => {
                *count += 1;
                of.span_ns += step.span_ns;
                of.bytes += step.bytes;
            }
            None => kinds.push((1, step.clone())),
        }
    }
    let mut text: String = first.iter().map(|step| line(step, width)).collect();
    text += &format!(
        "then {} steps, by kind: number, sum of their times (many run at once), bytes\n",
        grouped(between.len() as u64)
    );
    for (count, of) in kinds {
        text += &columns(&format!("{} x", grouped(count as u64)), &of, width);
    }
    text += "and at last\n";
    last.iter().for_each(|step| text += &line(step, width));
    text
}

fn line(step: &TraceEntry, width: usize) -> String {
    columns(&grouped(step.at), step, width)
}

fn columns(at: &str, step: &TraceEntry, width: usize) -> String {
    let bytes = if step.bytes > 0 { grouped(step.bytes) } else { String::new() };
    let TraceEntry { span_ns, room, what, purpose, .. } = step;
    let span_ns = grouped(*span_ns);
    let line = format!("{at:>width$}  {span_ns:>9}  {room:<11} {what:<28} {bytes:>8}  {purpose}");
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of 16 MiB has some ten thousand steps. They are summarised on a page or two, and the sums include each
    /// of them.
    #[test]
    fn a_large_value_is_explained_on_few_lines() {
        for engine in ["lsm", "hashlog"] {
            let mut document = RunOptions::default().document_of_drive("explain").unwrap();
            for set in [&format!("engine.name={engine}"), "workload.value_size=16MiB"] {
                document.set(set).unwrap();
            }
            for kind in [Kind::Store, Kind::Retrieve] {
                let text = table(&explain(&document, kind, &[]).unwrap(), kind, &document.time_sources());
                assert!(text.contains(" steps, by kind"), "{engine}: {text}");
                assert!(text.lines().count() < 200, "{engine}: {} lines", text.lines().count());
                let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words.contains("for a value of 16 777 216 B"), "{engine}: {text}");
            }
        }
    }

    /// The JSON has every step of the table, and those that it summarises; sums agree with its last lines.
    #[test]
    fn the_steps_as_json_are_those_of_the_table() {
        let mut document = RunOptions::default().document_of_drive("explain").unwrap();
        for (size, method) in [("128", "piggyback"), ("16MiB", "prp"), ("128", "cxl")] {
            document.set(&format!("workload.value_size={size}")).unwrap();
            document.set(&format!("host.transfer={method}")).unwrap();
            let explanation = explain(&document, Kind::Store, &[]).unwrap();
            let text = table(&explanation, Kind::Store, &document.time_sources());
            let json = as_json(&explanation, Kind::Store, &document);
            let steps = json["steps"].as_array().unwrap();
            assert_eq!(steps.len(), explanation.steps.len());
            let number = |value: &Value| grouped(value.as_u64().unwrap());
            let first = text.lines().find(|line| line.contains(steps[0]["step"].as_str().unwrap())).unwrap();
            assert!(first.contains(&format!("{}  ", number(&steps[0]["takes_ns"]))), "{first}");
            let crossed: u64 = steps
                .iter()
                .filter(|step| step["room"] == "link")
                .map(|step| step["bytes"].as_u64().unwrap())
                .sum();
            assert_eq!(json["payload_bytes"], crossed, "{method}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("{} payload bytes over the link", grouped(crossed))), "{words}");
            assert_eq!(json["latency_ns"], explanation.latency_ns);
            assert_eq!(steps.iter().any(|step| step["part"] == "request for a window"), method == "cxl");
            assert_eq!(json["time_sources"], document.time_sources());
            let spent = json["occupied"][0]["spent_ns"].as_object().unwrap();
            let sum: u64 = spent.values().map(|ns| ns.as_u64().unwrap()).sum();
            assert_eq!(json["occupied"][0]["occupied_ns"], sum);
        }
    }

    #[test]
    fn the_answer_says_of_a_value_only_where_one_crosses_and_fits_a_terminal() {
        let options = RunOptions::default();
        let document = options.document_of_drive("explain").unwrap();
        let kinds = [
            (Kind::Store, Some("for a value of")),
            (Kind::Retrieve, Some("for a value of")),
            (Kind::Batch(3), Some("of 3 values of")),
            (Kind::Delete, None),
            (Kind::Exist, None),
            (Kind::List, None),
        ];
        for (kind, said) in kinds {
            let text = table(&explain(&document, kind, &[]).unwrap(), kind, &document.time_sources());
            let (_, answer) = text.rsplit_once("\n\n").unwrap();
            let words = answer.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(said.is_some(), words.contains("value"), "{words}");
            assert!(said.is_none_or(|said| words.contains(said)), "{words}");
            let answer = answer.split(" occupied for ").next().unwrap();
            for line in text.lines().take(1).chain(answer.lines()) {
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
        }
    }
}
