//! Every counter that a report can have, from small drives of every kind; the page that lists them; and
//! counts that are read back from the JSON of a report.

use std::fmt::Write;
use std::rc::Rc;

use kvdrive_config::{Document, default_profile};
use kvdrive_declare::{Counter, Counters, Counts, Sections};
use kvdrive_device::Drive;
use kvdrive_device::engines::{BLOCK, ENGINES, Largest};
use kvdrive_engines::divided;
use kvdrive_link::{Link, LocalMemory};
use kvdrive_sim::Sim;
use kvdrive_store::STORES;
use kvdrive_workload::kvcache::{CacheCounters, TokenCounters, UnfilteredCounters};
use once_cell::race::OnceBox;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use crate::places::HostSide;
use crate::report::Named;
use crate::snapshot::DriveSnapshot;

const HEAD: &str = "\
# Counters

Every counter, from its declaration in the source: `kvdrive list --counters` writes this page. SECTION.NAME is its name in the JSON of
a report (`kvdrive run --json`), in lines of `--interval`, in `Numbers`, in `ctl status --json` and on the page of a served drive. Prometheus
has `kvdrive_SECTION_NAME`; names of times end in `_seconds` instead of `_ns`, and names of sums in `_total`. A counter with labels is an
object with the value of each label and their `total`. A *sum* counts events: a report has its growth during the run. A *state* has its value
at the end of the run, a *maximum* its largest value since power-on. Each report names the sources of the times of *modelled* counters.
";

/// A counter, and where it is.
pub struct Declared {
    /// Its section of the report.
    pub section: &'static str,
    /// Its declaration.
    pub counter: &'static Counter,
    /// Engines and stores that have it; empty: every drive.
    pub of: Vec<String>,
}

/// The counters of a new drive with these settings, and of its host.
///
/// # Errors
/// There is no such drive.
pub fn counts_of(profile: &str, settings: &[String]) -> anyhow::Result<Sections> {
    let mut document = Document::profile(profile)?;
    settings.iter().try_for_each(|setting| document.set(setting))?;
    let config = document.config()?;
    let sim = Sim::new();
    let memory = Rc::new(LocalMemory::new());
    let link = Link::new(&sim, config.link.clone(), memory.clone());
    let counts = sim.block_on(|| {
        let drive = Drive::power_on(&sim, &link, &config.drive(), None)?;
        let host = HostSide::connect(&config, &link, &memory)?;
        let mut counts = DriveSnapshot::of(&sim, &link, &drive, &host.cores).counts;
        host.count(&mut counts);
        anyhow::Ok(counts)
    });
    sim.clear();
    counts
}

/// Every counter of a drive, its link and its host, by section.
///
/// # Errors
/// One of the small drives cannot be made.
pub fn declared() -> anyhow::Result<Vec<Declared>> {
    let mut kinds = Vec::new();
    for engine in ENGINES {
        let settings = vec![format!("engine.name={}", engine.name), "saker.enabled=true".to_owned()];
        kinds.push((engine.name, default_profile(engine.name), settings));
    }
    for store in STORES {
        let settings = vec![format!("engine.name={}", BLOCK.name), format!("host.store={}", store.name)];
        kinds.push((store.name, default_profile(BLOCK.name), settings));
    }
    // A drive has these counters only with a budget of DRAM for its index.
    let with_dram = vec!["engine.name=lsm".to_owned(), "lsm.dram_bytes=1048576".to_owned()];
    kinds.push(("lsm", default_profile("lsm"), with_dram));
    let mut all: Vec<Declared> = Vec::new();
    for (name, profile, mut settings) in kinds {
        settings.push("flash.blocks_per_die=64".to_owned());
        let counts = counts_of(profile, &settings)?;
        counts.iter().for_each(|(section, counts)| add(&mut all, section, counts, name));
    }
    // A drive has these counters only after it has had such values.
    for row in ENGINES.iter().filter(|row| row.largest == Largest::Divided) {
        add(&mut all, "engine", &divided::counters(), row.name);
        add(&mut all, "dram", &divided::memory(), row.name);
    }
    let of_cache = CacheCounters::default().counts();
    let of_cache = of_cache.and(&TokenCounters::default()).and(&UnfilteredCounters::default());
    add(&mut all, "workload", &of_cache, "kvcache");
    // A counter that every kind of drive has is listed without kinds.
    let everywhere = all.iter().map(|declared| declared.of.len()).max().unwrap_or(0);
    all.iter_mut()
        .filter(|declared| declared.of.len() == everywhere)
        .for_each(|declared| declared.of.clear());
    Ok(all)
}

fn add(all: &mut Vec<Declared>, section: &'static str, counts: &Counts, of: &str) {
    for values in counts.by_counter() {
        let counter = values[0].counter;
        let of_it = |section, counter: &Counter| (section, counter.name, counter.help);
        let is_it = |known: &Declared| of_it(known.section, known.counter) == of_it(section, counter);
        match all.iter_mut().find(|known| is_it(known)) {
            Some(known) if known.of.iter().any(|name| name == of) => {}
            Some(known) => known.of.push(of.to_owned()),
            None => all.push(Declared { section, counter, of: vec![of.to_owned()] }),
        }
    }
}

/// The declaration of a counter, by its section and name. Engines of the same section declare counters of the
/// same name with equal properties except for the help text, so the first declaration serves for all.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Declared> {
    static DECLARED: OnceBox<Vec<Declared>> = OnceBox::new();
    let all = DECLARED.get_or_init(|| {
        Box::new(declared().expect("small drives of every kind are powered on in tests, too"))
    });
    all.iter().find(|known| known.section == section && known.counter.name == name)
}

/// Reads the sections of counters from the JSON of a report, in which they stand beside other keys.
pub(crate) fn sections<'de, D: Deserializer<'de>>(from: D) -> Result<Sections, D::Error> {
    let mut sections = Sections::default();
    for (section, json) in Named::<Value>::deserialize(from)?.iter() {
        let wrong = |problem| D::Error::custom(format!("{section}: {problem}"));
        let values = json.as_object().ok_or_else(|| wrong("no section of counters".to_owned()))?;
        let (mut name_of, mut counts) = ("", Counts::default());
        for (name, json) in values {
            let known = find(section, name);
            let known = known.ok_or_else(|| wrong(format!("there is no counter {name}")))?;
            name_of = known.section;
            counts.put_json(known.counter, json).map_err(wrong)?;
        }
        sections.set(name_of, counts);
    }
    Ok(sections)
}

/// The page, as Markdown. `further` are counters outside of a drive and its host.
///
/// # Errors
/// As [`declared`].
pub fn reference(further: Vec<Declared>) -> anyhow::Result<String> {
    let mut all = declared()?;
    all.extend(further);
    let mut sections: Vec<_> = all.iter().map(|declared| declared.section).collect();
    sections.sort_unstable();
    sections.dedup();
    let mut page = HEAD.to_owned();
    for section in sections {
        write!(
            page,
            "\n## {section}\n\n| counter | unit | kind | of | what it is |\n|---|---|---|---|---|\n"
        )?;
        for Declared { counter, of, .. } in all.iter().filter(|declared| declared.section == section) {
            let (name, unit) = (counter.name, counter.unit.name());
            let kind = format!("{}, {}", counter.kind.name(), counter.form_name());
            let by = counter.by.map_or_else(String::new, |by| format!(" By {}.", by.label));
            writeln!(page, "| `{name}` | {unit} | {kind} | {} | {}{by} |", of.join(", "), counter.help)?;
        }
    }
    Ok(page)
}
