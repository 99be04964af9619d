//! `kvdrive list`: every name of a kind, one line each with its origin.

use clap::{Args, ValueEnum};
use kvdrive_config::{DRAM_POINTS, Document, PROFILES, Profile};
use kvdrive_declare::Counters;
use kvdrive_device::engines::{ENGINES, EngineRow};
use kvdrive_engines::lsm::compaction::COMPACTIONS;
use kvdrive_engines::packing::PACKINGS;
use kvdrive_flash::faults::FAULTS;
use kvdrive_flash::ftl::victim::VICTIMS;
use kvdrive_flash::media::MEDIA;
use kvdrive_flash::timing::TIMINGS;
use kvdrive_host::spread::Share;
use kvdrive_link::transfer::METHODS;
use kvdrive_run::declared::{self, Declared};
use kvdrive_run::memory::ProcessMemory;
use kvdrive_run::report::fields;
use kvdrive_saker::cache::EVICTIONS;
use kvdrive_store::STORES;
use kvdrive_subsystem::subsystem::Served;
use kvdrive_text::names::no_such;
use kvdrive_text::scaled::time;
use kvdrive_workload::{FORMATS, FROM_FILES, WORKLOADS, kvcache};

use crate::documents;
use crate::output;
use crate::serve::seen::{HostsNow, ServerCounters};

/// Options of `list`.
#[derive(Args)]
pub struct List {
    /// Only this kind
    kind: Option<Kind>,
    /// Prints the reference of all counters as Markdown instead: unit, kind, description
    #[arg(long, conflicts_with = "kind")]
    counters: bool,
    /// Prints the reference of all fields of JSON documents as Markdown instead: unit, kind, description
    #[arg(long, conflicts_with_all = ["kind", "counters"])]
    fields: bool,
    /// Prints the JSON Schema of a document instead: report, connected, interval, status or explain
    #[arg(long, value_name = "DOCUMENT", conflicts_with_all = ["kind", "counters", "fields"])]
    schema: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Profiles,
    Workloads,
    Transfers,
    Packings,
    Engines,
    Compactions,
    Stores,
    Evictions,
    Dram,
    Media,
    Victims,
    Faults,
    Timings,
    Traces,
    Models,
    Layouts,
    Policies,
    Admissions,
}

const KINDS: [(Kind, &str); 18] = [
    (Kind::Profiles, "profiles"),
    (Kind::Workloads, "workloads"),
    (Kind::Transfers, "transfers"),
    (Kind::Packings, "packings"),
    (Kind::Engines, "engines"),
    (Kind::Compactions, "compactions"),
    (Kind::Stores, "stores"),
    (Kind::Evictions, "evictions"),
    (Kind::Dram, "dram"),
    (Kind::Media, "media"),
    (Kind::Victims, "victims"),
    (Kind::Faults, "faults"),
    (Kind::Timings, "timings"),
    (Kind::Traces, "traces"),
    (Kind::Models, "models"),
    (Kind::Layouts, "layouts"),
    (Kind::Policies, "policies"),
    (Kind::Admissions, "admissions"),
];

impl List {
    /// Prints it.
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(name) = &self.schema {
            let documents = documents::all();
            let names: Vec<_> = documents.iter().map(|document| document.name).collect();
            let document = documents.iter().find(|document| document.name == name);
            let document =
                document.ok_or_else(|| anyhow::anyhow!(no_such("--schema", "document", name, &names)))?;
            output::print(&serde_json::to_string_pretty(&fields::schema(document)?)?);
            return Ok(());
        }
        match (self.counters, self.fields) {
            (true, _) => output::print(&reference()?),
            (_, true) => output::print(&fields::page(&documents::all())),
            _ => output::print(&self.text(output::terminal_columns())),
        }
        Ok(())
    }

    /// One line for each row. For a terminal, lines are wrapped at `columns` columns; otherwise they are not.
    fn text(&self, columns: Option<usize>) -> String {
        let mut text = String::new();
        for (kind, title) in KINDS {
            if self.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            if self.kind.is_none() {
                text += &format!("{title}\n");
            }
            let rows = rows(kind);
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, origin) in rows {
                text += &row(&format!("  {name:width$} "), &origin, columns.unwrap_or(usize::MAX));
            }
        }
        text
    }
}

/// The page of all counters: of drives and hosts, of a server, and of one of several drives.
fn reference() -> anyhow::Result<String> {
    let of_hosts = Served::COUNTERS.iter().chain(HostsNow::COUNTERS).map(|counter| ("hosts", counter));
    let of_server = ServerCounters::COUNTERS.iter().map(|counter| ("server", counter));
    let of_process = ProcessMemory::COUNTERS.iter().map(|counter| ("process", counter));
    let of_server =
        of_hosts.chain(of_server).chain(of_process).map(|(section, counter)| (section, counter, "serve"));
    let of_shares = Share::COUNTERS.iter().map(|counter| ("share", counter, "run --connect a,b"));
    let further = of_server.chain(of_shares).map(|(section, counter, of)| Declared {
        section,
        counter,
        of: vec![of.to_owned()],
    });
    declared::reference(further.collect())
}

/// `head`, and the words of `origin` after it in as many lines as they need.
fn row(head: &str, origin: &str, columns: usize) -> String {
    let (mut text, mut line, indent) = (String::new(), head.to_owned(), " ".repeat(head.len()));
    for word in origin.split_whitespace() {
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > columns {
            text += &(std::mem::replace(&mut line, indent.clone()) + "\n");
        }
        line += &format!(" {word}");
    }
    text + &line + "\n"
}

/// A profile: its origin, the device with its year, the interface, and the times of its flash.
fn of_profile(profile: &Profile) -> String {
    let values = Document::profile(profile.name).expect("it is one").values();
    let at = |path: &str| values.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_default();
    let (read, program) = match values["flash"]["timing"].as_str() {
        Some("flat") => ("/flash/flat/read_latency_ns", "/flash/flat/write_latency_ns"),
        _ => ("/flash/sense_ns", "/flash/program_ns"),
    };
    let (generation, lanes) = (at("/link/generation"), at("/link/lanes"));
    format!(
        "{}. {}; PCIe Gen{generation} x{lanes}; a page is read in {}, programmed in {}",
        profile.origin,
        profile.device,
        time(at(read)),
        time(at(program))
    )
}

fn rows(kind: Kind) -> Vec<(&'static str, String)> {
    let origins: Vec<(&'static str, &'static str)> = match kind {
        Kind::Engines => {
            let line = |row: &EngineRow| format!("{}. Values to {}", row.origin, row.largest.words());
            return ENGINES.iter().map(|row| (row.name, line(row))).collect();
        }
        Kind::Profiles => return PROFILES.iter().map(|row| (row.name, of_profile(row))).collect(),
        Kind::Workloads => WORKLOADS.iter().chain(FROM_FILES).map(|row| (row.name, row.origin)).collect(),
        Kind::Transfers => METHODS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Packings => PACKINGS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Compactions => COMPACTIONS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Stores => STORES.iter().map(|row| (row.name, row.about)).collect(),
        Kind::Evictions => EVICTIONS.iter().map(|row| (row.name, row.summary)).collect(),
        Kind::Dram => DRAM_POINTS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Faults => FAULTS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Victims => VICTIMS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Media => MEDIA.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Traces => FORMATS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Models => kvcache::MODELS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Layouts => kvcache::LAYOUTS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Policies => kvcache::POLICIES.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Admissions => kvcache::ADMISSIONS.iter().map(|row| (row.name, row.origin)).collect(),
        Kind::Timings => TIMINGS.iter().map(|row| (row.name, row.origin)).collect(),
    };
    origins.into_iter().map(|(name, origin)| (name, origin.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_the_terminal_and_are_a_line_each_elsewhere() {
        let list = List { kind: None, counters: false, fields: false, schema: None };
        let whole = list.text(None);
        for columns in [60, 80, 140] {
            let folded = list.text(Some(columns));
            assert!(folded.lines().all(|line| line.chars().count() <= columns), "{columns}: {folded}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&folded), words(&whole));
        }
        assert!(whole.lines().any(|line| line.starts_with("  w-m ") && line.len() > 60), "{whole}");
        assert_eq!(row("  a ", "one two three", 10), "  a  one\n     two\n     three\n");
    }

    /// `kvdrive list --fields > docs/json.md` generates it.
    #[test]
    fn the_page_of_fields_is_what_is_declared() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/json.md")).unwrap();
        let declared = fields::page(&documents::all());
        let differs = declared.lines().zip(page.lines()).find(|(declared, page)| declared != page);
        assert_eq!((differs, page.len()), (None, declared.trim_end().len() + 1));
    }

    /// `kvdrive list --counters > docs/counters.md` generates it.
    #[test]
    fn the_page_of_counters_is_what_is_declared() {
        let (page, declared) = (include_str!("../../../../docs/counters.md"), reference().unwrap());
        let differs = declared.lines().zip(page.lines()).find(|(declared, page)| declared != page);
        assert_eq!((differs, page.len()), (None, declared.trim_end().len() + 1));
    }
}
